"""Matching by a straight-through estimator: the permutation with the smallest loss half-way between two models.

A latent copy of the parameters follows the gradient of the loss at the middle ``(a + g b) / 2``, where ``g`` is the
element that brings ``b`` closest to the latent copy; the gradient passes through the choice of ``g`` as if it were not
there (Ainsworth et al. 2023, section 3.3, after Bengio et al. 2013). Every element that is met is a candidate; the one
with the smallest loss over all data is returned, among them the one that it starts from and the identity.

*Learned* permutations have a matrix of logits for every group instead of a latent copy. Forward the best assignment of
the logits is used, backward the doubly stochastic matrix that Sinkhorn's iteration makes of them (Mena et al. 2018;
Pena et al. 2023, "Re-basin via implicit Sinkhorn differentiation"), at random points of the way between the models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.losses import Loss, batch_loss
from fiberscope.connectivity.methods.assignment import assign
from fiberscope.connectivity.methods.weights import Weights, descend
from fiberscope.connectivity.rotations import ORTHOGONAL, Rotations
from fiberscope.connectivity.structure import Structure
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION
from fiberscope.modules.batches import Batch, batches
from fiberscope.modules.calls import Selector, points
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.tracing.groups import own_tensors
from fiberscope.network.action.element import Element, Monomial
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import Run

RATE = 1e-2
"""Of the latent copy's optimiser, Adam; weights of trained layers are a few hundredths to tenths."""


WAY = (0.3, 0.7)
"""Between which points of the way learned permutations make their steps."""

SOFT_RATE, SINKHORN = 0.1, 20
"""Of the optimiser of the logits, and rounds of Sinkhorn's iteration."""

LOOKS = 16
"""How often the learned permutations are measured on all data, at most."""


@dataclass(frozen=True)
class Tried:
    """The best element, the loss half-way with the identity and with it, and how many points were read."""

    element: Element
    losses: tuple[float, float]
    samples: int


def straight_through(
    a: nn.Module,
    b: nn.Module,
    structure: Structure,
    pair: Weights,
    start: Element,
    loss: Loss,
    data: Any,
    output: Selector,
    batch_size: int,
    steps: int,
    run: Run,
) -> Tried:
    """The best of the elements that the estimator meets in so many steps, one batch each."""
    halfway = _Halfway.between(a, b, structure, loss, data, output, batch_size, steps)
    mean, middle, held = halfway.mean, halfway.state, halfway.held
    with evaluating(a):
        identity = structure.identity()
        first = mean(identity)
        best, lowest = min(((identity, first), (start, mean(start))), key=lambda one: one[1])
        known = [identity, start]
        latent = {name: value.clone().requires_grad_() for name, value in pair.moved(start).b.items()}
        rule = torch.optim.Adam(latent.values(), lr=RATE)
        element = start
        for step, batch in zip(range(steps), _again(held), strict=False):
            run.step(step, steps, "straight-through matching")
            _descend(a, middle(element), latent, rule, batch, loss, output)
            here = replace(pair.moved(element), a={name: value.detach() for name, value in latent.items()})
            element = descend(here, step, run.quietly())[0] @ element
            if all(element != one for one in known):
                known.append(element)
                if (found := mean(element)) < lowest:
                    best, lowest = element, found
    return Tried(best, (first, lowest), sum(points(x) for x, _ in held))


