"""Symbolic tracing of torch modules, which leaves the caller's module as it was."""

from __future__ import annotations

import difflib
import inspect
import itertools
import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from fiberscope.errors import InputError, UnsupportedModelError

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
        if _called_otherwise(module):
            raise UnsupportedModelError(
                f"{type(module).__name__}: its forward or call is replaced, which tracing does not see; "
                "write it as the forward of a class"
            )
        self.module = module
        tracer = _Tracer()
        try:
            with _evaluation(module), _unchanged(module), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                leaf = tracer.is_leaf_module(module, "")
                self.graph = _single_layer(module) if leaf else tracer.trace(module, _defaults(module))
        except fx.proxy.TraceError as error:
            raise UnsupportedModelError(
                f"{type(module).__name__}: control flow that depends on the input ({_line(error)}); "
                "load the part without it, or export one branch to ONNX"
            ) from error
        except UnsupportedModelError:
            raise
        except Exception as error:
            # The module's own code failed on symbolic values: any kind of exception.
            raise UnsupportedModelError(
                f"{type(module).__name__}: cannot be traced ({type(error).__name__}: {_line(error)})"
            ) from error
        self.constants: dict[str, torch.Tensor] = tracer.own_constants
        self.results = tracer.results
        # With channels last, a reshape makes a copy where it would otherwise share memory.
        self.strided = any(not is_lazy(p) and not p.is_contiguous() for p in module.parameters() if p.ndim > 2)
        # Tied parameters have one name, the first.
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}

    def needed(self, until: str | None = None) -> list[fx.Node]:
        """Nodes that the output (of ``until``) depends on, in order.

        Whatever writes in place may reach it through shared memory.
        """
        last = self.last(until)
        nodes = list(itertools.takewhile(lambda node: node is not last, self.graph.nodes))
        wanted = {last} | {node for node in nodes if self.in_place(node)}
        for node in (last, *reversed(nodes)):
            if node in wanted:
                wanted |= set(node.all_input_nodes)
        return [node for node in (*nodes, last) if node in wanted]

    def last(self, until: str | None) -> fx.Node:
        """The node whose value is the result: the output, or what a submodule or a node of that name gives."""
        nodes: list[fx.Node] = list(self.graph.nodes)
        if until is None:
            (output,) = (node for node in nodes if node.op == "output")
            return output
        computed = [node for node in nodes if node.op not in ("placeholder", "output", "get_attr")]
        # Of a layer that is used again, the first call has its name, and the others have names with a number. A
        # submodule that was traced into has no node of its own; what it gave was noted.
        found = {node for node in computed if node.name == until}
        if not any(node.target == until for node in found):
            found |= set(self.results.get(until, ()))
        if len(found) > 1:
            names = ", ".join(node.name for node in computed if node in found and node.name != until)
            raise InputError(f"until: {until!r} stands for several nodes, expected one name such as {names}")
        if not found:
            known = [*(node.name for node in computed), *self.results]
            close = difflib.get_close_matches(until, known, n=1, cutoff=0.5)
            hint = f" (closest: {close[0]})" if close else ""
            listed = ", ".join(dict.fromkeys(node.name for node in computed[-8:]))
            raise InputError(f"until: expected a submodule or a traced node such as {listed}, got {until!r}{hint}")
        return found.pop()

    def calls(self, node: fx.Node) -> int:
        """How many nodes run the submodule that this one runs."""
        return sum(other.op == "call_module" and other.target == node.target for other in self.graph.nodes)

    def in_place(self, node: fx.Node) -> bool:
        """Whether a node overwrites one of its arguments."""
        if node.op == "call_module":
            return bool(getattr(self.module.get_submodule(str(node.target)), "inplace", False))
        if node.op not in ("call_method", "call_function"):
            return False
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        name = str(name).split(".")[0]
        if name.endswith("_") and not name.endswith("__"):
            return name not in _HARMLESS
        option = node.op == "call_function" and _option(node)
        return option or node.kwargs.get("out") is not None or name.strip("_") in _WRITERS

    def attribute(self, target: str) -> Any:
        """What a ``get_attr`` node reads."""
        if target in self.constants:
            return self.constants[target]
        value: Any = self.module
        for part in target.split("."):
            value = getattr(value, part)
        return value


_HARMLESS = {"requires_grad_", "detach_", "share_memory_"}
_CHANGES = (
    *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
    *("iand", "ior", "ixor", "ilshift", "irshift"),
)
_WRITERS = {*_CHANGES, "imatmul", "setitem", "delitem"}


def _option(node: fx.Node) -> bool:
    """Whether a function is called with ``inplace=True``, by name or by position."""
    given = node.kwargs.get("inplace", False)
    try:
        signature = inspect.signature(node.target)  # type: ignore[arg-type]
        given = given or signature.bind_partial(*node.args, **node.kwargs).arguments.get("inplace", False)
    except (TypeError, ValueError):  # a function in C has no such option
        pass
    return bool(given)


