"""A cache as a process of the network: the shell around `cache.cache`.

    host      a component that keeps packets and sends them to subscribers (`CacheHost`)
    settings  what it may use (`CacheSettings`)
    disks     what is told of disks that do not take what comes
    filters   which records match, by schemas
    envelope  records as packets inside packets of a twin, many at a time

Imports only `access`, `cache`, `client`, `content`, `control`, `dataplane`, `errors` and `session`.
"""

from sievenet.cachehost.host import CacheHost
from sievenet.cachehost.settings import CacheSettings

__all__ = ["CacheHost", "CacheSettings"]
