"""Betti numbers of level sets and of what lies below and above them, exactly.

One more neuron, the output minus the level, cuts the complex along the level set. The engines certify its signs on all
cells, so that the level set and the sets below and above are subcomplexes whatever the level is: through vertices, or
equal to the function on whole regions. Their homology is that of cells and facets, over the field of two elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Domain
from fiberscope.geometry.regions import regions_within
from fiberscope.geometry.surfaces.mesh_engine import cut_surface
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Progress, Run

_OFTEN = 256
"""Cells between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class LevelTopology(Result):
    """Betti numbers of ``{f = level}``, ``{f <= level}`` and ``{f >= level}`` on a bounded domain.

    Entry ``k`` counts the independent ``k``-dimensional holes over the field of two elements: connected pieces first,
    then loops, then hollows. An empty set has zeros only. Nothing in it is sampled or rounded.

    Parameters
    ----------
    level, output
        What was asked: which output, and where it is cut.
    boundary, below, above
        Betti numbers ``b_0, ..., b_d`` of the three closed sets.
    num_cells
        Cells of the level set by dimension.
    """

    level: float
    output: int
    boundary: tuple[int, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]
    num_cells: tuple[int, ...] = field(repr=False)

    told = ("euler_characteristic",)

    @property
    def euler_characteristic(self) -> int:
        """Of the level set: the alternating sum of its cells."""
        return sum((-1) ** k * count for k, count in enumerate(self.num_cells))


def level_topology(
    net: NetworkLike,
    domain: Domain | Mesh | Sphere | Torus,
    level: float = 0.0,
    output: int = 0,
    *,
    progress: Progress | None = None,
    limit: int | None = None,
    time_limit: float | None = None,
) -> LevelTopology:
    """Pieces, loops and hollows of a level set of one output, and of the sets below and above it.

    Parameters
    ----------
    net
        Any network.
    domain
        A bounded domain such as a :class:`Box` or a :class:`Plane`, or a surface of triangles such as a :class:`Mesh`.
        All of its cells are listed: dimension one to four, as a rule.
    level
        A finite number, taken as it is. Levels through vertices and levels of flat regions have answers, too.
    output
        Which output, from 0. The boundary between two classes is the level 0 of the difference of their outputs.
    progress, limit, time_limit
        As for :func:`fiberscope.regions`; a limit that is reached is raised.

    Examples
    --------
    ``max(|x|, |y|)`` is 1 on a square, a loop; below is a disc, above a ring:

    >>> corners = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    >>> larger = [[1.0, 1.0, 0.0, 0.0], [-1.0, -1.0, 1.0, 1.0]]
    >>> net = Network([corners, larger, [[1.0, 1.0]]], [np.zeros(4), np.zeros(2), [0.0]])
    >>> from fiberscope.geometry.domains import Box
    >>> level_topology(net, Box.cube(2, -2.0, 2.0), 1.0)
    LevelTopology(level=1.0, output=0, boundary=(1, 1, 0), below=(1, 0, 0), above=(1, 1, 0))
    """
    net = as_network(net)
    value = float(real_array(level, "level", ndim=0))
    if not isinstance(output, int | np.integer) or not 0 <= output < net.out_size:
        raise InputError(f"output: expected an index from 0 to {net.out_size - 1}, got {output!r}")
    run = Run.begin(progress, time_limit, limit)
    cells, _ = cells_on(_with_level(net, value, int(output)), domain, run, limit)
    signs = [cells.signs(k)[:, -1] for k in range(cells.dimension + 1)]
    sets = ([s == 0 for s in signs], [s <= 0 for s in signs], [s >= 0 for s in signs])
    boundary, below, above = (betti_numbers(cells, own, run) for own in sets)
    counts = tuple(int(own.sum()) for own in sets[0])
    return LevelTopology(value, int(output), boundary, below, above, counts)


def cells_on(
    net: Network, domain: Domain | Mesh | Sphere | Torus, run: Run, limit: int | None
) -> tuple[Cells, FloatArray]:
    """All cells of a network on a bounded domain or surface, and their vertices in the input space."""
    if isinstance(domain, Mesh | Sphere | Torus):
        if domain.ambient != net.in_size:
            raise InputError(f"domain: expected one in R^{net.in_size} for this network, got R^{domain.ambient}")
        on = cut_surface(net, domain, run)
        cells, points = on.structure, on.vertices
    else:
        complex = regions_within(net, domain, run)
        cells, points = complex.structure, complex.view.lift(complex.structure.points)
    if not cells.complete:
        raise TooLargeError(f"more than {limit} regions; give a larger limit=")
    if cells.rays is not None and cells.rays.any():
        raise InputError(f"domain: expected a bounded one, got {domain!r}")
    return cells, points


def _with_level(net: Network, level: float, output: int) -> Network:
    """The network followed by one neuron that vanishes on the level set."""
    row, last = np.zeros((1, net.out_size)), len(net.nodes)
    row[0, output] = 1.0
    extra: list[Node] = [Affine(last, Dense(row), np.array([-level])), PiecewiseLinear(last + 1, np.zeros(1), (1,))]
    return Network.from_nodes([*net.nodes, *extra], net.input_shape)


def betti_numbers(cells: Cells, own: list[BoolArray], run: Run = ENDLESS) -> tuple[int, ...]:
    """Of the closed subcomplex of the cells ``own[k]``, over the field of two elements."""
    counts = [int(mask.sum()) for mask in own]
    ranks = [0] + [_rank(cells, own[k], k, run) for k in range(1, len(own))] + [0]
    return tuple(count - ranks[k] - ranks[k + 1] for k, count in enumerate(counts))


def _rank(cells: Cells, own: BoolArray, k: int, run: Run) -> int:
    """Rank of the boundary map of the ``k``-cells: columns are reduced by earlier ones with the same last entry."""
    inside = cells.boundary[k - 1]
    reduced: dict[int, set[int]] = {}
    for done, cell in enumerate(np.flatnonzero(own).tolist()):
        if done % _OFTEN == 0:
            run.step(done, int(own.sum()), f"holes of dimension {k - 1}")
        column = set(inside[cell].tolist())
        while column:
            last = max(column)
            if last not in reduced:
                reduced[last] = column
                break
            column = column ^ reduced[last]
    return len(reduced)
