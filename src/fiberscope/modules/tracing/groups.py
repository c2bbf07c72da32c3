"""From a trace to groups: every atom that is not pinned, where it stands in parameters, and what it sits in."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fiberscope.modules.action import SCALING, Axis, Group, Loop
from fiberscope.modules.calls import Inputs, Selector, call, meant, tensors
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.tracing import contractions, pointwise, reductions, shapes
from fiberscope.modules.tracing.axes import Atom, leaves, pin, settle, stiffen
from fiberscope.modules.tracing.places import Occurrence, occurrences
from fiberscope.modules.tracing.tracer import RULES, Trace, Watch
from fiberscope.results import Result

FAMILIES = (contractions, pointwise, reductions, shapes)
"""The files of rules; importing one lists its rules in ``RULES``."""
assert RULES


@dataclass(frozen=True, slots=True)
class Pinned(Result):
    """Neurons on an axis of a tensor that have to stay, and why."""

    tensor: str
    axis: int
    size: int
    reason: str


def traced(module: nn.Module, inputs: Inputs, output: Selector = None, watch: Watch | None = None) -> Trace:
    """Run a module once and follow the axes of its tensors; what it gives, and is given, is pinned."""
    named, fixed = own_tensors(module)
    trace = Trace(named, fixed, list(tensors(inputs)), watch)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(0)  # a module may draw numbers even in evaluation: the same ones in every run
        stack.enter_context(evaluating(module))
        stack.enter_context(plain_kernels(module))
        stack.enter_context(_followed(module, trace))
        stack.enter_context(trace)
        trace.outputs = list(meant(call(module, inputs), output))  # a selector may compute, too
    for tensor in trace.outputs:
        trace.degrees.flat((trace.numbers[tensor], k) for k in range(tensor.dim()))
        for e in trace.axes(tensor):
            pin(e, "an output of the module")
    return trace


def own_tensors(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Parameters and buffers, each once under its first name; and why some of them cannot be moved."""
    named: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    stored = module.state_dict(keep_vars=True).keys()
    fixed = {name: f"{name}: a buffer that is not stored" for name in named if name not in stored}
    whole = {name: f"{name}: whole numbers" for name, value in named.items() if not value.is_floating_point()}
    return named, fixed | whole


@contextmanager
def plain_kernels(module: nn.Module) -> Iterator[None]:
    """Attention and recurrent layers as the operations they are made of, not as one that nobody sees into."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            if any(isinstance(part, nn.RNNBase) for part in module.modules()):
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")  # it speaks of devices that are not there
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _followed(module: nn.Module, trace: Trace) -> Iterator[None]:
    """While it lasts, the trace knows which layer runs."""
    with ExitStack() as stack:
        for name, part in module.named_modules():
            if isinstance(part, torch.jit.ScriptModule):
                continue  # it takes no hooks

            def enter(part: nn.Module, inputs: Any, options: Any, name: str = name) -> None:
                trace.layers.append(name)

            def leave(part: nn.Module, inputs: Any, options: Any, output: Any) -> None:
                trace.layers.pop()

            stack.callback(part.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(part.register_forward_hook(leave, with_kwargs=True, always_call=True).remove)
        yield


def groups_of(trace: Trace) -> tuple[Group, ...]:
    """The permutation groups of a trace, parents before what is inside them."""
    for axes in trace.named.values():
        settle(axes)
    _keep_unread(trace)
    places: dict[Atom, list[tuple[str, Occurrence]]] = {}
    for name, axes in trace.named.items():
        for one in occurrences(axes):
            if one.atom.pin is None:
                places.setdefault(one.atom, []).append((name, one))
    free = dict(places)
    beside = trace.mates()
    chains = _chains(list(free), beside)
    names = _names(trace, free)
    readers = _readers(trace)
    found = []
    for atom in sorted(free, key=lambda one: len([p for p in chains[one] if p.pin is None])):
        chain = chains[atom]
        moved = tuple(dict.fromkeys(_axis(name, one, chain) for name, one in free[atom]))
        parents = tuple(names[p] for p in chain if p.pin is None)
        copies = prod(p.size for p in chain)
        found.append(Group(names[atom], atom.size, moved, readers.get(atom, ()), copies, parents))
    return tuple(found) + _scalings(trace, chains, beside, names)


def _keep_unread(trace: Trace) -> None:
    """Pin what nothing read: heads that did not run, or positions behind the length of the example.

    No order of them changes what the module gave, but another input may read them. The same of matrices of which some
    axis met nothing but zeros, as those of a recurrent layer at the first of its steps.
    """
    read = {leaf for axes in trace.met for e in axes for leaf in leaves(e)}

    def is_read(leaf: Atom) -> bool:
        members = leaf.family[1] if leaf.family is not None else ()
        return leaf in read or any(is_read(one) for member in members for one in leaves(member))

    for axes in trace.idle:
        if not all(is_read(leaf) for e in axes for leaf in leaves(e)):
            for e in axes:
                stiffen(e, "a matrix that met only zeros on this example")
    for name, axes in trace.named.items():
        for leaf in (leaf for e in axes for leaf in leaves(e)):
            if not is_read(leaf):
                stiffen(leaf, f"{name}: nothing read it on this example")


def _scalings(
    trace: Trace,
    chains: dict[Atom, tuple[Atom, ...]],
    beside: dict[Atom, set[Atom]],
    names: dict[Atom, str],
) -> tuple[Group, ...]:
    """Positive factors: one for every neuron, so a part with one member, and a copy for each of the neurons."""
    solved = trace.degrees.solved()
    numbers = {number: name for name, number in trace.named_numbers.items()}
    found: list[Group] = []
    for atom, basis in ((atom, basis) for atom, basis in solved.items() if not atom.rigid):
        chain = chains.get(atom, tuple(p for p in beside.get(atom, ()) if p.pin is not None))
        for powers in basis:
            mine = {(numbers[t], k): power for (t, k), power in powers.items() if t in numbers}
            axes = tuple(
                replace(_axis(name, one, chain, inside=True), power=mine[name, one.loop.axis])
                for name in dict.fromkeys(name for name, _ in mine)
                for one in occurrences(trace.named[name])
                if one.atom is atom and (name, one.loop.axis) in mine
            )
            # an index that is taken apart by its family has no place of its own to be scaled at
            everywhere = {(axis.tensor, axis.axis) for axis in axes} == mine.keys()
            if axes and everywhere:
                parents = tuple(names[p] for p in (*chain, atom) if p.pin is None)
                name = f"{axes[0].tensor.rpartition('.')[0] or axes[0].tensor}*"
                while any(group.name == name for group in found):
                    name += "'"
                copies = prod(p.size for p in chain) * atom.size
                found.append(Group(name, 1, axes, (), copies, parents, SCALING))
    return tuple(found)


def fused_scalings(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Factors of neurons that stand twice on axes of their tensors, as queries and keys do in a fused projection.

    The equations of a trace have one degree for each axis, and so see none where the first place is multiplied and the
    second divided. These are guesses, to be tried.
    """
    known = {group.parents for group in groups if group.kind == SCALING}
    found: list[Group] = []
    for group in (group for group in groups if group.kind != SCALING):
        starts: dict[tuple[str, int], list[int]] = {}
        for axis in group.axes:
            starts.setdefault((axis.tensor, axis.axis), []).append(axis.start)
        parents = (*group.parents, group.name)
        if parents in known or any(len(places) != 2 for places in starts.values()):
            continue
        axes = tuple(
            replace(
                axis,
                copies=(*axis.copies, Loop(axis.axis, group.size, axis.stride)),
                power=1 if axis.start == min(starts[axis.tensor, axis.axis]) else -1,
            )
            for axis in group.axes
        )
        found.append(Group(f"{group.name}*", 1, axes, (), group.copies * group.size, parents, SCALING))
    return tuple(found)


