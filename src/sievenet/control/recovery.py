"""Recovery: rebuild the state from the journal's records, damaged ones included.

A command that was refused when it came is refused again when it is replayed, as it should be.  Anything else that
goes wrong with a record (it does not decode, its filter cannot be covered, an internal error) must neither keep the
control plane from starting nor be lost in silence.  Such a record is *set aside*: told in the log and in the status,
and kept in a file beside the journal (`aside`).

After the first record set aside, refused ones are set aside too: they may have needed it.  So are all that needed
what a repair could not make out: it leaves a `Lost` in its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from sievenet.content import Subscription
from sievenet.control.aside import Aside
from sievenet.control.commands import Lost, decode_command, decode_content
from sievenet.control.covering import Coverer
from sievenet.control.dispatcher import Covered
from sievenet.control.state import Registration, State
from sievenet.control.status import mistake
from sievenet.control.worker import Worker
from sievenet.errors import CodecError, SievenetError

if TYPE_CHECKING:
    from sievenet.control.controller import Controller

__all__ = ["cover_all", "cover_recovered", "replay"]

logger = logging.getLogger(__name__)

#: Registrations covered at a start before others get their turn.
_TURN: Final = 256


def replay(state: State, records: Iterable[bytes]) -> list[Aside]:
    """Apply all records in order; returns those that could not be applied."""
    aside: list[Aside] = []
    for record in records:
        try:
            command = decode_command(record)
        except CodecError as error:
            aside.append(Aside(record, str(error)))
            continue
        state.gaps = bool(aside)
        try:
            state.execute(command, record)
        except SievenetError as error:
            if aside or isinstance(command, Lost):
                aside.append(Aside(record, str(error)))
        except Exception as error:
            logger.exception("A %s of the journal could not be carried out", type(command).__name__)
            aside.append(Aside(record, str(mistake(error))))
    state.gaps = False
    return aside


def cover_all(coverer: Coverer, contents: Sequence[tuple[Subscription | bytes, bool]]) -> list[Covered]:
    """Keys for contents, decoded or in the journal's bytes; what cannot be covered gets the reason."""
    found: list[Covered] = []
    for content, wants in contents:
        try:
            said = decode_content(coverer.plan.schema, content) if isinstance(content, bytes) else content
            found.append(coverer.search(said, wants))
        except SievenetError as error:
            found.append(error)
        except Exception as error:
            logger.exception("A registration could not be covered")
            found.append(mistake(error))
    return found


async def cover_recovered(controller: Controller, worker: Worker) -> dict[Registration, Covered]:
    """Keys of everything registered, worked out before the first switch is compared with them."""
    state, dispatcher = controller.state, controller.dispatcher
    found: dict[Registration, Covered] = {}
    by_category: dict[int, list[Registration]] = {}
    for entry in (each for client in state.clients.values() for each in client.entries()):
        by_category.setdefault(entry.category, []).append(entry)
    for number, entries in by_category.items():
        category = state.categories[number]
        coverer = dispatcher.coverer(category)
        for at in range(0, len(entries), _TURN):
            await asyncio.sleep(0)
            some = [(entry, entry.content) for entry in entries[at : at + _TURN]]
            ready = coverer.many((content, None) for _, content in some)
            for entry, content in some:
                keys: Covered | None = ready.get(content)
                try:
                    if keys is None:
                        said = entry.subscription(category.schema)
                        keys = coverer.at_once(said, entry.wants)
                    if keys is None:
                        keys = (await worker.run(cover_all, coverer, [(said, entry.wants)]))[0]
                except SievenetError as error:
                    keys = error
                except Exception as error:
                    logger.exception("A registration of the journal could not be covered")
                    keys = mistake(error)
                found[entry] = keys
    return found
