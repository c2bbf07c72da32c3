"""Recording, barriers and matching against the obvious ways: keep all samples, copy the model for every point."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.paths import interpolate
from fiberscope.connectivity.structure import permutation_structure
from fiberscope.modules.models import mlp
from fiberscope.modules.recording import record_inputs
from harness import Case


def close(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5))


def points(count: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, width)).astype(np.float32), rng.integers(0, classes, count)


def slow_barrier(a: Any, b: Any, data: tuple[np.ndarray, np.ndarray], count: int) -> np.ndarray:
    """A new model for each point of the path."""
    import torch

    X, y = map(torch.as_tensor, data)
    with torch.no_grad():
        losses = [
            float(torch.nn.functional.cross_entropy(interpolate(a, b, t).eval()(X), y))
            for t in np.linspace(0, 1, count)
        ]
    return np.array(losses)


def barrier_case(widths: tuple[int, ...], count: int, quick: bool) -> Case:
    a, b = mlp(widths, 0), mlp(widths, 1)
    data = points(count, widths[0], widths[-1])
    return Case(
        method=f"barrier, 25 points, {count} inputs",
        network="-".join(map(str, widths)),
        ours=lambda: barrier(a, b, "cross_entropy", data).curve,
        reference=lambda: slow_barrier(a, b, data, 25),
        agree=close,
        quick=quick,
    )


def slow_moments(net: Any, X: np.ndarray) -> np.ndarray:
    """All inputs of the second layer at once, in float64."""
    import torch

    with torch.no_grad():
        hidden = deepcopy(net)[:4].eval()(torch.as_tensor(X)).double().numpy()
    return np.asarray(hidden.T @ hidden / len(hidden))


def recording_case(widths: tuple[int, ...], count: int, quick: bool) -> Case:
    net = mlp(widths, 0)
    X, _ = points(count, widths[0], 2)
    return Case(
        method=f"second moments of {count} hidden inputs",
        network="-".join(map(str, widths)),
        ours=lambda: record_inputs(net, "linear1", X)["linear1"].second_moment,
        reference=lambda: slow_moments(net, X),
        agree=close,
        quick=quick,
    )


def slow_match(a: Any, b: Any, X: np.ndarray) -> list[list[int]]:
    """All activations of both networks, and the correlation matrix of the two stacked."""
    import torch
    from scipy.optimize import linear_sum_assignment

    def activations(net: Any) -> list[np.ndarray]:
        found, value = [], torch.as_tensor(X)
        with torch.no_grad():
            for name, part in deepcopy(net).eval().named_children():
                value = part(value)
                if name.startswith("act"):
                    found.append(value.double().numpy())
        return found

    orders = []
    for left, right in zip(activations(a), activations(b), strict=True):
        width = left.shape[1]
        S = np.corrcoef(left.T, right.T)[:width, width:]
        orders.append(linear_sum_assignment(S, maximize=True)[1].tolist())
    return orders


def match_case(widths: tuple[int, ...], count: int, quick: bool) -> Case:
    import torch

    a = mlp(widths, 0)
    X, _ = points(count, widths[0], 2)
    structure = permutation_structure(a, torch.as_tensor(X[:10])).only("permutation")
    b = structure.apply(a, structure.random(1))
    return Case(
        method=f"planted permutation from {count} activations",
        network="-".join(map(str, widths)),
        ours=lambda: [order.tolist() for order in match(a, b, data=X).permutations.values()],
        reference=lambda: slow_match(a, b, X),
        quick=quick,
    )


def cases() -> list[Case]:
    return [
        barrier_case((8, 32, 32, 3), 200, quick=True),
        barrier_case((784, 512, 512, 512, 10), 2000, quick=False),
        recording_case((32, 64, 2), 2000, quick=True),
        recording_case((784, 512, 10), 20_000, quick=False),
        match_case((8, 32, 32, 3), 1000, quick=True),
        match_case((784, 512, 512, 512, 10), 2000, quick=False),
    ]
