"""`sievenet bridge`: join the network with other systems."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import click

from sievenet.cli.app import LazyGroup
from sievenet.cli.fabric import duration, run, url_option
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal
from sievenet.cli.table import CommandRow

__all__ = ["bridge", "mqtt"]


@click.group(
    cls=LazyGroup,
    table={"mqtt": CommandRow("sievenet.cli.bridge:mqtt", "Join a network with an MQTT broker.")},
)
def bridge() -> None:
    """Join the network with other systems."""


@click.command()
@click.argument("mapping", type=click.Path(dir_okay=False))
@click.option(
    "--broker",
    default="mqtt://127.0.0.1:1883",
    show_default=True,
    metavar="URL",
    help="The broker: mqtt://HOST:PORT, or mqtts:// with TLS.",
)
@click.option("--user", metavar="NAME", help="The user at the broker.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with the password. Default: $SIEVENET_MQTT_PASSWORD.",
)
@click.option(
    "--authority", type=click.Path(exists=True, dir_okay=False), help="Who signs the broker's certificate (PEM)."
)
@click.option(
    "--client-id", metavar="ID", help="Known to the broker by this, also after a restart. Default: sievenet-MACHINE."
)
@click.option("--name", help="The bridge's name in the network. Default: the client id.")
@click.option("--host", help="The host to attach to. Default: the least loaded.")
@click.option("--check", is_flag=True, help="Read the mapping, say what is wrong with it, and end.")
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@url_option
@json_option
def mqtt(
    mapping: str,
    broker: str,
    user: str | None,
    password_file: str | None,
    authority: str | None,
    client_id: str | None,
    name: str | None,
    host: str | None,
    check: bool,
    seconds: float | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Join a network with an MQTT broker.

    MAPPING is a TOML file: each [[in]] makes messages of some topics events of a category, each [[out]] makes events
    that match a filter messages of a topic (docs/howto/mqtt.md). On exit it says what it carried.

    \b
    Examples:
      $ sievenet bridge mqtt sensors.toml --check  # needs a mapping file
      $ sievenet bridge mqtt sensors.toml --broker mqtt://127.0.0.1:1883  # needs a broker and a running fabric
    """
    from sievenet.bridge.broker import parse_broker
    from sievenet.bridge.mapping import load_mapping

    loaded, address = load_mapping(mapping), parse_broker(broker)
    if check:
        _checked(loaded, as_json)
        return
    password = Path(password_file).read_text().strip() if password_file else os.environ.get("SIEVENET_MQTT_PASSWORD")
    known = client_id or f"sievenet-{socket.gethostname()[:32]}"
    name = name or _member(known)
    options = {"user": user, "password": password, "authority": authority}
    run(_bridge(loaded, address, known, name, host, seconds, url, as_json, options))


def _member(name: str) -> str:
    """The bridge's name in the network: that of its login in front, where members are known."""
    from sievenet.access.login import ENVIRONMENT, load_login

    file = os.environ.get(ENVIRONMENT)
    return name if not file else f"{load_login(file).name}.{name}"


def _checked(mapping: Any, as_json: bool) -> None:
    counts = {"in": len(mapping.inbound), "out": len(mapping.outbound)}
    if as_json:
        show_json(counts)
    else:
        click.echo(f"{counts['in']} ways in, {counts['out']} ways out")


async def _bridge(
    mapping: Any,
    address: Any,
    client_id: str,
    name: str,
    host: str | None,
    seconds: float | None,
    url: str | None,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from sievenet.bridge.mqtt import Bridge
    from sievenet.client.connector import connect
    from sievenet.workload.samples import load_schema

    stop = stop_signal()
    where = url or os.environ.get("SIEVENET_URL") or "sievenet://127.0.0.1:7400"
    async with connect(url, name=name, host=host, timeout=10.0) as node:
        made = Bridge(node, mapping, address, client_id=client_id, network=where, **options)
        await made.start(load=load_schema)
        try:
            click.echo(
                f"bridge {node.name}: {len(mapping.inbound)} ways in, {len(mapping.outbound)} ways out, "
                f"broker {address.host}:{address.port}",
                err=True,
            )
            watch = asyncio.create_task(made.wait())
            ending = asyncio.create_task(stop.wait())
            await asyncio.wait({watch, ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in (watch, ending):
                if not task.done():
                    task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        finally:
            await made.close()
            found = made.statistics()
            if as_json:
                show_json(found)
            else:
                click.echo(
                    f"{found['received']} messages in: {found['published']} events, {found['bad']} bad, "
                    f"{found['refused']} refused, {found['dropped_in']} dropped, {found['loops']} of our own; "
                    f"{found['sent']} messages out, {found['dropped_out']} dropped; "
                    f"{found['connections']} connections",
                    err=True,
                )
