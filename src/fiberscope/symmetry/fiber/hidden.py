"""Hidden hyperplanes: first-layer hyperplanes on which no second-layer neuron is ever active."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.symmetry.rational import product


def hiding(W: FloatArray, b: FloatArray) -> BoolArray:
    """Which neuron hides which hyperplane: ``(n_2, n_1)``.

    Neuron ``j`` of the second layer hides hyperplane ``i`` of the first if ``W[j, i] > 0``, ``W[j, k] < 0`` for all
    ``k != i`` and ``b[j] < 0``: on the hyperplane it is negative.

    >>> hiding(np.array([[1.0, -2.0], [3.0, 1.0]]), np.array([-0.5, -1.0])).tolist()
    [[True, False], [False, False]]
    """
    positive = W > 0
    alone = positive & (positive.sum(axis=1) == 1)[:, None] & ((W != 0).all(axis=1) & (b < 0))[:, None]
    return np.asarray(alone)


def hidden_hyperplane(W: FloatArray, b: FloatArray) -> int | None:
    """The hyperplane that every neuron of the second layer hides, or None; there is at most one."""
    if not len(W):
        return None
    found = np.flatnonzero(hiding(W, b).all(axis=0))
    return int(found[0]) if found.size else None


def lower_bound(W: FloatArray, b: FloatArray, i: int) -> float:
    """Translations ``t`` of hidden hyperplane ``i`` may be any number above this one, which is negative."""
    with np.errstate(over="ignore"):  # a bound beyond the floats is none
        return float((b / W[:, i]).max())


def cancelled_hyperplanes(W: FloatArray, b: FloatArray, V: FloatArray) -> list[tuple[int, float, float]]:
    """First-layer hyperplanes that are not seen since the weights behind them cancel: ``(i, low, high)`` for each.

    On hyperplane ``i`` every second-layer neuron that reads it must be active, or inactive, wherever the other inputs
    are not negative, and the weights ``V e_j W[j, i]`` of the active ones must add up to zero, exactly. Then
    ``b_1[i] += t``, ``b_2[j] -= W[j, i] t`` changes nothing as long as no ``b_2[j]`` reaches zero: ``low < t < high``.
    (Not in the paper, whose parameters are generic; a hidden hyperplane is the case without active neurons.)

    >>> cancelled_hyperplanes(np.array([[-1.0, 2.0], [-2.0, 5.0]]), np.array([1.0, 3.0]), np.array([[2.0, -1.0]]))
    [(0, -1.0, inf)]
    """
    found = []
    for i in range(W.shape[1]):
        read = readers(W, b, V, i)
        others = np.delete(W[read], i, axis=1)
        on, off = (others >= 0).all(axis=1) & (b[read] > 0), (others <= 0).all(axis=1) & (b[read] < 0)
        if not len(read) or not (on | off).all() or _sum_of_paths(W, V, read[on], i):
            continue
        with np.errstate(over="ignore"):
            ends = b[read] / W[read, i]
        low, high = ends[ends < 0].max(initial=-np.inf), ends[ends > 0].min(initial=np.inf)
        if (ends != 0).all():  # not underflown
            found.append((i, float(low), float(high)))
    return found


def readers(W: FloatArray, b: FloatArray, V: FloatArray, i: int) -> IntArray:
    """The second-layer neurons through which hyperplane ``i`` may be seen: not dead, and with outgoing weights."""
    dead = (W <= 0).all(axis=1) & (b <= 0)
    return np.flatnonzero((W[:, i] != 0) & V.any(axis=0) & ~dead)


def _sum_of_paths(W: FloatArray, V: FloatArray, active: IntArray, i: int) -> bool:
    """Whether the weights through the active neurons do not add up to zero."""
    return bool(product(V[:, active], W[active][:, [i]]).any())


def translate(
    weights: Sequence[FloatArray], biases: Sequence[FloatArray], layer: int, i: int, t: float
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Move hidden hyperplane ``i`` of hidden layer ``layer`` (from 0): ``b_1[i] += t``, ``b_2 -= W_2[:, i] t``.

    Only the neurons that read it follow. A dead one would wake up, and one without outgoing weights would change from
    linear to bent or back, so that what was planned for the layer no longer fits; both stay as they are.
    """
    changed = [np.array(b) for b in biases]
    W, follow = weights[layer + 1], readers(weights[layer + 1], biases[layer + 1], weights[layer + 2], i)
    changed[layer][i] += t
    changed[layer + 1][follow] -= W[follow, i] * t
    return [np.array(w) for w in weights], changed


def flip_matrix(n: int, i: int, flipped: Sequence[int]) -> FloatArray:
    """``A_S = I - sum_{k in S} (2 e_k e_k^T + e_i e_k^T)``; ``A_S A_T = A_{S xor T}``.

    >>> flip_matrix(2, 0, [1])
    array([[ 1., -1.],
           [ 0., -1.]])
    """
    A = np.eye(n)
    for k in flipped:
        if k == i or not 0 <= k < n:
            raise InputError(f"flips: expected neurons from 0 to {n - 1} other than {i}, got {k}")
        A[k, k] -= 2
        A[i, k] -= 1
    return A


def flip(
    weights: Sequence[FloatArray],
    biases: Sequence[FloatArray],
    layer: int,
    i: int,
    flipped: Sequence[int],
    alive: int = 0,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """The discrete symmetry for a single second-layer neuron ``alive`` that hides ``i``, in any scaling.

    With ``a = |W_2[0, :]|`` the rows ``a_k (W_1 | b_1)[k]`` are in the normal form of the paper; ``A_S`` acts there.
    """
    size = np.abs(weights[layer + 1][alive])
    A = flip_matrix(len(size), i, flipped) * size[None, :] / size[:, None]
    new_weights, new_biases = [np.array(w) for w in weights], [np.array(b) for b in biases]
    new_weights[layer], new_biases[layer] = A @ weights[layer], A @ biases[layer]
    return new_weights, new_biases