def learned_permutations(
    a: nn.Module,
    b: nn.Module,
    structure: Structure,
    pair: Weights,
    start: Element,
    loss: Loss,
    data: Any,
    output: Selector,
    batch_size: int,
    steps: int,
    seed: int,
    run: Run,
) -> Tried:
    """The best of the elements that soft permutations meet on their way; see above. Never worse than the start."""
    halfway = _Halfway.between(a, b, structure, loss, data, output, batch_size, steps)
    groups = structure.only(PERMUTATION).groups
    soft = Rotations(tuple(replace(group, kind=ORTHOGONAL) for group in groups), (), {})
    near = pair.moved(start)
    theirs = halfway.moved(start)
    logits = {group.name: _logits(near.gains(group)).requires_grad_() for group in groups}
    rule = torch.optim.Adam(logits.values(), lr=SOFT_RATE)
    rng = np.random.default_rng(seed)
    with evaluating(a):
        identity = structure.identity()
        first = halfway.mean(identity)
        best, lowest = min(((identity, first), (start, halfway.mean(start))), key=lambda one: one[1])
        known = [identity, start]
        for step, batch in zip(range(steps), _again(halfway.held), strict=False):
            run.step(step, steps, "learning of permutations")
            rule.zero_grad()
            maps = {name: _straight(value) for name, value in logits.items()}
            t, moved = float(rng.uniform(*WAY)), soft.act(theirs, maps)
            state = {name: torch.lerp(value, moved[name].to(value), t) for name, value in halfway.mine.items()}
            part = batch_loss(a, state, batch, loss, output)
            torch.autograd.backward(part.total / max(1, part.terms))
            rule.step()
            if step == steps - 1 or (step + 1) % max(1, steps // LOOKS) == 0:
                element = Element({g.name: Monomial(_hard(logits[g.name]), None, g.parents) for g in groups}) @ start
                if all(element != one for one in known):
                    known.append(element)
                    if (found := halfway.mean(element)) < lowest:
                        best, lowest = element, found
    return Tried(best, (first, lowest), sum(points(x) for x, _ in halfway.held))


def _logits(gains: FloatArray) -> Tensor:
    """To begin with: every neuron has its partner with about half of the weight, and others as they are like it."""
    matrix = torch.from_numpy(np.asarray(gains, dtype=np.float32))
    n = matrix.shape[-1]
    spread = matrix.std(dim=(-1, -2), keepdim=True) if n > 1 else torch.ones(1, 1, 1)
    scaled = torch.where(spread > 0, (matrix - matrix.mean(dim=(-1, -2), keepdim=True)) / spread, 0.0)
    held = torch.diagonal(scaled, dim1=-2, dim2=-1)
    largest = scaled.amax(dim=-1)
    return scaled + torch.diag_embed(largest - held + np.log(n))


def _straight(logits: Tensor) -> Tensor:
    """The best assignment as a matrix, with the derivative of the doubly stochastic one."""
    found = logits
    for _ in range(SINKHORN):
        found = found - found.logsumexp(-1, keepdim=True)
        found = found - found.logsumexp(-2, keepdim=True)
    soft = found.exp()
    hard = nn.functional.one_hot(torch.from_numpy(_hard(logits)), logits.shape[-1]).to(soft)
    return hard + (soft - soft.detach())


def _hard(logits: Tensor) -> IntArray:
    return assign(logits.detach().double().numpy())


@dataclass(frozen=True)
class _Halfway:
    """The loss in the middle between ``a`` and a moved ``b``, on all data."""

    a: nn.Module
    structure: Structure
    mine: Mapping[str, Tensor]
    theirs: Mapping[str, Tensor]
    loss: Loss
    output: Selector
    held: list[Batch]

    @classmethod
    def between(
        cls,
        a: nn.Module,
        b: nn.Module,
        structure: Structure,
        loss: Loss,
        data: Any,
        output: Selector,
        batch_size: int,
        steps: int,
    ) -> _Halfway:
        if steps < 1:
            raise InputError(f"steps: expected a positive number, got {steps}")
        mine, theirs = ({name: value.detach() for name, value in own_tensors(one)[0].items()} for one in (a, b))
        mine = {name: value for name, value in mine.items() if value.is_floating_point()}
        return cls(a, structure, mine, theirs, loss, output, list(batches(data, a, batch_size)))

    def moved(self, element: Element) -> dict[str, Tensor]:
        return {**self.theirs, **self.structure.act(self.theirs, element)}

    def state(self, element: Element) -> dict[str, Tensor]:
        theirs = self.moved(element)
        return {name: torch.lerp(value, theirs[name], 0.5) for name, value in self.mine.items()}

    def mean(self, element: Element) -> float:
        state, sums = self.state(element), [0.0, 0.0]
        with torch.no_grad():
            for batch in self.held:
                part = batch_loss(self.a, state, batch, self.loss, self.output)
                sums = [sums[0] + float(part.total), sums[1] + part.terms]
        return sums[0] / max(1.0, sums[1])


def _descend(
    a: nn.Module,
    state: Mapping[str, Tensor],
    latent: Mapping[str, Tensor],
    rule: torch.optim.Optimizer,
    batch: Batch,
    loss: Loss,
    output: Selector,
) -> None:
    """One step of the latent copy: it gets the gradient of the half that ``b`` has in the middle."""
    leaves = {name: state[name].clone().requires_grad_() for name in latent}
    part = batch_loss(a, {**state, **leaves}, batch, loss, output)
    slopes = torch.autograd.grad(part.total / max(1, part.terms), list(leaves.values()), allow_unused=True)
    for value, slope in zip(latent.values(), slopes, strict=True):
        value.grad = None if slope is None else (0.5 * slope).to(value)
    rule.step()


def _again(held: list[Batch]) -> Iterator[Batch]:
    while True:
        yield from held
