"""The contract of stores, on the one in memory and on a real NATS server."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
from types import SimpleNamespace

import pytest
from nats.errors import MaxPayloadError
from nats.js.errors import BadRequestError, NoStreamResponseError, ServiceUnavailableError

from sievenet.control.aside import Aside
from sievenet.control.store import nats
from sievenet.control.store.journal import StoreJournal
from sievenet.control.store.leadership import Leadership, read_leader
from sievenet.control.store.memory import MemoryStore, Shelf
from sievenet.control.store.nats import NatsStore
from sievenet.daemon import reign
from sievenet.errors import CodecError, InvalidInput, Rejected, Unavailable
from sievenet.testing.nats_server import nats_server
from sievenet.testing.store_contract import CHECKS
from sievenet.testing.virtual_time import run_virtual

FABRICS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_in_memory(check):
    async def main() -> None:
        shelf = Shelf(delay=0.01)
        await check(MemoryStore(shelf, limit=64), MemoryStore(shelf, limit=64))

    run_virtual(main())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_in_nats(check, server):
    async def main() -> None:
        fabric = f"f{next(FABRICS)}"
        stores = [await NatsStore.open(server.url, fabric) for _ in range(2)]
        try:
            await check(*stores)
        finally:
            for each in stores:
                await each.close()

    asyncio.run(main())


def test_fabrics_do_not_meet(server):
    async def main() -> None:
        one, other = [await NatsStore.open(server.url, name) for name in ("one", "other")]
        await one.put("cell", b"1", 0)
        assert await other.get("cell") is None
        await one.close()
        await other.close()
        with pytest.raises(Unavailable, match="closed"):
            await one.get("cell")

    asyncio.run(main())


def test_no_server():
    async def main() -> None:
        with pytest.raises(Unavailable, match=r"Expected a NATS server with JetStream at nats://127\.0\.0\.1:9"):
            await NatsStore.open("nats://127.0.0.1:9", wait=0.5)
        with pytest.raises(InvalidInput, match="nats://ADDRESS:PORT"):
            await NatsStore.open("", wait=0.5)

    asyncio.run(main())


def test_a_task_that_is_cancelled_just_when_an_answer_comes_ends():
    """Python 3.11 forgets it then: a daemon that closes would wait for ever for a lease that is renewed for ever."""

    async def main() -> None:
        store = NatsStore(SimpleNamespace(jetstream=lambda timeout: None), "f")
        answer = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(store._insist(lambda: asyncio.wait_for(answer, 60)))
        await asyncio.sleep(0)
        answer.set_result("stored")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_cluster_that_has_just_begun_is_asked_again():
    """As long as it knows too few of its servers it refuses streams; whatever else it refuses stays refused."""

    async def main() -> None:
        store, answers = NatsStore(SimpleNamespace(jetstream=lambda timeout: None), "f"), [10005, 10005, None, 10052]

        async def prepare() -> str:
            if (code := answers.pop(0)) is not None:
                raise BadRequestError(code=400, err_code=code, description="no")
            return "made"

        assert await store._insist(prepare) == "made"
        with pytest.raises(BadRequestError):
            await store._insist(prepare)

    asyncio.run(main())


def test_a_try_that_never_ends_is_made_again(server, monkeypatch):
    monkeypatch.setattr("sievenet.control.store.nats._STUCK", 0.5)

    async def main() -> None:
        store = await NatsStore.open(server.url, f"f{next(FABRICS)}")
        publish, lost = store._js.publish, []

        async def sometimes(*words, **more):
            found = await publish(*words, **more)
            if not lost:
                lost.append(found)
                await asyncio.Event().wait()  # it was stored, and nobody is told
            return found

        monkeypatch.setattr(store._js, "publish", sometimes)
        async with asyncio.timeout(60):
            first = await store.append("log", b"1", 0)
            second = await store.append("log", b"2", first)
        assert first == lost[0].seq
        assert await store.scan("log") == [(b"1", first), (b"2", second)]
        await store.close()

    asyncio.run(main())


def test_a_server_that_is_full_says_so(tmp_path):
    """Not only in its own log: whoever writes is told, after some seconds, and from then on at once."""

    async def main() -> None:
        with nats_server(tmp_path, "jetstream { max_file_store: 200KB }") as server:
            store = await NatsStore.open(server.url)
            at = 0

            async def fill() -> None:
                nonlocal at
                for _ in range(100):
                    at = await store.append("log", os.urandom(20_000), at)

            with pytest.raises((Unavailable, Rejected), match="NATS does not"):
                await fill()
            assert at
            async with asyncio.timeout(2.0):
                with pytest.raises((Unavailable, Rejected), match="NATS does not"):
                    await store.append("log", os.urandom(20_000), at)
            await store.discard("log")
            assert await store.append("log", b"room again", 0) > at
            assert store.trouble == ""
            await store.close()

    asyncio.run(main())


def test_a_server_that_lost_everything_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(nats, "_ELECTION", 2.0)

    async def main() -> None:
        with nats_server(tmp_path) as server:
            store = await NatsStore.open(server.url)
            at = await store.append("log", b"1", 0)
            server.stop(signal.SIGKILL)
            shutil.rmtree(tmp_path / "jetstream")
            server.start()
            with pytest.raises(Unavailable, match="nobody serves the stream sievenet-sievenet"):
                await store.append("log", b"2", at)
            assert "sievenet-sievenet" in store.trouble
            await store.close()

    asyncio.run(main())


def test_an_election_may_take_as_long_as_elections_take(tmp_path):
    """Nobody serves the stream meanwhile, for 4 to 9 s: longer than a refusal has to last to be believed."""

    async def main() -> None:
        with nats_server(tmp_path) as server:
            store = await NatsStore.open(server.url)
            error = NoStreamResponseError()
            store._says_no(error)
            store._since -= 10.0
            store._says_no(error)
            store._says_no(ServiceUnavailableError(code=503, err_code=10008, description="temporarily unavailable"))
            with pytest.raises(Unavailable, match="disk"):
                store._says_no(ServiceUnavailableError(code=503, description="disk"))
            store._since -= 11.0
            with pytest.raises(Unavailable, match="nobody serves"):
                store._says_no(error)
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("delay", [0.001, 0.2, 0.24, 0.26, 0.4])
def test_a_leader_whose_store_is_slow_does_not_depose_itself(delay):
    """What it says about itself and the renewal of its lease are changes of one cell: never two at a time."""

    async def main() -> None:
        shelf, lost = Shelf(delay=delay), []
        for turn in range(20):
            store = MemoryStore(shelf)
            leadership = await Leadership.win(store, "one", 1.0)
            leadership.on_lost = lost.append
            await asyncio.sleep(turn * 0.05)
            await leadership.announce(f"sievenet://127.0.0.1:{turn + 1}")
            await asyncio.sleep(turn * 0.03)
            assert (await read_leader(store))[0].url == f"sievenet://127.0.0.1:{turn + 1}"
            await leadership.leave()
            left, _ = await read_leader(store)
            assert (left.name, left.term) == ("", turn + 1)  # so that nobody has to wait for the lease to end
        assert not lost

    run_virtual(main())


def test_a_journal_that_somebody_else_has_written_into_is_told_with_what_to_do():
    async def main() -> None:
        store = MemoryStore(Shelf())
        journal = await StoreJournal.open(store, 1)
        await journal.append([b"first"])
        await store.append("journal.1-0", b"\xde, and more of it", await store.last("journal.1-0"))
        with pytest.raises(CodecError, match=r"222 - at log journal\.1-0.*stream restore.*`nats\.fabric`"):
            await StoreJournal.open(store, 2)

    asyncio.run(main())


#: Bytes that are no text, and more brackets in each other than anybody needs.
STRANGE = [b"", b"null", b'{"name":"\xff"}', b'{"\xff":1}', b'{"more":' + b"[" * 100_000]


@pytest.mark.parametrize("strange", STRANGE)
def test_cells_that_somebody_else_has_written_are_refused_in_words(strange):
    async def main() -> None:
        store = MemoryStore(Shelf(), limit=1 << 20)
        for cell in ("leader", "journal"):
            await store.put(cell, strange, 0)
        with pytest.raises(CodecError, match="cell leader"):
            await Leadership.win(store, "one", 1.0)
        with pytest.raises(CodecError, match="cell journal"):
            await StoreJournal.open(store, 1)

    run_virtual(main())


def test_entries_that_somebody_else_has_written_are_refused_in_words_or_left_alone():
    async def main() -> None:
        store, deep = MemoryStore(Shelf(), limit=1 << 20), b"\x91" * 100_000
        journal = await StoreJournal.open(store, 1)
        await store.append("aside", b"\3\x81\xa4more" + deep, 0)
        journal.set_aside([Aside(b"odd", "cannot be carried out")])
        await journal.append([b"a"])
        assert len(await store.scan("aside")) == 2
        await store.append("journal.1-0", b"\3\x93\1\x90" + deep, await store.last("journal.1-0"))
        with pytest.raises(CodecError, match="Somebody else has written into the journal"):
            await StoreJournal.open(store, 2)

    run_virtual(main())


def test_a_log_that_cannot_be_removed_is_left_where_it_is(caplog):
    async def main() -> None:
        store = MemoryStore(Shelf())
        journal = await StoreJournal.open(store, 1)

        async def refused(logs: str) -> None:
            raise Unavailable(f"no {logs}")

        store.discard = refused
        await journal.append([b"all"], replace=True)
        await journal.append([b"more"])
        assert (await StoreJournal.open(store, 2)).load() == [b"all", b"more"]

    run_virtual(main())
    assert "is not removed: no journal.1-0" in caplog.text


def test_a_lease_is_renewed_again_after_an_error_that_should_not_be(caplog):
    async def main() -> None:
        store = MemoryStore(Shelf())
        leadership = await Leadership.win(store, "one", 1.0)
        put, store.put = store.put, None
        await asyncio.sleep(0.6)
        store.put, before = put, await store.get("leader")
        await asyncio.sleep(0.6)
        assert (await store.get("leader")).number > before.number
        await leadership.leave()

    run_virtual(main())
    assert "internal error while the lease is renewed" in caplog.text


def test_an_error_that_should_not_be_keeps_nobody_waiting_for_the_journal(caplog):
    async def main() -> None:
        store = MemoryStore(Shelf())
        journal = await StoreJournal.open(store, 1)
        append, store.append = store.append, None
        with pytest.raises(Unavailable, match="The journal could not be written"):
            await journal.append([b"a"])
        store.append = append
        await journal.append([b"b"])

    run_virtual(main())
    assert "internal error while the journal is written" in caplog.text


@pytest.mark.parametrize("held", [None, b"", b"short", bytes(32)])
def test_a_key_that_was_removed_is_made_anew(held):
    async def main() -> None:
        store = MemoryStore(Shelf())
        if held is not None:
            await store.put("key", held, 0)
        key = await reign._key(store)
        assert len(key) == 32
        assert (key == held) == (held == bytes(32))
        assert await reign._key(store) == key

    run_virtual(main())


class Refusing:
    """What NATS's client says of it: nothing that we expect."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.heard = {}

    def jetstream(self, **_):
        return self

    async def purge_stream(self, *_, **__):
        raise BadRequestError(code=400, err_code=10003, description="bad request")

    async def publish(self, *_, **__):
        raise MaxPayloadError

    async def subscribe(self, subject, cb):
        self.heard[subject] = cb


def test_nats_that_refuses_is_told_in_words_and_words_that_make_no_sense_are_logged(caplog):
    async def main() -> None:
        client = Refusing()
        store = NatsStore(client, "it")
        with pytest.raises(Unavailable, match=r"NATS does not remove partition\.3: bad request"):
            await store.discard("partition.3")
        await store.say("beat", b"x")  # a word may be lost
        await store.hear("beat", lambda data: 1 // 0)
        await client.heard["sievenet.it.word.beat"](SimpleNamespace(data=b"x"))

    asyncio.run(main())
    assert "internal error at a word about beat" in caplog.text
