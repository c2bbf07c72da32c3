"""Positive factors that bring ``b`` closest to ``a``, for the scalings that leave its function alone.

A factor ``s`` of one neuron multiplies its places in the tensors by ``s^p``, with the power ``p`` of each place, so

    |a - s b|^2 = const + sum_p  s^{2p} |b_p|^2 - 2 s^p <a_p, b_p>

is a function of one variable for every neuron, with the other factors held. It is made smaller by Newton's steps in
``log s``, for all neurons of a group at once, and the groups are gone round. A step that does not pay is not made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fiberscope.connectivity.methods.weights import Weights
from fiberscope.modules.action import Group
from fiberscope.network.action.element import Element, Monomial
from fiberscope.numerics.cutoffs import STALLED
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import Run

ROUNDS, STEPS = 20, 30
"""Rounds over the groups and steps for each, at most."""

FARTHEST = 1.0
"""The longest step of ``log s``: further than a factor of ``e`` at once the second derivative says little."""


def match_scales(pair: Weights, groups: Sequence[Group], run: Run) -> tuple[Element, Weights]:
    """Go round the scaling groups while the distance falls; the factors, and the pair after them."""
    element, distance = Element({}), pair.distance()
    for done in range(ROUNDS):
        begin = distance
        for group in groups:
            run.step(done, ROUNDS, "matching of scales")
            scales = _factors(*_sums(pair, group))
            move = Element({group.name: Monomial(group.identity().orders, scales[:, None], group.parents)})
            after = pair.moved(move)
            if (found := after.distance()) < distance:
                element, pair, distance = move @ element, after, found
        if not distance < begin * (1 - STALLED):
            break
    return element, pair


def _sums(pair: Weights, group: Group) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Powers ``(k,)``, and for each of them ``<a_p, b_p>`` and ``|b_p|^2`` of every neuron, ``(k, neurons)``."""
    products: dict[int, FloatArray] = defaultdict(lambda: np.zeros(group.copies))
    squares: dict[int, FloatArray] = defaultdict(lambda: np.zeros(group.copies))
    for axis, x, y in pair.rows(group):
        products[axis.power] = products[axis.power] + (x * y).sum((1, 2)).double().cpu().numpy()
        squares[axis.power] = squares[axis.power] + (y * y).sum((1, 2)).double().cpu().numpy()
    powers = sorted(products)
    return np.array(powers, float), np.stack([products[p] for p in powers]), np.stack([squares[p] for p in powers])


def _factors(powers: FloatArray, products: FloatArray, squares: FloatArray) -> FloatArray:
    """The factors with the smallest distance that Newton's steps from 1 come to, ``(neurons,)``.

    >>> _factors(np.array([1.0]), np.array([[6.0]]), np.array([[2.0]])).round(9)
    array([3.])
    """
    p = powers[:, None]

    def value(t: FloatArray) -> FloatArray:
        return np.asarray((squares * np.exp(2 * p * t) - 2 * products * np.exp(p * t)).sum(axis=0))

    t = np.zeros(products.shape[1])
    now = value(t)
    for _ in range(STEPS):
        first, second = squares * np.exp(2 * p * t), products * np.exp(p * t)
        slope = 2 * (p * (first - second)).sum(axis=0)
        bend = np.abs(2 * (p**2 * (2 * first - second)).sum(axis=0))
        step = np.where(bend > 0, -slope / np.where(bend > 0, bend, 1.0), 0.0).clip(-FARTHEST, FARTHEST)
        for _ in range(STEPS):
            then = value(t + step)
            worse = ~(then <= now)
            if not worse.any():
                break
            step = np.where(worse, step / 2, step)
        better = then < now
        if not better.any():
            break
        t, now = np.where(better, t + step, t), np.where(better, then, now)
    return np.exp(t)
