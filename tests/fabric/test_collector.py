"""How a daemon's process collects garbage."""

import gc

from sievenet.daemon.collector import collecting_seldom


def test_collecting_seldom_ends_with_what_was():
    before = gc.get_threshold()
    with collecting_seldom():
        assert gc.get_threshold() > before
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
