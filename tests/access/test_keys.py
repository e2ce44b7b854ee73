"""Members, tokens, certificates and the gate; and the commands that make them."""

import datetime
import json
import re
import ssl
import stat

import pytest
from click.testing import CliRunner

from sievenet.access.audit import AuditLog
from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.folder import Folder, Watched
from sievenet.access.gate import Keyring, MemberGate, member_of
from sievenet.access.identity import Credentials, Role
from sievenet.access.login import load_login
from sievenet.access.members import read_members
from sievenet.access.token import new_token, read_tokens
from sievenet.cli import main as command
from sievenet.errors import InvalidInput, Rejected
from tests.fabric.harness import fabric, run

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
MEMBERS = """
[quota]
requests = 50
[groups.traders]
rules = ["subscribe stock: any"]
[members.alice]
role = "client"
groups = ["traders"]
rules = ['publish stock: symbol = "IBM"']
quota = { events = 10 }
[members.olga]
role = "operator"
[members.eye]
role = "observer"
[members.r1]
role = "component"
"""


def certificate(name="alice", serial="0A", until="Jan  1 00:00:00 2031 GMT"):
    return {"subject": ((("commonName", name),),), "serialNumber": serial, "notAfter": until}


def gate(*tokens, revoked=()):
    keyring = Keyring(read_members(MEMBERS), tokens, frozenset(revoked))
    return MemberGate(keyring, NOW.timestamp)


# -- members --------------------------------------------------------------------------------


def test_members_have_roles_rules_and_quotas():
    members = read_members(MEMBERS)
    alice = members.get("alice")
    assert alice.role is Role.CLIENT
    assert [str(rule) for rule in alice.permissions.rules] == ['publish stock: symbol = "IBM"', "subscribe stock: any"]
    assert (alice.quota.events, alice.quota.requests) == (10, 50)
    assert members.get("bob") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "TOML"),
        ("\n", "an empty file"),
        ("[members.a]", "role"),
        ('[members.a]\nrole = "king"', "king"),
        ('[members."a.b"]\nrole = "client"', "a name of letters"),
        ('[members.a]\nrole = "client"\ngroups = ["g"]', "a group"),
        ('[members.a]\nrole = "client"\nrules = ["publish"]', "members.a"),
        ('[members.a]\nrole = "client"\nquota = { speed = 1 }', "speed"),
        ('[members.a]\nrole = "client"\nquota = { events = -1 }', "events"),
        ('[members.a]\nrole = "observer"\nrules = ["publish *: any"]', "observers neither publish"),
        ("[memberz]", "memberz"),
    ],
)
def test_members_that_make_no_sense_are_told(text, said):
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_members(text)


# -- tokens ---------------------------------------------------------------------------------


def test_a_token_is_kept_as_a_salted_hash():
    token, kept = new_token("alice")
    again, other = new_token("alice")
    assert token != again
    assert kept.salt != other.salt
    secret = token.partition(".")[2]
    assert secret not in kept.line()
    assert len(secret) >= 43
    assert read_tokens(f"# a comment\n\n{kept.line()}\n") == (kept,)
    assert kept.proves(token)
    assert not kept.proves(token[:-1])
    assert not kept.proves("")
    assert "secret" not in repr(load_login.__doc__)


@pytest.mark.parametrize(
    "line", ["alice", "alice 00 11 -", "a.b 00 11 -", "alice zz zz -", "alice " + "0" * 32 + " 00 -"]
)
def test_a_line_that_is_no_token_is_told(line):
    with pytest.raises(InvalidInput, match="tokens:1"):
        read_tokens(line)


# -- the gate -------------------------------------------------------------------------------


def test_a_token_proves_its_name():
    token, kept = new_token("alice")
    known = gate(kept).admit(Credentials(Role.CLIENT, "alice", token, encrypted=True))
    assert (known.name, known.role, known.quota.events) == ("alice", Role.CLIENT, 10)
    assert gate(kept).keyring.stands(known.proof, NOW.timestamp())
    assert not gate().keyring.stands(known.proof, NOW.timestamp())


