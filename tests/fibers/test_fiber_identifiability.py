"""Identifiability against brute force, and the exact fraction against enumeration of sign patterns."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from fiber_cases import free_directions, with_signs, worst_difference

from fiberscope.errors import FiberscopeError, InputError, UnsupportedModelError
from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.identifiability import identifiability, identifiable_fraction
from fiberscope.fibers.members import reflected
from fiberscope.network.network import Network
from fiberscope.testing.cases import case


def patterns(n1, n2):
    for signs in itertools.product((-1, 1), repeat=(n1 + 1) * n2):
        yield np.array(signs).reshape(n2, n1 + 1)


@pytest.mark.parametrize(("n1", "n2"), [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
def test_fraction_by_enumeration(n1, n2):
    every = list(patterns(n1, n2))
    good = sum(identifiability(with_signs(n1, signs, 2, 0)).identifiable is True for signs in every)
    found = identifiable_fraction((n1, n1, n2, 2))
    assert found.value == Fraction(good, len(every))
    assert found.lower <= found.value <= found.upper


def test_formulas_of_the_specification():
    for n1, n2 in [(2, 1), (3, 2), (5, 4)]:
        found = identifiable_fraction((n1, n1, n2, 1))
        assert float(found) == pytest.approx((1 - 2.0**-n1) ** n2 - n1 * 2.0 ** -((n1 + 1) * n2))
        assert float(found.lower) == pytest.approx(1 - 2 * n2 * 2.0 ** -(n1 + 1) - n1 * 2.0 ** -((n1 + 1) * n2))
        assert float(found.upper) == pytest.approx((1 - 2.0 ** -(n1 + 1)) ** n2)
    assert identifiable_fraction((4, 1, 3, 1)).value == Fraction(1, 8) - 2 * Fraction(1, 64)
    assert identifiable_fraction((4, 9, 3)).value == 1


@pytest.mark.parametrize("n2", [1, 2])
def test_agrees_with_ranks_for_every_sign_pattern(n2):
    """Two first-layer neurons: no further symmetry is discrete, so ranks see all of them."""
    for index, signs in enumerate(patterns(2, n2)):
        net = with_signs(2, signs, 1, index)
        found = identifiability(net)
        assert found.fiber_dimension == free_directions(net), signs
        assert found.identifiable is (found.fiber_dimension == 0), signs


def test_rigid_agrees_with_movable_hyperplanes():
    net = with_signs(3, [[1, -1, -1], [1, -1, -1]], 1, 0)
    assert identifiability(net).rigid.tolist() == [False, True]
    assert identifiability(with_signs(3, [[1, -1, -1], [1, -1, 1]], 1, 0)).rigid.tolist() == [True, True]
    assert identifiability(with_signs(3, [[-1, -1, -1]], 1, 0)).rigid.tolist() == [False, False]


def test_reasons_name_neurons():
    dead = identifiability(with_signs(3, [[1, -1, 1], [-1, -1, -1]], 1, 0))
    assert dead.identifiable is False and any("neuron 1 of layer 2 is dead" in r for r in dead.reasons)
    linear = identifiability(with_signs(3, [[1, 1, 1], [1, -1, 1]], 1, 0))
    assert any("neuron 0 of layer 2 is linear" in r for r in linear.reasons) and linear.fiber_dimension == 1
    hidden = identifiability(with_signs(3, [[-1, 1, -1], [-1, 1, -1]], 1, 0))
    assert any("neuron 1 of layer 1 is hidden" in r for r in hidden.reasons) and hidden.fiber_dimension == 1
    assert any("among generic" in a for a in hidden.assumptions)


def test_one_first_layer_neuron_and_its_mirror_image():
    """The checked example: (-.8 | 1.1), output weight 2, bias .3 equals output weight -2, bias 2.5, moved by 1.1/.8."""
    w, b = np.array([[0.7, -0.4]]), np.array([0.35])
    net = Network([w, [[-0.8]], [[2.0]]], [b, [1.1], [0.3]])
    weights, biases = reflected(([*net.weights], [*net.biases]), [0])
    np.testing.assert_allclose(weights[2], [[-2.0]])
    np.testing.assert_allclose(biases[2], [2.5])
    np.testing.assert_allclose(biases[0], -b + 1.1 / 0.8)
    np.testing.assert_allclose((weights[1], biases[1][None]), ([[-0.8]], [[1.1]]))
    assert worst_difference(net, Network(weights, biases)) < 1e-14
    found = identifiability(net)
    assert found.identifiable is False and found.fiber_dimension == 0
    assert len(fiber(net).components) == 2


@pytest.mark.parametrize("seed", range(5))
def test_mirror_images_with_several_readers(seed):
    net = with_signs(2, [[-1, 1]] * 3, 2, seed)
    weights, biases = reflected(([*net.weights], [*net.biases]), [0, 1, 2])
    assert worst_difference(net, Network(weights, biases)) < 1e-13
    assert identifiability(net).identifiable is False


def test_one_hidden_layer_on_space():
    net = Network.random((2, 5, 2), 0)
    found = identifiability(net)
    assert found.identifiable is True and found.rigid.all() and found.fiber_dimension == 0
    # relu(x) - relu(x - 1) = relu(1 - x)(-1) + relu(-x) + 1: both reversed
    ramp = Network([[[1.0], [1.0]], [[1.0, -1.0]]], [[0.0, -1.0], [0.0]])
    assert identifiability(ramp).identifiable is False
    assert [c.flipped for c in fiber(ramp).components] == [(), (0, 1)]
    twice = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[1.0, 2.0], [0.0]])
    assert identifiability(twice).identifiable is False and identifiability(twice).fiber_dimension == 1
    unread = Network([[[1.0], [2.0]], [[1.0, 0.0]]], [[1.0, -2.0], [0.0]])
    assert identifiability(unread).identifiable is False


@pytest.mark.parametrize(("widths", "seed"), [((2, 3, 2, 1), 2), ((3, 3, 3, 3, 1), 8)])
def test_outside_the_theorems_is_undecided_unless_a_neuron_never_switches(widths, seed):
    net = Network.random(widths, seed)
    found = identifiability(net)
    assert found.identifiable is None and found.fiber_dimension is None and found.witness is None
    assert "no theorem applies" in found.reasons[0]
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[1][0], biases[1][0] = -1.0, -1.0
    dead = Network(weights, biases)
    found = identifiability(dead)
    assert found.identifiable is False
    assert found.fiber_dimension == widths[3] and not found.dimension_exact  # its outgoing weights, and maybe more
    assert any(s.kind == "dead" and s.layer == 2 and s.neurons == (0,) for s in found.symmetries)
    assert any("neuron 0 of layer 2 is dead" in r for r in found.reasons)
    assert worst_difference(dead, found.witness) == 0
    assert same_up_to_symmetry(dead, found.witness).same is False


@pytest.mark.parametrize("seed", range(3))
def test_outside_the_theorems_a_hidden_hyperplane_is_told_and_does_not_decide(seed):
    """More neurons than inputs: the image of the first layer is not the orthant."""
    net = Network.random((2, 3, 2, 1), seed)
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[1][:], biases[1][:] = [[1.0, -1.0, -2.0], [2.0, -1.0, -3.0]], [-1.0, -2.0]
    found = identifiability(Network(weights, biases))
    assert any(s.kind == "hidden" and s.layer == 1 and s.neurons == (0,) for s in found.symmetries)
    if found.families:  # the image decides: a neuron that is positive on one of its cells alone
        assert found.identifiable is False and found.fiber_dimension == sum(f.dimension for f in found.families)
        assert worst_difference(Network(weights, biases), found.witness) < 1e-12
        return
    assert found.identifiable is None and found.fiber_dimension is None
    assert any("known symmetry" in r and "hidden" in r for r in found.reasons)


def test_not_generic_is_not_called_identifiable():
    net = with_signs(3, [[1, -1, 1], [-1, 1, 1]], 1, 0)
    weights = [w.copy() for w in net.weights]
    weights[1][0, 1] = 0.0  # a zero weight: no theorem
    found = identifiability(Network(weights, net.biases))
    assert found.identifiable is not True
    low = [w.copy() for w in net.weights]
    low[0][1] = low[0][0]
    assert identifiability(Network(low, net.biases)).identifiable is None


def test_full_image_of_a_deeper_layer():
    """The identity on an orthant has the whole orthant as its image; also with a negative bias, not a positive one."""
    hide = np.array([[1.0, -1.0]])
    for shift, full in ((-1.0, True), (1.0, False)):
        net = Network([np.eye(2), np.eye(2), hide, [[1.0]]], [[0.0, 0.0], [shift, shift], [-1.0], [0.0]])
        hidden = [s for s in identifiability(net).symmetries if s.kind == "hidden"]
        assert [(s.layer, s.neurons, s.full) for s in hidden] == [(2, (0,), full)]


def test_bad_input():
    with pytest.raises(UnsupportedModelError):
        identifiability(case("convolutional"))
    with pytest.raises(FiberscopeError):
        identifiability(case("convolutional").as_mlp())
    with pytest.raises(InputError, match="Network"):
        identifiability(3)
    with pytest.raises(InputError, match="bottleneck"):
        identifiable_fraction((2, 3, 1, 1))
    for widths in ((2,), (2, 0, 1), (2.5, 1, 1, 1), (1, 1, 1, 1, 1)):
        with pytest.raises(InputError, match="widths"):
            identifiable_fraction(widths)
    assert identifiability(case("affine")).identifiable is True
    assert identifiability(case("leaky")).identifiable is None


def test_results_are_plain_data():
    found = identifiability(with_signs(3, [[1, 1, 1], [-1, -1, -1]], 1, 0)).to_dict()
    assert found["identifiable"] is False and found["rigid"] == [True, True]
    assert identifiable_fraction((2, 2, 1, 1)).to_dict()["exact"]["value"] == "1/2"
