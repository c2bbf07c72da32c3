"""The layers that are known so far, and what a neuron of the next layer is made of.

All known layers but the last have their signs; of the last one only the hyperplanes are known. A neuron of the next
layer is then linear in the *features* ``(|z|, a, 1)``: the absolute values of the last known preactivations, the
activations before them and one, because ``relu(s z) = (|z| + s z) / 2``. Nothing need be known about the signs.
Once they are known too, the features are ``(relu(z), 1)``: fewer, so that surfaces are followed over fewer folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fiberscope.numerics.floats import FloatArray

Pattern = list[FloatArray]
"""One vector of signs, +1 or -1, for every known layer."""


@dataclass(frozen=True)
class Cell:
    """The known layers on one of their regions.

    ``folds`` and ``heights`` are the affine maps of all known preactivations, ``(units, n)`` and ``(units,)``;
    ``slopes`` and ``offsets`` those of the features; ``turns``, ``(units, features)``, says by which combination
    of features' coefficients the gradient of a next neuron changes, in multiples of the fold's normal, behind a fold.
    """

    pattern: Pattern
    folds: FloatArray
    heights: FloatArray
    slopes: FloatArray
    offsets: FloatArray
    turns: FloatArray


@dataclass(frozen=True)
class Prefix:
    """Known layers ``z_l = W_l a_{l-1} + b_l``; the last with rows up to sign, unless it is ``oriented``."""

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    leak: float = 0.0
    oriented: bool = False

    @cached_property
    def widths(self) -> tuple[int, ...]:
        return (self.weights[0].shape[1], *(len(w) for w in self.weights))

    @property
    def num_features(self) -> int:
        return self.widths[-1] + 1 + (0 if self.oriented else self.widths[-2])

    @property
    def signed_layers(self) -> int:
        """How many of the layers have their signs."""
        return len(self.weights) - (0 if self.oriented else 1)

    def extended(self, W: FloatArray, b: FloatArray) -> Prefix:
        return Prefix((*self.weights, W), (*self.biases, b), self.leak)

    def signed(self, signs: FloatArray) -> Prefix:
        """The same with the signs of the last layer."""
        W, b = signs[:, None] * self.weights[-1], signs * self.biases[-1]
        return Prefix((*self.weights[:-1], W), (*self.biases[:-1], b), self.leak, True)

    def activate(self, z: FloatArray) -> FloatArray:
        return np.where(z > 0, z, self.leak * z)

    def preactivations(self, X: FloatArray) -> list[FloatArray]:
        """Of every known layer, ``(points, n_l)``."""
        found: list[FloatArray] = []
        a = X
        for W, b in zip(self.weights, self.biases, strict=True):
            found.append(a @ W.T + b)
            a = self.activate(found[-1])
        return found

    def features(self, X: FloatArray) -> FloatArray:
        """``(points, features)``."""
        z = self.preactivations(X)
        if self.oriented:
            return np.concatenate([self.activate(z[-1]), np.ones((len(X), 1))], axis=1)
        before = X if len(z) == 1 else self.activate(z[-2])
        return np.concatenate([np.abs(z[-1]), before, np.ones((len(X), 1))], axis=1)

    def pattern(self, x: FloatArray) -> Pattern:
        return [np.where(z[0] > 0, 1.0, -1.0) for z in self.preactivations(x[None])]

    def cell(self, pattern: Sequence[FloatArray]) -> Cell:
        """The known layers where the signs are as given."""
        last = len(self.weights) - 1
        A, c = np.eye(self.widths[0]), np.zeros(self.widths[0])
        folds, heights = [], []
        slopes_of = [np.where(s > 0, 1.0, self.leak) for s in pattern]
        for k, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            H, d = (W @ A if k else W), W @ c + b
            folds.append(H)
            heights.append(d)
            if k < last:
                A, c = slopes_of[k][:, None] * H, slopes_of[k] * d
        sign = slopes_of[last] if self.oriented else pattern[last]
        zero = np.zeros((1, self.widths[0]))
        slopes = np.concatenate([sign[:, None] * folds[last], *([] if self.oriented else [A]), zero])
        offsets = np.concatenate([sign * heights[last], *([] if self.oriented else [c]), [1.0]])
        return Cell(list(pattern), np.concatenate(folds), np.concatenate(heights), slopes, offsets,
                    self._turns(pattern, slopes_of))  # fmt: skip

    def _turns(self, pattern: Sequence[FloatArray], slopes_of: Sequence[FloatArray]) -> FloatArray:
        last, n = len(self.weights) - 1, self.widths[-1]
        if self.oriented:
            return self._turns_behind(pattern, slopes_of, last, np.eye(n + 1, n), [])
        turns = [np.concatenate([np.diag(-2 * pattern[last]), np.zeros((n, self.widths[-2] + 1))], axis=1)]
        # how features change with the activations of an earlier layer
        T = np.concatenate([pattern[last][:, None] * self.weights[last], np.eye(self.widths[-2]),
                            np.zeros((1, self.widths[-2]))])  # fmt: skip
        return self._turns_behind(pattern, slopes_of, last - 1, T, turns)

    def _turns_behind(self, pattern: Sequence[FloatArray], slopes_of: Sequence[FloatArray], start: int, T: FloatArray,
                      turns: list[FloatArray]) -> FloatArray:  # fmt: skip
        """Those of layer ``start`` and before it, where ``T`` says how features change with its activations."""
        for k in range(start, -1, -1):
            turns.append(-(1 - self.leak) * pattern[k][:, None] * T.T)
            T = (T * slopes_of[k]) @ self.weights[k]
        return np.concatenate(turns[::-1])
