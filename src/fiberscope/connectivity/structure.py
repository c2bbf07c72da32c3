"""The symmetries that leave a module's function alone: groups of neurons, and the tensors that each group moves.

A :class:`Structure` is plain data: for each group of neurons its size, the places in tensors on which it acts, and the
layers at which its activations can be read. Applying an element knows nothing of architectures. What finds the groups
is :func:`permutation_structure`, from the operations that a module really runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lgamma, log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.selfcheck import Drift, Probe
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION, SCALING, Group, act, check_fits
from fiberscope.modules.batches import batches
from fiberscope.modules.calls import Inputs, Selector, told
from fiberscope.modules.parametrisations import copied, plain
from fiberscope.modules.tracing.groups import Pinned, fused_scalings, groups_of, own_tensors, pinned_of
from fiberscope.network.action.element import Element
from fiberscope.network.border import as_torch
from fiberscope.results import Result, hidden

Moves = Element | Mapping[str, Any]
"""An element, or one permutation per group: new neuron ``i`` is old neuron ``p[i]``, as in :func:`fiberscope.permute`.
"""

POINTS = 8
"""Points of an example that are run, at most."""

MANY = 10**6
"""Generic elements of a group from which on it is tried together with others."""

ROUNDS = 3
"""Of trials of several groups at once; those that meet in one are apart in the next."""


@dataclass(frozen=True)
class Structure(Result):
    """Groups of neurons that may be permuted, or scaled, together; ``pinned`` is what stays on its axes, with reasons.

    >>> from fiberscope.modules.action import Axis
    >>> chain = Structure((Group("h", 2, (Axis("0.weight", 0), Axis("0.bias", 0), Axis("2.weight", 1)), ("2",)),))
    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> moved = chain.apply(net, {"h": [1, 0]})
    >>> torch.equal(moved[0].weight, net[0].weight.flip(0)), torch.equal(moved[2].weight, net[2].weight.flip(1))
    (True, True)
    """

    groups: tuple[Group, ...]
    pinned: tuple[Pinned, ...] = field(default=(), repr=False)
    unknown: tuple[str, ...] = ()
    """Operations that no rule covers, and that therefore pin what reaches them."""
    source: tuple[nn.Module, Inputs, Selector] | None = field(
        default=None, repr=False, compare=False, metadata=hidden()
    )
    """What it was found on, for :meth:`check`."""

    def only(self, kind: str) -> Structure:
        """The groups of one kind: ``"permutation"``, or ``"scaling"`` by positive factors."""
        return replace(self, groups=tuple(group for group in self.groups if group.kind == kind))

    def random(self, seed: int | np.random.Generator) -> Element:
        """A random element: uniform permutations, and factors that are powers of two."""
        rng = np.random.default_rng(seed)
        return Element({group.name: group.random(rng) for group in self.groups})

    def identity(self) -> Element:
        return Element({group.name: group.identity() for group in self.groups})

    def apply(self, module: nn.Module, element: Moves) -> nn.Module:
        """A new module with its neurons in another order; groups that are not mentioned stay.

        A parametrised module becomes one with plain, effective weights.
        """
        changed = plain(module)
        changed = copied(module) if changed is module else changed
        own, _ = own_tensors(changed)
        with torch.no_grad():
            for name, value in self.act(own, element).items():
                own[name].copy_(value)
        return changed

    def act(self, tensors: Mapping[str, Tensor], element: Moves) -> dict[str, Tensor]:
        """The tensors that an element changes, new ones, of a module or a state dict."""
        element = element if isinstance(element, Element) else Element(element)
        check_fits(element, self.groups)
        changed: dict[str, Tensor] = {}
        for group in self.groups:  # a parent stands before what is inside it, and moves first
            if group.name in element and not element[group.name].is_identity:
                changed |= act(element[group.name], group.axes, {**tensors, **changed})
        return changed

    def check(self, seed: int = 0) -> tuple[Drift, ...]:
        """What a random element changes in the outputs, for every group by itself and for all at once, as ``all``."""
        if self.source is None:
            raise InputError("structure: expected one that was found by permutation_structure, to know its module")
        probe = Probe(*self.source)
        return (*(_tried(self, probe, group, seed) for group in self.groups), _tried(self, probe, None, seed))


def permutation_structure(module: Any, example: Any, *, output: Selector = None, seed: int = 0) -> Structure:
    """The permutations and scalings of neurons that leave the function of a module alone, whatever its parameters are.

    The module is run once, and the axes of its tensors are followed through every operation: axes that meet are one
    group of neurons, axes whose members an operation tells apart stay. An operation that is not known pins what reaches
    it, so the structure may be partial but not wrong; and every group is tried with a random element on a copy with
    random parameters: one that changes the outputs is pinned, too, and says so.

    Parameters
    ----------
    module
        Any ``torch.nn.Module``; of a parametrised one the effective weights are meant. It is not changed.
    example
        Inputs, in any of the forms of :func:`fiberscope.barrier`; a few points are enough. Lengths and image sizes
        of the example are the ones that the structure is found for. What it does not run is not seen: tensors that
        nothing reads stay where they are, and are listed.
    output
        Which part of what the module gives is its function, as for :func:`fiberscope.barrier`.
    seed
        For the random parameters and elements of the self-check.

    Examples
    --------
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    >>> found = permutation_structure(net, torch.zeros(1, 1, 4, 4))
    >>> [(group.name, group.kind, group.size, group.copies) for group in found.groups]
    [('0', 'permutation', 4, 1), ('0*', 'scaling', 1, 4)]
    >>> all(drift.ok for drift in found.check())
    True
    """
    given = plain(as_torch(module, "module"))
    inputs = next(batches(example, given, POINTS, name="example"))[0]
    with told("module: it does not run on the example"):
        probe = Probe(given, inputs, output, seed, follow=True)
    trace = probe.trace
    assert trace is not None
    groups, refused = _trusted(groups_of(trace), probe, seed)
    groups += _trusted(fused_scalings(groups), probe, seed)[0]
    return Structure(groups, (*pinned_of(trace), *refused), tuple(trace.unknown), (given, inputs, output))


def _trusted(groups: tuple[Group, ...], probe: Probe, seed: int) -> tuple[tuple[Group, ...], list[Pinned]]:
    """The groups that pass the self-check, and what the others leave where it is.

    What leaves the function alone is a group itself. So if independent random elements of several groups, together, do
    so, then each of them does, but for a chance: of two halves of one group that was cut, the one in a few million that
    both are moved alike. Groups with few elements are tried by themselves, and so are all if the outputs have changed.
    """
    found = Structure(groups)
    left, meetings = [group for group in groups if not _many(group)], set[frozenset[str]]()
    several = [group for group in groups if _many(group)]
    if several and not probe.drift("", _trial(found, probe, several, seed)).ok:
        left = list(groups)
    for _ in range(ROUNDS):
        known = len(meetings)
        for part in _apart(left, meetings):
            right, met = probe.apart({group.name: _trial(found, probe, (group,), seed) for group in part})
            left, meetings = [group for group in left if group.name not in right], meetings | met
        if len(meetings) == known:
            break
    wrong = {group.name: drift for group in left if not (drift := _tried(found, probe, group, seed)).ok}
    kept, refused = [], []
    for group in groups:
        # what sits in a wrong group goes with it: it has an order for every member of what is no index set
        name = next((name for name in (group.name, *group.parents) if name in wrong), None)
        if name is None:
            kept.append(group)
        else:
            reason = f"self-check: a random element of {name} moves the outputs by {wrong[name].value:.1e}"
            refused += [Pinned(axis.tensor, axis.axis, group.size, reason) for axis in group.axes]
    return tuple(kept), refused


def _many(group: Group) -> bool:
    """Whether two generic elements of a group are alike by a chance that counts for nothing."""
    return group.kind == SCALING or group.copies * lgamma(group.size) > log(MANY)  # so many cycles, (size - 1)!


def _tried(structure: Structure, probe: Probe, group: Group | None, seed: int) -> Drift:
    chosen = structure.groups if group is None else (group,)
    return probe.drift("all" if group is None else group.name, _trial(structure, probe, chosen, seed))


def _trial(structure: Structure, probe: Probe, groups: Sequence[Group], seed: int) -> dict[str, Tensor]:
    """The tensors that a random element of some groups changes, one that moves every neuron."""
    rng = np.random.default_rng(seed)
    return structure.act(probe.own, Element({group.name: group.generic(rng) for group in groups}))


def _apart(groups: Sequence[Group], meetings: Iterable[frozenset[str]]) -> list[list[Group]]:
    """The groups in a few parts; in each no two act on one tensor, have met before, or sit in one block as a head."""
    blocks = {name for group in groups if group.kind == PERMUTATION for name in group.parents}
    beside: dict[str, set[str]] = {}
    for met in meetings:
        for name in met:
            beside.setdefault(name, set()).update(met)
    parts: list[tuple[list[Group], set[str]]] = []
    for group in groups:
        mine = {axis.tensor for axis in group.axes} | blocks.intersection(group.parents)
        near = beside.get(group.name, set())
        for part, held in parts:
            if not mine & held and not any(one.name in near for one in part):
                part.append(group)
                held.update(mine)
                break
        else:
            parts.append(([group], mine))
    return [part for part, _ in parts]
