"""Ellipsoids and cylinders: images of the unit sphere and the unit cylinder under affine maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.exact_linear import matrix_of, reduced
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, eq=False)
class _Quadric:
    """Three independent vectors and a point: an affine map of R^3."""

    axes: FloatArray
    center: FloatArray

    def __init__(self, axes: Any, center: Any = None) -> None:
        matrix, where = _placed(axes, center)
        object.__setattr__(self, "axes", frozen(matrix))
        object.__setattr__(self, "center", frozen(where))

    @property
    def ambient(self) -> int:
        """The dimension n of the space around."""
        return self.center.size


class Ellipsoid(_Quadric):
    """The points ``center + u @ axes`` for unit vectors ``u`` of R^3.

    Parameters
    ----------
    axes
        Three independent vectors of R^n, ``(3, n)``; they need not be orthogonal. Three numbers stand for half-axes
        along the coordinates of R^3.
    center
        A point of R^n, the origin by default.

    Examples
    --------
    >>> Ellipsoid([1.0, 2.0, 3.0])
    Ellipsoid(half-axes 3, 2, 1 in R^3)
    """

    def __repr__(self) -> str:
        lengths = ", ".join(f"{s:g}" for s in np.linalg.svd(self.axes, compute_uv=False))
        return f"Ellipsoid(half-axes {lengths} in R^{self.ambient})"


class Cylinder(_Quadric):
    """The points ``center + cos t a + sin t b + s c`` for angles ``t`` and ``s`` from 0 to 1.

    Parameters
    ----------
    axes
        The vectors ``a``, ``b``, ``c`` of R^n, ``(3, n)``; independent, but not necessarily orthogonal. Three numbers
        stand for half-axes along x and y, and a height along z.
    center
        The middle of the first end, the origin by default.

    Examples
    --------
    >>> Cylinder([1.0, 1.0, 2.0], [0.0, 0.0, -1.0])
    Cylinder(half-axes 1, 1, height 2 in R^3)
    """

    def __repr__(self) -> str:
        lengths = ", ".join(f"{s:g}" for s in np.linalg.svd(self.axes[:2], compute_uv=False))
        return f"Cylinder(half-axes {lengths}, height {np.linalg.norm(self.axes[2]):g} in R^{self.ambient})"


def _placed(axes: Any, center: Any) -> tuple[FloatArray, FloatArray]:
    """Three independent vectors and a point, checked."""
    given = real_array(axes, "axes")
    matrix = np.diag(given) if given.shape == (3,) else given
    if matrix.ndim != 2 or matrix.shape[0] != 3 or matrix.shape[1] < 3:
        raise InputError(f"axes: expected three numbers, or three vectors (3, n) with n >= 3, got {given.shape}")
    if len(reduced(matrix_of(matrix.tolist(), matrix.shape[1]))[1]) < 3:
        raise InputError("axes: expected three independent vectors, got dependent ones")
    where = np.zeros(matrix.shape[1]) if center is None else real_array(center, "center").reshape(-1)
    if where.shape != (matrix.shape[1],):
        raise InputError(f"center: expected {matrix.shape[1]} coordinates for these axes, got {where.size}")
    return matrix, where
