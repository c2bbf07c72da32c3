"""The bound of active sets: its directions lie in the kernel, and it meets the rank of planar networks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fiberscope as fs
from fiberscope.dimension.active_sets import active_directions, unseen_rows
from fiberscope.dimension.decisive import decide
from fiberscope.dimension.exact_rank import residue_rows, sample
from fiberscope.dimension.jumps import Adjacency, integer_kernel, second_layer_kernel
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.modular import MIDDLE, matmul_mod, random_primes

WIDTHS = [(2, 3, 3, 1), (2, 4, 3, 2), (1, 4, 4, 1), (2, 4, 3, 3, 1), (3, 3, 2, 1), (2, 5, 1), (1, 3, 2, 3, 2)]
WIDTHS += [(2, 1, 4, 1)]


def hostile(widths: tuple[int, ...], seed: int, kind: str) -> fs.Network:
    """A random network, and one with zeros, equal neurons, weights of few bits or no biases."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]
    biases = [rng.normal(size=b) for b in widths[1:]]
    if kind == "few bits":
        weights, biases = [np.round(w * 2) for w in weights], [np.round(b * 2) for b in biases]
    if kind == "zeros":
        weights = [w * (rng.random(w.shape) < 0.6) for w in weights]
    if kind == "equal":
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            w[-1], b[-1] = w[0], b[0]
    if kind == "no biases":
        layers: list[nn.Module] = []
        for w in weights:
            layers += [nn.Linear(w.shape[1], w.shape[0], bias=False), nn.ReLU()]
            layers[-2].weight.data = torch.from_numpy(w)
        return fs.load(nn.Sequential(*layers[:-1]))
    if kind == "shifted":  # most neurons on or off throughout
        biases = [b * 4 for b in biases]
    return fs.Network(weights, biases)


def assert_bound(net: fs.Network, X: FloatArray) -> tuple[int, int]:
    """The directions are annihilated by the Jacobian, and no more than its kernel has; rank and bound."""
    found = sample(net, X)
    rows = unseen_rows(net, found.signs)
    rank = fs.functional_dimension(net, found.X, ranks="exact").exact
    assert rank is not None
    if rows is None:
        return rank, net.num_parameters
    directions, free, prime = rows
    J = residue_rows(net, found.X, found.signs, prime)
    assert not J[:, free].any()
    assert not matmul_mod(J, np.ascontiguousarray(directions.T), prime).any()
    count = active_directions(net, found.signs)
    assert count is not None and rank <= net.num_parameters - count
    assert rank_mod(J, prime) <= rank
    return rank, net.num_parameters - count


@settings(max_examples=40)
@given(
    st.sampled_from(WIDTHS),
    st.integers(0, 10**6),
    st.sampled_from(["plain", "few bits", "zeros", "equal", "no biases", "shifted"]),
    st.integers(1, 30),
)
def test_directions_lie_in_the_kernel_on_batches(widths: tuple[int, ...], seed: int, kind: str, points: int) -> None:
    net = hostile(widths, seed, kind)
    X = np.random.default_rng(seed + 1).normal(size=(points, widths[0])) * 2
    if len(sample(net, X).X):
        assert_bound(net, X)


@settings(max_examples=25)
@given(
    st.sampled_from([w for w in WIDTHS if w[0] <= 2]),
    st.integers(0, 10**6),
    st.sampled_from(["plain", "few bits", "zeros", "equal", "shifted"]),
)
def test_directions_lie_in_the_kernel_on_all_inputs(widths: tuple[int, ...], seed: int, kind: str) -> None:
    net = hostile(widths, seed, kind)
    points = decide(net)
    if points.complete:
        assert_bound(net, points.X)


def test_planar_networks_are_certified() -> None:
    """The rank of the parameter becomes a theorem; without this bound none of these was."""
    met = 0
    for seed in range(12):
        net = fs.Network.random((2, 8, 8, 1), seed)
        found = fs.functional_dimension(net, ranks="exact")
        met += found.certified
        assert found.exact is not None and found.exact <= found.bound("active sets").value
    assert met >= 11


def test_the_value_of_a_wider_network() -> None:
    found = fs.functional_dimension(fs.Network.random((2, 24, 24, 1), seed=0), ranks="exact")
    assert (found.exact, found.certified, found.failure_probability) == (547, True, 0.0)
    assert found.bound("orbit").value == 624


@pytest.mark.slow
def test_two_layers_of_48() -> None:
    found = fs.functional_dimension(fs.Network.random((2, 48, 48, 1), seed=0), ranks="exact")
    assert (found.exact, found.certified, found.bound("active sets").value) == (1900, True, 1900)


def test_a_weight_that_the_prime_divides_is_not_trusted() -> None:
    """Modulo the prime such a weight is zero, and is not: the jumps are not asked."""
    (prime,) = random_primes(1, 0, MIDDLE)
    net = fs.Network.random((2, 3, 3, 1), 1)
    last = net.weights[2].copy()
    last[0, 0] = float(prime)
    heavy = fs.Network([*net.weights[:2], last], net.biases)
    patterns = np.unique(heavy.signs(decide(heavy).X).signs > 0, axis=0)
    assert second_layer_kernel(heavy, Adjacency.of(patterns), ModularAlgebra(prime)) is None
    assert_bound(heavy, decide(heavy).X)
    first = net.weights[0] * float(prime)
    assert_bound(fs.Network([first, *net.weights[1:]], net.biases), np.random.default_rng(0).normal(size=(20, 2)))


def test_scattered_regions_and_other_networks_are_left_to_others() -> None:
    net = fs.Network.random((2, 6, 6, 1), 0)
    scattered = np.unique(np.random.default_rng(0).random((40, 12)) < 0.5, axis=0)
    (prime,) = random_primes(1, 0, MIDDLE)
    assert second_layer_kernel(net, Adjacency.of(scattered), ModularAlgebra(prime)) is None
    X = np.random.default_rng(0).normal(size=(5, 2))
    assert active_directions(net, net.signs(X).signs, work=1) is None
    on_kink = np.zeros((1, 12), np.int8)
    assert active_directions(net, on_kink) is None


def test_integer_kernels() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = rng.integers(-2, 3, (int(rng.integers(1, 5)), 6))
        kernel = integer_kernel(table)
        assert not (table.astype(object) @ kernel.T).any()
        assert len(kernel) == 6 - np.linalg.matrix_rank(table.astype(float))
