"""Many trainings at once against the obvious oracle: one network after the other with torch.optim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network
from fiberscope.training.batched import LOSSES, Layout, backward, forward
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.plan import Parametrisation
from fiberscope.training.seeds import train_many
from fiberscope.training.track import track

OPTIMIZERS = {
    "adam": lambda p, lr, wd: torch.optim.Adam(p, lr=lr, weight_decay=wd),
    "adamw": lambda p, lr, wd: torch.optim.AdamW(p, lr=lr, weight_decay=wd),
    "sgd": lambda p, lr, wd: torch.optim.SGD(p, lr=lr, weight_decay=wd),
    "momentum": lambda p, lr, wd: torch.optim.SGD(p, lr=lr, weight_decay=wd, momentum=0.5),
}


def module_of(net: Network) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for weight, bias in zip(net.weights, net.biases, strict=True):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(weight))
            linear.bias.copy_(torch.tensor(bias))
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def one_by_one(
    widths: tuple[int, ...],
    data: Dataset,
    seed: int,
    epochs: int,
    batch_size: int,
    optimizer: str,
    lr: float,
    decay: float,
) -> torch.nn.Sequential:
    """The slow way, in the order of visits that train_many documents."""
    module = module_of(Network.random(widths, seed))
    steps = OPTIMIZERS[optimizer](module.parameters(), lr, decay)
    X, T = torch.tensor(data.flat_inputs), torch.tensor(data.targets)
    loss_of = torch.nn.CrossEntropyLoss() if data.is_classification else torch.nn.MSELoss()
    rng = np.random.default_rng([seed, 1])
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(X)))
        for part in order.split(batch_size):
            steps.zero_grad()
            loss_of(module(X[part]), T[part]).backward()
            steps.step()
    return module


def distance(net: Network, module: torch.nn.Sequential) -> float:
    theirs = [p.detach().numpy() for p in module.parameters()]
    ours = [x for pair in zip(net.weights, net.biases, strict=True) for x in pair]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


CLASSES = Dataset("classes", np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_one_step_and_few_epochs_equal_torch_one_by_one(optimizer: str, task: str) -> None:
    data, widths = (load_dataset("f2"), (1, 10, 10, 1)) if task == "regression" else (CLASSES, (3, 8, 4))
    loss = "mse" if task == "regression" else "cross_entropy"
    name, extra = ("sgd", {"momentum": 0.5}) if optimizer == "momentum" else (optimizer, {})
    seeds, decays = [3, 4, 5], [0.0, 1e-3, 0.1]
    for epochs, size, tolerance in ((1, len(data), 1e-13), (3, 16, 1e-9)):
        runs = train_many(
            widths,
            data,
            seeds,
            epochs=epochs,
            optimizer=name,
            lr=0.01,
            weight_decay=decays,
            batch_size=size,
            loss=loss,
            **extra,
        )
        for seed, decay, net in zip(seeds, decays, runs.networks, strict=True):
            slow = one_by_one(widths, data, seed, epochs, size, optimizer, 0.01, decay)
            assert distance(net, slow) < tolerance
        start = Network.random(widths, seeds[0])
        assert np.abs(runs.networks[0].weights[0] - start.weights[0]).max() > 1e-4  # something was learnt


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=5),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 1000),
    st.sampled_from(["mse", "cross_entropy"]),
)
def test_gradients_equal_autograd(widths: list[int], runs: int, points: int, seed: int, loss: str) -> None:
    torch.manual_seed(seed)
    layout = Layout(tuple(widths))
    flat = torch.randn(runs * layout.size, dtype=torch.float64, requires_grad=True)
    X = torch.randn(runs, points, widths[0], dtype=torch.float64)
    labels = torch.randint(widths[-1], (runs, points))
    target = labels if loss == "cross_entropy" else torch.randn(runs, points, widths[-1], dtype=torch.float64)
    h, layers = X, layout.split(flat)
    for index, (weight, bias) in enumerate(layers):
        h = h @ weight.mT + bias
        h = h.relu() if index + 1 < len(layers) else h
    expected = torch.stack(
        [
            torch.nn.functional.cross_entropy(z, t) if loss == "cross_entropy" else ((z - t) ** 2).mean()
            for z, t in zip(h, target, strict=True)
        ]
    )
    expected.sum().backward()
    with torch.no_grad():
        values = forward(layers, X)
        found, delta = LOSSES[loss](values[-1], target)
        gradient = torch.full_like(flat, torch.nan)
        backward(layers, values, delta, layout.split(gradient))
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, flat.grad, rtol=1e-10, atol=1e-12)


def test_whole_runs_agree_in_distribution() -> None:
    data, widths, seeds = load_dataset("f1", points=40), (1, 8, 8, 1), list(range(16))
    runs = train_many(widths, data, seeds, epochs=60, batch_size=8, weight_decay=1e-4)
    slow = [one_by_one(widths, data, seed, 60, 8, "adam", 0.01, 1e-4) for seed in range(100, 116)]
    ours = [float(np.mean((net(data.inputs) - data.targets) ** 2)) for net in runs.networks]
    theirs = [float(np.mean((m(torch.tensor(data.inputs)).detach().numpy() - data.targets) ** 2)) for m in slow]
    # Other seeds, so nothing is shared but the distribution: a two-sample Kolmogorov-Smirnov statistic, and a level
    # that sixteen against sixteen exceed by chance less than once in a hundred choices of seeds.
    both = np.sort(ours + theirs)
    gap = max(abs(np.mean(np.array(ours) <= x) - np.mean(np.array(theirs) <= x)) for x in both)
    assert gap <= 0.6
    assert runs.losses[:, -1].mean() < 0.5 * runs.losses[:, 0].mean()


def same_runs(a: Any, b: Any) -> bool:
    return all(identical(x, y) for x, y in zip(a.networks, b.networks, strict=True))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_deterministic_and_independent_of_company(dtype: str) -> None:
    data = load_dataset("f3")
    options: dict[str, Any] = {"epochs": 5, "batch_size": 16, "dtype": dtype, "weight_decay": 1e-4}
    together = train_many((1, 10, 10, 1), data, [0, 1, 2, 3], **options)
    assert same_runs(together, train_many((1, 10, 10, 1), data, [0, 1, 2, 3], **options))
    for run in range(4):
        alone = train_many((1, 10, 10, 1), data, [run], **options)
        for a, b in zip(alone.networks[0].weights, together.networks[run].weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9 if dtype == "float64" else 1e-2, atol=1e-3)


def test_tasks_and_rates_per_run() -> None:
    tasks = [load_dataset(name) for name in ("f1", "f2", "f3")]
    runs = train_many((1, 6, 1), tasks, [7, 7, 7], epochs=3, batch_size=20, lr=[0.01, 0.02, 0.03])
    for task, lr, net in zip(tasks, (0.01, 0.02, 0.03), runs.networks, strict=True):
        slow = one_by_one((1, 6, 1), task, 7, 3, 20, "adam", lr, 0.0)
        assert distance(net, slow) < 1e-9


def test_a_run_that_diverges_is_taken_out_alone() -> None:
    data, widths = load_dataset("f1"), (1, 6, 6, 1)
    rates = [0.01, 1e30, 0.01]
    runs = train_many(widths, data, [0, 1, 2], epochs=6, optimizer="sgd", lr=rates, batch_size=25, checkpoints=[0, 6])
    assert [failure.run for failure in runs.failures] == [1]
    assert runs.finished == (0, 2) and "not finite" in runs.failures[0].reason
    assert runs.checkpoints[6][1] is None and runs.checkpoints[0][1] is not None
    epoch = runs.failures[0].epoch
    assert np.isnan(runs.losses[1, epoch - 1 :]).all() and np.isfinite(runs.losses[[0, 2]]).all()
    if epoch == 1:
        assert identical(runs.networks[1], Network.random(widths, 1))
    healthy = train_many(widths, data, [0, 2], epochs=6, optimizer="sgd", lr=0.01, batch_size=25)
    for ours, theirs in zip((runs.networks[0], runs.networks[2]), healthy.networks, strict=True):
        np.testing.assert_allclose(ours.weights[1], theirs.weights[1], rtol=1e-9)


def test_all_runs_diverge() -> None:
    runs = train_many((1, 4, 1), load_dataset("f1"), [0, 1], epochs=50, optimizer="sgd", lr=1e200)
    assert runs.finished == () and len(runs.networks) == 2


def test_fixed_parts_follow_their_definition() -> None:
    """W_eff = s F + D W, against autograd through that very formula; raw parameters decay, effective ones do not."""
    rng = np.random.default_rng(0)
    data = Dataset("d", rng.normal(size=(20, 3)), rng.normal(size=(20, 2)))
    widths, seeds, scales = (3, 5, 2), [0, 1], np.array([0.0, 2.0])
    F = [rng.normal(size=(5, 3)), None]
    D = [rng.integers(0, 2, size=(5, 3)).astype(float), np.zeros((2, 5))]
    runs = train_many(
        widths,
        data,
        seeds,
        epochs=4,
        batch_size=8,
        optimizer="adamw",
        weight_decay=0.01,
        parametrisation=Parametrisation(F, D, [None, np.zeros(2)], scales),
    )
    assert runs.trained is not None
    X, T = torch.tensor(data.inputs), torch.tensor(data.targets)
    for index, seed in enumerate(seeds):
        net = Network.random(widths, seed)
        w = [torch.tensor(x, requires_grad=True) for x in net.weights]
        b = [torch.tensor(x, requires_grad=True) for x in net.biases]
        steps = torch.optim.AdamW([w[0], b[0], w[1], b[1]], lr=0.01, weight_decay=0.01)
        order = np.random.default_rng([seed, 1])
        for _ in range(4):
            for part in torch.from_numpy(order.permutation(20)).split(8):
                steps.zero_grad()
                first = scales[index] * torch.tensor(F[0]) + torch.tensor(D[0]) * w[0]
                hidden = torch.relu(X[part] @ first.T + b[0])
                ((hidden @ (0 * w[1]).T + 0 * b[1] - T[part]) ** 2).mean().backward()
                steps.step()
        effective = scales[index] * F[0] + D[0] * w[0].detach().numpy()
        np.testing.assert_allclose(runs.networks[index].weights[0], effective, atol=1e-10)
        np.testing.assert_allclose(runs.trained[index].weights[0], w[0].detach().numpy(), atol=1e-10)
        assert not runs.networks[index].weights[1].any() and not runs.networks[index].biases[1].any()


def test_checkpoints_schedule_and_given_networks() -> None:
    data = load_dataset("f1", points=20)
    nets = [Network.random((1, 5, 1), seed, "torch") for seed in (8, 9)]
    runs = train_many((1, 5, 1), data, [0, 0], epochs=4, init=nets, checkpoints=[0, 2, 4], schedule=lambda e: e < 2)
    assert all(identical(a, b) for a, b in zip(runs.checkpoints[0], nets, strict=True))  # type: ignore[arg-type]
    for index in (0, 1):  # from the third epoch on the rate is zero
        middle, last = runs.checkpoints[2][index], runs.checkpoints[4][index]
        assert middle is not None and last is not None
        assert identical(middle, last) and not identical(middle, nets[index])


def test_tracker_sees_every_run_with_its_own_data() -> None:
    tasks = [load_dataset("f1"), load_dataset("f3")]
    tracker = track(None, None, every=2, quantities=["loss", "regions_sampled"])
    runs = train_many((1, 6, 1), tasks, [1, 1], epochs=4, batch_size=25, track=tracker)
    steps, losses = tracker.series("loss", run=1)
    assert steps == [0, 2, 4]
    assert losses[-1] == pytest.approx(float(np.mean((runs.networks[1](tasks[1].inputs) - tasks[1].targets) ** 2)))
    assert tracker.series("loss", run=0)[1][0] != losses[0]


def test_zero_epochs_give_the_initialisation() -> None:
    runs = train_many((1, 3, 1), load_dataset("f1"), [5], epochs=0, checkpoints=[0])
    assert identical(runs.networks[0], Network.random((1, 3, 1), 5)) and runs.losses.shape == (1, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"widths": (1,)}, "widths"),
        ({"widths": (2, 3, 1)}, "2 features"),
        ({"widths": (1, 3, 2)}, "2 outputs"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"epochs": -1}, "epochs"),
        ({"optimizer": "adamax"}, "optimizer"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum"),
        ({"lr": 0.0}, "lr"),
        ({"lr": [0.1, 0.2, 0.3]}, "lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"batch_size": 0}, "batch_size"),
        ({"loss": "cross_entropy"}, "integer labels"),
        ({"loss": "mes"}, "did you mean mse"),
        ({"dtype": "float16"}, "dtype"),
        ({"checkpoints": [9]}, "checkpoints"),
        ({"init": "hee"}, "init"),
        ({"init": [Network.random((1, 4, 1), 0)]}, "init"),
        ({"data": [load_dataset("f1")] * 3}, "one per seed"),
        ({"data": [load_dataset("f1"), load_dataset("f1", points=7)]}, "equal shapes"),
        ({"parametrisation": Parametrisation([None], [None])}, "centers"),
        ({"parametrisation": Parametrisation([None, None], [np.ones((2, 2)), None])}, "masks"),
        ({"parametrisation": Parametrisation([None, None], [None, None], None, [1.0, 2.0, 3.0])}, "scale"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], text: str) -> None:
    given_settings: dict[str, Any] = {"widths": (1, 3, 1), "data": load_dataset("f1"), "seeds": [0, 1], "epochs": 2}
    given_settings |= change
    with pytest.raises(InputError, match=text):
        train_many(**given_settings)
