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

from fiberscope.dimension.kernels.kernel import effective_rank, kernel_alignment, ntk
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


def test_quantities_of_the_tangent_kernel() -> None:
    net = Network.random((2, 5, 3), 0)
    X, labels = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 3
    names = ["effective_rank", "kernel_spectrum", "kernel_alignment", "kernel_layers", "dimension_bounds"]
    values = track(net, (X, labels), quantities=names).record(0).values
    K = ntk(net, X)
    marks = np.eye(3)[labels] - 1 / 3
    assert values["effective_rank"] == pytest.approx(effective_rank(K))
    assert values["kernel_spectrum"] == pytest.approx(np.linalg.eigvalsh(K)[::-1][:20].tolist())
    assert values["kernel_alignment"] == pytest.approx(kernel_alignment(K, marks))
    assert sum(values["kernel_layers"].values()) == pytest.approx(1.0)
    assert values["dimension_bounds"]["parameters"] == net.num_parameters


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
    with pytest.raises(InputError, match="expected a new file or one that begins with"):
        track(net, X, every=3, quantities=["regions_sampled"], file=path)
    with pytest.raises(InputError, match="can be written"):
        track(net, X, file=tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"my thesis, without a newline",
        b"my thesis\n",
        b"\x00\xff\x00",
        b'{"a": 1}',
        b'{"a": 1}\n{"a": 2}',  # the last line is whole but for its newline
        b'{"tracker":{"every":7}}\n{"step":1,"ru',  # another tracker's, cut short
        b"[1]\n5\n",
        b"\n",
    ],
)
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"expected a new file or one that begins with .*got a first line") as error:
        track(Network.random((1, 3, 1), 0), np.zeros((2, 1)), file=path)
    assert path.read_bytes() == content and len(str(error.value).splitlines()) == 1
    if b"tracker" not in content:
        with pytest.raises(InputError):
            read_track(path)


def test_lines_without_a_header_do_not_replace_what_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"notes of mine")
    with pytest.raises(InputError, match="expected a new file or JSON lines"):
        LineFile(path)
    assert path.read_bytes() == b"notes of mine"


def test_every_cut_of_the_header_counts_as_ours(tmp_path: Path) -> None:
    net, X, path = Network.random((1, 3, 1), 0), np.zeros((2, 1)), tmp_path / "run.jsonl"
    track(net, X, file=path).close()
    header = path.read_bytes().split(b"\n")[0] + b"\n"
    for length in range(len(header) + 1):
        path.write_bytes(header[:length])
        track(net, X, file=path)
        assert path.read_bytes() == header


def test_a_continued_file_keeps_its_steps_and_its_start(tmp_path: Path) -> None:
    """Stopped half way and taken up again, every record is that of the training in one go."""
    names, data = ["loss", "distance_from_start"], load_dataset("f1")
    straight, halves = small_module(), small_module()
    optimizer = torch.optim.SGD(straight.parameters(), lr=0.05)
    with track(straight, data, quantities=names, optimizer=optimizer) as expected:
        train(straight, optimizer, 10)
    path = tmp_path / "run.jsonl"
    for steps in (4, 6):
        optimizer = torch.optim.SGD(halves.parameters(), lr=0.05)
        with track(halves, data, quantities=names, optimizer=optimizer, file=path) as tracker:
            train(halves, optimizer, steps)
    assert [record.step for record in tracker.records] == list(range(11))
    assert tracker.records == expected.records == read_track(path)
    assert sum("step" in line for line in read_lines(path)) == 11  # nothing was recorded twice


def test_a_continued_callback_goes_on_counting(tmp_path: Path) -> None:
    net, X, path = Network.random((1, 3, 1), 0), np.zeros((2, 1)), tmp_path / "run.jsonl"
    for _ in range(2):
        tracker = track(net, X, every=2, quantities=["regions_sampled"], file=path)
        for _ in range(5):
            tracker()
    assert [record.step for record in read_track(path)] == [0, 2, 4, 6, 8]
    assert not any("start" in line for line in read_lines(path))  # nothing that is tracked needs the first network


def test_a_start_without_its_record_does_not_count(tmp_path: Path) -> None:
    path, X = tmp_path / "run.jsonl", np.zeros((2, 1))
    net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    moved = Network([[[4.0]], [[1.0]]], [[0.0], [0.0]])
    track(net, X, quantities=["distance_from_start"], file=path)(0)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))  # header and start; the crash came before the record
    again = track(moved, X, quantities=["distance_from_start"], file=path)
    assert again().values == {"distance_from_start": 0.0}  # type: ignore[union-attr]
    third = track(net, X, quantities=["distance_from_start"], file=path)
    assert third().to_dict() == {"step": 1, "run": 0, "values": {"distance_from_start": 3.0}}  # type: ignore[union-attr]
    content = path.read_bytes()
    with pytest.raises(InputError, match="expected the architecture"):
        track(Network.random((1, 3, 1), 0), X, quantities=["distance_from_start"], file=path)
    assert path.read_bytes() == content


def test_every_run_of_many_keeps_its_own_start(tmp_path: Path) -> None:
    path, X = tmp_path / "run.jsonl", np.zeros((2, 1))
    for step, factor in enumerate((1.0, 3.0)):
        tracker = track(None, X, quantities=["distance_from_start"], file=path)
        for run in (0, 1):
            net = Network([[[factor * (run + 1)]], [[0.0]]], [[0.0], [0.0]])
            tracker.record(step, run=run, network=net)
        tracker.close()
    assert [tracker.series("distance_from_start", run)[1] for run in (0, 1)] == [[0.0, 2.0], [0.0, 4.0]]
    tracker = track(None, X, quantities=["distance_from_start"], file=path)
    values = tracker.record(2, run=1, network=Network.random((1, 3, 1), 0)).values
    assert "expected the architecture" in values["distance_from_start"]["error"]


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
