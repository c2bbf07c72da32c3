"""Laws of region counts, the same for every engine that counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import NotGenericError
from fiberscope.geometry.domains import Box, Polytope, Space
from fiberscope.geometry.lattice import lattice_cells
from fiberscope.geometry.planar import planar_cells, planar_count
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.geometry.traversal import count_by_traversal
from fiberscope.geometry.traversal_rows import exact_functionals
from fiberscope.network.network import Network
from fiberscope.numerics.lp import Polyhedron

Engine = Callable[[Network, Box], int]

ENGINES: dict[str, Engine] = {
    "planar count": lambda net, box: int(planar_count(net, box)),
    "planar count, two threads": lambda net, box: int(planar_count(net, box, threads=2)),
    "planar complex": lambda net, box: planar_cells(net, box).count(2),
    "lattice": lambda net, box: lattice_cells(net, box).count(net.in_size),
    "traversal": lambda net, box: count_by_traversal(net, box).count,
    "whichever fits": lambda net, box: int(count_regions(net, box)),
}

every_engine = pytest.mark.parametrize("engine", list(ENGINES))


def integral(widths: tuple[int, ...], seed: int) -> Network:
    """Small integers: coincident, vanishing and touching neurons abound."""
    rng = np.random.default_rng(seed)
    pairs = list(pairwise(widths))
    return Network(
        [rng.integers(-2, 3, (n, m)).astype(float) for m, n in pairs],
        [rng.integers(-2, 3, n).astype(float) for _, n in pairs],
    )


def patterns_with_interior(net: Network, box: Box) -> int:
    """Sign patterns, zeros allowed, whose cell has interior points, each decided by a linear program."""
    total = 0
    for pattern in product((-1, 0, 1), repeat=net.num_signs):
        signs = np.array(pattern, dtype=np.int8)
        rows = np.array([[float(v.p) / float(v.q) for v in row] for row in exact_functionals(net, signs)])
        flat = ~rows[:, :-1].any(axis=1)
        if np.where(flat, np.sign(rows[:, -1]) != signs, signs == 0).any():
            continue
        A, b = -signs[~flat, None] * rows[~flat, :-1], signs[~flat] * rows[~flat, -1]
        total += Polyhedron(A, b, lower=float(box.low[0]), upper=float(box.high[0])).interior().answer is True
    return total


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("engine", "widths"),
    [*product(ENGINES, [(2, 3, 2, 1)]), *product(["lattice", "traversal", "whichever fits"], [(3, 2, 2, 1)])],
)
def test_counts_equal_the_patterns_found_by_linear_programs(engine: str, widths: tuple[int, ...], seed: int) -> None:
    net, box = integral(widths, seed), Box.cube(widths[0], -2, 2)
    assert ENGINES[engine](net, box) == patterns_with_interior(net, box)


@every_engine
@pytest.mark.parametrize("seed", range(3))
def test_never_below_dense_sampling(engine: str, seed: int) -> None:
    net, box = Network.random((2, 6, 5, 1), seed), Box.cube(2)
    X = np.random.default_rng(seed).uniform(-1, 1, (20_000, 2))
    signs = net.signs(X).signs
    seen = len(np.unique(signs[(signs != 0).all(axis=1)], axis=0))
    found = ENGINES[engine](net, box)
    assert seen <= found <= 1.5 * seen  # such large regions are hardly missed


@every_engine
@given(seed=st.integers(0, 10_000), powers=st.lists(st.integers(-3, 3), min_size=4, max_size=4))
@settings(max_examples=8, deadline=None)
def test_permutations_and_powers_of_two_change_nothing(engine: str, seed: int, powers: list[int]) -> None:
    net, box = integral((2, 4, 3, 1), seed), Box.cube(2, -2, 2)
    order, scale = np.random.default_rng(seed).permutation(4), 2.0 ** np.array(powers)
    one, two, three = net.weights
    moved = Network(
        [scale[:, None] * one[order], two[:, order] / scale, three], [scale * net.biases[0][order], *net.biases[1:]]
    )
    assert ENGINES[engine](moved, box) == ENGINES[engine](net, box)


@every_engine
@given(seed=st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_an_appended_layer_refines(engine: str, seed: int) -> None:
    net, box = integral((2, 4, 3, 3, 1), seed), Box.cube(2, -2, 2)
    counts = []
    for depth in (1, 2, 3):
        last = np.ones((1, len(net.biases[depth - 1])))
        cut = Network([*net.weights[:depth], last], [*net.biases[:depth], np.zeros(1)])
        counts.append(ENGINES[engine](cut, box))
    assert counts == sorted(counts)
    assert 1 <= counts[0] <= sum(comb(4, i) for i in range(3))


@pytest.mark.parametrize(("n", "neurons"), [(1, 6), (2, 6), (3, 5), (4, 5)])
def test_one_hidden_layer_on_all_of_space_is_an_arrangement(n: int, neurons: int) -> None:
    net = Network.random((n, neurons, 1), 3)
    expected = sum(comb(neurons, i) for i in range(n + 1))
    assert regions(net, Space(n)).num_regions == expected
    assert int(count_regions(net, Space(n))) == expected
    assert count_by_traversal(net, Space(n)).count == expected


# --- where no cell has a vertex ---------------------------------------------------------------------------------


def test_a_free_direction_is_named() -> None:
    """Two neurons of three inputs: counted, but there is no complex with vertices; the direction is (1, 1, 0)."""
    net = Network([[[1.0, -1.0, 0.0], [1.0, -1.0, 3.0]], [[1.0, 1.0]]], [[0.0, 1.0], [0.0]])
    assert int(count_regions(net, Space(3))) == 4
    with pytest.raises(NotGenericError, match=r"neurons \[0, 1\] .* rank 2 in R\^3 .* depends on \[1.0, 1.0, 0.0\]"):
        regions(net, Space(3))
    half = Polytope(np.array([[1.0, 0.0, 0.0]]), np.array([0.0]))
    assert regions(net, half).num_regions == int(count_regions(net, half)) == 4
    with pytest.raises(NotGenericError, match=r"neurons \[\] .* rank 0 in R\^2"):
        regions(Network([np.ones((1, 2))], [np.zeros(1)]), Space(2))
