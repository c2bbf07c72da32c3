"""What the live page is told is what the library says about the edited network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.errors import InputError, TooLargeError
from fiberscope.explorer.payload import unpack
from fiberscope.reporting.live import lessons
from fiberscope.reporting.live.edits import LineTurn, move_line, turn_line
from fiberscope.reporting.live.serve import _items
from fiberscope.reporting.live.shelf import Item, Shelf, small_network
from fiberscope.reporting.live.studio import Studio, Superseded, Ticket


@pytest.fixture
def studio(tmp_path):
    nets = [small_network(), fs.permute(small_network(), [[1, 0], [4, 3, 2, 1, 0]]), fs.Network.random((16, 6, 3), 0)]
    return Studio(Shelf(tmp_path, [Item(f"net {k}", net) for k, net in enumerate(nets)]))


def told(studio, **message):
    """Answers by their kind; a picture as header and arrays."""
    found = {}
    for answer in studio.take(message)(Ticket()):
        if isinstance(answer, bytes):
            header, arrays = unpack(answer)
            found.setdefault("frames", []).append((header, arrays))
        else:
            found[answer["kind"]] = answer
    return found


def test_an_edit_is_followed_by_every_answer(studio):
    found = told(studio, do="weight", model=0, layer=1, row=2, column=-1, value=0.25, done=True, reach=2)
    net = small_network()
    biases = [np.array(b) for b in net.biases]
    biases[1][2] = 0.25
    edited = fs.Network(net.weights, biases)
    complex = fs.regions(edited, fs.Box.cube(2, -2, 2))
    header, arrays = found["frames"][0]
    assert header["regions"] == found["facts"]["regions"] == complex.num_regions
    np.testing.assert_allclose(arrays["areas"].sum(), 16, rtol=1e-5)
    dimension = fs.functional_dimension(edited)
    assert found["dimension"]["exact"] == (dimension.exact is not None)
    assert found["dimension"]["value"] == (dimension.lower if dimension.exact is None else dimension.exact)
    assert found["identifiable"]["value"] == fs.identifiability(edited).identifiable
    assert found["facts"]["biases"][1][2] == 0.25
    assert told(studio, do="reset", model=0)["facts"]["biases"][1][2] == net.biases[1][2]


def test_quick_lines_are_those_of_the_exact_picture(studio):
    found = told(studio, do="shape", model=0, reach=1)
    complex = fs.regions(small_network(), fs.Box.cube(2))
    _, arrays = found["frames"][0]
    inner = complex.facets.neuron >= 0
    assert sorted(arrays["edge_neuron"]) == sorted(complex.facets.neuron[inner])
    exact = np.linalg.norm(complex.facets.weight[inner], axis=1)
    np.testing.assert_allclose(sorted(arrays["edge_weight"]), sorted(exact), rtol=1e-5, atol=1e-6)


@given(st.integers(0, 1000), st.integers(0, 6), st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
@settings(max_examples=25)
def test_a_moved_line_goes_through_the_hand(seed, neuron, to):
    net = move_line(fs.Network.random((2, 4, 3, 1), seed), neuron, to)
    layer, row = (0, neuron) if neuron < 4 else (1, neuron - 4)
    assert abs(net.preactivations([to])[layer][0, row]) < 1e-9


@given(st.integers(0, 1000), st.floats(-1, 1), st.floats(-1, 1))
@settings(max_examples=25)
def test_a_turned_line_keeps_its_anchor_and_its_length(seed, x, y):
    net = fs.Network.random((2, 3, 1), seed)
    turn = LineTurn.of(None, net, 1, (0.3, 0.1))
    assert abs(net.preactivations([turn.anchor])[0][0, 1]) < 1e-9
    turned = turn_line(net, turn, (x, y))
    assert abs(turned.preactivations([turn.anchor])[0][0, 1]) < 1e-9
    far = np.hypot(x - turn.anchor[0], y - turn.anchor[1])
    assert far < 1e-3 or abs(turned.preactivations([[x, y]])[0][0, 1]) < 1e-9
    np.testing.assert_allclose(np.hypot(*turned.weights[0][1]), np.hypot(*net.weights[0][1]))
    assert LineTurn.of(turn, turned, 1, (0.3, 0.1)) is turn  # one drag, one anchor


def test_later_lines_are_not_turned(studio):
    with pytest.raises(InputError, match="later ones are bent"):
        studio.take({"do": "line", "model": 0, "neuron": 3, "from": [0, 0], "to": [0.1, 0], "turn": True})


def test_corners_move_are_painted_and_begin_again(studio):
    first = told(studio, do="slice", model=2)
    net = fs.Network.random((16, 6, 3), 0)
    before = studio.corners[2].points.copy()
    assert first["slice"]["regions"] == fs.count_regions(net, fs.Plane.through(*before))
    assert len(first["frames"][0][0]["pictures"]) == 3
    moved = told(studio, do="corner", model=2, corner=1, move=[0.5, -0.25])
    points = studio.corners[2].points
    one, two = studio.corners[2].ways[1]
    np.testing.assert_allclose(points[1], before[1] + 0.5 * one - 0.25 * two)
    assert (points[0] == before[0]).all()
    assert moved["slice"]["largest"] == net(points).argmax(axis=1).tolist()
    told(studio, do="paint", model=2, corner=0, pixels=[3, 4], ink=1)
    assert studio.corners[2].points[0, 3] == studio.corners[2].high
    told(studio, do="slice", model=2, again=True)
    np.testing.assert_array_equal(studio.corners[2].points, before)


def test_data_stay_as_they_were():
    X = np.random.default_rng(0).uniform(size=(5, 16))
    kept = X.copy()
    item = _items([fs.Network.random((16, 6, 3), 0)], X.reshape(5, 4, 4), [0, 1, 2, 0, 1])[0]
    studio = Studio(Shelf(None, [item]))
    told(studio, do="paint", model=0, corner=0, pixels=[3], ink=1)
    told(studio, do="corner", model=0, corner=1, move=[1, 1], done=True)
    told(studio, do="corner", model=0, corner=1, another=True)
    np.testing.assert_array_equal(X, kept)
    with pytest.raises(InputError, match="16 numbers for every point"):
        _items([fs.Network.random((16, 6, 3), 0)], X[:, :5], None)


def test_two_networks_and_their_difference(studio):
    found = told(studio, do="compare", first=0, second=1, reach=1)
    assert [header["side"] for header, _ in found["frames"]] == ["first", "second", "difference"]
    assert found["verdict"]["equal"] is True
    _, arrays = found["frames"][2]
    assert np.abs(arrays["maps"]).max() < 1e-12
    with pytest.raises(InputError, match="expected 2 inputs"):
        studio.take({"do": "compare", "first": 0, "second": 2})


def test_a_training_is_shown_epoch_by_epoch(studio):
    pytest.importorskip("torch")
    found = told(studio, do="train", data="rings", hidden=[6], epochs=20, lr=0.05, seed=1)
    epochs = found["training"]["epochs"]
    assert (epochs[0], epochs[-1], len(found["training"]["losses"])) == (0, 20, 20)
    assert [header["epoch"] for header, _ in found["frames"]] == epochs
    assert found["training"]["losses"][-1] < found["training"]["losses"][0]
    assert found["frames"][0][1]["labels_of_points"].tolist() == lessons.cloud("rings", 1)[1].tolist()
    assert "trained" in told(studio, do="keep")["models"]["models"][-1]["name"]


def test_ten_million_parameters_are_refused_in_words(tmp_path):
    net = fs.Network.random((2, 3200, 3200, 1), 0)
    assert net.num_parameters > 10**7
    with pytest.raises(TooLargeError, match=r"10,2.* parameters are above the 2,000,000"):
        Studio(Shelf(tmp_path, [Item("wide", net)])).take({"do": "shape", "model": 0})


def test_stale_work_ends_at_its_next_step(studio):
    ticket = Ticket()
    work = studio.take({"do": "shape", "model": 0})(ticket)
    next(work)
    ticket.stale.set()
    with pytest.raises(Superseded):
        list(work)
