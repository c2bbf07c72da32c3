"""Surfaces coloured by the regions of a network, in three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from mpl_toolkits.mplot3d import Axes3D  # type: ignore[import-untyped]
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection  # type: ignore[import-untyped]

from fiberscope.errors import InputError
from fiberscope.geometry.curvature import Curvature
from fiberscope.geometry.surfaces.quadrics import Cylinder
from fiberscope.geometry.surfaces.round_regions import RoundRegions
from fiberscope.geometry.surfaces.shapes import Sphere
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.numerics.floats import FloatArray
from fiberscope.plot.style import INK, PAPER, house_style, mosaic_colors

_LIGHT = np.array([0.4, -0.5, 0.77])


def surface(
    found: SurfaceRegions,
    *,
    lines: bool | None = None,
    ax: Any = None,
    seed: int = 0,
    view: tuple[float, float] = (22, -50),
) -> Axes3D:
    """Draw a surface with a colour for every region, and the boundaries where the function bends.

    Parameters
    ----------
    found
        From :func:`fiberscope.regions_on`, on a surface that spans at most three dimensions; of a surface in a larger
        space the three directions of largest extent are shown.
    lines
        Draw the boundaries of the near half: dark where the function bends, faint elsewhere. By default on spheres,
        where nothing of the near half is hidden.
    ax
        Axes with ``projection="3d"``; new ones otherwise.
    view
        Elevation and azimuth in degrees.
    """
    if ax is not None and not isinstance(ax, Axes3D):
        raise InputError(f"ax: expected axes with projection='3d', got {type(ax).__name__}")
    points = _three(found.structure.points)
    inside = found.polygons
    polygons = [points[inside[p]] for p in range(found.num_pieces)]
    with house_style():
        if ax is None:
            ax = Figure(figsize=(7.0, 7.0), layout="constrained").add_subplot(projection="3d")
        ax.computed_zorder = False  # lines stay above the faces that they bound
        colours = (
            mosaic_colors(found.num_regions, seed, found.region_of[found.sides[found.boundary]])[found.region_of]
            * _shade(polygons)[:, None]
        )
        faces = Poly3DCollection(polygons, facecolors=colours, edgecolors=colours, linewidths=0.2, zorder=1)
        ax.add_collection3d(faces)
        if (isinstance(found.surface, Sphere) if lines is None else lines) and len(found.boundary):
            _draw_lines(ax, found, points, view)
        low, high = points.min(axis=0), points.max(axis=0)
        half = float((high - low).max()) / 2 or 1.0
        for name, middle in zip("xyz", (low + high) / 2, strict=True):
            getattr(ax, f"set_{name}lim")(middle - half, middle + half)
        ax.set_box_aspect((1, 1, 1), zoom=1.5)
        ax.view_init(*view)
        ax.set_axis_off()
    drawn: Axes3D = ax
    return drawn


def round_regions(
    found: RoundRegions,
    *,
    ax: Any = None,
    seed: int = 0,
    view: tuple[float, float] = (22, -50),
    pixels: int = 500,
) -> Axes:
    """Draw the near half of a sphere or ellipsoid, seen as a ball: a colour for every pattern, and the arcs.

    A cylinder is drawn unrolled: the angle to the right, from -pi to pi, and the height upwards.

    Parameters
    ----------
    found
        From :func:`fiberscope.round_regions`.
    ax
        Axes to draw into; new ones otherwise.
    view
        Elevation and azimuth in degrees.
    pixels
        Width of the picture that the colours are made in; arcs are lines. Dark where the function bends.
    """
    if isinstance(found.surface, Cylinder):
        return _unrolled(found, ax, seed, pixels)
    right, up, eye = _frame(view)
    with house_style():
        if ax is None:
            ax = Figure(figsize=(7.0, 7.0), layout="constrained").add_subplot()
        disc = ax.imshow(
            _shaded(found, (right, up, eye), seed, pixels), extent=(-1, 1, -1, 1), interpolation="bilinear"
        )
        disc.set_clip_path(Circle((0, 0), 0.999, transform=ax.transData))
        visible = found.visible
        for k, (normal, height, start, angle) in enumerate(zip(*found.arcs, strict=True)):
            t = np.linspace(0.0, angle, 2 + int(40 * angle))[:, None]
            u = start - height * normal
            points = height * normal + np.cos(t) * u + np.sin(t) * np.cross(normal, u)
            points[points @ eye < 0] = np.nan
            colour, width = (INK, 0.9) if visible[k] else (PAPER, 0.6)
            ax.plot(points @ right, points @ up, color=colour, linewidth=width)
        ax.set_aspect("equal")
        ax.set_axis_off()
    drawn: Axes = ax
    return drawn


def curvature(found: Curvature, *, ax: Any = None) -> Axes:
    """Draw points coloured by their scalar curvature: blue below zero, red above, white where it is flat.

    Of points in three dimensions the first two coordinates are shown, and those below lie under those above.
    """
    points = found.points
    with house_style():
        if ax is None:
            ax = Figure(figsize=(6.0, 5.0), layout="constrained").add_subplot()
        order = np.argsort(points[:, 2], kind="stable") if points.shape[1] > 2 else np.arange(len(points))
        flat = points if points.shape[1] > 1 else np.concatenate([points, np.zeros_like(points)], axis=1)
        known = np.abs(found.scalar[np.isfinite(found.scalar)])
        top = float(np.quantile(known, 0.98)) if len(known) else 0.0  # a few sharp places must not take all colours
        drawn = ax.scatter(
            *flat[order, :2].T, c=found.scalar[order], s=14, cmap="coolwarm", vmin=-(top or 1.0), vmax=top or 1.0,
            edgecolors="none", plotnonfinite=True,
        )  # fmt: skip
        ax.set(xlabel="first coordinate", ylabel="second coordinate", aspect="equal")
        ax.figure.colorbar(drawn, ax=ax, label="scalar curvature", extend="both")
    shown: Axes = ax
    return shown


def _unrolled(found: RoundRegions, ax: Any, seed: int, pixels: int) -> Axes:
    t, s = np.meshgrid(np.linspace(-np.pi, np.pi, pixels), np.linspace(1, 0, max(2, pixels // 2)))
    points = np.stack([np.cos(t), np.sin(t), s], axis=2).reshape(-1, 3)
    image = _colours(found, points, seed).reshape(*t.shape, 3)
    with house_style():
        if ax is None:
            ax = Figure(figsize=(8.0, 4.0), layout="constrained").add_subplot()
        ax.imshow(image, extent=(-np.pi, np.pi, 0, 1), interpolation="bilinear", aspect="auto")
        lines = found.ellipses
        for k in np.flatnonzero(found.inner).tolist():
            begin, end = (0.0, 1.0) if lines.straight[k] else (float(lines.begin[k]), float(lines.end[k]))
            curve = lines.at(k, np.linspace(begin, end, 200))
            angle = np.arctan2(curve[:, 1], curve[:, 0])
            angle[1:][np.abs(np.diff(angle)) > np.pi] = np.nan  # over the seam
            colour, width = (INK, 0.9) if found.visible[k] else (PAPER, 0.6)
            ax.plot(angle, curve[:, 2], color=colour, linewidth=width)
        ax.set(xlim=(-np.pi, np.pi), ylim=(0, 1), xlabel="angle", ylabel="height")
    drawn: Axes = ax
    return drawn


def _colours(found: RoundRegions, points: FloatArray, seed: int) -> FloatArray:
    """The colours of the patterns at points of the unit sphere or cylinder."""
    signs = found.net.signs(found.surface.center + points @ found.surface.axes).signs
    number = {pattern.tobytes(): k for k, pattern in enumerate(found.patterns)}
    own = np.array([number.get(row.tobytes(), 0) for row in np.ascontiguousarray(signs)])
    return np.asarray(mosaic_colors(len(found.patterns), seed, found.sides[found.inner])[own])


def _frame(view: tuple[float, float]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Directions to the right, upwards and to the eye."""
    elevation, azimuth = np.deg2rad(view)
    right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    eye = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    return right, np.cross(eye, right), eye


