"""Metrics with a real Prometheus: it scrapes daemons and routers, and the dashboard's queries work."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest

import sievenet
from sievenet import programs
from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.login import load_login
from sievenet.errors import InvalidInput
from sievenet.web.metrics import gauge
from sievenet.web.monitor import Monitor
from tests.access.harness import folder
from tests.web.harness import READING, publish, reading, run, served
from tests.web.test_curl import start, stop

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "sievenet.json"


def needs_prometheus():
    for program in programs.missing("prometheus"):
        pytest.skip(f"needs {program.name} (scripts/system-packages prometheus)")


def checked(text):
    """What promtool says about metrics; nothing, if they are as they should be."""
    done = subprocess.run(
        programs.command("promtool", "check", "metrics"), input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def samples(text):
    return {match[1]: float(match[2]) for match in re.finditer(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


def test_metrics_say_what_happened_and_promtool_finds_nothing_wrong():
    needs_prometheus()

    async def test():
        async with (
            served(listen__heartbeat=0.05) as (daemon, _, http),
            sievenet.connect(daemon.url, host="h3") as node,
            sievenet.connect(daemon.url, host="h1") as publisher,
        ):
            feed = await node.subscribe("reading: x < 10")
            await publisher.advertise(READING)
            for x in range(10):
                await publisher.publish(READING.event(x=x, y=0.5, kind="hot"))
            for _ in range(10):
                await anext(feed)
            assert (await publish(http, [reading(1)]))[0] == 200

            async def text():
                async with http.get("/metrics") as response:
                    assert response.headers["Content-Type"].startswith("text/plain; version=")
                    return await response.text()

            async with asyncio.timeout(20):
                # Each client reports in its own time.
                counts = ("sievenet_events_published_total", "sievenet_events_delivered_total")
                while True:
                    found = samples(await text())
                    if all(found[name] >= 11 for name in counts):
                        break
                    await asyncio.sleep(0.05)
            assert found["sievenet_events_published_total"] == 11
            assert found['sievenet_switch_up{switch="s2"}'] == 1
            assert found['sievenet_link_packets_total{source="s1",target="s2"}'] >= 10
            assert found['sievenet_subscriptions{category="reading",version="1"}'] == 1
            assert found['sievenet_http_requests_total{route="publish",status="200"}'] == 1
            assert found["process_resident_memory_bytes"] > 1e6
            assert checked(await text()) == ""
            async with http.get("/readyz") as response:
                assert (await response.json())["ready"] is True
            daemon.plane.switch_down("s2")
            async with asyncio.timeout(20):
                while True:
                    async with http.get("/readyz") as response:
                        if response.status == 503:
                            assert (await response.json())["switches_down"] == ["s2"]
                            break
                    await asyncio.sleep(0.05)

    run(test())


def test_a_monitor_serves_any_process_and_lets_in_whom_it_should(tmp_path):
    access = folder(tmp_path)

    async def test():
        ready = True
        made = Monitor("127.0.0.1:0", lambda: [gauge("sievenet_matcher_load", "Load.", {(): 0.5})], lambda: ready)
        async with made as monitor, aiohttp.ClientSession(monitor.url) as http:
            async with http.get("/metrics") as response:
                assert "sievenet_matcher_load 0.5" in await response.text()
            ready = False
            async with http.get("/readyz") as response:
                assert response.status == 503
            async with http.get("/healthz") as response:
                assert response.status == 200

        async def slow():
            await asyncio.sleep(0)
            return []

        guarded = Monitor("127.0.0.1:0", slow, keeper=Doorkeeper(access))
        connector = aiohttp.TCPConnector(ssl=False)
        async with guarded as monitor, aiohttp.ClientSession(monitor.url, connector=connector) as http:
            token = load_login(access.login("eye")).token
            for shown, status in (("", 401), ("Bearer eye.wrong", 401), (f"Bearer {token}", 200)):
                async with http.get("/metrics", headers={"Authorization": shown}) as response:
                    assert response.status == status
        with pytest.raises(InvalidInput, match="--access FOLDER"):
            Monitor("0.0.0.0:0", slow)

    run(test())


@contextlib.contextmanager
def prometheus(path, text):
    """A real Prometheus with this configuration; what a query answers."""
    (path / "prometheus.yml").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = (f"--config.file={path}/prometheus.yml", f"--storage.tsdb.path={path}/data")
    command = programs.command("prometheus", *arguments, f"--web.listen-address=127.0.0.1:{port}")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(expression):
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{asked}", timeout=10) as response:
            found = json.load(response)
        assert found["status"] == "success", found
        return found["data"]["result"]

    try:
        yield query
    finally:
        process.terminate()
        process.wait(20)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            found = condition()
            if found:
                return found
        time.sleep(0.2)
    raise AssertionError(f"did not come true within {seconds} s")


@pytest.mark.slow
def test_a_real_prometheus_scrapes_daemons_and_routers_and_runs_the_dashboard(tmp_path):
    needs_prometheus()
    access = folder(tmp_path)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(start, "--sample", "stock", "--caches", "1")
        second = pool.submit(start, "--schema", "stock", "--access", str(access.path))
    (plain, url), (secure, secure_url) = first.result(), second.result()
    router = subprocess.Popen(
        [sys.executable, "-m", "sievenet", "router", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        metrics = re.search(r"metrics at http://(\S+)/metrics", router.stdout.readline())[1]
        (tmp_path / "token").write_text(load_login(access.login("eye")).token)
        config = f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: sievenet
    static_configs: [{{targets: ["{url.removeprefix("http://")}"]}}]
  - job_name: secure
    scheme: https
    tls_config: {{ca_file: {access.path}/authority.pem}}
    authorization: {{credentials_file: {tmp_path}/token}}
    static_configs: [{{targets: ["{secure_url.removeprefix("https://")}"]}}]
  - job_name: router
    static_configs: [{{targets: ["{metrics}"]}}]
"""
        with prometheus(tmp_path, config) as query:
            until(lambda: len(query("up == 1")) == 3)
            until(lambda: query("rate(sievenet_events_published_total[10s]) > 100"))
            assert query('sievenet_switch_up{job="secure"}')
            assert query("sievenet_router_clients")
            assert query("sievenet_cache_assigned")
            empty = []
            for panel in json.loads(DASHBOARD.read_text())["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"].replace("$job", "sievenet")
                    # Rates over minutes have enough in some seconds.
                    short = re.sub(r"\[(1|5)m\]", "[10s]", expression)
                    found = until(lambda text=short: [query(text)])[0]
                    if not found:
                        empty.append(panel["title"])
            # Tables of the sample have no bound that is known.
            assert set(empty) <= {"Fill of flow tables", "HTTP: 95th percentile of the time to answer"}
    finally:
        stop(plain)
        stop(secure)
        stop(router)


@pytest.mark.slow
def test_logs_are_lines_of_json_from_a_level_on(tmp_path):
    path = tmp_path / "up.log"
    options = ["--log", "json", "--log-level", "info", "--log-file", str(path)]
    process, _ = start("--schema", "stock", *options)
    stop(process)
    written = path.read_text()
    # The same by a file.
    path.unlink()
    (tmp_path / "up.toml").write_text(f'[log]\nform = "json"\nlevel = "info"\nfile = "{path}"\n')
    process, _ = start("--schema", "stock", "--config", str(tmp_path / "up.toml"))
    stop(process)
    assert "listening on" in path.read_text()
    records = [json.loads(line) for line in written.splitlines()]
    assert any(each["logger"] == "sievenet.daemon" and "listening on" in each["message"] for each in records)
    assert {each["level"] for each in records} <= {"info", "warning", "error"}
    assert all(set(each) >= {"time", "level", "logger", "message"} for each in records)
