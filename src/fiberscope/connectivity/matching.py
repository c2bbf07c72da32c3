"""Which neuron of one training is which of another: assignment on the correlation of their activations.

For each group of interchangeable neurons, ``S_ij`` is the correlation of the activations of neuron ``i`` of ``a`` and
neuron ``j`` of ``b`` on the same data, with its sign; the matching maximises ``sum_i S_{i p(i)}`` (Li et al. 2015;
Ainsworth et al. 2023). If the identity comes close to the maximum, the architecture alone tells the neurons apart
(:cite:`neuronidentifiability`, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import nn

from fiberscope.connectivity.paths import check_comparable
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.action import PERMUTATION
from fiberscope.modules.batches import BATCH
from fiberscope.modules.calls import Selector
from fiberscope.modules.parametrisations import plain
from fiberscope.modules.recording import CrossMoments, cross_moments
from fiberscope.network.border import as_model, as_torch
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result, Tabular, hidden, named
from fiberscope.run import Progress, Run

METHODS = ("activations", "weights", "ste")


@dataclass(frozen=True, slots=True)
class GroupObjective(Result):
    """Mean correlation of matched neurons in one group: at the best permutation, the identity and random ones.

    ``unmatched`` counts neurons of ``a`` and of ``b`` that are constant on the data: they correlate with nothing, and
    their place in the permutation means nothing.
    """

    group: str
    size: int
    optimal: float
    identity: float
    random: float
    random_deviation: float
    unmatched: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Matching(Tabular):
    """What :func:`match` found: ``permutations[group][i]`` is the neuron of ``b`` that is neuron ``i`` of ``a``."""

    permutations: Mapping[str, IntArray]
    objectives: tuple[GroupObjective, ...] = field(metadata=named("groups"))
    structure: Structure = field(metadata=hidden())
    samples: int
    method: str = "activations"

    told = ("objective", "identity", "random")
    frame = "objectives"

    @property
    def objective(self) -> float:
        """Mean over the groups of the objective at the permutations found."""
        return float(np.mean([part.optimal for part in self.objectives]))

    @property
    def identity(self) -> float:
        """Mean over the groups of the objective at the identity."""
        return float(np.mean([part.identity for part in self.objectives]))

    @property
    def random(self) -> float:
        """Mean over the groups of the objective at random permutations."""
        return float(np.mean([part.random for part in self.objectives]))

    def apply(self, b: Any) -> Any:
        """A new model with the function of ``b`` and its neurons in the order of ``a``.

        A symmetry-broken module becomes one with plain, effective weights: its fixed parts cannot move. So compare it
        with ``effective_weights(a)``. Gates (the scheme ``sigma``) move their fixed matrix, which ``a`` then no longer
        shares: there is no segment between the two, and ``interpolate`` says so.
        """
        b = as_model(b, "b")
        if isinstance(b, Network):
            return _to_network(self.structure.apply(b.to_torch(), self.permutations), b)
        return self.structure.apply(plain(b), self.permutations)

    def __repr__(self) -> str:
        values = f"optimal {self.objective:.4g}, identity {self.identity:.4g}, random {self.random:.4g}"
        return f"Matching({self.method}, {len(self.objectives)} groups, mean correlation: {values})"


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
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Matching:
    """Permutations of the hidden neurons of ``b`` that bring it close to ``a``.

    Parameters
    ----------
    a, b
        Two models of one architecture. Of symmetry-broken ones the effective weights are matched.
    structure
        Which neurons move together. None: what :func:`fiberscope.permutation_structure` finds. Groups inside others, as
        the dimensions of heads, and groups that no layer reads as its whole input stay where they are.
    method
        ``"activations"``.
    data
        Inputs, in any of the forms of :func:`fiberscope.barrier`; targets are left aside.
    output
        Which part of what the models give is their function, as for :func:`fiberscope.barrier`. By default the tensor
        itself, the ``logits`` or the only tensor of an output, else all of its tensors. Neurons that are part of it
        stay where they are.
    seed, draws
        For the random permutations whose objective is reported.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every batch; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    >>> a = Network.random((3, 8, 8, 2), seed=0)
    >>> rng = np.random.default_rng(1)
    >>> planted = [rng.permutation(8), rng.permutation(8)]
    >>> from fiberscope.network.action.chain import permute
    >>> found = match(a, permute(a, planted), data=rng.normal(size=(100, 3)))
    >>> [bool((q[p] == range(8)).all()) for q, p in zip(planted, found.permutations.values())]
    [True, True]
    """
    run = Run.begin(progress, time_limit)
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    if method != "activations":
        raise UnsupportedModelError(f"method {method}: matching by {method} is not built yet; take 'activations'")
    if data is None:
        raise InputError("data: expected inputs to compare the activations on, got None")
    modules = [as_torch(a, "a"), as_torch(b, "b")]
    check_comparable(*modules)
    left, right = (plain(module) for module in modules)
    if structure is None:
        first, data = _first(data)
        structure = permutation_structure(left, first, output=output)
    groups = [group for group in structure.only(PERMUTATION).groups if group.readers and group.copies == 1]
    if not groups:
        raise UnsupportedModelError("module: expected a hidden layer whose neurons can be permuted, found none")
    readers = {group.name: group.readers for group in groups}
    found = cross_moments(left, right, readers, data, inputs=True, batch_size=batch_size, run=run)
    rng = np.random.default_rng(seed)
    permutations, objectives = {}, []
    for group in groups:
        moments = found[group.name]
        similarity = moments.correlation
        permutations[group.name] = np.asarray(linear_sum_assignment(similarity, maximize=True)[1], dtype=np.int64)
        objectives.append(_objective(group.name, similarity, permutations[group.name], moments, rng, draws))
    samples = found[groups[0].name].count // len(groups[0].readers)  # each reader sees every sample
    return Matching(permutations, tuple(objectives), structure, samples)


def _first(data: Any) -> tuple[Any, Any]:
    """Data to look at and data to read: the same, but of an iterator its first batch and all that it gives."""
    if not isinstance(data, Iterator):
        return data, data
    first = next(data, None)
    return ([], []) if first is None else ([first], chain([first], data))


def _objective(
    name: str, S: FloatArray, best: IntArray, moments: CrossMoments, rng: np.random.Generator, draws: int
) -> GroupObjective:
    rows = np.arange(len(S))
    random = np.array([S[rows, rng.permutation(len(S))].mean() for _ in range(max(1, draws))])
    x, y = moments.constant
    return GroupObjective(
        name,
        len(S),
        float(S[rows, best].mean()),
        float(S[rows, rows].mean()),
        float(random.mean()),
        float(random.std()),
        (int(x.sum()), int(y.sum())),
    )


def _to_network(module: nn.Module, like: Network) -> Network:
    """The parameters of a module made by ``to_torch``, in the order in which the network has its own."""
    values = [value.detach().double().cpu().numpy() for value in module.parameters()]
    return like.with_parameters(dict(zip(like.parameters, values, strict=True)))
