"""Every protocol that speaks through the common conversation, held to the same contract."""

import asyncio
import random

import pytest

from sievenet.access.identity import Role
from sievenet.content import Attribute, Schema
from sievenet.control import protocol as control
from sievenet.dataplane.kernel import protocol as agents
from sievenet.routers import messages
from sievenet.routers import protocol as routers
from sievenet.testing.connection_contract import CONNECTED
from sievenet.testing.session_contract import PURE, Talk
from tests.seeds import seeds

INFO = control.CategoryInfo(1, Schema("t", (Attribute("x", "int", lo=0, hi=9),)), b"{}", 1)
TALKS = {
    "control": Talk(
        control.CONTROL,
        Role.CLIENT,
        control.PlanAdopted(1, 1),
        control.PlanChanged(INFO),
        lambda n: control.LookUp(n, "t"),
        lambda n: control.CategoryReply(n, INFO),
    ),
    "router clients": Talk(
        routers.ROUTING,
        Role.CLIENT,
        messages.Received(1),
        messages.Missed(3),
        lambda n: routers.LookUp(n, "t"),
        lambda n: routers.CategoryIs(n, 7, b"s"),
    ),
    "router neighbours": Talk(routers.ROUTING, Role.COMPONENT, messages.AskWhole(), messages.Missed(3)),
    "agents": Talk(agents.AGENTS, Role.COMPONENT, agents.Carrier(1, True, True), agents.Apply(1, ())),
}


@pytest.fixture(params=sorted(TALKS))
def talk(request):
    return TALKS[request.param]


@pytest.mark.parametrize("check", PURE, ids=lambda check: check.__name__)
@pytest.mark.parametrize("seed", seeds(2))
def test_the_pure_sides(talk, check, seed):
    check(talk, random.Random(seed))


@pytest.mark.parametrize("check", CONNECTED, ids=lambda check: check.__name__)
def test_over_connections(talk, check):
    asyncio.run(check(talk))
