"""A store in NATS JetStream (extra `nats`).

    logs    one stream, a subject per log         sievenet.FABRIC.log.NAME      in file storage, replicated
    cells   a key-value bucket                    $KV.sievenet-FABRIC.NAME
    words   plain messages                        sievenet.FABRIC.word.NAME

Comparing is the server's work: `Nats-Expected-Last-Subject-Sequence` goes with every entry and every value.  A bucket
is a stream too, so both are written in one way.

**Was it stored?**  A connection that breaks, or a leader of the cluster that is lost, leaves a writer without an
answer.  It sends the same again.  Of two that compare with the same entry the server takes one, so nothing is stored
twice; if the second is refused, the writer looks whether the last entry is its own, by its number (`Sievenet-Id`).

**Does it say no?**  Without an answer a writer goes on trying, for the server may be on its way back.  One that says
that it stores nothing (its disk is full) is believed after some seconds: whoever asked is told, and from then on at
once.  If nobody serves the stream, it may be gone, or its cluster elects a leader, which takes longer.

Reading asks the stream's leader, never a replica that may lag behind.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, KeyValueConfig, StreamConfig

from sievenet.control.store.access import check_fabric, options, servers, without_secrets
from sievenet.control.store.store import Item
from sievenet.errors import Fenced, Rejected, Unavailable

__all__ = ["NatsStore"]

log = logging.getLogger("sievenet.store")
T = TypeVar("T")

_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_ID: Final = "Sievenet-Id"
_WRONG: Final = 10071
#: Its codes of a cluster that has just begun, or has lost its leader: too few servers for a stream, nobody leads.
_FEW: Final = 10005
_FORMING: Final = (_FEW, 10008, 10009)
_STATUS: Final = "Status"
_NOBODY: Final = "503"
#: Seconds for one try, and between two.
_TRY, _PAUSE = 1.0, 0.1
#: Seconds after which a try is given up that should have ended by itself: it may have several steps.
_STUCK: Final = 10.0
#: Bytes of an entry that are left for its headers.
_HEADERS: Final = 1024
#: Entries that are read at a time.
_BATCH: Final = 256
#: Seconds for which it may say no before that is believed; and for which nobody may serve a stream: a cluster elects
#: a leader within 4 to 9 s, and on a busy machine the first round may elect nobody.
_GRACE, _ELECTION = 5.0, 20.0
#: What says that it does not do what it is asked: nothing was stored.
_NO: Final = (
    nats.errors.NoRespondersError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
)
#: What only says that there was no answer.
_UNKNOWN: Final = (
    nats.errors.TimeoutError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.StaleConnectionError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.UnexpectedEOF,
    ConnectionError,
    TimeoutError,
)


class NatsStore:
    """A connection to NATS; it comes back by itself."""

    def __init__(self, client: Any, fabric: str) -> None:
        self._client = client
        self._js = client.jetstream(timeout=_TRY)
        self._stream = self._bucket = f"sievenet-{fabric}"
        self._logs, self._words = f"sievenet.{fabric}.log.", f"sievenet.{fabric}.word."
        self._cells = f"$KV.{self._bucket}."
        #: Why it does not do what it is asked, since when; nothing if it does.
        self.trouble, self._since = "", 0.0
        #: Where the server tells what nobody heard; empty if nobody wants to know.
        self._inbox = ""
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        fabric: str = "sievenet",
        *,
        replicas: int = 0,
        credentials: str | None = None,
        authority: str | None = None,
        wait: float = 10.0,
    ) -> NatsStore:
        """Connect, and make the stream and the bucket if there are none; `Unavailable` if that takes too long."""
        check_fabric(fabric)
        addresses, how, client = servers(url), options(credentials, authority), None
        try:
            async with asyncio.timeout(wait):
                client = await nats.connect(
                    addresses,
                    name=f"sievenet-{fabric}",
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=_PAUSE,
                    connect_timeout=2,
                    ping_interval=2,
                    max_outstanding_pings=2,
                    error_cb=_told,
                    **how,
                )
            store = cls(client, fabric)
            async with asyncio.timeout(max(wait, _ELECTION)):  # a cluster that has just begun has no leader yet
                await store._insist(lambda: store._prepare(replicas))
        except (TimeoutError, nats.errors.Error, OSError, Unavailable) as error:
            if client is not None:
                await client.close()
            raise Unavailable(
                f"Expected a NATS server with JetStream at {without_secrets(url)}, got "
                f"{str(error) or f'no answer within {wait:g} s'}. "
                f"Is it there, and was it started with --jetstream?"
            ) from None
        except BaseException:  # whoever waits for it has been asked to end
            if client is not None:
                await client.close()
            raise
        return store

    async def _prepare(self, replicas: int) -> None:
        count = replicas or (3 if len(self._client.servers) >= 3 else 1)
        try:
            await self._js.stream_info(self._stream)
        except nats.js.errors.NotFoundError:
            await self._js.add_stream(
                StreamConfig(name=self._stream, subjects=[f"{self._logs}>"], allow_rollup_hdrs=True, num_replicas=count)
            )
        try:
            await self._js.stream_info(f"KV_{self._bucket}")
        except nats.js.errors.NotFoundError:
            await self._js.create_key_value(KeyValueConfig(bucket=self._bucket, history=1, replicas=count))

    # -- trying again ----------------------------------------------------------------------

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do something until there is an answer to it."""
        while True:
            if self._closed:
                raise Unavailable("The connection to NATS is closed")
            try:
                async with asyncio.timeout(_STUCK):
                    found = await _heeded(act())
            except nats.errors.ConnectionClosedError:
                raise Unavailable("The connection to NATS is closed") from None
            except _NO as error:
                self._says_no(error)
            except nats.js.errors.BadRequestError as error:
                if error.err_code != _FEW:
                    raise
                self._says_no(error)
            except _UNKNOWN:
                pass
            else:
                self._does()
                return found
            await asyncio.sleep(_PAUSE)

    def _says_no(self, error: Exception) -> None:
        """Remember it; `Unavailable` if it has said so for too long."""
        now = asyncio.get_running_loop().time()
        reason = getattr(error, "description", None)
        grace = _ELECTION if reason is None or getattr(error, "err_code", None) in _FORMING else _GRACE
        reason = reason or f"nobody serves the stream {self._stream}"
        if not self.trouble:
            self._since = now
            log.warning("NATS does not do what it is asked, trying again: %s", reason)
        self.trouble = str(reason)
        if now - self._since > grace:
            raise Unavailable(f"NATS does not do what it is asked: {reason}") from None

    def _does(self) -> None:
        if self.trouble:
            log.warning("NATS does what it is asked again (it said: %s)", self.trouble)
            self.trouble = ""

    async def _store(self, stream: str, subject: str, data: bytes, after: int, *, anew: bool = False) -> int:
        """Store a message behind another one."""
        mine = secrets.token_hex(8)
        headers = {_EXPECTED: str(after), _ID: mine}
        if anew:
            headers["Nats-Rollup"] = "sub"
        try:
            stored = await self._insist(lambda: self._js.publish(subject, data, headers=headers))
            return int(stored.seq)
        except nats.js.errors.APIError as error:
            if error.err_code != _WRONG:
                raise Rejected(f"NATS does not store it: {error.description}") from None
        last = await self._message(stream, subject)
        if last is not None and (last.headers or {}).get(_ID) == mine:
            return int(last.seq)
        found = 0 if last is None else last.seq
        name = subject.removeprefix(self._logs).removeprefix(self._cells)
        raise Fenced(f"Expected entry {after} at the end of {name}, got {found}: somebody else writes it")

    async def _message(self, stream: str, subject: str, after: int | None = None) -> Any:
        """The last message about a subject, or the first behind a number."""
        try:
            if after is None:
                return await self._insist(lambda: self._js.get_msg(stream, subject=subject))
            return await self._insist(lambda: self._js.get_msg(stream, seq=after + 1, subject=subject, next=True))
        except nats.js.errors.NotFoundError:
            return None
        except nats.js.errors.APIError as error:
            raise Unavailable(f"NATS does not say what it holds: {error.description}") from None

    async def _purge(self, stream: str, prefix: str, names: str) -> None:
        subject = prefix + (f"{names[:-1]}>" if names.endswith(".*") else names)
        try:
            await self._insist(lambda: self._js.purge_stream(stream, subject=subject))
        except nats.js.errors.APIError as error:
            raise Unavailable(f"NATS does not remove {names}: {error.description}") from None

    # -- logs and cells --------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """As the server says, less what headers take."""
        return int(self._client.max_payload) - _HEADERS

    @property
    def reachable(self) -> bool:
        """Whether there is a connection."""
        return bool(self._client.is_connected)

    async def append(self, log: str, data: bytes, after: int, *, anew: bool = False) -> int:
        """Add an entry."""
        return await self._store(self._stream, self._logs + log, data, after, anew=anew)

    async def read(self, log: str, after: int = 0) -> Item | None:
        """The next entry."""
        found = await self._message(self._stream, self._logs + log, after)
        return None if found is None else Item(found.data or b"", found.seq)

    async def scan(self, log: str) -> list[Item]:
        """All entries, by a consumer that lives as long as it takes."""
        found: list[Item] = []
        while (found[-1].number if found else 0) < await self.last(log):
            try:
                await self._consume(log, found)
            except (*_NO, *_UNKNOWN):
                await asyncio.sleep(_PAUSE)  # it may have been removed meanwhile, or the server is away: look again
            except nats.js.errors.APIError as error:
                raise Unavailable(f"NATS does not say what it holds: {error.description}") from None
        return found

    async def _consume(self, log: str, found: list[Item]) -> None:
        """Add entries behind those that were found, until there are no more."""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=found[-1].number + 1 if found else 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=10.0,
        )
        reading = await self._js.pull_subscribe(self._logs + log, stream=self._stream, config=config)
        try:
            while True:
                some = await reading.fetch(_BATCH, timeout=_TRY)
                found += [Item(each.data, each.metadata.sequence.stream) for each in some]
                if some[-1].metadata.num_pending == 0:
                    return
        finally:
            await reading.unsubscribe()

    async def last(self, log: str) -> int:
        """The last entry's number."""
        found = await self._message(self._stream, self._logs + log)
        return 0 if found is None else int(found.seq)

    async def discard(self, logs: str) -> None:
        """Remove logs."""
        await self._purge(self._stream, self._logs, logs)

    async def get(self, cell: str) -> Item | None:
        """What a cell holds."""
        found = await self._message(f"KV_{self._bucket}", self._cells + cell)
        return None if found is None else Item(found.data or b"", found.seq)

    async def put(self, cell: str, data: bytes, revision: int) -> int:
        """Change a cell."""
        return await self._store(f"KV_{self._bucket}", self._cells + cell, data, revision)

    async def forget(self, cells: str) -> None:
        """Remove cells."""
        await self._purge(f"KV_{self._bucket}", self._cells, cells)

    # -- words -----------------------------------------------------------------------------

    async def say(self, subject: str, data: bytes) -> None:
        """Tell who listens."""
        try:
            reply = f"{self._inbox}.{subject}" if self._inbox else ""
            await self._client.publish(self._words + subject, data, reply=reply)
        except (nats.errors.Error, *_UNKNOWN) as error:
            log.debug("a word about %s is lost: %s", subject, error)

    async def hear(self, subject: str, callback: Callable[[bytes], None]) -> None:
        """Listen."""

        async def heard(message: Msg) -> None:
            try:
                callback(message.data)
            except Exception:  # the client would only whisper it
                log.exception("internal error at a word about %s (please report)", subject)

        await self._client.subscribe(self._words + subject, cb=heard)

    async def unheard(self, callback: Callable[[str], None]) -> None:
        """Have the server say so: who waits for a reply to what nobody listens to is told at once."""
        inbox = self._client.new_inbox()

        async def heard(message: Msg) -> None:
            if (message.headers or {}).get(_STATUS) == _NOBODY:
                callback(message.subject.removeprefix(f"{inbox}."))

        await self._client.subscribe(f"{inbox}.>", cb=heard)
        self._inbox = inbox

    async def close(self) -> None:
        """Leave."""
        self._closed = True
        await self._client.close()


async def _heeded(work: Awaitable[T]) -> T:
    """Do something that may forget that its task shall end, as `asyncio.wait_for` of Python 3.11 does at an answer."""
    task = asyncio.current_task()
    asked = task.cancelling() if task else 0
    try:
        return await work
    finally:
        if task and task.cancelling() > asked:
            raise asyncio.CancelledError


async def _told(error: Exception) -> None:
    log.debug("NATS: %s", error)
