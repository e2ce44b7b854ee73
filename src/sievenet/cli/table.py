"""All commands: name → where it is, and its one line of help.

The line is here too, and not only at the command, so that ``sievenet --help`` imports none
of them; a test holds the two equal.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Entry"]


class Entry(NamedTuple):
    """A command: ``module:name`` of its click command, and its one line."""

    target: str
    summary: str


#: In the order in which ``sievenet --help`` shows them.
COMMANDS: Final[dict[str, Entry]] = {
    "tour": Entry("sievenet.cli.tour:tour", "Take a short guided tour."),
    "up": Entry("sievenet.cli.up:up", "Run a fabric."),
    "switch": Entry("sievenet.cli.switch:switch", "Make this machine the switch NAME of a network."),
    "host": Entry("sievenet.cli.host:host", "Run a command in the network of a host."),
    "pub": Entry("sievenet.cli.pub:pub", "Publish events."),
    "sub": Entry("sievenet.cli.sub:sub", "Subscribe and print events as they come."),
    "cache": Entry("sievenet.cli.cache:cache", "Run an event cache, for subscribers who get too much."),
    "status": Entry("sievenet.cli.status:status", "Show what a running fabric does."),
    "topo": Entry("sievenet.cli.topo:topo", "Draw the network."),
    "flows": Entry("sievenet.cli.flows:flows", "Show the flow table of a switch."),
    "tables": Entry("sievenet.cli.tables:tables", "Show and fit flow tables of limited switches."),
    "trace": Entry("sievenet.cli.trace:trace", "Follow an event through the network."),
    "configurator": Entry("sievenet.cli.configurator:configurator", "Work out flow changes for a daemon."),
    "matcher": Entry("sievenet.cli.matcher:matcher", "Filter exactly inside the network."),
    "hybrid": Entry("sievenet.cli.hybrid:hybrid", "Show what goes through matchers."),
    "plan": Entry("sievenet.cli.plan:plan", "Show and change index plans of a running fabric."),
    "router": Entry("sievenet.cli.router:router", "Run a content router, or ask a running one."),
    "worker": Entry("sievenet.cli.worker:worker", "Compute for a content router."),
    "bridge": Entry("sievenet.cli.bridge:bridge", "Join the network with other systems."),
    "pipeline": Entry("sievenet.cli.pipeline:pipeline", "Learn index plans from traffic, with Spark."),
    "watch": Entry("sievenet.cli.watch:watch", "Watch a fabric's tap and signal when another plan is better."),
    "explain": Entry("sievenet.cli.explain:explain", "Say why an event does or does not match a filter."),
    "encode": Entry("sievenet.cli.encode:encode", "Show the bits and addresses of a filter or an event."),
    "schema": Entry("sievenet.cli.schema:schema", "Check, show, register and remove schemas."),
    "keys": Entry("sievenet.cli.keys:keys", "Make certificates and tokens; say who may connect."),
    "doctor": Entry("sievenet.cli.doctor:doctor", "Say what this machine can run, and what to install."),
    "journal": Entry("sievenet.cli.journal:journal", "Check and repair the journal of a fabric."),
}
