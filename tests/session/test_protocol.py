"""The tables of all protocols: what each role may send, and that nothing else passes."""

import msgspec
import pytest

from sievenet.access.identity import Credentials, OpenGate, Role, certified_names
from sievenet.control.protocol import CONTROL
from sievenet.errors import Rejected
from sievenet.routers.protocol import ROUTING
from sievenet.session.message import Alive, Failure, Goodbye

PROTOCOLS = {each.name: each for each in (CONTROL, ROUTING)}
RANK = [Role.OBSERVER, Role.CLIENT, Role.OPERATOR]


@pytest.fixture(params=sorted(PROTOCOLS))
def protocol(request):
    return PROTOCOLS[request.param]


def made(kind):
    """Any value of a class: its fields do not matter here."""
    return kind(**dict.fromkeys(kind.__struct_fields__))


def test_every_message_passes_for_those_who_may_send_it_and_nobody_else(protocol):
    for kind, least in protocol.taken.items():
        for role in Role:
            if least is None:
                allowed = True
            elif Role.COMPONENT in (role, least):
                allowed = role is least
            else:
                allowed = RANK.index(role) >= RANK.index(least)
            if allowed:
                protocol.check(role, made(kind))
            else:
                with pytest.raises(
                    Rejected, match=f"{least.value} to send {kind.__name__}, got it from an? {role.value}"
                ):
                    protocol.check(role, made(kind))


def test_nobody_says_hello_twice_or_what_is_not_in_the_table(protocol):
    class Other(msgspec.Struct, tag=True):
        pass

    for role in Role:
        for message in (protocol.hello(protocol.version), Other()):
            with pytest.raises(Rejected, match="second"):
                protocol.check(role, message)


def test_all_protocols_have_the_common_messages(protocol):
    assert {Alive, Goodbye} <= {*protocol.taken} & {*protocol.given}
    assert {Failure, protocol.welcome} <= {*protocol.given}
    assert protocol.listening().limit == protocol.max_hello < min(protocol.largest.values())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1"])
def test_everybody_on_this_machine_may_do_anything_if_nothing_is_configured(address):
    gate = OpenGate()
    assert gate.admit(Credentials(Role.CLIENT, address=address)).role is Role.OPERATOR
    assert gate.admit(Credentials(Role.OPERATOR, address=address)).role is Role.OPERATOR
    assert gate.admit(Credentials(Role.OBSERVER, address=address)).role is Role.OBSERVER


@pytest.mark.parametrize("address", ["10.0.0.1", "", "fe80::1", "nonsense"])
def test_others_change_no_plans(address):
    gate = OpenGate()
    assert gate.admit(Credentials(Role.CLIENT, address=address)).role is Role.CLIENT
    with pytest.raises(Rejected, match="own machine"):
        gate.admit(Credentials(Role.OPERATOR, address=address))


def test_names_of_a_certificate():
    assert certified_names(None) == certified_names({}) == frozenset()
    found = {
        "subject": ((("commonName", "a"),), (("countryName", "DE"),)),
        "subjectAltName": (("DNS", "b"), ("IP", "c")),
    }
    assert certified_names(found) == {"a", "b"}
