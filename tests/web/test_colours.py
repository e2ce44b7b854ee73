"""Text on the page can be read in light and dark: contrasts as WCAG 2 asks for."""

import re
from pathlib import Path

import pytest

import sievenet.web

STYLE = (Path(sievenet.web.__file__).parent / "page" / "style.css").read_text(encoding="utf-8")
#: What is written on what, and the least contrast: 4.5 for text, 3 for lines that mean something.
PAIRS = [
    ("ink", "card", 4.5),
    ("ink", "bg", 4.5),
    ("ink", "node", 4.5),
    ("soft", "card", 4.5),
    ("soft", "faint", 4.5),
    ("brand", "card", 4.5),
    ("brand-ink", "brand", 4.5),
    ("bad", "card", 4.5),
    ("good", "card", 4.5),
    ("warn", "card", 4.5),
    ("lit", "card", 3),
    ("busy", "card", 3),
]


def themes():
    blocks = re.findall(r"(:root[^{]*)\{([^}]*--bg[^}]*)\}", STYLE)
    return {selector.strip(): dict(re.findall(r"--([\w-]+): (#\w+)", body)) for selector, body in blocks}


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", themes().values(), ids=list(themes()))
def test_what_is_written_can_be_read(theme):
    for front, back, least in PAIRS:
        high, low = sorted((luminance(theme[front]), luminance(theme[back])), reverse=True)
        contrast = (high + 0.05) / (low + 0.05)
        assert contrast >= least, f"{front} on {back}: {contrast:.1f}"


def test_both_dark_themes_are_the_same():
    light, *dark = themes().values()
    assert len(dark) == 2
    assert dark[0] == dark[1] != light