def test_a_certificate_proves_its_name():
    known = gate().admit(Credentials(Role.CLIENT, "alice.2", certificate=certificate(), encrypted=True))
    assert known.name == "alice"
    assert gate().keyring.stands(known.proof, NOW.timestamp())
    assert not gate(revoked={10}).keyring.stands(known.proof, NOW.timestamp())
    assert not gate().keyring.stands(known.proof, NOW.timestamp() + 3e8)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({}, "Expected a certificate or a token"),
        ({"token": "alice.wrong"}, "alice.… does not count"),
        ({"token": "nobody.wrong"}, "nobody.… does not count"),
        ({"token": "no dot"}, "token … does not count"),
        ({"certificate": certificate("mallory")}, "names mallory: no member"),
        ({"certificate": certificate(serial="FF")}, "revoked"),
        ({"certificate": certificate(until="Jan  1 00:00:00 2029 GMT")}, "expired"),
        ({"certificate": certificate("olga"), "token": "GOOD"}, "two members"),
        ({"token": "GOOD", "role": Role.OPERATOR}, "alice is a client and may not be an operator"),
        (
            {"token": "GOOD", "role": Role.COMPONENT},
            "certificate FOLDER NAME --role component` makes a login",
        ),
        ({"token": "GOOD", "name": "bob"}, "may be called alice or alice.anything"),
        ({"token": "GOOD", "name": "alicette"}, "may be called alice"),
        ({"token": "GOOD", "encrypted": False}, "in the clear"),
        ({"token": "OLD"}, "does not count"),
        ({"certificate": certificate("r1"), "role": Role.CLIENT}, "component and may not be a client"),
        ({"certificate": certificate("r1"), "role": Role.COMPONENT, "name": "r2"}, "may be called r1"),
        ({"certificate": certificate("eye"), "role": Role.CLIENT}, "observer and may not be a client"),
    ],
)
def test_who_is_not_welcome_is_told_why_and_no_secret(shown, said):
    good, kept = new_token("alice")
    old, expired = new_token("alice", datetime.date(2029, 12, 31))
    shown = {"role": Role.CLIENT, "encrypted": True, **shown}
    shown["token"] = {"GOOD": good, "OLD": old}.get(shown.get("token"), shown.get("token", ""))
    with pytest.raises(Rejected, match=re.escape(said)) as told:
        gate(kept, expired, revoked={255}).admit(Credentials(**shown))
    assert good.partition(".")[2] not in str(told.value)


def test_a_token_counts_on_its_last_day():
    token, kept = new_token("alice", datetime.date(2030, 1, 1))
    assert gate(kept).admit(Credentials(Role.CLIENT, None, token, encrypted=True)).name == "alice"


def test_members_of_clients():
    assert [member_of(name) for name in ("alice", "alice.x.y", ".", "node-1")] == ["alice", "alice", "", "node-1"]


# -- the folder and its commands ------------------------------------------------------------


def sievenet(*words, code=0):
    found = CliRunner().invoke(command, ["keys", *map(str, words)])
    assert found.exit_code == code, found.output
    return found.output


def test_one_command_each(tmp_path):
    folder = tmp_path / "access"
    sievenet("authority", folder)
    sievenet("certificate", folder, "daemon", "--role", "component", "--address", "10.1.2.3")
    sievenet("certificate", folder, "alice", "--role", "client")
    sievenet("token", folder, "bob", "--role", "observer", "--days", 30)
    shown = json.loads(sievenet("members", folder, "--json"))
    assert [(each["name"], each["role"], each["tokens"], len(each["certificates"])) for each in shown] == [
        ("daemon", "component", 0, 1),
        ("alice", "client", 0, 1),
        ("bob", "observer", 1, 0),
    ]
    assert "alice  client" in sievenet("members", folder)
    for path in folder.iterdir():
        assert path.name == "authority.pem" or stat.S_IMODE(path.stat().st_mode) == 0o600
    login = load_login(folder / "bob.login")
    assert login.token
    assert login.token.partition(".")[2] not in repr(login)
    assert login.token not in (folder / "tokens").read_text()
    with pytest.raises(InvalidInput, match="login with a certificate"):
        login.listening()
    context = load_login(folder / "daemon.login").listening()
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert load_login(folder / "alice.login").dialling().check_hostname


def test_mistakes_are_told(tmp_path):
    folder = tmp_path / "access"
    assert "an access folder" in sievenet("members", folder, code=2)
    assert "an access folder" in sievenet("token", folder, "a", "--role", "client", code=2)
    sievenet("authority", folder)
    assert "nobody yet" in sievenet("members", folder)
    assert "authority already" in sievenet("authority", folder, code=2)
    assert "Expected --role (observer, client, operator, component), got none: `a` is no member yet" in sievenet(
        "token", folder, "a", code=2
    )
    # A router or a daemon whose name is no member, or whose login is elsewhere.
    found = CliRunner().invoke(command, ["router", "--listen", "127.0.0.1:0", "--name", "r", "--access", str(folder)])
    assert found.exit_code == 2
    assert f"`sievenet keys certificate {folder} r --role component` makes it" in found.stderr
    with pytest.raises(InvalidInput, match=r"Expected the login of daemon, got no file .*keys certificate"):
        Doorkeeper(Folder(folder))
    sievenet("token", folder, "a", "--role", "client")
    assert "with the role client" in sievenet("token", folder, "a", "--role", "operator", code=2)
    assert "a name of letters" in sievenet("token", folder, "a.b", "--role", "client", code=2)
    assert "needs a certificate" in sievenet("token", folder, "r", "--role", "component", code=2)
    assert "an IP address or a host name" in sievenet(
        "certificate", folder, "d", "--role", "component", "--address", "ö" * 300, code=2
    )
    assert "a member of" in sievenet("revoke", folder, "b", code=2)
    assert "0 tokens" not in sievenet("revoke", folder, "a")
    # What failed has left nobody behind.
    assert {each["name"] for each in json.loads(sievenet("members", folder, "--json"))} == {"a"}
    (folder / "tokens").chmod(0o644)
    assert "chmod 600" in sievenet("members", folder, code=2)


