"""Many trainings of one architecture at once: other seeds, tasks, weight decays or scales of fixed parts.

The trainings share every matrix product and stay independent: a run draws its initialisation and its shuffles from
its own seed, its numbers never meet another run's, and one that diverges is taken out alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fiberscope.network.border import NetworkLike
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden, named
from fiberscope.run import Progress, Run
from fiberscope.training.augment import Augmentation
from fiberscope.training.batched import LOSSES, FixedParts, Optimizer, backward, forward
from fiberscope.training.plan import (
    Parametrisation,
    Plan,
    fixed_parts,
    initial_parameters,
    make_plan,
    per_run,
    plain,
)

if TYPE_CHECKING:
    from fiberscope.training.track import Tracker

Schedule = Callable[[int], float]
"""Factor of the learning rate in an epoch (from 0)."""


@dataclass(frozen=True, slots=True)
class Failure(Result):
    """A run whose numbers stopped being finite in this epoch; its network is that of the epoch's beginning."""

    run: int
    epoch: int
    reason: str


@dataclass(frozen=True, eq=False)
class TrainingRuns(Result):
    """What :func:`train_many` gives back.

    ``networks`` holds every run's last finite network; ``checkpoints[epoch]`` those after that many epochs (None for a
    run that had failed by then); ``losses`` is ``(runs, epochs)``, the mean minibatch loss, NaN after a failure.
    """

    widths: tuple[int, ...]
    seeds: tuple[int, ...]
    networks: tuple[Network, ...] = field(metadata=hidden())
    checkpoints: Mapping[int, tuple[Network | None, ...]] = field(metadata=named(told=sorted))
    losses: FloatArray
    failures: tuple[Failure, ...]
    settings: Mapping[str, Any]
    seconds: float
    trained: tuple[Network, ...] | None = field(default=None, metadata=hidden())
    """With a parametrisation: the trained ``W`` and ``b`` themselves; ``networks`` has the effective ones."""

    @property
    def finished(self) -> tuple[int, ...]:
        """The runs that came to the end."""
        lost = {failure.run for failure in self.failures}
        return tuple(run for run in range(len(self.seeds)) if run not in lost)

    def __repr__(self) -> str:
        shape = "-".join(map(str, self.widths))
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"TrainingRuns({len(self.seeds)} runs of {shape}, {self.losses.shape[1]} epochs{failed})"


