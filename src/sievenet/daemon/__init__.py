"""The daemon: a fabric in one process, with ports for clients.

`daemon` puts it together: a data plane, the control plane on its journal, and `service`, which answers what comes by
the conversations of `sievenet.session`. `Daemon` is loaded when asked for. It does not know the client library.

Imports only `access`, `cache`, `config`, `content`, `control`, `dataplane`, `errors`, `index`, `network`, `session`,
`tap`, `tuning` and `workload`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sievenet.daemon.daemon import Daemon

__all__ = ["Daemon", "fabric"]


def fabric(topology: str = "testbed", **settings: Any) -> "Daemon":
    """A fabric inside this program, on free ports of the loopback interface; an async context manager.

    ``async with fabric("line,switches=3") as net:`` runs it, `net.url` is for `connect`.  Settings are those of the
    configuration file, as ``section__key`` or ``key`` (`sievenet.config.load_config`).
    """
    from sievenet.config import load_config
    from sievenet.daemon.daemon import Daemon

    return Daemon(load_config(**{"listen__port": 0, "data__port": 0, "topology": topology, **settings}))


def __getattr__(name: str) -> object:
    if name != "Daemon":
        raise AttributeError(f"module 'sievenet.daemon' has no attribute {name!r}")
    from sievenet.daemon.daemon import Daemon

    globals()[name] = Daemon
    return Daemon
