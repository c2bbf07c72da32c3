"""Matching by weights, straight through and of scales: planted elements come back, and nothing is made worse."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

import fiberscope as fs
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.methods.assignment import WIDE, _jonker_volgenant, announced, assign
from fiberscope.connectivity.methods.straight import learned_permutations
from fiberscope.connectivity.methods.way import Way
from fiberscope.connectivity.methods.weights import Weights, descend
from fiberscope.connectivity.selfcheck import draw
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION, Group
from fiberscope.modules.models import mlp, resnet20
from fiberscope.network.action.element import Element, Monomial
from fiberscope.network.network import Network
from fiberscope.run import Run

from .test_structure import built
from .zoo import ZOO

# -- assignments -------------------------------------------------------------------------------------------------------

KINDS = {
    "normal": lambda rng, n: rng.normal(size=(n, n)),
    "ties": lambda rng, n: rng.integers(0, 3, (n, n)).astype(float),
    "zero": lambda rng, n: np.zeros((n, n)),
    "gram": lambda rng, n: (x := rng.normal(size=(n, 7))) @ x[rng.permutation(n)].T,
    "one row": lambda rng, n: np.outer(np.arange(n) == 0, rng.normal(size=n)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 60])
def test_the_float32_assignment_is_as_good_as_the_other(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(10):
        cost = KINDS[kind](rng, n).astype(np.float32)
        mine = _jonker_volgenant(cost)
        rows, other = linear_sum_assignment(cost)
        assert sorted(mine) == list(range(n))
        assert cost[rows, mine].astype(float).sum() == pytest.approx(cost[rows, other].astype(float).sum(), abs=1e-4)


def test_copies_are_assigned_by_themselves_and_bad_numbers_refused() -> None:
    gains = np.random.default_rng(0).normal(size=(3, 4, 4))
    for matrix, order in zip(gains, assign(gains), strict=True):
        best = max(permutations(range(4)), key=lambda p: sum(matrix[i, p[i]] for i in range(4)))
        assert tuple(order) == best
    gains[1, 2, 3] = np.nan
    with pytest.raises(InputError, match="group h: expected finite gains"):
        assign(gains, name="h")


def test_a_wide_assignment_is_announced_and_made_in_float32() -> None:
    said: list[str] = []
    n = WIDE
    rng = np.random.default_rng(0)
    gains = rng.normal(size=(1, n, n)).astype(np.float32)
    order = assign(gains, fs.run.Run.begin(lambda done, total, text: said.append(text)), "wide")
    assert said == [announced(n, "wide")] and "GB" in said[0] and " s" in said[0]
    rows, other = linear_sum_assignment(gains[0], maximize=True)
    assert gains[0][rows, order[0]].sum(dtype=float) == pytest.approx(gains[0][rows, other].sum(dtype=float), rel=1e-6)


# -- planted elements --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZOO)
def test_planted_elements_of_the_zoo_are_recovered(name: str) -> None:
    """Heads, what is inside them, residual streams, norms: the tensors are the same again, bit by bit."""
    a, example = built(ZOO[name])
    draw(a, 1)
    structure = permutation_structure(a, example)
    planted = structure.only(PERMUTATION).random(5)
    b = structure.apply(a, planted)
    before = {key: value.clone() for key, value in b.state_dict().items()}
    found = match(a, b, structure, "weights")
    assert (found.element @ planted).is_identity
    assert found.distances is not None and found.distances[0] > 1 and found.distances[1] == 0
    back = found.apply(b)
    for key, value in a.state_dict().items():
        assert torch.equal(value, back.state_dict()[key])
        assert torch.equal(before[key], b.state_dict()[key])
    assert all(part.optimal == pytest.approx(1.0) for part in found.objectives)


def test_planted_resnet20_with_group_norm() -> None:
    for seed in range(2):
        a = resnet20(2, blocks=2, seed=seed)
        draw(a, seed)
        structure = permutation_structure(a, torch.randn(1, 3, 8, 8)).only(PERMUTATION)
        planted = structure.random(seed)
        found = match(a, structure.apply(a, planted), structure, "weights")
        assert (found.element @ planted).is_identity


def test_networks_and_modules_without_data() -> None:
    a = Network.random((5, 9, 8, 2), 0)
    rng = np.random.default_rng(1)
    planted = [rng.permutation(9), rng.permutation(8)]
    found = fs.match(a, fs.permute(a, planted), method="weights")
    assert all((q[p] == np.arange(len(q))).all() for q, p in zip(planted, found.permutations.values(), strict=True))
    assert isinstance(found.apply(a), Network)
    with pytest.raises(InputError, match="data: expected an example"):
        match(nn.Sequential(nn.Conv2d(1, 2, 3)), nn.Sequential(nn.Conv2d(1, 2, 3)), method="weights")


def test_bias_and_norm_alone_tell_neurons_apart() -> None:
    """All weights equal: whoever leaves biases and norms aside finds nothing."""
    a = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2))
    with torch.no_grad():
        for value in a.parameters():
            value.fill_(0.3)
        for value in (a[0].bias, a[1].weight):
            value.copy_(torch.rand(6, generator=torch.Generator().manual_seed(0)))
    structure = permutation_structure(a, torch.randn(2, 3)).only(PERMUTATION)
    found = match(a, structure.apply(a, {"0": [3, 1, 0, 5, 4, 2]}), structure, "weights")
    assert found.permutations["0"].tolist() == [2, 1, 5, 0, 4, 3]


# -- nothing gets worse ------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(2, 7), min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.sampled_from(["float32", "float64", "bfloat16"]),
    st.sampled_from([0.0, 1.0]),
    st.booleans(),
)
def test_matching_never_worsens(hidden: list[int], seed: int, dtype: str, size: float, scales: bool) -> None:
    """Also with equal, dead and zero neurons, coarse types, and pairs that are matched already."""
    a, b = (mlp((3, *hidden, 2), seed + i, activation=nn.ReLU, norm="none") for i in range(2))
    with torch.no_grad():
        a[1].weight[0] *= size
        if seed % 3 == 0:
            b.load_state_dict(a.state_dict())
        b[1].weight[-1] = b[1].weight[0]
    a, b = (net.to(getattr(torch, dtype)) for net in (a, b))
    found = match(a, b, method="weights", data=torch.zeros(1, 3), scales=scales)
    assert found.distances is not None
    assert found.distances[1] <= found.distances[0]
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))
    close = {"float32": 1e-4, "float64": 1e-11, "bfloat16": 0.1}[dtype]
    assert torch.allclose(found.apply(b)(x), b(x), atol=close, rtol=close)


def test_the_best_of_all_permutations() -> None:
    """Two groups of three, 36 elements: with restarts the nearest one is mostly found, and none that is nearer."""
    hits = 0
    for seed in range(5):
        a, b = (mlp((3, 3, 3, 2), seed + 100 * i) for i in range(2))
        structure = permutation_structure(a, torch.zeros(1, 3)).only(PERMUTATION)
        pair = Weights.between(structure.groups, dict(a.named_parameters()), dict(b.named_parameters()))
        names = [group.name for group in structure.groups]
        nearest = min(
            pair.moved(Element(dict(zip(names, orders, strict=True)))).distance()
            for orders in product(permutations(range(3)), repeat=2)
        )
        found = match(a, b, structure, "weights", restarts=5)
        assert found.distances is not None and found.distances[1] >= nearest - 1e-6
        hits += found.distances[1] <= nearest + 1e-6
    assert hits >= 4


def test_every_round_of_the_descent_comes_closer() -> None:
    a, b = mlp((10, 30, 30, 30, 4), 0), mlp((10, 30, 30, 30, 4), 1)
    structure = permutation_structure(a, torch.zeros(1, 10)).only(PERMUTATION)
    pair = Weights.between(structure.groups, dict(a.named_parameters()), dict(b.named_parameters()))
    for seed in (None, 0, 1):
        element, after = descend(pair, seed)
        assert after.distance() < pair.distance()
        assert pair.moved(element).distance() == after.distance()
    one = match(a, b, structure, "weights").distances
    more = match(a, b, structure, "weights", restarts=4).distances
    assert one is not None and more is not None and more[1] <= one[1] < one[0]


class Recurrent(nn.Module):
    """One permutation on both axes of a matrix: what it gains is not linear."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.h, self.out = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.a(x))
        return self.out(y + torch.tanh(self.h(y)))


