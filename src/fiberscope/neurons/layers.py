"""A layer as three matrices: ``W_eff = F + D * W``, rows are neurons, and how its inputs become rows.

Live torch layers are read by their attributes alone; nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.neurons.subspace import Rows
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import FloatArray

PAD_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@dataclass(frozen=True, slots=True, eq=False)
class LayerArrays:
    """Fixed part ``F``, scales ``D`` and trained part ``W`` of a layer, each ``(m, d)``."""

    F: FloatArray = field(repr=False)
    D: FloatArray = field(repr=False)
    W: FloatArray = field(repr=False)
    name: str
    rows: Rows | None = None
    """Turns recorded inputs into rows, where the layer does not see them as such."""
    bias: FloatArray | None = field(default=None, repr=False)

    @property
    def effective(self) -> FloatArray:
        """``F + D * W``."""
        return np.asarray(self.F + self.D * self.W)

    @property
    def width(self) -> int:
        """Input coordinates ``d``."""
        return int(self.F.shape[1])

    def with_bias(self) -> LayerArrays:
        """The bias as the weight of one more input: fixed part 0, scale 1."""
        if self.bias is None:
            raise InputError(f"{self.name}: expected a layer with a bias (bias=True was asked for), got none")
        m = len(self.F)
        return LayerArrays(
            frozen(np.hstack([self.F, np.zeros((m, 1))])),
            frozen(np.hstack([self.D, np.ones((m, 1))])),
            frozen(np.hstack([self.W, self.bias[:, None]])),
            self.name,
            self.rows,
        )


def layer_arrays(layer: Any, name: str | None = None, parameter: str = "weight") -> LayerArrays:
    """The three matrices of a torch layer, of a mapping with the keys ``F``, ``D``, ``W``, or of a triple of arrays.

    A torch layer that is not parametrised has ``F = 0`` and ``D = 1``. The rows of a convolution are its kernels,
    flattened, and its inputs are the patches it looks at.

    >>> layer_arrays(([[1.0, 0.0]], [[0.0, 1.0]], [[5.0, 2.0]])).effective.tolist()
    [[1.0, 2.0]]
    """
    label = name or "layer"
    if isinstance(layer, LayerArrays):
        return layer
    if isinstance(layer, Mapping):
        missing = {"F", "D", "W"} - set(layer)
        if missing:
            raise InputError(f"{label}: expected the keys F, D and W, got {sorted(layer)}")
        return from_arrays(layer["F"], layer["D"], layer["W"], label)
    if isinstance(layer, list | tuple):
        if len(layer) != 3:
            raise InputError(f"{label}: expected the three matrices (F, D, W), got {len(layer)} things")
        F, D, W = layer
        return from_arrays(F, D, W, label)
    return _from_module(layer, name or type(layer).__name__, parameter)


def from_arrays(F: Any, D: Any, W: Any, name: str = "layer", bias: FloatArray | None = None) -> LayerArrays:
    """Checked and flattened to rows; a convolution's kernels ``(out, in, h, w)`` become rows of ``in * h * w``."""
    fixed, scales, trained = (real_array(x, f"{name}: {key}") for x, key in ((F, "F"), (D, "D"), (W, "W")))
    if not fixed.shape == scales.shape == trained.shape:
        raise InputError(
            f"{name}: expected F, D and W of one shape, got {fixed.shape}, {scales.shape} and {trained.shape}"
        )
    if fixed.ndim < 2 or fixed.size == 0:
        raise InputError(f"{name}: expected matrices (neurons, inputs), got shape {fixed.shape}")
    with np.errstate(over="ignore"):
        sizes = [float(np.square(x).sum()) for x in (fixed, scales, scales * trained)]
    if not np.isfinite(sizes).all():
        raise InputError(f"{name}: expected weights whose squares are floating-point numbers, got larger ones")
    m = len(fixed)
    return LayerArrays(
        frozen(fixed.reshape(m, -1)), frozen(scales.reshape(m, -1)), frozen(trained.reshape(m, -1)), name, None, bias
    )


