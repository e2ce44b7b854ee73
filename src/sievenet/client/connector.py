"""How a node begins: `connect`, awaited or as a context manager."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

from sievenet.access.identity import Role
from sievenet.access.login import ENVIRONMENT as LOGIN
from sievenet.access.login import load_login
from sievenet.client.fabric_node import FabricNode
from sievenet.client.node import Node
from sievenet.client.transport.transport import publishing
from sievenet.client.url import ENVIRONMENT
from sievenet.session.message import check_name
from sievenet.transport.options import Publishing

__all__ = ["Connecting", "connect"]


class Connecting:
    """What `connect` returns: await it, or use it as an async context manager."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __await__(self) -> Generator[Any, None, Node]:
        return self._node.start().__await__()

    async def __aenter__(self) -> Node:
        return await self._node.start()

    async def __aexit__(self, *error: object) -> None:
        await self._node.close()


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    host: str | None = None,
    timeout: float = 30.0,
    reconnect: bool = True,
    observer: bool = False,
    operator: bool = False,
    login: str | os.PathLike[str] | None = None,
    tap: str | os.PathLike[str] | None = None,
    tap_factor: int = 100,
    transport: Publishing | bool | None = None,
) -> Connecting:
    """Connect to a daemon; await the result for a node, or use it with ``async with``.

    Without a URL the environment's ``SIEVENET_URL`` counts, then ``sievenet://127.0.0.1:7400``. `name` must be free in
    the fabric; without one the daemon gives one. `host` says where to attach, else the daemon chooses. `timeout` is the
    longest that any request takes, in seconds, a reconnect included. An `observer` may ask, not publish or subscribe;
    an `operator` may change plans and schemas besides, from the daemon's own machine.
    `login` is a login file (`sievenet keys`): with it the connection is encrypted, both sides prove who they are, and
    the name is that of the login or NAME.anything; without one, the environment's ``SIEVENET_LOGIN`` counts.
    `transport` says what this node's events carry for receivers that order, recover or control rates: `Publishing(…)`,
    or True for the usual; each `advertise` can say otherwise. With `tap`, one in `tap_factor` of the published events
    is kept in that folder, for the pipeline.

    With ``sievenet+router://host:port`` (``sievenet+routers`` for TLS) the node is at a content router, which chooses
    neither host nor plan; the calls are the same, and schemaless records are welcome too.
    """
    options = publishing(transport, None)
    if name:
        check_name(name)
    address = url or os.environ.get(ENVIRONMENT) or ""
    role = Role.OPERATOR if operator else Role.OBSERVER if observer else Role.CLIENT
    file = login or os.environ.get(LOGIN)
    known = None if file is None else load_login(file)
    if address.startswith("sievenet+router"):
        from sievenet.client.overlay.node import OverlayNode

        node: Node = OverlayNode(
            address, name=name, timeout=timeout, reconnect=reconnect, login=known, role=role, transport=options
        )
    else:
        node = FabricNode(
            url,
            name=name,
            host=host,
            timeout=timeout,
            reconnect=reconnect,
            role=role,
            login=known,
            transport=options,
        )
    if tap is not None:
        from sievenet.tap import Taps

        node.tap(Taps(os.fspath(tap), lambda: node.name, tap_factor))
    return Connecting(node)
