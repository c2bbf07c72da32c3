"""Trackers in other people's training loops; their files after a crash."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.network import Network
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.quantities import count_distinct, list_quantities, register_quantity
from fiberscope.training.records import LineFile, read_lines
from fiberscope.training.track import read_track, track


def small_module() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()


def train(module: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    data = load_dataset("f1")
    X, T = torch.tensor(data.inputs), torch.tensor(data.targets)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(module(X), T).backward()
        optimizer.step()


def test_context_listens_to_the_optimizer(tmp_path: Path) -> None:
    tracked = small_module()
    optimizer = torch.optim.Adam(tracked.parameters(), lr=0.01)
    data = load_dataset("f1")
    names = ["loss", "regions_sampled", "fixed_neurons", "distance_from_start", "r2", "weight_norms"]
    with track(tracked, data, every=5, quantities=names, optimizer=optimizer, file=tmp_path / "run.jsonl") as tracker:
        train(tracked, optimizer, 20)
    train(tracked, optimizer, 5)  # after the context nobody listens
    assert [record.step for record in tracker.records] == [0, 5, 10, 15, 20]
    _steps, losses = tracker.series("loss")
    assert losses[-1] < losses[0]
    _, moved = tracker.series("distance_from_start")
    assert moved[0] == 0 and all(a < b for a, b in itertools.pairwise(moved))
    assert read_track(tmp_path / "run.jsonl") == tracker.records
    overhead = read_lines(tmp_path / "run.jsonl")[-1]["overhead"]
    assert 0 < overhead["fraction"] <= 1 and overhead["records"] == 5
    assert tracker.overhead.seconds == pytest.approx(overhead["seconds"])


def test_tracking_does_not_disturb_training() -> None:
    results = []
    for watch in (False, True):
        module = small_module()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        if watch:
            with track(module, load_dataset("f1"), every=1, optimizer=optimizer):
                train(module, optimizer, 10)
        else:
            train(module, optimizer, 10)
        results.append([p.detach().clone() for p in module.parameters()])
    assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_callback_counts_or_is_told_the_step() -> None:
    module = small_module()
    counted = track(module, np.linspace(0, 1, 30)[:, None], every=3, quantities=["regions_sampled"])
    told = track(module, np.linspace(0, 1, 30)[:, None], every=3, quantities=["regions_sampled"])
    for epoch in range(7):
        a, b = counted(), told(epoch)
        assert (a is None) == (epoch % 3 != 0) == (b is None)
    assert counted.records == told.records
    assert counted.records[0].values["regions_sampled"] <= 9  # at most one more than the kinks on a line


def test_values_by_hand() -> None:
    # neuron 1 switches at 0, neuron 2 is always active, neuron 3 always inactive on [-1, 1]
    net = Network([[[1.0], [1.0], [1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 5.0, -5.0], [0.0]])
    X = np.array([[-1.0], [-0.5], [0.5], [1.0]])
    names = ["loss", "regions_sampled", "fixed_neurons", "r2", "parameter_norm"]
    values = track(net, (X, net(X) + 2.0), quantities=names).record(0).values
    assert values["loss"] == 4.0 and values["regions_sampled"] == 2
    assert values["fixed_neurons"] == [{"layer": 1, "width": 3, "dead": 1, "linear": 1, "switching": 1}]
    assert values["parameter_norm"] == pytest.approx(np.sqrt(3 + 3 + 50))
    labels = track(Network([np.eye(2)], [np.zeros(2)]), (np.eye(2), np.array([0, 0])), quantities=["loss", "accuracy"])
    values = labels.record(0).values
    assert values["accuracy"] == 0.5
    expected = torch.nn.functional.cross_entropy(torch.eye(2), torch.tensor([0, 0])).item()
    assert values["loss"] == pytest.approx(expected, rel=1e-6)


def test_an_error_in_a_quantity_is_recorded_and_others_go_on() -> None:
    net = Network.random((1, 3, 1), 0)
    record = track(net, np.zeros((4, 1)), quantities=["accuracy", "regions_sampled"]).record(0)
    assert "expected data with targets" in record.values["accuracy"]["error"]
    assert record.values["regions_sampled"] == 1
    module = small_module()
    tracker = track(module, np.zeros((4, 1)), quantities=["regions_sampled"])
    with torch.no_grad():
        module[0].weight.fill_(float("nan"))
    assert "error" in tracker.record(1).values["regions_sampled"]


def test_bad_input() -> None:
    net = Network.random((1, 3, 1), 0)
    X = np.zeros((2, 1))
    with pytest.raises(InputError, match="did you mean regions_sampled"):
        track(net, X, quantities=["regions_sample"])
    with pytest.raises(InputError, match="every"):
        track(net, X, every=0)
    with pytest.raises(InputError, match="list of names"):
        track(net, X, quantities="loss")
    with pytest.raises(InputError, match="data"):
        track(net)
    with pytest.raises(InputError, match=r"torch\.optim"), track(net, X, optimizer=object()):
        pass
    with pytest.raises(UnsupportedModelError):
        track(torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)), X)
    with pytest.raises(InputError, match="expected one of regions_sampled"):
        track(net, X, quantities=["regions_sampled"]).series("loss")


def test_own_quantities() -> None:
    @register_quantity("largest_weight")
    def largest_weight(state):  # type: ignore[no-untyped-def]
        """The largest entry."""
        return max(np.abs(w).max() for w in state.network.weights)

    net = Network([[[3.0]], [[-4.0]]], [[0.0], [0.0]])
    assert track(net, np.zeros((1, 1)), quantities=["largest_weight"]).record(0).values == {"largest_weight": 4.0}
    assert list_quantities()["largest_weight"] == "The largest entry."


@given(st.integers(1, 20), st.integers(1, 12), st.integers(0, 10))
def test_count_distinct_equals_the_slow_way(points: int, neurons: int, seed: int) -> None:
    patterns = np.random.default_rng(seed).integers(0, 2, (points, neurons)).astype(bool)
    assert count_distinct(patterns) == len(np.unique(patterns, axis=0))


# -- files -----------------------------------------------------------------------------------------------------------


def test_every_cut_of_a_file_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    file = LineFile(path)
    for index in range(3):
        file.append({"value": index, "text": "ü"})
    file.close()
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n")
        assert [line["value"] for line in read_lines(path)] == list(range(whole))
        again = LineFile(path)
        again.append({"value": "new"})
        again.close()
        assert [line["value"] for line in read_lines(path)] == [*range(whole), "new"]


def test_damage_in_the_middle_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\nrubbish\n{"a": 2}\n')
    with pytest.raises(InputError, match="line 2"):
        read_lines(path)


def test_a_tracker_continues_its_file_and_refuses_another_ones(tmp_path: Path) -> None:
    net, X, path = Network.random((1, 3, 1), 0), np.zeros((2, 1)), tmp_path / "deep" / "run.jsonl"
    first = track(net, X, every=2, quantities=["regions_sampled"], file=path)
    first(0), first(2)
    second = track(net, X, every=2, quantities=["regions_sampled"], file=path)  # the first was never closed
    second(2), second(4)
    second.close()
    second.close()
    assert [record.step for record in read_track(path)] == [0, 2, 4]
    with pytest.raises(InputError, match="same tracker"):
        track(net, X, every=3, quantities=["regions_sampled"], file=path)
    with pytest.raises(InputError, match="can be written"):
        track(net, X, file=tmp_path)


def test_records_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    script = textwrap.dedent(
        f"""
        import numpy as np
        from fiberscope.network.network import Network
        from fiberscope.training.track import track
        net, X = Network.random((1, 3, 1), 0), np.zeros((2, 1))
        tracker = track(net, X, quantities=["regions_sampled"], file={str(path)!r})
        step = 0
        while True:
            tracker(step)
            step += 1
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") > 20):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    records = read_track(path)
    assert [record.step for record in records] == list(range(len(records))) and len(records) >= 20
    assert all(json.dumps(record.to_dict()) for record in records)
