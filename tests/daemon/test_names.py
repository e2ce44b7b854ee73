"""When a name whose holder is away may be taken over, and by whom."""

import asyncio

import pytest

import sievenet
from sievenet.access.identity import Identity, Proof, Role
from sievenet.daemon.names import Names
from sievenet.errors import Rejected
from tests.fabric.harness import fabric, publisher, reading, run
from tests.fabric.test_lasting import vanish

STRANGER = Identity(Role.CLIENT)
MEMBER = Identity(Role.CLIENT, "ann", proof=Proof("ann"))
LOCAL = Identity(Role.OPERATOR, local=True)
COMPONENT = Identity(Role.COMPONENT, local=True)


def test_who_may_take_over_and_when():
    names = Names(now=10.0, grace=2.0)
    for identity in (STRANGER, MEMBER, LOCAL):
        with pytest.raises(Rejected, match=r"connected.*silent for 30 s"):
            names.wait("ann", identity, True, 20.0, 30.0, now=11.0)
    with pytest.raises(Rejected, match="taken for 20 s more"):
        names.wait("ann", STRANGER, False, 20.0, 30.0, now=11.0)
    names.lost("ann", 20.0)
    assert names.wait("ann", MEMBER, False, 20.0, 30.0, now=20.5) == 1.5
    assert names.wait("ann", LOCAL, False, 20.0, 30.0, now=22.0) == 0.0
    assert names.wait("ann", COMPONENT, False, 20.0, 30.0, now=22.0) == 0.0
    # Clients that an earlier life of the daemon knew have been away since this one began.
    assert names.wait("bob", LOCAL, False, 20.0, 30.0, now=11.0) == 1.0
    names.here("ann")
    assert names.wait("ann", LOCAL, False, 20.0, 30.0, now=11.0) == 1.0


def test_of_two_who_ask_for_a_dead_clients_name_one_gets_it():
    async def main():
        async with fabric() as daemon, publisher(daemon) as source:
            first = await sievenet.connect(daemon.url, name="mortal")
            await first.subscribe("reading")
            await vanish(first)
            found = await asyncio.gather(
                *(sievenet.connect(daemon.url, name="mortal").__aenter__() for _ in range(4)), return_exceptions=True
            )
            [node] = [each for each in found if not isinstance(each, BaseException)]
            assert all("taken" in str(each) for each in found if each is not node)
            # It is another client: what the dead one wanted is gone, and what it wants comes.
            assert node.connected
            feed = await node.subscribe("reading: x > 5")
            await source.publish(reading(x=1))
            await source.publish(reading(x=7))
            assert (await anext(feed))["x"] == 7
            await node.close()

    run(main())
