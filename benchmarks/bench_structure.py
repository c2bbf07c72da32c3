"""Proofs of equality by structure on convolutional and residual networks, against a comparison at random inputs.

The comparison proves nothing; it is what everybody does, so it is the time to beat. Batch normalisation is folded in
float32, and channels are permuted and rescaled by powers of two.
"""

from __future__ import annotations

import copy
import itertools

import numpy as np
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fiberscope.connectivity.structure import permutation_structure
from fiberscope.equality.ladder import equivalent
from fiberscope.network.io import load
from fiberscope.network.network import Network
from harness import Case


class Block(nn.Module):
    """Two convolutions beside the identity, or beside a convolution of one pixel."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        short = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)]
        self.down = nn.Sequential(*(short if stride > 1 or before != after else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.down(x))


def resnet(blocks: tuple[int, ...] = (2, 2, 2, 2), width: int = 64, classes: int = 10) -> nn.Sequential:
    """ResNet-18, with statistics of batch normalisation as after training."""
    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    parts.append(nn.MaxPool2d(3, 2, 1))
    before = width
    for k, count in enumerate(blocks):
        for j in range(count):
            after = width << k
            parts.append(Block(before, after, 2 if j == 0 and k else 1))
            before = after
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(before, classes))
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None and part.running_var is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, 0, 0.1)
    return net.eval()


def folded(net: nn.Module) -> nn.Module:
    """A copy with batch normalisation folded in float32."""
    made = copy.deepcopy(net)
    for part in list(made.modules()):
        names = list(part.named_children())
        for (one, conv), (two, norm) in itertools.pairwise(names):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(part, one, fuse_conv_bn_eval(conv, norm))
                setattr(part, two, nn.Identity())
    return made


def sampled(a: Network, b: Network) -> bool:
    x = np.random.default_rng(0).uniform(size=(8, a.in_size))
    return bool(np.abs(a(x) - b(x)).max() < 1e-3)


def pair_case(name: str, net: nn.Module, other: nn.Module, shape: tuple[int, ...], quick: bool) -> Case:
    a, b = load(net, shape), load(other, shape)
    return Case(
        method=f"proof of equality by structure, {name}",
        network=f"{a.num_parameters} parameters, {'x'.join(map(str, shape))}",
        ours=lambda: equivalent(a, b, time_limit=600).equal is True,
        reference=lambda: sampled(a, b),
        quick=quick,
    )


def cases() -> list[Case]:
    small, large = resnet((1, 1), 8), resnet()
    found = []
    for net, shape, quick in ((small, (3, 32, 32), True), (large, (3, 32, 32), False), (large, (3, 64, 64), False)):
        structure = permutation_structure(net, torch.zeros(1, *shape))
        moved = structure.apply(net, structure.random(0))
        found.append(pair_case("batch normalisation folded", net, folded(net), shape, quick))
        found.append(pair_case("folded, permuted, rescaled", net, folded(moved), shape, quick))
    return found
