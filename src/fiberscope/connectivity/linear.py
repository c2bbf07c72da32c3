"""Every group of a module as the group it is: invertible maps of heads, rotary pairs, orthogonal maps of streams.

What a linear path makes and reads, the values of a head say, may be multiplied by any invertible map ``G`` where it is
made and by the transpose of its inverse where it is read. Which side is which is known from the positive scalings of
the same neurons: their powers 1 and -1. Rotary positions turn pairs of coordinates of queries and keys, each pair by
angles of its own; what commutes with that is a rotation and a factor of every pair, one for each head of the keys.
Larger maps there are wrong, and so are permutations. All that is emitted was tried on a copy with random parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import torch

from fiberscope.connectivity.rotations import INVERTIBLE, ROTARY, Rotations, moved_by, searched, turning
from fiberscope.connectivity.selfcheck import Probe
from fiberscope.connectivity.structure import Structure
from fiberscope.modules.action import PERMUTATION, SCALING, Axis, Group, Loop


def linear_groups(structure: Structure, seed: int = 0) -> Rotations:
    """The groups of a structure that are larger than permutations, each the largest that leaves the function alone.

    Parameters
    ----------
    structure
        As :func:`fiberscope.permutation_structure` found it.
    seed
        For the random parameters and maps of the trials.

    Examples
    --------
    >>> from torch import nn
    >>> from fiberscope.connectivity.structure import permutation_structure
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> found = linear_groups(permutation_structure(net, torch.zeros(1, 2)))
    >>> [(block.name, block.kind) for block in found.blocks], sorted(found.refused)
    ([('0', 'invertible')], ['1'])
    """
    found, probe, source = searched(structure, seed, _largest)
    blocks = list(found.blocks)
    for scaling in structure.only(SCALING).groups:
        tried = (Rotations((block,), (), {}) for block in _pairs(structure, scaling))
        blocks += next((one.blocks for one in tried if moved_by(one, probe, source).ok), ())
    return replace(found, blocks=tuple(blocks))


def _largest(structure: Structure, group: Group, probe: Probe, source: torch.Generator) -> tuple[Rotations | None, str]:
    found = _invertible(structure, group, probe, source)
    return (found, "") if found is not None else turning(structure, group, probe, source)


def _invertible(structure: Structure, group: Group, probe: Probe, source: torch.Generator) -> Rotations | None:
    """All invertible maps of a group, if its neurons have factors 1 where they are made and -1 where they are read."""
    for scaling in structure.only(SCALING).groups:
        if scaling.parents != (*group.parents, group.name) or group.size < 2:
            continue
        powers = {_place(axis): axis.power for axis in scaling.axes}
        if powers.keys() != {_place(axis) for axis in group.axes} or not set(powers.values()) <= {1, -1}:
            continue
        axes = tuple(replace(axis, power=powers[_place(axis)]) for axis in group.axes)
        found = Rotations((replace(group, axes=axes, kind=INVERTIBLE),), (), {})
        if moved_by(found, probe, source).ok:
            return found
    return None


def _place(axis: Axis) -> tuple[str, int, int]:
    return axis.tensor, axis.axis, axis.start


def _pairs(structure: Structure, scaling: Group) -> Iterator[Group]:
    """Factors that act alike on two places of every tensor: these may be pairs that rotary positions turn.

    First with a map for every head, where the places are seen to lie in heads; then with one for all of them.
    """
    where: dict[tuple[str, int], list[Axis]] = defaultdict(list)
    for axis in scaling.axes:
        where[axis.tensor, axis.axis].append(axis)
    if any(len(axes) != 2 or replace(axes[0], start=axes[1].start) != axes[1] for axes in where.values()):
        return
    axes = tuple(replace(first, stride=second.start - first.start) for first, second in where.values())
    if any(axis.stride <= 0 for axis in axes) or {axis.power for axis in axes} != {1, -1}:
        return
    plain = replace(scaling, name=scaling.name.rstrip("*'") + ":pairs", size=2, axes=axes, kind=ROTARY, parents=())
    for heads in structure.only(PERMUTATION).groups:
        loops = {(a.tensor, a.axis): Loop(a.axis, heads.size, a.stride) for a in heads.axes if not a.start}
        if not heads.parents and all(loops.get((axis.tensor, axis.axis)) in axis.rest for axis in axes):
            inside = tuple(_within(axis, loops[axis.tensor, axis.axis]) for axis in axes)
            yield replace(plain, axes=inside, copies=heads.size * plain.copies, parents=(heads.name,))
    if plain.copies == prod(loop.count for loop in axes[0].copies):
        yield plain


def _within(axis: Axis, heads: Loop) -> Axis:
    """The same place with copies for every head first."""
    return replace(axis, copies=(heads, *axis.copies), rest=tuple(loop for loop in axis.rest if loop != heads))
