"""Max pooling in n dimensions: against the planar engine, dense sampling, certificates, and what must not change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import NotGenericError, TooLargeError, UnsupportedModelError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.lattice.pools import compared
from fiberscope.geometry.engines.lattice.skeleton import skeleton
from fiberscope.geometry.engines.lattice.start import box_start
from fiberscope.geometry.engines.planar.engine import planar_cells
from fiberscope.geometry.function import function_from
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.run import Run


def pooled(
    n: int, seed: int, *, integers: bool = False, relu: bool = True, size: int = 2, stride: int = 1, pad: int = 0
) -> Network:
    """Nine neurons on a square, pooled by windows of this size, and three neurons that look at the maxima."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return rng.integers(-1, 2, shape).astype(float) if integers else rng.normal(size=shape)

    nodes: list[Node] = [Affine(0, Dense(draw(9, n)), draw(9))]
    if relu:
        nodes.append(PiecewiseLinear(1, np.zeros(9), (1, 3, 3)))
    pool = MaxPool(len(nodes), (1, 3, 3), (size, size), (stride, stride), (pad, 0, 0, pad))
    nodes.append(pool)
    nodes.append(Affine(len(nodes), Dense(draw(3, int(np.prod(pool.shape)))), draw(3)))
    nodes.append(PiecewiseLinear(len(nodes), np.zeros(3), (3,)))
    nodes.append(Affine(len(nodes), Dense(np.ones((1, 3))), None))
    return Network.from_nodes(nodes, (n,))


def all_signs(cells: Cells) -> list[Counter[tuple[int, ...]]]:
    """Sign vectors of the cells of every dimension."""
    return [Counter(map(tuple, cells.signs(k).tolist())) for k in range(cells.dimension + 1)]


@settings(max_examples=30)
@given(
    st.integers(0, 2**32), st.booleans(), st.booleans(), st.sampled_from([(2, 1, 0), (3, 1, 0), (2, 2, 1), (1, 1, 0)])
)
def test_the_planar_engine_finds_the_same_cells(seed: int, integers: bool, relu: bool, window: Any) -> None:
    size, stride, pad = window
    net = pooled(2, seed, integers=integers, relu=relu, size=size, stride=stride, pad=pad)
    ours, planar = lattice_cells(net, Box.cube(2)), planar_cells(net, Box.cube(2))
    assert ours.complete
    assert all_signs(ours) == all_signs(planar)
    assert Counter(np.diff(ours.boundary[1].indptr).tolist()) == Counter(np.diff(planar.boundary[1].indptr).tolist())
    for c in range(ours.count(2)):  # the edges of a polygon come in cyclic order
        ends = [set(ours.boundary[0][int(e)].tolist()) for e in ours.boundary[1][c]]
        assert all(a & b for a, b in zip(ends, [*ends[1:], ends[0]], strict=True))


@pytest.mark.parametrize(
    ("n", "seed", "options"),
    [
        (3, 0, {}),
        (3, 1, {"relu": False}),
        (3, 2, {"size": 3}),
        (3, 3, {"integers": True}),
        (3, 4, {"integers": True, "relu": False}),
        (1, 5, {}),
        (4, 6, {"relu": False, "stride": 2, "pad": 1}),
    ],
)
def test_other_dimensions(n: int, seed: int, options: Any) -> None:
    net = pooled(n, seed, **options)
    complex = regions(net, Box.cube(n))
    certificate = complex.verify()
    assert certificate.ok, certificate
    labels = {tuple(s) for s in complex.structure.top_signs.tolist()}
    points = np.random.default_rng(seed).uniform(-1, 1, (20000, n))
    assert {tuple(s) for s in net.signs(points).signs.tolist()} <= labels
    count = count_regions(net, Box.cube(n))
    assert (int(count), count.method) == (len(labels), "lattice")
    np.testing.assert_allclose(function_from(complex)(points), net(points), atol=1e-9)


