"""Models of many kinds, tiny and without downloads: who is asked for its permutation structure, and what is there.

Every entry builds a module and an example from a seed. ``groups`` are the sizes that are expected, as ``size`` or
``(size, copies)``, in any order; every group of the true structure is listed, so that a lost one is seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Entry:
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    groups: tuple[int | tuple[int, int], ...]
    output: Any = None


def pixels(channels: int = 3, size: int = 16) -> Callable[[], Tensor]:
    return lambda: torch.randn(2, channels, size, size)


# -- convolutions ------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.act = nn.ReLU(inplace=True)
        self.down: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.down = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        y += self.down(x)
        return self.act(y)


def resnet18(width: int = 4) -> nn.Module:
    stages = []
    before = width
    for k in range(4):
        after = width * 2**k
        stages += [Block(before, after, 1 if k == 0 else 2), Block(after, after)]
        before = after
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(before, 5),
    )


def vgg() -> nn.Module:
    """Flattened into a linear layer: channels times places."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 7, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(7 * 16, 9),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(9, 3),
    )


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, inside, 1), nn.Conv2d(inside, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(scale)


class Inverted(nn.Module):
    """As in MobileNet and EfficientNet: depthwise in the middle."""

    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(width, inside, 1), nn.BatchNorm2d(inside), nn.Hardswish())
        self.depth = nn.Sequential(
            nn.Conv2d(inside, inside, 3, padding=1, groups=inside), nn.BatchNorm2d(inside), nn.ReLU6()
        )
        self.gate = SqueezeExcite(inside, 3)
        self.project = nn.Sequential(nn.Conv2d(inside, width, 1), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(self.gate(self.depth(self.expand(x))))


def mobilenet() -> nn.Module:
    stem = nn.Conv2d(3, 5, 3, 2, 1)
    return nn.Sequential(
        stem, nn.SiLU(), Inverted(5, 8), Inverted(5, 7), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)
    )


class DenseLayer(nn.Module):
    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(before), nn.Conv2d(before, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], dim=1)


def densenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        DenseLayer(6, 4),
        DenseLayer(10, 4),
        nn.BatchNorm2d(14),
        nn.ReLU(),
        nn.Conv2d(14, 7, 1),
        nn.AvgPool2d(2),
        DenseLayer(7, 5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gamma = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 4, 4),
        ConvNeXtBlock(6),
        ConvNeXtBlock(6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


class ShuffleUnit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.conv = nn.Sequential(nn.Conv2d(half, half, 1), nn.BatchNorm2d(half), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        both = torch.cat([left, self.conv(right)], dim=1)
        n, c, h, w = both.shape
        return both.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), ShuffleUnit(8), ShuffleUnit(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )


def grouped() -> nn.Module:
    """Group norm and grouped convolutions: blocks of channels, and channels inside each block."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 3),
        nn.GroupNorm(4, 12),
        nn.ReLU(),
        nn.Conv2d(12, 8, 1, groups=4),
        nn.GELU(),
        nn.ConvTranspose2d(8, 6, 2, 2, groups=2),
        nn.ReLU(),
        nn.Conv2d(6, 4, 1),
        nn.InstanceNorm2d(4, affine=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.GroupNorm(1, 5), nn.SiLU())
        self.down2 = nn.Sequential(nn.Conv2d(5, 6, 3, 2, 1), nn.GroupNorm(1, 6), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(6, 7, 3, 2, 1), nn.ReLU(), nn.Conv2d(7, 4, 3, padding=1))
        self.up2 = nn.ConvTranspose2d(4, 4, 2, 2)
        self.join2 = nn.Conv2d(10, 8, 3, padding=1)
        self.last = nn.Conv2d(13, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(a)
        c = self.up2(self.middle(b))
        d = F.relu(self.join2(torch.cat([c, b], 1)))
        d = F.interpolate(d, scale_factor=2, mode="bilinear")
        return self.last(torch.cat([d, a], 1))


class WaveNet(nn.Module):
    """One-dimensional, dilated, gated, with skips that are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(2, 6, 1)
        self.filters = nn.ModuleList(nn.Conv1d(6, 10, 2, dilation=2**k, padding=2**k) for k in range(2))
        self.residual = nn.ModuleList(nn.Conv1d(5, 6, 1) for _ in range(2))
        self.skips = nn.ModuleList(nn.Conv1d(5, 7, 1) for _ in range(2))
        self.end = nn.Conv1d(7, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h, total = self.start(x), torch.zeros(())
        for f, r, s in zip(self.filters, self.residual, self.skips, strict=True):
            a, b = f(h)[..., : h.shape[-1]].chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            total = total + s(z)
            h = h + r(z)
        return self.end(F.relu(total))


class PixelUp(nn.Module):
    """Super-resolution: channels become places."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 20, 3, padding=1)
        self.prelu, self.c = nn.PReLU(6), nn.Conv2d(5, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu(F.pixel_shuffle(self.b(self.prelu(self.a(x))), 2)))


# -- attention ---------------------------------------------------------------------------------------------------------


class FusedAttention(nn.Module):
    """As in timm: one projection seen as ``(3, heads, dims)`` and unbound."""

    def __init__(self, width: int, heads: int, norm: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width // heads) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.norm(q), self.norm(k)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, norm: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = FusedAttention(width, heads, norm)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width: int = 12, heads: int = 3, hidden: int = 20, depth: int = 2, norm: bool = False) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads, hidden, norm) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class MultiHead(nn.Module):
    """Torch's own attention, self and cross, and its encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True)
        self.memory = nn.Linear(6, 9)
        self.cross = nn.MultiheadAttention(12, 2, kdim=9, vdim=9, batch_first=True)
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, m = self.layer(self.first(x)), torch.relu(self.memory(x))
        return self.last(h + self.cross(h, m, m, need_weights=False)[0])


class Mixer(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.tokens = nn.Sequential(nn.Linear(16, 10), nn.GELU(), nn.Linear(10, 16))
        self.channels = nn.Sequential(nn.Linear(8, 11), nn.GELU(), nn.Linear(11, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(self.norm2(x))).mean(1))


class TiedLM(nn.Module):
    """The embedding read once more at the end; positions; a gated MLP in one matrix; RMS norms in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.pos = nn.Embedding(13, 8), nn.Embedding(10, 8)
        self.norm, self.attn = nn.Parameter(torch.rand(8)), FusedAttention(8, 2)
        self.up, self.down = nn.Linear(8, 18), nn.Linear(9, 8)
        self.head = nn.Linear(8, 13, bias=False)
        self.head.weight = self.emb.weight

    def rms(self, x: Tensor) -> Tensor:
        y = x.float()
        return self.norm * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        h = self.emb(x) + self.pos(torch.arange(x.shape[1]))
        h = h + self.attn(self.rms(h))
        gate, value = self.up(self.rms(h)).split(9, dim=-1)
        return self.head(self.rms(h + self.down(F.silu(gate) * value)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.cell = nn.Embedding(11, 5), nn.LSTM(5, 6, 2, batch_first=True)
        self.gru, self.out = nn.GRU(6, 7, batch_first=True), nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.gru(self.cell(self.emb(x))[0])[0])


def tokens(vocabulary: int = 13, length: int = 6) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, vocabulary, (2, length))


HEADS = (3, (4, 3), (4, 3))
"""Heads, and in each head an order of the dimensions of queries and keys, and one of the values'."""

OWN: dict[str, Entry] = {
    "resnet18": Entry(resnet18, pixels(), (4, 8, 16, 32, 4, 4, 8, 8, 16, 16, 32, 32)),
    "vgg": Entry(vgg, pixels(), (6, 7, 9)),
    "mobilenet": Entry(mobilenet, pixels(), (5, 8, 7, 3, 3)),
    "densenet": Entry(densenet, pixels(), (6, 4, 4, 7, 5)),
    "convnext": Entry(convnext, pixels(), (6, 12, 12)),
    "shufflenet": Entry(shufflenet, pixels(), (4, 2, 2)),
    "grouped": Entry(grouped, pixels(), (2, (2, 2), (3, 4), (2, 4), (3, 2), 4)),
    "unet": Entry(UNet, pixels(size=8), (5, 6, 7, 4, 4, 8)),
    "wavenet": Entry(WaveNet, lambda: torch.randn(2, 2, 9), (6, 5, 5, 7)),
    "pixel-shuffle": Entry(PixelUp, pixels(size=5), (6, 5)),
    "vit": Entry(ViT, pixels(), (12, 20, 20, *HEADS, *HEADS)),
    "vit-qk-norm": Entry(lambda: ViT(norm=True, depth=1), pixels(), (12, 20, 3, 4, (4, 3))),
    "multi-head": Entry(MultiHead, lambda: torch.randn(2, 4, 6), (12, 20, *HEADS, 9, 2, (6, 2), (6, 2))),
    "mixer": Entry(Mixer, pixels(), (8, 10, 11)),
    "tied-lm": Entry(TiedLM, tokens(), (8, 9, 2, (4, 2), (4, 2))),
    "recurrent": Entry(Recurrent, tokens(11), (5, 6, 6, 7)),
}


# -- Hugging Face ------------------------------------------------------------------------------------------------------


def hugging(kind: str, config: dict[str, Any]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        transformers = pytest.importorskip("transformers")
        family = re.split("For|LMHead", kind)[0]
        model: nn.Module = getattr(transformers, kind)(getattr(transformers, f"{family}Config")(**config))
        return model

    return build


SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SMALL = {
    "hidden_size": 24,
    "num_attention_heads": 6,
    "intermediate_size": 32,
    "vocab_size": 50,
    "num_hidden_layers": 2,
    **SPECIAL,
}
GQA = {**SMALL, "num_key_value_heads": 2}
GPT = {"n_embd": 24, "n_head": 6, "vocab_size": 50, "n_positions": 16, "n_layer": 2, **SPECIAL}


def ids() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 50, (2, 7))}


def both_ids() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 50, (2, 7)), "decoder_input_ids": torch.randint(3, 50, (2, 5))}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 16, 16)}


