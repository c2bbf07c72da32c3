"""The input subspace of a layer: uncentred principal components, from second moments that are streamed.

The second moment ``Sigma = E[x x^T]`` is summed over batches, so memory is one ``d x d`` matrix and one chunk, whatever
the number of inputs. The basis ``U`` holds its leading eigenvectors, as many as a share of the trace asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.errors import InputError, TooLargeError
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.cutoffs import MOMENTS
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.rank import rank_cutoff
from fiberscope.results import Result, named

CHUNK_BYTES = 1 << 25
"""Memory of the inputs that are turned into float64 at once."""

PATCH_FACTOR = 16
"""How much larger the patches of an image may be than the image, when chunks are sized."""

Rows = Callable[[FloatArray], FloatArray]
"""Turns one batch of recorded inputs into rows of the layer's width."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Second moments of the inputs of a layer: what the subspace needs to know of them."""

    second_moment: FloatArray = field(repr=False)
    """``(d, d)``: the mean of ``x x^T``."""
    count: int
    """How many inputs (patches, for a convolution) were seen."""
    non_negative: bool | None = None
    """Whether no input has a negative entry; None if that was not recorded."""
    mean: FloatArray | None = field(default=None, repr=False)
    """``(d,)``: the mean of ``x``; None if that was not recorded."""

    @property
    def width(self) -> int:
        """Number of input coordinates."""
        return len(self.second_moment)

    def with_constant(self, mean: FloatArray) -> Moments:
        """Moments of the inputs with a constant 1 appended, for layers whose bias counts as a weight."""
        d = self.width
        second = np.empty((d + 1, d + 1))
        second[:d, :d] = self.second_moment
        second[d, :d] = second[:d, d] = mean
        second[d, d] = 1.0
        return Moments(second, self.count, self.non_negative, np.append(mean, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Subspace(Result):
    """An orthonormal basis ``U`` of the input subspace and what was left out.

    ``tail_energy`` is ``tau_k``, the sum of the eigenvalues that were dropped, which is the mean squared distance of
    the inputs from the subspace (Lemma E.1 of :cite:`neuronidentifiability`).
    """

    basis: FloatArray = field(repr=False, metadata=named("dimension", len))
    """``(d, k)``, orthonormal columns, leading directions first."""
    eigenvalues: FloatArray = field(repr=False)
    """All ``d`` eigenvalues of the second moment (or covariance), falling."""
    tail_energy: float
    energy: float
    """The share of the trace that the subspace holds."""
    count: int
    non_negative: bool | None

    told = ("rank",)

    @property
    def rank(self) -> int:
        """``k``."""
        return int(self.basis.shape[1])


def moments(inputs: Any, width: int, *, name: str = "layer", bias: bool = False, rows: Rows | None = None) -> Moments:
    """Second moments of recorded inputs, one chunk at a time.

    Parameters
    ----------
    inputs
        An array or tensor whose last axis (or whose trailing axes together) has ``width`` entries; or an iterable of
        such batches, ``(x, y)`` pairs included; or an object with ``second_moment`` ``(d, d)`` and ``count``.
    width
        Input coordinates of the layer.
    name
        How errors call the layer.
    bias
        Append a constant 1 to each input.
    rows
        Turns a batch into rows, for layers that do not see their input as such (convolutions see patches).

    >>> found = moments([[3.0, 0.0], [0.0, 4.0]], 2)
    >>> found.second_moment.tolist(), found.count, found.non_negative
    ([[4.5, 0.0], [0.0, 8.0]], 2, True)
    """
    if inputs is None:
        raise InputError(f"{name}: expected recorded inputs, got none; was the layer run on the data?")
    if hasattr(inputs, "second_moment"):
        return _given(inputs, width, name, bias)
    total, mean = np.zeros((width, width)), np.zeros(width)
    count, lowest = 0, np.inf
    for block in _blocks(inputs, name, 1 if rows is None else PATCH_FACTOR):
        part = as_rows(block, width, name) if rows is None else rows(block)
        total += part.T @ part
        mean += part.sum(axis=0)
        count += len(part)
        lowest = min(lowest, float(part.min(initial=np.inf)))
    if count == 0:
        raise InputError(f"{name}: expected at least one input, got none; was the layer run on the data?")
    found = Moments(frozen(total / count), count, lowest >= 0, frozen(mean / count))
    return found.with_constant(mean / count) if bias else found


def collect(
    inputs: Any, width: int, *, name: str = "layer", rows: Rows | None = None, limit: int = 1 << 30
) -> FloatArray:
    """All inputs as one ``(points, width)`` array, refused above ``limit`` bytes.

    >>> collect([[1.0, 2.0], [3.0, 4.0]], 2).shape
    (2, 2)
    """
    if inputs is None or hasattr(inputs, "second_moment"):
        raise InputError(f"{name}: expected the recorded inputs themselves, got {type(inputs).__name__}")
    parts, size = [], 0
    for block in _blocks(inputs, name, 1 if rows is None else PATCH_FACTOR):
        parts.append(as_rows(block, width, name) if rows is None else rows(block))
        size += parts[-1].nbytes
        if size > limit:
            raise TooLargeError(f"{name}: the inputs need more than {limit / 2**30:.1f} GiB; take fewer")
    if size == 0:
        raise InputError(f"{name}: expected at least one input, got none; was the layer run on the data?")
    return np.concatenate(parts)


def _given(inputs: Any, width: int, name: str, bias: bool) -> Moments:
    """Moments that were streamed elsewhere."""
    count = int(getattr(inputs, "count", 0))
    if count == 0:
        raise InputError(f"{name}: expected moments of at least one input, got none; was the layer run on the data?")
    second = real_array(inputs.second_moment, f"{name}: second moment", ndim=2)
    sign = getattr(inputs, "non_negative", None)
    mean = getattr(inputs, "mean", None)
    first = None if mean is None else frozen(real_array(mean, f"{name}: mean", ndim=1))
    found = Moments(frozen((second + second.T) / 2), count, sign if sign is None else bool(sign), first)
    if bias and second.shape == (width, width):
        if first is None:
            raise InputError(f"{name}: expected moments with a mean, to append a constant input, got none")
        found = found.with_constant(first)
    expected = width + bias
    if found.second_moment.shape != (expected, expected):
        shape = found.second_moment.shape
        raise InputError(f"{name}: expected second moments of shape ({expected}, {expected}), got {shape}")
    return found


def _blocks(inputs: Any, name: str, factor: int) -> Iterator[FloatArray]:
    """Float64 chunks of an array, a tensor, a nested list or an iterable of batches."""
    for batch in _batches(inputs, name):
        if getattr(batch, "ndim", 0) < 2:
            raise InputError(f"{name}: expected inputs with at least two axes, got shape {np.shape(batch)}")
        step = max(1, CHUNK_BYTES // (8 * factor * max(1, int(np.prod(batch.shape[1:])))))
        for start in range(0, len(batch), step):
            yield real_array(batch[start : start + step], f"{name}: inputs")


def _batches(inputs: Any, name: str) -> Iterator[Any]:
    if hasattr(inputs, "ndim"):
        yield inputs
        return
    if not isinstance(inputs, Iterable):
        raise InputError(f"{name}: expected an array or batches of inputs, got {type(inputs).__name__}")
    if isinstance(inputs, list | tuple) and len(inputs) and not _holds_arrays(inputs):
        yield real_array(inputs, f"{name}: inputs")
        return
    for item in inputs:
        yield item[0] if isinstance(item, list | tuple) and _holds_arrays(item) else item


def _holds_arrays(items: Any) -> bool:
    return any(hasattr(item, "ndim") or (isinstance(item, list | tuple) and _holds_arrays(item)) for item in items)


def as_rows(block: FloatArray, width: int, name: str) -> FloatArray:
    """Tokens and pixels in leading axes are inputs of their own; trailing axes that make up the width are flattened."""
    if block.shape[-1] == width:
        return block.reshape(-1, width)
    if int(np.prod(block.shape[1:])) == width:
        return block.reshape(len(block), width)
    raise InputError(f"{name}: expected inputs with {width} coordinates, got shape {block.shape}")


def subspace(
    found: Moments, *, energy: float = 0.9, rank: int | None = None, centred: bool = False, name: str = "layer"
) -> Subspace:
    """Leading eigenvectors of the second moment: the fewest that hold ``energy`` of its trace, or ``rank`` of them.

    Never more than the numerical rank: directions in which there is nothing but rounding are no inputs. With
    ``centred`` the covariance takes the place of the second moment, also in ``energy`` and ``eigenvalues``;
    ``tail_energy`` is the mean squared distance of the inputs from the subspace all the same.

    >>> space = subspace(moments([[3.0, 0.0], [0.0, 1.0]], 2), energy=0.9)
    >>> space.rank, space.tail_energy, space.energy
    (1, 0.5, 0.9)
    """
    if not 0 < energy <= 1:
        raise InputError(f"energy: expected a share in (0, 1], got {energy}")
    if centred and found.mean is None:
        raise InputError(f"{name}: expected moments with a mean, to centre them, got none")
    second = found.second_moment
    matrix = second - np.outer(found.mean, found.mean) if centred and found.mean is not None else second
    values, vectors = scipy.linalg.eigh(matrix, check_finite=True)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    cutoff = MOMENTS * rank_cutoff(found.second_moment.shape, float(values[0]), np.dtype(np.float64))
    full = int((values > cutoff).sum())
    if full == 0:
        constant = "all the same" if centred else "all zero"
        raise InputError(f"{name}: expected inputs that are not {constant}, got second moments of rank zero")
    if rank is None:
        # Sums from the small end, so that an energy of 1 asks for the numerical rank and not for a rounding error.
        tails = np.cumsum(values[:full][::-1])[::-1]
        # A tail of exactly the allowed size may go, up to the rounding of its sum.
        allowed = (1 - energy) * tails[0] + cutoff
        rank = full if energy == 1 else int(np.searchsorted(-tails, -allowed))
        rank = min(max(rank, 1), full)
    elif not 1 <= rank <= full:
        raise InputError(f"{name}: expected a rank between 1 and {full}, the rank of the inputs, got {rank}")
    total = float(values.sum())
    tail = float(values[rank:].sum())
    basis = np.array(vectors[:, :rank])
    share = 1 - tail / total
    if centred:
        tail = max(float(np.trace(second) - np.einsum("ij,ij->", basis, second @ basis)), 0.0)
    return Subspace(frozen(basis), frozen(values), tail, share, found.count, found.non_negative)
