"""The regions of a small network in rational arithmetic, by definition: the oracle of every engine.

A cell is a cone in ``R^(n+1)``, the cone over a polyhedron, and is kept as its extreme rays ``(x, t)``, ``t >= 0``,
each with the set of rows that vanish on it. It is cut by one affine functional after the other (T. S. Motzkin,
H. Raiffa, G. L. Thompson, R. M. Thrall, *The double description method*, 1953). All numbers are Python integers;
nothing is rounded and nothing is shared with the engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import gcd, isinf, lcm
from typing import Any, assert_never

from fiberscope.network.network import Network
from fiberscope.network.nodes import (
    Add,
    Affine,
    Clip,
    Composite,
    Concat,
    Given,
    MaxPool,
    PiecewiseLinear,
    Smooth,
    Switch,
)
from fiberscope.numerics.arrays import real_array

Form = tuple[Fraction, ...]
"""``(g, c)`` meaning ``g x + c``."""
Ray = tuple[int, ...]


def fraction_regions(net: Network, A: Any, b: Any) -> set[tuple[int, ...]]:
    """Sign vectors of all regions of ``net`` on ``A x <= b``; an unbounded domain and one without rows are fine.

    The points with one sign vector form a convex set, so that sign vectors and regions are in one-to-one
    correspondence. Only for small networks: every cell is cut by every functional.

    >>> corner = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> sorted(fraction_regions(corner, [[1.0, 0.0]], [-1.0]))  # x <= -1
    [(-1, -1), (-1, 1)]
    """
    rows, bounds = real_array(A, "A").reshape(-1, net.in_size), real_array(b, "b")
    sides = [(*(Fraction(float(-a)) for a in row), Fraction(float(c))) for row, c in zip(rows, bounds, strict=True)]
    found: set[tuple[int, ...]] = set()
    for cell in _orthants(net.in_size):
        inside: _Cell | None = cell
        for side in sides:
            inside = None if inside is None else inside.part(side, 1)
        if inside is not None:
            found |= set(_signs(net.program, inside, [_coordinates(net.in_size)], ()))
    return found


def fraction_map(net: Network, signs: Sequence[int]) -> list[Form]:
    """The affine map of ``net`` where it has these signs: a form ``(g, c)`` for every output.

    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.5]])
    >>> fraction_map(net, (-1, 1))
    [(Fraction(-1, 1), Fraction(1, 2))]
    """
    values, rest = [_coordinates(net.in_size)], list(signs)
    for node in net.program:
        match node:
            case Clip():
                size = len(node.low)
                own, rest = rest[: 2 * size], rest[2 * size :]
                values.append(_clipped(node, values[node.source], own))
            case PiecewiseLinear():
                own, rest = rest[: node.num_signs], rest[node.num_signs :]
                values.append(_pieces(node, values[node.source], own))
            case MaxPool():
                own, rest = rest[: node.num_signs], rest[node.num_signs :]
                size = node.windows.shape[1]
                margins = [own[k : k + size] for k in range(0, len(own), size)]
                values.append(_best(node, values[node.source], margins))
            case Composite():
                raise TypeError(f"no definition of {node}")
            case _:
                values.append(_plain(node, values))
    return values[-1]


@dataclass(frozen=True)
class _Cell:
    """A full-dimensional cone: its rays and, for each, which rows vanish there; ``rows`` counts them."""

    rays: tuple[Ray, ...]
    tight: tuple[frozenset[int], ...]
    rows: int

    def sign(self, form: Form) -> int:
        """The sign of a functional inside, 2 if it changes."""
        values = [_dot(form, ray) for ray in self.rays]
        below, above = any(v < 0 for v in values), any(v > 0 for v in values)
        return 2 if below and above else above - below

    def part(self, form: Form, side: int) -> _Cell | None:
        """Where the functional is not of the other sign; None if nothing inner is left."""
        values = [side * _dot(form, ray) for ray in self.rays]
        if not any(v > 0 for v in values):
            return None
        rays = [(ray, t | {self.rows} if v == 0 else t) for ray, t, v in self._with(values) if v >= 0]
        for (p, tp, vp), (q, tq, vq) in combinations(self._with(values), 2):
            if vp * vq < 0 and self._adjacent(tp & tq):
                at = tuple(abs(vq) * x + abs(vp) * y for x, y in zip(p, q, strict=True))
                rays.append((_reduced(at), (tp & tq) | {self.rows}))
        return _Cell(tuple(r for r, _ in rays), tuple(t for _, t in rays), self.rows + 1)

    def _with(self, values: Sequence[int]) -> list[tuple[Ray, frozenset[int], int]]:
        return list(zip(self.rays, self.tight, values, strict=True))

    def _adjacent(self, common: frozenset[int]) -> bool:
        """Two rays span an edge if no third one lies on all rows that vanish on both."""
        return sum(common <= tight for tight in self.tight) == 2


def _orthants(n: int) -> Iterator[_Cell]:
    """The cones over the orthants of R^n; row i vanishes on the rays other than i."""
    for signs in product((1, -1), repeat=n):
        rays = [tuple(s if i == j else 0 for j in range(n + 1)) for i, s in enumerate((*signs, 1))]
        tight = [frozenset(range(n + 1)) - {i} for i in range(n + 1)]
        yield _Cell(tuple(rays), tuple(tight), n + 1)


def _coordinates(n: int) -> list[Form]:
    return [tuple(Fraction(int(i == j)) for j in range(n + 1)) for i in range(n)]


def _dot(form: Form, ray: Ray) -> int:
    """The value up to a positive factor that depends on the form alone."""
    scale = lcm(*(x.denominator for x in form))
    return sum(x.numerator * (scale // x.denominator) * r for x, r in zip(form, ray, strict=True))


def _reduced(ray: Ray) -> Ray:
    factor = gcd(*ray)
    return tuple(x // factor for x in ray)


def _signs(
    nodes: Sequence[Given], cell: _Cell, values: list[list[Form]], signs: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Sign vectors inside a cell, where ``values`` are the affine pieces of the program so far."""
    index = len(values) - 1
    while index < len(nodes) and not isinstance(node := nodes[index], Switch | Composite):
        values = [*values, _plain(node, values)]
        index += 1
    if index == len(nodes):
        yield signs
        return
    node = nodes[index]
    assert isinstance(node, Switch | Clip)
    forms = values[node.source]
    if isinstance(node, Clip):
        beyond = [*(_lowered(f, a) for f, a in zip(forms, node.low, strict=True))]
        beyond += [_lowered(_times(Fraction(-1), f), -b) for f, b in zip(forms, node.high, strict=True)]
        for part, own in _cut(cell, [form for form in beyond if form is not None]):
            rest = iter(own)
            here = [1 if form is None else next(rest) for form in beyond]
            yield from _signs(nodes, part, [*values, _clipped(node, forms, here)], (*signs, *here))
        return
    if isinstance(node, PiecewiseLinear):
        for part, own in _cut(cell, [f for f, s in zip(forms, node.slopes, strict=True) if s != 1]):
            rest = iter(own)
            here = [1 if s == 1 else next(rest) for s in node.slopes]
            yield from _signs(nodes, part, [*values, _pieces(node, forms, here)], (*signs, *here))
        return
    pairs = sorted({(min(i, j), max(i, j)) for w in node.windows for i, j in combinations(w[w >= 0].tolist(), 2)})
    for part, own in _cut(cell, [_minus(forms[i], forms[j]) for i, j in pairs]):
        above = dict(zip(pairs, own, strict=True)) | {(j, i): -s for (i, j), s in zip(pairs, own, strict=True)}
        margins = [_margins(window.tolist(), above) for window in node.windows]
        best = _best(node, forms, margins)
        yield from _signs(nodes, part, [*values, best], (*signs, *(m for margin in margins for m in margin)))