def pinned_of(trace: Trace) -> tuple[Pinned, ...]:
    """What stays on the axes of parameters and buffers, with reasons."""
    return tuple(
        Pinned(name, k, leaf.size, leaf.pin)
        for name, axes in trace.named.items()
        for k, e in enumerate(axes)
        for leaf in dict.fromkeys(leaves(e))
        if leaf.pin is not None
    )


def _chains(free: Sequence[Atom], beside: dict[Atom, set[Atom]]) -> dict[Atom, tuple[Atom, ...]]:
    """For every atom the longest chain of atoms that it sits in, each in those before it.

    Where either of two may sit in the other, the one that comes first, and runs slower, is outside. An atom that sits
    in no free one has an order for every member of the pinned indices beside it.
    """
    found: dict[Atom, tuple[Atom, ...]] = {}
    rank = {atom: k for k, atom in enumerate(free)}
    begun: set[Atom] = set()

    def chain(atom: Atom) -> tuple[Atom, ...]:
        if atom in found:
            return found[atom]
        begun.add(atom)
        mates = beside.get(atom, set())
        best: tuple[Atom, ...] = ()
        for p in (p for p in free if p in mates and not (atom in beside[p] and rank[p] > rank[atom])):
            if p in found or p not in begun:
                around = chain(p)
                if set(around) <= mates and len(around) + 1 > len(best):
                    best = (*around, p)
        found[atom] = best or tuple(p for p in mates if p.pin is not None)
        return found[atom]

    for atom in free:
        chain(atom)
    return found


def _axis(tensor: str, one: Occurrence, chain: Sequence[Atom], inside: bool = False) -> Axis:
    """Where an atom acts; ``inside``: where each of its members is a copy, with one member of its own."""
    loops = {atom: loop for atom, loop in one.around if atom is not None}
    copies = tuple(loops[p] for p in chain)
    if inside:
        copies = (*copies, replace(one.loop, start=0))
    picks = {loop.axis for atom, loop in one.around if atom is None and loop.count == 1}
    named = {one.loop.axis, *(loop.axis for loop in copies), *picks}
    rest = tuple(loop for atom, loop in one.around if loop.axis in named and not (atom is not None and loop in copies))
    return Axis(tensor, one.loop.axis, one.loop.start, one.loop.stride, copies, rest)


def _names(trace: Trace, free: dict[Atom, list[tuple[str, Occurrence]]]) -> dict[Atom, str]:
    """After the layer where an atom stands first; with its place where it is a part of the axis."""
    found: dict[Atom, str] = {}
    for atom, places in free.items():
        tensor, one = places[0]
        name = tensor.rpartition(".")[0] or tensor
        inside = leaves(trace.named[tensor][one.loop.axis])
        if len(inside) > 1:
            name = f"{name}:{inside.index(atom) if atom in inside else len(found)}"
        while name in found.values():
            name += "'"
        found[atom] = name
    return found


def _readers(trace: Trace) -> dict[Atom, tuple[str, ...]]:
    found: dict[Atom, dict[str, None]] = {}
    for read in trace.reads:
        for leaf in leaves(read.features):
            found.setdefault(leaf, {})[read.layer] = None
    return {atom: tuple(layers) for atom, layers in found.items()}


__all__ = ["Loop", "Pinned", "fused_scalings", "groups_of", "own_tensors", "pinned_of", "plain_kernels", "traced"]
