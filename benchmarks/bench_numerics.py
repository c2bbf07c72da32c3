"""Certified signs against rational arithmetic and plain floats; evaluation against onnxruntime and torch."""

from __future__ import annotations

import numpy as np

from fiberscope.network.network import Network
from fiberscope.testing import convolutional, fraction_signs
from harness import Case, Runner


def torch_forward(net: Network, X: np.ndarray) -> Runner:
    import torch

    module, batch = net.to_torch(), torch.from_numpy(X)

    def forward() -> np.ndarray:
        with torch.no_grad():
            return module(batch).numpy()

    return forward


def float_signs(net: Network, X: np.ndarray) -> np.ndarray:
    """What everybody else does: the signs of floats, without any proof."""
    return np.concatenate([np.sign(z) for z in net.preactivations(X)], axis=1).astype(np.int8)


def signs_case(widths: tuple[int, ...], points: int, quick: bool) -> Case:
    net = Network.random(widths, 0)
    X = np.random.default_rng(1).normal(size=(points, widths[0]))
    return Case(
        method="certified signs, against unproven float signs",
        network=f"{net.architecture}, {points} points",
        ours=lambda: net.signs(X).signs,
        reference=lambda: float_signs(net, X),
        agree=lambda a, b: bool((a == b).all()),
        quick=quick,
    )


def exact_case() -> Case:
    net = Network.random((5, 20, 20, 2), 0)
    X = np.random.default_rng(1).normal(size=(3, 5))
    return Case(
        method="certified signs, against rational arithmetic",
        network=f"{net.architecture}, 3 points",
        ours=lambda: net.signs(X).signs,
        reference=lambda: np.array([fraction_signs(net, x) for x in X]),
        agree=lambda a, b: bool((a == b).all()),
    )


def evaluation_case(net: Network, name: str, points: int) -> Case:
    X = np.random.default_rng(1).normal(size=(points, net.in_size))

    def by_hand() -> np.ndarray:
        if not net.is_chain:
            return net.as_mlp()(X)
        a = X
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            a = np.maximum(a @ weight.T + bias, 0)
        return a @ net.weights[-1].T + net.biases[-1]

    return Case(
        method="evaluation, against " + ("a loop over two lists of arrays" if net.is_chain else "the dense view"),
        network=f"{name}, {points} points",
        ours=lambda: net(X),
        reference=by_hand,
        peers={"torch": lambda: torch_forward(net, X)} if net.is_chain else {},
        agree=lambda a, b: bool(np.allclose(a, b)),
    )


def cases() -> list[Case]:
    return [
        exact_case(),
        signs_case((8, 64, 64, 4), 1000, quick=True),
        signs_case((784, 512, 512, 512, 10), 200, quick=False),
        evaluation_case(Network.random((2, 16, 16, 1), 0), "2-16-16-1", 100),
        evaluation_case(Network.random((784, 256, 256, 10), 0), "784-256-256-10", 256),
        evaluation_case(convolutional(), "small CNN", 64),
    ]
