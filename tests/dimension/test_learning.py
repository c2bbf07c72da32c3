"""The local learning coefficient: gradients, the sampler against quadrature, models whose coefficient is known."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.dimension.learning.losses import Model, loss_and_slope, model_of
from fiberscope.errors import InputError, TooLargeError
from fiberscope.modules.stacked import StackedModule
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.langevin import between_and_within, langevin

X = np.random.default_rng(0).normal(size=(40, 2))


def linear(widths: tuple[int, ...], rank: int) -> nn.Sequential:
    """A deep linear network at its most singular parameter: every matrix has the rank of the product."""
    layers = []
    for a, b in itertools.pairwise(widths):
        layer = nn.Linear(a, b, bias=False, dtype=torch.float64)
        layer.weight.data = torch.eye(b, a, dtype=torch.float64) * (torch.arange(a) < rank)
        layers.append(layer)
    return nn.Sequential(*layers)


def reduced_rank(n: int, h: int, m: int, r: int) -> Fraction:
    """Aoyagi and Watanabe 2005, four cases, written out."""
    if n + r <= m + h and m + r <= n + h and h + r <= m + n:
        value = -((h + r) ** 2) - m**2 - n**2 + 2 * (h + r) * (m + n) + 2 * m * n
        return Fraction(value + (m + h + n + r) % 2, 8)
    if m + h < n + r:
        return Fraction(h * m - h * r + n * r, 2)
    if n + h < m + r:
        return Fraction(h * n - h * r + m * r, 2)
    return Fraction(m * n, 2)


def test_aoyagis_formula_for_two_layers() -> None:
    for n, h, m in itertools.product(range(1, 6), repeat=3):
        for r in range(min(n, h, m) + 1):
            assert fs.deep_linear_coefficient((n, h, m), r) == reduced_rank(n, h, m, r)


def test_known_values_of_deep_linear_networks() -> None:
    # a product of numbers at zero has one factor squared: 1/2 whatever the depth; regular ones have half their rank
    for depth in range(1, 6):
        assert fs.deep_linear_coefficient([1] * (depth + 1), 0) == Fraction(1, 2)
        assert fs.deep_linear_coefficient([3, *[9] * depth, 2], 2) == 3
    assert fs.deep_linear_coefficient((4, 3), 1) == 6  # one layer: all of its weights
    with pytest.raises(InputError, match="rank: expected 0 to 2"):
        fs.deep_linear_coefficient((3, 2, 3), 3)
    with pytest.raises(InputError, match="widths"):
        fs.deep_linear_coefficient((3,), 1)


@pytest.mark.parametrize("kind", ["mse", "cross_entropy"])
def test_losses_and_gradients_agree_with_torch_and_differences(kind: str) -> None:
    net = fs.Network.random((2, 3, 3, 2), 1)
    rng = np.random.default_rng(1)
    targets = rng.normal(size=(40, 2)) if kind == "mse" else rng.integers(0, 2, 40)
    module = net.to_torch().double()
    models: list[Model] = [model_of(net, X), StackedModule(module, X, 1 << 30)]
    at = models[0].center + 0.1 * rng.normal(size=(3, len(models[0].center)))
    for rows in (slice(None), np.array([3, 5, 8])):
        found = [model.loss(at, targets, kind, rows) for model in models]
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-12)
    step = 1e-6 * np.eye(at.shape[1])[4]
    value = [models[0].loss(at + s * step, targets, kind, slice(None))[0] for s in (1, -1)]
    slopes = models[0].loss(at, targets, kind, slice(None))[1]
    np.testing.assert_allclose((value[0] - value[1]) / 2e-6, slopes[:, 4], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(models[0].jacobian(), models[1].jacobian(), atol=1e-12)


def test_programs_that_are_no_chains_have_the_same_losses() -> None:
    shared = nn.Linear(2, 2, dtype=torch.float64)
    module = nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(2, 1, dtype=torch.float64))
    net = fs.load(module)
    models = model_of(net, X), StackedModule(module, X, 1 << 30)
    assert type(models[0]).__name__ == "_Program"
    at = models[0].center + 0.05 * np.random.default_rng(0).normal(size=(2, len(models[0].center)))
    found = [model.loss(at, np.zeros((40, 1)), "mse", slice(None)) for model in models]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-12)


def products(count: int, heat: float) -> tuple[float, float, float]:
    """``E n b K`` for ``K = (w_1 ... w_k)^2 / 2``, standard Gaussian: by draws with their error, by quadrature."""

    def potential(w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        product = w.prod(axis=1)
        others = np.stack([np.delete(w, i, axis=1).prod(axis=1) for i in range(count)], axis=1)
        energy = heat * product**2 / 2
        return energy + (w**2).sum(axis=1) / 2, heat * product[:, None] * others + w, energy

    rng = np.random.default_rng(3)
    found = langevin(
        potential, np.zeros((16, count)), draws=1000, burn_in=300, step=0.3, adjusted=True, rng=rng
    ).recorded
    means = found.mean(axis=1)
    x = np.geomspace(1e-5, 8, 160)
    weight = np.gradient(x) * np.exp(-(x**2) / 2)
    grid, mass = x, weight
    for _ in range(count - 1):
        grid, mass = np.multiply.outer(grid, x), np.multiply.outer(mass, weight)
    energy = heat * grid**2 / 2
    mass = mass * np.exp(-energy)
    return float(means.mean()), float(means.std(ddof=1) / 4), float((energy * mass).sum() / mass.sum())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_sampler_agrees_with_quadrature_at_singularities(count: int) -> None:
    estimate, error, exact = products(count, 1e3)
    assert error < 0.05 and abs(estimate - exact) < 4 * error + 0.01


def test_regular_models_have_half_their_parameters() -> None:
    """Linear regression, where everything is Gaussian: also with few data and a strong localisation."""
    net = fs.Network([[[1.0, 0.5], [-0.5, 2.0]]], [[0.2, 0.0]])
    for heat, pull in ((1e5, 1.0), (30.0, 20.0)):
        found = fs.learning_coefficient(net, X, nbeta=heat, localisation=pull, draws=400, burn_in=100)
        assert abs(found.estimate - found.quadratic) < 4 * found.standard_error
        assert found.standard_error < 0.2 and not found.warnings
        if heat > 1e3:
            assert abs(found.quadratic - 3) < 0.01


def test_sgld_comes_near_and_says_what_it_lacks() -> None:
    net = fs.Network([[[1.0, 0.5]]], [[0.2]])
    found = fs.learning_coefficient(net, X, nbeta=1e3, method="sgld", draws=1200, burn_in=300)
    assert abs(found.estimate - 1.5) < 4 * found.standard_error + 0.1 * 1.5
    assert "not corrected" in found.warnings[-1]
    part = fs.learning_coefficient(net, X, nbeta=1e3, method="sgld", batch_size=10, draws=1200, burn_in=300)
    assert abs(part.estimate - 1.5) < 0.5


def test_between_half_the_rank_and_half_of_what_the_fiber_leaves() -> None:
    """One hidden layer of ReLUs in general position: D = d + s, so that the coefficient is d / 2, a theorem."""
    net = fs.Network.random((2, 3, 1), 2)
    found = fs.explain(net)
    assert found.gap == 0
    batch = np.random.default_rng(1).normal(size=(80, 2)) * 3
    rank = fs.functional_dimension(net, batch, ranks="exact").exact
    assert rank == found.rank
    estimate = fs.learning_coefficient(net, batch, nbeta=1e7, draws=800, burn_in=300)
    assert abs(estimate.estimate - rank / 2) < 4 * estimate.standard_error + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("widths", "rank"), [((2, 2, 2), 0), ((3, 2, 3), 1), ((2, 2, 2, 2), 1)])
def test_deep_linear_networks(widths: tuple[int, ...], rank: int) -> None:
    """At the most singular parameter Aoyagi's value, which lies above half the rank; logarithms make up the rest."""
    points = np.random.default_rng(0).normal(size=(60, widths[0]))
    found = fs.learning_coefficient(linear(widths, rank), points, nbeta=1e5, chains=16, draws=2000)
    known = float(fs.deep_linear_coefficient(widths, rank))
    assert known - 0.35 < found.estimate < known + 0.15
    assert found.quadratic < known - 0.4


