"""Planted permutations are found, applying keeps the function, and what is no chain is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.action import Axis, Group
from fiberscope.modules.models import mlp, resnet20
from fiberscope.modules.parametrisations import effective_weights
from fiberscope.network.action.chain import permute
from fiberscope.network.network import Network
from fiberscope.neurons.asymmetry import break_symmetry

X = np.random.default_rng(0).normal(size=(200, 5))
x = torch.as_tensor(X)


def trained_like(widths: tuple[int, ...], seed: int, **options: Any) -> nn.Sequential:
    """A network whose norms and biases are not at their trivial start."""
    net = mlp(widths, seed, **options).double()
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in net.modules():
            for name, value in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
                if value.dim() == 1 and value.is_floating_point():
                    value.add_(0.3 * torch.rand(value.shape, generator=source).double())
                assert name
    return net.eval()


KINDS: list[dict[str, Any]] = [
    {"norm": "layer"},
    {"norm": "batch"},
    {"norm": "none", "activation": nn.ReLU},
    {"norm": "none", "activation": nn.Tanh, "bias": False},
]


@pytest.mark.parametrize("options", KINDS, ids=lambda o: "-".join(map(str, o.values())))
def test_planted_permutation_is_recovered(options: dict[str, Any]) -> None:
    a = trained_like((5, 12, 9, 3), 0, **options)
    structure = permutation_structure(a, x).only("permutation")
    planted = structure.random(1)
    b = structure.apply(a, planted)
    assert torch.allclose(b(x), a(x), atol=1e-12)
    found = match(a, b, data=X)
    for name, part in planted.items():
        assert np.array_equal(part.orders[0][found.permutations[name]], np.arange(part.size))
    back = found.apply(b)
    for value, other in zip(back.state_dict().values(), a.state_dict().values(), strict=True):
        assert torch.equal(value, other)
    assert found.objective == pytest.approx(1.0) and found.identity < 0.9


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=3), st.integers(0, 1000), st.integers(1, 200))
def test_applying_keeps_the_function(hidden: list[int], seed: int, size: int) -> None:
    a, b = (trained_like((5, *hidden, 2), seed + i) for i in range(2))
    found = match(a, b, data=X, batch_size=size)
    assert torch.allclose(found.apply(b)(x), b(x), atol=1e-10)
    for part in found.objectives:
        assert part.optimal >= part.identity - 1e-12 and part.optimal >= part.random - 1e-12
    aligned = match(a, found.apply(b), data=X)
    assert aligned.objective == pytest.approx(found.objective)
    assert aligned.identity == pytest.approx(found.objective)


def test_the_optimum_is_the_optimum() -> None:
    """All 24 permutations of four neurons, by hand."""
    from itertools import permutations

    a, b = trained_like((5, 4, 2), 0, norm="none"), trained_like((5, 4, 2), 1, norm="none")
    found = match(a, b, data=X)
    left, right = (net[:3](x).detach().numpy() for net in (a, b))
    S = np.corrcoef(left.T, right.T)[:4, 4:]
    values = {p: float(np.mean([S[i, p[i]] for i in range(4)])) for p in permutations(range(4))}
    assert tuple(found.permutations["linear0"]) == max(values, key=lambda p: values[p])
    assert found.objective == pytest.approx(max(values.values()))
    assert found.identity == pytest.approx(values[0, 1, 2, 3])


def test_sign_of_the_correlation_counts() -> None:
    """A neuron and its negative are opposites: a matching by absolute values would be content with either."""
    a = Network([[[1.0], [-1.0]], [[1.0, 2.0]]], [[2.0, 2.0], [0.0]])
    found = match(a, permute(a, [[1, 0]]), data=np.linspace(-1, 1, 50)[:, None])
    (order,) = found.permutations.values()
    assert order.tolist() == [1, 0] and found.identity == pytest.approx(-1.0)


def test_networks_come_back_as_networks() -> None:
    a, b = Network.random((5, 8, 7, 2), 0), Network.random((5, 8, 7, 2), 1)
    found = match(a, b, data=X)
    moved = found.apply(b)
    assert isinstance(moved, Network)
    np.testing.assert_allclose(moved(X), b(X), atol=1e-12)
    expected = permute(b, list(found.permutations.values()))
    assert all(np.array_equal(p, q) for p, q in zip(moved.weights, expected.weights, strict=True))


@pytest.mark.parametrize("scheme", ["w", "syre", "sigma"])
def test_symmetry_broken_models_are_matched_by_effective_weights(scheme: str) -> None:
    a, b = (break_symmetry(trained_like((5, 8, 7, 2), seed), scheme, 3) for seed in (0, 1))
    before = {name: value.clone() for name, value in b.state_dict().items()}
    found = match(a, b, data=X)
    moved = found.apply(b)
    assert torch.allclose(moved(x), b(x), atol=1e-10)
    assert list(moved.state_dict()) == list(effective_weights(b).state_dict())
    assert all(torch.equal(value, before[name]) for name, value in b.state_dict().items())
    if scheme != "sigma":
        y = np.random.default_rng(0).integers(0, 2, len(X))
        assert barrier(effective_weights(a), moved, "cross_entropy", (X, y), 3).barrier >= 0


def test_dead_and_constant_neurons() -> None:
    a = Network([[[1.0], [0.0], [0.0]], [[1.0, 1.0, 1.0]]], [[0.0, -1.0, 0.7], [0.0]])
    found = match(a, a, data=np.linspace(0.1, 1, 20)[:, None])
    assert found.objectives[0].unmatched == (2, 2)
    assert found.objective == pytest.approx(1 / 3)
    assert sorted(found.permutations[found.objectives[0].group].tolist()) == [0, 1, 2]


def test_large_centres_make_the_identity_optimal() -> None:
    """Q2 of the paper in the small: with large fixed parts independent initialisations agree, without them not."""
    values = {}
    for sigma in (0.0, 20.0):
        a, b = (break_symmetry(mlp((5, 16, 16, 2), seed).double(), "w", 0, fixed=2, sigma=sigma) for seed in (0, 1))
        found = match(a, b, data=X)
        values[sigma] = (found.objective - found.identity, found.identity - found.random)
    assert values[20.0][0] < 0.1 and values[0.0][0] > 0.3
    assert values[20.0][1] > 0.5


def test_result_is_plain_data() -> None:
    found = match(mlp((5, 4, 2), 0), mlp((5, 4, 2), 1), data=(X, np.zeros(200)))
    assert json.loads(json.dumps(found.to_dict()))["samples"] == 200
    assert repr(found).startswith("Matching(activations, 1 groups, mean correlation: optimal")
    one_shot = (X[i : i + 50] for i in range(0, 200, 50))
    again = match(mlp((5, 4, 2), 0), mlp((5, 4, 2), 1), data=one_shot)
    assert again.samples == 200 and again.objective == pytest.approx(found.objective)
    with pytest.raises(InputError, match="at least one point"):
        match(mlp((5, 4, 2), 0), mlp((5, 4, 2), 1), data=iter([]))


# -- the structure -----------------------------------------------------------------------------------------------------


class Functional(nn.Module):
    """Activations as functions; optionally a skip connection, which ties two layers."""

    def __init__(self, skip: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.skip = skip

    def forward(self, value: Tensor) -> Tensor:
        first = torch.relu(self.a(value))
        second = torch.relu(self.b(first))
        result: Tensor = self.c(second + first if self.skip else second)
        return result


def test_functional_activations_are_fine_and_skips_join_layers() -> None:
    plain, skip = (permutation_structure(Functional(skip).double(), x) for skip in (False, True))
    plain, skip = plain.only("permutation"), skip.only("permutation")
    assert [(group.name, group.size, group.readers) for group in plain.groups] == [
        ("a", 6, ("b",)),
        ("b", 6, ("c",)),
    ]
    assert [(group.name, group.size, group.readers) for group in skip.groups] == [("a", 6, ("b", "c"))]


def test_a_planted_permutation_of_a_residual_stream_is_found() -> None:
    a = resnet20(1, blocks=1).double().eval()
    data = np.random.default_rng(0).normal(size=(8, 3, 8, 8))
    structure = permutation_structure(a, data).only("permutation")
    planted = structure.random(1)
    found = match(a, structure.apply(a, planted), structure, data=data)
    assert set(found.permutations) == set(planted) and len(planted) == 6
    for name, part in planted.items():
        assert np.array_equal(part.orders[0][found.permutations[name]], np.arange(part.size))


def test_norm_parameters_and_buffers_move_along() -> None:
    structure = permutation_structure(trained_like((5, 4, 2), 0, norm="batch"), x)
    names = {axis.tensor for axis in structure.groups[0].axes}
    assert names == {
        *(f"linear0.{key}" for key in ("weight", "bias")),
        *(f"norm0.{key}" for key in ("weight", "bias", "running_mean", "running_var")),
        "linear1.weight",
    }


def test_refusals() -> None:
    net = mlp((5, 4, 2))
    wide = permutation_structure(net.double(), x).only("permutation")
    with pytest.raises(UnsupportedModelError, match="hidden layer"):
        shared = nn.Linear(5, 5)
        match(*[nn.Sequential(shared, nn.ReLU(), nn.Sequential(shared)).double()] * 2, data=X)
    with pytest.raises(UnsupportedModelError, match="hidden layer"):
        match(nn.Sequential(nn.Linear(5, 2)), nn.Sequential(nn.Linear(5, 2)), data=X)
    with pytest.raises(InputError, match="data: expected inputs with targets"):
        match(net, net, method="ste")
    with pytest.raises(InputError, match="method: expected one of"):
        match(net, net, method="guess", data=X)
    with pytest.raises(InputError, match="structure: expected what permutation_structure found, got ndarray"):
        match(net, net, X, method="weights")
    with pytest.raises(InputError, match="data: expected inputs"):
        match(net, net)
    with pytest.raises(UnsupportedModelError, match="models of two widths are matched by 'weights'"):
        match(net, mlp((5, 3, 2)).double(), data=X)
    with pytest.raises(InputError, match="group linear0: permutation: expected a permutation of 0 to 3"):
        wide.apply(net, {"linear0": np.array([0, 0, 1, 2])})
    with pytest.raises(InputError, match="no group 'x'"):
        wide.apply(net, {"x": np.arange(4)})
    with pytest.raises(InputError, match="no such tensor"):
        Structure((Group("g", 4, (Axis("nowhere", 0),), ()),)).apply(net, {"g": [1, 0, 2, 3]})
    assert [group["name"] for group in wide.to_dict()["groups"]] == ["linear0"] and wide.identity().is_identity
