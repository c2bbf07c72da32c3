"""Nothing that answers a question keeps itself alive: results and their builders go when the last reader goes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import fiberscope as fs


def square(n: int) -> fs.Box:
    return fs.Box(-np.ones(n), np.ones(n))


FLAT, SOLID = fs.Network.random((2, 8, 8, 1), 0), fs.Network.random((3, 8, 8, 1), 0)
POINTS = np.random.default_rng(0).normal(size=(20, 2))


def everything(net: fs.Network, domain: fs.Box) -> object:
    found = fs.regions(net, domain)
    return found.facets, found.adjacency, found.volumes, found.f_vector, found.verify()


QUESTIONS: dict[str, Callable[[], object]] = {
    "network": lambda: fs.Network.random((2, 8, 8, 1), 1).signs(POINTS),
    "planar": lambda: everything(FLAT, square(2)),
    "lattice": lambda: everything(SOLID, square(3)),
    "count": lambda: fs.count_regions(SOLID, square(3)),
    "traversal": lambda: fs.traverse(SOLID, square(3)),
    "orthant": lambda: fs.count_regions(fs.Network.random((3, 4, 1), 0), fs.Orthant(3)),
    "segment": lambda: fs.regions_along(FLAT, fs.Segment([-1, -1], [1, 1])),
    "circle": lambda: fs.regions_along(FLAT, fs.Circle()),
    "sphere": lambda: fs.regions_on(SOLID, fs.Sphere()),
    "distance": lambda: fs.boundary_distance(FLAT, POINTS),
    "folds": lambda: fs.dependency_graph(fs.fold_set(FLAT, square(2))),
    "dimension": lambda: fs.functional_dimension(FLAT, POINTS),
    "fiber": lambda: fs.fiber(fs.Network.random((2, 4, 1), 1)).sample(2, 0),
    "equal": lambda: fs.equivalent(FLAT, fs.Network.random((2, 8, 8, 1), 1), square(2)),
    "simplify": lambda: fs.simplify(FLAT),
}


@contextmanager
def kept() -> Iterator[list[object]]:
    """What only the cyclic collector would have freed, of the objects of this library and of NumPy.

    What was there before is frozen, and is not looked at, garbage or not: in a large process that takes seconds. It
    stays frozen, as what the collection of tests left behind (conftest).
    """
    found: list[object] = []
    gc.disable()
    gc.freeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [o for o in gc.garbage if type(o).__module__.split(".")[0] in ("fiberscope", "numpy")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_freed_without_the_collector(name: str) -> None:
    QUESTIONS[name]()  # compiled functions and loaded modules stay, and are none of our concern
    with kept() as found:
        QUESTIONS[name]()
    assert found == []


def test_a_cycle_is_seen() -> None:
    class Loop:
        pass

    Loop.__module__ = "fiberscope.made_up"
    with kept() as found:
        loop = Loop()
        loop.own = loop  # type: ignore[attr-defined]
        del loop
    assert [type(o).__name__ for o in found] == ["Loop"]
