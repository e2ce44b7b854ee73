"""Our messages against an independent implementation, os-ken: what we write it reads, what it writes we read."""

import contextlib
import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow import oxm, statistics, translation
from sievenet.dataplane.openflow.numbers import ANY, CONTROLLER, V13, V14, Bundle, Multipart, Oxm, Type
from sievenet.dataplane.openflow.tables import RULES, Table
from sievenet.errors import CodecError, InvalidInput
from sievenet.index import ROOT, Cell, Dz
from sievenet.index.address import Head
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, Match, Modify

ofproto_protocol = pytest.importorskip("os_ken.ofproto.ofproto_protocol")
ofproto_parser = pytest.importorskip("os_ken.ofproto.ofproto_parser")

VERSIONS = (V13, V14)
versions = pytest.mark.parametrize("version", VERSIONS)


def oracle(version):
    return ofproto_protocol.ProtocolDesc(version)


def read(data):
    """The message that os-ken sees in our bytes."""
    version, kind, length, xid = ofproto_parser.header(data)
    assert length == len(data)
    return ofproto_parser.msg(oracle(version), version, kind, length, xid, bytearray(data))


def written(message, xid=7):
    """The bytes of a message of os-ken's."""
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def framed(data):
    (found,) = m.Framer().feed(data)
    return found


def body_of(reply):
    """The part of a multipart reply that our readers take."""
    return framed(written(reply)).body[8:]


dzs = st.integers(0, 112).flatmap(lambda n: st.builds(Dz, st.integers(0, (1 << n) - 1), st.just(n)))


@st.composite
def cells(draw):
    width = draw(st.integers(1, 112))
    mask = draw(st.integers(0, (1 << width) - 1))
    return Cell(draw(st.integers(0, (1 << width) - 1)) & mask, mask, width)


ports = st.integers(1, 20) | st.integers(1024, 1040)


@st.composite
def flows(draw):
    match = Match(draw(st.integers(0, 0xFFFF)), draw(dzs | cells()))
    in_port = draw(st.none() | ports)
    table = draw(st.just(0) | ports)
    if table:
        priority = draw(st.just(match.bits[1].bit_count()) | st.integers(0, 0xFFFD))
        return Flow(match, frozenset({table}), priority, in_port, table)
    return Flow(match, draw(st.frozensets(ports, max_size=6)), draw(st.integers(0, 0xFFFD)), in_port)


def translator(version):
    found = translation.Translator(version)
    found.home.update({number: number - 1000 for number in range(1024, 1041)})
    found.tables.limit(range(254))
    assert found.tables.take([*range(1, 21), *range(1024, 1041)])
    return found


def place(flow):
    """The table and the priority of a flow in the switch."""
    if not flow.table:
        return Table.CONTENT, flow.priority + 1
    plain = flow.priority == flow.match.bits[1].bit_count()
    return translator(V14).tables.of[flow.table], 1 if plain else flow.priority + 2


def seen(priority, fields, ports, table=Table.CONTENT):
    return statistics.FlowEntry(table, priority, 0, fields, ports, [], 0, 0)


# -- flows -----------------------------------------------------------------------------------------


@given(flow=flows(), version=st.sampled_from(VERSIONS))
def test_a_flow_is_what_os_ken_reads(flow, version):
    data = translator(version).encode(Add(flow), 99)
    found = read(data)
    assert type(found).__name__ == "OFPFlowMod"
    assert (found.xid, found.table_id, found.priority) == (99, *place(flow))
    assert found.command == 0
    fields = dict(found.match.items())
    assert fields["eth_type"] == 0x86DD
    # An exact address has no mask.
    address = fields["ipv6_dst"]
    assert (address[0] if isinstance(address, tuple) else address).startswith("fd0e:")
    actions = [action for each in found.instructions if hasattr(each, "actions") for action in each.actions]
    assert {a.port if hasattr(a, "port") else a.group_id for a in actions} == flow.ports
    if flow.table:
        _, mark, onward = found.instructions
        assert (mark.metadata, mark.metadata_mask, onward.table_id) == (1, 1, place(flow)[0] + 1)
    if flow.in_port is not None and flow.in_port >= 1024:
        assert (fields["udp_src"], fields["in_port"]) == (flow.in_port, flow.in_port - 1000)
    elif flow.in_port is not None:
        assert fields["in_port"] == flow.in_port


