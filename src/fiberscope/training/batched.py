"""Many chains of one architecture as one: batched products over runs, and the backward pass written out.

All parameters of all runs lie in one vector, layer by layer, first the weights of all runs, then their biases. The
layers are views of it: a product sees contiguous blocks (writing into strided ones costs five times more), and an
optimiser step is a handful of operations whatever the depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fiberscope.errors import InputError


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the weights and biases of many chains ``(n_0, ..., n_L)`` lie in one vector."""

    widths: tuple[int, ...]

    @property
    def sizes(self) -> list[int]:
        """Lengths of the blocks of one run: weight and bias of every layer in turn."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return [size for m, n in pairs for size in (n * m, n)]

    @property
    def size(self) -> int:
        """``D``, the number of parameters of one run."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views ``(runs, n, m)`` and ``(runs, 1, n)`` of every layer."""
        runs = len(flat) // self.size
        blocks = torch.split(flat, [runs * size for size in self.sizes])
        return [
            (weight.view(runs, n, m), bias.view(runs, 1, n))
            for weight, bias, m, n in zip(blocks[::2], blocks[1::2], self.widths, self.widths[1:], strict=False)
        ]

    def rows(self, flat: Tensor) -> Tensor:
        """The same numbers as ``(runs, D)``, one run per row: a copy."""
        runs = len(flat) // self.size
        return torch.cat([block.view(runs, -1) for block in torch.split(flat, [runs * n for n in self.sizes])], dim=1)

    def join(self, rows: Tensor) -> Tensor:
        """The vector of ``(runs, D)`` rows; inverse of :meth:`rows`.

        >>> layout = Layout((2, 3, 1))
        >>> rows = torch.arange(26.0).view(2, 13)
        >>> layout.rows(layout.join(rows)).equal(rows)
        True
        """
        return torch.cat([block.reshape(-1) for block in torch.split(rows, self.sizes, dim=1)])

    def select(self, flat: Tensor, keep: Tensor) -> Tensor:
        """The vector of some of the runs."""
        return self.join(self.rows(flat)[keep])

    def spread(self, values: Tensor) -> Tensor:
        """One number per run, repeated for each of its parameters."""
        return self.join(values[:, None].expand(-1, self.size))


