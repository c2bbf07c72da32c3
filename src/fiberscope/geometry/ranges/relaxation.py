"""Linear relaxations of a ReLU chain on a polyhedron: proven bounds of a preactivation, refined by branching.

A neuron ``a = relu(z)`` with ``l <= z <= u`` is relaxed to ``a >= 0``, ``a >= z`` and ``a <= s z + t``, the line
through ``(l, 0)`` and ``(u, u)`` (R. Ehlers, ATVA 2017), rounded outward so that the relaxation holds for the real
network. The solver proposes multipliers; :func:`fiberscope.numerics.lp.floats.safe_bound` makes a proven bound of them,
whatever its tolerances are.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import numpy as np

from fiberscope.geometry.domains import Box, Orthant, Polytope, Space
from fiberscope.geometry.ranges.intervals import Range as ValueRange
from fiberscope.geometry.ranges.intervals import RangeArithmetic, ranges
from fiberscope.network.chains import Split, slopes_of
from fiberscope.network.layout import Layout
from fiberscope.network.network import Network
from fiberscope.network.walk import all_values
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, U, gamma, round_up
from fiberscope.numerics.lp.floats import DualModel, safe_bound
from fiberscope.numerics.lp.rational import Constraints, Sense

_VARIABLES = 260
"""Largest program that is tried."""

_UNBOUNDED = 24
"""The same on unbounded domains, where a relaxation has no upper sides and all is left to the branching."""

BRANCHES = 40
"""Nodes of the branching for one neuron."""

Fixed = dict[tuple[int, int], int]
"""Neurons ``(layer, index)`` whose sign is fixed in a branch."""


@dataclass(slots=True, eq=False)
class Relaxation:
    """A chain on a domain with what is known of the signs and ranges of its neurons."""

    chain: Network
    halfspaces: tuple[FloatArray, FloatArray]
    low: list[FloatArray]
    high: list[FloatArray]
    signs: list[FloatArray]
    slopes: tuple[FloatArray, ...]
    box: tuple[FloatArray, FloatArray]
    direct: bool

    @classmethod
    def of(
        cls, parts: Split, domain: Box | Orthant | Space | Polytope, nonnegative: BoolArray, nonpositive: BoolArray
    ) -> Relaxation | None:
        """None where a relaxation would say nothing: leaky activations, or a prefix before an unbounded domain."""
        chain, slopes = parts.tail, slopes_of(parts.tail)
        if any(((s != 0) & (s != 1)).any() for s in slopes):
            return None
        n = chain.in_size
        A, b = np.zeros((0, n)), np.zeros(0)
        low, high = np.full(n, -np.inf), np.full(n, np.inf)
        direct = not parts.prefix
        if isinstance(domain, Box):
            if direct:
                low, high = domain.low, domain.high
            else:
                found = all_values(Layout(parts.prefix), ValueRange(domain.low, domain.high), RangeArithmetic())[-1]
                low, high = found.low, found.high
        elif not direct:
            return None
        elif isinstance(domain, Orthant):
            low = np.zeros(n)
        elif isinstance(domain, Polytope):
            A, b = domain.halfspaces()
        lows, highs = _ranges(chain, low, high)
        cuts = np.cumsum([0, *(s.size for s in slopes)])
        signs = [
            np.where(nonnegative[i:j], 1.0, np.where(nonpositive[i:j], -1.0, 0.0)) for i, j in itertools.pairwise(cuts)
        ]
        return cls(chain, (A, b), lows, highs, signs, slopes, (low, high), direct)

    def learn(self, entry: int, sign: int) -> None:
        """A sign was proven."""
        layer, index = self._place(entry)
        self.signs[layer][index] = sign

    def _place(self, entry: int) -> tuple[int, int]:
        for layer, s in enumerate(self.slopes):
            if entry < s.size:
                return layer, entry
            entry -= s.size
        raise IndexError(entry)

    def decide(self, entry: int, sign: int, branches: int, deadline: float) -> tuple[bool, list[FloatArray]]:
        """Whether ``sign * z <= 0`` on the whole domain is proven; and inputs at which to look for the contrary."""
        layer, index = self._place(entry)
        bounded = all(np.isfinite(x).all() for x in self.box)
        if self.chain.in_size + sum(s.size for s in self.slopes[:layer]) > (_VARIABLES if bounded else _UNBOUNDED):
            return False, []
        queue: list[Fixed] = [{}]
        points: list[FloatArray] = []
        spent = 0
        while queue:
            fixed = queue.pop()
            spent += 1
            if spent > branches or time.monotonic() > deadline:
                return False, points
            program = self._program(layer, fixed)
            cost = np.zeros(program.size)
            cost[program.last] = sign * self.chain.weights[layer][index]
            upper, point = program.upper(cost)
            offset = sign * float(self.chain.biases[layer][index])
            # the sum of two floats has the sign of the exact sum
            if upper + offset <= 0:
                continue
            if point is not None and self.direct and np.isfinite(point).all():
                points.append(np.clip(point[: self.chain.in_size], *self.box))
            branch = self._branch(layer, fixed, point, program)
            if branch is None:
                return False, points
            queue += [fixed | {branch: -1}, fixed | {branch: 1}]
        return True, points

    def _branch(self, layer: int, fixed: Fixed, point: FloatArray | None, program: _Program) -> tuple[int, int] | None:
        """The neuron whose relaxation is violated most."""
        best, worst = None, -1.0
        for k in range(layer):
            open_ones = [
                i for i in np.flatnonzero((self.signs[k] == 0) & (self.slopes[k] == 0)) if (k, int(i)) not in fixed
            ]
            if not open_ones:
                continue
            gaps = np.zeros(len(open_ones))
            if point is not None:
                before = point[program.slices[k]]
                z = self.chain.weights[k][open_ones] @ before + self.chain.biases[k][open_ones]
                gaps = np.abs(point[program.slices[k + 1]][open_ones] - np.maximum(z, 0))
            place = int(gaps.argmax())
            if gaps[place] > worst:
                best, worst = (k, int(open_ones[place])), float(gaps[place])
        return best

    def _program(self, layer: int, fixed: Fixed) -> _Program:
        """Variables are the input and all activations before ``layer``."""
        sizes = [self.chain.in_size, *(s.size for s in self.slopes[:layer])]
        cuts = np.cumsum([0, *sizes])
        slices = [slice(int(i), int(j)) for i, j in itertools.pairwise(cuts)]
        lower, upper = np.full(cuts[-1], -np.inf), np.full(cuts[-1], np.inf)
        lower[slices[0]], upper[slices[0]] = self.box
        rows, right = [], []
        A, b = self.halfspaces
        for row, value in zip(A, b, strict=True):
            rows.append(_placed(row, slices[0], cuts[-1]))
            right.append(float(value))
        for k in range(layer):
            for i in range(sizes[k + 1]):
                self._neuron(k, i, fixed.get((k, i), 0), slices, lower, upper, rows, right)
        matrix = np.array(rows).reshape(len(rows), int(cuts[-1]))
        return _Program(matrix, np.array(right), (lower, upper), slices)

    def _neuron(
        self,
        k: int,
        i: int,
        fixed: int,
        slices: list[slice],
        lower: FloatArray,
        upper: FloatArray,
        rows: list[FloatArray],
        right: list[float],
    ) -> None:
        w, b = self.chain.weights[k][i], float(self.chain.biases[k][i])
        own, total = slices[k + 1].start + i, len(lower)
        low, high = float(self.low[k][i]), float(self.high[k][i])
        linear = self.slopes[k][i] == 1
        sign = fixed or self.signs[k][i]
        above = _placed(w, slices[k], total)  # w a - own <= -b
        above[own] = -1.0
        if sign < 0 and not linear:
            lower[own] = upper[own] = 0.0
            if fixed:
                rows.append(_placed(w, slices[k], total))
                right.append(-b)
            return
        lower[own] = low if linear else max(low, 0.0)
        upper[own] = high
        rows.append(above)
        right.append(-b)
        if linear or sign > 0:
            rows.append(-above)
            right.append(b)
            if fixed:
                rows.append(_placed(-w, slices[k], total))
                right.append(b)
            return
        if not (np.isfinite(low) and np.isfinite(high)) or high <= low:
            return
        slope = min(max(high / (high - low), 0.0), 1.0)
        # s z + t is at least relu(z) at both ends, rounding included, so it is in between
        t = max(-slope * low, high - slope * high)
        t += 8 * U * (abs(slope * low) + abs(high)) + 4 * TINY
        scaled = slope * w
        before_low, before_high = lower[slices[k]], upper[slices[k]]
        size = np.maximum(np.abs(before_low), np.abs(before_high))
        # what underflow loses of a coefficient meets values of this size
        lost = 2 * U * (np.abs(scaled) @ size) + 2 * TINY * size.sum() + 4 * U * abs(slope * b)
        slack = float(round_up(np.array(lost), 2 * len(w) + 8))
        if not np.isfinite(slack):
            return
        total_right = slope * b + t + slack
        if not np.isfinite(total_right):
            return
        row = _placed(-scaled, slices[k], total)
        row[own] = 1.0
        rows.append(row)
        right.append(total_right + 8 * U * abs(total_right) + 8 * U * (abs(slope * b) + abs(t)))


class _Program:
    """``A x <= b`` within bounds, with proven upper bounds of linear functions."""

    def __init__(
        self, matrix: FloatArray, right: FloatArray, box: tuple[FloatArray, FloatArray], slices: list[slice]
    ) -> None:
        self.slices, self.last, self.size = slices, slices[-1], matrix.shape[1]
        sense = np.full(len(right), Sense.AT_MOST, np.int8)
        top = np.abs(matrix).max(axis=1, initial=0.0)
        weights = np.where(top > 0, 2.0 ** np.frexp(top)[1].clip(-1000, 1000), 1.0)
        self._rows, self._box, self._sense = (matrix, right, sense), box, sense
        self._model = DualModel(Constraints(matrix, right, sense, *box), weights)
        self._small = gamma(2 * sum(matrix.shape) + 24)

    def upper(self, cost: FloatArray) -> tuple[float, FloatArray | None]:
        """A proven upper bound of ``cost x``, minus infinity if there is no point, and where it may be attained."""
        proposal = self._model.solve(cost, self._sense)
        if proposal.optimal:
            return float(safe_bound(self._rows, self._box, cost, proposal.y.copy(), self._small)), proposal.x
        nothing = safe_bound(self._rows, self._box, np.zeros(self.size), proposal.y.copy(), self._small)
        return (-np.inf if nothing < 0 else np.inf), None


def _placed(row: FloatArray, where: slice, total: int) -> FloatArray:
    full = np.zeros(total)
    full[where] = row
    return full


def _ranges(chain: Network, low: FloatArray, high: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
    """Ranges of the preactivations; infinite where the domain is unbounded."""
    if np.isfinite(low).all() and np.isfinite(high).all():
        found = ranges(chain, Box(low, high)) if (low < high).all() else None
        if found is not None:
            return [r.low for r in found[1::2]], [r.high for r in found[1::2]]
    sizes = chain.widths[1:-1]
    return [np.full(n, -np.inf) for n in sizes], [np.full(n, np.inf) for n in sizes]
