"""Equality of two three-layer bottleneck networks: match the first layers, then compare the rest on the orthant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.geometry.domains import Orthant
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, U
from fiberscope.numerics.ulps import FEW
from fiberscope.symmetry.equivalence.forms import compare_forms
from fiberscope.symmetry.equivalence.ladder import equivalent
from fiberscope.symmetry.equivalence.verdict import Verdict
from fiberscope.symmetry.fiber.hidden import flip, lower_bound, translate
from fiberscope.symmetry.fiber.result import Membership
from fiberscope.symmetry.fiber.setting import Setting, setting_of

_ROWS = 4 * FEW * U
"""Entries of rows with largest entry 1 that differ by less are the same up to rounding."""


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


def _units(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(rows).max(axis=1)
    return rows / size[:, None], size


def _living(setting: Setting) -> tuple[list[FloatArray], list[FloatArray]]:
    """The arrays of a network without the dead neurons of its second layer."""
    keep, chain = setting.alive, setting.chain
    weights = [chain.weights[0], chain.weights[1][keep], chain.weights[2][:, keep]]
    return weights, [chain.biases[0], chain.biases[1][keep], chain.biases[2]]


def transport(a: Network, b: Network, tolerance: float | None = None) -> Transport | None:
    """The symmetry of the theorem that carries ``a`` onto ``b``, both bottlenecks; None where none is found.

    Dead neurons come off first. Without a hidden hyperplane the rows of the first layers must agree up to order and
    scale. With one, the other rows must (up to sign, where a single neuron is left), and the hidden one up to its
    bias, which gives the translation. The rest is one hidden layer on the orthant, which is decided.
    """
    left, right = setting_of(a), setting_of(b)
    if left.kind != "bottleneck" or right.kind != "bottleneck" or a.widths[:2] != b.widths[:2]:
        return None
    if not left.alive or not right.alive or (left.hidden is None) != (right.hidden is None):
        return None
    mine, theirs = _living(left), _living(right)
    flips: tuple[int, ...] = ()
    t = 0.0
    hidden = left.hidden
    if hidden is not None and right.hidden is not None:
        if len(left.alive) == 1 and len(right.alive) == 1:
            flips = _flips(mine, theirs, hidden, right.hidden)
            mine = flip(*mine, 0, hidden, flips) if flips else mine
        t = _translation(mine, theirs, hidden, right.hidden)
        if not t > lower_bound(mine[0][1], mine[1][1], hidden):
            return None
        mine = translate(*mine, 0, hidden, t)
    found = _matched(mine, theirs)
    if found is None:
        return None
    order, scales = found
    tail_a = Network([mine[0][1][:, order] / scales, mine[0][2]], [mine[1][1], mine[1][2]])
    tail_b = Network(theirs[0][1:], theirs[1][1:])
    verdict = compare_forms(tail_a, tail_b, Orthant(len(order)), (None, None), tolerance)
    return Transport(tuple(int(k) for k in order), scales, flips, hidden, t, verdict)


def _matched(
    mine: tuple[list[FloatArray], list[FloatArray]], theirs: tuple[list[FloatArray], list[FloatArray]]
) -> tuple[FloatArray, FloatArray] | None:
    """For each first-layer row of ``theirs`` the same row of ``mine`` up to scale."""
    rows = [np.column_stack([x[0][0], x[1][0]]) for x in (mine, theirs)]
    (unit_a, size_a), (unit_b, size_b) = _units(rows[0]), _units(rows[1])
    gaps = np.abs(unit_a[None] - unit_b[:, None]).max(axis=2)
    order = gaps.argmin(axis=1)
    if len(set(order.tolist())) < len(order) or gaps.min(axis=1).max() > 64 * _ROWS:
        return None
    return order, size_b / size_a[order]


def _flips(
    mine: tuple[list[FloatArray], list[FloatArray]], theirs: tuple[list[FloatArray], list[FloatArray]], i: int, j: int
) -> tuple[int, ...]:
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


def _translation(
    mine: tuple[list[FloatArray], list[FloatArray]], theirs: tuple[list[FloatArray], list[FloatArray]], i: int, j: int
) -> float:
    """How far the hidden hyperplane moved, in the scale of ``mine``."""
    w, v = mine[0][0][i], theirs[0][0][j]
    k = int(np.abs(v).argmax())
    return float(theirs[1][0][j] * (w[k] / v[k]) - mine[1][0][i])


def membership(net: Network, other: Network) -> Membership:
    """Whether ``other`` is in the fiber of ``net``: the same architecture and, up to rounding, the same function."""
    if net.architecture != other.architecture:
        return Membership(False, f"another architecture: {other.architecture[:60]} instead of {net.architecture[:60]}")
    verdict = equivalent(net, other, time_limit=20.0)
    if verdict.equal is not None:
        return Membership(verdict.equal, f"by {verdict.method}: {verdict.reason}", verdict)
    found = transport(net, other)
    if found is not None and found.verdict.equal:
        moved = (
            f"flips {list(found.flips)}, translation {found.t:.6g}"
            if found.hidden is not None
            else "first layers match"
        )
        return Membership(True, f"by the bottleneck theorem: {moved}", found.verdict)
    return Membership(None, verdict.reason or "no method decides this pair", verdict)
