"""Verdicts that a domain gives: neurons that never switch on it, and chains of bends."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.fibers.on_domain import _unbounded_images


@pytest.mark.parametrize("widths", [(2, 2, 1), (2, 2, 2, 1)])
def test_the_construction_is_identifiable_on_its_box(widths):
    box = fs.Box.cube(widths[0])
    net = fs.identifiable_network(widths, box, seed=0)
    found = fs.identifiability(net, box)
    assert found.identifiable is True and found.witness is None and found.reasons == ()
    assert found.assumptions == ("among general networks of the architecture, on the domain",)
    fiber = fs.fiber(net, box)
    assert fiber.complete and fiber.dimension == 0 and fiber.components[0].kind == "orbit"


@pytest.mark.parametrize("domain", [None, fs.Space(3), fs.Box.cube(3, -5.0, 5.0)])
def test_the_network_whose_fiber_is_not_local_is_recognised(domain):
    net = fs.non_localisable_network((3, 3, 2, 2, 1), seed=1).network
    found = fs.identifiability(net, domain)
    assert found.identifiable is False
    assert all("of layer 3 is linear" in reason for reason in found.reasons) and len(found.reasons) == 2
    assert fs.same_up_to_symmetry(net, found.witness).same is False
    X = fs.Box.cube(3, -5.0, 5.0).sample(500, 0)
    assert np.abs(net(X) - found.witness(X)).max() <= 1e-12
    if domain is None:
        assert fs.fiber(net).contains(found.witness)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(2, 3, 1), (2, 3, 2, 1), (3, 4, 3, 2)]))
def test_a_witness_is_the_same_function_on_the_box_and_another_parameter(seed, widths):
    net, box = fs.Network.random(widths, seed), fs.Box.cube(widths[0], -0.5, 0.5)
    found = fs.identifiability(net, box)
    if found.identifiable is not False:
        assert found.witness is None
        return
    X = box.sample(400, seed)
    assert np.abs(net(X) - found.witness(X)).max() <= 1e-12 * (1 + np.abs(net(X)).max())
    assert fs.same_up_to_symmetry(net, found.witness).same is False
    assert found.fiber_dimension >= 1


def slow_images(net, corners):
    """Signs that occur at random rational points; intervals may not claim a sign that is seen."""
    seen = []
    for x in corners:
        a = [Fraction(v) for v in x]
        signs = []
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            rows = zip(weight.tolist(), bias.tolist(), strict=True)
            z = [Fraction(b) + sum(Fraction(w) * v for w, v in zip(row, a, strict=True)) for row, b in rows]
            signs += [(v > 0) - (v < 0) for v in z]
            a = [max(v, Fraction(0)) for v in z]
        seen.append(signs)
    return np.array(seen)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_images_of_all_of_space_never_contradict_a_point(seed):
    rng = np.random.default_rng(seed)
    net = fs.Network([rng.integers(-3, 2, (3, 2)) * 1.0, rng.integers(-3, 1, (3, 3)) * 1.0,
                      rng.integers(-2, 1, (2, 3)) * 1.0, np.ones((1, 2))],
                     [rng.integers(-2, 3, n) * 1.0 for n in (3, 3, 2, 1)])  # fmt: skip
    dead, active = _unbounded_images(net)
    signs = slow_images(net, rng.integers(-20, 21, (40, 2)).tolist())
    assert not (signs[:, dead] > 0).any()
    assert not (signs[:, active] < 0).any()


def test_a_domain_of_another_dimension_is_refused():
    with pytest.raises(fs.InputError, match="dimension 2"):
        fs.identifiability(fs.Network.random((2, 3, 1), 0), fs.Box.cube(3))


def test_what_no_theorem_covers_stays_undecided():
    found = fs.identifiability(fs.identifiable_network((9, 4, 3, 1), fs.Box.cube(9), 0), fs.Box.cube(9))
    assert found.identifiable is None and "at most 8 dimensions" in found.reasons[0]
