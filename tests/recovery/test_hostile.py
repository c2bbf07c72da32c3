"""Degenerate functions: what is called recovered is the function, and whatever is not has a reason."""

from __future__ import annotations

import numpy as np
import pytest
from planted import random_network

import fiberscope as fs

SHAPES = [(1, 3, 1), (2, 1, 1), (2, 5, 1), (2, 1, 1, 1), (3, 1, 3, 1), (3, 3, 1, 1), (2, 4, 4, 1), (3, 5, 3, 2)]


def dead(W, b, k, rng):
    W[k][0], b[k][0] = 0.0, -1.0


def never_on(W, b, k, rng):
    W[k][0], b[k][0] = -np.abs(W[k][0]), -abs(b[k][0]) - (50.0 if k == 0 else 0.0)


def alike(W, b, k, rng):
    W[k][-1], b[k][-1] = 1.5 * W[k][0], 1.5 * b[k][0]


def opposite(W, b, k, rng):
    W[k][-1], b[k][-1] = -0.7 * W[k][0], -0.7 * b[k][0]


def cancelling(W, b, k, rng):
    alike(W, b, k, rng)
    W[k + 1][:, -1] = -W[k + 1][:, 0] / 1.5


def no_biases(W, b, k, rng):
    b[k][:] = 0.0


def linear(W, b, k, rng):
    b[k][:] = 50 * np.abs(W[k]).sum(axis=1)


def unread(W, b, k, rng):
    W[k + 1][:, 0] = 0.0


def of_rank_one(W, b, k, rng):
    W[k][:] = np.outer(rng.normal(size=len(W[k])), rng.normal(size=W[k].shape[1]))


def hardly_read(W, b, k, rng):
    W[k + 1][:, 0] *= 1e-9


SPOILT = [dead, never_on, alike, opposite, cancelling, no_biases, linear, unread, of_rank_one, hardly_read]


def checked(shape, spoil, seed, asked=None):
    rng = np.random.default_rng(seed)
    net = random_network(shape, seed)
    W, b = [w.copy() for w in net.weights], [c.copy() for c in net.biases]
    spoil(W, b, int(rng.integers(len(shape) - 2)), rng)
    truth = fs.Network(W, b)
    found = fs.recover(truth, asked or shape, seed=seed, max_queries=8_000)
    assert found.recovered or found.unresolved
    if found.recovered:
        X = np.concatenate([rng.normal(size=(5000, shape[0])) * size for size in (0.01, 0.3, 1.0, 3.0)])
        Y = truth(X)
        assert np.abs(Y - found.network(X)).max() <= 1e-9 * np.abs(Y).max()


@pytest.mark.parametrize("spoil", SPOILT)
def test_what_is_called_recovered_is_the_function(spoil):
    number = SPOILT.index(spoil)
    checked(SHAPES[number % len(SHAPES)], spoil, number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("spoil", SPOILT)
def test_what_is_called_recovered_is_the_function_on_more_shapes(spoil, seed):
    shape = SHAPES[(seed + 3) % len(SHAPES)]
    checked(shape, spoil, seed)
    checked(shape, spoil, seed, (shape[0], shape[1] + 1, *shape[2:]))


def test_a_limit_within_the_first_layer_returns_the_hyperplanes_found_so_far():
    truth = random_network((10, 15, 15, 1), 0)
    found = fs.recover(truth, truth.widths, max_queries=1500)
    assert not found.recovered and found.queries <= 1500
    ((W, offsets),) = found.hyperplanes
    rows = np.column_stack([truth.weights[0], truth.biases[0]]) / np.linalg.norm(truth.weights[0], axis=1)[:, None]
    assert 0 < len(W) < 15
    both = np.concatenate([rows, -rows])
    gaps = np.abs(np.column_stack([W, offsets])[:, None] - both).max(axis=2)
    assert gaps.min(axis=1).max() <= 1e-6
    assert any(item.reason == f"{len(W)} of its 15 neurons were found" for item in found.unresolved)
