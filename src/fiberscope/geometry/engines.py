"""Which engine builds the cells of a complex: the planar one in two dimensions, the lattice in all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.lattice import lattice_cells
from fiberscope.geometry.limits import MOST_FACES
from fiberscope.geometry.planar import planar_cells
from fiberscope.network.network import Network

Progress = Callable[[int, int, str], Any]
"""Called as ``progress(done, total, text)``."""


def cells_on(net: Network, domain: Domain, progress: Progress | None = None, limit: int | None = None) -> Cells:
    """The cells of the canonical complex of ``net`` on ``domain``."""
    check_dimension(net, domain)
    if isinstance(domain, Box | Plane) and domain.dimension == 2:
        return planar_cells(net, domain, progress=progress, limit=limit)
    if domain.dimension > MOST_FACES:
        raise TooLargeError(
            f"regions with all their faces: expected at most {MOST_FACES} dimensions, got {domain.dimension}; "
            "take a slice (Plane), or list regions alone"
        )
    return lattice_cells(net, domain, progress, limit)


def check_dimension(net: Network, domain: Domain) -> None:
    """Raise :class:`InputError` unless the domain lies in the network's input space."""
    if not isinstance(domain, Box | Orthant | Space | Polytope | Plane):
        raise InputError(f"domain: expected a Box, Plane, Polytope, Orthant or Space, got {type(domain).__name__}")
    size = domain.ambient if isinstance(domain, Plane) else domain.dimension
    if size != net.in_size:
        raise InputError(f"domain: expected dimension {net.in_size}, the network's input, got {domain}")
