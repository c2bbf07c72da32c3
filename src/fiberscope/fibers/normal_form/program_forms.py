"""A program in its normal form: the arithmetic in which it computes its own, over a table of hyperplanes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from fiberscope.fibers.normal_form.row import Row, combine, dyadic
from fiberscope.fibers.normal_form.sums import Sums, layer_sums
from fiberscope.fibers.normal_form.table import ONE, Table
from fiberscope.network.network import Network
from fiberscope.network.operators import Operator
from fiberscope.network.walk import output
from fiberscope.numerics.algebra.base import LinearMap
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.points import to_dyadic


class FormArithmetic:
    """The arithmetic in which a program computes its own normal form; values are lists of rows.

    ``signs`` has for every entry of the sign vector 1 (proven nowhere negative on the domain), -1 (nowhere positive)
    or 0 (not known); the activations use it up in order.
    """

    def __init__(self, table: Table, signs: IntArray | None = None) -> None:
        self.table, self.signs, self.start = table, signs, 0

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Sequence[Row]) -> Sequence[Row]:
        stages = operator.stages()
        for index, stage in enumerate(stages):
            assert isinstance(stage, Operator)
            value = self._linear(stage, value, bias if index + 1 == len(stages) else None)
        return value

    def _linear(self, stage: Operator, value: Sequence[Row], bias: FloatArray | None) -> Sequence[Row]:
        if stage.stored_matrix is not None and not self.table.ulps:
            self.table.spend(stage.stored_matrix.size // 16)
            sums = layer_sums(stage.stored_matrix, bias, value, ONE)
            if sums is not None:
                return sums
        matrix = stage.sparse()
        offset = np.zeros(stage.out_size) if bias is None else bias
        numbers, exponent = to_dyadic(np.concatenate([matrix.data, offset]))
        numbers = numbers.tolist()
        # a row that cancelled to nothing still has sizes
        lowest = min([row.exponent for row in value if row.terms or row.sizes], default=0)
        lowest = min(lowest, 0) if bias is not None else lowest
        known = [
            None if not row.terms else [(k, c << (row.exponent - lowest)) for k, c in row.terms.items()]
            for row in value
        ]
        single = [None if k is None or len(k) > 1 else k[0] for k in known]
        shift = -lowest
        pointers, columns = matrix.indptr.tolist(), matrix.indices.tolist()
        result = []
        for i, (first, last) in enumerate(itertools.pairwise(pointers)):
            terms: dict[int, int] = {}
            constant = numbers[len(matrix.data) + i] << shift if bias is not None else 0
            work = last - first
            for place in range(first, last):
                j = columns[place]
                one = single[j]
                if one is not None:
                    k, c = one
                    terms[k] = terms.get(k, 0) + numbers[place] * c
                    continue
                many = known[j]
                if many is None:
                    continue
                w = numbers[place]
                work += len(many)
                for k, c in many:
                    terms[k] = terms.get(k, 0) + w * c
            if constant:
                terms[ONE] = terms.get(ONE, 0) + constant
            self.table.spend(work)
            sizes = None
            if self.table.ulps:
                sizes = self._sizes(value, columns[first:last], numbers[first:last], lowest)
                sizes[ONE] = sizes.get(ONE, 0) + abs(constant)
            result.append(self._cleaned(Row(terms, exponent + lowest, sizes)))
        return result

    def _sizes(self, value: Sequence[Row], columns: list[int], numbers: list[int], lowest: int) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for j, w in zip(columns, numbers, strict=True):
            row = value[j]
            for k in row.terms if row.sizes is None else row.sizes:
                sizes[k] = sizes.get(k, 0) + (abs(w) * row.magnitude(k) << (row.exponent - lowest))
        return sizes

    def _cleaned(self, row: Row) -> Row:
        """Without zeros; where rounding is allowed, without what it may have left of a zero."""
        if row.sizes is None:
            row.terms = {k: c for k, c in row.terms.items() if c}
            return row
        for k, c in list(row.terms.items()):
            off = abs(c) / row.sizes[k] / self.table.unit if c else 0.0
            if off <= self.table.ulps:
                self.table.residual = max(self.table.residual, off)
                del row.terms[k]
        return row

    def piecewise(self, value: Sequence[Row], slopes: FloatArray) -> list[Row]:
        signs = np.zeros(len(value), dtype=np.int64)
        if self.signs is not None:
            signs = self.signs[self.start : self.start + len(value)]
        self.start += len(value)
        if isinstance(value, Sums):
            return self._switch_all(value, slopes, signs)
        return [self._switch(row, float(s), int(sign)) for row, s, sign in zip(value, slopes, signs, strict=True)]

    def _switch_all(self, sums: Sums, slopes: FloatArray, signs: IntArray) -> list[Row]:
        """:meth:`_switch` of rows in arrays, which become integers of any size only where they stay rows."""
        result = []
        for i, (found, slope) in enumerate(
            zip(self.table.relus(sums, signs, slopes == 1), slopes.tolist(), strict=True)
        ):
            if isinstance(found, int):
                row = Row({}) if found != 1 and slope == 0 else sums[i]
                result.append(row if found == 1 else combine([(*dyadic(slope), row)], False))
            elif slope == 0:
                result.append(found)
            else:
                result.append(combine([(*dyadic(slope), sums[i]), (*_dyadic_difference(slope), found)], False))
        return result

    def _switch(self, row: Row, slope: float, sign: int) -> Row:
        self.table.spend(len(row.terms))
        if sign:
            self.table.remember(row, sign)
            known: int | None = sign
        else:
            known = self.table.sign_of(row)
            known = self.table.recall(row) if known is None else known
        if slope == 1 or known == 1:
            return row
        m, e = dyadic(slope)
        if known is not None:
            return self._combined([(m, e, row)])
        m1, e1 = _dyadic_difference(slope)
        return self._combined([(m, e, row), (m1, e1, self.table.relu(row))])

    def add(self, values: Sequence[Sequence[Row]]) -> list[Row]:
        return [self._combined([(1, 0, row) for row in rows]) for rows in zip(*values, strict=True)]

    def _combined(self, parts: Sequence[tuple[int, int, Row]]) -> Row:
        """:func:`combine`, with its work counted: rows behind pools are long."""
        self.table.spend(sum(len(row.terms) for _, _, row in parts))
        return combine(parts, bool(self.table.ulps))

    def concat(self, values: Sequence[Sequence[Row]], order: IntArray | None) -> list[Row]:
        joined = [row for value in values for row in value]
        return joined if order is None else [joined[i] for i in order]

    def window_max(self, value: Sequence[Row], windows: IntArray) -> list[Row]:
        self.start += windows.size
        result = []
        for window in windows:
            players = [value[i] for i in window if i >= 0]
            while len(players) > 1:  # the tournament that the dense view plays, so that the two come out the same
                winners = []
                for a, b in zip(players[::2], players[1::2], strict=False):
                    lead = self._switch(self._combined([(1, 0, a), (-1, 0, b)]), 0.0, 0)
                    winners.append(self._combined([(1, 0, b), (1, 0, lead)]))
                players = winners + players[len(players) - len(players) % 2 :]
            result.append(players[0])
        return result

    def window_margins(self, value: Sequence[Row], windows: IntArray) -> list[Row]:
        raise NotImplementedError("a normal form has no margins")


def _dyadic_difference(slope: float) -> tuple[int, int]:
    m, e = dyadic(slope)
    return ((1 << -e) - m, e) if e <= 0 else (1 - (m << e), 0)


def normal_form(net: Network, table: Table, signs: IntArray | None = None) -> list[Row]:
    """The outputs of a network as rows over the table.

    >>> table = Table(inputs=1)
    >>> net = Network([[[2.0], [-4.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])  # 2 relu(x) + 4 relu(-x)
    >>> normal_form(net, table)[0].terms == {1: -4, 2: 6}, table.plane(2)  # 6 relu(x) - 4 x
    (True, ((1,), (1,)))
    """
    inputs: Sequence[Row] = [Row({k: 1}) for k in range(1, net.in_size + 1)]
    found = output(net.layout, inputs, FormArithmetic(table, signs))
    return list(found)
