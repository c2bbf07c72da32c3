"""What was recovered, and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, ObjectArray
from fiberscope.recovery.unresolved import Unresolved
from fiberscope.results import Pictured, hidden

if TYPE_CHECKING:
    from fiberscope.fibers.fiber import Fiber

Layers = tuple[tuple[ObjectArray, ObjectArray], ...]
"""Weights and biases in fractions, the outputs last."""


@dataclass(frozen=True, slots=True, eq=False)
class Recovery(Pictured):
    """A network that agrees with a function, as far as it could be recovered.

    ``network`` is None where no network of the widths was found; ``hyperplanes`` are then what is known: for every
    layer reached its weights and offsets. ``residual`` is the largest difference at ``held_out`` fresh points of the
    domain, which ``queries`` does not count; ``size`` is the largest value there and ``noise`` the relative error that
    values of the function were found to have. ``recovered`` says that the residual is explained by that noise and
    nothing is unresolved; it is a statement about the points, not a proof. ``accuracy`` says how well parameters are
    known, with hidden rows ``(W | b)`` of norm one: ten standard errors of the worst of them, estimated from the
    residuals of the last fit; None where there was none of all parameters together. ``fiber`` are the parameters with
    the same function: the truth is one of them.

    From a complex nothing is asked. Its answer is in fractions, ``rational``, of which ``network`` is the rounding;
    where ``recovered``, ``proof`` says what was compared exactly, and the residual of the fractions is zero. Where the
    function that was asked is a network, ``proof`` is the bound of the difference that is proven; None if none is.
    """

    widths: tuple[int, ...]
    network: Network | None
    residual: float
    size: float
    noise: float
    queries: int
    held_out: int
    unresolved: tuple[Unresolved, ...]
    recovered: bool
    domain: Any = field(default=None, metadata=hidden())
    hyperplanes: tuple[tuple[FloatArray, FloatArray], ...] = field(default=(), repr=False, metadata=hidden())
    rational: Layers | None = field(default=None, repr=False, metadata=hidden())
    proof: str | None = None
    slope: float = 0.0
    accuracy: float | None = None

    picture = "recovered"

    @property
    def fiber(self) -> Fiber | None:
        """All parameters of this architecture with the same function, as far as they are known."""
        ask = import_module("fiberscope.fibers.fiber").fiber
        return None if self.network is None else ask(self.network, self.domain)

    def __repr__(self) -> str:
        shape = "-".join(map(str, self.widths))
        state = "recovered" if self.recovered else "not recovered"
        rest = "" if not self.unresolved else f", {len(self.unresolved)} unresolved: {self.unresolved[0]}"
        known = "" if self.accuracy is None else f", parameters to about {self.accuracy:.0e}"
        return f"Recovery({shape} {state}, residual {self.residual:.2g}{known}, {self.queries} queries{rest})"


def network_of(weights: Sequence[FloatArray], biases: Sequence[FloatArray], slope: float) -> Network:
    """The network of dense layers whose neurons have the given slope for negative inputs."""
    return Network(weights, biases, "leaky_relu", slope=slope) if slope else Network(weights, biases)
