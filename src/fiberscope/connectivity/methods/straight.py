"""Matching by a straight-through estimator: the permutation with the smallest loss half-way between two models.

A latent copy of the parameters follows the gradient of the loss at the middle ``(a + g b) / 2``, where ``g`` is the
element that brings ``b`` closest to the latent copy; the gradient passes through the choice of ``g`` as if it were not
there (Ainsworth et al. 2023, section 3.3, after Bengio et al. 2013). Every element that is met is a candidate; the one
with the smallest loss over all data is returned, among them the one that it starts from and the identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fiberscope.connectivity.losses import Loss, Lost, lost
from fiberscope.connectivity.methods.weights import Weights, descend
from fiberscope.connectivity.structure import Structure
from fiberscope.errors import InputError
from fiberscope.modules.batches import Batch, batches
from fiberscope.modules.calls import Selector, call, points, select
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.tracing.groups import own_tensors
from fiberscope.network.action.element import Element
from fiberscope.run import Run

RATE = 1e-2
"""Of the latent copy's optimiser, Adam; weights of trained layers are a few hundredths to tenths."""


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
    if steps < 1:
        raise InputError(f"steps: expected a positive number, got {steps}")
    held = list(batches(data, a, batch_size))
    own = own_tensors(a)[0]

    def middle(element: Element) -> dict[str, Tensor]:
        theirs = own_tensors(b)[0]
        theirs = {**theirs, **structure.act(theirs, element)}
        floating = {name for name, value in own.items() if value.is_floating_point()}
        return {name: torch.lerp(own[name].detach(), theirs[name].detach(), 0.5) for name in floating}

    def mean(element: Element) -> float:
        state, sums = middle(element), [0.0, 0.0]
        with torch.no_grad():
            for batch in held:
                part = batch_loss(a, state, batch, loss, output)
                sums = [sums[0] + float(part.total), sums[1] + part.terms]
        return sums[0] / max(1.0, sums[1])

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


def batch_loss(a: nn.Module, state: Mapping[str, Tensor], batch: Batch, loss: Loss, output: Selector) -> Lost:
    """What a module with other numbers loses on a batch."""
    inputs, targets = batch
    if targets is None:
        raise InputError("data: expected inputs with targets, got inputs alone")
    found = call(a, inputs, state)
    read = found if output is None and callable(loss) else select(found, output)
    return lost(loss, read, targets, points(inputs))


def _again(held: list[Batch]) -> Iterator[Batch]:
    while True:
        yield from held