@given(flow=flows(), version=st.sampled_from(VERSIONS))
def test_a_flow_comes_back_from_the_switch(flow, version):
    sent = translator(version)
    found = read(sent.encode(Modify(flow), 1))
    # Match and instructions as os-ken writes what it has read.
    rest = bytearray()
    at = found.match.serialize(rest, 0)
    for instruction in found.instructions:
        instruction.serialize(rest, at)
        at += instruction.len
    table = found.table_id
    head = struct.pack(">HBxIIHHHH4xQQQ", 48 + at, table, 1, 2, found.priority, 0, 0, 0, found.cookie, 12, 345)
    data = head + bytes(rest[:at])
    assert oracle(version).ofproto_parser.OFPFlowStats.parser(data, 0).packet_count == 12
    (entry,) = statistics.read_flows(data)
    assert (entry.packets, entry.bytes, entry.table) == (12, 345, table)
    assert translator(version).decode(entry) == flow


@versions
def test_delete_and_modify(version):
    flow = Flow(Match(2, Cell.parse("1*0*")), frozenset({1}), 2)
    found = read(translator(version).encode(Delete(flow), 5))
    assert (found.command, found.instructions, found.priority) == (4, [], 3)
    assert read(translator(version).encode(Modify(flow), 5)).flags == 0
    assert read(translator(version).encode(Add(flow), 5)).flags == 4


def test_what_no_switch_can_hold_is_refused():
    for flow in (
        Flow(Match(1, ROOT), frozenset({1}), 0xFFFE),
        Flow(Match(1, Dz(0, 113)), frozenset({1}), 5),
        Flow(Match(1, ROOT), frozenset({1}), 5, None, 2),
        Flow(Match(1, ROOT), frozenset({1, 2}), 5, None, 1),
    ):
        with pytest.raises(InvalidInput):
            translator(V14).encode(Add(flow), 1)


def test_foreign_entries_are_not_ours():
    t = translator(V14)
    ours = {Oxm.ETH_TYPE: (0x86DD, None), Oxm.IPV6_DST: (0xFD0E << 112 | 5 << 96, 0xFFFFFFFF << 96)}
    assert t.decode(seen(3, ours, [1])) == Flow(Match(5, ROOT), frozenset({1}), 2)
    assert t.decode(seen(0, ours, [1])) is None
    assert t.decode(seen(3, {}, [])) is None
    assert t.decode(seen(3, {**ours, 11: (1, None)}, [])) is None
    assert t.decode(seen(3, {**ours, Oxm.IPV6_DST: (0xFD0D << 112, 0xFFFFFFFF << 96)}, [])) is None
    # An entry in the table of another port, or with two, is nobody's: its port's other cells would not be asked.
    own = t.tables.of[1]
    assert t.decode(seen(1, ours, [1], own)) == Flow(Match(5, ROOT), frozenset({1}), 0, None, 1)
    assert t.decode(seen(1, ours, [1], own + 1)) is None
    assert t.decode(seen(1, ours, [1, 2], own)) is None


@given(st.integers(0, 0xFFFF), dzs)
def test_addresses_lie_in_their_flows(category, dz):
    code = dz.bits << (128 - dz.length)
    address, port, dscp = Head.of(category, code)
    fields = dict(read(translator(V14).encode(Add(Flow.of(category, dz, 1)), 1)).match.items())
    value, mask = fields["ipv6_dst"] if isinstance(fields["ipv6_dst"], tuple) else (fields["ipv6_dst"], None)
    covered = (1 << 128) - 1 if mask is None else int(ip_address(mask))
    assert address & covered == int(ip_address(value))
    assert port >= 0x8000
    if "udp_dst" in fields:
        value, mask = fields["udp_dst"] if isinstance(fields["udp_dst"], tuple) else (fields["udp_dst"], 0x7FFF)
        assert port & mask == value
    assert fields.get("ip_dscp", dscp) == dscp


def test_codes_too_long_for_an_address():
    with pytest.raises(InvalidInput):
        Head.of(1, 1)


# -- the entries around them -----------------------------------------------------------------------