MHA = (6, (4, 6), (4, 6))
ROTARY = (6, (4, 6))
PARTLY = (6, (2, 6), (4, 6))
"""Two of four dimensions turn: a pair of a rotary has nobody to change places with."""
SHARED = (2, (3, 2), (4, 2))
"""Key-value heads, query heads of each, and the values' dimensions of each; rotary dimensions stay."""

HF: dict[str, Entry] = {
    "gpt2": Entry(hugging("GPT2LMHeadModel", GPT), ids, (24, 96, 96, *MHA, *MHA)),
    "llama": Entry(hugging("LlamaForCausalLM", GQA), ids, (24, 32, 32, *SHARED, *SHARED)),
    "llama-tied": Entry(
        hugging("LlamaForCausalLM", {**GQA, "tie_word_embeddings": True}), ids, (24, 32, 32, *SHARED, *SHARED)
    ),
    "mistral": Entry(hugging("MistralForCausalLM", GQA), ids, (24, 32, 32, *SHARED, *SHARED)),
    "qwen2": Entry(hugging("Qwen2ForCausalLM", GQA), ids, (24, 32, 32, *SHARED, *SHARED)),
    "gemma": Entry(hugging("GemmaForCausalLM", {**GQA, "head_dim": 4}), ids, (24, 32, 32, *SHARED, *SHARED)),
    "gpt-neox": Entry(hugging("GPTNeoXForCausalLM", SMALL), ids, (24, 32, 32, *PARTLY, *PARTLY)),
    "gptj": Entry(hugging("GPTJForCausalLM", {**GPT, "rotary_dim": 4}), ids, (24, 96, 96, *ROTARY, *ROTARY)),
    "bert": Entry(hugging("BertForMaskedLM", SMALL), ids, (24, 32, 32, *MHA, *MHA)),
    "vit-hf": Entry(
        hugging("ViTForImageClassification", {**SMALL, "image_size": 16, "patch_size": 4}),
        images,
        (24, 32, 32, *MHA, *MHA),
    ),
    "t5": Entry(
        hugging(
            "T5ForConditionalGeneration",
            {"d_model": 24, "num_heads": 6, "d_kv": 4, "d_ff": 32, "vocab_size": 50, "num_layers": 1, **SPECIAL},
        ),
        both_ids,
        (24, 32, 32, *MHA, *MHA, *MHA),
    ),
    "opt": Entry(
        hugging("OPTForCausalLM", {**SMALL, "ffn_dim": 32, "max_position_embeddings": 16, "word_embed_proj_dim": 24}),
        ids,
        (24, 32, 32, *MHA, *MHA),
    ),
    "bloom": Entry(
        hugging("BloomForCausalLM", {"hidden_size": 24, "n_head": 4, "vocab_size": 50, "n_layer": 2, **SPECIAL}),
        ids,
        (24, 96, 96, (6, 4), (6, 4), (6, 4), (6, 4)),
    ),
    "convnext-hf": Entry(
        hugging("ConvNextForImageClassification", {"hidden_sizes": [6, 8, 10, 12], "depths": [1, 1, 1, 1]}),
        lambda: {"pixel_values": torch.randn(2, 3, 32, 32)},
        (6, 8, 10, 12, 24, 32, 40, 48),
    ),
}
ZOO = {**OWN, **HF}
