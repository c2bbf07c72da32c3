"""Writing networks as ONNX graphs that other tools run, and that :mod:`.reader` reads back bit for bit.

The graph holds the whole function. What it cannot say (which tensors are constants of the model rather than parameters,
the image shape before a dense layer, which maps form one composition) stands as notes in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from fiberscope.errors import TooLargeError
from fiberscope.network.convolutions import Convolution, Convolving, TransposedConvolution
from fiberscope.network.formats.onnx.graph import METADATA
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense, Gather, Operator, Scale, Shape, Sparse
from fiberscope.network.source import Interface
from fiberscope.numerics.floats import FloatArray, IntArray

OPSET, IR_VERSION = 13, 8
"""Old enough for every runtime in use; nothing newer is needed."""

_OLDEST = 4
"""The first version of the file format in which initializers need not be inputs."""

_GEMM_WITHOUT_BIAS = 11
"""The first opset in which Gemm need not have one."""

_LIMIT = (1 << 31) - (1 << 16)
"""Protocol buffers end at 2 GiB."""


def encode(net: Network, dtype: str) -> bytes:
    """The bytes of an ``.onnx`` file with tensors of ``dtype``, which must hold every number exactly."""
    need = sum(array.size for array in net.parameters.values()) * np.dtype(dtype).itemsize
    if need > _LIMIT:
        raise TooLargeError(f"an ONNX file holds at most 2 GiB, the parameters need {need / 2**30:.1f} GiB")
    model = _Writer(net, dtype).model()
    return bytes(model.SerializeToString())


class _Writer:
    """Emits one node after the other; ``values[k]`` is the tensor of value ``k`` with its shape."""

    def __init__(self, net: Network, dtype: str) -> None:
        self.net, self.dtype = net, dtype
        self.taken: set[str] = set(net.parameters)
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}
        self.notes: dict[str, Any] = {key: [] for key in ("constants", "compositions", "joined")}
        self.notes |= {"names": {}, "shapes": {}, "windows": {}}
        self.notes["precision"] = net.source.precision
        self.stored: dict[str, tuple[str, bytes, Shape]] = {}
        self.reshapes: dict[tuple[str, Shape], str] = {}
        self.face = _interface(net, dtype)
        self.input, self.output = self.fresh(self.face.input), self.fresh(self.face.output)
        self.opset = 7
        self.values: list[tuple[str, Shape]] = [self.begin()]

    def model(self) -> Any:
        for node in self.net.program:
            self.values.append(self.write(node))
        self.end()
        face = self.face
        if self.net.input_shape != face.shape:
            self.notes["input_shape"] = list(self.net.input_shape)
        if face.batch is None:
            self.notes["unbatched"] = True
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(face.dtype))
        batch = [] if face.batch is None else [face.batch]
        out_batch = [face.batch or 1] if face.out_batched else []
        graph = helper.make_graph(
            self.nodes,
            "fiberscope",
            [helper.make_tensor_value_info(self.input, kind, [*batch, *face.shape])],
            [helper.make_tensor_value_info(self.output, kind, [*out_batch, *face.out_shape])],
            list(self.tensors.values()),
        )
        opsets = [helper.make_opsetid("", face.opset if face.opset >= self.opset else max(self.opset, OPSET))]
        version = face.ir_version if face.ir_version >= _OLDEST else IR_VERSION
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="fiberscope")
        helper.set_model_props(model, {METADATA: json.dumps(self.notes)})
        return model

    def begin(self) -> tuple[str, Shape]:
        """The input with a batch axis, in the type of the weights."""
        name, face = self.input, self.face
        if face.dtype != self.dtype:
            name = self.emit("Cast", [name], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))))
        if face.batch is None:
            name = self.reshape(name, [-1, *face.shape])
        return name, face.shape

    def end(self) -> None:
        """The output in the shape and the type of the interface, under its name."""
        face = self.face
        name = self.shaped(self.values[-1], face.out_shape)
        if not face.out_batched:
            name = self.reshape(name, [-1, *face.out_shape[1:]] if face.out_shape else [])
        if face.dtype != self.dtype:
            self.emit("Cast", [name], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(face.dtype))))
        self.nodes[-1].output[0] = self.output  # the last tensor has no reader

    # -- names and tensors -------------------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A name that no tensor has yet."""
        candidates: Iterator[str] = (f"{stem}_{k}" if k else stem for k in range(len(self.taken) + 1))
        name = next(name for name in candidates if name not in self.taken)
        self.taken.add(name)
        return name

    def tensor(self, array: FloatArray, parameter: str | None, stem: str) -> str:
        """Store an array once under its parameter's name; constants get a name of their own."""
        key = (array.tobytes(), array.shape)
        if parameter is not None and parameter in self.stored:
            name, *before = self.stored[parameter]
            if tuple(before) == key:
                return name
        name = self.claim(parameter, key, stem)
        self.tensors[name] = numpy_helper.from_array(array.astype(self.dtype), name)
        return name

    def claim(self, parameter: str | None, key: tuple[bytes, Shape], stem: str) -> str:
        """The name of a new tensor: the parameter's own, or a fresh one for a constant or a second layout."""
        name = parameter if parameter and parameter not in self.stored else self.fresh(stem)
        if parameter is None:
            self.notes["constants"].append(name)
        else:
            self.stored.setdefault(parameter, (name, *key))
            if name != parameter:
                self.notes["names"][name] = parameter
        return name

    def emit(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """One ONNX node; gives its output, which is also the node's name."""
        name = self.fresh(kind.lower())
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def shaped(self, value: tuple[str, Shape], shape: Shape) -> str:
        """The tensor of a value in the wanted shape."""
        name, now = value
        if now == shape:
            return name
        if (name, shape) not in self.reshapes:
            self.reshapes[name, shape] = self.reshape(name, [-1, *shape])
        return self.reshapes[name, shape]

    def reshape(self, name: str, sizes: list[int]) -> str:
        return self.emit("Reshape", [name, self.integers(sizes, "shape")])

    def integers(self, values: Any, stem: str) -> str:
        """A constant vector of integers."""
        target = self.fresh(stem)
        self.tensors[target] = numpy_helper.from_array(np.array(values, dtype=np.int64), target)
        return target

    # -- nodes -------------------------------------------------------------------------------------------------

    def write(self, node: Given) -> tuple[str, Shape]:
        match node:
            case Affine():
                return self.affine(node)
            case PiecewiseLinear():
                return self.activation(node), node.shape
            case Add():
                inputs = [self.shaped(self.values[s], node.shape) for s in node.sources]
                return self.emit("Add" if len(inputs) == 2 else "Sum", inputs), node.shape
            case Concat():
                pairs = zip(node.sources, node.shapes, strict=True)
                inputs = [self.shaped(self.values[s], shape) for s, shape in pairs]
                return self.emit("Concat", inputs, axis=node.axis + 1), node.shape
            case MaxPool() if node.table is not None:
                return self.windows(node, node.table), node.shape
            case MaxPool():
                image = self.shaped(self.values[node.source], node.in_shape)
                options: dict[str, Any] = {"kernel_shape": node.kernel, "strides": node.stride}
                pads, ceil = _pooling_ends(node)
                if ceil or node.dilation != (1, 1):
                    options |= {"dilations": node.dilation, "ceil_mode": int(ceil)}
                    self.opset = max(self.opset, 10)
                return self.emit("MaxPool", [image], pads=pads, **options), node.shape
            case Clip():
                return self.clip(node), node.shape
            case _:
                raise TypeError(f"no ONNX form of {node}")  # pragma: no cover

    def activation(self, node: PiecewiseLinear) -> str:
        value = self.shaped(self.values[node.source], node.shape)
        if node.slope_name is not None:
            own = node.own_slopes
            return self.emit("PRelu", [value, self.tensor(own.reshape(own.shape or 1), node.slope_name, "slope")])
        slope = node.slopes.reshape(-1)[:1]
        if np.broadcast_to(slope, node.slopes.shape).tobytes() != node.slopes.tobytes():
            slopes = node.slopes.reshape(node.shape)
            per_channel = slopes.reshape(len(slopes), -1)[:, :1].reshape(-1, *(1 for _ in node.shape[1:]))
            if np.broadcast_to(per_channel, node.shape).tobytes() == slopes.tobytes():
                slopes = per_channel
            return self.emit("PRelu", [value, self.tensor(slopes, None, "slope")])
        if slope.tobytes() == np.zeros(1).tobytes():
            return self.emit("Relu", [value])
        if np.float64(np.float32(slope[0])) == slope[0]:
            return self.emit("LeakyRelu", [value], alpha=float(slope[0]))
        # The attribute of LeakyRelu is a float32 even where tensors are float64.
        return self.emit("PRelu", [value, self.tensor(slope, None, "slope")])

    def clip(self, node: Clip) -> str:
        """Clip with bounds that are the same for all neurons; else Max and Min, which read back as one."""
        value, bounds = self.shaped(self.values[node.source], node.shape), list(node.arrays().values())
        self.opset = max(self.opset, 12)
        if all((bound == bound[0]).all() for bound in bounds):
            numbers = [self.tensor(bound[0], None, "bound") if np.isfinite(bound[0]) else "" for bound in bounds]
            return self.emit("Clip", [value, *numbers])
        for kind, bound in zip(("Max", "Min"), bounds, strict=True):
            value = self.emit(kind, [value, self.tensor(bound.reshape(node.shape), None, "bound")])
        self.notes["joined"].append(value)
        return value

    def windows(self, node: MaxPool, table: IntArray) -> str:
        """The largest of several selections of a vector; an absent input of a window is its first one once more."""
        vector = self.shaped(self.values[node.source], (prod(node.in_shape),))
        first = np.take_along_axis(table, (table >= 0).argmax(axis=1)[:, None], axis=1)
        places = np.where(table < 0, first, table)
        picked = [self.emit("Gather", [vector, self.integers(row, "index")], axis=1) for row in places.T]
        self.opset = max(self.opset, 8)
        name = self.emit("Max", picked)
        self.notes["windows"][name] = [node.in_shape, np.flatnonzero(table.reshape(-1) < 0).tolist()]
        return name

    def affine(self, node: Affine) -> tuple[str, Shape]:
        parts = node.operator.stages() if isinstance(node.operator, Composition) else (node.operator,)
        weight_name = None if isinstance(node.operator, Composition) else node.weight_name
        value, made = self.values[node.source], []
        for index, part in enumerate(parts):
            last = index + 1 == len(parts)
            name, bias_done = self.linear(value, part, weight_name, node if last else None)
            made.append(name)
            value = (self.shaped((name, self.flat_shape(part)), part.out_shape), part.out_shape)
        if isinstance(node.operator, Composition):
            self.notes["compositions"].append([made, node.weight_name])
        if node.bias is not None and not bias_done:
            value = (self.emit("Add", [value[0], self.tensor(node.bias, node.bias_name, "bias")]), value[1])
        return value

    @staticmethod
    def flat_shape(operator: Operator) -> Shape:
        """The shape that the ONNX node of an operator gives."""
        return (operator.out_size,) if isinstance(operator, Sparse | Dense | Gather) else operator.out_shape

    def linear(
        self, value: tuple[str, Shape], operator: Operator, weight_name: str | None, node: Affine | None
    ) -> tuple[str, bool]:
        """The ONNX node of one operator, and whether the bias of ``node`` went into it."""
        match operator:
            case Scale():
                factors = self.tensor(operator.factors, weight_name, "scale")
                return self.emit("Mul", [self.shaped(value, operator.in_shape), factors]), False
            case Convolution() | TransposedConvolution():
                inputs = [
                    self.shaped(value, operator.in_shape),
                    self.tensor(operator.kernel, weight_name, "kernel"),
                ]
                vector = None if node is None else self.channel_bias(node)
                options: dict[str, Any] = {"strides": operator.stride, "pads": operator.padding}
                if isinstance(operator, TransposedConvolution):
                    options["pads"] = [max(0, p) for p in operator.padding]
                    options["output_padding"] = [max(0, -p) for p in operator.padding[2:]]
                name = self.emit(
                    "Conv" if isinstance(operator, Convolution) else "ConvTranspose",
                    inputs if vector is None else [*inputs, vector],
                    dilations=operator.dilation,
                    group=operator.groups,
                    **options,
                )
                return name, vector is not None
            case Dense():
                vector = self.shaped(value, (operator.in_size,))
                bias = None if node is None else node.bias
                if bias is None and self.face.opset < _GEMM_WITHOUT_BIAS:
                    weight = self.tensor(np.ascontiguousarray(operator.matrix.T), weight_name, "weight")
                    name = self.emit("MatMul", [vector, weight])
                else:
                    inputs = [vector, self.tensor(operator.matrix, weight_name, "weight")]
                    if bias is not None and node is not None:
                        inputs.append(self.tensor(bias, node.bias_name, "bias"))
                    name = self.emit("Gemm", inputs, transB=1)
            case Sparse():
                bias, self.opset = None, max(self.opset, 11)
                inputs = [self.shaped(value, (operator.in_size,)), self.sparse_tensor(operator, weight_name)]
                name = self.emit("Gemm", inputs, transB=1)
            case Gather():
                bias, name = None, self.gather(self.shaped(value, (operator.in_size,)), operator)
            case _:
                raise TypeError(f"no ONNX form of {operator}")  # pragma: no cover
        flat = operator.in_shape == (operator.in_size,) and operator.out_shape == (operator.out_size,)
        if not flat or isinstance(operator, Gather):
            self.notes["shapes"][name] = [operator.in_shape, operator.out_shape]
        return name, bias is not None

    def gather(self, vector: str, operator: Gather) -> str:
        """Entries of a vector by their places; zeros are read from behind its end, where one is put."""
        absent = operator.index < 0
        if absent.any():
            self.opset = max(self.opset, 11)
            vector = self.emit("Pad", [vector, self.integers([0, 0, 0, 1], "pads")])
            self.notes["joined"].append(vector)
        name = self.emit("Gather", [vector, self.integers(np.where(absent, operator.in_size, operator.index), "index")],
                         axis=1)  # fmt: skip
        if absent.any():
            self.notes["joined"].append(name)
        return name

    def channel_bias(self, node: Affine) -> str | None:
        """The bias input of a convolution, where the bias is one number per channel and is only used as such."""
        if node.bias is None or node.bias.shape != (node.shape[0], 1, 1):
            return None
        for other in self.net.nodes if node.bias_name is not None else ():
            if isinstance(other, Affine) and node.bias_name in (other.weight_name, other.bias_name):
                alone = other.weight_name != node.bias_name and isinstance(other.operator, Convolving)
                if not alone or other.bias is None or other.bias.tobytes() != node.bias.tobytes():
                    return None
        return self.tensor(node.bias.reshape(-1), node.bias_name, "bias")

    def sparse_tensor(self, operator: Sparse, weight_name: str | None) -> str:
        """A constant in sparse form; the pattern is the operator's own, explicit zeros included.

        Not a sparse initializer: the standard's type rules do not let Gemm read one.
        """
        matrix = operator.matrix
        key = (matrix.data.tobytes(), matrix.shape)
        name = self.claim(weight_name, key, "sparse")
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        places = (rows * matrix.shape[1] + matrix.indices).astype(np.int64)
        values = numpy_helper.from_array(matrix.data.astype(self.dtype), name)
        indices = numpy_helper.from_array(places, f"{name}_indices")
        tensor = helper.make_sparse_tensor(values, indices, list(matrix.shape))
        self.nodes.append(helper.make_node("Constant", [], [name], self.fresh("constant"), sparse_value=tensor))
        return name


def _interface(net: Network, dtype: str) -> Interface:
    """That of the ONNX file which the network came from, if it fits still; else one with names of our own."""
    face, out = net.source.interface, net.nodes[-1].shape
    if face is not None and prod(face.shape) == net.in_size and prod(face.out_shape) == net.out_size:
        return face
    return Interface("input", "output", "N", net.input_shape or (1,), out, True, dtype, OPSET, IR_VERSION)


def _pooling_ends(node: MaxPool) -> tuple[tuple[int, ...], bool]:
    """Padding and rounding of a max pooling, so that every runtime counts the same windows.

    The standard rounds sizes up without leaving out a window that would start behind the input, as we and the runtimes
    do. Where the two counts differ, the padding at the ends is written out and nothing is rounded up.
    """
    reach = [d * (k - 1) + 1 for d, k in zip(node.dilation, node.kernel, strict=True)]
    free = [node.in_shape[1 + a] + node.padding[a] + node.padding[a + 2] - reach[a] for a in (0, 1)]
    if not node.ceil or all(-(-free[a] // node.stride[a]) + 1 == node.shape[1 + a] for a in (0, 1)):
        return node.padding, node.ceil
    lengths = [(node.shape[1 + a] - 1) * node.stride[a] + reach[a] for a in (0, 1)]
    ends = [max(node.padding[a + 2], lengths[a] - node.in_shape[1 + a] - node.padding[a]) for a in (0, 1)]
    return (*node.padding[:2], *ends), False
