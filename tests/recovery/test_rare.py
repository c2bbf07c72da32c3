"""Neurons that are off, or on, nearly everywhere: where they show, and how they are found when a search missed them."""

from __future__ import annotations

import numpy as np
import pytest
from planted import begun, distance, random_network

import fiberscope as fs
from fiberscope.recovery.black_box import Search, conclude
from fiberscope.recovery.layers.bent_surfaces import State, Walk
from fiberscope.recovery.layers.confirmation import _fits_rare_inputs
from fiberscope.recovery.layers.mending import missing_neuron
from fiberscope.recovery.place import FAR, WIDE, place_of
from fiberscope.recovery.polish import forward, polish_at_once
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.telling import activations_for, climbed, draw_few, draw_few_first
from fiberscope.run import Run

DEEP = (40, 20, 10, 10, 1)


def layers(net, count, oriented=True):
    return Prefix(tuple(net.weights[:count]), tuple(net.biases[:count]), 0.0, oriented)


@pytest.mark.parametrize(("seed", "layer", "neuron"), [(1_003_000, 2, 5), (1_005_007, 1, 2), (1_005_010, 2, 8)])
def test_rare_neurons_show_where_few_others_are_active(seed, layer, neuron):
    net, place, rng = random_network(DEEP, seed), place_of(None, 40), np.random.default_rng(0)
    shares = []
    for X in (place.draw(rng, 4000), draw_few_first(place, layers(net, 1), rng, 1000),
              draw_few(place, layers(net, layer), rng, 1000)):  # fmt: skip
        shares.append((net.preactivations(X)[layer][:, neuron] > 0).mean())
        assert np.abs(X).max() <= FAR * WIDE
    assert shares[0] < 1e-3 and shares[2] > 1e-2 and shares[2] > shares[1]


def test_points_of_a_bounded_place_stay_there():
    net, rng = random_network((4, 5, 3, 1), 0), np.random.default_rng(0)
    place = place_of(fs.Box.cube(4), 4)
    assert place.inside(draw_few(place, layers(net, 2), rng, 200)).all()
    X = climbed(place, lambda X: -X[:, 0], place.draw(rng, 50), 5, rng)
    assert place.inside(X).all() and X[:, 0].min() > 0.99


@pytest.mark.parametrize("seed", range(5))
def test_activations_are_those_that_were_wanted_where_they_can_be_had(seed):
    rng = np.random.default_rng(seed)
    W, b, a = rng.normal(size=(5, 9)), rng.normal(size=5), np.maximum(rng.normal(size=9), 0)
    z = W @ a + b
    found = activations_for(W, b, z)
    now = W @ found + b
    assert (found >= 0).all()
    assert np.abs(now - z)[z > 0].max(initial=0.0) < 1e-2 and (now <= z + 1e-2)[z <= 0].all()


@pytest.mark.parametrize(("seed", "neuron"), [(1_005_007, 2), (1_003_001, 4)])
def test_a_neuron_that_an_earlier_layer_lacks_is_found_where_the_rest_fails(seed, neuron):
    net = random_network(DEEP, seed)
    kept = np.arange(10) != neuron
    weights = (net.weights[0], net.weights[1][kept], net.weights[2][:, kept])
    prefix = Prefix(weights, (net.biases[0], net.biases[1][kept], net.biases[2]))
    W, b = missing_neuron(begun(net), prefix, 2)
    row = np.append(net.weights[1][neuron], net.biases[1][neuron])
    found = np.append(W, b) * np.linalg.norm(row)
    assert min(np.abs(found - row).max(), np.abs(found + row).max()) < 1e-6


def test_nothing_is_mended_where_nothing_is_missing():
    net = random_network(DEEP, 1_005_007)
    assert missing_neuron(begun(net), layers(net, 3, oriented=False), 2) is None


def test_a_weight_on_a_rare_input_that_is_wrong_is_seen():
    net = random_network(DEEP, 1_005_007)
    pool, prefix = begun(net), layers(net, 2)
    row = np.append(net.weights[2][3], net.biases[2][3])
    assert _fits_rare_inputs(pool, prefix, row)
    row[2] += 0.5 * np.linalg.norm(row)  # of the neuron of layer 2 that is seldom on
    assert not _fits_rare_inputs(pool, prefix, row)