def test_a_group_on_two_axes() -> None:
    a, b = Recurrent(), Recurrent()
    structure = permutation_structure(a, torch.randn(2, 3)).only(PERMUTATION)
    planted = structure.random(0)
    assert (match(a, structure.apply(a, planted), structure, "weights").element @ planted).is_identity
    found = match(a, b, structure, "weights", restarts=3)
    assert found.distances is not None and found.distances[1] <= found.distances[0]


def test_baselines_are_means_over_all_permutations() -> None:
    a, b = mlp((3, 4, 2), 0), mlp((3, 4, 2), 1)
    structure = permutation_structure(a, torch.zeros(1, 3)).only(PERMUTATION)
    found = match(a, b, structure, "weights")
    pair = Weights.between(structure.groups, dict(a.named_parameters()), dict(b.named_parameters()))
    group = structure.groups[0]
    values = [float(pair.moved(Element({group.name: p})).scores(group).sum()) for p in permutations(range(4))]
    now = float(pair.scores(group).sum())
    part = found.objectives[0]
    scale = part.identity / now
    assert part.optimal == pytest.approx(max(values) * scale, rel=1e-5)
    assert part.random == pytest.approx(np.mean(values) * scale, abs=1e-6)
    assert part.random_deviation == pytest.approx(np.std(values) * scale, rel=1e-4)


