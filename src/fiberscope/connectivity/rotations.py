"""Larger groups than permutations: orthogonal maps of residual streams, of values in a head, of queries and keys.

Where everything between the places of a group is linear, or commutes with rotations as a root-mean-square norm without
weights does, not only permutations leave the function alone but all orthogonal maps ``R``: tensors are multiplied by
``R`` on the axes of the group. Weights of norms are *folded* into what reads them first. A layer norm subtracts a mean:
it commutes with the maps that leave the vector of ones where it is. Which of these a group has is decided by a trial on
a copy with random parameters, as for permutations; what fails is refused with its reason and stays a permutation group.
Tied embeddings behind a norm with weights are such a case: the norm cannot be folded without untying them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.selfcheck import Drift, Probe, spread
from fiberscope.connectivity.structure import Structure
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION, SCALING, Axis, Group, members
from fiberscope.modules.parametrisations import copied, plain
from fiberscope.modules.tracing.groups import own_tensors
from fiberscope.results import Result

ORTHOGONAL, CENTRED = "orthogonal", "orthogonal, ones fixed"
INVERTIBLE, ROTARY = "invertible", "rotation and scale of pairs"

Matrices = Mapping[str, Tensor]
"""For every block a map of each of its copies, ``(copies, n, n)``."""


@dataclass(frozen=True)
class Fold:
    """A norm's weight that can be taken into what reads it: the scaling that does it, and what becomes one."""

    scaling: Group
    weight: str


