"""The search of value numbering: which channel might be a multiple of which, by what maps do to random values.

Nothing here proves anything: what is found is compared entry by entry afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from scipy.optimize import linear_sum_assignment

from fiberscope.equality.maps.blocks import Blocks
from fiberscope.equality.maps.numbering import CONSTANT, DEAD, PASSED, SAME, Claim, Numbering, constant_passes
from fiberscope.equality.maps.skeleton import ComposedMap, Gate
from fiberscope.network.convolutions import Convolution
from fiberscope.network.nodes import MaxPool, PiecewiseLinear
from fiberscope.network.operators import Scale
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import Rounding, nearest_power

PROBES, MANY = 3, 48
"""Random values that a map is applied to: enough to find what is the same, and to tell what is only alike."""

POSITIONS = 32
"""Pixels of a channel that are looked at."""

NEAR = 2.0**-6
"""Directions that are further apart belong to different channels; those that are nearer are compared in full."""

BEST = 3
"""Candidates whose directions are compared entry by entry."""


@dataclass(slots=True, eq=False)
class _Known:
    """Representatives that may be met again: their directions, one row each, sizes, and where they stand."""

    directions: list[FloatArray] = field(default_factory=list)
    sizes: list[FloatArray] = field(default_factory=list)
    values: list[IntArray] = field(default_factory=list)
    members: list[IntArray] = field(default_factory=list)


class ChannelSearch:
    """Chooses what every channel is, switch after switch; ``allowed`` is how far apart maps may be, in units of
    rounding. With ``loose`` the channels of the second program are assigned to the nearest ones,
    unless the cosine of their angle is below ``least``."""

    def __init__(self, allowed: float, loose: bool = False, least: float = -1.0, seed: int = 0) -> None:
        self.allowed, self.loose, self.least = allowed, loose, least
        self._rng = np.random.default_rng(seed)
        self._kinds: dict[bytes, int] = {}
        self._known: dict[int, _Known] = {}
        self._probes: dict[int, FloatArray] = {}
        self._count = MANY if loose else PROBES
        self._spread = float(np.sqrt(self._count / PROBES))  # entries of directions are the smaller the more there are
        self._constant = self._rng.normal(size=(self._count, 1))

    def __call__(self, numbering: Numbering, number: int, gate: Gate, form: ComposedMap) -> Claim | None:
        read = numbering.views[number]
        claim = Claim.own(number, read.channels)
        self._probes[number] = self._rng.normal(size=(self._count, _given_size(gate, form)))
        with np.errstate(over="ignore", invalid="ignore"):
            seen = self._seen(numbering, number, form)
            lengths = np.sqrt((seen**2).sum(axis=1))
            sizes = np.stack([lengths, _norms(form, read)], axis=1)
            directions = np.where(lengths[:, None] > 0, seen / np.where(lengths > 0, lengths, 1.0)[:, None], 0.0)
        keys = self._keys(gate, numbering, number)
        if np.isfinite(directions).all():
            claim = self._twins(claim, keys, directions, sizes, number, numbering.question.rounding)
            if self.loose and number > numbering.first:
                claim = self._assigned(claim, keys, directions, sizes, numbering, number)
            claim = self._passed(claim, numbering, number, gate, form, directions, lengths)
        claim = _fixed(claim, numbering, number, gate, form)
        claim = self._checked(claim, numbering, number, gate, form)
        itself = (claim.ways == SAME) & (claim.values == number) & (claim.members == np.arange(read.channels))
        for key in set(keys[itself].tolist()):
            which = np.flatnonzero(itself & (keys == key))
            known = self._known.setdefault(key, _Known())
            for held, part in (
                (known.directions, directions[which]), (known.sizes, sizes[which]),
                (known.values, np.full(len(which), number)), (known.members, which),
            ):  # fmt: skip
                held.append(part)  # type: ignore[arg-type]
        return claim

    def _seen(self, numbering: Numbering, number: int, form: ComposedMap) -> FloatArray:
        """What the map makes of the random values, ``(channels, numbers)``."""
        read = numbering.views[number]
        total = self._constant * form.offset
        for name, piece in form.pieces.items():
            total = total + piece.values.apply(self._of(name, piece.values.in_size))
        where = np.unique(np.linspace(0, read.positions - 1, min(read.positions, POSITIONS)).astype(np.int64))
        return np.moveaxis(total[:, read.places[:, where]], 0, 1).reshape(read.channels, -1)

    def _of(self, name: int, size: int) -> FloatArray:
        if name not in self._probes:
            self._probes[name] = self._rng.normal(size=(self._count, size))
        return self._probes[name]

    def _twins(
        self, claim: Claim, keys: IntArray, directions: FloatArray, sizes: FloatArray, number: int,
        rounding: Rounding,
    ) -> Claim:  # fmt: skip
        """The nearest of what is known, and of the channels before in the same switch."""
        ways, values, members, factors = claim.copied()
        for key in set(keys.tolist()):
            which = np.flatnonzero(keys == key)
            known = self._known.get(key, _Known())
            pool = np.concatenate([*known.directions, directions[which]])
            size = np.concatenate([*known.sizes, sizes[which]])
            owner = np.concatenate([*known.values, np.full(len(which), number)])
            member = np.concatenate([*known.members, which])
            ahead = len(pool) - len(which)
            products = directions[which] @ pool.T
            # of its own switch only the channels before it
            products[:, ahead:][np.triu_indices(len(which))] = -np.inf
            best = np.argsort(-products, axis=1)[:, :BEST]
            for k, c in enumerate(which.tolist()):
                options = best[k][np.isfinite(products[k, best[k]])]
                if not options.size or not sizes[c, 0] > 0:
                    continue
                apart = self._spread * np.abs(pool[options] - directions[c]).max(axis=1)
                one = int(options[apart.argmin()])
                if apart.min() > NEAR or not size[one, 0] > 0:
                    continue
                value, twin = int(owner[one]), int(member[one])
                factor = float(_quotients(sizes[c : c + 1], size[one : one + 1])[0])
                if value == number:  # which may be the twin of another itself
                    value, twin, factor = int(values[twin]), int(members[twin]), factor * factors[twin]
                values[c], members[c] = value, twin
                factors[c] = _simple(np.array([factor]), apart.min(keepdims=True), rounding)[0]
        return Claim(ways, values, members, factors)

    def _assigned(
        self, claim: Claim, keys: IntArray, directions: FloatArray, sizes: FloatArray, numbering: Numbering,
        number: int,
    ) -> Claim:  # fmt: skip
        """Channels like no other, assigned to channels of the first program that nothing has been assigned to."""
        ways, values, members, factors = claim.copied()
        alone = (values == number) & (sizes[:, 0] > 0)
        for key in set(keys[alone].tolist()):
            which = np.flatnonzero(alone & (keys == key))
            known = self._known.get(key)
            if known is None:
                continue
            owner, member = np.concatenate(known.values), np.concatenate(known.members)
            pool, size = np.concatenate(known.directions), np.concatenate(known.sizes)
            taken = {
                (v, m)
                for k in (*numbering.switches, number) if k > numbering.first
                for v, m in zip(*((values, members) if k == number else numbering.switches[k].claim[1:3]), strict=True)
            }  # fmt: skip
            free = np.array([
                (v, m) not in taken and v <= numbering.first and s > 0
                for v, m, s in zip(owner, member, size[:, 0], strict=True)
            ])  # fmt: skip
            # one switch for all of them, the one that is nearest
            best: tuple[float, IntArray, IntArray] | None = None
            for value in np.unique(owner[free]):
                options = np.flatnonzero(free & (owner == value))
                rows, columns = linear_sum_assignment(-(directions[which] @ pool[options].T))
                score = float((directions[which[rows]] * pool[options[columns]]).sum()) / len(which)
                if best is None or score > best[0]:
                    best = (score, which[rows], options[columns])
            if best is not None:
                _, rows, columns = best
                alike = (directions[rows] * pool[columns]).sum(axis=1) >= self.least
                rows, columns = rows[alike], columns[alike]
                values[rows], members[rows] = owner[columns], member[columns]
                apart = self._spread * np.abs(directions[rows] - pool[columns]).max(axis=1, initial=0.0)
                quotients = _quotients(sizes[rows], size[columns])
                # what lost a part of its inputs is shorter and not rescaled
                quotients = np.where(np.abs(quotients - 1) <= 4 * apart, 1.0, quotients)
                factors[rows] = _simple(quotients, apart, numbering.question.rounding)
        return Claim(ways, values, members, factors)

    def _passed(
        self, claim: Claim, numbering: Numbering, number: int, gate: Gate, form: ComposedMap, directions: FloatArray,
        lengths: FloatArray,
    ) -> Claim:  # fmt: skip
        """ReLUs that read channels which are never negative."""
        node, read = gate.node, numbering.views[number]
        plain = isinstance(node, PiecewiseLinear) and not node.slopes.any()
        scaled = all(isinstance(piece.values, Scale) for piece in gate.form.pieces.values())
        if not plain or not scaled or len(form.pieces) != 1 or form.offset.any():
            return claim
        (name,) = form.pieces
        if name not in numbering.switches or numbering.blocks[name].positions != read.positions:
            return claim
        ways, values, members, factors = claim.copied()
        blocks = numbering.blocks[name]
        where = np.unique(np.linspace(0, read.positions - 1, min(read.positions, POSITIONS)).astype(np.int64))
        probes = self._probes[name][:, blocks.places[:, where]]
        rows = np.moveaxis(probes, 0, 1).reshape(blocks.channels, -1)
        norms = np.sqrt((rows**2).sum(axis=1))
        near = (directions @ (rows / norms[:, None]).T).argmax(axis=1)
        fits = (np.abs(directions - rows[near] / norms[near][:, None]).max(axis=1) <= NEAR) & (lengths > 0)
        fits &= numbering.switches[name].never_negative[near]
        ways[fits], values[fits], members[fits] = PASSED, name, near[fits]
        factors[fits] = nearest_power((lengths / norms[near])[fits], numbering.question.rounding)
        return Claim(ways, values, members, factors)

    def _keys(self, gate: Gate, numbering: Numbering, number: int) -> IntArray:
        """A number for what must be the same for channels to be twins: what the switch does to each."""
        read = numbering.views[number]
        match gate.node:
            case MaxPool():
                windows = np.sort(gate.node.windows[: len(gate.node.windows) // read.channels], axis=1)
                found = [repr((windows.shape, read.positions)).encode() + windows.tobytes()] * read.channels
            case PiecewiseLinear():
                rows = np.ascontiguousarray(gate.node.slopes[read.places])
                found = [f"{read.positions} ".encode() + row.tobytes() for row in rows]
            case _:
                assert_never(gate.node)
        return np.array([self._kinds.setdefault(key, len(self._kinds)) for key in found])

    def _checked(self, claim: Claim, numbering: Numbering, number: int, gate: Gate, form: ComposedMap) -> Claim:
        """Channels that are not what they seemed to be represent themselves."""
        allowed = np.inf if self.loose and number > numbering.first else self.allowed
        for _ in range(len(claim.ways) + 1):  # twins of what turns out to be none change with it
            units = numbering.nearness(number, gate, form, claim)
            if units is None:
                return Claim.own(number, len(claim.ways))
            wrong = ~(units <= allowed)
            if not wrong.any():
                return claim
            lost = np.flatnonzero(wrong)
            wrong |= (claim.values == number) & (claim.ways == SAME) & np.isin(claim.members, lost)
            claim = claim.with_own(number, wrong)
        return claim


def _norms(form: ComposedMap, read: Blocks) -> FloatArray:
    """The root of the sum of squares of the coefficients of every channel, as they are stored."""
    total = np.zeros(form.offset.size)
    for piece in form.pieces.values():
        squares = piece.values.with_coefficients(piece.values.coefficients**2)
        if isinstance(squares, Convolution):
            each = squares.kernel.sum(axis=(1, 2, 3))
            total = total + np.repeat(each, squares.out_size // len(each))
        else:
            total = total + squares.apply(np.ones((1, squares.in_size)))[0]
    return np.asarray(np.sqrt(total[read.places].sum(axis=1)))


def _quotients(sizes: FloatArray, others: FloatArray) -> FloatArray:
    """The factors between channels, from what they make of random values, or more precisely from their coefficients,
    where these are stored the same way."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rough, fine = (sizes / others).T
        return np.asarray(np.where(np.abs(fine / rough - 1) < NEAR**2, fine, rough))


def _simple(factors: FloatArray, apart: FloatArray, rounding: Rounding) -> FloatArray:
    """The factors, powers of two where they are as near to them as the directions of the two channels are."""
    power = np.exp2(np.round(np.log2(factors)))
    return np.asarray(np.where(np.abs(factors / power - 1) <= 4 * apart, power, nearest_power(factors, rounding)))


def _given_size(gate: Gate, form: ComposedMap) -> int:
    return int(np.prod(gate.node.shape)) if isinstance(gate.node, MaxPool) else form.offset.size


def _fixed(claim: Claim, numbering: Numbering, number: int, gate: Gate, form: ComposedMap) -> Claim:
    """Channels that read nothing, and those that are off on the whole box."""
    read = numbering.views[number]
    ways = claim.ways.copy()
    reach = np.zeros(form.offset.size)
    for piece in form.pieces.values():
        reach = reach + piece.values.apply_abs(np.ones((1, piece.values.in_size)))[0]
    ways[constant_passes(gate, form, read) & (reach[read.places] == 0).all(axis=1)] = CONSTANT
    ways[numbering.dead(number)] = DEAD
    factors = np.where(ways >= CONSTANT, 1.0, claim.factors)
    return Claim(ways, claim.values, claim.members, factors)
