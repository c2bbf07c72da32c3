"""The trace: every operation that a module runs is seen on its way to the kernels, and its rule applied to axes.

A rule is a function ``rule(trace, arguments, output)`` that says which index sets the axes of the output have, and
unifies or pins those of the inputs on the way. Rules are listed by the operation's name in :data:`RULES`, one file per
family of operations. An operation without a rule pins every axis that reaches it, and is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fiberscope.modules.calls import tensors
from fiberscope.modules.dispatch import Dispatch
from fiberscope.modules.tracing.axes import (
    ONE,
    Atom,
    Expr,
    collapse,
    fresh,
    holders,
    is_pinned,
    leaves,
    normal,
    pin,
    settle,
    size_of,
    unify,
)
from fiberscope.modules.tracing.degrees import Degrees, Pass, Place
from fiberscope.modules.tracing.places import Alone, Axes, mates, outside

Arguments = dict[str, Any]
Rule = Callable[["Trace", Arguments, Any], Any]

Watch = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Calls an operation with its arguments."""

Layout = tuple[tuple[int, ...], int]
"""Strides of the axes that have more than one place, and where in the storage the first place is."""

RULES: dict[str, Rule] = {}
"""By the name of the operation, without ``aten::``."""

POINTWISE = torch.Tag.pointwise

MOVES = {
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "flatten",
        "unflatten",
        "as_strided",
        "permute",
        "transpose",
    ),
    *("t", "movedim", "numpy_T", "unsqueeze", "squeeze", "expand", "repeat", "cat", "stack", "slice", "select"),
    *("unbind", "split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "tensor_split", "clone", "copy"),
    *("alias", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "_to_copy", "constant_pad_nd"),
}
"""Operations that take entries elsewhere. With these and entry by entry alone nothing is read: what becomes of an axis
is seen where it is summed over, or looked up, or given."""

ZEROS = {"zeros", "zeros_like", "new_zeros"}
"""Operations that make zeros, as the state of a recurrent layer at its beginning. A product with them reads nothing."""

MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What a rule raises on arguments that it was not written for: its operation is then an unknown one."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """List a rule under these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


class UnknownUse(Exception):
    """A rule meets a use of its operation that it does not cover; its axes are pinned, nobody else sees this."""


class Read:
    """A layer contracts its input with a weight: where the activations of an index set can be seen."""

    def __init__(self, layer: str, features: Expr) -> None:
        self.layer, self.features = layer, features


