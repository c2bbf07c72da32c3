"""Enlarged and mirrored images, and trainings that see them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.training.augment import enlarged, random_flips
from fiberscope.training.seeds import train_many


def test_enlarged_images_keep_constants_and_edges() -> None:
    images = np.random.default_rng(0).random((2, 3, 4, 4))
    large = enlarged(images, 16)
    assert large.shape == (2, 3, 16, 16)
    corners = (slice(None), slice(None), [0, 0, -1, -1], [0, -1, 0, -1])
    np.testing.assert_allclose(large[corners], images[corners], rtol=1e-15)
    assert large.min() >= images.min()
    assert large.max() <= images.max()
    with pytest.raises(InputError, match="side: expected a positive integer"):
        enlarged(images, 0)


def test_flips_mirror_left_and_right_and_half_of_them() -> None:
    images = torch.arange(24.0).reshape(1, 2, 3, 4).repeat(400, 1, 1, 1)
    seen = random_flips((2, 3, 4))(images.reshape(400, -1), np.random.default_rng(0)).reshape(400, 2, 3, 4)
    flipped = (seen == images.flip(-1)).all(dim=(1, 2, 3))
    assert bool((flipped | (seen == images).all(dim=(1, 2, 3))).all())
    assert 150 < int(flipped.sum()) < 250


def test_a_training_sees_what_augment_gives_and_each_run_its_own() -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 4)), np.zeros((8, 1))
    settings = {"epochs": 3, "batch_size": 4}
    plain = train_many((4, 3, 1), (X, y), [0, 1], **settings)
    same = train_many((4, 3, 1), (X, y), [0, 1], augment=lambda x, rng: x, **settings)
    flips = train_many((4, 3, 1), (X, y), [0, 1], augment=random_flips((1, 1, 4)), **settings)
    alone = train_many((4, 3, 1), (X, y), [1], augment=random_flips((1, 1, 4)), **settings)
    np.testing.assert_array_equal(plain.losses, same.losses)
    assert not np.allclose(plain.losses, flips.losses)
    np.testing.assert_allclose(flips.losses[1], alone.losses[0], rtol=1e-12)
