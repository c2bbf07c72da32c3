"""Several trainings brought into one order of neurons, so that going round from one to another leads back.

Every model gets an element ``g_i``; the map from model ``j`` to model ``i`` is ``g_i^-1 g_j``, and such maps agree
along every cycle by construction. What is made small is the sum of squared distances over all pairs. With the others
held, the best ``g_i`` brings model ``i`` closest to their mean, which is a matching by weights; going round never
makes the sum larger (Ainsworth et al. 2023, algorithm 2; Crisostomi et al. 2024 on cycle consistency).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiberscope.connectivity.matching import Matching, example_of, parameters_of
from fiberscope.connectivity.methods.weights import Weights, descend
from fiberscope.connectivity.paths import check_comparable, check_finite
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.action import PERMUTATION
from fiberscope.modules.calls import Selector
from fiberscope.modules.parametrisations import plain
from fiberscope.network.action.element import Element
from fiberscope.network.border import as_torch
from fiberscope.results import Result, hidden
from fiberscope.run import Progress, Run

ROUNDS = 20
"""Rounds over the models, at most."""


@dataclass(frozen=True, eq=False)
class Matchings(Result):
    """What :func:`match_many` found: for every model the element that brings it into the order of the first."""

    elements: tuple[Element, ...]
    distances: tuple[float, float]
    """The square root of the mean squared distance over all pairs, before and after."""
    structure: Structure = field(metadata=hidden())

    def between(self, i: int, j: int) -> Element:
        """The element that brings model ``j`` into the order of model ``i``."""
        return self.elements[i].inverse() @ self.elements[j]

    def apply(self, models: Sequence[Any]) -> tuple[Any, ...]:
        """New models with the same functions, all in the order of the first."""
        if len(models) != len(self.elements):
            raise InputError(f"models: expected {len(self.elements)}, got {len(models)}")
        matchings = (Matching(element, (), self.structure, 0, "weights") for element in self.elements)
        return tuple(one.apply(model) for one, model in zip(matchings, models, strict=True))

    def __repr__(self) -> str:
        before, after = self.distances
        return f"Matchings({len(self.elements)} models, distance {before:.4g} before, {after:.4g} after)"


def match_many(
    models: Sequence[Any],
    structure: Structure | None = None,
    *,
    data: Any = None,
    output: Selector = None,
    seed: int = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Matchings:
    """One order of neurons for several models: cycle-consistent permutations with a small sum of squared distances.

    Never larger than it was. The parameters are those of :func:`fiberscope.match` with the method ``"weights"``.

    Examples
    --------
    >>> from fiberscope.network.action.chain import permute
    >>> from fiberscope.network.network import Network
    >>> a = Network.random((3, 8, 2), seed=0)
    >>> rng = np.random.default_rng(1)
    >>> found = match_many([a, permute(a, [rng.permutation(8)]), permute(a, [rng.permutation(8)])])
    >>> found.distances[1], (found.between(0, 1) @ found.between(1, 2) @ found.between(2, 0)).is_identity
    (0.0, True)
    """
    run = Run.begin(progress, time_limit)
    if not isinstance(models, Sequence) or len(models) < 2:
        raise InputError("models: expected two at least, in a list")
    modules = [plain(as_torch(model, f"models[{k}]")) for k, model in enumerate(models)]
    for k, other in enumerate(modules):
        check_comparable(modules[0], other)
        check_finite(other, f"models[{k}]")
    if structure is None:
        structure = permutation_structure(modules[0], example_of(modules[0]) if data is None else data, output=output)
    groups = structure.only(PERMUTATION).groups
    if not groups:
        raise UnsupportedModelError("module: expected a hidden layer whose neurons can be permuted, found none")
    sides = [Weights.between(groups, found, found) for found in map(parameters_of, modules)]
    elements = _round_trips(sides, seed, run)
    first = elements[0].inverse()
    moved = [side.moved(element).b for side, element in zip(sides, elements, strict=True)]
    distances = _spread([side.b for side in sides]), _spread(moved)
    ordered = ({group.name: one[group.name] for group in groups} for one in (first @ one for one in elements))
    return Matchings(tuple(Element(one) for one in ordered), distances, structure)


def _round_trips(sides: Sequence[Weights], seed: int, run: Run) -> list[Element]:
    """Elements for all models: each to the first one at the start, then each to the mean of the others."""
    still = Element({group.name: group.identity() for group in sides[0].groups})
    identity = [still for _ in sides]
    start = [still, *(descend(Weights(sides[0].groups, sides[0].a, one.b), run=run)[0] @ still for one in sides[1:])]
    before = _spread([side.b for side in sides])
    tried = [(before, identity)]
    for elements in (start, identity):
        found = _settled(sides, list(elements), seed, run)
        tried.append((_spread([side.moved(one).b for side, one in zip(sides, found, strict=True)]), found))
        if tried[-1][0] < before:
            break
    return min(tried, key=lambda one: one[0])[1]


def _settled(sides: Sequence[Weights], elements: list[Element], seed: int, run: Run) -> list[Element]:
    rng = np.random.default_rng(seed)
    moved = [side.moved(element).b for side, element in zip(sides, elements, strict=True)]
    for done in range(ROUNDS):
        still = True
        for i in rng.permutation(len(sides)):
            run.step(done, ROUNDS, "matching of many")
            others = [moved[j] for j in range(len(sides)) if j != i]
            mean = {name: torch.stack([other[name] for other in others]).mean(0) for name in moved[i]}
            element, after = descend(Weights(sides[0].groups, mean, moved[i]), int(rng.integers(1 << 31)), run)
            if not element.is_identity:
                elements[i], moved[i], still = element @ elements[i], after.b, False
        if still:
            break
    return elements


def _spread(held: Sequence[Mapping[str, Tensor]]) -> float:
    """The square root of the mean over all pairs of the squared distance."""
    squares = [
        sum(torch.sum((x[name] - y[name]).square(), dtype=torch.float64).item() for name in x)
        for x, y in combinations(held, 2)
    ]
    return float(np.sqrt(np.mean(squares)))
