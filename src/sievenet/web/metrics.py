"""Metrics in Prometheus' text format, made of what a part knows anyway when somebody asks for them.

Nothing is counted for the sake of metrics but HTTP requests and the latency of what HTTP clients are sent: the rest is
the status that people see too. Names follow Prometheus' conventions: a unit at the end, `_total` for counts that only
grow. A label has few values: switches, links, categories and routes, never clients or filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import generate_latest

__all__ = [
    "CONTENT_TYPE",
    "Requests",
    "component_metrics",
    "counter",
    "exposition",
    "fabric_metrics",
    "gauge",
    "router_metrics",
    "summary",
]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_BUCKETS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class _Collected:
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Metrics, and those of the process, as text."""
    process = ProcessCollector(registry=None).collect()
    return generate_latest(_Collected([*metrics, *process]))


def gauge(name: str, about: str, values: Mapping[tuple[str, ...], float], labels: Iterable[str] = ()) -> Metric:
    """A figure that goes up and down, by the values of its labels.

    >>> gauge("sievenet_clients", "Clients.", {("connected",): 3}, ["state"]).samples[0].value
    3
    """
    family = GaugeMetricFamily(name, about, labels=list(labels))
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def counter(name: str, about: str, values: Mapping[tuple[str, ...], float], labels: Iterable[str] = ()) -> Metric:
    """A count that only grows; `_total` is added to its name."""
    family = CounterMetricFamily(name, about, labels=list(labels))
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def summary(name: str, about: str, quantiles: Mapping[str, float | None]) -> Metric:
    """Quantiles that are known already; those that are not are left out."""
    family = Metric(name, about, "summary")
    for quantile, value in quantiles.items():
        if value is not None:
            family.add_sample(name, {"quantile": quantile}, value)
    return family


class Requests:
    """HTTP requests: counts and times."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._count = Counter(
            "sievenet_http_requests", "HTTP requests answered.", ["route", "status"], registry=self._registry
        )
        self._time = Histogram(
            "sievenet_http_request_duration_seconds",
            "Seconds from an HTTP request to its answer; streams until they end are left out.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def observe(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._count.labels(route, str(status)).inc()
        if route not in ("subscribe", "live"):
            self._time.labels(route).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """As metrics."""
        return self._registry.collect()


def fabric_metrics(status: Mapping[str, Any], topology: Mapping[str, Any], control: Mapping[str, Any]) -> list[Metric]:
    """A daemon's metrics, of its status, its topology and the status of its control plane."""
    traffic, switches = status["traffic"], status["switches"]
    return [
        InfoMetricFamily("sievenet_build", "The version that runs.", {"version": status["version"]}),
        gauge("sievenet_uptime_seconds", "Seconds since the fabric began.", {(): status["uptime"]}),
        counter("sievenet_events_published", "Events that clients have published.", {(): traffic["published"]}),
        counter("sievenet_events_received", "Events that clients have received.", {(): traffic["received"]}),
        counter("sievenet_events_delivered", "Events that matched a subscription.", {(): traffic["delivered"]}),
        counter(
            "sievenet_events_false_positive",
            "Events that reached a client which did not want them.",
            {(): traffic["false_positives"]},
        ),
        counter("sievenet_events_duplicate", "Events that came a second time.", {(): traffic["duplicates"]}),
        counter("sievenet_events_dropped", "Events dropped: queues or buffers were full.", {(): traffic["dropped"]}),
        counter("sievenet_packets_carried", "Packets carried by all links.", {(): traffic["transmissions"]}),
        summary(
            "sievenet_delivery_latency_seconds",
            "Seconds from publisher to subscriber: the median client's median, and the worst client's 99th percentile.",
            {"0.5": traffic["latency_p50"], "0.99": traffic["latency_p99"]},
        ),
        *_switches(switches),
        *_links(topology["links"]),
        *_categories(status["categories"]),
        gauge(
            "sievenet_clients",
            "Clients, and whether their control connection stands.",
            {
                ("connected",): sum(each["connected"] for each in status["clients"]),
                ("away",): sum(not each["connected"] for each in status["clients"]),
            },
            ["state"],
        ),
        counter(
            "sievenet_control_requests",
            "Requests that the control plane has answered.",
            {("granted",): control["answered"] - control["refused"], ("refused",): control["refused"]},
            ["outcome"],
        ),
        counter(
            "sievenet_datagrams",
            "Datagrams at the data port, and packets in them by what became of them.",
            {(key,): value for key, value in status["datagrams"].items()},
            ["outcome"],
        ),
        gauge("sievenet_control_waiting", "Requests that wait for an answer.", {(): control["waiting"]}),
        gauge(
            "sievenet_plan_changes_running", "Categories on the way to another plan.", {(): len(control["transitions"])}
        ),
    ]


