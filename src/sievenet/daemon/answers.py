"""Answers to an operator's questions, as plain data: status, topology, flows, trace.

Whoever asks gets dicts, lists, strings and numbers, since the question comes over the control protocol and the answer
goes to a terminal, a JSON file or a web page.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from sievenet import __version__
from sievenet.content.event import Event
from sievenet.content.event_parser import parse_event
from sievenet.content.explain import explain
from sievenet.control.fitter import Fitter
from sievenet.control.plane import ControlPlane
from sievenet.control.state import Category
from sievenet.daemon.comparison import comparison
from sievenet.daemon.interests import Interests
from sievenet.daemon.merges import Merges
from sievenet.daemon.picture import Picture
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.rates import Rates, sum_costs
from sievenet.daemon.registrations import registrations
from sievenet.daemon.reports import Reports
from sievenet.daemon.tuner import Tuner
from sievenet.dataplane.plane import Attached, SwitchCounters
from sievenet.dataplane.tracing import Hop, trace
from sievenet.errors import EventError, InvalidInput, Unavailable
from sievenet.network.flow import Flow
from sievenet.network.link import natural
from sievenet.network.topology import Attachment

__all__ = ["Answers"]

#: Rows of an answer after which events get their turn.
_TURN: Final = 100
#: Switches and clients of a status after which they do: a tenth of a millisecond, about.
_FEW: Final = 2
_SOME: Final = 16
#: Subscriptions that a trace explains at most; there may be a hundred thousand.
_EXPLAINED: Final = 200
#: Records set aside that a status lists.
_ASIDE: Final = 100


class Answers:
    """Looks at everything, changes nothing."""

    def __init__(
        self,
        control: ControlPlane,
        plane: AnyPlane,
        reports: Reports,
        rates: Rates,
        topology: str,
        connected: Callable[[], Collection[str]],
        tuner: Tuner,
    ) -> None:
        self._tuner = tuner
        #: What goes through matchers, and their names.
        self.hybrid: Callable[[], dict[str, Any]] = dict
        self.matchers: Callable[[], Collection[str]] = tuple
        #: What each cache has and does.
        self.caches: Callable[[], Collection[dict[str, Any]]] = tuple
        #: Where a control plane is kept that is shared between machines, and who leads.
        self.sharing: Callable[[], dict[str, Any] | None] = lambda: None
        self._control = control
        self._interests = Interests(control)
        self._plane = plane
        self._reports = reports
        self._rates = rates
        self._topology = topology
        self._connected = connected
        self._since = time.monotonic()
        self._picture = Picture(plane, topology)
        self._merges, self.fitter = Merges(control), Fitter(control, plane)

    async def answer(self, about: str, of: str) -> Any:
        """The answer to a question; `InvalidInput` if it is none that we know."""
        match about:
            case "status":
                return await self.status()
            case "topology":
                return self.topology()
            case "flows":
                return await self.flows(of)
            case "trace":
                return await self.trace(of)
            case "check":
                return await self.check()
            case "interests":
                return await self._interests.answer(of)
            case "hybrid":
                return self.hybrid()
            case "suggestion":
                return self._tuner.suggestion(of)
            case "registrations":
                return await registrations(self._control, self._plane, self._connected(), of)
        known = "status, topology, flows, trace, check, interests, registrations, hybrid or suggestion"
        raise InvalidInput(expected=known, got=about, where="question")

    # -- status ---------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Traffic, categories, clients, switches."""
        totals = self._reports.totals()
        ads: Counter[str] = Counter()
        subs: Counter[str] = Counter()
        for member in self._control.members():
            for name, (advertised, subscribed) in member.by_category.items():
                ads[name] += advertised
                subs[name] += subscribed
        socket = self._plane.statistics()
        switches = []
        for i, switch in enumerate(self._plane.topology.switches):
            if i % _FEW == 0:
                await asyncio.sleep(0)
            switches.append(await self._switch(switch))
        costs = await self._rates.latest(self._plane.topology)
        whole = sum_costs(costs.values())
        return {
            "version": __version__,
            "uptime": time.monotonic() - self._since,
            "topology": self._topology,
            "traffic": {
                "published": totals.published,
                "received": totals.received,
                "delivered": totals.delivered,
                "false_positives": totals.false_positives,
                "per_link": None if whole is None else whole.per_link,
                "per_host": totals.per_host,
                "per_subscription": None if whole is None else whole.per_subscription,
                "transmissions": sum(each.pop("transmissions") for each in switches),
                "duplicates": totals.duplicates,
                "dropped": totals.dropped + socket.dropped,
                "latency_p50": totals.latency_p50,
                "latency_p99": totals.latency_p99,
            },
            "datagrams": socket.shown(),
            "categories": [
                {
                    "name": category.name,
                    "number": category.number,
                    "version": category.schema.version,
                    "epoch": category.epoch,
                    "kind": category.plan.kind,
                    "bits": category.plan.bits,
                    "advertisements": ads[category.label],
                    "subscriptions": subs[category.label],
                    "sample": costs[category.number].summary() if category.number in costs else None,
                }
                for category in self._control.categories()
            ],
            "tuning": self._tuner.status(),
            "control": self._control.configurators(),
            "shared": self.sharing(),
            "troubles": [
                f"cache {each['cache']} has not been durable for {each['unwritten']:,.0f} s: {each['trouble']}"
                for each in self.caches()
                if each["trouble"]
            ],
            "set_aside": [{"what": each.what, "error": each.error} for each in self._control.aside[:_ASIDE]],
            "set_aside_count": len(self._control.aside),
            "clients": await self._clients(),
            "switches": switches,
        }

    async def _clients(self) -> list[dict[str, Any]]:
        connected = self._connected()
        members = {member.client: member for member in self._control.members()}
        found = []
        for i, (name, attached) in enumerate(sorted(self._plane.clients().items(), key=lambda item: natural(item[0]))):
            if i % _SOME == 0:
                await asyncio.sleep(0)
            report, member = self._reports.of(name), members.get(name)
            found.append(
                {
                    "name": name,
                    "host": attached.host,
                    "connected": name in connected,
                    "advertisements": 0 if member is None else len(member.advertisements),
                    "subscriptions": 0 if member is None else len(member.subscriptions),
                    "published": report.published,
                    "delivered": report.delivered,
                    "false_positives": report.false_positives,
                    "dropped": report.dropped,
                    "latency_p50": report.latency_p50,
                    "latency_p99": report.latency_p99,
                }
            )
        return found

    async def _switch(self, switch: str) -> dict[str, Any]:
        up, counters = True, SwitchCounters({}, {})
        try:
            counters = await self._plane.counters(switch)
        except Unavailable:
            up = False
        packets = sum(port.received.packets for port in counters.ports.values())
        topology = self._plane.topology
        links = {port for port, peer in topology.ports(switch).items() if topology.is_switch(peer)}
        return {
            "name": switch,
            "up": up,
            "flows": len(counters.flows),
            "packets": packets,
            "unmatched": counters.unmatched,
            "transmissions": counters.transmissions(links),
            "capacity": counters.capacity,
            **self._merges.at(switch, counters),
        }

    async def check(self) -> dict[str, Any]:
        """Compare what every switch holds with what the control plane believes it holds."""
        return await comparison(self._control, self._plane, self._up())

    def topology(self) -> dict[str, Any]:
        """Switches, hosts, links, and who is attached where (see `picture`)."""
        return self._picture.now()

    # -- flows ----------------------------------------------------------------------------

    async def flows(self, switch: str) -> dict[str, Any]:
        """The flow table of a switch, with what each flow means and has carried."""
        if switch not in self._plane.topology.switches:
            known = ", ".join(self._plane.topology.switches[:8])
            raise InvalidInput(expected=f"a switch ({known}, …)", got=switch, where="flows")
        table = await self._plane.table(switch)
        counters = await self._plane.counters(switch)
        categories = {c.number: c for c in self._control.categories()}
        places, merged = self._places(), self._merges.counts(switch)
        rows: list[dict[str, Any]] = []
        for flow in sorted(table, key=lambda f: (f.match.category, -f.priority, str(f.match.cell))):
            if len(rows) % _TURN == 0:
                await asyncio.sleep(0)
            count = counters.flows.get(flow.key)
            category = categories.get(flow.match.category)
            rows.append(
                {
                    "category": category.name if category else str(flow.match.category),
                    "cell": str(flow.match.cell),
                    "content": _content(category, flow),
                    "ports": [{"port": p, "peer": self._peer(places, switch, p)} for p in sorted(flow.ports)],
                    "priority": flow.priority,
                    "in_port": flow.in_port,
                    "stands_for": merged.get((flow.match.category, flow.match.cell), 1),
                    "packets": count.packets if count else 0,
                    "bytes": count.bytes if count else 0,
                }
            )
        found = {"switch": switch, "flows": rows, "unmatched": counters.unmatched, "capacity": counters.capacity}
        return {**found, **self._merges.at(switch, counters)}

    def _places(self) -> dict[Attachment, str]:
        return {a.attachment: name for name, a in self._plane.clients().items()}

    def _peer(self, places: dict[Attachment, str], switch: str, port: int) -> str:
        return self._plane.topology.ports(switch).get(port) or places.get(Attachment(switch, port)) or "nobody"

    # -- trace ----------------------------------------------------------------------------

    async def trace(self, text: str) -> dict[str, Any]:
        """An event's way through the network, who gets it, who does not and why.

        The text is an event, optionally after ``from CLIENT|HOST:``; else it comes from whoever advertises it.
        """
        origin, event = self._event(text)
        category = self._control.category(event.schema.name)
        start, said = self._start(origin, event)
        tables = {switch: await self._plane.table(switch) for switch in self._up()}
        down_switches, down_links = self._plane.down()
        hops: list[dict[str, Any]] = []
        reached: set[str] = set()
        codes = category.plan.encode(event)
        for dz in codes:
            at = self._places(), start, category.number, dz.code
            found = trace(self._plane.topology, tables, *at, down_switches=down_switches, down_links=down_links)
            hops += [_hop(hop) for hop in found.hops]
            reached.update(found.reached)
        matchers = reached & set(self.matchers())
        verdicts = await self._verdicts(event, reached - matchers, bool(matchers))
        return {
            "event": str(event),
            "from": said,
            "codes": [str(dz) for dz in codes],
            "hops": hops,
            "matchers": sorted(matchers, key=natural),
            **verdicts,
        }

    def _event(self, text: str) -> tuple[str, Event]:
        origin = ""
        if text.startswith("from "):
            origin, _, text = text.removeprefix("from ").partition(":")
        name = text.partition(":")[0].strip()
        return origin.strip(), parse_event(text, self._control.category(name).schema)

    def _start(self, origin: str, event: Event) -> tuple[Attachment, str]:
        clients: dict[str, Attached] = self._plane.clients()
        if origin in clients:
            return clients[origin].attachment, f"{origin} at {clients[origin].host}"
        if origin:
            return self._plane.topology.attachment(origin), origin
        for client, kind, _, category, offered in self._control.registrations():
            if (
                kind == "advertisement"
                and category == event.schema.name
                and client in clients
                and offered.matches(event)
            ):
                return clients[client].attachment, f"{client} at {clients[client].host}"
        raise EventError(f"Expected somebody who advertises {event}, got nobody: say where it comes from")

    def _up(self) -> list[str]:
        down, _ = self._plane.down()
        return [switch for switch in self._plane.topology.switches if switch not in down]

    async def _verdicts(self, event: Event, reached: set[str], matched: bool) -> dict[str, Any]:
        """Per subscriber: does it get the packet, by content or from a matcher, does it want it, and why not."""
        delivered: dict[str, list[str]] = {}
        refused: list[dict[str, Any]] = []
        wanting: set[str] = set()
        left_out = 0
        for i, (client, kind, _, category, wanted) in enumerate(self._control.registrations()):
            if i % _TURN == 0:
                await asyncio.sleep(0)
            if kind != "subscription" or category != event.schema.name:
                continue
            if wanted.matches(event):
                wanting.add(client)
                delivered.setdefault(client, []).append(str(wanted))
            elif len(refused) < _EXPLAINED:
                refused.append({"client": client, "subscription": str(wanted), "why": str(explain(wanted, event))})
            else:
                left_out += 1
        return {
            "delivered": [
                {
                    "client": name,
                    "subscriptions": delivered[name],
                    "reached": name in reached or matched,
                    "by_matcher": matched and name not in reached,
                }
                for name in sorted(wanting, key=natural)
            ],
            "false_positives": sorted(reached - wanting, key=natural),
            "not_wanted": refused,
            "not_shown": left_out,
        }


def _hop(hop: Hop) -> dict[str, Any]:
    return {
        "switch": hop.switch,
        "in_port": hop.in_port,
        "depth": hop.depth,
        "flows": [str(flow) for flow in hop.flows],
        "out": [{"port": out.port, "to": out.to, "stopped": out.stopped} for out in hop.outs],
    }


def _content(category: Category | None, flow: Flow) -> str:
    if category is None:
        return "?"
    text = str(category.plan.decode(flow.match.cell))
    return text if len(text) <= 200 else f"{text[:199]}…"
