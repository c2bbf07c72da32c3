"""Images on their way into a training: made larger, and mirrored at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray

Augmentation = Callable[[Tensor, np.random.Generator], Tensor]
"""``augment(inputs, rng)`` gives ``inputs`` ``(points, n_0)`` of one run as one epoch sees them."""


def enlarged(images: Any, side: int) -> FloatArray:
    """Images ``(count, colours, height, width)`` as ``(count, colours, side, side)``, bilinear between pixels.

    >>> enlarged(np.array([[[[0.0, 1.0], [0.0, 1.0]]]]), 4)[0, 0, 0].tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    given = real_array(images, "images", ndim=4)
    if not isinstance(side, int | np.integer) or side < 1:
        raise InputError(f"side: expected a positive integer, got {side!r}")
    pixels = torch.from_numpy(np.ascontiguousarray(given))
    made = torch.nn.functional.interpolate(pixels, size=(side, side), mode="bilinear", align_corners=False)
    return np.asarray(made.numpy())


def random_flips(shape: tuple[int, ...]) -> Augmentation:
    """Every image ``(colours, height, width)``, given flat, is mirrored left to right with probability one half.

    >>> flip = random_flips((1, 1, 2))
    >>> rows = flip(torch.tensor([[1.0, 2.0]] * 50), np.random.default_rng(0))
    >>> sorted({tuple(row) for row in rows.tolist()})
    [(1.0, 2.0), (2.0, 1.0)]
    """

    def augment(inputs: Tensor, rng: np.random.Generator) -> Tensor:
        chosen = torch.from_numpy(rng.random(len(inputs)) < 0.5).to(inputs.device)
        found = inputs.clone()
        found[chosen] = inputs[chosen].reshape(-1, *shape).flip(-1).reshape(-1, inputs.shape[1])
        return found

    return augment
