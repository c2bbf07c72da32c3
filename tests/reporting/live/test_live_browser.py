"""The live page in a real browser: every control is used, the server answers, the console is silent."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.reporting.live.shelf import small_network

SECONDS = 60


def until(condition):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < SECONDS, "the page did not come to rest"
        time.sleep(0.03)


@pytest.fixture(scope="module")
def live():
    pytest.importorskip("starlette")
    images = np.random.default_rng(0).uniform(size=(6, 8, 8))
    other = fs.permute(small_network(), [[1, 0], [4, 3, 2, 1, 0]])
    nets = [small_network(), other, fs.Network.random((64, 8, 3), 0)]
    with fs.explore(*nets, data=images, labels=np.arange(6) % 3, open_browser=False) as found:
        yield found


@pytest.fixture
def page(browser, live):
    said: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if not request.url.startswith(OWN) else None)
    page.goto(live.address)
    until(lambda: "identifiable" in page.inner_text("#facts"))
    yield page
    page.close()
    assert [text for text in said if not text.startswith(REFUSAL)] == []


OWN = ("http://127.0.0.1:", "data:", "ws://127.0.0.1:")
REFUSAL = "Failed to load resource: the server responded with a status of 400"  # the browser's own words


def at_rest(page):
    until(lambda: page.inner_text("#state") == "")


def place(page, root, x, y):
    """A point of a picture on the screen."""
    at = page.evaluate("([root, x, y]) => document.querySelector(root + ' .fx').explorer.screen(x, y)", [root, x, y])
    box = page.locator(f"{root} .fx-top").bounding_box()
    return box["x"] + at[0], box["y"] + at[1]


def numbers(page):
    return page.evaluate("[...document.querySelectorAll('#numbers input')].map((cell) => cell.value)")


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def test_lines_and_numbers_are_dragged(page):
    net = small_network()
    complex = fs.regions(net, fs.Box.cube(2))
    assert f"{complex.num_regions}\n" in page.inner_text("#facts")
    facets = complex.facets
    ends = complex.structure.boundary[0].indices.reshape(-1, 2)[facets.cell]
    lengths = np.linalg.norm(np.diff(complex.vertices[ends], axis=1)[:, 0], axis=1)
    row = int(np.where(facets.neuron == 0, lengths, 0).argmax())
    x, y = complex.vertices[ends[row]].mean(axis=0)
    before = numbers(page)
    start, end = place(page, "#shape-view", x, y), place(page, "#shape-view", x + 0.2, y + 0.1)
    drag(page, start, end)
    wanted = pytest.approx(-net.weights[0][0] @ [x + 0.2, y + 0.1], abs=0.02)
    until(lambda: float(numbers(page)[2]) == wanted)
    after = numbers(page)
    assert [k for k in range(len(before)) if before[k] != after[k]] == [2]  # the bias of neuron 0 alone
    page.check("#turn")
    drag(page, end, (end[0] + 30, end[1] - 30))
    until(lambda: numbers(page)[:2] != after[:2])
    page.click("#reset")
    until(lambda: numbers(page) == before)
    cell = page.locator("#numbers input").nth(0)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    drag(page, (box["x"] + 10, box["y"] + 8), (box["x"] + 10, box["y"] - 42))
    until(lambda: float(numbers(page)[0]) == pytest.approx(float(before[0]) + 0.5, abs=0.03))
    page.select_option("#reach", "4")
    until(lambda: page.evaluate("document.querySelector('#shape-view .fx').explorer.frame.high") == [4, 4])
    cell.fill("-2")
    until(lambda: page.evaluate("window.fiberscopePage.told.facts.weights[0][0][0]") == -2)


def test_corners_of_a_slice_are_dragged_painted_and_exchanged(page):
    page.select_option("#model", "2")
    until(lambda: "regions" in page.inner_text("#slice-facts"))
    at_rest(page)
    assert page.get_attribute("#tab-slice", "aria-selected") == "true"

    def shown():
        return page.evaluate("[...document.querySelectorAll('.corner')].map((canvas) => canvas.toDataURL())")

    seen = shown()
    start = place(page, "#slice-view", 1, 0)
    drag(page, start, (start[0] - 60, start[1] - 20))
    until(lambda: shown()[1] != seen[1])
    assert shown()[0] == seen[0]
    assert "moved" in page.inner_text("#corners")
    seen = shown()
    page.click("#corners button >> nth=0")
    until(lambda: shown()[0] != seen[0])
    seen = shown()
    box = page.locator(".corner").nth(2).bounding_box()
    drag(page, (box["x"] + 40, box["y"] + 40), (box["x"] + 70, box["y"] + 60))
    until(lambda: shown()[2] != seen[2])
    until(lambda: "painted" in page.inner_text("#corners"))
    page.click("#corners >> text=Begin again")
    until(lambda: "painted" not in page.inner_text("#corners"))


def test_a_training_is_watched_and_kept(page):
    pytest.importorskip("torch")
    page.click("#tab-train")
    page.fill("input[name=hidden]", "6")
    page.fill("input[name=epochs]", "12")
    page.select_option("select[name=data]", "rings")
    page.click("#recipe button[type=submit]")
    until(lambda: page.inner_text("#epoch-name").startswith("12 of 12"))
    at_rest(page)
    page.locator("#epoch").fill("0")
    assert page.inner_text("#epoch-name").startswith("0 of 12")
    page.click("#play")
    until(lambda: page.inner_text("#epoch-name").startswith("12 of 12"))
    page.click("#stop")
    page.click("#keep")
    until(lambda: "trained 2-6-2" in page.inner_text("#model"))


def test_two_networks_are_compared_in_one_window(page):
    page.click("#tab-compare")
    page.select_option("#first", "0")
    page.select_option("#second", "1")
    page.click("#ask")
    until(lambda: page.is_visible("#verdict"))
    assert "Yes" in page.inner_text("#verdict")
    start = place(page, "#view-first", 0.3, 0.3)
    page.mouse.move(*start)
    page.mouse.wheel(0, -300)
    views = "['first', 'difference'].map((s) => document.querySelector('#view-' + s + ' .fx').explorer.view.x)"
    until(lambda: len({round(x, 9) for x in page.evaluate(views)} | {0.0}) == 2)
    page.select_option("#second", "2")
    page.click("#ask")
    until(lambda: page.is_visible("#trouble"))
    assert "expected 2 inputs" in page.inner_text("#trouble")


def test_files_are_opened_dropped_and_refused(page, tmp_path):
    fs.save(fs.Network.random((2, 5, 1), 3), tmp_path / "mine.npz")
    page.set_input_files("#file", tmp_path / "mine.npz")
    until(lambda: "mine.npz" in page.locator("#model option:checked").inner_text())
    content = list((tmp_path / "mine.npz").read_bytes())
    drop = """([name, data]) => { const held = new DataTransfer();
        held.items.add(new File([new Uint8Array(data)], name)); return held }"""
    for name, data, words in [("other.npz", content, ""), ("bad.npz", [1, 2, 3], "bad.npz"), ("m.pt", [0], "pickled")]:
        held = page.evaluate_handle(drop, [name, data])
        page.dispatch_event("body", "dragenter", {"dataTransfer": held})
        assert page.is_visible("#drop")
        page.dispatch_event("body", "drop", {"dataTransfer": held})
        assert not page.is_visible("#drop")
        if words:
            until(lambda words=words: words in page.inner_text("#trouble"))
        else:
            until(lambda name=name: name in page.locator("#model option:checked").inner_text())


def test_tabs_by_keyboard(page):
    page.focus("#tab-shape")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-train"
    page.keyboard.press("ArrowLeft")
    assert page.is_visible("#shape")
