"""Topics and events: there and back, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.bridge.mapping import Inbound, Outbound, load_mapping
from sievenet.bridge.topic import Template
from sievenet.content import Attribute, Schema
from sievenet.errors import EventError, InvalidInput

SCHEMA = Schema(
    "sensor",
    (
        Attribute("station", "str"),
        Attribute("value", "float", lo=-100, hi=100),
        Attribute("floor", "int", lo=0, hi=9),
        Attribute("ok", "bool"),
    ),
)


@given(st.lists(st.text(min_size=1, max_size=8).filter(lambda s: s.isprintable()), min_size=1, max_size=4))
def test_values_survive_topics(values):
    template = Template("/".join(["a", *(f"{{x{i}}}" for i in range(len(values)))]))
    topic = template.filled({f"x{i}": value for i, value in enumerate(values)})
    assert topic.count("/") == len(values)
    assert not set("+#\0") & set(topic)
    assert template.values(topic) == {f"x{i}": value for i, value in enumerate(values)}


@pytest.mark.parametrize(
    ("text", "topic", "found"),
    [
        ("a/{x}/+", "a/1/2", {"x": "1"}),
        ("a/{x}/#", "a/1", {"x": "1"}),
        ("a/{x}/#", "a/1/2/3", {"x": "1"}),
        ("a/{x}", "a/1/2", None),
        ("a/{x}", "b/1", None),
        ("a/{x}/b", "a/1", None),
        ("#", "anything/at/all", {}),
    ],
)
def test_templates_match_as_brokers_do(text, topic, found):
    assert Template(text).values(topic) == found


@pytest.mark.parametrize("text", ["", "a/{x}/{x}", "a/b+", "#/a", "a/{x", "a/x}"])
def test_bad_templates(text):
    with pytest.raises(InvalidInput, match="a topic such as"):
        Template(text)


def event(mapping, topic, message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return mapping.event(SCHEMA, Template(mapping.topic), topic, data)


def test_messages_become_events():
    mapping = Inbound("s/{station}/{floor}", "sensor", fields={"value": "r.c"}, constants={"ok": True})
    found = event(mapping, "s/attic%2Fwest/3", {"r": {"c": 21}})
    assert dict(found.items()) == {"station": "attic/west", "value": 21.0, "floor": 3, "ok": True}
    assert found.payload == b""
    plain = Inbound("s/{station}/{floor}", "sensor", fields={"value": "."}, constants={"ok": False}, payload=True)
    found = event(plain, "s/attic/3", b"21.5")
    assert (found["value"], found.payload) == (21.5, b"21.5")
    same = Inbound("s/{station}", "sensor")
    assert event(same, "s/a", {"value": 1, "floor": 2, "ok": "yes", "more": []})["ok"] is True


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff\xfe", b"{", b"[1, 2]", {"value": 1}, {"value": 1000, "floor": 1, "ok": True},
     {"value": "warm", "floor": 1, "ok": True}, {"value": {"x": 1}, "floor": 1, "ok": True}, b"[" * 5000],
)  # fmt: skip
def test_what_is_no_event_is_refused(message):
    with pytest.raises(EventError):
        event(Inbound("s/{station}", "sensor"), "s/a", message)


def test_events_become_messages():
    found = SCHEMA.event(b"raw", station="a/b", value=1.5, floor=2, ok=True)
    template = Template("out/{station}/{ok}")
    topic, body = Outbound("sensor", template.text).message(template, found)
    assert topic == "out/a%2Fb/true"
    assert json.loads(body) == {"station": "a/b", "value": 1.5, "floor": 2, "ok": True}
    assert Outbound("sensor", template.text, body="payload").message(template, found)[1] == b"raw"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at least one"),
        ("[[in]]\ntopic = 'a'\n", "missing required field `category`"),
        ("[[in]]\ntopic = 'a'\ncategory = 'x'\ntyped = 1\n", "unknown field `typed`"),
        ("[[in]]\ntopic = 'a/{x'\ncategory = 'x'\n", "a topic such as"),
        ("[[in]]\ntopic = 'a'\ncategory = 'x'\nqos = 2\n", "qos"),
        ("not toml", "Expected TOML"),
    ],
)
def test_bad_files_are_told(tmp_path, text, told):
    file = tmp_path / "m.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=told):
        load_mapping(file)
    with pytest.raises(InvalidInput, match="readable file"):
        load_mapping(tmp_path / "nowhere")


def test_mappings_are_held_to_schemas():
    Inbound("s/{station}", "sensor", fields={"value": "v"}).check(SCHEMA)
    for wrong in (Inbound("s/{nowhere}", "sensor"), Inbound("s", "sensor", fields={"nowhere": "v"})):
        with pytest.raises(InvalidInput, match="nowhere"):
            wrong.check(SCHEMA)
    with pytest.raises(InvalidInput, match="nowhere"):
        Outbound("sensor", "s/{nowhere}").check(SCHEMA)
    with pytest.raises(InvalidInput, match=r"without \+"):
        Outbound("sensor", "s/+").check(SCHEMA)
