"""The reference of HTTP says what there is."""

import re
from pathlib import Path

import msgspec
import pytest

from sievenet.config import WebConfig
from sievenet.routers.server import RouterServer
from sievenet.web.metrics import fabric_metrics, router_metrics
from sievenet.web.routes import ROUTES
from tests.web.harness import publish, reading, run, served

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")


def rows():
    """The rows of the table of requests, as the page should have them."""
    for route in ROUTES:
        role = "anybody" if route.role is None else route.role.value
        yield f"| `{route.method} {route.path}` | {role} | {route.about} |"


def test_the_table_of_requests_is_the_servers():
    found = [line for line in PAGE.splitlines() if re.match(r"\| `(GET|POST) ", line)]
    assert found == list(rows())


@pytest.mark.parametrize("field", msgspec.structs.fields(WebConfig), ids=lambda field: field.name)
def test_every_setting_is_there(field):
    default = "none" if field.default is None else str(field.default)
    assert re.search(rf"^\| `{field.name}` \| {re.escape(default)} \| \S", PAGE, re.MULTILINE), field.name


METRICS = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def table(metrics):
    """The rows of metrics, as the page should have them."""
    for each in metrics:
        labels = sorted({name for sample in each.samples for name in sample.labels} - {"le"})
        name = (
            f"{each.name}_total"
            if each.type == "counter"
            else f"{each.name}_info"
            if each.type == "info"
            else each.name
        )
        yield f"| `{name}` | {each.type} | {', '.join(labels)} | {each.documentation} |"


def test_the_tables_of_metrics_are_those_that_are_served():
    async def test():
        async with served() as (daemon, server, http), RouterServer("r") as router:
            assert (await publish(http, reading(1)))[0] == 200
            control = msgspec.to_builtins(daemon.control.status())
            status = await daemon.answers.status()
            status["traffic"] |= {"latency_p50": 0.1, "latency_p99": 0.2}
            status["switches"][0]["capacity"] = 10
            found = [
                *fabric_metrics(status, daemon.answers.topology(), control),
                *server._own(),
                *server.requests.collect(),
            ]
            state = router.status() | {"messages": {"Carried": 1}}
            for rows in (list(table(found)), list(table(router_metrics(state)))):
                assert "\n".join(rows) in METRICS, "\n".join(rows)

    run(test())