def test_chains_that_have_not_gone_along_the_arms_are_told() -> None:
    """A product of two matrices at zero has the coefficient 1.5 and no second derivatives; few draws stay near."""
    found = fs.learning_coefficient(linear((2, 2, 2), 0), X, nbeta=1e5, draws=200, burn_in=100)
    assert found.spread > 1.1 and "may be too low" in found.warnings[-1]
    assert found.quadratic == 0 < found.estimate


def test_a_parameter_that_is_no_minimum_is_told() -> None:
    net = fs.Network([[[1.0, 0.0]]], [[0.0]])
    found = fs.learning_coefficient(net, X, X[:, :1] + 5, draws=50, burn_in=50)
    assert found.estimate < 0 and "no minimum" in found.warnings[-1]


def test_chains_that_have_not_met_are_told() -> None:
    assert between_and_within(np.array([[0.0, 0.1, 0.0, 0.1], [5.0, 5.1, 5.0, 5.1]])) > 10
    assert between_and_within(np.zeros((2, 4))) == 1.0
    assert between_and_within(np.array([[0.0, 0.0], [1.0, 1.0]])) == np.inf


def test_the_same_seed_gives_the_same_answer() -> None:
    net = fs.Network.random((2, 2, 1), 0)
    found = [fs.learning_coefficient(net, X, draws=10, burn_in=5, seed=s) for s in (0, 0, 1)]
    assert found[0].estimate == found[1].estimate != found[2].estimate
    assert found[0].chains.shape == (8,)


