"""Networks as torch modules in float64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import count
from math import prod
from typing import Any, assert_never

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Composite, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense, Gather, Operator, Scale, Shape, Sparse
from fiberscope.numerics.floats import FloatArray


def to_torch(net: Network) -> nn.Module:
    """A torch module in float64 with the same function and the network's parameters.

    A plain chain becomes ``nn.Sequential`` of ``Linear``, ``ReLU`` and ``LeakyReLU`` (after a ``Flatten`` where inputs
    are not vectors); any other program a :class:`Program`. Shared parameters stay shared; constants of the
    model do not require a gradient.

    >>> to_torch(Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]))
    Sequential(
      (0): Linear(in_features=1, out_features=2, bias=True)
      (1): ReLU()
      (2): Linear(in_features=2, out_features=1, bias=True)
    )
    """
    return _sequential(net) if net.is_chain else Program(net)


class Slopes(nn.Module):
    """``max(x, 0) + slope min(x, 0)`` with a slope for every neuron."""

    slopes: Tensor

    def __init__(self, slopes: FloatArray) -> None:
        super().__init__()
        self.register_buffer("slopes", _tensor(slopes), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.slopes)


def _tensor(array: FloatArray) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _sequential(net: Network) -> nn.Sequential:
    modules: list[nn.Module] = [] if len(net.input_shape) == 1 else [nn.Flatten()]
    shared: dict[str, nn.Parameter] = {}

    def parameter(array: FloatArray, name: str | None) -> nn.Parameter:
        made = nn.Parameter(_tensor(array), requires_grad=name is not None)
        return made if name is None else shared.setdefault(name, made)

    for node in net.nodes:
        if isinstance(node, Affine):
            layer = nn.Linear(node.operator.in_size, node.operator.out_size, node.bias is not None, dtype=torch.float64)
            layer.weight = parameter(node.operator.coefficients, node.weight_name)
            if node.offset is not None:
                layer.bias = parameter(node.offset, node.bias_name)
            modules.append(layer)
        elif isinstance(node, PiecewiseLinear):
            modules.append(_activation(node.slopes))
    return nn.Sequential(*modules)


def _activation(slopes: FloatArray) -> nn.Module:
    if not slopes.any():
        return nn.ReLU()
    if (slopes == slopes[0]).all():
        return nn.LeakyReLU(float(slopes[0]))
    return Slopes(slopes)


class Program(nn.Module):
    """Runs a network's program with torch operations.

    Parameters stand under their own names, dots included, so that the state dict looks like the original model's;
    constants are buffers outside of the state dict. Takes batches ``(points, in_size)`` or ``(points, *input_shape)``,
    gives ``(points, out_size)``.
    """

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.network = net
        self._paths = {name: _register(self, name, array) for name, array in net.parameters.items()}
        for index, node in enumerate(net.program):
            for key, array in _constants(node).items():
                self.register_buffer(f"_constant_{index}_{key}", torch.from_numpy(array.copy()), persistent=False)

    def current(self) -> Network:
        """The network with the parameters as they are now, for instance after training."""
        return self.network.with_parameters({name: self.get_parameter(path) for name, path in self._paths.items()})

    def extra_repr(self) -> str:
        return self.network.architecture

    def forward(self, x: Tensor) -> Tensor:
        """Outputs ``(points, out_size)``.

        A walk of its own and no algebra: it reads parameters by name, which change, and keeps images as torch likes
        them.
        """
        values = [x.flatten(1)]
        for index, node in enumerate(self.network.program):
            values.append(self._step(index, node, values))
        return values[-1]

    def _step(self, index: int, node: Given, values: list[Tensor]) -> Tensor:
        match node:
            case Affine():
                weight = self._number(index, "weight", node.weight_name)
                x = _apply(node.operator, values[node.source], weight, self._indices(index))
                if node.bias is None:
                    return x
                return (_shaped(x, node.shape) + self._number(index, "bias", node.bias_name)).flatten(1)
            case PiecewiseLinear():
                return _bent(values[node.source], node.slopes, self._number(index, "slopes", None))
            case Add():
                return reduce(torch.add, [values[s] for s in node.sources])
            case Concat():
                parts = [_shaped(values[s], shape) for s, shape in zip(node.sources, node.shapes, strict=True)]
                return torch.cat(parts, node.axis + 1).flatten(1)
            case MaxPool():
                if node.table is None:
                    return _max_pool(node, values[node.source])
                behind = F.pad(values[node.source], (0, 1), value=-torch.inf)
                return behind[:, self._number(index, "table", None)].amax(2)
            case Clip():
                low, high = (self._number(index, name, None) for name in node.arrays())
                return torch.clamp(values[node.source], low, high)
            case Composite():
                raise NotImplementedError(f"no torch form of {node}")  # pragma: no cover
            case _:
                assert_never(node)

    def _number(self, index: int, key: str, name: str | None) -> Tensor:
        if name is not None:
            return self.get_parameter(self._paths[name])
        return self.get_buffer(f"_constant_{index}_{key}")

    def _indices(self, index: int) -> dict[int, Tensor]:
        prefix = f"_constant_{index}_indices"
        return {
            int(name.removeprefix(prefix)): b
            for name, b in self._buffers.items()
            if name.startswith(prefix) and b is not None
        }


def _constants(node: Given) -> dict[str, Any]:
    """Arrays of a node that are not parameters: constant numbers, and the indices of sparse maps."""
    match node:
        case Affine():
            return _affine_constants(node)
        case PiecewiseLinear():
            return {"slopes": node.slopes}
        case Composite():
            return dict(node.arrays())
        case MaxPool():
            absent = prod(node.in_shape)  # behind the input stands what never wins
            return {} if node.table is None else {"table": np.where(node.table < 0, absent, node.table)}
        case Add() | Concat():
            return {}
        case _:
            assert_never(node)


def _affine_constants(node: Affine) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if node.weight_name is None:
        found["weight"] = node.operator.coefficients
    if node.bias is not None and node.bias_name is None:
        found["bias"] = node.bias
    for stage, operator in enumerate(node.operator.stages()):
        if isinstance(operator, Sparse):
            matrix = operator.matrix
            rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            found[f"indices{stage}"] = np.stack([rows, matrix.indices]).astype(np.int64)
        elif isinstance(operator, Gather):  # behind the input stands a zero
            found[f"indices{stage}"] = np.where(operator.index < 0, operator.in_size, operator.index)
    return found


def _register(root: nn.Module, name: str, array: FloatArray) -> str:
    """Register a parameter under its dotted name; where that is not possible, under a name close to it."""
    module, path = root, []
    *folders, leaf = name.split(".")
    for part in folders:
        folder = _free(module, part, nn.Module)
        if folder not in module._modules:
            module.add_module(folder, nn.Module())
        module = module.get_submodule(folder)
        path.append(folder)
    leaf = _free(module, leaf, None)
    module.register_parameter(leaf, nn.Parameter(_tensor(array)))
    return ".".join([*path, leaf])


def _free(module: nn.Module, name: str, kind: type | None) -> str:
    """A name that torch accepts here: not empty, not an attribute already (but for a submodule to go into)."""
    for candidate in (f"{name}{'_' * k}" for k in count()):
        taken = candidate == "" or hasattr(module, candidate)
        if not taken or (kind is not None and candidate in module._modules):
            return candidate
    raise AssertionError  # pragma: no cover - count() does not end


def _shaped(x: Tensor, shape: Shape) -> Tensor:
    return x.reshape(len(x), *(shape or (1,)))


def _bent(x: Tensor, slopes: FloatArray, numbers: Tensor) -> Tensor:
    """An activation by its name: exporters would write a choice by ``x > 0`` as one that can jump."""
    return F.prelu(x, numbers) if slopes.any() else torch.relu(x)


def _apply(operator: Operator, x: Tensor, weight: Tensor, indices: Mapping[int, Tensor]) -> Tensor:
    for stage, (part, place) in enumerate(zip(operator.stages(), operator.places(), strict=True)):
        own = weight[place].reshape(part.coefficients.shape) if isinstance(operator, Composition) else weight
        match part:
            case Dense():
                x = F.linear(x, own)
            case Scale():
                x = (_shaped(x, part.in_shape) * own).flatten(1)
            case Convolution():
                top, left, bottom, right = part.padding
                image = F.pad(_shaped(x, part.in_shape), (left, right, top, bottom))
                x = F.conv2d(image, own, None, part.stride, 0, part.dilation, part.groups).flatten(1)
            case TransposedConvolution():
                top, left, bottom, right = part.padding
                image = _shaped(x, part.in_shape)
                whole = F.conv_transpose2d(image, own, None, part.stride, 0, 0, part.groups, part.dilation)
                x = F.pad(whole, (-left, -right, -top, -bottom)).flatten(1)
            case Gather():
                x = F.pad(x, (0, 1))[:, indices[stage]]
            case _:
                rows, columns = indices[stage]
                x = x.new_zeros(len(x), part.out_size).index_add(1, rows, x[:, columns] * own)
    return x


def _max_pool(node: MaxPool, x: Tensor) -> Tensor:
    """As torch pools where its padding means the same: others read that in an exported file.

    Else pad with minus infinity to exactly the rows and columns that the windows cover, then pool without padding.
    """
    image, before = _shaped(x, node.in_shape), node.padding[:2]
    reach = [node.dilation[a] * (node.kernel[a] - 1) + 1 for a in (0, 1)]
    ends = [(node.shape[1 + a] - 1) * node.stride[a] + reach[a] - node.in_shape[1 + a] - before[a] for a in (0, 1)]
    # torch leaves what is left of its padding on the far side unread
    if all(0 <= before[a] - ends[a] < node.stride[a] and 2 * before[a] <= node.kernel[a] for a in (0, 1)):
        return F.max_pool2d(image, node.kernel, node.stride, before, node.dilation).flatten(1)
    padded = F.pad(image, (before[1], ends[1], before[0], ends[0]), value=-torch.inf)
    return F.max_pool2d(padded, node.kernel, node.stride, 0, node.dilation).flatten(1)
