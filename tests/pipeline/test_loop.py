"""The loop closed by the command line alone: a fabric, publishers with a tap, a watch that applies plans, drift.

Fabric and subscribers are processes of their own; `pub`, `watch`, `status` and `topo` are called as people type them.
Traffic moves to other values, and others come who want these.
"""

import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from sievenet.cli import main
from tests.pipeline.test_drift import AFTER, BEFORE, BITS, BUDGET, SCHEMA, WANTED

#: Events of a phase: enough for a watch to conclude from.
COUNT = 600


def call(*arguments):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, f"{result.stderr}\n{result.exception!r}"
    return result.stdout


def patiently(look, enough, seconds=60.0):
    """Look again and again until it is enough."""
    end = time.monotonic() + seconds
    while not enough(found := look()):
        assert time.monotonic() < end, f"still {found!r}"
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def process(*arguments, **settings):
    """A `sievenet` command in a process of its own, ended by an interrupt."""
    started = subprocess.Popen([sys.executable, "-m", "sievenet", *arguments], text=True, **settings)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGINT)
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]


def written(path, batch):
    rows = [",".join(SCHEMA.positions), *(",".join(map(str, event.values)) for event in batch)]
    path.write_text("\n".join(rows) + "\n")


def printed(outputs):
    """The events that subscribers have printed, once per subscription."""
    lines = [json.loads(line) for each in outputs for line in each.read_text().splitlines() if line.endswith("}")]
    return [tuple(line["event"].values()) for line in lines if "event" in line]


@pytest.mark.spark
@pytest.mark.slow
def test_traffic_is_followed_from_the_shell(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    port, data_port = free_ports(2)
    url = f"sievenet://127.0.0.1:{port}"
    monkeypatch.setenv("SIEVENET_URL", url)
    (tmp_path / "grid.json").write_bytes(SCHEMA.to_json())
    (tmp_path / "fabric.toml").write_text(f"[control]\nbits = {BITS}\nbudget = {BUDGET}\n")
    with contextlib.ExitStack() as stack:
        fabric = ["up", "--config", "fabric.toml", "--topology", "testbed", "--schema", "grid.json", "--state", "state"]
        stack.enter_context(
            process(*fabric, "--port", port, "--data-port", data_port, stdout=subprocess.DEVNULL, env=dict(os.environ))
        )
        patiently(lambda: CliRunner().invoke(main, ["status"]).exit_code, lambda code: code == 0)
        outputs = []

        def subscribe(filters, hosts):
            """A process for each host, with some of the filters."""
            for i, host in enumerate(hosts):
                outputs.append(tmp_path / f"{host}.out")
                out = stack.enter_context(outputs[-1].open("w"))
                own = [str(each) for each in filters[i :: len(hosts)]]
                arguments = ["sub", *own, "--name", f"at-{host}", "--host", host, "--json"]
                stack.enter_context(process(*arguments, stdout=out, stderr=subprocess.DEVNULL))
            wanted.extend(filters)
            patiently(
                lambda: json.loads(call("status", "--json"))["categories"][0]["subscriptions"],
                lambda found: found == len(wanted),
            )

        wanted = []
        subscribe(WANTED[:8], ("h1", "h5"))
        (tmp_path / "plan.json").write_text(call("plan", "show", "grid", "--json"))

        def carried():
            """Packets per link, when nothing moves any more."""
            seen = []

            def links():
                return {(k["a"], k["b"]): k["packets"] for k in json.loads(call("topo", "--json"))["links"]}

            def still(found):
                seen.append(found)
                return len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]

            return patiently(links, still)

        due = collections.Counter()

        def phase(name, batch):
            """Publish with a tap; what each link carried of it."""
            before = carried()
            written(tmp_path / f"{name}.csv", batch)
            files = ["--schema", "grid", "--file", f"{name}.csv", "--tap", "tap"]
            call("pub", *files, "--name", "market", "--host", "h2")
            due.update(event.values for event in batch for each in wanted if each.matches(event))
            after = carried()
            return {link: after[link] - before.get(link, 0) for link in after}

        watch = ["watch", "tap", "--subscriptions", "state/journal.db", "--topology", "testbed"]
        watch += ["--config", "fabric.toml", "--plan", "plan.json", "--state", "watch", "--seconds", "3", "--apply"]
        untuned = phase("a1", BEFORE.events(COUNT))
        call(*watch)
        settled = phase("a2", BEFORE.events(COUNT, start=COUNT))
        tuned = call("plan", "show", "grid", "--json")
        subscribe(WANTED[8:], ("h3", "h8"))
        moved = phase("b1", AFTER.events(COUNT))
        said = call(*watch)
        fallen = phase("b2", AFTER.events(COUNT, start=COUNT))
        assert json.loads(tuned) != json.loads((tmp_path / "plan.json").read_text())
        assert json.loads(call("plan", "show", "grid", "--json")) != json.loads(tuned)
        assert "transmissions per event" in said
        # Fewer packets after each change of the plan, and none of the busiest links carries more.
        for before, after in ((untuned, settled), (moved, fallen)):
            assert sum(after.values()) < 0.9 * sum(before.values())
            busiest = max(before, key=before.get)
            assert after[busiest] <= 1.05 * before[busiest]
        # What `status` calls transmissions is what its links and the ports of its clients have carried.
        found = json.loads(call("topo", "--json"))
        total = json.loads(call("status", "--json"))["traffic"]["transmissions"]
        ports = sum(port["in"] + port["out"] for port in found["ports"])
        # Publishers have left since; each sent a packet per event.
        assert total == sum(link["packets"] for link in found["links"]) + ports + 4 * COUNT
        # Whatever the plan was, everybody got what they wanted, once.
        patiently(lambda: len(printed(outputs)), lambda found: found >= due.total())
    assert collections.Counter(printed(outputs)) == due
