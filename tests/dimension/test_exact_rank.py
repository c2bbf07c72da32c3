"""Exact ranks: against rational elimination, under symmetries, with fewer rows, on kinks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fiberscope.dimension.choice import slopes_as_maps
from fiberscope.dimension.exact_rank import exact_jacobian_rank, residue_rows, sample, spanning_points
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.spans import entry_bits
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.elimination import rank_mod
from fiberscope.testing import CASES, case
from fiberscope.testing.strategies import batches, chains


@given(data=st.data())
@settings(max_examples=50)
def test_rank_agrees_with_rational_elimination(data, rational_jacobian, rational_rank):
    net = data.draw(chains(max_width=3, max_hidden=2))
    found = sample(net, data.draw(batches(net)))
    if len(found.X):
        expected = rational_rank(rational_jacobian(net, found.X))
        result = exact_jacobian_rank(net, found)
        assert result.rank == result.lower == expected
        assert result.failure_probability < 1e-12


@pytest.mark.parametrize("name", ["convolutional", "residual", "leaky", "mixed_linear", "equal_neurons"])
def test_rank_of_other_networks(name, rational_jacobian, rational_rank):
    net = case(name)
    X = np.random.default_rng(3).normal(size=(4, net.in_size))
    assert exact_jacobian_rank(net, sample(net, X)).rank == rational_rank(rational_jacobian(net, X))


def _conv(*between):
    return nn.Sequential(nn.Conv2d(1, 2, 2), *between, nn.Flatten(), nn.LazyLinear(2))


class _Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 2), nn.Linear(3, 3), nn.Linear(5, 1)

    def forward(self, x):
        return self.c(torch.cat([F.relu(self.a(x)), x + F.hardtanh(self.b(x))], 1))


KINDS = {
    "one slope": (
        (3,),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 3), nn.PReLU(), nn.Linear(3, 1)),
    ),
    "slopes": ((3,), lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2))),
    "slopes of channels": ((1, 3, 3), lambda: _conv(nn.PReLU(2), nn.MaxPool2d(2))),
    "relu6": ((3,), lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Linear(4, 3), nn.ReLU6(), nn.Linear(3, 1))),
    "hardtanh": ((3,), lambda: nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(-0.25, 0.5), nn.Linear(4, 2))),
    "batch norm and clip": ((1, 3, 3), lambda: _conv(nn.BatchNorm2d(2), nn.ReLU6(), nn.AvgPool2d(2))),
    "transposed": (
        (1, 2, 2),
        lambda: nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.LeakyReLU(0.5), nn.Conv2d(2, 1, 3)),
    ),
    "joined and added": ((3,), _Joined),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("points", [2, 14])
def test_rank_of_every_kind_of_node(name, points, rational_jacobian, rational_rank):
    """The oracle differentiates slopes and clips as they stand; the library's rewriting is not its."""
    shape, make = KINDS[name]
    torch.manual_seed(points)
    module = make().double().eval()
    X = 3 * np.random.default_rng(points).normal(size=(points, *shape))
    module(torch.from_numpy(X))
    net = load(module, shape)
    found = functional_dimension(module, X, ranks="exact")
    assert found.num_parameters == sum(p.numel() for p in module.parameters())
    assert found.on_boundary == ()
    assert found.exact == rational_rank(rational_jacobian(net, X)) == functional_dimension(net, X, ranks="exact").exact
    np.testing.assert_allclose(jacobian(net, X), jacobian(module, torch.from_numpy(X)), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_learned_slopes_of_random_chains(seed, rational_jacobian, rational_rank):
    """Slopes of zero, one and minus one, points on kinks among them: what is left in has the rational rank."""
    rng = np.random.default_rng(seed)
    slopes = rng.choice([-1.0, 0.0, 0.25, 1.0], int(rng.choice([1, 3])))
    nodes = [
        Affine(0, Dense(rng.integers(-2, 3, (3, 2)) / 2), rng.integers(-2, 3, 3) / 2, "w", "b"),
        PiecewiseLinear(1, slopes, (3,), "a"),
        Affine(2, Dense(rng.integers(-2, 3, (1, 3)) / 2), np.zeros(1), "v", "c"),
    ]
    net = Network.from_nodes(nodes, (2,))
    X = rng.integers(-3, 4, (6, 2)) / 2
    kept = sample(slopes_as_maps(net), X)
    for k in set(range(6)) - set(kept.on_boundary.tolist()):
        z = net.preactivations(X[k : k + 1])[0][0]
        silent = np.broadcast_to(slopes == 1, 3) | (net.weights[1][0] == 0)
        assert (silent | (z != 0)).all()
    if len(kept.X):
        rank = functional_dimension(net, X, ranks="exact")
        assert rank.exact == rational_rank(rational_jacobian(net, kept.X))
        assert rank.on_boundary == tuple(kept.on_boundary.tolist())


@pytest.mark.parametrize("seed", range(4))
def test_rank_is_invariant_under_permutation_and_rescaling_by_powers_of_two(seed):
    rng = np.random.default_rng(seed)
    net = Network.random((2, 6, 5, 4, 2), seed)
    X = rng.normal(size=(60, 2))
    rank = exact_jacobian_rank(net, sample(net, X)).rank
    moved = permute(net, [rng.permutation(n) for n in (6, 5, 4)])
    scaled = rescale(moved, [2.0 ** rng.integers(-200, 200, n) for n in (6, 5, 4)])
    for other in (moved, scaled):
        assert exact_jacobian_rank(other, sample(other, X)).rank == rank


@pytest.mark.parametrize("seed", range(3))
def test_points_beyond_an_affine_basis_of_a_region_add_nothing(seed):
    net = Network.random((2, 4, 3, 1), seed)
    X = np.random.default_rng(seed).normal(size=(200, 2))
    found = sample(net, X)
    keep = spanning_points(found)
    assert len(keep) == np.minimum(found.counts, 3).sum() < 200
    prime = 2**61 - 1
    rows = residue_rows(net, X, found.signs, prime)
    assert rank_mod(rows, prime) == rank_mod(rows[keep], prime)


def test_points_on_a_line_keep_all_their_rows():
    net = Network([np.eye(2), np.ones((1, 2))], [np.ones(2), np.zeros(1)])
    X = np.column_stack([np.arange(6.0), np.arange(6.0)])
    found = sample(net, X)
    assert found.regions == 1
    assert len(spanning_points(found)) == 6
    assert exact_jacobian_rank(net, found).rank == 2


def test_regions_are_counted_by_sign_vectors_in_order_of_appearance():
    net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 2.0], [0.0]])
    found = sample(net, np.array([[3.0], [-1.0], [1.0], [5.0]]))
    assert found.region.tolist() == [0, 1, 2, 0]
    assert found.counts.tolist() == [2, 1, 1]


def test_points_on_kinks_are_set_apart():
    net = Network([[[1.0]], [[1.0]]], [[-0.1], [0.0]])
    found = sample(net, np.array([[0.1], [np.nextafter(0.1, 1)], [0.0]]))
    assert found.on_boundary.tolist() == [0]
    assert len(found.X) == 2


@given(data=st.data())
@settings(max_examples=40)
def test_entries_are_as_small_as_said(data, rational_jacobian):
    net = data.draw(chains(max_width=3, max_hidden=2))
    X = data.draw(batches(net, max_points=2))
    entries = [v for row in rational_jacobian(net, X) for v in row if v]
    if entries:
        common = max(v.denominator for v in entries)
        assert max(abs(v * common).numerator.bit_length() for v in entries) <= entry_bits(net, X)


def test_entry_bits_of_every_kind_of_network(rational_jacobian):
    for name in CASES:
        net = case(name)
        X = np.random.default_rng(0).normal(size=(2, net.in_size))
        entries = [v for row in rational_jacobian(net, X) for v in row if v]
        common = max((v.denominator for v in entries), default=1)
        widest = max((abs(v * common).numerator.bit_length() for v in entries), default=0)
        assert widest <= entry_bits(net, X)
