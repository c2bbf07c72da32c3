"""Functional dimension as a whole: known answers, the measured facts, decisive sets, modules, bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from fiberscope.dimension import exact, functional
from fiberscope.dimension.decisive import decisive_set
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.errors import InputError, NotGenericError, TooLargeError, UnsupportedModelError
from fiberscope.network.actions import rescale
from fiberscope.network.network import Network
from fiberscope.numerics.rank import numerical_rank
from fiberscope.testing import CASES, case


def test_one_dimensional_facts_at_initialisation():
    """Five hidden layers of 10, 100 points: 20.23 +- .41 on average over 400 seeds, float32 0.8 below."""
    ranks, paper, regions, refined, numerical = [], [], [], [], []
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        net = Network.random((1, *[10] * 5, 1), rng)
        X = np.linspace(0, 1, 100)[:, None] + rng.normal(0, 0.01, (100, 1))
        result = functional_dimension(net, X)
        ranks.append(result.exact)
        paper.append(result.paper)
        regions.append(result.regions_sampled)
        refined.append(result.bound("regions refined").value)
        numerical.append(result.numerical)
    ranks, refined = np.array(ranks), np.array(refined)
    error = ranks.std(ddof=1) / np.sqrt(len(ranks))
    assert abs(ranks.mean() - 20.23) < 3 * np.hypot(error, 0.41)
    assert 0.2 < (ranks - paper).mean() < 2
    assert (ranks == numerical).mean() > 0.95
    assert (ranks == refined).mean() > 0.75
    assert abs(np.mean(regions) - 10.8) < 3


def test_the_numerical_rank_is_not_invariant_where_the_exact_one_is():
    net = Network.random((2, 6, 6, 1), 0)
    X = np.random.default_rng(0).normal(size=(80, 2))
    scaled = rescale(net, [2.0 ** np.array([40, -40, 30, -30, 20, -20]), None])
    a, b = functional_dimension(net, X), functional_dimension(scaled, X)
    assert a.exact == b.exact == a.numerical
    assert b.numerical < b.exact


def test_three_ranks_are_what_they_are_defined_to_be():
    net = Network.random((3, 7, 6, 2), 3)
    X = np.random.default_rng(3).normal(size=(30, 3))
    result = functional_dimension(net, X)
    values = np.linalg.svd(jacobian(net, X), compute_uv=False)
    np.testing.assert_allclose(result.singular_values, values, atol=1e-12 * values[0])
    assert result.numerical == (values > max(60, net.num_parameters) * values[0] * 2.0**-52).sum()
    assert result.paper_cutoff == pytest.approx(max(60, net.num_parameters) * values[0] * 2.0**-23, rel=1e-4)
    assert result.paper == numerical_rank(jacobian(net, X).astype(np.float32)).rank
    assert functional_dimension(net, X, rtol=0.1).numerical == (values > 0.1 * values[0]).sum()


def test_certified_only_when_a_proven_bound_is_met():
    for name in CASES:
        net = case(name)
        X = np.random.default_rng(1).normal(size=(6, net.in_size))
        try:
            result = functional_dimension(net, X)
        except NotGenericError:
            continue
        assert result.certified == (result.lower == result.upper)
        assert result.lower <= result.exact <= result.upper
        if result.certified:
            assert result.failure_probability == 0
        json.dumps(result.to_dict(), allow_nan=False)


def test_parameter_itself_on_a_decisive_set():
    net = Network([[[1.0]], [[2.0]]], [[0.5], [0.0]])
    result = functional_dimension(net)
    assert result.certified
    assert result.decisive
    assert result.exact == 3
    # no batch, however large, does more
    wide = Network.random((2, 4, 3, 1), 5)
    best = functional_dimension(wide)
    X = np.random.default_rng(0).normal(size=(3000, 2)) * 2.0 ** np.random.default_rng(1).uniform(-4, 8, (3000, 1))
    assert best.decisive
    assert functional_dimension(wide, X).exact <= best.exact <= best.bound("rescaling").value


@pytest.mark.parametrize("name", ["chain", "leaky", "through_origin", "opposite_neurons"])
def test_decisive_points_lie_in_the_regions_they_stand_for(name):
    net = case(name)
    found = decisive_set(net)
    assert found.complete
    signs = net.signs(found.X).signs
    assert (signs != 0).all()
    _, counts = np.unique(signs, axis=0, return_counts=True)
    assert (counts % (net.in_size + 1) == 0).all()


def test_many_inputs_are_sampled_and_said_to_be():
    net = Network.random((6, 4, 2), 0)
    result = functional_dimension(net)
    assert not result.decisive
    assert "sampled" in result.batch
    assert {b.name for b in result.bounds} == {"parameters", "rescaling", "fixed neurons", "orbit"}
    assert result.certified  # a shallow generic network reaches the bound of its rescalings
    assert result.exact == net.num_parameters - 4
    assert not functional_dimension(case("residual")).certified


def test_network_without_hidden_neurons():
    assert functional_dimension(case("affine")).exact == 8
    assert functional_dimension(case("affine"), np.zeros((1, 3))).exact == 2


def test_points_on_kinks_are_reported_and_left_out():
    net = Network([[[1.0]], [[1.0]]], [[-0.5], [0.0]])
    result = functional_dimension(net, [[0.5], [1.0], [2.0]])
    assert result.on_boundary == (0,)
    assert result.num_points == 2
    assert "1 points on kinks left out" in repr(result)
    with pytest.raises(NotGenericError, match="all 1 points lie on kinks"):
        functional_dimension(net, [[0.5]])
    with pytest.raises(NotGenericError):
        functional_dimension(case("all_zero"), np.ones((3, 2)))


def test_modules_that_load_are_exact():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1))
    X = np.random.default_rng(0).normal(size=(40, 2))
    result = functional_dimension(module, X)
    assert result.exact == result.numerical
    assert result.num_parameters == 21
    assert functional_dimension(module, torch.tensor(X).float()).exact is not None


def test_modules_that_do_not_load_are_numerical():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 5), nn.GELU(), nn.Linear(5, 1)).double()
    X = np.random.default_rng(0).normal(size=(40, 2))
    result = functional_dimension(module, X)
    assert result.exact is None
    assert result.lower is None
    assert not result.certified
    assert 0 < result.numerical <= 21
    with pytest.raises(UnsupportedModelError, match="GELU"):
        functional_dimension(module, X, exact=True)
    with pytest.raises(UnsupportedModelError, match="GELU"):
        functional_dimension(module)


def test_a_parametrised_weight_is_not_taken_for_a_parameter():
    torch.manual_seed(0)
    module = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 4)), nn.ReLU(), nn.Linear(4, 1)).double()
    result = functional_dimension(module, np.random.default_rng(0).normal(size=(30, 2)))
    assert result.exact is None
    assert result.num_parameters == sum(p.numel() for p in module.parameters()) == 21


def test_floats_only():
    result = functional_dimension(case("chain"), np.ones((2, 2)), exact=False)
    assert result.exact is None
    assert result.numerical > 0


def test_bad_input():
    net = case("chain")
    for bad in (np.full((2, 2), np.nan), np.zeros((0, 2)), np.zeros((2, 3)), np.zeros(2)):
        with pytest.raises(InputError):
            functional_dimension(net, bad)
    with pytest.raises(InputError):
        functional_dimension(42, np.zeros((1, 2)))
    with pytest.raises(UnsupportedModelError, match="model's own"):
        functional_dimension(case("convolutional").as_mlp(), np.zeros((1, 72)))
    with pytest.raises(TooLargeError, match=r"GiB.*kernel_spectrum"):
        functional_dimension(Network.random((784, 512, 512, 10), 0), np.zeros((1000, 784)))
    with pytest.raises(InputError, match="bound: expected one of"):
        functional_dimension(net, np.ones((2, 2))).bound("nonsense")


@pytest.mark.parametrize("name", ["chain", "convolutional", "residual", "leaky", "dead_layer"])
def test_blocks_and_sketches_agree_with_the_whole(name, monkeypatch):
    net = case(name)
    X = np.random.default_rng(0).normal(size=(4, net.in_size))
    monkeypatch.setattr(exact, "WIDE", 0)
    monkeypatch.setattr(functional, "WIDE", 0)
    parts = functional_dimension(net, X)
    monkeypatch.setattr(exact, "WIDE", 1 << 30)
    monkeypatch.setattr(functional, "WIDE", 1 << 30)
    whole = functional_dimension(net, X)
    assert (parts.exact, parts.numerical, parts.paper) == (whole.exact, whole.numerical, whole.paper)
    np.testing.assert_allclose(parts.singular_values, whole.singular_values, atol=1e-13 * whole.singular_values[0])
    assert parts.cutoff == pytest.approx(whole.cutoff)
    assert parts.failure_probability < 1e-12


def test_wide_jacobians_are_never_formed():
    net = Network.random((20, 60, 60, 2), 0)
    X = np.random.default_rng(0).normal(size=(15, 20))
    result = functional_dimension(net, X, limit=1 << 20)  # the Jacobian alone would take 1.2 MB
    assert result.certified
    assert result.exact == result.numerical == 30
    dead = Network(
        [net.weights[0], -np.abs(net.weights[1]), net.weights[2]], [*net.biases[:1], -np.ones(60), np.ones(2)]
    )
    low = functional_dimension(dead, X, limit=1 << 20)
    assert low.exact == low.numerical == 2 < low.upper
    assert 0 < low.failure_probability < 1e-25


def test_seed_changes_primes_and_not_the_answer():
    net = Network.random((8, 10, 10, 1), 0)
    X = np.random.default_rng(0).normal(size=(60, 8))
    a, b = functional_dimension(net, X, seed=1), functional_dimension(net, X, seed=2)
    assert a.exact == b.exact
    assert a.primes != b.primes
