"""The contract of stores, on the one in memory and on a real NATS server."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sievenet.control.store.memory import MemoryStore, Shelf
from sievenet.control.store.nats import NatsStore
from sievenet.errors import InvalidInput, Unavailable
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