@dataclass(frozen=True, slots=True)
class FixedParts:
    """Parts of the parameters that are not trained: ``W_eff = scale * F + D * W``, ``b_eff = d * b``, entrywise.

    ``F`` and ``D`` (``centers`` and ``masks``, one ``(n_l, n_{l-1})`` tensor per layer or None for zeros and ones) are
    the same in every run; ``scale`` is ``(runs, layers)``; ``bias_masks`` holds one ``(n_l,)`` tensor per layer or
    None. This is how symmetry-breaking layers enter a batched training (neuron identifiability paper, equation 1).
    """

    centers: tuple[Tensor | None, ...]
    masks: tuple[Tensor | None, ...]
    bias_masks: tuple[Tensor | None, ...]
    scale: Tensor

    def effective(self, layers: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """The weights and biases that the network uses."""
        found = []
        for index, (weight, bias) in enumerate(layers):
            center, mask, bias_mask = self.centers[index], self.masks[index], self.bias_masks[index]
            used = weight if mask is None else mask * weight
            if center is not None:
                used = used + self.scale[:, index, None, None] * center
            found.append((used, bias if bias_mask is None else bias_mask * bias))
        return found

    def pull_back(self, grads: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Turn gradients with respect to effective parameters into those of the trained ones, in place."""
        for (weight, bias), mask, bias_mask in zip(grads, self.masks, self.bias_masks, strict=True):
            if mask is not None:
                weight.mul_(mask)
            if bias_mask is not None:
                bias.mul_(bias_mask)

    def select(self, keep: Tensor) -> FixedParts:
        """The same for some of the runs."""
        return FixedParts(self.centers, self.masks, self.bias_masks, self.scale[keep])


def forward(layers: Sequence[tuple[Tensor, Tensor]], X: Tensor) -> list[Tensor]:
    """``a_0 = X, a_1, ..., a_{L-1}, z_L`` for ``X`` of shape ``(runs, points, n_0)``."""
    values = [X]
    for index, (weight, bias) in enumerate(layers):
        z = torch.baddbmm(bias, values[-1], weight.mT)
        values.append(z.relu_() if index + 1 < len(layers) else z)
    return values


def backward(
    layers: Sequence[tuple[Tensor, Tensor]],
    values: Sequence[Tensor],
    delta: Tensor,
    grads: Sequence[tuple[Tensor, Tensor]],
) -> None:
    """Write the gradients into ``grads``, given ``delta = d loss / d z_L`` and the values of :func:`forward`."""
    for index in reversed(range(len(layers))):
        weight_grad, bias_grad = grads[index]
        torch.bmm(delta.mT, values[index], out=weight_grad)
        torch.sum(delta, dim=1, keepdim=True, out=bias_grad)
        if index:
            # Where a_l is zero the derivative is zero too: PyTorch's convention at the kink.
            delta = torch.bmm(delta, layers[index][0])
            delta = torch.ops.aten.threshold_backward(delta, values[index], 0.0)


def mse(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error of every run, ``(runs,)``, and its derivative; as ``torch.nn.MSELoss``."""
    difference = z - target
    count = difference.shape[1] * difference.shape[2]
    # A dot product per run; mean() over a square would be two more passes.
    flat = difference.reshape(len(z), 1, count)
    return torch.bmm(flat, flat.mT).view(-1) / count, difference * (2.0 / count)


def cross_entropy(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross entropy of every run for labels ``(runs, points)``, and its derivative."""
    logs = torch.log_softmax(z, dim=2)
    index = target.unsqueeze(2)
    loss = -logs.gather(2, index).mean(dim=(1, 2))
    delta = logs.exp()
    delta.scatter_add_(2, index, torch.full_like(index, -1, dtype=z.dtype))
    return loss, delta.div_(z.shape[1])


LOSSES = {"mse": mse, "cross_entropy": cross_entropy}


class Optimizer:
    """One step on the vector of all parameters, in place, as ``torch.optim`` does for each run.

    ``lr`` and ``weight_decay`` are numbers, or vectors over all parameters where they differ between runs.
    """

    def __init__(self, name: str, lr: float | Tensor, weight_decay: float | Tensor, **settings: float) -> None:
        known = {"adam": {"beta1", "beta2", "eps"}, "adamw": {"beta1", "beta2", "eps"}, "sgd": {"momentum"}}
        if name not in known:
            raise InputError(f"optimizer: expected one of {', '.join(known)}, got {name!r}")
        unknown = sorted(set(settings) - known[name])
        if unknown:
            raise InputError(f"optimizer {name}: expected options {', '.join(sorted(known[name]))}, got {unknown[0]!r}")
        self.name = name
        self.lr = lr
        self.weight_decay = weight_decay
        self.settings = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "momentum": 0.0} | settings
        self.steps = 0
        self.first: Tensor | None = None
        self.second: Tensor | None = None

    def select(self, layout: Layout, keep: Tensor) -> None:
        """Go on with some of the runs."""

        def some(value: Tensor) -> Tensor:
            return layout.select(value, keep)

        self.lr = some(self.lr) if isinstance(self.lr, Tensor) else self.lr
        self.weight_decay = some(self.weight_decay) if isinstance(self.weight_decay, Tensor) else self.weight_decay
        self.first = None if self.first is None else some(self.first)
        self.second = None if self.second is None else some(self.second)

    def step(self, parameters: Tensor, grad: Tensor, factor: float = 1.0) -> None:
        """Update ``parameters``; ``factor`` scales the learning rate (a schedule). ``grad`` is used up."""
        self.steps += 1
        lr = self.lr * factor
        if self.name == "adamw":
            if isinstance(self.weight_decay, Tensor) or self.weight_decay:
                parameters.mul_(1 - lr * self.weight_decay)
        elif isinstance(self.weight_decay, Tensor):
            grad.addcmul_(parameters, self.weight_decay)
        elif self.weight_decay:
            grad.add_(parameters, alpha=self.weight_decay)
        if self.name == "sgd":
            self._momentum_step(parameters, grad, lr)
        else:
            self._adam_step(parameters, grad, lr)

    def _momentum_step(self, parameters: Tensor, grad: Tensor, lr: float | Tensor) -> None:
        if self.settings["momentum"]:
            if self.first is None:
                self.first = grad.clone()
            else:
                self.first.mul_(self.settings["momentum"]).add_(grad)
            grad = self.first
        if isinstance(lr, Tensor):
            parameters.addcmul_(grad, lr, value=-1.0)
        else:
            parameters.add_(grad, alpha=-lr)

    def _adam_step(self, parameters: Tensor, grad: Tensor, lr: float | Tensor) -> None:
        beta1, beta2 = self.settings["beta1"], self.settings["beta2"]
        if self.first is None or self.second is None:
            self.first, self.second = torch.zeros_like(grad), torch.zeros_like(grad)
        self.first.lerp_(grad, 1 - beta1)
        self.second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        correction = (1 - beta2**self.steps) ** 0.5
        denominator = self.second.sqrt().div_(correction).add_(self.settings["eps"])
        size = lr / (1 - beta1**self.steps)
        if isinstance(size, Tensor):
            parameters.sub_(size * self.first / denominator)
        else:
            parameters.addcdiv_(self.first, denominator, value=-size)
