"""Matching in the larger groups: orthogonal maps by Procrustes, and learned on data.

First permutations by weights, then, block by block, the orthogonal map with the smallest distance (Procrustes), and
once more the permutations of what is left, while the distance falls. *Learned* maps go on from there: each is
``exp(S) R`` with a skew-symmetric ``S``, which follows the gradient of the loss between the models, at random points of
the way (Theus et al. 2025 do so for transformers). The best map that is met counts, the one at the start among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.methods.families import best, element_of
from fiberscope.connectivity.methods.way import Way
from fiberscope.connectivity.methods.weights import Weights, by_weights, movable
from fiberscope.connectivity.paths import with_state
from fiberscope.connectivity.rotations import CENTRED, Rotations, centred_basis, nearest
from fiberscope.connectivity.structure import Structure
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.parametrisations import plain
from fiberscope.modules.tracing.groups import own_tensors
from fiberscope.network.action.element import Element
from fiberscope.numerics.cutoffs import STALLED
from fiberscope.run import Run

ROUNDS = 10
"""Rounds of maps and permutations, at most."""

RATE = 1e-2
"""Of the optimiser of ``S``, whose entries are angles."""

WAY, PLACES = (0.2, 0.8), (0.25, 0.5, 0.75)
"""Between which points of the way the steps are made, and where the loss is measured that decides."""

LOOKS = 8
"""How often the maps are measured on all data, at most."""

Move = Element | dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Turns:
    """Permutations and orthogonal maps, one after the other, of a module whose norms are folded."""

    structure: Structure
    rotations: Rotations
    moves: tuple[Move, ...]

    def reference(self, a: nn.Module) -> nn.Module:
        """The first model as the second is to be compared with: its norms folded, and nothing turned."""
        return self.rotations.apply(a, {})

    def apply(self, b: nn.Module) -> nn.Module:
        module = plain(b)
        own = own_tensors(module)[0]
        with torch.no_grad():
            found = self.acted(self.rotations.folded(own))
        return with_state(module, {name: value for name, value in found.items() if value is not own[name]})

    def acted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors of a folded model after the moves."""
        found = dict(tensors)
        for move in self.moves:
            if isinstance(move, Element):
                found |= self.structure.act(found, move)
            else:
                found = self.rotations.act(found, move)
        return found


@dataclass(frozen=True)
class Turned:
    """What was found: the moves, the distances before and after, and the losses on the way where they counted."""

    turns: Turns
    distances: tuple[float, float]
    losses: tuple[float, float] | None
    samples: int


def procrustes(
    a: nn.Module, b: nn.Module, structure: Structure, found: Rotations, restarts: int, seed: int, run: Run
) -> Turned:
    """Permutations and orthogonal maps with a small distance; never larger than that of the folded models."""
    sides = [found.folded({name: v.detach() for name, v in own_tensors(one)[0].items()}) for one in (a, b)]
    floating = [{name: v for name, v in side.items() if v.is_floating_point()} for side in sides]
    names = {name for name, _ in a.named_parameters()}
    start = Weights.between(
        structure.only("permutation").groups, *({n: v for n, v in side.items() if n in names} for side in floating)
    )
    start.check()
    element = by_weights(start, restarts, seed, run)
    pair, moves = start.moved(element), [element]
    distance = pair.distance()
    blocked = {block.name for block in found.blocks}
    for done in range(ROUNDS):
        before = distance
        for block in found.blocks:
            run.step(done, ROUNDS, f"rotation of {block.name}")
            maps = {block.name: nearest(block, pair.gains(block))}
            pair, distance, moves = _kept(pair, distance, moves, maps, replace(pair, b=found.act(pair.b, maps)))
        for tree in movable(pair):
            if tree.group.name not in blocked:
                move = element_of(tree, best(tree, pair, run))
                if not move.is_identity:
                    pair, distance, moves = _kept(pair, distance, moves, move, pair.moved(move))
        if not distance < before * (1 - STALLED):
            break
    return Turned(Turns(structure, found, tuple(moves)), (start.distance(), distance), None, 0)


def _kept(
    pair: Weights, distance: float, moves: list[Any], move: Any, after: Weights
) -> tuple[Weights, float, list[Any]]:
    found = after.distance()
    return (after, found, [*moves, move]) if found < distance else (pair, distance, moves)


def learn(given: Way, b: nn.Module, start: Turned, seed: int, run: Run) -> Turned:
    """Maps that follow the gradient of the loss on the way, from where Procrustes ended; never worse than there."""
    turns = start.turns
    way = given.since(turns.rotations.folded(own_tensors(given.a)[0]))
    raw = {n: v.detach() for n, v in turns.rotations.folded(own_tensors(b)[0]).items()}
    theirs = turns.acted(raw)
    angles = {
        block.name: torch.zeros(block.copies, *2 * (_free(block),), requires_grad=True)
        for block in turns.rotations.blocks
    }
    rng = np.random.default_rng(seed)
    with evaluating(way.a):
        first, lowest, chosen = way.mean(raw, PLACES), way.mean(theirs, PLACES), {}
        rule = torch.optim.Adam(angles.values(), lr=RATE)
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(rule, way.steps)  # large steps at the end leave noise
        for step, batch in way.batches(run, "learning of rotations"):
            rule.zero_grad()
            turned = turns.rotations.act(theirs, _maps(turns.rotations, angles))
            way.slope(way.state(turned, float(rng.uniform(*WAY))), batch)
            rule.step()
            rate.step()
            if way.is_look(step, LOOKS):
                maps = {name: value.detach() for name, value in _maps(turns.rotations, angles).items()}
                if (value := way.mean(turns.rotations.act(theirs, maps), PLACES)) < lowest:
                    lowest, chosen = value, maps
    moves: Sequence[Move] = (*turns.moves, chosen) if chosen else turns.moves
    found = replace(turns, moves=tuple(moves) if lowest < first else ())
    distances = _distance(way.mine, raw), _distance(way.mine, found.acted(raw))
    return Turned(found, distances, (first, min(lowest, first)), way.samples)


def _free(block: Any) -> int:
    return int(block.size - 1 if block.kind == CENTRED else block.size)


def _maps(rotations: Rotations, angles: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for block in rotations.blocks:
        skew = torch.linalg.matrix_exp(angles[block.name] - angles[block.name].transpose(-1, -2))
        if block.kind == CENTRED:
            basis = centred_basis(block.size).to(skew)
            skew = basis @ skew @ basis.T + 1.0 / block.size
        found[block.name] = skew
    return found


def _distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    return float(np.sqrt(sum(float((a[name] - b[name]).double().square().sum()) for name in a)))
