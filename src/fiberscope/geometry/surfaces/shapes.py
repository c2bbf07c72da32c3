"""Surfaces as triangle meshes in R^n: any mesh, the sphere and the torus.

A mesh is taken as it stands: its corners are the given floats, its triangles are flat, and all answers about it are
exact for that polyhedral surface. A sphere or a torus is its inscribed mesh; ``deviation`` says how far that is away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import cos, pi, sqrt
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, gamma
from fiberscope.numerics.points import to_dyadic

MOST_TRIANGLES = 1 << 22
"""Finer spheres and tori are refused: their mesh alone would need hundreds of megabytes."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """A surface of triangles in R^n.

    Neighbours are triangles that share two vertices, by number: two vertices at the same place are two vertices. The
    surface may have a border, several parts, and no orientation; it may pass through itself, which is not looked for.

    Parameters
    ----------
    vertices
        ``(count, n)`` with ``n >= 2``.
    triangles
        ``(count, 3)`` numbers of vertices. Every triangle has an area that is not zero (decided exactly), and at most
        two triangles meet in an edge.

    Examples
    --------
    >>> mesh = Mesh([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [[0, 1, 2], [0, 2, 3]])
    >>> mesh, mesh.area
    (Mesh(2 triangles in R^2, border of 4 edges), 1.0)
    """

    vertices: FloatArray
    triangles: IntArray

    def __init__(self, vertices: Any, triangles: Any) -> None:
        points = real_array(vertices, "vertices", ndim=2)
        if points.shape[1] < 2:
            raise InputError(f"vertices: expected points (count, n) with n >= 2, got shape {points.shape}")
        numbers = _numbers(triangles, len(points))
        object.__setattr__(self, "vertices", frozen(points))
        object.__setattr__(self, "triangles", numbers)
        _check_edges(self)
        flat = _zero_areas(points, numbers)
        if len(flat):
            t = int(flat[0])
            raise InputError(
                f"triangle {t}: expected an area that is not zero, got vertices {numbers[t].tolist()} on one line"
            )

    @classmethod
    def grid(cls, points: Any) -> Mesh:
        """The mesh of a grid of points ``(rows, columns, n)``: every square is cut into two triangles.

        >>> Mesh.grid([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]])
        Mesh(2 triangles in R^2, border of 4 edges)
        """
        grid = real_array(points, "points", ndim=3)
        rows, columns, n = grid.shape
        if min(rows, columns) < 2:
            raise InputError(f"points: expected a grid of at least 2 x 2 points, got shape {grid.shape}")
        return cls(grid.reshape(-1, n), _grid_triangles(rows, columns, closed=False))

    @property
    def mesh(self) -> Mesh:
        """Itself; spheres and tori have a mesh too."""
        return self

    @property
    def ambient(self) -> int:
        """The dimension n of the space around."""
        return int(self.vertices.shape[1])

    @cached_property
    def edges(self) -> IntArray:
        """The edges as pairs of vertices, the smaller first, ``(count, 2)``."""
        return self._edge_table[0]

    @cached_property
    def triangle_edges(self) -> IntArray:
        """``(triangles, 3)``: edge ``i`` of a triangle joins its corners ``i`` and ``i + 1``."""
        return self._edge_table[1]

    @cached_property
    def _edge_table(self) -> tuple[IntArray, IntArray]:
        pairs = np.stack([self.triangles, np.roll(self.triangles, -1, axis=1)], axis=2)
        edges, number = np.unique(np.sort(pairs.reshape(-1, 2), axis=1), axis=0, return_inverse=True)
        return edges, number.reshape(-1, 3)

    @cached_property
    def border(self) -> BoolArray:
        """Which edges belong to one triangle only."""
        return np.asarray(np.bincount(self.triangle_edges.ravel(), minlength=len(self.edges)) == 1)

    @property
    def euler_characteristic(self) -> int:
        """Vertices in use, minus edges, plus triangles: 2 for a sphere, 0 for a torus, 1 for a disc."""
        return len(np.unique(self.triangles)) - len(self.edges) + len(self.triangles)

    @cached_property
    def frames(self) -> FloatArray:
        """An orthonormal basis of every triangle's plane, ``(triangles, 2, n)``; the first along its first edge."""
        a, b, c = (self.vertices[self.triangles[:, i]] for i in range(3))
        first = _normalised(b - a)
        second = c - a
        for _ in range(2):  # twice is enough (Kahan)
            second = second - np.einsum("tn,tn->t", second, first)[:, None] * first
        return np.stack([first, _normalised(second)], axis=1)

    @cached_property
    def areas(self) -> FloatArray:
        """Area of every triangle."""
        a, b, c = (self.vertices[self.triangles[:, i]] for i in range(3))
        height = np.einsum("tn,tn->t", c - a, self.frames[:, 1])
        return np.asarray(np.linalg.norm(b - a, axis=1) * np.abs(height) / 2)

    @property
    def area(self) -> float:
        """Area of the surface."""
        return float(self.areas.sum())

    def refined(self) -> Mesh:
        """Every triangle cut into four at the middles of its edges, which are rounded to floats.

        >>> len(Sphere(resolution=0).mesh.refined().triangles)
        80
        """
        a, b = (self.vertices[self.edges[:, i]] for i in range(2))
        middles = a / 2 + b / 2
        return Mesh(np.concatenate([self.vertices, middles]), _four_each(self, len(self.vertices)))

    def __repr__(self) -> str:
        border = int(self.border.sum())
        closed = f"border of {border} edges" if border else "closed"
        return f"Mesh({len(self.triangles)} triangles in R^{self.ambient}, {closed})"


