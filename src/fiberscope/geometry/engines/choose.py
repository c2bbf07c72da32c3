"""Which engine answers: the only place where one is chosen, from the dimension and the kind of a view's domain.

- ``planar``: polygons, in a two-dimensional box;
- ``lattice``: faces of every dimension, or for a count alone, in general position, vertices and edges (the skeleton);
- ``traversal``: regions one by one, where faces are too many.
"""

from __future__ import annotations

from typing import Any, Literal

import flint
import numpy as np

from fiberscope.errors import NotGenericError, TooLargeError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Domain, Solid, View
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.lattice.skeleton import count_by_skeleton
from fiberscope.geometry.engines.lattice.start import box_start
from fiberscope.geometry.engines.limits import ADVICE, FACES, MOST_FACES
from fiberscope.geometry.engines.planar.engine import planar_cells, planar_count
from fiberscope.geometry.engines.traversal.engine import visit
from fiberscope.geometry.engines.traversal.exact import fraction
from fiberscope.geometry.engines.traversal.rows import exact_functionals
from fiberscope.network.network import Network, Seed
from fiberscope.run import ENDLESS, Run


def engine_for(domain: Solid) -> Literal["planar", "lattice", "traversal"]:
    """The engine that is fastest to a count of regions; what needs faces takes the lattice instead of a traversal."""
    if isinstance(domain, Box) and domain.dimension == 2:
        return "planar"
    return "lattice" if has_faces(domain) else "traversal"


def has_faces(domain: Domain) -> bool:
    """Whether the complex of a domain of this dimension is built with its faces as a matter of course."""
    return domain.dimension <= FACES


class NumRegions(int):
    """A number of regions; ``complete`` is False when there are *at least* so many, ``method`` names the engine.

    ``tiling`` is the evidence of a count in pieces (:class:`~fiberscope.geometry.tiling.Tiling`), else None.
    """

    complete: bool
    method: str
    tiling: Any

    def __new__(cls, count: int, complete: bool, method: str, tiling: Any = None) -> NumRegions:
        made = super().__new__(cls, count)
        made.complete, made.method, made.tiling = complete, method, tiling
        return made

    def __repr__(self) -> str:
        return f"{int(self)}" if self.complete else f"at least {int(self)}"

    __str__ = __repr__


def cells_on(view: View, run: Run = ENDLESS) -> Cells:
    """The cells of the canonical complex of a view."""
    net, domain = view.net, view.domain
    if engine_for(domain) == "planar":
        return planar_cells(net, domain, run)  # type: ignore[arg-type]  # it is a box
    if domain.dimension > MOST_FACES:
        raise TooLargeError(
            f"regions with all their faces: expected at most {MOST_FACES} dimensions, got {domain.dimension}; "
            f"{ADVICE}, or visit regions one by one (traverse)"
        )
    if not isinstance(domain, Box):
        _check_vertices(net, domain)
    return lattice_cells(net, domain, run)


def count_on(view: View, seed: Seed, run: Run) -> NumRegions:
    """The number of regions of a view; with a limit no shortcut is taken that would have to reach all of them."""
    net, domain, engine = view.net, view.domain, engine_for(view.domain)
    if engine == "planar" and run.limit is None:
        found = planar_count(net, domain, run)  # type: ignore[arg-type]  # it is a box
        return NumRegions(int(found), found.complete, "planar")
    if engine == "lattice" and run.limit is None and isinstance(domain, Box):
        try:
            count, complete = count_by_skeleton(net, box_start(domain), run)
            return NumRegions(count, complete, "skeleton")
        except NotGenericError:
            pass  # all faces tell it
    if engine != "traversal":
        try:
            cells = cells_on(view, run)
            return NumRegions(cells.count(cells.dimension), cells.complete, engine)
        except NotGenericError:
            pass  # regions without vertices, on an unbounded domain
    visited = visit(view, seed, run)
    return NumRegions(visited.count, visited.complete, "traversal")


def _check_vertices(net: Network, domain: Solid) -> None:
    """Raise :class:`NotGenericError` if the first layer and the domain leave a direction free: no cell has a vertex."""
    if net.layout.pooled.any():
        return  # the engine says what it does not take
    width = net.switches[0].num_signs if net.switches else 0
    neurons = np.flatnonzero(~net.linear_entries[:width]).tolist()
    forms = exact_functionals(net, np.zeros(net.num_signs, dtype=np.int8))
    rows = [[fraction(x) for x in row] for row in domain.halfspaces()[0].tolist()]
    rows += [forms[k][:-1] for k in neurons]
    kernel, free = flint.fmpq_mat(rows or [[0] * domain.dimension]).numer_denom()[0].nullspace()
    if free:
        direction = [int(kernel[i, 0]) for i in range(domain.dimension)]
        scale = max(direction, key=abs)
        raise NotGenericError(
            f"regions on {domain}: expected first-layer neurons that leave no direction free, but neurons {neurons} "
            f"and the sides of the domain have rank {domain.dimension - free} in R^{domain.dimension} and none of them "
            f"depends on {[x / scale + 0.0 for x in direction]}, so that no cell has a vertex; ask on a Box or "
            "a Plane, or count_regions, which visits regions one by one"
        )
