"""Which engine builds the cells of a complex: the planar one in two dimensions, the lattice in all others."""

from __future__ import annotations

import flint
import numpy as np

from fiberscope.errors import InputError, NotGenericError, TooLargeError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.limits import ADVICE, MOST_FACES
from fiberscope.geometry.engines.planar.engine import planar_cells
from fiberscope.geometry.engines.traversal.exact import fraction
from fiberscope.geometry.engines.traversal.rows import exact_functionals
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.run import ENDLESS, Run


def cells_on(net: Network, domain: Domain, run: Run = ENDLESS, *, threads: int = 1) -> Cells:
    """The cells of the canonical complex of ``net`` on ``domain``; the lattice shares them out among ``threads``."""
    check_dimension(net, domain)
    if isinstance(domain, Box | Plane) and domain.dimension == 2:
        return planar_cells(net, domain, run)
    if domain.dimension > MOST_FACES:
        raise TooLargeError(
            f"regions with all their faces: expected at most {MOST_FACES} dimensions, got {domain.dimension}; "
            f"{ADVICE}, or visit regions one by one (traverse)"
        )
    if not isinstance(domain, Box | Plane):
        _check_vertices(net, domain)
    return lattice_cells(net, domain, run, threads=threads)


def _check_vertices(net: Network, domain: Orthant | Space | Polytope) -> None:
    """Raise :class:`NotGenericError` if the first layer and the domain leave a direction free: no cell has a vertex."""
    if not all(isinstance(node, PiecewiseLinear) for node in net.switches):
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


def check_dimension(net: Network, domain: Domain) -> None:
    """Raise :class:`InputError` unless the domain lies in the network's input space."""
    if not isinstance(domain, Box | Orthant | Space | Polytope | Plane):
        raise InputError(f"domain: expected a Box, Plane, Polytope, Orthant or Space, got {type(domain).__name__}")
    size = domain.ambient if isinstance(domain, Plane) else domain.dimension
    if size != net.in_size:
        raise InputError(f"domain: expected dimension {net.in_size}, the network's input, got {domain}")
