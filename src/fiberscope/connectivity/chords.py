"""Chord deviations of two models of one architecture: of every layer by itself, and of the whole network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.losses import Loss
from fiberscope.connectivity.paths import check_comparable, mixed_state
from fiberscope.errors import InputError
from fiberscope.modules.batches import BATCH, batches
from fiberscope.modules.calls import Selector, call, select
from fiberscope.modules.calls import points as points_of
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.recording import LAYERS, hooked
from fiberscope.network.border import as_torch
from fiberscope.neurons.chord import ChordSums, LayerChord, path_points
from fiberscope.neurons.layers import LayerArrays, layer_arrays
from fiberscope.neurons.subspace import as_rows
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Tabular
from fiberscope.run import Progress, Run

LIPSCHITZ = {"cross_entropy": float(np.sqrt(2))}
"""Lipschitz constants of convex losses in the outputs: the gradient of the cross entropy is ``softmax(z) - e_y``."""


@dataclass(frozen=True, slots=True, eq=False)
class ChordDeviation(Tabular):
    """What two models' layers and outputs do along the segment between them."""

    layers: tuple[LayerChord, ...]
    """Every layer by itself, on the inputs it has in the first model."""
    t: FloatArray = field(repr=False)
    deviations: FloatArray = field(repr=False)
    """``sqrt(E |f_t(x) - chord|^2)`` of the network's outputs, at every ``t``."""
    lipschitz: float | None
    """Of the loss in the outputs; None if no loss was named."""
    excess: FloatArray | None = field(repr=False)

    told = ("loss_bounds",)
    frame = "layers"
    """Measured loss above the chord of its end values; None without targets."""

    @property
    def worst(self) -> float:
        """The largest deviation of the outputs over the points ``t``."""
        return float(self.deviations.max())

    @property
    def loss_bounds(self) -> FloatArray | None:
        """Proposition D.3: the loss exceeds its chord by at most the Lipschitz constant times the deviation."""
        return None if self.lipschitz is None else np.asarray(self.lipschitz * self.deviations)

    def table(self) -> str:
        """One line per layer and one for the network, each measurement with its bounds and what they assume."""
        lines = [str(layer) for layer in self.layers]
        last = f"network: deviation {self.worst:.4g}"
        if self.loss_bounds is not None:
            last += f"; Proposition D.3: loss above the chord <= {float(self.loss_bounds.max()):.4g} (convex loss)"
        if self.excess is not None:
            last += f", measured {float(self.excess.max()):.4g}"
        return "\n".join([*lines, last])

    def __repr__(self) -> str:
        return f"ChordDeviation({len(self.layers)} layers, network {self.worst:.4g})"


