"""What is particular of the tables and of the sides: bounds, neighbours that dial, and who is let in."""

from pathlib import Path

import pytest

from sievenet.access.identity import Credentials, OpenGate, Role, certified_names
from sievenet.control import protocol as control
from sievenet.errors import CodecError, Rejected
from sievenet.routers import protocol as routers
from sievenet.session.callee import Callee
from sievenet.session.caller import Caller
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.message import Failure


@pytest.mark.parametrize("role", [Role.OBSERVER, Role.CLIENT, Role.OPERATOR])
@pytest.mark.parametrize(
    ("protocol", "large"),
    [
        (control.CONTROL, lambda n: control.ApplyPlan(n, "t", bytes(control.MAX_REQUEST))),
        (routers.ROUTING, lambda n: routers.Publish(1, 0, 0, bytes(routers.MAX_FRAME))),
    ],
    ids=["control", "router"],
)
def test_a_request_too_large_is_refused_before_it_is_sent(protocol, large, role):
    caller = Caller(protocol)
    caller.hello(protocol.hello(protocol.version, role))
    with pytest.raises(CodecError, match="at most"):
        caller.request(large)


def test_who_dialled_expects_a_welcome():
    protocol, limits = routers.ROUTING, Limits()
    welcome = protocol.welcome(protocol.version, "x")
    assert Callee(protocol, limits, 0.0, dialled=True).receive(frame(welcome), 1.0).greeting == welcome
    refused = Callee(protocol, limits, 0.0, dialled=True).receive(frame(Failure(0, "Rejected", "go away")), 1.0)
    assert isinstance(refused.end, Rejected)
    hello = frame(protocol.hello(protocol.version))
    assert isinstance(Callee(protocol, limits, 0.0, dialled=True).receive(hello, 1.0).end, CodecError)


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


def test_the_page_of_the_router_protocol_names_its_version():
    page = Path(__file__).parents[2] / "docs/reference/router-protocol.md"
    assert f"Version {routers.PROTOCOL};" in page.read_text()
