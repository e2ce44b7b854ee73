"""What clients have registered, as text: the answer to the question ``registrations``, of one client or of all."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from sievenet.control.plane import ControlPlane
from sievenet.daemon.planes import AnyPlane
from sievenet.errors import InvalidInput
from sievenet.network.link import natural

__all__ = ["registrations"]

#: Registrations of each kind that are told of one client, if it is asked for by name, and of each of all.
_OF_ONE: Final = 1000
_OF_EACH: Final = 20
#: Clients that are told.
_CLIENTS: Final = 1000
#: Bytes of one registration's text.
_LENGTH: Final = 500


async def registrations(
    control: ControlPlane, plane: AnyPlane, connected: Collection[str], client: str
) -> dict[str, Any]:
    """Advertisements and subscriptions in the filter language; of very many the first, with how many more there are."""
    attached = plane.clients()
    if client and client not in attached:
        known = ", ".join(sorted(attached, key=natural)[:8]) or "there is none"
        more = ", …" if len(attached) > 8 else ""
        raise InvalidInput(expected=f"a client ({known}{more})", got=client, where="registrations")
    names = [client] if client else sorted(attached, key=natural)[:_CLIENTS]
    most = _OF_ONE if client else _OF_EACH
    found = []
    for name in names:
        await asyncio.sleep(0)
        entry: dict[str, Any] = {
            "name": name,
            "host": attached[name].host,
            "connected": name in connected,
            "lease_left": round(max(0.0, control.lease_left(name)), 3),
        }
        for kind, all_ in zip(("advertisements", "subscriptions"), control.registrations_of(name, most), strict=True):
            member = control.member(name)
            total = 0 if member is None else len(getattr(member, kind))
            entry[kind] = [_shortened(str(each)) for each in all_.values()]
            entry[f"more_{kind}"] = total - len(entry[kind])
        found.append(entry)
    return {"clients": found, "more": len(attached) - len(found) if not client else 0}


def _shortened(text: str) -> str:
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…"
