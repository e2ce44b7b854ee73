"""`sievenet host`: a command inside the network of a host of an Open vSwitch network."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sievenet import programs
from sievenet.cli.output import json_option, show_json

__all__ = ["host"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="[HOST]", required=False)
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--network", default="sievenet", show_default=True, help="The network's name, as `up --name` gave it.")
@click.option("--prepare", metavar="DEVICE", help="Print what makes this machine a host, behind this device.")
@click.option("--address", metavar="ADDRESS", help="With --prepare, the host's own address in fd0f::/16.")
@json_option
def host(
    name: str | None, command: tuple[str, ...], network: str, prepare: str | None, address: str | None, as_json: bool
) -> None:
    """Run a command in the network of a host.

    For networks on this machine (`sievenet up --dataplane ovs` or `kernel`), each of whose hosts has a network
    namespace. A client that runs there finds the fabric at the usual address, and is attached at this host unless it
    asks for another. Without a command, lists the hosts and their namespaces.

    A machine that is cabled to a switch (`sievenet up --dataplane openflow`) becomes a host by a few commands of `ip`,
    which --prepare prints. It then reaches the fabric through its switch, at sievenet://[fd0f::1]:7400.

    \b
    Examples:
      $ sievenet host
      $ sievenet host --prepare eth1 --address fd0f:2::7
      $ sievenet host --prepare eth1 --address fd0f:1::1 | ip -6 -batch -  # needs root, on that machine
      $ sievenet host h1 -- sievenet sub 'stock: price > 420'  # needs root and a running fabric
      $ sievenet host h2 -- ip -6 address  # needs root and a running fabric
    """
    from sievenet.dataplane.hosts import host_commands
    from sievenet.dataplane.namespaces import listing
    from sievenet.errors import InvalidInput
    from sievenet.network.link import natural

    if prepare is not None:
        if address is None:
            raise click.UsageError("Expected --address with --prepare, got none")
        click.echo("\n".join(host_commands(prepare, address)))
        return
    prefix = f"{network}-"
    known = {each.removeprefix(prefix): each for each in listing(prefix) if each != f"{prefix}net"}
    hosts = sorted(known, key=natural)
    if name is not None and name not in known:
        shown = ", ".join(hosts[:12]) or "none: is it up?"
        raise InvalidInput(expected=f"a host of network {network} ({shown})", got=name)
    if name is None or not command:
        rows = [{"host": each, "namespace": known[each]} for each in hosts if name in (None, each)]
        if as_json:
            show_json(rows)
        else:
            for row in rows:
                click.echo(f"{row['host']}  {row['namespace']}")
            if not rows:
                click.echo(f"no network {network} is up on this machine")
        return
    if os.geteuid() != 0:
        raise click.ClickException("Expected root, which entering a network namespace needs, got another user")
    enter = programs.command("ip", "netns", "exec", known[name])
    # What is run there is the user's choice.
    os.execve(enter[0], [*enter, *command], _environment(network))  # noqa: S606


def _environment(network: str) -> dict[str, str]:
    """Ours, and where the fabric is, unless that is said already."""
    url = Path("/run/sievenet") / network / "url"
    environment = dict(os.environ)
    if url.exists():
        environment.setdefault("SIEVENET_URL", url.read_text())
    return environment