@versions
def test_admission(version):
    link = read(translation.admit_link(version, 1, 3))
    assert dict(link.match.items())["in_port"] == 3
    assert link.instructions[0].table_id == Table.CONTENT
    client = read(translation.admit_client(version, 2, 4, 1024))
    assert dict(client.match.items())["udp_src"] == 1024
    assert read(translation.admit_client(version, 2, 4, 1024, leave=True)).command == 4
    assert read(translation.punt(version, 3, "discovery")).instructions[0].actions[0].port == CONTROLLER
    assert dict(read(translation.punt(version, 3, "control")).match.items())["ipv6_dst"] == "fd0f::1"
    assert read(translation.unwanted(version, 4, masked=False)).priority == 0
    assert read(translation.unwanted(version, 4, masked=True)).instructions[0].table_id == Table.MASKED
    led = read(translation.masked(version, 4, 7))
    assert dict(led.match.items())["ipv6_dst"] == ("fd0e:7::", "ffff:ffff::")
    assert (led.table_id, led.instructions[0].table_id) == (Table.MASKED, Table.FIRST)
    passed = read(translation.past(version, 4, 9, 10))
    assert (passed.table_id, passed.priority, passed.instructions[0].table_id) == (9, 0, 10)
    assert dict(read(translation.unwanted_rest(version, 4, "unmarked")).match.items()) == {"metadata": 0}


def test_groups():
    data = translation.group_mod(V14, 1, 1024, 7, known=False)
    found = read(data)
    assert (found.command, found.group_id, found.type) == (0, 1024, 0)
    actions = found.buckets[0].actions
    assert [type(action).__name__ for action in actions] == ["NXActionRegLoad", "OFPActionSetField", "OFPActionOutput"]
    assert actions[1].value == 1024
    assert actions[2].port == 7
    gone = read(translation.group_mod(V14, 1, 1024, None, known=True))
    assert (gone.command, gone.buckets) == (1, [])
    # os-ken does not read the older one, which is the same but for the version.
    assert translation.group_mod(V13, 1, 1024, 7, known=False)[1:] == data[1:]


# -- small messages --------------------------------------------------------------------------------


@versions
def test_small_messages(version):
    """Byte for byte what os-ken writes, or read as it was meant."""
    here, parser = oracle(version), oracle(version).ofproto_parser
    assert m.features_request(version, 7) == written(parser.OFPFeaturesRequest(here))
    assert m.barrier(version, 7) == written(parser.OFPBarrierRequest(here))
    assert m.role_request(version, 7, 1 << 40) == written(parser.OFPRoleRequest(here, 2, 1 << 40))
    assert m.set_config(version, 7) == written(parser.OFPSetConfig(here, 0, 0xFFFF))
    assert m.echo_request(version, 7, b"x") == written(parser.OFPEchoRequest(here, b"x"))
    assert m.echo_reply(version, 7, b"y") == written(parser.OFPEchoReply(here, b"y"))
    actions = [parser.OFPActionOutput(2, 0xFFFF)]
    theirs = parser.OFPPacketOut(here, 0xFFFFFFFF, CONTROLLER, actions, b"packet")
    assert m.packet_out(version, 7, CONTROLLER, oxm.output(2), b"packet") == written(theirs)
    assert read(m.hello(6)).elements[0].versions == [V13, V14]


def test_hello_says_versions():
    ours = framed(m.hello(1, (V13,)))
    assert m.read_hello(ours) == {V13}
    assert m.read_hello(m.Message(4, 0, 1, b"")) == {1, 2, 3, 4}
    with pytest.raises(CodecError):
        m.read_hello(m.Message(4, 0, 1, b"\0\2\0\0\0\0\0\0"))


def test_bundles():
    inner = m.barrier(V14, 9)
    parser = oracle(V14).ofproto_parser
    for step in Bundle:
        found = read(m.bundle_control(V14, 8, 3, step))
        assert (found.bundle_id, found.type, found.flags) == (3, step, 3)
    added = m.bundle_add(V14, 9, 3, inner)
    assert added[24 - 8 :] == inner
    assert added[1] == Type.BUNDLE_ADD
    reply = written(parser.OFPBundleCtrlMsg(oracle(V14), 3, Bundle.COMMIT + 1, 3, []))
    assert m.read_bundle(V14, framed(reply)) == (3, Bundle.COMMIT + 1)
    old = read(m.bundle_control(V13, 8, 3, Bundle.OPEN))
    assert (old.experimenter, old.exp_type, old.bundle_id, old.type) == (0x4F4E4600, 2300, 3, 0)
    assert m.read_bundle(V13, framed(m.bundle_control(V13, 8, 3, Bundle.CLOSE))) == (3, Bundle.CLOSE)
    assert m.read_bundle(V13, m.Message(V13, Type.EXPERIMENTER, 1, bytes(8))) is None
    assert m.bundle_add(V13, 9, 3, inner).endswith(inner)


