"""What a report is about, handed from question to question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np

from fiberscope.geometry.domains import Domain
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import Run

T = TypeVar("T")

FIRST_ROWS, GROWTH = 8, 4
"""Rows of the data that a question begins with, and how many times more it takes next."""


@dataclass(frozen=True, eq=False)
class Dossier:
    """What a report is about: a model with the code that loads it, data and labels if there are some, another model."""

    net: Network
    load: str
    X: FloatArray | None
    labels: IntArray | None
    against: Network | None
    load_against: str
    domain: Domain | None
    full: bool
    seed: int
    run: Run
    pressed: Callable[[], bool] = field(default=bool)
    """Whether Ctrl-C was pressed; a question that comes back with a part of its answer looks here."""

    def seconds(self, parts: int) -> float:
        """One of so many parts of the time that is left."""
        return max(1.0, self.run.seconds_left / parts)

    @property
    def classes(self) -> IntArray | None:
        """A class for every row of the data: as given, else the largest output, else none."""
        if self.labels is not None or self.X is None or self.net.out_size < 2:
            return self.labels
        return np.asarray(self.net(self.X).argmax(axis=1))


def on_some(ask: Callable[[FloatArray], T], X: FloatArray, seconds: float) -> tuple[T, int]:
    """The answer on as many of the first rows as fit into the time, and how many these are.

    Certified signs of large models take exact arithmetic at some points, so nobody knows before how long a row takes.

    >>> on_some(len, np.zeros((100, 2)), 10.0)
    (100, 100)
    """
    rows = min(len(X), FIRST_ROWS)
    while True:
        begin = perf_counter()
        found = ask(X[:rows])
        took = perf_counter() - begin
        seconds -= took
        more = min(len(X), GROWTH * rows)
        if rows == len(X) or took * more > seconds * rows:
            return found, rows
        rows = more


def load_code(name: str, path: Path | None, kind: str) -> str:
    """The line that makes the model, for a reader who wants to ask it more."""
    return f'{name} = fs.load("{path.name}")' if path is not None else f"{name} = ...  # a {kind}"
