"""The kernel of the Jacobian by reasons: against rational ranks, and along every direction."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.reasons.explain import KINDS, explain
from fiberscope.errors import NotGenericError, UnsupportedModelError
from fiberscope.network.network import Network
from fiberscope.plot.spectra import kernel_parts
from fiberscope.testing import case


def random_net(rng):
    widths = (int(rng.integers(1, 4)), *rng.integers(1, 5, rng.integers(1, 4)).tolist(), int(rng.integers(1, 3)))
    weights = [rng.normal(size=(n, m)) for m, n in pairwise(widths)]
    biases = [rng.normal(size=n) for n in widths[1:]]
    if rng.random() < 0.5:  # neurons that are dead or linear on the batch, and pairs that switch together
        biases[0] += rng.choice([-40.0, 0.0, 40.0], widths[1])
        if widths[1] > 1:
            weights[0][1], biases[0][1] = 2.0 * weights[0][0], 2.0 * biases[0][0]
    kind = str(rng.choice(["relu", "leaky_relu"]))
    return Network(weights, biases, kind)


def at(net, theta):
    ends = np.cumsum([v.size for v in net.parameters.values()])
    parts = np.split(theta, ends[:-1])
    return net.with_parameters({n: p.reshape(v.shape) for (n, v), p in zip(net.parameters.items(), parts, strict=True)})


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_parts_add_up_and_outputs_stay(seed):
    rng = np.random.default_rng(seed)
    net = random_net(rng)
    X = rng.normal(size=(int(rng.integers(1, 12)), net.in_size))
    found = explain(net, X)
    J = jacobian(net, X)
    assert found.rank == np.linalg.matrix_rank(J, tol=1e-9 * max(1e-9, np.abs(J).max()))
    assert [part.kind for part in found.parts] == [*KINDS, "unexplained"]
    assert sum(part.dimension for part in found.parts) == found.nullity == net.num_parameters - found.rank
    assert all(part.dimension >= part.everywhere >= 0 for part in found.parts)
    basis = np.concatenate([part.directions for part in found.parts])
    assert basis.shape == (found.nullity, net.num_parameters)
    unit = basis / np.linalg.norm(basis, axis=1, keepdims=True)
    assert np.abs(J @ unit.T).max(initial=0.0) < 1e-8 * max(1.0, np.abs(J).max())
    if len(unit):
        assert np.linalg.matrix_rank(unit, tol=1e-9) == found.nullity
    for bound in found.bounds:
        assert not bound.holds or bound.value >= found.rank or not bound.proven
    assert found.bounds[-1].name == "adjacent layers" and found.bounds[-1].value >= found.rank


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_straight_steps_change_nothing(seed):
    """Along directions of one layer, of dead neurons and of translations, as long as no sign changes."""
    rng = np.random.default_rng(seed)
    net = random_net(rng)
    X = rng.normal(size=(6, net.in_size))
    theta = np.concatenate([v.reshape(-1) for v in net.parameters.values()])
    size = max(1.0, np.abs(net(X)).max())
    for part in explain(net, X).parts:
        if part.kind in ("dead", "one layer", "translation"):
            for direction in part.directions:
                step = 1e-3 * direction / np.linalg.norm(direction)
                moved = at(net, theta + step)
                if np.array_equal(moved.signs(X).signs, net.signs(X).signs):
                    assert np.abs(moved(X) - net(X)).max() < 1e-11 * size * max(1.0, np.abs(theta).max()) ** 3


def test_known_kernels():
    net = Network([[[1.0], [2.0], [1.0]], [[1.0, 1.0, 1.0]]], [[0.5, 1.0, -50.0], [0.0]])
    found = explain(net, np.linspace(-3, 3, 40)[:, None])
    sizes = {part.kind: part.dimension for part in found.parts}
    # Neuron 2 is dead: its w, b, v. Neurons 0 and 1 bend at one place, and one is twice the other: of four
    # rescalings and mixtures three are independent, and (w, b) can be moved from one to the other.
    assert sizes["dead"] == 3 and sizes["rescaling"] == 2
    assert sizes["equal patterns"] == 1 and sizes["one layer"] == 1
    assert found.nullity == found.explained == 7
    assert found.part("dead").everywhere == 0 and found.part("rescaling").everywhere == 2
    assert "3 weights of dead neurons" in found.sentence
    assert found.sentence in repr(found)
    ax = kernel_parts(found)
    assert {text.get_text() for text in ax.get_yticklabels()} >= {"dead", "rescaling", "change the outputs"}


def test_what_is_refused():
    with pytest.raises(UnsupportedModelError, match="chain of dense layers"):
        explain(case("residual"), np.zeros((1, case("residual").in_size)))
    with pytest.raises(NotGenericError, match="no decisive set"):
        explain(Network.random((6, 4, 2), 0))
    with pytest.raises(NotGenericError, match="kinks"):
        explain(Network([[[1.0]], [[2.0]]], [[0.0], [0.0]]), [[0.0]])
