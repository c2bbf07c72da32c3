"""Realisation, swap, permutation and reindexing costs against constrained least squares, and their laws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.swaps import CostMatrix, cheapest_permutation

from .cases import SCHEMES, constrained_least_squares, layers, random_layer, slow_costs


def close(a: np.ndarray | float, b: np.ndarray | float, scale: float = 1.0) -> bool:
    return bool(np.allclose(a, b, rtol=1e-7, atol=1e-8 * scale, equal_nan=True))


def scale_of(costs: np.ndarray) -> float:
    return 1 + float(costs[np.isfinite(costs)].max(initial=0.0))


@given(layers())
@settings(max_examples=150)
def test_costs_are_constrained_least_squares(classes: NeuronClasses) -> None:
    slow = slow_costs(classes)
    assert close(classes.costs.squares, slow, scale_of(slow))
    assert np.isfinite(classes.realization_costs).all()
    assert (classes.realization_costs <= np.linalg.norm(classes.layer.W, axis=1) * (1 + 1e-12) + 1e-12).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("d", "k"), [(40, 5), (40, 20), (40, 40)])
def test_every_way_of_factoring_agrees(scheme: str, d: int, k: int) -> None:
    """Fewer zeros than directions, more zeros, scales that are no mask, singular Gram matrices."""
    classes = NeuronClasses.from_arrays(*random_layer(3, 8, d, k, scheme))
    slow = slow_costs(classes)
    assert close(classes.costs.squares, slow, scale_of(slow))


@given(layers())
def test_the_sum_of_the_three_terms_is_the_swap_cost(classes: NeuronClasses) -> None:
    swaps, terms = classes.swap_costs(), classes.swap_terms()
    finite = np.isfinite(swaps)
    assert close(terms.total[finite], swaps[finite], scale_of(classes.costs.squares))
    assert np.isnan(terms.center[~finite]).all() and np.isnan(terms.total[~finite]).all()


@given(layers(("w", "syre", "sparse")))
def test_terms_are_those_of_the_lemma(classes: NeuronClasses) -> None:
    if classes.num_neurons < 2 or (classes.ranks < classes.rank).any():
        return
    v, r = classes.centers[:2], classes.trained[:2]
    si, sj = (np.linalg.inv(classes.gram(i)) for i in (0, 1))
    away = v[1] - v[0]
    terms, scale = classes.swap_terms(), scale_of(classes.costs.squares) * 10
    assert close(terms.center[0, 1], away @ (si + sj) @ away, scale)
    assert close(terms.cross[0, 1], 2 * away @ (si @ r[1] - sj @ r[0]), scale)
    assert close(terms.metric[0, 1], r[1] @ (si - sj) @ r[1] + r[0] @ (sj - si) @ r[0], scale)


@given(layers(), st.randoms(use_true_random=False))
def test_permutations(classes: NeuronClasses, random: object) -> None:
    m = classes.num_neurons
    order = list(range(m))
    random.shuffle(order)  # type: ignore[attr-defined]
    slow = slow_costs(classes)
    expected = sum(slow[i, order[i]] for i in range(m)) - np.trace(slow)
    assert close(classes.permutation_cost(order), expected, scale_of(slow))
    assert classes.permutation_cost(list(range(m))) == 0
    swaps = classes.swap_costs()
    assert np.array_equal(swaps, swaps.T) and (np.diagonal(swaps) == 0).all()
    for i, j in itertools.combinations(range(m), 2):
        transposition = list(range(m))
        transposition[i], transposition[j] = j, i
        assert close(classes.permutation_cost(transposition), swaps[i, j], scale_of(slow))


def test_what_no_weights_give_is_infinite() -> None:
    frozen = NeuronClasses.from_arrays(
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.zeros((3, 2)), np.ones((3, 2)), np.eye(2)
    )
    inf = np.inf
    assert frozen.costs.squares.tolist() == [[0, inf, 0], [inf, 0, inf], [0, inf, 0]]
    assert frozen.ranks.tolist() == [0, 0, 0]
    assert frozen.permutation_cost([2, 1, 0]) == 0 and frozen.permutation_cost([1, 0, 2]) == inf
    # one free entry, two directions: the reachable functions form a line
    line = NeuronClasses.from_arrays(np.zeros((2, 2)), [[1.0, 0.0], [0.0, 1.0]], np.ones((2, 2)), np.eye(2))
    assert line.ranks.tolist() == [1, 1] and line.swap_costs()[0, 1] == inf
    assert line.realization_cost([5.0, 0.0], 0) == 5 and line.realization_cost([5.0, 1e-3], 0) == inf


def test_close_to_singular_is_not_singular() -> None:
    """A Gram matrix with eigenvalue 1e-14 is far from trusted, but its factor has the singular value 1e-7."""
    basis = np.array([[np.cos(1e-7)], [np.sin(1e-7)]])
    classes = NeuronClasses.from_arrays(np.zeros((2, 2)), [[0.0, 1.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 0.0]], basis)
    assert classes.ranks.tolist() == [1, 1]
    assert np.isclose(classes.costs.squares[0, 1], 1e14, rtol=1e-6)
    exact = np.array([[1.0], [0.0]])
    assert NeuronClasses.from_arrays(np.zeros((1, 2)), [[0.0, 1.0]], np.ones((1, 2)), exact).ranks.tolist() == [0]


@given(layers(), st.integers(0, 10**6))
@settings(max_examples=60)
def test_reindexing_and_joint_costs(classes: NeuronClasses, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m, layer = classes.layer.width, classes.num_neurons, classes.layer
    tau, pi = rng.permutation(d), rng.permutation(m)
    moved = classes.basis[tau]  # a basis of the reindexed inputs, by definition
    targets = layer.effective @ classes.basis
    slow = np.array(
        [[constrained_least_squares(f, s, moved, a) for a in targets] for f, s in zip(layer.F, layer.D, strict=True)]
    )
    own, scale = classes.costs.own.sum(), scale_of(slow) + scale_of(classes.costs.squares)
    joint = classes.joint_cost(pi, tau)
    assert close(classes.reindexing_cost(tau), np.trace(slow) - own, scale)
    assert close(joint.total, slow[np.arange(m), pi].sum() - own, scale)
    if np.isfinite(np.trace(slow)):
        assert close(joint.total, joint.output + joint.input, scale)
    else:
        assert np.isnan(joint.output) and joint.input == np.inf


@given(layers())
@settings(max_examples=60)
def test_all_transpositions_of_inputs(classes: NeuronClasses) -> None:
    d = classes.layer.width
    found = classes.reindexing_costs()
    assert len(found.pairs) == d * (d - 1) // 2
    for pair, cost, displacement in zip(found.pairs, found.costs, found.displacements, strict=True):
        tau = np.arange(d)
        tau[pair] = tau[pair[::-1]]
        expected = classes.reindexing_cost(tau)
        size = 1 + classes.costs.own.sum() + (abs(expected) if np.isfinite(expected) else 0)
        assert close(cost, expected, 10 * size)
        assert close(displacement, np.linalg.norm(classes.layer.F @ (classes.basis[tau] - classes.basis)))
    some = classes.reindexing_costs([[0, d - 1]])
    assert d == 1 or close(some.costs[0], found.matrix(d)[0, d - 1], 10 * scale_of(found.costs))


@given(layers())
def test_gaps_and_coherence(classes: NeuronClasses) -> None:
    d, k = classes.basis.shape
    assert k / d <= classes.coherence <= 1
    assert np.isclose(classes.coherence, np.diag(classes.basis @ classes.basis.T).max())
    out, inward = classes.gaps
    pairs = list(itertools.combinations(classes.centers, 2))
    assert np.isclose(out.value, min((np.sqrt(2) * np.linalg.norm(a - b) for a, b in pairs), default=np.inf))
    assert np.isclose(inward.value, classes.reindexing_costs().displacements.min(initial=np.inf), atol=1e-12)
    assert np.allclose(classes.grams[-1], classes.basis.T @ np.diag(classes.layer.D[-1] ** 2) @ classes.basis)


SINGULAR = NeuronClasses.from_arrays(
    [[0.0, 0.0], [0.0, -0.73226735]],
    [[1.0, 1.0], [1.0, 0.0]],
    [[-0.37877545, 0.25568632], [0.92206727, 0.66968737]],
    np.array([[-0.19264633, -0.98126826], [-0.98126826, 0.19264633]]),
)
"""One Gram matrix has the eigenvalue zero, so that the bound of Theorem C.10 is infinite."""


@given(layers())
@example(SINGULAR)
@settings(max_examples=60)
def test_bounds_hold_where_they_are_finite(classes: NeuronClasses) -> None:
    swaps = classes.swap_sensitivities()
    scale = scale_of(classes.costs.squares)
    inside = np.isfinite(swaps.bound)
    assert (np.abs(swaps.exact[inside] - swaps.leading[inside]) <= swaps.bound[inside] + 1e-9 * scale).all()
    d = classes.layer.width
    tau = np.roll(np.arange(d), 1)
    one = classes.input_sensitivity(tau)
    assert not np.isfinite(one.bound) or abs(one.exact - one.leading) <= one.bound + 1e-9 * scale
    cycle = classes.output_sensitivity(np.roll(np.arange(classes.num_neurons), 1))
    assert not np.isfinite(cycle.bound) or abs(cycle.exact - cycle.leading) <= cycle.bound + 1e-9 * scale
    if classes.num_neurons > 1:
        least = classes.smallest_output_cost()
        assert least.lower - 1e-9 * scale <= least.exact <= least.upper + 1e-9 * scale
    if d > 1:
        least = classes.smallest_input_cost()
        assert least.lower - 1e-9 * scale <= least.exact <= least.upper + 1e-9 * scale


def test_the_regime_in_which_the_theorems_speak() -> None:
    """Large fixed parts, small trained ones, almost isotropic scales: the bounds are finite and not far off."""
    rng = np.random.default_rng(0)
    F, D = rng.normal(size=(12, 200)), rng.uniform(0.98, 1.02, (12, 200))
    W = 1e-2 * rng.normal(size=(12, 200))
    classes = NeuronClasses.from_arrays(F, D, W, np.linalg.qr(rng.normal(size=(200, 6)))[0])
    swaps = classes.swap_sensitivities()
    off = ~np.eye(12, dtype=bool)
    assert swaps.holds[off].all()
    assert (np.abs(swaps.exact - swaps.leading)[off] <= swaps.relative[off] * swaps.leading[off]).all()
    assert swaps.relative[off].max() < 0.3
    least = classes.smallest_output_cost()
    assert least.holds and 0 < least.lower <= least.exact <= least.upper < 2 * least.lower
    order = rng.permutation(12)
    one = classes.output_sensitivity(order)
    assert one.holds and abs(one.exact - one.leading) <= one.bound < one.relative * one.leading < 0.3 * one.leading


@given(st.integers(2, 5), st.integers(0, 10**6))
def test_the_cheapest_permutation_is_the_cheapest_of_all(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    squares = rng.random((m, m))
    squares[rng.random((m, m)) < 0.2] = np.inf
    np.fill_diagonal(squares, rng.random(m) * rng.choice([0.05, 1.0]))
    costs = CostMatrix(squares, np.ones(m, dtype=np.int64), np.ones(m), np.ones(m))
    found = cheapest_permutation(costs)
    orders = [p for p in itertools.permutations(range(m)) if p != tuple(range(m))]
    best = min(sum(squares[i, p[i]] - squares[i, i] for i in range(m)) for p in orders)
    assert close(found.cost, best)
    if np.isfinite(best):
        assert close(sum(squares[i, j] - squares[i, i] for i, j in enumerate(found.permutation)), best)


def test_concentration_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(300, 4)))[0]
    D = np.ones((200, 300))
    for row in D:
        row[rng.permutation(300)[:60]] = 0
    found = NeuronClasses.from_arrays(np.zeros_like(D), D, np.zeros_like(D), basis).concentration(0.5)
    direct = [np.linalg.norm(basis.T @ np.diag(row**2) @ basis - 0.8 * np.eye(4), 2) for row in D]
    assert np.allclose(found.deviations, direct) and np.isclose(found.mu, 0.8)
    assert np.isclose(found.variance, 0.16) and np.isclose(found.largest, 0.8)
    assert found.share >= 0.5 and found.epsilon <= found.uniform
    size = np.log(2 * 4 / 0.5)
    nu = found.coherence
    assert np.isclose(found.bound, np.sqrt(2 * 0.16 * nu * size) + 2 / 3 * 0.8 * nu * size)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([[1.0]], [[1.0]], [[1.0, 2.0]], [[1.0]]), "of one shape"),
        (([[1.0]], [[1.0]], [[1.0]], [[1.0], [0.0]]), "a basis with 1 rows"),
        (([[1.0, 0.0]], [[1.0, 1.0]], [[1.0, 1.0]], [[1.0], [1.0]]), "orthonormal"),
        (([[np.nan]], [[1.0]], [[1.0]], [[1.0]]), "finite"),
    ],
)
def test_bad_arrays(arrays: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NeuronClasses.from_arrays(*arrays)


def test_bad_questions() -> None:
    classes = NeuronClasses.from_arrays(*random_layer(0, 3, 4, 2, "w"))
    with pytest.raises(InputError, match=r"permutation of 0 to 2"):
        classes.permutation_cost([0, 0, 1])
    with pytest.raises(InputError, match=r"permutation of 0 to 3"):
        classes.reindexing_cost([0, 1])
    with pytest.raises(InputError, match="neuron"):
        classes.realization_cost([0.0, 0.0], 3)
    with pytest.raises(InputError, match="pairs"):
        classes.reindexing_costs([[0, 9]])
    with pytest.raises(InputError, match="delta"):
        classes.concentration(2.0)
    with pytest.raises(InputError, match="orthonormal"):
        fs.coherence([[2.0]])
