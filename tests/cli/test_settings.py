"""Flags and the configuration file: whatever a flag does, a key does too."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sievenet.cli.settings import KEYS, configured
from sievenet.cli.up import up
from sievenet.config import Config, load_config

ROOT = Path(__file__).resolve().parent.parent.parent

#: A value of each flag, as said on the command line and in TOML.
SAID = {
    "topology": ("ring,switches=4", '"ring,switches=4"'),
    "dataplane": ("kernel", '"kernel"'),
    "listen": ("127.0.0.1:9999", '"127.0.0.1:9999"'),
    "interfaces": ("eth1,eth2", '"eth1,eth2"'),
    "own": ("s1", '"s1"'),
    "switches": ("3", "3"),
    "network": ("other", '"other"'),
    "schemas": ("stock", '["stock"]'),
    "sample_name": ("stock", '"stock"'),
    "rate": ("50", "50.0"),
    "tune": ("suggest", '"suggest"'),
    "tap": ("taps", '"taps"'),
    "tap_factor": ("7", "7"),
    "caches": ("2", "2"),
    "place": ("auto", '"auto"'),
    "state": ("folder", '"folder"'),
    "port": ("1234", "1234"),
    "data_port": ("1235", "1235"),
    "host": ("127.0.0.2", '"127.0.0.2"'),
    "access": ("access", '"access"'),
    "web": ("127.0.0.1:1236", '"127.0.0.1:1236"'),
    "count": ("2", "2"),
    "bound": ("none", "inf"),
    "audit": ("audit.jsonl", '"audit.jsonl"'),
    "insecure": (None, "true"),
    "kind": ("cells", '"cells"'),
    "capacity": ("20", "20"),
    "lease": ("10s", "10.0"),
    "control": ("sna", '"sna"'),
    "configurators": ("3", "3"),
    "nats": ("nats://127.0.0.1:4222", '"nats://127.0.0.1:4222"'),
    "seconds": ("1m", "60.0"),
    "every": ("500ms", "0.5"),
    "log": ("json", '"json"'),
    "log_level": ("debug", '"debug"'),
    "log_file": ("up.log", '"up.log"'),
    "as_json": (None, "true"),
}


def said(*arguments):
    with up.make_context("up", list(arguments)) as ctx:
        return configured(ctx)


def keys(kind=Config, prefix=""):
    for field in msgspec.structs.fields(kind):
        inner = field.type
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from keys(inner, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def test_every_flag_has_a_key_and_every_key_exists():
    flags = {parameter.name for parameter in up.params} - {"config_file", "help"}
    assert flags == set(KEYS), "a flag of `up` needs a row in sievenet.cli.settings.KEYS"
    assert {key for each in KEYS.values() for key in each} <= set(keys())
    assert flags == set(SAID), "and a value here"


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_flag_and_its_key_do_the_same(name, tmp_path):
    [parameter] = [each for each in up.params if each.name == name]
    value, text = SAID[name]
    flag = parameter.opts[0]
    lines = {}
    for key in KEYS[name] if name != "listen" else KEYS[name][:1]:
        section, _, last = key.rpartition(".")
        lines.setdefault(section, []).append(f"{last} = {text}")
    file = tmp_path / "up.toml"
    topology = ["topology = 'line,switches=1,hosts=2'"] if name == "interfaces" else []
    top = "\n".join(topology + lines.pop("", []))
    file.write_text(top + "".join(f"\n[{section}]\n" + "\n".join(each) for section, each in lines.items()))
    by_flag = said(flag, *([] if value is None else [value]))
    by_file = said("--config", str(file))
    assert by_flag == by_file
    assert by_flag != said(), "it changes something"


def test_a_flag_counts_more_than_the_file_and_silence_changes_nothing(tmp_path):
    file = tmp_path / "up.toml"
    file.write_text("[listen]\nport = 1\n[run]\nrate = 5.0\nevery = 3.0\ntap_factor = 9\n")
    config = said("--config", str(file), "--port", "2")
    assert (config.listen.port, config.run.rate, config.run.every, config.run.tap_factor) == (2, 5.0, 3.0, 9)
    assert said("--sample", "stock").tuning.mode == "auto"
    assert said().tuning.mode is None
    assert said("--sample", "stock", "--tune", "off").tuning.mode == "off"
    assert said("--dataplane", "kernel", "--listen", "127.0.0.1:1").kernel.listen == "127.0.0.1:1"


def test_a_file_alone_runs_a_fabric(tmp_path):
    file = tmp_path / "up.toml"
    file.write_text(
        'topology = "line,switches=2"\nschemas = ["stock"]\n[listen]\nport = 0\n[data]\nport = 0\n'
        '[run]\nseconds = 0.3\nevery = 0.1\njson = true\n[log]\nform = "json"\nlevel = "info"\nfile = "LOG"\n'.replace(
            "LOG", str(tmp_path / "up.log")
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "sievenet", "up", "--config", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first = msgspec.json.decode(done.stdout.splitlines()[0])
    assert [each["name"] for each in first["categories"]] == ["stock"]
    assert msgspec.json.decode((tmp_path / "up.log").read_text().splitlines()[0])["level"] == "info"


def test_the_page_of_settings_is_that_of_the_code():
    done = subprocess.run([sys.executable, str(ROOT / "scripts/config-reference")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/reference/config.md").read_text()
    for key in keys():
        assert f"| `{key.rpartition('.')[2]}` |" in page, key
    load_config()
