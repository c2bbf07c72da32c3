"""Reports: every question is answered or its silence is explained, in one file that fetches nothing."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from base64 import b64decode
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.errors import InputError, TooLargeError
from fiberscope.explorer.images import image_png, image_shape
from fiberscope.explorer.slices import corner_points
from fiberscope.reporting import picture
from fiberscope.testing import convolutional


def embedded(html):
    return json.loads(re.search(r'id="answers">(.*?)</script>', html, re.S)[1])


@pytest.fixture(scope="module")
def planar():
    net = fs.Network.random((2, 6, 5, 3), 0)
    data = np.random.default_rng(0).normal(size=(40, 2))
    return (
        net,
        data,
        fs.report(net, data=data, labels=np.arange(40) % 3, against=fs.permute(net, [range(6)[::-1], range(5)])),
    )


def test_every_answer_has_its_call_its_evidence_and_its_time(planar):
    _, _, found = planar
    assert found.complete
    assert found.unasked == {}
    answers = embedded(found.html)["answers"]
    assert [a["question"] for a in answers] == list(found.answers)
    assert all(a["call"] and a["evidence"] and a["seconds"] >= 0 for a in answers)
    assert answers[-1]["answer"].startswith("Yes")


def test_the_numbers_are_those_of_the_functions(planar):
    net, data, found = planar
    answers = {a["question"]: a["data"] for a in embedded(found.html)["answers"]}
    assert answers["How many directions of the parameters matter?"]["exact"] == fs.functional_dimension(net, data).exact
    box = fs.Box(*_margins(data))
    assert answers["Where is it linear?"]["num_regions"] == fs.count_regions(net, box)
    distances = answers["How far are the data from the next boundary?"]["distance"]
    np.testing.assert_allclose(distances, fs.boundary_distance(net, data).distance)


def _margins(data):
    low, high = data.min(axis=0), data.max(axis=0)
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


def test_one_file_that_fetches_nothing(planar, tmp_path):
    _, _, found = planar
    assert found.save(tmp_path / "r.html").read_text() == found.html
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", found.html)
    assert len(found.html) < 3_000_000


def test_a_convolutional_model_is_cut_through_its_data():
    net = convolutional(0)
    data = np.random.default_rng(0).uniform(size=(5, *net.input_shape))
    found = fs.report(net, data=data)
    assert "three of the data" in found.html
    assert "Where is it linear?" in found.answers
    # no theorem speaks of shared weights, but what is known of the fiber is said
    assert "whether there are others was not asked" in found.answers["Which other parameters are the same function?"]
    assert not found.unasked


def test_data_on_boundaries_are_counted():
    """Blank images of a network with pooling: all windows tie, and a logarithmic picture has no place for zero."""
    found = fs.report(convolutional(0), data=np.zeros((4, *convolutional(0).input_shape)))
    assert found.answers["How far are the data from the next boundary?"] == "0 in the median, 0 at the least."
    assert "4 of the points lie on a boundary themselves" in found.html


def test_without_data_a_random_slice_is_said_to_be_one():
    found = fs.report(fs.Network.random((4, 5, 2), 0))
    assert "three random inputs" in found.html
    rank = fs.functional_dimension(fs.Network.random((4, 5, 2), 0), np.random.default_rng(0).normal(size=(28, 4)))
    assert found.answers["How many directions of the parameters matter?"] == f"{rank.exact} of 37 on 28 random inputs."
    large = fs.report(fs.Network.random((4, 70, 70, 2), 0))
    (text,) = large.unasked.values()
    assert text.startswith("Not asked: ")
    assert "give data" in text
    # above the size at which theorems are asked, what is known is said: a factor for every hidden neuron
    fiber = large.answers["Which other parameters are the same function?"]
    assert fiber == "A family of dimension 140 at least; whether there are others was not asked."


def test_idle_neurons_are_marked_one_by_one():
    """One dead, one linear, two on one hyperplane: in the graph, in the squares, in the table."""
    first = [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    net = fs.Network([first, [[1.0, 1.0, -1.0, 1.0, 1.0]]], [[0.5, 1.0, 0.0, -1.0, 3.0], [0.0]])
    html = fs.report(net, data=np.array([[0.1, -0.5], [0.2, -0.3]])).html
    assert (
        "layer 1, 5 neurons: 1 dead for every input, 1 linear for every input, 2 on the hyperplane of another" in html
    )
    assert "<title>layer 1, neuron 3: dead for every input</title>" in html
    assert "<title>layer 1, neuron 4: linear for every input</title>" in html
    assert "<title>layer 1, neuron 2: dead on the data</title>" in html
    assert "<title>4 dead, linear or duplicate neurons</title>" in html


def saved(html):
    return b64decode(re.search(r'download="certificate.json" href="data:application/json;base64,([^"]*)"', html)[1])


def test_the_certificate_in_the_page_proves_the_verdict(planar, tmp_path):
    net, _, found = planar
    (tmp_path / "c.json").write_bytes(saved(found.html))
    assert fs.verify(tmp_path / "c.json", net, fs.permute(net, [range(6)[::-1], range(5)])).ok
    other = fs.report(net, against=fs.Network.random((2, 6, 5, 3), 1), time_limit=60)
    (tmp_path / "d.json").write_bytes(saved(other.html))
    assert fs.verify(tmp_path / "d.json").ok
    assert "at the input" in other.html


def test_all_answers_stand_at_the_top_and_the_fiber_is_walked(planar):
    _, _, found = planar
    glance = re.search(r'<nav class="glance".*?</nav>', found.html, re.S)[0]
    assert all(answer.split(":")[0] in unescape(glance) for answer in found.answers.values())
    assert '"walk":{"values":' in found.html


def test_slices_with_too_many_regions_are_made_smaller(monkeypatch):
    monkeypatch.setattr(picture, "MOST_REGIONS", 40)
    found = fs.report(fs.Network.random((2, 12, 12, 1), 0))
    assert "this is the middle of it" in found.html
    call = next(a["call"] for a in embedded(found.html)["answers"] if a["question"] == "Where is it linear?")
    assert re.search(r"domain = fs.Box\(\[-0[.]\d+, -0[.]\d+\], ", call)
    monkeypatch.setattr(picture, "SHRINKS", 0)
    assert "Where is it linear?" in fs.report(fs.Network.random((2, 12, 12, 1), 0)).unasked


def test_ten_million_parameters_are_described_without_a_picture(monkeypatch):
    monkeypatch.setattr(picture, "MOST_PARAMETERS", 20)  # ten million would take seconds to make
    found = fs.report(fs.Network.random((2, 5, 5, 1), 0))
    assert "parameters are above the 20 of a picture" in found.unasked["Where is it linear?"]
    assert "What do its neurons do?" in found.answers


def test_an_interrupted_report_keeps_what_it_has(monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fs, "functional_dimension", stop, raising=False)
    monkeypatch.setattr("fiberscope.reporting.report.warm_up", lambda wide, other: None)
    found = fs.report(fs.Network.random((2, 4, 1), 0), tmp_path / "r.html")
    assert not found.complete
    assert "Where is it linear?" in found.answers
    assert "interrupted" in found.unasked["Which other parameters are the same function?"]
    assert found.path == tmp_path / "r.html"
    assert "interrupted" in found.path.read_text()


def test_interrupts_that_end_a_part_of_an_answer_end_the_report(monkeypatch):
    def stop(net, domain, **_):  # an engine returns what it has when it is interrupted
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return regions(net, domain, limit=1)

    regions = fs.regions
    monkeypatch.setattr("fiberscope.reporting.report.warm_up", lambda wide, other: None)
    monkeypatch.setattr(fs, "regions", stop, raising=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = fs.report(fs.Network.random((2, 4, 1), 0))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not found.complete
    assert "What do its neurons do?" in found.answers
    assert [text for text in found.unasked.values() if "interrupted" in text] == list(found.unasked.values())
    assert len(found.unasked) == 3


def test_compilation_takes_nothing_of_the_time_limit(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("fiberscope.run.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("fiberscope.reporting.report.warm_up", lambda wide, other: clock.append(clock.pop() + 1e6))
    assert fs.report(fs.Network.random((2, 4, 1), 0), time_limit=5.0).unasked == {}


def test_facets_that_take_too_long_end_in_a_smaller_picture(monkeypatch):
    """Regions are there in no time, facets would take for ever on the whole: the clock stands but for them."""
    clock = [0.0]
    monkeypatch.setattr("fiberscope.run.time", SimpleNamespace(monotonic=lambda: clock[0]))
    find = fs.Complex.find_within

    def slowly(self, run, *names):
        clock[0] += 40.0 if self.num_regions > 40 else 0.0
        find(self, run, *names)

    monkeypatch.setattr(fs.Complex, "find_within", slowly)
    found = fs.report(fs.Network.random((2, 12, 12, 1), 0), time_limit=60.0)
    assert clock[0] >= 40.0
    regions = re.match(r"On ([0-9]+) regions", found.answers["Where is it linear?"])
    assert int(regions[1]) <= 40
    assert "this is the middle of it" in found.html


def test_a_refusal_is_a_sentence_of_the_page(monkeypatch):
    def refuse(*_, **__):
        raise TooLargeError("10 TB <needed>")

    monkeypatch.setattr(fs, "fiber", refuse, raising=False)
    found = fs.report(fs.Network.random((2, 4, 1), 0))
    assert found.unasked == {"Which other parameters are the same function?": "Not asked: 10 TB <needed>."}
    assert "10 TB &lt;needed&gt;" in found.html


def test_bad_input_is_refused_before_the_work(tmp_path):
    net = fs.Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match="got a folder"):
        fs.report(net, tmp_path)
    with pytest.raises(InputError, match="folder that exists"):
        fs.report(net, tmp_path / "no" / "r.html")
    if Path("/proc/self").is_dir():
        with pytest.raises(InputError, match="expected a folder that can be written"):
            fs.report(net, "/proc/self/r.html")
    with pytest.raises(InputError, match="expected 2 numbers for every point"):
        fs.report(net, data=np.zeros((4, 3)))
    with pytest.raises(InputError, match="whole number for each of 4"):
        fs.report(net, data=np.zeros((4, 2)), labels=[0.5] * 4)
    with pytest.raises(InputError, match="data beside them"):
        fs.report(net, labels=[0])
    with pytest.raises(InputError, match="expected 2 inputs and 1 outputs, got 3 and 1"):
        fs.report(net, against=fs.Network.random((3, 3, 1), 0))
    assert list(tmp_path.iterdir()) == []


def test_corners_are_of_three_classes_or_far_apart():
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(60, 5)), np.repeat(np.arange(4), 15)
    rows, text = corner_points(X, classes)
    assert len({int(classes[row]) for row in rows}) == 3
    assert "class" in text
    line = np.outer(np.arange(5.0), np.ones(3))
    assert len(set(corner_points(line, None)[0])) == 3


def test_images_are_recognised_and_drawn(tmp_path):
    assert image_shape((3, 16, 16)) == (3, 16, 16)
    assert image_shape((300,)) == (3, 10, 10)
    assert image_shape((50,)) is None
    from matplotlib.image import imread

    grey = np.linspace(0, 1, 64)
    (tmp_path / "a.png").write_bytes(image_png(grey, (1, 8, 8), 0.0, 1.0))
    np.testing.assert_allclose(imread(tmp_path / "a.png"), grey.reshape(8, 8), atol=1 / 255)
    colour = np.linspace(0, 1, 192)
    (tmp_path / "b.png").write_bytes(image_png(colour, (3, 8, 8), 0.0, 1.0))
    shown = imread(tmp_path / "b.png")[..., :3]
    np.testing.assert_allclose(shown, np.moveaxis(colour.reshape(3, 8, 8), 0, -1), atol=1 / 255)
