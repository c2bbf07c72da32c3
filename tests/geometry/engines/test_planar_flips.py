"""Values behind the first layer by updates of low rank: bounds against fractions, the same complex as without."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Plane, view_of
from fiberscope.geometry.engines.planar import flips
from fiberscope.geometry.engines.planar.engine import planar_cells, planar_count
from fiberscope.geometry.engines.planar.flips import Flips
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.network.network import Network
from fiberscope.numerics.floats import ENTRY_FLOOR
from fiberscope.testing import fraction_regions
from fiberscope.testing.hostile import TAME, hostile_chains, layers


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of any width take this way, and ``M`` is made anew after few updates."""
    monkeypatch.setattr(flips, "WIDE", 1)


def exact_signs(rows: np.ndarray, points: list[tuple[Fraction, Fraction]]) -> np.ndarray:
    """Signs of the first layer, padded as the engine pads them."""
    values = [[Fraction(a) * x + Fraction(b) * y + Fraction(c) for a, b, c in rows.tolist()] for x, y in points]
    signs = np.ones((len(points), -(-len(rows) // 8) * 8), dtype=np.int8)
    signs[:, : len(rows)] = [[(v > 0) - (v < 0) for v in row] for row in values]
    return signs


@settings(max_examples=60)
@given(st.data())
def test_bounds_hold_for_hostile_numbers(data: st.DataObject) -> None:
    m, n = data.draw(st.integers(1, 11)), data.draw(st.integers(1, 4))
    first, second = data.draw(layers(2, m)), data.draw(layers(m, n))
    net = Network([first[0], second[0], np.ones((1, n))], [first[1], second[1], [0.0]])
    layout = net.layout.up_to_last_switch
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    points = rng.integers(-20, 21, (12, 2)) / data.draw(st.sampled_from([1, 4, 10]))
    error = data.draw(st.sampled_from([0.0, 2.0**-50, 0.25]))
    true = [(Fraction(x), Fraction(y)) for x, y in points.tolist()]
    moved = points + rng.choice([-0.5, 0.0, 0.5], points.shape) * error
    rows = np.column_stack(first)
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(flips, "WIDE", 1)
        patch.setattr(flips, "_AGAIN", data.draw(st.sampled_from([0, 1, 3])))
        found = Flips.of(layout)
        assert found is not None and found.index == 2
        spread = np.full(len(points), error)
        value = found.values(Tracked(moved, spread, spread, np.ones(2)), exact_signs(rows, true), tight=True)
    distances = []
    for v, (x, y) in enumerate(true):
        active = [max(Fraction(0), Fraction(a) * x + Fraction(b) * y + Fraction(c)) for a, b, c in rows.tolist()]
        square = Fraction(0)
        for j in range(n):
            truth = sum((Fraction(w) * a for w, a in zip(second[0][j].tolist(), active, strict=True)), Fraction(0))
            truth += Fraction(float(second[1][j]))
            z, bound = value.z[v, j], float(value.c[v] * value.r[j]) if value.c[v] != 0 else 0.0
            if not np.isfinite(z) or not np.isfinite(bound):
                square = None
                continue  # such a value decides nothing
            room = Fraction(bound) + (Fraction(ENTRY_FLOOR) if value.c[v] != 0 else 0)
            assert abs(Fraction(float(z)) - truth) <= room
            square = None if square is None else square + (Fraction(float(z)) - truth) ** 2
        if square is not None and np.isfinite(value.e2[v]):
            assert square <= Fraction(float(value.e2[v])) ** 2
        distances.append(square)
    assert len(distances) == len(points)


def test_where_all_are_dead_the_bias_is_the_value(narrow: None) -> None:
    net = Network([[[1.0, 0.0], [0.0, 1.0]], [[0.1, 0.7], [3.0, 1.0]], [[1.0, 1.0]]], [[0, 0], [0.3, 0.0], [0]])
    found = Flips.of(net.layout.up_to_last_switch)
    assert found is not None
    points = np.array([[-1.0, -1.0], [1.0, 1.0], [-0.5, -0.25]])
    value = found.values(Tracked.exact(points), exact_signs(found.rows, [*map(tuple, points.tolist())]), tight=False)
    assert value.c[[0, 2]].tolist() == [0.0, 0.0] and value.c[1] > 0
    assert value.z[[0, 2]].tolist() == [[0.3, 0.0], [0.3, 0.0]]


def test_a_value_that_is_not_a_number_decides_nothing(narrow: None) -> None:
    """Products beyond the floats leave NaN in the sum for ever: the exact signs take over."""
    big = 1e200
    first = [[big, 0.0], [-big, big], [0.0, -big]]
    net = Network([first, [[big, -big, big], [1.0, 1.0, 0.0]], [[1.0, 1.0]]], [[1.0, 0.5, 0.25], [0.0, -1.0], [0.0]])
    box = Box.cube(2)
    assert {tuple(row) for row in planar_cells(net, box).top_signs.tolist()} == fraction_regions(net, *box.halfspaces())


@settings(max_examples=60)
@given(hostile_chains(inputs=st.just(2), max_width=5, max_hidden=3))
def test_regions_of_hostile_chains_are_those_of_fractions(net: Network) -> None:
    box = Box.cube(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flips, "WIDE", 1)
        cells = planar_cells(net, box)
        count = int(planar_count(net, box))
    truth = fraction_regions(net, *box.halfspaces())
    assert {tuple(row) for row in cells.top_signs.tolist()} == truth
    assert count == cells.count(2)


def shape(cells: Cells) -> tuple[list[int], set[tuple[int, ...]]]:
    return [cells.count(k) for k in range(3)], {tuple(row) for row in cells.vertex_signs.tolist()}


WAYS = {
    "random": lambda rng, shape: rng.normal(size=shape),
    "decimals": lambda rng, shape: rng.integers(-9, 10, shape) / 10,
    "no bias": lambda rng, shape: rng.normal(size=shape) * (len(shape) > 1),
    "few": lambda rng, shape: rng.integers(-1, 2, shape).astype(float),
}


@pytest.mark.parametrize("way", WAYS)
def test_wide_networks_have_the_same_complex(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sizes = (2, 52, 6, 3, 1)
    weights = [WAYS[way](rng, (b, a)) for a, b in pairwise(sizes)]
    net = Network(weights, [WAYS[way](rng, (b,)) for b in sizes[1:]])
    domain = Box.cube(2, 0.4)
    assert Flips.of(net.layout.up_to_last_switch) is not None
    found, count = planar_cells(net, domain), int(planar_count(net, domain))
    monkeypatch.setattr(flips, "WIDE", 1000)
    assert Flips.of(net.layout.up_to_last_switch) is None
    plain = planar_cells(net, domain)
    assert shape(found) == shape(plain) and count == plain.count(2)
    np.testing.assert_allclose(found.points, plain.points, atol=1e-9)


def test_slices_of_large_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network.random((30, 60, 8, 2), seed=5)
    rng = np.random.default_rng(0)
    view = view_of(net, Plane(rng.normal(size=30), *rng.normal(size=(2, 30)), Box.cube(2)))
    found = Flips.of(view.net.layout.up_to_last_switch)
    assert found is not None and found.index == 3 and found.spread > 0
    count = int(planar_count(view.net, view.domain))
    monkeypatch.setattr(flips, "WIDE", 1000)
    assert count == int(planar_count(view.net, view.domain))


def test_far_away_and_other_programs_take_the_usual_way() -> None:
    net = Network.random((2, 60, 5, 1), seed=0)
    assert Flips.of(net.layout.up_to_last_switch) is not None
    assert Flips.of(Network.random((2, 60, 1), seed=0).layout.up_to_last_switch) is None
    leaky = Network(net.weights, net.biases, activation="leaky_relu", slope=0.1)
    assert Flips.of(leaky.layout.up_to_last_switch) is None
    far = Box(np.full(2, 2.0**70), np.full(2, 2.0**70 + 2.0**60))
    assert int(planar_count(net, far)) == 1


def test_tame_numbers_have_useful_bounds(narrow: None) -> None:
    """A bound that is never met would send every sign to exact arithmetic."""
    assert "decimal" in TAME
    net = Network.random((2, 200, 50, 1), seed=1)
    count = planar_count(net, Box.cube(2))
    assert count.exact_decisions == 0 and count.complete


def test_hilbert_order_visits_neighbours() -> None:
    side = 16
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2).astype(float)
    order = flips._near_order(grid)
    assert sorted(order.tolist()) == list(range(side**2))
    assert np.abs(np.diff(grid[order], axis=0)).sum(axis=1).max() == 1
    assert sorted(flips._near_order(np.zeros((3, 2))).tolist()) == [0, 1, 2]
    assert len(flips._near_order(np.zeros((0, 2)))) == 0
