"""Many layers: neurons are sharpened one by one, and what was found is what is there."""

from __future__ import annotations

import numpy as np
import pytest
from planted import begun, random_network

import fiberscope as fs
from fiberscope.recovery.layers.bent_surfaces import Equations, Row
from fiberscope.recovery.layers.completing import completed
from fiberscope.recovery.layers.later_layers import lines_for
from fiberscope.recovery.layers.refitting import refit_layers, sharper, switches_of
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.tilts import refitted

DEEP = (16, 16, 14, 12, 12, 10, 10, 8, 8, 1)
SHALLOWER = (6, 6, 5, 4, 4, 1)


def far(prefix, net):
    """Of every neuron of the known layers how far it is, with any scale and sign, from the nearest one of the layer."""
    X = np.random.default_rng(1).normal(size=(2000, net.widths[0])) * 3
    found = []
    for mine, true in zip(prefix.preactivations(X), net.preactivations(X), strict=False):
        a, b = mine / np.linalg.norm(mine, axis=0), true / np.linalg.norm(true, axis=0)
        found.append(np.sqrt(np.maximum(2 - 2 * np.abs(a.T @ b), 0)).min(axis=1))
        nearest = b[:, np.abs(a.T @ b).argmax(axis=1)]
        found[-1] = np.linalg.norm(a - nearest * np.sign((a * nearest).sum(axis=0)), axis=0)
    return found


def test_known_layers_are_sharpened_by_kinks_of_their_neurons():
    net, rng = random_network(SHALLOWER, 3), np.random.default_rng(0)
    pool = begun(net)
    rough = tuple(W + 1e-6 * rng.normal(size=W.shape) for W in net.weights[:3])
    prefix = Prefix(rough, tuple(net.biases[:3]), 0.0, False)
    before = pool.oracle.spent
    found = refit_layers(pool, prefix)
    for now, was in zip(far(found, net), far(prefix, net), strict=True):
        # a weight on an input that is off at all kinks of a neuron stays as it is
        assert was.min() > 1e-7 and np.sort(now)[-2] < 1e-11 and now.max() < 0.2 * was.max()
    assert pool.oracle.spent - before < 3000 and len(pool.lines) == 5


def test_a_layer_that_is_no_layer_is_not_drawn_to_other_kinks():
    net, rng = random_network(SHALLOWER, 3), np.random.default_rng(0)
    false = rng.normal(size=net.weights[1].shape)
    prefix = Prefix((net.weights[0], false), (net.biases[0], net.biases[1]), 0.0, False)
    pool = begun(net)
    assert all(sharper(pool, Prefix(prefix.weights[:1], prefix.biases[:1], 0.0, True), np.append(*row), prefix) is None
               for row in zip(false, net.biases[1], strict=True))  # fmt: skip
    assert (refit_layers(pool, prefix).weights[1] == false).all()


def test_a_neuron_of_a_later_layer_is_none_of_this_one():
    """Where the neurons between are on, it switches as one of this layer would."""
    net = random_network(DEEP, 1_000_000)
    pool, known = begun(net), Prefix(tuple(net.weights[:3]), tuple(net.biases[:3]), 0.0, True)
    W, b = net.weights[4] @ net.weights[3], net.weights[4] @ net.biases[3] + net.biases[4]
    assert all(sharper(pool, known, np.append(W[i], b[i]), known) is None for i in range(len(b)))
    true = np.append(net.weights[3][2], net.biases[3][2])
    assert np.abs(sharper(pool, known, true, known) - true).max() < 1e-11


def test_places_where_a_neuron_switches_have_every_input_on():
    net, rng = random_network(DEEP, 1_000_000), np.random.default_rng(0)
    known, row = Prefix(tuple(net.weights[:2]), tuple(net.biases[:2]), 0.0, True), np.append(
        net.weights[2][5], net.biases[2][5])  # fmt: skip
    pool = begun(net)
    X = switches_of(pool.place, known, row, known, rng)
    features = known.features(X)
    assert np.abs(features @ row).max() < 1e-9 and ((features[:, :-1] > 0).sum(axis=0) >= 4).all()
    assert not len(switches_of(pool.place, known, np.append(np.ones(14), 1.0), known, rng))  # always on


def test_a_fit_keeps_what_its_points_do_not_tell():
    rng, row = np.random.default_rng(0), np.array([1.0, -2.0, 0.5, 3.0])
    F = rng.normal(size=(30, 4))
    F[:, 2] = 0.0  # an input that is off at all of them
    F[:, 3] = -F[:, :3] @ row[:3] / row[3]
    found = refitted(F, row + 1e-6 * np.array([1.0, 1.0, 0.0, -1.0]), np.ones(30), np.full(30, 1e-13), 1e-3)
    assert (
        np.abs(found / found[0] - row).max() < 1e-5 and np.abs((found / found[0])[[1, 3]] - row[[1, 3]]).max() < 1e-12
    )


def test_what_a_row_lacks_is_told_by_kinks_that_agree_or_not_at_all():
    rng, c = np.random.default_rng(0), np.array([1.0, 2.0, -3.0, 0.5])
    part = Row(Equations(np.eye(4)[:3], c[:3]))
    F = rng.normal(size=(60, 4))
    assert completed(part, F) is None
    F[:3, 3] = -F[:3, :3] @ c[:3] / c[3]
    assert completed(part, F) is None  # three are too few
    F[3, 3] = -F[3, :3] @ c[:3] / c[3]
    assert np.abs(completed(part, F).coefficients - c).max() < 1e-12
    assert (
        completed(Row(Equations(np.eye(4)[:2], c[:2])), F) is None
        and completed(Row(Equations(np.eye(4), c)), F) is None
    )


def test_lines_are_drawn_for_neurons_of_the_layer_only():
    net, rng = random_network(DEEP, 1_000_001), np.random.default_rng(0)
    pool, known = begun(net), Prefix(tuple(net.weights[:3]), tuple(net.biases[:3]), 0.0, True)
    true, eye = np.append(net.weights[3][6], net.biases[3][6]), np.delete(np.eye(13), 2, axis=0)  # its input 2 is rare
    starts, ends = lines_for(pool, known, Row(Equations(eye, eye @ true)))
    assert len(starts) == len(ends) and (known.features(np.concatenate([starts, ends]))[:, 2] > 0).all()
    assert lines_for(pool, known, Row(Equations(eye, eye @ rng.normal(size=13)))) is None


@pytest.mark.slow
def test_no_neuron_of_eight_layers_is_invented():
    net = random_network(DEEP, 1_000_000)
    found = fs.recover(net, DEEP, seed=0, max_queries=300_000)
    assert not found.recovered and "limit of 300000" in str(found.unresolved[0])
    known = Prefix(tuple(W for W, _ in found.hyperplanes), tuple(b for _, b in found.hyperplanes))
    assert [len(b) for _, b in found.hyperplanes[:3]] == [16, 14, 12]
    assert all(off.max() < 1e-8 for off in far(known, net))


def test_layers_of_a_deep_network_are_found_to_the_last_digits():
    net = random_network(DEEP, 1_000_000)
    found = fs.recover(net, DEEP, seed=0, max_queries=80_000)
    assert [len(b) for _, b in found.hyperplanes] == [16, 14, 12] and not found.recovered
    known = Prefix(tuple(W for W, _ in found.hyperplanes), tuple(b for _, b in found.hyperplanes))
    assert all(off.max() < 1e-11 for off in far(known, net))
    assert "limit of 80000" in str(found.unresolved[0]) and "layer 4" in str(found.unresolved[-1])
