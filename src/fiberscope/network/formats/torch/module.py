"""Torch modules as networks: evaluation mode, traced with ``torch.fx``; the caller's module is left as it was.

Weights keep the names that ``named_parameters`` gives them; a layer used twice and tied weights share their name.
A weight that is computed from parameters (a parametrisation, a mask, a transpose) comes with its present value and
without a name. Batch normalisation comes as two affine maps: the constant standardisation by the stored statistics,
then ``gamma`` and ``beta``. Sizes follow from ``input_shape``, which is inferred where a ``Linear`` layer comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from fiberscope.errors import FiberscopeError, InputError, UnsupportedModelError
from fiberscope.network.formats.build import Builder
from fiberscope.network.formats.graph_values import Value
from fiberscope.network.formats.nonlinear import NotPiecewiseLinearError, refusal
from fiberscope.network.formats.torch.functions import FUNCTIONS, METHODS
from fiberscope.network.formats.torch.layer_kinds import LAYERS, refuse_hooks
from fiberscope.network.formats.torch.trace import Trace, base_class
from fiberscope.network.formats.torch.traced_values import BatchSize, Const, Reader
from fiberscope.network.network import Network
from fiberscope.network.to_torch import Program


def read(module: nn.Module, input_shape: tuple[int, ...] | None, until: str | None = None) -> Network:
    """The network of a torch module; of the part up to the output of ``until``, a submodule or traced node, if given.

    >>> module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(), nn.Linear(3, 1, bias=False))
    >>> net = read(module, None)
    >>> net.widths, list(net.parameters)
    ((2, 3, 1), ['0.weight', '0.bias', '3.weight'])
    """
    if type(module) is Program and until is None:
        return module.current()
    trace = Trace(module)
    nodes = trace.needed(until)
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        names = ", ".join(node.name for node in inputs)
        raise UnsupportedModelError(f"{type(module).__name__}: expected one input, got {len(inputs)} ({names})")
    shape = _first_linear(trace, inputs[0]) if input_shape is None else input_shape
    reader = Reader(trace, Builder(shape))
    for node in nodes:
        where = f"node {node.name!r} ({_kind(trace, node)})"
        try:
            in_place = _in_place(reader, node)
            reader.keep(node, _step(reader, node), in_place)
        except NotPiecewiseLinearError as error:
            raise UnsupportedModelError(f"{where}: {error}{_advice(reader, nodes, node)}") from error
        except FiberscopeError as error:
            raise type(error)(f"{where}: {error}") from error
        except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise UnsupportedModelError(f"{where}: not supported in this form ({reason})") from error
    result = reader.found[nodes[-1]]
    if not isinstance(result, Value):
        raise UnsupportedModelError(f"{type(module).__name__}: expected one tensor as output, got {_describe(result)}")
    if module._forward_hooks or module._forward_pre_hooks:
        raise UnsupportedModelError(f"{type(module).__name__}: it has forward hooks; remove them before loading")
    return reader.builder.finish(result)


def _step(reader: Reader, node: fx.Node) -> Any:
    """What a traced node stands for: a value, a constant, or a plain Python object."""
    args: Any = fx.node.map_arg(node.args, lambda other: reader.found[other])
    kwargs: Any = fx.node.map_arg(node.kwargs, lambda other: reader.found[other])
    target: Any = node.target
    if node.op == "placeholder":
        return reader.builder.input
    if node.op == "get_attr":
        found = reader.trace.attribute(str(target))
        return reader.constant(found) if isinstance(found, torch.Tensor) else found
    if node.op == "output":
        return args[0]
    if node.op == "call_module":
        module = reader.trace.module.get_submodule(str(target))
        layer = LAYERS.get(base_class(module))
        if layer is None:
            raise refusal(base_class(module).__name__)
        refuse_hooks(module)
        return layer(reader, module, *args, **kwargs)
    if not any(isinstance(leaf, Value) for leaf in _leaves((args, kwargs))):
        return _folded(node, args, kwargs)
    if target is getattr and node.op == "call_function":
        return FUNCTIONS[getattr](reader, *args)
    handler = METHODS.get(str(target)) if node.op == "call_method" else FUNCTIONS.get(target)
    if handler is None:
        raise refusal(str(getattr(target, "__name__", target)).rstrip("_"))
    return handler(reader, *args, **kwargs)


def _advice(reader: Reader, nodes: list[fx.Node], node: fx.Node) -> str:
    """How to leave off a head that is not piecewise linear: where all that comes after it has no weights."""
    computed = [other for other in node.all_input_nodes if isinstance(reader.found.get(other), Value)]
    if len(computed) != 1 or computed[0].op == "placeholder":
        return ""
    last, done = computed[0], set(nodes[: nodes.index(node)])
    after = [other for other in nodes if other not in done]
    used = {source for other in after for source in other.all_input_nodes if source in done}
    apart = {source for source in used if isinstance(reader.found[source], Value)} == {last}
    weighs = any(isinstance(found, Const) and found.tensor.ndim > 1 for found in map(reader.found.get, used))
    weighs = weighs or any(_has_parameters(reader.trace, other) for other in after)
    name = str(last.target) if last.op == "call_module" and reader.trace.calls(last) == 1 else last.name
    return "" if weighs or not apart else f"; until={name!r} (--until) leaves it off"


def _has_parameters(trace: Trace, node: fx.Node) -> bool:
    if node.op != "call_module":
        return node.op == "get_attr"
    return next(trace.module.get_submodule(str(node.target)).parameters(), None) is not None


def _in_place(reader: Reader, node: fx.Node) -> bool:
    """Whether a node overwrites a computed value, its first argument; nothing else may be overwritten."""
    if not reader.trace.in_place(node):
        return False
    first = node.args[0] if node.args else node.kwargs.get("input")
    found = reader.found[first] if isinstance(first, fx.Node) else first
    if isinstance(found, int | float | tuple | BatchSize):
        return False  # sizes are numbers, and `n += 1` makes a new one
    if not isinstance(found, Value) or node.kwargs.get("out") is not None:
        raise UnsupportedModelError("it overwrites a tensor that is not a computed value, or by out=: not supported")
    return True


def _folded(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """An operation on constants and sizes alone, done by torch itself."""
    constants = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, Const)]

    def plain(leaf: Any) -> Any:
        if isinstance(leaf, Const):
            return leaf.tensor.detach()
        if isinstance(leaf, tuple | list):
            return type(leaf)(plain(part) for part in leaf)
        return {key: plain(part) for key, part in leaf.items()} if isinstance(leaf, dict) else leaf

    args, kwargs = plain(tuple(args)), plain(dict(kwargs))
    target: Any = node.target
    with torch.no_grad():
        if node.op == "call_method":
            result = getattr(args[0], str(target))(*args[1:], **kwargs)
        else:
            result = target(*args, **kwargs)
    if isinstance(result, torch.Tensor):
        return Const(result, None, frozenset().union(*(c.made_from for c in constants)))
    return result


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, tuple | list):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, dict):
        yield from _leaves(tuple(tree.values()))
    else:
        yield tree


def _first_linear(trace: Trace, source: fx.Node) -> tuple[int, ...]:
    """The input shape of a model whose first layer is dense, whatever keeps a vector a vector before it."""
    vectors = {source}
    for node in trace.needed():
        if not vectors & set(node.all_input_nodes):
            continue
        if node.op == "call_module":
            module = trace.module.get_submodule(str(node.target))
            base = base_class(module)
            if base is nn.Linear:
                return (int(module.in_features),)  # type: ignore[arg-type]
            if base in _VECTOR_LAYERS:
                vectors.add(node)
        elif node.target is F.linear and isinstance(node.args[1], fx.Node) and node.args[1].op == "get_attr":
            return (int(trace.attribute(str(node.args[1].target)).shape[-1]),)
        elif node.target in _VECTOR_FUNCTIONS:
            vectors.add(node)
    raise InputError(
        f"{type(trace.module).__name__}: the input shape cannot be inferred, since no Linear layer comes first; "
        "give input_shape (--input-shape) without the batch axis"
    )


_VECTOR_LAYERS = {nn.Identity, nn.Dropout, nn.AlphaDropout, nn.Flatten, nn.ReLU, nn.LeakyReLU, nn.PReLU}
_VECTOR_FUNCTIONS = {
    torch.flatten,
    "flatten",
    "view",
    "reshape",
    F.relu,
    torch.relu,
    F.dropout,
    *(function for function, handler in FUNCTIONS.items() if handler.__name__ in ("add", "sub", "mul", "div", "neg")),
}


def _kind(trace: Trace, node: fx.Node) -> str:
    if node.op == "call_module":
        base = base_class(trace.module.get_submodule(str(node.target)))
        return f"torch.nn.{base.__name__}" if base.__module__.startswith("torch.nn.") else base.__qualname__
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    name = getattr(node.target, "__name__", str(node.target))
    home = getattr(node.target, "__module__", None) or "torch"
    home = {"_operator": "operator", "torch._C._nn": "torch.nn.functional"}.get(home, home)
    return node.op if isinstance(node.target, str) else f"{home}.{name}"


def _describe(result: Any) -> str:
    return f"a {type(result).__name__}" + (f" of {len(result)}" if isinstance(result, tuple | list | dict) else "")