def base_class(module: nn.Module) -> type[nn.Module]:
    """The class of torch.nn whose forward a module runs, or its own class; parametrisations are looked through."""
    kind: Any = parametrize.type_before_parametrizations(module)
    base = _torch_class(kind)
    return kind if base is None or _differs(kind, base) else base  # type: ignore[no-any-return]


def _torch_class(kind: Any) -> Any:
    classes = (c for c in kind.__mro__ if issubclass(c, nn.Module) and c.__module__.startswith("torch.nn.modules"))
    return next(classes, None)


def _differs(kind: Any, base: Any) -> bool:
    """Whether a class replaces any method of torch's class that forward may call."""
    names = set(dir(base)) - _BESIDE_FORWARD
    return any(
        inspect.getattr_static(kind, name) is not inspect.getattr_static(base, name)
        for name in names
        if callable(getattr(base, name, None)) or isinstance(inspect.getattr_static(base, name), property)
    )


def _patched(module: nn.Module) -> bool:
    """Whether methods were replaced on the instance alone."""
    names = vars(module).keys() - _BESIDE_FORWARD
    return any(callable(getattr(type(module), name, None)) for name in names)


_BESIDE_FORWARD = {
    *("__init__", "__new__", "__init_subclass__", "__subclasshook__", "__class__", "__class_getitem__", "__del__"),
    *("__repr__", "__str__", "__format__", "__dir__", "__eq__", "__ne__", "__hash__", "__sizeof__"),
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__copy__"),
    *("to", "_apply", "cpu", "cuda", "type", "float", "double", "half", "bfloat16", "zero_grad"),
    *("extra_repr", "_get_name", "reset_parameters", "reset_running_stats", "train", "eval"),
    *("state_dict", "load_state_dict", "_save_to_state_dict", "_load_from_state_dict"),
}


class _Proxy(fx.Proxy):
    """A symbolic value that records ``x += y`` as what it is; torch's own takes it for ``x = x + y``."""

    def _changed(self, function: Any, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("data", "real", "imag"):
            raise TypeError(f"assignment to {name!r} of a tensor")
        super().__setattr__(name, value)


def _recorded(name: str) -> Any:
    return lambda self, other: self._changed(getattr(operator, name), other)


for _name in _CHANGES:
    setattr(_Proxy, f"__{_name}__", _recorded(_name))


class _Tracer(fx.Tracer):
    """Stops at the layers of torch.nn, and keeps tensors made in forward to itself instead of in the module."""

    def __init__(self) -> None:
        super().__init__()
        self.own_constants: dict[str, torch.Tensor] = {}
        self.results: dict[str, list[fx.Node]] = {}

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_module(m, forward, args, kwargs)
        if isinstance(result, fx.Proxy):
            self.results.setdefault(self.path_of_module(m), []).append(result.node)
        return result

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        base = base_class(m)
        return not _patched(m) and base.__module__.startswith("torch.nn.modules") and not issubclass(base, CONTAINERS)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter):
            known = any(a is buffer for buffer in self.root.buffers())
            if not known:
                # A copy: the code may overwrite its tensor later on.
                name = f"_constant_{len(self.own_constants)}"
                self.own_constants[name] = a.detach().clone()
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


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Code that writes to parameters or buffers does so while it is traced: undo that, and refuse."""
    before: list[tuple[nn.Module, Any, str, torch.Tensor, torch.Tensor]] = [
        (part, store, key, tensor, tensor.detach().clone())
        for part in module.modules()
        for store in (part._parameters, part._buffers, vars(part))
        for key, tensor in store.items()
        if isinstance(tensor, torch.Tensor) and not is_lazy(tensor) and not tensor.is_meta
    ]
    written: list[str] = []
    try:
        yield
    finally:
        for part, store, key, tensor, copy in before:
            changed, now = not _same_bits(tensor, copy), store.get(key)
            if changed:
                tensor.data.copy_(copy)
            if store is not vars(part):
                changed = changed or not isinstance(now, torch.Tensor) or not _same_bits(now, copy)
                store[key] = tensor
            if changed:
                written.append(f"{type(part).__name__}.{key}")
    if written:
        raise UnsupportedModelError(f"{type(module).__name__}: its forward overwrites {written[0]}; not a function")


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    first, second = (t.detach().reshape(-1).contiguous().view(torch.uint8) for t in (a, b))
    return torch.equal(first, second)


def _called_otherwise(module: nn.Module) -> bool:
    """Whether a call runs something else than the forward of the class, which is what tracing starts from."""
    names = ("__call__", "_call_impl", "_wrapped_call_impl")
    own = any(getattr(type(module), name) is not getattr(nn.Module, name) for name in names)
    return "forward" in vars(module) or (own and not isinstance(module, fx.GraphModule))


def _defaults(module: nn.Module) -> dict[str, Any]:
    """Arguments of forward after the first keep their default values."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # pragma: no cover - forward in C
        return {}
    return {p.name: p.default for p in parameters[1:] if p.default is not inspect.Parameter.empty}


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
