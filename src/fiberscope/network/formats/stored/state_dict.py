"""Plain state dicts of other programs: arrays without an architecture, which are not a function yet.

The caller says what they are the numbers of: of a module, or of a chain of dense layers with one activation between
them. For a chain the arrays have to be ``<layer>.weight`` (two axes) with or without ``<layer>.bias`` (one axis), and
their shapes have to fit one after the other; anything else is refused with the advice to give the module itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.formats.request import Request
from fiberscope.network.formats.stored.checkpoint import State, state_of
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.network.source import Source, precision_of
from fiberscope.numerics.arrays import real_array

OWN = "a file that holds its architecture"
"""What has no use for the options below."""

_ADVICE = "give the model that the numbers belong to, module= (--module package.file:factory)"

Layer = tuple[str, str | None]
"""Names of a weight and of its bias."""


class Numbers(NamedTuple):
    """The state dict of a file without an architecture.

    ``ordered`` says whether the file keeps the order of layers, ``precision`` that of the arrays in the file.
    """

    state: State
    ordered: bool
    precision: str


def numbers_of(content: Any, key: str | None, ordered: bool = True, stored: str | None = None) -> Numbers:
    """The numbers in what a file holds, perhaps a checkpoint with the state dict inside, at ``key``.

    ``stored`` is the precision in the file, where the arrays themselves do not tell it any more.
    """
    state = state_of(content, key)
    return Numbers(state, ordered, stored or precision_of(*state.values()))


def as_chain(numbers: Numbers, request: Request) -> Network:
    """A chain of dense layers, where the request says so; without a word about its architecture it is refused.

    >>> arrays = {"fc1.weight": np.ones((3, 2)), "fc1.bias": np.zeros(3), "fc2.weight": np.ones((1, 3))}
    >>> as_chain(numbers_of({"model": arrays, "epoch": 3}, None), Request(activation="relu"))
    Network(2-3-1; 12 parameters, 3 hidden neurons)
    """
    if request.activation is None:
        raise InputError(
            "the file holds numbers and no architecture, so it is not a function yet; say activation='relu' "
            "(--activation relu) for a chain of dense layers, or give module= (--module package.file:factory) to put "
            "them into, or take a file that fiberscope.save wrote"
        )
    request.refuse("a chain of dense layers", "until")
    slope = 0.0 if request.activation == "relu" else float(real_array(request.slope, "slope", ndim=0))
    return _chain(_arrays(numbers.state), slope, numbers.ordered, numbers.precision)


def _arrays(state: State) -> dict[str, Any]:
    """As NumPy arrays; float16 and bfloat16 of torch fit into float64."""
    return {str(name): _array(value.detach()) if hasattr(value, "detach") else value for name, value in state.items()}


def _array(tensor: Any) -> Any:
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _chain(arrays: Mapping[str, Any], slope: float, ordered: bool, stored: str) -> Network:
    layers = _layers(arrays)
    nodes: list[Node] = []
    width: int | None = None
    for weight_name, bias_name in layers if ordered else _in_order(layers, arrays):
        weight = real_array(arrays[weight_name], weight_name, ndim=2)
        bias = None if bias_name is None else real_array(arrays[bias_name], bias_name, ndim=1)
        if min(weight.shape) == 0:
            raise InputError(f"{weight_name}: expected at least one row and column, got {weight.shape}")
        if bias is not None and len(bias) != len(weight):
            raise InputError(f"{bias_name}: expected {len(weight)} entries, got {bias.shape}")
        if width is not None:
            if weight.shape[1] != width:
                raise InputError(
                    f"{weight_name}: expected {width} columns after the layer before, got {weight.shape}; {_ADVICE}"
                )
            nodes.append(PiecewiseLinear(len(nodes), np.full(width, slope), (width,)))
        nodes.append(Affine(len(nodes), Dense(weight), bias, weight_name, bias_name))
        width = len(weight)
    first = nodes[0]
    assert isinstance(first, Affine)
    return Network.from_nodes(nodes, first.operator.in_shape, Source(stored))


def _layers(arrays: Mapping[str, Any]) -> list[Layer]:
    """Pairs of weight and bias in the file's order, and nothing besides."""
    if not arrays:
        raise InputError(f"expected the weights of a network, got none; {_ADVICE}")
    layers: list[Layer] = []
    for name, array in arrays.items():
        prefix, _, kind = name.rpartition(".")
        axes = len(np.shape(array))
        weight = f"{prefix}.weight" if prefix else "weight"
        if kind == "weight" and axes == 2:
            bias = name.removesuffix("weight") + "bias"
            layers.append((name, bias if bias in arrays else None))
        elif kind != "bias" or axes != 1 or weight not in arrays:
            raise InputError(
                f"expected only dense layers (<layer>.weight with 2 axes, <layer>.bias with 1), got {name} of shape "
                f"{tuple(np.shape(array))}; {_ADVICE}"
            )
    return layers


def _in_order(layers: list[Layer], arrays: Mapping[str, Any]) -> list[Layer]:
    """The layers' order where the file does not keep it: by their numbers, else the only one whose shapes chain."""
    if len({re.sub(r"\d+", "#", weight) for weight, _ in layers}) == 1:
        return sorted(layers, key=lambda layer: [int(n) for n in re.findall(r"\d+", layer[0])])
    shapes = {layer: np.shape(arrays[layer[0]]) for layer in layers}
    found: list[list[Layer]] = []

    def extend(chain: list[Layer], rest: list[Layer]) -> None:
        if not rest:
            found.append(chain)
        for layer in rest:
            if len(found) < 2 and (not chain or shapes[layer][1] == shapes[chain[-1]][0]):
                extend([*chain, layer], [other for other in rest if other != layer])

    if len(layers) <= 12:
        extend([], layers)
    if len(found) != 1:
        raise InputError(
            f"the order of the layers {', '.join(w for w, _ in layers)} is not in the file and does not follow "
            f"from their shapes; {_ADVICE}"
        )
    return found[0]
