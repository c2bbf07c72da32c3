"""Networks recovered from values alone: how many of fresh seeds, with how many queries and how much CPU time.

``python benchmarks/recovery_marks.py 10-15-15-1 --seeds 100 --first 2000``; ``--float32`` asks in single precision,
``784-20-46-1 --mnist FOLDER`` a network trained to tell even from odd digits, ``6-5-4-3-1 --construction`` that of
``fs.identifiable_network`` on its cube, ``--construction --everywhere`` the same in all of space. Of what is not
recovered the neurons found in each layer are counted. The time is that of the search; the 100,000 held-out points come
on top and are not shown.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

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


def trained(folder: str, widths: list[int], seed: int, epochs: int = 5) -> fs.Network:
    """A network trained on MNIST to tell even digits from odd ones: squared error, Adam, in float64 at the end."""
    data = fs.load_dataset("mnist", folder)
    torch.manual_seed(seed)
    X = torch.from_numpy(np.array(data.inputs, dtype=np.float32).reshape(len(data.inputs), -1))
    Y = torch.from_numpy(1.0 - 2.0 * (np.asarray(data.targets) % 2))[:, None].float()
    layers: list[torch.nn.Module] = []
    for m, n in itertools.pairwise(widths):
        layers += [torch.nn.Linear(m, n), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    steps = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(X)).split(128):
            steps.zero_grad()
            torch.nn.functional.mse_loss(model(X[part]), Y[part]).backward()
            steps.step()
    with torch.no_grad():
        test = torch.from_numpy(np.array(data.test_inputs, dtype=np.float32).reshape(len(data.test_inputs), -1))
        right = (model(test)[:, 0] > 0).numpy() == (np.asarray(data.test_targets) % 2 == 0)
    linear = [layer for layer in layers[:-1] if isinstance(layer, torch.nn.Linear)]
    weights = [layer.weight.detach().double().numpy() for layer in linear]
    least = [f"{np.linalg.norm(w, axis=1).min():.2g}" for w in weights[:-1]]
    print(f"trained: {right.mean():.1%} of the test images right; smallest norms of rows: {', '.join(least)}")
    return fs.Network(weights, [layer.bias.detach().double().numpy() for layer in linear])


def one(function: Any, widths: list[int], seed: int, domain: Any) -> tuple[Any, float]:
    """The recovery, and the CPU seconds until the held-out points."""
    searched = [time.process_time()]

    def progress(done: int, total: int | None, text: str) -> None:
        if text != "held-out points":
            searched[0] = time.process_time()

    begin = time.process_time()
    found = fs.recover(function, widths, domain, seed=seed, progress=progress)
    return found, searched[0] - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("widths")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--mnist", metavar="FOLDER")
    parser.add_argument("--construction", action="store_true")
    parser.add_argument("--everywhere", action="store_true")
    given = parser.parse_args()
    widths = [int(text) for text in given.widths.split("-")]
    kind = np.float32 if given.float32 else np.float64
    good, queries, seconds, worst = 0, [], [], 0.0
    for seed in range(given.first, given.first + given.seeds):
        domain = fs.Box.cube(widths[0]) if given.construction else None
        if given.construction:
            function = fs.identifiable_network(tuple(widths), domain, seed=seed)
        else:
            function = trained(given.mnist, widths, seed) if given.mnist else planted(widths, seed, kind)
        found, spent = one(function, widths, seed, None if given.everywhere else domain)
        good += found.recovered
        queries.append(found.queries)
        seconds.append(spent)
        worst = max(worst, found.residual / found.size) if found.recovered else worst
        if not found.recovered:
            print(f"seed {seed}: {found}")
            print(f"  neurons found in each layer: {[len(offsets) for _, offsets in found.hyperplanes]}")
            for item in found.unresolved:
                print(f"  {item}")
    print(
        f"{given.widths}: {good} of {given.seeds} recovered, largest relative difference {worst:.1g}; queries: median "
        f"{np.median(queries):,.0f}, most {max(queries):,}; CPU seconds: median {np.median(seconds):.2f}, most "
        f"{max(seconds):.2f}"
    )


if __name__ == "__main__":
    main()