class Trace(Dispatch):
    """Axes of all tensors that come by while it is active."""

    def __init__(
        self, named: dict[str, Tensor], fixed: dict[str, str], inputs: Sequence[Tensor], watch: Watch | None = None
    ) -> None:
        """``watch`` runs the operations in the place of the trace, and may look at what they are given and give."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch
        self.known: Any = WeakTensorKeyDictionary()
        self.weights: Any = WeakTensorKeyDictionary()
        """Weights and their transposes: the name of the tensor."""
        self.seen: dict[Axes, None] = {}
        self.where: dict[Atom, dict[Axes, None]] = {}
        """The tensors on whose axes an atom stood when they were seen."""
        self.alone_records: list[Alone] = []
        self.met: dict[Axes, None] = {}
        """Of tensors that an operation read, and not only moved."""
        self.idle: dict[Axes, None] = {}
        """Of tensors that were multiplied by zeros that the module made."""
        self.blank: Any = WeakTensorKeyDictionary()
        """Such zeros: a list that holds True until somebody writes into the tensor or a view of it."""
        self.contracted = False
        """Whether the operation that runs is a sum of products."""
        self.unknown: dict[str, str] = {}
        """Operations without a rule, and where each was first met."""
        self.reads: list[Read] = []
        self.layers: list[str] = []
        """The modules that are running, the innermost last."""
        self.operation = ""
        self.layout: Layout | None = None
        """Of the tensor that the operation is asked of, before it ran: some change it."""
        self.degrees = Degrees()
        self.numbers: Any = WeakTensorKeyDictionary()
        """Tensors by their numbers in ``degrees``."""
        self.linked: set[Place] = set()
        """Axes of which the rule that runs says what becomes of their degrees; those of all others are zero."""
        self.outputs: list[Tensor] = []
        """What the module gave."""
        self.named: dict[str, Axes] = {}
        self.named_numbers: dict[str, int] = {}
        for name, tensor in named.items():
            if tensor not in self.known:
                self.named[name] = self._register(tensor, fixed.get(name), name in fixed)
                self.weights[tensor] = name
                self.named_numbers[name] = self.numbers[tensor]
        for tensor in inputs:
            self._register(tensor, "an input of the module")

    # -- what rules use ------------------------------------------------------------------------------------------------

    def axes(self, tensor: Tensor) -> Axes:
        """The index sets of a tensor; what nobody has seen before is a constant, whose places are all different."""
        found = self.known.get(tensor)
        if found is None:
            return self._register(tensor, self.why("a constant tensor"))
        return found  # type: ignore[no-any-return]

    def why(self, text: str) -> str:
        where = self.layers[-1] if self.layers else ""
        return f"{where or 'module'}: {text}"

    def unify(self, x: Expr, y: Expr) -> None:
        unify(x, y, self.why(f"{self.operation} asks for another grouping"))

    def pin(self, text: str, *exprs: Expr) -> None:
        for e in exprs:
            pin(e, self.why(text))

    def pinned(self, size: int, text: str) -> Expr:
        return fresh(size, self.why(text))

    def alone(self, kept: Sequence[Expr], mixed: Sequence[Expr]) -> None:
        """The kept axes are treated alike all along the mixed ones."""
        along = {leaf for e in mixed for leaf in leaves(e)}
        for e in kept:
            collapse(e, lambda index: index not in along)
        self.alone_records.append((tuple(kept), tuple(mixed)))

    def summed(self, over: Sequence[Expr], kept: Sequence[Expr], batch: Sequence[Expr] = ()) -> None:
        """A product of two tensors is summed over some axes, for all pairs of what is kept of each.

        All pairs see the sum in one order, so it may depend on the batch only; and every term of the sum sees what is
        kept, and the batch, in one order. Usually the axes that are gone say so themselves; not if an index set is both
        summed over and kept, as by a square matrix in a residual stream.
        """
        self.contracted = True
        self.alone(over, kept)
        self.alone([*kept, *batch], over)

    def mates(self) -> dict[Atom, set[Atom]]:
        """See :func:`fiberscope.modules.tracing.places.mates`."""
        return mates(self.seen, self.alone_records)

    def dependents(self, index: Atom, atoms: Iterable[Atom]) -> list[Atom]:
        """Those of these atoms that may have an order for each member of an index, as far as has been seen."""
        found = []
        beyond = outside(index, self._holding([index]))
        for atom in atoms:
            if atom not in beyond and index in mates(self._holding([atom]), self.alone_records).get(atom, ()):
                found.append(atom)
        return found

    def _holding(self, atoms: Iterable[Atom]) -> list[Axes]:
        return list(dict.fromkeys(axes for atom in holders(atoms) for axes in self.where.get(atom, ())))

    def place(self, tensor: Tensor | int, axis: int) -> Place:
        """An axis of an argument, or of an output by its number."""
        if isinstance(tensor, Tensor):
            found = (int(self.numbers[tensor]), axis % max(1, tensor.dim()))
        else:
            found = (len(self.degrees.tensors) + tensor, axis)
        self.linked.add(found)
        return found

    def balance(self, *terms: tuple[int, Tensor | int, int]) -> None:
        """Degrees on these axes, with coefficients, add up to zero."""
        self.degrees.balances.append(tuple((c, self.place(tensor, axis)) for c, tensor, axis in terms))

    def passed(
        self, out: int, axes: Iterable[int], tensor: Tensor, others: Iterable[int], whole: tuple[bool, bool]
    ) -> None:
        """What stands on axes of an output and of an argument keeps its degree; see :class:`Pass` for ``whole``."""
        left, right = tuple(self.place(out, k) for k in axes), tuple(self.place(tensor, k) for k in others)
        self.degrees.passes.append(Pass(left, right, whole))

    def follow(self, out: int, tensor: Tensor, mapping: Sequence[int | None]) -> None:
        """Axis ``j`` of an output is axis ``mapping[j]`` of an argument; None where it is the same all along."""
        for j, k in enumerate(mapping):
            self.balance((1, out, j), *([] if k is None else [(-1, tensor, k)]))

    def level(self, tensor: Tensor | int, axes: Iterable[int]) -> None:
        """No scaling on these axes."""
        for k in axes:
            self.balance((1, tensor, k))

    def read(self, weight: Tensor, features: Expr) -> None:
        """The axis that is contracted with a weight of the layer that runs."""
        name = self.weights.get(weight)
        layer = self.layers[-1] if self.layers else ""
        if name is not None and name.rpartition(".")[0] == layer:
            self.reads.append(Read(layer, features))

    # -- the dispatch --------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        arguments = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        # what is given is looked up before the operation runs: it may write into its arguments
        given = list(flat(arguments.values()))
        for tensor in given:
            self.axes(tensor)
        self.layout = layout_of(arguments.get("self"))
        output = func(*args, **kwargs) if self.watch is None else self.watch(func, args, kwargs)
        self.operation = name
        out = list(flat([output]))
        self.linked = set()
        self.contracted = False
        ruled = self._ruled(func, name, arguments, output, given, out)
        self._note_reading(func, name, given, out)
        told = [(self.numbers[t], j) for t in given for j in range(len(self.axes(t)))]
        told += [(len(self.degrees.tensors) + k, j) for k, tensor in enumerate(out) for j in range(tensor.dim())]
        self.degrees.flat(place for place in told if place not in self.linked)
        for k, tensor in enumerate(out):
            if any(tensor is one for one in given):  # written in place: views of it must go on to be true
                old = self.numbers[tensor]
                both = min(tensor.dim(), len(self.degrees.tensors[old]))
                self.degrees.balances += [((1, self.place(k, j)), (-1, (old, j))) for j in range(both)]
        self._record(out, ruled)
        return output

    def _note_reading(self, func: Any, name: str, given: list[Tensor], out: list[Tensor]) -> None:
        """What the operation read, if it did: not where there is nothing in its result, or nothing but zeros in it."""
        blank = [self.blank[tensor] for tensor in given if tensor in self.blank]
        if func._schema.is_mutable:
            for flag in blank:
                flag[0] = False
        elif name in ZEROS or (name in MOVES and len(blank) == len(given) > 0):
            self.blank.update((tensor, blank[0] if blank else [True]) for tensor in out)
        full = [tensor for tensor in given if tensor.numel()] if any(tensor.numel() for tensor in out) else []
        if self.contracted and any(flag[0] for flag in blank):
            self.idle.update(dict.fromkeys(self.axes(tensor) for tensor in full if tensor in self.weights))
        elif POINTWISE not in func.tags and name.removesuffix("_") not in MOVES:
            self.met.update(dict.fromkeys(map(self.axes, full)))

    def _ruled(
        self, func: Any, name: str, arguments: Arguments, output: Any, given: list[Tensor], out: list[Tensor]
    ) -> list[Axes]:
        if not any(tensor.numel() for tensor in out):  # nothing can be learned from it
            return [tuple(fresh(n, "an empty tensor") for n in tensor.shape) for tensor in out]
        found = RULES.get(name) or RULES.get(name.removesuffix("_"))
        if found is None and POINTWISE in func.tags:
            found = RULES["pointwise"]
        if found is not None:
            try:
                axes = found(self, arguments, output)
                answer = [tuple(axes)] if isinstance(output, Tensor) else [tuple(one) for one in axes]
                sizes = [tuple(size_of(e) for e in one) for one in answer]
                if sizes == [tuple(tensor.shape) for tensor in out]:
                    return answer
            except (UnknownUse, *MISFITS):
                pass
        self.linked = set()
        if any(not is_pinned(e) for tensor in given for e in self.axes(tensor)):
            self.unknown.setdefault(name, self.layers[-1] if self.layers else "")
        for tensor in given:
            self.pin(f"{name}, which has no rule for this use", *self.axes(tensor))
        return [tuple(self.pinned(n, f"a result of {name}") for n in tensor.shape) for tensor in out]

    def _record(self, out: list[Tensor], axes: list[Axes]) -> None:
        for tensor, found in zip(out, axes, strict=True):
            settle(found)
            self.known[tensor] = found
            self.numbers[tensor] = self.degrees.number(found)
            if found not in self.seen:
                self.seen[found] = None
                for leaf in {leaf for e in found for leaf in leaves(e)}:
                    self.where.setdefault(leaf, {})[found] = None

    def _register(self, tensor: Tensor, reason: str | None, fixed: bool = True) -> Axes:
        axes = tuple(fresh(size, reason) for size in tensor.shape)
        self._record([tensor], [axes])
        if fixed:
            self.degrees.flat((self.numbers[tensor], k) for k in range(len(axes)))
        return axes


def layout_of(value: Any) -> Layout | None:
    """How the places of a tensor lie in its storage; None of what has none, as a sparse one."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return None
    return tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n != 1), int(value.storage_offset())


def flat(values: Any) -> Any:
    """All tensors in arguments or results."""
    for value in values:
        yield from tensors(value)


def broadcast(trace: Trace, given: Sequence[Tensor], shape: Sequence[int]) -> list[Expr]:
    """The axes of what several tensors give entry by entry."""
    found: list[Expr] = [ONE] * len(shape)
    for tensor in given:
        for back, e in enumerate(reversed(trace.axes(tensor)), start=1):
            if tensor.shape[-back] == 1:
                continue
            if normal(found[-back]) == ONE:
                found[-back] = e
            else:
                trace.unify(found[-back], e)
    for k, size in enumerate(shape):
        if size != 1 and normal(found[k]) == ONE:
            found[k] = fresh(size)  # the same numbers all along the axis
    return found


def aligned(tensor: Tensor, output: Tensor) -> list[int | None]:
    """Which axis of a tensor goes with which of the result, from the right; None for one that is broadcast."""
    lead = output.dim() - tensor.dim()
    return [k - lead if k >= lead and tensor.shape[k - lead] == n else None for k, n in enumerate(output.shape)]