def chord_deviation(
    a: Any,
    b: Any,
    X: Any,
    *,
    activation: str | Mapping[str, str] = "relu",
    points: int | Sequence[float] = 11,
    layers: Sequence[str] | None = None,
    loss: Loss | None = None,
    lipschitz: float | None = None,
    output: Selector = None,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> ChordDeviation:
    """How far layers and network are from the mixture of their ends, with the bounds of Theorems D.1, D.2, Proposition
    D.3.

    Parameters
    ----------
    a, b
        Two ``torch.nn.Module`` of one architecture, with the same fixed parts.
    X
        Inputs, or a pair ``(inputs, targets)``, or batches of either; with targets and a loss its excess is measured
        too.
    activation
        What follows the layers: one name for all but the last, which is taken as linear; or one for each layer's name.
        A normalisation in between is not part of the layer here.
    points
        How many values of ``t``, or the values.
    layers
        Names of the layers; None for all linear layers and convolutions.
    loss
        ``"cross_entropy"``, ``"mse"`` or a function, as for :func:`fiberscope.connectivity.barrier.barrier`; convex in
        the outputs.
    lipschitz
        Its Lipschitz constant in the outputs, in the Euclidean norm; known for the cross entropy (``sqrt(2)``). The
        squared error has none.
    output
        Which part of what the models give is meant, as for :func:`fiberscope.connectivity.barrier.barrier`.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every batch; after so many seconds an ``OutOfTimeError``.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> same = chord_deviation(net, net, np.ones((4, 2)))
    >>> same.worst < 1e-6, [layer.worst for layer in same.layers]
    (True, [0.0, 0.0])
    """
    run = Run.begin(progress, time_limit)
    a, b = as_torch(a, "a"), as_torch(b, "b")
    check_comparable(a, b)
    t = path_points(points)
    names = _layer_names(a, layers)
    sums = {
        name: ChordSums(_arrays(a, name), _arrays(b, name), kind, t)
        for name, kind in _activations(names, activation).items()
    }
    readers = {name: _arrays(a, name) for name in names}

    def keep(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        sums[name].add(_with_constant(readers[name], inputs[0], layer))

    states = [mixed_state(a, b, float(value)) for value in t]
    squares, count, labelled = np.zeros(len(t)), 0, loss is not None
    if labelled and isinstance(X, Iterator):
        X = list(X)  # it is read again for the loss
    with torch.no_grad(), evaluating(a), evaluating(b):
        for done, (x, y) in enumerate(batches(X, a, batch_size), start=1):
            with hooked(a, names, keep):
                left = select(call(a, x), output).double()
            right = select(call(b, x), output).double()
            for place, (value, state) in enumerate(zip(t, states, strict=True)):
                middle = select(call(a, x, state), output).double()
                squares[place] += float(((middle - torch.lerp(left, right, float(value))) ** 2).sum())
            count += points_of(x)
            labelled = labelled and y is not None
            run.step(done, None, "chord deviation")
    excess = None if loss is None or not labelled else _excess(a, b, loss, X, t, output)
    constant = lipschitz if lipschitz is not None else LIPSCHITZ.get(loss) if isinstance(loss, str) else None
    found = tuple(sums[name].result() for name in names)
    return ChordDeviation(found, t, np.sqrt(squares / count), constant, excess)


def _excess(a: nn.Module, b: nn.Module, loss: Loss, X: Any, t: FloatArray, output: Selector) -> FloatArray:
    found = barrier(a, b, loss, X, points=np.unique([0.0, *t, 1.0]).tolist(), output=output)
    return np.asarray(found.loss.excess[0, np.searchsorted(found.t, t)])


def _layer_names(module: nn.Module, layers: Sequence[str] | None) -> list[str]:
    known = {name: part for name, part in module.named_modules() if isinstance(part, LAYERS)}
    for name in layers or ():
        if name not in known:
            raise InputError(f"layer {name}: expected a linear layer or a convolution of the module, got no such")
    names = list(known) if layers is None else list(layers)
    if not names:
        raise InputError("layers: expected at least one linear layer or convolution, got none")
    return names


def _activations(names: list[str], activation: str | Mapping[str, str]) -> dict[str, str]:
    if isinstance(activation, str):
        return {name: activation if name != names[-1] else "identity" for name in names}
    for name in names:
        if name not in activation:
            raise InputError(f"layer {name}: expected the name of its activation, got none")
    return {name: activation[name] for name in names}


def _arrays(module: nn.Module, name: str) -> LayerArrays:
    found = layer_arrays(module.get_submodule(name), f"layer {name}")
    return found if found.bias is None else found.with_bias()


def _with_constant(arrays: LayerArrays, inputs: Tensor, layer: nn.Module) -> FloatArray:
    """Inputs of a layer as rows; a bias counts as the weight of a constant input."""
    block = inputs.detach().double().cpu().numpy()
    width = arrays.width - (layer.bias is not None)
    rows = as_rows(block, width, arrays.name) if arrays.rows is None else arrays.rows(block)
    return rows if width == arrays.width else np.hstack([rows, np.ones((len(rows), 1))])
