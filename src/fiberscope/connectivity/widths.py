"""A narrow and a wide model of one architecture: every neuron of the narrow one finds its place in the wide one.

The narrow model's tensors are laid into zeros of the wide one's shapes, each entry at the place of the same members of
all groups that it belongs to. Neurons that are zero gain nothing as partners, so the assignment of the padded problem
is the best *injection* of the narrow groups into the wide ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.structure import Structure
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION, Group, Loop
from fiberscope.numerics.floats import IntArray

Label = tuple[tuple[str, int], ...]


def of_two_widths(a: nn.Module, b: nn.Module) -> bool:
    """Whether two modules have the same tensors by name and number of axes, but not all of the same shape."""
    left, right = dict(a.named_parameters()), dict(b.named_parameters())
    alike = left.keys() == right.keys() and all(left[name].dim() == right[name].dim() for name in left)
    return alike and any(left[name].shape != right[name].shape for name in left)


def padded(
    tensors: Mapping[str, Tensor], narrow: Structure, wide: Structure, like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of the narrow model in the shapes of the wide one's, ``like``, zero where it has nothing.

    >>> from fiberscope.modules.action import Axis
    >>> one, two = (Structure((Group("h", n, (Axis("w", 0),)),)) for n in (1, 2))
    >>> padded({"w": torch.tensor([5.0])}, one, two, {"w": torch.zeros(2)})["w"]
    tensor([5., 0.])
    """
    _check(narrow, wide)
    found = {}
    for name, value in tensors.items():
        places = [
            _places(name, k, value.shape[k], like[name].shape[k], narrow.groups, wide.groups)
            for k in range(value.dim())
        ]
        target = torch.zeros_like(like[name])
        target[tuple(torch.from_numpy(one) for one in np.ix_(*places))] = value.detach().to(target)
        found[name] = target
    return found


def _check(narrow: Structure, wide: Structure) -> None:
    left, right = ({group.name: group for group in one.only(PERMUTATION).groups} for one in (narrow, wide))
    for name in left.keys() ^ right.keys():
        raise InputError(f"group {name}: expected it in both models, found it in one; are they of one architecture?")
    for name, group in left.items():
        if group.size > right[name].size or group.copies > right[name].copies:
            sizes = f"{group.size} and {right[name].size}"
            raise InputError(f"group {name}: expected no more neurons in a than in b, got {sizes}; exchange the two")


def _places(name: str, axis: int, small: int, large: int, narrow: Sequence[Group], wide: Sequence[Group]) -> IntArray:
    """For every place on an axis of the narrow tensor the place on the wide one's with the same labels."""
    wanted, offered = _labels(name, axis, small, narrow), _labels(name, axis, large, wide)
    where = {label: place for place, label in enumerate(offered)}
    if any(label not in where for label in wanted):
        raise InputError(f"layer {name}: its axis {axis} has {small} and {large} places, which no group explains")
    return np.array([where[label] for label in wanted], dtype=np.int64)


def _labels(name: str, axis: int, size: int, groups: Sequence[Group]) -> list[tuple[Label, int]]:
    """For every place on an axis the members that it belongs to, and how many such places come before it."""
    members: list[dict[str, int]] = [{} for _ in range(size)]
    for group in (group for group in groups if group.kind == PERMUTATION):
        for one in (one for one in group.axes if (one.tensor, one.axis) == (name, axis)):
            others = [loop for loop in (*one.copies, *one.rest) if loop.axis == axis]
            for i in range(group.size):
                for place in _reached(one.start + i * one.stride, others):
                    members[place][group.name] = i
    seen: dict[Label, int] = defaultdict(int)
    found = []
    for one_place in members:
        label = tuple(sorted(one_place.items()))
        found.append((label, seen[label]))
        seen[label] += 1
    return found


def _reached(start: int, loops: Sequence[Loop]) -> list[int]:
    places = [start]
    for loop in loops:
        places = [place + loop.start + k * loop.stride for place in places for k in range(loop.count)]
    return places
