"""A fabric whose members are known, for tests: an access folder, logins, and a daemon that speaks TLS."""

from __future__ import annotations

import contextlib
import datetime

import sievenet
from sievenet.access.folder import Folder
from sievenet.access.identity import Role
from tests.fabric.harness import fabric

RULES = """
[members.alice]
role = "client"
rules = ["publish reading: x < 500", "subscribe reading: any"]
[members.bob]
role = "client"
rules = ["subscribe reading: x < 100", 'subscribe reading: kind = "hot" narrow', "publish *: any"]
[members.carol]
role = "client"
[members.olga]
role = "operator"
rules = ["publish *: any", "subscribe *: any"]
[members.eye]
role = "observer"
"""


def now():
    return datetime.datetime.now(datetime.UTC)


def folder(path, rules=RULES):
    """An access folder with a daemon and everybody in the rules; tokens for all, a certificate for alice too."""
    made = Folder(path / "access")
    made.make(10, now())
    members = made.path / "members.toml"
    members.write_text(members.read_text() + rules)
    made.certificate("daemon", Role.COMPONENT, 10, now())
    for name in made.keyring().members.by_name:
        if name != "daemon" and made.keyring().members.get(name).role is not Role.COMPONENT:
            made.token(name, None)
    return made


@contextlib.asynccontextmanager
async def guarded(access, **changes):
    """A daemon that knows its members."""
    async with fabric(access__folder=str(access.path), **changes) as daemon:
        yield daemon


def join(daemon, access, member, **settings):
    """A node of a member, by its login."""
    return sievenet.connect(daemon.url, login=access.login(member), **settings)
