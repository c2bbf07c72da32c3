"""A smaller network with the same function on a domain, and the proof."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fiberscope.errors import UnsupportedModelError
from fiberscope.fibers.normal_form.compare import compare_forms
from fiberscope.fibers.simplify.reductions import Layers, Neuron
from fiberscope.geometry.domains import Domain, domain_of
from fiberscope.geometry.ranges.domain_roles import DomainRoles, domain_roles
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import slopes_of, try_split
from fiberscope.network.convolutions import Convolving
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.numerics.exact_arrays import nearest, product, total
from fiberscope.results import Result, hidden, named
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.equality.verdict import Verdict


class Proof(Protocol):
    """What says whether two networks are equal (None for undecided), and whether as real functions."""

    @property
    def equal(self) -> bool | None: ...
    @property
    def exact(self) -> bool: ...


def _reasons(removed: tuple[tuple[Neuron, str], ...]) -> list[dict[str, Any]]:
    return [{"neuron": neuron, "reason": reason} for neuron, reason in removed]


@dataclass(frozen=True, slots=True, eq=False)
class Simplified(Result):
    """A network with the same function on a domain.

    ``removed`` lists neurons ``(layer, index)`` of the network that came in, layers counted from 1, each with its
    reason; ``merged`` lists groups of neurons that became one; ``undecided`` those whose role on the domain is not
    known and that were left alone. ``proof`` says that ``network`` is equal to ``original`` on ``domain``: the same
    real function if ``exact``, otherwise up to rounding, or undecided where the comparison was too large.
    """

    network: Network = field(metadata=hidden())
    original: Network = field(repr=False, metadata=hidden())
    domain: Domain = field(repr=False, metadata=hidden())
    removed: tuple[tuple[Neuron, str], ...] = field(repr=False, metadata=named(told=_reasons))
    merged: tuple[tuple[Neuron, ...], ...] = field(repr=False)
    undecided: tuple[Neuron, ...] = field(repr=False)
    proof: Proof = field(repr=False, metadata=hidden())

    told = ("before", "after=network.architecture", "parameters=network.num_parameters", "exact", "verdict")

    @property
    def exact(self) -> bool:
        """Whether the two are proven to be the same real function."""
        return self.proof.exact

    @property
    def before(self) -> str:
        """The original network in a few words."""
        short = self.original.architecture
        return short if len(short) < 100 else f"{self.original.num_hidden} hidden neurons"

    @property
    def verdict(self) -> Verdict:
        """The proof as an answer about equality, which can be saved as a certificate."""
        found: Verdict = import_module("fiberscope.equality.simplified").verdict_of(self)
        return found

    def stored(self, dtype: str = "float32") -> Simplified:
        """The same with numbers of a float type, proven again; see :func:`fiberscope.equality.simplified.stored`."""
        found: Simplified = import_module("fiberscope.equality.simplified").stored(self, dtype)
        return found

    def counts(self) -> dict[str, int]:
        """How many neurons were removed for each reason, and how many were merged into others."""
        reasons: dict[str, int] = {}
        for _, reason in self.removed:
            reasons[reason] = reasons.get(reason, 0) + 1
        gone = {neuron for neuron, _ in self.removed}
        groups: dict[Neuron, set[Neuron]] = {}
        for group in self.merged:  # a group may be merged further
            whole = set().union(*(groups.get(neuron, {neuron}) for neuron in group))
            groups |= dict.fromkeys(whole, whole)
        kept = {id(whole): len(whole - gone) for whole in groups.values()}
        joined = sum(count - 1 for count in kept.values() if count)
        return reasons | ({"merged with another": joined} if joined else {})

    def __repr__(self) -> str:
        how = "exactly" if self.exact else "up to rounding" if self.proof.equal else "not proven to be"
        return f"Simplified({self.before} -> {self.network.architecture}, {how} the same function)"


def simplify(net: NetworkLike, domain: Domain | None = None, time_limit: float = 5.0, run: Run = ENDLESS) -> Simplified:
    """Remove dead neurons, fold linear ones, merge those that share a hyperplane, compose affine maps in a row.

    Nothing is lost: every step is an identity on the domain (None: all of space). Numbers are exact throughout and
    rounded once at the end, where a result is no float; ``.exact`` and the verdict say so. Networks with convolutions
    or skip connections are refused: their neurons are not those of dense layers. ``time_limit`` is for the roles of the
    neurons, in seconds; behind the deadline of a ``run`` that this is a part of, :class:`OutOfTimeError` is raised.

    >>> net = Network([[[1.0], [2.0], [0.0]], [[3.0, 1.0, 1.0]]], [[1.0, 2.0, -1.0], [0.0]])
    >>> small = simplify(net)
    >>> small.network.widths, small.network.weights[1], small.merged, small.removed
    ((1, 1, 1), array([[5.]]), (((1, 0), (1, 1)),), (((1, 2), 'dead'),))
    >>> small.verdict.equal, small.exact
    (True, True)
    """
    net = as_network(net)
    where = domain_of(net, domain)
    roles = domain_roles(net, where, time_limit, run=run)
    layers, prefix, shape = _start(net, roles)
    _reduce(layers, run)
    layers.close(int(np.prod(shape)))
    if not all(np.isfinite(nearest(x)).all() for x in (*layers.weights, *layers.biases)):
        raise UnsupportedModelError("simplify: expected sums and products of weights within the range of floats")
    tail = layers.network(shape).with_source(net.source.derived)
    small = prefix.joined(tail) if prefix is not None else tail
    proof = compare_forms(net, small, where, (roles.signs.astype(np.int64), None), layers.exact, run)
    undecided = [
        (int(layer), int(i - np.searchsorted(roles.layers, layer)))
        for i, layer in enumerate(roles.layers)
        if roles.undecided[i]
    ]
    return Simplified(
        small,
        net,
        where,
        tuple(dict(reversed(layers.removed)).items())[::-1],  # a neuron once, with the first reason
        tuple(layers.merged),
        tuple(undecided),
        proof,
    )


def _start(net: Network, roles: DomainRoles) -> tuple[Layers, Any, tuple[int, ...]]:
    parts = try_split(net)
    if parts is None:
        layers = _multiplied(net)
        if layers is None:
            raise UnsupportedModelError(
                f"simplify: expected dense layers and activations in a row, got {net.architecture[:80]}, whose neurons "
                "cannot be taken out one by one; net.as_mlp() gives dense layers with the same function"
            )
        weights, biases, slopes = layers
        shape: tuple[int, ...] = (net.in_size,)
        prefix = None
    else:
        chain = parts.tail
        weights, biases = [np.array(w) for w in chain.weights], [np.array(b) for b in chain.biases]
        slopes = [np.array(s) for s in slopes_of(chain)]
        shape, prefix = chain.input_shape, parts if parts.prefix else None
    cuts = np.cumsum([0, *(s.size for s in slopes)])
    signs = [roles.signs[i:j].astype(np.int64) for i, j in itertools.pairwise(cuts)]
    origins: list[list[tuple[Neuron, ...]]] = [
        [((layer, i),) for i in range(s.size)] for layer, s in enumerate(slopes, start=1)
    ]
    return Layers(list(weights), list(biases), list(slopes), signs, origins), prefix, shape


def _multiplied(net: Network) -> tuple[list[Any], list[Any], list[Any]] | None:
    """Exact products of the affine maps between activations; None where there is more than a row of those."""
    weights: list[Any] = []
    biases: list[Any] = []
    slopes: list[Any] = []
    open_map: tuple[Any, Any] | None = None
    for index, node in enumerate(net.nodes):
        if node.sources != (index,):
            return None
        if isinstance(node, Affine):
            if any(isinstance(stage, Convolving) for stage in node.operator.stages()):
                return None
            for stage in node.operator.stages():
                matrix = stage.dense()
                bias = np.zeros(stage.out_size)
                if open_map is None:
                    open_map = (matrix, bias)
                else:
                    open_map = (product(matrix, open_map[0]), product(matrix, open_map[1].reshape(-1, 1))[:, 0])
            assert open_map is not None
            if node.offset is not None:
                open_map = (open_map[0], total(open_map[1], node.offset))
        elif isinstance(node, PiecewiseLinear) and open_map is not None:
            weights.append(open_map[0])
            biases.append(open_map[1])
            slopes.append(np.array(node.slopes))
            open_map = None
        else:
            return None
    if open_map is None:
        return None
    return [*weights, open_map[0]], [*biases, open_map[1]], slopes


def _reduce(layers: Layers, run: Run) -> None:
    """All steps, again and again, until none changes anything; each makes the network smaller."""
    changed = True
    while changed:
        changed = False
        layers.learn_signs()
        for layer in range(layers.depth):
            run.check()
            changed |= layers.drop_idle(layer)
        for layer in range(layers.depth):
            run.check()
            if len(layers.slopes[layer]):
                changed |= layers.merge(layer)
        for layer in range(layers.depth - 1, -1, -1):
            run.check()
            changed |= layers.reduce_lines(layer)
            if layers.compose(layer):
                changed = True
                break
            if layer + 1 < layers.depth and layers.fuse(layer):
                changed = True
                break
