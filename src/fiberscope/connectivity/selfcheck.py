"""Does an element leave the function alone? Tried on a copy of the module, in float64 as far as it lets us.

The copy has parameters drawn at random: a structure belongs to the architecture, and at its start a network hides
mistakes, with biases of zero, norms of one and attention that is nearly uniform. A module may fall back to a coarser
type inside (norms in float32 are common), so the coarsest type that really occurs says what counts as rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from fiberscope.connectivity.influence import Influence, Names, Prints, Recorder, Unclear
from fiberscope.modules.calls import Inputs, Selector, call, meant, moved, tensors
from fiberscope.modules.derivatives import evaluating
from fiberscope.numerics.drift import FINE, allowed_drift, relative_drift
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result


@dataclass(frozen=True, slots=True)
class Drift(Result):
    """How much an element of a group changes the outputs, relative to their size, and how much may be rounding."""

    group: str
    value: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed  # never for NaN


class Precisions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, notes the coarsest floating-point type that any operation gives.

    >>> with Precisions() as seen:
    ...     _ = torch.ones(2, dtype=torch.float64).float() + 1
    >>> seen.coarsest == torch.finfo(torch.float32).eps
    True
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.coarsest = float(torch.finfo(torch.float64).eps)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tensors(found):
            if tensor.is_floating_point():
                self.coarsest = max(self.coarsest, float(torch.finfo(tensor.dtype).eps))
        return found


class Probe:
    """A copy of a module whose outputs on a batch are known, to be compared with those of changed copies."""

    def __init__(self, module: nn.Module, inputs: Inputs, output: Selector, seed: int | None = None) -> None:
        """``seed`` for random parameters; None for those of the module."""
        self.output = output
        self._begin(module, inputs, seed)
        if seed is not None and not np.isfinite(self.before).all():
            self._begin(module, inputs, None)

    def _begin(self, module: nn.Module, inputs: Inputs, seed: int | None) -> None:
        try:
            self._start(deepcopy(module).double(), inputs, seed)
        except RuntimeError:  # layers of a type of their own, say: torch does not multiply matrices of two types
            self._start(deepcopy(module), inputs, seed)

    def _start(self, module: nn.Module, inputs: Inputs, seed: int | None) -> None:
        self.module = module
        self.own: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        """Parameters and buffers, each once."""
        self.prints: Prints | None = None
        like = next((p for p in module.parameters() if p.is_floating_point()), None)
        self.inputs = moved(inputs, like)
        if seed is not None:
            draw(module, seed)
        with Precisions() as seen:
            self.before = self._outputs()
        self.allowed = allowed_drift(seen.coarsest)

    def drift(self, name: str, changed: Mapping[str, Tensor]) -> Drift:
        """What changes if these tensors stand in the place of the module's own."""
        with self._holding(changed):
            after = self._outputs()
        return Drift(name, relative_drift(self.before, after), self.allowed)

    def apart(self, changes: Mapping[str, Mapping[str, Tensor]]) -> tuple[set[str], set[Names]]:
        """Of several changes to different tensors, those that one run shows to leave the outputs alone, each by itself.

        The others are not known to be wrong: they met on the way (these are the second answer), or one of all is.
        """
        if len(changes) < 2 or self.allowed > FINE:
            return set(), set()
        own = list(self.own.values())
        if self.prints is None:
            with Recorder(own) as recorder:
                self._outputs()
            self.prints = recorder.prints
        touched = {name: [self.own[key] for key in changed] for name, changed in changes.items()}
        seen = Influence(own, self.prints, touched, self.allowed)
        try:
            with self._holding({key: value for changed in changes.values() for key, value in changed.items()}), seen:
                after = self._outputs()
        except Unclear:
            return set(), set()
        ok = Drift("", relative_drift(self.before, after), self.allowed).ok
        return (set(changes).difference(*seen.met), seen.met) if ok else (set(), set())

    @contextmanager
    def _holding(self, changed: Mapping[str, Tensor]) -> Iterator[None]:
        """Written into the copy and back: layers that keep a second list of their weights see it, too."""
        kept = {key: self.own[key].detach().clone() for key in changed}
        try:
            with torch.no_grad():
                for key, value in changed.items():
                    self.own[key].copy_(value)
            yield
        finally:
            with torch.no_grad():
                for key, value in kept.items():
                    self.own[key].copy_(value)

    def _outputs(self) -> FloatArray:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), evaluating(self.module):
            torch.manual_seed(0)  # a module may draw numbers even in evaluation: the same ones before and after
            found = meant(call(self.module, self.inputs), self.output)
        parts = [t.double().flatten().cpu().numpy() for t in found]
        return np.concatenate(parts or [np.zeros(0)])


def draw(module: nn.Module, seed: int) -> None:
    """Give a module generic parameters, in place: matrices that keep sizes, vectors around what they are."""
    source = torch.Generator().manual_seed(seed)

    def normal(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=source).to(like)

    with torch.no_grad():
        for value in module.parameters():
            if value.is_floating_point():
                fan = max(1, value.numel() // max(1, value.shape[0])) if value.dim() > 1 else 1
                value.copy_(normal(value) * fan**-0.5 if value.dim() > 1 else value + 0.3 * normal(value))
        for part in module.modules():
            if isinstance(part, _BatchNorm) and part.running_mean is not None and part.running_var is not None:
                part.running_mean.copy_(0.3 * normal(part.running_mean))
                part.running_var.copy_((0.3 * normal(part.running_var)).exp())
