"""The entry function: regions of a network on a surface."""

from __future__ import annotations

from fiberscope.errors import InputError
from fiberscope.geometry.surfaces.generated import GeneratorSurface, regions_over
from fiberscope.geometry.surfaces.mesh_engine import cut_surface
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Surface, Torus
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.run import Progress, Run


def regions_on(
    net: NetworkLike,
    surface: Surface | GeneratorSurface,
    *,
    progress: Progress | None = None,
    limit: int | None = None,
    time_limit: float | None = None,
) -> SurfaceRegions:
    """The regions of a network on a surface of triangles, exactly.

    All triangles are cut at once by the planar engine, with shared vertices and edges, so the sign of every neuron on
    every piece is certified. Pieces of neighbouring triangles belong to one region if every neuron has one sign on
    both and on the edge between them.

    Parameters
    ----------
    net
        Any network with ``surface.ambient`` inputs.
    surface
        A :class:`Mesh`, :class:`Sphere` or :class:`Torus`, or a :class:`GeneratorSurface`.
    progress
        Called as ``progress(done, total, text)`` after every activation. Ctrl-C ends the work: what was found is
        returned, and its ``complete`` is False.
    limit, time_limit
        Stop when there are more pieces of triangles than that, or after so many seconds.

    Examples
    --------
    Three planes through the centre cut a sphere into eight parts:

    >>> import numpy as np
    >>> from fiberscope.network.network import Network
    >>> net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    >>> found = regions_on(net, Sphere(resolution=1))
    >>> found.num_regions, found.complete
    (8, True)
    >>> bool(np.isclose(found.areas.sum(), found.surface.mesh.area))
    True
    """
    net = as_network(net)
    if not isinstance(surface, Mesh | Sphere | Torus | GeneratorSurface):
        raise InputError(f"surface: expected a Mesh, Sphere, Torus or GeneratorSurface, got {type(surface).__name__}")
    if surface.ambient != net.in_size:
        raise InputError(f"surface: expected one in R^{net.in_size} for this network, got R^{surface.ambient}")
    run = Run.begin(progress, time_limit, limit)
    if isinstance(surface, GeneratorSurface):
        return regions_over(net, surface, run)
    return cut_surface(net, surface, run)
