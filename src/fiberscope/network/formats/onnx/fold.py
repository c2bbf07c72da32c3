"""Nodes of an ONNX graph that have constants only: exporters compute sizes, pads and slices with them.

They are computed by the reference implementation of the ``onnx`` package. The size of a batch is not known: a constant
that was made from it may be a shape, never a number of the function.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from fiberscope.errors import TooLargeError, UnsupportedModelError
from fiberscope.network.formats.onnx.graph import Attributes, Graph
from fiberscope.network.formats.onnx.quantisers import first_code
from fiberscope.network.formats.onnx.stored_constants import FLOATS, Constant, array_of

_LIMIT = 1 << 24
"""Entries of a constant that is made larger than what it is made from."""

_GROWING = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})
_PAIRED = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mod", "Mul", "Or", "Sub", "Where"})
_STORED = frozenset({"DequantizeLinear", "QuantizeLinear"})
_OTHER = frozenset({"Abs", "Cast", "Ceil", "Concat", "Floor", "Gather", "Neg", "Not", "Reshape", "Shape", "Slice"})
_REST = frozenset({"ReduceMax", "ReduceMin", "ReduceProd", "Split", "Sqrt", "Squeeze", "Transpose", "Unsqueeze"})
_FOLDABLE = _GROWING | _PAIRED | _OTHER | _REST | _STORED


def folded(graph: Graph, node: Any) -> list[Constant] | None:
    """The constants that a node gives; None if it has a computed input, or none that is known here."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Shape" and node.input[0] in graph.values:
        return [_shape(graph, node)]
    inputs = [graph.constants.get(name) for name in node.input if name]
    if node.op_type not in _FOLDABLE or not inputs or None in inputs:
        return None
    known = [constant for constant in inputs if constant is not None]
    if any(constant.is_sparse for constant in known) or _keeps_numbers(node, known):
        return None
    arrays = [np.asarray(array_of(constant.proto, graph.folder)) for constant in known]
    _check_growth(node.op_type, arrays)
    names = [name for name in node.input if name]
    try:
        if node.op_type in _STORED:
            results = [_stored(node, arrays)]
        else:
            evaluator = ReferenceEvaluator(node, opsets={"": graph.versions[0]})
            results = evaluator.run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # whatever a damaged file makes it do
        raise UnsupportedModelError(f"its constants cannot be computed ({type(error).__name__}: {error})") from error
    made_from = frozenset(graph.parameters_of(known))
    open_batch = any(constant.open_batch for constant in known)
    return [
        Constant(name, numpy_helper.from_array(np.asarray(result), name), graph.folder, False, made_from, open_batch)
        for name, result in zip(node.output, results, strict=True)
    ]


def _stored(node: Any, arrays: list[Any]) -> Any:
    """Codes of a constant, or the constant of codes, with a scale for all or for every entry of an axis."""
    value, scale = arrays[:2]
    first = first_code(node, scale)
    zero = arrays[2] if len(arrays) > 2 else first
    if np.size(scale) > 1:
        column = [1] * value.ndim
        column[Attributes(node).integer("axis", 1)] = -1
        scale, zero = scale.reshape(column), zero.reshape(column) if zero.size > 1 else zero.reshape(())
    if node.op_type == "DequantizeLinear":
        return (value.astype(np.float64) - zero.astype(np.float64)).astype(scale.dtype) * scale  # codes may be floats
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(value / scale) + zero, limits.min, limits.max).astype(zero.dtype)


def _shape(graph: Graph, node: Any) -> Constant:
    value, attributes = graph.value(node), Attributes(node)
    sizes = np.array(graph.full(value), dtype=np.int64)
    found = attributes.found
    part = slice(found.get("start", 0), found.get("end"))
    first = part.indices(len(sizes))[0] == 0
    proto = numpy_helper.from_array(sizes[part], node.output[0])
    return Constant(node.output[0], proto, graph.folder, False, frozenset(), value.batched and first)


def _keeps_numbers(node: Any, known: list[Constant]) -> bool:
    """Whether a float type is changed to another one, which leaves a parameter what it is."""
    return node.op_type == "Cast" and {known[0].proto.data_type, Attributes(node).integer("to", 0)} <= FLOATS.keys()


def _check_growth(kind: str, arrays: list[Any]) -> None:
    """A few bytes of a file must not ask for all memory."""
    if kind == "ConstantOfShape":
        size = prod(int(n) for n in arrays[0].reshape(-1))
    elif kind in ("Expand", "Tile"):
        size = arrays[0].size * prod(int(n) for n in arrays[1].reshape(-1))
    elif kind == "Range":
        start, stop, step = (float(array.reshape(-1)[0]) for array in arrays)
        size = int(abs(stop - start) / abs(step)) + 1 if step else _LIMIT + 1
    else:
        size = prod(np.broadcast_shapes(*(a.shape for a in arrays))) if kind in _PAIRED else 0
    if size > _LIMIT:
        raise TooLargeError(f"a constant of {size} entries is made from {sum(a.size for a in arrays)}")
