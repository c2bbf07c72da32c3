"""Loss and accuracy along the segment between two trained models, and how far they leave the chord.

The *barrier* of a quantity ``L`` (:cite:`neuronidentifiability`, and Frankle et al. 2020) is

    max over t of  L(theta(t)) - ((1 - t) L(theta_A) + t L(theta_B)),

for the accuracy with the other sign. It is never negative, since it is zero at the ends; the *midpoint barrier*, the
excess at ``t = 1/2``, can be. The maximum is over the points that were asked for: a lower bound of the true one.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from fiberscope.connectivity.losses import TOKENS, Loss, lost
from fiberscope.connectivity.paths import State, check_comparable, check_layers, mixed_state
from fiberscope.errors import InputError
from fiberscope.modules.batches import BATCH, batches
from fiberscope.modules.calls import Inputs, Selector, call, checked_call, moved, select
from fiberscope.modules.calls import points as points_of
from fiberscope.modules.derivatives import evaluating
from fiberscope.network.border import as_torch
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Pictured, Tabular, hidden
from fiberscope.run import Progress, Run

Reader = Callable[[Any], Any]
"""What a module gives, as the loss sees it."""

STACKED = 512, 1 << 22
"""Points of a batch, and parameters times points of the path, up to which all points go through one batched call.
Measured on chains: 1.3 to 2.5 times faster than the loop below, up to twice as slow above."""

ENGINES = ("auto", "loop", "vmap")


@dataclass(frozen=True, eq=False)
class PathValues(Tabular):
    """One quantity along the paths of several pairs: ``values`` is ``(pairs, points)``, ``sign`` is +1 for a loss."""

    name: str = field(metadata=hidden())
    t: FloatArray = field(metadata=hidden())
    values: FloatArray
    sign: float = field(metadata=hidden())

    told = (
        "barriers",
        "midpoints",
        "relatives",
        "barrier",
        "barrier_deviation",
        "midpoint",
        "midpoint_deviation",
        "relative",
    )
    frame = ("t", "mean", "deviation")

    @property
    def mean(self) -> FloatArray:
        """Mean over the pairs, ``(points,)``."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def deviation(self) -> FloatArray:
        """Standard deviation over the pairs (divisor ``pairs - 1``), ``(points,)``; NaN for one pair."""
        return np.array([_deviation(column) for column in self.values.T])

    @property
    def excess(self) -> FloatArray:
        """How much worse than the chord, ``(pairs, points)``; exactly zero at the ends."""
        ends = self.values[:, :1], self.values[:, -1:]
        chord = ends[0] + self.t * (ends[1] - ends[0])
        found = self.sign * (self.values - chord)
        found[:, [0, -1]] = np.where(np.isnan(found[:, [0, -1]]), np.nan, 0.0)
        return np.asarray(found)

    @property
    def barriers(self) -> FloatArray:
        """The largest excess of each pair; NaN where a value of the pair is."""
        return np.asarray(self.excess.max(axis=1))

    @property
    def midpoints(self) -> FloatArray:
        """The excess of each pair at ``t = 1/2``."""
        return np.asarray(self.excess[:, int(np.argmin(np.abs(self.t - 0.5)))])

    @property
    def barrier(self) -> float:
        return float(self.barriers.mean())

    @property
    def barrier_deviation(self) -> float:
        return _deviation(self.barriers)

    @property
    def midpoint(self) -> float:
        return float(self.midpoints.mean())

    @property
    def midpoint_deviation(self) -> float:
        return _deviation(self.midpoints)

    @property
    def relatives(self) -> FloatArray:
        """How much worse than the better end the worst point of each pair is, as a part of that end's value.

        NaN where that value is zero. Zero where the path never falls behind the better end, so an end that is worse
        than the other counts, too.
        """
        ends = self.sign * self.values[:, [0, -1]]
        better = ends.min(axis=1)
        worst = (self.sign * self.values).max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(better != 0, (worst - better) / np.abs(better), np.nan))

    @property
    def relative(self) -> float:
        """Mean over the pairs of :attr:`relatives`."""
        return float(self.relatives.mean())

    def __repr__(self) -> str:
        spread = "" if len(self.values) == 1 else f" +- {self.barrier_deviation:.3g}"
        return f"{self.name}: barrier {self.barrier:.4g}{spread}, midpoint {self.midpoint:.4g}"


