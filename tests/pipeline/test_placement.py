"""Placement of caches on Spark gives what one process gives, and a page with a picture."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from sievenet.cli import main
from sievenet.network import parse_topology
from sievenet.pipeline.placement import place, place_alone

pytestmark = pytest.mark.spark


def test_spark_and_one_process_agree(spark):
    topology = parse_topology("testbed")
    alone = place_alone(topology, 900, 7, 1000.0, 5000.0)
    spread = place(spark, topology, 900, 7, 1000.0, 5000.0)
    assert alone.states == spread.states == 900
    assert np.allclose(alone.sums, spread.sums)
    assert np.allclose(alone.traffic, spread.traffic)


def test_the_command_writes_a_page(spark, tmp_path):
    arguments = ["pipeline", "place", "fattree,k=4", "--states", "300", "--report", str(tmp_path), "--json"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    positions = json.loads(result.stdout)["positions"]
    scores = [row["score"] for row in positions]
    assert len(positions) == 20
    assert scores == sorted(scores, reverse=True)
    assert "fill-opacity" in (tmp_path / "network.svg").read_text()
    for wrong in ("1,2", "0,0,0,0,0", "1,1,1,1,-1", "1,1,1,1,x"):
        refused = CliRunner().invoke(main, [*arguments, "--weights", wrong])
        assert (refused.exit_code, "none below 0 and not all 0" in refused.stderr) == (2, True)
