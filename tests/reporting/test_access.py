"""Everybody can use the pages: every control has a name, is reached by the Tab key and shows it; print is legible."""

from __future__ import annotations

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.explorer.view import explore

STOPS = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')]
    .filter(x => x.tabIndex >= 0 && !x.disabled && x.type !== 'hidden' && x.checkVisibility())
    .map((x, k) => { x.dataset.stop = k; return x.outerHTML.slice(0, 120) })"""

FOCUSED = """() => { const x = document.activeElement, style = getComputedStyle(x);
    return [x.dataset.stop ?? '', style.outlineStyle !== 'none' || style.boxShadow !== 'none'] }"""

SPOKEN = {"image", "img", "Canvas"}
"""Roles of pictures, which need words."""


def nameless(page):
    """Controls and pictures that a screen reader has no words for, as the browser's own tree has them."""
    session = page.context.new_cdp_session(page)
    found = []
    for node in session.send("Accessibility.getFullAXTree")["nodes"]:
        role, name = (node.get(key, {}).get("value", "") for key in ("role", "name"))
        properties = {each["name"]: each["value"].get("value") for each in node.get("properties", [])}
        wanted = (properties.get("focusable") and role != "RootWebArea") or role in SPOKEN
        if not node.get("ignored") and wanted and not name.strip():
            found.append((role, properties))
    return found


def check(page):
    """Return the names of what the Tab key reaches, after every control was reached and showed that it was."""
    stops = page.evaluate(STOPS)
    assert nameless(page) == []
    page.evaluate("document.activeElement?.blur()")
    seen = {}
    for _ in range(2 * len(stops) + 2):
        page.keyboard.press("Tab")
        number, shown = page.evaluate(FOCUSED)
        seen[number] = shown
        if len(seen.keys() - {""}) == len(stops):
            break
    assert [text for k, text in enumerate(stops) if str(k) not in seen] == []
    assert [stops[int(k)] for k, shown in seen.items() if k and not shown] == []
    return stops


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    data = np.random.default_rng(0).normal(size=(12, 2))
    path = tmp_path_factory.mktemp("access") / "report.html"
    fs.report(fs.Network.random((2, 5, 4, 2), 0), path, data=data, labels=np.arange(12) % 2)
    return path


def test_every_control_of_a_report_is_named_and_reached(report, opened):
    stops = check(opened(report))
    assert sum("<button" in text for text in stops) >= 7  # a copy of every call, the whole picture, play


def test_copying_by_key_copies(report, opened):
    page = opened(report)
    page.focus(".call button")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.call button').textContent === 'copied'")


def test_paper_is_white_for_those_who_read_in_the_dark(report, opened):
    page = opened(report, color_scheme="dark")
    ink = "getComputedStyle(document.querySelector('{}')).color.match(/[0-9.]+/g).slice(0, 3).map(Number)"
    places = ("h1", "section p", "td", "pre", ".fx-panel")
    assert all(min(page.evaluate(ink.format(place))) > 120 for place in places)  # light letters on the screen
    page.emulate_media(media="print")
    assert all(max(page.evaluate(ink.format(place))) < 140 for place in places)  # dark ones on paper
    assert not page.is_visible(".call button")


def test_a_picture_in_space_is_named_and_reached(opened, tmp_path):
    explore(fs.regions(fs.Network.random((3, 4, 1), 0), fs.Box.cube(3))).save(tmp_path / "page.html")
    check(opened(tmp_path / "page.html"))


def until(page, condition):
    """The page forbids the evaluation of text, so that playwright cannot wait for a function there."""
    for _ in range(1200):
        if condition():
            return
        page.wait_for_timeout(50)
    pytest.fail("the page did not come to rest")


def test_every_control_of_the_live_page_is_named_and_reached(browser):
    pytest.importorskip("starlette")
    images = np.random.default_rng(0).uniform(size=(3, 8, 8))
    nets = (fs.Network.random((2, 3, 1), 0), fs.Network.random((2, 3, 1), 1), fs.Network.random((64, 4, 2), 0))
    with fs.explore(*nets, data=images, labels=np.arange(3), open_browser=False) as live:
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.goto(live.address)
        until(page, lambda: "identifiable" in page.inner_text("#facts"))
        for place, tab in ((0, "shape"), (0, "train"), (0, "compare"), (2, "slice")):
            page.click("#tab-shape")
            page.select_option("#model", str(place))
            until(page, lambda tab=tab: page.is_enabled(f"#tab-{tab}"))
            page.click(f"#tab-{tab}")
            until(page, lambda: page.inner_text("#state") == "")
            check(page)
        page.close()
