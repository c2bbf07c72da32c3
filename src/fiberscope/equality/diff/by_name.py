"""Checkpoints compared tensor by tensor, by name, without a program; one tensor of each is in memory at a time.

Neurons that were reordered show as rows, or columns, with the same numbers in another order, so axes are matched by
the sorted numbers of their slices before the numbers are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.equality.diff.changes import ADDED, CHANGED, REMOVED, ROUNDED, SAME, Change, Difference
from fiberscope.modules.correspondence import order_of_rows
from fiberscope.network.formats.stored.named_tensors import Tensors
from fiberscope.network.formats.stored.shards import Shards
from fiberscope.network.source import coarsest
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.grids import new_grid
from fiberscope.numerics.ulps import ROUNDINGS, Rounding
from fiberscope.run import Run


def by_tensors(a: Tensors, b: Tensors, run: Run) -> Difference:
    """Every tensor of either; see the module."""
    kind = ROUNDINGS[coarsest([*a.kinds, *b.kinds])]
    names = dict.fromkeys([*a.names, *b.names])
    found = []
    for name in names:
        run.check()
        if name in a.names and name in b.names:
            found.append(compared(name, a.read(name), b.read(name), kind))
        else:
            held, status = (a, REMOVED) if name in a.names else (b, ADDED)
            count = (held.shapes[name] or (1,))[0]
            found.append(Change(name, status, (count, 0) if status == REMOVED else (0, count)))
    return Difference("tensors", kind.precision, tuple(found))


def compared(name: str, a: FloatArray, b: FloatArray, rounding: Rounding) -> Change:
    """One tensor of both, rows and columns matched."""
    rows = (len(a) if a.ndim else 1, len(b) if b.ndim else 1)
    if a.shape != b.shape:
        return Change(name, CHANGED, rows, pruned=max(0, rows[0] - rows[1]), new=max(0, rows[1] - rows[0]))
    reordered = 0
    if not _near(a, b, rounding):
        moved = _matched(a, b)
        # single numbers always come nearer when they are sorted: in an array of them order is believed only if all fit
        if moved is not None and (
            _near(moved[0], b, rounding) if a.ndim == 1 else _norm(moved[0] - b) < _norm(a - b) / 2
        ):
            a, reordered = moved
    gap = np.abs(a - b)
    status = SAME if not gap.any() else ROUNDED if _near(a, b, rounding) else CHANGED
    if not np.isfinite(gap).all():
        return Change(name, CHANGED, rows, reordered=reordered)
    size = _norm(a)
    change = 0.0 if not gap.any() else _norm(gap) / size if size else None
    pruned = _lost_rows(a, b)
    grid, grids = (None, 0) if status == SAME else new_grid(a, b, rounding)
    zeroed = int(((a != 0) & (b == 0)).sum())
    return Change(
        name, status, rows, change, float(gap.max(initial=0.0)), pruned, 0, reordered, 0, (1, 1), grid, grids, zeroed
    )


def _near(a: FloatArray, b: FloatArray, rounding: Rounding) -> bool:
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.maximum(np.abs(a), np.abs(b)), rounding.least)
        return bool((np.abs(a - b) <= rounding.share * size).all())


def _norm(array: FloatArray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt((np.abs(array) ** 2).sum()))


def _matched(a: FloatArray, b: FloatArray) -> tuple[FloatArray, int] | None:
    """``a`` with its rows and columns in the order of ``b``, and how many rows and columns moved."""
    if not a.ndim >= 1 or max(a.shape) > 8192 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    moved = 0
    for axis in range(min(a.ndim, 2)):
        p, q = (np.sort(np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1), axis=1) for x in (a, b))
        order = order_of_rows(p, q)
        moved += int((order != np.arange(len(order))).sum())
        a = np.take(a, order, axis=axis)
    return a, moved


def _lost_rows(a: FloatArray, b: FloatArray) -> int:
    if a.ndim < 2:
        return 0
    p, q = (x.reshape(len(x), -1).any(axis=1) for x in (a, b))
    return int((p & ~q).sum())


def tensors_of(source: Any) -> Tensors | None:
    """A state dict, the folder or the file of one, or a module's own; None for anything else."""
    if isinstance(source, Mapping):
        return Tensors.of(source)
    if not isinstance(source, type) and callable(getattr(source, "state_dict", None)):
        return Tensors.of(source.state_dict())
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            return Tensors.sharded(Shards.open(path))
        if path.suffix in (".safetensors", ".pt", ".pth", ".ckpt", ".bin"):
            return Tensors.file(path)
    return None
