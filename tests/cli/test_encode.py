"""`sievenet encode` and `sievenet tour`: bits, addresses, boxes, pictures."""

from __future__ import annotations

import ipaddress
import json

import pytest
from click.testing import CliRunner

from sievenet.cli import main
from sievenet.cli.encoded import volume
from sievenet.cli.picture import HEIGHT, WIDTH, draw, letter, paint
from sievenet.content import parse_event, parse_subscription
from sievenet.index import Cell, Dz, Plan
from sievenet.workload import load_schema

PLANE = load_schema("plane")
STOCK = load_schema("stock")
SENSOR = load_schema("sensor")


def run(*arguments, code=0):
    result = CliRunner().invoke(main, arguments, prog_name="sievenet", env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result


def encoded(*arguments):
    return json.loads(run("encode", *arguments, "--json").output)


def test_an_event_becomes_one_dz_and_its_address():
    answer = encoded("stock: symbol=IBM, price=421.5, volume=1200", "--bits", "40", "--category", "7")
    (entry,) = answer["entries"]
    (dz,) = Plan.regular(STOCK, 40).encode(parse_event("symbol=IBM, price=421.5, volume=1200", STOCK))
    assert entry["code"] == str(dz)
    assert entry["length"] == 40
    address = ipaddress.IPv6Address(entry["addresses"][0])
    assert int(address) >> 96 == 0xFD0E_0007
    assert f"{int(address):0128b}"[32:72] == str(dz)
    assert answer["kind"] == "event"
    assert "covered" not in answer


def test_other_addresses():
    text = "plane: x in 0..127 and y in 128..255"
    families = [word for name in ("ipv6", "multicast", "ipv4") for word in ("--address", name)]
    (entry,) = encoded(text, "--bits", "16", *families)["entries"]
    assert entry["addresses"] == ["fd0e:1:4000::/34", "ff0e:1:4000::/34", "239.160.0.0/11"]
    (entry,) = encoded("plane: x=3, y=200", "--bits", "16", "--address", "ipv4")["entries"]
    assert entry["addresses"] == ["239.168.37.0"]


def test_a_filter_becomes_prefixes_that_enclose_it():
    text = "plane: x in 40..90 and y in 100..140"
    for budget in (1, 3, 8):
        answer = encoded(text, "--bits", "16", "--budget", str(budget))
        assert 1 <= len(answer["entries"]) <= budget
        assert answer["wanted"] == pytest.approx(51 * 41 / 65536)
        assert answer["covered"] >= answer["wanted"]
        for entry in answer["entries"]:
            network = ipaddress.IPv6Network(entry["addresses"][0])
            assert network.prefixlen == 32 + entry["length"]


def test_cells_have_masks_and_cover_less():
    text = "plane: x in 40..90 and y in 100..140"
    cells = encoded(text, "--bits", "16", "--budget", "4", "--kind", "cells")
    strings = encoded(text, "--bits", "16", "--budget", "4")
    assert cells["covered"] < strings["covered"]
    for entry in cells["entries"]:
        cell = Cell.parse(entry["code"])
        address, _, mask = entry["addresses"][0].partition("/")
        assert int(ipaddress.IPv6Address(address)) >> 80 & 0xFFFF == cell.value
        assert int(ipaddress.IPv6Address(mask)) >> 80 & 0xFFFF == cell.mask


def test_the_page_for_people():
    lines = run("encode", "plane: x in 0..127 and y in 128..255", "--bits", "8").output.splitlines()
    assert lines[0] == "plane: x <= 127 and y >= 128"
    assert lines[3].split() == ["a", "01", "fd0e:1:4000::/34", "x", "<=", "127", "and", "y", ">=", "128"]
    assert lines[5] == "1 entry, 25 % of the event space, 1 times what is wanted"
    picture = [line.partition("│ ")[2] for line in lines if "│" in line]
    assert picture == ["A" * 24 + "·" * 24] * 10 + ["·" * 48] * 10


def test_more_than_two_dimensions_have_no_picture():
    assert "▲" not in run("encode", "stock: price > 420", "--budget", "2").output
    assert "▲" in run("encode", "stock: price > 420", "--budget", "2", "--dimensions", "price, volume").output
    assert "▲" not in run("encode", "sensor: floor = 3", "--dimensions", "floor,label").output


def test_what_is_both_is_an_event_unless_said_otherwise(tmp_path):
    path = tmp_path / "line.json"
    path.write_text('{"name": "line", "attributes": [{"name": "x", "type": "int", "lo": 0, "hi": 7}]}')
    arguments = ("--schema", str(path), "x=3")
    assert encoded(*arguments)["kind"] == "event"
    assert encoded(*arguments, "--as", "filter")["kind"] == "dz"
    assert encoded(*arguments, "--as", "event")["kind"] == "event"
    assert encoded("plane: x=3")["content"] == "plane: x = 3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x > 3"], "Expected a schema: begin the text with its name"),
        (["plane: x > 3 and z < 4"], "got z"),
        (["plane: x=3, y=900"], "int in [0, 255]"),
        (["plane: x=3, y=900", "--as", "event"], "int in [0, 255]"),
        (["plane: x > 3", "--as", "event"], "plane: x > 3"),
        (["plane: x > 3", "--dimensions", "x,z"], "Expected an attribute of plane, got 'z' - at dimensions"),
        (["plane: x > 3", "--bits", "97"], "97 is not in the range"),
        (["plane: x > 3", "--category", "65536"], "65536 is not in the range"),
        (["nowhere: x > 3"], "built-in schema"),
        (["stock: price=3, volume=1, symbol=F", "--address", "ipv4"], "at most 23 bits of code, got 32"),
    ],
)
def test_errors_are_clean(arguments, message):
    result = run("encode", *arguments, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_event_is_a_dot_in_its_cell():
    plan = Plan.regular(PLANE, 2)
    lines = draw(plan, [Dz.parse("10")], parse_event("x=255, y=0", PLANE))
    rows = [line.partition("│ ")[2] for line in lines if "│" in line]
    assert len(rows) == HEIGHT
    assert rows[0] == "·" * WIDTH
    assert rows[-1] == "·" * 24 + "a" * 23 + "●"
    assert rows[-2] == "·" * 24 + "a" * 24


@pytest.mark.parametrize("names", [["building", "occupied"], ["temperature", "floor"], ["occupied", "humidity"]])
def test_pictures_of_other_types(names):
    wanted = parse_subscription('building = "lab" and occupied = true and floor > 3', SENSOR)
    plan = Plan.regular(SENSOR, 8, names)
    event = parse_event("building=lab, floor=12, temperature=85, humidity=100, occupied=true, label=x", SENSOR)
    assert any(
        character.isupper() for line in draw(plan, [Dz.parse("")], wanted) for character in line.partition("│")[2]
    )
    assert sum(line.count("●") for line in draw(plan, plan.encode(event), event)) == 1


def test_letters_repeat_and_colours_keep_the_text():
    assert letter(0) == letter(26) == "a"
    lines = ["  y ▲", "255 │ ·aA●", "    └──▶ x"]
    assert paint(lines).plain == "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("plane: x < 64", 0.25),
        ("plane: x < 64 or y < 64", 0.4375),
        ("plane: x < 64 or x >= 192", 0.5),
        ("plane: any", 1.0),
        ('sensor: building in {"lab", "main"} and occupied = true', 0.2),
        ("sensor: humidity in [25, 50]", 0.25),
        ("sensor: floor in 0..2", 0.2),
        ('sensor: label = "x" and floor = 2', None),
    ],
)
def test_volume(text, part):
    schema = load_schema(text.partition(":")[0])
    assert volume(parse_subscription(text, schema)) == (part if part is None else pytest.approx(part))


def test_tour_tells_the_whole_story():
    output = run("tour", "--subscriptions", "500").output
    for word in ("── ", "✓ price", "fd0e:1:", "▲", "A", "500 subscriptions", "ticks/s"):
        assert word in output


def test_tour_as_json():
    facts = json.loads(run("tour", "--subscriptions", "500", "--json").output)
    assert facts["matches"] is True
    assert facts["subscriptions"] == 500
    assert facts["covered"] > facts["covered_by_cells"] > facts["wanted"] > 0
    assert facts["matches_per_event"] > 0
