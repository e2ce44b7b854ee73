"""Members: who there is, with roles, groups, rules and quotas; one file in TOML, kept by an operator.

    [quota]                         # of every member that has none of its own
    requests = 500

    [total]                         # of all members together
    connections = 2000

    [groups.traders]
    rules = ["subscribe stock: any"]

    [members.alice]
    role = "client"
    groups = ["traders"]
    rules = ['publish stock: symbol in {"IBM"}', 'subscribe news: region = "EU" narrow']
    quota = { events = 1000 }

A certificate or a token proves a name; this file says what the name may do. Unknown keys are errors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

import msgspec

from sievenet.access.identity import Role
from sievenet.access.permissions import NOTHING, Permissions
from sievenet.access.quota import NO_QUOTA, Quota
from sievenet.access.rule import Rule, parse_rule
from sievenet.access.token import check_name
from sievenet.errors import InvalidInput

__all__ = ["Member", "Members", "read_members"]


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[str, ...] = ()


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Role
    groups: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    quota: dict[str, float] | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    members: dict[str, _Member] = {}
    groups: dict[str, _Group] = {}
    quota: Quota = Quota()
    total: Quota = Quota()


@dataclass(frozen=True, slots=True)
class Member:
    """One name, and what it may do."""

    name: str
    role: Role
    groups: tuple[str, ...] = ()
    permissions: Permissions = NOTHING
    quota: Quota = NO_QUOTA


@dataclass(frozen=True, slots=True)
class Members:
    """Everybody; `total` is the quota of all together."""

    by_name: dict[str, Member]
    total: Quota = NO_QUOTA

    def get(self, name: str) -> Member | None:
        """The member of a name."""
        return self.by_name.get(name)


def read_members(text: str, where: str = "members.toml") -> Members:
    """Members from the text of a file; `InvalidInput` says what is wrong, and where."""
    if not text.strip():
        # As long as somebody writes it, a file is empty: that is no reason to turn everybody out.
        raise InvalidInput(expected="members", got="`an empty file`", where=where)
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"Expected TOML, got something else: {error}", where=where) from None
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), where=where) from None
    groups = {
        name: tuple(parse_rule(rule, f"{where}: groups.{name}") for rule in group.rules)
        for name, group in found.groups.items()
    }
    members = {name: _member(name, each, groups, found.quota, where) for name, each in found.members.items()}
    return Members(members, found.total)


def _member(name: str, said: _Member, groups: dict[str, tuple[Rule, ...]], usual: Quota, where: str) -> Member:
    place = f"{where}: members.{name}"
    check_name(name, place)
    unknown = [group for group in said.groups if group not in groups]
    if unknown:
        raise InvalidInput(expected=f"a group ({', '.join(groups) or 'there are none'})", got=unknown[0], where=place)
    own = tuple(parse_rule(rule, place) for rule in said.rules)
    rules = (*own, *(rule for group in said.groups for rule in groups[group]))
    if said.role in (Role.OBSERVER, Role.COMPONENT) and rules:
        raise InvalidInput(
            expected=f"no rules: {said.role.value}s neither publish nor subscribe", got=str(rules[0]), where=place
        )
    return Member(name, said.role, said.groups, Permissions(rules, name), _quota(usual, said.quota, place))


def _quota(usual: Quota, own: dict[str, Any] | None, where: str) -> Quota:
    try:
        return msgspec.convert({**msgspec.to_builtins(usual), **(own or {})}, Quota, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), where=f"{where}.quota") from None
