"""Options of the transport, for those who publish and for those who subscribe, and what it did in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from sievenet.cli.fabric import duration, seconds_text

if TYPE_CHECKING:
    from sievenet.transport import Gap, Publishing, ReceiverStatistics, SenderStatistics

__all__ = [
    "gap_json",
    "publisher_options",
    "publishing",
    "received_text",
    "sent_text",
    "subscriber_options",
    "subscribing",
]

F = TypeVar("F", bound=Callable[..., Any])


def subscriber_options(command: F) -> F:
    """``--order``, ``--recover``, ``--repair`` and ``--rate-control``."""
    for option in (
        click.option("--rate-control", is_flag=True, help="Slow publishers down to what the path carries."),
        click.option(
            "--repair",
            type=click.Choice(["republish", "unicast", "auto"]),
            help="With --recover: how to answer others: to all, to the one who asked, or by how many asked. "
            "Default: republish.",
        ),
        click.option("--recover", is_flag=True, help="Ask for lost events again, and answer others who do."),
        click.option("--order", is_flag=True, help="Print each publisher's events in the order of publishing."),
    ):
        command = option(command)
    return command


def subscribing(chosen: dict[str, Any]) -> dict[str, Any]:
    """What the options ask of a subscription; nothing if none was given."""
    repair = chosen.pop("repair", None)
    if repair is not None:
        if not chosen["recover"]:
            raise click.UsageError("--repair needs --recover")
        from sievenet.transport import Recover

        chosen["recover"] = Recover(repair=repair)
    return chosen if any(chosen.values()) else {}


def publisher_options(command: F) -> F:
    """What a publisher does for those who order, recover and control rates; any of them switches it on."""
    for option in (
        click.option("--drain", callback=duration, metavar="TIME", help="Send what waits within. Default: 30 s."),
        click.option("--linger", callback=duration, metavar="TIME", help="Stay so long to answer. Default: 3 digests."),
        click.option(
            "--when-full",
            type=click.Choice(["wait", "error"]),
            help="With --rate-control: what to do when too many events wait. Default: wait.",
        ),
        click.option("--rate-control", is_flag=True, default=None, help="Obey receivers who ask to slow down."),
        click.option("--log", type=click.IntRange(min=0), metavar="N", help="Keep the last N events for repairs."),
        click.option("--digest", callback=duration, metavar="TIME", help="Tell what was published this often."),
        click.option(
            "--record",
            type=click.IntRange(0, 64),
            metavar="N",
            help="Describe the last N events in each. Default: 5.",
        ),
        click.option("--transport", is_flag=True, help="Carry what receivers need, with the defaults of what follows."),
    ):
        command = option(command)
    return command


def publishing(chosen: dict[str, Any]) -> Publishing | None:
    """The settings that the options make; None if none was given."""
    from sievenet.transport import Publishing

    on = chosen.pop("transport", False)
    given = {name: value for name, value in chosen.items() if value is not None}
    if not on and not given:
        return None
    options = Publishing(**given)
    if options.log and options.digest and "linger" not in given:
        options = msgspec.structs.replace(options, linger=3 * options.digest)
    return options


def gap_json(gap: Gap) -> dict[str, Any]:
    """A gap for programs: publisher and incarnation as in an event's line; no last number if it has no end."""
    stream = {"publisher": f"{gap.publisher:016x}", "incarnation": f"{gap.epoch:016x}"}
    return {"gap": {**stream, "from": gap.first, "to": None if gap.open else gap.last}}


def received_text(done: ReceiverStatistics) -> str:
    """What the transport did for a subscription, for people."""
    held = f"{done.held} held"
    if done.held:
        held += f" ({seconds_text(done.held_seconds / done.held)} each)"
    parts = [held, f"{done.lost} lost", f"{done.recovered} recovered", f"{done.gaps} gone for good"]
    if done.late:
        parts.append(f"{done.late} late")
    if done.rate is not None:
        allowed = "any rate" if done.allowed is None or done.allowed > 1e9 else f"{done.allowed:,.0f}/s"
        parts.append(f"rate {done.rate:,.0f}/s of {allowed}")
    return ", ".join(parts)


def sent_text(done: SenderStatistics) -> str:
    """What the transport did for a publisher, for people."""
    parts = [f"{done.repairs} repairs", f"{done.digests} digests"]
    if done.feedbacks or done.flows:
        parts.append(f"{done.flows} limited flows, {done.feedbacks} feedback messages, {done.refused} refused")
    return ", ".join(parts)
