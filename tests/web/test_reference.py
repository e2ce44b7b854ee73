"""The reference of HTTP says what there is."""

import re
from pathlib import Path

import msgspec
import pytest

from sievenet.config import WebConfig
from sievenet.web.routes import ROUTES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")


def rows():
    """The rows of the table of requests, as the page should have them."""
    for route in ROUTES:
        role = "anybody" if route.role is None else route.role.value
        yield f"| `{route.method} {route.path}` | {role} | {route.about} |"


def test_the_table_of_requests_is_the_servers():
    found = [line for line in PAGE.splitlines() if re.match(r"\| `(GET|POST) ", line)]
    assert found == list(rows())


@pytest.mark.parametrize("field", msgspec.structs.fields(WebConfig), ids=lambda field: field.name)
def test_every_setting_is_there(field):
    default = "none" if field.default is None else str(field.default)
    assert re.search(rf"^\| `{field.name}` \| {re.escape(default)} \| \S", PAGE, re.MULTILINE), field.name
