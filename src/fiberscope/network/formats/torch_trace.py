"""Symbolic tracing of torch modules, which leaves the caller's module as it was."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from fiberscope.errors import UnsupportedModelError

CONTAINERS = (nn.Sequential,)


class Trace:
    """The graph of a module in evaluation mode, with the constants that its code made on the way."""

    def __init__(self, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedModelError(
                f"{type(module).__name__}: scripted modules cannot be traced; load the original one"
            )
        if not isinstance(module, nn.Module):
            raise UnsupportedModelError(f"{type(module).__name__}: expected a torch.nn.Module")
        self.module = module
        tracer = _Tracer()
        try:
            with _evaluation(module), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                leaf = tracer.is_leaf_module(module, "")
                self.graph = _single_layer(module) if leaf else tracer.trace(module, _defaults(module))
        except fx.proxy.TraceError as error:
            raise UnsupportedModelError(
                f"{type(module).__name__}: control flow that depends on the input ({_line(error)}); "
                "load the part without it, or export one branch to ONNX"
            ) from error
        except Exception as error:
            # The module's own code failed on symbolic values: any kind of exception.
            raise UnsupportedModelError(
                f"{type(module).__name__}: cannot be traced ({type(error).__name__}: {_line(error)})"
            ) from error
        self.constants: dict[str, torch.Tensor] = tracer.own_constants
        # Tied parameters have one name, the first.
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}

    def needed(self) -> list[fx.Node]:
        """Nodes that the output depends on, in order."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        wanted = {output}
        for node in reversed(self.graph.nodes):
            if node in wanted:
                wanted |= set(node.all_input_nodes)
        return [node for node in self.graph.nodes if node in wanted]

    def attribute(self, target: str) -> Any:
        """What a ``get_attr`` node reads."""
        if target in self.constants:
            return self.constants[target]
        value: Any = self.module
        for part in target.split("."):
            value = getattr(value, part)
        return value


def base_class(module: nn.Module) -> type[nn.Module]:
    """The class of torch.nn whose forward a module runs, or its own class; parametrisations are looked through."""
    kind: Any = parametrize.type_before_parametrizations(module)
    for base in kind.__mro__:
        if issubclass(base, nn.Module) and base.__module__.startswith("torch.nn.modules"):
            return base if kind.forward is base.forward else kind  # type: ignore[no-any-return]
    return kind  # type: ignore[no-any-return]


class _Proxy(fx.Proxy):
    """A symbolic value that records ``x += y`` as what it is; torch's own takes it for ``x = x + y``."""

    def _changed(self, function: Any, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.iadd, other)

    def __isub__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.isub, other)

    def __imul__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.imul, other)

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.itruediv, other)


class _Tracer(fx.Tracer):
    """Stops at the layers of torch.nn, and keeps tensors made in forward to itself instead of in the module."""

    def __init__(self) -> None:
        super().__init__()
        self.own_constants: dict[str, torch.Tensor] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        base = base_class(m)
        return base.__module__.startswith("torch.nn.modules") and not issubclass(base, CONTAINERS)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter):
            known = any(a is buffer for buffer in self.root.buffers())
            if not known:
                name = next(
                    (n for n, t in self.own_constants.items() if t is a), f"_constant_{len(self.own_constants)}"
                )
                self.own_constants[name] = a
                return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)


def _single_layer(module: nn.Module) -> fx.Graph:
    """The graph of a module that is one layer of torch.nn itself; tracing would go inside."""
    graph = fx.Graph()
    layer = graph.create_node("call_module", "", (graph.placeholder("input"),), name=type(module).__name__.lower())
    graph.output(layer)
    return graph


@contextmanager
def _evaluation(module: nn.Module) -> Iterator[None]:
    """Evaluation mode while tracing; the flags are set and put back one by one, past any overridden ``train``."""
    flags = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in flags:
            part.training = False
        yield
    finally:
        for part, training in flags:
            part.training = training


def _defaults(module: nn.Module) -> dict[str, Any]:
    """Arguments of forward after the first keep their default values."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # pragma: no cover - forward in C
        return {}
    return {p.name: p.default for p in parameters[1:] if p.default is not inspect.Parameter.empty}


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
