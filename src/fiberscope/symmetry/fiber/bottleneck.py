"""Equality of two three-layer bottleneck networks: match the first layers, then compare the rest on the orthant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.errors import FiberscopeError
from fiberscope.geometry.domains import Orthant, Space
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray, U
from fiberscope.numerics.ulps import FEW
from fiberscope.symmetry.equivalence.forms import compare_forms
from fiberscope.symmetry.equivalence.question import Question
from fiberscope.symmetry.equivalence.verdict import Verdict, Witness
from fiberscope.symmetry.fiber.hidden import flip, lower_bound, translate
from fiberscope.symmetry.fiber.setting import Setting, setting_of

_ROWS = 4 * FEW * U
"""Entries that differ by less than this times what they are added up from are the same up to rounding."""

Arrays = tuple[list[FloatArray], list[FloatArray]]
"""Weights and biases."""


@dataclass(frozen=True, slots=True, eq=False)
class Transport:
    """How the first layer of one network is carried onto that of another: flips, a translation, order and scales.

    Neuron ``i`` of ``b`` is neuron ``permutation[i]`` of ``a``, multiplied by ``scales[i]``, after the ``flips`` and
    the translation by ``t`` of hyperplane ``hidden`` were applied to ``a``. ``verdict`` compares the layers behind.
    """

    permutation: tuple[int, ...]
    scales: FloatArray
    flips: tuple[int, ...]
    hidden: int | None
    t: float
    verdict: Verdict

    @property
    def text(self) -> str:
        """In words."""
        if self.hidden is None:
            return "the first layers match, and the layers behind are equal on the orthant"
        turned = f"neurons {list(self.flips)} reflected, " if self.flips else ""
        return f"{turned}the hidden hyperplane {self.hidden} moved by {self.t:.6g}; the rest is equal"


def _units(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(rows).max(axis=1)
    return rows / size[:, None], size


def _living(setting: Setting) -> Arrays:
    """The arrays of a network without the dead neurons of its second layer."""
    keep, chain = setting.alive, setting.chain
    weights = [chain.weights[0], chain.weights[1][keep], chain.weights[2][:, keep]]
    return weights, [chain.biases[0], chain.biases[1][keep], chain.biases[2]]


def transport(a: Network, b: Network) -> Transport | None:
    """The symmetry of the theorem that carries ``a`` onto ``b``, both bottlenecks; None where none is found.

    Dead neurons come off first. Without a hidden hyperplane the rows of the first layers must agree up to order and
    scale. With one, the other rows must (up to sign, where a single neuron is left), and the hidden one up to its
    bias, which gives the translation. The rest is one hidden layer on the orthant, which is decided. Scales,
    flips and the translation round, so this is a proof of equality *up to rounding*, not of the same real function.
    """
    left, right = setting_of(a), setting_of(b)
    if left.kind != "bottleneck" or right.kind != "bottleneck" or a.widths[:2] != b.widths[:2]:
        return None
    if not left.alive or not right.alive or (left.hidden is None) != (right.hidden is None):
        return None
    mine, theirs = _living(left), _living(right)
    flips: tuple[int, ...] = ()
    t = 0.0
    sums = np.abs(np.column_stack([mine[0][0], mine[1][0]])).max(axis=1)  # what rows are added up from
    hidden = left.hidden
    if hidden is not None and right.hidden is not None:
        if len(left.alive) == 1 and len(right.alive) == 1:
            flips = _flips(mine, theirs, hidden, right.hidden)
            if flips:
                size = np.abs(mine[0][1][0])
                sums[hidden] += float((size[list(flips)] * sums[list(flips)]).sum() / size[hidden])
                mine = flip(*mine, 0, hidden, flips)
        t = _translation(mine, theirs, hidden, right.hidden)
        if not t > lower_bound(mine[0][1], mine[1][1], hidden):
            return None
        sums[hidden] += abs(t)
        mine = translate(*mine, 0, hidden, t)
    found = _matched(mine, theirs, sums)
    if found is None:
        return None
    order, scales = found
    tail_a = Network([mine[0][1][:, order] / scales, mine[0][2]], [mine[1][1], mine[1][2]])
    tail_b = Network(theirs[0][1:], theirs[1][1:])
    verdict = compare_forms(tail_a, tail_b, Orthant(len(order)), (None, None), None)
    return Transport(tuple(int(k) for k in order), scales, flips, hidden, t, verdict)


def _matched(mine: Arrays, theirs: Arrays, sums: FloatArray) -> tuple[IntArray, FloatArray] | None:
    """For each first-layer row of ``theirs`` the same row of ``mine`` up to scale."""
    rows = [np.column_stack([x[0][0], x[1][0]]) for x in (mine, theirs)]
    (unit_a, size_a), (unit_b, size_b) = _units(rows[0]), _units(rows[1])
    gaps = np.abs(unit_a[None] - unit_b[:, None]).max(axis=2)
    order = gaps.argmin(axis=1)
    allowed = _ROWS * np.maximum(1.0, sums / size_a)[order]
    if len(set(order.tolist())) < len(order) or (gaps.min(axis=1) > allowed).any():
        return None
    return order, size_b / size_a[order]


def _flips(mine: Arrays, theirs: Arrays, i: int, j: int) -> tuple[int, ...]:
    """Which visible hyperplanes are reversed."""
    rows = [np.column_stack([x[0][0], x[1][0]]) for x in (mine, theirs)]
    unit_a, unit_b = _units(rows[0])[0], np.delete(_units(rows[1])[0], j, axis=0)
    flips = []
    for k, row in enumerate(unit_a):
        if k != i and len(unit_b):
            same, opposite = (np.abs(unit_b - s * row).max(axis=1).min() for s in (1.0, -1.0))
            if opposite < same:
                flips.append(k)
    return tuple(flips)


def _translation(mine: Arrays, theirs: Arrays, i: int, j: int) -> float:
    """How far the hidden hyperplane moved, in the scale of ``mine``."""
    w, v = mine[0][0][i], theirs[0][0][j]
    k = int(np.abs(v).argmax())
    return float(theirs[1][0][j] * (w[k] / v[k]) - mine[1][0][i])


def by_bottleneck(question: Question) -> Verdict | None:
    """The rung: equality up to rounding of two bottlenecks on all of space, by the theorem."""
    if question.tolerance is not None or not isinstance(question.place, Space):
        return None
    if not (question.a.is_chain and question.b.is_chain and len(question.a.widths) == len(question.b.widths) == 4):
        return None
    try:
        found = transport(question.a, question.b)
    except FiberscopeError as error:
        question.notes.append(str(error))
        return None
    if found is None or found.verdict.equal is not True:
        return None
    return Verdict(
        True, "bottleneck", question.domain, None, Witness(), residual=found.verdict.residual, reason=found.text
    )
