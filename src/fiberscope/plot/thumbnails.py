"""Small images at points of a picture, such as the three that span a slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import real_array

CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Where the three points of ``fs.Plane.through`` lie in its coordinates."""


def images_at(
    ax: Axes, images: Sequence[Any], places: Sequence[tuple[float, float]] = CORNERS, size: float = 40.0
) -> Axes:
    """Put grey images ``(height, width)`` at places of the axes, dark where a number is large.

    Parameters
    ----------
    places
        In the coordinates of the axes; by default those of the three points of ``fs.Plane.through``.
    size
        Height of an image in points.
    """
    if len(images) != len(places):
        raise InputError(f"images: expected one for each of {len(places)} places, got {len(images)}")
    for image, place in zip(images, places, strict=True):
        pixels = real_array(image, "images", ndim=2)
        picture = OffsetImage(pixels, zoom=size / len(pixels), cmap="gray_r")
        ax.add_artist(AnnotationBbox(picture, place, pad=0.15))
    return ax