def train_many(
    widths: Sequence[int],
    data: Any,
    seeds: Sequence[int],
    *,
    epochs: int,
    optimizer: str = "adam",
    lr: float | Sequence[float] = 0.01,
    weight_decay: float | Sequence[float] = 0.0,
    batch_size: int | None = None,
    loss: str = "mse",
    init: str | Sequence[NetworkLike] = "he",
    checkpoints: Sequence[int] = (),
    parametrisation: Parametrisation | None = None,
    schedule: Schedule | None = None,
    augment: Augmentation | None = None,
    track: Tracker | None = None,
    dtype: str = "float64",
    device: str = "cpu",
    progress: Progress | None = None,
    time_limit: float | None = None,
    **optimizer_settings: float,
) -> TrainingRuns:
    """Train one ReLU chain per seed, all in the same batched products.

    Run ``i`` begins at ``Network.random(widths, seeds[i], init)``; in every epoch it visits its points in the order of
    ``numpy.random.default_rng([seeds[i], 1]).permutation(points)``, drawn anew, in minibatches of ``batch_size`` (the
    last one may be smaller). One step does what ``torch.optim`` does to one network, up to rounding.

    Parameters
    ----------
    widths
        ``(n_0, ..., n_L)``.
    data
        A :class:`Dataset`, or a pair ``(inputs, targets)``, for all runs; or a list of those, one per run, of equal
        shapes. Inputs ``(points, n_0)`` (images are flattened), targets ``(points, n_L)`` or labels ``(points,)``.
    seeds
        One non-negative integer per run; runs may share a seed.
    epochs
        How many passes through the data.
    optimizer
        ``"adam"``, ``"adamw"`` or ``"sgd"``, with ``beta1``, ``beta2``, ``eps`` or ``momentum`` as further options.
    lr, weight_decay
        One number, or one per run.
    batch_size
        None: the whole data in one step.
    loss
        ``"mse"`` or ``"cross_entropy"`` (labels), means over the minibatch as in ``torch.nn``.
    init
        A name known to :meth:`Network.random`, or one network per run.
    checkpoints
        Numbers of epochs after which the networks are kept; 0 is the initialisation.
    parametrisation
        Weights with fixed parts; weight decay acts on the trained ones.
    schedule
        Gives the factor of the learning rate in each epoch.
    augment
        Called as ``augment(inputs, rng)`` in every epoch with the points ``(points, n_0)`` of one run, a tensor in
        the order of that epoch, and the generator of its shuffles; gives what the run sees instead.
        ``fiberscope.training.augment.random_flips(shape)`` makes one that mirrors images.
    track
        A tracker made by ``track(None, data, every, ...)``; called with every run after every epoch, and before the
        first.
    dtype, device
        ``"float64"`` or ``"float32"``; any torch device.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every epoch; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> runs = train_many((1, 8, 1), (X, np.abs(X)), seeds=[0, 1, 2], epochs=300, checkpoints=[0, 300])
    >>> runs
    TrainingRuns(3 runs of 1-8-1, 300 epochs)
    >>> bool((runs.losses[:, -1] < runs.losses[:, 0]).all())
    True
    >>> runs.checkpoints[300][1] is runs.networks[1]
    True
    """
    begin, run = time.perf_counter(), Run.begin(progress, time_limit)
    plan = make_plan(widths, data, seeds, epochs, batch_size, loss, checkpoints, dtype, device)
    start = initial_parameters(plan, init)
    steps = Optimizer(
        optimizer,
        per_run(lr, "lr", plan, positive=True),
        per_run(weight_decay, "weight_decay", plan),
        **optimizer_settings,
    )
    fixed = None if parametrisation is None else fixed_parts(parametrisation, plan)
    training = _Training(plan, start, steps, fixed, schedule or (lambda epoch: 1.0), augment, track)
    training.train(run)
    settings = {
        "optimizer": optimizer,
        "lr": plain(lr),
        "weight_decay": plain(weight_decay),
        "batch_size": batch_size,
        "loss": loss,
        "init": init if isinstance(init, str) else "given",
        "dtype": dtype,
        **optimizer_settings,
    }
    return training.result(settings, begin)


