"""Logs of commands: who may read them."""

import logging
import stat

from sievenet.cli.logs import configure


def test_a_log_file_is_not_for_everybody_on_the_machine(tmp_path):
    path = tmp_path / "up.log"
    configure(level="info", file=str(path))
    logging.getLogger("sievenet.test").info("hello")
    assert "hello" in path.read_text()
    assert not stat.S_IMODE(path.stat().st_mode) & 0o007
