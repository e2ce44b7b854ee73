"""The connection to an MQTT broker: version 5, by paho's thread, which connects again by itself.

    thread ── message ──▶ loop: `taken` is called; a message of QoS 1 is acknowledged when `done` is called
    loop ── publish ──▶ thread; at most `window` are under way: not acknowledged, or of QoS 0 not written

Bounds: the broker has at most `window` unacknowledged messages under way to us, none larger than `_LARGEST`; messages
of QoS 0, which nothing slows down, are dropped and counted when `limit` bytes of them wait, topics included. What was
not acknowledged on one connection comes again on the next, so what still waits here of it then is `stale`.

Loops: the broker does not return to us what we published (no local), and what any bridge of this network published is
marked with the network's name and not taken back by another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sievenet.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from paho.mqtt.client import Client

__all__ = ["Address", "Broker", "Message", "parse_broker"]

log = logging.getLogger("sievenet.bridge")

_LARGEST: Final = 1 << 18
#: Seconds until it connects again to a broker that said what cannot be read.
_AGAIN: Final = 0.2
#: Seconds that the broker keeps what is for us while we are away.
_KEPT: Final = 3600
#: The user property with the names of networks that a message has passed.
VIA: Final = "sievenet-via"
#: Bytes of a message besides topic, body and the network's name, at most.
_OVERHEAD: Final = 64
#: Bytes of memory that a message takes that waits, besides topic and body.
_KEPT_WITH: Final = 512


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What came from the broker; the number acknowledges it."""

    topic: str
    body: bytes
    qos: int
    number: int
    #: The connection that it came by: on another one the broker sends it again.
    connection: int

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits."""
        return len(self.topic) + len(self.body) + _KEPT_WITH


def parse_broker(url: str) -> Address:
    """The address in a URL.

    >>> parse_broker("mqtt://127.0.0.1")
    Address(host='127.0.0.1', port=1883, tls=False)
    >>> parse_broker("mqtts://broker.example:9883").tls
    True
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.username or parts.path.strip("/"):
        # What stands before @ is a secret: it is not repeated.
        shown = f"…@{url.rpartition('@')[2]}" if "@" in url else url
        raise InvalidInput(expected="mqtt://HOST:PORT or mqtts://HOST:PORT (--user names a user)", got=shown)
    tls = parts.scheme == "mqtts"
    return Address(parts.hostname, port or (8883 if tls else 1883), tls)


