"""Elements applied to tensors by name: parameters and buffers of live modules, or the entries of a state dict.

An :class:`Axis` says where the members of a part stand in one tensor. The usual case is a whole axis. A head is a block
of an axis, a layer that reads a concatenation has several parts in one axis, and a grouped convolution has its copies
on one axis and their members on another: all are *loops*, a start, a count and a stride on an axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiberscope.errors import InputError
from fiberscope.network.action.element import Element, Monomial, random_scales
from fiberscope.results import Result


@dataclass(frozen=True, slots=True)
class Loop:
    """Places ``start, start + stride, ...`` on an axis, ``count`` of them; loops on one axis add up."""

    axis: int
    count: int
    stride: int = 1
    start: int = 0


@dataclass(frozen=True, slots=True)
class Axis(Result):
    """Where a part acts on a tensor: its members stand on ``axis``, ``stride`` apart from ``start`` on.

    ``copies`` are the loops over the copies, the parent's first; ``rest`` those over what moves along with a member on
    the axes that are named. Axes that are not named move along whole. A factor acts by its ``power``: 1 where neurons
    are made, -1 where they are read.
    """

    tensor: str
    axis: int
    start: int = 0
    stride: int = 1
    copies: tuple[Loop, ...] = ()
    rest: tuple[Loop, ...] = ()
    power: int = 1

    def _answer(self) -> Iterator[tuple[str, Any]]:
        """Of a whole axis, its tensor and number alone."""
        yield from (("tensor", self.tensor), ("axis", self.axis))
        for key, usual in (("start", 0), ("stride", 1), ("power", 1)):
            if getattr(self, key) != usual:
                yield key, getattr(self, key)
        for key in ("copies", "rest"):
            if getattr(self, key):
                yield key, [(loop.axis, loop.count, loop.stride, loop.start) for loop in getattr(self, key)]


PERMUTATION, SCALING = "permutation", "scaling"

_NAMED = 40
"""Groups that an error names, at most."""


@dataclass(frozen=True, slots=True)
class Group(Result):
    """Neurons that move together: how many, the axes they move, and the layers in whose *inputs* they are seen.

    A group inside others, its ``parents``, has one copy for every member of the last of them. ``kind`` says which
    group acts.
    """

    name: str
    size: int
    axes: tuple[Axis, ...]
    readers: tuple[str, ...] = ()
    copies: int = 1
    parents: tuple[str, ...] = ()
    kind: str = PERMUTATION

    def random(self, rng: np.random.Generator) -> Monomial:
        """A uniform permutation of every copy; of a scaling, powers of two."""
        if self.kind == SCALING:
            scales = random_scales(rng, (self.copies, self.size), 2, True)
            return Monomial(self.identity().orders, scales, self.parents)
        return Monomial([rng.permutation(self.size) for _ in range(self.copies)], None, self.parents)

    def identity(self) -> Monomial:
        return Monomial.identity(self.size, self.copies, self.parents)

    def generic(self, rng: np.random.Generator) -> Monomial:
        """An element that moves every neuron, and not the same way in all copies: what is wrong shows on it.

        A random cycle through all neurons; two of them change places in every second copy. Of a scaling, any factors.
        """
        if self.kind == SCALING:
            scales = random_scales(rng, (self.copies, self.size), 1, False)
            return Monomial(self.identity().orders, scales, self.parents)
        orders = np.tile(np.arange(self.size), (self.copies, 1))
        for c in range(0, self.copies, 2 if self.size == 2 else 1):
            cycle = rng.permutation(self.size)
            orders[c, cycle] = np.roll(cycle, 1)
        return Monomial(orders, None, self.parents)


def check_fits(element: Element, groups: Iterable[Group]) -> None:
    """That every part of an element belongs to one of the groups, and has its size and number of copies.

    >>> check_fits(Element({"h": [1, 0]}), [Group("h", 3, ())])
    Traceback (most recent call last):
    fiberscope.errors.InputError: group h: expected a permutation of 3 neurons, got 2
    """
    known = {group.name: group for group in groups}
    for name, part in element.items():
        if name not in known:
            names = ", ".join(itertools.islice(sorted(known), _NAMED)) + (", ..." if len(known) > _NAMED else "")
            raise InputError(f"element: no group {name!r}; the groups are {names}")
        group = known[name]
        if part.size != group.size:
            raise InputError(f"group {name}: expected a permutation of {group.size} neurons, got {part.size}")
        if part.copies != group.copies:
            raise InputError(f"group {name}: expected {group.copies} permutations of its copies, got {part.copies}")


def act(part: Monomial, axes: Iterable[Axis], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a part changes, new ones, by name.

    >>> swap, weight = Monomial.single([1, 0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    >>> act(swap, [Axis("w", 0, stride=2, rest=(Loop(0, 2),))], {"w": weight})["w"]
    tensor([3., 4., 1., 2.])
    """
    changed: dict[str, Tensor] = {}
    lines: dict[tuple[int, Axis], Line] = {}
    for axis in axes:
        if axis.tensor not in tensors:
            raise InputError(f"layer {axis.tensor}: the module has no such tensor; is it parametrised?")
        tensor = changed.get(axis.tensor, tensors[axis.tensor]).detach()
        if all(loop.axis == axis.axis for loop in (*axis.copies, *axis.rest)):
            members(tensor, axis, part.size, part.copies)  # whether it fits
            n, alone = tensor.shape[axis.axis], _alone(axis)
            if (n, alone) not in lines:
                lines[n, alone] = _line(n, alone, part)
            changed[axis.tensor] = _along(tensor, axis.axis, lines[n, alone])
        else:
            new = tensor.clone(memory_format=torch.contiguous_format)
            changed[axis.tensor] = _scale(_order(new, axis, part), axis, part)
    return changed


