"""The architectures of the papers on mode connectivity: an MLP, ResNet20 with group norm, and a vision transformer.

Every activation is a module of its own and every linear map a plain layer, so that recording, symmetry breaking and
matching find them by name. Weights come from ``seed`` alone; the global generator is not touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from fiberscope.errors import InputError

ModuleT = TypeVar("ModuleT", bound=nn.Module)

_NORMS = ("layer", "batch", "none")


def mlp(
    widths: Sequence[int] = (784, 512, 512, 512, 10),
    seed: int = 0,
    *,
    norm: str = "layer",
    activation: type[nn.Module] = nn.GELU,
    bias: bool = True,
) -> nn.Sequential:
    """Linear maps with a norm and an activation after each but the last; layers ``linear0``, ``norm0``, ``act0``, ...

    Weights are ``N(0, 1/d)``, biases zero, as in :cite:`neuronidentifiability`, G.1.

    Parameters
    ----------
    widths
        ``(n_0, ..., n_L)``; images are flattened.
    norm
        ``"layer"``, ``"batch"`` or ``"none"``.

    Examples
    --------
    >>> net = mlp((4, 3, 2))
    >>> [name for name, _ in net.named_children()]
    ['flatten', 'linear0', 'norm0', 'act0', 'linear1']
    >>> net(torch.zeros(5, 2, 2)).shape
    torch.Size([5, 2])
    """
    if len(widths) < 2 or min(widths) < 1:
        raise InputError(f"widths: expected at least two positive integers, got {tuple(widths)}")
    if norm not in _NORMS:
        raise InputError(f"norm: expected one of {', '.join(_NORMS)}, got {norm!r}")
    with torch.random.fork_rng(devices=[]):
        return _initialised(_chain(widths, norm, activation, bias), seed, gain=1.0)


def _chain(widths: Sequence[int], norm: str, activation: type[nn.Module], bias: bool) -> nn.Sequential:
    net = nn.Sequential()
    net.add_module("flatten", nn.Flatten())
    for i, (n, m) in enumerate(pairwise(widths)):
        net.add_module(f"linear{i}", nn.Linear(n, m, bias=bias))
        if i < len(widths) - 2:
            if norm != "none":
                net.add_module(f"norm{i}", nn.LayerNorm(m) if norm == "layer" else nn.BatchNorm1d(m))
            net.add_module(f"act{i}", activation())
    return net


class Block(nn.Module):
    """Two convolutions with group norm and a shortcut around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(1, channels)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(1, channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            shortcut = nn.Sequential()
            shortcut.add_module("conv", nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False))
            shortcut.add_module("norm", nn.GroupNorm(1, channels))
            self.shortcut = shortcut
        self.act2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        result: Tensor = self.act2(inner + self.shortcut(x))
        return result


def resnet20(width: int = 8, seed: int = 0, *, classes: int = 10, channels: int = 3, blocks: int = 3) -> nn.Sequential:
    """ResNet20 for small images with ``GroupNorm(1)``; ``16 width``, ``32 width``, ``64 width`` channels. He weights.

    Layers ``conv``, ``group1.0.conv1``, ``group2.0.shortcut.conv``, ..., ``linear``.

    >>> net = resnet20(1)
    >>> net(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> sum(isinstance(part, nn.Conv2d) for part in net.modules())
    21
    """
    if min(width, classes, channels, blocks) < 1:
        raise InputError(f"resnet20: expected positive sizes, got {(width, classes, channels, blocks)}")
    with torch.random.fork_rng(devices=[]):
        return _initialised(_residual(width, classes, channels, blocks), seed, gain=2.0)


def _residual(width: int, classes: int, channels: int, blocks: int) -> nn.Sequential:
    net = nn.Sequential()
    net.add_module("conv", nn.Conv2d(channels, 16 * width, 3, padding=1, bias=False))
    net.add_module("norm", nn.GroupNorm(1, 16 * width))
    net.add_module("act", nn.ReLU())
    before = 16 * width
    for group, planes in enumerate((16 * width, 32 * width, 64 * width), start=1):
        members = []
        for index in range(blocks):
            members.append(Block(before, planes, 2 if group > 1 and index == 0 else 1))
            before = planes
        net.add_module(f"group{group}", nn.Sequential(*members))
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("linear", nn.Linear(before, classes))
    return net


class Attention(nn.Module):
    """Self-attention with one linear layer for each of queries, keys, values and outputs."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        def split(value: Tensor) -> Tensor:
            return value.reshape(*value.shape[:-1], self.heads, -1).transpose(-3, -2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        result: Tensor = self.out(mixed.transpose(-3, -2).flatten(-2))
        return result


class Encoder(nn.Module):
    """One block of a transformer, norms first."""

    def __init__(self, size: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size)
        self.attention = Attention(size, heads)
        self.norm2 = nn.LayerNorm(size)
        self.linear1 = nn.Linear(size, ratio * size)
        self.act = nn.GELU()
        self.linear2 = nn.Linear(ratio * size, size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        result: Tensor = x + self.linear2(self.act(self.linear1(self.norm2(x))))
        return result


class VisionTransformer(nn.Module):
    """Patches, a class token, positions, blocks of attention, a linear head on the class token."""

    def __init__(
        self, image: int, patch: int, size: int, depth: int, heads: int, ratio: int, classes: int, channels: int
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, size, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, size))
        self.positions = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, size))
        self.blocks = nn.Sequential(*(Encoder(size, heads, ratio) for _ in range(depth)))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1) + self.positions
        result: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return result


def vit(
    size: int = 384,
    depth: int = 8,
    heads: int = 6,
    seed: int = 0,
    *,
    image: int = 32,
    patch: int = 4,
    ratio: int = 4,
    classes: int = 10,
    channels: int = 3,
) -> VisionTransformer:
    """The vision transformer of :cite:`neuronidentifiability` (H.4): patch 4, dimension 384, depth 8, 6 heads, ratio 4.

    >>> net = vit(16, depth=1, heads=2, image=8)
    >>> net(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    if size % heads or image % patch:
        raise InputError(
            f"vit: expected heads to divide size and patch to divide image, got {heads}, {size}, {patch}, {image}"
        )
    with torch.random.fork_rng(devices=[]):
        net = VisionTransformer(image, patch, size, depth, heads, ratio, classes, channels)
    generator = torch.Generator().manual_seed(int(seed))
    _initialised(net, seed, gain=1.0, generator=generator)
    with torch.no_grad():
        for extra in (net.token, net.positions):
            extra.normal_(std=0.02, generator=generator)
    return net


def _initialised(net: ModuleT, seed: int, gain: float, generator: torch.Generator | None = None) -> ModuleT:
    """Weights ``N(0, gain / fan_in)`` and zero biases; norms keep ones and zeros."""
    source = generator or torch.Generator().manual_seed(int(seed))
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, nn.Linear | nn.Conv2d):
                part.weight.normal_(std=math.sqrt(gain / part.weight[0].numel()), generator=source)
                if part.bias is not None:
                    part.bias.zero_()
    return net
