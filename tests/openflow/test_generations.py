"""Two controllers at the same real switches: the one of the later generation is obeyed, the other is not."""

import asyncio

import pytest

from sievenet.dataplane.namespaces import listening
from sievenet.errors import SievenetError
from sievenet.index import Dz
from sievenet.network import Add, Flow, Line
from tests.openflow.harness import make_network, remove_network

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]


def flow(bits, *ports):
    return Flow.of(1, Dz.parse(bits), *ports)


def test_an_older_generation_changes_nothing():
    network = make_network(Line.build(switches=2, hosts=1), "svg")

    async def main():
        sockets = [listening(network.network_namespace, "127.0.0.1", 0) for _ in range(2)]
        ports = [sock.getsockname()[1] for sock in sockets]
        old, new, late = (network.plane(grace=0.2, audit=60.0, generation=g) for g in (3, 7, 5))

        def controllers(*ports):
            for bridge in network.bridges.values():
                network._vsctl("set-controller", bridge, *(f"tcp:127.0.0.1:{port}" for port in ports))

        try:
            await old.start(sock=sockets[0])
            await asyncio.to_thread(network.reset)
            await asyncio.to_thread(controllers, ports[0])
            await old.connected()
            await old.apply("s1", [Add(flow("0", 1))])
            await new.start(sock=sockets[1])
            await asyncio.to_thread(controllers, *ports)
            await new.connected()
            await new.apply("s1", [Add(flow("1", 1))])
            with pytest.raises(SievenetError, match="another controller leads"):
                await old.apply("s1", [Add(flow("10", 1))])
            held = await new.table("s1")
            assert {each.match.cell for each in held} == {Dz.parse("0"), Dz.parse("1")}
            assert {each.match.cell for each in await old.table("s1")} == {Dz.parse("0"), Dz.parse("1")}
            await old.close()
            # One that comes back with its old number is not even accepted.
            third = listening(network.network_namespace, "127.0.0.1", 0)
            await late.start(sock=third)
            await asyncio.to_thread(controllers, ports[1], third.getsockname()[1])
            with pytest.raises(SievenetError, match="did not connect"):
                await late.connected(2.0)
            await new.apply("s2", [Add(flow("1", 1))])
        finally:
            for plane in (old, new, late):
                await plane.close()

    try:
        asyncio.run(main())
    finally:
        remove_network(network)