class _Training:
    """The state of all runs while they are trained."""

    def __init__(
        self,
        plan: Plan,
        start: Tensor,
        optimizer: Optimizer,
        fixed: FixedParts | None,
        schedule: Schedule,
        augment: Augmentation | None,
        tracker: Tracker | None,
    ) -> None:
        self.plan = plan
        self.optimizer = optimizer
        self.fixed = fixed
        self.schedule = schedule
        self.augment = augment
        self.tracker = tracker
        self.parameters = plan.layout.join(start)
        self.alive = list(range(plan.runs))
        self.generators = [np.random.default_rng([seed, 1]) for seed in plan.seeds]
        self.losses = np.full((plan.runs, plan.epochs), np.nan)
        self.failures: list[Failure] = []
        self.stopped: dict[int, tuple[Network, Network]] = {}
        self.kept: dict[int, tuple[Network | None, ...]] = {}

    def train(self, run: Run) -> None:
        self._look(0)
        for epoch in range(self.plan.epochs):
            if not self.alive:
                break
            before = self.parameters.clone()
            loss = self._epoch(self.schedule(epoch))
            finite = torch.isfinite(self.plan.layout.rows(self.parameters)).all(dim=1) & torch.isfinite(loss)
            if not bool(finite.all()):
                self._take_out(finite, before, epoch, loss)
            self.losses[self.alive, epoch] = loss[finite].double().cpu().numpy()
            self._look(epoch + 1)
            run.step(epoch + 1, self.plan.epochs, f"{len(self.alive)} runs")

    def _epoch(self, factor: float) -> Tensor:
        """One pass through the data; the mean loss of every run that is alive."""
        plan, layout = self.plan, self.plan.layout
        order = torch.from_numpy(np.stack([self.generators[run].permutation(plan.points) for run in self.alive]))
        order = order.to(plan.inputs.device)
        # Shared data is one block that every run indexes; data per run is indexed by its own run.
        which = torch.tensor(self.alive, device=order.device)[:, None] if len(plan.inputs) > 1 else 0
        inputs, targets = plan.inputs[which, order], plan.targets[which, order]
        if self.augment is not None:
            seen = [self.augment(x, self.generators[run]) for x, run in zip(inputs, self.alive, strict=True)]
            inputs = torch.stack(seen) if len(seen) > 1 else seen[0][None]
        gradient = torch.empty_like(self.parameters)
        layers, grads = layout.split(self.parameters), layout.split(gradient)
        loss_of = LOSSES[plan.loss]
        total = torch.zeros(len(self.alive), dtype=inputs.dtype, device=inputs.device)
        for first in range(0, plan.points, plan.batch_size):
            last = min(first + plan.batch_size, plan.points)
            used = layers if self.fixed is None else self.fixed.effective(layers)
            values = forward(used, inputs[:, first:last])
            loss, delta = loss_of(values[-1], targets[:, first:last])
            backward(used, values, delta, grads)
            if self.fixed is not None:
                self.fixed.pull_back(grads)
            self.optimizer.step(self.parameters, gradient, factor)
            total.add_(loss, alpha=(last - first) / plan.points)
        return total

    def _take_out(self, finite: Tensor, before: Tensor, epoch: int, loss: Tensor) -> None:
        """Remove the runs that are not finite; they keep the network from before this epoch."""
        layout = self.plan.layout
        for index in torch.nonzero(~finite).flatten().tolist():
            run = self.alive[index]
            what = "parameters" if bool(torch.isfinite(loss[index])) else "loss"
            self.failures.append(Failure(run, epoch + 1, f"{what} not finite in epoch {epoch + 1}"))
            row = torch.tensor([index])
            fixed = None if self.fixed is None else self.fixed.select(row)
            self.stopped[run] = self._networks(layout.select(before, row), fixed)[0]
        self.alive = [run for run, good in zip(self.alive, finite.tolist(), strict=True) if good]
        self.parameters = layout.select(self.parameters, finite)
        self.optimizer.select(layout, finite)
        if self.fixed is not None:
            self.fixed = self.fixed.select(finite)

    def _networks(self, flat: Tensor, fixed: FixedParts | None) -> list[tuple[Network, Network]]:
        """For every run in ``flat``: the network with effective parameters, and the one with the trained ones."""

        def build(layers: Sequence[tuple[Tensor, Tensor]]) -> list[Network]:
            arrays = [(w.double().cpu().numpy(), b.double().cpu().numpy()[:, 0]) for w, b in layers]
            runs = len(arrays[0][0])
            return [Network([w[i] for w, _ in arrays], [b[i] for _, b in arrays]) for i in range(runs)]

        layers = self.plan.layout.split(flat)
        trained = build(layers)
        return list(zip(trained if fixed is None else build(fixed.effective(layers)), trained, strict=True))

    def _look(self, epoch: int) -> None:
        """Keep the networks and tell the tracker, where this epoch was asked for."""
        tracked = self.tracker is not None and self.tracker.wants(epoch)
        if not tracked and epoch not in self.plan.checkpoints:
            return
        networks: list[Network | None] = [None] * self.plan.runs
        for run, (network, _) in zip(self.alive, self._networks(self.parameters, self.fixed), strict=True):
            networks[run] = network
        if epoch in self.plan.checkpoints:
            self.kept[epoch] = tuple(networks)
        if self.tracker is not None and tracked:
            for run in self.alive:
                pair = self.plan.arrays[run if len(self.plan.arrays) > 1 else 0]
                self.tracker.record(epoch, run=run, network=networks[run], data=pair)

    def result(self, settings: dict[str, Any], begin: float) -> TrainingRuns:
        plan = self.plan
        last = dict(zip(self.alive, self._networks(self.parameters, self.fixed), strict=True)) if self.alive else {}
        both = [self.stopped.get(run) or last[run] for run in range(plan.runs)]
        networks = tuple(pair[0] for pair in both)
        if plan.epochs in self.kept:  # the last checkpoint and the result are one object, not two equal ones
            networks = tuple(kept or net for kept, net in zip(self.kept[plan.epochs], networks, strict=True))
        self.losses.setflags(write=False)
        return TrainingRuns(
            plan.layout.widths,
            plan.seeds,
            networks,
            dict(sorted(self.kept.items())),
            self.losses,
            tuple(self.failures),
            settings,
            time.perf_counter() - begin,
            None if self.fixed is None else tuple(pair[1] for pair in both),
        )
