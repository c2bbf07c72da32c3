"""The directions that each reason gives: exactly, as rows modulo a prime, and the same ones in floats.

What :func:`fiberscope.explain` asks, kind by kind; which of them are new is counted there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.dimension.affine_rows import mixtures, normalisations, translations_in_a_row
from fiberscope.dimension.exact_rank import Sampled
from fiberscope.dimension.gap import (
    float_pair_kernels,
    pair_kernels,
)
from fiberscope.dimension.reasons.layer_kernels import Rows, adjacent, layers_of
from fiberscope.dimension.rescalings import rescalings
from fiberscope.dimension.symmetries import (
    LayerRoles,
    activity,
    free_columns,
    generators,
    signs_nearby,
    translations,
)
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import Residues
from fiberscope.run import ENDLESS, Run

KINDS = ("dead", "rescaling", "linear", "translation", "equal patterns", "one layer", "adjacent layers")

PROGRAM_KINDS = ("dead", "rescaling", "normalisation", "linear", "translation", "one layer", "adjacent layers")


IN_A_ROW = {"normalisation": normalisations, "linear": mixtures, "translation": translations_in_a_row}
"""Kinds of directions of affine maps in a row, which hold on all inputs."""


@dataclass(frozen=True, slots=True)
class ProgramReasons:
    """The reasons of a program of any kind."""

    net: Network
    rows: Rows
    kinds = PROGRAM_KINDS
    row_by_row = ("dead", *IN_A_ROW)

    def residues(self, kind: str, run: Run) -> Residues:
        """All directions of a kind as rows modulo the prime."""
        D = self.net.num_parameters
        if kind == "dead":
            return np.eye(D, dtype=np.uint64)[self.rows.silent]
        if kind == "rescaling":
            found: Residues = rescalings(self.net).directions(D, self.rows.prime)
            return found
        if kind in IN_A_ROW:
            shifts: Residues = IN_A_ROW[kind](self.net, ModularAlgebra(self.rows.prime))
            return shifts
        return self.rows.kernels(self._blocks(kind), run)

    def floats(self, kind: str) -> FloatArray:
        """The same in floats."""
        D = self.net.num_parameters
        if kind == "dead":
            return np.eye(D)[self.rows.silent]
        if kind == "rescaling":
            found: FloatArray = rescalings(self.net).directions(D)
            return found
        if kind in IN_A_ROW:
            shifts: FloatArray = IN_A_ROW[kind](self.net, FLOAT)
            return shifts
        return self.rows.float_kernels(self._blocks(kind))

    def everywhere(self, kind: str) -> Residues:
        """Those whose reason holds on all inputs, as far as it is known."""
        none = np.zeros((0, self.net.num_parameters), np.uint64)
        return self.residues(kind, ENDLESS) if kind == "rescaling" or kind in IN_A_ROW else none

    def _blocks(self, kind: str) -> list[IntArray]:
        layers = layers_of(self.net)
        if kind == "one layer":
            return [layer.columns for layer in layers if layer.alone]
        pairs = adjacent(self.net, layers)
        return [np.unique(np.concatenate([a.columns, b.columns])) for a, b in pairs]


@dataclass(frozen=True, slots=True)
class ChainReasons:
    """The reasons of a chain of dense layers."""

    net: Network
    found: Sampled
    rows: Rows
    kinds = KINDS
    row_by_row = KINDS[:5]

    def residues(self, kind: str, run: Run) -> Residues:
        """All directions of a kind as rows modulo the prime."""
        ring = ModularAlgebra(self.rows.prime)
        if kind == "one layer":
            return ProgramReasons(self.net, self.rows).residues(kind, run)
        if kind == "adjacent layers":
            return pair_kernels(self.net, self.found, ring)
        table: Residues = chain_directions(self.net, kind, activity(self.net, self.found.signs), self.found.signs, ring)
        return table

    def floats(self, kind: str) -> FloatArray:
        """The same in floats."""
        if kind == "one layer":
            return ProgramReasons(self.net, self.rows).floats(kind)
        if kind == "adjacent layers":
            return float_pair_kernels(self.net, self.found)
        table: FloatArray = chain_directions(
            self.net, kind, activity(self.net, self.found.signs), self.found.signs, FLOAT
        )
        return table

    def everywhere(self, kind: str) -> Residues:
        """Those whose reason holds on all inputs: a neuron is dead, or linear, whatever comes in, and stays so."""
        if kind not in KINDS[:4]:
            return np.zeros((0, self.net.num_parameters), np.uint64)
        always = activity(self.net, signs_nearby(self.net))
        table: Residues = chain_directions(self.net, kind, always, self.found.signs, ModularAlgebra(self.rows.prime))
        return table


def chain_directions(net: Network, kind: str, layers: list[LayerRoles], signs: SignArray, ring: Ring) -> Any:
    """All directions of a kind that the hidden layers of a chain give, as rows in a ring."""
    D = net.num_parameters
    none = ring.take(np.zeros((0, D)))
    blocks = [none]
    if kind == "dead":
        return ring.take(np.eye(D)[free_columns(net, layers)])
    by_layer = net.layout.parts(signs)
    for k, layer in enumerate(layers):
        linear = np.flatnonzero(layer.linear)
        factors = np.where(layer.linear, layer.factors, 1.0)
        if kind == "translation":
            blocks.append(translations(net, k, linear, factors, ring))
            continue
        alive = np.flatnonzero(~layer.dead)
        pairs = {
            "rescaling": (alive, alive),
            "linear": (np.repeat(linear, len(linear)), np.tile(linear, len(linear))),
            "equal patterns": _together(by_layer[k], np.flatnonzero(layer.switching)),
        }[kind]
        blocks.append(generators(net, k, *pairs, factors, ring))
    return np.concatenate(blocks)


def _together(signs: SignArray, switching: IntArray) -> tuple[IntArray, IntArray]:
    """Ordered pairs of neurons that have the same signs at every point."""
    same = (signs[:, switching, None] == signs[:, None, switching]).all(axis=0) & ~np.eye(len(switching), dtype=bool)
    i, j = np.nonzero(same)
    return switching[i], switching[j]