class Broker:
    """One connection; `taken` gets messages, in the event loop."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        network: str,
        taken: Callable[[Message], None],
        *,
        user: str | None = None,
        password: str | None = None,
        authority: str | None = None,
        window: int = 64,
        limit: int = 4 << 20,
    ) -> None:
        self.address, self._network, self._taken = address, network, taken
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._window = asyncio.Semaphore(window)
        #: Bytes that may wait and that do, of messages of QoS 0 and of others: an honest broker does not get near the
        #: second bound. Paho's thread adds, ours subtracts.
        self._limits = limit, 4 * window * (_LARGEST + _KEPT_WITH)
        self._waiting = [0, 0]
        #: Numbers of messages that the broker has not acknowledged, or that were not written; and their QoS.
        self._under_way: dict[int, int] = {}
        #: Set while there are none.
        self._empty = asyncio.Event()
        self._empty.set()
        #: The first connection of the broker's session with us: what came by it and those after it comes again.
        self._session = 1
        self._counting = threading.Lock()
        self._subscriptions: dict[str, int] = {}
        #: Messages dropped since too many waited, those of this network that came back, and connections made.
        self.dropped = self.loops = self.connections = 0
        self._refused = ""
        self._stopped = False
        #: Bytes of the largest message that the broker takes; 0: any.
        self._takes = 0
        self._client = self._made(client_id, window, user, password, authority)

    def _made(
        self, client_id: str, window: int, user: str | None, password: str | None, authority: str | None
    ) -> Client:
        try:
            from paho.mqtt.client import Client, MQTTv5
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise Unavailable("Expected the extra mqtt, got none: pip install 'sievenet[mqtt]'") from None
        broker = self

        class Lasting(Client):
            """Does not end its thread when a broker says what it cannot read; it connects again."""

            def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> Any:
                while True:
                    try:
                        return super().loop_forever(timeout, retry_first_connection)
                    except Exception as error:  # paho raises whatever its decoding happens to run into
                        if broker._misled(error):
                            return None
                        time.sleep(_AGAIN)
                        with contextlib.suppress(OSError):
                            self.reconnect()

        client = Lasting(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5, manual_ack=True)
        client.max_inflight_messages_set(window)
        client.reconnect_delay_set(1, 10)
        if user is not None:
            client.username_pw_set(user, password)
        if self.address.tls:
            client.tls_set_context(ssl.create_default_context(cafile=authority))
        client.on_connect = self._connected
        client.on_connect_fail = self._not_connected
        client.on_disconnect = self._lost
        client.on_message = self._came
        client.on_publish = self._published
        self._properties = {"ReceiveMaximum": window, "MaximumPacketSize": _LARGEST, "SessionExpiryInterval": _KEPT}
        return client

    async def start(self, timeout: float) -> None:
        """Connect; `Unavailable` if that does not come about in time. Later losses are mended by themselves."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        for name, value in self._properties.items():
            setattr(properties, name, value)
        where = f"{self.address.host}:{self.address.port}"
        self._client.connect_async(
            self.address.host, self.address.port, keepalive=15, clean_start=False, properties=properties
        )
        self._client.loop_start()
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            await self.close()
            raise Unavailable(f"No MQTT broker at {where}: {self._refused or 'nobody answers'}") from None

    async def subscribe(self, patterns: Mapping[str, int]) -> None:
        """Have messages of these topics from now on, each at its QoS, also after connections to come."""
        self._subscriptions = dict(patterns)
        if self._ready.is_set():
            self._subscribe()

    def _subscribe(self) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        wanted = [
            (pattern, SubscribeOptions(qos=qos, noLocal=True, retainHandling=1))
            for pattern, qos in self._subscriptions.items()
        ]
        if wanted:
            self._client.subscribe(wanted)

    async def publish(self, topic: str, body: bytes, qos: int, retain: bool) -> None:
        """Give a message to the broker; waits while there is none, and while too many are under way.

        `InvalidInput` if the broker takes none so large: it would close the connection, now and whenever it came again.
        """
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = [(VIA, self._network)]
        while True:
            await self._ready.wait()
            size = len(topic.encode()) + len(body) + len(self._network) + _OVERHEAD
            if self._takes and size > self._takes:
                raise InvalidInput(expected=f"a message of at most {self._takes} bytes", got=size, where="broker")
            await self._window.acquire()
            info = self._client.publish(topic, body, qos, retain, properties)
            if qos or info.rc == 0:  # of QoS 1: kept for the next connection, if this one is lost
                self._under_way[info.mid] = qos
                self._empty.clear()
                return
            self._window.release()
            await asyncio.sleep(0.1)

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._ready.is_set()

    @property
    def unsettled(self) -> int:
        """Messages that it was given, and that the broker may not have."""
        return len(self._under_way)

    async def emptied(self) -> None:
        """Wait until the broker has every message that it was given."""
        await self._empty.wait()

    def done(self, message: Message) -> None:
        """A message is done with: the broker may forget it."""
        with self._counting:
            self._waiting[message.qos > 0] -= message.size
        if message.qos and message.connection == self.connections:
            self._client.ack(message.number, message.qos)

    def stale(self, message: Message) -> bool:
        """Whether the broker has sent a message again meanwhile, or will."""
        return bool(message.qos) and self._session <= message.connection < self.connections

    async def close(self) -> None:
        """Disconnect; the broker keeps what comes for us for a while."""
        self._stopped = True
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)

    # -- called in paho's thread ----------------------------------------------------------

    def _in_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)
            return
        self.connections += 1
        if not flags.session_present:
            self._session = self.connections
        self._takes = getattr(properties, "MaximumPacketSize", 0)
        # A broker that was killed may have forgotten everything.
        self._subscribe()
        self._in_loop(self._began)

    def _not_connected(self, client: Any, data: Any) -> None:
        # Called while the error is handled; nothing else says why.
        error = sys.exception()
        if isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
            self._refused = f"no TLS that can be trusted: {reason} (--authority names who signs its certificate)"
        elif isinstance(error, OSError) and not isinstance(error, ConnectionRefusedError):
            self._refused = str(error)

    def _lost(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.connections and not self._refused:
            self._refused = "it closed the connection" + (
                "" if self.address.tls else "; perhaps it speaks TLS: mqtts://"
            )
        self._in_loop(self._ready.clear)

    def _misled(self, error: Exception) -> bool:
        """The broker said what cannot be read; whether this is the end anyway."""
        log.warning("the MQTT broker said what cannot be read, connecting again: %s", error)
        self._in_loop(self._ready.clear)
        return self._stopped

    def _published(self, client: Any, data: Any, number: int, reason: Any, properties: Any) -> None:
        self._in_loop(self._settled, number)

    def _began(self) -> None:
        """Connected; what was not written on the connection before never is, if it is of QoS 0."""
        for number in [number for number, qos in self._under_way.items() if not qos]:
            self._settled(number)
        self._ready.set()

    def _settled(self, number: int) -> None:
        if self._under_way.pop(number, None) is not None:
            self._window.release()
            if not self._under_way:
                self._empty.set()

    def _came(self, client: Any, data: Any, message: Any) -> None:
        via = dict(getattr(message.properties, "UserProperty", ())).get(VIA)
        found = Message(message.topic, bytes(message.payload), message.qos, message.mid, self.connections)
        if via == self._network:
            self.loops += 1
            if found.qos:
                client.ack(found.number, found.qos)
            return
        kind = found.qos > 0
        with self._counting:
            if self._waiting[kind] + found.size > self._limits[kind]:
                self.dropped += 1
                return
            self._waiting[kind] += found.size
        self._in_loop(self._taken, found)
