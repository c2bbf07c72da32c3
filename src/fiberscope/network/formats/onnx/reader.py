"""Reading ONNX graphs with the ``onnx`` package alone.

One input and one output; the first axis of the input is the batch (of any declared size), unless the input is a single
vector. Constants come from initializers or ``Constant`` nodes, and their names become the names of parameters.
A constant that enters with changed numbers (subtracted, divided by, scaled by ``beta``) comes without a name.
An ``Add`` of a constant right after the linear map it belongs to becomes the bias of that map.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fiberscope.errors import FiberscopeError, InputError, UnsupportedModelError
from fiberscope.network.formats.build import Builder
from fiberscope.network.formats.nonlinear import NotPiecewiseLinearError, refusal
from fiberscope.network.formats.onnx.fold import folded
from fiberscope.network.formats.onnx.graph import Attributes, Graph, MixesBatchError
from fiberscope.network.formats.onnx.operators import ALIASES, HANDLERS
from fiberscope.network.formats.onnx.stored_constants import Constant, data_files
from fiberscope.network.formats.request import Request
from fiberscope.network.network import Network
from fiberscope.network.source import Source


def read(path: Path, request: Request) -> Network:
    """The network in an ``.onnx`` file; ``request.shape`` only where the file leaves it open.

    ``request.until`` names the last node that is kept, or the tensor that it gives.
    """
    request.refuse("an ONNX file, which holds its architecture", "activation", "module", "key")
    return _read_file(path, request)


def read_quantised(path: Path) -> Network:
    """The program in a quantised file, with :class:`Quantiser` nodes where it rounds: not the function of the file.

    Only for who takes those nodes out again and accounts for them: see
    :mod:`fiberscope.network.formats.onnx.quantised`.
    """
    return _read_file(path, Request(), rounding=True)


def _read_file(path: Path, request: Request, rounding: bool = False) -> Network:
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except (DecodeError, ValueError, TypeError) as error:
        raise InputError("expected an ONNX file, got something else or a damaged file") from error
    if not model.graph.node or not model.graph.output or not _is_text(model.graph):
        raise InputError("expected an ONNX file with a graph, got something else or a damaged file")
    net = _read(model, path.parent, request, rounding)
    data = data_files(model.graph, path.parent)
    return net.with_source(replace(net.source, data=data)) if data else net


def _read(model: Any, folder: Path, request: Request, rounding: bool) -> Network:
    graph = Graph(model, folder, request.shape, request.until, Builder)
    graph.rounding = rounding
    try:
        return _network(graph)
    except MixesBatchError as error:
        # A first axis of fixed size may be a batch, or the rows of a column or matrix: what mixes them tells which.
        whole = graph.whole
        if request.shape is not None or whole is None:
            raise UnsupportedModelError(str(error)) from error
        again = Graph(model, folder, whole, request.until, Builder)
        again.rounding = rounding
        return _network(again)


def _is_text(graph: Any) -> bool:
    """Whether all names are text; where bytes are damaged, they may come as bytes."""
    tensors = (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
    names = [value.name for value in (*graph.input, *graph.output, *tensors)]
    names += [name for node in graph.node for name in (node.name, node.op_type, *node.input, *node.output)]
    return all(isinstance(name, str) for name in names)


def _network(graph: Graph) -> Network:
    for node in graph.nodes:
        where = f"node {node.name or node.output[0]!r} ({node.op_type})"
        try:
            _step(graph, node)
        except NotPiecewiseLinearError as error:
            raise UnsupportedModelError(f"{where}: {error}{_advice(graph, node)}") from error
        except FiberscopeError as error:
            raise type(error)(f"{where}: {error}") from error
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{where}: malformed ({type(error).__name__}: {reason})") from error
    if graph.result not in graph.values:
        raise InputError(f"expected an output {graph.result!r} that depends on the input")
    graph.builder.compositions = graph.notes.groups()
    net = graph.builder.finish(graph.values[graph.result])
    precision = net.source.precision if graph.notes.precision is None else graph.notes.precision.precision
    net = net.with_source(Source(precision, interface=graph.interface()))
    shape = graph.notes.input_shape
    return net if shape is None or prod(shape) != net.in_size else Network.from_nodes(net.program, shape, net.source)


def _step(graph: Graph, node: Any) -> None:
    fixed = node.op_type == "Shape" or all(name in graph.constants for name in node.input if name)
    constants = folded(graph, node) if fixed else None
    if constants is not None:
        graph.constants |= {constant.name: constant for constant in constants}
        return
    known = node.domain in ("", "ai.onnx")
    handler = HANDLERS.get(node.op_type) if known else None
    if handler is None:
        if known or node.domain == "com.microsoft":
            raise refusal(node.op_type)
        raise UnsupportedModelError(f"operators of the domain {node.domain} are not supported")
    extra = [name for name in node.output[1:] if name and graph.uses[name]]
    if extra and node.op_type != "Split":
        raise UnsupportedModelError(f"its further output {extra[0]!r} is used, which is not supported")
    if node.op_type in ALIASES and node.input[0] in graph.values:
        graph.aliases[node.output[0]] = node.input[0]
    result = handler(graph, node, Attributes(node))
    if isinstance(result, Constant):
        graph.constants[node.output[0]] = result
    elif isinstance(result, list):
        graph.values |= dict(zip(node.output, result, strict=True))
    else:
        graph.values[node.output[0]] = result
        graph.notes.made[node.name] = result.index


def _advice(graph: Graph, node: Any) -> str:
    """How to leave off a head that is not piecewise linear: where all that comes after it has no weights."""
    done = graph.values.keys() | graph.constants.keys()
    computed = [name for name in node.input if name in graph.values]
    after = [other for other in graph.nodes if other.output[0] not in done and other.op_type != "Constant"]
    used = {name for other in after for name in other.input if name in done}
    weighs = any(name in graph.constants and graph.constants[name].rank > 1 for name in used)
    if len(computed) != 1 or weighs or used & graph.values.keys() != set(computed):
        return ""
    maker = next((other for other in graph.nodes if computed[0] in other.output), None)
    return "" if maker is None else f"; until={maker.name or computed[0]!r} (--until) leaves it off"
