"""Losses and gradients of many parameters of one torch module at once, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.func import functional_call, grad_and_value, vmap

from fiberscope.errors import InputError
from fiberscope.modules.derivatives import evaluating, jacobian

Floats = npt.NDArray[np.float64]


class StackedModule:
    """A module around its parameter, in evaluation mode; all numbers are taken to float64.

    Parameters that are frozen are constants.
    """

    def __init__(self, module: torch.nn.Module, X: Any, memory: int) -> None:
        self._module, self._memory = module, memory
        self._names = [name for name, value in module.named_parameters() if value.requires_grad]
        if not self._names:
            raise InputError("net: expected a parameter that is not frozen, got none")
        values = dict(module.named_parameters())
        self._shapes = [values[name].shape for name in self._names]
        fixed = {name: value for name, value in values.items() if name not in self._names} | dict(
            module.named_buffers()
        )
        self._fixed = {n: v.detach().double() if v.is_floating_point() else v.detach() for n, v in fixed.items()}
        self.center: Floats = np.concatenate(
            [values[n].detach().double().cpu().numpy().reshape(-1) for n in self._names]
        )
        batch = X if isinstance(X, torch.Tensor) else torch.as_tensor(np.asarray(X))
        self._X = batch.detach().double() if batch.is_floating_point() else batch.detach()

    def _call(self, flat: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        parts = torch.split(flat, [shape.numel() for shape in self._shapes])
        own = {name: part.view(shape) for name, part, shape in zip(self._names, parts, self._shapes, strict=True)}
        result: torch.Tensor = functional_call(self._module, own | self._fixed, (X,))
        return result.reshape(len(X), -1)

    def outputs(self) -> Floats:
        """At the center, ``(points, outputs)``."""
        with evaluating(self._module), torch.no_grad():
            return np.asarray(self._call(torch.from_numpy(self.center), self._X).numpy())

    def jacobian(self) -> Floats:
        """At the center, ``(points * outputs, parameters)``."""
        found = jacobian(self._module, self._X, self._memory, "float64", names=self._names)
        return np.asarray(found.cpu().numpy())

    def loss(self, parameters: Floats, targets: Any, kind: str, rows: Any) -> tuple[Floats, Floats]:
        """Losses ``(chains,)`` and gradients ``(chains, parameters)`` on some points."""
        X, y = self._X[rows], torch.as_tensor(np.ascontiguousarray(targets[rows]))

        def single(flat: torch.Tensor) -> torch.Tensor:
            outputs = self._call(flat, X)
            if kind == "mse":
                return ((outputs - y) ** 2).sum() / (2 * len(X))
            return torch.nn.functional.cross_entropy(outputs, y.long())

        with evaluating(self._module):
            slopes, losses = vmap(grad_and_value(single))(torch.from_numpy(np.ascontiguousarray(parameters)))
        return np.asarray(losses.detach().numpy()), np.asarray(slopes.detach().numpy())