@dataclass(frozen=True, eq=False)
class Sphere:
    """The sphere of a radius around a centre in a three-dimensional subspace of R^n, as an inscribed mesh.

    The mesh is an icosahedron whose triangles are cut into four ``resolution`` times, new corners pushed out to the
    sphere: ``20 * 4**resolution`` triangles.

    Parameters
    ----------
    center
        A point of R^n with ``n >= 3``; the origin of R^3 by default.
    radius
        Positive.
    resolution
        From 0.
    frame
        Three independent directions ``(3, n)`` that span the subspace; they are made orthonormal. The first three
        coordinates by default.

    Examples
    --------
    >>> sphere = Sphere()
    >>> sphere
    Sphere(radius 1 in R^3, 1280 triangles)
    >>> round(sphere.mesh.area, 2), round(sphere.round_area, 2)
    (12.51, 12.57)
    """

    center: FloatArray
    radius: float
    resolution: int
    frame: FloatArray

    def __init__(self, center: Any = None, radius: float = 1.0, resolution: int = 3, frame: Any = None) -> None:
        where, directions = _placed("sphere", center, frame)
        _check_size("sphere", radius=radius)
        _check_resolution(resolution, 20 * 4 ** min(resolution, 32) if resolution >= 0 else 0)
        for name, value in (("center", where), ("frame", directions)):
            object.__setattr__(self, name, frozen(value))
        object.__setattr__(self, "radius", float(radius))
        object.__setattr__(self, "resolution", int(resolution))

    @cached_property
    def mesh(self) -> Mesh:
        """The triangles."""
        points, triangles = _icosahedron()
        for _ in range(self.resolution):
            rough = Mesh(points, triangles)
            middles = _normalised(points[rough.edges[:, 0]] + points[rough.edges[:, 1]])
            points, triangles = np.concatenate([points, middles]), _four_each(rough, len(points))
        return Mesh(self.center + self.radius * (points @ self.frame), triangles)

    @property
    def ambient(self) -> int:
        """The dimension n of the space around."""
        return self.center.size

    @property
    def axes(self) -> FloatArray:
        """The sphere is ``center + u @ axes`` for unit vectors u of R^3, ``(3, n)``."""
        return np.asarray(self.radius * self.frame)

    @property
    def round_area(self) -> float:
        """Area of the sphere itself."""
        return 4 * pi * self.radius**2

    @cached_property
    def deviation(self) -> float:
        """How far the mesh lies below the sphere where it is farthest: in the middle of its largest triangle."""
        foot = self.mesh.vertices[self.mesh.triangles[:, 0]] - self.center
        for _ in range(2):
            foot = foot - np.einsum("tk,tkn->tn", np.einsum("tkn,tn->tk", self.mesh.frames, foot), self.mesh.frames)
        return float(self.radius - np.linalg.norm(foot, axis=1).min())

    def __repr__(self) -> str:
        return f"Sphere(radius {self.radius:g} in R^{self.ambient}, {20 * 4**self.resolution} triangles)"


