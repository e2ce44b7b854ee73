"""The client library without async, and the examples for it."""

import threading

import pytest

import sievenet
import sievenet.sync
from sievenet.errors import Rejected, Unavailable
from tests.fabric.harness import SCHEMA, fabric_in_thread, reading


@pytest.fixture(scope="module")
def daemon():
    with fabric_in_thread() as running:
        yield running


def test_publish_and_subscribe(daemon):
    with sievenet.sync.connect(daemon.url, name="source") as source, sievenet.sync.connect(daemon.url) as node:
        assert source.schema(SCHEMA) == node.schema("reading")
        offer = source.advertise("reading: x < 100")
        feed = node.subscribe("reading: x >= 10")
        source.publish(reading(11))
        assert source.publish_many([reading(5), reading(12)]) == 2
        assert [feed.get(5)["x"], feed.next(5).event["x"]] == [11, 12]
        assert feed.get(0.01) is None
        assert feed.subscription.matches(reading(10))
        assert feed.statistics().delivered == 2
        assert node.statistics().received.received >= 2
        assert node.ask("status")["clients"]
        assert source.name == "source"
        assert source.host
        source.unadvertise(offer)
        with pytest.raises(Rejected):
            source.publish(reading(11))


def test_iterating_ends_when_another_thread_closes(daemon):
    with sievenet.sync.connect(daemon.url) as source, sievenet.sync.connect(daemon.url) as node:
        source.advertise(SCHEMA)
        seen, enough = [], threading.Event()
        with node.subscribe("reading") as feed:

            def read():
                for event in feed:
                    seen.append(event["x"])
                    if len(seen) == 3:
                        enough.set()

            reader = threading.Thread(target=read)
            reader.start()
            source.publish_many([reading(x) for x in range(3)])
            assert enough.wait(10)
        reader.join(10)
        assert not reader.is_alive()
        assert seen == [0, 1, 2]


def test_callbacks_run_while_the_script_does_something_else(daemon):
    with sievenet.sync.connect(daemon.url) as source, sievenet.sync.connect(daemon.url) as node:
        source.advertise(SCHEMA)
        came = threading.Event()
        node.subscribe("reading", lambda event: came.set())
        source.publish(reading(1))
        assert came.wait(10)


def test_errors_and_ends(daemon):
    with pytest.raises(Unavailable):
        sievenet.sync.connect("sievenet://127.0.0.1:1")
    node = sievenet.sync.connect(daemon.url)
    node.close()
    with pytest.raises(Unavailable):
        node.schema("reading")
    node.close()
    assert sievenet.sync is sievenet.sync