def test_a_maximum_of_coordinates() -> None:
    """The cube is cut into three pyramids over a diagonal, and nowhere else: losers make no walls."""
    net = Network.from_nodes([MaxPool(0, (1, 1, 3), (1, 3), (1, 1))], (3,))
    cells = lattice_cells(net, Box.cube(3))
    assert sorted(map(tuple, cells.top_signs.tolist())) == [(-1, -1, 1), (-1, 1, -1), (1, -1, -1)]
    # Faces x_i = 1 are squares of their own; a face x_i = -1 is cut along its diagonal.
    assert [cells.count(k) for k in range(4)] == [8, 16, 12, 3]
    box = Polytope(*Box.cube(3).halfspaces())
    assert all_signs(lattice_cells(net, box)) == all_signs(cells)
    trivial = Network.from_nodes([MaxPool(0, (1, 1, 3), (1, 1), (1, 1))], (3,))
    assert lattice_cells(trivial, Box.cube(3)).top_signs.tolist() == [[1, 1, 1]]


def test_one_function_with_comparisons() -> None:
    net = pooled(4, 7)
    fine, (pool,) = compared(net)
    points = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_array_equal(fine(points), net(points))
    assert fine.num_signs == net.num_signs + pool.pairs.stop - pool.pairs.start
    np.testing.assert_array_equal(
        fine.signs(points).signs[:, pool.entries], net.signs(points).signs[:, 9 : 9 + pool.node.num_signs]
    )


def test_pools_behind_pools_on_a_slice() -> None:
    rng = np.random.default_rng(5)
    nodes: list[Node] = [
        Affine(0, Dense(rng.normal(size=(9, 4))), rng.normal(size=9)),
        PiecewiseLinear(1, np.zeros(9), (1, 3, 3)),
        MaxPool(2, (1, 3, 3), (2, 2), (1, 1)),
        MaxPool(3, (1, 2, 2), (2, 2), (1, 1)),
    ]
    net, plane = Network.from_nodes(nodes, (4,)), Plane(np.zeros(4), *rng.normal(size=(2, 4)))
    view = plane.view(net)
    assert all_signs(lattice_cells(view.net, view.domain)) == all_signs(planar_cells(view.net, view.domain))


def test_an_interrupted_pool_leaves_the_complex_before_it() -> None:
    net = pooled(3, 0)
    before = lattice_cells(Network.from_nodes([*net.nodes[:2]], (3,)), Box.cube(3))

    def stop(done: int, total: int, text: str) -> None:
        if done >= 12:  # three comparisons after nine neurons
            raise KeyboardInterrupt

    part = lattice_cells(net, Box.cube(3), Run(stop))
    assert not part.complete
    assert not part.vertex_signs[:, 9:].any()
    for k, wanted in enumerate(all_signs(before)):
        assert Counter({key[:9]: number for key, number in all_signs(part)[k].items()}) == wanted
    assert not lattice_cells(net, Box.cube(3), Run(limit=40)).complete


@pytest.mark.parametrize("domain", [Space(3), Orthant(3), Polytope([[1.0, 0.0, 0.0]], [1.0])])
def test_unbounded_domains_are_refused(domain: Domain) -> None:
    with pytest.raises(UnsupportedModelError, match="max pooling: expected a bounded domain"):
        regions(pooled(3, 0), domain)


def test_what_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.layers.LARGE", 0)  # asked at once
    monkeypatch.setattr("fiberscope.geometry.regions.MEMORY", 1 << 13)
    for ask in (regions, count_regions):
        with pytest.raises(TooLargeError, match="the limit of memory is 35"):
            ask(pooled(3, 0), Box.cube(3))
    assert not regions(pooled(3, 0), Box.cube(3), limit=20).structure.complete


def test_no_skeleton_with_pools() -> None:
    with pytest.raises(NotGenericError, match="max pooling"):
        skeleton(pooled(3, 0), box_start(Box.cube(3)))
