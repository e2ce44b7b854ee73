"""From events to packets: what is checked, numbered, encoded, and what is not sent."""

import pytest

from sievenet.client.catalog import Catalog
from sievenet.client.outbox import Outbox
from sievenet.client.registrations import Registrations
from sievenet.content import Attribute, Filter, Schema, Subscription, parse_subscription
from sievenet.content.codec import decode_event
from sievenet.control.protocol import CategoryInfo
from sievenet.errors import EventError, PlanError, Rejected, SchemaError
from sievenet.index import Plan

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=255),))


def info(plan, number=3, epoch=1):
    return CategoryInfo(number, plan.schema, plan.to_json(), epoch, 8)


def outbox(plan):
    catalog = Catalog()
    catalog.replace([info(plan)])
    box = Outbox(catalog)
    box.publisher = 42
    schema = catalog["t"].schema
    box.offers.allow(Registrations().add("advertisement", "t", Subscription([Filter(schema)]), b""))
    return box, schema, catalog


def test_packets_carry_number_code_and_event():
    box, schema, _ = outbox(Plan.regular(SCHEMA, 8))
    [first] = box.packets(schema.event(x=5), 100)
    [second] = box.packets(schema.event(x=6), 101)
    assert (first.category, first.publisher, first.sequence, first.departure) == (3, 42, 0, 100)
    assert second.sequence == 1
    assert first.code == 5 << 120
    assert decode_event(schema, first.body)["x"] == 5


@pytest.mark.parametrize("worthwhile", [0, 10**9], ids=["in a batch", "one by one"])
def test_overlapping_regions_give_copies_and_none_gives_none(monkeypatch, worthwhile):
    monkeypatch.setattr("sievenet.client.outbox._WORTHWHILE", worthwhile)
    plan = Plan.selective(SCHEMA, [{"x": (0, 100)}, {"x": (50, 150)}], 8)
    box, schema, _ = outbox(plan)
    events = [schema.event(x=x) for x in (10, 60, 200)]
    lists = list(box.batch_packets(events, lambda: 7))
    assert [len(each) for each in lists] == [1, 2, 0]
    assert [{p.sequence for p in each} for each in lists] == [{0}, {1}, set()]
    assert (box.published, box.unwanted) == (3, 1)
    assert box.packets(events[2], 1) == []
    assert box.unwanted == 2


def test_a_new_plan_is_used_from_its_arrival_on_and_older_news_ignored():
    box, schema, catalog = outbox(Plan.regular(SCHEMA, 8))
    catalog.update(info(Plan.regular(SCHEMA, 4), epoch=5))
    [packet] = box.packets(schema.event(x=0xA7), 1)
    assert packet.code == 0xA << 124
    catalog.update(info(Plan.regular(SCHEMA, 8), epoch=4))
    assert box.packets(schema.event(x=0xA7), 1)[0].code == 0xA << 124
    assert catalog["t"].schema is schema


def test_single_events_follow_every_change_between_them():
    box, schema, catalog = outbox(Plan.regular(SCHEMA, 8))

    def sent(event):
        return [(packet.category, packet.code >> 120) for packet in box.packets(event, 1)]

    event, other = schema.event(x=0xA7), Schema("t", SCHEMA.attributes).event(x=0x12)
    assert sent(event) == [(3, 0xA7)]
    assert sent(other) == [(3, 0x12)]  # an equal schema, another object
    catalog.update(info(Plan.regular(SCHEMA, 4), epoch=5))
    assert sent(event) == [(3, 0xA0)]
    catalog.update(info(Plan.selective(SCHEMA, [{"x": (0, 100)}, {"x": (50, 255)}], 8), epoch=6))
    assert len(sent(schema.event(x=60))) == 2
    catalog.replace([info(Plan.regular(SCHEMA, 8), number=9, epoch=1)])
    assert sent(event) == [(9, 0xA7)]
    ledger = Registrations()
    whole = ledger.add("advertisement", "t", Subscription([Filter(schema)]), b"")  # as `outbox` has allowed it
    box.offers.allow(ledger.add("advertisement", "t", parse_subscription("x < 50", schema), b""))
    assert sent(event) == [(9, 0xA7)]
    box.offers.forbid(whole)
    assert sent(schema.event(x=5)) == [(9, 0x05)]
    before = box.next
    with pytest.raises(Rejected, match="x <= 49"):
        sent(event)
    assert box.next == before
    catalog.remove(9)
    with pytest.raises(SchemaError):
        sent(schema.event(x=5))


def test_the_catalog_keeps_schemas_and_plans_that_did_not_change():
    catalog = Catalog()
    catalog.replace([info(Plan.regular(SCHEMA, 8))])
    plan, schema = catalog["t"].plan, catalog["t"].schema
    catalog.replace([info(Plan.regular(Schema("t", SCHEMA.attributes), 8), number=9)])
    assert catalog["t"].schema is schema
    assert catalog["t"].plan is plan
    assert catalog.numbered(9) is catalog["t"]
    assert catalog.numbered(3) is None
    assert catalog.schemas() == {"t": SCHEMA}
    with pytest.raises(SchemaError, match="t"):
        catalog["u"]


def test_a_plan_for_another_schema_is_refused():
    other = Schema("t", (Attribute("y", "int", lo=0, hi=1),))
    catalog = Catalog()
    catalog.replace([CategoryInfo(1, SCHEMA, Plan.regular(other, 1).to_json(), 1)])
    with pytest.raises(PlanError, match="another schema"):
        catalog["t"].plan  # noqa: B018


def test_only_what_is_advertised_now_may_be_published():
    box, schema, _ = outbox(Plan.regular(SCHEMA, 8))
    ledger = Registrations()
    everything = ledger.add("advertisement", "t", Subscription([Filter(schema)]), b"")
    box.offers.forbid(everything)  # the same id as the one that stands
    with pytest.raises(Rejected, match="before publishing"):
        box.packets(schema.event(x=1), 1)
    low = ledger.add("advertisement", "t", parse_subscription("x < 10", schema), b"")
    box.offers.allow(low)
    assert box.packets(schema.event(x=9), 1)
    with pytest.raises(Rejected, match="got t: x=10"):
        box.packets(schema.event(x=10), 1)
    box.offers.allow(everything)
    assert box.packets(schema.event(x=10), 1)
    box.offers.forbid(everything)
    with pytest.raises(Rejected):
        box.packets(schema.event(x=10), 1)


def test_what_is_no_event_is_refused():
    box, _, _ = outbox(Plan.regular(SCHEMA, 8))
    with pytest.raises(EventError):
        box.packets("x=1", 1)
    assert list(box.batch_packets([], lambda: 1)) == []
