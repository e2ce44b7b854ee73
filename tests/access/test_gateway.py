"""A gateway of a fabric whose members are known."""

import contextlib

import pytest

import sievenet
from sievenet.errors import Rejected
from sievenet.gateway.gateway import Gateway
from sievenet.routers.server import RouterServer
from tests.access.harness import folder, guarded, join
from tests.fabric.harness import SCHEMA, eventually, reading, run, take

RULES = """
[members.gate]
role = "ROLE"
rules = ["publish reading: any", "subscribe reading: any"]
[members.zoe]
role = "client"
rules = ["subscribe reading: any"]
[members.olga]
role = "operator"
rules = ["publish *: any"]
"""


@contextlib.asynccontextmanager
async def scene(path, role):
    """A router, and a fabric in which somebody with this role wants to be its gateway."""
    access = folder(path, RULES.replace("ROLE", role))
    async with (
        guarded(access) as daemon,
        join(daemon, access, "olga") as olga,
        join(daemon, access, "zoe") as zoe,
        join(daemon, access, "gate") as gate,
        RouterServer("paris") as paris,
    ):
        await olga.schema(SCHEMA)
        yield zoe, gate, paris


def test_an_operator_is_a_gateway_and_a_client_is_told_that_it_is_none(tmp_path):
    async def main():
        async with (
            scene(tmp_path / "a", "operator") as (zoe, gate, paris),
            Gateway(gate, paris, every=0.01) as gateway,
            sievenet.connect(paris.url) as outside,
        ):
            feed = await zoe.subscribe("reading: x > 5")
            await eventually(lambda: gateway.statistics()["wishes"] == 1)
            await outside.advertise(SCHEMA)
            await outside.publish(reading(7))
            assert (await take(feed, 1))[0]["x"] == 7
        async with scene(tmp_path / "b", "client") as (_, gate, paris):
            with pytest.raises(Rejected, match="A gateway needs a login of role operator"):
                await Gateway(gate, paris).start()

    run(main(), timeout=60)
