"""A tracker inside other people's loops: the real trainer of transformers, stand-ins for what is not installed."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fiberscope as fs

X = np.linspace(-1, 1, 12)[:, None]


def module() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


class Book:
    """What TensorBoard's writer and a run of Weights & Biases understand."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.entries.append((name, value, step))

    def log(self, data: dict[str, float], step: int) -> None:
        self.entries += [(name, value, step) for name, value in data.items()]


@pytest.mark.parametrize("make", [fs.tensorboard_log, fs.wandb_log])
def test_loggers_get_every_number_at_its_step(make: Any) -> None:
    book = Book()
    tracker = fs.track(module(), X, every=2, quantities=["regions_sampled", "fixed_neurons"], log=make(book))
    for step in range(5):
        tracker(step)
    counts = [(step, value) for name, value, step in book.entries if name == "fiberscope/regions_sampled"]
    assert counts == list(zip(*tracker.series("regions_sampled"), strict=True))
    assert {step for *_, step in book.entries} == {0, 2, 4}
    assert all(isinstance(value, float) for _, value, _ in book.entries)


def test_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with Lightning's names, whose trainer calls what Lightning's calls."""
    stand_in = ModuleType("lightning.pytorch.callbacks")
    stand_in.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", stand_in)
    tracker = fs.track(module(), X, every=2, quantities=["regions_sampled"])
    callback = fs.lightning_callback(tracker)
    assert isinstance(callback, stand_in.Callback)
    callback.on_train_start(SimpleNamespace(global_step=0), None)
    for step in range(1, 6):
        callback.on_train_batch_end(SimpleNamespace(global_step=step), None, {"loss": 0.0}, None, step - 1)
    callback.on_train_end(SimpleNamespace(global_step=5), None)
    assert tracker.series("regions_sampled")[0] == [0, 2, 4]


def test_the_trainer_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="an extra: pip install fiberscope[hf]")
    tracker = fs.track(module(), X, every=3, quantities=["regions_sampled"])
    callback = fs.trainer_callback(tracker)
    assert isinstance(callback, transformers.TrainerCallback)
    state, control = transformers.TrainerState(), transformers.TrainerControl()
    # the handler that a Trainer holds its callbacks by
    handler = transformers.trainer_callback.CallbackHandler([callback], None, None, None, None)
    handler.on_train_begin(None, state, control)
    for step in range(1, 7):
        state.global_step = step
        handler.on_step_end(None, state, control)
    handler.on_train_end(None, state, control)
    assert tracker.series("regions_sampled")[0] == [0, 3, 6]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "lightning.pytorch.callbacks", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(fs.MissingExtraError, match=r"lightning_callback needs lightning.*pip install lightning"):
        fs.lightning_callback(fs.track(module(), X))
