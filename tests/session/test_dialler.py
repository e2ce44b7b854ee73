"""What a lasting connection does in the moment in which it breaks."""

import asyncio

from sievenet.testing.connection_contract import _Node, _Server
from tests.session.test_contract import TALKS


def test_a_request_in_the_moment_of_a_loss_waits_for_the_next_connection():
    """The connection is lost and its reader has not had its turn yet: asking must not go round and round before it."""
    talk = TALKS["control"]

    async def run():
        server = _Server(talk, lease=10.0)
        await server.listener.start()
        node = _Node(talk, server.listener.address)
        await node.start()
        link, tries = node._link, 0
        ask = link.call

        async def counted(request, timeout):
            nonlocal tries
            tries += 1
            assert tries < 100, "it asks again and again, and nothing else gets a turn"
            return await ask(request, timeout)

        link.call = counted
        try:
            # As the event loop does it when the other side is killed, and then nothing else runs before the request.
            link.writer.transport.get_protocol().connection_lost(ConnectionResetError(104, "Connection reset by peer"))
            link.writer.transport.abort()
            assert await node.call(talk.request) == "done"
            assert (node.losses, server.lives) == (1, 2)
        finally:
            await node.close()
            await server.listener.close()

    asyncio.run(asyncio.wait_for(run(), 20))
