"""Two composed affine maps compared entry by entry, in units of the rounding of the numbers they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy import sparse as sp

from fiberscope.equality.maps.skeleton import ComposedMap, Piece, entries, same_layout
from fiberscope.network.convolutions import Convolution
from fiberscope.network.operators import Dense, Operator, Scale, Sparse
from fiberscope.numerics.floats import INFLATE, TINY, FloatArray, round_up
from fiberscope.numerics.ulps import Rounding


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Two affine maps of the same values: for every value ``|A|`` and ``|A - B|`` as maps, rounded up.

    ``units`` are the largest differences in units of rounding, for every output entry: of its coefficients and its
    offset. They are 0 only where nothing differs and nothing was rounded.
    """

    left: dict[int, Operator]
    gaps: dict[int, Operator]
    offset: FloatArray
    units: FloatArray

    @property
    def residual(self) -> float:
        """The largest difference of an entry in units of rounding."""
        return float(self.units.max(initial=0.0))

    @property
    def exact(self) -> bool:
        """Whether there is no difference at all."""
        return not self.units.any()


def compare(a: ComposedMap, b: ComposedMap, names: dict[int, int], rounding: Rounding) -> Compared:
    """Two forms, entry by entry; ``names`` are the values of ``a`` that the values of ``b`` stand for.

    >>> from fiberscope.equality.maps.skeleton import skeleton
    >>> from fiberscope.network.network import Network
    >>> from fiberscope.numerics.ulps import DOUBLE
    >>> nets = [Network([[[w, 0.5]]], [[0.0]]) for w in (1.0, 1.0 + 2.0**-50)]
    >>> forms = [skeleton(net, DOUBLE).output for net in nets]
    >>> 3 < compare(*forms, {0: 0}, DOUBLE).residual < 5, compare(forms[0], forms[0], {0: 0}, DOUBLE).exact
    (True, True)
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is beyond the floats has no finite residual
        return _compare(a, b, names, rounding)


def _compare(a: ComposedMap, b: ComposedMap, names: dict[int, int], rounding: Rounding) -> Compared:
    other = {names[name]: piece for name, piece in b.pieces.items()}
    left: dict[int, Operator] = {}
    gaps: dict[int, Operator] = {}
    units = np.zeros(a.offset.size)
    for name in {**a.pieces, **other}:
        (p, p_sizes), (q, q_sizes) = in_one_layout(a.pieces.get(name), other.get(name))
        size_p, size_q = p_sizes.coefficients, q_sizes.coefficients
        slack = a.error * size_p + a.lost + b.error * size_q + b.lost
        gap = np.abs(p.coefficients - q.coefficients) + slack
        if (gap == 0).all():
            gaps[name] = p.with_coefficients(np.zeros_like(gap))
        else:
            off = units_apart(gap, size_p + size_q, rounding)
            units = np.maximum(units, largest_of_rows(p, off))
            gaps[name] = p.with_coefficients(_up(gap))
        left[name] = p.with_coefficients(_up(np.abs(p.coefficients) + a.error * size_p + a.lost))
    offset = np.abs(a.offset - b.offset) + a.error * a.offset_sizes + b.error * b.offset_sizes + a.lost + b.lost
    if (offset != 0).any():
        units = np.maximum(units, units_apart(offset, a.offset_sizes + b.offset_sizes, rounding))
        offset = _up(offset)
    return Compared(left, gaps, offset, units)


def _up(values: FloatArray) -> FloatArray:
    """Bounds that took a few roundings; an exact zero stays one."""
    return np.where(values == 0, 0.0, round_up(values, 6))


def units_apart(gap: FloatArray, size: FloatArray, rounding: Rounding) -> FloatArray:
    """Differences in units of rounding, rounded up; infinite where it is not a number.

    Numbers below the smallest normal one are rounded like that one, also those that no network stores.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        units = gap / np.maximum(size, TINY) / rounding.unit * INFLATE
    return np.where(gap == 0, 0.0, np.where(units >= 0, np.maximum(units, TINY), np.inf))


def largest_of_rows(layout: Operator, values: FloatArray) -> FloatArray:
    """For every output of a map the largest of some numbers that stand in the places of its coefficients."""
    match layout:
        case Convolution():
            return np.repeat(values.max(axis=(1, 2, 3), initial=0.0), layout.out_size // layout.out_shape[0])
        case Dense():
            return np.asarray(values.max(axis=1, initial=0.0))
        case Sparse():
            counts = np.diff(layout.matrix.indptr)
            found = np.zeros(layout.out_size)
            if values.size:
                found[counts > 0] = np.maximum.reduceat(values, layout.matrix.indptr[:-1][counts > 0])
            return found
        case Scale():
            return np.broadcast_to(values, layout.out_shape).reshape(-1)
        case _:
            return np.full(layout.out_size, values.max(initial=0.0))


def in_one_layout(a: Piece | None, b: Piece | None) -> list[tuple[Operator, Operator]]:
    """The values and sizes of two maps with coefficients in the same places; a map that is missing is zero."""
    if a is not None and b is not None and same_layout(a.values, b.values):
        aligned_sizes = same_layout(a.sizes, b.sizes)
        if aligned_sizes and a.values.coefficients.shape == a.sizes.coefficients.shape:
            return [(a.values, a.sizes), (b.values, b.sizes)]
    known = a or b
    assert known is not None
    parts = [entries(o)[0] for piece in (a, b) if piece is not None for o in (piece.values, piece.sizes)]
    same = all(np.array_equal(parts[0], part) for part in parts)
    places = parts[0] if same else reduce(np.union1d, parts)
    shape = (known.values.out_size, known.values.in_size)
    indptr = np.searchsorted(places, np.arange(shape[0] + 1, dtype=np.int64) * shape[1])

    def filled(operator: Operator | None) -> Operator:
        data = np.zeros(len(places))
        if operator is not None:
            where, values = entries(operator)
            data[np.searchsorted(places, where)] = values
        matrix = sp.csr_array((data, places % shape[1], indptr), shape=shape)
        return Sparse(matrix, known.values.in_shape, known.values.out_shape)

    pairs = ((None, None) if piece is None else (piece.values, piece.sizes) for piece in (a, b))
    return [(filled(values), filled(sizes)) for values, sizes in pairs]
