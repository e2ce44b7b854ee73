"""`sievenet topo`: a picture of the network."""

from __future__ import annotations

from typing import Any

import click

from sievenet.cli.fabric import asked, url_option
from sievenet.cli.output import json_option, show_json

__all__ = ["drawn", "topo"]


@click.command()
@click.option("--shape", metavar="SHAPE", help="Draw this shape, such as fattree,k=4, instead of a running fabric's.")
@url_option
@json_option
def topo(shape: str | None, url: str | None, as_json: bool) -> None:
    """Draw the network.

    Switches, hosts and who is attached are drawn as a tree from a switch in its middle; a link that closes a circle is
    drawn as ↔ to the other end. A link shows the packets that it has carried, both ways together, and a client those
    that it sent → and received ←; ✗ is down. Where packets flow, the tree is drawn along them.

    \b
    Examples:
      $ sievenet topo --shape testbed
      $ sievenet topo --shape ring,switches=4 --json
      $ sievenet topo  # needs a running fabric
    """
    found = asked(url, "topology") if shape is None else _described(shape)
    if as_json:
        show_json(found)
    else:
        for line in drawn(found):
            click.echo(line)


def _described(shape: str) -> dict[str, Any]:
    from sievenet.network import parse_topology

    topology = parse_topology(shape)
    return {
        "name": shape,
        "switches": [{"name": s, "up": True} for s in topology.switches],
        "hosts": [{"name": h, "switch": topology.attachment(h).switch, "clients": []} for h in topology.hosts],
        "links": [
            {"a": k.a, "a_port": k.a_port, "b": k.b, "b_port": k.b_port, "up": True, "packets": 0}
            for k in topology.links
        ],
    }


def drawn(found: dict[str, Any]) -> list[str]:
    """The lines of the picture."""
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    state = {switch["name"]: switch["up"] for switch in found["switches"]}
    graph.add_nodes_from(state)
    hosts: dict[str, list[dict[str, Any]]] = {}
    for host in found["hosts"]:
        sent = {each["client"]: f" →{each['in']:,} ←{each['out']:,}" for each in found.get("ports", ())}
        clients = ", ".join(f"{client}{sent.get(client, '')}" for client in host["clients"])
        hosts.setdefault(host["switch"], []).append({**host, "shown": f"  {clients}" if clients else ""})
    for link in found["links"]:
        if link["a"] in state and link["b"] in state:
            graph.add_edge(link["a"], link["b"], **link)
    lines = [f"{found['name']}: {len(state)} switches, {len(found['hosts'])} hosts, {len(found['links'])} links"]
    for component in sorted(nx.connected_components(graph), key=len, reverse=True):
        part = graph.subgraph(component)
        root = min(nx.center(part), key=lambda s: (len(hosts.get(s, [])), s))
        carrying = any(link["packets"] for _, _, link in part.edges(data=True))
        walked = nx.maximum_spanning_tree(part, weight="packets") if carrying else part
        tree = nx.bfs_tree(walked, root, sort_neighbors=lambda names: sorted(names, key=_number))
        _draw(root, None, "", "", lines, part, tree, hosts, state)
    return lines


def _draw(
    switch: str,
    above: str | None,
    first: str,
    rest: str,
    lines: list[str],
    graph: Any,
    tree: Any,
    hosts: dict[str, list[dict[str, Any]]],
    state: dict[str, bool],
) -> None:
    down = "" if state[switch] else " ✗ down"
    lines.append(f"{first}[{switch}]{down}{_circles(switch, above, graph, tree)}")
    below: list[tuple[str, Any]] = [("host", host) for host in hosts.get(switch, [])]
    below += [("switch", each) for each in sorted(tree.successors(switch), key=_number)]
    for i, (kind, each) in enumerate(below):
        corner, bar = ("└", " ") if i == len(below) - 1 else ("├", "│")
        if kind == "host":
            lines.append(f"{rest}{corner}─ {each['name']}{each['shown']}")
            continue
        link = graph.edges[switch, each]
        carried = f" {link['packets']:,} " if link["packets"] else ""
        wire = "─✗─ " if not link["up"] else f"─{carried}─ "
        _draw(each, switch, f"{rest}{corner}{wire}", f"{rest}{bar}   ", lines, graph, tree, hosts, state)


def _circles(switch: str, above: str | None, graph: Any, tree: Any) -> str:
    """The links of a switch that the tree leaves out."""
    others = [
        other + (f" ({graph.edges[switch, other]['packets']:,})" if graph.edges[switch, other]["packets"] else "")
        for other in sorted(graph.neighbors(switch), key=_number)
        if other != above and not tree.has_edge(switch, other)
    ]
    return f"  ↔ {', '.join(others)}" if others else ""


def _number(name: str) -> Any:
    from sievenet.network.link import natural

    return natural(name)
