"""Every group of a module as the group it is: invertible maps of heads, rotary pairs, orthogonal maps of streams.

What a linear path makes and reads, the values of a head say, may be multiplied by any invertible map ``G`` where it is
made and by the transpose of its inverse where it is read. Which side is which is known from the positive scalings of
the same neurons: their powers 1 and -1. Rotary positions turn pairs of coordinates of queries and keys, each pair by
angles of its own; what commutes with that is a rotation and a factor of every pair, one for each head of the keys.
Larger maps there are wrong, and so are permutations; dimensions that a *partial* rotary leaves alone have all
invertible maps. Pairs are neighbours or lie half a rotary part apart. All that is emitted was tried on a copy with
random parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

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
    seen = [_pairs(structure, scaling) for scaling in structure.only(SCALING).groups]
    seen += [_guessed(structure, heads, probe.own) for heads in structure.only(PERMUTATION).groups]
    for guesses in seen:
        tried = (Rotations((block,), (), {}) for block in guesses)
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


def _guessed(structure: Structure, heads: Group, own: Mapping[str, Tensor]) -> Iterator[Group]:
    """Rotary pairs of heads whose queries and keys have no factors of their own in the trace, to be tried.

    Libraries write rotary positions in many ways: neighbours are pairs, or the halves of a part of the head, whose
    other dimensions do not turn. Queries and keys are the two places of a head of one length that no group inside it
    moves. The largest guess comes first; both orders of a pair are the same guess.
    """
    free = _unmoved(structure, heads, own)
    matrices = [run for run in free if own[run.tensor].dim() > 1]
    if heads.parents or len(matrices) != 2 or matrices[0].length != matrices[1].length:
        return
    sides = [[run for run in free if _layer(run) == _layer(one) and run.start == one.start] for one in matrices]
    length = matrices[0].length
    for count in range(length // 2, 0, -1):
        for gap, step in dict.fromkeys(((1, 2), (count, 1))):
            axes = tuple(
                Axis(
                    run.tensor,
                    0,
                    run.start,
                    gap,
                    (Loop(0, heads.size, run.block), Loop(0, count, step)),
                    (),
                    1 if side is sides[0] else -1,
                )
                for side in sides
                for run in side
            )
            name = f"{_layer(matrices[0])}:pairs"
            yield Group(name, 2, axes, (), heads.size * count, (heads.name,), ROTARY)


class _Run(NamedTuple):
    """Neighbouring rows of a tensor in every head that nothing inside the head moves."""

    tensor: str
    start: int
    length: int
    block: int


def _layer(run: _Run) -> str:
    return run.tensor.rpartition(".")[0]


def _unmoved(structure: Structure, heads: Group, own: Mapping[str, Tensor]) -> list[_Run]:
    inside = [group for group in structure.only(PERMUTATION).groups if group.parents[-1:] == (heads.name,)]
    moved = {
        (axis.tensor, axis.axis, axis.start + axis.stride * k)
        for group in inside
        for axis in group.axes
        for k in range(group.size)
    }
    found: list[_Run] = []
    for axis in heads.axes:
        whole = axis.stride * heads.size == own[axis.tensor].shape[axis.axis] and not axis.start
        if axis.axis or not whole:
            continue
        places = [k for k in range(axis.stride) if (axis.tensor, 0, k) not in moved]
        starts = [k for k in places if k - 1 not in places]
        ends = [k for k in places if k + 1 not in places]
        found += [_Run(axis.tensor, k, e - k + 1, axis.stride) for k, e in zip(starts, ends, strict=True)]
    return found
