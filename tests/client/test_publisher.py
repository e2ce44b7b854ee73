"""A publisher whose events go through matchers: what it sends meanwhile travels packet by packet."""

import asyncio

import numpy as np

from sievenet.client.catalog import Catalog
from sievenet.client.outbox import Outbox
from sievenet.client.ports.burst import Burst
from sievenet.client.publisher import Publisher
from sievenet.control import protocol as p


class Port:
    def __init__(self):
        self.sent, self.flushes = [], 0

    def send(self, packets):
        self.sent.append(packets)
        return True

    async def flushed(self, ahead=0):
        self.flushes += 1


class Session:
    alone = False

    def __init__(self):
        self.port, self.told = Port(), []

    def tell(self, message):
        self.told.append(message)


def burst(category=1):
    made = Burst(category, np.zeros(3, np.uint64), np.zeros(3, np.uint64), np.zeros((3, 4), np.uint8))
    made.stamp(5, 6, np.arange(3, dtype=np.uint64), 9)
    return made


def test_what_may_be_diverted_shares_no_packet():
    """From the daemon's first word on, and once what left before has left; until the daemon wants nothing kept."""

    async def main():
        session = Session()
        publisher = Publisher(lambda: session, Outbox(Catalog()))

        async def told(**word):
            publisher.told(p.Retain(**word))
            async with asyncio.timeout(10):
                while not session.told or session.told[-1].serial != word["serial"]:
                    await asyncio.sleep(0)

        publisher.send(session.port, burst())
        await told(serial=1, category=1, keep=True)
        assert session.port.flushes == 1
        publisher.send(session.port, burst())
        await told(serial=2, category=1, keep=True)
        assert session.port.flushes == 1
        await told(serial=3, category=1, keep=False)
        publisher.send(session.port, burst())
        assert [each.apart for each in session.port.sent] == [False, True, False]
        await publisher.close()

    asyncio.run(main())


def test_what_is_to_be_kept_again_is_not_dropped_by_an_older_word_that_waited():
    async def main():
        session = Session()
        publisher = Publisher(lambda: session, Outbox(Catalog()))
        publisher.told(p.Retain(serial=1, category=1))
        publisher.send(session.port, burst())
        async with publisher._lock(1):  # something is being sent again
            publisher.told(p.Retain(serial=2, category=1, keep=False))
            publisher.told(p.Retain(serial=3, category=1))
            publisher.send(session.port, burst())
        async with asyncio.timeout(10):
            while not session.told or session.told[-1].serial != 3:
                await asyncio.sleep(0)
        assert len(publisher.retention.kept[1].sent) == 2
        await publisher.close()

    asyncio.run(main())
