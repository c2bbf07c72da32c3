"""Flips and crops: what they may do to an image, and that a generator decides it."""

from __future__ import annotations

import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.training.augment import random_crop, random_flip


def images(count: int = 40) -> torch.Tensor:
    return torch.arange(count * 2 * 5 * 6, dtype=torch.float32).reshape(count, 2, 5, 6) + 1


def test_flips_are_whole_images_and_about_half_of_them() -> None:
    before = images(400)
    after = random_flip(before, torch.Generator().manual_seed(0))
    flipped = [bool(a.equal(b.flip(-1))) for a, b in zip(after, before, strict=True)]
    kept = [bool(a.equal(b)) for a, b in zip(after, before, strict=True)]
    assert all(f != k for f, k in zip(flipped, kept, strict=True))
    assert 150 < sum(flipped) < 250


def test_crops_are_windows_of_the_padded_image() -> None:
    before = images()
    after = random_crop(before, torch.Generator().manual_seed(1), padding=2)
    padded = torch.nn.functional.pad(before, (2,) * 4)
    offsets = set()
    for a, p in zip(after, padded, strict=True):
        found = [(i, j) for i in range(5) for j in range(5) if a.equal(p[:, i : i + 5, j : j + 6])]
        assert len(found) == 1
        offsets.add(found[0])
    assert len(offsets) > 10


def test_the_generator_decides() -> None:
    for change in (random_flip, random_crop):
        a, b = (change(images(), torch.Generator().manual_seed(s)) for s in (3, 3))
        c = change(images(), torch.Generator().manual_seed(4))
        assert a.equal(b) and not a.equal(c)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="images"):
        random_flip(torch.zeros(3, 3), torch.Generator())
    with pytest.raises(InputError, match="padding"):
        random_crop(images(), torch.Generator(), padding=-1)
    with pytest.raises(InputError, match="probability"):
        random_flip(images(), torch.Generator(), probability=2.0)