def test_a_fold_whose_place_is_known_badly_is_crossed():
    """What is seen close by is then so rough that the surface seems not to be flat afar."""
    net = random_network((6, 5, 4, 1), 0)
    pool, prefix, rng = begun(net), layers(net, 1), np.random.default_rng(1)
    crossed = 0
    for _ in range(60):
        x = pool.place.draw(rng, 1)[0]
        cell = prefix.cell(prefix.pattern(x))
        row = np.append(net.weights[1][0], net.biases[1][0])
        g, c = cell.slopes.T @ row, cell.offsets @ row
        if not g.any():
            continue
        x = x - g * (g @ x + c) / (g @ g)
        if any((one != two).any() for one, two in zip(prefix.pattern(x), cell.pattern, strict=True)):
            continue
        walk = Walk(pool.oracle, pool.place, prefix, rng)
        state = walk.centred(State(x, g, cell))
        (e,) = walk.tangent(state, rng.normal(size=(1, 6)))
        t, wall = walk.reach(state, e[None])
        if not t.min() < wall[0]:
            continue
        fold = int(t.argmin())
        y = state.x + t[0, fold] * e
        if walk.measure(state, y, fold) is None:
            continue
        off = State(state.x + 1e-8 * g / np.linalg.norm(g), g, cell)
        found = walk.measure(off, y + 1e-8 * g / np.linalg.norm(g), fold)
        assert found is not None and abs(found[0] - cell.turns[fold] @ row) < 1e-4
        crossed += 1
    assert crossed > 5


def test_a_jacobian_is_taken_anew_while_residuals_are_above_the_goal():
    net, rng = random_network((4, 6, 5, 2), 1), np.random.default_rng(0)
    truth = [a for pair in zip(net.weights, net.biases, strict=True) for a in pair]
    X = rng.normal(size=(400, 4))
    start = [a + 3e-3 * rng.normal(size=a.shape) for a in truth]
    sizes = [np.abs(forward(polish_at_once(start, X, net(X), Run(), goal=goal), X)[0] - net(X)).max()
             for goal in (1.0, 1e-14)]  # fmt: skip
    assert sizes[1] < 1e-12 < sizes[0]


@pytest.mark.parametrize("seed", [1_003_000])
def test_three_hidden_layers_with_a_rare_neuron_come_back(seed):
    """One weight on a rare input is told by values alone, and the polish uses the points that were asked for it."""
    truth = random_network(DEEP, seed)
    found = fs.recover(truth, DEEP, seed=3000)
    assert found.recovered and found.queries <= 65_536 and found.residual <= 1e-10 * found.size
    assert distance(truth, found.network) <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3002, 3004, 4003, 5003, 5005, 5007, 5010, 5025])
def test_three_hidden_layers_come_back(seed):
    truth = random_network(DEEP, 1_000_000 + seed)
    found = fs.recover(truth, DEEP, seed=seed)
    assert found.recovered and found.residual <= 1e-10 * found.size
    assert distance(truth, found.network) <= 1e-10


def test_a_neuron_that_is_always_on_is_named_and_not_called_recovered():
    """All weights of neuron 8 of layer 3 are positive, and so is its bias: no search can see its offset."""
    truth = random_network(DEEP, 1_003_003)
    assert (truth.weights[2][8] > 0).all() and truth.biases[2][8] > 0
    found = fs.recover(truth, DEEP, seed=3003)
    assert not found.recovered and {item.layer for item in found.unresolved} == {3}
    assert found.residual <= 1e-10 * found.size


def test_a_network_that_fails_where_few_neurons_are_active_is_not_called_recovered():
    """Held-out points, which are random inputs, do not see it."""
    net = random_network(DEEP, 1_003_002)
    pool = begun(net)
    search = Search(pool, DEEP, whole=True, polished=True)
    search.weights, search.biases = [W.copy() for W in net.weights], [b.copy() for b in net.biases]
    search.holds = search.explains()
    assert search.holds and conclude(search, True, None, Run()).recovered
    search.biases[2][4] += 1e-3  # of a neuron that is on at all random points
    search.biases[3] = search.biases[3] - 1e-3 * search.weights[3][:, 4]
    search.holds = all(search.explains() for _ in range(60))
    found = conclude(search, True, None, Run())
    assert found.residual <= 1e-14 * found.size
    assert not found.recovered and "few neurons are active" in found.unresolved[-1].reason
