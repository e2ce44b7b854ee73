"""What others give us as JSON or MessagePack, and is neither: refused in words, however strange it is.

msgspec says three things of it: `DecodeError`, `UnicodeDecodeError` for text that is none, and `RecursionError` for
what is too deep, which may be in a field that nobody asked for.
"""

import pytest

from sievenet.cache import messages
from sievenet.cli.file_options import reading_of
from sievenet.cli.tables import read_traffic
from sievenet.content import Schema
from sievenet.control import commands
from sievenet.control.aside import Aside, read_aside
from sievenet.control.traffic import traffic_from
from sievenet.dataplane.openflow.discovery import Names
from sievenet.errors import SievenetError
from sievenet.index import Plan
from sievenet.network.files import load_topology
from sievenet.workload.trace import BadLine, Reading, object_row

DEEP = 100_000
JSON = {
    "no text": b'{"name": "\xff"}',
    "a name that is no text": b'{"\xff": 1}',
    "too deep": b"[" * DEEP,
    "too deep aside": b'{"more": ' + b"[" * DEEP,
    "too deep by names": b'{"more": ' * DEEP,
}


def longer(data):
    """An array with an entry more than anybody asked for, which is very deep."""
    return bytes([data[0] + 1]) + data[1:] + b"\x91" * DEEP


PACKED = {
    "no text": b"\xa1\xff",
    "a name that is no text": b"\x81\xa1\xff\x01",
    "too deep": b"\x91" * DEEP,
    "too deep aside": b"\x81\xa4more" + b"\x91" * DEEP,
    "a command with more": longer(commands.encode_command(commands.Leave("x"))),
    "traffic with more": b"\x91\x81\xa4more" + b"\x91" * DEEP,
}


@pytest.mark.parametrize("read", [Schema.from_json, Plan.from_json, load_topology], ids=lambda each: each.__qualname__)
@pytest.mark.parametrize("strange", JSON.values(), ids=JSON)
def test_strange_json(read, strange):
    with pytest.raises(SievenetError):
        read(strange)


@pytest.mark.parametrize(
    "read", [commands.decode_command, messages.decoded, traffic_from], ids=lambda each: each.__qualname__
)
@pytest.mark.parametrize("strange", PACKED.values(), ids=PACKED)
def test_strange_messagepack(read, strange):
    with pytest.raises(SievenetError):
        read(strange)


FILES = {
    "read_aside": read_aside,
    "read_traffic": lambda file: read_traffic(file, {}),
    "names": Names.load,
    "pairs": lambda file: reading_of(None, None, None, (), None, str(file)),
}


@pytest.mark.parametrize("read", FILES.values(), ids=FILES)
@pytest.mark.parametrize("strange", JSON.values(), ids=JSON)
def test_strange_files(tmp_path, read, strange):
    file = tmp_path / "file.json"
    file.write_bytes(strange)
    with pytest.raises(SievenetError):
        read(file)


@pytest.mark.parametrize("strange", JSON.values(), ids=JSON)
def test_strange_lines_of_a_trace(strange):
    assert isinstance(object_row(1, strange.decode(errors="replace"), Reading()), BadLine | tuple)


def test_a_record_that_was_set_aside_is_described_whatever_it_is():
    strange = commands.Register(1, b'{"name": ' + b"[" * DEEP, b"", 0, 0)
    assert "register" in Aside(commands.encode_command(strange), "").what
