"""Distances to the boundary of a region for batches of points, against derivatives of torch point by point."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.geometry.distances.distance import boundary_distance
from fiberscope.network.network import Network
from harness import Case, Runner

NETWORKS = {
    "10000 x 2-64-64-1": ((2, 64, 64, 1), 10_000, 40),
    "1000 x 784-256-64-1": ((784, 256, 64, 1), 1000, 4),
    "100 x 49152-256-64-2": ((49152, 256, 64, 2), 100, 1),
}
"""Widths, points, and how many of them the loop over points gets, which is too slow for all."""


def per_point(net: Network, X: np.ndarray) -> Runner:
    """One backward pass of torch for every point and neuron."""
    import torch

    torch.set_num_threads(1)
    layers = [(torch.tensor(w), torch.tensor(b)) for w, b in zip(net.weights, net.biases, strict=True)]

    def run() -> Any:
        found = []
        for point in X:
            x = torch.tensor(point, requires_grad=True)
            a, best = x, float("inf")
            for weight, bias in layers[:-1]:
                z = weight @ a + bias
                for value in z:
                    (gradient,) = torch.autograd.grad(value, x, retain_graph=True)
                    length = float(gradient.norm())
                    best = min(best, abs(float(value.detach())) / length if length else best)
                a = torch.relu(z)
            found.append(best)
        return np.array(found)

    return run


def batched_jacobian(net: Network, X: np.ndarray) -> Runner:
    """All gradients of all neurons as one array per layer, in plain NumPy: fast, and without any proof."""

    def run() -> Any:
        best = np.full(len(X), np.inf)
        a, jacobian = X, None
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            z = a @ weight.T + bias
            jacobian = weight[None] if jacobian is None else weight @ jacobian
            length = np.linalg.norm(jacobian, axis=2)
            with np.errstate(divide="ignore"):
                best = np.minimum(best, (np.abs(z) / length).min(axis=1))
            a, jacobian = np.maximum(z, 0), jacobian * (z > 0)[:, :, None]
        return best

    return run


def agree(ours: Any, other: Any) -> bool:
    return bool(np.allclose(ours[: len(other)], other, rtol=1e-6))


def cases() -> list[Case]:
    found = []
    for name, (widths, points, few) in NETWORKS.items():
        net = Network.random(widths, 0)
        X = np.random.default_rng(1).uniform(-1, 1, (points, widths[0]))
        part = X[:few]
        found.append(
            Case(
                f"boundary distance, {few} points",
                name,
                lambda net=net, part=part: boundary_distance(net, part).distance,  # type: ignore[misc]
                per_point(net, part),
                agree=agree,
            )
        )
        chunk = max(1, 200_000_000 // (8 * widths[0] * max(widths[1:])))
        found.append(
            Case(
                "boundary distance, all points",
                name,
                lambda net=net, X=X: boundary_distance(net, X).distance,  # type: ignore[misc]
                chunked(net, X, chunk),
                agree=agree,
                quick=False,
            )
        )
    return found


def chunked(net: Network, X: np.ndarray, size: int) -> Runner:
    runs = [batched_jacobian(net, X[start : start + size]) for start in range(0, len(X), size)]
    return lambda: np.concatenate([run() for run in runs])
