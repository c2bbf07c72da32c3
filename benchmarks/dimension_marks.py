"""Functional dimension of networks of real size: CPU seconds of one thread, the answer, and what certifies it.

``python benchmarks/dimension_marks.py --only parameter``. Images of the CNN are random unless ``--images FILE.npy``
names an array of shape ``(n, 1, 28, 28)``. What takes less than ten seconds runs twice: kernels are compiled once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import fiberscope as fs


def parameter() -> str:
    """The functional dimension of the parameter itself, 2-48-48-1."""
    found = fs.functional_dimension(fs.Network.random((2, 48, 48, 1), 0))
    return f"exact {found.exact}, certified {found.certified}"


def wide() -> str:
    """784-512x3-10, exact rank on 1,000 points without floats."""
    net = fs.Network.random((784, 512, 512, 512, 10), 0)
    points = np.random.default_rng(1).uniform(size=(1000, 784))
    found = fs.functional_dimension(net, points, ranks="exact", memory=5 << 30)
    return f"exact {found.exact} of 10,000 rows"


def small() -> str:
    """768 points of 8-10x4-1, 431 parameters."""
    net = fs.Network.random((8, 10, 10, 10, 10, 1), 0)
    found = fs.functional_dimension(net, np.random.default_rng(1).uniform(size=(768, 8)), ranks="exact")
    return f"exact {found.exact} of {net.num_parameters}"


def lenet(images: np.ndarray) -> str:
    """A LeNet with batch norm and max pooling on 500 images."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ).eval()  # fmt: skip
    net = fs.load(module, input_shape=(1, 28, 28))
    found = fs.functional_dimension(net, images[:500].reshape(500, -1).astype(np.float64), ranks="exact")
    return f"exact {found.exact} of 5,000 rows, certified {found.certified}"


def explained() -> str:
    """What the kernel of 2-24-24-1 is made of."""
    found = fs.explain(fs.Network.random((2, 24, 24, 1), 0))
    return f"rank {found.rank}, gap {found.gap}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--images", default=None)
    given = parser.parse_args()
    images = np.load(given.images) if given.images else np.random.default_rng(0).uniform(size=(500, 1, 28, 28))
    marks: dict[str, Callable[[], str]] = {
        "parameter": parameter, "wide": wide, "small": small, "lenet": lambda: lenet(images), "explain": explained,
    }  # fmt: skip
    for name, mark in marks.items():
        if given.only in name:
            for _ in range(2):
                begin = time.process_time()
                said = mark()
                spent = time.process_time() - begin
                if spent > 10:
                    break
            print(f"{name:10} {spent:8.3f} s  {said}", flush=True)


if __name__ == "__main__":
    main()