# -- scales ------------------------------------------------------------------------------------------------------------


def test_planted_scales_are_found() -> None:
    a = mlp((4, 7, 6, 3), 0, activation=nn.ReLU, norm="none").double()
    draw(a, 0)
    structure = permutation_structure(a, torch.zeros(1, 4))
    assert {group.kind for group in structure.groups} == {"permutation", "scaling"}
    b = structure.apply(a, structure.random(3))
    found = match(a, b, structure, "weights", scales=True)
    assert found.distances is not None and found.distances[1] < 1e-3 * found.distances[0]
    x = torch.randn(9, 4).double()
    assert torch.allclose(found.apply(b)(x), b(x), atol=1e-10)


# -- straight through --------------------------------------------------------------------------------------------------


def digits() -> tuple[Tensor, Tensor]:
    datasets = pytest.importorskip("sklearn.datasets")
    found = datasets.load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def trained(seed: int, widths: tuple[int, ...] = (64, 256, 256, 10), epochs: int = 10) -> nn.Sequential:
    X, y = digits()
    net = mlp(widths, seed, activation=nn.ReLU, norm="none")
    rule = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-4)
    source = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for part in torch.randperm(len(X), generator=source).split(64):
            rule.zero_grad()
            nn.functional.cross_entropy(net(X[part]), y[part]).backward()
            rule.step()
    return net.eval()


@pytest.fixture(scope="module")
def pair() -> tuple[nn.Module, nn.Module]:
    return trained(0), trained(1)


def test_aligned_digits_have_a_tenth_of_the_barrier(pair: tuple[nn.Module, nn.Module]) -> None:
    a, b = pair
    X, y = digits()
    unaligned = fs.barrier(a, b, "cross_entropy", (X, y), 11).barrier
    assert unaligned > 0.1
    for method in ("weights", "activations", "ste", "learned"):
        found = match(a, b, method=method, data=(X, y), steps=2, batch_size=600)
        aligned = fs.barrier(a, found.apply(b), "cross_entropy", (X, y), 11).barrier
        assert aligned <= 0.1 * unaligned, (method, aligned, unaligned)
        if method in ("ste", "learned"):
            assert found.losses is not None and found.losses[1] <= found.losses[0]


