"""Hidden equivalence groups: their tangents are in the kernel; no bound that holds is below the exact rank."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.dimension.bounds import bounds, roughly_monotonic, theorem_value
from fiberscope.dimension.exact_rank import exact_jacobian_rank, residue_rows, sample
from fiberscope.dimension.symmetries import activity, hidden_symmetry, rescaling_rank, tangents
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.modular import matmul_mod, residues
from fiberscope.testing import CASES, case
from fiberscope.testing.strategies import batches, chains

PRIME = 2**61 - 1


@st.composite
def networks_and_batches(draw):
    """Half of them nasty, half of them random with biases that fix many neurons."""
    if draw(st.booleans()):
        net = draw(chains())
        return net, draw(batches(net, max_points=8))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=3, max_size=5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    net = Network.random(shape, rng)
    factor = draw(st.sampled_from([1.0, 3.0, 10.0]))
    net = Network(net.weights, [factor * b for b in net.biases])
    return net, rng.normal(size=(draw(st.integers(1, 30)), shape[0]))


@given(networks_and_batches())
@settings(max_examples=150)
def test_no_bound_that_holds_is_below_the_exact_rank(example):
    net, X = example
    found = sample(net, X)
    if len(found.X) == 0:
        return
    rank = exact_jacobian_rank(net, found).rank
    for bound in bounds(net, found, hidden_symmetry(net, found.signs)):
        assert bound.value >= rank or not bound.holds, bound


@pytest.mark.parametrize("name", sorted(CASES))
def test_bounds_of_every_kind_of_network(name):
    net = case(name)
    found = sample(net, np.random.default_rng(0).normal(size=(20, net.in_size)))
    if len(found.X) == 0:
        assert name in ("zero_rows", "all_zero")
        return
    known = bounds(net, found, hidden_symmetry(net, found.signs))
    assert min(b.value for b in known if b.holds) >= exact_jacobian_rank(net, found).rank
    assert {"parameters", "outputs", "regions", "regions refined"} <= {b.name for b in known}
    assert ("orbit" in {b.name for b in known}) == net.is_chain


@given(networks_and_batches())
@settings(max_examples=60)
def test_all_tangents_lie_in_the_kernel_of_the_jacobian(example):
    net, X = example
    found = sample(net, X)
    if len(found.X) == 0:
        return
    rows = residue_rows(net, found.X, found.signs, PRIME)
    for vectors in tangents(net, activity(net, found.signs), PRIME):
        assert not matmul_mod(rows, np.ascontiguousarray(vectors.T), PRIME).any()


def test_always_active_neurons_one_input_four_wide_three_outputs_have_a_stabiliser_of_dimension_two():
    """Proposition A.8 claims a trivial one: the widths are roughly monotonic and the parameter is generic."""
    small = Network.random((1, 4, 3), 0)
    net = Network(small.weights, [np.abs(small.biases[0]) + 10, small.biases[1]])
    found = sample(net, np.linspace(-1, 1, 20)[:, None])
    symmetry = hidden_symmetry(net, found.signs)
    assert roughly_monotonic(net.widths)
    assert (symmetry.dimension, symmetry.orbit, symmetry.stabiliser) == (16, 14, 2)
    assert symmetry.critical_locus == 14
    theorem = next(b for b in bounds(net, found, symmetry) if b.name == "fixed neurons")
    assert theorem.holds
    assert not theorem.proven
    assert theorem.value == 23 - 16
    assert exact_jacobian_rank(net, found).rank == 6


def test_roles_and_counts_by_hand():
    # neuron 0 always on, 1 always off, 2 switches
    net = Network([[[1.0], [1.0], [1.0]], [[1.0, 1.0, 1.0]]], [[9.0, -9.0, 0.5], [0.0]])
    found = sample(net, np.array([[-1.0], [1.0], [2.0]]))
    symmetry = hidden_symmetry(net, found.signs)
    layer = symmetry.layers[0]
    assert (layer.active, layer.inactive, layer.switching) == (1, 1, 1)
    assert symmetry.dimension == 3
    assert symmetry.translations == 1
    assert symmetry.free == 3  # weight, bias and outgoing weight of the dead neuron
    assert symmetry.directions == 3 + 1 + 1 + 1  # free, two rescalings, one translation
    assert theorem_value(net.num_parameters, symmetry.layers) == 10 - 1 - 4


def test_a_leaky_neuron_that_is_never_positive_is_linear():
    net = Network([[[1.0], [1.0]], [[1.0, 1.0]]], [[9.0, -9.0], [0.0]], "leaky_relu", slope=0.3)
    symmetry = hidden_symmetry(net, sample(net, np.array([[-1.0], [1.0]])).signs)
    assert symmetry.layers[0].active == 2
    assert symmetry.dimension == 4
    assert symmetry.free == 0


def test_theorem_needs_roughly_monotonic_widths():
    assert not roughly_monotonic((1, 10, 10, 10, 10, 1))  # the paper's own experiments
    assert not roughly_monotonic((2, 10, 10, 1))
    net = Network.random((1, 10, 10, 1), 0)
    found = sample(net, np.linspace(0, 1, 20)[:, None])
    assert not next(b for b in bounds(net, found, hidden_symmetry(net, found.signs)) if b.name == "fixed neurons").holds


@given(chains())
@settings(max_examples=60)
def test_rank_of_rescalings_by_components_is_the_rank_of_their_tangents(net):
    rows = []
    for k, n in enumerate(net.widths[1:-1]):
        for i in range(n):
            parts = [np.zeros_like(x) for pair in zip(net.weights, net.biases, strict=True) for x in pair]
            parts[2 * k][i], parts[2 * k + 1][i] = net.weights[k][i], net.biases[k][i]
            parts[2 * k + 2][:, i] -= net.weights[k + 1][:, i]
            rows.append(np.concatenate([p.reshape(-1) for p in parts]))
    assert rescaling_rank(net) == rank_mod(residues(np.array(rows), PRIME), PRIME)


def test_too_large_groups_are_bounded_by_rescalings_and_dead_neurons():
    net = Network.random((3, 6, 6, 2), 0)
    found = sample(net, np.random.default_rng(0).normal(size=(8, 3)))
    whole, part = hidden_symmetry(net, found.signs), hidden_symmetry(net, found.signs, work=10)
    assert part.orbit is None
    assert not part.complete
    assert 0 < part.directions <= whole.directions
    assert exact_jacobian_rank(net, found).rank <= net.num_parameters - part.directions


def test_constant_biases_leave_no_group_and_missing_ones_no_translation():
    def net(bias, name):
        hidden = [Affine(0, Dense([[1.0], [2.0]]), bias, "w", name), PiecewiseLinear(1, np.zeros(2), (2,))]
        return Network.from_nodes([*hidden, Affine(2, Dense([[1.0, 1.0]]), None, "v")], (1,))

    signs = np.ones((3, 2), dtype=np.int8)
    assert hidden_symmetry(net(np.ones(2), None), signs) is None
    assert hidden_symmetry(net(None, None), signs).translations == 0
    assert hidden_symmetry(case("residual"), signs) is None


def test_random_roughly_monotonic_networks_do_not_violate_the_theorem():
    rng = np.random.default_rng(0)
    seen = 0
    while seen < 150:
        shape = tuple(int(n) for n in rng.integers(1, 6, size=rng.integers(3, 6)))
        if not roughly_monotonic(shape):
            continue
        net = Network.random(shape, rng)
        found = sample(net, rng.normal(size=(25, shape[0])) * rng.choice([0.1, 1.0]))
        symmetry = hidden_symmetry(net, found.signs)
        theorem = next(b for b in bounds(net, found, symmetry) if b.name == "fixed neurons")
        assert theorem.holds
        assert exact_jacobian_rank(net, found).rank <= theorem.value
        seen += 1


def test_widths_are_read_in_pairs():
    for shape in itertools.product(range(1, 4), repeat=3):
        down = all(b - 1 <= a for a, b in itertools.pairwise(shape))
        up = all(a - 1 <= b for a, b in itertools.pairwise(shape))
        assert roughly_monotonic(shape) == (down or up)
