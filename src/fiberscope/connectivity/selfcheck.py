"""Does an element leave the function alone? Tried on a copy of the module, in float64 as far as it lets us.

The copy has parameters drawn at random: a structure belongs to the architecture, and at its start a network hides
mistakes, with biases of zero, norms of one and attention that is nearly uniform. A module may fall back to a coarser
type inside (norms in float32 are common), so the coarsest type that really occurs says what counts as rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fiberscope.connectivity.influence import Influence, Names, Recorder, Unclear
from fiberscope.modules.calls import Inputs, Selector, call, meant, moved, points
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.parametrisations import copied
from fiberscope.modules.tracing.groups import plain_kernels, traced
from fiberscope.modules.tracing.tracer import Trace
from fiberscope.numerics.drift import FINE, allowed_drift, relative_drift
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result

SPREAD, NUMBERS = 16, 1 << 15
"""Points that a map is tried on, where they are so small that all have few numbers together."""


@dataclass(frozen=True, slots=True)
class Drift(Result):
    """How much an element of a group changes the outputs, relative to their size, and how much may be rounding."""

    group: str
    value: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed  # never for NaN


class Probe:
    """A copy of a module whose outputs on a batch are known, to be compared with those of changed copies."""

    def __init__(
        self, module: nn.Module, inputs: Inputs, output: Selector, seed: int | None = None, follow: bool = False
    ) -> None:
        """``seed`` for random parameters, None for those of the module; ``follow`` its axes while it runs."""
        self.output, self.follow = output, follow
        self.trace: Trace | None = None
        self._begin(module, inputs, seed)
        if seed is not None and not np.isfinite(self.before).all():
            self._begin(module, inputs, None)

    def _begin(self, module: nn.Module, inputs: Inputs, seed: int | None) -> None:
        try:
            self._start(copied(module).double(), inputs, seed)
        except RuntimeError:  # layers of a type of their own, say: torch does not multiply matrices of two types
            self._start(copied(module), inputs, seed)

    def _start(self, module: nn.Module, inputs: Inputs, seed: int | None) -> None:
        self.module = module
        self.own: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        """Parameters and buffers, each once."""
        self.kept: dict[str, Tensor] = {}
        """What they were, of those that a trial has changed."""
        like = next((p for p in module.parameters() if p.is_floating_point()), None)
        self.inputs = moved(inputs, like)
        if seed is not None:
            draw(module, seed)
        seen = Recorder(self.own.values())
        if self.follow:
            self.trace = traced(module, self.inputs, self.output, seen.run)
            self.before = _flat(self.trace.outputs)
        else:
            self.before = self._outputs(seen)
        self.allowed, self.prints = allowed_drift(seen.coarsest), seen.prints

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
        touched = {name: [self.own[key] for key in changed] for name, changed in changes.items()}
        seen = Influence(self.own.values(), self.prints, touched, self.allowed)
        together = {key: value for changed in changes.values() for key, value in changed.items()}
        try:
            with self._holding(together):
                after = self._outputs(seen)
        except (Unclear, RuntimeError):  # a compiled part of a module raises one of its own in the place of the first
            return set(), set()
        ok = Drift("", relative_drift(self.before, after), self.allowed).ok
        return (set(changes).difference(*seen.met), seen.met) if ok else (set(), set())

    @contextmanager
    def _holding(self, changed: Mapping[str, Tensor]) -> Iterator[None]:
        """Written into the copy and back: layers that keep a second list of their weights see it, too."""
        for key in changed:
            if key not in self.kept:
                self.kept[key] = self.own[key].detach().clone()
        try:
            with torch.no_grad():
                for key, value in changed.items():
                    self.own[key].copy_(value)
            yield
        finally:
            with torch.no_grad():
                for key in changed:
                    self.own[key].copy_(self.kept[key])

    def _outputs(self, seen: Recorder | None = None) -> FloatArray:
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.manual_seed(0)  # a module may draw numbers even in evaluation: the same ones before and after
            stack.enter_context(evaluating(self.module))
            if seen is not None:
                stack.enter_context(plain_kernels(self.module))
                stack.enter_context(seen)
            found = meant(call(self.module, self.inputs), self.output)
        return _flat(found)


def spread(inputs: Inputs, seed: int) -> Inputs:
    """The points of a batch, moved at random and repeated up to a number: at one point all ReLUs may be silent.

    >>> spread(torch.zeros(1, 2), 0).shape, spread({"ids": torch.zeros(2, 4, dtype=torch.long)}, 0)["ids"].shape
    (torch.Size([16, 2]), torch.Size([16, 4]))
    """
    source = torch.Generator().manual_seed(seed)
    parts = inputs if isinstance(inputs, dict) else {"": inputs}
    count = points(inputs)
    largest = max((v.numel() for v in parts.values() if isinstance(v, Tensor)), default=1)
    times = max(1, min(SPREAD, NUMBERS // max(1, largest // count)) // count)

    def moved_points(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != count:
            return value
        more = value.repeat(times, *(1 for _ in value.shape[1:]))
        if not more.is_floating_point():
            return more
        return more + torch.randn(more.shape, generator=source).to(more)

    found = {name: moved_points(value) for name, value in parts.items()}
    return found if isinstance(inputs, dict) else found[""]


def _flat(found: Iterable[Tensor]) -> FloatArray:
    """All numbers of some outputs."""
    return np.concatenate([np.zeros(0), *(t.double().flatten().cpu().numpy() for t in found)])


def draw(module: nn.Module, seed: int) -> None:
    """Give a module generic parameters, in place: matrices that keep sizes, vectors around what they are."""
    source = torch.Generator().manual_seed(seed)

    def normal(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=source).to(like)

    with torch.no_grad():
        for value in module.parameters():
            if value.is_floating_point():
                if value.dim() > 1:
                    fan = max(1, value.numel() // max(1, value.shape[0]))
                    value.copy_(torch.randn(value.shape, generator=source)).mul_(fan**-0.5)
                else:
                    value.nan_to_num_(0.0, 0.0, 0.0).add_(0.3 * normal(value))
        for part in module.modules():
            if isinstance(part, _BatchNorm) and part.running_mean is not None and part.running_var is not None:
                part.running_mean.copy_(0.3 * normal(part.running_mean))
                part.running_var.copy_((0.3 * normal(part.running_var)).exp())
