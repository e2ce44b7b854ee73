"""Files that are written line by line have whole lines only, whatever the disk does."""

import contextlib
import json
import resource

import pytest

from sievenet.access.audit import AuditLog
from sievenet.control.aside import Aside, keep_aside, read_aside
from sievenet.errors import Unavailable


@contextlib.contextmanager
def full_at(size):
    """No file can grow beyond so many bytes: as on a full disk, a part of what is written is taken."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_after_a_full_disk_every_line_of_the_audit_log_is_a_record(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    with full_at(1000):
        for number in range(20):
            log.write(0.0, "alice", "client", "", "Subscribe", f"number {number}")
    kept = len(path.read_text().splitlines())
    assert 0 < kept < 20
    log.write(0.0, "alice", "client", "", "Subscribe", "there is room again")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["about"] for each in found] == [*(f"number {i}" for i in range(kept)), "there is room again"]
    assert found[-1]["missing_before"] == 20 - kept
    # What a crash has cut is a line of its own.
    path.write_bytes(path.read_bytes()[:-10])
    log.write(0.0, "bob", "client", "", "Subscribe")
    assert json.loads(path.read_text().splitlines()[-1])["who"] == "bob"


def test_records_that_do_not_fit_beside_the_journal_leave_no_half_line(tmp_path):
    path = tmp_path / "aside"
    keep_aside(path, [Aside(b"one", "why")])
    with full_at(path.stat().st_size + 20), pytest.raises(Unavailable, match="cannot be set aside"):
        keep_aside(path, [Aside(b"two", "why")])
    keep_aside(path, [Aside(b"two", "why")])
    assert [each.record for each in read_aside(path)] == [b"one", b"two"]
