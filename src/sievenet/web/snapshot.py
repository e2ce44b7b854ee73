"""A snapshot: the network as the page shows it, and what changed between two of them. Pure.

A snapshot is tables of small records, by name. A *delta* is a JSON merge patch (RFC 7396): what is in it replaces or
extends, null removes. What is unknown is left out, so that null has one meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["delta", "merged", "snapshot"]

#: Clients that a page is told of; more are only counted.
_CLIENTS: Final = 2000
#: Parts of a status that a page shows as tables of their own, where there are any.
_SECTIONS: Final = ("partitions", "configurators", "matchers", "caches")


def snapshot(status: Mapping[str, Any], topology: Mapping[str, Any], control: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows, of the daemon's answers."""
    ports = {each["client"]: each for each in topology["ports"]}
    clients = status["clients"][:_CLIENTS]
    found: dict[str, Any] = {
        "about": {"version": status["version"], "topology": status["topology"]},
        "traffic": {"uptime": status["uptime"], **status["traffic"]},
        "switches": _named(status["switches"]),
        "hosts": _named(topology["hosts"]),
        "links": {
            f"{each['a']}.{each['a_port']}-{each['b']}.{each['b_port']}": {
                key: each[key] for key in ("a", "b", "up", "forth", "back")
            }
            for each in topology["links"]
        },
        "clients": {
            each["name"]: {
                **each,
                "in": ports.get(each["name"], {}).get("in"),
                "out": ports.get(each["name"], {}).get("out"),
            }
            for each in clients
        },
        "categories": {f"{each['name']} {each['version']}": each for each in status["categories"]},
        "control": dict(control),
        "more_clients": len(status["clients"]) - len(clients),
    }
    tuning = status.get("tuning")
    if isinstance(tuning, Mapping) and tuning.get("mode", "off") != "off":
        found["tuning"] = {key: tuning.get(key) for key in ("mode", "line", "suggested")}
    for section in _SECTIONS:
        rows = _rows(status, section)
        if rows:
            found[section] = {_name(row, number): row for number, row in enumerate(rows)}
    cleaned = _known(found)
    assert isinstance(cleaned, dict)
    return cleaned


def _rows(status: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    """The rows of a part of a status, wherever it is told."""
    for place in (status, *status.values()):
        rows = place.get(section) if isinstance(place, Mapping) else None
        if isinstance(rows, list | tuple):
            return [row for row in rows if isinstance(row, Mapping)]
    return []


def _name(row: Mapping[str, Any], number: int) -> str:
    """What a row is called: its name, or the first text in it."""
    texts = (value for value in (row.get("name"), *row.values()) if isinstance(value, str))
    return next(texts, str(number))


def _named(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {each["name"]: each for each in rows}


def _known(value: Any) -> Any:
    """Without what is None."""
    if isinstance(value, Mapping):
        return {key: _known(each) for key, each in value.items() if each is not None}
    return value


def delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes ``after`` of ``before``.

    >>> delta({"a": 1, "b": {"x": 1, "y": 2}}, {"b": {"x": 1, "y": 3}, "c": 4})
    {'a': None, 'b': {'y': 3}, 'c': 4}
    """
    found: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            changed = delta(old, value)
            if changed:
                found[key] = changed
        elif key not in before or old != value or type(old) is not type(value):
            found[key] = value
    return found


def merged(target: Any, patch: Any) -> Any:
    """A merge patch applied, as the page does it (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
