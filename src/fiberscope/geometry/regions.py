"""The entry functions: regions of a network on a domain, by the engine that fits."""

from __future__ import annotations

from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Domain, Plane
from fiberscope.geometry.engines import Progress, cells_on, check_dimension
from fiberscope.geometry.planar import planar_count
from fiberscope.network.network import Network


def regions(net: Network, domain: Domain, *, progress: Progress | None = None, limit: int | None = None) -> Complex:
    """The polyhedral complex of a network on a domain: regions, faces of every dimension, and their signs.

    Parameters
    ----------
    net
        A network with as many inputs as the domain has dimensions (``plane.ambient`` for a plane).
    domain
        A box, polytope, orthant, all of space, or a plane through any input space.
    progress
        Called as ``progress(done, total, text)``. Ctrl-C ends the work: what was found is returned, and its
        ``complete`` is False.
    limit
        Stop when there are more regions than that.

    Examples
    --------
    Three lines in general position cut the plane into seven regions:

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]])
    >>> from fiberscope.geometry.domains import Space
    >>> regions(net, Space(2)).f_vector
    (3, 9, 7)
    """
    return Complex(net, domain, cells_on(net, domain, progress, limit))


def count_regions(net: Network, domain: Domain, *, progress: Progress | None = None) -> int:
    """How many regions a network has on a domain.

    >>> count_regions(Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]), Box.cube(2))
    4
    """
    check_dimension(net, domain)
    if isinstance(domain, Box | Plane) and domain.dimension == 2:
        return int(planar_count(net, domain, progress=progress))
    return regions(net, domain, progress=progress).num_regions
