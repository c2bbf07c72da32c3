"""Kinks: a zero sign is one only if the output is not differentiable in the parameters, by one-sided derivatives."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from torch import nn

import fiberscope as fs
from fiberscope.dimension.classes import open_ties
from fiberscope.dimension.exact_rank import exact_jacobian_rank, residue_rows, sample
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.kinks import describe, kinks
from fiberscope.errors import NotGenericError
from fiberscope.network.convolutions import Convolution
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale, Sparse
from fiberscope.numerics.modular import random_primes, residues_of_integers
from fiberscope.testing import hostile


def kinked(net, x):
    point = np.asarray(x, dtype=np.float64).reshape(1, -1)
    return bool(kinks(net, point, net.signs(point).signs).any())


# --- networks ------------------------------------------------------------------------------------------------------

NUMBERS = {
    "integer": lambda rng, shape: rng.integers(-1, 2, shape) * 1.0,
    "decimal": lambda rng, shape: rng.integers(-3, 4, shape) / 10,
    "sparse": lambda rng, shape: rng.integers(-1, 2, shape) * (rng.random(shape) < 0.4) * 1.0,
    "tiny": lambda rng, shape: rng.integers(-1, 2, shape) * 5e-324,
    "huge": lambda rng, shape: rng.integers(-1, 2, shape) * 1e200,
}


def images(rng, style):
    """Convolution, ReLU and pool in either order, two dense layers; an image with a constant background."""
    draw = lambda shape: NUMBERS[style](rng, shape)  # noqa: E731  # one line for a test
    size, groups = ((2, 3, 3), 2) if rng.random() < 0.3 else ((1, 4, 4), 1)
    pad = (1, 1, 0, 0) if rng.random() < 0.5 else (0, 0, 0, 0)
    kernel = Convolution(draw((2, size[0] // groups, 2, 2)), size, padding=pad, groups=groups)
    nodes = [Affine(0, kernel, draw((2, 1, 1)) if rng.random() < 0.7 else None, "k", "kb")]
    shape = kernel.out_shape
    if rng.random() < 0.3:  # a batch normalisation
        nodes += [Affine(1, Scale(draw((2, 1, 1)), shape), draw((2, 1, 1)), "g" if rng.random() < 0.5 else None)]
    for kind in ("act", "pool") if rng.random() < 0.7 else ("pool", "act"):
        if kind == "act":
            nodes.append(PiecewiseLinear(len(nodes), np.asarray(rng.choice([0.0, 0.0, 0.25])), shape))
        else:
            nodes.append(MaxPool(len(nodes), shape, (2, 2), (2, 2) if rng.random() < 0.5 else (1, 1)))
            shape = nodes[-1].shape
    first = len(nodes)
    nodes += [
        Affine(first, Dense(draw((2, prod(shape))), shape), draw(2), "w", "b"),
        PiecewiseLinear(first + 1, np.zeros(2), (2,)),
        Affine(first + 2, Dense(draw((1, 2))), draw(1), "v", "c"),
    ]
    x = np.full(size, rng.choice([0.0, 0.0, 1.0]))
    i, j = rng.integers(0, size[1], 2)
    part = x[:, i : i + 2, j : j + 2]
    part += rng.integers(0, 3, part.shape)
    return Network.from_nodes(nodes, size), x.reshape(-1)


def chains(rng, style):
    widths = rng.integers(1, 4, rng.integers(3, 6)).tolist()
    pairs = list(pairwise(widths))
    kind = "leaky_relu" if rng.random() < 0.3 else "relu"
    weights = [NUMBERS[style](rng, (n, m)) for m, n in pairs]
    net = Network(weights, [NUMBERS[style](rng, n) for _, n in pairs], kind, slope=0.25)
    return net, NUMBERS["integer"](rng, widths[0])


def shared(rng, style):
    """One layer twice, a sum, values side by side, a sparse layer."""
    layer, bias = Dense(NUMBERS[style](rng, (2, 2))), NUMBERS[style](rng, 2)
    nodes = [
        Affine(0, layer, bias, "s", "b"),
        PiecewiseLinear(1, np.zeros(2), (2,)),
        Affine(2 if rng.random() < 0.5 else 0, layer, bias, "s", "b"),
        Add((3, 2), (2,)),
        PiecewiseLinear(4, np.zeros(2), (2,)),
        Concat((5, 2), ((2,), (2,))),
        Affine(6, Sparse(NUMBERS[style](rng, (2, 4))), None, "w"),
    ]
    return Network.from_nodes(nodes, (2,)), NUMBERS["integer"](rng, 2)


def clipped(rng, style):
    """Layers with a clip of their own bounds behind each, some infinite; the second may be read by a residual."""
    draw = lambda shape: NUMBERS[style](rng, shape)  # noqa: E731  # one line for a test
    nodes, width = [], 2
    for layer in range(rng.integers(1, 4)):
        nodes.append(Affine(len(nodes), Dense(draw((2, width))), draw(2), f"w{layer}", f"b{layer}"))
        low = np.where(rng.random(2) < 0.2, -np.inf, draw(2))
        high = np.where(rng.random(2) < 0.2, np.inf, np.maximum(draw(2), 0.0) + np.where(np.isinf(low), 0.0, low))
        high = np.where(high > low, high, np.inf)
        nodes.append(Clip(len(nodes), low, high, (2,)))
    if rng.random() < 0.3:
        nodes.append(Add((len(nodes), 1), (2,)))
    nodes.append(Affine(len(nodes), Dense(draw((1, 2))), None, "v"))
    return Network.from_nodes(nodes, (2,)), NUMBERS["integer"](rng, 2)


KINDS = {"images": images, "chains": chains, "shared": shared, "clipped": clipped}


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(NUMBERS)), st.integers(0, 2**32 - 1))
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_accepted_exactly_where_the_one_sided_derivatives_are_linear(differentiable, kind, style, seed):
    net, x = KINDS[kind](np.random.default_rng(seed), style)
    signs = net.signs(x[None]).signs
    if (signs == 0).any():
        switches = {describe(net, i) for i in np.flatnonzero(kinks(net, x[None], signs)[0])}
        event(f"{kind}: {'kink' if switches else 'differentiable'}")
        linear = differentiable(net, x)
        if not switches:
            assert linear
        elif len(switches) == 1 and style in ("integer", "decimal", "sparse"):
            assert not linear  # with huge numbers a few directions need not show it
        else:  # several may cancel, and then the point is left out all the same
            event(f"{kind}: kinks {'cancel' if linear else 'do not cancel'}")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_of_many_points_none_is_left_out_for_nothing(differentiable, kind):
    for seed in range(40):
        net, x = KINDS[kind](np.random.default_rng(seed), ["integer", "decimal", "sparse"][seed % 3])
        if kinked(net, x):
            assert not differentiable(net, x)


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["integer", "decimal", "sparse"]), st.integers(0, 2**32 - 1))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_rows_at_accepted_points_are_the_derivatives(one_sided, kind, style, seed):
    net, x = KINDS[kind](np.random.default_rng(seed), style)
    signs = net.signs(x[None]).signs
    if kinked(net, x):
        return
    (prime,) = random_primes(1, seed)
    rows = residue_rows(net, x[None], signs, prime)
    for k in range(net.num_parameters):
        slopes = one_sided(net, x, [Fraction(int(i == k)) for i in range(net.num_parameters)])
        expected = [v.numerator * pow(v.denominator, -1, prime) % prime for v in slopes]
        assert rows[:, k].tolist() == expected


def named(net):
    """The same program with every number a parameter of its own."""
    nodes = [
        replace(node, weight_name=f"w{i}", bias_name=None if node.bias is None else f"b{i}")
        if isinstance(node, Affine)
        else node
        for i, node in enumerate(net.program)
    ]
    return Network.from_nodes(nodes, net.input_shape)


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_hostile_programs(data, differentiable, rational_jacobian, rational_rank):
    """Decimals, twins one ulp apart, subnormals, near overflow; pools, residuals: kinks, and the rank of the rest."""
    net = named(data.draw(hostile.programs(max_width=3, max_blocks=2)))
    X = data.draw(hostile.hostile_batches(net, max_points=3))
    signs = net.signs(X).signs
    bad = kinks(net, X, signs).any(axis=1)
    for x, zero, found in zip(X, (signs == 0).any(axis=1), bad, strict=True):
        if not zero:
            assert not found
        elif net.num_parameters < 60 and not found:
            assert differentiable(net, x, tries=4)
    kept = sample(net, X)
    assert kept.on_boundary.tolist() == np.flatnonzero(bad).tolist()
    if len(kept.X):
        assert exact_jacobian_rank(net, kept).rank == rational_rank(rational_jacobian(net, kept.X))


# --- by hand -------------------------------------------------------------------------------------------------------


def test_what_sits_behind_a_neuron_that_is_off_is_no_kink():
    net = Network([[[1.0]], [[1.0]], [[3.0]]], [[0.0], [-5.0], [1.0]])
    result = functional_dimension(net, [[0.0]])
    assert result.on_boundary == ()
    assert (result.exact, result.certified) == (1, True)
    on = Network([[[1.0]], [[1.0]], [[3.0]]], [[0.0], [5.0], [1.0]])
    assert kinked(on, [0.0])


def test_contributions_that_cancel_exactly_are_no_kink_and_one_ulp_less_is():
    """Column 0 of ``W3 W2`` vanishes, the second layer is active: the first neuron has nothing to say."""
    weights = [np.eye(3), [[-1.0, 2.0, 3.0], [-2.0, 5.0, 1.0]], [[2.0, -1.0]]]
    x = [0.0, 1.0, 1.0]
    assert not kinked(Network(weights, [np.zeros(3), [1.0, 3.0], [0.0]]), x)
    weights[1][0][0] = np.nextafter(-1.0, 0.0)
    assert kinked(Network(weights, [np.zeros(3), [1.0, 3.0], [0.0]]), x)


def test_a_derivative_that_the_first_prime_divides_is_not_taken_for_zero():
    """The weight behind the kink is a multiple of the first prime that is tried: ``2^k p`` as a sum of two floats."""
    prime = random_primes(1, np.random.default_rng(0))[0]
    low = prime % 1024
    after = [[float(prime - low), float(low)]]  # two paths whose weights add up to the prime
    net = Network([[[1.0]], [[1.0], [1.0]], after], [[0.0], [1.0, 1.0], [0.0]])
    assert residues_of_integers([[int(after[0][0]) + int(after[0][1])]], prime)[0, 0] == 0
    assert kinked(net, [0.0])


def test_zero_weights_and_missing_biases():
    assert not kinked(Network([[[1.0]], [[0.0]]], [[0.0], [0.0]]), [0.0])  # the outgoing weight is zero
    silent = Network.from_nodes(
        [
            Affine(0, Dense([[1.0]]), None, "w"),
            PiecewiseLinear(1, np.zeros(1), (1,)),
            Affine(2, Dense([[1.0]]), None, "v"),
        ],
        (1,),
    )
    assert not kinked(silent, [0.0])  # w x is zero for every w
    assert not kinked(silent, [-0.0])
    zero = Network.from_nodes([replace(silent.nodes[0], operator=Dense([[0.0]])), *silent.nodes[1:]], (1,))
    assert kinked(zero, [1.0])


def test_zero_is_never_above_a_relu_at_its_kink():
    """``relu(z) - max(relu(z), 0)`` where the zero is a neuron that is off: no kink is left."""
    nodes = [
        Affine(0, Dense([[1.0], [1.0]]), np.array([0.0, -1.0]), "w", "b"),
        PiecewiseLinear(1, np.zeros(2), (1, 1, 2)),
        MaxPool(2, (1, 1, 2), (1, 2), (1, 2)),
        Concat((2, 3), ((1, 1, 2), (1, 1, 1)), 2),
    ]
    for last, expected in [([[1.0, 5.0, -1.0]], False), ([[1.0, 5.0, 1.0]], True)]:
        net = Network.from_nodes([*nodes, Affine(4, Dense(last, (1, 1, 3)), None, "v")], (1,))
        assert kinked(net, [0.0]) == expected


def test_members_with_equal_derivatives_are_no_kink():
    """A scaling by zero makes ties whose members differ to second order only."""
    x = np.zeros((1, 3, 3))
    x[0, 0, 0] = 1.0
    kernel = Convolution(
        np.array([[[[0.0, 1.0], [1.0, 1.0]]]]), (1, 3, 3)
    )  # zero at all four places, with other patches

    def net(factor):
        nodes = [
            Affine(0, kernel, np.zeros((1, 1, 1)), "k", "b"),
            Affine(1, Scale(np.full((1, 1, 1), factor), (1, 2, 2)), None, "g"),
            MaxPool(2, (1, 2, 2), (2, 2), (2, 2)),
            Affine(3, Dense([[1.0]], (1, 1, 1)), None, "v"),
        ]
        return Network.from_nodes(nodes, (1, 3, 3))

    assert not kinked(net(0.0), x)
    assert kinked(net(5e-324), x)


def pooled(slope, bias=0.0):
    return Network.from_nodes(
        [
            Affine(0, Dense(np.eye(4), (1, 2, 2)), np.full(4, bias), "w", "b"),
            PiecewiseLinear(1, np.asarray(slope), (1, 2, 2)),
            MaxPool(2, (1, 2, 2), (2, 2), (2, 2)),
            Affine(3, Dense(np.ones((1, 1)), (1, 1, 1)), None, "v"),
        ],
        (1, 2, 2),
    )


@pytest.mark.parametrize(
    ("x", "slope", "expected"),
    [([-1.0] * 4, 0.0, False), ([-1.0] * 4, 0.5, True), ([1.0, 1.0, -1.0, -1.0], 0.0, True), ([1.0] * 4, 0.0, True)],
)
def test_ties_of_dense_neurons_in_a_pool(x, slope, expected):
    assert kinked(pooled(slope), x) == expected


def test_equal_neurons_of_a_shared_layer_cancel():
    """``relu(z) - relu(z)`` is zero for every parameter, although each half has a kink."""
    layer = Dense([[1.0]])
    nodes = [
        Affine(0, layer, np.zeros(1), "w", "b"),
        Affine(0, layer, np.zeros(1), "w", "b"),
        PiecewiseLinear(1, np.zeros(1), (1,)),
        PiecewiseLinear(2, np.zeros(1), (1,)),
        Concat((3, 4), ((1,), (1,))),
    ]
    minus = Network.from_nodes([*nodes, Affine(5, Dense([[1.0, -1.0]]))], (1,))
    plus = Network.from_nodes([*nodes, Affine(5, Dense([[1.0, 1.0]]))], (1,))
    assert not kinked(minus, [0.0])
    assert kinked(plus, [0.0])
    assert open_ties(plus, np.zeros(1), np.zeros(2, np.int8)).count == 1  # one tie, met twice


def test_what_is_left_out_is_named():
    net = Network([np.eye(3), np.ones((2, 3)), np.ones((1, 2))], [[-1.0, -2.0, -3.0], [-99.0, 1.0], [0.0]])
    X = [[5.0, 5.0, 5.0], [5.0, 2.0, 5.0]]
    result = functional_dimension(net, X)
    assert result.on_boundary == (1,)
    assert "point 1: neuron 1 of hidden layer 1 is exactly at its kink" in result.reasons[0]
    assert result.to_dict()["reasons"] == list(result.reasons)
    with pytest.raises(NotGenericError, match="all 1 points lie on kinks of the outputs; point 0: neuron 1 of hidden"):
        functional_dimension(net, X[1:])
    with pytest.raises(NotGenericError, match="window 0 of the max pool at node 2"):
        functional_dimension(pooled(0.0), np.ones((1, 4)))
    assert describe(pooled(0.0), 3) == "neuron 3 of the activation at node 1"


# --- images --------------------------------------------------------------------------------------------------------


def lenet(size, first="act"):
    torch.manual_seed(0)
    act, pool = nn.ReLU(), nn.MaxPool2d(2)
    pair = (act, pool) if first == "act" else (pool, act)
    width = 4 * (((size - 2) // 2 - 2) // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        *pair,
        nn.Conv2d(3, 4, 3),
        *pair,
        nn.Flatten(),
        nn.Linear(width, 8),
        nn.ReLU(),
        nn.Linear(8, 2),
    )


@pytest.mark.parametrize("first", ["act", "pool"])
@pytest.mark.parametrize("background", [0.0, 0.25])
def test_constant_background_is_no_kink(first, background):
    rng = np.random.default_rng(0)
    X = np.full((6, 1, 14, 14), background, dtype=np.float32)
    for i, image in enumerate(X[1:]):  # the first image is constant
        image[0, 4 + i % 3 : 9, 5:9] = rng.random((5 - i % 3, 4))
    module = lenet(14, first)
    net = load(module, (1, 14, 14))
    flat = X.reshape(6, -1).astype(np.float64)
    assert (net.signs(flat).signs == 0).any(axis=1).all()
    result = functional_dimension(module, X)
    assert result.on_boundary == ()
    assert result.num_points == 6
    rows = jacobian(module.double(), X).numpy()  # by torch
    np.testing.assert_allclose(jacobian(net, flat), rows, atol=1e-13)
    assert result.exact == result.numerical == np.linalg.matrix_rank(rows)


def test_an_accidental_tie_of_patches_is_a_kink():
    """Two patches that are not equal give one value: a kernel of zeros."""
    x = np.zeros((1, 3, 3))
    x[0, 0, 0] = 1.0
    kernel = Convolution(np.zeros((1, 1, 2, 2)), (1, 3, 3))
    nodes = [
        Affine(0, kernel, np.ones((1, 1, 1)), "k", "b"),
        MaxPool(1, (1, 2, 2), (2, 2), (2, 2)),
        Affine(2, Dense([[1.0]], (1, 1, 1)), None, "v"),
    ]
    net = Network.from_nodes(nodes, (1, 3, 3))
    assert kinked(net, x)
    assert not kinked(net, np.zeros((1, 3, 3)))


@pytest.mark.parametrize("first", ["act", "pool"])
def test_real_images(shared_folder, first):
    if not (shared_folder / "data" / "mnist").is_dir():
        pytest.skip(f"no images in {shared_folder}")
    images = fs.load_dataset("mnist", shared_folder / "data", limit=20).inputs
    module = lenet(28, first)
    result = functional_dimension(module, np.asarray(images, dtype=np.float32))
    assert result.on_boundary == ()
    assert result.num_points == 20
    assert result.exact == 40
