"""The daemon: a fabric in one process, with ports for clients.

`daemon` puts it together: the embedded data plane, the control plane on its journal, and the door (`server`, one `peer`
per connection, `service` for what they ask). `Daemon` is loaded when asked for. May import everything up to `cache`;
does not know the client library.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievenet.daemon.daemon import Daemon

__all__ = ["Daemon"]


def __getattr__(name: str) -> object:
    if name != "Daemon":
        raise AttributeError(f"module 'sievenet.daemon' has no attribute {name!r}")
    from sievenet.daemon.daemon import Daemon

    globals()[name] = Daemon
    return Daemon