@dataclass(frozen=True)
class Rotations(Result):
    """The linear groups of a module: blocks, norms to be folded first, and why other groups only permute."""

    blocks: tuple[Group, ...]
    """``kind`` is ``"orthogonal"`` or ``"orthogonal, ones fixed"``; of :func:`linear_groups` also ``"invertible"`` and
    ``"rotation and scale of pairs"``. Axes of folded norms are not among theirs."""
    folds: tuple[Fold, ...] = field(repr=False)
    refused: Mapping[str, str] = field(repr=False)

    def random(self, seed: int) -> dict[str, Tensor]:
        """A random map for every block."""
        source = torch.Generator().manual_seed(seed)
        return {block.name: drawn(block, source) for block in self.blocks}

    def folded(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors, with the weights of norms taken into what reads them; these weights are then one."""
        found = dict(tensors)
        for fold in self.folds:
            found |= _folded(fold, found)
        return found

    def act(self, tensors: Mapping[str, Tensor], matrices: Matrices) -> dict[str, Tensor]:
        """The tensors, turned by a map for some of the blocks; they can be differentiated by the maps.

        Where a block is made, by the map itself; where it is read, by the transpose of its inverse.
        """
        found = dict(tensors)
        for block in (block for block in self.blocks if block.name in matrices):
            made = matrices[block.name]
            read = torch.linalg.inv(made).mT if block.kind in (INVERTIBLE, ROTARY) else made
            for axis in (axis for axis in block.axes if axis.tensor in found):
                found[axis.tensor] = _turned(found[axis.tensor], axis, block, made if axis.power > 0 else read)
        return found

    def apply(self, module: nn.Module, matrices: Matrices) -> nn.Module:
        """A new module with its norms folded and its blocks turned: the same function, up to rounding."""
        copy = plain(module)
        copy = copied(module) if copy is module else copy
        own, _ = own_tensors(copy)
        with torch.no_grad():
            for name, value in self.act(self.folded(own), matrices).items():
                if value is not own[name]:
                    own[name].copy_(value)
        return copy


def rotations(structure: Structure, seed: int = 0) -> Rotations:
    """The groups of a structure that are larger than permutations, tried on a copy with random parameters.

    >>> from fiberscope.connectivity.structure import permutation_structure
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> found = rotations(permutation_structure(net, torch.zeros(1, 2)))
    >>> [(block.name, block.kind) for block in found.blocks], sorted(found.refused)
    ([('0', 'orthogonal')], ['1'])
    """
    return searched(structure, seed, turning)[0]


Search = Callable[[Structure, Group, Probe, torch.Generator], tuple[Rotations | None, str]]
"""The maps of one group, or None and why it only permutes."""


def searched(structure: Structure, seed: int, search: Search) -> tuple[Rotations, Probe, torch.Generator]:
    """What a search finds for all groups of permutations, and what further trials need."""
    if structure.source is None:
        raise InputError("structure: expected one that was found by permutation_structure, to know its module")
    module, inputs, output = structure.source
    try:
        probe = Probe(module, spread(inputs, seed), output, seed)
    except (
        RuntimeError,
        ValueError,
        LookupError,
        TypeError,
        AssertionError,
    ):  # floats that are no points of a space, or a size of batches that is built in
        probe = Probe(module, inputs, output, seed)
    source = torch.Generator().manual_seed(seed)
    blocks: list[Group] = []
    folds: list[Fold] = []
    refused: dict[str, str] = {}
    groups = structure.only(PERMUTATION).groups
    outside = {name for group in groups for name in group.parents}
    for group in groups:
        if group.name in outside:  # one token has no other to attend to: there heads could be mixed
            refused[group.name] = "it holds other groups, as heads hold their dimensions: such blocks only permute"
            continue
        found, reason = search(structure, group, probe, source)
        if found is None:
            refused[group.name] = reason
        else:
            blocks += found.blocks
            folds += [fold for fold in found.folds if fold not in folds]
    return Rotations(tuple(blocks), tuple(folds), refused), probe, source


def turning(structure: Structure, group: Group, probe: Probe, source: torch.Generator) -> tuple[Rotations | None, str]:
    """The orthogonal maps of one group, or None and why it only permutes."""
    mine = tuple(_folds(structure, group, probe.own))
    weights = {fold.weight for fold in mine}
    axes = tuple(axis for axis in group.axes if axis.tensor not in weights)
    reason = ""
    for kind in (ORTHOGONAL, CENTRED):
        if kind == CENTRED and (group.copies > 1 or group.size < 3):
            continue
        tried = Rotations((replace(group, axes=axes, kind=kind),), mine, {})
        drift = moved_by(tried, probe, source)
        if drift.ok:
            return tried, ""
        reason = reason or f"a random rotation moves the outputs by {drift.value:.1e}"
    return None, reason + _unfolded(group, weights, probe.own)


def moved_by(maps: Rotations, probe: Probe, source: torch.Generator) -> Drift:
    """What random maps change in the outputs."""
    matrices = {block.name: drawn(block, source) for block in maps.blocks}
    changed = maps.act(maps.folded(probe.own), matrices)
    return probe.drift(
        maps.blocks[0].name, {name: value for name, value in changed.items() if value is not probe.own[name]}
    )


def _unfolded(group: Group, weights: set[str], own: Mapping[str, Tensor]) -> str:
    left = [axis.tensor for axis in group.axes if own[axis.tensor].dim() == 1 and axis.tensor.endswith("weight")]
    stuck = [name for name in left if name not in weights]
    return f"; {stuck[-1]} cannot be folded into what reads it (tied?)" if stuck else ""


def _folds(structure: Structure, group: Group, own: Mapping[str, Tensor]) -> Iterator[Fold]:
    """Scalings of a group that have vectors on one side and matrices on the other: norms and their readers."""
    for scaling in structure.only(SCALING).groups:
        if scaling.parents != (*group.parents, group.name):
            continue
        vectors = {axis.power for axis in scaling.axes if own[axis.tensor].dim() == 1}
        matrices = {axis.power for axis in scaling.axes if own[axis.tensor].dim() > 1}
        named = [
            axis.tensor
            for axis in scaling.axes
            # a factor for every entry: one that several share, as of a convolution in groups, is not all of the weight
            if own[axis.tensor].shape == (scaling.copies,) and axis.tensor.endswith("weight")
        ]
        if len(named) == 1 and len(vectors) == 1 and matrices == {-power for power in vectors}:
            yield Fold(scaling, named[0])


def _folded(fold: Fold, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    weight = next(axis for axis in fold.scaling.axes if axis.tensor == fold.weight)
    factors = members(tensors[fold.weight].detach(), weight, 1, fold.scaling.copies).reshape(-1).double()
    if not bool((factors != 0).all()):
        raise InputError(f"{fold.weight}: expected no zeros in the weight of a norm, which is folded into its readers")
    found: dict[str, Tensor] = {}
    for axis in fold.scaling.axes:
        value = found.get(axis.tensor, tensors[axis.tensor]).detach().clone(memory_format=torch.contiguous_format)
        target = members(value, axis, 1, fold.scaling.copies)
        power = factors ** float(-axis.power * weight.power)
        shape = [*target.shape[: len(axis.copies)], *(1 for _ in target.shape[len(axis.copies) :])]
        target.copy_(target.double() * power.reshape(shape))
        found[axis.tensor] = value
    return found


def _turned(tensor: Tensor, axis: Axis, block: Group, matrices: Tensor) -> Tensor:
    places = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    index = members(places, axis, block.size, block.copies).reshape(block.copies, block.size, -1)
    flat = tensor.reshape(-1)
    rows = matrices.to(device=flat.device, dtype=flat.dtype) @ flat[index]
    return flat.index_put((index,), rows).reshape(tensor.shape)


def drawn(block: Group, source: torch.Generator) -> Tensor:
    """Random maps of a block, ``(copies, n, n)``, in float64; none that is nearly singular."""

    def turn() -> Tensor:
        found: Tensor = torch.linalg.qr(torch.randn(block.copies, block.size, block.size, generator=source).double())[0]
        return found

    def factors(count: int) -> Tensor:
        return torch.exp(torch.rand(block.copies, 1, count, generator=source).double() - 0.5)

    if block.kind == INVERTIBLE:
        return (turn() * factors(block.size)) @ turn()
    if block.kind == ROTARY:
        angles = 2 * torch.pi * torch.rand(block.copies, generator=source).double()
        rows = [torch.stack([torch.cos(angles), -torch.sin(angles)], -1)]
        rows += [torch.stack([torch.sin(angles), torch.cos(angles)], -1)]
        return factors(1) * torch.stack(rows, -2)
    found = turn()
    return found if block.kind == ORTHOGONAL else _ones_fixed(torch.linalg.qr(found[:, :-1, :-1])[0])


def _ones_fixed(inner: Tensor) -> Tensor:
    """Maps of ``n`` coordinates that turn what is orthogonal to the ones by maps of ``n - 1``."""
    n = inner.shape[-1] + 1
    basis = centred_basis(n)
    found: Tensor = basis @ inner @ basis.T + torch.full((n, n), 1.0 / n, dtype=torch.float64)
    return found


def centred_basis(n: int) -> Tensor:
    """An orthonormal basis of the vectors whose entries add up to zero, ``(n, n - 1)``."""
    lines = torch.eye(n, dtype=torch.float64) - 1.0 / n
    found: Tensor = torch.linalg.qr(lines[:, :-1])[0]
    return found


def nearest(block: Group, gains: np.ndarray[Any, Any]) -> Tensor:
    """Procrustes: the maps ``R`` of a block with the largest ``sum_ij R_ij gains_ij``, ``(copies, n, n)``.

    >>> nearest(Group("h", 2, (), kind=ORTHOGONAL), np.array([[[0.0, 2.0], [-1.0, 0.0]]])).round()
    tensor([[[ 0.,  1.],
             [-1.,  0.]]], dtype=torch.float64)
    """
    matrix = torch.from_numpy(np.asarray(gains, dtype=np.float64))
    if block.kind == CENTRED:
        basis = centred_basis(block.size)
        return _ones_fixed(nearest(replace(block, kind=ORTHOGONAL), (basis.T @ matrix @ basis).numpy()))
    u, _, v = torch.linalg.svd(matrix)
    found: Tensor = u @ v
    return found
