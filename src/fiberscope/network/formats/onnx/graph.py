"""An ONNX graph while it is read: its constants, its values so far, and the notes that our own files carry."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.graph_values import Named, Value
from fiberscope.network.formats.onnx.stored_constants import FLOATS, Constant, kind_name
from fiberscope.network.source import Interface, Source
from fiberscope.numerics.arrays import real_array

if TYPE_CHECKING:
    from fiberscope.network.formats.build import Builder

METADATA = "fiberscope"
"""Key of our notes: names of constants, shapes of operators. They never change the function."""


class Graph:
    """The nodes that the output needs, in the file's order, and what is known of their inputs."""

    def __init__(
        self,
        model: Any,
        folder: Path,
        input_shape: tuple[int, ...] | None,
        until: str | None,
        build: Callable[[tuple[int, ...], bool], Builder],
    ) -> None:
        graph = model.graph
        self.notes = Notes(model)
        self.constants: dict[str, Constant] = {}
        for tensor in graph.initializer:
            self.constants[tensor.name] = Constant(tensor.name, tensor, folder, True)
        for tensor in graph.sparse_initializer:
            self.constants[tensor.values.name] = Constant(tensor.values.name, tensor, folder, True)
        self.folder = folder
        inputs = [value for value in graph.input if value.name not in self.constants]
        for kind, values in (("input", inputs), ("output", graph.output)):
            if len(values) != 1 and (kind == "input" or until is None):
                names = ", ".join(value.name for value in values)
                raise UnsupportedModelError(f"expected a graph with one {kind}, got {len(values)} ({names})")
        self.result = graph.output[0].name if until is None else _result(graph, until)
        self.nodes = _needed(graph, self.result)
        uses = Counter(name for node in self.nodes for name in node.input)
        self.uses = uses + Counter([self.result])
        self.aliases: dict[str, str] = {}
        shape, batched, self.batch = _input_shape(inputs[0], input_shape, self.notes.unbatched)
        self.builder = build(shape, batched)
        self.input, self.versions = inputs[0], (_opset(model), int(model.ir_version))
        self.values: dict[str, Value] = {inputs[0].name: self.builder.input}
        self.rounding = False
        """Whether quantisers are read as roundings; otherwise they are refused."""

    def interface(self) -> Interface:
        """How the file shows the model to a runtime; once the result is there."""
        tensor, result, start = self.input.type.tensor_type, self.values[self.result], self.builder.input
        batch: int | str | None = "N" if start.batched else None
        if start.batched and tensor.shape.dim:
            axis = tensor.shape.dim[0]
            named = axis.dim_param if isinstance(axis.dim_param, str) else ""
            batch = int(axis.dim_value) if axis.dim_value > 0 else named or "N"
        dtype = np.dtype(FLOATS[tensor.elem_type]).name
        return Interface(
            self.input.name, self.result, batch, start.shape, result.shape, result.batched, dtype, *self.versions
        )

    @property
    def whole(self) -> tuple[int, ...] | None:
        """The shape of the input with its first axis, where that is a batch of several points by its size."""
        return (self.batch, *self.builder.input.shape) if self.batch > 1 else None

    # -- access to inputs --------------------------------------------------------------------------------------

    def value(self, node: Any, index: int = 0) -> Value:
        """A computed input."""
        name = node.input[index]
        if name in self.values:
            return self.values[name]
        if name in self.constants:
            raise UnsupportedModelError(f"input {name!r} is a constant; expected a computed value")
        raise InputError(f"input {name!r} is not defined before its use")

    def constant(self, node: Any, index: int) -> Constant | None:
        """A constant input, or None where it is absent or computed."""
        name = node.input[index] if index < len(node.input) else ""
        return self.constants.get(name)

    def named(self, constant: Constant) -> Named:
        array = constant.floats()
        self.builder.precisions.add(constant.precision)
        if constant.made_from is None:
            return Named(array, self.notes.parameter(constant))
        self.builder.drop_names(constant.made_from)
        return Named(array)

    def parameters_of(self, constants: Iterable[Constant]) -> Iterator[str]:
        """Names of the parameters that constants are, or were computed from."""
        for constant in constants:
            if constant.made_from is not None:
                yield from constant.made_from
            elif (name := self.notes.parameter(constant)) is not None:
                yield name

    def integers(self, node: Any, index: int, what: str) -> tuple[int, ...] | None:
        """A constant input of integers, or None where it is absent."""
        if index >= len(node.input) or not node.input[index]:
            return None
        found = self.constant(node, index)
        if found is None:
            raise UnsupportedModelError(f"its {what} is not a constant")
        return found.integers()

    def axis(self, value: Value, axis: int, what: str = "an operation") -> int:
        """An axis counted without the batch axis, from one that is counted with it and perhaps from the end."""
        rank = len(value.shape) + value.batched
        if not -rank <= axis < rank:
            raise InputError(f"axis: expected one below {rank}, got {axis}")
        axis = axis % rank - value.batched
        if axis < 0:
            raise MixesBatchError(f"{what} along the batch axis mixes the points")
        return axis

    def required(self, node: Any, index: int, what: str) -> Named:
        found = self.constant(node, index)
        if found is None:
            raise UnsupportedModelError(f"its {what} is not a constant; a product of computed values is not linear")
        return self.named(found)

    def optional(self, node: Any, index: int, what: str) -> Named | None:
        given = index < len(node.input) and node.input[index]
        return self.required(node, index, what) if given else None

    def private(self, name: str) -> bool:
        """Whether nobody else reads this value, also not under the name it had before a reshape."""
        while self.uses[name] == 1 and name in self.aliases:
            name = self.aliases[name]
        return self.uses[name] == 1

    def aligned(self, named: Named, value: Value) -> Named:
        """A constant without the batch axis, so that it broadcasts against the value's shape."""
        array = named.array
        rank = len(value.shape) + value.batched
        if value.batched and array.ndim >= rank:
            if array.ndim > rank or array.shape[0] != 1:
                raise UnsupportedModelError(f"a constant of shape {array.shape} changes the batch of {value.shape}")
            array = array.reshape(array.shape[1:])
        return Named(array, named.name)

    def reshaped(self, value: Value, dims: list[int]) -> Value:
        """The value in a new full shape, whose first axis is the batch where it can be."""
        if dims and dims[0] in (1, self.batch) and prod(dims[1:]) == value.size:
            return value.reshaped(dims[1:])
        if prod(dims) != value.size or (value.batched and self.batch > 1):
            raise InputError(f"cannot reshape {value.shape} to {tuple(dims)}")
        return value.reshaped(dims, batched=False)

    def alike(self, values: list[Value]) -> list[Value]:
        """Values of a graph for one point may have lost their batch axis; give it back where others have it."""
        if self.batch == 1 and len({value.batched for value in values}) > 1:
            return [value.reshaped(value.shape) for value in values]
        return values

    def full(self, value: Value) -> list[int]:
        return [*([self.batch] if value.batched else []), *value.shape]


