"""`sievenet encode`: what content becomes on the wire and in a switch's table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sievenet.cli.output import json_option, schema_option, schema_said, show, show_json

if TYPE_CHECKING:
    from sievenet.content import Event, Schema, Subscription

__all__ = ["encode"]


@click.command()
@click.argument("text", metavar="FILTER|EVENT")
@schema_option
@click.option("--bits", type=click.IntRange(1, 96), default=32, show_default=True, help="Bits of the match field.")
@click.option("--budget", type=click.IntRange(1, 4096), default=8, show_default=True, help="Most entries of a filter.")
@click.option("--kind", type=click.Choice(["dz", "cells"]), default="dz", show_default=True, help="Prefixes, or masks.")
@click.option("--dimensions", metavar="A,B,…", help="Attributes to index. Default: all.")
@click.option("--category", type=click.IntRange(0, 65535), default=1, show_default=True, help="Number of the schema.")
@click.option(
    "--address",
    "families",
    type=click.Choice(["ipv6", "multicast", "ipv4"]),
    multiple=True,
    default=["ipv6"],
    help="Addresses to show: IPv6 as switches match it (default), IPv6 or IPv4 (23 bits) multicast. May be repeated.",
)
@click.option("--as", "reading", type=click.Choice(["auto", "filter", "event"]), default="auto", help="What TEXT is.")
@json_option
def encode(
    text: str,
    schema_name: str | None,
    bits: int,
    budget: int,
    kind: str,
    dimensions: str | None,
    category: int,
    families: tuple[str, ...],
    reading: str,
    as_json: bool,
) -> None:
    """Show the bits and addresses of a filter or an event.

    An event becomes one bit string (dz), which is the destination address of its packet. A filter becomes a few
    prefixes (dz) or value/mask pairs (cells) that enclose it: the entries of a switch's table. With two dimensions
    there is a picture: capitals are wanted, small letters are covered too, dots are not covered.

    \b
    Examples:
      $ sievenet encode 'stock: symbol=IBM, price=421.5, volume=1200'
      $ sievenet encode 'stock: price > 420 and volume in 1000..5000' --bits 64 --budget 4
      $ sievenet encode 'plane: x in 40..90 and y in 100..140' --bits 16 --kind cells
      $ sievenet encode 'stock: price > 420' --dimensions price,volume --bits 23 --address ipv4 --json
    """
    from sievenet.cli.encoded import answered, codes_of, pages
    from sievenet.errors import SchemaError
    from sievenet.index import Plan

    schema = schema_said(schema_name, text)
    if schema is None:
        raise SchemaError("Expected a schema: begin the text with its name and a colon, or say --schema")
    names = None if dimensions is None else [name.strip() for name in dimensions.split(",") if name.strip()]
    plan = Plan.regular(schema, bits, names, "cells" if kind == "cells" else "dz")
    content = _read(text, schema, reading)
    codes = codes_of(plan, content, budget)
    answer = answered(plan, content, codes, category, families)
    if as_json:
        show_json(answer)
    else:
        show(*pages(plan, answer, content, codes))


def _read(text: str, schema: Schema, reading: str) -> Event | Subscription:
    """An event if the text is one, else a filter; the error of what it rather looks like."""
    from sievenet.content import parse_event, parse_subscription
    from sievenet.errors import InvalidInput, ParseError

    if reading == "event":
        return parse_event(text, schema)
    if reading == "filter":
        return parse_subscription(text, schema)
    try:
        return parse_event(text, schema)
    except InvalidInput as error:
        no_event = error
    try:
        return parse_subscription(text, schema)
    except ParseError as error:
        # Whoever gets further into the text has understood it better.
        if isinstance(no_event, ParseError) and no_event.column <= error.column:
            raise
        raise no_event from None
