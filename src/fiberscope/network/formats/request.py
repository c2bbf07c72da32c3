"""What the caller of ``load`` says about a model besides where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.nonlinear import NOT_PIECEWISE_LINEAR, plain_name

ACTIVATIONS = ("relu", "leaky_relu")
"""What a file of numbers may be said to have between its dense layers."""


class UnneededError(InputError):
    """An option that a model with an architecture of its own has no use for; ``option`` is its name."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class Request:
    """The options of :func:`fiberscope.load`, checked as far as they can be without the model."""

    shape: tuple[int, ...] | None = None
    activation: str | None = None
    slope: float = 0.01
    module: Any = None
    key: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        for name in ("activation", "key", "until"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, str) and given):
                raise InputError(f"{name}: expected a name, got {given!r}")
        if self.activation is not None and self.activation not in ACTIVATIONS:
            if plain_name(self.activation) in NOT_PIECEWISE_LINEAR:
                raise UnsupportedModelError(
                    f"activation {self.activation!r} is not piecewise linear; expected 'relu' or 'leaky_relu'"
                )
            raise InputError(f"activation: expected 'relu' or 'leaky_relu', got {self.activation!r}")
        if self.activation is not None and self.module is not None:
            raise InputError("activation: expected none beside a module, which has its own")

    def refuse(self, what: str, *names: str) -> None:
        """Raise where one of these options was given; ``what`` says which kind of model has no use for it."""
        for name in names:
            if getattr(self, name) is not None:
                raise UnneededError(f"{name}: expected none for {what}", name)
