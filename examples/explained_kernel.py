"""Why do directions of the parameters change nothing? The kernel of the Jacobian by reasons, of two networks.

A chain on a decisive set, where the answer is about all inputs; and a convolutional network with batch normalisation,
pooling and a skip connection on a batch of images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import fiberscope as fs


class Residual(nn.Module):
    """A convolution, and one more that is added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)
        self.second, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(27, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(x + self.second(x))
        return self.last(nn.functional.max_pool2d(x, 2).flatten(1))


def main() -> None:
    torch.manual_seed(0)
    module = Residual().eval()
    with torch.no_grad():
        module.norm.running_mean.normal_()
    images = np.random.default_rng(0).normal(size=(200, 1, 8, 8))
    found = {
        "a chain 2-12-12-1, all inputs": fs.explain(fs.Network.random((2, 12, 12, 1), 0)),
        "a residual network, 200 images": fs.explain(fs.load(module, (1, 8, 8)), images),
    }
    with fs.plot.house_style():
        figure = Figure(figsize=(7.0, 6.4), layout="constrained")
        axes = figure.subplots(2, 1)
        for ax, (name, kernel) in zip(axes, found.items(), strict=True):
            print(f"{name}: {kernel.sentence}")
            print(f"  certified: {kernel.certified}; between fiber and kernel: {kernel.gap}")
            fs.plot.kernel_parts(kernel, ax=ax).set_title(f"{name}: a kernel of {kernel.nullity}")
    fs.plot.save_figure(axes[0], Path("explained_kernel.png"))


if __name__ == "__main__":
    main()
