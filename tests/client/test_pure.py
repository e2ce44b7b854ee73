"""Small pure parts of the client: backoff, ledger, latency, URL."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.allowance import Allowance
from sievenet.client.cacheoptions import CacheOptions
from sievenet.client.connector import connect
from sievenet.client.latency import Latency
from sievenet.client.registrations import Registrations
from sievenet.client.url import parse_url
from sievenet.content import Attribute, Filter, Schema, Subscription
from sievenet.content.codec import encode_subscription
from sievenet.content.parser import parse_subscription
from sievenet.errors import Dropped, InvalidInput
from sievenet.session.backoff import TRANSITIONS, Backoff, State

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=9),))
ALL = Subscription([Filter(SCHEMA)])


def test_backoff_doubles_to_its_limit_and_a_steady_connection_resets_it():
    machine = Backoff(first=1.0, most=8.0, steady=10.0, uniform=lambda: 1.0)
    machine.handle("begin", 0.0)
    waits = []
    for _ in range(6):
        waits.append(machine.handle("failed", 0.0))
        machine.handle("due", 0.0)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    machine.handle("connected", 100.0)
    assert machine.handle("lost", 105.0) == 8.0  # not steady yet
    machine.handle("due", 113.0)
    machine.handle("connected", 113.0)
    assert machine.handle("lost", 130.0) == 1.0
    assert machine.losses == 2


def test_backoff_is_spread():
    machine = Backoff(first=1.0, uniform=lambda: 0.0)
    machine.handle("begin", 0.0)
    assert machine.handle("failed", 0.0) == 0.5


@given(st.lists(st.sampled_from(["begin", "connected", "failed", "lost", "due", "closed"]), max_size=20))
def test_the_machine_follows_its_table_and_nothing_else(stimuli):
    machine = Backoff()
    for stimulus in stimuli:
        expected = TRANSITIONS.get((machine.state, stimulus))
        if expected is None:
            with pytest.raises(KeyError):
                machine.handle(stimulus, 0.0)
        else:
            machine.handle(stimulus, 0.0)
            assert machine.state is expected
    machine.handle("closed", 0.0)
    assert machine.state is State.CLOSED


def test_the_ledger_tells_what_is_missing_and_what_is_too_much():
    ledger = Registrations()
    ad = ledger.add("advertisement", "t", ALL, b"a")
    kept = ledger.add("subscription", "t", ALL, b"b")
    given_up = ledger.add("subscription", "t", ALL, b"c")
    lost = ledger.add("subscription", "t", ALL, b"d")
    assert len({e.id for e in (ad, kept, given_up, lost)}) == 4
    assert ledger.remove(given_up)
    assert not ledger.remove(given_up)
    difference = ledger.difference([], [kept.id, given_up.id])
    assert difference.missing == (ad, lost)
    assert difference.surplus == (("subscription", given_up.id),)
    assert ad in ledger
    assert given_up not in ledger
    assert len(ledger) == 3
    assert list(ledger) == [ad, kept, lost]
    assert ledger.of("subscription", "t") == [kept, lost]


def test_ids_are_never_reused():
    ledger = Registrations()
    first = ledger.add("subscription", "t", ALL, b"")
    ledger.remove(first)
    assert ledger.add("subscription", "t", ALL, b"").id != first.id


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_latency_quantiles_are_good_to_four_per_cent(durations, share):
    latency = Latency()
    for each in durations:
        latency.add(each)
    [found] = latency.quantiles((share,))
    exact = sorted(durations)[math.ceil(share * len(durations) - 1e-9) - 1]
    assert abs(found / exact - 1) < 0.04
    assert latency.largest == max(durations)


def test_latency_of_nothing_and_of_clocks_that_disagree():
    latency = Latency()
    assert latency.quantiles((0.5, 0.99)) == [None, None]
    latency.add(-3.0)
    latency.add(1e9)
    assert latency.count == 2
    other = Latency()
    other.add(1.0)
    other.merge(latency)
    assert other.count == 3
    assert other.largest == 1e9


@pytest.mark.parametrize(
    ("text", "host", "port", "tls"),
    [
        ("sievenet://127.0.0.1:7400", "127.0.0.1", 7400, False),
        ("sievenets://example.org", "example.org", 7400, True),
        ("localhost:12", "localhost", 12, False),
        ("sievenet://[::1]:7", "::1", 7, False),
        ("sievenets://[::1]:7", "::1", 7, True),
    ],
)
def test_urls(text, host, port, tls):
    address = parse_url(text)
    assert address == (host, port, tls)
    assert parse_url(str(address)) == address


@pytest.mark.parametrize("text", ["http://x:1", "sievenet://", "sievenet://x:99999", "sievenet://x/path", "x:y"])
def test_bad_urls(text):
    with pytest.raises(InvalidInput, match="sievenet://127"):
        parse_url(text)


@pytest.mark.parametrize("name", ["a b", "x" * 65, ".x", "a/b", "a\n", "é"])
@pytest.mark.parametrize("url", ["sievenet://127.0.0.1:1", "sievenet+router://127.0.0.1:1"])
def test_a_name_that_cannot_be_is_refused_in_plain_words(name, url):
    with pytest.raises(InvalidInput, match=r"a name of letters, digits, _ \. : and -, 64 at most.* - at name"):
        connect(url, name=name)


def test_the_environment_gives_the_default(monkeypatch):
    monkeypatch.setenv("SIEVENET_URL", "sievenet://10.0.0.1:9")
    assert parse_url() == ("10.0.0.1", 9, False)
    monkeypatch.delenv("SIEVENET_URL")
    assert str(parse_url()) == "sievenet://127.0.0.1:7400"


def test_a_publisher_is_told_once_of_all_that_was_dropped_since_the_last_time():
    allowance = Allowance()
    for answer in ({"over_quota": 3, "unpermitted": 0}, None, {"over_quota": 4, "unpermitted": 2}):
        allowance.told(answer)
    with pytest.raises(
        Dropped, match=r"7 events were dropped: they were more .*; 2 events were dropped: the rules"
    ) as told:
        allowance.check()
    assert (told.value.count, told.value.quota) == (9, True)
    allowance.check()
    allowance.told({"over_quota": 0, "unpermitted": 1})
    with pytest.raises(Dropped, match=r"^1 events were dropped: the rules"):
        allowance.check()


def test_the_log_hears_once_what_a_registration_is_narrowed_to(caplog):
    allowance, ledger = Allowance(), Registrations()
    first, second = (ledger.add("subscription", "t", ALL, encode_subscription(ALL)) for _ in range(2))
    less, least = (parse_subscription(text, SCHEMA) for text in ("x < 5", "x < 3"))

    def answered(entry, allowed):
        caplog.clear()
        answer = {} if allowed is None else {"narrowed": encode_subscription(allowed)}
        assert allowance.answered(entry, answer) == allowed
        return len(caplog.records)

    assert [answered(entry, less) for entry in (first, second, first, second)] == [1, 1, 0, 0]
    assert [answered(first, least), answered(first, least), answered(first, less)] == [1, 0, 1]
    # What stood as it was asked for meanwhile is narrowed anew.
    assert [answered(second, each) for each in (None, less, less)] == [0, 1, 0]
    # What is remembered is bounded.
    for _ in range(5000):
        allowance.answered(ledger.add("subscription", "t", ALL, b""), {"narrowed": encode_subscription(less)})
    assert len(allowance._logged) == 4096


def test_the_past_begins_before_the_call_however_long_the_call_takes(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("sievenet.client.cacheoptions.time.monotonic", lambda: clock[0])
    wall = datetime.now(UTC)
    monkeypatch.setattr("sievenet.client.cacheoptions.time.time", wall.timestamp)
    asked = [10, wall - timedelta(seconds=20), wall + timedelta(seconds=5), 0.0, (1, 2, 3)]
    options = [CacheOptions.of(None, "end", since, None) for since in asked]
    assert [each.back for each in options] == [10, 20, 0, 0, 1e9]
    clock[0] += 7  # a busy machine
    assert [each.back for each in options] == pytest.approx([17, 27, 2, 7, 1e9])
    assert CacheOptions.of(5, "end", None, None).back == 0
