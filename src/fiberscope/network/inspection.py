"""A network at a glance: what it is made of, which neurons are idle for every input, which symmetries it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lgamma, log
from typing import Any, assert_never

import numpy as np

from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Composite, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Shape
from fiberscope.network.roles import Roles, roles, structural_roles
from fiberscope.numerics.rows import proportional_rows
from fiberscope.results import Result, Tabular, hidden, named


@dataclass(frozen=True, slots=True)
class LayerSummary(Result):
    """One node of the program in numbers; ``norm`` is the Frobenius norm of its own coefficients."""

    kind: str
    shape: Shape
    parameters: int
    norm: float | None
    largest: float | None


def _shared(coincident: tuple[tuple[int, list[list[int]]], ...]) -> list[dict[str, Any]]:
    return [{"layer": layer, "groups": groups} for layer, groups in coincident]


@dataclass(frozen=True, slots=True, eq=False)
class Inspection(Tabular):
    """What ``fiberscope inspect`` shows.

    ``structural`` holds for every input, read off the weights; ``sampled`` on ``samples`` random points. ``coincident``
    lists, per activation layer, groups of neurons with one and the same hyperplane. The order of the group of
    permutations of hidden neurons is ``10 ** log10_permutations``, and ``rescalings`` is the number of positive factors
    that can be chosen freely (one per neuron of a chain).
    """

    architecture: str
    input_shape: Shape
    output_shape: Shape
    num_parameters: int
    num_hidden: int
    layers: tuple[LayerSummary, ...]
    structural: Roles = field(metadata=named("roles_for_every_input"))
    sampled: Roles | None = field(metadata=hidden())
    samples: str = field(metadata=hidden())
    coincident: tuple[tuple[int, list[list[int]]], ...] = field(metadata=named("coincident_hyperplanes", _shared))
    log10_permutations: float | None = field(metadata=hidden())
    rescalings: int | None = field(metadata=hidden())

    told = ("roles_on_samples=_roles_on_samples", "symmetry=_symmetry")
    frame = "layers"

    def _roles_on_samples(self) -> dict[str, Any] | None:
        return None if self.sampled is None else {**self.sampled.to_dict(), "samples": self.samples}

    def _symmetry(self) -> dict[str, float | None]:
        return {"log10_permutations": self.log10_permutations, "rescalings": self.rescalings}

    def __repr__(self) -> str:
        return (
            f"Inspection({self.architecture}: {self.num_parameters} parameters, {self.num_hidden} hidden neurons, "
            f"{self.structural!r})"
        )


def inspect(net: NetworkLike, points: int = 1000, seed: int = 0) -> Inspection:
    """Everything about a network that can be told without being asked a question.

    ``points`` inputs are drawn from the standard normal distribution for the sampled roles; 0 leaves them out.

    >>> inspect(Network.random((2, 3, 1), seed=0)).rescalings
    3
    """
    net = as_network(net)
    sampled = None
    if points > 0 and net.num_hidden:
        sampled = roles(net, np.random.default_rng(seed).normal(size=(points, net.in_size)))
    factor = None
    if net.is_chain:
        factor = sum(lgamma(n + 1) for n in net.widths[1:-1]) / log(10)
    return Inspection(
        net.architecture,
        net.input_shape,
        net.output_shape,
        net.num_parameters,
        net.num_hidden,
        tuple(_summary(node) for node in net.program),
        structural_roles(net.composed),
        sampled,
        f"{points} points of N(0, 1)",
        tuple(_coincident(net.composed)),
        factor,
        net.num_hidden if net.is_chain else None,
    )


def _summary(node: Given) -> LayerSummary:
    match node:
        case Affine():
            return _affine_summary(node)
        case PiecewiseLinear():
            kind = "relu" if node.leak is None else "piecewise linear"
        case MaxPool():
            kind = "max pool"
        case Add() | Concat() | Composite():
            kind = type(node).__name__.lower()
        case _:
            assert_never(node)
    return LayerSummary(kind, node.shape, 0, None, None)


def _affine_summary(node: Affine) -> LayerSummary:
    numbers = node.operator.coefficients
    own = numbers.size * (node.weight_name is not None)
    own += 0 if node.bias is None or node.bias_name is None else node.bias.size
    bias = np.zeros(0) if node.bias is None else node.bias.reshape(-1)
    entries = np.concatenate([numbers.reshape(-1), bias])
    kind = type(node.operator).__name__.lower()
    largest = float(np.abs(entries).max(initial=0))
    # Squares of numbers that a float holds need not be floats.
    norm = largest * float(np.linalg.norm(entries / largest)) if largest else 0.0
    return LayerSummary(kind, node.shape, own, norm, largest)


def _coincident(net: Network) -> list[tuple[int, list[list[int]]]]:
    found = []
    activations = [node for node in net.switches if isinstance(node, PiecewiseLinear)]
    for layer, node in enumerate(activations, start=1):
        source = net.nodes[node.source - 1] if node.source else None
        if isinstance(source, Affine) and isinstance(source.operator, Dense):
            bias = np.zeros(node.num_signs) if source.offset is None else source.offset
            rows = np.column_stack([source.operator.matrix, bias])
            rows[~source.operator.matrix.any(axis=1)] = 0.0  # a constant neuron has no hyperplane
            groups = proportional_rows(rows)
            if groups:
                found.append((layer, groups))
    return found
