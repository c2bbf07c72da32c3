"""The way between a model and a moved other one, as a loss on data: what all methods that look at the loss share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Self

import torch
from torch import Tensor, nn

from fiberscope.connectivity.losses import Loss, Lost, batch_loss
from fiberscope.errors import InputError
from fiberscope.modules.batches import Batch, batches
from fiberscope.modules.calls import Selector, points
from fiberscope.run import Run

HALFWAY = (0.5,)


@dataclass(frozen=True)
class Way:
    """From the tensors of ``a`` to others of the same names; ``held`` are all batches of the data."""

    a: nn.Module
    mine: Mapping[str, Tensor]
    loss: Loss
    output: Selector
    held: list[Batch]

    @classmethod
    def of(
        cls,
        a: nn.Module,
        mine: Mapping[str, Tensor],
        loss: Loss,
        data: Any,
        output: Selector,
        batch_size: int,
        steps: int,
    ) -> Self:
        """``mine`` are the tensors of ``a`` at which the way begins; those that are no floats stay as they are."""
        if steps < 1:
            raise InputError(f"steps: expected a positive number, got {steps}")
        floating = {name: value.detach() for name, value in mine.items() if value.is_floating_point()}
        return cls(a, floating, loss, output, list(batches(data, a, batch_size)))

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

    def batches(self, steps: int, run: Run, text: str) -> Iterator[tuple[int, Batch]]:
        """So many steps with a batch each, round and round."""
        for step, batch in zip(range(steps), cycle(self.held), strict=False):
            run.step(step, steps, text)
            yield step, batch
