"""All commands: name → where it is, and its one line of help.

The line is here too, and not only at the command, so that ``sievenet --help`` imports none
of them; a test holds the two equal.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMANDS", "CommandRow"]


class CommandRow(NamedTuple):
    """A command: ``module:name`` of its click command, and its one line."""

    target: str
    summary: str


#: In the order in which ``sievenet --help`` shows them.
COMMANDS: Final[dict[str, CommandRow]] = {
    "tour": CommandRow("sievenet.cli.tour:tour", "Take a short guided tour."),
    "up": CommandRow("sievenet.cli.up:up", "Run a fabric."),
    "switch": CommandRow("sievenet.cli.switch:switch", "Make this machine the switch NAME of a network."),
    "host": CommandRow("sievenet.cli.host:host", "Run a command in the network of a host."),
    "pub": CommandRow("sievenet.cli.pub:pub", "Publish events."),
    "sub": CommandRow("sievenet.cli.sub:sub", "Subscribe and print events as they come."),
    "cache": CommandRow("sievenet.cli.cache:cache", "Run an event cache, for subscribers who get too much."),
    "status": CommandRow("sievenet.cli.status:status", "Show what a running fabric does."),
    "topo": CommandRow("sievenet.cli.topo:topo", "Draw the network."),
    "flows": CommandRow("sievenet.cli.flows:flows", "Show the flow table of a switch."),
    "tables": CommandRow("sievenet.cli.tables:tables", "Show and fit flow tables of limited switches."),
    "trace": CommandRow("sievenet.cli.trace:trace", "Follow an event through the network."),
    "configurator": CommandRow("sievenet.cli.configurator:configurator", "Work out flow changes for a daemon."),
    "matcher": CommandRow("sievenet.cli.matcher:matcher", "Filter exactly inside the network."),
    "hybrid": CommandRow("sievenet.cli.hybrid:hybrid", "Show what goes through matchers."),
    "plan": CommandRow("sievenet.cli.plan:plan", "Show and change index plans of a running fabric."),
    "router": CommandRow("sievenet.cli.router:router", "Run a content router, or ask a running one."),
    "worker": CommandRow("sievenet.cli.worker:worker", "Compute for a content router."),
    "bridge": CommandRow("sievenet.cli.bridge:bridge", "Join the network with other systems."),
    "pipeline": CommandRow("sievenet.cli.pipeline:pipeline", "Learn index plans from traffic, with Spark."),
    "watch": CommandRow("sievenet.cli.watch:watch", "Watch a fabric's tap and signal when another plan is better."),
    "explain": CommandRow("sievenet.cli.explain:explain", "Say why an event does or does not match a filter."),
    "encode": CommandRow("sievenet.cli.encode:encode", "Show the bits and addresses of a filter or an event."),
    "schema": CommandRow("sievenet.cli.schema:schema", "Check, show, register and remove schemas."),
    "keys": CommandRow("sievenet.cli.keys:keys", "Make certificates and tokens; say who may connect."),
    "doctor": CommandRow("sievenet.cli.doctor:doctor", "Say what this machine can run, and what to install."),
    "journal": CommandRow("sievenet.cli.journal:journal", "Check and repair the journal of a fabric."),
}