def _pieces(node: PiecewiseLinear, forms: Sequence[Form], signs: Sequence[int]) -> list[Form]:
    slopes = [Fraction(1) if s > 0 else Fraction(float(k)) for s, k in zip(signs, node.slopes, strict=True)]
    return [_times(slope, form) for slope, form in zip(slopes, forms, strict=True)]


def _lowered(form: Form, bound: float) -> Form | None:
    """The form minus a bound, None if that is infinite."""
    return None if isinf(bound) else (*form[:-1], form[-1] - Fraction(float(bound)))


def composite_value(node: Composite, value: Sequence[Fraction]) -> list[Fraction]:
    """The value of a composite node at a point, by definition."""
    assert isinstance(node, Clip)
    low = [v if isinf(a) else max(v, Fraction(float(a))) for v, a in zip(value, node.low, strict=True)]
    return [v if isinf(b) else min(v, Fraction(float(b))) for v, b in zip(low, node.high, strict=True)]


def _clipped(node: Clip, forms: Sequence[Form], signs: Sequence[int]) -> list[Form]:
    """A bound where it is reached, else the form."""
    flat = (Fraction(0),) * (len(forms[0]) - 1)
    result = []
    for i, form in enumerate(forms):
        bound = node.low[i] if signs[i] <= 0 else node.high[i] if signs[len(forms) + i] <= 0 else None
        result.append(form if bound is None else (*flat, Fraction(float(bound))))
    return result


