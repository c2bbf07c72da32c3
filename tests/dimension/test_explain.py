"""The kernel of the Jacobian by reasons: against rational ranks, and along every direction."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fiberscope.dimension.affine_rows import normalisations
from fiberscope.dimension.choice import slopes_as_maps
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.reasons.directions import KINDS
from fiberscope.dimension.reasons.explain import explain
from fiberscope.dimension.rescalings import rescalings
from fiberscope.dimension.symmetries import rescaling_rank
from fiberscope.errors import NotGenericError
from fiberscope.fibers.fiber import fiber
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.elimination import rank_mod
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
    assert found.rank + found.fiber <= net.num_parameters and found.fiber >= found.everywhere
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


class _Residual(nn.Module):
    """A convolution, a residual block with batch normalisation, a pool, and a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.norm = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.dense, self.twice = nn.Linear(8, 2), nn.Linear(2, 2)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.max_pool2d(F.relu(x + self.norm(self.inner(x))), 2)
        x = F.relu(self.dense(x.flatten(1)))
        return self.twice(F.relu(self.twice(x)))


PROGRAMS = {
    "residual": ((1, 6, 6), _Residual),
    "slopes": ((3,), lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 3), nn.ReLU6(), nn.Linear(3, 2))),
    "pools": (
        (1, 5, 5),
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(3, 2, 2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(2, 2, bias=False)),
        ),
    ),
}


def program(name):
    shape, make = PROGRAMS[name]
    torch.manual_seed(3)
    module = make().double().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean[:] = torch.tensor([0.25, -0.5])
    return slopes_as_maps(load(module, shape))


@pytest.mark.parametrize("name", ["convolutional", *PROGRAMS])
@pytest.mark.parametrize("points", [3, 40])
def test_programs(name, points):
    net = program(name) if name in PROGRAMS else case(name)
    X = np.random.default_rng(points).normal(size=(points, net.in_size))
    found = explain(net, X)
    J = jacobian(net, X)
    assert found.rank == functional_dimension(net, X, ranks="exact").exact == np.linalg.matrix_rank(J)
    basis = np.concatenate([part.directions for part in found.parts])
    unit = basis / np.linalg.norm(basis, axis=1, keepdims=True)
    assert np.abs(J @ unit.T).max() < 1e-9 * max(1.0, np.abs(J).max())
    assert np.linalg.matrix_rank(unit) == found.nullity == sum(part.dimension for part in found.parts)
    assert found.part("rescaling").everywhere == found.part("rescaling").dimension
    assert all(bound.value >= found.rank for bound in found.bounds if bound.holds)
    theta = np.concatenate([v.reshape(-1) for v in net.parameters.values()])
    for direction in found.part("one layer").directions[::3]:
        moved = at(net, theta + 1e-3 * direction / np.linalg.norm(direction))
        if np.array_equal(moved.signs(X).signs, net.signs(X).signs):
            assert np.abs(moved(X) - net(X)).max() < 1e-10 * max(1.0, np.abs(net(X)).max())


# Of the residual network the two channels of the stream: the convolution inside keeps its size because of the constant
# mean behind it, and the bias of the layer that is called twice is that of the outputs, too.
@pytest.mark.parametrize(("name", "count"), [("residual", 2), ("slopes", 4), ("pools", 5), ("convolutional", 6)])
def test_rescalings_of_programs_keep_the_function(name, count):
    net = program(name) if name in PROGRAMS else case(name)
    found = rescalings(net)
    directions = found.directions(net.num_parameters)
    assert found.rank == np.linalg.matrix_rank(directions) == count
    prime = 2**61 - 1
    assert rank_mod(found.directions(net.num_parameters, prime), prime) == count
    X = 5 * np.random.default_rng(0).normal(size=(50, net.in_size))
    theta = np.concatenate([v.reshape(-1) for v in net.parameters.values()])
    for direction in directions:
        logarithms = np.divide(direction, theta, out=np.zeros_like(theta), where=theta != 0)
        moved = at(net, theta * np.exp(logarithms))
        assert np.abs(moved(X) - net(X)).max() < 1e-10 * max(1.0, np.abs(net(X)).max())


@pytest.mark.parametrize("bias", [True, False])
def test_what_normalisations_take_back(bias):
    torch.manual_seed(1)
    module = nn.Sequential(
        *(nn.Conv2d(1, 3, 2, bias=bias), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(27, 4, bias=bias), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)),
    ).double()
    with torch.no_grad():
        for part in (module[1], module[5]):
            for value in (part.running_mean, part.running_var, part.weight, part.bias):
                value.uniform_(0.5, 1.5)
    net = load(module.eval(), (1, 4, 4))
    X = np.random.default_rng(0).normal(size=(60, 16))
    directions, J = normalisations(net, FLOAT), jacobian(net, X)
    assert len(directions) == (14 if bias else 7)
    assert np.abs(J @ directions.T).max() < 1e-12 * np.abs(J).max()
    found = explain(net, X)
    part = found.part("normalisation")
    assert 0 < part.everywhere == part.dimension <= len(directions)  # those of dead neurons count there
    bound = functional_dimension(net, X, ranks="exact").bound("rescaling")
    assert found.fiber == len(directions) + 7 == net.num_parameters - bound.value
    # the whole curve: multiply a channel by 2, divide gamma by 2, and the constant behind it stays
    part, changed = module[1], {name: value.copy() for name, value in net.parameters.items()}
    changed["0.weight"][0] *= 2
    if bias:
        changed["0.bias"][0] *= 2
    offset = float(-part.running_mean[0] / (part.running_var[0] + part.eps).sqrt())
    changed["1.bias"][0] += changed["1.weight"][0].item() * offset / 2
    changed["1.weight"][0] /= 2
    assert np.abs(net.with_parameters(changed)(X) - net(X)).max() < 1e-12


