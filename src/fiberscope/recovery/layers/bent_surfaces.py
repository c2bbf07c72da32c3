"""One neuron behind known layers, by following its bent surface over the folds of the neurons before it.

On a cell of the known layers the surface is flat, ``g x + c = 0``. Behind the fold ``h x + d = 0`` of a known neuron it
goes on as ``(g + m h) x + (c + m d) = 0``: one number is unknown, and one point of the surface behind the fold tells
it. Every such number is a linear equation for the neuron's coefficients over the features of
:mod:`~fiberscope.recovery.prefix`. Folds whose number already follows are crossed without asking anything. A surface
that is not where it should be belongs to a later layer, which bends at neurons not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.numerics.cutoffs import CRUDE, FLAT, GRAZING, NEARLY_FLAT, NOT_ZERO, OUTSIDE, SAME, SPAN
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.recovery.oracle import Oracle
from fiberscope.recovery.place import Place
from fiberscope.recovery.prefix import Cell, Prefix
from fiberscope.recovery.probes import locate

DIRECTIONS = 48
"""Random directions of which the best is taken."""

PATIENCE = 120
"""Free moves in a row without a new equation before a neuron is left as it is."""

FAILURES = 8
"""Folds behind which the surface was not found, before it is given up."""

DOUBTS = 3
"""Failures beyond half of what was found that tell a surface of a later layer, where there are such."""

WORTH = 0.25
"""Folds are preferred by this power of what their equation tells that is not known yet."""

STEEP = 8.0
"""Largest tangent of the angle by which a surface may turn to be found in the first try."""


ELSEWHERE = "its surface is not where known neurons would let it go on"


@dataclass
class Equations:
    """Linear equations ``u r = y`` for a vector of coefficients, kept orthonormal: ``rows`` ``(known, features)``."""

    rows: FloatArray
    values: FloatArray

    @classmethod
    def of_cell(cls, cell: Cell, g: FloatArray, c: float) -> tuple[Equations, float]:
        """From the gradient and offset on one cell; and how far they are from being a combination of features."""
        matrix = np.column_stack([cell.slopes, cell.offsets])
        U, S, V = np.linalg.svd(matrix, full_matrices=False)
        kept = SPAN * S[0] < S
        target = np.append(g, c)
        share = V[kept] @ target
        off = float(np.linalg.norm(target - share @ V[kept]) / np.linalg.norm(target))
        return cls(U[:, kept].T, share / S[kept]), off

    def predicts(self, turn: FloatArray) -> tuple[float, float]:
        """The value of ``turn r`` as far as it is known, and the part of ``turn`` that is not, between 0 and 1."""
        inside = self.rows @ turn
        left = turn - inside @ self.rows
        return float(inside @ self.values), float(np.linalg.norm(left) / np.linalg.norm(turn))

    def unknown(self, turns: FloatArray) -> FloatArray:
        """The part of each row of ``turns`` that is not known."""
        left = turns - (turns @ self.rows.T) @ self.rows
        size = np.linalg.norm(turns, axis=1)
        return np.asarray(np.linalg.norm(left, axis=1) / np.where(size > 0, size, 1.0))

    def add(self, turn: FloatArray, value: float) -> None:
        inside = self.rows @ turn
        left = turn - inside @ self.rows
        size = float(np.linalg.norm(left))
        fresh = left / size
        fresh = fresh - (self.rows @ fresh) @ self.rows
        self.rows = np.concatenate([self.rows, fresh[None]])
        self.values = np.append(self.values, (value - float(inside @ self.values)) / size)

    @property
    def solution(self) -> FloatArray:
        return np.asarray(self.values @ self.rows)


@dataclass
class State:
    """A point of the surface, its gradient there, and the cell."""

    x: FloatArray
    g: FloatArray
    cell: Cell


@dataclass(frozen=True, eq=False)
class Row:
    """Coefficients of a neuron over the features, from ``equations``; the smallest ones where those are too few."""

    equations: Equations

    @property
    def coefficients(self) -> FloatArray:
        return self.equations.solution

    @property
    def complete(self) -> bool:
        return bool(len(self.equations.rows) >= self.equations.rows.shape[1])

    def normalised(self) -> Row:
        size = float(np.linalg.norm(self.coefficients))
        return Row(Equations(self.equations.rows, self.equations.values / size))

    def ratio(self, other: Row, same: float = SAME) -> float | None:
        """The factor by which ``other`` is the same neuron, judged by what both know; None if it is another one."""
        U, S, V = np.linalg.svd(self.equations.rows @ other.equations.rows.T, full_matrices=False)
        both = S > 1 - SPAN
        mine, others = U[:, both].T @ self.equations.values, V[both] @ other.equations.values
        size = float(others @ others)
        if both.sum() < 3 or not size > 0:
            return None
        factor = float(mine @ others) / size
        return factor if np.linalg.norm(mine - factor * others) <= same * np.linalg.norm(mine) else None

    def merged(self, other: Row, factor: float) -> Row:
        """What both know together."""
        both = Equations(self.equations.rows, self.equations.values)
        for row, value in zip(other.equations.rows, other.equations.values, strict=True):
            if both.predicts(row)[1] > SAME:
                both.add(row, factor * value)
        return Row(both)

    def within(self, T: FloatArray) -> Row:
        """What it knows of ``v``, for coefficients ``T v``."""
        U, S, V = np.linalg.svd(self.equations.rows @ T, full_matrices=False)
        kept = SPAN * S[0] < S
        return Row(Equations(V[kept], (U[:, kept].T @ self.equations.values) / S[kept])).normalised()

    def over(self, T: FloatArray) -> tuple[FloatArray, BoolArray]:
        """The coefficients as ``T v`` with a shorter vector ``v``, and which entries of ``v`` that determines."""
        matrix = self.equations.rows @ T
        v, *_ = np.linalg.lstsq(matrix, self.equations.values, rcond=SPAN)
        _, sizes, right = np.linalg.svd(matrix, full_matrices=False)
        span = right[sizes > SPAN * sizes[0]]
        return np.asarray(v), np.asarray(1 - (span**2).sum(axis=0) <= SPAN)


class Walk:
    """Follows one surface."""

    def __init__(self, oracle: Oracle, place: Place, prefix: Prefix, rng: np.random.Generator,
                 last: bool = True) -> None:  # fmt: skip
        self.last = last
        self.oracle, self.place, self.prefix, self.rng = oracle, place, prefix, rng
        self.A, self.b = place.walls
        self.others = np.zeros((0, prefix.num_features))
        self.sharp = float(np.sqrt(oracle.noise))
        self.wide, self.failures = 1.0 if oracle.noise < CRUDE else 10.0, FAILURES

    def follow(self, x: FloatArray, g: FloatArray) -> Row | str:
        """The neuron whose kink at ``x`` has the normal ``g``, or why it is none of this layer."""
        self.A, self.b = self.place.around(x).walls
        cell = self.prefix.cell(self.prefix.pattern(x))
        equations, off = Equations.of_cell(cell, g, -float(g @ x))
        if off > OUTSIDE * self.sharp:
            return "its normal is no combination of the known neurons that are active there"
        state, failures, idle, found = State(x, g, cell), 0, 0, 0
        blocked: set[tuple[int, bytes]] = set()
        while failures <= self.failures and idle <= PATIENCE and len(equations.rows) < self.prefix.num_features:
            state = self.centred(state)
            move = self.choose(state, equations, blocked)
            if move is None:
                idle += 1
                continue
            e, fold, t = move
            turn = state.cell.turns[fold]
            m, left = equations.predicts(turn)
            y = state.x + t * e
            if left <= SPAN:
                ahead = self.crossed(state, y, fold, m)
                state, idle = (ahead or state), idle + 1
                continue
            measured = self.measure(state, y, fold)
            if measured is None:
                failures += 1
                if not self.last and failures >= DOUBTS + found // 2:
                    return ELSEWHERE
                blocked.add((fold, state.cell.pattern[0].tobytes()))
                continue
            m, state = measured
            equations.add(turn, m)
            found, idle = found + 1, 0
        return self.finished(equations, failures)

    def finished(self, equations: Equations, failures: int) -> Row | str:
        if failures > self.failures and len(equations.rows) < 0.9 * self.prefix.num_features:
            return ELSEWHERE
        return Row(equations)

    # -- moving ------------------------------------------------------------------------------------------------

    def reach(self, state: State, E: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Steps along the rows of ``E`` to every fold ``(directions, units)``, and to the walls ``(directions,)``."""
        z = state.cell.folds @ state.x + state.cell.heights
        room = self.b - self.A @ state.x
        with np.errstate(divide="ignore", invalid="ignore"):
            t = -z / (E @ state.cell.folds.T)
            walls = room / (E @ self.A.T)
        t = np.where(t > 0, t, np.inf)
        walls = np.where(walls > 0, walls, np.inf).min(axis=1)
        return t, walls

    def centred(self, state: State) -> State:
        """The same piece of the surface, at the middle of two random chords."""
        for _ in range(2):
            e = self.tangent(state, self.rng.normal(size=(1, len(state.x))))
            ends = []
            for sign in (1.0, -1.0):
                t, wall = self.reach(state, sign * e)
                ends.append(sign * min(float(t.min()), float(wall[0]), self.place.size))
            x = state.x + (0.5 * sum(ends)) * e[0]
            # stay on the surface although directions are rounded
            state = State(x - state.g * (state.g @ (x - state.x)) / (state.g @ state.g), state.g, state.cell)
        return state

    def tangent(self, state: State, E: FloatArray) -> FloatArray:
        """Unit vectors along the surface."""
        E = E - np.outer(E @ state.g, state.g) / (state.g @ state.g)
        return np.asarray(E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), np.finfo(float).tiny))

    def choose(self, state: State, equations: Equations, blocked: set[tuple[int, bytes]]) -> (
        tuple[FloatArray, int, float] | None
    ):  # fmt: skip
        """A direction, the fold that is met first and the step to it; folds that tell something new are preferred."""
        folds = state.cell.folds
        told = equations.unknown(state.cell.turns)
        fresh = (told > SPAN) & (np.abs(folds).sum(axis=1) > 0)
        for fold, key in blocked:
            fresh[fold] &= key != state.cell.pattern[0].tobytes()
        aims = folds[fresh]
        z = folds @ state.x + state.cell.heights
        aims = -np.sign(z[fresh])[:, None] * aims
        E = np.concatenate([aims, self.rng.normal(size=(DIRECTIONS, len(state.x)))])
        E = self.tangent(state, E)
        t, walls = self.reach(state, E)
        order = np.argsort(t, axis=1)
        pick = np.arange(len(E))
        first = order[:, 0]
        t1 = t[pick, first]
        t2 = np.minimum(t[pick, order[:, 1]] if t.shape[1] > 1 else np.inf, walls)
        good = np.isfinite(t1) & (t1 < 0.98 * walls)
        if not good.any():
            return None
        angle = np.abs((E * folds[first]).sum(axis=1)) / np.maximum(np.linalg.norm(folds[first], axis=1), NOT_ZERO)
        room = np.where(good, np.minimum(t2 - np.where(good, t1, 0.0), self.place.size) * angle, 0.0)
        # an equation that is nearly known passes its error on enlarged
        worth = self.place.size * (1.0 + told[first] ** WORTH)
        score = np.where(good, room, -1.0) + np.where(good & fresh[first], worth, 0.0)
        if not (good & fresh[first]).any():  # wander, rather towards what is missing
            score = np.where(good, self.rng.random(len(E)), -1.0)
            score[: len(aims)] += np.where(good[: len(aims)], 0.7, 0.0)
        best = int(score.argmax())
        return E[best], int(first[best]), float(t1[best])

    def flipped(self, cell: Cell, fold: int) -> Cell:
        pattern = [s.copy() for s in cell.pattern]
        for s in pattern:
            if fold < len(s):
                s[fold] *= -1
                break
            fold -= len(s)
        return self.prefix.cell(pattern)

    def beyond(self, state: State, y: FloatArray, fold: int, m: float) -> tuple[State, FloatArray, float] | None:
        """The surface behind a fold at ``y``: the state there, the direction away from the fold, the room along it."""
        h = state.cell.folds[fold]
        side = -np.sign(h @ state.x + state.cell.heights[fold])
        g = state.g + m * h
        e = side * (h - g * (h @ g) / (g @ g))
        size = np.linalg.norm(e)
        if not size > GRAZING * np.linalg.norm(h):
            return None
        ahead = State(y, g, self.flipped(state.cell, fold))
        z = ahead.cell.folds @ y + ahead.cell.heights
        if not (np.delete(z * np.concatenate(ahead.cell.pattern), fold) > 0).all():
            return None
        t, wall = self.reach(ahead, (e / size)[None])
        t[0, fold] = np.inf
        room = min(float(t.min()), float(wall[0]), self.place.size)
        return ahead, e / size, room

    def crossed(self, state: State, y: FloatArray, fold: int, m: float) -> State | None:
        found = self.beyond(state, y, fold, m)
        if found is None:
            return None
        ahead, e, room = found
        return State(y + 0.5 * room * e, ahead.g, ahead.cell)

    # -- measuring ---------------------------------------------------------------------------------------------

    def clearance(self, cell: Cell, y: FloatArray, but: int = -1) -> float:
        """Distance to the nearest other fold of the cell, or wall."""
        sizes = np.maximum(np.linalg.norm(cell.folds, axis=1), np.finfo(float).tiny)
        far = np.abs(cell.folds @ y + cell.heights) / sizes
        if but >= 0:
            far[but] = np.inf
        walls = (self.b - self.A @ y) / np.linalg.norm(self.A, axis=1)
        others, heights = self.others @ cell.slopes, self.others @ cell.offsets
        sizes = np.maximum(np.linalg.norm(others, axis=1), np.finfo(float).tiny)
        near = np.abs(others @ y + heights) / sizes
        return float(min(far.min(initial=np.inf), near.min(initial=np.inf), walls.min(), self.place.size))

    def measure(self, state: State, y: FloatArray, fold: int) -> tuple[float, State] | None:
        """The turn behind a fold, first close by and then from afar, and the state there; None if nothing is found."""
        near = self.near(state, y, fold)
        if near is None:
            return None
        found = self.beyond(state, y, fold, near)
        if found is None:
            return None
        ahead, e, room = found
        h = state.cell.folds[fold]
        for share in (0.5, 0.1):
            x = y + share * room * e
            u = ahead.g / np.linalg.norm(ahead.g)
            # the place of a kink is as sharp on a short segment as on a long one, which meets others more often
            w = 0.05 * self.wide * self.clearance(ahead.cell, x)
            met = locate(self.oracle, x, u, w) or locate(self.oracle, x, u, 0.1 * w)
            if met is None:
                continue
            s = met[0]
            x = x + s * u
            step = x - y
            m = -float(state.g @ step) / float(h @ step)
            allowed = FLAT * self.sharp * room
            if abs(s) > allowed and not (abs(s) <= NEARLY_FLAT * allowed and self.between(y, x, u, w, allowed)):
                return None  # not flat: it bends at something unknown
            return m, State(x, state.g + m * h, ahead.cell)
        return None

    def between(self, y: FloatArray, x: FloatArray, u: FloatArray, w: float, allowed: float) -> bool:
        """Whether the surface goes straight from ``y`` to ``x``.

        What was seen close by is rough where the place of the fold on the surface is known badly.
        """
        met = locate(self.oracle, (x + y) / 2, u, 0.5 * w)
        return met is not None and abs(met[0]) <= allowed

    def near(self, state: State, y: FloatArray, fold: int) -> float | None:
        """The turn, from a short segment just behind the fold in the plane of the two normals."""
        h = state.cell.folds[fold]
        side = -np.sign(h @ state.x + state.cell.heights[fold])
        ahead = side * h / np.linalg.norm(h)
        across = state.g - ahead * (ahead @ state.g)
        size = np.linalg.norm(across)
        if not side or not size > self.sharp * np.linalg.norm(state.g):
            return None  # the surface is the fold itself, or nearly
        across = across / size
        room = 0.5 * self.clearance(state.cell, y, fold)
        for reach, steep in ((0.2, STEEP), (0.03, STEEP), (0.1, 10 * STEEP)):
            tau = min(reach * self.wide, 1.0) * room / np.hypot(1.0, steep)
            met = locate(self.oracle, y + tau * ahead, across, steep * tau)
            if met is not None:
                step = tau * ahead + met[0] * across
                return -float(state.g @ step) / float(h @ step)
        return None
