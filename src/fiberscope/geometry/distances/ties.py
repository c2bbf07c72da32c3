"""What is nearest when floats cannot tell, and what lies on both sides of it: exact decisions for single points.

Distances are compared as ``z^2 / |grad z|^2`` in exact numbers. The foot point is ``x - z grad z / |grad z|^2``; times
``|grad z|^2`` it is dyadic, and ReLU, sums and maxima commute with positive factors. A sign a little behind a point is
that of the pair (value, directional derivative) in lexicographic order, which needs no small step.
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

from fiberscope.geometry.affine_forms import ExactRegion
from fiberscope.geometry.engines.planar.exact import entry_signs
from fiberscope.network.network import Network
from fiberscope.network.walk import cuts, switches
from fiberscope.numerics.algebra.ball import EXACT, HomogeneousBalls, are_dependent, ball_signs
from fiberscope.numerics.floats import FloatArray, ObjectArray, SignArray

_MOST = 1 << 17
"""Products of exact numbers that one point is worth."""


def is_affordable(net: Network) -> bool:
    """Whether exact affine functions of all neurons may be computed for single points."""
    sizes = [int(np.prod(shape)) for shape in net.shapes]
    weights = sum(stage.fan_in * stage.out_size for stage in net.layout.stages)
    return (net.in_size + 1) * (weights + sum(sizes)) <= _MOST


def are_proportional(region: ExactRegion, entries: list[int]) -> bool:
    """Whether affine functions vanish on one hyperplane, exactly."""
    forms = [region.margin(entry) for entry in entries]
    if all(g.is_zero() for g in forms[0][:-1]):
        return False
    return all(are_dependent(forms[0], form) for form in forms[1:])


class ExactFoot:
    """The exactly nearest of some neurons, all that vanish on its hyperplane, and the signs on both sides of it."""

    def __init__(self, net: Network, x: FloatArray, signs: SignArray, entries: list[int]) -> None:
        self.net = net
        region = ExactRegion(net, signs)
        with flint.ctx.workprec(EXACT):
            self.x = [flint.arb(float(v)) for v in x]
            found = [(entry, *self._parts(region.margin(entry))) for entry in entries]
            found = [one for one in found if not one[3].is_zero()]
            best = found[0]  # one at least: an entry whose gradient vanishes has no distance
            for other in found[1:]:
                if other[2] * other[2] * best[3] < best[2] * best[2] * other[3]:
                    best = other
            self.entry, self.form, self.z, self.square = best

    def _parts(self, form: ObjectArray) -> tuple[ObjectArray, Any, Any]:
        """An affine function, its value at the point, and the square of its gradient's length."""
        z = sum((g * v for g, v in zip(form[:-1], self.x, strict=True)), start=form[-1])
        return form, z, sum((g * g for g in form[:-1]), start=flint.arb(0))

    def sides(self) -> SignArray:
        """Signs a little before and behind the foot point, on the way from the point through it, ``(2, n)``."""
        with flint.ctx.workprec(EXACT):
            turn = -1 if self.z > 0 else 1
            foot = np.array([v * self.square - self.z * g for v, g in zip(self.x, self.form[:-1], strict=True)])
            onward = np.array([turn * g for g in self.form[:-1]])
            return np.stack([ray_signs(self.net, foot, way, self.square) for way in (-onward, onward)])


def ray_signs(net: Network, point: ObjectArray, way: ObjectArray, scale: Any) -> SignArray:
    """Signs a little behind ``point / scale`` in the direction ``way``, exactly; call it under :data:`EXACT`."""
    # The first row is a point with its scale, the second a direction, which biases do not move.
    algebra = HomogeneousBalls(np.array([scale, flint.arb(0)]))
    values, choices = {0: np.stack([point, way])}, dict[int, Any]()
    signs = [np.zeros(0, dtype=np.int8)]
    for place in switches(net.layout, values, algebra, choices):
        v, d = ball_signs(cuts(place.node, values[place.source], algebra))
        signs.append(entry_signs(place.node, np.where(v != 0, v, d)[None])[0])
        choices[place.index] = place.node.chosen(signs[-1])
    return np.where(net.layout.linear, np.int8(1), np.concatenate(signs))
