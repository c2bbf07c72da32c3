"""What a traced torch graph computes with: values of the program, constant tensors, and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import fx
from torch.nn.parameter import is_lazy

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.graph_values import Named, Value
from fiberscope.network.formats.nonlinear import NotPiecewiseLinearError, plain_name
from fiberscope.network.formats.torch.trace import Trace
from fiberscope.network.source import precision_of
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray

if TYPE_CHECKING:
    from fiberscope.network.formats.build import Builder


class BatchSize:
    """The number of points in a batch, which is not known: no arithmetic, only passed on to a reshape."""

    def __repr__(self) -> str:
        return "batch"


BATCH: Final = BatchSize()


@dataclass(frozen=True, slots=True)
class Const:
    """A constant tensor: its name where it is a parameter, else the parameters that it was computed from."""

    tensor: torch.Tensor
    name: str | None = None
    made_from: frozenset[str] = frozenset()


_COPIES = {"pad", "flip", "roll", "repeat", "indexselect", "stack", "interpolate", "upsample"}
_COPIES |= {"pixelshuffle", "pixelunshuffle", "channelshuffle"}
"""Functions that give new memory, by their plain names."""


def _copies(node: fx.Node) -> bool:
    """Whether a node that rearranges entries writes them to new memory; all layers do."""
    name = node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))
    return node.op == "call_module" or plain_name(name) in _COPIES


def _holds_values(result: Any) -> bool:
    return isinstance(result, Value) or (isinstance(result, tuple) and any(isinstance(v, Value) for v in result))


class Reader:
    """The program so far, and the object that each traced node stands for."""

    def __init__(self, trace: Trace, builder: Builder) -> None:
        self.trace, self.builder = trace, builder
        self.found: dict[fx.Node, Any] = {}
        self._storage: dict[fx.Node, fx.Node] = {}
        self._rearranged: set[fx.Node] = set()
        self._moves = False

    def moved(self, value: Value, index: IntArray, bias: FloatArray | None = None) -> Value:
        """Entries of a value by their places, -1 for zero; in torch often a view of the same memory."""
        self._moves = True
        return self.builder.gather(value, index, bias)

    def keep(self, node: fx.Node, result: Any, in_place: bool) -> None:
        """Remember what a node stands for.

        Nodes that share their memory (views, identities) go together: an operation in place changes them all. Where
        some of them are rearranged (transposed, sliced) it is not known how, so none of the others may be read then.
        """
        self.found[node] = result
        moves, self._moves = self._moves, False
        if not _holds_values(result):
            return
        sources = [other for other in node.all_input_nodes if other in self._storage]
        root = self._storage[sources[0]] if sources else node
        before = self.found[sources[0]] if sources else None
        same = isinstance(before, Value) and isinstance(result, Value) and before.index == result.index
        same = same and node.target != "clone"
        parts = isinstance(before, tuple) or isinstance(result, tuple)
        shared = same or in_place or parts or (moves and not _copies(node))
        self._storage[node] = root if shared else node
        if shared and (moves or parts):
            self._rearranged.add(root)
        if in_place and not same and isinstance(result, Value):
            if root in self._rearranged:
                self._check_unread(node, root)
                self.found[sources[0]] = result
                return
            together = [other for other, storage in self._storage.items() if storage is self._storage[node]]
            shapes = {self.found[other].shape for other in together}
            if self.trace.strided and (len(shapes) > 1 or any(other.target == "contiguous" for other in together)):
                raise UnsupportedModelError(
                    "it overwrites a value that was reshaped, with parameters in channels-last order"
                )
            for other in together:
                self.found[other] = result.reshaped(self.found[other].shape)

    def _check_unread(self, node: fx.Node, root: fx.Node) -> None:
        """Refuse if a value in the same memory is read after this node; the one that it overwrites has its result."""
        order = {other: place for place, other in enumerate(self.trace.graph.nodes)}
        written = node.all_input_nodes[0]
        for other, storage in self._storage.items():
            read = any(order[user] > order[node] for user in other.users)
            if storage is root and other not in (node, written) and read:
                raise UnsupportedModelError("it overwrites a value of which a part or a transpose is used later")

    def constant(self, tensor: torch.Tensor) -> Const:
        """A tensor of the module."""
        name = self.trace.names.get(id(tensor))
        return Const(tensor, name, frozenset() if name is None else frozenset({name}))

    def named(self, constant: Any, what: str) -> Named:
        """A constant in float64, exactly; numbers and tensors both."""
        if isinstance(constant, torch.Tensor):
            constant = self.constant(constant)
        if isinstance(constant, Const):
            if constant.name is None:
                self.builder.drop_names(constant.made_from)
            if constant.tensor.is_meta or is_lazy(constant.tensor):
                raise InputError(f"{constant.name or what}: expected a tensor with values, got one without")
            self.builder.precisions.add(precision_of(constant.tensor))
            return Named(real_array(constant.tensor, constant.name or what), constant.name)
        if isinstance(constant, int | float) and not isinstance(constant, bool):
            return Named(real_array(float(constant), what))
        if isinstance(constant, Value):
            raise NotPiecewiseLinearError(
                f"its {what} is computed from the input; a product of computed values is not piecewise linear"
            )
        raise UnsupportedModelError(f"its {what} is a {type(constant).__name__}; only constants are supported")

    def optional(self, constant: Any, what: str) -> Named | None:
        return None if constant is None else self.named(constant, what)

    def aligned(self, constant: Any, value: Value, what: str) -> Named:
        """A constant without the batch axis, so that it broadcasts against the value's shape."""
        named = self.named(constant, what)
        array = named.array
        if array.ndim > len(value.shape):
            if array.ndim > len(value.shape) + 1 or array.shape[0] != 1:
                raise UnsupportedModelError(f"a constant of shape {array.shape} changes the batch of {value.shape}")
            array = array.reshape(array.shape[1:])
        return Named(array, named.name)

    def private(self, value: Value) -> bool:
        """Whether only one node reads this value, under any of the shapes it was given."""
        holders = [
            node for node, found in self.found.items() if isinstance(found, Value) and found.index == value.index
        ]
        return all(len(node.users) == 1 for node in holders)

    def reshaped(self, value: Value, target: Sequence[Any]) -> Value:
        """The value in a new shape, which must keep the batch axis first."""
        first, rest = (target[0], list(target[1:])) if target else (None, [])
        if not all(isinstance(n, int) for n in rest) or rest.count(-1) > 1:
            raise UnsupportedModelError(f"cannot reshape to {tuple(target)}: the batch axis must stay first")
        if isinstance(first, BatchSize) and -1 in rest:
            others = -int(np.prod(rest))
            if others < 1 or value.size % others:
                raise InputError(f"cannot reshape {value.shape} to {tuple(target)}")
            rest[rest.index(-1)] = value.size // others
        elif not isinstance(first, BatchSize) and (first != -1 or int(np.prod(rest)) != value.size):
            raise UnsupportedModelError(
                f"cannot reshape {value.shape} to {tuple(target)}: the batch axis must stay first"
            )
        return value.reshaped(rest)

    def axis(self, value: Value, axis: int, extra: int = 0) -> int:
        """An axis counted without the batch axis; ``extra`` axes may be new."""
        rank = len(value.shape) + 1 + extra
        if not -rank <= axis < rank:
            raise InputError(f"expected an axis below {rank}, got {axis}")
        axis %= rank
        if axis == 0:
            raise UnsupportedModelError("an operation along the batch axis mixes the points")
        return axis - 1
