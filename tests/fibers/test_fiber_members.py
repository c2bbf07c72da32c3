"""Members of fibers: the same function, decided membership, paths inside."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fiber_cases import magnitude, tail, with_signs, worst_difference
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fiberscope import identical
from fiberscope.dimension.functional import functional_dimension
from fiberscope.equality.bottlenecks.rounded_transport import check_rounded, find_rounded
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.bottleneck import by_bottleneck
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.hidden_hyperplanes import flip, flip_matrix, hidden_hyperplane, hiding, lower_bound, translate
from fiberscope.fibers.members import _above
from fiberscope.fibers.nearby import without_spare
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.nodes import behind as nodes_behind
from fiberscope.network.operators import Dense
from fiberscope.testing.assertions import assert_same_function, fraction_values
from fiberscope.testing.cases import case
from fiberscope.testing.strategies import chains

LIMIT = 1e-10


@st.composite
def bottlenecks(draw):
    """Sign patterns of all kinds: free ones, hidden hyperplanes, linear and dead rows."""
    n1, n2, m = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    signs = rng.choice([-1, 1], (n2, n1 + 1))
    kind = draw(st.sampled_from(["any", "hidden", "linear", "dead", "mirror"]))
    if kind == "hidden":
        signs[:] = -1
        signs[:, rng.integers(n1)] = 1
    elif kind == "linear":
        signs[: max(1, n2 // 2)] = 1
    elif kind == "dead":
        signs[0] = -1
    elif kind == "mirror":
        signs[:, :-1], signs[:, -1] = -1, 1
    return with_signs(n1 + draw(st.integers(0, 1)), signs, m, rng)


@given(bottlenecks(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_members_are_the_same_function(net, seed):
    found = fiber(net)
    assert found.dimension >= found.identifiability.fiber_dimension
    for other in found.sample(3, seed):
        assert other.widths == net.widths
        assert worst_difference(net, other, 300) < LIMIT


NOTHING_TO_CARRY = Network(  # with neuron 2 reversed, the linear neuron has to realise the zero map
    [
        [[-0.027271763074256376, 0.0, 0.0], [0.0, 0.0, -0.3999360479976158]],
        [[0.0, 0.0], [1.065642068836774, 0.0], [0.0, -2.129272570790053]],
        [[0.34266017922043096, 0.0, 0.0]],
    ],
    [[0.0, 0.0], [-0.18678578655964087, 0.0, 1.0960877069287276], [0.0]],
)


@given(chains(max_width=3), st.integers(0, 1000))
@example(NOTHING_TO_CARRY, 0)
@settings(max_examples=60, deadline=None)
def test_members_of_degenerate_networks_are_the_same_function(net, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, net.in_size)) * 2.0 ** rng.integers(-3, 4, (200, 1))
    for other in fiber(net).sample(2, seed):
        scale = magnitude(net, X) + magnitude(other, X) + 1e-300
        assert (np.abs(net(X) - other(X)) / scale).max() < LIMIT


@pytest.mark.parametrize("size", [1e-200, 1e160, 1e300])
def test_numbers_at_the_ends_of_the_range_of_floats(size):
    # products of weights and constants overflow or vanish: a move that would is not made
    linear, dead, hidden = [[1, 1, 1], [1, 1, 1], [-1, 1, -1]], [[-1, -1, -1], [1, -1, 1]], [[1, -1, -1]] * 2
    for signs in ([[1, 1, 1], [1, -1, 1]], linear, dead, hidden, [[-1, -1, 1]] * 2):
        net = with_signs(2, signs, 2, 7)
        W1, W2, W3 = net.weights
        big = Network([W1, size * W2, size * W3], [net.biases[0], size * net.biases[1], net.biases[2]])
        for other in fiber(big).sample(3, 0):
            assert other.widths == big.widths
            for x in np.random.default_rng(1).normal(size=(5, big.in_size)):
                left, right = fraction_values(big, x)[-1], fraction_values(other, x)[-1]
                # what the outputs are added up from, without the scales that floats lose
                scale = Fraction(float(magnitude(net, x).max())) * Fraction(size) ** 2 + 1
                assert max(abs(p - q) for p, q in zip(left, right, strict=True)) <= Fraction(1e-10) * scale


def test_ten_thousand_inputs_on_every_kind():
    for signs in ([[1, -1, -1]], [[1, -1, -1]] * 2, [[1, 1, 1], [1, -1, 1]], [[-1, -1, -1], [1, -1, 1]]):
        net = with_signs(3, signs, 2, 5)
        for other in fiber(net).sample(3, 1):
            assert worst_difference(net, other, 5000) < LIMIT


def test_dyadic_translations_and_flips_are_exact():
    rng = np.random.default_rng(0)
    W1, b1 = rng.integers(-8, 9, (3, 3)) / 4, rng.integers(-8, 9, 3) / 4
    net = Network([W1, [[1.0, -2.0, -0.5]], [[3.0]]], [b1, [-2.0], [0.25]])
    X = rng.integers(-64, 65, (200, 3)) / 8
    for S in ((), (1,), (2,), (1, 2)):
        other = Network(*translate(*flip(net.weights, net.biases, 0, 0, S), 0, 0, 1.75))
        assert_same_function(net, other, X)
        assert_same_function(net, Network(*translate(net.weights, net.biases, 0, 0, -1.99)), X)


def test_translation_beyond_its_bound_changes_the_function():
    net = with_signs(3, [[1, -1, -1], [1, -1, -1]], 1, 3)
    bound = lower_bound(net.weights[1], net.biases[1], 0)
    assert bound < 0
    just = Network(*translate(net.weights, net.biases, 0, 0, 0.99 * bound))
    beyond = Network(*translate(net.weights, net.biases, 0, 0, 1.5 * bound))
    assert worst_difference(net, just) < LIMIT < 1e-4 < worst_difference(net, beyond)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_flip_group_law(n):
    others = range(1, n)
    sets = [S for k in range(n) for S in itertools.combinations(others, k)]
    for S, T in itertools.product(sets, sets):
        both = tuple(sorted(set(S) ^ set(T)))
        np.testing.assert_array_equal(flip_matrix(n, 0, S) @ flip_matrix(n, 0, T), flip_matrix(n, 0, both))
    with pytest.raises(InputError, match="flips"):
        flip_matrix(n, 0, [0])


def test_hiding_needs_strict_signs():
    W = np.array([[1.0, -1.0], [2.0, -3.0]])
    assert hidden_hyperplane(W, np.array([-1.0, -1.0])) == 0
    assert hidden_hyperplane(W, np.array([-1.0, 0.0])) is None
    assert hidden_hyperplane(W * [[1, 1], [-1, -1]], np.array([-1.0, -1.0])) is None
    assert hidden_hyperplane(W[:0], np.zeros(0)) is None
    assert hiding(np.array([[1.0, 0.0]]), np.array([-1.0])).tolist() == [[False, False]]


def test_components_of_the_single_neuron_case():
    net = with_signs(4, [[-1, 1, -1, -1]], 1, 0)
    found = fiber(net)
    assert [c.flipped for c in found.components] == [(), (0,), (2,), (0, 2)]
    assert found.complete and found.dimension == 1
    assert len(fiber(with_signs(4, [[-1, 1, -1, -1]] * 2, 1, 0)).components) == 1
    # a dead row comes off first: the single-neuron case again, but no longer minimal
    dead = fiber(with_signs(4, [[-1, 1, -1, -1], [-1, -1, -1, -1]], 1, 0))
    assert len(dead.components) == 4 and not dead.complete and dead.dimension == 1 + 3 + 1


@pytest.mark.parametrize("signs", [[[1, -1, -1, -1]], [[1, -1, -1, -1]] * 3, [[1, -1, -1, 1], [1, 1, -1, -1]]])
def test_contains_members_and_not_others(signs):
    net = with_signs(5, signs, 2, 2)
    found = fiber(net)
    for other in found.sample(4, 3):
        assert found.contains(other).contained is True
    weights = [w.copy() for w in net.weights]
    weights[1][0, 0] *= 1.01
    assert found.contains(Network(weights, net.biases)).contained is False
    small = found.contains(Network.random((5, 2, 1, 2), 0))
    assert small.contained is False and "architecture" in small.reason
    with pytest.raises(InputError, match="Network"):
        found.contains(3)


def test_transport_reads_flips_and_translation():
    net = with_signs(5, [[1, -1, -1, -1]], 1, 0)
    moved = translate(*flip(net.weights, net.biases, 0, 0, (1, 2)), 0, 0, 0.5)
    other = Symmetry.random(net.widths, 1)(Network(*moved))
    found = find_rounded(net, other)
    assert found is not None and found.flips == (1, 2) and float(found.translation) == pytest.approx(0.5)
    assert check_rounded(net, other, found).equal is True
    stranger = with_signs(5, [[1, -1, -1, -1]], 1, 9)
    assert check_rounded(net, stranger, find_rounded(net, stranger)) is None


def test_a_member_that_is_not_generic_is_contained():
    """x1 - x2 + relu(x1-2 x2+.3) = relu(y) - relu(-y) + .7 + relu(x1-2 x2+.3), y = x1-x2-.7, on the orthant."""
    net = tail([[1, 0], [0, 1], [1, -2]], [0, 0, 0.3], [[1, -1, 1]], [0.0])
    other = tail([[1, -1], [-1, 1], [1, -2]], [-0.7, 0.7, 0.3], [[1, -1, 1]], [0.7])
    assert fiber(net).contains(other).contained is True


def check_path(net, other, path):
    assert path is not None
    members = path.networks(9)
    for place, target in ((0, net), (-1, other)):
        for mine, theirs in zip(members[place].weights, target.weights, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-8)
    for one in members:
        assert worst_difference(net, one, 300) < 1e-8
    steps = [
        max(np.abs(a - b).max() for a, b in zip(p.weights, q.weights, strict=True))
        for p, q in itertools.pairwise(path.networks(65))
    ]
    assert max(steps) < 2.0  # no jump


def test_paths_along_rescalings_translations_and_linear_blocks():
    rescaled = with_signs(3, [[1, -1, 1], [-1, 1, 1]], 1, 0)
    scale = Symmetry([np.arange(2), np.arange(2)], [[2.0, 0.5], [4.0, 1.0]])
    check_path(rescaled, scale(rescaled), fiber(rescaled).path(scale(rescaled)))

    hidden = with_signs(3, [[1, -1, -1], [1, -1, -1]], 1, 0)
    moved = scale(Network(*translate(hidden.weights, hidden.biases, 0, 0, 0.75)))
    check_path(hidden, moved, fiber(hidden).path(moved))

    linear = with_signs(3, [[1, 1, 1], [1, 1, 1], [1, -1, 1]], 2, 0)
    weights, biases = [w.copy() for w in linear.weights], [b.copy() for b in linear.biases]
    M = np.array([[1.0, 0.5], [0.25, 1.0]])
    weights[1][:2], weights[2][:, :2] = M @ weights[1][:2], weights[2][:, :2] @ np.linalg.inv(M)
    biases[1][:2] = M @ biases[1][:2]
    mixed = Network(weights, biases)
    check_path(linear, mixed, fiber(linear).path(mixed))


def test_what_is_known_where_there_is_no_path():
    net = Network.random((2, 3, 1), 0)
    flipped = with_signs(3, [[1, -1, -1]], 1, 0)
    other = Network(*flip(flipped.weights, flipped.biases, 0, 0, (1,)))
    answer = fiber(flipped).connection(other)
    assert answer.path is None and "neuron 1 of layer 1 is reversed" in answer.reason and not answer
    stranger = fiber(net).connection(Network.random((2, 3, 1), 1))
    assert stranger.connected is False and "not a member" in stranger.reason
    with pytest.raises(InputError, match="from 0 to 1"):
        fiber(net).path(net)(2.0)


def test_a_permuted_copy_is_reached_up_to_its_order():
    net = Network.random((2, 3, 1), 0)
    swapped = Symmetry([[1, 2, 0]], [[1.0, 2.0, 4.0]])(net)
    found = fiber(net).connection(swapped)
    assert found and "permutation" in found.reason
    end = Symmetry(found.path.permutations, [np.ones(3)])(swapped)
    assert identical(found.path(1.0), end) and identical(found.path(0.0), net)
    np.testing.assert_allclose(end.weights[0], net.weights[0] * np.array([4.0, 1.0, 2.0])[:, None])


JOINED = {  # signs of the second layer, and whether members of other components are drawn as well
    "rigid": ([[1, -1, 1], [-1, 1, -1]], False),
    "hidden": ([[1, -1, -1]] * 2, False),
    "hidden, one neuron": ([[1, -1, -1, -1]], True),
    "dead and hidden": ([[1, -1, -1]] * 2 + [[-1, -1, -1]], False),
    "linear": ([[1, 1, 1], [1, -1, 1]], True),
    "linear block": ([[1, 1, 1]] * 2 + [[1, -1, 1]], True),
    "linear block of three": ([[1, 1, 1, 1]] * 3 + [[1, -1, 1, -1]], True),
    "dead": ([[-1, -1, -1], [1, -1, 1]], False),
    "constant": ([[-1, -1, -1]] * 2, False),
    "mirror": ([[-1, 1], [-1, 1]], True),
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_all_members_of_one_component_are_joined(name, outputs):
    signs, several = JOINED[name]
    net = with_signs(4, signs, outputs, 5)
    found = fiber(net)
    joined = 0
    for other in found.sample(8, 1):
        answer = found.connection(other)
        if not answer:
            assert several and len(found.components) > 1 and "is reversed" in answer.reason, answer
            assert (answer.connected is False) == found.complete == ("another component" in answer.reason), answer
            continue
        joined += 1
        check_ends_and_members(net, other, answer.path)
    assert joined >= 1 if several else joined == 8


def check_ends_and_members(net, other, path):
    end = Symmetry(path.permutations, [np.ones(len(p)) for p in path.permutations])(other)
    assert identical(path(0.0), net) and identical(path(1.0), end)
    for one in path.networks(9):
        assert worst_difference(net, one, 200) < 1e-8
    places = np.linspace(0, 1, 9)
    for s in places[:-1] + 0.01:  # no jump: the closer, the nearer
        near, far = (distance_of(path(s), path(s + step)) for step in (1e-9, 1e-4))
        assert near < 1e-4 and near <= far + 1e-12


def distance_of(a, b):
    pairs = zip((*a.weights, *a.biases), (*b.weights, *b.biases), strict=True)
    return max(np.abs(x - y).max() / (1 + np.abs(x).max()) for x, y in pairs)


def test_the_two_orientations_of_a_cone_of_outgoing_weights_are_joined():
    """One output and two linear neurons whose outgoing weights have opposite signs: one row more than outputs."""
    net = tail([[1, 2, 0.5, 1], [0.3, 1, 2, 1], [1, -1, 1, -1]], [1, 0.5, 0.2], [[1, -1, 2]], [0.0])
    found = fiber(net)
    answers = [(other, found.connection(other)) for other in found.sample(12, 1)]
    assert sum(bool(answer) for _, answer in answers) >= 4
    for other, answer in answers:
        if answer:
            check_ends_and_members(net, other, answer.path)
        else:
            assert answer.connected is None and answer.reason.endswith("is reversed")


def test_paths_of_one_hidden_layer_with_spare_neurons():
    net = Network([np.vstack([np.eye(2), np.zeros((3, 2))]), np.ones((1, 5))], [-np.ones(5), [0.5]])
    found = fiber(net)
    assert found.dimension == 6 == max(c.dimension for c in found.assignments()) and found.dimension_exact
    answers = [(other, found.connection(other)) for other in found.sample(20, 1)]
    assert sum(bool(answer) for _, answer in answers) >= 10
    for other, answer in answers:
        apart = answer.connected is False and "different components" in answer.reason
        assert answer or apart or "through groups are not written" in answer.reason
        if answer:
            check_ends_and_members(net, other, answer.path)


@given(bottlenecks(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_members_are_joined_or_the_answer_says_why_not(net, seed):
    found = fiber(net)
    for other in found.sample(2, seed):
        answer = found.connection(other)
        assert answer.reason
        if answer:
            check_ends_and_members(net, other, answer.path)
        else:
            assert (found.path(other) is None and len(found.components) > 1) or not found.complete, answer
            assert answer.connected is None or (found.complete and "among generic parameters" in answer.reason)


def test_orientations_of_linear_blocks_are_sampled():
    net = with_signs(3, [[1, 1, 1], [1, 1, 1], [1, -1, 1]], 2, 0)  # ell = d = 2: every orientation
    found = fiber(net)
    assert [c.flipped for c in found.components] == [(), (2,)] and found.complete
    reversed_rows = sum(((m.weights[1] > 0).sum(axis=1) == 1).sum() for m in found.sample(6, 0))
    assert reversed_rows == 6
    assert found.dimension == 4


def test_outside_the_theorems_known_symmetries_are_sampled():
    rng = np.random.default_rng(0)
    net = Network(
        [
            rng.normal(size=(3, 2)),
            [[1.0, -2.0, -1.0], [3.0, -1.0, -1.0]],
            [[1.0, -1.0], [-1.0, 2.0]],
            rng.normal(size=(1, 2)),
        ],
        [rng.normal(size=3), [-1.0, -0.5], [0.5, 0.25], [0.0]],
    )
    found = fiber(net)
    assert found.dimension == 1 and not found.complete and found.components[0].dimension == 1
    found = replace(found, components=found.components[:1])  # without the rows that can be deformed
    before = net.biases[1] / np.abs(net.weights[1]).max(axis=1)
    for other in found.sample(3, 0):
        assert worst_difference(net, other) < LIMIT
        after = np.sort(other.biases[1] / np.abs(other.weights[1]).max(axis=1))
        assert np.abs(after - np.sort(before)).max() > 1e-3


def test_samples_need_a_count_and_follow_their_seed():
    found = fiber(with_signs(3, [[1, 1, 1], [1, -1, 1]], 1, 0))
    a, b = found.sample(2, 7), found.sample(2, 7)
    assert all((x == y).all() for p, q in zip(a, b, strict=True) for x, y in zip(p.weights, q.weights, strict=True))
    assert found.sample(0) == [] and "component" in repr(found)
    assert found.to_dict()["components"][0]["theorem"]
    for wrong in (-1, 1.5, "2"):
        with pytest.raises(InputError, match="count"):
            found.sample(wrong)


def test_unrolled_views_have_no_fiber():
    for name in ("convolutional", "residual"):
        for net in (case(name), case(name).as_mlp()):
            with pytest.raises(UnsupportedModelError):
                fiber(net)
    with pytest.raises(UnsupportedModelError, match="as_mlp"):
        fiber(case("convolutional").as_mlp())


@pytest.mark.parametrize(
    "signs", [[[1, -1, -1, -1]], [[1, -1, -1, -1]] * 3, [[1, -1, -1, 1], [1, 1, -1, -1], [1, 1, 1, 1]]]
)
def test_the_rung_of_the_ladder_proves_members_equal_and_nothing_else(signs):
    net = with_signs(5, signs, 2, 4)
    for other in fiber(net).sample(3, 0):
        found = by_bottleneck(Question.of(net, other, None, None, None, 0))
        assert found is not None and found.equal is True and found.method == "bottleneck"
        exact = by_bottleneck(Question.of(net, other, None, 0.0, None, 0))
        assert exact is None or exact.equal is False or exact.bound == 0  # members round, mostly
    for layer in range(3):
        weights = [w.copy() for w in net.weights]
        weights[layer][0, 0] *= 1 + 1e-9
        found = by_bottleneck(Question.of(net, Network(weights, net.biases), None, None, None, 0))
        assert found is not None and found.equal is False and found.counterexample is not None


def test_path_and_membership_of_a_bottleneck_beyond_three_inputs():
    net = with_signs(6, [[1, -1, -1, -1]] * 2, 1, 1)
    other = Network(*translate(net.weights, net.biases, 0, 0, 2.5))
    found = fiber(net)
    assert found.contains(other)
    check_path(net, other, found.path(other))


def test_shared_and_cancelling_hyperplanes_move_as_definition_22_says():
    """Neurons 0 and 1 share a weight, 2 and 3 cancel, 4 is read by nobody: free are m, d + m and d parameters."""
    W = [[1, -1, 2], [2, -2, 4], [-1, 1, 1], [-2, 2, 2], [3, -1, 1], [1, 2, -1]]
    b = [0.5, 1, 0.25, 0.5, -1, 0.5]
    V = np.array([[1, 1, 1, -0.5, 0, 2], [2, 1, -2, 1, 0, 1.0]])
    net = tail(W, b, V, [0.5, -0.5])
    found = fiber(net)
    assert [c.dimension for c in found.components] == [2 + (3 + 2) + 3] and not found.complete
    # two hyperplanes need two neurons: four others may be dead, with d + m free numbers each
    assert found.dimension == 4 * (3 + 2) and not found.dimension_exact
    assert found.identifiability.identifiable is False
    for other in found.sample(5, 0):
        assert worst_difference(net, other) < 1e-13
        moved = sorted(np.round(row / np.abs(row).max(), 6).tolist() for row in other.weights[1])
        assert moved != sorted(np.round(np.divide(row, np.abs(row).max()), 6).tolist() for row in np.array(W))


def test_no_random_translation_crosses_its_bound():
    """Translations are rounded to few bits; drawn close to the bound they must stay on the right side of it."""
    rng = np.random.default_rng(0)
    bounds = -rng.uniform(0.25, 2.0, 20_000)
    assert all(_above(bound, rng) > bound for bound in bounds)
    net = with_signs(5, [[1, -1, -1, -1, -1]] * 5, 2, 1328)
    for other in fiber(net).sample(60, 0):
        assert hidden_hyperplane(other.weights[1], other.biases[1]) is not None
        assert worst_difference(net, other, 200) < LIMIT


def deep_case(rng):
    """Four hidden layers: doubled neurons, linear ones, dead ones, and a hidden hyperplane with one reader."""
    W1, b1 = rng.normal(size=(4, 3)), rng.normal(size=4)
    W1[3], b1[3] = 2 * W1[2], 2 * b1[2]  # doubled
    W2 = rng.normal(size=(4, 4))
    W2[0], W2[1] = rng.uniform(0.5, 2, 4), rng.uniform(0.5, 2, 4)  # linear
    W2[2] = -rng.uniform(0.5, 2, 4)  # dead
    b2 = np.array([0.5, 1.0, -1.0, 0.3])
    W3, b3 = rng.normal(size=(3, 4)), rng.normal(size=3)
    W4, b4 = np.array([[2.0, -1.0, -0.5]]), np.array([-0.25])  # hides neuron 0 of layer 3
    return Network([W1, W2, W3, W4, rng.normal(size=(2, 1))], [b1, b2, b3, b4, rng.normal(size=2)])


@pytest.mark.parametrize("seed", range(3))
def test_all_known_symmetries_of_a_deep_network_are_applied(seed):
    net = deep_case(np.random.default_rng(seed))
    found = fiber(net)
    kinds = {(s.kind, s.layer) for s in found.identifiability.symmetries}
    assert {("coincident", 1), ("linear", 2), ("dead", 2), ("hidden", 3)} <= kinds
    assert not found.complete and found.dimension is None and found.identifiability.identifiable is None
    X = np.random.default_rng(1).normal(size=(3000, 3)) * 4
    rows = []
    for other in found.sample(12, seed):
        gap = np.abs(net(X) - other(X)) / (magnitude(net, X) + magnitude(other, X))
        assert gap.max() < LIMIT
        # the doubled row is still there; its neurons share the weights of the next layer anew
        unit = other.weights[1] / np.abs(other.weights[1]).max(axis=1, keepdims=True)
        rows.append(np.sort(unit.ravel()))
    assert np.abs(rows[0] - rows[1]).max() > 1e-3  # linear neurons mixed
    below = free_directions_of(net)
    assert 0 < found.components[0].dimension <= below


def test_reflections_outside_the_theorems():
    """The first layer is wider than the input, and one neuron hides its hyperplane 0: the others are reflected."""
    rng = np.random.default_rng(0)
    net = Network([rng.normal(size=(3, 2)), [[1.0, -2.0, -1.0]], [[1.0]]], [rng.normal(size=3), [-1.0], [0.0]])
    original = np.column_stack([net.weights[0], net.biases[0]])[1:]
    turned = set()
    for other in fiber(net).sample(20, 0):
        assert worst_difference(net, other) < LIMIT
        rows = np.column_stack([other.weights[0], other.biases[0]])
        angles = (rows @ original.T) / np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(original, axis=1))
        turned.add(tuple((angles < -1 + 1e-12).any(axis=0).tolist()))
    assert len(turned) == 4


def free_directions_of(net):
    """``D - N - functional dimension`` on random inputs: no family of symmetries is larger."""
    X = np.random.default_rng(0).normal(size=(600, net.in_size)) * 2.0 ** np.random.default_rng(1).integers(
        -2, 4, (600, 1)
    )
    return net.num_parameters - net.num_hidden - functional_dimension(net, X).exact


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_known_symmetries_of_random_degenerate_deep_networks(seed):
    rng = np.random.default_rng(seed)
    widths = (2, *rng.integers(1, 4, 3).tolist(), 1)
    net = Network(
        [rng.integers(-2, 3, (n, m)) / 2 for m, n in itertools.pairwise(widths)],
        [rng.integers(-2, 3, n) / 2 for n in widths[1:]],
    )
    X = rng.normal(size=(400, 2)) * 2.0 ** rng.integers(-2, 4, (400, 1))
    for other in fiber(net).sample(3, seed):
        scale = magnitude(net, X) + magnitude(other, X) + 1e-300
        assert (np.abs(net(X) - other(X)) / scale).max() < LIMIT


@pytest.mark.parametrize("seed", range(4))
def test_reversing_one_of_two_neurons_on_a_hyperplane_keeps_the_function(seed):
    """Weight moves between neurons of one orientation only, and the orientation is that of the member."""
    net = Network(
        [np.eye(2), [[-2.0, 2.0], [0.0, 1.0], [-1.0, 1.0]], [[-1.0, 2.0, 0.0]]], [[0.0] * 2, [0.0] * 3, [0.0]]
    )
    X = np.random.default_rng(seed).normal(size=(50, 2))
    for member in fiber(net).sample(12, seed):
        np.testing.assert_allclose(member(X), net(X), atol=1e-9)


def test_a_tolerance_does_not_reach_what_stands_before_the_chain():
    """The first of two affine maps in a row is no part of the chain: it must be the same, and not only the chain."""
    front, W = np.array([[1.0, 0.5], [0.0, 1.0]]), [[[1.0, 2.0], [0.5, -1.0]], [[1.0, 3.0]]]

    def behind(matrix):
        tail = Network(W, [[0.25, 0.5], [0.0]])
        return Network.from_nodes([Affine(0, Dense(matrix)), *nodes_behind(tail.nodes, 1)], (2,))

    mine = fiber(behind(front))
    assert mine.contains(behind(front), tolerance=1e-6)
    assert mine.contains(behind(front + np.eye(2)), tolerance=1e-6).contained is False


def test_neurons_that_add_nothing_are_left_out_of_a_comparison():
    one = Network([[[1.0], [3.0], [0.0]], [[1.0, 2.0, 5.0]], [[1.0]]], [[0.5, 1.5, 2.0], [0.0], [0.0]])
    two = Network([[[1.0], [0.0], [0.0]], [[7.0, 0.0, 1.0]], [[1.0]]], [[0.5, -1.0, 10.0], [0.0], [0.0]])
    X = np.linspace(-3, 3, 31)[:, None]
    assert np.array_equal(one(X), two(X)) and fiber(one).contains(two, tolerance=1e-9)
    assert np.abs(without_spare(one, 1e-9)(X) - one(X)).max() < 1e-12
    other = Network([[[1.0], [0.0], [0.0]], [[7.5, 0.0, 1.0]], [[1.0]]], two.biases)
    assert fiber(one).contains(other, tolerance=1e-9).contained is False
