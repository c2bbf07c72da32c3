"""One tensor out of several, in one way or another.

*Weights*: the weighted mean. *Slerp*: along the great circle between two tensors, whose length is the mean of their
lengths (Shoemake 1985). *TIES*: of what each model changed in a common base, the largest entries are kept, a sign is
elected for every entry, and the changes of that sign are averaged (Yadav et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fiberscope.errors import InputError

METHODS = ("weights", "slerp", "ties")

KEPT = 0.2
"""The part of the changes that TIES keeps, as its authors do."""

Rule = Callable[[list[Tensor]], Tensor]
"""One tensor out of several of one shape; for TIES the first is the base's."""


def rule_of(method: str, weights: Sequence[float] | None, count: int, keep: float = KEPT) -> Rule:
    """The rule of a method for so many models."""
    parts = _parts(weights, count)
    if method == "weights":
        return lambda held: _mean(held, parts)
    if method == "slerp":
        if count != 2:
            raise InputError(f"models: expected two for slerp, got {count}")
        return lambda held: _slerp(held, parts)
    if method == "ties":
        if not 0 < keep <= 1:
            raise InputError(f"keep: expected a part between 0 and 1, got {keep}")
        return lambda held: _ties(held, parts, keep)
    raise InputError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")


def rounded(held: list[Tensor], rule: Rule) -> Tensor:
    """A rule in float32 at least, rounded to the type that the tensors have; tensors that agree are as they are."""
    first = held[0]
    if not first.is_floating_point() or all(torch.equal(first, one) for one in held[1:]):
        return first
    wide = torch.float64 if first.dtype == torch.float64 else torch.float32
    return rule([one.to(wide) for one in held]).to(first.dtype)


def _parts(weights: Sequence[float] | None, count: int) -> list[float]:
    parts = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if parts.shape != (count,) or not (parts > 0).all() or not np.isfinite(parts).all():
        raise InputError(f"weights: expected {count} positive numbers, got {weights}")
    return [float(part) for part in parts / parts.sum()]


def _mean(held: list[Tensor], parts: Sequence[float]) -> Tensor:
    return sum((part * one for part, one in zip(parts, held, strict=True)), start=torch.zeros_like(held[0]))


def _slerp(held: list[Tensor], parts: Sequence[float]) -> Tensor:
    """On the great circle between two tensors; on the chord, where they point the same way, opposite, or nowhere.

    >>> _slerp([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])], [0.5, 0.5])
    tensor([0.7071, 0.7071])
    """
    x, y = held
    lengths = [float(torch.linalg.vector_norm(one.double())) for one in held]
    if min(lengths) == 0:
        return _mean(held, parts)
    cosine = float(torch.sum(x.double() * y.double())) / (lengths[0] * lengths[1])
    angle = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    bend = float(np.sin(angle))
    if not bend > float(torch.finfo(x.dtype).eps) ** 0.5:
        return _mean(held, parts)
    length = parts[0] * lengths[0] + parts[1] * lengths[1]
    factors = [float(np.sin(part * angle)) / bend * length / one for part, one in zip(parts, lengths, strict=True)]
    return factors[0] * x + factors[1] * y


def _ties(held: list[Tensor], parts: Sequence[float], keep: float) -> Tensor:
    """Changes of the first tensor, the base: trimmed, with a sign elected for each entry, and averaged."""
    base = held[0]
    changes = torch.stack([_trimmed(one - base, keep) for one in held[1:]])
    shares = torch.tensor(parts, dtype=changes.dtype, device=changes.device).reshape(-1, *(1,) * base.dim())
    elected = torch.sign((shares * changes).sum(0))
    agree = (torch.sign(changes) == elected) & (changes != 0)
    counted = (shares * agree).sum(0)
    total = (shares * changes * agree).sum(0)
    return base + torch.where(counted > 0, total / torch.where(counted > 0, counted, 1.0), 0.0)


def _trimmed(change: Tensor, keep: float) -> Tensor:
    """The largest entries of a change, at least one; all others zero."""
    count = max(1, round(keep * change.numel()))
    if count >= change.numel():
        return change
    cut = change.abs().flatten().kthvalue(change.numel() - count + 1).values
    return torch.where(change.abs() >= cut, change, torch.zeros_like(change))
