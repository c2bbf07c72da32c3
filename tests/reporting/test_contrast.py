"""Words of every page are readable, in light and in dark: WCAG 2.1, level AA, computed from the style sheets."""

from __future__ import annotations

import re

import pytest

from fiberscope.explorer.assets import asset
from fiberscope.reporting.page import STYLE

TEXT, PARTS = 4.5, 3.0
"""The least ratio of text to its background, and of what is no text: the ring around what has the focus."""

SHEETS = {"page": STYLE, "explorer": asset("explorer.css"), "explore": asset("live.css")}
GROUNDS = ("paper", "card", "fx-card")
NO_TEXT = ("line", "fx-line")


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``.

    >>> luminance("#ffffff"), luminance("#000000")
    (1.0, 0.0)
    """
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, two: str) -> float:
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def palettes(sheet: str) -> dict[str, dict[str, str]]:
    """The variables of a style sheet, by day and by night."""
    night = re.search(r"@media screen and \(prefers-color-scheme: dark\) *\{(.*?)\} *\}", sheet, re.DOTALL)
    assert night is not None
    read = {k: dict(re.findall(r"--([\w-]+): *(#[0-9a-f]{6})", text)) for k, text in
            {"light": sheet[: night.start()], "dark": night[1]}.items()}  # fmt: skip
    assert read["light"].keys() == read["dark"].keys()
    return read


def test_the_formula_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the known grey that just fails


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", SHEETS)
def test_text_stands_out_from_its_background(name, mode):
    colours = palettes(SHEETS[name])[mode]
    grounds = [colours[key] for key in GROUNDS if key in colours]
    assert grounds
    for key, colour in colours.items():
        if key not in GROUNDS and key not in NO_TEXT:
            for ground in grounds:
                assert contrast(colour, ground) >= TEXT, (key, colour, ground)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_focus_is_seen(mode):
    everywhere = "".join(SHEETS.values())
    rings = set(re.findall(r"focus-visible[^{]*\{ outline: 3px solid (#[0-9a-f]{6})", everywhere))
    assert rings
    for sheet in SHEETS.values():
        for key, ground in palettes(sheet)[mode].items():
            if key in GROUNDS:
                assert all(contrast(ring, ground) >= PARTS for ring in rings)
