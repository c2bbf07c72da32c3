"""Equality of three-layer bottleneck networks up to rounding: match the first layers, then compare the rest."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fiberscope.equality.bottlenecks.transport import Transport
from fiberscope.errors import InputError
from fiberscope.fibers.hidden_hyperplanes import flip, hidden_hyperplane, lower_bound, translate
from fiberscope.fibers.normal_form.compare import Agreement, compare_forms
from fiberscope.fibers.one_layer.layer import DEAD, OneLayer
from fiberscope.geometry.domains import Orthant, Space
from fiberscope.network.action.element import is_permutation
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import ROWS

Arrays = tuple[list[FloatArray], list[FloatArray]]
"""Weights and biases."""


def _living(chain: Network) -> Arrays:
    """The arrays of a network without the dead neurons of its second layer."""
    roles = OneLayer.of(chain, orthant=True).roles
    keep = np.flatnonzero(roles != DEAD)
    weights = [chain.weights[0], chain.weights[1][keep], chain.weights[2][:, keep]]
    return weights, [chain.biases[0], chain.biases[1][keep], chain.biases[2]]


def _units(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows ``(w | b)`` with largest entry 1 of ``w``, and what they were divided by: biases may be huge."""
    size = np.abs(rows[:, :-1]).max(axis=1)
    return rows / size[:, None], size


def _first(arrays: Arrays) -> FloatArray:
    return np.column_stack([arrays[0][0], arrays[1][0]])


@np.errstate(over="ignore", invalid="ignore")  # what is not finite agrees with nothing
def find_rounded(a: Network, b: Network) -> Transport | None:
    """What may carry ``a`` onto ``b`` up to rounding, both bottlenecks; :func:`check_rounded` decides.

    Dead neurons come off first. Without a hidden hyperplane the rows of the first layers must agree up to order and
    scale. With one, the other rows must (up to sign, where a single neuron is left), and the hidden one up to its
    bias, which gives the translation.
    """
    mine, theirs = _living(a), _living(b)
    if a.widths[:2] != b.widths[:2] or not len(mine[0][1]) or not len(theirs[0][1]):
        return None
    i, j = (hidden_hyperplane(x[0][1], x[1][1]) for x in (mine, theirs))
    if a.widths[1] == 1 and (i is None or j is None):
        return Transport((0,), np.ones(1), exact=False, line=True)
    flips: tuple[int, ...] = ()
    t = 0.0
    if i is not None and j is not None:
        if len(mine[0][1]) == len(theirs[0][1]) == 1:
            flips = _flips(mine, theirs, i, j)
            mine = flip(*mine, 0, i, flips) if flips else mine
        t = _translation(mine, theirs, i, j)
        if not np.isfinite(t):
            return None
        mine = translate(*mine, 0, i, t)
    (unit_a, size_a), (unit_b, size_b) = _units(_first(mine)), _units(_first(theirs))
    order = np.abs(unit_a[None] - unit_b[:, None]).max(axis=2).argmin(axis=1)
    hidden = i if j is not None else None
    scales = size_b / size_a[order]
    if not (np.isfinite(scales) & (scales > 0)).all():
        return None
    return Transport(_numbers(order), scales, flips, hidden, Fraction(t), exact=False)


