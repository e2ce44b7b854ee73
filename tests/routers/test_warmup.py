"""A router has its compiled code before it listens."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from sievenet.matcher import warmup

warmup.load()
warmup.load()

from numba.core.dispatcher import Dispatcher
from sievenet.content import Filter, Record, Subscription, ValueSet
from sievenet.routers.routing import Settings
from sievenet.routers.simulation import Network
from sievenet.workload import Hotspots, Mixed, Ticks, grid


def compiled():
    return {
        (name, word, str(signature))
        for name, module in list(sys.modules.items())
        if name.startswith("sievenet")
        for word, value in vars(module).items()
        if isinstance(value, Dispatcher)
        for signature in value.signatures
    }


def use(settings, filters, events):
    network = Network([("a", "b")], settings)
    network.run(1.0)
    network.attach("p", "a")
    network.attach("s", "b")
    for number, each in enumerate(filters):
        network.subscribe("s", number, Subscription([each]))
        if number in (0, 20, len(filters) - 1):
            network.settle("s")
            for count in (1, 2, 300):
                network.publish("p", events(count))
                network.drain()
    for number in range(0, len(filters), 2):
        network.unsubscribe("s", number)
    network.settle("s")
    network.publish("p", events(300))
    network.drain()
    assert network.delivered["s"]


before = compiled()
assert len(before) > 20
for load in (Hotspots(schema=grid(4, hi=255), selectivity=0.3, seed=2), Mixed(seed=5), Ticks(seed=3)):
    wanted = list(load.subscriptions(700).filters())
    use(Settings("simple"), wanted, load.events)
    use(Settings("bdrp"), wanted[:30], load.events)
loose = [Filter(None, {"a": ValueSet.interval(i, i + 9), "b": ValueSet.of(str(i % 9))}) for i in range(40)]
use(Settings(), loose, lambda count: [Record({"a": i, "b": str(i % 9), "c": i / 2}) for i in range(count)])
print(sorted(compiled() - before))
"""


def test_nothing_is_compiled_after_loading():
    """Whatever a router matches later, of any type and in any number: the machine code exists."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=bare, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.skipif(not os.environ.get("SIEVENET_SEED"), reason="compiles for half a minute: in `make soak` only")
@pytest.mark.may_skip("compiles for half a minute: in `make soak` only")
def test_a_new_machine_compiles_before_it_listens(tmp_path):
    """With an empty cache: nothing enters it after the router says that it is up, though events go through."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    start = [sys.executable, "-m", "sievenet"]
    with subprocess.Popen(
        [*start, "router", "--listen", "127.0.0.1:0", "--schema", "stock"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as router:
        try:
            url = router.stdout.readline().split()[-1]
            assert "compiled" in router.stderr.readline()
            before = sorted(map(str, Path(tmp_path).rglob("*.nb*")))
            assert before
            watch = [*start, "sub", "--url", url, "-n", "1", "stock: price > 420"]
            sub = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True)
            event = "stock: symbol=IBM, price=421.5, volume=1200"
            while sub.poll() is None:
                subprocess.run([*start, "pub", "--url", url, event], check=True, timeout=60, capture_output=True)
            assert "421.5" in sub.communicate(timeout=60)[0]
            assert sorted(map(str, Path(tmp_path).rglob("*.nb*"))) == before
        finally:
            router.terminate()
