"""Convolutions and their adjoints as linear operators, with their kernels as their own numbers."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from math import gcd, prod
from typing import Any, Self

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.errors import InputError
from fiberscope.network.operators import Operator, Shape
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import FloatArray, IntArray

_CHUNK_BYTES = 1 << 22
"""Working memory of one batched convolution."""


class _Sliding(Operator):
    """What both keep: a kernel, and how it goes over an image; ``padding`` is ``(top, left, bottom, right)``."""

    def __init__(
        self,
        kernel: Any,
        in_shape: Shape,
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int, int, int] = (0, 0, 0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> None:
        self.kernel = frozen(real_array(kernel, "kernel", ndim=4))
        self.in_shape, self.groups = tuple(in_shape), groups
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.out_shape = self._reached()

    @abstractmethod
    def _reached(self) -> Shape:
        """The shape of the values, if the kernel fits the input."""

    @property
    def coefficients(self) -> FloatArray:
        return self.kernel

    def with_coefficients(self, coefficients: FloatArray) -> Self:
        return type(self)(coefficients, self.in_shape, self.stride, self.padding, self.dilation, self.groups)


class Convolution(_Sliding):
    """Two-dimensional cross-correlation with a kernel ``(out_channels, in_channels / groups, height, width)``.

    ``padding`` is ``(top, left, bottom, right)``. Sums are plain BLAS products of unrolled patches (no FFT, no
    Winograd), so that the classical rounding bound holds.
    """

    def _reached(self) -> Shape:
        groups, (out_channels, per_group, *size) = self.groups, self.kernel.shape
        if len(self.in_shape) != 3 or self.in_shape[0] != per_group * groups or out_channels % groups:
            raise InputError(
                f"kernel: expected {per_group * groups} input channels as (channels, height, width) "
                f"and outputs divisible by {groups} groups, got input {self.in_shape}, kernel {self.kernel.shape}"
            )
        spatial = tuple(
            (n + self.padding[a] + self.padding[a + 2] - self.dilation[a] * (size[a] - 1) - 1) // self.stride[a] + 1
            for a, n in enumerate(self.in_shape[1:])
        )
        if min(spatial) < 1:
            raise InputError(f"kernel: {tuple(size)} does not fit the input {self.in_shape}")
        return (out_channels, *spatial)

    @property
    def fan_in(self) -> int:
        return prod(self.kernel.shape[1:])

    @cached_property
    def taps(self) -> IntArray:
        """Input index of every tap, ``(groups, out_h * out_w, fan_in)``; ``in_size`` points at the zero padding."""
        channels, height, width = self.in_shape
        _, out_h, out_w = self.out_shape
        _, per_group, kh, kw = self.kernel.shape
        rows = np.arange(out_h)[:, None] * self.stride[0] + np.arange(kh) * self.dilation[0] - self.padding[0]
        cols = np.arange(out_w)[:, None] * self.stride[1] + np.arange(kw) * self.dilation[1] - self.padding[1]
        inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((cols >= 0) & (cols < width))[None, :, None]
        pixel = rows[:, None, :, None] * width + cols[None, :, None, :]
        pixel = np.where(inside, pixel, -1).reshape(out_h * out_w, 1, kh * kw)
        channel = np.arange(channels).reshape(self.groups, 1, per_group, 1)
        taps = np.where(pixel < 0, self.in_size, channel * height * width + pixel)
        return taps.reshape(self.groups, out_h * out_w, per_group * kh * kw)

    @cached_property
    def _matrix(self) -> FloatArray:
        out_channels = self.kernel.shape[0]
        return self.kernel.reshape(self.groups, out_channels // self.groups, self.fan_in)

    def apply(self, X: FloatArray) -> FloatArray:
        channels, _, _ = self.in_shape
        _, out_h, out_w = self.out_shape
        kh, kw = self.kernel.shape[2:]
        (s, t), (d, e) = self.stride, self.dilation
        per_group, fan_in = self._matrix.shape[1:]
        result = np.empty((len(X), self.groups, per_group, out_h * out_w))
        for rows in self._chunks(len(X)):
            padded = self._padded(X[rows])
            patches = np.empty((channels, kh, kw, len(padded), out_h, out_w))
            for i, j in np.ndindex(kh, kw):  # whole images at once: one copy for every tap
                reached = padded[:, :, i * d : i * d + (out_h - 1) * s + 1 : s, j * e : j * e + (out_w - 1) * t + 1 : t]
                patches[:, i, j] = reached.swapaxes(0, 1)
            columns = patches.reshape(self.groups, fan_in, -1)
            values = np.matmul(self._matrix, columns).reshape(self.groups, per_group, len(padded), out_h * out_w)
            result[rows] = values.transpose(2, 0, 1, 3)
        return result.reshape(len(X), self.out_size)

    def _padded(self, X: FloatArray) -> FloatArray:
        """Images ``(points, channels, height, width)`` with zeros around them, and without what no tap reaches."""
        channels, height, width = self.in_shape
        top, left, bottom, right = self.padding
        images = X.reshape(len(X), channels, height, width)
        images = images[:, :, max(0, -top) : height + min(0, bottom), max(0, -left) : width + min(0, right)]
        around = [(0, 0), (0, 0), (max(0, top), max(0, bottom)), (max(0, left), max(0, right))]
        return np.pad(images, around) if any(max(sides) for sides in around) else images

    def adjoint(self, Y: FloatArray) -> FloatArray:
        channels, height, width = self.in_shape
        _, out_h, out_w = self.out_shape
        kh, kw = self.kernel.shape[2:]
        (s, t), (d, e), (top, left) = self.stride, self.dilation, self.padding[:2]
        values = Y.reshape(len(Y), self.groups, self._matrix.shape[1], out_h * out_w)
        covered = (out_h - 1) * s + (kh - 1) * d + 1, (out_w - 1) * t + (kw - 1) * e + 1
        result = np.empty((len(Y), channels, height, width))
        for rows in self._chunks(len(Y)):
            patches = np.matmul(self._matrix.transpose(0, 2, 1), values[rows])
            patches = patches.reshape(-1, channels, kh, kw, out_h, out_w)
            padded = np.zeros((len(patches), channels, max(top + height, covered[0]), max(left + width, covered[1])))
            for i, j in np.ndindex(kh, kw):
                padded[:, :, i * d : i * d + out_h * s : s, j * e : j * e + out_w * t : t] += patches[:, :, i, j]
            result[rows] = padded[:, :, top : top + height, left : left + width]
        return result.reshape(len(Y), self.in_size)

    def _chunks(self, points: int) -> list[slice]:
        step = max(1, _CHUNK_BYTES // (8 * self.groups * self.fan_in * prod(self.out_shape[1:])))
        return [slice(start, min(start + step, points)) for start in range(0, points, step)]

    def sparse(self) -> Any:
        groups, pixels, fan_in = self.taps.shape
        per_group = self._matrix.shape[1]
        outputs = np.arange(self.out_size).reshape(groups, per_group, pixels, 1)
        shape = (groups, per_group, pixels, fan_in)
        columns = np.broadcast_to(self.taps[:, None], shape).reshape(-1)
        values = np.broadcast_to(self._matrix[:, :, None, :], shape).reshape(-1)
        rows = np.broadcast_to(outputs, shape).reshape(-1)
        keep = columns < self.in_size
        entries = (values[keep], (rows[keep], columns[keep]))
        return scipy.sparse.csr_array(scipy.sparse.coo_array(entries, shape=(self.out_size, self.in_size)))


class TransposedConvolution(_Sliding):
    """The adjoint of a :class:`Convolution`: every input pixel lays the kernel, times its value, over the output.

    The kernel is ``(in_channels, out_channels / groups, height, width)``. ``padding`` is ``(top, left, bottom, right)``
    as of the convolution, so it is cut off the output; what other libraries call output padding makes the output
    larger at its ends, which is a negative padding there.

    >>> up = TransposedConvolution(np.array([[[[1.0, 2.0]]]]), (1, 1, 2), stride=(1, 2))
    >>> up.apply(np.array([[3.0, 4.0]]))
    array([[3., 6., 4., 8.]])
    """

    def _reached(self) -> Shape:
        stride, padding, dilation, groups = self.stride, self.padding, self.dilation, self.groups
        channels, per_group, *size = self.kernel.shape
        if len(self.in_shape) != 3 or self.in_shape[0] != channels or channels % groups:
            raise InputError(
                f"kernel: expected {channels} input channels as (channels, height, width), divisible by {groups} "
                f"groups, got input {self.in_shape}, kernel {self.kernel.shape}"
            )
        spatial = tuple(
            (n - 1) * stride[a] + dilation[a] * (size[a] - 1) + 1 - padding[a] - padding[a + 2]
            for a, n in enumerate(self.in_shape[1:])
        )
        if min(spatial) < 1 or min(padding[:2]) < 0:
            raise InputError(f"kernel: padding {padding} leaves nothing of the output of {self.in_shape}")
        return (per_group * groups, *spatial)

    @cached_property
    def transpose(self) -> Convolution:
        """The convolution from outputs to inputs whose adjoint this is."""
        return Convolution(self.kernel, self.out_shape, self.stride, self.padding, self.dilation, self.groups)

    @property
    def fan_in(self) -> int:
        # along an axis, every (stride / gcd(stride, dilation))-th tap meets a given output
        steps = zip(self.kernel.shape[2:], self.stride, self.dilation, strict=True)
        taps = (-(-int(k) // (s // gcd(s, d))) for k, s, d in steps)
        reached = (min(k, n) for k, n in zip(taps, self.in_shape[1:], strict=True))  # one tap an input pixel
        return self.in_shape[0] // self.groups * prod(reached)

    def apply(self, X: FloatArray) -> FloatArray:
        return self.transpose.adjoint(X)

    def adjoint(self, Y: FloatArray) -> FloatArray:
        return self.transpose.apply(Y)

    def sparse(self) -> Any:
        return scipy.sparse.csr_array(self.transpose.sparse().T)


Convolving = Convolution | TransposedConvolution
"""Operators whose numbers are a kernel that is used all over an image."""


def full_kernel(operator: Convolution) -> FloatArray:
    """The kernel of a convolution in one group: zeros where a group does not read."""
    if operator.groups == 1:
        return operator.kernel
    out, each, *size = operator.kernel.shape
    found = np.zeros((out, each * operator.groups, *size))
    per_group = out // operator.groups
    for g in range(operator.groups):
        rows = slice(g * per_group, (g + 1) * per_group)
        found[rows, g * each : (g + 1) * each] = operator.kernel[rows]
    return found
