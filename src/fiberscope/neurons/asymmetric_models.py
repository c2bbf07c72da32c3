"""The symmetry-broken models of :cite:`neuronidentifiability` (appendix G), at the paper's sizes or smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.modules.models import Attention, mlp, resnet20, vit
from fiberscope.neurons.asymmetry import break_symmetry

RESNET_FIXED: Mapping[str, int] = {
    "conv": 12,
    "group2.*.shortcut.conv": 18,
    "group3.*.shortcut.conv": 24,
    "group1.*": 108,
    "group2.*": 162,
    "group3.*": 216,
    "linear": 24,
}
"""Table 3: fixed entries per input channel at width 8 (per row of the last layer)."""

MASKS = ("entries", "coupled")
"""Of vision transformers: every map by itself, or those that are multiplied with each other alike."""


def w_mlp(
    widths: Sequence[int] = (784, 512, 512, 512, 10),
    seed: int = 0,
    architecture_seed: int = 0,
    *,
    fixed: Any = None,
    sigma: Any = 1.0,
    scheme: str = "w",
    epsilon: Any = 0.1,
    **options: Any,
) -> nn.Module:
    """The W-MLP: layer norm, GELU, 64 fixed entries per row and 256 in the last layer, ``sigma_F = 1``.

    At other widths an eighth of each row, and half of the last layer's. ``sigma=0`` is the variant that breaks nothing;
    the standard network is :func:`fiberscope.modules.models.mlp`. With ``scheme="syre"`` ``epsilon=0`` is the variant
    of the authors' code, ``D = 1``.

    >>> net = w_mlp((16, 8, 8, 4))
    >>> [int((net.get_submodule(f"linear{i}").parametrizations.weight[0].D == 0)[0].sum()) for i in range(3)]
    [2, 1, 4]
    """
    if fixed is None:
        paper = tuple(widths) == (784, 512, 512, 512, 10)
        rows = [max(1, n // 8) for n in widths[:-2]] + [max(1, widths[-2] // 2)]
        fixed = (64, 64, 64, 256) if paper else rows
    settings = {"fixed": fixed} if scheme in {"w", "sparse"} else {"epsilon": epsilon}
    return break_symmetry(mlp(widths, seed, **options), scheme, architecture_seed, sigma=sigma, **settings)


def w_resnet20(
    width: int = 8, seed: int = 0, architecture_seed: int = 0, *, fixed: Any = None, sigma: Any = 2.0, **options: Any
) -> nn.Module:
    """The W-ResNet20 with the numbers of Table 3; at other widths they shrink with the channels. ``sigma_F = 2``.

    >>> net = w_resnet20(1, blocks=1)
    >>> (net.conv.parametrizations.weight[0].D == 0).sum(dim=(0, 2, 3)).tolist()
    [2, 2, 2]
    """
    if fixed is None:
        fixed = {name: max(1, round(count * width / 8)) for name, count in RESNET_FIXED.items()}
    return break_symmetry(resnet20(width, seed, **options), "w", architecture_seed, fixed=fixed, sigma=sigma)


def w_vit(
    size: int = 384,
    depth: int = 8,
    heads: int = 6,
    seed: int = 0,
    architecture_seed: int = 0,
    *,
    fixed: Any = 8,
    sigma: Any = 1.0,
    masks: str = "entries",
    **options: Any,
) -> nn.Module:
    """The W-ViT: 8 fixed entries in every row of every linear map, the patch embedding and the head included.

    ``masks="coupled"`` is ours, after the outlook of appendix H.4: queries and keys that are multiplied with each other
    have their fixed entries in the same places, and so have values and the columns of the output that read them. What
    a map of one of them changes in a fixed place, its inverse then changes in a fixed place of the other.

    >>> net = w_vit(16, depth=1, heads=2, image=8)
    >>> int((net.head.parametrizations.weight[0].D == 0).sum())
    80
    """
    if masks not in MASKS:
        raise InputError(f"masks: expected one of {', '.join(MASKS)}, got {masks!r}")
    module = break_symmetry(vit(size, depth, heads, seed, **options), "w", architecture_seed, fixed=fixed, sigma=sigma)
    for part in module.modules():
        if masks == "coupled" and isinstance(part, Attention):
            _couple(part.query, part.key, lambda mask: mask)
            _couple(part.value, part.out, lambda mask: mask.T)
    return module


def _couple(first: nn.Module, second: nn.Module, place: Callable[[Tensor], Tensor]) -> None:
    """Move the fixed entries of a layer to the places of another's; there are as many, and they keep their values."""
    leading, moved = (cast(Any, layer).parametrizations.weight[0] for layer in (first, second))
    old, new = moved.D == 0, place(leading.D == 0)
    fixed = torch.zeros_like(moved.F)
    fixed[new] = moved.F[old]
    moved.F.copy_(fixed)
    moved.D.copy_((~new).to(moved.D))
