"""Laws of the group, of the canonical form and of matching, on tame and on degenerate chains."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.fibers.canonical.form import canonical
from fiberscope.fibers.canonical.matching import carries, same_up_to_symmetry
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import split
from fiberscope.network.network import Network
from fiberscope.testing import CASES, assert_same_function, case
from fiberscope.testing.strategies import batches, chains

CHAINS = [name for name in CASES if case(name).is_chain]
seeds = st.integers(0, 2**32 - 1)


@given(chains(), seeds, seeds, seeds)
def test_group_laws(net, s, t, u):
    g, h, k = (Symmetry.random(net.widths, seed) for seed in (s, t, u))
    one = Symmetry.identity(net.widths)
    assert (g @ h) @ k == g @ (h @ k)
    assert g @ one == g == one @ g
    assert (g @ g.inverse()).is_identity and (g.inverse() @ g).is_identity
    assert (g @ h).inverse() == h.inverse() @ g.inverse()
    assert fs.identical((g @ h)(net), g(h(net)))


@given(st.data(), chains(), seeds)
def test_the_group_keeps_the_function_exactly(data, net, seed):
    assert_same_function(net, Symmetry.random(net.widths, seed)(net), data.draw(batches(net)))


@given(chains(), seeds)
def test_canonical_is_idempotent_and_invariant_bit_for_bit(net, seed):
    form = canonical(net)
    assert fs.identical(canonical(form), form)
    assert fs.identical(canonical(Symmetry.random(net.widths, seed)(net)), form)
    for w, b in zip(form.weights[:-1], form.biases[:-1], strict=True):
        largest = np.abs(np.column_stack([w, b])).max(axis=1)
        assert ((largest == 1) | (largest <= 1)).all()


@given(st.data(), chains(), seeds)
def test_canonical_is_in_the_orbit(data, net, seed):
    match = same_up_to_symmetry(net, canonical(net))
    assert match, match
    X = data.draw(batches(net))
    size = 1 + np.abs(net(X)).max()
    assume(np.isfinite(size))
    wide = max(np.abs(w).max(initial=0) for w in net.weights) < 1e6
    if wide:
        assert np.abs(net(X) - canonical(net)(X)).max() <= 1e-6 * size * (1 + np.abs(X).max())


@given(chains(), seeds, st.booleans())
def test_copies_are_matched(net, seed, dyadic):
    g = Symmetry.random(net.widths, seed, dyadic=dyadic)
    match = same_up_to_symmetry(net, g(net))
    assert match.same is True, match
    assert match.residual == 0 if dyadic else match.residual <= 12
    assert match.exact == carries(match.symmetry, net, g(net))
    assert match.exact or not dyadic
    if dyadic:
        for x, y in zip(match.symmetry(net).weights, g(net).weights, strict=True):
            np.testing.assert_array_equal(x, y)  # a zero may have another sign


def test_constant_neurons_of_a_dyadic_copy_keep_their_digits():
    # both constant neurons have the row (0, -1); only one pairing has scales that are powers of two
    weights = [[[0.0]], [[0.0], [0.446], [-0.0], [0.0]], [[0.0, -0.0, 0.0, 1.0067]]]
    net = fs.Network(weights, [[0.0], [-0.736, -0.0, -0.482, 0.599], [0.0]])
    for seed in range(8):
        assert same_up_to_symmetry(net, Symmetry.random(net.widths, seed, dyadic=True)(net)).exact


def test_constant_neurons_in_a_cycle_keep_their_digits():
    # a ring that rows and readers cannot tell apart, with constant neurons beside it whose biases have other digits
    ring = np.zeros((6, 6))
    for i in range(6):
        ring[i, i] = ring[i, (i + 1) % 6] = 1.0
    first = np.vstack([np.ones((6, 1)), np.zeros((3, 1))])
    second = np.block([[ring, np.zeros((6, 3))]])
    biases = [np.concatenate([np.zeros(6), [-0.3, -0.5, -0.7]]), np.full(6, -1.0), [0.0]]
    net = fs.Network([first, second, np.ones((1, 6))], biases)
    for seed in range(8):
        assert same_up_to_symmetry(net, Symmetry.random(net.widths, seed, dyadic=True)(net)).exact


@given(chains(), seeds)
def test_a_change_is_noticed(net, seed):
    rng = np.random.default_rng(seed)
    layer = int(rng.integers(len(net.weights)))
    weights = [w.copy() for w in net.weights]
    i, j = (int(rng.integers(n)) for n in weights[layer].shape)
    weights[layer][i, j] += 0.3 * (1 + abs(weights[layer][i, j]))
    changed = fs.Network(weights, net.biases)
    assume(not net.nodes[1].slopes.any())  # type: ignore[union-attr]
    match = same_up_to_symmetry(net, changed)
    if match:  # only if the change is undone by exchanging or rescaling neurons
        assert match.residual <= 16
        image = match.symmetry(net)
        for w, v in zip(image.weights, changed.weights, strict=True):
            np.testing.assert_allclose(w, v, rtol=1e-12)


@pytest.mark.parametrize("name", CHAINS)
def test_every_case(name):
    net = case(name)
    form = canonical(net)
    assert fs.identical(canonical(form), form)
    for seed in range(4):
        copy = Symmetry.random(net.widths, seed)(net)
        assert fs.identical(canonical(copy), form)
        assert same_up_to_symmetry(net, copy).exact


def test_ties_that_only_readers_tell_apart():
    # two equal rows whose outgoing weights differ, and two that a symmetry exchanges
    net = Network(
        [[[1.0], [1.0], [1.0]], [[1.0, 2.0, 3.0], [2.0, 1.0, 3.0]], [[1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0, 0.0], [0.0]]
    )
    form = canonical(net)
    for seed in range(20):
        copy = Symmetry.random(net.widths, seed)(net)
        assert fs.identical(canonical(copy), form)
        assert same_up_to_symmetry(net, copy).exact


def circulant(n, steps):
    return np.array([[float((i - j) % n in steps or (j - i) % n in steps) for j in range(n)] for i in range(n)])


def rook():
    """Squares of a board of four by four that share a row or a column; regular, and not the one of the circulants."""
    places = [(a, b) for a in range(4) for b in range(4)]
    return np.array([[float((a == c) != (b == d)) for c, d in places] for a, b in places])


GRAPHS = {
    "a ring": circulant(6, {1}),
    "two triangles": np.kron(np.eye(2), circulant(3, {1})),
    "a circulant": circulant(16, {1, 4, 6}),
    "rook": rook(),
    "matching": np.eye(12),
    "cubes": np.kron(np.eye(2), circulant(8, {1, 4})),
}


def regular(A, noise=0.0):
    """All neurons of a layer read alike and are read alike; only the graph between the layers tells them apart."""
    n = len(A)
    return Network([np.ones((n, 2)), A + noise, np.ones((1, n))], [np.zeros(n), np.ones(n), [0.0]])


@pytest.mark.parametrize("name", GRAPHS)
def test_ties_of_regular_graphs(name):
    net = regular(GRAPHS[name])
    form = canonical(net)
    for seed in range(20):
        copy = Symmetry.random(net.widths, seed)(net)
        assert fs.identical(canonical(copy), form)
        assert same_up_to_symmetry(net, copy).exact


def test_graphs_that_refinement_does_not_tell_apart():
    def ring(n):
        return np.eye(n) + np.roll(np.eye(n), 1, axis=0)  # between two layers: one ring of 2 n neurons

    one, two = canonical(regular(ring(6))), canonical(regular(np.kron(np.eye(2), ring(3))))
    assert not fs.identical(one, two)
    assert not fs.identical(canonical(regular(GRAPHS["a circulant"])), canonical(regular(GRAPHS["rook"])))


@given(st.integers(0, 2**18 - 1), st.integers(0, 2**18 - 1), st.booleans(), seeds)
@settings(max_examples=60, deadline=None)
def test_forms_agree_if_and_only_if_some_permutation_does(first, second, copied, seed):
    """Three neurons in each of two layers, weights 0 and 1: against all 36 permutations."""
    a = small(first)
    b = Symmetry.random(a.widths, seed)(a) if copied else small(second)
    orders = [np.array(p) for p in itertools.permutations(range(3))]
    copies = (Symmetry([p, q], [np.ones(3)] * 2)(unit(a)) for p in orders for q in orders)
    assert fs.identical(canonical(a), canonical(b)) == any(fs.identical(copy, unit(b)) for copy in copies)


def small(code):
    bits = [float(code >> k & 1) for k in range(18)]
    W2, V = np.array(bits[3:12]).reshape(3, 3), np.array(bits[12:15])
    return Network([np.ones((3, 1)), W2, V[None]], [bits[:3], np.array(bits[15:]) + 1.0, [0.0]])


def unit(net):
    """With hidden rows of largest entry 1: copies are permutations then."""
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    for k in range(2):
        size = np.maximum(np.abs(weights[k]).max(axis=1), np.abs(biases[k]))
        weights[k], biases[k] = weights[k] / size[:, None], biases[k] / size
        weights[k + 1] = weights[k + 1] * size
    return Network(weights, biases)


def test_a_search_without_budget_is_no_canonical_form():
    net = regular(GRAPHS["rook"])
    with pytest.raises(fs.TooLargeError, match="canonical form: ties"):
        canonical(net, work=100)
    many = regular(np.ones((400, 400)))  # neurons that nothing tells apart need no search
    assert fs.identical(canonical(many), canonical(Symmetry.random(many.widths, 0)(many)))


def test_zero_rows_take_their_scale_from_their_readers():
    net = Network([[[0.0], [1.0]], [[8.0, 1.0], [2.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0, 0.0], [0.0]])
    form = canonical(net)
    idle = int(np.flatnonzero(form.weights[0][:, 0] == 0)[0])
    assert np.abs(form.weights[1][:, idle]).max() == 1
    for seed in range(10):
        assert fs.identical(canonical(Symmetry.random(net.widths, seed)(net)), form)


def test_different_shapes_do_not_match():
    a, b = Network.random((2, 3, 1), 0), Network.random((2, 4, 1), 0)
    assert not same_up_to_symmetry(a, b)
    assert "widths" in same_up_to_symmetry(a, b).reason


def test_neurons_of_other_models_are_refused():
    with pytest.raises(fs.UnsupportedModelError, match="convolution"):
        canonical(case("convolutional"))
    with pytest.raises(fs.UnsupportedModelError, match="as_mlp"):
        same_up_to_symmetry(case("residual"), case("residual"))


def test_scales_beyond_the_range_of_floats_are_refused():
    net = Network([[[1e-300]], [[1e-300]]], [[0.0], [0.0]])
    with pytest.raises(fs.InputError, match="range"):
        canonical(net)


def test_bad_elements_are_refused():
    for permutations, scales in (
        ([[0, 0]], [[1.0, 1.0]]),
        ([[0, 1]], [[1.0, 0.0]]),
        ([[0]], [[1.0, 1.0]]),
        ([], [[1.0]]),
    ):
        with pytest.raises(fs.InputError):
            Symmetry(permutations, scales)
    with pytest.raises(fs.InputError, match="widths"):
        Symmetry.identity((2, 3, 1))(Network.random((2, 4, 1), 0))


def test_a_large_network_takes_about_a_second():
    net = Network.random((784, 1024, 1024, 10), 0)
    copy = Symmetry.random(net.widths, 1, dyadic=False)(net)
    start = time.process_time()
    match = same_up_to_symmetry(net, copy)
    assert match and not match.exact
    assert time.process_time() - start < 3


@settings(max_examples=30)
@given(seeds)
def test_the_prefix_of_a_model_stays(seed):
    net = fs.Network.from_nodes([*case("affine").nodes, *_shifted(Network.random((2, 4, 1), 0))], (3,))
    parts = split(net)
    assert len(parts.prefix) == 1
    copy = Symmetry.random(parts.tail.widths, seed)(net)
    assert same_up_to_symmetry(net, copy).exact
    assert fs.identical(canonical(copy), canonical(net))


def _shifted(net):
    from fiberscope.network.nodes import behind, nameless

    return behind([nameless(node) for node in net.nodes], 1)