def _best(node: MaxPool, forms: Sequence[Form], margins: Sequence[Sequence[int]]) -> list[Form]:
    """For every window the form of an input that no other beats."""
    places = [[m >= 0 for m in margin].index(True) for margin in margins]
    return [forms[window[place]] for window, place in zip(node.windows, places, strict=True)]


def _margins(window: list[int], above: dict[tuple[int, int], int]) -> list[int]:
    """Signs of ``x_j - max of the others`` over a window; padding loses, and what stands alone wins."""
    rivals = [[i for k, i in enumerate(window) if k != place and i >= 0] for place in range(len(window))]
    return [
        -1 if j < 0 else min((above[j, i] for i in others), default=1) for j, others in zip(window, rivals, strict=True)
    ]


def _cut(cell: _Cell, forms: Sequence[Form]) -> Iterator[tuple[_Cell, tuple[int, ...]]]:
    """The cell cut by all forms, each piece with their signs."""
    if not forms:
        yield cell, ()
        return
    first, *rest = forms
    sign = cell.sign(first)
    for side in (1, -1) if sign == 2 else (sign,):
        part = cell.part(first, side) if sign == 2 else cell
        assert part is not None
        for piece, signs in _cut(part, rest):
            yield piece, (side, *signs)


def _plain(node: Smooth, values: Sequence[list[Form]]) -> list[Form]:
    match node:
        case Affine():
            forms = values[node.source]
            for stage in node.operator.stages():
                zero = (Fraction(0),) * len(values[0][0])
                forms = [_sum([_times(Fraction(float(w)), f) for w, f in zip(row, forms, strict=True) if w], zero)
                         for row in stage.dense()]  # fmt: skip
            offset = [0.0] * len(forms) if node.offset is None else node.offset
            return [(*f[:-1], f[-1] + Fraction(float(b))) for f, b in zip(forms, offset, strict=True)]
        case Add():
            return [_sum(parts[1:], parts[0]) for parts in zip(*(values[s] for s in node.sources), strict=True)]
        case Concat():
            joined = [form for s in node.sources for form in values[s]]
            return joined if node.order is None else [joined[i] for i in node.order]
        case _:
            assert_never(node)


def _times(factor: Fraction, form: Form) -> Form:
    return tuple(factor * x for x in form)


def _minus(a: Form, b: Form) -> Form:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _sum(forms: Sequence[Form], start: Form) -> Form:
    for form in forms:
        start = tuple(x + y for x, y in zip(start, form, strict=True))
    return start
