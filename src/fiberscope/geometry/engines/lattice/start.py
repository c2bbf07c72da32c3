"""The complex that the lattice engine starts from: a box, a polytope, or a fan of cones that fills the domain.

Unbounded domains are closed at infinity: a direction is a vertex ``(x, t)`` with ``t = 0``. The fan has its apex where
n independent rows vanish, sides of the domain first and then neurons of the first layer, so that every cell of the
fan is a union of cells of the complex and no wall is invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

import flint
import numpy as np

from fiberscope.errors import NotGenericError
from fiberscope.geometry.affine_forms import ExactRegion
from fiberscope.geometry.engines.lattice.exact import Integers, Start, integers
from fiberscope.network.network import Network
from fiberscope.numerics.floats import SignArray
from fiberscope.numerics.points import integer_rows, solve_point, to_dyadic

if TYPE_CHECKING:
    from fiberscope.geometry.domains import Box, Orthant, Polytope, Space


def box_start(box: Box) -> Start:
    """All faces of a box."""
    n = box.dimension
    scaled, exponent = to_dyadic(np.stack([box.low, box.high]))
    unit = 1 << -exponent if exponent < 0 else 1
    corner = [[int(x) << max(exponent, 0) for x in row] for row in scaled]
    names: list[dict[tuple[int, ...], int]] = [{} for _ in range(n + 1)]  # 0 low, 1 high, 2 in between
    for code in product(range(3), repeat=n):
        level = names[code.count(2)]
        level[code] = len(level)
    boundary = tuple(
        tuple(
            tuple(names[k - 1][(*code[:i], side, *code[i + 1 :])] for i in range(n) if code[i] == 2 for side in (0, 1))
            for code in names[k]
        )
        for k in range(1, n + 1)
    )
    points = tuple((*(corner[side][i] for i, side in enumerate(code)), unit) for code in names[0])
    signs = [[-int(side != wanted) for wanted in (0, 1) for side in code] for code in names[0]]
    return Start(points, boundary, np.array(signs, dtype=np.int8))


def fan_start(net: Network, domain: Orthant | Space | Polytope) -> Start:
    """Cones with a common apex that cover the domain, cut neither by its other sides nor by other neurons."""
    A, b = domain.halfspaces()
    sides: list[list[int]] = integer_rows(np.concatenate([A, -b[:, None]], axis=1)).tolist() if len(A) else []
    neurons = _first_layer(net)
    rows = [*sides, *neurons]
    chosen = _independent(rows, domain.dimension)
    if len(chosen) < domain.dimension:
        raise NotGenericError(
            f"regions on {domain}: expected first-layer neurons that leave no direction free, but their weights and "
            f"the sides of the domain have rank {len(chosen)} in R^{domain.dimension}: no cell has a vertex; "
            "ask on a box or a slice"
        )
    both = [index >= len(sides) for index in chosen]
    apex, rays = _apex_and_rays([rows[index] for index in chosen])
    points: list[Integers] = [apex]
    spokes: list[tuple[int, ...]] = []
    for ray, two_sided in zip(rays, both, strict=True):
        ends = [tuple(-x for x in ray), ray] if two_sided else [tuple(-x for x in ray)]
        spokes.append(tuple(range(len(points), len(points) + len(ends))))
        points += ends
    return Start(tuple(points), _cones(spokes), _domain_signs(sides, points))


def _domain_signs(sides: Sequence[Sequence[int]], points: Sequence[Integers]) -> SignArray:
    values = [[sum(int(a) * x for a, x in zip(side, point, strict=True)) for side in sides] for point in points]
    signs = [[(value > 0) - (value < 0) for value in row] for row in values]
    return np.array(signs, dtype=np.int8).reshape(len(points), len(sides))


def _first_layer(net: Network) -> list[list[int]]:
    """Preactivations of the first activation as affine functions of the input, in integers up to a factor.

    There are none if a pool comes first, unless its windows leave it no choice.
    """
    layout = net.layout
    free = [place for place in layout.places if place.node.num_cuts]
    if not free or layout.pooled[free[0].start]:
        return []
    region = ExactRegion(net, np.where(layout.padding, -1, 1).astype(np.int8))
    entries = free[0].start + np.flatnonzero(~free[0].node.linear)
    return [list(integers(region.margin(entry))) for entry in entries.tolist()]


def _independent(rows: Sequence[Sequence[int]], n: int) -> list[int]:
    """Indices of the first n rows whose linear parts are independent, or of as many as there are."""
    chosen: list[int] = []
    for index, row in enumerate(rows):
        if len(chosen) == n:
            break
        matrix = flint.fmpz_mat([[int(x) for x in rows[i][:n]] for i in [*chosen, index]])
        if any(row[:n]) and matrix.rank() == len(chosen) + 1:
            chosen.append(index)
    return chosen


def _apex_and_rays(rows: Sequence[Sequence[int]]) -> tuple[Integers, list[Integers]]:
    """Where all rows vanish, and directions along which one row grows and the others stay zero."""
    n = len(rows)
    apex = solve_point(np.array(rows, dtype=object))
    inverse = flint.fmpq_mat(flint.fmpz_mat([[int(x) for x in row[:n]] for row in rows])).inv()
    rays: list[Integers] = []
    for i in range(n):
        column = [inverse[j, i] for j in range(n)]
        common = 1
        for x in column:
            common = common * int(x.q) // int(flint.fmpz(common).gcd(x.q))
        rays.append((*(int(x.p) * (common // int(x.q)) for x in column), 0))
    return (*apex.numerators, apex.denominator), rays


def _cones(spokes: Sequence[tuple[int, ...]]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Boundaries of all simplices with vertices among the apex 0 and at most one end of every spoke."""
    n = len(spokes)
    names: list[dict[tuple[int, ...], int]] = [{} for _ in range(n + 1)]
    names[0] = {(v,): v for v in range(1 + sum(map(len, spokes)))}
    for size in range(1, n + 1):
        for which in combinations(spokes, size):
            for ends in product(*which):
                for simplex in (ends, (0, *ends)):
                    if len(simplex) > 1:
                        names[len(simplex) - 1][simplex] = len(names[len(simplex) - 1])
    return tuple(
        tuple(tuple(names[k - 1][s[:i] + s[i + 1 :]] for i in range(len(s))) for s in names[k]) for k in range(1, n + 1)
    )


def sides_network(domain: Orthant | Space | Polytope) -> Network:
    """One hidden neuron ``A_i x - b_i`` for every side: positive outside of the domain."""
    A, b = domain.halfspaces()
    return Network([A, np.zeros((1, len(A)))], [-b, np.zeros(1)])
