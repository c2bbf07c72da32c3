"""Every condition of genericity: planted violations, random networks, brute force in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError, TooLargeError
from fiberscope.geometry.domains import Box, Plane, Space
from fiberscope.geometry.folds.fold_set import fold_set
from fiberscope.geometry.folds.genericity import genericity
from fiberscope.geometry.folds.masked_ranks import masked_ranks, product_rank
from fiberscope.geometry.regions import regions
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Clip
from fiberscope.network.operators import Dense
from fiberscope.testing import convolutional, residual
from fiberscope.testing.cases import DEGENERATE, degenerate
from fiberscope.testing.strategies import chains

SQUARE = Box.cube(2)
CONDITIONS = {
    "supertransversal",
    "masked_ranks",
    "no_zero_optimum",
    "distinct_functions",
    "transparent",
    "honest",
    "cancellation_free",
}


def failing(net: Network, domain: object = SQUARE) -> set[str]:
    found = genericity(net, domain)  # type: ignore[arg-type]
    assert set(found.conditions) == CONDITIONS
    for condition in found.conditions.values():
        assert condition.coverage
        assert (condition.holds is False) == bool(condition.reasons)
    return {name for name, condition in found.conditions.items() if condition.holds is False}


# --- random networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(1, 4, 3, 1), (2, 3, 2, 1), (2, 5, 4, 3, 2), (3, 4, 3, 1), (4, 3, 3, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_random_networks_are_generic_and_general(widths: tuple[int, ...], seed: int) -> None:
    found = genericity(Network.random(widths, seed), Box.cube(widths[0], -2, 2))
    assert found.generic and found.general and found.honest and found.cancellation_free
    assert all("negative" in reason for reason in found.reasons)  # only transparency is left to chance
    assert found.conditions["supertransversal"].exhaustive
    assert found.conditions["masked_ranks"].exhaustive == (sum(widths[1:-1]) <= 10)


@pytest.mark.parametrize("kind", sorted(set(DEGENERATE) - {"dead_layer"}))
def test_degenerate_networks_are_named_and_not_refused(kind: str) -> None:
    found = genericity(degenerate(kind), SQUARE)
    assert found.generic is False
    assert found.general is False
    assert all("neuron" in reason or "layer" in reason or "more like" in reason for reason in found.reasons)


def test_a_dead_layer_is_only_not_transparent() -> None:
    found = failing(degenerate("dead_layer"))
    assert found == {"transparent"}


# --- planted violations -----------------------------------------------------------------------------------------------


def test_three_lines_through_a_point() -> None:
    net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 3.0]], [[1.0, 2.0, 4.0]]], [np.zeros(3), [0.5]])
    assert failing(net) == {"supertransversal", "transparent"}
    (reason,) = genericity(net, SQUARE).conditions["supertransversal"].reasons
    names = " and ".join(f"neuron {i} of layer 1" for i in range(3))
    assert reason == f"{names} vanish on a cell of codimension 2, near (0, 0)"
    away = Network(net.weights, [[0.0, 0.0, 2.0**-40], [0.5]])
    assert "supertransversal" not in failing(away)


def test_rank_of_a_product() -> None:
    """The second layer sums up two units: its rows are multiples, its hyperplanes are not."""
    net = Network(
        [[[1.0, 0.25], [0.5, 1.0]], [[1.0, 3.0], [2.0, 6.0]], [[1.0, -1.5]]], [[0.1, 0.3], [-0.7, 0.2], [0.0]]
    )
    assert "masked_ranks" in failing(net)
    found = genericity(net, SQUARE)
    assert found.supertransversal and found.generic is False and found.general is False
    expected = "the weights of layer 2 with units [0, 1] of layer 2 have rank 1, at most 2"
    assert expected in found.conditions["masked_ranks"].reasons


def test_local_maximum_of_value_zero() -> None:
    """``relu(x) - 2 relu(x - 1/2) - 1/2`` is at most 0, and 0 at one point only."""
    net = Network([[[1.0], [1.0]], [[1.0, -2.0]], [[1.0]]], [[0.0, -0.5], [-0.5], [0.0]])
    found = genericity(net, Box.cube(1))
    assert found.conditions["no_zero_optimum"].reasons == ("neuron 0 of layer 2 has a local maximum 0 near (0.5)",)
    assert found.general is False
    turned = Network([net.weights[0], -net.weights[1], net.weights[2]], [net.biases[0], [0.5], [0.0]])
    assert "minimum" in genericity(turned, Box.cube(1)).conditions["no_zero_optimum"].reasons[0]
    raised = Network(net.weights, [[0.0, -0.5], [np.nextafter(-0.5, 0)], [0.0]])
    assert "no_zero_optimum" not in failing(raised, Box.cube(1))
    # On the border of the domain it does not count: the domain is open.
    assert "no_zero_optimum" not in failing(net, Box([-1.0], [0.5]))


def test_unit_that_vanishes_identically() -> None:
    net = Network([[[1.0, 0.5]], [[1.0]], [[1.0]]], [[0.25], [0.0], [0.0]])
    found = genericity(net, SQUARE)
    assert "neuron 0 of layer 2 vanishes identically" in found.conditions["no_zero_optimum"].reasons[0]
    assert "neuron 0 of layer 2 vanishes on a region" in found.conditions["supertransversal"].reasons[0]


def test_functions_that_are_multiples() -> None:
    """A second-layer unit that repeats a first-layer one, away from its bend."""
    net = Network([[[1.0, 0.25], [0.5, 1.0]], [[2.0, 0.0], [0.3, 1.1]], [[1.0, -1.5]]], [[0.1, 0.3], [0.0, 0.2], [0.0]])
    condition = genericity(net, SQUARE).conditions["distinct_functions"]
    assert condition.holds is False
    assert any("neuron 0 of layer 1" in r and "neuron 0 of layer 2" in r for r in condition.reasons)
    # Two second-layer units are constant where the first layer is off; that does not count.
    weights = [net.weights[0], [[2.0, 0.5], [0.3, 1.1]], net.weights[2]]
    general = Network(weights, [net.biases[0], [0.05, 0.2], [0.7]])
    assert genericity(general, SQUARE).general


def test_transparency_to_the_last_bit() -> None:
    """Units x and -x + t leave nothing uncovered for t >= 0, and a strip for t < 0."""
    for shift, expected in ((0.0, True), (2.0**-60, True), (-(2.0**-60), False)):
        net = Network([[[1.0, 0.5], [-1.0, -0.5]], [[1.0, 2.0]]], [[0.0, shift], [0.0]])
        assert genericity(net, SQUARE).transparent is expected
    leaky = Network([[[1.0, 0.5], [-1.0, -0.5]], [[1.0, 2.0]]], [[-0.5, -0.5], [0.0]], "leaky_relu")
    assert genericity(leaky, SQUARE).transparent is True
    mixed = Network(leaky.weights, leaky.biases, linear=[[True, False]])
    assert genericity(mixed, SQUARE).transparent is True


def test_crossing_without_bending() -> None:
    net = Network(
        [[[1.0, 0.25], [0.5, 1.0]], [[0.0, 1.5], [0.3, 1.1]], [[1.0, -1.5]]], [[0.1, 0.3], [-0.25, 0.2], [0.0]]
    )
    found = genericity(net, SQUARE)
    assert found.honest is False
    (reason,) = found.conditions["honest"].reasons
    assert "neuron 0 of layer 1 and neuron 0 of layer 2 cross without bending" in reason


def test_cancelling_neurons() -> None:
    net = Network([[[1.0, 0.5], [1.0, 0.5], [0.3, -1.0]], [[1.0, -1.0, 2.0]]], [[0.25, 0.25, 0.1], [0.0]])
    found = genericity(net, SQUARE)
    assert found.cancellation_free is False
    assert "neuron 0 of layer 1 and neuron 1 of layer 1" in found.conditions["cancellation_free"].reasons[0]
    assert fold_set(net, SQUARE).units.tolist() == [False, False, True]


# --- laws -------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(chains(inputs=st.integers(1, 2), max_width=3))
def test_answers_do_not_depend_on_names_and_scales(net: Network) -> None:
    rng = np.random.default_rng(0)
    hidden = net.widths[1:-1]
    other = permute(net, [rng.permutation(n) for n in hidden])
    other = rescale(other, [2.0 ** rng.integers(-3, 4, n) for n in hidden])
    domain = Box.cube(net.in_size)
    one, two = genericity(net, domain), genericity(other, domain)
    assert {k: c.holds for k, c in one.conditions.items()} == {k: c.holds for k, c in two.conditions.items()}


@settings(max_examples=30)
@given(chains(inputs=st.just(2), max_width=3))
def test_generic_parameters_are_honest_and_cancel_nothing(net: Network) -> None:
    """For ReLU: the masks of a leaky network never single out a unit, so that its paths may cancel."""
    found = genericity(net, SQUARE)
    leaky = any(node.slopes.any() for node in net.switches)
    if found.generic and found.conditions["masked_ranks"].exhaustive and not leaky:
        assert found.cancellation_free
        if found.general:
            assert found.honest


def test_general_and_transparent_networks_show_every_kink() -> None:
    """Lemma 1."""
    seen = 0
    for seed in range(30):
        complex = regions(Network.random((2, 5, 5, 1), seed), SQUARE)
        found = genericity(complex)
        if found.general and found.transparent:
            seen += 1
            one, two = fold_set(complex), fold_set(complex, surface="units")
            assert one.facets.tolist() == two.facets.tolist()
            assert one.is_surface
    assert seen >= 5


# --- masked ranks by brute force --------------------------------------------------------------------------------------


def rank(rows: list[list[Fraction]]) -> int:
    rows, found = [row[:] for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] / rows[found][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def masked_product(net: Network, first: int, masks: list[tuple[Fraction, ...]]) -> list[list[Fraction]]:
    table: list[list[Fraction]] | None = None
    for layer, mask in enumerate(masks, start=first):
        rows = [[Fraction(float(x)) for x in row] for row in net.weights[layer]]
        if table is not None:
            columns = list(zip(*table, strict=True))
            rows = [[sum((a * b for a, b in zip(row, c, strict=True)), Fraction(0)) for c in columns] for row in rows]
        table = [[m * x for x in row] for m, row in zip(mask, rows, strict=True)]
    assert table is not None
    return table


@settings(max_examples=30)
@given(chains(max_width=3, max_hidden=2))
def test_masked_ranks_against_fractions(net: Network) -> None:
    signs = net.num_signs
    patterns = np.array(list(product((False, True), repeat=signs)), dtype=bool).reshape(-1, signs)
    found = masked_ranks(net, patterns)
    assert found.complete
    failures = {(f.first, f.last, f.passing): (f.rank, f.expected) for f in found.failures}
    slopes = [[Fraction(float(s)) for s in node.slopes] for node in net.switches]
    options = [[tuple(Fraction(1) if on else s for on, s in zip(row, slope, strict=True))
                for row in product((False, True), repeat=len(slope))] for slope in slopes]  # fmt: skip
    options.append([(Fraction(1),) * net.out_size])
    expected = {}
    for first, last in combinations(range(len(net.weights) + 1), 2):
        for masks in product(*options[first:last]):
            passing = tuple(tuple(i for i, m in enumerate(mask) if m) for mask in masks)
            largest = min(net.widths[first], *map(len, passing))
            true = rank(masked_product(net, first, list(masks)))
            floats = [np.array([float(m) for m in mask]) for mask in masks]
            assert product_rank(net.weights[first:last], floats) == true
            if true < largest:
                expected[first + 1, last, passing] = (true, largest)
    assert failures == expected


def test_masked_ranks_say_when_they_stop() -> None:
    net = Network.random((3, 4, 4, 1), 0)
    patterns = np.random.default_rng(0).random((50, 8)) < 0.5
    full = masked_ranks(net, patterns)
    assert full.complete and full.failures == ()
    assert masked_ranks(net, patterns, limit=7).checked == 7
    assert not masked_ranks(net, patterns, limit=7).complete
    dead = Network([np.zeros((4, 3)), np.ones((1, 4))], [np.zeros(4), [0.0]])
    some = masked_ranks(dead, patterns[:, :4], failure_limit=3)
    assert len(some.failures) == 3 and not some.complete


def test_many_neurons_are_named_by_layers() -> None:
    net = Network([np.ones((8, 2)), np.ones((1, 8))], [np.zeros(8), [0.5]])
    (reason,) = genericity(net, SQUARE).conditions["supertransversal"].reasons
    assert reason == "neurons 0, 1, 2, 3, 4 and 3 more of layer 1 vanish on a cell of codimension 1, near (0, 0)"


# --- what is not asked ------------------------------------------------------------------------------------------------


def test_other_kinds_of_networks() -> None:
    pooled = genericity(convolutional(), Plane(np.zeros(72), np.eye(72)[0], np.eye(72)[1]))
    assert pooled.generic is None and pooled.transparent is None and pooled.reasons == ()
    assert "max pooling" in pooled.coverage["honest"]
    skip = genericity(residual(), Plane(np.zeros(4), np.eye(4)[0], np.eye(4)[1]))
    assert skip.masked_ranks is None and skip.supertransversal is not None
    assert "plain chain" in skip.coverage["masked_ranks"]


def test_too_many_inputs_are_sampled() -> None:
    found = genericity(Network.random((12, 5, 4, 1), 0), Box.cube(12))
    assert found.generic is None and found.general is None
    assert "random points" in found.coverage["transparent"]
    assert found.masked_ranks is True
    dark = Network([np.eye(12), np.ones((1, 12))], [np.full(12, -2.0), [0.0]])
    assert genericity(dark, Box.cube(12)).transparent is False
    with pytest.raises(TooLargeError):
        genericity(Network.random((12, 5, 1), 0), Space(12))


def test_an_interrupted_complex_is_refused() -> None:
    net = Network.random((3, 6, 5, 1), 0)
    partial = regions(net, Box.cube(3), limit=5)
    assert not partial.complete
    with pytest.raises(NotGenericError, match="interrupted"):
        genericity(partial)
    with pytest.raises(InputError, match="domain"):
        genericity(net)


def test_no_hidden_layer_and_plain_data() -> None:
    found = genericity(Network([[[1.0, 2.0]]], [[0.5]]), SQUARE)
    assert found.generic and found.general and found.transparent
    data = genericity(Network.random((2, 3, 1), 0), SQUARE).to_dict()
    assert set(data["conditions"]) == CONDITIONS
    assert {"holds", "coverage", "exhaustive", "reasons"} == set(data["conditions"]["honest"])


@pytest.mark.parametrize("size", [2.0, 1e6])
def test_the_parts_of_a_clip_are_no_units(size):
    """They are multiples of each other by construction, which says nothing of the model."""
    layers = [Affine(0, Dense([[1.0, 2.0], [2.0, -1.0]]), [0.5, 0.25]), Clip(1, 0.0, 6.0, (2,))]
    net = Network.from_nodes([*layers, Affine(2, Dense([[1.0, -1.0]]))], (2,))
    found = genericity(net, Box.cube(2, -size, size))
    assert found.generic is None and found.general is None and not found.reasons
    assert "take net.as_mlp()" in found.coverage["transparent"]