def _switches(switches: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    rows = {(each["name"],): each for each in switches}

    def of(key: str) -> dict[tuple[str, ...], float]:
        return {name: float(each[key]) for name, each in rows.items() if each[key] is not None}

    label = ["switch"]
    return (
        gauge("sievenet_switch_up", "Whether a switch is in use.", of("up"), label),
        gauge("sievenet_switch_flows", "Flows in a switch's table.", of("flows"), label),
        gauge(
            "sievenet_switch_flow_capacity", "Flows that a switch's table holds, where known.", of("capacity"), label
        ),
        counter("sievenet_switch_packets", "Packets that a switch has received.", of("packets"), label),
        counter("sievenet_switch_unmatched_packets", "Packets that no flow matched.", of("unmatched"), label),
    )


def _links(links: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    up: dict[tuple[str, ...], float] = {}
    packets: dict[tuple[str, ...], float] = {}
    for each in links:
        # Several links between two nodes count as one.
        a, b = each["a"], each["b"]
        up[a, b] = max(up.get((a, b), 0.0), float(each["up"]))
        packets[a, b] = packets.get((a, b), 0) + each["forth"]
        packets[b, a] = packets.get((b, a), 0) + each["back"]
    return (
        gauge("sievenet_link_up", "Whether a link is in use.", up, ["a", "b"]),
        counter(
            "sievenet_link_packets", "Packets that a link has carried, by direction.", packets, ["source", "target"]
        ),
    )


def _categories(categories: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    rows = {(each["name"], str(each["version"])): each for each in categories}
    label = ["category", "version"]

    def of(key: str) -> dict[tuple[str, ...], float]:
        return {name: each[key] for name, each in rows.items()}

    return (
        gauge("sievenet_subscriptions", "Subscriptions in a category.", of("subscriptions"), label),
        gauge("sievenet_advertisements", "Advertisements in a category.", of("advertisements"), label),
        gauge("sievenet_plan_epoch", "How often a category's index plan has changed.", of("epoch"), label),
        gauge("sievenet_plan_length", "Length of a plan's codes, in binary digits.", of("bits"), label),
    )


def component_metrics(kind: str, rows: Iterable[Mapping[str, Any]]) -> list[Metric]:
    """Metrics of matchers, caches and the like: every number of their rows, with the name of each as a label."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for row in rows:
        name = next((value for value in (row.get("name"), *row.values()) if isinstance(value, str)), "")
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(key, {})[name,] = value
    found = []
    for key, by_name in values.items():
        make = counter if key in _GROWING else gauge
        about = _MEANINGS.get((kind, key), f"{key.replace('_', ' ').capitalize()} of a {kind}, as its status says.")
        found.append(make(f"sievenet_{kind}_{key}", about, by_name, ["name"]))
    return found


_MEANINGS: Final = {
    ("cache", "assigned"): "Subscriptions that a cache is responsible for.",
    ("cache", "standby"): "Subscriptions whose events a cache keeps to take over.",
    ("cache", "rate"): "Events per second that lately came to a cache and left it.",
    ("cache", "active"): "Subscriptions that a cache feeds now.",
    ("cache", "received"): "Events that came to a cache.",
    ("cache", "sent"): "Events that a cache has sent to subscribers.",
    ("cache", "dropped"): "Events that a cache has dropped for want of room, as subscribers chose.",
    ("cache", "waiting"): "Events that wait in a cache.",
    ("cache", "memory"): "Bytes of events that a cache has in memory.",
    ("cache", "disk"): "Bytes of events that a cache has on disk.",
    ("cache", "unwritten"): "Seconds for which a durable cache has not written all that came; 0 while it does.",
}
#: What only grows in the rows of components.
_GROWING: Final = frozenset(("received", "sent", "dropped", "unwanted"))


def router_metrics(status: Mapping[str, Any]) -> list[Metric]:
    """A router's metrics, of its status."""
    found: list[Metric] = [
        InfoMetricFamily("sievenet_router", "The router.", {"name": status["router"], "scheme": status["scheme"]})
    ]
    for key, about in _ROUTER_COUNTS.items():
        found.append(counter(f"sievenet_router_{key}", about, {(): status[key]}))
    for key, about in _ROUTER_GAUGES.items():
        value = status[key]
        found.append(gauge(f"sievenet_router_{key}", about, {(): len(value) if isinstance(value, list) else value}))
    kinds: dict[tuple[str, ...], float] = {(str(kind),): count for kind, count in status["messages"].items()}
    found.append(counter("sievenet_router_messages", "Messages between routers, by kind.", kinds, ["kind"]))
    return found


_ROUTER_COUNTS: Final = {
    "events": "Events that came to the router.",
    "delivered": "Events delivered to its clients.",
    "forwarded": "Events forwarded to neighbours.",
    "flooded": "Events sent to all neighbours, since tables were not complete.",
    "false_positives": "Events that came from a neighbour and nobody here wanted.",
    "malformed": "Messages that could not be read.",
    "repeated": "Events that came a second time.",
    "dropped": "Events dropped since a connection was too slow, or lost.",
    "missed": "Events that neighbours say they dropped on the way here.",
    "turned_away": "Connections over the limit.",
    "errors": "Errors that should not be.",
}
_ROUTER_GAUGES: Final = {
    "neighbours": "Neighbours with a connection.",
    "routers": "Routers of the overlay that are known.",
    "table": "Filters in the routing table.",
    "clients": "Clients.",
    "local": "Filters of clients.",
    "peers": "Connections.",
}
