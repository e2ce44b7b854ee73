"""What publishers are told to keep, to forget and to send again; they do that when a test says so."""

import asyncio

from sievenet.control.protocol import Did
from sievenet.daemon.custody import Custody
from sievenet.daemon.orders import Orders

NUMBER = 1


class Publishers:
    """Of one category; all are there at first, and say nothing by themselves."""

    def __init__(self, *names):
        self.names, self.there, self.said = names, set(names), []
        self.orders = Orders(self._say)
        self.custody = Custody(self.orders, lambda number: list(names))

    def _say(self, client, message):
        if client in self.there:
            self.said.append((client, message))
        return client in self.there

    def words(self, client):
        """What a client has been told and has not done."""
        return [word for name, word in self.said if name == client]

    def do(self, *clients, number=100):
        """Clients do all that they were told, and say which event of theirs is next."""
        for name, word in [each for each in self.said if each[0] in clients]:
            self.said.remove((name, word))
            self.orders.done(name, Did(word.serial, "", 7, number))

    async def told(self, client):
        """Until a client has been told something more."""
        before = len(self.words(client))
        async with asyncio.timeout(5):
            while len(self.words(client)) == before:
                await asyncio.sleep(0)

    async def keep(self):
        """They all keep what they send."""
        work = asyncio.create_task(self.custody.begin(NUMBER, self.names))
        await self.told(self.names[-1])
        self.do(*self.names)
        await work

    def leave(self, client):
        """A connection ends."""
        self.there.discard(client)
        self.said = [each for each in self.said if each[0] != client]
        self.orders.gone(client)
        self.custody.lost(client)

    async def later(self):
        """A word says what is forgotten, if anything is; the number of the word that says so."""
        work = asyncio.create_task(self.custody.renew(NUMBER, passed=float("inf")))
        for _ in range(10):
            await asyncio.sleep(0)
        found = {client: word.forget for client, word in self.said}
        self.do(*found)
        await work
        return found


def run(work):
    asyncio.run(asyncio.wait_for(work, 20))


def test_nobody_forgets_while_something_is_mended():
    """What other matchers have passed on says nothing about what the one took along that is given up."""

    async def main():
        net = Publishers("a")
        await net.keep()
        with net.custody.mending(NUMBER):
            assert not await net.later()
        assert (await net.later())["a"] > 0

    run(main())


def test_who_is_slow_to_send_again_forgets_nothing_before_it_has(monkeypatch):
    monkeypatch.setattr("sievenet.daemon.custody.PATIENCE", 0.01)

    async def main():
        net = Publishers("a", "slow")
        await net.keep()
        again = asyncio.create_task(net.custody.again(NUMBER))
        await net.told("slow")
        net.do("a")
        await again
        [word] = net.words("slow")
        assert word.again
        net.said.clear()
        found = await net.later()
        assert found["a"] > 0
        assert found["slow"] == 0
        # It has answered a later word, so it has obeyed that one too.
        assert (await net.later())["slow"] > 0

    run(main())


def test_who_comes_back_while_others_send_again_is_told_to_do_so_too():
    async def main():
        net = Publishers("back", "slow")
        await net.keep()
        again = asyncio.create_task(net.custody.again(NUMBER))
        await net.told("slow")
        net.leave("back")
        await asyncio.sleep(0)
        net.there.add("back")
        welcomed = asyncio.create_task(net.custody.welcomed("back"))
        await net.told("back")
        assert net.words("back")[0].again
        net.do("back", "slow")
        await asyncio.gather(again, welcomed)
        # Nobody owes anything any more.
        assert not any(net.custody._owed.values())

    run(main())


def test_a_subscription_under_way_has_its_marks_before_anything_is_sent_again():
    async def main():
        net = Publishers("a")
        await net.keep()
        stands = asyncio.Event()

        async def subscribe():
            await net.custody.mended(NUMBER, asyncio.current_task())
            await stands.wait()
            return await net.custody.marks(NUMBER)

        marks = asyncio.create_task(subscribe())
        await asyncio.sleep(0)
        with net.custody.mending(NUMBER):
            again = asyncio.create_task(net.custody.again(NUMBER))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not net.words("a")
            stands.set()
            await net.told("a")
            assert not any(word.again for word in net.words("a"))
            net.do("a")
            assert await marks == {"a": (7, 100)}
            await net.told("a")
            net.do("a")
            await again

    run(main())


def test_mending_begins_with_the_word_and_ends_with_the_work():
    async def main():
        net = Publishers("a")
        await net.keep()
        done = asyncio.Event()
        net.custody.mend(NUMBER, asyncio.create_task(done.wait()))
        assert net.custody.mends(NUMBER)
        assert net.custody.end(NUMBER) == []
        with net.custody.mending(NUMBER):
            done.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert net.custody.mends(NUMBER)
        await net.custody.mended(NUMBER)
        assert not net.custody.mends(NUMBER)
        assert net.custody.end(NUMBER) == ["a"]

    run(main())


def test_of_who_does_not_answer_at_once_the_last_mark_counts(monkeypatch):
    monkeypatch.setattr("sievenet.daemon.custody.PAUSE", 0.01)

    async def main():
        net = Publishers("a", "slow")
        await net.keep()
        marks = asyncio.create_task(net.custody.marks(NUMBER))
        await net.told("slow")
        net.do("a", number=200)
        assert await marks == {"a": (7, 200), "slow": (7, 100)}
        net.leave("slow")
        net.custody.left("slow")
        marks = asyncio.create_task(net.custody.marks(NUMBER))
        await net.told("a")
        net.do("a", number=300)
        assert await marks == {"a": (7, 300)}

    run(main())


def test_whoever_asks_for_categories_that_there_are_not_fills_no_memory():
    async def main():
        net = Publishers("a")

        async def asks(number):
            await net.custody.mended(number, asyncio.current_task())

        await asyncio.gather(*(asks(number) for number in range(1000, 1100)))
        await asyncio.sleep(0)
        assert not net.custody._under_way

    run(main())


def test_words_of_an_older_connection_forget_nothing_of_what_is_kept_again():
    """A client may be back before the daemon has noticed that its connection had ended."""

    async def main():
        net = Publishers("a")
        await net.keep()
        net.custody.lost("a")  # as when it is welcomed: what it has answered was said on another connection
        work = asyncio.create_task(net.custody.welcomed("a"))
        await net.told("a")
        later = asyncio.create_task(net.custody.renew(NUMBER, passed=float("inf")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert [word.forget for word in net.words("a")] == [0, 0]
        net.do("a")
        await asyncio.gather(work, later)

    run(main())
