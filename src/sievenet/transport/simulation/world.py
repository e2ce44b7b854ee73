"""Senders and receivers on an overlay: carries out their actions and wakes them in time.

This is the transport's shell in virtual time, as `client` is the one in real time. Channels are routed as a network of
Bloom filters would: peers are all receivers that recover and whose filter the bits cover, with the publisher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from sievenet.errors import Rejected
from sievenet.transport.actions import Action, Channel, Deliver, Gap, Publish, Send
from sievenet.transport.bloom import Bits, covers_any
from sievenet.transport.codec import kind_of
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender
from sievenet.transport.simulation.overlay import Overlay

__all__ = ["OVERHEAD", "World"]

#: Bytes of IP, UDP and the overlay's own header around every message.
OVERHEAD: Final = 48


class World:
    """The nodes of an experiment."""

    def __init__(
        self,
        overlay: Overlay,
        *,
        delivered: Callable[[int, Deliver], None] | None = None,
        gap: Callable[[int, Gap], None] | None = None,
    ) -> None:
        self.overlay = overlay
        self.clock = overlay.clock
        self._delivered = delivered or (lambda _client, _message: None)
        self._gap = gap or (lambda _client, _gap: None)
        self.senders: dict[int, Sender] = {}
        self.receivers: dict[int, Receiver] = {}
        #: Receivers that listen for digests.
        self.digests: set[int] = set()
        self._due: dict[int, float] = {}
        self._peers: dict[Bits, list[int]] = {}
        #: Control messages and bytes sent, by kind.
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def add_sender(self, client: int, broker: int, sender: Sender) -> None:
        """A publisher; its number is that of its stream."""
        self.senders[client] = sender
        self.overlay.attach(client, broker, lambda data: self._to_sender(client, data))

    def add_receiver(self, client: int, broker: int, receiver: Receiver, *, digests: bool = False) -> None:
        """A subscriber; its number is that of its receiver."""
        self.receivers[client] = receiver
        if digests:
            self.digests.add(client)
        self.overlay.attach(client, broker, lambda data: self._to_receiver(client, data))

    def publish(self, client: int, bits: Bits, body: bytes, receivers: dict[int, list[int]]) -> bool:
        """Publish for receivers grouped by broker; False if the sender's queue is full."""
        try:
            actions = self.senders[client].publish(bits, body, self.clock.now, receivers)
        except Rejected:
            return False
        self._do(client, actions)
        self._wake_sender(client)
        return True

    # -- inside ---------------------------------------------------------------------------

    def _to_sender(self, client: int, data: bytes) -> None:
        self._do(client, self.senders[client].receive(data, self.clock.now))
        self._wake_sender(client)

    def _to_receiver(self, client: int, data: bytes) -> None:
        receiver = self.receivers[client]
        self._do(client, receiver.receive(data, self.clock.now))
        self._wake(client, receiver.timer())

    def _wake_sender(self, client: int) -> None:
        self._wake(client, self.senders[client].timer(self.clock.now))

    def _wake(self, client: int, due: float | None) -> None:
        if due is not None and due < self._due.get(client, float("inf")):
            self._due[client] = due
            self.clock.call_at(due, self._fire, client, due)

    def _fire(self, client: int, due: float) -> None:
        if self._due.get(client) != due:
            return
        del self._due[client]
        now = self.clock.now
        if client in self.senders:
            self._do(client, self.senders[client].expire(now))
            when = self.senders[client].timer(now)
        else:
            self._do(client, self.receivers[client].expire(now))
            when = self.receivers[client].timer()
        # A timer of now would fire forever; a microsecond later is as good.
        self._wake(client, None if when is None else max(when, now + 1e-6))

    def _do(self, client: int, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Deliver():
                    self._delivered(client, action)
                case Publish():
                    self.messages["DATA"] += 1
                    self.bytes["DATA"] += len(action.data)
                    self.overlay.send(client, action.context, len(action.data) + OVERHEAD, action.data)
                case Gap():
                    self._gap(client, action)
                case Send():
                    self._send(client, action)

    def _send(self, client: int, send: Send) -> None:
        kind = kind_of(send.data).name
        self.messages[kind] += 1
        self.bytes[kind] += len(send.data)
        match send.channel:
            case Channel.PEERS:
                targets = [each for each in self._peers_of(send.bits) if each != client]
                if send.target in self.senders and send.target != client:
                    targets.append(send.target)
            case Channel.DIGEST:
                targets = sorted(self.digests)
            case _:
                targets = [send.target]
        self.overlay.send(client, self.overlay.group(targets), len(send.data) + OVERHEAD, send.data)

    def _peers_of(self, bits: Bits) -> list[int]:
        found = self._peers.get(bits)
        if found is None:
            if len(self._peers) > 4096:
                self._peers.clear()
            found = self._peers[bits] = [
                client
                for client, receiver in self.receivers.items()
                if receiver.requests is not None and covers_any(bits, receiver.profile.wanted(receiver.profile.width))
            ]
        return found
