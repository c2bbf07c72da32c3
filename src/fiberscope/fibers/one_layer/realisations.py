"""The sets of Definition 22: all parameters of one hidden layer that realise a function with one assignment.

Let the function be ``f = L + sum_h omega_h relu(p_h)`` with its rows oriented as the form orients them, and write ``w``
for the linear part of a row. Neurons against a hyperplane, ``relu(-p) = relu(p) - p``, and groups that cancel leave
linear functions over, and the linear neurons must make up for them:

    ``A_0 + U W_M = V W + U_G W_G``   with   ``A_0 = L + sum_{h against} omega_h w_h``,

where ``W_M`` are the hyperplanes with neurons on both sides, ``W_G`` the groups with both, ``W >= 0`` the linear
neurons on an orthant (on all of space they are constants, ``W = 0``), and everything but ``A_0`` and ``W_M`` is free.
It is solvable in ``V, U, U_G`` if and only if the rows of ``A_0`` lie in the span of the rows of ``W, W_G, W_M``. So a
set is not empty if and only if such rows exist, which is decided over the rationals; its members are drawn as rational
numbers and realise the function exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from fiberscope.errors import InputError
from fiberscope.fibers.membership import Membership
from fiberscope.fibers.one_layer.assignments import (
    LIMIT,
    Assignment,
    assignment_of,
    list_assignments,
)
from fiberscope.fibers.one_layer.layer import OneLayer, rational_rank
from fiberscope.fibers.one_layer.representation import Form, form_of
from fiberscope.numerics.exact_arrays import fractions
from fiberscope.numerics.exact_linear import (
    basis,
    column_of,
    combined,
    extreme_rays,
    matrix_of,
    positive,
    power,
    random_solution,
    random_vector,
    unit,
)
from fiberscope.numerics.floats import ObjectArray
from fiberscope.results import Result, hidden

_TRIES = 64
"""Draws of rows until they are in general position."""

Exact = tuple[ObjectArray, ObjectArray, ObjectArray, ObjectArray]
"""``W (n, d)``, ``b (n,)``, ``V (m, n)``, ``c (m,)`` as fractions."""


@dataclass(frozen=True, eq=False)
class Cell(Result):
    """The parameters of ``n`` neurons that realise ``form`` with one assignment, modulo order and rescaling."""

    form: Form = field(metadata=hidden())
    assignment: Assignment
    orthant: bool = field(metadata=hidden())

    told = ("nonempty", "dimension=_known_dimension", "constraints")

    def _known_dimension(self) -> int | None:
        return self.dimension if self.nonempty else None

    # -- what must be solved -------------------------------------------------------------------------------------------

    @property
    def d(self) -> int:
        return self.form.inputs

    @property
    def m(self) -> int:
        return len(self.form.affine)

    @cached_property
    def rows(self) -> list[tuple[int, ...]]:
        """The visible hyperplanes, in the order of the assignment."""
        return sorted(self.form.planes)

    @cached_property
    def mixed(self) -> list[int]:
        """Visible hyperplanes with neurons on both sides."""
        return [h for h, (p, q) in enumerate(self.assignment.visible) if p and q]

    @property
    def open_groups(self) -> int:
        """Cancelling groups with neurons on both sides: each adds any matrix of rank one."""
        return sum(q > 0 for _, q in self.assignment.groups)

    @cached_property
    def wanted(self) -> ObjectArray:
        """``A_0``: the linear part that neurons other than those on visible hyperplanes must realise."""
        A = matrix_of([row[:-1] for row in self.form.affine], self.d)
        for row, (along, _) in zip(self.rows, self.assignment.visible, strict=True):
            if not along:
                weight = matrix_of([[v] for v in self.form.planes[row]], 1)
                A = A + weight @ matrix_of([row[:-1]], self.d)
        return A

    @cached_property
    def _mixed_rows(self) -> ObjectArray:
        return matrix_of([self.rows[h][:-1] for h in self.mixed], self.d)

    @cached_property
    def _span(self) -> ObjectArray:
        """A basis of the rows of ``A_0`` and ``W_M``; those of ``W_M`` come first."""
        return basis(np.concatenate([self._mixed_rows, self.wanted]))

    @cached_property
    def need(self) -> int:
        """Rank of ``A_0`` modulo ``W_M``."""
        return len(self._span) - rational_rank(self._mixed_rows)

    @cached_property
    def _rays(self) -> ObjectArray | None:
        """Extreme rays of the nonnegative vectors of the span; None where there are too many candidates."""
        return extreme_rays(self._span, self.d)

    @cached_property
    def strata(self) -> tuple[int, ...] | None:
        """Possible ranks of ``W`` and ``W_G`` modulo ``W_M``, smallest first; None where that is not decided.

        Any rank above ``need`` is possible, since a positive vector may be added. With ``need`` itself the linear
        neurons must be nonnegative vectors of the span, of which there may be too few.
        """
        ell, groups = self.assignment.linear if self.orthant else 0, self.open_groups
        room = self.d - rational_rank(self._mixed_rows)
        above = range(self.need + 1, min(ell + groups, room) + 1)
        free = not groups or bool(len(self._span))  # the row of a group is not zero
        if not ell:
            least: bool | None = groups >= self.need and free
        elif ell + groups < self.need:
            least = False
        elif self._rays is None:
            least = None
        else:
            rank = rational_rank(np.concatenate([self._mixed_rows, self._rays])) - rational_rank(self._mixed_rows)
            least = min(ell, rank) + groups >= self.need and free
        if least is None and not above:
            return None
        return ((self.need,) if least else ()) + tuple(above)

    @property
    def nonempty(self) -> bool | None:
        """Whether there is a parameter with this assignment at all: decided exactly, None where it is too large."""
        enough = all(sum(pair) for pair in self.assignment.visible)
        return False if not enough else None if self.strata is None else bool(self.strata)

    # -- what is free --------------------------------------------------------------------------------------------------

    @cached_property
    def dimension(self) -> int:
        """Largest dimension of the set, modulo rescaling: free numbers minus the rank of the equations at members."""
        if not self.nonempty:
            raise InputError(f"dimension: expected a set with members, got {self}")
        strata = self.strata or ()
        return max(self._dimension_at(k, np.random.default_rng(seed)) for k in strata for seed in range(2))

    def _dimension_at(self, rank: int, rng: np.random.Generator) -> int:
        W, G, X = self._solution(rank, rng)
        d, m, a = self.d, self.m, self.assignment
        free = (a.dead + a.linear) * ((d if self.orthant else 0) + m)
        free += sum(m * (sum(pair) - 1) for pair in a.visible)
        free += sum(m * (sum(pair) - 1) + d for pair in a.groups)
        moves = [np.outer(e, w) for w in (*W, *G, *self._mixed_rows) for e in unit(m)]
        moves += [np.outer(X[:, j], e) for j in range(len(W) + len(G)) for e in unit(d)]
        return free - (rational_rank(np.stack([move.ravel() for move in moves])) if moves else 0)

    @property
    def constraints(self) -> tuple[str, ...]:
        """What a parameter must satisfy, in words; rows are up to positive factors."""
        found = []
        for row, (along, against) in zip(self.rows, self.assignment.visible, strict=True):
            weight = ", ".join(str(v) for v in self.form.planes[row])
            found.append(
                f"{along} neurons on {row} and {against} on its negative: outgoing weights add up to ({weight})"
            )
        for p, q in self.assignment.groups:
            sides = f"{p} neurons on a free hyperplane" + (f", {q} on its negative" if q else "")
            found.append(f"{sides}: outgoing weights add up to 0")
        sign = ("w >= 0, b >= 0", "w <= 0, b <= 0") if self.orthant else ("w = 0, b > 0", "w = 0, b <= 0")
        for count, word, text in zip(
            (self.assignment.linear, self.assignment.dead), ("linear", "dead"), sign, strict=True
        ):
            if count:
                found.append(f"{count} {word} neurons: {text}")
        found.append(f"the rest realises a linear part of rank {self.need}; the output bias is determined")
        return tuple(found)

    # -- members -------------------------------------------------------------------------------------------------------
    # what is drawn is on the scale of the function: members are rounded to floats, and larger terms would not cancel

    @cached_property
    def _scales(self) -> tuple[Fraction, Fraction]:
        """Sizes of the slopes and of the constants of the function, powers of two; one stands in for the other."""
        lines = [*self.form.affine, *([v * w for w in row] for row, weight in self.form.planes.items() for v in weight)]
        slopes, levels = [w for line in lines for w in line[:-1]], [line[-1] for line in lines]
        return power(slopes if any(slopes) else levels), power(levels if any(levels) else slopes)

    @property
    def _reach(self) -> Fraction:
        """How far from the origin things happen."""
        slope, level = self._scales
        return level / slope

    def member(self, seed: int | np.random.Generator = 0) -> Exact:
        """A random parameter of the set as fractions, neurons in the order of the assignment; exactly the function.

        >>> layer = OneLayer([[1.0], [-1.0]], [0.0, 0.0], [[1.0, -1.0]], [0.0], False)  # x
        >>> [cell.assignment.groups for cell in cells(layer)]
        [((1, 1),)]
        >>> W, b, V, c = next(cells(layer)).member(0)
        >>> form_of(W, b, V, c, False).affine
        ((Fraction(1, 1), Fraction(0, 1)),)
        """
        if not self.nonempty:
            raise InputError(f"member: expected a set with members, got {self}")
        rng = np.random.default_rng(seed)
        strata = self.strata or ()
        W, G, X = self._solution(strata[int(rng.integers(len(strata)))], rng)
        rows: list[list[Fraction]] = []
        out: list[ObjectArray] = []
        against = iter(X[:, len(W) + len(G) :].T)  # U of the mixed hyperplanes
        for h, (row, (p, q)) in enumerate(zip(self.rows, self.assignment.visible, strict=True)):
            weight = column_of(self.form.planes[row])
            back = -next(against) if h in self.mixed else (weight if not p else 0 * weight)
            self._share(rows, out, [Fraction(v) for v in row], (weight - back, back), (p, q), rng)
        loose = iter(zip(G, X[:, len(W) :].T, strict=False))
        for p, q in self.assignment.groups:
            w, u = next(loose) if q else (self._free_row(rng), column_of([0] * self.m))
            # relu(g) (-u) + relu(-g) u = -u g, and the rest must realise A_0 + U W_M = ... + U_G W_G
            self._share(rows, out, self._group_row(w, rng), (u, -u), (p, q), rng)
        for j in range(self.assignment.linear):
            w = W[j] if self.orthant else column_of([0] * self.d)
            rows.append([*w, positive(rng) * (self._reach if self.orthant else 1)])
            out.append(X[:, j] if self.orthant else self._scales[1] * random_vector(rng, self.m))
        for _ in range(self.assignment.dead):
            w = [-positive(rng) for _ in range(self.d)] if self.orthant else [Fraction(0)] * self.d
            rows.append([*w, -positive(rng)])
            out.append(random_vector(rng, self.m))
        table = matrix_of(rows, self.d + 1)
        V = np.stack(out, axis=1) if out else matrix_of([[]] * self.m, 0)
        return self._with_bias(table[:, :-1], table[:, -1], V)

    def _with_bias(self, W: ObjectArray, b: ObjectArray, V: ObjectArray) -> Exact:
        zero = column_of([0] * self.m)
        found = form_of(W, b, V, zero, self.orthant)
        c = column_of([want[-1] - have[-1] for want, have in zip(self.form.affine, found.affine, strict=True)])
        return W, b, V, c

    def contains(self, layer: OneLayer) -> Membership:
        """Whether a parameter is in the set: the same assignment and exactly the same function."""
        if (layer.d, layer.m, layer.orthant) != (self.d, self.m, self.orthant):
            return Membership(False, "other numbers of inputs or outputs, or another domain")
        found = assignment_of(self.form, _rows_of(layer), self.orthant)
        if found != self.assignment:
            return Membership(False, f"another assignment: {found}")
        same = form_of(layer.W, layer.b, layer.V, layer.c, self.orthant) == self.form
        return Membership(same, "the same function, exactly" if same else "another function")

    def _solution(self, rank: int, rng: np.random.Generator) -> tuple[ObjectArray, ObjectArray, ObjectArray]:
        """Rows ``W`` of linear neurons, rows ``W_G`` of open groups, and ``(V | U_G | -U)``, of a stratum."""
        ell, groups = self.assignment.linear if self.orthant else 0, self.open_groups
        fixed = self._mixed_rows
        for _ in range(_TRIES):
            extra = matrix_of([[positive(rng) for _ in range(self.d)] for _ in range(rank - self.need)], self.d)
            whole = np.concatenate([self._span, extra])
            W = matrix_of([self._nonnegative(whole, extra, rng) for _ in range(ell)], self.d)
            G = matrix_of([self._nonzero(whole, rng) for _ in range(groups)], self.d)
            rows = np.concatenate([W, G, fixed])
            if rational_rank(rows) == rational_rank(fixed) + rank:  # almost every draw
                return W, G, random_solution(rows, self.wanted, self._scales[0], rng)
        raise AssertionError(f"{_TRIES} draws of rows in a row span too little")

    def _nonnegative(self, whole: ObjectArray, extra: ObjectArray, rng: np.random.Generator) -> list[Fraction]:
        """A random nonnegative vector of the span of ``whole``."""
        if len(extra):
            base = list(sum((positive(rng) * e for e in extra), start=0 * extra[0]))
            move = combined(whole, rng)
            worst = max([abs(v) / b for v, b in zip(move, base, strict=True)], default=Fraction(0))
            share = Fraction(int(rng.integers(1, 17)), 16) / max(worst, Fraction(1))
            return [b + share * v for v, b in zip(move, base, strict=True)]
        assert self._rays is not None
        if not len(self._rays):
            return [Fraction(0)] * self.d
        return list(sum((positive(rng) * ray for ray in self._rays), start=0 * self._rays[0]))

    def _nonzero(self, whole: ObjectArray, rng: np.random.Generator) -> list[Fraction]:
        while True:
            row = combined(whole, rng)
            if any(row):
                return row

    def _free_row(self, rng: np.random.Generator) -> ObjectArray:
        return column_of(self._nonzero(unit(self.d), rng))

    def _group_row(self, w: ObjectArray, rng: np.random.Generator) -> list[Fraction]:
        """A hyperplane with the normal ``w`` that meets the inside of the domain and is no visible one."""
        for _ in range(64):
            offset = positive(rng) * self._reach * int(rng.choice([-1, 1]))
            if self.orthant and all(v >= 0 for v in w):
                offset = -abs(offset)
            elif self.orthant and all(v <= 0 for v in w):
                offset = abs(offset)
            row = [*w, offset]
            if not sum(map(sum, assignment_of(self.form, [row], self.orthant).visible)):
                return row
        raise AssertionError("64 offsets in a row on visible hyperplanes")

    def _share(
        self,
        rows: list[list[Fraction]],
        out: list[ObjectArray],
        row: list[Fraction],
        totals: tuple[ObjectArray, ObjectArray],
        counts: tuple[int, int],
        rng: np.random.Generator,
    ) -> None:
        """Neurons on both sides of one hyperplane, whose outgoing weights add up to the totals."""
        size = max(abs(v) for v in row)
        unit, scale = [v / size for v in row], power([v * size for total in totals for v in total])
        for total, count, sign in zip(totals, counts, (1, -1), strict=True):
            if not count:
                continue
            parts = [scale * random_vector(rng, self.m) for _ in range(count - 1)]
            parts.append(total * size - sum(parts, start=0 * total))
            rows.extend([sign * v for v in unit] for _ in parts)
            out.extend(parts)

    def __repr__(self) -> str:
        a = self.assignment
        return f"Cell(visible={a.visible}, groups={a.groups}, linear={a.linear}, dead={a.dead})"


def cells(layer: OneLayer, limit: int | None = LIMIT) -> Iterator[Cell]:
    """The sets of Definition 22 that have members, or may have (``nonempty`` None), one after the other.

    Together they are *all* parameters of ``layer.n`` neurons that are the same function on the domain, up to order and
    rescaling of neurons. Raises :class:`TooLargeError` at once where there are more than ``limit`` assignments to try.

    >>> layer = OneLayer([[1.0], [1.0]], [0.0, -1.0], [[1.0, -1.0]], [0.0], False)  # a ramp: two orientations
    >>> [(cell.assignment.visible, cell.dimension) for cell in cells(layer)]
    [(((0, 1), (0, 1)), 0), (((1, 0), (1, 0)), 0)]
    """
    form = form_of(layer.W, layer.b, layer.V, layer.c, layer.orthant)
    found = list_assignments(len(form.planes), layer.n, limit)
    every = (Cell(form, assignment, layer.orthant) for assignment in found)
    return (cell for cell in every if cell.nonempty is not False)


def _rows_of(layer: OneLayer) -> list[tuple[Fraction, ...]]:
    return [tuple(row) for row in fractions(layer.rows)]
