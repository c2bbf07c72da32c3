"""Laws of region counts, the same for every engine that counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError, UnsupportedModelError
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells, start_cells
from fiberscope.geometry.engines.lattice.skeleton import count_by_skeleton
from fiberscope.geometry.engines.planar.engine import planar_cells, planar_count
from fiberscope.geometry.engines.traversal.engine import count_by_traversal, traverse
from fiberscope.geometry.engines.traversal.estimate import estimate_regions
from fiberscope.geometry.engines.traversal.rows import exact_functionals
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.testing import fraction_map, fraction_regions
from fiberscope.testing.hostile import NUMBERS, TAME, programs

Engine = Callable[[Network, Box], int]

BEYOND = ("integer", "grown", "huge")
"""Numbers whose products overflow while bounds of their errors do not."""

ENGINES: dict[str, Engine] = {
    "planar count": lambda net, box: int(planar_count(net, box)),
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


# --- hostile networks, all engines against rational arithmetic ----------------------------------------------------

MANY = settings().max_examples  # as the profile says

Found = tuple[int | set[tuple[int, ...]], bool]
"""How many regions, or which, and whether that is claimed to be all of them."""


def labels(signs: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, signs.tolist()))


def by_planar_count(net: Network, domain: Domain) -> Found:
    found = planar_count(net, domain)  # type: ignore[arg-type]
    return found.num_regions, found.complete


def by_planar_cells(net: Network, domain: Domain) -> Found:
    cells = planar_cells(net, domain)  # type: ignore[arg-type]
    assert cells.count(2) == len(labels(cells.top_signs))
    return labels(cells.top_signs), cells.complete


def by_lattice(net: Network, domain: Domain) -> Found:
    cells = lattice_cells(net, domain)
    assert cells.count(cells.dimension) == len(labels(cells.top_signs))
    return labels(cells.top_signs), cells.complete


def by_skeleton(net: Network, domain: Domain) -> Found:
    return count_by_skeleton(net, start_cells(net, domain))


def by_traversal(net: Network, domain: Domain) -> Found:
    found = count_by_traversal(net, domain)
    return found.count, found.complete


def by_stream(net: Network, domain: Domain) -> Found:
    stream = traverse(net, domain)
    found = {tuple(region.signs.tolist()) for region in stream}
    return found, stream.summary.complete


def by_estimate(net: Network, domain: Domain) -> Found:
    found = estimate_regions(net, domain, samples=400, runs=2, points=50, chords=2)
    return found.at_least, found.exact


def by_whichever_fits(net: Network, domain: Domain) -> Found:
    found = count_regions(net, domain)
    return int(found), found.complete


EVERYWHERE: dict[str, Callable[[Network, Domain], Found]] = {
    "planar count": by_planar_count,
    "planar cells": by_planar_cells,
    "lattice": by_lattice,
    "skeleton": by_skeleton,
    "traversal": by_traversal,
    "stream": by_stream,
    "estimate": by_estimate,
    "whichever fits": by_whichever_fits,
}
"""Every engine that lists or counts regions, the same laws for all of them."""

PLANAR = ("planar count", "planar cells")


@st.composite
def places(draw: st.DrawFn, n: int) -> Domain:
    """A box, a simplex, a polytope with a redundant and a doubled side, an orthant, or all of space."""
    kind = draw(st.sampled_from(["box", "box", "corner", "polytope", "orthant", "space"]))
    if kind == "box":
        return Box.cube(n, *draw(st.sampled_from([(-2.0, 2.0), (0.0, 1.0), (-0.3, 0.7)])))
    if kind in ("corner", "polytope"):
        A, b = Box.cube(n, -2.0, 1.1).halfspaces()
        rows = [np.ones(n), *([np.ones(n), 2 * np.ones(n)] if kind == "polytope" else [])]
        return Polytope(np.vstack([A, *rows]), np.concatenate([b, [1.3, 9.0, 2.6][: len(rows)]]))
    return Orthant(n) if kind == "orthant" else Space(n)


def agrees(found: Found, truth: set[tuple[int, ...]]) -> None:
    """What is claimed to be all is all; otherwise it is a part."""
    what, complete = found
    if isinstance(what, set):
        assert what == truth if complete else what <= truth
    else:
        assert what == len(truth) if complete else what <= len(truth)


@pytest.mark.parametrize("styles", [TAME, tuple(NUMBERS), BEYOND], ids=["tame", "wild", "beyond"])
@given(data=st.data())
@settings(max_examples=MANY * 6 // 10)
def test_every_engine_agrees_with_fractions(styles: tuple[str, ...], data: st.DataObject) -> None:
    net = data.draw(programs(st.sampled_from([2, 2, 1, 3]), max_width=3, styles=styles))
    domain = data.draw(places(net.in_size))
    if net.num_signs > 16:
        return
    truth = fraction_regions(net, *domain.halfspaces())
    for name, engine in EVERYWHERE.items():
        if name in PLANAR and not (net.in_size == 2 and isinstance(domain, Box | Polytope)):
            continue
        try:
            found = engine(net, domain)
        except (NotGenericError, UnsupportedModelError):  # said in words, nothing is claimed
            assert name != "whichever fits" or any(isinstance(node, MaxPool) for node in net.switches)
            continue
        except InputError as error:
            assert name == "skeleton" and "bounded" in str(error), (name, error)
            continue
        agrees(found, truth)


@pytest.mark.parametrize("styles", [TAME, tuple(NUMBERS)], ids=["tame", "wild"])
@given(data=st.data())
@settings(max_examples=MANY * 6 // 10)
def test_certificates_prove_no_more_than_is_true(styles: tuple[str, ...], data: st.DataObject) -> None:
    """A complex that is right never fails; what it proves to exist exists; kinks are seen where maps differ."""
    net = data.draw(programs(st.sampled_from([2, 2, 1, 3]), max_width=3, styles=styles))
    domain = data.draw(places(net.in_size))
    if net.num_signs > 16:
        return
    try:
        complex = regions(net, domain)
    except (NotGenericError, UnsupportedModelError):
        return
    truth = fraction_regions(net, *domain.halfspaces())
    certificate = complex.verify()
    assert certificate.ok is not False, certificate
    assert certificate.at_least == len(truth), certificate
    maps = [fraction_map(net, row) for row in complex.sign_vectors.tolist()]
    gradients = [[form[:-1] for form in forms] for forms in maps]
    for (one, two), visible in zip(complex.facets.regions.tolist(), complex.facets.visible, strict=True):
        assert visible == (two >= 0 and gradients[one] != gradients[two])


@given(data=st.data())
@settings(max_examples=MANY * 4 // 10)
def test_slices_through_pooling_networks_with_twins(data: st.DataObject) -> None:
    """ReLU, then a maximum over twins one unit in the last place apart: what is certified positive rounds to zero."""
    blocks = ["act_pool", "act_pool", "act"]
    net = data.draw(programs(st.just(4), max_width=3, max_blocks=2, styles=TAME, blocks=blocks))
    corners = [np.array(data.draw(st.lists(st.integers(-20, 20), min_size=4, max_size=4))) / 10 for _ in range(3)]
    plane = Plane.through(*corners)
    view = plane.view(net)
    truth = fraction_regions(view.net, *plane.box.halfspaces())
    agrees((int(count_regions(net, plane)), True), truth)
    complex = regions(net, plane)
    assert labels(complex.sign_vectors) == truth
    assert complex.verify().ok is not False