def test_straight_through_is_no_worse_than_where_it_starts(pair: tuple[nn.Module, nn.Module]) -> None:
    a, b = pair
    X, y = digits()

    def middle(model: nn.Module) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(fs.interpolate(a, model, 0.5)(X).double(), y))

    start = match(a, b, method="weights")
    kept = {key: value.clone() for model in pair for key, value in model.state_dict().items()}
    found = match(a, b, method="ste", data=(X, y), steps=2, batch_size=900)
    assert found.losses is not None and found.samples == len(X)
    assert found.losses[0] == pytest.approx(middle(b), rel=1e-5)
    assert found.losses[1] == pytest.approx(middle(found.apply(b)), rel=1e-5)
    assert found.losses[1] <= middle(start.apply(b)) + 1e-9
    assert kept.keys() == a.state_dict().keys() and torch.equal(
        kept["linear0.weight"], b.state_dict()["linear0.weight"]
    )
    with pytest.raises(InputError, match="steps: expected a positive"):
        match(a, b, method="ste", data=(X, y), steps=0)
    with pytest.raises(InputError, match="data: expected inputs with targets"):
        match(a, b, method="ste", data=X, steps=1)


def test_learned_permutations_follow_the_loss() -> None:
    """From starts that know nothing: never worse half-way, sometimes better, and the function is left alone."""
    better = []
    for seed in range(4):
        torch.manual_seed(seed)
        X = torch.randn(200, 4)
        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
        y = net(X).argmax(1)
        with torch.no_grad():
            net[2].weight.mul_(8)
            net[2].bias.mul_(8)
        structure = fs.permutation_structure(net, X[:2])
        swapped = structure.apply(net, {"0": [1, 0, 2, 3, 5, 4]})
        pair = Weights.between(structure.groups, dict(net.named_parameters()), dict(swapped.named_parameters()))
        wrong = Element({"0": Monomial.single(np.random.default_rng(seed).permutation(6))})
        way = Way.of(net, "cross_entropy", (X, y), None, 100, 40)
        tried = learned_permutations(way, swapped, structure, pair, wrong, 0, Run.begin(None, None))
        moved = structure.apply(swapped, tried.element)
        with torch.no_grad():
            start = nn.functional.cross_entropy(fs.interpolate(net, structure.apply(swapped, wrong), 0.5)(X), y)
            after = nn.functional.cross_entropy(fs.interpolate(net, moved, 0.5)(X), y)
            assert torch.allclose(moved(X), net(X), atol=1e-4)
        assert float(after) <= min(float(start), tried.losses[0]) * (1 + 1e-6)
        assert tried.losses[1] == pytest.approx(float(after), rel=1e-5)
        better.append(float(after) < 0.99 * min(float(start), tried.losses[0]))
    assert any(better)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_weights_that_are_no_numbers() -> None:
    a, b = mlp((3, 4, 2), 0), mlp((3, 4, 2), 1)
    with torch.no_grad():
        b[1].weight[0, 0] = torch.nan
    with pytest.raises(InputError, match=r"b: expected finite weights, got NaN or infinity in linear0\.weight"):
        match(a, b, method="weights")


def test_activations_see_heads_and_say_what_they_do_not_see() -> None:
    a, example = built(ZOO["gpt2"])
    draw(a, 1)
    structure: Any = permutation_structure(a, example)
    planted = structure.only(PERMUTATION).random(5)
    found = match(a, structure.apply(a, planted), structure, "activations", example)
    assert (found.element @ planted).is_identity
    seen = {part.group for part in found.objectives}
    groups: dict[str, Group] = {group.name: group for group in structure.only(PERMUTATION).groups}
    assert seen | set(found.by_weights) == set(groups) and not seen & set(found.by_weights)
    assert len(found.by_weights) == 2  # queries and keys of two layers
    assert isinstance(structure, Structure)


def test_a_parametrised_model_matches_a_plain_one() -> None:
    """What a structure gives has plain weights; paths between the two are refused in words that say what to do."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 6)), nn.ReLU(), nn.Linear(6, 2)).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    structure = fs.permutation_structure(net, x).only(PERMUTATION)
    moved = structure.apply(net, structure.random(1))
    for found in (fs.match(net, moved, structure, "weights"), fs.match(net, moved, method="activations", data=x)):
        assert torch.equal(found.apply(moved)[0].weight, fs.effective_weights(net)[0].weight)
    with pytest.raises(InputError, match=r"layer 0\.weight: expected it parametrised in both models or in none"):
        fs.interpolate(net, moved, 0.5)
