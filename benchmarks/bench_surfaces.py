"""Regions on spheres and tori: all triangles in one run with shared vertices, against one run for every triangle."""

from __future__ import annotations

import numpy as np

from fiberscope.geometry.domains import Polytope
from fiberscope.geometry.engines.planar.engine import planar_count
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.round_regions import round_regions
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, behind
from fiberscope.network.operators import Dense
from harness import Case

HALF_SQUARE = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])


def one_by_one(net: Network, mesh: Mesh) -> int:
    """Pieces of all triangles, each counted by itself in its own two coordinates; none are joined to regions."""
    total = 0
    for a, b, c in mesh.vertices[mesh.triangles]:
        lift = Affine(0, Dense(np.stack([b - a, c - a], axis=1)), a)
        total += int(planar_count(Network.from_nodes([lift, *behind(net.nodes, 1)], (2,)), HALF_SQUARE))
    return total


def all_at_once(net: Network, mesh: Mesh) -> int:
    found = regions_on(net, mesh)
    assert found.num_regions <= found.num_pieces  # the joining is timed as well
    return found.num_pieces


def case(widths: tuple[int, ...], surface: Sphere | Torus, quick: bool) -> Case:
    net, mesh = Network.random(widths, 0), surface.mesh
    return Case(
        method=f"surface, {type(surface).__name__.lower()} of {len(mesh.triangles)} triangles",
        network="-".join(map(str, widths)),
        ours=lambda: all_at_once(net, mesh),
        reference=lambda: one_by_one(net, mesh),
        quick=quick,
    )


def round_case(widths: tuple[int, ...], resolution: int, quick: bool) -> Case:
    """The round sphere without a mesh, against the regions of a fine one; on a fine mesh the counts agree."""
    net, sphere = Network.random(widths, 0), Sphere(resolution=resolution)
    return Case(
        method=f"round sphere, against {len(sphere.mesh.triangles)} triangles",
        network="-".join(map(str, widths)),
        ours=lambda: round_regions(net, sphere).num_regions,
        reference=lambda: regions_on(net, sphere).num_regions,
        quick=quick,
    )


def cases() -> list[Case]:
    return [
        round_case((3, 16, 16, 1), 5, quick=True),
        case((3, 16, 16, 1), Sphere(resolution=1), quick=True),
        case((3, 64, 64, 1), Sphere(resolution=1), quick=False),
        case((3, 32, 32, 32, 1), Torus(resolution=2), quick=False),
    ]
