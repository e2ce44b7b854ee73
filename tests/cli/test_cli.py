"""The command line as people use it: help, explain, schema, errors, speed."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from sievenet import __version__
from sievenet.cli import main
from sievenet.cli.app import LazyGroup
from sievenet.cli.table import COMMANDS
from sievenet.workload import load_schema

EVENT = "symbol=IBM, price=421.5, volume=1200"


def run(*arguments, code=0):
    result = CliRunner().invoke(main, arguments, prog_name="sievenet")
    assert result.exit_code == code, result.output
    return result


def groups(group=main, name="sievenet"):
    yield name, group
    for each in group.table:
        found = group.get_command(click.Context(group), each)
        if isinstance(found, LazyGroup):
            yield from groups(found, f"{name} {each}")


def test_version():
    assert run("--version").output == f"sievenet {__version__}\n"


def test_help_lists_every_command():
    output = run("--help").output
    for name, entry in COMMANDS.items():
        assert name in output
        assert entry.summary in output


@pytest.mark.parametrize(("name", "group"), list(groups()), ids=lambda item: item if isinstance(item, str) else "")
def test_the_table_says_what_the_commands_say(name, group):
    for word, entry in group.table.items():
        command = group.get_command(click.Context(group), word)
        assert command.name == word
        assert command.get_short_help_str(200) == entry.summary
        if not isinstance(command, click.Group):
            assert any(p.name == "as_json" for p in command.params), f"{name} {word} should take --json"


def test_help_imports_nothing_slow():
    program = (
        "import sys; from sievenet.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {word.split(".")[0] for word in done.stderr.split()}
    assert "click" in loaded
    assert not loaded & {"numpy", "numba", "rich", "msgspec", "networkx"}


@pytest.mark.parametrize(
    "arguments",
    [["explain", "stock: price > 1", EVENT], ["schema", "check", "stock"]],
    ids=lambda words: words[0],
)
def test_small_commands_do_not_start_a_compiler(arguments):
    program = (
        "import sys; from sievenet.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert not {"numba", "llvmlite"} & {word.split(".")[0] for word in done.stderr.split()}


def test_an_unknown_command_gets_a_hint():
    assert "No command 'explian'; did you mean explain?" in run("explian", code=2).stderr
    assert "; there are " in run("zzz", code=2).stderr
    assert "No such option" in run("--nope", code=2).stderr


def test_explain():
    assert run("explain", "stock: price > 900 or volume < 5000", EVENT).output == (
        '✓ stock: symbol="IBM", price=421.5, volume=1200\n'
        "  ✗ stock: price > 900\n"
        "    ✗ price > 900   got 421.5\n"
        "  ✓ stock: volume <= 4999\n"
        "    ✓ volume <= 4999   got 1200\n"
    )


def test_explain_as_json():
    answer = json.loads(run("explain", "price > 900", f"stock: {EVENT}", "--json").output)
    assert answer["matches"] is False
    assert answer["filters"][0]["constraints"][0] == {
        "attribute": "price",
        "wanted": "> 900",
        "got": 421.5,
        "ok": False,
        "text": "price > 900",
    }


def test_explain_without_a_schema():
    assert "got nothing (absent)" in run("explain", "room exists and t > 30", "t=31").output


def test_explain_with_a_schema_of_a_file(tmp_path):
    path = tmp_path / "s.json"
    path.write_bytes(load_schema("plane").to_json())
    assert run("explain", "--schema", str(path), "x < 3", "x=1, y=2").output.startswith("✓")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stock: prise > 3", EVENT], "got prise; did you mean price? - at column 8\n  stock: prise > 3\n         ^"),
        (["stock: price > 3", "symbol=IBM"], "Expected a value of price, volume"),
        (["stocks: price > 3", EVENT], "built-in schema (plane, sensor, stock), got 'stocks'"),
        (["--schema", "stock", "plane: x > 3", EVENT], "plane"),
        (["stock: price > 3", "symbol=IBM, price=-1, volume=2"], "float in [0.0, 1000.0]"),
    ],
)
def test_errors_are_one_clean_message(arguments, message):
    result = run("explain", *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_configurators_that_nobody_would_use_are_refused():
    result = run("up", "--control", "one", "--configurators", "3", "--for", "1s", code=2)
    assert "--configurators is for --control sea, sna or sna-lb" in result.stderr


def test_schema_check(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"name": "s", "attributes": [{"name": "x", "type": "int", "lo": 3, "hi": 1}]}')
    result = run("schema", "check", "stock", str(bad), code=2)
    good, wrong = result.stdout.splitlines()
    assert good == "✓ stock: stock version 1, 3 attributes"
    assert wrong.startswith(f"✗ {bad}: Expected lo <= hi, got (3, 1)")
    assert result.stderr == "Error: 1 of 2 is no schema\n"


def test_schema_check_as_json(tmp_path):
    answers = json.loads(run("schema", "check", "plane", str(tmp_path), "--json", code=2).stdout)
    assert answers[0] == {"file": "plane", "ok": True, "name": "plane", "version": 1, "attributes": ["x", "y"]}
    assert answers[1]["ok"] is False
    assert "Is a directory" in answers[1]["error"]


def test_schema_show():
    lines = [line.split() for line in run("schema", "show", "sensor").output.splitlines()]
    assert lines[0] == ["sensor,", "version", "1"]
    assert ["occupied", "bool", "false,", "true"] in lines
    assert ["label", "str", "any", "text"] in lines
    assert ["floor", "int", "-2", "to", "12"] in lines
    assert json.loads(run("schema", "show", "plane", "--json").output)["attributes"][1]["name"] == "y"


def test_schema_list():
    assert "plane    x int, y int" in run("schema", "list").output
    assert [s["name"] for s in json.loads(run("schema", "list", "--json").output)] == ["plane", "sensor", "stock"]


LONG = "a" * 64


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("topo", "--url", LONG), "a URL such as"),
        (("topo", "--url", "sievenet://a..b:1"), "a URL such as"),
        (("router", "--status", "--url", f"sievenet+router://{LONG}:1"), "a URL such as"),
        (("router", "--listen", "127.0.0.1:²"), "HOST:PORT"),
        (("router", "--listen", "127.0.0.1:99999"), "HOST:PORT"),
        (("router", "--listen", "127.0.0.1"), "HOST:PORT"),
        (("router", "--neighbours", f"{LONG}:1", "--listen", "127.0.0.1:0"), "HOST:PORT"),
        (("router", "--listen", "[::1]:x"), "HOST:PORT"),
    ],
)
def test_addresses_that_no_resolver_knows_are_refused(arguments, told):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert told in result.output
    assert "Traceback" not in result.output


def test_an_error_of_the_machine_is_a_message(tmp_path):
    (tmp_path / "file").touch()
    output = run("keys", "authority", str(tmp_path / "file" / "folder"), code=2).output
    assert output.startswith("Error: Not a directory - at ")
