"""Sievenet: publish/subscribe in which the network itself filters by content.

Interests become flow entries in switches and an event's content becomes the destination address of its packet, so a
plain packet match is a content match. The packages below this one, each importing only from those before it:

    errors → content → index → matcher → workload → network → control / dataplane → transport → routers → cache
           → client → pipeline → dashboard → testing → cli

Importing `sievenet` itself imports none of them: a package is loaded when it is asked for, so that the command line
starts quickly and the core never pulls in Spark, a web server or a compiler.
"""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
