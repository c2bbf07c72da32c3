"""Tangent kernels, Jacobians and exact ranks of MLPs, against the closed form by hand and against other libraries.

C1 is 1-10x5-1 on 100 points, C2 8-10x5-1 on 768, C3 784-512x3-10 on 200 (all outputs), C4 784-512x3-1 on 1000, C5
784-4096-1 on 500.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fiberscope.dimension.exact_rank import exact_jacobian_rank, residue_rows, sample
from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.kernels.kernel import ntk
from fiberscope.network.network import Network
from fiberscope.numerics.modular import random_primes
from harness import Case, Runner

NETWORKS: dict[str, tuple[tuple[int, ...], int]] = {
    "C1": ((1, 10, 10, 10, 10, 10, 1), 100),
    "C2": ((8, 10, 10, 10, 10, 10, 1), 768),
    "C3": ((784, 512, 512, 512, 10), 200),
    "C4": ((784, 512, 512, 512, 1), 1000),
    "C5": ((784, 4096, 1), 500),
}


def build(name: str) -> tuple[Network, np.ndarray]:
    widths, points = NETWORKS[name]
    return Network.random(widths, 0), np.random.default_rng(1).uniform(size=(points, widths[0]))


def passes(net: Network, X: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Activations ``(points, n)`` and, for every output, deltas ``(outputs, points, n)`` of all layers, by hand."""
    activations, masks = [X], []
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        z = activations[-1] @ weight.T + bias
        masks.append(z > 0)
        activations.append(np.maximum(z, 0))
    delta = np.broadcast_to(np.eye(net.out_size)[:, None, :], (net.out_size, len(X), net.out_size))
    deltas = [delta]
    for weight, mask in zip(net.weights[:0:-1], masks[::-1], strict=True):
        delta = (delta @ weight) * mask
        deltas.append(delta)
    return activations, deltas[::-1]


def kernel_by_hand(net: Network, X: np.ndarray) -> np.ndarray:
    """The closed form in plain NumPy, output by output."""
    activations, deltas = passes(net, X)
    m, outputs = len(X), net.out_size
    result = np.zeros((m, outputs, m, outputs))
    for a, delta in zip(activations, deltas, strict=True):
        inputs = a @ a.T + 1
        for o, p in itertools.product(range(outputs), repeat=2):
            result[:, o, :, p] += (delta[o] @ delta[p].T) * inputs
    return result.reshape(m * outputs, m * outputs)


def jacobian_by_hand(net: Network, X: np.ndarray) -> np.ndarray:
    activations, deltas = passes(net, X)
    blocks = []
    for a, delta in zip(activations, deltas, strict=True):
        d = delta[0]
        blocks += [(d[:, :, None] * a[:, None, :]).reshape(len(X), -1), d]
    return np.concatenate(blocks, axis=1)


def torch_parts(net: Network, X: np.ndarray) -> tuple[Any, Any]:
    import torch

    torch.set_num_threads(1)
    return net.to_torch().double(), torch.from_numpy(X)


def functional(net: Network, X: np.ndarray, kernel: bool) -> Runner:
    from torch.func import functional_call, jacrev, vmap

    module, points = torch_parts(net, X)
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    derivative = vmap(jacrev(lambda p, x: functional_call(module, p, (x[None],))[0]), in_dims=(None, 0))

    def run() -> np.ndarray:
        found = derivative(parameters, points)
        rows = np.concatenate([found[name].flatten(2).numpy() for name in parameters], axis=2)
        rows = rows.reshape(len(X) * net.out_size, -1)
        return rows @ rows.T if kernel else rows

    return run


def nngeometry(net: Network, X: np.ndarray) -> Runner:
    import torch
    from nngeometry.gram import GramMatrix
    from nngeometry.layercollection import LayerCollection
    from torch.utils.data import DataLoader, TensorDataset

    module, points = torch_parts(net, X)
    loader = DataLoader(TensorDataset(points, torch.zeros(len(points))), batch_size=len(points))
    layers = LayerCollection.from_model(module)

    def run() -> np.ndarray:
        found = GramMatrix(module, loader, function=lambda *d: module(d[0]), layer_collection=layers)
        # outputs x points x outputs x points there, points first here
        return found.data.detach().permute(1, 0, 3, 2).reshape(len(X) * net.out_size, -1).numpy()

    return run


def asdl(net: Network, X: np.ndarray) -> Runner:
    """One output only: the kernel of every class by itself."""
    from asdl import empirical_class_wise_hadamard_ntk

    module, points = torch_parts(net, X)

    def run() -> np.ndarray:
        return np.asarray(empirical_class_wise_hadamard_ntk(module, points)[..., 0].detach().numpy())

    return run


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() <= 1e-9 * np.abs(a).max())


def kernel_case(name: str, quick: bool, slow_peer: bool) -> Case:
    net, X = build(name)
    peers = {"nngeometry": lambda: nngeometry(net, X)}
    if net.out_size == 1:
        peers["asdl"] = lambda: asdl(net, X)
    if slow_peer:
        peers["torch.func"] = lambda: functional(net, X, kernel=True)
    return Case(
        "tangent kernel", f"{name} {net.architecture}, {len(X)} points", lambda: ntk(net, X),
        lambda: kernel_by_hand(net, X), peers, close, quick,
    )  # fmt: skip


def jacobian_case(name: str) -> Case:
    net, X = build(name)
    return Case(
        "Jacobian", f"{name} {net.architecture}, {len(X)} points", lambda: jacobian(net, X),
        lambda: jacobian_by_hand(net, X), {"torch.func": lambda: functional(net, X, kernel=False)}, close,
    )  # fmt: skip


def flint_rank(net: Network, X: np.ndarray) -> int:
    """Certified signs, and an elimination by python-flint, integers passed in bulk."""
    import flint

    prime = random_primes(1, 0)[0]
    found = sample(net, X)
    rows = residue_rows(net, found.X, found.signs, prime)
    return int(flint.nmod_mat(*rows.shape, rows.reshape(-1).tolist(), prime).rank())


def rank_case(widths: tuple[int, ...], points: int) -> Case:
    """Certified signs and the exact rank."""
    net = Network.random(widths, 0)
    X = np.random.default_rng(1).uniform(size=(points, widths[0]))
    return Case(
        "exact rank, against python-flint", f"{net.architecture}, {points} points",
        lambda: exact_jacobian_rank(net, sample(net, X)).rank, lambda: flint_rank(net, X),
    )  # fmt: skip


def cases() -> list[Case]:
    return [
        kernel_case("C1", quick=True, slow_peer=True),
        kernel_case("C2", quick=True, slow_peer=True),
        kernel_case("C3", quick=False, slow_peer=False),
        kernel_case("C4", quick=False, slow_peer=False),
        kernel_case("C5", quick=False, slow_peer=False),
        jacobian_case("C1"),
        jacobian_case("C2"),
        rank_case((1, 10, 10, 10, 10, 1), 100),
        rank_case((8, 10, 10, 10, 10, 1), 768),
    ]