class MixesBatchError(UnsupportedModelError):
    """The graph works along the axis that was taken for the batch."""


class Attributes:
    """Attributes of a node, by name with defaults."""

    def __init__(self, node: Any) -> None:
        self.found = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}

    def number(self, name: str, default: float) -> float:
        return float(real_array(float(self.found.get(name, default)), name))

    def integer(self, name: str, default: int) -> int:
        return int(self.found.get(name, default))

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        values = tuple(int(n) for n in self.found.get(name, default))
        if default and len(values) != len(default):
            raise InputError(f"{name}: expected {len(default)} integers, got {values}")
        return values

    def text(self, name: str, default: str) -> str:
        value = self.found.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


class Notes:
    """What our own writer noted beside the graph, all of it checked before use."""

    def __init__(self, model: Any) -> None:
        text = next((entry.value for entry in model.metadata_props if entry.key == METADATA), "{}")
        try:
            content = json.loads(text)
            self.constants = {str(name) for name in content.get("constants", ())}
            self.names = {str(k): str(v) for k, v in content.get("names", {}).items()}
            self.shapes = {
                str(k): (tuple(map(int, a)), tuple(map(int, b))) for k, (a, b) in content.get("shapes", {}).items()
            }
            self.own = bool(content)
            self.windows = {
                str(k): (tuple(map(int, shape)), tuple(map(int, absent)))
                for k, (shape, absent) in content.get("windows", {}).items()
            }
            self.joined = {str(name) for name in content.get("joined", ())}  # one node with the one before
            self.compositions = [(list(map(str, names)), name) for names, name in content.get("compositions", ())]
            given = content.get("input_shape")
            self.input_shape = None if given is None else tuple(map(int, given))
            self.unbatched = content.get("unbatched") is True
            self.precision = None if content.get("precision") is None else Source(content["precision"])
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError("the notes under 'fiberscope' in the file's metadata are malformed") from error
        self.made: dict[str, int] = {}

    def parameter(self, constant: Constant) -> str | None:
        if constant.name in self.constants:
            return None
        return self.names.get(constant.name, constant.name)

    def groups(self) -> list[tuple[list[int], str | None]]:
        found = []
        for names, weight_name in self.compositions:
            if not all(name in self.made for name in names):
                continue  # the graph was cut by someone else; its parts stay apart
            found.append(([self.made[name] for name in names], None if weight_name is None else str(weight_name)))
        return found


