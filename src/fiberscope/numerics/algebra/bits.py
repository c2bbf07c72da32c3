"""Zero or not, in place of numbers: what non-zero coefficients can lead to. A sum may vanish all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiberscope.numerics.algebra.base import ArrayAlgebra, Constant, LinearMap, aligned, on_rows
from fiberscope.numerics.floats import BoolArray, FloatArray


class BitAlgebra(ArrayAlgebra):
    """Boolean arrays; False proves that a value does not depend on what is True at the start. Biases say nothing."""

    def __init__(self) -> None:
        super().__init__(Constant.NOWHERE)

    def take(self, values: FloatArray) -> BoolArray:
        return np.asarray(np.asarray(values) != 0)

    def apply(self, stage: LinearMap, value: BoolArray) -> BoolArray:
        return np.asarray(on_rows(stage.apply_abs, value.astype(np.float64)) > 0)

    def _plus(self, value: BoolArray, offset: FloatArray) -> Any:
        return value

    def add(self, values: Sequence[BoolArray]) -> BoolArray:
        total = values[0]
        for value in values[1:]:
            total = total | value
        return total

    def gate(self, value: BoolArray, active: BoolArray, slopes: FloatArray | None) -> BoolArray:
        own = aligned(active, value.ndim)
        return np.asarray(value & (own if slopes is None else own | (slopes != 0)))
