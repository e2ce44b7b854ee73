"""A daemon whose control plane is shared between machines: it leads, or waits until it does.

    store ──▶ leadership ──▶ journal, key ──▶ (the daemon starts as always) ──▶ configurators are told

Whoever finds that another daemon leads (a journal, a log or a cell that is fenced) says so here, and the daemon ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sievenet.config import NatsConfig
from sievenet.control.journal import exclusive, read_records
from sievenet.control.plane import ControlPlane
from sievenet.control.store.access import without_secrets
from sievenet.control.store.journal import StoreJournal
from sievenet.control.store.leadership import Leader, Leadership
from sievenet.control.store.store import Store
from sievenet.daemon.crew import keep_running
from sievenet.daemon.distribution import Distribution
from sievenet.errors import Fenced, SievenetError, Unavailable
from sievenet.session.lifetime import Tasks

__all__ = ["Reign", "open_store", "own_name"]

log = logging.getLogger("sievenet.daemon")

#: Bytes of the key that tickets are made with.
_KEY = 32


def own_name() -> str:
    """What a process is called among those of its fabric, if nothing else is said."""
    machine = "".join(c if c.isalnum() or c in "-_" else "-" for c in socket.gethostname())[:40]
    return f"{machine or 'machine'}-{os.getpid()}"


async def open_store(config: NatsConfig) -> Store:
    """The store that the settings say."""
    try:
        from sievenet.control.store.nats import NatsStore
    except ImportError as error:
        raise Unavailable(f"--nats needs {error.name}: pip install 'sievenet[nats]'") from None
    assert config.url is not None
    return await NatsStore.open(
        config.url,
        config.fabric,
        replicas=config.replicas,
        credentials=config.credentials,
        authority=config.authority,
    )


class Reign:
    """What a daemon that leads has of a store."""

    def __init__(self, config: NatsConfig, store: Store, leadership: Leadership) -> None:
        self._config, self._store, self._leadership = config, store, leadership
        #: Where the store is, as observers and logs may see it.
        self._shown = without_secrets(config.url or "")
        #: Whether another daemon led before, which may still hold what this one needs.
        self.follows = False
        self.journal: StoreJournal
        self.key = b""
        self._distribution: Distribution | None = None
        self._tasks = Tasks()
        self._folder = tempfile.TemporaryDirectory(prefix="sievenet")
        #: A copy of what the store has about names of switches and hosts.
        self.names = Path(self._folder.name) / "network.json"
        self._revision = 0
        self._turn = asyncio.Lock()

    @classmethod
    async def begin(cls, config: NatsConfig, lost: Callable[[SievenetError], None]) -> Reign:
        """Wait until this daemon leads, and take the journal over; `lost` is called when it leads no more."""
        store = await open_store(config)
        leadership, waited = None, list[Leader]()

        def waits(leader: Leader) -> None:
            waited.append(leader)
            _waits(leader)

        try:
            leadership = await Leadership.win(store, config.name or own_name(), config.lease, waits)
            leadership.on_lost = lost
            reign = cls(config, store, leadership)
            reign.follows = bool(waited)
            reign.journal = await StoreJournal.open(store, leadership.term)
            reign.journal.on_fenced = leadership.lose
            reign.key = await _key(store)
            await reign._learn_names()
        except BaseException:
            if leadership is not None:
                await leadership.leave()
            await store.close()
            raise
        log.info("%s leads in term %d", leadership.name, leadership.term)
        return reign

    @property
    def term(self) -> int:
        """The number of this reign; switches are told it."""
        return self._leadership.term

    async def take_in(self, file: Path) -> None:
        """Begin with the journal of a daemon that was alone before; it is renamed, so that this happens once."""
        if not file.exists():
            return
        if not self.journal.empty:
            log.warning("%s is not used: the journal is in %s", file, self._shown)
            return
        with exclusive(file):
            records = read_records(file)
            await self.journal.adopt(records)
            file.replace(file.with_name(f"{file.name}.in-nats"))
        log.warning("%d records of %s are in %s now", len(records), file, self._shown)

    async def distribute(self, control: ControlPlane, staff: int) -> None:
        """Let configurators come, and start so many here."""
        config = self._config
        self._distribution = Distribution(
            control, self._store, self.term, silence=config.silence, fenced=self._leadership.lose
        )
        await self._distribution.start()
        assert config.url is not None
        for i in range(1, staff + 1):
            name = f"{self._leadership.name}-{i}"
            words = ["--nats", config.url, "--fabric", config.fabric, "--name", name]
            for option, value in (("--credentials", config.credentials), ("--authority", config.authority)):
                words += [option, value] if value is not None else []
            self._tasks.begin(keep_running(name, words))

    async def _learn_names(self) -> None:
        entry = await self._store.get("network")
        if entry is not None:
            self._revision = entry.number
            self.names.write_bytes(entry.data)

    def named(self) -> None:
        """Switches or hosts have other names: the next daemon that leads should know them."""
        self._tasks.begin(self._keep_names(self.names.read_bytes()))

    async def _keep_names(self, data: bytes) -> None:
        async with self._turn:
            try:
                self._revision = await self._store.put("network", data, self._revision)
            except Fenced as error:
                self._leadership.lose(error)
            except SievenetError as error:
                log.error("names of switches are not kept: %s", error)

    async def announce(self, url: str) -> None:
        """Say where clients connect."""
        await self._leadership.announce(url)

    def shown(self) -> dict[str, Any]:
        """As `status` shows it."""
        return {
            "store": self._shown,
            "fabric": self._config.fabric,
            "reachable": self._store.reachable,
            "trouble": self._store.trouble,
            "leader": self._leadership.name,
            "term": self.term,
        }

    async def close(self) -> None:
        """Let another daemon lead."""
        await self._tasks.close()
        if self._distribution is not None:
            await self._distribution.close()
        await self._leadership.leave()
        await self._store.close()
        self._folder.cleanup()


def _waits(leader: Leader) -> None:
    where = f" at {leader.url}" if leader.url else ""
    log.warning("%s leads%s (term %d): waiting to take over", leader.name, where, leader.term)


async def _key(store: Store) -> bytes:
    """The key that all daemons of a fabric make tickets with: the first one makes it."""
    while True:
        entry = await store.get("key")
        if entry is not None and len(entry.data) == _KEY:
            return entry.data
        if entry is not None:  # it was removed, which leaves nothing in it: anybody could make tickets with that
            log.warning("the key in the store has %d bytes: there is a new one, and clients join anew", len(entry.data))
        try:
            await store.put("key", secrets.token_bytes(_KEY), 0 if entry is None else entry.number)
        except Fenced:
            await asyncio.sleep(0)
