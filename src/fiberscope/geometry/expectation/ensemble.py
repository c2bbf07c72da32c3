"""Random networks: which laws the weights and biases are drawn from, and their densities.

The expected number of boundaries is an integral over the density of the biases. Constant biases, as most
initialisations have them, have no density: then the theorems say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import pi, sqrt

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network, Seed
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, named


@dataclass(frozen=True, slots=True)
class Law:
    """A law of one number: how to draw it, its density, and the supremum of the density.

    ``density`` is None for a law without one (``peak`` is then infinite).

    >>> Law.normal(1.0).peak.__round__(4), Law.uniform(0.5)
    (0.3989, Law(uniform in +-0.5))
    """

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], FloatArray]
    density: Callable[[FloatArray], FloatArray] | None
    peak: float

    @classmethod
    def normal(cls, std: float) -> Law:
        """Mean 0 and standard deviation ``std``."""
        if not std > 0:
            raise InputError(f"law: expected a positive standard deviation, got {std}")
        top = 1 / (std * sqrt(2 * pi))
        return cls(
            f"normal, std {std:.4g}",
            lambda rng, shape: rng.normal(0.0, std, shape),
            lambda x: np.asarray(top * np.exp(-0.5 * (x / std) ** 2)),
            top,
        )

    @classmethod
    def uniform(cls, half: float) -> Law:
        """Uniform in ``[-half, half]``."""
        if not half > 0:
            raise InputError(f"law: expected a positive half width, got {half}")
        return cls(
            f"uniform in +-{half:.4g}",
            lambda rng, shape: rng.uniform(-half, half, shape),
            lambda x: np.asarray(np.where(np.abs(x) <= half, 0.5 / half, 0.0)),
            0.5 / half,
        )

    @classmethod
    def constant(cls, value: float) -> Law:
        """Always ``value``: no density."""
        return cls(f"constant {value:.4g}", lambda rng, shape: np.full(shape, float(value)), None, float("inf"))

    def __repr__(self) -> str:
        return f"Law({self.name})"


_FACTORS: dict[str, tuple[str, Callable[[int, int], float], bool]] = {
    "he": ("normal", lambda n, m: sqrt(2 / m), True),
    "torch": ("uniform", lambda n, m: sqrt(1 / m), True),
    "he_uniform": ("uniform", lambda n, m: sqrt(6 / m), False),
    "xavier": ("normal", lambda n, m: sqrt(2 / (n + m)), False),
    "xavier_uniform": ("uniform", lambda n, m: sqrt(6 / (n + m)), False),
    "lecun": ("normal", lambda n, m: sqrt(1 / m), False),
}
"""Initialisations of :meth:`Network.random`: law, scale from fan-out and fan-in, and whether biases share it."""


def _law_names(laws: Sequence[Law]) -> list[str]:
    return [law.name for law in laws]


@dataclass(frozen=True, slots=True)
class Ensemble(Result):
    """Random chains of the given widths with independent entries: one law for the weights and one for the biases of
    every layer.

    >>> Ensemble.of((2, 10, 16, 1))
    Ensemble(2-10-16-1; biases normal, std 1)
    >>> Ensemble.of((2, 10, 16, 1), "xavier", bias_std=0.1).has_density
    True
    """

    widths: tuple[int, ...]
    weights: tuple[Law, ...] = field(metadata=named(told=_law_names))
    biases: tuple[Law, ...] = field(metadata=named(told=_law_names))

    def __post_init__(self) -> None:
        layers = len(self.widths) - 1
        if layers < 1 or any(int(n) != n or n < 1 for n in self.widths):
            raise InputError(f"widths: expected at least two positive integers, got {self.widths}")
        if len(self.weights) != layers or len(self.biases) != layers:
            raise InputError(f"ensemble: expected {layers} laws each, got {len(self.weights)}, {len(self.biases)}")

    @classmethod
    def of(cls, widths: Sequence[int], init: str = "he", *, bias_std: float | None = None) -> Ensemble:
        """The initialisations of :meth:`Network.random` with independent entries; ``bias_std`` makes biases normal."""
        if init not in _FACTORS:
            raise InputError(f"init: expected one of {', '.join(sorted(_FACTORS))}, got {init!r}")
        kind, scale, shared = _FACTORS[init]
        weights = tuple(getattr(Law, kind)(scale(n, m)) for m, n in pairwise(widths))
        if bias_std is not None:
            biases = tuple(Law.normal(bias_std) for _ in weights)
        else:
            biases = weights if shared else tuple(Law.constant(0.0) for _ in weights)
        return cls(tuple(widths), weights, biases)

    @property
    def has_density(self) -> bool:
        """Whether the biases of all hidden layers have one."""
        return all(law.density is not None for law in self.biases[:-1])

    @property
    def num_hidden(self) -> int:
        """Hidden neurons."""
        return sum(self.widths[1:-1])

    def draw(self, seed: Seed) -> Network:
        """One network."""
        rng = np.random.default_rng(seed)
        layers = self.batch(rng, 1)
        return Network([w[0] for w, _ in layers], [b[0] for _, b in layers])

    def batch(self, rng: np.random.Generator, count: int) -> list[tuple[FloatArray, FloatArray]]:
        """Weights ``(count, n, m)`` and biases ``(count, n)`` of every layer."""
        shapes = [(count, n, m) for m, n in pairwise(self.widths)]
        laws = zip(self.weights, self.biases, shapes, strict=True)
        return [(w.draw(rng, shape), b.draw(rng, shape[:2])) for w, b, shape in laws]

    def __repr__(self) -> str:
        return f"Ensemble({'-'.join(map(str, self.widths))}; biases {self.biases[0].name})"
