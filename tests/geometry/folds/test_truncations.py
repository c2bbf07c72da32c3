"""What the theorem asks of generality where it occurs: against fractions, pair by pair."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.geometry.folds.truncations import general_where_it_occurs

Form = tuple[Fraction, ...]


def functions(net: fs.Network, first: int, pattern: list[bool]) -> list[tuple[tuple[object, ...], Form]]:
    """Every unit behind ``first`` layers, with the activity before it, as an affine function of what they read."""
    n, found, before = net.widths[first], [], list(pattern)
    del before[: sum(net.widths[1 : first + 1])]
    maps = [tuple(Fraction(int(i == j)) for j in range(n + 1)) for i in range(n)]
    taken: tuple[bool, ...] = ()
    for layer in range(first, len(net.weights)):
        rows = []
        for w, b in zip(net.weights[layer].tolist(), net.biases[layer].tolist(), strict=True):
            row = [sum((Fraction(c) * m[j] for c, m in zip(w, maps, strict=True)), Fraction(0)) for j in range(n + 1)]
            row[-1] += Fraction(b)
            found.append(((layer, len(rows), taken), tuple(row)))
            rows.append(tuple(row))
        own, before = before[: len(rows)], before[len(rows) :]
        taken = (*taken, *own)
        maps = [row if on else (Fraction(0),) * (n + 1) for row, on in zip(rows, own, strict=False)]
    return found


def multiples(one: Form, two: Form) -> bool:
    return all(a * d == b * c for (a, b), (c, d) in itertools.combinations(zip(one, two, strict=True), 2))


def holds(net: fs.Network, patterns: list[list[bool]]) -> bool:
    for first in range(len(net.weights) - 1):
        every = dict(pair for pattern in patterns for pair in functions(net, first, pattern))
        if any(not any(row[:-1]) for row in every.values()):
            return False
        if any(multiples(a, b) for a, b in itertools.combinations(every.values(), 2)):
            return False
        for pattern in patterns:  # the weights to the output: what it does to the units that this network reads
            row = functions(net, first, pattern)[-1][1][:-1]
            if first and not all(row):
                return False
    return bool(net.weights[-1].all()) and all(np.linalg.matrix_rank(w) == len(w) for w in net.weights)


@given(st.sampled_from([(2, 2, 2, 1), (3, 2, 2, 1), (2, 2, 2, 2, 1)]), st.integers(0, 10**6), st.sampled_from([2, 9]))
@settings(max_examples=60, deadline=None)
def test_it_is_what_fractions_say(widths: tuple[int, ...], seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [rng.integers(-size, size + 1, (n, m)).astype(float) for m, n in itertools.pairwise(widths)]
    net = fs.Network(weights, [rng.integers(-size, size + 1, n).astype(float) for n in widths[1:]])
    signs = rng.choice([-1, 1], (int(rng.integers(1, 5)), net.num_signs)).astype(np.int8)
    signs[:, net.layout.starts[:-1]] = 1  # no layer is off
    patterns = [row.tolist() for row in np.unique(signs > 0, axis=0)]
    assert (general_where_it_occurs(net, signs).holds is True) == holds(net, patterns)


def test_functions_behind_layers_that_agree_are_named() -> None:
    """Behind two layers the third reads ``a + 1/2`` under two activities of the second that do not occur together."""
    net = fs.Network(
        [[[1.0, 0.5], [0.25, 1.0]], [[1.0, 2.0], [3.0, 1.0]], [[1.0, 1.0], [2.0, 1.0]], [[1.0, 1.0]]],
        [[0.25, 0.5], [0.5, -0.25], [1.0, 1.5], [0.0]],
    )
    signs = np.array([[1, -1, 1, -1, 1, 1], [1, 1, -1, 1, 1, 1]], dtype=np.int8)
    assert general_where_it_occurs(net, signs).holds is True
    bad = fs.Network([*net.weights[:2], [[1.0, 1.0], [1.0, 2.0]], net.weights[3]],
                     [*net.biases[:2], [0.5, 0.5], net.biases[3]])  # fmt: skip
    found = general_where_it_occurs(bad, signs)
    assert found.holds is None and "is not told from" in found.reasons[0]


@pytest.mark.parametrize("widths", [(4, 4, 3, 1), (3, 3, 3, 3, 3, 3, 1), (6, 5, 4, 3, 1), (2,) * 9 + (1,)])
def test_constructions_of_any_size_that_has_few_regions_are_proven(widths: tuple[int, ...]) -> None:
    box = fs.Box.cube(widths[0])
    net = fs.identifiable_network(widths, box, seed=0)
    found = fs.identifiability(net, box)
    assert found.identifiable is True and "chains of bends" in found.theorem
    assert fs.fiber(net, box).complete


def test_what_is_too_large_is_left_open() -> None:
    wide = fs.identifiability(fs.identifiable_network((12, 12, 12, 1), fs.Box.cube(12)), fs.Box.cube(12))
    assert wide.identifiable is None and "8 dimensions" in wide.reasons[0]
    many = fs.identifiability(fs.Network.random((8, 8, 8, 1), 0), fs.Box.cube(8))
    assert many.identifiable is None and "1000 regions" in many.reasons[0]
