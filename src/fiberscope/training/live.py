"""A torch module that is no piecewise linear network, as far as a tracker needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fiberscope import modules
from fiberscope.numerics.floats import FloatArray


class LiveModule(NamedTuple):
    """The module, copies of its parameters, and why it is no network."""

    module: Any
    parameters: Mapping[str, FloatArray]
    reason: str

    @classmethod
    def of(cls, module: Any, reason: str) -> LiveModule:
        """As the module is now."""
        values = {name: value.detach().cpu().double().numpy().copy() for name, value in module.named_parameters()}
        return cls(module, values, reason)

    def __call__(self, X: Any) -> FloatArray:
        """Outputs ``(points, outputs)`` in float64, as the module is now."""
        return np.asarray(modules.stacked.StackedModule(self.module, X, 0).outputs())

    def with_parameters(self, parameters: Mapping[str, FloatArray]) -> LiveModule:
        """Other copies; the module itself stays."""
        return self._replace(parameters=dict(parameters))