@dataclass(frozen=True, eq=False)
class Torus:
    """The torus ``((R + r cos v) cos u, (R + r cos v) sin u, r sin v)`` in a subspace of R^n, as an inscribed mesh.

    There are ``3 * 2**resolution`` steps of ``u`` and half as many of ``v``.

    Parameters
    ----------
    center, frame
        As for :class:`Sphere`; the third direction is the axis.
    radius, tube
        ``R > r > 0``.
    resolution
        From 2.

    Examples
    --------
    >>> torus = Torus()
    >>> torus, torus.mesh.euler_characteristic
    (Torus(radii 1 and 0.4 in R^3, 2304 triangles), 0)
    """

    center: FloatArray
    radius: float
    tube: float
    resolution: int
    frame: FloatArray

    def __init__(
        self, center: Any = None, radius: float = 1.0, tube: float = 0.4, resolution: int = 4, frame: Any = None
    ) -> None:
        where, directions = _placed("torus", center, frame)
        _check_size("torus", radius=radius, tube=tube)
        if not tube < radius:
            raise InputError(f"torus: expected tube < radius, got {tube:g} and {radius:g}")
        _check_resolution(resolution, 9 * 4 ** min(resolution, 32) if resolution >= 2 else 0, least=2)
        for name, value in (("center", where), ("frame", directions)):
            object.__setattr__(self, name, frozen(value))
        for name, number in (("radius", radius), ("tube", tube)):
            object.__setattr__(self, name, float(number))
        object.__setattr__(self, "resolution", int(resolution))

    @property
    def steps(self) -> tuple[int, int]:
        """Steps around the axis, and around the tube."""
        around: int = 3 * 2**self.resolution
        return around, around // 2

    @cached_property
    def mesh(self) -> Mesh:
        """The triangles."""
        around, across = self.steps
        u, v = (np.arange(k) * (2 * pi / k) for k in (around, across))
        out = self.radius + self.tube * np.cos(v)[None, :]
        up = np.broadcast_to(self.tube * np.sin(v), (around, across))
        points = np.stack([out * np.cos(u)[:, None], out * np.sin(u)[:, None], up], axis=2).reshape(-1, 3)
        return Mesh(self.center + points @ self.frame, _grid_triangles(around, across, closed=True))

    @property
    def ambient(self) -> int:
        """The dimension n of the space around."""
        return self.center.size

    @property
    def round_area(self) -> float:
        """Area of the torus itself."""
        return 4 * pi**2 * self.radius * self.tube

    @property
    def deviation(self) -> float:
        """A bound of the distance of the mesh from the torus: the heights of its arcs over their chords."""
        around, across = self.steps
        return (self.radius + self.tube) * (1 - cos(pi / around)) + self.tube * (1 - cos(pi / across))

    def __repr__(self) -> str:
        around, across = self.steps
        radii = f"radii {self.radius:g} and {self.tube:g}"
        return f"Torus({radii} in R^{self.ambient}, {2 * around * across} triangles)"


Surface = Mesh | Sphere | Torus


# --- what is checked at the border --------------------------------------------------------------------------------


def _numbers(triangles: Any, count: int) -> IntArray:
    try:
        array = np.asarray(triangles)
    except ValueError as error:
        raise InputError("triangles: expected (count, 3) numbers of vertices, got a ragged array") from error
    if array.ndim != 2 or array.shape[1] != 3 or len(array) == 0:
        raise InputError(f"triangles: expected (count, 3) numbers of vertices, at least one row, got {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputError(f"triangles: expected integers, got {array.dtype}")
    numbers = np.array(array, dtype=np.int64, order="C")
    outside = np.flatnonzero(((numbers < 0) | (numbers >= count)).any(axis=1))
    if len(outside):
        t = int(outside[0])
        raise InputError(f"triangle {t}: expected numbers of vertices from 0 to {count - 1}, got {numbers[t].tolist()}")
    twice = np.flatnonzero((numbers == np.roll(numbers, 1, axis=1)).any(axis=1))
    if len(twice):
        t = int(twice[0])
        raise InputError(f"triangle {t}: expected three different vertices, got {numbers[t].tolist()}")
    numbers.setflags(write=False)
    return numbers


def _check_edges(mesh: Mesh) -> None:
    counts = np.bincount(mesh.triangle_edges.ravel(), minlength=len(mesh.edges))
    if (counts > 2).any():
        edge = int(np.flatnonzero(counts > 2)[0])
        raise InputError(
            f"edge {tuple(mesh.edges[edge].tolist())}: expected at most two triangles, got {counts[edge]}; "
            "the mesh is not a surface there"
        )


def _zero_areas(points: FloatArray, triangles: IntArray) -> IntArray:
    """The triangles whose corners lie on one line: two edges are parallel if all their 2 x 2 minors vanish.

    Floats with an error bound settle almost all of them, integers the rest.
    """
    a, b, c = (points[triangles[:, i]] for i in range(3))
    with np.errstate(over="ignore", invalid="ignore"):
        one, two = b - a, c - a
        k = np.abs(one).argmax(axis=1)[:, None]
        first, second = np.take_along_axis(one, k, axis=1) * two, np.take_along_axis(two, k, axis=1) * one
        # differences, products and the subtraction: four roundings of each term
        bound = gamma(8) * (np.abs(first) + np.abs(second)) + TINY
        proven = (np.abs(first - second) > bound).any(axis=1)
    return np.array([t for t in np.flatnonzero(~proven).tolist() if _parallel(points[triangles[t]])], dtype=np.int64)


def _parallel(corners: FloatArray) -> bool:
    integers, _ = to_dyadic(corners)
    one, two = integers[1] - integers[0], integers[2] - integers[0]
    pivot = next((i for i, x in enumerate(one) if x != 0), None)
    if pivot is None:
        return True
    return all(one[pivot] * y == two[pivot] * x for x, y in zip(one, two, strict=True))


def _placed(name: str, center: Any, frame: Any) -> tuple[FloatArray, FloatArray]:
    """A centre and three orthonormal directions, checked."""
    directions = None if frame is None else real_array(frame, "frame", ndim=2)
    n = 3 if directions is None else directions.shape[1]
    where = np.zeros(n) if center is None else real_array(center, "center").reshape(-1)
    if where.size < 3:
        raise InputError(f"{name}: expected a center in at least 3 dimensions, got {where.size}")
    if directions is None:
        return where, np.eye(3, where.size)
    if directions.shape != (3, where.size):
        raise InputError(f"frame: expected shape (3, {where.size}) for this center, got {directions.shape}")
    if len(_zero_areas(np.concatenate([np.zeros((1, n)), directions]), np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3]]))):
        raise InputError("frame: expected three independent directions, got two that are parallel or a zero")
    q, r = np.linalg.qr(directions.T)
    if not np.diag(r).all():
        raise InputError("frame: expected three independent directions, got dependent ones")
    return where, np.asarray((q * np.sign(np.diag(r))).T)


