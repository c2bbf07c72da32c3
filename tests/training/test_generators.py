"""The project's own generator: deterministic, learns, round trips, and feeds the geometry."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry.curves.generated import GeneratorCurve, regions_through
from fiberscope.geometry.surfaces.generated import GeneratorSurface, regions_over
from fiberscope.network.network import Network
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.generators import load_generator, train_generator


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def made(digits):
    return train_generator(digits, epochs=20)


@pytest.fixture(scope="module")
def smooth(digits):
    return train_generator(digits, epochs=3, smooth=True)


def same(a, b) -> bool:
    first, second = a.decoder.state_dict(), b.decoder.state_dict()
    return all(torch.equal(first[k], second[k]) for k in first) and np.array_equal(a.losses, b.losses)


@pytest.mark.parametrize("kind", [False, True])
def test_the_same_seed_gives_the_same_bits(digits, kind):
    before = torch.random.get_rng_state()
    runs = [train_generator(digits.inputs[:300], epochs=2, smooth=kind, seed=s) for s in (5, 5, 6)]
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_learns(digits, made):
    assert made.losses[-1] < 0.7 * made.losses[0]
    X = digits.flat_inputs
    error = ((made(made.encode(digits.inputs)) - X) ** 2).sum(axis=1).mean()
    spread = ((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert error < 0.75 * spread  # better than the mean image
    assert made.image_shape == (1, 8, 8)


def test_quick_settings_are_quick(digits):
    begin = time.process_time()
    train_generator(digits, epochs=3)
    assert (time.process_time() - begin) * 10 < 60  # thirty epochs by default


@pytest.mark.parametrize("which", ["made", "smooth"])
def test_round_trip(which, request, tmp_path):
    generator = request.getfixturevalue(which)
    generator.save(tmp_path / "g.pt")
    again = load_generator(tmp_path / "g.pt")
    assert same(generator, again)
    assert again.settings == generator.settings and repr(again) == repr(generator)
    assert torch.equal(generator.encoder[0].weight, again.encoder[0].weight)
    Z = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(generator(Z), again(Z))


def test_exact_regions_on_the_image_manifold(made):
    net = Network.random((64, 16, 8, 10), 0)
    Z = np.random.default_rng(1).normal(size=(3, 4))
    curve = GeneratorCurve(made.decoder, Z[0], Z[1])
    found = regions_through(net, curve)
    assert curve.exact and found.certified
    assert found.latent_regions > found.num_regions > 1
    assert made.network().widths == (4, 32, 64, 64)
    np.testing.assert_allclose(curve([0.0, 1.0]), made(Z[:2]), atol=1e-5)
    over = regions_over(net, GeneratorSurface(made.decoder, *Z))
    assert over.latent_regions > over.num_regions > found.num_regions // 4


def test_a_smooth_generator_is_refined(smooth):
    with pytest.raises(UnsupportedModelError):
        smooth.network()
    net = Network.random((64, 16, 8, 10), 0)
    Z = np.random.default_rng(1).normal(size=(2, 4))
    found = regions_through(net, GeneratorCurve(smooth.decoder, *Z, points=20))
    assert found.settled and found.latent_regions is None
    assert smooth(Z).min() >= 0 and smooth(Z).max() <= 1


def test_progress_and_interrupt(digits):
    seen = []

    def stop(done, total, text):
        seen.append((done, total, text.startswith("loss ")))
        if done == 2:
            raise KeyboardInterrupt

    made = train_generator(digits.inputs[:200], epochs=5, progress=stop)
    assert seen == [(1, 5, True), (2, 5, True)]
    assert len(made.losses) == 2 and made.to_dict()["settings"]["epochs"] == 5


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.zeros((1, 4)), {}, "at least two images"),
        (np.full((5, 4), 2.0), {}, "from 0 to 1"),
        (np.full((5, 4), np.nan), {}, "finite"),
        (np.zeros((5, 4)), {"latent": 0}, "latent"),
        (np.zeros((5, 4)), {"epochs": 0}, "epochs"),
        (np.zeros((5, 4)), {"widths": (3, 0)}, "widths"),
        (np.zeros((5, 4)), {"lr": -1.0}, "lr"),
        (np.zeros((5, 4)), {"seed": -1}, "seed"),
    ],
)
def test_refused(data, options, message):
    with pytest.raises(InputError, match=message):
        train_generator(data, **options)


def test_bad_files_and_shapes_are_refused(made, tmp_path):
    with pytest.raises(InputError, match="ends in"):
        made.save(tmp_path / "g.bin")
    with pytest.raises(InputError, match="cannot be read"):
        load_generator(tmp_path / "absent.pt")
    (tmp_path / "bad.pt").write_bytes(b"not a file of torch")
    with pytest.raises(InputError, match="damaged"):
        load_generator(tmp_path / "bad.pt")
    torch.save({"about": '{"format": "other"}'}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="format"):
        load_generator(tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"\(count, 4\)"):
        made(np.zeros((2, 3)))


def test_convolutional_decoders_are_networks_and_survive_a_file(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((6, 3, 8, 8))
    made = train_generator(images, epochs=1, latent=2, channels=(4, 3))
    Z = np.random.default_rng(1).normal(size=(3, 2))
    assert made(Z).shape == (3, 192)
    np.testing.assert_allclose(made.network()(Z), made(Z), atol=1e-5)
    made.save(tmp_path / "made.pt")
    np.testing.assert_array_equal(load_generator(tmp_path / "made.pt")(Z), made(Z))
    assert made.encode(images).shape == (6, 2)
    with pytest.raises(InputError, match="halved 4 times"):
        train_generator(images, channels=(1, 1, 1, 1))
    with pytest.raises(InputError, match="channels: expected images"):
        train_generator(np.eye(4), channels=(2,))
