"""Where is a convolutional network with max pooling linear? Draws ``slice_of_a_cnn.png``.

Three random images span a plane in the input space of a small torch CNN with batch normalisation, max pooling and a
skip connection. On that plane every region is found exactly, and the result is verified.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import fiberscope as fs


class SmallCNN(nn.Module):
    """Two convolutions with a skip connection, batch normalisation and max pooling on 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
        self.second = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.head(x + self.second(x))


def main() -> None:
    torch.manual_seed(0)
    net = fs.load(SmallCNN().eval(), input_shape=(1, 8, 8))
    print(net)
    a, b, c = np.random.default_rng(0).normal(size=(3, 64))
    complex = fs.regions(net, fs.Plane.through(a, b, c, margin=0.0))
    print(complex)
    print(complex.verify())
    ax = fs.plot.regions(complex, color="mosaic")
    ax.set_title(f"{complex.num_regions} regions of a CNN on a plane through three images")
    fs.plot.save_figure(ax, "slice_of_a_cnn.png", dpi=110)


if __name__ == "__main__":
    main()
