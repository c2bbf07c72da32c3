"""One registry of networks that feeds every test: plain, deep, degenerate, convolutional and residual ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense, Scale, Sparse


def degenerate(kind: str, seed: int = 0) -> Network:
    """A network ``2-6-5-2`` that is degenerate in a named way.

    Kinds: ``zero_rows``, ``equal_neurons``, ``opposite_neurons``, ``proportional_neurons``, ``dead_layer``,
    ``all_zero``, ``through_origin``, ``integer`` (small integer weights, so that coincidences abound).
    """
    rng = np.random.default_rng(seed)
    net = Network.random((2, 6, 5, 2), rng)
    weights = [w.copy() for w in net.weights]
    biases = [b.copy() for b in net.biases]
    if kind == "zero_rows":
        weights[0][:2], biases[0][:2] = 0.0, (0.0, 1.0)
        weights[1][0], biases[1][0] = 0.0, 0.0
    elif kind == "equal_neurons":
        weights[0][3:], biases[0][3:] = weights[0][:3], biases[0][:3]
    elif kind == "opposite_neurons":
        weights[0][3:], biases[0][3:] = -weights[0][:3], -biases[0][:3]
    elif kind == "proportional_neurons":
        weights[0][3:], biases[0][3:] = 4 * weights[0][:3], 4 * biases[0][:3]
    elif kind == "dead_layer":
        weights[1], biases[1] = -np.abs(weights[1]), -np.abs(biases[1])
    elif kind == "all_zero":
        weights, biases = [np.zeros_like(w) for w in weights], [np.zeros_like(b) for b in biases]
    elif kind == "through_origin":
        biases = [np.zeros_like(b) for b in biases]
    elif kind == "integer":
        weights = [rng.integers(-2, 3, w.shape).astype(np.float64) for w in weights]
        biases = [rng.integers(-2, 3, b.shape).astype(np.float64) for b in biases]
    else:
        raise InputError(f"kind: expected one of {', '.join(DEGENERATE)}, got {kind!r}")
    return Network(weights, biases)


DEGENERATE = (
    "zero_rows",
    "equal_neurons",
    "opposite_neurons",
    "proportional_neurons",
    "dead_layer",
    "all_zero",
    "through_origin",
    "integer",
)


def convolutional(seed: int = 0) -> Network:
    """A small CNN on ``(2, 6, 6)``: convolution, batch normalisation, ReLU, max pool, depthwise convolution, dense."""
    rng = np.random.default_rng(seed)
    first = Convolution(rng.normal(0, 0.4, (3, 2, 3, 3)), (2, 6, 6), padding=(1, 1, 1, 1))
    depthwise = Convolution(rng.normal(0, 0.5, (3, 1, 2, 2)), (3, 3, 3), groups=3)
    nodes: list[Node] = [
        Affine(0, first, rng.normal(0, 0.3, (3, 1, 1)), "conv.weight", "conv.bias"),
        Affine(1, Scale(rng.uniform(0.5, 2, (3, 1, 1)), (3, 6, 6)), rng.normal(0, 0.3, (3, 1, 1))),
        Affine(2, Scale(rng.uniform(0.5, 2, (3, 1, 1)), (3, 6, 6)), rng.normal(0, 0.3, (3, 1, 1)), "g", "h"),
        PiecewiseLinear(3, np.zeros(()), (3, 6, 6)),
        MaxPool(4, (3, 6, 6), (2, 2), (2, 2)),
        Affine(5, depthwise, None, "depthwise.weight"),
        PiecewiseLinear(6, np.asarray(0.25), (3, 2, 2)),
        Affine(7, Dense(rng.normal(0, 0.5, (3, 12)), (3, 2, 2)), rng.normal(0, 0.3, 3), "fc.weight", "fc.bias"),
    ]
    return Network.from_nodes(nodes, (2, 6, 6))


def residual(seed: int = 0) -> Network:
    """A small residual network on 4 inputs: a shared layer used twice, a skip connection, concat, sparse layers."""
    rng = np.random.default_rng(seed)
    shared = Dense(rng.normal(0, 0.5, (4, 4)))
    bias = rng.normal(0, 0.3, 4)
    mask = rng.random((3, 8)) < 0.5
    low_rank = Composition([Dense(rng.normal(0, 0.6, (2, 4))), Dense(rng.normal(0, 0.6, (4, 2)))])
    nodes: list[Node] = [
        Affine(0, shared, bias, "shared.weight", "shared.bias"),
        PiecewiseLinear(1, np.zeros(4), (4,)),
        Affine(2, shared, bias, "shared.weight", "shared.bias"),
        Add((3, 0), (4,)),
        PiecewiseLinear(4, np.zeros(4), (4,)),
        Affine(5, low_rank, None, "low_rank"),
        Concat((6, 2), ((4,), (4,))),
        Affine(7, Sparse(rng.normal(size=(3, 8)) * mask), rng.normal(size=3), "sparse.weight", "sparse.bias"),
        PiecewiseLinear(8, np.array([0.0, 1.0, 0.5]), (3,)),
        Affine(9, Dense(rng.normal(size=(2, 3)))),
    ]
    return Network.from_nodes(nodes, (4,))


CASES: dict[str, Callable[[], Network]] = {
    "chain": lambda: Network.random((2, 5, 4, 3), 1),
    "deep": lambda: Network.random((3, 4, 4, 4, 4, 4, 1), 2),
    "width_one": lambda: Network.random((1, 1, 1, 1), 3),
    "affine": lambda: Network.random((3, 2), 4),
    "leaky": lambda: Network(*_arrays((2, 4, 3, 1), 5), "leaky_relu", slope=0.125),
    "mixed_linear": lambda: Network(*_arrays((2, 4, 3, 1), 6), linear=[np.array([True, False, True, False]), None]),
    "convolutional": convolutional,
    "residual": residual,
    **{kind: (lambda kind=kind: degenerate(kind)) for kind in DEGENERATE},  # type: ignore[misc]
}
"""Every kind of network, by name; a call builds it."""


def case(name: str) -> Network:
    """The network of that name in :data:`CASES`."""
    if name not in CASES:
        raise InputError(f"case: expected one of {', '.join(CASES)}, got {name!r}")
    return CASES[name]()


def _arrays(widths: tuple[int, ...], seed: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    net = Network.random(widths, seed)
    return net.weights, net.biases
