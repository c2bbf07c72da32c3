"""Augmentations of images, written on tensors: random horizontal flips and padded random crops.

Deterministic from a generator; every image draws its own flip or offset.
"""

from __future__ import annotations

import torch

from fiberscope.errors import InputError


def random_flip(images: torch.Tensor, generator: torch.Generator, probability: float = 0.5) -> torch.Tensor:
    """Each image of ``(n, channels, height, width)`` mirrored left to right with the given probability.

    >>> images = torch.arange(2.0).reshape(1, 1, 1, 2)
    >>> random_flip(images, torch.Generator().manual_seed(0), probability=1.0).flatten().tolist()
    [1.0, 0.0]
    """
    _check(images)
    if not 0 <= probability <= 1:
        raise InputError(f"probability: expected a number in [0, 1], got {probability}")
    chosen = torch.rand(len(images), generator=generator) < probability
    return torch.where(chosen.to(images.device)[:, None, None, None], images.flip(-1), images)


def random_crop(images: torch.Tensor, generator: torch.Generator, padding: int = 4) -> torch.Tensor:
    """Each image padded with zeros on all sides and cut back to its size at a random offset.

    >>> images = torch.ones(1, 1, 2, 2)
    >>> random_crop(images, torch.Generator().manual_seed(0), padding=0).equal(images)
    True
    """
    _check(images)
    if padding < 0:
        raise InputError(f"padding: expected 0 or more, got {padding}")
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    top, left = torch.randint(0, 2 * padding + 1, (2, count), generator=generator).to(images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    which = torch.arange(count, device=images.device)[:, None, None]
    # Advanced indices around a slice put the slice last: (n, height, width, channels).
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def _check(images: torch.Tensor) -> None:
    if images.ndim != 4 or len(images) == 0:
        raise InputError(f"images: expected (n, channels, height, width), n > 0, got {tuple(images.shape)}")
