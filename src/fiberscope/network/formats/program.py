"""A program as plain data: a JSON description of the nodes, and the arrays it refers to by key.

The three array formats (``.npz``, ``.safetensors``, ``.pt``) share it. Parameters stand under their own names, so that
the arrays look like the model's state dict; constants of the model stand under names that no parameter has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.files import unpack_limit
from fiberscope.network.convolutions import Convolution, Convolving, TransposedConvolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import COMPOSITES, Add, Affine, Composite, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense, Gather, Operator, Scale, Sparse, checked_csr
from fiberscope.network.source import Source, precision_of

KEY = "fiberscope"
"""Where the description stands in a file."""

VERSION = 1
_RESERVED = (KEY, "__metadata__", "")


@dataclass(slots=True)
class Described:
    """The description as JSON text, the parameters by name, and the other arrays by key."""

    text: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)


def describe(net: Network, dtype: str) -> Described:
    """Description and arrays of a network; numbers come in ``dtype``, which must hold them exactly.

    >>> made = describe(Network([[[1.0]]], [[0.5]]), "float32")
    >>> sorted(made.parameters), made.constants
    (['0.bias', '0.weight'], {})
    >>> restore(made.text, made.parameters)
    Network(1-1; 2 parameters, 0 hidden neurons)
    """
    made = Described()
    names = set(net.parameters)

    def put(array: Any, name: str | None) -> str:
        array = np.asarray(array)
        stored = array.astype(dtype) if array.dtype.kind == "f" else array
        own = name is not None and name not in _RESERVED
        # Zeros of different sign count as one parameter; the second is stored on its own.
        if name is not None and own and made.parameters.setdefault(name, stored).tobytes() == stored.tobytes():
            return name
        key = next(k for k in _keys() if k not in made.constants and k not in names)
        made.constants[key] = stored
        return key

    nodes = [_describe_node(node, put) for node in net.program]
    content = {
        "format": KEY,
        "version": VERSION,
        "input_shape": list(net.input_shape),
        "precision": net.source.precision,  # the file may hold the numbers in a finer or a coarser one that fits
        "nodes": nodes,
    }
    made.text = json.dumps(content, separators=(",", ":"))
    return made


def _keys() -> Iterator[str]:
    return (f"constant.{index}" for index in range(1 << 62))


def _describe_node(node: Given, put: Any) -> dict[str, Any]:
    match node:
        case Affine():
            names = {"weight_name": node.weight_name, "bias_name": node.bias_name}
            bias = None if node.bias is None else put(node.bias, node.bias_name)
            operator = _describe_operator(node.operator, node.weight_name, put)
            return {"kind": "affine", "source": node.source, "operator": operator, "bias": bias, **names}
        case PiecewiseLinear():
            slopes: Any = float(node.slopes[0]) if node.slopes.size else 0.0
            if np.full_like(node.slopes, slopes).tobytes() != node.slopes.tobytes():
                slopes = put(node.slopes, None)
            made = {"kind": "piecewise", "source": node.source, "slopes": slopes, "shape": list(node.shape)}
            if node.slope_name is not None and node.slope_shape is not None:
                made |= {"slope_name": node.slope_name, "slope_shape": list(node.slope_shape)}
            return made
        case Add():
            return {"kind": "add", "sources": list(node.sources), "shape": list(node.shape)}
        case Concat():
            shapes = [list(shape) for shape in node.shapes]
            return {"kind": "concat", "sources": list(node.sources), "shapes": shapes, "axis": node.axis}
        case MaxPool() if node.table is not None:
            table = put(node.table, None)
            return {"kind": "maximum", "source": node.source, "in_shape": list(node.in_shape), "table": table}
        case MaxPool():
            return {
                "kind": "max_pool",
                "source": node.source,
                "in_shape": list(node.in_shape),
                "kernel": list(node.kernel),
                "stride": list(node.stride),
                "padding": list(node.padding),
                "dilation": list(node.dilation),
                "ceil": node.ceil,
            }
        case Composite():
            kind = next(name for name, known in COMPOSITES.items() if known is type(node))
            arrays = {name: put(array, None) for name, array in node.arrays().items()}
            return {"kind": kind, "source": node.source, "arrays": arrays, "shape": list(node.shape)}


def _describe_operator(operator: Operator, name: str | None, put: Any) -> dict[str, Any]:
    if isinstance(operator, Composition):
        # The name stands for the numbers of all parts together, so each part is stored as a constant.
        return {"kind": "composition", "parts": [_describe_operator(o, None, put) for o in operator.operators]}
    made: dict[str, Any] = {
        "kind": type(operator).__name__.lower(),
        "in_shape": list(operator.in_shape),
        "out_shape": list(operator.out_shape),
    }
    if isinstance(operator, Gather):
        return {**made, "index": put(operator.index, None)}
    made["array"] = put(operator.coefficients, name)
    if isinstance(operator, Sparse):
        made["indices"] = put(operator.matrix.indices.astype(np.int64), None)
        made["indptr"] = put(operator.matrix.indptr.astype(np.int64), None)
    elif isinstance(operator, Convolving):
        made["stride"], made["padding"] = list(operator.stride), list(operator.padding)
        made["dilation"], made["groups"] = list(operator.dilation), operator.groups
    return made


def restore(text: str, arrays: Mapping[str, Any], stored: str | None = None) -> Network:
    """The network from its description and arrays; raises :class:`InputError` where they do not fit together.

    ``stored`` is the precision of the arrays in the file, where the arrays themselves do not tell it any more.
    """
    try:
        content = json.loads(text)
        if content["format"] != KEY or content["version"] != VERSION:
            raise InputError(f"description: expected version {VERSION}, got {content['version']!r}")
        # an activation with one slope for all is as large as its shape says, and the file holds nothing of that size
        shapes = [_integers(entry["shape"]) for entry in content["nodes"] if entry["kind"] == "piecewise"]
        neurons, held = sum(map(prod, shapes)), sum(np.asarray(a).nbytes for a in arrays.values())
        if not 8 * neurons <= unpack_limit(held):
            raise TooLargeError(
                f"description: a network of {neurons:.3g} activations beside {held} bytes of numbers does not fit "
                "into memory, or its sizes are damaged"
            )
        nodes = [_restore_node(entry, arrays) for entry in content["nodes"]]
        precision = content.get("precision", stored or precision_of(*arrays.values()))
        return Network.from_nodes(nodes, _integers(content["input_shape"]), Source(precision))
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"description: malformed ({type(error).__name__}: {_line(error)})") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _integers(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int for value in values):
        raise InputError(f"description: expected integers, got {values}")
    return tuple(values)


def _name(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError(f"description: expected a name, got {value!r}")
    return value


def _restore_node(entry: Any, arrays: Mapping[str, Any]) -> Given:
    if entry["kind"] in COMPOSITES:
        made: Any = COMPOSITES[entry["kind"]]
        numbers = {name: np.asarray(arrays[key]) for name, key in entry["arrays"].items()}
        composite: Composite = made(source=int(entry["source"]), shape=_integers(entry["shape"]), **numbers)
        return composite
    match entry["kind"]:
        case "affine":
            bias = None if entry["bias"] is None else arrays[entry["bias"]]
            names = _name(entry["weight_name"]), _name(entry["bias_name"])
            return Affine(int(entry["source"]), _restore_operator(entry["operator"], arrays), bias, *names)
        case "piecewise":
            shape, slopes = _integers(entry["shape"]), entry["slopes"]
            if isinstance(slopes, str):
                slopes = np.asarray(arrays[slopes]).reshape(shape)
            slopes = np.asarray(slopes, dtype=np.float64)
            own = None if entry.get("slope_shape") is None else _integers(entry["slope_shape"])
            return PiecewiseLinear(int(entry["source"]), slopes, shape, _name(entry.get("slope_name")), own)
        case "add":
            return Add(_integers(entry["sources"]), _integers(entry["shape"]))
        case "concat":
            shapes = tuple(_integers(shape) for shape in entry["shapes"])
            return Concat(_integers(entry["sources"]), shapes, *_integers([entry["axis"]]))
        case "maximum":
            return MaxPool.over(int(entry["source"]), _integers(entry["in_shape"]), arrays[entry["table"]])
        case "max_pool":
            (a, b), (s, t), (d, e) = (_integers(entry[key]) for key in ("kernel", "stride", "dilation"))
            p, q, r, u = _integers(entry["padding"])
            return MaxPool(
                int(entry["source"]),
                _integers(entry["in_shape"]),
                (a, b),
                (s, t),
                (p, q, r, u),
                (d, e),
                bool(entry["ceil"]),
            )
        case kind:
            raise InputError(f"description: unknown kind of node {kind!r}")


def _restore_operator(entry: Any, arrays: Mapping[str, Any]) -> Operator:
    if entry["kind"] == "composition":
        return Composition([_restore_operator(part, arrays) for part in entry["parts"]])
    in_shape, out_shape = _integers(entry["in_shape"]), _integers(entry["out_shape"])
    if entry["kind"] == "gather":
        return Gather(arrays[entry["index"]], in_shape, out_shape)
    array = arrays[entry["array"]]
    match entry["kind"]:
        case "dense":
            return Dense(array, in_shape)
        case "scale":
            return Scale(array, in_shape)
        case "sparse":
            structure = (np.asarray(array), np.asarray(arrays[entry["indices"]]), np.asarray(arrays[entry["indptr"]]))
            return Sparse(checked_csr(structure, in_shape, out_shape), in_shape, out_shape)
        case "convolution" | "transposedconvolution":
            (s, t), (d, e) = _integers(entry["stride"]), _integers(entry["dilation"])
            p, q, r, u = _integers(entry["padding"])
            (groups,) = _integers([entry["groups"]])
            kind = Convolution if entry["kind"] == "convolution" else TransposedConvolution
            return kind(array, in_shape, (s, t), (p, q, r, u), (d, e), groups)
        case other:
            raise InputError(f"description: unknown operator {other!r}")