def _check_size(name: str, **sizes: float) -> None:
    for what, value in sizes.items():
        if not isinstance(value, int | float | np.floating) or not 0 < value < np.inf:
            raise InputError(f"{name}: expected a positive {what}, got {value!r}")


def _check_resolution(resolution: int, triangles: int, least: int = 0) -> None:
    if not isinstance(resolution, int | np.integer) or isinstance(resolution, bool) or resolution < least:
        raise InputError(f"resolution: expected an integer from {least}, got {resolution!r}")
    if triangles > MOST_TRIANGLES:
        raise InputError(f"resolution: expected at most {MOST_TRIANGLES} triangles, got {resolution}")


# --- how meshes are made ------------------------------------------------------------------------------------------


def _normalised(vectors: FloatArray) -> FloatArray:
    """The vectors divided by their lengths."""
    scale = np.abs(vectors).max(axis=1, keepdims=True)  # so that squares stay in the range of floats
    return np.asarray(vectors / scale / np.linalg.norm(vectors / scale, axis=1, keepdims=True))


def _grid_triangles(rows: int, columns: int, closed: bool) -> IntArray:
    """Two triangles for each square of a grid, whose ends meet if it is closed."""
    i, j = np.meshgrid(np.arange(rows - 1 + closed), np.arange(columns - 1 + closed), indexing="ij")
    a, b, c, d = (((i + di) % rows) * columns + (j + dj) % columns for di, dj in ((0, 0), (1, 0), (1, 1), (0, 1)))
    return np.stack([a, b, c, a, c, d], axis=2).reshape(-1, 3)


def _four_each(mesh: Mesh, first: int) -> IntArray:
    """Every triangle as four, where the middle of edge ``e`` is vertex ``first + e``."""
    a, b, c = mesh.triangles.T
    ab, bc, ca = (first + mesh.triangle_edges).T
    return np.stack([a, ab, ca, ab, b, bc, ca, bc, c, ab, bc, ca], axis=1).reshape(-1, 3)


def _icosahedron() -> tuple[FloatArray, IntArray]:
    """Twelve corners on the unit sphere and twenty triangles, seen counter-clockwise from outside."""
    g = (1 + sqrt(5)) / 2
    corners: list[tuple[float, float, float]]
    corners = [(-1, g, 0), (1, g, 0), (-1, -g, 0), (1, -g, 0), (0, -1, g), (0, 1, g), (0, -1, -g), (0, 1, -g)]
    corners += [(g, 0, -1), (g, 0, 1), (-g, 0, -1), (-g, 0, 1)]
    faces = """0 11 5  0 5 1  0 1 7  0 7 10  0 10 11  1 5 9  5 11 4  11 10 2  10 7 6  7 1 8
               3 9 4  3 4 2  3 2 6  3 6 8  3 8 9  4 9 5  2 4 11  6 2 10  8 6 7  9 8 1"""
    return _normalised(np.array(corners)), np.array(faces.split(), dtype=np.int64).reshape(-1, 3)
