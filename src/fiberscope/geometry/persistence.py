"""Persistent homology of one output on a bounded domain: how long pieces, loops and hollows of its sub-level sets last.

An output is affine on every cell, so that the set below a level shrinks onto the cells whose vertices all lie below it:
its homology changes only at values of vertices. Cells enter with their largest vertex. Where gudhi is installed (the
extra ``topology``) it is handed the chains of cells, each inside the next, which are simplices; otherwise the boundary
map of the cells themselves is reduced here, which takes longer for many cells (H. Edelsbrunner, J. Harer, Computational
Topology, 2010). The cells are exact; the values of vertices are floats, so that levels may be off by their rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.extras import import_module
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Domain
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.geometry.topology import cells_on
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden
from fiberscope.run import Progress, Run


@dataclass(frozen=True, eq=False)
class LevelPersistence(Result):
    """Births and deaths of holes of ``{f <= level}`` as the level rises.

    ``pairs[k]`` is ``(count, 2)``, levels at which a ``k``-dimensional hole appears and is filled, infinity if never;
    those that last no time are left out. :meth:`betti` counts the ones alive at a level.
    """

    output: int
    num_cells: tuple[int, ...]
    pairs: tuple[FloatArray, ...] = field(repr=False, metadata=hidden())

    told = ("num_pairs",)

    @property
    def num_pairs(self) -> tuple[int, ...]:
        """How many holes there are of every dimension."""
        return tuple(len(found) for found in self.pairs)

    def betti(self, level: float) -> tuple[int, ...]:
        """Betti numbers of ``{f <= level}``, up to rounding of levels."""
        return tuple(int(((p[:, 0] <= level) & (level < p[:, 1])).sum()) for p in self.pairs)


def level_persistence(
    net: NetworkLike,
    domain: Domain | Mesh | Sphere | Torus,
    output: int = 0,
    *,
    progress: Progress | None = None,
    limit: int | None = None,
    time_limit: float | None = None,
) -> LevelPersistence:
    """Persistence of the sub-level sets of one output; faster with gudhi (``pip install fiberscope[topology]``).

    Parameters
    ----------
    net
        Any network.
    domain
        A bounded domain such as a :class:`Box` or a :class:`Plane`, or a surface of triangles. All cells are listed.
    output
        Which output, from 0.
    progress, limit, time_limit
        As for :func:`fiberscope.regions`; a limit that is reached is raised.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> from fiberscope.geometry.domains import Box
    >>> w = Network([[[1.0], [1.0], [1.0]], [[-1.0, 2.0, -2.0]]], [[2.0, 1.0, 0.0], [0.0]])  # a W on its side
    >>> level_persistence(w, Box([-2.0], [1.0])).pairs[0].tolist()
    [[-1.0, inf], [-1.0, 0.0]]
    """
    net = as_network(net)
    if not isinstance(output, int | np.integer) or not 0 <= output < net.out_size:
        raise InputError(f"output: expected an index from 0 to {net.out_size - 1}, got {output!r}")
    run = Run.begin(progress, time_limit, limit)
    cells, points = cells_on(net, domain, run, limit)
    heights = [np.asarray(net(points)[:, int(output)])]
    for inside in cells.boundary:
        heights.append(np.maximum.reduceat(heights[-1][inside.indices], inside.indptr[:-1]))
    found = (_by_gudhi if find_spec("gudhi") else _by_reduction)(cells, heights, run)
    pairs = []
    for every in found:
        lasting = every[every[:, 0] < every[:, 1]]
        pairs.append(lasting[np.lexsort((-lasting[:, 1], lasting[:, 0]))])
    counts = tuple(cells.count(k) for k in range(cells.dimension + 1))
    return LevelPersistence(int(output), counts, tuple(pairs))


def _by_gudhi(cells: Cells, heights: list[FloatArray], run: Run) -> list[FloatArray]:
    gudhi: Any = import_module("gudhi", "level_persistence")
    tree, tops = gudhi.SimplexTree(), np.concatenate(heights)
    chains = _chains(cells, run)
    for size in range(1, cells.dimension + 2):
        rows = np.array([chain for chain in chains if len(chain) == size], dtype=np.int32).reshape(-1, size)
        if len(rows):
            run.check()
            tree.insert_batch(rows.T, tops[rows].max(axis=1))
    tree.compute_persistence(min_persistence=0.0, persistence_dim_max=True)
    return [
        np.asarray(tree.persistence_intervals_in_dimension(k), dtype=np.float64).reshape(-1, 2)
        for k in range(cells.dimension + 1)
    ]


def _by_reduction(cells: Cells, heights: list[FloatArray], run: Run) -> list[FloatArray]:
    """Columns in the order of the filtration, each reduced by earlier ones with the same last entry."""
    order = [np.argsort(height, kind="stable") for height in heights]
    found: list[list[tuple[float, float]]] = [[] for _ in heights]
    born: list[int] = []
    for k in range(len(heights)):
        bearers = [True] * len(heights[k])
        dead: set[int] = set()
        if k:
            place = np.empty(len(order[k - 1]), dtype=np.int64)
            place[order[k - 1]] = np.arange(len(place))
            reduced: dict[int, set[int]] = {}
            for done, cell in enumerate(order[k].tolist()):
                if done % 256 == 0:
                    run.step(done, len(order[k]), f"holes of dimension {k - 1}")
                column = set(place[cells.boundary[k - 1][cell]].tolist())
                while column and max(column) in reduced:
                    column ^= reduced[max(column)]
                if column:
                    last = max(column)
                    reduced[last] = column
                    dead.add(last)
                    bearers[cell] = False
                    birth = float(heights[k - 1][order[k - 1][last]])
                    found[k - 1].append((birth, float(heights[k][cell])))
            open_ = [c for c in born if int(place[c]) not in dead]
            found[k - 1] += [(float(heights[k - 1][c]), np.inf) for c in open_]
        born = [c for c in range(len(heights[k])) if bearers[c]]
    found[-1] += [(float(heights[-1][c]), np.inf) for c in born]
    return [np.array(pairs, dtype=np.float64).reshape(-1, 2) for pairs in found]


def _chains(cells: Cells, run: Run) -> list[tuple[int, ...]]:
    """All chains of cells each in the boundary of the next, by numbers of cells from dimension 0 on."""
    starts = np.concatenate([[0], np.cumsum([cells.count(k) for k in range(cells.dimension + 1)])])
    below: list[list[set[int]]] = [[set() for _ in range(cells.count(0))]]
    ending: list[list[tuple[int, ...]]] = [[(v,)] for v in range(cells.count(0))]
    for k in range(1, cells.dimension + 1):
        faces = []
        for cell in range(cells.count(k)):
            if cell % 256 == 0:
                run.step(cell, cells.count(k), f"chains of dimension {k}")
            near = cells.boundary[k - 1][cell].tolist()
            own = {int(starts[k - 1]) + f for f in near}.union(*(below[k - 1][f] for f in near))
            number = int(starts[k]) + cell
            ending.append([(number,), *((*chain, number) for face in sorted(own) for chain in ending[face])])
            faces.append(own)
        below.append(faces)
    return [chain for part in ending for chain in part]