def _from_module(layer: Any, name: str, parameter: str) -> LayerArrays:
    weight = getattr(layer, parameter, None)
    if weight is None or not hasattr(weight, "detach"):
        kind = type(layer).__name__
        raise UnsupportedModelError(f"{name}: expected a layer with a parameter {parameter!r}, got {kind} without one")
    if weight.ndim not in (2, 4):
        raise UnsupportedModelError(f"{name}: expected a Linear or a Conv2d layer, got weights {tuple(weight.shape)}")
    fixed, scales, trained = _parts(layer, weight, name, parameter)
    bias = getattr(layer, "bias", None)
    shift = None if bias is None or isinstance(bias, bool) else real_array(bias, f"{name}: bias", ndim=1)
    found = from_arrays(fixed, scales, trained, name, shift)
    if weight.ndim == 2:
        return found
    if getattr(layer, "groups", 1) != 1 or getattr(layer, "transposed", False):
        raise UnsupportedModelError(f"{name}: expected a convolution whose neurons all see the same inputs (groups=1)")
    return LayerArrays(found.F, found.D, found.W, name, Patches.of(layer, name), shift)


def _parts(layer: Any, weight: Any, name: str, parameter: str) -> tuple[Any, Any, Any]:
    """``F``, ``D``, ``W`` of a weight, which may be parametrised by one module with the buffers ``F`` and ``D``."""
    parametrised = getattr(layer, "parametrizations", None)
    if parametrised is None or parameter not in parametrised:
        values = real_array(weight, f"{name}: {parameter}")
        return np.zeros_like(values), np.ones_like(values), values
    chain = parametrised[parameter]
    first = chain[0]
    if len(chain) != 1 or not (hasattr(first, "F") and hasattr(first, "D")):
        kinds = ", ".join(type(part).__name__ for part in chain)
        raise UnsupportedModelError(f"{name}: expected one parametrisation with the buffers F and D, got {kinds}")
    trained = real_array(chain.original, f"{name}: W")
    return (
        np.broadcast_to(real_array(first.F, f"{name}: F"), trained.shape),
        np.broadcast_to(real_array(first.D, f"{name}: D"), trained.shape),
        trained,
    )


@dataclass(frozen=True, slots=True)
class Patches:
    """What a convolution looks at: the patches of a batch ``(n, channels, height, width)``, as rows."""

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    mode: str
    name: str

    @classmethod
    def of(cls, layer: Any, name: str) -> Patches:
        """Read from a torch ``Conv2d``."""
        kernel, stride, dilation = tuple(layer.kernel_size), tuple(layer.stride), tuple(layer.dilation)
        given = layer.padding
        if given == "same":
            totals = [r * (k - 1) for r, k in zip(dilation, kernel, strict=True)]
            padding = [(total // 2, total - total // 2) for total in totals]
        else:
            padding = [(0, 0), (0, 0)] if given == "valid" else [(p, p) for p in given]
        ends = (padding[0], padding[1])
        return cls(layer.in_channels, kernel, stride, dilation, ends, PAD_MODES[layer.padding_mode], name)

    def __call__(self, block: FloatArray) -> FloatArray:
        size = self.channels * self.kernel[0] * self.kernel[1]
        if block.ndim == 2 and block.shape[1] == size:
            return block  # patches already
        if block.ndim != 4 or block.shape[1] != self.channels:
            raise InputError(
                f"{self.name}: expected images (n, {self.channels}, height, width) or patches (n, {size}), "
                f"got shape {block.shape}"
            )
        padded = np.pad(block, ((0, 0), (0, 0), *self.padding), mode=self.mode)  # type: ignore[call-overload]
        window = tuple(r * (k - 1) + 1 for r, k in zip(self.dilation, self.kernel, strict=True))
        if padded.shape[2] < window[0] or padded.shape[3] < window[1]:
            raise InputError(f"{self.name}: expected images of at least {window} pixels, got {block.shape[2:]}")
        views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(2, 3))
        (a, b), (p, q) = self.stride, self.dilation
        return np.ascontiguousarray(views[:, :, ::a, ::b, ::p, ::q].transpose(0, 2, 3, 1, 4, 5)).reshape(-1, size)
