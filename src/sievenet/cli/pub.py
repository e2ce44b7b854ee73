"""`sievenet pub`: publish events from arguments, JSON lines, text lines or CSV."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from sievenet.cli.app import Refusal
from sievenet.cli.fabric import run, schema_prefix, url_option
from sievenet.cli.file_options import reading_of, reading_options
from sievenet.cli.lines import Form, Item, apart, chunks, is_regular, lines_of
from sievenet.cli.output import json_option, show_json
from sievenet.cli.tap import tap_options, tapping
from sievenet.cli.transport import publisher_options, publishing, sent_text

if TYPE_CHECKING:
    from sievenet.client import Node
    from sievenet.content import Event, Schema
    from sievenet.tap import Taps
    from sievenet.transport import Publishing, SenderStatistics
    from sievenet.workload.trace import Reading

__all__ = ["pub"]

_CHUNK = 256


@click.command()
@click.argument("events", metavar="[EVENT]...", nargs=-1)
@click.option(
    "--schema", "schema_name", metavar="NAME|FILE", help="The schema: known to the fabric, built in, or a file."
)
@click.option("-f", "--file", "file", type=click.File("rb"), help="Read events from a file, - for stdin.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "json", "csv"]),
    help="What the file holds. Default: found out from its name and its first line.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="Events per second. Default: as fast as it goes."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, help="Publish the arguments so many times.")
@click.option("--skip-bad", is_flag=True, help="Report a bad line and go on, instead of ending there.")
@click.option(
    "--payload",
    metavar="TEXT|@FILE",
    help="Bytes that go with each event, unread by the network: a text or a file.",
)
@click.option("--advertise", metavar="FILTER", help="What to advertise. Default: everything of the schema.")
@click.option("--name", help="The name of this publisher in the fabric.")
@click.option("--host", help="The host to attach to. Default: the least loaded.")
@reading_options
@tap_options
@publisher_options
@url_option
@json_option
def pub(
    events: tuple[str, ...],
    schema_name: str | None,
    file: IO[bytes] | None,
    form: Form | None,
    rate: float | None,
    repeat: int,
    skip_bad: bool,
    payload: str | None,
    advertise: str | None,
    name: str | None,
    host: str | None,
    tap: str | None,
    tap_factor: int,
    columns: str | None,
    separator: str | None,
    encoding: str | None,
    rename: tuple[str, ...],
    select: str | None,
    pairs: str | None,
    url: str | None,
    as_json: bool,
    **transport: Any,
) -> None:
    """Publish events.

    Without EVENT and --file, events are read from stdin. Text has the schema's name in front; JSON lines and CSV need
    --schema, and their fields are the attributes. With --transport or one of --record, --digest, --log and
    --rate-control, subscribers can have them in order, recovered when lost, and at a rate that their path carries.
    With --tap, what is published is also kept in a folder that `sievenet pipeline ingest` and `watch` read.
    Events that receivers slow down are sent before the command ends; if that takes longer than --drain, it fails and
    says how many were not sent. However it ends, also by Ctrl-C, it says how many were published.

    \b
    Examples:
      $ sievenet pub 'stock: symbol=IBM, price=421.5, volume=1200'  # needs a running fabric
      $ echo '{"symbol": "GE", "price": 7, "volume": 10}' | sievenet pub --schema stock  # needs a running fabric
      $ sievenet pub --schema stock --file quotes.csv --rate 100  # needs a running fabric
      $ sievenet pub --payload 'see page 3' 'stock: symbol=IBM, price=421.5, volume=1200'  # needs a running fabric
      $ sievenet pub --schema stock --file quotes.csv --log 1000 --digest 200ms  # needs a running fabric
      $ sievenet pub --schema stock --file quotes.csv --tap tap  # needs a running fabric
    """
    if not events and file is None:
        file = sys.stdin.buffer
    reading = reading_of(columns, separator, encoding, rename, select, pairs)
    options = publishing(transport)
    taps = None if tap is None else tapping(tap, tap_factor)
    if file is not None:
        file = apart(file)
    how, said = (schema_name, skip_bad, advertise, _payload(payload)), _Done()
    try:
        run(_pub(events, how, file, form, reading, rate, repeat, name, host, url, options, taps, said))
    finally:
        if said.counts:
            said.show(taps, tap, options is not None, as_json)
    if taps is not None and taps.lost:
        raise Refusal(f"{taps.lost} of {taps.kept} events for the tap could not be written to {tap}")


def _payload(said: str | None) -> bytes:
    """The bytes of a payload: those of the text, or with @ in front of a file."""
    from sievenet.content.event import check_payload

    data = b"" if said is None else Path(said[1:]).read_bytes() if said.startswith("@") else said.encode()
    check_payload(data, "--payload")
    return data


@dataclass(slots=True)
class _Done:
    """What was published, also if it ended early."""

    counts: dict[str, int] = field(default_factory=dict)
    sent: dict[str, SenderStatistics] = field(default_factory=dict)

    def show(self, taps: Taps | None, tap: str | None, transport: bool, as_json: bool) -> None:
        """Print it."""
        counts = dict(self.counts)
        if taps is not None:
            counts |= {"tap_kept": taps.kept, "tap_lost": taps.lost}
        if as_json:
            show_json(counts if not transport else {**counts, "transport": msgspec.to_builtins(self.sent)})
            return
        bad = f", {counts['bad']} bad lines left out" if counts["bad"] else ""
        click.echo(f"{counts['published']} published{bad}", err=True)
        if taps is not None:
            click.echo(f"  {taps.kept} kept in {tap}", err=True)
        for category, each in self.sent.items():
            click.echo(f"  {category}: {sent_text(each)}", err=True)


async def _pub(
    texts: tuple[str, ...],
    how: tuple[str | None, bool, str | None, bytes],
    file: IO[bytes] | None,
    form: Form | None,
    reading: Reading,
    rate: float | None,
    repeat: int,
    name: str | None,
    host: str | None,
    url: str | None,
    transport: Publishing | None,
    taps: Taps | None,
    said: _Done,
) -> None:
    from sievenet.client.connector import connect

    source = None
    try:
        async with connect(url, name=name, host=host, timeout=10.0, transport=transport) as node:
            if taps is not None:
                taps.name(node.name)
                node.tap(taps)
            source = _Source(node, *how)
            for event in [await source.parsed(text, f"event {i + 1}") for i, text in enumerate(texts)] * repeat:
                await source.publish(event, rate)
            if file is not None:
                await source.publish_file(file, form, reading, rate)
    finally:
        # Only now: a node that closes sends what waits, and may stay to answer.
        if source is not None:
            said.counts = {"published": node.statistics().published, "bad": source.bad}
            said.sent = {e: found for e in source.advertised if (found := node.published_with(e)) is not None}


class _Source:
    """Turns lines into events and publishes them; advertises a schema when its first event comes."""

    def __init__(
        self, node: Node, schema_name: str | None, skip_bad: bool, advertise: str | None, payload: bytes
    ) -> None:
        self._payload = payload
        self._node = node
        self._schema_name = schema_name
        self._skip_bad = skip_bad
        self._advertise = advertise
        self.advertised: set[str] = set()
        self._due: float | None = None
        self.bad = 0

    async def schema(self, text: str | None = None, where: str = "--schema") -> Schema:
        """The schema that the option, or the text, names."""
        from sievenet.errors import SchemaError
        from sievenet.workload.samples import load_schema, sample_names

        name = self._schema_name or (schema_prefix(text) if text is not None else None)
        if name is None:
            raise SchemaError(
                expected="--schema, or the schema's name and : in front of the event", got=text, where=where
            )
        try:
            return await self._node.schema(name)
        except SchemaError:
            if self._schema_name is None and name not in sample_names():
                raise
            return await self._node.schema(load_schema(name))

    async def parsed(self, text: str, where: str) -> Event:
        """An event from text or from a JSON object."""
        from sievenet.content import parse_event
        from sievenet.workload.trace import Reading, object_row

        if text.lstrip().startswith("{"):
            return await self.event(object_row(1, text, Reading()), where)
        return parse_event(text, await self.schema(text, where))

    async def event(self, item: Item, where: str) -> Event:
        """An event from a row or from text; columns that are no attributes do no harm."""
        from sievenet.errors import EventError
        from sievenet.workload.trace import BadLine, event_of

        if isinstance(item, str):
            return await self.parsed(item, where)
        if isinstance(item, BadLine):
            raise EventError(item.reason[:1].upper() + item.reason[1:])
        return event_of(await self.schema(None, where), item.values)

    async def publish(self, event: Event, rate: float | None) -> None:
        """Publish one event, in its time."""
        from sievenet.errors import Rejected

        if event.schema.name not in self.advertised:
            try:
                await self._node.advertise(self._advertise or event.schema)
            except Rejected as error:
                if self._advertise is not None:
                    raise
                raise Rejected(f"{error} (--advertise FILTER)") from None
            self.advertised.add(event.schema.name)
        if rate is not None:
            loop = asyncio.get_running_loop()
            self._due = loop.time() if self._due is None else self._due + 1 / rate
            await asyncio.sleep(self._due - loop.time())
        await self._node.publish(replace(event, payload=self._payload) if self._payload else event)

    async def publish_file(self, file: IO[bytes], form: Form | None, reading: Reading, rate: float | None) -> None:
        """Publish every line."""
        from sievenet.errors import SievenetError

        items = lines_of(file, form, reading)
        # A pipe is read line by line, for the next line may be long in coming; a file in larger pieces.
        size = _CHUNK if is_regular(file) else 1
        async for chunk in chunks(items, size):
            for number, item in chunk:
                try:
                    await self.publish(await self.event(item, f"line {number}"), rate)
                except SievenetError as error:
                    if not self._skip_bad:
                        raise Refusal(f"line {number}: {error}") from None
                    self.bad += 1
                    click.echo(f"line {number}: {error}", err=True)