def test_a_login_that_others_can_read_is_refused(tmp_path):
    folder = tmp_path / "access"
    sievenet("authority", folder)
    sievenet("token", folder, "a", "--role", "client")
    (folder / "a.login").chmod(0o640)
    with pytest.raises(InvalidInput, match="chmod 600"):
        load_login(folder / "a.login")
    (folder / "a.login").chmod(0o600)
    (folder / "a.login").write_text("name = 3")
    with pytest.raises(InvalidInput, match="Expected a login"):
        load_login(folder / "a.login")


def test_rotation_old_and_new_count_until_the_old_is_revoked(tmp_path):
    folder = Folder(tmp_path / "access")
    folder.make(10, NOW)
    watched = Watched(folder)
    assert not watched.look()

    def counts(token):
        watched.look()
        return watched.keyring.token(token, NOW.timestamp()) is not None

    first = load_login(folder.token("a", Role.CLIENT)).token
    second = load_login(folder.token("a", None)).token
    assert counts(first)
    assert counts(second)
    assert folder.revoke("a", keep_newest=True) == (1, 0)
    assert not counts(first)
    assert counts(second)
    folder.certificate("a", None, 3, NOW)
    folder.certificate("a", None, 3, NOW)
    assert folder.revoke("a", keep_newest=True) == (0, 1)
    assert folder.revoke("a") == (1, 1)
    assert folder.revoke("a") == (0, 0)
    assert not counts(second)


def test_files_that_make_no_sense_leave_the_old_ones_in_force(tmp_path):
    folder = Folder(tmp_path / "access")
    folder.make(10, NOW)
    token = load_login(folder.token("a", Role.CLIENT)).token
    watched = Watched(folder)
    members = folder.path / "members.toml"
    good = members.read_text()
    members.write_text(good + "nonsense")
    assert not watched.look()
    assert "TOML" in watched.error
    assert watched.keyring.token(token, NOW.timestamp()) is not None
    members.write_text(good + "\n")
    assert watched.look()
    assert watched.error == ""


# -- the audit log --------------------------------------------------------------------------


def test_the_audit_log_is_lines_of_json(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write(0.0, "alice", "client", "10.0.0.7", "Subscribe", "stock: any\nforged: line")
    [line] = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000Z",
        "who": "alice",
        "role": "client",
        "from": "10.0.0.7",
        "what": "Subscribe",
        "about": "stock: any\nforged: line",
        "outcome": "done",
    }
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_refusals_fill_no_disk_and_are_counted(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    for _ in range(1000):
        log.write(5.0, "mallory", "none", "10.6.6.6", "Hello", outcome="refused")
        log.write(5.0, "alice", "client", "", "Subscribe")
    log.write(9.0, "mallory", "none", "10.6.6.6", "Hello", outcome="refused")
    found = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert sum(each["who"] == "mallory" for each in found) == 11
    assert found[-1]["refused_before"] == 990
    assert sum(each["who"] == "alice" for each in found) == 1000


def test_an_audit_log_where_no_file_can_be_is_refused_at_the_start(tmp_path):
    async def test():
        for path in (tmp_path / "none" / "audit.jsonl", tmp_path):
            with pytest.raises(InvalidInput, match=r"a file in a folder that exists.*audit log"):
                async with fabric(access__audit=str(path)):
                    pass

    run(test())


def test_a_log_that_cannot_be_written_is_told_once_and_counted(tmp_path, caplog):
    path = tmp_path / "gone" / "audit.jsonl"
    log = AuditLog(path)
    for _ in range(3):
        log.write(0.0, "alice", "client", "", "Subscribe")
    assert len(caplog.records) == 1
    path.parent.mkdir()
    log.write(0.0, "alice", "client", "", "Subscribe")
    assert json.loads(path.read_text())["missing_before"] == 3


def test_whether_a_name_has_a_login_is_known_without_looking_at_all_that_were_issued():
    day, looks = datetime.timedelta(days=1), []

    class Issued(tuple):
        __slots__ = ()

        def __iter__(self):
            looks.append(True)
            return super().__iter__()

    today = NOW.date()
    issued = Issued(
        (
            ("alice", 1, today - day),
            ("alice", 2, today),
            ("alice", 3, today + day),
            ("bob", 4, today - day),
            ("olga", 5, today + day),
        )
    )
    keyring = Keyring(read_members(MEMBERS), (), frozenset({3, 5}), issued)
    at = [(NOW + n * day).timestamp() for n in (-1, 0, 1)]
    assert [keyring.has_login("alice", now) for now in at] == [True, True, False]
    assert [keyring.has_login("bob", now) for now in at] == [True, False, False]
    assert not any(keyring.has_login(name, now) for name in ("olga", "nobody") for now in at)
    assert len(looks) <= 1
