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

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.methods.assignment import assign
from fiberscope.connectivity.methods.way import Way
from fiberscope.connectivity.methods.weights import Weights, descend
from fiberscope.connectivity.rotations import ORTHOGONAL, Rotations
from fiberscope.connectivity.structure import Structure
from fiberscope.modules.action import PERMUTATION
from fiberscope.modules.batches import Batch
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


def straight_through(way: Way, b: nn.Module, structure: Structure, pair: Weights, start: Element, run: Run) -> Tried:
    """The best of the elements that the estimator meets in the steps of a way, one batch each."""
    seen = _Candidates.begin(way, b, structure)
    latent = {name: value.clone().requires_grad_() for name, value in pair.moved(start).b.items()}
    rule = torch.optim.Adam(latent.values(), lr=RATE)
    element = start
    with evaluating(way.a):
        seen.see(start)
        for step, batch in way.batches(run, "straight-through matching"):
            _descend(way, way.state(seen.moved(element), 0.5), latent, rule, batch)
            here = replace(pair.moved(element), a={name: value.detach() for name, value in latent.items()})
            element = descend(here, step, run.quietly())[0] @ element
            seen.see(element)
    return seen.best()


def learned_permutations(
    way: Way, b: nn.Module, structure: Structure, pair: Weights, start: Element, seed: int, run: Run
) -> Tried:
    """The best of the elements that soft permutations meet on their way; see above. Never worse than the start."""
    seen = _Candidates.begin(way, b, structure)
    groups = structure.only(PERMUTATION).groups
    soft = Rotations(tuple(replace(group, kind=ORTHOGONAL) for group in groups), (), {})
    near, theirs = pair.moved(start), seen.moved(start)
    logits = {group.name: _logits(near.gains(group)).requires_grad_() for group in groups}
    rule = torch.optim.Adam(logits.values(), lr=SOFT_RATE)
    rng = np.random.default_rng(seed)
    with evaluating(way.a):
        seen.see(start)
        for step, batch in way.batches(run, "learning of permutations"):
            rule.zero_grad()
            t, maps = float(rng.uniform(*WAY)), {name: _straight(value) for name, value in logits.items()}
            way.slope(way.state(soft.act(theirs, maps), t), batch)
            rule.step()
            if way.is_look(step, LOOKS):
                hard = {group.name: Monomial(_hard(logits[group.name]), None, group.parents) for group in groups}
                seen.see(Element(hard) @ start)
    return seen.best()


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


@dataclass
class _Candidates:
    """The elements that were met, each once, with the loss half-way between ``a`` and the moved ``b`` on all data."""

    way: Way
    structure: Structure
    theirs: Mapping[str, Tensor]
    losses: list[tuple[Element, float]]

    @classmethod
    def begin(cls, way: Way, b: nn.Module, structure: Structure) -> _Candidates:
        """With the identity as the first."""
        found = cls(way, structure, {name: value.detach() for name, value in own_tensors(b)[0].items()}, [])
        with evaluating(way.a):
            found.see(structure.identity())
        return found

    def moved(self, element: Element) -> dict[str, Tensor]:
        return {**self.theirs, **self.structure.act(self.theirs, element)}

    def see(self, element: Element) -> None:
        if all(element != one for one, _ in self.losses):
            self.losses.append((element, self.way.mean(self.moved(element))))

    def best(self) -> Tried:
        """The first with the smallest loss, the losses with the identity and with it, and how many points were read."""
        element, lowest = min(self.losses, key=lambda one: one[1])
        return Tried(element, (self.losses[0][1], lowest), self.way.samples)


def _descend(
    way: Way, state: Mapping[str, Tensor], latent: Mapping[str, Tensor], rule: torch.optim.Optimizer, batch: Batch
) -> None:
    """One step of the latent copy: it gets the gradient of the half that ``b`` has in the middle."""
    leaves = {name: state[name].clone().requires_grad_() for name in latent}
    part = way.lost({**state, **leaves}, batch)
    slopes = torch.autograd.grad(part.total / max(1, part.terms), list(leaves.values()), allow_unused=True)
    for value, slope in zip(latent.values(), slopes, strict=True):
        value.grad = None if slope is None else (0.5 * slope).to(value)
    rule.step()