@dataclass(frozen=True, eq=False)
class Barrier(Pictured):
    """What :func:`barrier` found. Numbers of the loss are at hand; ``accuracy`` and ``test`` have the same fields."""

    loss: PathValues
    accuracy: PathValues | None
    samples: int
    seconds: float
    test: Barrier | None = None
    perplexity: PathValues | None = None
    """The exponential of the loss, where it is one of tokens."""

    told = ("t", "pairs")
    picture = "barrier"

    @property
    def t(self) -> FloatArray:
        return self.loss.t

    @property
    def pairs(self) -> int:
        return len(self.loss.values)

    @property
    def curve(self) -> FloatArray:
        """The loss along the path, mean over the pairs, ``(points,)``."""
        return self.loss.mean

    @property
    def barrier(self) -> float:
        """Largest excess of the loss over the chord, mean over the pairs."""
        return self.loss.barrier

    @property
    def midpoint(self) -> float:
        """Excess of the loss at ``t = 1/2``, mean over the pairs."""
        return self.loss.midpoint

    def __repr__(self) -> str:
        parts = [repr(self.loss)] + ([] if self.accuracy is None else [repr(self.accuracy)])
        if self.test is not None:
            parts.append(f"test {self.test.loss!r}")
        return f"Barrier({self.pairs} pair{'s' * (self.pairs > 1)}, {len(self.t)} points; {'; '.join(parts)})"