def test_bad_input_is_named() -> None:
    net = fs.Network.random((2, 2, 2), 0)
    cases = [
        ({"loss": "hinge"}, "loss: expected 'mse' or 'cross_entropy'"),
        ({"method": "hmc"}, "method: expected"),
        ({"chains": 1}, "chains: expected an integer of at least 2"),
        ({"draws": 2}, "draws"),
        ({"batch_size": 5}, "batch_size: expected method='sgld'"),
        ({"nbeta": 0.0}, "nbeta: expected a positive number"),
        ({"nbeta": float("nan")}, "nbeta: expected a positive number"),
        ({"localisation": -1.0}, "localisation"),
        ({"step": 0.0}, "step"),
        ({"loss": "cross_entropy"}, "targets: expected labels"),
        ({"targets": np.zeros((40, 3))}, "targets: expected 2 numbers per point, got 3"),
        ({"targets": np.zeros(40), "loss": "cross_entropy"}, "targets: expected 40 labels"),
        ({"targets": np.full(40, 7), "loss": "cross_entropy"}, "targets: expected labels from 0 to 1"),
    ]
    for changes, text in cases:
        with pytest.raises(InputError, match=text):
            fs.learning_coefficient(net, X, **changes)  # type: ignore[arg-type]
    with pytest.raises(TooLargeError, match="GiB"):
        fs.learning_coefficient(net, X, memory=100)
    frozen = nn.Linear(2, 1)
    for value in frozen.parameters():
        value.requires_grad_(False)
    with pytest.raises(InputError, match="not frozen"):
        fs.learning_coefficient(frozen, X)


def test_what_is_not_a_number_is_refused_by_the_chain() -> None:
    """Moves into a place without values are not taken."""

    def potential(u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        inside = np.abs(u[:, 0]) < 1
        return np.where(inside, 0.0, np.nan), np.zeros_like(u), np.where(inside, u[:, 0] ** 2, np.nan)

    rng = np.random.default_rng(0)
    found = langevin(potential, np.zeros((4, 1)), draws=2000, burn_in=100, step=0.5, adjusted=True, rng=rng)
    assert np.isfinite(found.recorded).all() and abs(found.recorded.mean() - 1 / 3) < 0.05


def test_cross_entropy_of_equal_outputs() -> None:
    value, slope = loss_and_slope(np.zeros((1, 2, 2)), np.array([0, 1]), "cross_entropy")
    np.testing.assert_allclose(value, np.log(2))
    np.testing.assert_allclose(slope, [[[-0.25, 0.25], [0.25, -0.25]]])
