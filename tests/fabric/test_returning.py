"""Publishers and subscribers that come back under their name, in a fabric and at routers: nothing is lost as a copy."""

import asyncio

from click.testing import CliRunner

import sievenet
import sievenet.sync
from sievenet.access.identity import Role
from sievenet.cli import main
from sievenet.client.fabric_node import FabricNode
from sievenet.routers.server import RouterServer
from sievenet.workload.samples import load_schema
from tests.fabric.harness import SCHEMA, eventually, fabric, fabric_in_thread, reading, run, take

STOCK = load_schema("stock")
EVENT = "stock: symbol=IBM, price=421.5, volume=1200"


def pub(url, *arguments):
    result = CliRunner().invoke(main, ("pub", "--url", url, *arguments), prog_name="sievenet")
    assert result.exit_code == 0, result.output


def check_three(url):
    """Three `sievenet pub --name market` in a row to one subscriber."""
    with sievenet.sync.connect(url, name="reader") as node:
        node.schema(STOCK)
        feed = node.subscribe("stock: price > 420")
        for _ in range(3):
            pub(url, "--name", "market", "--schema", "stock", "--repeat", "10", EVENT)
        assert [feed.get(10)["symbol"] for _ in range(30)] == ["IBM"] * 30
        assert node.statistics().received.duplicates == 0


def test_a_name_that_publishes_again_and_again():
    with fabric_in_thread() as daemon:
        check_three(daemon.url)


def test_the_same_at_routers():
    async def alone():
        async with RouterServer("r1") as server:
            await asyncio.to_thread(check_three, server.url)

    asyncio.run(alone())


def test_a_process_that_takes_over_a_session_counts_from_0_and_is_heard():
    """The plane gives it the same port, token and publisher number: only the incarnation tells the two lives apart."""

    async def main_():
        async with fabric() as daemon, sievenet.connect(daemon.url) as reader:
            await reader.schema(SCHEMA)
            feed = await reader.subscribe("reading")
            found, ticket, numbers = [], b"", set()
            for life in range(3):
                node = FabricNode(
                    daemon.url,
                    name="phoenix",
                    host=None,
                    timeout=5.0,
                    reconnect=False,
                    role=Role.CLIENT,
                    transport=None,
                )
                node._session._ticket = ticket
                await node.start()
                numbers.add(node._outbox.publisher)
                await node.advertise(SCHEMA)
                for x in range(5):
                    await node.publish(reading(10 * life + x))
                found += [event["x"] for event in await take(feed, 5)]
                ticket = node._session._ticket
                # As `kill -9` would: without a word.
                node._session._link.writer.transport.abort()
                node._session.port.close()
            assert found == [10 * life + x for life in range(3) for x in range(5)]
            assert len(numbers) == 1

    run(main_())


def test_a_subscriber_that_comes_back_gets_what_is_published_from_then_on():
    async def main_():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="source") as source:
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA)
            for i in range(3):
                async with sievenet.connect(daemon.url, name="reader") as reader:
                    feed = await reader.subscribe("reading")
                    await source.publish(reading(i))
                    assert [event["x"] for event in await take(feed, 1)] == [i]
                await eventually(lambda: "reader" not in daemon.plane.clients())

    run(main_())
