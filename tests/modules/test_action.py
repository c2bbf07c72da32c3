"""Elements on tensors, against loops over single numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from fiberscope.errors import InputError
from fiberscope.modules.action import Axis, Loop, act
from fiberscope.network.action.element import Monomial

AXES: dict[str, tuple[Axis, int, int]] = {
    "rows": (Axis("w", 0), 12, 1),
    "columns": (Axis("w", 1), 12, 1),
    "the last axis": (Axis("w", 2), 3, 1),
    "a part of an axis": (Axis("w", 1, start=4), 5, 1),
    "heads": (Axis("w", 0, stride=4, rest=(Loop(0, 4),)), 3, 1),
    "inside heads": (Axis("w", 0, copies=(Loop(0, 3, 4),)), 4, 3),
    "heads of a fused layer": (Axis("w", 1, start=6, stride=2, rest=(Loop(1, 2),)), 3, 1),
    "factors": (Axis("w", 1, copies=(Loop(1, 12),), power=-1), 1, 12),
    "copies on another axis": (Axis("w", 1, stride=3, copies=(Loop(0, 12),), rest=(Loop(1, 3),)), 4, 12),
    "one pick on another axis": (Axis("w", 1, rest=(Loop(0, 1, 1, 2),)), 12, 1),
}


def slow(tensor: Tensor, axis: Axis, part: Monomial) -> Tensor:
    """Every number by itself: which member of which copy stands there, and where it comes from."""
    new = tensor.clone()
    loops = [*axis.copies, Loop(axis.axis, part.size, axis.stride, axis.start), *axis.rest]
    named = {loop.axis for loop in loops}
    whole = [Loop(k, tensor.shape[k]) for k in range(tensor.dim()) if k not in named]
    ahead = len(axis.copies)

    def place(counts: tuple[int, ...]) -> tuple[int, ...]:
        where = [0] * tensor.dim()
        for loop, i in zip([*loops, *whole], counts, strict=True):
            where[loop.axis] += loop.start + i * loop.stride
        return tuple(where)

    sizes = [loop.count for loop in axis.copies]
    for counts in itertools.product(*(range(loop.count) for loop in [*loops, *whole])):
        copy = int(np.ravel_multi_index(counts[:ahead], sizes)) if ahead else 0
        i = counts[ahead]
        old = place((*counts[:ahead], int(part.orders[copy, i]), *counts[ahead + 1 :]))
        factor = float(part.scales[copy, i] ** axis.power)
        new[place(counts)] = (tensor[old].double() * factor).to(tensor.dtype)
    return new


@pytest.mark.parametrize("kind", AXES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_as_one_by_one(kind: str, dtype: torch.dtype) -> None:
    axis, size, copies = AXES[kind]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(size) for _ in range(copies)]
    weight = torch.randn(12, 12, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    for tensor in (weight, weight.transpose(0, 1)):  # the second is not contiguous
        for scales in (None, 2.0 ** rng.normal(size=(copies, size))):
            part, before = Monomial(orders, scales), tensor.clone()
            found = act(part, [axis], {"w": tensor})["w"]
            assert found.dtype == dtype and torch.equal(found, slow(tensor, axis, part))
            assert torch.equal(tensor, before)


def test_every_axis_of_a_part_is_read_by_its_own_loops() -> None:
    """Axes of one length with different loops, and one tensor twice."""
    axes = [Axis("w", 0), Axis("w", 1), Axis("v", 0, power=-1), Axis("u", 0, rest=(Loop(0, 2, 4),))]
    part = Monomial.single([2, 0, 3, 1], [1.0, 2.0, 0.5, 4.0])
    tensors = {"w": torch.randn(4, 4), "v": torch.randn(4), "u": torch.randn(8)}
    found = act(part, axes, tensors)
    assert torch.equal(found["w"], slow(slow(tensors["w"], axes[0], part), axes[1], part))
    for axis in axes[2:]:
        assert torch.equal(found[axis.tensor], slow(tensors[axis.tensor], axis, part))


def test_what_does_not_fit_is_named() -> None:
    swap = Monomial.single([1, 0])
    with pytest.raises(InputError, match=r"layer w: expected 2 places on axis 1, got \(3, 1\)"):
        act(swap, [Axis("w", 1)], {"w": torch.zeros(3, 1)})
    with pytest.raises(InputError, match=r"layer v: the module has no such tensor"):
        act(swap, [Axis("v", 0)], {"w": torch.zeros(3, 1)})
