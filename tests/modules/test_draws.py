"""Numbers that belong to a name: frozen values, other processes, the distributions."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from fiberscope.modules import draws
from fiberscope.modules.draws import lowest, normal, raw, stream, uniform

FROZEN_RAW = [11157405412391016800, 63896362057724795]
FROZEN_UNIFORM = ["0x1.35ae2237592cbp-1", "0x1.c602ce35c7e00p-9"]
FROZEN_NORMAL = ["-0x1.0834b309ee21ap-4", "0x1.ad1699822b48cp-3", "-0x1.310e3d70b54cep+0", "-0x1.53310ed45eb2ep+0"]
FROZEN_MASK = [1, 5, 8, 10]
FROZEN_NET = "2d30d6d065624d5060e86778342cac1604350883dbb2c38e4e4c81d1aac086d4"

CODE = """
import hashlib
import torch
from fiberscope.neurons.asymmetry import break_symmetry
from fiberscope.modules.models import mlp
net = break_symmetry(mlp((6, 5, 4)), "w", 3, fixed=2)
digest = hashlib.sha256()
for name, value in sorted(net.named_buffers()):
    digest.update(name.encode() + value.numpy().tobytes())
net = break_symmetry(mlp((6, 5, 4)), "syre", 3)
for name, value in sorted(net.named_buffers()):
    digest.update(name.encode() + value.numpy().tobytes())
print(digest.hexdigest())
"""


def test_frozen_numbers() -> None:
    """These never change: published results hang on them."""
    assert raw(stream(0, "layer"), 2).tolist() == FROZEN_RAW
    assert [float(x).hex() for x in uniform(stream(0, "layer"), 2)] == FROZEN_UNIFORM
    assert [float(x).hex() for x in normal(stream(0, "layer"), 4)] == FROZEN_NORMAL
    assert np.flatnonzero(lowest(stream(0, "layer"), 2, 6, 2)).tolist() == FROZEN_MASK


def test_two_processes_with_other_hash_seeds_agree() -> None:
    seen = set()
    for seed in ("0", "12345"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        seen.add(done.stdout.strip())
    assert seen == {FROZEN_NET}


def test_streams_of_other_names_and_seeds_differ() -> None:
    streams = [stream(0, "a"), stream(1, "a"), stream(0, "b"), stream(0, "a", "F"), stream(0, "a", "D")]
    assert len({tuple(raw(source, 2).tolist()) for source in streams}) == len(streams)


def test_a_longer_draw_begins_with_the_shorter() -> None:
    long = normal(stream(0, "x"), 5000)
    for count in (0, 1, 7, 1000):
        assert np.array_equal(normal(stream(0, "x"), count), long[:count])


def test_distributions() -> None:
    assert stats.kstest(normal(stream(0, "law"), 20_000), "norm").pvalue > 0.01
    assert stats.kstest(uniform(stream(0, "law"), 20_000), "uniform").pvalue > 0.01
    counts = lowest(stream(0, "law"), 4000, 8, 3).sum(axis=0)
    assert np.abs(counts - 1500).max() < 5 * np.sqrt(4000 * 3 / 8 * 5 / 8)


@pytest.mark.parametrize("range_", [(-1e-12, 0.0), (-1.0, 0.0), (-700.0, 0.0)])
def test_logarithm_of_basic_operations(range_: tuple[float, float]) -> None:
    x = np.exp(np.random.default_rng(0).uniform(*range_, 10_000))
    expected = np.log(x)
    assert (np.abs(draws._log(x) - expected) <= 4e-16 * np.maximum(np.abs(expected), 1e-300) + 1e-300).all()


def test_masks_are_nested() -> None:
    small, large = (lowest(stream(5, "m"), 10, 20, count) for count in (3, 9))
    assert (small <= large).all() and (large.sum(axis=1) == 9).all()