class _Adapter(nn.Module):
    """A frozen layer and two factors of low rank beside it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.lora_a, self.lora_b = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


def test_adapters_of_low_rank():
    """The factors of an adapter can be mixed by an invertible matrix and its inverse, and that is all."""
    torch.manual_seed(0)
    module = nn.Sequential(_Adapter(6, 8), nn.ReLU(), _Adapter(8, 3)).double()
    X = np.random.default_rng(0).normal(size=(80, 6))
    for chosen in ("requires_grad", "*lora*"):
        found = functional_dimension(module, X, parameters=chosen, ranks="exact")
        assert (found.exact, found.certified, found.num_parameters) == (42, True, 50)


def test_layers_in_a_row():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    net = load(module, (4,))
    X = np.random.default_rng(0).normal(size=(80, 4))
    found = explain(net, X)
    # of 2 x 2 mixtures the two diagonal ones are rescalings
    assert [found.part(kind).everywhere for kind in ("rescaling", "linear", "translation")] == [7, 2, 2]
    assert found.fiber == 11 <= found.nullity
    J = jacobian(net, X)
    for kind in ("linear", "translation"):
        assert np.abs(J @ found.part(kind).directions.T).max() < 1e-12


def test_nothing_is_taken_back_where_somebody_else_reads():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)

        def forward(self, x):
            z = self.a(x)
            return self.b(F.relu(self.norm(z)) + F.relu(z))

    assert len(normalisations(load(Twice().double().eval(), (2,)), FLOAT)) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rescalings_of_chains_with_zeros(seed):
    rng = np.random.default_rng(seed)
    net = random_net(rng)
    weights = [w * (rng.random(w.shape) < 0.6) for w in net.weights]
    net = Network(weights, [b * (rng.random(b.shape) < 0.4) for b in net.biases])
    assert (
        rescalings(net).rank
        == rescaling_rank(net)
        == np.linalg.matrix_rank(rescalings(net).directions(net.num_parameters))
    )


def test_what_is_constant_on_all_inputs_stays_so():
    """A neuron that is dead by its weights counts on all inputs only if it stays dead under small changes."""
    weights = [np.array([[1.0], [-2.0]]), np.array([[-1.0, -3.0], [-1.0, 0.0]]), np.ones((1, 2))]
    net = Network(weights, [np.ones(2), np.array([-1.0, -1.0]), np.zeros(1)])
    dead = explain(net, np.linspace(-3, 3, 30)[:, None]).part("dead")
    # both are off on the batch; of the second a weight is zero, and with a positive one it is on far away
    assert (dead.dimension, dead.everywhere) == (8, 4)


def paths_on(net, signs):
    """Every path from an input or a bias to an output along neurons that are on, as the set of its parameters."""
    places, start = [], 0
    for weight, bias in zip(net.weights, net.biases, strict=True):
        places.append(
            (start + np.arange(weight.size).reshape(weight.shape), start + weight.size + np.arange(len(bias)))
        )
        start += weight.size + len(bias)
    on = [*np.split(signs > 0, np.cumsum(net.widths[1:-1])[:-1]), np.ones(net.out_size, dtype=bool)]
    found = [[()] for _ in range(net.in_size)]
    for (weight, bias), active in zip(places, on, strict=True):
        found = [
            [(*path, weight[i, j]) for j, paths in enumerate(found) for path in paths] + [(bias[i],)]
            if active[i]
            else []
            for i in range(len(bias))
        ]
    rows = np.zeros((sum(map(len, found)), net.num_parameters))
    for row, path in enumerate(path for paths in found for path in paths):
        rows[row, list(path)] = 1
    return rows


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_algebraic_jacobian_has_the_rank_of_the_paths(seed):
    rng = np.random.default_rng(seed)
    net = random_net(rng)
    net = Network(net.weights, net.biases)  # with leaks every path is on
    X = rng.normal(size=(int(rng.integers(1, 9)), net.in_size))
    found = explain(net, X)
    rows = np.concatenate([paths_on(net, signs) for signs in np.unique(net.signs(X).signs, axis=0)])
    bound = next(bound for bound in found.bounds if bound.name == "algebraic Jacobian")
    assert bound.holds and bound.value == np.linalg.matrix_rank(rows) >= found.rank
    assert bound.failure_probability < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_functional_dimension_and_fiber_add_up(seed):
    """One hidden layer in general position: the fiber is the orbit of the rescalings, which a theorem says, too."""
    net = Network.random((2, 4, 1), seed)
    found = explain(net)
    known = fiber(net)
    assert known.dimension_exact and known.dimension == 0
    assert found.decisive and found.certified and found.gap == 0
    assert (found.rank, found.fiber) == (net.num_parameters - 4, 4)
    assert "17 = 13 + 4" in found.sentence
    wide = explain(Network.random((2, 12, 12, 1), seed))
    assert wide.fiber == 24 < wide.nullity and "the fiber has 24 to" in wide.sentence


def test_what_is_refused():
    with pytest.raises(NotGenericError, match="no decisive set"):
        explain(Network.random((6, 4, 2), 0))
    with pytest.raises(NotGenericError, match="kinks"):
        explain(Network([[[1.0]], [[2.0]]], [[0.0], [0.0]]), [[0.0]])
