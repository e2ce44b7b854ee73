"""Where filters sit in a router's tables, and why they were or were not forwarded, from text."""

from __future__ import annotations

from typing import Any

from sievenet.content.parser import parse_subscription
from sievenet.routers.core import Router

__all__ = ["explain"]


def explain(router: Router, text: str) -> list[dict[str, Any]]:
    """`Router.explain` of each filter of a text; its schema is known here, or it is schemaless."""
    name, colon, _ = text.partition(":")
    category, schema = router.catalogue.named(name.strip()) if colon else (0, None)
    wanted = parse_subscription(text, None if schema is None else {schema.name: schema})
    return [router.explain(category, each) for each in wanted.filters]
