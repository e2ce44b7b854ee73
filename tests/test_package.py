"""The top of the package: names are looked up when asked for, and only those that are promised."""

import re
import subprocess
import sys

import pytest

import sievenet


def test_every_promised_name_has_a_home():
    assert set(sievenet._HOMES) | {"__version__"} == set(sievenet.__all__)
    assert set(sievenet.__all__) <= set(dir(sievenet))


def test_name_is_that_of_its_home():
    from sievenet.content import Filter

    assert sievenet.Filter is Filter
    # The second time it is a plain attribute.
    assert vars(sievenet)["Filter"] is Filter


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'sievenet' has no attribute 'Philtre'"):
        sievenet.Philtre  # noqa: B018


def test_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", sievenet.__version__)


def test_parts_are_loaded_on_demand():
    program = "import sys, sievenet; before = 'sievenet.content' in sys.modules; sievenet.Schema; print(before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
