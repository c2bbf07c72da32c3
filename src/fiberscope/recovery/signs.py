"""Which side of its hyperplane a neuron is active on, for a whole layer at once.

With ``relu(s z) = (|z| + s z) / 2`` a next neuron ``sum_i w_i relu(s_i z_i) + b`` over ``z = W a + c`` is
``sum_i u_i |z_i| + q a + const`` with ``u = w / 2`` and ``q = sum_i u_i s_i W_i``. The ``u`` and ``q`` of all next
neurons (or outputs) are known, so the signs solve a linear system, also where the layer is wider than its input.
Neurons that never switch are no part of ``W``: they leave a remainder in ``q``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from fiberscope.numerics.cutoffs import PART_OFF, REMAINDER, RIDGE, SIGN_OFF, SIGNS_ALIKE, SPAN
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray

ENUMERATED, HALVED = 18, 28
"""Undetermined signs up to which all choices are tried, and up to which halves of them are matched."""

TRIED = 10
"""Neurons up to which all choices of signs are tried where the next neurons are known only in part."""


@dataclass(frozen=True)
class Signs:
    """``values`` are +1 and -1; ``sure`` says which are determined; ``remainder`` is what no switching neuron explains.

    ``choices`` counts the assignments that fit: more than one where the function does not determine them.
    """

    values: FloatArray
    sure: BoolArray
    remainder: FloatArray
    choices: int = 1


@dataclass(frozen=True)
class NeverSwitching:
    """Signs of a layer, and one more neuron of it that never switches: ``row`` over its inputs, read by ``out``."""

    signs: Signs
    out: FloatArray
    row: FloatArray


def solve_signs(U: FloatArray, W: FloatArray, Q: FloatArray) -> Signs | None:
    """Signs ``s`` with ``Q = U diag(s) W``, for ``U`` ``(next, n)``, ``W`` ``(n, p)``, ``Q`` ``(next, p)``.

    None where no signs fit: the layer is not the whole of it.

    >>> W = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> solve_signs(np.array([[2.0, 3.0]]), W, np.array([[-1.0, -3.0]])).values
    array([ 1., -1.])
    """
    M = (U[:, None, :] * W.T[None]).reshape(-1, len(W))
    norms = np.linalg.norm(M, axis=0)
    live = norms > SPAN * max(norms.max(initial=0.0), np.finfo(float).tiny)
    target = Q.ravel()
    values = np.ones(len(W))
    if not live.any():
        return Signs(values, live, Q)
    scaled = M[:, live] / norms[live]
    left, sizes, right = np.linalg.svd(scaled, full_matrices=True)
    rank = int((sizes > SPAN * sizes[0]).sum())
    share = (left[:, :rank].T @ target) / sizes[:rank]
    start = (right[:rank].T @ share) / norms[live]
    free = right[rank:].T / norms[live][:, None]
    found, choices = _completed(start, free)
    if found is None:
        return None
    values[live] = np.sign(found)
    rest = Q - (U * values) @ W
    if np.abs(rest).max() > SIGN_OFF * max(np.abs(Q).max(), np.finfo(float).tiny):
        return None
    return Signs(values, live, rest, choices)


def signs_from_values(Z: FloatArray, Y: FloatArray) -> Signs | None:
    """Signs of a last hidden layer from values: outputs ``Y`` linear in ``relu(s_i z_i)`` for ``Z`` ``(points, n)``.

    All choices are tried, by the normal equations that all of them share, and the best by least squares. Where rows are
    noisy this decides more than the coefficients of ``z``, whose errors grow with the condition of the layer. Choices
    whose residual is not clearly larger than the best one are counted beside it.

    >>> Z = np.array([[1.0, 2.0], [-1.0, 1.0], [2.0, -1.0], [-2.0, -3.0], [0.5, -2.0], [3.0, 1.0]])
    >>> signs_from_values(Z, np.maximum(Z * [1.0, -1.0], 0) @ [[2.0], [3.0]]).values
    array([ 1., -1.])
    """
    n = Z.shape[1]
    if n > ENUMERATED:
        return None
    sides = np.concatenate([np.maximum(Z, 0), np.maximum(-Z, 0), np.ones((len(Z), 1))], axis=1)
    sizes = np.maximum(np.linalg.norm(sides, axis=0), np.finfo(float).tiny)
    scaled = sides / sizes
    gram, right = scaled.T @ scaled, scaled.T @ Y
    gram[np.diag_indices_from(gram)] += RIDGE * len(gram)
    tries = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    picked = np.concatenate([np.arange(n) + n * (tries < 0), np.full((len(tries), 1), 2 * n)], axis=1).astype(np.int64)
    told = np.concatenate([_explained(gram, right, part) for part in np.array_split(picked, 1 + len(picked) // SOLVED)])
    best = np.argsort(-told)[:LOOKED_AT]
    off = np.array([_residual(scaled[:, picked[k]], Y) for k in best])
    order = np.argsort(off)
    near = int((off <= AS_GOOD * off[order[0]]).sum())
    return Signs(tries[best[order[0]]], np.ones(n, dtype=bool), np.zeros((Y.shape[1], 0)), near)


SOLVED, LOOKED_AT, AS_GOOD = 4096, 20, 2.0
"""Systems that are solved together, choices that are compared by least squares, and the ratio that decides."""


def _explained(gram: FloatArray, right: FloatArray, picked: IntArray) -> FloatArray:
    """How much of the squared outputs each choice of columns explains."""
    B = right[picked]
    x = np.linalg.solve(gram[picked[:, :, None], picked[:, None, :]], B)
    return np.asarray((x * B).sum(axis=(1, 2)))


def _residual(A: FloatArray, Y: FloatArray) -> float:
    x, *_ = np.linalg.lstsq(A, Y, rcond=None)
    return float(np.linalg.norm(Y - A @ x))


def signs_of_parts(parts: Sequence[tuple[FloatArray, FloatArray]], W: FloatArray, b: FloatArray,
                   slope: float = 0.0) -> Signs | None:  # fmt: skip
    """Signs from next neurons that are known only in part, by equations ``E c = y`` for ``c = (u, q, const)`` each.

    All choices are tried; None where not exactly one of them solves the equations of all neurons, or there are many.

    >>> W, b = np.array([[1.0, 0.0], [1.0, 1.0]]), np.zeros(2)
    >>> c = np.array([2.0, 3.0, -1.0, -3.0, 0.5])  # 4 relu(z_0) + 6 relu(-z_1) + 0.5
    >>> parts = [np.eye(5)[1:], np.eye(5)[[0, 2, 3, 4]]]  # one does not know its u_0, the other not its u_1
    >>> signs_of_parts([(E, E @ c) for E in parts], W, b).values
    array([ 1., -1.])
    """
    n, p = W.shape
    if n > TRIED:
        return None
    found = []
    for signs in itertools.product([1.0, -1.0], repeat=n):
        s = np.array(signs)
        T = over_features(s[:, None] * W, s * b, slope)
        if all(_solvable(E @ T, y) for E, y in parts):
            found.append(s)
    if len(found) != 1:
        return None
    return Signs(found[0], np.ones(n, dtype=bool), np.zeros((len(parts), p)))


def over_features(W: FloatArray, b: FloatArray, slope: float) -> FloatArray:
    """How weights over the activations of ``W a + b`` and a bias become coefficients over ``(|z|, a, 1)``."""
    n, p = W.shape
    T = np.zeros((n + p + 1, n + 1))
    even, odd = (1 - slope) / 2, (1 + slope) / 2
    T[:n, :n], T[n:-1, :n], T[-1, :n], T[-1, n] = np.eye(n) * even, W.T * odd, b * odd, 1.0
    return T


def _solvable(matrix: FloatArray, y: FloatArray) -> bool:
    v, *_ = np.linalg.lstsq(matrix, y, rcond=SPAN)
    return bool(np.linalg.norm(matrix @ v - y) <= PART_OFF * np.linalg.norm(y))


def _completed(start: FloatArray, free: FloatArray) -> tuple[FloatArray | None, int]:
    """The member of ``start + free y`` whose entries are all +1 or -1, and how many there are."""
    q = free.shape[1]
    if not q:
        return (start, 1) if np.abs(np.abs(start) - 1).max() <= SIGN_OFF else (None, 0)
    if q > (HALVED if q < len(start) else ENUMERATED):
        return None, 0
    _, _, order = qr(free.T, pivoting=True, mode="economic")
    pivots = order[:q].astype(np.int64)
    if q > ENUMERATED:
        tries = _matched(start, free, pivots)
    else:
        tries = np.array(list(itertools.product([1.0, -1.0], repeat=q)))
    if not len(tries):
        return None, 0
    y = np.linalg.solve(free[pivots], (tries - start[pivots]).T)
    all_ = start[:, None] + free @ y
    good = np.abs(np.abs(all_) - 1).max(axis=0) <= SIGN_OFF
    if not good.any():
        return None, 0
    off = np.abs(np.abs(all_) - 1).max(axis=0)
    # choices that are as good as the best one are no accident; of many that are tried some come near
    return all_[:, off.argmin()], int((good & (off <= max(SIGNS_ALIKE * float(off.min()), SPAN))).sum())


def _matched(start: FloatArray, free: FloatArray, pivots: IntArray) -> FloatArray:
    """Choices for the pivots that make one further entry +1 or -1: all halves of them, sorted and matched.

    Of ``2^q`` choices few are left, and all of them are at hand with ``2^(q/2)`` work.
    """
    rest = np.setdiff1d(np.arange(len(start)), pivots)
    M = np.linalg.solve(free[pivots].T, free[rest].T).T  # how the other entries follow from the pivots
    alpha = start[rest] - M @ start[pivots]
    row = int(np.abs(M).sum(axis=1).argmax())
    cut = len(pivots) // 2
    one, two = (np.array(list(itertools.product([1.0, -1.0], repeat=k))) for k in (cut, len(pivots) - cut))
    second = two @ M[row, cut:]
    order = np.argsort(second)
    found = []
    for goal in (1.0, -1.0):
        needed = goal - alpha[row] - one @ M[row, :cut]
        low = np.searchsorted(second[order], needed - SIGN_OFF)
        counts = np.searchsorted(second[order], needed + SIGN_OFF) - low
        left = np.repeat(np.arange(len(one)), counts)
        right = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
        for begin in range(0, len(left), MATCHES):
            part = slice(begin, begin + MATCHES)
            tries = np.concatenate([one[left[part]], two[order[right[part]]]], axis=1)
            good = np.abs(np.abs(alpha + tries @ M.T) - 1).max(axis=1) <= SIGN_OFF
            found.append(tries[good])
    return np.concatenate(found) if found else np.zeros((0, len(pivots)))


MATCHES = 200_000
"""Matches that are looked at together."""


def solve_with_remainder(U: FloatArray, W: FloatArray, Q: FloatArray, bounded: bool) -> NeverSwitching | None:
    """Signs, and one neuron that never switches: ``Q = U diag(s) W + out row``.

    Several next neurons: the part of ``Q`` outside the span of ``W`` tells ``out``, and then the signs are linear. A
    single one: any signs whose remainder has entries of one sign, as a neuron that is linear on the orthant needs;
    on a bounded domain any remainder can be had.
    """
    p, size = W.shape[1], max(np.abs(Q).max(), np.finfo(float).tiny)
    if len(Q) == 1:
        return _one_output(U, W, Q, bounded)
    basis, _ = np.linalg.qr(W.T)
    outside = Q - (Q @ basis) @ basis.T if len(W) < p else np.zeros_like(Q)
    if not np.abs(outside).max() > SPAN * size:
        return None
    left, sizes, _ = np.linalg.svd(outside, full_matrices=False)
    if len(sizes) > 1 and sizes[1] > REMAINDER * SPAN * sizes[0]:
        return None
    out = left[:, 0] * np.sign(left[np.abs(left[:, 0]).argmax(), 0])
    project = np.eye(len(Q)) - np.outer(out, out)
    M = np.einsum("jk,ki,il->jli", project, U, W).reshape(-1, len(W))
    found, *_ = np.linalg.lstsq(M, (project @ Q).ravel(), rcond=None)
    if np.abs(np.abs(found) - 1).max(initial=0.0) > SIGN_OFF:
        return None
    values = np.sign(found)
    rest = Q - (U * values) @ W
    return NeverSwitching(Signs(values, np.ones(len(W), dtype=bool), rest), out, np.asarray(out @ rest))


def _one_output(U: FloatArray, W: FloatArray, Q: FloatArray, bounded: bool) -> NeverSwitching | None:
    n = len(W)
    if n > ENUMERATED and not bounded:
        return None
    tries = np.array(list(itertools.product([1.0, -1.0], repeat=n))) if n <= ENUMERATED else np.ones((1, n))
    rest = Q[0] - (tries * U[0]) @ W
    size = np.abs(rest).max(axis=1, initial=0.0)
    worst = np.minimum((-rest).max(axis=1, initial=0.0), rest.max(axis=1, initial=0.0))
    good = worst <= SPAN * np.maximum(size, np.finfo(float).tiny)
    if not good.any() and not bounded:
        return None
    pick = int(np.flatnonzero(good)[0]) if good.any() else 0
    row = rest[pick]
    sign = -1.0 if -row.min(initial=0.0) > row.max(initial=0.0) else 1.0
    sure = np.zeros(n, dtype=bool)
    return NeverSwitching(Signs(tries[pick], sure, rest[pick][None], int(good.sum())), np.array([sign]), sign * row)
