"""Many vertices at once in pairs of floats: where two lines meet and the values there, almost exactly, with bounds.

In a deep network the places of vertices are vague, since every layer finds them along edges whose ends are vague. Their
definitions are not: a vertex is where two rows of a polygon vanish. Here the rows of many polygons are composed from
the weights together, in about 106 bits. Polygons that share the signs of their first layers share the work on these.

Arrays. A *cell* is a polygon of some stage; ``group (cells,)`` says which cells have the same signs so far. Rows of
group ``g`` are ``3 g`` to ``3 g + 2`` of the values, for x, y and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import flint
import numpy as np

from fiberscope.geometry.engines.planar.exact import Oracle, Stage, TwofoldOracle
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.network.layout import Layout, Place
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.walk import switches
from fiberscope.numerics.algebra import float_pairs as pairs
from fiberscope.numerics.algebra.twofold import TwofoldAlgebra
from fiberscope.numerics.compensated import Gate, Twofold
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, U, round_up
from fiberscope.run import Run

_BLOCK = 1 << 22
"""Numbers that the rows of one block of cells may be."""

_FEW = 512
"""Vertices whose values are made at once, so that arrays stay near."""

_LONGEST = 1000
"""Bits of an integer that is a float without doubt."""

Lines = tuple[Twofold, Twofold, Twofold]


def sharp_points(
    oracle: Oracle, stages: Sequence[Stage], defined: IntArray, run: Run
) -> tuple[FloatArray, BoolArray] | None:
    """Places of vertices ``(n, 2)``, given by ``(stage, polygon, line, line)``, and which are proven to be nearest.

    A place that is proven is made of the two floats nearest to the vertex, as it would be from integers. None for
    programs that are not composed in pairs of floats. Nothing more is proven when the ``run`` is over.
    """
    if TwofoldOracle.of(oracle) is None:
        return None
    places, sure = np.zeros((len(defined), 2)), np.zeros(len(defined), dtype=bool)
    with np.errstate(all="ignore"):  # what overflows has an infinite error
        for here in _blocks(oracle, defined):
            if run.is_over:
                break
            found = [pairs.nearest(v) for v in _places(oracle, stages, defined[here], None)[0]]
            places[here] = np.stack([v for v, _ in found], axis=1)
            sure[here] = found[0][1] & found[1][1]
    return places, sure


def sharpened(
    oracle: Oracle, stages: Sequence[Stage], defined: IntArray, polygon: IntArray, xy: Tracked, value: Tracked, run: Run
) -> tuple[Tracked, Tracked]:
    """The coordinates and the functionals of the next switch at all vertices, made anew where that is sharper.

    ``polygon`` is one beside every vertex, of the last of the ``stages``. Bounds of values grow with every layer by the
    norm of its weights; here they come from the rows of a polygon at a point, both of about 106 bits.
    """
    points, place_errors = np.empty_like(xy.z), np.full_like(xy.z, np.inf)
    values, errors = np.empty_like(value.z), np.full_like(value.z, np.inf)
    for here in _blocks(oracle, defined):
        run.check()
        place, rows = _places(oracle, stages, defined[here], polygon[here])
        assert rows is not None
        for k, v in enumerate(place):
            points[here, k], place_errors[here, k] = v.high, round_up(v.error + np.abs(v.low), 2)
        for first in range(0, len(here), _FEW):
            part = slice(first, first + _FEW)
            x, y = (Twofold(v.high[part, None], v.low[part, None], v.error[part, None]) for v in place)
            a, b, c = (Twofold(*(array[part, k] for array in rows)) for k in range(3))
            found = pairs.plus(pairs.plus(pairs.times(a, x), pairs.times(b, y)), c)
            values[here[part]], errors[here[part]] = found.high, round_up(found.error + np.abs(found.low), 2)
    return xy.sharper(points, place_errors), value.sharper(values, errors)


def _blocks(oracle: Oracle, defined: IntArray) -> Iterator[IntArray]:
    """The vertices, so many at a time that their rows fit; neighbours, which share signs, come together."""
    widest = max((place.node.num_signs for place in oracle.layout.places), default=1)
    step = max(1, _BLOCK // (9 * widest))
    order = np.lexsort((defined[:, 1], defined[:, 0]))
    for first in range(0, len(order), step):
        yield order[first : first + step]


def _places(
    oracle: Oracle, stages: Sequence[Stage], defined: IntArray, polygon: IntArray | None
) -> tuple[tuple[Twofold, Twofold], list[FloatArray] | None]:
    """The places of one block, and the rows of polygons of the last stage, ``(n, 3, functionals)`` in three parts."""
    first, second, rows = _lines(oracle, stages, defined, polygon)
    x, y, w = meeting(first, second)
    return (pairs.over(x, w), pairs.over(y, w)), rows


def meeting(first: Lines, second: Lines) -> Lines:
    """Where lines meet, with a last entry that is not negative: see :func:`fiberscope.numerics.points.cross`."""
    (a, b, c), (d, e, f) = first, second
    minors = ((b, f, c, e), (c, d, a, f), (a, e, b, d))
    x, y, w = (pairs.minus(pairs.times(p, q), pairs.times(r, s)) for p, q, r, s in minors)
    turn = np.where(w.high < 0, -1.0, 1.0)
    x, y, w = (Twofold(turn * v.high, turn * v.low, v.error) for v in (x, y, w))
    return x, y, w


def _lines(
    oracle: Oracle, stages: Sequence[Stage], defined: IntArray, polygon: IntArray | None
) -> tuple[Lines, Lines, list[FloatArray] | None]:
    """The two lines of every vertex, scaled by powers of two so that the largest of their numbers is near 1.

    Also the rows of polygons of the last stage, if these are given; see :func:`_places`.
    """
    last = [] if polygon is None else [np.stack([np.full(len(polygon), len(stages) - 1), polygon], axis=1)]
    cells, cell = np.unique(np.concatenate([defined[:, :2], *last]), axis=0, return_inverse=True)
    cell, own = np.split(cell.reshape(-1), [len(defined)])
    room = np.zeros((3, 2, 3, len(defined)))  # high, low, error; of which line; a, b, c
    room[2] = np.inf
    for k, side in enumerate(oracle.sides):
        for which in range(2):
            here = np.flatnonzero(defined[:, 2 + which] == -1 - k)
            if len(here):
                room[:, which][:, :, here] = _side(side)[:, :, None]
    for k, group, rows in _rows(oracle, stages, cells):
        low, high = oracle.offsets[k : k + 2]
        for which in range(2):
            number = defined[:, 2 + which]
            here = np.flatnonzero((number >= low) & (number < high) & (group[cell] >= 0))
            index = 3 * group[cell[here]] + np.arange(3)[:, None], number[here] - low
            for part, values in enumerate((rows.high, rows.low, rows.error)):
                room[part, which][:, here] = values[index]
    shift = -np.frexp(np.abs(room[0]).max(axis=1, keepdims=True))[1]
    scaled = np.ldexp(room, shift[None])
    scaled[2] += TINY  # more than is lost where a scaled number is subnormal
    first, second = ([Twofold(*scaled[:, which, i]) for i in range(3)] for which in range(2))
    found = None
    if polygon is not None:  # no stage comes further than the last one
        three = 3 * group[own][:, None] + np.arange(3)
        found = [part[three] for part in (rows.high, rows.low, rows.error)]
    return (first[0], first[1], first[2]), (second[0], second[1], second[2]), found


def _side(side: Sequence[flint.fmpz]) -> FloatArray:
    """A side of the domain, given by integers, as pairs of floats ``(3, 3)``: high, low and error."""
    found = np.zeros((3, 3))
    for i, number in enumerate(map(int, side)):
        if number.bit_length() > _LONGEST:
            found[:, i] = 0.0, 0.0, np.inf
            continue
        high = float(number)
        low = float(number - int(high))
        exact = int(high) + int(low) == number
        found[:, i] = high, low, 0.0 if exact else 2 * U * abs(low)
    return found


def _rows(oracle: Oracle, stages: Sequence[Stage], cells: IntArray) -> Iterator[tuple[int, IntArray, Twofold]]:
    """Switch by switch ``(k, group, rows)``: the rows ``(3 groups, n)`` of its functionals on the cells.

    ``cells (n, 2)`` are pairs (stage, polygon); ``group`` is -1 where a cell's stage does not come so far.
    """
    layout, algebra = oracle.layout, oracle.rows
    prefixes = []
    for number in np.unique(cells[:, 0]).tolist():
        here = np.flatnonzero(cells[:, 0] == number)
        prefixes.append((here, stages[number].prefixes(cells[here, 1])))
    group = np.zeros(len(cells), dtype=np.int64)
    values = {0: Twofold.exact(np.eye(3, 2))}
    place = next(switches(layout, values, algebra, {}))
    yield 0, group, values[place.source]
    for k in range(max(len(signs) for _, signs in prefixes)):
        active = np.zeros((len(cells), place.node.num_signs), dtype=bool)
        alive = np.zeros(len(cells), dtype=bool)
        for here, signs in prefixes:
            if len(signs) > k:
                active[here], alive[here] = place.node.chosen(signs[k]), True
        keys = np.concatenate([group[:, None].view(np.uint8), np.packbits(active, axis=1)], axis=1)[alive]
        whole = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).reshape(-1)
        _, index, inverse = np.unique(whole, return_index=True, return_inverse=True)
        gate = group[alive][index], active[alive][index]
        group = np.full(len(cells), -1)
        group[alive] = inverse
        place = _onward(layout, values, algebra, place, gate)
        yield k + 1, group, values[place.source]


def _onward(layout: Layout, values: dict[int, Twofold], algebra: TwofoldAlgebra, place: Place, gate: Gate) -> Place:
    """On to the next switch, which is given, for the groups and their active entries in ``gate``."""
    here, (groups, active) = place.index, gate
    node, leak = layout.nodes[here + 1], place.node.leak if isinstance(place.node, PiecewiseLinear) else None
    alone = len(values) == 1 and layout.last_use[here + 1] == here + 1
    if alone and isinstance(node, Affine) and len(node.operator.stages()) == 1:  # in one go, without copies
        alive = active if leak is None else active | (leak == 1)
        values[here + 2] = algebra.behind(node.operator, node.offset, values.pop(place.source), (groups, alive))
        return next(switches(layout, values, algebra, {}, first=here + 2))
    rows = (3 * groups[:, None] + np.arange(3)).reshape(-1)
    for key, value in values.items():
        values[key] = value.rows(rows)
    choices = {here: np.repeat(active, 3, axis=0)}
    way = switches(layout, values, algebra, choices, first=here)
    return next(other for other in way if other.index not in choices)
