"""What is nearest when floats cannot tell, and what lies on both sides of it: exact decisions for single points.

Distances are compared as ``z^2 / |grad z|^2`` in exact numbers. The foot point is ``x - z grad z / |grad z|^2``; times
``|grad z|^2`` it is dyadic, and ReLU, sums and maxima commute with positive factors. A sign a little behind a point is
that of the pair (value, directional derivative) in lexicographic order, which needs no small step.
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

from fiberscope.geometry.distances.gradients import ExactRegion
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.numerics.algebra.ball import EXACT, balls
from fiberscope.numerics.floats import FloatArray, ObjectArray, SignArray

_MOST = 1 << 17
"""Products of exact numbers that one point is worth."""


def is_affordable(net: Network) -> bool:
    """Whether exact affine functions of all neurons may be computed for single points."""
    sizes = [int(np.prod(shape)) for shape in net.shapes]
    stages = [stage for node in net.nodes if isinstance(node, Affine) for stage in node.operator.stages()]
    weights = sum(stage.fan_in * stage.out_size for stage in stages)
    return (net.in_size + 1) * (weights + sum(sizes)) <= _MOST


def are_proportional(region: ExactRegion, entries: list[int]) -> bool:
    """Whether affine functions vanish on one hyperplane, exactly."""
    forms = [region.margin(entry) for entry in entries]
    with flint.ctx.workprec(EXACT):
        pivot = next((i for i, g in enumerate(forms[0][:-1]) if not g.is_zero()), None)
        if pivot is None:
            return False
        pairs = ((form, i) for form in forms[1:] for i in range(len(form)))
        return all((form[i] * forms[0][pivot] - forms[0][i] * form[pivot]).is_zero() for form, i in pairs)


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


def _sign(x: Any) -> int:
    return int(bool(x > 0)) - int(bool(x < 0))


def _order(v: Any, d: Any) -> int:
    """Sign of ``v + t d`` for small positive ``t``."""
    return _sign(v) or _sign(d)


def ray_signs(net: Network, point: ObjectArray, way: ObjectArray, scale: Any) -> SignArray:
    """Signs a little behind ``point / scale`` in the direction ``way``, exactly; call it under :data:`EXACT`."""
    values = [(point, way)]
    signs: list[int] = []
    for node in net.nodes:
        if isinstance(node, Affine):
            v, d = values[node.source]
            for stage in node.operator.stages():
                v, d = (stage.apply_scalars(x[None])[0] for x in (v, d))
            if node.offset is not None:
                v = v + balls(node.offset) * scale
        elif isinstance(node, PiecewiseLinear):
            v, d = values[node.source]
            own = [_order(a, b) for a, b in zip(v, d, strict=True)]
            signs += [1 if linear else s for s, linear in zip(own, node.linear, strict=True)]
            factor = balls(np.where(np.array(own) > 0, 1.0, node.slopes))
            v, d = v * factor, d * factor
        elif isinstance(node, MaxPool):
            v, d, own = _pool(node, *values[node.source])
            signs += own
        elif isinstance(node, Add):
            v, d = (sum((values[s][k] for s in node.sources[1:]), start=values[node.sources[0]][k]) for k in (0, 1))
        else:
            v, d = (np.concatenate([values[s][k] for s in node.sources]) for k in (0, 1))
            v, d = (v, d) if node.order is None else (v[node.order], d[node.order])
        values.append((v, d))
    return np.array(signs, dtype=np.int8)


def _pool(node: MaxPool, v: ObjectArray, d: ObjectArray) -> tuple[ObjectArray, ObjectArray, list[int]]:
    """Maxima of windows, and for every input of one its sign against the best of the others."""
    winners, signs = [], []
    for window in node.windows.tolist():
        inside = [i for i in window if i >= 0]
        best = inside[0]
        for i in inside[1:]:
            if _order(v[i] - v[best], d[i] - d[best]) > 0:
                best = i
        winners.append(best)
        for i in window:
            rivals = [_order(v[i] - v[k], d[i] - d[k]) for k in inside if k != i] if i >= 0 else [-1]
            signs.append(min(rivals, default=1))
    return v[winners], d[winners], signs
