"""The slow oracle along polygonal chains: everything in fractions, by definition, for every kind of node."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Concat, MaxPool, PiecewiseLinear

Vector = list[Fraction]


def fractions(x: Any) -> Vector:
    return [Fraction(float(v)) for v in np.asarray(x).reshape(-1)]


def _apply(node: Any, values: list[Vector]) -> Vector:
    """One node at one point."""
    if isinstance(node, Affine):
        value = values[node.source]
        for stage in node.operator.stages():
            rows = [fractions(row) for row in stage.dense()]
            value = [sum((w * v for w, v in zip(row, value, strict=True) if w), Fraction(0)) for row in rows]
        return value if node.offset is None else [v + b for v, b in zip(value, fractions(node.offset), strict=True)]
    if isinstance(node, PiecewiseLinear):
        slopes = fractions(node.slopes)
        return [v if v > 0 else s * v for v, s in zip(values[node.source], slopes, strict=True)]
    if isinstance(node, MaxPool):
        return [max(values[node.source][i] for i in window if i >= 0) for window in node.windows]
    if isinstance(node, Concat):
        joined = [v for s in node.sources for v in values[s]]
        return joined if node.order is None else [joined[i] for i in node.order]
    return [sum(column, Fraction(0)) for column in zip(*(values[s] for s in node.sources), strict=True)]


def _functionals(node: Any, value: Vector) -> Vector:
    """What may vanish at a switch: preactivations, or differences of the inputs of windows."""
    if isinstance(node, PiecewiseLinear):
        return [Fraction(1) if s == 1 else v for v, s in zip(value, node.slopes, strict=True)]
    pairs = [(i, j) for window in node.windows.tolist() for i, j in combinations([k for k in window if k >= 0], 2)]
    return [value[i] - value[j] for i, j in pairs]


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)


def _switch_signs(node: Any, value: Vector) -> list[int]:
    if isinstance(node, PiecewiseLinear):
        return [_sign(v) for v in _functionals(node, value)]
    found = []
    for window in node.windows.tolist():
        inputs = [value[i] if i >= 0 else None for i in window]
        for j, own in enumerate(inputs):
            rivals = [v for i, v in enumerate(inputs) if i != j and v is not None]
            found.append(-1 if own is None else _sign(own - max(rivals)) if rivals else 1)
    return found


@dataclass(frozen=True)
class Truth:
    """Breakpoints inside the chain with the entries that make them, signs of the regions, and the closing point's."""

    t: list[Fraction]
    makers: list[tuple[int, ...]]
    signs: list[tuple[int, ...]]
    closing: tuple[int, ...]

    @property
    def loop(self) -> int:
        """Regions of the chain as a loop."""
        return max(1, len(self.t) + bool(self.closing))


def along(net: Network, points: Any) -> Truth:
    """A network along the chain through ``points``; point ``i`` is at ``t = i``."""
    corners = [fractions(p) for p in points]

    def program(t: Fraction) -> list[Vector]:
        k = min(int(t), len(corners) - 2)
        values = [[(1 - (t - k)) * a + (t - k) * b for a, b in zip(corners[k], corners[k + 1], strict=True)]]
        for node in net.nodes:
            values.append(_apply(node, values))
        return values

    places = {Fraction(k): program(Fraction(k)) for k in range(len(corners))}
    for node in net.nodes:
        if isinstance(node, PiecewiseLinear | MaxPool):
            order = sorted(places)
            for s, t in pairwise(order):
                ends = (_functionals(node, places[x][node.source]) for x in (s, t))
                for p, q in zip(*ends, strict=True):
                    if p * q < 0:
                        root = s + (t - s) * p / (p - q)
                        places.setdefault(root, program(root))
    order = sorted(places)
    between = [(s + t) / 2 for s, t in pairwise(order)]

    def signs(values: list[Vector]) -> tuple[int, ...]:
        switches = (x for x in net.nodes if isinstance(x, PiecewiseLinear | MaxPool))
        return tuple(sign for node in switches for sign in _switch_signs(node, values[node.source]))

    at = [signs(places[t]) for t in order]
    inside = [signs(program(t)) for t in between]

    def makers(k: int, before: int, after: int) -> tuple[int, ...]:
        rows = zip(at[k], inside[before], inside[after], strict=True)
        return tuple(j for j, (here, left, right) in enumerate(rows) if here == 0 and (left or right))

    inner = [(order[k], makers(k, k - 1, k), inside[k]) for k in range(1, len(order) - 1)]
    kept = [x for x in inner if x[1]]
    closed = corners[0] == corners[-1]
    return Truth(
        [t for t, _, _ in kept],
        [m for _, m, _ in kept],
        [inside[0], *(s for _, _, s in kept)],
        makers(0, -1, 0) if closed else (),
    )
