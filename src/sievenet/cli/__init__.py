"""The command line: one module per command or group of commands, loaded when it is called.

`main` is the entry point.  A command is added by one line in `table`; its module says what
it does and imports what is slow inside its functions, so that ``sievenet --help`` is quick.

Imports only `access`, `bridge`, `cache`, `cachehost`, `client`, `config`, `content`, `control`, `daemon`,
`dataplane`, `errors`, `gateway`, `index`, `matcher`, `network`, `pipeline`, `programs`, `routers`, `session`, `tap`,
`transport`, `tuning`, `web` and `workload`.
"""

from sievenet.cli.app import main

__all__ = ["main"]
