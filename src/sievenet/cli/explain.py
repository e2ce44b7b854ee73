"""`sievenet explain`: why did it (not) match?"""

from __future__ import annotations

import click

from sievenet.cli.output import json_option, marked, schema_option, schema_said, show_json

__all__ = ["explain"]


@click.command()
@click.argument("wanted", metavar="FILTER")
@click.argument("event")
@schema_option
@json_option
def explain(wanted: str, event: str, schema_name: str | None, as_json: bool) -> None:
    """Say why an event does or does not match a filter.

    FILTER may be several filters joined by `or`. Without a schema, EVENT is any set of named values and FILTER asks
    for those it names.

    \b
    Examples:
      $ sievenet explain 'stock: price > 420 and volume < 500' 'symbol=IBM, price=421.5, volume=1200'
      $ sievenet explain 'stock: price > 900 or symbol in {"IBM", "GE"}' 'symbol=IBM, price=421.5, volume=1200'
      $ sievenet explain --json 'temperature > 30 and room exists' 'temperature=21.5, room=lab'
    """
    from sievenet.content import explain as explained
    from sievenet.content import parse_event, parse_subscription

    schema = schema_said(schema_name, wanted, event)
    subscription = parse_subscription(wanted, schema)
    answer = explained(subscription, parse_event(event, schema))
    if as_json:
        show_json(answer)
    else:
        click.echo(marked(str(answer)))
