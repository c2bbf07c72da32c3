"""What a recovery could not decide, and why."""

from __future__ import annotations

from dataclasses import dataclass

from fiberscope.results import Result


@dataclass(frozen=True, slots=True)
class Unresolved(Result):
    """A neuron, or a layer where ``neuron`` is None, that could not be decided, and why. Layers count from 1."""

    layer: int
    neuron: int | None
    reason: str

    def __str__(self) -> str:
        where = f"layer {self.layer}" if self.neuron is None else f"neuron {self.neuron} of layer {self.layer}"
        return f"{where}: {self.reason}"
