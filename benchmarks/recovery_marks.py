"""Networks recovered from values alone: how many of fresh seeds, with how many queries and how much CPU time.

``python benchmarks/recovery_marks.py 10-15-15-1 --seeds 100 --first 2000``; ``--float32`` asks in single precision.
The time is that of the search; the 100,000 held-out points come on top and are shown apart.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fiberscope as fs


def planted(widths: list[int], seed: int, kind: type) -> Callable[[np.ndarray], np.ndarray]:
    """A random network as a plain function: He weights, biases of standard deviation one half."""
    rng = np.random.default_rng(1_000_000 + seed)
    pairs = list(itertools.pairwise(widths))
    weights = [(rng.normal(size=(n, m)) * np.sqrt(2 / m)).astype(kind) for m, n in pairs]
    biases = [(rng.normal(size=n) * 0.5).astype(kind) for _, n in pairs]

    def function(X: np.ndarray) -> np.ndarray:
        a = X.astype(kind)
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            a = np.maximum(a @ w.T + b, 0)
        return np.asarray(a @ weights[-1].T + biases[-1])

    return function


def one(widths: list[int], seed: int, kind: type) -> tuple[Any, float]:
    """The recovery, and the CPU seconds until the held-out points."""
    searched = [time.process_time()]

    def progress(done: int, total: int | None, text: str) -> None:
        if text != "held-out points":
            searched[0] = time.process_time()

    begin = time.process_time()
    found = fs.recover(planted(widths, seed, kind), widths, seed=seed, progress=progress)
    return found, searched[0] - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("widths")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--float32", action="store_true")
    given = parser.parse_args()
    widths = [int(text) for text in given.widths.split("-")]
    kind = np.float32 if given.float32 else np.float64
    good, queries, seconds, worst = 0, [], [], 0.0
    for seed in range(given.first, given.first + given.seeds):
        found, spent = one(widths, seed, kind)
        good += found.recovered
        queries.append(found.queries)
        seconds.append(spent)
        worst = max(worst, found.residual / found.size) if found.recovered else worst
        if not found.recovered:
            print(f"seed {seed}: {found}")
    print(
        f"{given.widths}: {good} of {given.seeds} recovered, largest relative difference {worst:.1g}; queries: median "
        f"{np.median(queries):,.0f}, most {max(queries):,}; CPU seconds: median {np.median(seconds):.2f}, most "
        f"{max(seconds):.2f}"
    )


if __name__ == "__main__":
    main()
