"""Simplification: never another function, and small where something is to be had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plant import add_dead, duplicate, identity_layer

import fiberscope as fs
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.simplification import by_simplification
from fiberscope.fibers.simplify.simplify import simplify
from fiberscope.network.network import Network
from fiberscope.testing import CASES, case, fraction_values
from fiberscope.testing.strategies import chains

CHAINS = [name for name in CASES if case(name).is_chain]


def check(net, result, domain, points=4, seed=0):
    """The oracle: exact values, equal where the result says exact, close where it was rounded."""
    assert result.verdict.equal is True, result.verdict
    if result.verdict.tolerance == 0:  # nothing was rounded
        assert result.exact
    for x in domain.sample(points, seed):
        a, b = fraction_values(net, x)[-1], fraction_values(result.network, x)[-1]
        if result.exact:
            assert a == b
        else:
            size = 1 + max(abs(v) for v in a + [float(u) for u in x.tolist()])
            assert max(abs(p - q) for p, q in zip(a, b, strict=True)) <= 1e-9 * size * 1e3


LEAKY = Network(  # two constants, of which one meets the last layer in a row that nobody reads
    [
        [[-1.3821893105646497, -0.11042478688203472, 0.0, 0.0]],
        [[-2.038546742656623], [0.0], [0.0], [0.0]],
        [
            [0.0, 0.0, 0.0, 0.24555394174275524],
            [-0.14239563900652738, 0.0, 0.0, 0.0],
            [0.0, 0.0, -0.49872802139541705, -0.4246600193324214],
            [-0.20597373177082348, 0.0, 0.0, 0.0],
        ],
        [[0.0, -0.5677198116808058, 0.0, 0.0]],
    ],
    [[0.0], [0.0, -2.107143134976486, 0.0, 0.2616692404407784], [0.0] * 4, [0.0]],
    "leaky_relu",
    slope=0.25,
)


def simplified(net, domain=None):
    """Half a second is enough, but not where others have the processor."""
    result = simplify(net, domain, time_limit=0.5)
    return result if result.proof.equal else simplify(net, domain, time_limit=20)


@settings(max_examples=60)
@given(chains(), st.integers(0, 99))
@example(LEAKY, 0)
def test_on_all_of_space(net, seed):
    result = simplified(net)
    check(net, result, fs.Space(net.in_size), seed=seed)
    assert sum(result.counts().values()) == net.num_hidden - result.network.num_hidden
    again = simplified(result.network)
    assert again.network.num_hidden <= result.network.num_hidden


@settings(max_examples=60)
@given(chains(inputs=st.integers(1, 3)), st.integers(0, 99))
def test_on_a_box(net, seed):
    box = fs.Box.cube(net.in_size, -1, 1)
    check(net, simplified(net, box), box, seed=seed)


@pytest.mark.parametrize("name", CHAINS)
def test_every_case(name):
    net = case(name)
    for domain in (fs.Space(net.in_size), fs.Orthant(net.in_size), fs.Box.cube(net.in_size)):
        check(net, simplify(net, domain, time_limit=1.0), domain)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_what_was_planted_goes_again(seed):
    rng = np.random.default_rng(seed)
    net = Network.random((2, 4, 3, 1), rng)
    larger = identity_layer(duplicate(add_dead(net, 0, rng), 0, rng), int(rng.integers(2)))
    result = simplify(larger)
    plain = simplify(net)
    assert result.network.widths == plain.network.widths
    assert result.exact or not plain.exact
    assert any(reason == "dead" for _, reason in result.removed)


def test_kinks_that_cancel_become_a_line_and_layers_fuse():
    # relu(x) - relu(-x) + 3 = x + 3, read by a second layer: one kink in all
    net = Network([[[1.0], [-1.0]], [[1.0, -1.0]], [[2.0]]], [[0.0, 0.0], [3.0], [1.0]])
    result = simplify(net)
    assert result.network.widths == (1, 1, 1)
    assert result.network.weights[0] == [[1.0]] and result.network.biases[0] == [3.0]
    assert result.exact and result.merged == (((1, 0), (1, 1)),)


def test_many_lines_become_few():
    rng = np.random.default_rng(0)
    net = Network([np.round(8 * rng.random((6, 2))) / 8, np.ones((1, 6))], [np.full(6, 4.0), [0.0]])
    result = simplify(net, fs.Box.cube(2))
    assert result.network.widths == (2, 1) and result.exact


def test_rounding_is_said():
    # merging the columns .1 and .2 needs a sum that is no float
    net = Network([[[1.0], [3.0]], [[0.1, 0.2]]], [[1.0, 3.0], [0.0]])
    result = simplify(net)
    assert result.network.widths == (1, 1, 1)
    assert not result.exact and result.verdict.equal is True and result.verdict.bound is None
    assert result.verdict.residual <= 1
    assert "up to rounding" in repr(result)


def test_fractions_that_went_with_a_neuron_are_no_rounding():
    # the constant .2 * .1 is no float, but the neuron whose bias it would be is never read
    weights = [[[1.0]], [[1.0], [0.0]], [[1.0, 0.0], [0.0, 0.1]], [[1.0, 0.0]]]
    net = Network(weights, [[-1.0], [-1.0, 0.2], [-1.0, 0.0], [0.0]])
    for larger in (net, LEAKY):
        result = simplify(larger)
        assert set(result.network.widths[1:]) == {1}
        assert result.verdict.tolerance == 0 and result.exact and result.to_dict()["exact"] is True
        check(larger, result, fs.Space(larger.in_size))


def test_exact_is_what_the_proof_says():
    result = simplify(case("chain"))
    assert result.exact and result.verdict.exact and result.verdict.networks == (result.original, result.network)
    verdict = result.verdict
    for proof in (replace(verdict, bound=None), replace(result.proof, equal=None), replace(result.proof, ulps=4)):
        other = replace(result, proof=proof)
        assert not other.exact and not other.verdict.exact
    undecided = replace(result, proof=replace(result.proof, equal=None))
    assert "not proven to be the same" in repr(undecided)
    assert undecided.verdict.equal is None and undecided.verdict.bound is None and undecided.verdict.evidence is None


def test_refusals():
    with pytest.raises(fs.UnsupportedModelError, match="convolution"):
        simplify(case("convolutional"))
    with pytest.raises(fs.UnsupportedModelError, match="as_mlp"):
        simplify(case("residual"))
    with pytest.raises(fs.InputError):
        simplify(case("chain"), fs.Box.cube(5))


def test_what_leaves_the_range_of_floats_is_refused_and_equality_goes_on_without():
    # the first two neurons share a hyperplane, and their merged weight is beyond the range
    first, rows = [[1.0], [3.0], [0.5]], np.array([[1.5e308, 1.5e308, 0.25], [-0.5, 0.75, 1.0]])
    net = Network([first, rows, [[1.0, 1.0]]], [[1.0, 3.0, -1.0], [-1.0, -1.0], [0.0]])
    with pytest.raises(fs.UnsupportedModelError, match="range of floats"):
        simplify(net)
    other = Network([first, rows, [[1.0, 1.0]]], [[1.0, 3.0, -1.0], [-1.0, -2.0], [0.0]])
    with np.errstate(all="ignore"):
        question = Question.of(net, other, fs.Space(1), 0, 2.0, 0)
        assert by_simplification(question) is None and any("range of floats" in note for note in question.notes)
        assert fs.equivalent(net, other, tolerance=0, time_limit=2.0).equal is False


def test_the_lattice_network_loses_its_dead_and_coincident_neurons(shared_nets):
    net = fs.load(shared_nets / "tll_8_0.onnx")
    result = simplify(net)
    assert result.exact and result.verdict.exact
    assert result.network.is_chain
    assert sum(reason == "dead" for _, reason in result.removed) >= 34
    assert result.network.num_hidden < 100 < net.num_hidden
    assert sum(result.counts().values()) == net.num_hidden - result.network.num_hidden
    X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    np.testing.assert_allclose(result.network(X), net(X), rtol=1e-9, atol=1e-9)


def test_a_split_layer_is_fused(shared_nets):
    result = simplify(fs.load(shared_nets / "mnist_256x4_split.onnx"), time_limit=1.0)
    assert result.network.widths == (784, 256, 256, 256, 256, 10)
    assert result.exact and result.verdict.exact


def test_a_constant_below_the_normal_floats_in_a_normal_form():
    """A row that cancelled to nothing keeps the sizes of its terms, at an exponent of its own."""
    weights = [[[0.0]], [[0.0], [2 - 2.0**-52], [0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.0, 1.0]]]
    net = Network(weights, [[0.0], [0.0] * 3, [0.0, 2.0**-1030], [-1.0]])
    found = fs.simplify(net, fs.Orthant(1))
    assert found.verdict.equal is True
