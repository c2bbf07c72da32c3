"""Planted truths, and how far a network is from one up to order and scale of neurons."""

from __future__ import annotations

import itertools

import numpy as np

import fiberscope as fs
from fiberscope.recovery.oracle import Oracle, settle
from fiberscope.recovery.place import place_of
from fiberscope.recovery.pool import Pool
from fiberscope.run import Run


def random_network(widths, seed):
    """He weights and biases of standard deviation one half, the networks of the marks."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(widths))
    weights = [rng.normal(size=(n, m)) * np.sqrt(2 / m) for m, n in pairs]
    return fs.Network(weights, [rng.normal(size=n) * 0.5 for _, n in pairs])


def distance(truth, found):
    """The largest difference of parameters after the best order and scale of every layer's neurons.

    Layer by layer, rows are made of norm one, scales handed on, and each row of the truth takes the nearest one found.
    """
    worst, before, order = 0.0, np.ones(truth.widths[0]), np.arange(truth.widths[0])
    scale = np.ones(found.widths[0])
    for W, b, V, c in zip(truth.weights, truth.biases, found.weights, found.biases, strict=True):
        one = np.column_stack([W * before, b])
        two = np.column_stack([(V * scale)[:, order], c])
        if W is truth.weights[-1]:
            return max(worst, float(np.abs(one - two).max()))
        before, scale = np.linalg.norm(one, axis=1), np.linalg.norm(two, axis=1)
        one, two = one / before[:, None], two / scale[:, None]
        gaps = np.abs(one[:, None] - two[None]).max(axis=2)
        order = gaps.argmin(axis=1)
        assert len(set(order)) == len(order), "two neurons of the truth are nearest to one that was found"
        worst = max(worst, float(gaps.min(axis=1).max()))
    raise AssertionError("a network without layers")


def counted(net):
    """The network as a function, and a list that gathers how many rows it was asked."""
    asked = []

    def function(X):
        asked.append(len(X))
        return net(X)

    return function, asked


def begun(net, seed=0):
    """A pool with five lines of the network."""
    rng = np.random.default_rng(seed)
    place = place_of(None, net.widths[0])
    oracle = Oracle(net, net.widths[0])
    settle(oracle, place, rng)
    pool = Pool.begin(oracle, place, rng, Run())
    pool.search(*place.lines(rng, 5))
    return pool