def barrier(
    a: Any,
    b: Any,
    loss: Loss,
    data: Any,
    points: int | Sequence[float] = 25,
    *,
    test: Any = None,
    output: Selector = None,
    layers: Sequence[str] | None = None,
    batch_size: int = BATCH,
    engine: str = "auto",
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Barrier:
    """Loss and accuracy along the segment from ``a`` to ``b``, and the largest excess over the chord.

    The accuracy is recorded where the targets are labels of points or tokens.

    Parameters
    ----------
    a, b
        Two models of one architecture (torch modules or :class:`Network`), or two lists of as many, which are taken in
        pairs. They are run in evaluation mode and are not changed.
    loss
        The name ``"cross_entropy"`` (for labels of points, or of tokens, where -100 does not count), ``"next_token"``
        (the same with every token compared with the label after it, and a perplexity) or ``"mse"``; or a function of
        outputs and targets that gives the mean over a batch or one number per point. Without ``output=`` a function
        gets whatever the model gives, a dict or an object too.
    data
        Inputs with targets: a pair of arrays, a :class:`Dataset` (whose held-out part goes to ``test``), or batches. It
        is read once. Inputs may be a dict of keyword arguments, whose entry ``labels`` stands for the targets where
        none come beside it; the model does not get it.
    points
        How many points, evenly spaced, ends included; the middle is added where it is not among them. Or the points
        themselves, from 0 to 1.
    test
        Held-out data in the same forms; its barrier is ``.test``.
    output
        Which part of what the models give is meant: a key or field, a place in a tuple, or a function. Not needed for
        tensors, for outputs with ``logits`` and where there is only one tensor.
    layers
        Names of layers that go along the path while all others stay at ``a``: layer-wise connectivity.
    engine
        With ``"loop"`` one point of the path comes after the other, with ``"vmap"`` all in one batched call, which is
        faster for small networks; ``"auto"`` chooses by size.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every batch; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    Two minima of the same network whose neurons are in another order:

    >>> from fiberscope.network.network import Network
    >>> a, b = (Network([w, [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]) for w in ([[1.0], [-1.0]], [[-1.0], [1.0]]))
    >>> x = np.linspace(-1, 1, 21)[:, None]
    >>> found = barrier(a, b, "mse", (x, np.abs(x)), points=5)
    >>> found.barrier == found.midpoint, round(found.midpoint, 12), round(float(np.mean(x**2)), 12)
    (True, 0.366666666667, 0.366666666667)
    """
    begin, run = time.perf_counter(), Run.begin(progress, time_limit)
    t = _points(points)
    pairs = _pairs(a, b)
    if engine not in ENGINES:
        raise InputError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    if test is None and getattr(data, "test_inputs", None) is not None:
        test = (data.test_inputs, data.test_targets)
    raw = output is None and callable(loss)
    paths = [
        _Path(left, right, t, engine, _whatever if raw else partial(select, selector=output), layers)
        for left, right in pairs
    ]
    held_out = None if test is None else _measured(paths, t, loss, test, batch_size, run, "test")
    return _measured(paths, t, loss, data, batch_size, run, "data", held_out, begin)


def _points(points: int | Sequence[float]) -> FloatArray:
    if isinstance(points, int | np.integer) and not isinstance(points, bool):
        if points < 2:
            raise InputError(f"points: expected at least 2, got {points}")
        t = np.linspace(0.0, 1.0, int(points))
    else:
        t = np.asarray(points, dtype=np.float64)
        if t.ndim != 1 or len(t) < 2 or t[0] != 0 or t[-1] != 1 or not (np.diff(t) > 0).all():
            raise InputError(f"points: expected a number, or rising values from 0 to 1, got {points!r}")
    return np.asarray(t if (t == 0.5).any() else np.sort(np.append(t, 0.5)))


def _pairs(a: Any, b: Any) -> list[tuple[nn.Module, nn.Module]]:
    lists = [list(x) if isinstance(x, list | tuple) else [x] for x in (a, b)]
    if len(lists[0]) != len(lists[1]) or not lists[0]:
        raise InputError(f"models: expected as many in both lists, got {len(lists[0])} and {len(lists[1])}")
    pairs = []
    for left, right in zip(*lists, strict=True):
        modules = [as_torch(left, "a"), as_torch(right, "b")]
        check_comparable(*modules)
        pairs.append((modules[0], modules[1]))
    return pairs


def _whatever(output: Any) -> Any:
    return output


class _Path:
    """Outputs of one pair at all points, one per point, in the way that is faster for its size."""

    def __init__(
        self, a: nn.Module, b: nn.Module, t: FloatArray, engine: str, read: Reader, layers: Sequence[str] | None
    ) -> None:
        self.a, self.b, self.t, self.read, self.layers = a, b, t, read, layers
        if layers is not None:
            check_layers(a, layers)
        size = len(t) * sum(p.numel() for p in a.parameters())
        self.stacked = engine == "vmap" or (engine == "auto" and size <= STACKED[1])
        self.strict = engine == "vmap"
        self.states: State | None = None

    def outputs(self, inputs: Inputs) -> list[Any]:
        inputs = moved(inputs, next((p for p in self.a.parameters() if p.is_floating_point()), None))
        with evaluating(self.a):
            if self.stacked and (self.strict or points_of(inputs) <= STACKED[0]):
                try:
                    return list(self._all(inputs).unbind())
                except MemoryError:
                    raise
                except Exception as error:
                    # vmap does not know every operation; the loop does, and says what is wrong if it is something else
                    if self.strict:
                        reason = " ".join(str(error).split())[:200]
                        raise InputError(f"engine: vmap cannot run this model ({reason}); take 'loop'") from error
                    self.stacked = False
            states = (self._state(float(t)) for t in self.t)
            return [self.read(checked_call(self.a, inputs, state)) for state in states]

    def _state(self, t: float) -> State:
        return mixed_state(self.a, self.b, t if self.layers is None else dict.fromkeys(self.layers, t))

    def _all(self, inputs: Inputs) -> Tensor:
        if self.states is None:
            states = [self._state(float(t)) for t in self.t]
            self.states = {name: torch.stack([state[name] for state in states]) for name in states[0]}

        def one(state: State) -> Tensor:
            found = self.read(call(self.a, inputs, state))
            if not isinstance(found, Tensor):
                raise ValueError(f"the loss reads a {type(found).__name__}, not a tensor; give output=")
            return found

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # where torch batches by a loop of its own
            outputs: Tensor = vmap(one)(self.states)
        return outputs


def _measured(
    paths: Sequence[_Path],
    t: FloatArray,
    loss: Loss,
    data: Any,
    batch_size: int,
    run: Run,
    name: str,
    test: Barrier | None = None,
    begin: float | None = None,
) -> Barrier:
    begin = time.perf_counter() if begin is None else begin
    sums = np.zeros((2, len(paths), len(t)))
    samples, terms, labels = 0, 0, True
    with torch.no_grad():
        for done, (x, y) in enumerate(batches(data, paths[0].a, batch_size, name), start=1):
            if y is None:
                raise InputError(f"{name}: expected inputs with targets, got inputs alone")
            for i, path in enumerate(paths):
                for j, output in enumerate(path.outputs(x)):
                    part = lost(loss, output, y, points_of(x))
                    labels = labels and part.right is not None
                    sums[:, i, j] += float(part.total), part.right or 0
            samples, terms = samples + points_of(x), terms + part.terms
            run.step(done, None, f"barrier ({name})")
    if not terms:
        raise InputError(f"{name}: expected at least one label that counts, got none")
    values = sums / terms
    found = PathValues("loss", t, values[0], 1.0)
    accuracy = PathValues("accuracy", t, values[1], -1.0) if labels else None
    with np.errstate(over="ignore"):
        perplexity = PathValues("perplexity", t, np.exp(values[0]), 1.0) if loss == TOKENS else None
    return Barrier(found, accuracy, samples, time.perf_counter() - begin, test, perplexity)


def _deviation(values: FloatArray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
