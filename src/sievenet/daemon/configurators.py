"""Configurators at a daemon: it starts them as processes on this machine, keeps them running, and talks to them.

It decides nothing: who comes and goes and what they say is told to the control plane (`control.configurators`), and
what that wants to say is sent.  Only processes that this daemon started are let in: each gets a secret with it.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from typing import Any, Final

from sievenet.access.identity import Credentials, Identity, Role
from sievenet.control.configurators import messages as m
from sievenet.control.plane import ControlPlane
from sievenet.daemon.crew import keep_running
from sievenet.daemon.harvest import Harvest
from sievenet.errors import Rejected
from sievenet.session.connection import Connection
from sievenet.session.lifetime import Tasks
from sievenet.session.limits import Limits
from sievenet.session.listener import Listener, Service
from sievenet.session.message import Message

__all__ = ["SECRET", "Configurators"]

log = logging.getLogger("sievenet.daemon")

#: The variable of the environment that holds the secret.
SECRET: Final = "SIEVENET_CONFIGURATOR_SECRET"  # noqa: S105
#: Seconds of silence after which a connection is given up.
_LEASE: Final = 20.0
#: Connections that are not welcome yet, besides.
_STRANGERS: Final = 256


class _Peer(Connection):
    """A configurator's connection; orders that come up together leave together."""

    patient = True
    name = ""
    process = 0


class _Gate:
    """Lets in who knows the secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def admit(self, credentials: Credentials) -> Identity:
        """A component that this daemon started."""
        known = hmac.compare_digest(credentials.token.encode(), self._secret)
        if credentials.role is not Role.COMPONENT or not known or credentials.name is None:
            raise Rejected(f"Expected a configurator that this daemon started ({SECRET}), got somebody else")
        return Identity(Role.COMPONENT, credentials.name, local=True)


class Configurators(Service[_Peer]):
    """So many processes, and what is said to them."""

    def __init__(self, control: ControlPlane, count: int) -> None:
        self._control = control
        self._names = [f"configurator-{i}" for i in range(1, count + 1)]
        self._secret = secrets.token_hex(32)
        self._peers: dict[str, _Peer] = {}
        self._tasks = Tasks()
        self._answers = Harvest(control)
        limits = Limits(connections=4 * count + _STRANGERS, buffer=1 << 28)
        self._listener = Listener(
            m.CONFIGURATORS, self, limits, _Peer, host="127.0.0.1", port=0, gate=_Gate(self._secret)
        )

    async def start(self) -> None:
        """Listen, and start the processes; the control plane does their work itself until they come."""
        await self._listener.start()
        self._control.consult = self._say
        for name in self._names:
            self._tasks.begin(self._keep(name), name)

    async def close(self) -> None:
        """End the processes."""
        self._answers.close()
        peers, self._peers = self._peers, {}
        for name in peers:  # nobody is silent: what is still to be worked out is so here
            self._control.configurator_gone(name)
        self._control.consult = None
        await self._tasks.close()
        await self._listener.close()

    # -- processes -------------------------------------------------------------------------

    async def _keep(self, name: str) -> None:
        await keep_running(name, ["--url", self._listener.url, "--name", name], {SECRET: self._secret})

    # -- connections -----------------------------------------------------------------------

    def _say(self, name: str, message: Message) -> None:
        peer = self._peers.get(name)
        if peer is not None:
            peer.send(message)

    async def hello(self, connection: _Peer, hello: m.Hello, identity: Identity) -> m.Welcome:
        """Accept a configurator."""
        assert identity.name is not None
        connection.name, connection.process = identity.name, hello.process
        return m.Welcome(m.PROTOCOL, identity.name, b"", _LEASE)

    def welcomed(self, connection: _Peer) -> None:
        """It gets its share of the partitions."""
        before = self._peers.get(connection.name)
        self._peers[connection.name] = connection
        if before is not None:
            before.goodbye("another configurator has come under this name")
        self._control.configurator_joined(connection.name, connection.process)
        log.info("%s is there (process %d)", connection.name, connection.process)

    def take(self, connection: _Peer, messages: list[tuple[Any, int]]) -> None:
        """What a configurator says: passed on at once, or with what others say a little later, if more is to come."""
        if self._peers.get(connection.name) is connection:
            self._answers.take(connection.name, [message for message, _ in messages])

    async def lost(self, connection: _Peer) -> None:
        """A configurator is gone: others take over."""
        if self._peers.get(connection.name) is connection:
            self._answers.flush()
            del self._peers[connection.name]
            self._control.configurator_gone(connection.name)