@versions
def test_multipart_requests(version):
    here, parser = oracle(version), oracle(version).ofproto_parser
    flow = parser.OFPFlowStatsRequest(here, 0, 1, ANY, ANY, 0, 0, parser.OFPMatch())
    assert m.multipart(version, 7, Multipart.FLOW, statistics.all_flows(1)) == written(flow)
    ports = parser.OFPPortStatsRequest(here, 0, ANY)
    assert m.multipart(version, 7, Multipart.PORT_STATS, statistics.all_ports()) == written(ports)
    groups = parser.OFPGroupStatsRequest(here, 0, 0xFFFFFFFC)
    assert m.multipart(version, 7, Multipart.GROUP, statistics.all_groups()) == written(groups)
    assert m.multipart(version, 7, Multipart.TABLE) == written(parser.OFPTableStatsRequest(here, 0))


# -- what switches say -----------------------------------------------------------------------------


@versions
def test_features_and_errors(version):
    parser = oracle(version).ofproto_parser
    error = framed(written(parser.OFPErrorMsg(oracle(version), 5, 1, b"request")))
    assert m.read_error(error.body) == (5, 1, b"request")
    assert str(m.read_error(error.body)) == "table full"
    assert str(m.ErrorMessage(99, 1, b"")) == "error type 99, code 1"
    body = struct.pack(">QIBBxxII", 0xABC, 0, 254, 0, 0x4F, 0)
    assert m.read_features(body) == (0xABC, 254, 0x4F)


def test_ports_of_both_versions():
    old = struct.pack(">I4x6s2x16sII24x", 3, b"abcdef", b"eth3", 0, 0) + struct.pack(
        ">I4x6s2x16sII24x", 4, b"abcdef", b"eth4", 0, 1
    )
    assert [(p.number, p.name, p.up) for p in m.read_ports(V13, old)] == [(3, "eth3", True), (4, "eth4", False)]
    ethernet = struct.pack(">HH4xIIIIII", 0, 32, 0, 0, 0, 0, 0, 0)
    new = struct.pack(">IH2x6s2x16sII", 5, 72, b"abcdef", b"eth5", 1, 0) + ethernet
    assert [(p.number, p.up) for p in m.read_ports(V14, new)] == [(5, False)]
    status = m.read_port_status(V14, b"\2" + bytes(7) + new)
    assert (status.reason, status.port.name) == (2, "eth5")
    # os-ken agrees about both.
    for version, data in ((V13, old[:64]), (V14, new)):
        port = oracle(version).ofproto_parser.OFPPort.parser(data, 0)
        assert port.port_no == m.read_ports(version, data)[0].number
        assert port.name == m.read_ports(version, data)[0].name.encode()


@versions
def test_packet_in(version):
    parser = oracle(version).ofproto_parser
    match = parser.OFPMatch(in_port=9)
    buffer = bytearray()
    size = match.serialize(buffer, 0)
    body = struct.pack(">IHBBQ", 0xFFFFFFFF, 4, 0, 1, 77) + bytes(buffer[:size]) + b"\0\0data"
    again = parser.OFPPacketIn.parser(
        oracle(version), version, 10, 8 + len(body), 1, bytearray(m.message(version, Type.PACKET_IN, 1, body))
    )
    assert (again.match["in_port"], bytes(again.data)) == (9, b"data")
    assert m.read_packet_in(body) == (9, 1, 77, b"data")


def test_statistics_against_os_ken():
    tables = struct.pack(">B3xIQQ", 0, 5, 1, 1) + struct.pack(">B3xIQQ", 1, 9, 1, 1)
    assert statistics.read_tables(tables) == {0: 5, 1: 9}
    row = oracle(V13).ofproto_parser.OFPTableStats.parser(tables, 24)
    assert (row.table_id, row.active_count) == (1, 9)
    old = struct.pack(">I4xQQQQQQQQQQQQII", 2, 10, 20, 100, 200, 1, (1 << 64) - 1, 0, 0, 0, 0, 0, 0, 1, 2)
    assert list(statistics.read_port_statistics(V13, old)) == [(2, 10, 20, 100, 200, 1)]
    assert oracle(V13).ofproto_parser.OFPPortStats.parser(old, 0).tx_packets == 20
    new = struct.pack(">H2xIIIQQQQQQQQ", 80, 2, 0, 0, 10, 20, 100, 200, 1, 2, 0, 0)
    assert list(statistics.read_port_statistics(V14, new)) == [(2, 10, 20, 100, 200, 3)]
    assert oracle(V14).ofproto_parser.OFPPortStats.parser(new, 0).rx_bytes == 100
    group = struct.pack(">H2xII4xQQII", 40, 1024, 1, 6, 60, 0, 0)
    assert statistics.read_groups(group) == {1024: (6, 60)}
    assert oracle(V13).ofproto_parser.OFPGroupStats.parser(group, 0).packet_count == 6
    limit = struct.pack(">HB5x32sQQII", 64, 1, b"content", 0, 0, 0, 65)
    assert statistics.read_limits(limit) == {1: 65}
    assert statistics.read_group_numbers(struct.pack(">HBxI", 8, 0, 1024)) == [1024]