Line = tuple[Tensor | None, Tensor | None]
"""What a part does on an axis with all of its loops: where every place comes from, and its factor; None for nothing."""


def _alone(axis: Axis) -> Axis:
    """Loops that are all on one axis, as those of a tensor that has no other."""
    copies, rest = (tuple(replace(loop, axis=0) for loop in loops) for loops in (axis.copies, axis.rest))
    return replace(axis, tensor="", axis=0, copies=copies, rest=rest)


def _line(n: int, axis: Axis, part: Monomial) -> Line:
    """Found on the numbers of the places, which are moved as a tensor would be."""
    start = torch.arange(n)
    places = _order(start.clone(), axis, part)
    factors = None if (part.scales == 1).all() else _scale(torch.ones(n, dtype=torch.float64), axis, part)
    return None if factors is not None and torch.equal(places, start) else places, factors


def _along(tensor: Tensor, k: int, line: Line) -> Tensor:
    """A new tensor, in one pass for an order and one for factors."""
    places, factors = line
    new = tensor if places is None else tensor.index_select(k, places.to(tensor.device))
    if factors is None:
        return new
    factors = factors.to(tensor.device).reshape([-1 if j == k else 1 for j in range(tensor.dim())])
    return (new.to(torch.float64) * factors).to(tensor.dtype)  # rounded once


def _order(new: Tensor, axis: Axis, part: Monomial) -> Tensor:
    """Put the members into their new order, in place."""
    target, places = members(new, axis, part.size, part.copies), part.places()
    if (places != np.arange(len(places))).any():
        rows = target.reshape(len(places), -1)
        rows = rows.clone() if rows.data_ptr() == target.data_ptr() else rows  # read before it is written
        target.copy_(rows.index_select(0, torch.from_numpy(places).to(new.device)).reshape(target.shape))
    return new


def _scale(new: Tensor, axis: Axis, part: Monomial) -> Tensor:
    """Multiply the members by their factors, in place."""
    if not (part.scales == 1).all():
        target, ahead = members(new, axis, part.size, part.copies), len(axis.copies) + 1
        factors = torch.from_numpy(part.scales**axis.power).to(new.device)
        factors = factors.reshape(*target.shape[:ahead], *(1 for _ in target.shape[ahead:]))
        target.copy_(target.to(torch.float64) * factors)  # rounded once, to the type that it has
    return new


def members(tensor: Tensor, axis: Axis, size: int, copies: int = 1) -> Tensor:
    """The tensor seen as ``(copies..., members, what moves along...)``, sharing its memory."""
    loops = [*axis.copies, Loop(axis.axis, size, axis.stride, axis.start), *axis.rest]
    named = {loop.axis for loop in loops}
    for k in named:
        mine = [loop for loop in loops if loop.axis == k]
        last = sum(loop.start + (loop.count - 1) * loop.stride for loop in mine)
        if k >= tensor.dim() or last >= tensor.shape[k]:
            raise InputError(f"layer {axis.tensor}: expected {last + 1} places on axis {k}, got {tuple(tensor.shape)}")
    if int(np.prod([loop.count for loop in axis.copies])) != copies:
        raise InputError(f"layer {axis.tensor}: expected a permutation for each of its copies, got {copies}")
    whole = [Loop(k, tensor.shape[k]) for k in range(tensor.dim()) if k not in named]
    loops += whole
    offset = sum(loop.start * tensor.stride(loop.axis) for loop in loops)
    strides = [loop.stride * tensor.stride(loop.axis) for loop in loops]
    return tensor.as_strided([loop.count for loop in loops], strides, tensor.storage_offset() + offset)
