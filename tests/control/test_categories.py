"""Versions, removal and numbers of categories, as commands and as a snapshot of them."""

import random

import pytest

from sievenet.content import Attribute, Schema
from sievenet.control import state as module
from sievenet.control.commands import (
    Announced,
    Join,
    Numbers,
    Register,
    Remove,
    Subscribe,
    decode_command,
    encode_command,
)
from sievenet.control.state import State
from sievenet.errors import Rejected, SievenetError
from sievenet.index import Plan
from tests.seeds import seeds


def schema(name, version):
    return Schema(
        name, (Attribute("x", "int", lo=0, hi=15), *(Attribute(f"a{i}", "bool") for i in range(version - 1))), version
    )


def execute(state, command):
    return state.execute(command, encode_command(command))


def register(name, version=1):
    found = schema(name, version)
    return Register(0, found.to_json(), Plan.regular(found, 4).to_json(), 1, 4)


def recovered(records):
    state = State()
    for record in records:
        try:
            state.execute(decode_command(record), record)
        except SievenetError:
            continue
    return state


def facts(state):
    entries = {(c.name, i): (e.category, e.record) for c in state.clients.values() for i, e in c.subscriptions.items()}
    return state.categories, state.by_name, state.unannounced, state._next, list(state._retired), entries


@pytest.mark.parametrize("seed", seeds(5))
def test_a_number_is_not_used_again_and_journal_and_snapshot_agree(seed):
    rng = random.Random(seed)
    state, journal, used = State(), [], {}
    execute(state, Join("c", "h1"))
    journal.append(encode_command(Join("c", "h1")))
    for i in range(120):
        numbers = list(state.categories)
        some = rng.choice(numbers) if numbers else 1
        command = rng.choice(
            (
                register(rng.choice("abcd"), rng.randint(1, 4)),
                Remove(some, rng.random() < 0.5),
                Announced(some),
                Subscribe("c", i, some, b"\x90"),
            )
        )
        journal.append(encode_command(command))
        try:
            effect = execute(state, command)
        except SievenetError:
            continue
        if isinstance(command, Register):
            number = effect.category.number
            assert used.setdefault(number, effect.category.schema) == effect.category.schema
        for versions in state.by_name.values():
            assert [state.categories[n].schema.version for n in versions] == sorted(
                state.categories[n].schema.version for n in versions
            )
    assert facts(recovered(journal)) == facts(state)
    assert facts(recovered(state.snapshot())) == facts(state)
    assert facts(recovered(recovered(state.snapshot()).snapshot())) == facts(state)


def test_numbers_come_round_in_the_order_of_removal(monkeypatch):
    monkeypatch.setattr(module, "MAX_CATEGORY", 4)
    state = State()
    for name in "abcd":
        execute(state, register(name))
    with pytest.raises(Rejected, match="All 4"):
        execute(state, register("e"))
    for number in (3, 1):
        execute(state, Remove(number, False))
    assert execute(state, register("e")).category.number == 3
    assert execute(state, register("f")).category.number == 1
    execute(state, Numbers(4, (9,)))


def test_removal_is_refused_while_in_use_and_takes_everything_by_force():
    state = State()
    number = execute(state, register("a")).category.number
    execute(state, Join("ann", "h1"))
    execute(state, Subscribe("ann", 1, number, b"\x90"))
    with pytest.raises(Rejected, match="a version 1 is used by ann"):
        execute(state, Remove(number, False))
    effect = execute(state, Remove(number, True))
    assert [(c.name, e.category) for c, e in effect.orphans] == [("ann", number)]
    assert not state.clients["ann"].subscriptions
    assert not state.categories
