"""The explorer in a real browser: every control is used, nothing is fetched, nothing is said on the console."""

from __future__ import annotations

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.explorer.view import explore

MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def complexes():
    nets = [fs.Network.random((2, 8, 6, 3), seed) for seed in (0, 1)]
    return [fs.regions(net, fs.Box.cube(2)) for net in nets]


@pytest.fixture
def page(complexes, opened, tmp_path):
    walk = [fs.rescale(complexes[0].net, [np.full(8, 2.0**k), np.full(6, 1.0)]) for k in range(3)]
    explore(complexes, labels=["before", "after"], slider="epoch", walk=walk).save(tmp_path / "page.html")
    return opened(tmp_path / "page.html")


def told(page):
    return page.inner_text(".fx-panel")


def at(page, x, y):
    """Move the pointer to a point of the picture, given in its coordinates."""
    place = page.evaluate("([x, y]) => document.querySelector('.fx').explorer.screen(x, y)", [x, y])
    box = page.locator(".fx-top").bounding_box()
    page.mouse.move(box["x"] + place[0], box["y"] + place[1])


def test_hovering_tells_the_region_its_map_and_its_signs(page, complexes):
    complex = complexes[0]
    region = int(complex.volumes.argmax())
    x = complex.points[region]
    at(page, *x.tolist())
    text = told(page)
    assert f"Region {region}," in text
    matrix, _ = complex.affine_maps
    assert f"{matrix[region, 1, 0]:.5g}".replace("-", MINUS)[:5] in text
    signs = "".join(f"{MINUS}0+"[s + 1] for s in complex.sign_vectors[region][:8])
    assert signs in text
    assert f"{int((complex.sign_vectors[region][8:] > 0).sum())} of 6 on" in text


def test_a_click_on_a_line_marks_its_neuron(page, complexes):
    facets = complexes[0].facets
    ends = complexes[0].structure.boundary[0].indices.reshape(-1, 2)[facets.cell]
    lengths = np.linalg.norm(np.diff(complexes[0].vertices[ends], axis=1)[:, 0], axis=1)
    row = int(np.where(facets.neuron >= 0, lengths, 0).argmax())
    middle = complexes[0].vertices[ends[row]].mean(axis=0)
    at(page, *middle.tolist())
    assert "Line" in told(page)
    page.mouse.down()
    page.mouse.up()
    assert page.locator("select").nth(2).input_value() == str(int(facets.neuron[row]))
    assert "Marked" in told(page)


def test_zoom_pan_keys_and_the_whole_picture(page):
    def view():
        return page.evaluate("(({x, y, scale}) => [x, y, scale])(document.querySelector('.fx').explorer.view)")

    start = view()
    at(page, 0.5, 0.5)
    page.mouse.wheel(0, -400)
    page.wait_for_function(f"document.querySelector('.fx').explorer.view.scale > {1.5 * start[2]}")
    page.mouse.down()
    box = page.locator(".fx-top").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40, steps=4)
    page.mouse.up()
    assert view()[:2] != start[:2]
    page.click("text=Whole picture")
    assert view() == pytest.approx(start)
    page.focus(".fx-top")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert view()[0] > start[0]
    assert view()[2] == pytest.approx(1.25 * start[2])
    page.keyboard.press("0")
    assert view() == pytest.approx(start)


def pixels(page):
    return page.evaluate("document.querySelector('.fx-base').toDataURL()")


def test_colours_outputs_and_layers_change_the_picture(page):
    seen = {pixels(page)}
    colour, output = page.locator("select").nth(0), page.locator("select").nth(1)
    assert not output.is_visible()
    for how in ("value", "slope", "class", "active"):
        colour.select_option(how)
        page.wait_for_timeout(100)
        seen.add(pixels(page))
    colour.select_option("value")
    output.select_option("2")
    page.wait_for_timeout(100)
    seen.add(pixels(page))
    for box in page.locator(".fx-layer input").all():
        box.uncheck()
    page.wait_for_timeout(100)
    seen.add(pixels(page))
    assert len(seen) == 7


def test_sliders_move_through_frames_and_along_the_fiber(page, complexes):
    assert f"{complexes[0].num_regions} regions" in told(page)
    before = page.evaluate("document.querySelector('.fx-walk').toDataURL()")
    epoch, walk = page.locator("input[type=range]").all()
    epoch.fill("1")
    page.wait_for_function(
        f"document.querySelector('.fx-panel').innerText.includes('{complexes[1].num_regions} regions')"
    )
    walk.fill("2")
    assert page.evaluate("document.querySelector('.fx-walk').toDataURL()") != before


