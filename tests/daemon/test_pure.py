"""Pure parts of the daemon: tickets, adoption of plans, reports, configuration."""

import asyncio
import os
import stat

import pytest

from sievenet.config import Config, DataConfig, load_config
from sievenet.control.config import ControlConfig
from sievenet.control.protocol import Report
from sievenet.daemon.adoption import Adoption
from sievenet.daemon.custody import Custody
from sievenet.daemon.daemon import Daemon
from sievenet.daemon.orders import Orders
from sievenet.daemon.reports import Reports
from sievenet.daemon.ticket import Tickets
from sievenet.errors import InvalidInput, Unavailable


def test_a_ticket_is_good_for_its_name_alone_and_after_a_restart(tmp_path):
    ticket = Tickets.load(tmp_path / "state").issue("ann")
    again = Tickets.load(tmp_path / "state")
    assert again.valid("ann", ticket)
    assert not again.valid("bob", ticket)
    assert not again.valid("ann", ticket[:-1] + bytes([ticket[-1] ^ 1]))
    for bad in (b"", b"x" * 8, ticket[:20], ticket + b"x"):
        assert not again.valid("ann", bad)
    assert not Tickets().valid("ann", ticket)
    mode = stat.S_IMODE(os.stat(tmp_path / "state" / "key").st_mode)
    assert mode == 0o600


def test_a_damaged_key_and_an_unusable_folder_are_told(tmp_path):
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(Unavailable, match=r"Expected 32 bytes in the key file .*, got 5"):
        Tickets.load(tmp_path)
    assert (tmp_path / "key").read_bytes() == b"short"
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="state directory"):
        Tickets.load(tmp_path / "file")


def test_a_change_is_complete_when_all_have_adopted_or_gone():
    adoption, done = Adoption(), []
    adoption.adopted("early", 1, 5)
    adoption.begin(1, 5, ["early", "a", "b", "c"], lambda: done.append("first"))
    adoption.adopted("a", 1, 4)  # an older plan
    adoption.adopted("b", 2, 9)  # another category
    adoption.adopted("a", 1, 6)  # a newer plan will do
    adoption.gone("b")
    assert done == []
    adoption.adopted("c", 1, 5)
    assert done == ["first"]
    adoption.begin(1, 6, ["c"], lambda: done.append("second"))
    adoption.gone("c")
    assert done == ["first", "second"]
    adoption.begin(1, 7, [], lambda: done.append("third"))
    assert done[-1] == "third"
    waiting = adoption.begin(1, 8, ["x"], lambda: done.append("never"))
    adoption.abandon(waiting)
    adoption.gone("x")
    assert "never" not in done


def test_a_client_that_left_and_came_back_has_adopted_nothing():
    adoption, done = Adoption(), []
    adoption.adopted("a", 1, 5)
    adoption.gone("a")
    adoption.begin(1, 5, ["a"], lambda: done.append(1))
    assert done == []


def test_reports_add_up_and_outlive_their_clients():
    reports = Reports()
    reports.add("a", Report(received=10, delivered=6, false_positives=4, latency_p50=0.1, latency_p99=0.3))
    reports.add("a", Report(received=5, delivered=5, duplicates=1))
    reports.add("b", Report(published=7, latency_p50=0.2, latency_p99=0.2))
    assert reports.of("a").received == 15
    assert reports.of("a").latency_p50 == 0.1
    assert reports.of("nobody") == Report()
    totals = reports.totals()
    assert (totals.received, totals.delivered, totals.published) == (15, 11, 7)
    assert (totals.latency_p50, totals.latency_p99) == (0.2, 0.3)
    assert totals.per_host == pytest.approx(5 / 15)
    reports.forget("a")
    reports.forget("a")
    assert reports.totals().received == 15
    assert reports.totals().latency_p99 == 0.2
    assert Reports().totals().per_host == 0.0


def test_configuration_comes_from_defaults_file_and_changes(tmp_path):
    assert load_config() == Config()
    path = tmp_path / "sievenet.toml"
    path.write_text('topology = "ring,switches=4"\n[listen]\nport = 1\n[links]\ndelay = 0.5\n[control]\nlease = 3.0\n')
    found = load_config(path, listen__port=2, state=None)
    assert (found.topology, found.listen.port, found.links.delay, found.control.lease) == (
        "ring,switches=4",
        2,
        0.5,
        3.0,
    )
    assert found.data == Config().data


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "prot"),
        ("[listen]\nprot = 1", "listen"),
        ("[listen]\nport = 70000", "listen.port"),
        ('[listen]\nport = "x"', "int"),
        ("[links]\nloss = 2.0", "probability"),
        ("[control]\nlease = -1.0", "lease"),
        ("= 1", "TOML"),
    ],
)
def test_wrong_settings_are_named(tmp_path, text, told):
    path = tmp_path / "sievenet.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=told):
        load_config(path)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InvalidInput, match="readable"):
        load_config(tmp_path / "none.toml")


def test_nobody_is_told_what_to_forget_of_a_category_that_has_just_gone_back():
    said = []
    custody = Custody(Orders(lambda client, message: said.append(message) or True), lambda number: ["publisher"])
    asyncio.run(custody.renew(1, passed=5.0))
    assert not said


def test_limits_of_switches_that_do_not_exist_are_told():
    async def main() -> None:
        control = ControlConfig(capacities={"s1": 20, "s99": 20})
        async with Daemon(Config(data=DataConfig(port=0), control=control)):
            pass

    with pytest.raises(InvalidInput, match=r"s1, .*s99.*control\.capacities"):
        asyncio.run(main())
