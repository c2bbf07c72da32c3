"""Values of a program at many points, with error bounds that cost no second matrix product.

The error of entry ``j`` at point ``v`` is bounded by ``c[v] * r[j]``, and the Euclidean norm of the errors at ``v`` by
``e2[v]``. By Cauchy and Schwarz an affine map with rows ``W_j`` turns ``e2`` into ``c[v] = e2[v] + gamma |a_v|`` and
``r[j] = |W_j|``; where all inputs are exactly zero, the outputs are exact. Non-negative factors are rounded up by a
relative ``2**-30``, which covers the rounding of norms of up to a million entries.
A value or a bound that overflows is infinite or NaN and decides nothing; so ``c == 0``, which says that a row is exact,
and ``r == 0``, which says that a column is zero everywhere, are tested as such and never as the opposite of being
positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.geometry.engines.planar.chain_bends import Bends
from fiberscope.geometry.engines.planar.faces import join_values, rectify
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear, Switch
from fiberscope.numerics.algebra.base import Algebra, LinearMap, joined
from fiberscope.numerics.algebra.slices import sliced_product
from fiberscope.numerics.compensated import Twofold, accurate_product
from fiberscope.numerics.floats import (
    ENTRY_FLOOR,
    SMALL,
    TINY,
    UP,
    BoolArray,
    FloatArray,
    IntArray,
    SignArray,
    U,
    gamma,
    length,
    norms,
    positive,
    round_up,
    spectral_bound,
)

FEW = 512
"""At so many points a product may cost ten: the errors of early layers, which all later ones inherit, nearly vanish."""

MOST_SLICED = 1 << 22
"""More entries of a product, as those of images at many points, are not worth it."""

_BLOCK = 1 << 16
"""Numbers that are handled at once."""

_spectral: WeakKeyDictionary[LinearMap, float] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, eq=False)
class Tracked:
    """Values ``z`` of shape ``(points, n)``; ``|z - true| <= c r + ENTRY_FLOOR`` and ``norm(z - true) <= e2`` for each.

    ``zeros`` are entries that certified signs prove to be zero, where somebody asked for them; a float 0.0 proves
    nothing, it may be a rounded positive number. ``norm`` is the Euclidean norm of each row of ``z`` where it is
    already known, rounded up. ``bends`` is told by chains behind a ReLU, for the next product alone.
    """

    z: FloatArray
    c: FloatArray
    e2: FloatArray
    r: FloatArray
    zeros: BoolArray | None = None
    norm: FloatArray | None = None
    bends: Bends | None = None

    @classmethod
    def exact(cls, z: FloatArray) -> Tracked:
        """Values without error."""
        zero = np.zeros(len(z))
        return cls(z, zero, zero.copy(), np.ones(z.shape[1]))

    def rows(self, index: IntArray) -> Tracked:
        """The values at some of the points."""
        norm = None if self.norm is None else self.norm[index]
        zeros = None if self.zeros is None else self.zeros[index]
        return replace(self, z=self.z[index], c=self.c[index], e2=self.e2[index], zeros=zeros, norm=norm, bends=None)

    def replaced(self, index: IntArray, part: Tracked) -> Tracked:
        """With other values of the same at some of the points."""
        z, c, e2 = self.z.copy(), self.c.copy(), self.e2.copy()
        z[index], c[index], e2[index] = part.z, part.c, part.e2
        return replace(self, z=z, c=c, e2=e2, norm=None)

    def extended(self, blocks: Sequence[tuple[IntArray, IntArray, FloatArray, FloatArray]]) -> Tracked:
        """With points ``A + t (B - A)`` appended, from blocks ``(A, B, t, error of t)``; later ones may use earlier."""
        old, new = len(self.z), sum(len(block[0]) for block in blocks)
        z = np.empty((old + new, self.z.shape[1]))
        c, e2 = np.empty(old + new), np.empty(old + new)
        z[:old], c[:old], e2[:old] = self.z, self.c, self.e2
        first = old
        r = _normal(self.r)
        inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r != 0)
        zeros = self.zeros
        for A, B, t, d in blocks:
            join_values(z, c, e2, inverse, A, B, t, d, first)
            first += len(A)
            # between two points of one polygon a value is affine: it vanishes if it does at both
            zeros = None if zeros is None else np.concatenate([zeros, zeros[A] & zeros[B]])
        return Tracked(z, c, e2, r, zeros)

    def sharper(self, z: FloatArray, error: FloatArray) -> Tracked:
        """Other values of the same, with bounds entry by entry, at the points where they are known better."""
        error = np.where(self.r == 0, 0.0, error)  # such columns are zero
        c, e2 = _relative(error, self.r) + TINY, norms(error) + ENTRY_FLOOR
        better = ~(self.c <= c) & np.isfinite(c) & np.isfinite(e2)
        merged = np.where(better[:, None] & (self.r != 0), z, self.z)
        return replace(self, z=merged, c=np.where(better, c, self.c), e2=np.where(better, e2, self.e2), norm=None)


def plane_rows(plane: Affine | None, node: Affine) -> tuple[FloatArray, FloatArray]:
    """A dense layer as rows ``(a, b, c)`` for ``a x + b y + c`` on a plane, and a bound of their error.

    Without a ``plane`` the layer reads the coordinates itself; else the two maps are composed almost exactly.
    """
    second = node.operator.stored_matrix
    assert second is not None
    start = np.zeros((len(second), 3))
    if node.offset is not None:
        start[:, 2] = node.offset
    if plane is None:
        start[:, :2] = second
        return start, np.zeros_like(start)
    first = plane.operator.stored_matrix
    assert first is not None
    rows = np.zeros((len(first), 3))
    rows[:, :2] = first
    if plane.offset is not None:
        rows[:, 2] = plane.offset
    return accurate_product(second, rows, start)


def lifted(plane: Affine, node: Affine, points: Tracked) -> Tracked:
    """Two affine maps in a row, a plane and a dense layer, composed almost exactly before they meet the points.

    Through the large space in between, rounding would count its dimension.
    """
    F, error = plane_rows(plane, node)
    r = (np.hypot.reduce(F, axis=1) + np.hypot.reduce(error, axis=1) / U) * UP
    size = np.hypot(norms(points.z), 1.0) * UP
    c = (points.e2 + gamma(8) * size) * UP
    return Tracked(points.z @ F[:, :2].T + F[:, 2], c, c * length(r) * UP + len(r) * ENTRY_FLOOR, r)


def _normal(r: FloatArray) -> FloatArray:
    """Factors not below the given ones whose inverses are finite; zero stays zero."""
    return np.where(r == 0, 0.0, np.maximum(r, TINY))


def row_norms(stage: LinearMap) -> FloatArray:
    """Not below the Euclidean norms of the rows; sums of absolute values where squares would leave the range."""
    if (matrix := stage.stored_matrix) is not None:
        squares = np.einsum("ij,ij->i", matrix, matrix)
        if ((squares > SMALL) & (squares < 1 / SMALL)).all():  # what vanished is far below the rest
            return np.asarray(np.sqrt(squares) * UP)
    ones = np.ones((1, stage.in_size))
    total = stage.apply_abs(ones)[0] * UP
    squares = stage.with_coefficients(np.clip(stage.coefficients, -1 / SMALL, 1 / SMALL) ** 2).apply(ones)[0]
    return np.asarray(np.where((total > SMALL) & (total < 1 / SMALL), np.sqrt(squares) * UP, total))


def product(stage: LinearMap, z: FloatArray, offset: FloatArray | None, bends: Bends | None) -> FloatArray:
    """``W z + b`` for every row, by fewer products where it is known what bends."""
    if bends is None:
        result = stage.apply(z)
        return result if offset is None else np.add(result, offset, out=result)
    result = np.empty((len(z), stage.out_size))
    own = stage.apply(z[bends.old])
    result[bends.old] = own if offset is None else own + offset
    matrix = stage.stored_matrix
    assert matrix is not None
    bends.fill(matrix, result)
    return result


def _linear(stage: LinearMap, value: Tracked, offset: FloatArray | None, tight: bool, few: int) -> Tracked:
    if (diagonal := stage.stored_diagonal) is not None:
        result = stage.apply(value.z)
        if offset is not None:
            result += offset
        return _scaled(np.abs(diagonal), value, result, offset)
    rows = row_norms(stage)
    r = rows if offset is None else np.hypot(rows, offset) * UP
    frobenius = length(r)
    afford = len(value.z) <= few and len(value.z) * stage.out_size <= MOST_SLICED
    sharp = _sharp_product(stage, value.z, offset) if tight and afford else None
    if sharp is not None:
        return _accurate(*sharp, r, value.e2, stage, frobenius)
    bends = value.bends if stage.stored_matrix is not None else None
    result = product(stage, value.z, offset, bends)
    # |W_j a + b_j| <= r_j |(a, 1)|, so rounding is in proportion to r_j as well. Rows without input stay exact.
    norm = norms(value.z) if value.norm is None else value.norm
    size = norm if offset is None else np.where((norm == 0) & (value.e2 == 0), 0.0, np.hypot(norm, 1.0))
    rounding = gamma(stage.fan_in + 6) * size if bends is None else bends.roundings(stage.fan_in, size)
    rounding = rounding * UP
    c = (value.e2 + rounding) * UP
    e2 = c * frobenius
    if tight and stage.stored_matrix is not None:
        e2 = np.minimum(e2, value.e2 * min(frobenius, spectral_of(stage)) + rounding * frobenius)
    elif tight:  # of a convolution the length of all rows counts every pixel, its norm does not
        own = 0.0 if offset is None else length(np.abs(offset))
        e2 = np.minimum(e2, c * absolute_bound(stage) + gamma(stage.fan_in + 6) * own * UP)
    return Tracked(result, c, np.where(c == 0, 0.0, e2 * UP + len(r) * ENTRY_FLOOR), r)


def _sharp_product(stage: LinearMap, z: FloatArray, offset: FloatArray | None) -> tuple[FloatArray, FloatArray] | None:
    """A product with little more than one rounding, and its error entry by entry; None beyond the range of floats."""
    matrix = stage.stored_matrix
    if matrix is None:
        return sliced_product(stage, z, offset)
    start = np.zeros((1, len(matrix))) if offset is None else np.array(offset)[None]
    alive = z != 0
    found = Twofold.exact(z).times(np.ascontiguousarray(matrix.T), start, behind=(np.arange(len(z)), alive))
    error = round_up(found.error + np.abs(found.low), 2)
    error[~alive.any(axis=1)] = 0.0  # of nothing, the offset as it stands
    return (found.high, error) if np.isfinite(error).all() else None


def _accurate(
    result: FloatArray, error: FloatArray, r: FloatArray, before: FloatArray, stage: LinearMap, frobenius: float
) -> Tracked:
    """A product whose own error is known entry by entry, on inputs whose errors have at most the norm ``before``."""
    # a column without weights has the offset, which is exact, or nothing
    error = np.where(r == 0, 0.0, error)
    spectral = absolute_bound(stage) if stage.stored_matrix is None else spectral_of(stage)
    c = (before + _relative(error, r)) * UP
    e2 = before * min(frobenius, spectral) + norms(error)
    return Tracked(result, c, np.where(c == 0, 0.0, e2 * UP + len(r) * ENTRY_FLOOR), r)


def spectral_of(stage: LinearMap) -> float:
    """A number not below the spectral norm of a stored matrix, found once."""
    if stage not in _spectral:
        assert stage.stored_matrix is not None
        _spectral[stage] = spectral_bound(stage.stored_matrix)
    return _spectral[stage]


def absolute_bound(stage: LinearMap) -> float:
    """A number not below the spectral norm of ``|W|``, hence of ``W``, from sums of rows and columns (I. Schur)."""
    rows = stage.apply_abs(np.ones((1, stage.in_size))).max(initial=0.0)
    columns = stage.with_coefficients(np.abs(stage.coefficients)).adjoint(np.ones((1, stage.out_size))).max(initial=0.0)
    return float(np.sqrt(positive(rows)) * np.sqrt(positive(columns)) * UP)


def _scaled(factors: FloatArray, value: Tracked, result: FloatArray, offset: FloatArray | None) -> Tracked:
    """A diagonal map keeps errors entry by entry."""
    # a factor that is not zero leaves a column that is not zero, also where the product underflows
    r = np.where((value.r == 0) | (factors == 0), 0.0, np.maximum(value.r * factors * UP, TINY))
    scaled = Tracked(result, _inexact(value.c, value.z), value.e2 * factors.max(initial=0.0) * UP, r)
    if offset is None:
        return _rounded(scaled)
    # A factor of zero leaves the offset alone, which is no smaller than its own rounding.
    return _rounded(replace(scaled, r=np.maximum(r, np.abs(offset))), offset)


def _inexact(c: FloatArray, z: FloatArray) -> FloatArray:
    """The bound of rows that are multiplied entry by entry: only a row of zeros stays exact, others may underflow."""
    return np.where((z == 0).all(axis=1), c, np.maximum(c, TINY))


def _relative(z: FloatArray, r: FloatArray) -> FloatArray:
    """``max_j |z_j| / r_j`` over the entries with ``r_j != 0``, per row."""
    inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r != 0)
    found = np.empty(len(z))
    step = max(1, _BLOCK // max(1, z.shape[1]))
    for first in range(0, len(z), step):  # blocks that stay near: whole arrays of images would be made twice
        found[first : first + step] = np.abs(z[first : first + step] * inverse).max(axis=1, initial=0.0)
    return found * UP


def _rounded(value: Tracked, offset: FloatArray | None = None) -> Tracked:
    """The same value after one more rounding of every entry, or after two: of what it was before the offset as well."""
    r = _normal(np.maximum(value.r, value.r.max(initial=0.0) * 2.0**-40))
    share, size = _relative(value.z, r), norms(value.z)
    if offset is not None:
        own = np.abs(offset)
        share, size = 2 * (share + _relative(own[None], r)[0]), 2 * (size + length(own))
    c = (value.c + gamma(2) * share) * UP
    e2 = (value.e2 + gamma(2) * size) * UP + np.where(c == 0, 0.0, len(r) * ENTRY_FLOOR)
    return Tracked(value.z, c, e2, r)


def activate(node: PiecewiseLinear, value: Tracked, signs: SignArray, reuse: bool, mark: bool = False) -> Tracked:
    """The activation, by certified signs: what is not positive is multiplied by its slope, a zero is exactly zero.

    With ``reuse`` the array of ``value`` is overwritten; ``mark`` keeps which entries are zero.
    """
    own = signs[:, : node.slopes.size]
    zeros = np.asarray((own == 0) | ((own < 0) & (node.slopes == 0))) if mark else None
    if not node.slopes.any():
        out = value.z if reuse else np.empty_like(value.z)
        size, live = np.empty(len(out)), np.empty(len(out))
        rectify(value.z, signs, positive(value.r) ** 2, out, size, live)
        # a row is exact where all are dead; a live neuron may be 0.0 by rounding and has an error all the same
        e2 = np.minimum(value.e2, np.sqrt(live) * value.c * UP + len(value.r) * ENTRY_FLOOR)
        e2 = np.where(live == 0, 0.0, e2)
        norm = np.where(live == 0, 0.0, np.maximum(np.sqrt(size) * UP, SMALL))
        return Tracked(out, value.c, e2, value.r, zeros, norm)
    z = np.where(own > 0, value.z, np.where(own == 0, 0.0, node.slopes * value.z))
    steep = np.maximum(1.0, np.abs(node.slopes))
    c = _inexact(value.c, value.z)
    found = _rounded(Tracked(z, c, value.e2 * steep.max() * UP, value.r * steep * UP))
    return replace(found, zeros=zeros)


def pool(node: MaxPool, value: Tracked) -> Tracked:
    """The maximum over every window."""
    windows, absent = node.windows, node.windows < 0
    # A sum that left the range of floats, perhaps on the wrong side, must not win or lose: NaN stays NaN.
    known = np.where(np.isfinite(value.z), value.z, np.nan)
    z = np.where(absent[None], -np.inf, known[:, windows]).max(axis=2)
    r = np.where(absent, 0.0, value.r[windows]).max(axis=1)
    # An entry can be the maximum of several windows: bound the norm of the errors by their entries.
    e2 = value.c * length(r) * UP
    zeros = None if value.zeros is None else np.asarray((value.zeros[:, windows] | absent[None]).all(axis=2))
    return Tracked(z, value.c, e2, r, zeros)


def behind(node: Switch, value: Tracked, signs: SignArray, reuse: bool, mark: bool) -> Tracked:
    """The value behind a switch with certified signs; see :func:`activate`."""
    match node:
        case PiecewiseLinear():
            return activate(node, value, signs, reuse, mark)
        case MaxPool():
            return pool(node, value)
        case _:
            assert_never(node)


class TrackedAlgebra(Algebra[Tracked]):
    """Between switches. At a switch the mesh or chain is cut, which changes all values: engines do that themselves.

    ``tight`` also bounds spectral norms, which pays where more layers follow, and at ``few`` points makes almost exact
    products.
    """

    def __init__(self, tight: bool, few: int = FEW) -> None:
        self.tight, self.few = tight, few

    def take(self, values: FloatArray) -> Tracked:
        return Tracked.exact(values)

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Tracked) -> Tracked:
        *before, last = operator.stages()
        for stage in before:
            value = self.apply(stage, value)
        return _linear(last, value, bias, self.tight, self.few)

    def apply(self, stage: LinearMap, value: Tracked) -> Tracked:
        return _linear(stage, value, None, self.tight, self.few)

    def add(self, values: Sequence[Tracked]) -> Tracked:
        zeros = _each_zero(values)
        total = values[0]
        for value in values[1:]:
            size = (total.r + value.r) * UP
            total = _rounded(Tracked(total.z + value.z, np.maximum(total.c, value.c), total.e2 + value.e2, size))
        return replace(total, zeros=None if zeros is None else np.logical_and.reduce(zeros))

    def difference(self, one: Tracked, other: Tracked) -> Tracked:
        size = (one.r + other.r) * UP
        return _rounded(Tracked(one.z - other.z, np.maximum(one.c, other.c), one.e2 + other.e2, size))

    def concat(self, values: Sequence[Tracked], order: IntArray | None) -> Tracked:
        zeros = _each_zero(values)
        c = np.max([value.c for value in values], axis=0)
        e2 = np.hypot.reduce([value.e2 for value in values], axis=0) * UP  # squares of small errors would vanish
        z, r = (joined([getattr(value, name) for value in values], order) for name in ("z", "r"))
        return Tracked(z, c, e2, r, None if zeros is None else joined(zeros, order))

    def pick(self, value: Tracked, index: IntArray) -> Tracked:
        zeros = None if value.zeros is None else value.zeros[:, index]
        r = value.r[index]
        return Tracked(value.z[:, index], value.c, value.c * length(r) * UP, r, zeros)


def _each_zero(values: Sequence[Tracked]) -> list[BoolArray] | None:
    """The known zeros of every value, none where it knows of none; None if all do."""
    if all(v.zeros is None for v in values):
        return None
    return [np.zeros(v.z.shape, dtype=bool) if v.zeros is None else v.zeros for v in values]
