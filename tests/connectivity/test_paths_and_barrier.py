"""The segment between two models and what the loss does along it."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fiberscope.connectivity.barrier import PathValues, barrier
from fiberscope.connectivity.paths import interpolate
from fiberscope.errors import InputError
from fiberscope.modules.models import mlp, resnet20, vit
from fiberscope.modules.parametrisations import effective_weights, fixed_parts
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network
from fiberscope.neurons.asymmetry import break_symmetry

WIDTHS = (4, 6, 5, 3)


def data(points: int = 40, width: int = 4, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(points, width)), rng.integers(0, classes, points)


def same_state(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


PAIRS: dict[str, Any] = {
    "mlp": lambda seed: mlp(WIDTHS, seed),
    "batch norm": lambda seed: mlp(WIDTHS, seed, norm="batch"),
    "w": lambda seed: break_symmetry(mlp(WIDTHS, seed), "w", 3),
    "syre": lambda seed: break_symmetry(mlp(WIDTHS, seed), "syre", 3),
    "sigma": lambda seed: break_symmetry(mlp(WIDTHS, seed), "sigma", 3),
}


# -- interpolate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIRS)
def test_ends_have_the_bits_of_the_end_points_and_nothing_is_changed(kind: str) -> None:
    a, b = PAIRS[kind](0), PAIRS[kind](1)
    for net in (a, b):
        net.train()
        net(torch.randn(8, 4))  # running statistics differ
    copies = deepcopy(a), deepcopy(b)
    assert same_state(interpolate(a, b, 0), a)
    end = interpolate(a, b, 1)
    x = torch.randn(5, 4)
    assert torch.equal(end.eval()(x), deepcopy(b).eval()(x))
    assert same_state(interpolate(a, a, 0.3), a)
    assert same_state(a, copies[0]) and same_state(b, copies[1])


@settings(max_examples=25, deadline=None)
@given(st.floats(-1, 2), st.sampled_from(["w", "syre"]))
def test_effective_weights_run_along_their_own_segment(t: float, scheme: str) -> None:
    a, b = (break_symmetry(mlp(WIDTHS, seed).double(), scheme, 3) for seed in (0, 1))
    one = effective_weights(interpolate(a, b, t))
    two = interpolate(effective_weights(a), effective_weights(b), t)
    for (name, x), y in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.allclose(x, dict(two.named_parameters())[name], atol=1e-12) and y is not None
    parts, middle = dict(fixed_parts(a)), dict(fixed_parts(interpolate(a, b, t)))
    assert torch.equal(parts["linear0.weight"].F, middle["linear0.weight"].F)


def test_running_statistics_are_mixed_and_counters_are_not() -> None:
    a, b = mlp(WIDTHS, 0, norm="batch"), mlp(WIDTHS, 1, norm="batch")
    for net, batches in ((a, 1), (b, 3)):
        for _ in range(batches):
            net.train()(torch.randn(8, 4) + 1)
    middle = interpolate(a, b, 0.5)
    mean = (a.norm0.running_mean + b.norm0.running_mean) / 2  # type: ignore[operator, union-attr]
    assert torch.allclose(middle.norm0.running_mean, mean) and int(middle.norm0.num_batches_tracked) == 1


def test_networks() -> None:
    a, b = Network.random((2, 3, 1), 0), Network.random((2, 3, 1), 1)
    assert identical(interpolate(a, b, 0), a) and identical(interpolate(a, b, 1), b)
    middle = interpolate(a, b, 0.5)
    np.testing.assert_allclose(middle.weights[0], (a.weights[0] + b.weights[0]) / 2)
    with pytest.raises(InputError, match="one architecture"):
        interpolate(a, Network.random((2, 4, 1), 0), 0.5)
    with pytest.raises(InputError, match="one architecture"):
        leaky = Network(list(b.weights), list(b.biases), activation="leaky_relu", slope=0.1)
        interpolate(a, leaky, 0.5)


def tied(shared: bool) -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    if shared:
        net[1].weight = net[0].weight
    return net


MISMATCHES: list[tuple[str, Any, Any]] = [
    (r"layer linear0\.weight: expected equal shapes, got \(6, 4\) and \(7, 4\)", mlp(WIDTHS), mlp((4, 7, 5, 3))),
    (
        r"layer norm2\.weight: expected two models of one architecture, the first has",
        mlp(WIDTHS),
        mlp((4, 6, 5, 3, 2)),
    ),
    (r"layer linear0\.weight: expected equal types", mlp(WIDTHS), mlp(WIDTHS).double()),
    (
        r"layer linear0\.weight: expected the same fixed part",
        break_symmetry(mlp(WIDTHS), "w", 0),
        break_symmetry(mlp(WIDTHS), "w", 1),
    ),
    (r"layer act0: expected the same fixed part F", PAIRS["sigma"](0), break_symmetry(mlp(WIDTHS), "sigma", 4)),
    (
        r"layer linear0\.weight: expected it parametrised in both models or in none, the second has a plain one",
        break_symmetry(mlp(WIDTHS), "w", 0),
        mlp(WIDTHS),
    ),
    (r"layer 1\.weight: it is tied in one model", tied(True), tied(False)),
    (r"b: expected a Network, a torch module, .* got int", mlp(WIDTHS), 3),
]


@pytest.mark.parametrize(("message", "a", "b"), MISMATCHES)
def test_mismatches_name_the_layer(message: str, a: Any, b: Any) -> None:
    with pytest.raises(InputError, match=message):
        interpolate(a, b, 0.5)
    with pytest.raises(InputError, match=message):
        barrier(a, b, "cross_entropy", data())
    with pytest.raises(InputError, match="t: expected a finite number"):
        interpolate(mlp(WIDTHS), mlp(WIDTHS), float("nan"))


def test_tied_models_stay_tied() -> None:
    a, b = tied(True), tied(True)
    middle = interpolate(a, b, 0.5)
    assert middle[0].weight is middle[1].weight
    assert torch.allclose(middle[0].weight, (a[0].weight + b[0].weight) / 2)  # type: ignore[index]


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_tied_models_have_a_barrier(engine: str) -> None:
    a, b = tied(True), tied(True)
    x = torch.randn(9, a[0].in_features)  # type: ignore[index]
    y = torch.zeros_like(a(x))
    found = barrier(a, b, "mse", (x, y), points=3, engine=engine)
    assert np.isclose(found.curve[1], float((interpolate(a, b, 0.5)(x).detach() ** 2).mean()))


def test_ends_are_copied_and_not_computed() -> None:
    a, b = nn.Linear(3, 1), nn.Linear(3, 1)
    with torch.no_grad():
        a.weight.copy_(torch.tensor([[-0.0, -3e38, 1.0]]))
        b.weight.copy_(torch.tensor([[1.0, 3e38, torch.inf]]))
    for t, end in ((0.0, a), (1.0, b)):
        assert torch.equal(interpolate(a, b, t).weight.view(torch.int32), end.weight.view(torch.int32))


# -- barrier -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_against_the_slow_obvious_way(kind: str, engine: str) -> None:
    a, b = PAIRS[kind](0), PAIRS[kind](1)
    X, y = data()
    found = barrier(a, b, "cross_entropy", (X, y), points=7, batch_size=16, engine=engine)
    losses, hits = [], []
    for t in found.t:
        with torch.no_grad():
            output = interpolate(a, b, float(t)).eval()(torch.as_tensor(X, dtype=torch.float32))
        losses.append(float(nn.functional.cross_entropy(output, torch.as_tensor(y))))
        hits.append(float((output.argmax(1).numpy() == y).mean()))
    assert found.accuracy is not None and found.samples == 40 and found.pairs == 1
    np.testing.assert_allclose(found.curve, losses, rtol=1e-5)
    np.testing.assert_allclose(found.accuracy.mean, hits, atol=0.03)
    chord = np.array(losses[:1]) * (1 - found.t) + np.array(losses[-1:]) * found.t
    assert found.barrier == pytest.approx((losses - chord).max(), abs=1e-5)
    assert found.midpoint == pytest.approx((losses - chord)[3], abs=1e-5)


@pytest.mark.parametrize("make", [lambda s: resnet20(1, s, blocks=1), lambda s: vit(16, 1, 2, s, image=8)])
def test_any_architecture(make: Any) -> None:
    a, b = make(0), make(1)
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(6, 3, 8, 8)), rng.integers(0, 10, 6)
    one, two = (barrier(a, b, "cross_entropy", batch, points=3, engine=engine) for engine in ("loop", "vmap"))
    np.testing.assert_allclose(one.curve, two.curve, rtol=1e-4)


def test_a_model_and_itself_have_no_barrier() -> None:
    net = mlp(WIDTHS)
    found = barrier(net, net, "cross_entropy", data(), points=5)
    assert found.barrier == 0 and found.midpoint == 0
    assert found.accuracy is not None and found.accuracy.barrier == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=9), st.sampled_from([1.0, -1.0]))
def test_a_barrier_is_never_negative_and_bounds_the_midpoint(values: list[float], sign: float) -> None:
    t = np.linspace(0, 1, len(values) + 1 - len(values) % 2)
    curve = PathValues("loss", t, np.resize(values, (1, len(t))), sign)
    assert curve.barrier >= 0 and curve.barrier >= curve.midpoint
    straight = PathValues("loss", t, np.linspace(values[0], values[-1], len(t))[None], sign)
    assert straight.barrier <= 1e-12 * (1 + max(map(abs, values)))


def test_pairs_give_mean_and_deviation() -> None:
    nets = [mlp(WIDTHS, seed) for seed in range(6)]
    found = barrier(nets[:3], nets[3:], "cross_entropy", data(), points=3)
    single = [barrier(a, b, "cross_entropy", data(), points=3) for a, b in zip(nets[:3], nets[3:], strict=True)]
    np.testing.assert_allclose(found.loss.barriers, [one.barrier for one in single])
    assert found.barrier == pytest.approx(np.mean([one.barrier for one in single]))
    assert found.loss.barrier_deviation == pytest.approx(np.std([one.barrier for one in single], ddof=1))
    assert np.isnan(single[0].loss.barrier_deviation)
    json.dumps(found.to_dict(), allow_nan=False)
    assert "3 pairs" in repr(found) and "+-" in repr(found)
    with pytest.raises(InputError, match="as many in both lists, got 3 and 2"):
        barrier(nets[:3], nets[3:5], "cross_entropy", data())


def test_data_forms_and_held_out_data() -> None:
    a, b = mlp(WIDTHS, 0), mlp(WIDTHS, 1)
    X, y = data()

    class Data:
        inputs, targets = X[:30], y[:30]
        test_inputs, test_targets = X[30:], y[30:]

    found = barrier(a, b, "cross_entropy", Data(), points=3)
    assert found.test is not None and (found.samples, found.test.samples) == (30, 10)
    explicit = barrier(a, b, "cross_entropy", (X[:30], y[:30]), 3, test=(X[30:], y[30:]))
    assert explicit.test is not None
    np.testing.assert_allclose(explicit.test.curve, found.test.curve)
    once = barrier(a, b, "cross_entropy", ((X[i : i + 10], y[i : i + 10]) for i in range(0, 30, 10)), 3)
    np.testing.assert_allclose(once.curve, found.curve, rtol=1e-6)


def test_losses() -> None:
    a, b = mlp((4, 6, 3), 0), mlp((4, 6, 3), 1)
    X, _ = data()
    target = np.random.default_rng(1).normal(size=(40, 3))
    named = barrier(a, b, "mse", (X, target), 3, batch_size=16)
    mean = barrier(a, b, nn.MSELoss(), (X, target), 3, batch_size=16)
    each = barrier(a, b, lambda o, t: (o - t).square().mean(dim=1), (X, target), 3, batch_size=16)
    np.testing.assert_allclose(named.curve, mean.curve, rtol=1e-5)
    np.testing.assert_allclose(named.curve, each.curve, rtol=1e-5)
    assert named.accuracy is None
    column = mlp((4, 6, 1), 0)
    flat, tall = (barrier(column, column, "mse", (X, t), 2) for t in (target[:, 0], target[:, :1]))
    np.testing.assert_allclose(flat.curve, tall.curve)


def test_points() -> None:
    net = mlp(WIDTHS)
    assert barrier(net, net, "cross_entropy", data(), 4).t.tolist() == [0, 1 / 3, 0.5, 2 / 3, 1]
    assert barrier(net, net, "cross_entropy", data(), [0, 0.25, 1]).t.tolist() == [0, 0.25, 0.5, 1]
    assert len(barrier(net, net, "cross_entropy", data()).t) == 25


BAD: list[tuple[str, dict[str, Any]]] = [
    ("points: expected at least 2", {"points": 1}),
    ("points: expected a number, or rising", {"points": [0, 0.7, 0.6, 1]}),
    ("points: expected a number, or rising", {"points": [0.1, 1]}),
    ("engine: expected one of", {"engine": "gpu"}),
    ("loss: expected one of cross_entropy", {"loss": "hinge"}),
    ("expected inputs with targets", {"data": data()[0]}),
    ("targets: expected labels from 0 to 2", {"data": (data()[0], data()[1] + 5)}),
    ("targets: expected the shape of the outputs", {"loss": "mse", "data": (data()[0], np.zeros((40, 2)))}),
    ("one number or one per point", {"loss": lambda output, target: output}),
]


@pytest.mark.parametrize(("message", "options"), BAD)
def test_bad_questions(message: str, options: dict[str, Any]) -> None:
    given = {"loss": "cross_entropy", "data": data()} | options
    with pytest.raises(InputError, match=message):
        barrier(mlp(WIDTHS), mlp(WIDTHS, 1), **given)


def test_diverged_models_give_nan_and_not_a_number() -> None:
    bad = mlp(WIDTHS)
    with torch.no_grad():
        bad.linear0.weight.fill_(float("nan"))  # type: ignore[operator, union-attr]
    assert np.isnan(barrier(mlp(WIDTHS), bad, "cross_entropy", data(), 3).barrier)


def test_modes_and_gradients_are_left_alone() -> None:
    a, b = mlp(WIDTHS, 0, norm="batch").train(), mlp(WIDTHS, 1, norm="batch").train()
    before = deepcopy(a)
    barrier(a, b, "cross_entropy", data(), 3)
    assert a.training and b.training and same_state(a, before)
    assert all(p.grad is None for p in a.parameters())


def test_auto_falls_back_where_vmap_cannot() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.linear(x)
            return result if float(result.sum()) > 0 else -result

    assert np.isfinite(barrier(Branches(), Branches(), "cross_entropy", data(), 3).curve).all()
    with pytest.raises(InputError, match=r"engine: vmap cannot run this model .* take 'loop'"):
        barrier(Branches(), Branches(), "cross_entropy", data(), 3, engine="vmap")
