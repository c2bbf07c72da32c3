"""Points of a domain to try a claim on."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node
from fiberscope.network.operators import Dense
from fiberscope.network.rewire import moved
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import BoolArray, FloatArray, gamma, round_up
from fiberscope.numerics.lp.programs import Polyhedron


def domain_of(net: Network, domain: Domain | None) -> Domain:
    """The domain, checked against the input of the network; all of space for None."""
    if domain is None:
        return Space(net.in_size)
    if not isinstance(domain, Box | Orthant | Space | Polytope | Plane):
        raise InputError(f"domain: expected a Box, Orthant, Space, Polytope or Plane, got {type(domain).__name__}")
    size = domain.ambient if isinstance(domain, Plane) else domain.dimension
    if size != net.in_size:
        raise InputError(f"domain: expected dimension {net.in_size}, the network's input, got {domain}")
    if isinstance(domain, Polytope) and Polyhedron(*domain.halfspaces()).interior().answer is not True:
        raise InputError(f"domain: expected a polytope with an interior, got {domain}")
    return domain


def sliced(net: Network, domain: Domain) -> tuple[Network, Box | Orthant | Space | Polytope]:
    """On a plane, the network of the two coordinates of the slice, and their box; else both as they are."""
    if not isinstance(domain, Plane):
        return net, domain
    lift: list[Node] = [Affine(0, Dense(np.stack([domain.u, domain.v], axis=1)), domain.origin)]
    nodes = [moved(node, tuple(s + 1 for s in node.sources)) for node in net.nodes]
    return Network.from_nodes(lift + nodes, (2,)), domain.box


def sample(domain: Box | Orthant | Space | Polytope, count: int, rng: np.random.Generator) -> FloatArray:
    """Random points of a domain, ``(count, n)``; on unbounded ones of many sizes."""
    n = domain.dimension
    if isinstance(domain, Box):
        inner = rng.uniform(size=(count, n))
        inner[: count // 4] = np.round(inner[: count // 4])  # corners
        inner[count // 4 : count // 2, :] = np.where(rng.random((count // 2 - count // 4, n)) < 0.5, inner[:1], 0.5)
        points = domain.low * (1 - inner) + domain.high * inner  # the width of a box may be beyond the floats
        return np.clip(points, domain.low, domain.high)
    sizes = 4.0 ** rng.integers(-3, 4, (count, 1))
    points = rng.normal(size=(count, n)) * sizes
    if isinstance(domain, Orthant):
        return np.abs(points)
    if isinstance(domain, Space):
        return points
    return _hit_and_run(domain, count, rng)


def _hit_and_run(domain: Polytope, count: int, rng: np.random.Generator) -> FloatArray:
    A, b = domain.halfspaces()
    inner = Polyhedron(A, b).interior().point
    if inner is None:
        raise InputError(f"domain: expected a polytope with an interior, got {domain}")
    x, points = inner.copy(), []
    for _ in range(count):
        direction = rng.normal(size=x.size)
        slope, room = A @ direction, b - A @ x
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = room / slope
        high = min(steps[slope > 0].min(initial=np.inf), 16.0)
        low = max(steps[slope < 0].max(initial=-np.inf), -16.0)
        moved_point = x + rng.uniform(min(low, 0.0), max(high, 0.0)) * direction
        if inside(domain, moved_point[None])[0]:
            x = moved_point
        points.append(x.copy())
    return np.array(points)


def inside(domain: Box | Orthant | Space | Polytope, points: FloatArray) -> BoolArray:
    """Which points are in the domain, for certain; what is not finite is no point."""
    if isinstance(domain, Box):
        return np.asarray(((points >= domain.low) & (points <= domain.high)).all(axis=1))
    finite = np.asarray(np.isfinite(points).all(axis=1))
    if isinstance(domain, Orthant):
        return np.asarray((points >= 0).all(axis=1) & finite)
    A, b = domain.halfspaces()
    if not len(A):
        return finite
    with np.errstate(over="ignore", invalid="ignore"):
        room = round_up(gamma(A.shape[1] + 4) * (np.abs(points) @ np.abs(A).T + np.abs(b)), A.shape[1] + 4)
        return np.asarray((points @ A.T - b + room < 0).all(axis=1) & finite)


def check_point(value: object, size: int) -> FloatArray:
    """One input as a flat vector."""
    point = real_array(value, "x").reshape(-1)
    if point.size != size:
        raise InputError(f"x: expected {size} coordinates, got {point.size}")
    return point