@np.errstate(over="ignore", invalid="ignore")
def check_rounded(a: Network, b: Network, found: Transport) -> Agreement | None:
    """The comparison up to rounding of the layers behind, once the first layers are carried; None where they are not.

    Scales, reflections and the translation round, so this proves no equality of real functions. Every entry of a row is
    compared for itself: it may be off by the rounding of what it was added up from, and not of its neighbours.
    """
    if found.line:
        one = a.widths[1] == b.widths[1] == 1
        return compare_forms(_line(a), _line(b), Space(a.in_size), (None, None), exactly=False) if one else None
    mine, theirs = _living(a), _living(b)
    n = len(mine[0][0])
    if not is_permutation(found.permutation, n) or len(theirs[0][0]) != n or not len(mine[0][1]):
        return None
    sums = np.abs(_first(mine))  # what entries are added up from
    if found.hidden is not None:
        i, t, flips = found.hidden, float(found.translation), list(found.flips)
        if hidden_hyperplane(mine[0][1], mine[1][1]) != i or (flips and len(mine[0][1]) != 1):
            return None
        if flips:
            size = np.abs(mine[0][1][0])
            mine = flip(*mine, 0, i, flips)
            sums[i] += size[flips] @ sums[flips] / size[i]
        if not t > lower_bound(mine[0][1], mine[1][1], i):
            return None
        sums[i, -1] += abs(t)
        mine = translate(*mine, 0, i, t)
    elif found.flips or found.translation:
        raise InputError("transport: expected a hidden hyperplane with flips or a translation")
    order = np.array(found.permutation, dtype=np.int64)
    (unit_a, size_a), (unit_b, size_b) = _units(_first(mine)), _units(_first(theirs))
    allowed = ROWS * (sums / size_a[:, None])[order]
    if not (np.abs(unit_a[order] - unit_b) <= allowed).all():
        return None
    back = np.zeros((n, n))
    back[order, np.arange(n)] = size_a[order] / size_b
    shift = np.zeros(n)
    if found.hidden is not None:
        shift[found.hidden] = -float(found.translation)
    tail_b = Network(theirs[0][1:], theirs[1][1:])
    return compare_forms(_behind(back, shift, _living(a)), tail_b, Orthant(n), (None, None), exactly=False)


def _behind(back: FloatArray, shift: FloatArray, arrays: Arrays) -> Network:
    """The layers behind the first one, as a function of the other network's first layer.

    The translation stays a map of its own: a bias ``b - w t`` would forget how large the numbers were that it rounds.
    """
    (_, W, V), (_, b, c) = arrays
    nodes: list[Node] = [
        Affine(0, Dense(back), shift),
        Affine(1, Dense(W), b),
        PiecewiseLinear(2, np.zeros(len(b)), (len(b),)),
        Affine(3, Dense(V), c),
    ]
    return Network.from_nodes(nodes, (len(back),))


def _line(chain: Network) -> Network:
    """A network with one first-layer neuron ``z`` as one hidden layer, every number of it stored in the original.

    With ``s = |p|``: ``relu(p relu(z) + q)`` is ``relu(s z) + q`` for ``p, q >= 0``, ``relu(s z + q)`` for
    ``p > 0 > q``, and ``q - relu(s z) + relu(s z - q)`` for ``p < 0 < q``.
    """
    slopes, offsets, out = [0.0], [0.0], [np.zeros(chain.out_size)]
    for p, q, v in zip(chain.weights[1][:, 0], chain.biases[1], chain.weights[2].T, strict=True):
        terms = []
        if q > 0:
            terms += [(0.0, q, v), (abs(p), 0.0, v * np.sign(p))]
            terms += [(-p, -q, v)] if p < 0 else []
        elif p > 0:
            terms = [(p, q, v)]
        for slope, offset, weight in terms:
            slopes.append(slope)
            offsets.append(offset)
            out.append(weight)
    k = len(slopes)
    nodes: list[Node] = [
        Affine(0, Dense(chain.weights[0]), chain.biases[0]),
        Affine(1, Dense(np.array(slopes)[:, None]), np.array(offsets)),
        PiecewiseLinear(2, np.zeros(k), (k,)),
        Affine(3, Dense(np.stack(out, axis=1)), chain.biases[2]),
    ]
    return Network.from_nodes(nodes, (chain.in_size,))


def _numbers(order: IntArray) -> tuple[int, ...]:
    return tuple(int(k) for k in order)


def _flips(mine: Arrays, theirs: Arrays, i: int, j: int) -> tuple[int, ...]:
    """Which visible hyperplanes are reversed."""
    unit_a, unit_b = _units(_first(mine))[0], np.delete(_units(_first(theirs))[0], j, axis=0)
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
