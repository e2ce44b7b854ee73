"""A TCP connection that breaks when a test says so."""

import asyncio
import contextlib


class Proxy:
    """Passes bytes on to a target; while it is cut, connections end at once."""

    def __init__(self, target):
        self._target = target
        self._writers = set()
        self._whole = True
        #: Whether what the target says stays here, unread by the client.
        self._holding = asyncio.Event()
        self._holding.set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.cut()
        self._server.close()

    def cut(self):
        """Break all connections, and make no new ones; what is in buffers is lost."""
        self._whole = False
        self._holding.set()
        for writer in list(self._writers):
            writer.transport.abort()

    def mend(self):
        """Make connections again."""
        self._whole = True

    def hold(self):
        """Take what the target says, but do not pass it on."""
        self._holding.clear()

    async def _accept(self, reader, writer):
        if not self._whole:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        away, back = self._pass(reader, far_writer), self._pass(far_reader, writer, self._holding)
        await asyncio.gather(away, back)
        self._writers -= {writer, far_writer}

    async def _pass(self, reader, writer, may=None):
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if may is not None:
                    await may.wait()
                writer.write(data)
        writer.close()
