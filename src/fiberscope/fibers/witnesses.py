"""Inputs in fractions at which the first unit of a layer bends over every unit of the layer below.

The set where all units are active shrinks with every layer, so that a float cannot say where in it a witness is. Seen
from the layer itself it is of ordinary size. So a witness is laid where its layer sees it, and is pulled back one layer
after the other: next to the float that is known there, the point that the layer maps to the wanted one, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import fractions
from fiberscope.numerics.exact_linear import Rational
from fiberscope.numerics.floats import FloatArray, ObjectArray


@dataclass(frozen=True, slots=True, eq=False)
class Trail:
    """Points of one layer as its units and all earlier spaces see them, up to rounding.

    ``values`` are those of the layer's units, ``(points, n_l)``, zero where a point lies on a unit's hyperplane;
    ``inputs`` what each layer up to it reads there, the network's inputs first.
    """

    values: FloatArray
    inputs: tuple[FloatArray, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Witnesses:
    """For one layer, inputs ``(n_l, n_0)`` in fractions, and the smallest value of a unit that must be positive."""

    inputs: ObjectArray
    least: Fraction


def exact_witnesses(net: Network, trails: Sequence[Trail]) -> list[Witnesses]:
    """Witnesses of every hidden layer: unit ``j`` vanishes at input ``j``, and so does unit 0 of the layer behind.

    All other units up to the layer are positive there if ``least`` is. Nothing is rounded.
    """
    weights = [fractions(W) for W in net.weights]
    layers = [(Rational.of(W), Rational.of(fractions(b)[:, None])) for W, b in zip(weights, net.biases, strict=True)]
    back = [layers[k][0].right_inverse() for k in range(len(trails))]
    found = []
    for depth, trail in enumerate(trails):
        Z = fractions(trail.values).T.copy()
        if depth + 1 < len(trails):  # onto the hyperplane of unit 0 behind, along the ray from the origin
            Z = Z * (-Fraction(float(net.biases[depth + 1][0])) / (weights[depth + 1][0] @ Z))
        least = min(z for i, row in enumerate(Z) for j, z in enumerate(row) if i != j)
        now = Rational.of(Z)
        for k in range(depth, -1, -1):
            W, b = layers[k]
            near = Rational.of(fractions(trail.inputs[k]).T)
            now = near + back[k] @ (now - (W @ near).plus_column(b))
            least = min(least, now.least()) if k else least
        found.append(Witnesses(now.array().T, least))
    return found
