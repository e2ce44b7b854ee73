"""`sievenet hybrid` and `sievenet matcher` as operators see them."""

import json

from click.testing import CliRunner

from sievenet.cli import main
from sievenet.cli.hybrid import hybrid_lines
from sievenet.cli.matcher import spread
from sievenet.cli.trace import trace_lines
from sievenet.network import parse_topology
from tests.fabric.harness import fabric_in_thread

FOUND = {
    "latency_bound": None,
    "method": "csa",
    "latency_network": 0.0004,
    "latency_matcher": 0.002,
    "latency_network_age": 0.0,
    "latency_matcher_age": 0.0,
    "interval": 5.0,
    "categories": {
        "stock": {"false_positives_saved": 75.0, "of": 100.0, "deliveries_through_matchers": 10.0, "deliveries": 40.0}
    },
    "diverted": [{"category": "stock", "dz": "", "switch": "s1", "matcher": "m"}],
    "matchers": [
        {"name": "m", "host": "h1", "switch": "s1", "state": "well", "subscriptions": 3, "received": 9}
        | {"unwanted": 4, "sent": 5}
    ],
    "failures": 2,
    "last_failure": "n: no sign of life for 1.1 s",
}


def test_what_goes_through_matchers_is_said_for_people():
    text = "\n".join(hybrid_lines(FOUND))
    assert "at most anything" in text
    assert "75 of 100 false positives per second saved on links (75 %); 10 of 40" in text
    assert "stock all at s1 → m" in text
    assert "matcher m at h1 (s1): well, 3 subscriptions, 9 events, 4 unwanted, 5 sent" in text
    assert "2 times a matcher was given up; the last: n: no sign of life" in text
    assert "measured: 400 µs through the network, 2.0 ms through matchers" in text
    # While everything is diverted nothing is known of the network but what was.
    text = "\n".join(hybrid_lines({**FOUND, "latency_network_age": 20.0}))
    assert "measured: 400 µs (20.00 s ago) through the network, 2.0 ms through matchers" in text
    none = "\n".join(hybrid_lines({**FOUND, "latency_bound": 0, "latency_matcher": None, "matchers": []}))
    assert "the network filters alone" in none
    assert "nothing yet" in none
    assert "no matchers" in none


def test_a_way_through_a_matcher_is_said_for_people():
    found = {"event": "e", "from": "h1", "codes": ["01"], "hops": [], "matchers": ["m"], "not_shown": 0}
    found |= {"false_positives": [], "not_wanted": []}
    found["delivered"] = [{"client": "a", "subscriptions": ["x"], "reached": True, "by_matcher": True}]
    text = "\n".join(trace_lines(found))
    assert "m matches it exactly" in text
    assert "✓ a gets it from the matcher: x" in text


def test_matchers_are_spread_over_switches():
    topology = parse_topology("line,switches=3,hosts=2")
    hosts = spread(topology, 5)
    assert len({topology.attachment(host).switch for host in hosts[:3]}) == 3
    assert len(set(hosts)) == 5
    assert spread(topology, 0) == []


def test_commands_of_a_running_fabric():
    with fabric_in_thread(hybrid__latency_bound=0.01) as daemon:

        def call(*arguments):
            result = CliRunner().invoke(main, (*arguments, "--url", daemon.url), prog_name="sievenet")
            assert result.exit_code == 0, result.output
            return result.stdout

        assert "mean latency at most 10" in call("hybrid")
        assert json.loads(call("hybrid", "--json"))["matchers"] == []
        assert "matcher m at h1" in call("matcher", "--name", "m", "--host", "h1", "--for", "200ms")
        assert json.loads(call("matcher", "--host", "h2", "--for", "100ms", "--json"))["received"] == 0