def test_without_webgl_the_plain_canvas_draws(complexes, opened, tmp_path):
    explore(complexes[0]).save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").write_text(text.replace('"frames":', '"plain":true,"frames":'))
    page = opened(tmp_path / "page.html", color_scheme="dark")
    assert page.get_attribute(".fx", "data-painter") == "canvas"
    page.wait_for_timeout(100)
    colours = page.evaluate(
        """() => { const canvas = document.querySelector('.fx-base'), pen = canvas.getContext('2d');
        const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(Array.from({length: data.length / 4}, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size }"""
    )
    assert colours > 10


def test_words_where_the_browser_cannot_unpack(complexes, browser, tmp_path):
    explore(complexes[0]).save(tmp_path / "page.html")
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelector('.fx').dataset.ready === 'failed'")
    assert "a newer one can" in page.inner_text(".fx")
    page.close()


def test_a_heavy_picture_moves_as_a_bitmap_and_rests_sharp(page):
    """Above so many regions the canvas is moved while the window moves, and drawn anew when it rests."""
    state = "(({drawn, view, canvas, heavy}) => [drawn.x === view.x, canvas.style.transform])"
    page.evaluate("(x => { x.heavy = true; x.size(); x.paint(); })(document.querySelector('.fx').explorer)")
    moved = page.evaluate(
        f"""async () => {{ const x = document.querySelector('.fx').explorer; x.view.x += 0.1; x.moved();
        await new Promise(requestAnimationFrame); return {state}(x) }}"""
    )
    assert moved[0] is False
    assert moved[1].startswith("translate(")
    page.wait_for_function(f"{state}(document.querySelector('.fx').explorer)[0]")
    assert page.evaluate(f"{state}(document.querySelector('.fx').explorer)[1]") == ""


def test_classes_are_drawn_where_they_change(page, complexes):
    """The parts of a region with two largest outputs: their areas sum up to the region's."""
    parts = page.evaluate(
        """() => { const x = document.querySelector('.fx').explorer; const seen = []; const over = x.painter.over;
        x.painter.over = (found) => { seen.push(found); over(found) }; x.how = 'class'; x.recolour();
        return Array.from(seen.at(-1).places) }"""
    )
    triangles = np.array(parts).reshape(-1, 3, 2)
    sides = triangles[:, 1:] - triangles[:, :1]
    complex = complexes[0]
    values = complex.net(complex.vertices)
    inside = complex.structure.vertices_of(2)
    mixed = [r for r in range(complex.num_regions) if len(set(values[inside[r]].argmax(axis=1))) > 1]
    area = np.abs(np.linalg.det(sides)).sum() / 2
    np.testing.assert_allclose(area, complex.volumes[mixed].sum(), rtol=1e-3)


@pytest.mark.parametrize("plain", [False, True])
def test_a_complex_in_space_turns_zooms_opens_and_answers(opened, tmp_path, plain):
    complex = fs.regions(fs.Network.random((3, 4, 3, 2), 1), fs.Box.cube(3))
    explore(complex).save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").write_text(text.replace('"frames":', '"plain":true,"frames":') if plain else text)
    page = opened(tmp_path / "page.html")
    assert page.get_attribute(".fx", "data-painter") == ("canvas" if plain else "WebGL")
    assert page.is_visible("text=Drawn without WebGL") == plain
    seen = []

    def another_picture():
        page.wait_for_timeout(60)
        for _ in range(50):  # a busy machine draws later
            if pixels(page) not in seen:
                break
            page.wait_for_timeout(100)
        seen.append(pixels(page))
        assert len(set(seen)) == len(seen)

    another_picture()
    box = page.locator(".fx-top").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    assert "Region" in told(page)
    assert "Face" in told(page)
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] + 20)
    page.mouse.up()
    another_picture()
    page.mouse.wheel(0, -200)
    another_picture()
    page.focus(".fx-top")
    page.keyboard.press("ArrowLeft")
    another_picture()
    page.locator("input[aria-label=Apart]").fill("80")
    another_picture()
    page.locator("input[aria-label=Cut]").fill("50")
    another_picture()
    page.locator(".fx-layer input").nth(1).uncheck()
    another_picture()
    for how in ("value", "slope", "class", "active", "layer"):
        page.locator("select").nth(0).select_option(how)
        another_picture()
    page.locator("select").nth(2).select_option("0")
    another_picture()
    page.click("text=Begin again")
    another_picture()
