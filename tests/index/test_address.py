"""Addresses: layout, round trips, refusals."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.openflow.numbers import Oxm
from sievenet.dataplane.openflow.translation import Translator
from sievenet.errors import CodecError, PlanError
from sievenet.index import Cell, Dz
from sievenet.index.address import IPV4, IPV6, IPV6_MULTICAST, Addressing, Head, ipv4
from sievenet.network.flow import Flow, Match

SCHEMES = [IPV6, IPV6_MULTICAST, IPV4, ipv4(4)]


def dzs(bits):
    return st.integers(0, bits).flatmap(lambda n: st.builds(Dz, st.integers(0, (1 << n) - 1), st.just(n)))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@given(data=st.data())
def test_round_trips(scheme, data):
    category = data.draw(st.integers(0, (1 << scheme.category_bits) - 1))
    dz = data.draw(dzs(scheme.bits))
    address = scheme.address(category, dz)
    assert scheme.parse(str(address)) == (category, dz.interval(scheme.bits)[0])
    flow = scheme.flow(category, dz)
    assert address in flow
    assert scheme.parse_flow(str(flow)) == (category, dz)
    cell = Cell.parse(data.draw(st.text("01*", min_size=scheme.bits, max_size=scheme.bits)))
    assert scheme.parse_match(str(scheme.match(category, cell))) == (category, cell)
    value, mask = scheme.match(category, dz)
    assert int(value) == int(flow.network_address)
    assert int(mask) == int(flow.netmask)
    other = data.draw(dzs(scheme.bits))
    assert dz.covers(other) == scheme.flow(category, other).subnet_of(flow)


def test_the_layout():
    assert str(IPV6.address(0x2A, Dz.parse("1" * 16 + "0" * 15 + "1"))) == "fd0e:2a:ffff:1::"
    assert str(IPV6.flow(1, Dz.parse(""))) == "fd0e:1::/32"
    assert str(IPV6_MULTICAST.flow(1, Dz.parse("1"))) == "ff0e:1:8000::/33"
    assert IPV6.bits == 96
    assert IPV4.bits == 23
    assert ipv4(7).bits == 16
    assert str(IPV4.flow(0, Dz.parse("1" * 23))) == "239.255.255.255/32"
    assert ipaddress.ip_address(str(IPV4.address(0, Dz.parse("")))).is_multicast
    assert str(IPV6.match(1, Cell.parse("1*0"))) == "fd0e:1:8000::/ffff:ffff:a000::"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: IPV6.address(1 << 16, Dz.parse("")),
        lambda: IPV4.address(1, Dz.parse("")),
        lambda: IPV4.address(0, Dz.parse("0" * 24)),
        lambda: IPV4.match(0, Dz.parse("0" * 24)),
        lambda: IPV4.match(0, Cell.parse("0" * 24)),
        lambda: Addressing(ipaddress.IPv4Network("239.128.0.0/9"), 17),
    ],
)
def test_what_does_not_fit(attempt):
    with pytest.raises(PlanError):
        attempt()


@pytest.mark.parametrize("text", ["", "nonsense", "ff0f::1", "10.0.0.1", "fd0e::/999", "::", "fd0e:1::/8/9"])
def test_what_is_no_address(text):
    for parse in (IPV6.parse, IPV6.parse_flow, IPV6.parse_match):
        with pytest.raises(CodecError):
            parse(text)


def test_what_is_no_flow():
    for text in ("fd0e::/16", "fd0e:1::1/64"):
        with pytest.raises(CodecError):
            IPV6.parse_flow(text)
    for text in ("fd0e:1::/ffff::", "fd0e:1::1/ffff:ffff::", "fd0e:1::"):
        with pytest.raises(CodecError):
            IPV6.parse_match(text)


@pytest.mark.parametrize("entry", [Dz.parse(""), Dz.parse("1011"), Dz.parse("01" * 48), Cell.parse("1*0*")], ids=str)
def test_addresses_are_those_that_switches_match(entry):
    """What documents and `sievenet encode` show is what an OpenFlow switch is told."""
    flow = Flow(Match(7, entry), frozenset({1}), 5)
    value, mask = Translator(4)._fields(flow, *flow.match.bits)[Oxm.IPV6_DST]
    shown = IPV6.match(7, entry)
    assert (value, mask) == (int(shown.value), int(shown.mask))
    if isinstance(entry, Dz):
        assert Head.of(7, entry.code)[0] == int(IPV6.address(7, entry))


@given(st.text("01", max_size=112), st.integers(0, (1 << 128) - 1))
def test_codes_and_masks(text, code):
    dz = Dz.parse(text)
    value, mask = dz.masked
    assert (value, mask) == dz.cell(112).masked
    assert dz.code == value == dz.interval(128)[0]
    assert (code & mask == value) == (dz.interval(128)[0] <= code < dz.interval(128)[1])