# -- nonsense --------------------------------------------------------------------------------------


READERS = [
    m.read_error,
    m.read_features,
    m.read_packet_in,
    lambda b: m.read_ports(V13, b),
    lambda b: m.read_ports(V14, b),
    lambda b: m.read_port_status(V14, b),
    lambda b: m.read_bundle(V13, m.Message(V13, 4, 1, b)),
    lambda b: m.read_bundle(V14, m.Message(V14, 33, 1, b)),
    lambda b: m.read_hello(m.Message(V14, 0, 1, b)),
    lambda b: list(statistics.read_flows(b)),
    lambda b: list(statistics.read_port_statistics(V13, b)),
    lambda b: list(statistics.read_port_statistics(V14, b)),
    statistics.read_tables,
    statistics.read_groups,
    statistics.read_limits,
    statistics.read_group_numbers,
    oxm.read_fields,
    oxm.read_actions,
    oxm.read_instructions,
    lambda b: oxm.read_match(b, 0),
]


@given(st.binary(max_size=300))
def test_readers_survive_anything(data):
    for reader in READERS:
        with contextlib.suppress(CodecError):
            reader(data)


@given(flow=flows(), at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_readers_survive_damage(flow, at, byte, cut):
    """Nearly right bytes get further than random ones."""
    data = translator(V14).encode(Add(flow), 1)[48:]
    entry = bytearray(struct.pack(">HBxIIHHHH4xQQQ", 48 + len(data), 1, 0, 0, 5, 0, 0, 0, 0, 1, 2) + data)
    if at < len(entry):
        entry[at] = byte
    for damaged in (bytes(entry), bytes(entry[:cut])):
        with contextlib.suppress(CodecError):
            for found in statistics.read_flows(damaged):
                translator(V14).decode(found)


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 40), max_size=20))
def test_framing_does_not_depend_on_pieces(bodies, cuts):
    stream = b"".join(m.message(V14, 2, i, body) for i, body in enumerate(bodies))
    framer, found, at = m.Framer(), [], 0
    for cut in [*cuts, len(stream)]:
        found += framer.feed(stream[at : at + cut])
        at += cut
    assert [message.body for message in found] == bodies
    assert framer.waiting == 0


def test_framing_refuses_nonsense():
    with pytest.raises(CodecError):
        list(m.Framer().feed(b"\5\0\0\7\0\0\0\1"))
    with pytest.raises(CodecError):
        m.message(V14, 2, 1, bytes(0x10000))
    with pytest.raises(CodecError):
        m.packet_out(V14, 1, CONTROLLER, b"", bytes(0xFFFF))


def test_top_priority_fits():
    assert read(translator(V14).encode(Add(Flow(Match(1, ROOT), frozenset({1}), TOP_PRIORITY)), 1)).priority == 1001


def test_entries_follow_the_declared_rules():
    priorities = [(rule.table, *rule.priorities) for rule in RULES.values()]
    for i, (table, low, high) in enumerate(priorities):
        assert all(table != t or high < a or b < low for t, a, b in priorities[i + 1 :])
    link = RULES["link"]
    fields = dict.fromkeys(link.fields, (0, None))
    assert link.checked(10, fields) is fields
    with pytest.raises(InvalidInput, match="priority"):
        link.checked(11, fields)
    with pytest.raises(InvalidInput, match="IN_PORT"):
        link.checked(10, {**fields, Oxm.UDP_SRC: (1, None)})
    with pytest.raises(InvalidInput, match="IN_PORT"):
        link.checked(10, {})