def _shaded(
    found: RoundRegions, frame: tuple[FloatArray, FloatArray, FloatArray], seed: int, pixels: int
) -> FloatArray:
    """The disc with the colours of the patterns, transparent outside."""
    right, up, eye = frame
    a, b = np.meshgrid(np.linspace(-1, 1, pixels), np.linspace(1, -1, pixels))
    depth = np.sqrt(np.maximum(1 - a**2 - b**2, 0.0))
    points = a[..., None] * right + b[..., None] * up + depth[..., None] * eye
    inside = a**2 + b**2 <= 1
    image = np.zeros((pixels, pixels, 4))
    light = 0.78 + 0.22 * np.maximum(points[inside] @ (_LIGHT / np.linalg.norm(_LIGHT)), 0.0)
    image[inside, :3] = _colours(found, points[inside], seed) * light[:, None]
    image[inside, 3] = 1.0
    return image


def _three(points: FloatArray) -> FloatArray:
    """Three coordinates: zeros added, or the largest directions taken."""
    n = points.shape[1]
    if n <= 3:
        return np.asarray(np.pad(points, ((0, 0), (0, 3 - n))))
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:3]
    return np.asarray(centred @ axes.T)


def _shade(polygons: list[FloatArray]) -> FloatArray:
    """How light a piece is: by the angle between its plane and the light, front and back alike."""
    light = _LIGHT / np.linalg.norm(_LIGHT)
    shades = []
    for corners in polygons:
        a, b = corners - corners[0], np.roll(corners, -1, axis=0) - corners[0]
        normal = np.cross(a, b).sum(axis=0)
        length = float(np.linalg.norm(normal))
        shades.append(abs(float(normal @ light)) / length if length > 0 else 1.0)
    return np.asarray(0.72 + 0.28 * np.array(shades))


def _draw_lines(ax: Any, found: SurfaceRegions, points: FloatArray, view: tuple[float, float]) -> None:
    """The boundaries on the near side: matplotlib does not hide lines behind faces."""
    eye = _frame(view)[2]
    ends = points[found.structure.boundary[0].indices.reshape(-1, 2)[found.boundary]]
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    visible = found.visible if found.complete else np.ones(len(ends), dtype=bool)
    near = (ends.mean(axis=1) - middle) @ eye > 0
    for chosen, colour, width in ((near & ~visible, PAPER, 0.3), (near & visible, INK, 0.5)):
        if chosen.any():
            ax.add_collection3d(Line3DCollection(list(ends[chosen]), colors=to_rgb(colour), linewidths=width, zorder=5))
