"""Which neuron of one training is which of another: permutations of ``b`` that bring it close to ``a``.

Close in their weights (:mod:`fiberscope.connectivity.methods.weights`), in what their neurons do on data
(:mod:`fiberscope.connectivity.methods.activations`), or in the loss between the two
(:mod:`fiberscope.connectivity.methods.straight`). If the identity comes close to the best, the architecture alone
tells the neurons apart (:cite:`neuronidentifiability`, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.connectivity.losses import Loss
from fiberscope.connectivity.methods.activations import Seen, by_activations
from fiberscope.connectivity.methods.learned import Turns, learn, procrustes
from fiberscope.connectivity.methods.scales import match_scales
from fiberscope.connectivity.methods.straight import learned_permutations, straight_through
from fiberscope.connectivity.methods.way import Way
from fiberscope.connectivity.methods.weights import Weights, by_weights, cosines, descend
from fiberscope.connectivity.paths import check_comparable, check_finite
from fiberscope.connectivity.rotations import rotations
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.connectivity.widths import of_two_widths, padded
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.action import PERMUTATION, SCALING, Group
from fiberscope.modules.batches import BATCH
from fiberscope.modules.calls import Selector
from fiberscope.modules.parametrisations import plain
from fiberscope.network.action.element import Element
from fiberscope.network.border import as_model, as_torch
from fiberscope.network.network import Network
from fiberscope.numerics.floats import IntArray
from fiberscope.results import Result, Tabular, hidden, named
from fiberscope.run import Progress, Run

METHODS = ("activations", "weights", "ste", "learned")
GROUPS = ("permutation", "orthogonal")


@dataclass(frozen=True, slots=True)
class GroupObjective(Result):
    """How alike matched neurons are in one group: at the best permutation, the identity and random ones.

    Of activations it is the mean correlation; of weights the cosine of all tensors of the group, the identity with
    ``b`` as it stands, random ones with the other groups matched. ``unmatched`` counts neurons of ``a`` and of ``b``
    that are constant on the data, or zero: they are like nothing, and their place in the permutation means nothing.
    """

    group: str
    size: int
    optimal: float
    identity: float
    random: float
    random_deviation: float
    unmatched: tuple[int, int]
    copies: int = 1


@dataclass(frozen=True, eq=False)
class Matching(Tabular):
    """What :func:`match` found: an element of the symmetries of ``b``, to be applied by :meth:`apply`."""

    element: Element
    objectives: tuple[GroupObjective, ...] = field(metadata=named("groups"))
    structure: Structure = field(metadata=hidden())
    samples: int
    method: str = "activations"
    distances: tuple[float, float] | None = None
    """``|a - b|`` over the parameters that can move, before and after."""
    losses: tuple[float, float] | None = None
    """The loss half-way between the two (of learned maps: its mean over three points of the way), before and after."""
    by_weights: tuple[str, ...] = ()
    """Groups that no layer was seen to read, and that were matched by their weights."""
    turns: Turns | None = field(default=None, metadata=hidden())
    """In orthogonal groups: permutations and maps, one after the other."""
    narrow: Mapping[str, int] | None = None
    """Where ``a`` has fewer neurons than ``b``: how many of each group. Neuron ``i`` of ``a`` is ``p[i]`` of ``b``, and
    what is left of ``b`` comes after those."""

    told = ("objective", "identity", "random")
    frame = "objectives"

    @property
    def permutations(self) -> Mapping[str, IntArray]:
        """By group: ``p[i]`` is the neuron of ``b`` that is neuron ``i`` of ``a``; a row for each copy of several."""
        kinds = {group.name: group.kind for group in self.structure.groups}
        return {
            name: part.orders[0] if part.copies == 1 else part.orders
            for name, part in self.element.items()
            if kinds.get(name) == PERMUTATION
        }

    @property
    def objective(self) -> float:
        """Mean over the groups of the objective at the permutations found."""
        return float(np.mean([part.optimal for part in self.objectives] or [np.nan]))

    @property
    def identity(self) -> float:
        """Mean over the groups of the objective at the identity."""
        return float(np.mean([part.identity for part in self.objectives] or [np.nan]))

    @property
    def random(self) -> float:
        """Mean over the groups of the objective at random permutations."""
        return float(np.mean([part.random for part in self.objectives] or [np.nan]))

    def apply(self, b: Any) -> Any:
        """A new model with the function of ``b`` and its neurons in the order of ``a``.

        A symmetry-broken module becomes one with plain, effective weights: its fixed parts cannot move. So compare it
        with ``effective_weights(a)``. Gates (the scheme ``sigma``) move their fixed matrix, which ``a`` then no longer
        shares: there is no segment between the two, and ``interpolate`` says so.
        """
        b = as_model(b, "b")
        if self.turns is not None:
            return self.turns.apply(as_torch(b, "b"))
        if isinstance(b, Network):
            return _to_network(self.structure.apply(b.to_torch(), self.element), b)
        return self.structure.apply(plain(b), self.element)

    def reference(self, a: Any) -> Any:
        """What :meth:`apply` is to be compared with: ``a`` itself; in orthogonal groups, with its norms folded."""
        return a if self.turns is None else self.turns.reference(as_torch(a, "a"))

    def __repr__(self) -> str:
        if self.turns is not None and self.distances is not None:
            blocks, (before, after) = len(self.turns.rotations.blocks), self.distances
            return (
                f"Matching({self.method}, {blocks} orthogonal blocks, distance {before:.4g} before, {after:.4g} after)"
            )
        values = f"optimal {self.objective:.4g}, identity {self.identity:.4g}, random {self.random:.4g}"
        kind = "mean correlation" if self.method == "activations" else "mean cosine"
        return f"Matching({self.method}, {len(self.objectives)} groups, {kind}: {values})"


def match(
    a: Any,
    b: Any,
    structure: Structure | None = None,
    method: str = "activations",
    data: Any = None,
    *,
    output: Selector = None,
    batch_size: int = BATCH,
    seed: int = 0,
    draws: int = 10,
    restarts: int = 0,
    scales: bool = False,
    group: str = "permutation",
    loss: Loss = "cross_entropy",
    steps: int = 100,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Matching:
    """Permutations of the hidden neurons of ``b`` that bring it close to ``a``.

    Parameters
    ----------
    a, b
        Two models of one architecture. Of symmetry-broken ones the effective weights are matched. They are not changed.
        If ``a`` is narrower than ``b``, each of its neurons finds its place in ``b``, by ``"weights"``.
    structure
        Which neurons move together. None: what :func:`fiberscope.permutation_structure` finds.
    method
        ``"weights"``: the smallest distance ``|a - g b|`` over all parameters, biases and norms included. Never larger
        than before. ``"activations"``: the largest correlation of what matched neurons do on data; groups that no
        layer reads are matched by weights afterwards. ``"ste"``: the smallest loss half-way between the two, by a
        straight-through estimator that starts from the matching by weights; never larger than there. ``"learned"``:
        the same by soft permutations (Sinkhorn) that follow the loss on the way; with ``group="orthogonal"`` by maps.
    data
        Inputs, in any of the forms of :func:`fiberscope.barrier`; targets are left aside. For ``"ste"`` inputs with
        targets. For ``"weights"`` an example is enough, and none is needed with a ``structure``, for a
        :class:`Network`, a module that begins with a linear layer, and models that come with inputs of their own
        (``dummy_inputs``).
    output
        Which part of what the models give is their function, as for :func:`fiberscope.barrier`. By default the tensor
        itself, the ``logits`` or the only tensor of an output, else all of its tensors. Neurons that are part of it
        stay where they are.
    seed, draws
        For random orders, and the random permutations whose objective is reported.
    restarts
        Further descents of ``"weights"``, from random permutations; the best one counts.
    scales
        Also bring positive scalings (of ReLU neurons, say) of ``b`` close to ``a``, in the distance of the parameters.
    group
        ``"orthogonal"``: beside permutations the orthogonal maps of residual streams and heads that
        :func:`fiberscope.rotations` finds, with weights of norms folded into their readers. By ``"weights"``
        (Procrustes) or ``"learned"``, which follows the loss half-way from there and is never worse than there. Compare
        ``.apply(b)`` with ``.reference(a)``. Exact up to rounding only: maps are no permutations.
    loss, steps
        For ``"ste"`` and ``"learned"``: as for :func:`fiberscope.barrier`, and steps of its optimiser.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every batch or group, and before a wide assignment with what it
        will cost; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    >>> a = Network.random((3, 8, 8, 2), seed=0)
    >>> rng = np.random.default_rng(1)
    >>> planted = [rng.permutation(8), rng.permutation(8)]
    >>> from fiberscope.network.action.chain import permute
    >>> found = match(a, permute(a, planted), data=rng.normal(size=(100, 3)))
    >>> [bool((q[p] == range(8)).all()) for q, p in zip(planted, found.permutations.values())]
    [True, True]
    >>> match(a, permute(a, planted), method="weights").distances[1]
    0.0
    """
    run = Run.begin(progress, time_limit)
    _check_question(method, group, data, structure)
    raw = as_torch(a, "a"), as_torch(b, "b")
    left, right = map(plain, raw)
    for side, module in (("a", left), ("b", right)):
        check_finite(module, side)
    if of_two_widths(left, right):
        return _of_two_widths(left, right, method, data, output, restarts, seed, run)
    # Fixed parts are compared where both have them; a structure gives plain models, which match parametrised ones.
    check_comparable(*(raw if (left is raw[0]) == (right is raw[1]) else (left, right)))
    if structure is None:
        first, data = _first(data) if data is not None else (example_of(left), None)
        structure = permutation_structure(left, first, output=output)
    groups = structure.only(PERMUTATION).groups
    if not groups:
        raise UnsupportedModelError("module: expected a hidden layer whose neurons can be permuted, found none")
    if group == "orthogonal":
        turned = procrustes(left, right, structure, rotations(structure, seed), restarts, seed, run)
        if method == "learned":
            turned = learn(Way.of(left, loss, data, output, batch_size, steps), right, turned, seed, run)
        distances, losses = turned.distances, turned.losses
        return Matching(Element({}), (), structure, turned.samples, method, distances, losses, turns=turned.turns)
    pair = Weights.between(structure.groups, *(parameters_of(module) for module in (left, right)))
    options: dict[str, Any]
    if method == "activations":
        seen = by_activations(left, right, groups, data, batch_size, run)
        found = _completed(seen.element, pair, groups, run)
        objectives = _correlations(seen, groups, seed, draws)
        options = {"samples": seen.samples, "by_weights": tuple(g.name for g in groups if g.name not in seen.grams)}
    else:
        found = by_weights(pair, restarts, seed, run)
        options = {"samples": 0}
        if method in ("ste", "learned"):
            way = Way.of(left, loss, data, output, batch_size, steps)
            tried = (
                straight_through(way, right, structure, pair, found, run)
                if method == "ste"
                else learned_permutations(way, right, structure, pair, found, seed, run)
            )
            found, options = tried.element, {"samples": tried.samples, "losses": tried.losses}
        objectives = _cosines(pair, found, groups)
    after = pair.moved(found)
    if scales:
        factors, after = match_scales(after, structure.only(SCALING).groups, run)
        found = factors @ found
    distances = pair.distance(), after.distance()
    found = Element({group.name: found[group.name] for group in structure.groups if group.name in found})
    return Matching(found, tuple(objectives), structure, method=method, distances=distances, **options)


def _check_question(method: str, group: str, data: Any, structure: Any) -> None:
    if structure is not None and not isinstance(structure, Structure):
        given = type(structure).__name__
        raise InputError(f"structure: expected what permutation_structure found, got {given}; inputs go to data=")
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    if group not in GROUPS or (group == "orthogonal" and method not in ("weights", "learned")):
        raise InputError(f"group: expected one of {', '.join(GROUPS)}, the last with weights or learned, got {group!r}")
    if data is None and method != "weights":
        wanted = "inputs to compare the activations on" if method == "activations" else "inputs with targets"
        raise InputError(f"data: expected {wanted}, got None")


def _of_two_widths(
    a: nn.Module, b: nn.Module, method: str, data: Any, output: Selector, restarts: int, seed: int, run: Run
) -> Matching:
    """Every neuron of a narrow ``a`` finds its place in a wide ``b``: after the element, they come first."""
    if method != "weights":
        raise UnsupportedModelError(f"method {method}: models of two widths are matched by 'weights'")
    narrow, wide = (
        permutation_structure(one, example_of(one) if data is None else _first(data)[0], output=output)
        for one in (a, b)
    )
    theirs = parameters_of(b)
    groups = wide.only(PERMUTATION).groups
    pair = Weights.between(groups, padded(parameters_of(a), narrow, wide, theirs), theirs)
    found = by_weights(pair, restarts, seed, run)
    found = Element({group.name: found[group.name] for group in groups})
    distances = pair.distance(), pair.moved(found).distance()
    sizes = {group.name: group.size for group in narrow.groups}
    objectives = tuple(_cosines(pair, found, groups))
    return Matching(found, objectives, wide, 0, method, distances, narrow={name: sizes[name] for name in found})


def example_of(module: nn.Module) -> Any:
    """Inputs to trace a module with where nobody gives any: its own, or zeros for a linear layer at its beginning."""
    own = getattr(module, "dummy_inputs", None)
    if isinstance(own, Mapping):
        return dict(own)
    leaves = (part for part in module.modules() if not list(part.children()))
    first = next((part for part in leaves if not isinstance(part, nn.Flatten | nn.Identity)), None)
    if isinstance(first, nn.Linear):
        return torch.zeros(2, first.in_features)
    raise InputError("data: expected an example of the inputs, to see which neurons can move, got None")


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """What counts for the distance: floating parameters, each once. Buffers, such as running means, only move along."""
    return {name: value for name, value in module.named_parameters() if value.is_floating_point()}


def _first(data: Any) -> tuple[Any, Any]:
    """Data to look at and data to read: the same, but of an iterator its first batch and all that it gives."""
    if not isinstance(data, Iterator):
        return data, data
    first = next(data, None)
    return ([], []) if first is None else ([first], chain([first], data))


def _completed(element: Element, pair: Weights, groups: Sequence[Group], run: Run) -> Element:
    """The groups that were not seen, by their weights, with the others where they were found."""
    rest = tuple(group for group in groups if group.name not in element)
    if not rest:
        return element
    after = pair.moved(element)
    return descend(after.of(rest), run=run)[0] @ element


def _correlations(seen: Seen, groups: Sequence[Group], seed: int, draws: int) -> list[GroupObjective]:
    """Mean correlations of every group that was seen; of one with others inside, with the orders inside."""
    rng = np.random.default_rng(seed)
    found = []
    for group in (group for group in groups if group.name in seen.grams):
        problem = seen.grams[group.name]
        count = problem.features(group)
        others = [problem.moved(Element({group.name: group.random(rng)})) for _ in range(max(1, draws))]
        random = np.array([one.scores(group).sum() / count for one in others])
        best = problem.moved(seen.element).scores(group).sum() / count
        now = problem.scores(group).sum() / count
        values = float(best), float(now), float(random.mean()), float(random.std())
        found.append(GroupObjective(group.name, group.size, *values, seen.constant[group.name], group.copies))
    return found


def _cosines(pair: Weights, element: Element, groups: Sequence[Group]) -> list[GroupObjective]:
    after = pair.moved(element)
    found = []
    for group in groups:
        values, zeros = cosines(pair, after, group)
        found.append(GroupObjective(group.name, group.size, *values, zeros, group.copies))
    return found


def _to_network(module: nn.Module, like: Network) -> Network:
    """The parameters of a module made by ``to_torch``, in the order in which the network has its own."""
    values = [value.detach().double().cpu().numpy() for value in module.parameters()]
    return like.with_parameters(dict(zip(like.parameters, values, strict=True)))