def _result(graph: Any, until: str) -> str:
    """The tensor that a node of that name gives, or the computed tensor of that name."""
    found = {node.output[0] for node in graph.node if node.output and until in (node.name, *node.output[:1])}
    if len(found) > 1:
        raise InputError(f"until: {until!r} stands for several nodes, which give {', '.join(sorted(found))}")
    if not found:
        nodes = [node for node in graph.node if node.output and node.op_type != "Constant"]
        names = [name for node in nodes for name in (node.name, node.output[0]) if name]
        close = difflib.get_close_matches(until, names, n=1, cutoff=0.5)
        hint = f" (closest: {close[0]})" if close else ""
        listed = ", ".join(node.name or node.output[0] for node in nodes[-8:])
        raise InputError(f"until: expected a node such as {listed}, got {until!r}{hint}")
    return str(found.pop())


def _needed(graph: Any, result: str) -> list[Any]:
    """Nodes that the output depends on, in the file's order."""
    wanted, kept = {result}, []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]


def _opset(model: Any) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def _input_shape(
    value: Any, given: tuple[int, ...] | None, unbatched: bool = False
) -> tuple[tuple[int, ...], bool, int]:
    """Shape without the batch axis, whether there is a batch axis, and the batch size (1 where it is open)."""
    tensor = value.type.tensor_type
    if tensor.elem_type not in FLOATS:
        kind = kind_name(tensor.elem_type)
        raise UnsupportedModelError(f"input {value.name!r} has type {kind}; expected FLOAT16, FLOAT or DOUBLE")
    known = tensor.HasField("shape")
    dims = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim]
    if unbatched and None not in dims:
        return tuple(n for n in dims if n is not None), False, 1
    if given is not None:
        if not known or _fits(given, dims[1:]):
            return given, True, (dims[0] if known and dims and dims[0] else 1)
        if _fits(given, dims):
            return given, False, 1
        static = [n for n in dims[1:] if n is not None]
        if len(static) == len(dims) - 1 and prod(static) == prod(given):
            return tuple(static), True, dims[0] or 1
        raise InputError(f"input_shape: expected {_text(dims[1:])} (without the batch axis), got {given}")
    if known and len(dims) == 1 and dims[0]:
        return (dims[0],), False, 1
    inner = [n for n in dims[1:] if n is not None]
    if not known or len(dims) < 2 or len(inner) < len(dims) - 1:
        shape = _text(dims) if known else "unknown"
        raise InputError(
            f"input {value.name!r} has the open shape {shape}; give input_shape (--input-shape) without the batch axis"
        )
    return tuple(inner), True, dims[0] or 1


def _fits(shape: tuple[int, ...], dims: list[int | None]) -> bool:
    return len(shape) == len(dims) and all(d is None or n == d for n, d in zip(shape, dims, strict=True))


def _text(dims: list[int | None]) -> str:
    return "(" + ", ".join("?" if n is None else str(n) for n in dims) + ")"
