"""The way between a model and a moved other one, as a loss on data: what all methods that look at the loss share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Self

import torch
from torch import Tensor, nn

from fiberscope.connectivity.losses import Loss, Lost, batch_loss
from fiberscope.errors import InputError
from fiberscope.modules.batches import Batch, batches
from fiberscope.modules.calls import Selector, points
from fiberscope.modules.tracing.groups import own_tensors
from fiberscope.run import Run

HALFWAY = (0.5,)


@dataclass(frozen=True)
class Way:
    """From the tensors of ``a`` to others of the same names; ``held`` are all batches of the data.

    A method makes so many ``steps`` along it, with a batch each.
    """

    a: nn.Module
    mine: Mapping[str, Tensor]
    loss: Loss
    output: Selector
    held: list[Batch]
    steps: int

    @classmethod
    def of(cls, a: nn.Module, loss: Loss, data: Any, output: Selector, batch_size: int, steps: int) -> Self:
        """From the tensors of ``a`` as they are."""
        if steps < 1:
            raise InputError(f"steps: expected a positive number, got {steps}")
        return cls(a, _floating(own_tensors(a)[0]), loss, output, list(batches(data, a, batch_size)), steps)

    def since(self, mine: Mapping[str, Tensor]) -> Self:
        """The same way from other tensors; those that are no floats stay as they are."""
        return replace(self, mine=_floating(mine))

    @property
    def samples(self) -> int:
        """How many points were read."""
        return sum(points(inputs) for inputs, _ in self.held)

    def state(self, theirs: Mapping[str, Tensor], t: float) -> dict[str, Tensor]:
        """The tensors at a point of the way."""
        return {name: torch.lerp(value, theirs[name].to(value), t) for name, value in self.mine.items()}

    def lost(self, state: Mapping[str, Tensor], batch: Batch) -> Lost:
        return batch_loss(self.a, state, batch, self.loss, self.output)

    def slope(self, state: Mapping[str, Tensor], batch: Batch) -> None:
        """Add the gradient of the mean loss of a batch to whatever the state was computed from."""
        part = self.lost(state, batch)
        torch.autograd.backward(part.total / max(1, part.terms))

    def mean(self, theirs: Mapping[str, Tensor], places: Sequence[float] = HALFWAY) -> float:
        """The loss over all data, in the mean over some points of the way."""
        with torch.no_grad():
            states = [self.state(theirs, t) for t in places]
            parts = [self.lost(state, batch) for batch in self.held for state in states]
        return sum(float(part.total) for part in parts) / max(1, sum(part.terms for part in parts))

    def batches(self, run: Run, text: str) -> Iterator[tuple[int, Batch]]:
        """All steps with a batch each, round and round."""
        for step, batch in zip(range(self.steps), cycle(self.held), strict=False):
            run.step(step, self.steps, text)
            yield step, batch

    def is_look(self, step: int, looks: int) -> bool:
        """Whether after this step all data are looked at: so many times, and at the end."""
        return step == self.steps - 1 or (step + 1) % max(1, self.steps // looks) == 0


def _floating(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in tensors.items() if value.is_floating_point()}
