#!/usr/bin/env python3
"""Check a certificate of equality with nothing but Python: ``python checker.py CERTIFICATE [MODEL_A MODEL_B]``.

This one file imports the standard library and nothing else; it may be copied to a machine on which nothing is
installed. It does not believe what a certificate says. It reads the two networks as plain programs (affine maps,
activations, maxima, sums), hashes them, and proves the claim again, in rational numbers, or in floats with every
rounding error added. It finishes in one of four ways: the claim holds (exit code 0), the evidence does not prove it
(1), this is no certificate (2), or the proof is too large or of a kind for ``fiberscope verify`` (3).

What is left to trust: this file and Python, and that the plain program is the meaning of the model file whose hash the
claim names. The second is what ``fiberscope verify CERTIFICATE A B`` checks, by reading the model files.

A value of a program is a *row*: a sum of rational multiples of *atoms* (the constant, inputs, outputs of switches).
Atom ``(k, i)`` is entry ``i`` of switch ``k``; ``(0, 0)`` is the constant and ``(0, i)`` an input. Where rounding is
allowed, atom ``(-1 - k, i)`` of the same row holds the sum of absolute values that the coefficient was added up from.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction as Q
from itertools import pairwise, product, zip_longest
from math import inf, isfinite
from operator import mul
from pathlib import Path
from typing import Any

FORMAT = "fiberscope certificate 4"
PRECISIONS = {"float64": (53, 1022, 16), "float32": (24, 126, 8), "float16": (11, 14, 8), "bfloat16": (8, 126, 8)}
"""Bits of the unit of rounding, of the least normal number, and how many units count as rounding."""
WORK = 400_000_000
"""Products after which a proof is too large for this checker."""
ONE = (0, 0)
Atom = tuple[int, int]
Row = dict[Atom, Q]


class Malformed(Exception):
    """This is no certificate."""


class Fails(Exception):
    """The evidence does not prove the claim."""


class TooLarge(Exception):
    """For ``fiberscope verify``, which is faster and knows more."""


class _Meter:
    left = WORK


def spend(work: int) -> None:
    """Count products."""
    _Meter.left -= work
    if _Meter.left < 0:
        raise TooLarge(f"the proof takes more than {WORK} products")


def need(condition: bool, what: str) -> None:
    """What a certificate must have."""
    if not condition:
        raise Malformed(what)


# -- programs ----------------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """``affine``: ``stages`` of sparse lines, an offset; ``piecewise``: slopes; ``maximum``: windows, -1 for none."""

    kind: str
    sources: tuple[int, ...]
    size: int
    stages: list[list[list[tuple[int, Q]]]] = field(default_factory=list)
    offset: list[Q] | None = None
    slopes: list[Q] = field(default_factory=list)
    windows: list[list[int]] = field(default_factory=list)
    order: list[int] | None = None

    @property
    def switches(self) -> bool:
        return self.kind in ("piecewise", "maximum")


@dataclass
class Program:
    """Value 0 is the input, node ``k`` makes value ``k + 1``, the last value is the output; ``digest`` hashes it."""

    inputs: int
    nodes: list[Node]
    digest: str

    @property
    def outputs(self) -> int:
        return self.nodes[-1].size


def program_of(found: Any) -> Program:
    """The plain program of a certificate, with the hash of its content: every part with its length."""
    keys(found, "program", "inputs", "nodes")
    inputs = whole(found["inputs"], "inputs")
    need(inputs > 0 and isinstance(found["nodes"], list) and len(found["nodes"]) > 0, "expected a program with nodes")
    sizes, nodes, digest = [inputs], [], hashlib.sha256()

    def put(*parts: Any) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else repr(part).encode()
            digest.update(f"{len(data)}:".encode() + data)

    body: list[tuple[Any, ...]] = []
    for entry in found["nodes"]:
        node, parts = _node(entry, sizes)
        nodes.append(node)
        sizes.append(node.size)
        body.append(parts)
    put(inputs, sizes[-1], len(nodes))
    for parts in body:
        put(*parts)
    return Program(inputs, nodes, digest.hexdigest())


def _packed(values: Sequence[Any], code: str) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *(v + 0.0 if code == "d" else v for v in values))


def _node(entry: Any, sizes: list[int]) -> tuple[Node, tuple[Any, ...]]:
    """A node, and what is hashed of it."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    fields = {
        "affine": ("stages", "offset"),
        "piecewise": ("slopes",),
        "maximum": ("windows",),
        "add": (),
        "concat": ("order",),
    }
    need(kind in list(fields), f"expected a known kind of node, got {kind!r}")
    keys(entry, "node", "kind", "sources", *fields[str(kind)])
    sources = _places(entry["sources"], len(sizes), "sources")
    given = [sizes[s] for s in sources]
    need(len(given) > 1 or (len(given) == 1 and kind not in ("add", "concat")), "expected the sources of a node")
    if kind == "affine":
        made, size, marks = Node("affine", tuple(sources), 0), given[0], []
        need(isinstance(entry["stages"], list) and len(entry["stages"]) > 0, "expected linear maps")
        for stage in entry["stages"]:
            lines, stored = _stage(stage, size)
            marks += [(len(lines), size), *stored]
            made.stages.append(lines)
            size = len(lines)
        made.size, shift = size, [0.0] * size if entry["offset"] is None else entry["offset"]
        made.offset = None if entry["offset"] is None else reals(shift, "an offset")
        need(len(shift) == size, "an offset does not fit")
        return made, ("Affine", made.sources, size, len(made.stages), *marks, _packed(shift, "d"))
    if kind == "piecewise":
        slopes = reals(entry["slopes"], "slopes")
        need(len(slopes) == given[0] and len(given) == 1, "an activation does not fit")
        return Node(kind, tuple(sources), len(slopes), slopes=slopes), (
            "PiecewiseLinear", tuple(sources), len(slopes), _packed(entry["slopes"], "d"))  # fmt: skip
    if kind == "maximum":
        need(isinstance(entry["windows"], list) and len(given) == 1, "expected the windows of a maximum")
        windows = [_places(window, given[0], "a window", -1) for window in entry["windows"]]
        need(len({len(w) for w in windows}) == 1 and all(max(w) >= 0 for w in windows), "a window does not fit")
        shape, flat = (len(windows), len(windows[0])), [i for w in windows for i in w]
        made = Node(kind, tuple(sources), len(windows), windows=windows)
        return made, ("MaxPool", made.sources, made.size, shape, _packed(flat, "q"))
    if kind == "add":
        need(len(set(given)) == 1, "a sum does not fit")
        return Node(kind, tuple(sources), given[0]), ("Add", tuple(sources), given[0])
    order = None if entry["order"] is None else _places(entry["order"], sum(given), "an order")
    need(order is None or sorted(order) == list(range(sum(given))), "a concatenation does not fit")
    made = Node("concat", tuple(sources), sum(given), order=order)
    return made, ("Concat", made.sources, made.size, b"" if order is None else _packed(order, "q"))


def _places(found: Any, count: int, name: str, least: int = 0) -> list[int]:
    plain = isinstance(found, list) and len(found) > 0 and all(type(i) is int and least <= i < count for i in found)
    need(plain, f"expected {name} as places below {count}")
    return list(found)


def _stage(stage: Any, size: int) -> tuple[list[list[tuple[int, Q]]], list[bytes]]:
    """The lines of a linear map: whole rows, whose zeros are left out, or rows with their columns."""
    keys(stage, "linear map", "inputs", "rows", optional=["columns"])
    need(
        whole(stage["inputs"], "inputs") == size and isinstance(stage["rows"], list) and len(stage["rows"]) > 0,
        "a map does not fit",
    )
    rows = [reals(row, "a row") for row in stage["rows"]]
    if "columns" in stage:
        need(isinstance(stage["columns"], list) and len(stage["columns"]) == len(rows), "columns do not fit")
        places = [_places(c, size, "columns") if c != [] else [] for c in stage["columns"]]
        increasing = all(i < j for c in places for i, j in pairwise(c))
        need(increasing and all(len(c) == len(row) for c, row in zip(places, rows, strict=True)), "columns do not fit")
    else:
        need(all(len(row) == size for row in rows), "a row does not fit")
        places = [[j for j in range(size) if row[j]] for row in rows]
        rows = [[row[j] for j in c] for c, row in zip(places, rows, strict=True)]
    starts = [0]
    for c in places:
        starts.append(starts[-1] + len(c))
    flat, numbers = [j for c in places for j in c], [float(w) for row in rows for w in row]
    lines = [list(zip(c, row, strict=True)) for c, row in zip(places, rows, strict=True)]
    return lines, [_packed(starts, "q"), _packed(flat, "q"), _packed(numbers, "d")]


# -- walking -----------------------------------------------------------------------------------------------------------


def total(terms: Iterable[tuple[Q, Row]], least: Q = Q(0), signed: bool = False) -> Row:
    """A sum of multiples of rows; sizes are multiplied by absolute values of at least ``least``, if these are sizes."""
    found: Row = {}
    work = 0
    for w, row in terms:
        work += len(row)
        size = max(abs(w), least)
        for atom, c in row.items():
            found[atom] = found.get(atom, 0) + (w if signed or atom[0] >= 0 else size) * c
    spend(work)
    return {atom: c for atom, c in found.items() if c}


def linear(node: Node, values: list[list[Row]], least: Q | None = None) -> list[Row]:
    """The rows that an affine map, a sum or a concatenation makes; ``least`` keeps sizes beside them."""
    rows = values[node.sources[0]]
    if node.kind == "affine":
        for stage in node.stages:
            rows = [total(((w, rows[j]) for j, w in line), least or Q(0)) for line in stage]
        if node.offset is None:
            return rows
        shifts = ({ONE: c} | ({} if least is None else {(-1, 0): max(abs(c), least)}) for c in node.offset)
        return [total(((Q(1), row), (Q(1), shift))) for row, shift in zip(rows, shifts, strict=True)]
    if node.kind == "add":
        return [total((Q(1), row) for row in column) for column in zip(*(values[s] for s in node.sources), strict=True)]
    joined = [row for s in node.sources for row in values[s]]
    return joined if node.order is None else [joined[i] for i in node.order]


def walk(
    program: Program, start: list[Row], switch: Callable[[Node, list[Row]], list[Row]], least: Q | None = None
) -> list[Row]:
    """The output rows, where ``switch`` says what activations and maxima make of the rows that they read."""
    values = [start]
    for node in program.nodes:
        values.append(switch(node, values[node.sources[0]]) if node.switches else linear(node, values, least))
    return values[-1]


def evaluate(program: Program, start: list[Row]) -> list[Q]:
    """The outputs at one input, given by constant rows."""

    def switch(node: Node, rows: list[Row]) -> list[Row]:
        z = [row.get(ONE, Q(0)) for row in rows]
        if node.kind == "piecewise":
            return [{ONE: v if v > 0 else s * v} for v, s in zip(z, node.slopes, strict=True)]
        return [{ONE: max(z[i] for i in window if i >= 0)} for window in node.windows]

    return [row.get(ONE, Q(0)) for row in walk(program, start, switch)]


# -- domains -----------------------------------------------------------------------------------------------------------

Ends = tuple[Q | None, Q | None]
"""Lower and upper end; None is infinite."""


@dataclass
class Place:
    """A domain: the network's ``inputs`` as rows over its coordinates, their ends, and half-spaces ``row <= 0``."""

    inputs: list[Row]
    ends: list[Ends]
    halfspaces: list[Row] = field(default_factory=list)
    fixed: dict[int, Q] = field(default_factory=dict)
    """Inputs that have one value, by their places, where the domain is a box."""

    @property
    def bounds(self) -> dict[Atom, Ends]:
        return {(0, k): ends for k, ends in enumerate(self.ends, start=1)}

    def starts(self, sized: bool = False) -> list[Row]:
        """The input rows; with the sizes of their coefficients where rounding is allowed."""
        return [row | ({(-1 - k, i): abs(c) for (k, i), c in row.items()} if sized else {}) for row in self.inputs]

    def box(self) -> list[tuple[float, float]]:
        """The ends of all coordinates, which are floats."""
        if self.halfspaces or any(low is None or high is None for low, high in self.ends):
            raise Fails("the domain is no box")
        return [(float(low or 0), float(high or 0)) for low, high in self.ends]

    def at(self, x: list[Q]) -> list[Row]:
        """The input rows at a point of the domain."""
        if any(x[k : k + 1] != [v] for k, v in self.fixed.items()):
            raise Fails("the input is outside the domain")
        x = [v for k, v in enumerate(x) if k not in self.fixed]
        need(len(x) == len(self.ends), f"x: expected {len(self.ends) + len(self.fixed)} coordinates")
        value = {ONE: Q(1)} | {(0, k): v for k, v in enumerate(x, start=1)}
        inside = all(
            (low is None or low <= v) and (high is None or v <= high)
            for v, (low, high) in zip(x, self.ends, strict=True)
        )
        below = all(sum(c * value[atom] for atom, c in row.items()) <= 0 for row in self.halfspaces)
        if not (inside and below):
            raise Fails("the input is outside the domain")
        return [{ONE: Q(sum(c * value[atom] for atom, c in row.items()))} for row in self.inputs]


def reals(found: Any, name: str) -> list[Q]:
    """A list of finite numbers out of JSON."""
    plain = isinstance(found, list) and all(type(v) in (int, float) and isfinite(v) for v in found)
    need(plain, f"expected {name} as a list of numbers")
    return [Q(v) for v in found]


def keys(found: Any, name: str, *expected: str, optional: Sequence[str] = ()) -> Any:
    """A table with these entries and no others."""
    need(isinstance(found, dict), f"expected {name} as a table")
    need(set(expected) <= set(found) <= {*expected, *optional}, f"{name}: expected {', '.join(expected)} and no more")
    return found


def whole(found: Any, name: str) -> int:
    need(type(found) is int, f"expected an integer for {name}")
    return int(found)


def place_of(found: Any, inputs: int) -> Place:
    """The domain of a claim about networks with so many inputs."""
    kind = found.get("kind") if isinstance(found, dict) else None
    if kind == "plane":
        keys(found, "domain", "kind", "origin", "u", "v", "box")
        origin, u, v = (reals(found[name], name) for name in ("origin", "u", "v"))
        inner = place_of(found["box"], 2)
        need(found["box"]["kind"] == "box" and len(inner.ends) == 2, "expected the box of a plane")
        need(len(origin) == len(u) == len(v) == inputs, f"expected a plane in R^{inputs}")
        return Place(
            [
                total(((o, {ONE: Q(1)}), (s, {(0, 1): Q(1)}), (t, {(0, 2): Q(1)})))
                for o, s, t in zip(origin, u, v, strict=True)
            ],
            inner.ends,
        )
    if kind == "box":
        keys(found, "domain", "kind", "low", "high")
        low, high = reals(found["low"], "low"), reals(found["high"], "high")
        need(
            len(low) == len(high) == inputs and all(p <= q for p, q in zip(low, high, strict=True)),
            f"expected a box in R^{inputs}",
        )
        free = [k for k in range(inputs) if low[k] < high[k]]
        need(len(free) > 0, "expected a box with more than one point")
        rows: list[Row] = [{(0, free.index(k) + 1): Q(1)} if k in set(free) else {ONE: low[k]} for k in range(inputs)]
        fixed = {k: low[k] for k in range(inputs) if k not in set(free)}
        plain_rows = [{a: c for a, c in row.items() if c} for row in rows]
        return Place(plain_rows, [(low[k], high[k]) for k in free], fixed=fixed)
    plain: list[Row] = [{(0, k): Q(1)} for k in range(1, inputs + 1)]
    if kind in ("space", "orthant"):
        keys(found, "domain", "kind", "dimension")
        need(whole(found["dimension"], "dimension") == inputs, f"expected a domain in R^{inputs}")
        return Place(plain, [(Q(0) if kind == "orthant" else None, None)] * inputs)
    need(kind == "polytope", f"expected a known kind of domain, got {kind!r}")
    keys(found, "domain", "kind", "A", "b")
    need(isinstance(found["A"], list), "expected A as a list of rows")
    b = reals(found["b"], "b")
    A = [reals(row, "A") for row in found["A"]]
    need(len(A) == len(b) and all(len(row) == inputs for row in A), f"expected half-spaces in R^{inputs}")
    cuts = [
        total([(-c, {ONE: Q(1)}), *((w, plain[k]) for k, w in enumerate(row))]) for row, c in zip(A, b, strict=True)
    ]
    made = Place(plain, [(None, None)] * inputs, cuts)
    need(bool(cells(made)), "expected a polytope with interior points")
    return made


def hull(row: Row, bounds: dict[Atom, Ends]) -> Ends:
    """The range of a row, from the ranges of its atoms; exact for rows over the coordinates of a box."""
    ends: list[Q | None] = []
    for side in (0, 1):
        value: Q | None = Q(0)
        for atom, c in row.items():
            if atom[0] < 0 or value is None:
                continue
            end = Q(1) if atom == ONE else bounds[atom][side if c > 0 else 1 - side]
            value = None if end is None else value + c * end
        ends.append(value)
    return ends[0], ends[1]


def bent(ends: Ends, slope: Q) -> Ends:
    """The range of an activation, rounded outward to a hundred bits."""
    low, high = ends
    parts: list[Ends] = []
    if high is None or high > 0:
        parts.append((max(low or Q(0), Q(0)), high))
    if low is None or low <= 0:
        top = min(high if high is not None else Q(0), Q(0))
        far = Q(0) if slope == 0 else None if low is None else slope * low
        parts.append((far, slope * top) if slope >= 0 else (slope * top, far))
    lows, highs = [p[0] for p in parts], [p[1] for p in parts]
    return (None if None in lows else _short(min(v for v in lows if v is not None), False),
            None if None in highs else _short(max(v for v in highs if v is not None), True))  # fmt: skip


def _short(value: Q, up: bool) -> Q:
    shift = 100 - value.numerator.bit_length() + value.denominator.bit_length()
    top, below = value.numerator << max(shift, 0), value.denominator << max(-shift, 0)
    return Q(-((-top) // below) if up else top // below) / Q(2) ** shift


def windowed(window: Sequence[int], ranges: Sequence[Ends]) -> Ends:
    """The range of a maximum."""
    seen = [ranges[i] for i in window if i >= 0]
    lows, highs = [low for low, _ in seen if low is not None], [high for _, high in seen]
    return max(lows, default=None), None if None in highs else max(h for h in highs if h is not None)


# -- programs whose switches correspond --------------------------------------------------------------------------------


@dataclass
class Case:
    """A claim with what it is about, and its evidence."""

    a: Program
    b: Program
    place: Place
    equal: bool
    tolerance: Q | None
    unit: Q
    least: Q
    few: int
    evidence: dict[str, Any]
    margin: Q | None = None

    @property
    def rounding(self) -> Q | None:
        """The least normal number where rounding is allowed."""
        return self.least if self.tolerance is None else None


Gates = tuple[list[tuple[Node, list[Row]]], list[Row]]


def gates(case: Case, program: Program, every: bool = False) -> Gates:
    """Every switch with the rows that it reads, over the outputs of earlier ones, and the output rows."""
    found: list[tuple[Node, list[Row]]] = []
    sized = case.rounding is not None

    def switch(node: Node, rows: list[Row]) -> list[Row]:
        if not every and node.kind == "piecewise" and all(s == 1 for s in node.slopes):
            return rows
        found.append((node, rows))
        k = len(found)
        return [{(k, i): Q(1)} | ({(-1 - k, i): Q(1)} if sized else {}) for i in range(node.size)]

    return found, walk(program, case.place.starts(sized), switch, case.rounding)


Match = tuple[int, int, list[int], list[Q]]
"""``k, l, order, scales``: entry ``i`` of switch ``l`` of ``b`` is ``scales[i]`` times entry ``order[i]`` of switch
``k`` of ``a``."""


class Matched:
    """The rows of ``a`` written over the atoms of ``b``, beside those of ``b``, switch by switch, and the outputs."""

    def __init__(self, case: Case, a: Gates, b: Gates, matches: list[Match]) -> None:
        self.steps: list[tuple[int, Node, Node, list[int], list[tuple[Row, Row]]]] = []
        names: dict[Atom, tuple[Atom, Q]] = {}
        known = {0}
        if not len(matches) == len(a[0]) == len(b[0]):
            raise Fails("the switches do not match")
        for k, l, order, scales in matches:
            (mine, left), (theirs, right) = a[0][k - 1], b[0][l - 1]
            if mine.kind != theirs.kind or mine.size != theirs.size or sorted(order) != list(range(theirs.size)):
                raise Fails("two switches are not of one kind and size")
            source = list(range(len(right)))
            if mine.kind == "piecewise":
                source, factors = order, scales
            elif mine.windows == theirs.windows and order == list(range(theirs.size)) and set(scales) == {Q(1)}:
                factors = [Q(1)] * len(right)
            else:
                raise Fails("two maxima have other windows")
            pairs = [(self._moved(left[j], names, s), row) for j, s, row in zip(source, factors, right, strict=True)]
            if any(max(atom[0], -1 - atom[0]) not in known for pair in pairs for row in pair for atom in row):
                raise Fails("a layer reads one that is not matched before it")
            known.add(l)
            names |= {(k, j): ((l, i), s) for i, (j, s) in enumerate(zip(order, scales, strict=True))}
            self.steps.append((l, mine, theirs, order, pairs))
        self.ends = [(self._moved(p, names, Q(1)), q) for p, q in zip(a[1], b[1], strict=True)]

    def _moved(self, row: Row, names: dict[Atom, tuple[Atom, Q]], scale: Q) -> Row:
        made: Row = {}
        for (k, i), c in row.items():
            sized = k < 0
            plain = (-1 - k, i) if sized else (k, i)
            if plain[0] and plain not in names:
                raise Fails("a layer reads one that is not matched before it")
            (l, j), s = names[plain] if plain[0] else (plain, Q(1))
            made[(-1 - l if sized else l, j)] = c * scale / s
        return made

    def same(self, case: Case) -> str:
        """Prove that all numbers agree, exactly or up to rounding."""
        worst = Q(0)

        def check(gap: Q, room: Q) -> None:
            nonlocal worst
            if case.tolerance is not None or not gap <= case.few * room:
                raise Fails("the numbers of the two do not agree")
            worst = max(worst, gap / room)

        for pair in [pair for step in self.steps for pair in step[4]] + self.ends:
            spend(len(pair[0]) + len(pair[1]))
            for atom in {**pair[0], **pair[1]}:
                p, q = (row.get(atom, Q(0)) for row in pair)
                if atom[0] >= 0 and p != q:
                    sizes = [row.get((-1 - atom[0], atom[1]), Q(0)) for row in pair]
                    check(abs(p - q), 2 * case.unit * max(*sizes, case.least))
        for _, mine, theirs, order, _ in self.steps:
            for j, q in zip(order if theirs.slopes else [], theirs.slopes, strict=True):
                if mine.slopes[j] != q:
                    check(abs(mine.slopes[j] - q), 2 * case.unit * max(abs(mine.slopes[j]), abs(q)))
        return "exactly" if not worst else f"within {float(worst):.3g} units of rounding"


def symmetry_of(found: Any) -> list[Match]:
    """A permutation and rescaling of the neurons of every layer."""
    orders, factors = found["permutations"], found["scales"]
    need(isinstance(orders, list) and isinstance(factors, list) and len(orders) == len(factors), "expected a symmetry")
    made = []
    for k, (order, scales) in enumerate(zip(orders, factors, strict=True), start=1):
        row = reals(scales, "scales")
        need(isinstance(order, list) and len(order) == len(row) and all(s > 0 for s in row), "expected scales above 0")
        made.append((k, k, [whole(i, "a permutation") for i in order], row))
    return made


def by_symmetry(case: Case) -> str:
    """Neurons of chains, permuted and rescaled."""
    matches = symmetry_of(keys(case.evidence, "evidence", "kind", "permutations", "scales"))
    return _by_matches(case, matches, True, "with the neurons permuted and rescaled")


def by_layers(case: Case) -> str:
    """Switches in another order, and whatever affine maps between them."""
    order = keys(case.evidence, "evidence", "kind", "order")["order"]
    need(isinstance(order, list) and all(type(j) is int and j >= 0 for j in order), "expected the order of the layers")
    sizes = [node.size for node, _ in gates(case, case.b)[0]]
    if sorted(order) != list(range(len(sizes))):
        raise Fails("the layers do not match")
    matches = [(k, j + 1, list(range(sizes[j])), [Q(1)] * sizes[j]) for k, j in enumerate(order, start=1)]
    return _by_matches(case, matches, False, f"with {len(order)} switches matched")


def _by_matches(case: Case, matches: list[Match], every: bool, how: str) -> str:
    found = Matched(case, gates(case, case.a, every), gates(case, case.b, every), matches)
    if case.tolerance:
        return f"{how}, {within(case, paired(found), [(case.place.box(), 0)])}"
    return f"{how}, all numbers agree {found.same(case)}"


def by_identity(case: Case) -> str:
    """One program twice."""
    keys(case.evidence, "evidence", "kind")
    if case.a.digest != case.b.digest:
        raise Fails("the programs are not identical")
    return "the programs are the same, number by number"


# -- an input at which the two differ ----------------------------------------------------------------------------------


def near(value: Q) -> Q:
    """The nearest float, for a value beyond their range the largest, as certificates tell outputs."""
    most = Q(sys.float_info.max)
    return Q(float(max(-most, min(most, value))))


def by_counterexample(case: Case) -> str:
    """The exact outputs at an input, which the certificate must tell right."""
    found = keys(case.evidence, "evidence", "kind", "x", "a", "b", "difference", "allowed")
    start = case.place.at(reals(found["x"], "x"))
    left, right = evaluate(case.a, start), evaluate(case.b, start)
    told = [reals(found[name], name) for name in ("a", "b")]
    numbers = reals([found["difference"], found["allowed"]], "numbers")
    if told != [[near(v) for v in values] for values in (left, right)]:
        raise Fails("the outputs at the input are not what the certificate tells")
    if case.margin is not None:
        return _other_class(case, left, right, numbers)
    allowed = [case.tolerance] * len(left) if case.tolerance is not None else _allowances(case, start)
    gaps = [abs(p - q) for p, q in zip(left, right, strict=True)]
    worst = max(range(len(gaps)), key=lambda k: gaps[k] - allowed[k])
    if not gaps[worst] > allowed[worst]:
        raise Fails("the exact outputs at the input do not differ by more than is allowed")
    exact = [near(gaps[worst]), near(allowed[worst])]
    if numbers != exact if case.tolerance is not None else not 0 <= numbers[1] <= numbers[0] == exact[0]:
        raise Fails("the difference at the input is not what the certificate tells")
    gap, most = (float(near(v)) for v in (gaps[worst], allowed[worst]))
    return f"the exact outputs at the input differ by {gap:.6g}, {most:.6g} is allowed"


def _other_class(case: Case, left: list[Q], right: list[Q], told: list[Q]) -> str:
    """Where ``a`` has one class, by the margin, and ``b`` puts another one above it."""
    i = max(range(len(left)), key=lambda k: left[k])
    lead = min([left[i] - v for k, v in enumerate(left) if k != i], default=Q(0))
    if not (lead > 0 and lead >= (case.margin or 0) and max(right) > right[i]):
        raise Fails("the class at the input is the same, or not one by the margin")
    if told != [near(max(right) - right[i]), Q(0)]:
        raise Fails("the difference at the input is not what the certificate tells")
    return f"a is in class {i} by {float(near(lead)):.6g}, b is not"


def _allowances(case: Case, start: list[Row]) -> list[Q]:
    """What rounding explains at an input: every parameter moved by twice a few units, and 32 times what evaluating in
    float64 loses. Every value stands with the bound of its error and of how far it moves."""
    share, u, sums = 2 * case.few * case.unit, Q(1, 2**53), [Q(0)] * case.a.outputs
    for program in (case.a, case.b):
        values = [[(row.get(ONE, Q(0)), Q(0), Q(0)) for row in start]]
        for node in program.nodes:
            old = values[node.sources[0]]
            if node.kind == "affine":
                for stage in node.stages:
                    loss = max(len(line) for line in stage) * u * (1 + Q(1, 2**20))
                    old = [
                        (
                            sum((w * old[j][0] for j, w in line), Q(0)),
                            sum((abs(w) * (old[j][1] + loss * abs(old[j][0])) for j, w in line), Q(0)),
                            sum((max(abs(w), case.least) * _moves(old[j], share) for j, w in line), Q(0)),
                        )
                        for line in stage
                    ]
                    spend(3 * sum(map(len, stage)))
                if node.offset is not None:
                    old = [
                        (v + c, e + u * abs(v + c), d + share * max(abs(c), case.least))
                        for (v, e, d), c in zip(old, node.offset, strict=True)
                    ]
            elif node.kind == "piecewise":
                old = [_bent_loss(*triple, slope, share, u) for triple, slope in zip(old, node.slopes, strict=True)]
            elif node.kind == "maximum":
                old = [(max(t[0] for t in w), max(t[1] for t in w), max(t[2] for t in w))
                       for w in ([old[i] for i in window if i >= 0] for window in node.windows)]  # fmt: skip
            elif node.kind == "add":
                columns = list(zip(*(values[s] for s in node.sources), strict=True))
                old = [(sum((t[0] for t in c), Q(0)), sum((t[1] + len(c) * u * abs(t[0]) for t in c), Q(0)),
                        sum((t[2] for t in c), Q(0))) for c in columns]  # fmt: skip
            else:
                joined = [triple for s in node.sources for triple in values[s]]
                old = joined if node.order is None else [joined[i] for i in node.order]
            values.append(old)
        sums = [total + 32 * e + d for total, (_, e, d) in zip(sums, values[-1], strict=True)]
    return sums


def _moves(value: tuple[Q, Q, Q], share: Q) -> Q:
    return value[2] + share * (value[2] + abs(value[0]))


def _bent_loss(v: Q, e: Q, d: Q, slope: Q, share: Q, u: Q) -> tuple[Q, Q, Q]:
    steep, out = max(Q(1), abs(slope)), v if v > 0 else slope * v
    own = Q(0) if slope in (0, 1) else share * abs(slope) * (abs(v) + e + d)
    flat = slope == 0
    return (
        out,
        Q(0) if flat and v < -e else steep * e + (0 if flat else u * abs(out)),
        Q(0) if flat and v < -(e + d) else steep * d + own,
    )


# -- sums of ReLUs of sums of ReLUs ------------------------------------------------------------------------------------


class Forms:
    """Rows over one table of hyperplanes: ``relu(t p) = t relu(p)`` for ``t > 0``, ``relu(p) = p + relu(-p)``, and what
    is of one sign is dead or linear. Two programs that come out the same are the same real function; with ``room``,
    the same up to so much rounding of what every coefficient was added up from."""

    def __init__(self, place: Place, room: Q = Q(0), least: Q = Q(0)) -> None:
        self.place, self.bounds, self.room, self.least = place, place.bounds, room, least
        self.atoms: dict[Any, tuple[Atom, Row]] = {}
        self.facts: dict[Any, tuple[int, Row]] = {}
        self.unproven: list[int] = []
        self.inside: dict[Atom, Row] | None = None
        """The rows of atoms, where a maximum of ReLUs is taken as the ReLU of a maximum, which it is."""

    def cleaned(self, row: Row) -> Row:
        """Without what rounding may have left of a zero."""
        if not self.room:
            return row
        kept = {(k, i) for (k, i), c in row.items() if k < 0 or abs(c) > self.room * row.get((-1 - k, i), Q(0))}
        return {atom: c for atom, c in row.items() if atom in kept}

    def unit(self, row: Row) -> tuple[Any, Q, Row]:
        """The row divided by the size of its first coefficient, as a name; that size; the sizes beside it."""
        terms = {atom: c for atom, c in row.items() if atom[0] >= 0}
        lead = abs(terms[min(terms)])
        sizes = {atom: row.get((-1 - atom[0], atom[1]), Q(0)) / lead for atom in terms}
        return tuple(sorted((atom, c / lead) for atom, c in terms.items())), lead, sizes

    def found(self, table: dict[Any, tuple[Any, Row]], name: Any, sizes: Row) -> tuple[Any, Q]:
        """What stands in a table under a multiple of a row, exactly or up to rounding, and the factor."""
        for sign in (1, -1):
            if (mine := tuple((atom, sign * c) for atom, c in name)) in table:
                return table[mine][0], Q(sign)
        top = max(abs(c) for _, c in name)
        for other, (value, spread) in table.items() if self.room else ():
            if [atom for atom, _ in other] != [atom for atom, _ in name]:
                continue
            most = max(abs(c) for _, c in other)
            pairs = [(atom, p, q) for (atom, p), (_, q) in zip(name, other, strict=True)]
            rooms = [self.room * ((sizes[a] + abs(p)) / top + (spread[a] + abs(q)) / most) for a, p, q in pairs]
            for sign in (1, -1):
                gaps = [abs(p / top - sign * q / most) for _, p, q in pairs]
                if all(gap <= room for gap, room in zip(gaps, rooms, strict=True)):
                    return value, sign * top / most
        return None, Q(0)

    def known(self, row: Row) -> int | None:
        """The sign of a row on the domain, where its terms or what was proven tell it; 0 is zero."""
        signs = set()
        for atom, c in row.items():
            if atom[0] >= 0:
                low = Q(1) if atom == ONE else self.bounds[atom][0]
                signs |= {-1, 1} if low is None or low < 0 else {1 if c > 0 else -1}
        if len(signs) < 2:
            return signs.pop() if signs else 0
        name, _, sizes = self.unit(row)
        fact, turn = self.found(self.facts, name, sizes)
        return None if fact is None else fact if turn > 0 else -fact

    def bend(self, row: Row, slope: Q, sign: int) -> Row:
        """``slope * row + (1 - slope) * relu(row)``; a ``sign`` that is not 0 is proven elsewhere."""
        row = self.cleaned(row)
        if sign and any(atom[0] >= 0 for atom in row):
            name, _, sizes = self.unit(row)
            self.facts[name] = sign, sizes
        known = sign or self.known(row)
        if slope == 1 or known == 1:
            return row
        if known is not None:
            return total([(slope, row)])
        name, lead, sizes = self.unit(row)
        atom, turn = self.found(self.atoms, name, sizes)
        if atom is None:
            atom, turn = (1 + len(self.atoms), 0), Q(1)
            self.atoms[name] = atom, sizes
            self.bounds[atom] = bent(hull(dict(name), self.bounds), Q(0))
            if self.inside is not None:
                self.inside[atom] = dict(name) | {(-1 - k, i): size for (k, i), size in sizes.items() if self.room}
        one: Row = {atom: Q(1)} | ({(-1 - atom[0], 0): Q(1)} if self.room else {})
        part = [(slope, row), ((1 - slope) * lead * abs(turn), one)]
        return total(part if turn > 0 else [*part, (1 - slope, row)])

    def of(self, program: Program, signs: list[int]) -> list[Row]:
        """The outputs of a program with the signs of its neurons on the domain; ``unproven`` are left to be proven."""
        place = 0

        def switch(node: Node, rows: list[Row]) -> list[Row]:
            nonlocal place
            if node.kind == "maximum":
                place += sum(map(len, node.windows))
                return [self.largest([rows[i] for i in window if i >= 0]) for window in node.windows]
            for k, row in enumerate(rows, start=place):
                low, high = hull(row, self.bounds) if signs[k] else (None, None)
                if signs[k] and not (low is not None and low >= 0 if signs[k] > 0 else high is not None and high <= 0):
                    self.unproven.append(k)
            place += len(rows)
            return [self.bend(*each) for each in zip(rows, node.slopes, signs[place - len(rows) : place], strict=True)]

        self.unproven = []
        return walk(program, self.place.starts(bool(self.room)), switch, self.least if self.room else None)

    def largest(self, players: list[Row]) -> Row:
        """``max(p, q) = q + relu(p - q)``, pair by pair."""
        terms = [[(atom, c) for atom, c in row.items() if atom[0] >= 0] for row in players]
        inside = self.inside
        if inside is not None and all(len(t) == 1 and t[0][0] in inside and t[0][1] > 0 for t in terms):
            return self.bend(self.largest([total([(t[0][1], inside[t[0][0]])]) for t in terms]), Q(0), 0)
        while len(players) > 1:
            pairs = list(zip(players[::2], players[1::2], strict=False))
            won = [total(((Q(1), q), (Q(1), self.bend(total(((Q(1), p), (Q(-1), q))), Q(0), 0)))) for p, q in pairs]
            players = won + players[len(players) - len(players) % 2 :]
        return players[0]

    def same(self, left: list[Row], right: list[Row]) -> bool:
        gaps = [self.cleaned(total(((Q(1), p), (Q(-1), q)))) for p, q in zip(left, right, strict=True)]
        return not any(atom[0] >= 0 for gap in gaps for atom in gap)


def by_forms(case: Case) -> str:
    """Normal forms that agree, with signs of neurons on the domain."""
    found = keys(case.evidence, "evidence", "kind", "signs", "hyperplanes", "ulps")
    ulps, count = whole(found["ulps"], "ulps"), whole(found["hyperplanes"], "hyperplanes")
    if not 0 <= ulps <= (case.few if case.tolerance is None else 0):
        raise Fails("that many units of rounding prove nothing here")
    need(isinstance(found["signs"], list) and len(found["signs"]) == 2, "expected the signs of two networks")
    table, ends = Forms(case.place, ulps * case.unit, case.least), []
    for program, signs in zip((case.a, case.b), found["signs"], strict=True):
        size = sum(len(node.slopes) + sum(map(len, node.windows)) for node in program.nodes)
        need(isinstance(signs, list) and len(signs) == size, f"expected {size} signs")
        need(all(type(s) is int and -1 <= s <= 1 for s in signs), "expected signs among -1, 0, 1")
        ends.append(table.of(program, signs))
        if table.unproven:
            for _, _, seen in pieces(case.place, [program]):
                if any((seen[k] or 0) * signs[k] < 0 for k in table.unproven):
                    raise Fails("a sign that the normal form uses is wrong")
    if not table.same(*ends):
        raise Fails("the normal forms differ")
    if not ulps and len(table.atoms) != count:
        raise Fails(f"there are {len(table.atoms)} hyperplanes and not {count}")
    how = f"within {ulps} units of rounding" if ulps else "exactly"
    return f"the normal forms agree over {len(table.atoms)} hyperplanes, {how}"


def by_channels(case: Case) -> str:
    """Channels that are multiples of others: their normal forms show it, without the evidence."""
    need(isinstance(keys(case.evidence, "evidence", "kind", "switches")["switches"], list), "expected switches")
    room = case.few * case.unit if case.tolerance is None else Q(0)
    table = Forms(case.place, room, case.least)
    table.inside = {}
    sizes = [sum(len(node.slopes) + sum(map(len, node.windows)) for node in p.nodes) for p in (case.a, case.b)]
    left, right = (table.of(program, [0] * size) for program, size in zip((case.a, case.b), sizes, strict=True))
    if not table.same(left, right):
        if case.tolerance and len(case.place.ends) <= 8:
            return within(case, unpaired(case), [(case.place.box(), 0)])
        raise TooLarge("channels that are only bounded, or whose normal forms do not agree")
    return f"the normal forms agree over {len(table.atoms)} hyperplanes, " + ("up to rounding" if room else "exactly")


# -- cells on which both are one affine map ----------------------------------------------------------------------------

Ray = tuple[tuple[Q, ...], int]
"""A corner ``(1, x)`` or a direction ``(0, x)`` of a cell, and the set of half-spaces whose boundary it is on."""
Cell = list[Ray]


def cells(place: Place) -> list[Cell]:
    """The domain as cells with corners: one, or one for every orthant where a coordinate has no end."""
    n = len(place.ends)
    if n > 8:
        raise TooLarge(f"corners in {n} dimensions")
    sides = [[e] if e[0] is not None or e[1] is not None else [(Q(0), None), (None, Q(0))] for e in place.ends]
    found = []
    for choice in product(*sides):
        cell: Cell = []
        options: list[list[tuple[Q, int, bool]]] = []  # of every coordinate: a value, the side it is on, at infinity
        for k, (low, high) in enumerate(choice):
            ends = [(v, 1 << (2 * k + s), False) for s, v in enumerate((low, high)) if v is not None]
            options.append([*ends, *([] if len(ends) == 2 else [(Q(-1 if low is None else 1), 0, True)])])
        for corner in product(*options):
            far = [k for k, (_, _, infinite) in enumerate(corner) if infinite]
            tight = sum(side for _, side, _ in corner)
            if not far:
                cell.append(((Q(1), *(v for v, _, _ in corner)), tight))
            elif len(far) == 1:  # a direction: along one coordinate, whatever corner it starts from
                direction = tuple(v if k in far else Q(0) for k, (v, _, _) in enumerate(corner))
                bits = 1 << 2 * n
                for k, (low, high) in enumerate(choice):
                    bits |= (
                        sum(1 << (2 * k + s) for s, v in enumerate((low, high)) if v is not None) if k not in far else 0
                    )
                if ((Q(0), *direction), bits) not in cell:
                    cell.append(((Q(0), *direction), bits))
        found.append(cell)
    for k, row in enumerate(place.halfspaces):
        found = [part for cell in found for part in cut(cell, row, 2 * n + 1 + k)[:1] if part]
    return found


def at_ray(row: Row, ray: Ray) -> Q:
    """The value of a row over the coordinates at a corner, or its slope in a direction."""
    return sum((c * ray[0][k] for (s, k), c in row.items() if s == 0), Q(0))


_next_side = [1000]


def cut(cell: Cell, row: Row, side: int | None = None) -> tuple[Cell, Cell]:
    """The parts with ``row <= 0`` and ``row >= 0``; empty where the cell has no inner points."""
    if side is None:
        _next_side[0] += 1
        side = _next_side[0]
    values = [at_ray(row, ray) for ray in cell]
    below, above = ([ray for ray, v in zip(cell, values, strict=True) if v * s > 0] for s in (-1, 1))
    on = [(x, tight | 1 << side) for (x, tight), v in zip(cell, values, strict=True) if v == 0]
    for (p, v), (q, w) in product(zip(cell, values, strict=True), zip(cell, values, strict=True)):
        if v > 0 > w:
            common = p[1] & q[1]
            spend(len(cell))
            if not any(r is not p and r is not q and common & r[1] == common for r in cell):
                point = [v * b - w * a for a, b in zip(p[0], q[0], strict=True)]
                scale = point[0] or max(map(abs, point))
                on.append((tuple(c / scale for c in point), common | 1 << side))
    return (below + on if below else []), (above + on if above else [])


def pieces(
    place: Place, programs: list[Program], start: list[Cell] | None = None
) -> Iterator[tuple[Cell, list[list[Row]], list[int | None]]]:
    """Cells on which every program is one affine map: the outputs as rows over the coordinates, signs of neurons."""
    stack: list[tuple[Cell, list[list[Row]], list[list[Row]], list[int | None]]] = [
        (cell, [], [place.inputs], []) for cell in (cells(place) if start is None else start)
    ]
    while stack:
        cell, ends, values, signs = stack.pop()
        while len(ends) < len(programs):
            node = programs[len(ends)].nodes[len(values) - 1]
            if not node.switches:
                made = linear(node, values)
            else:
                made, more, crossing = _switched(node, values[node.sources[0]], cell)
                if crossing is not None:
                    stack += [(half, ends, values, signs) for half in cut(cell, crossing)]
                    break
                signs = signs + more
            values = [*values, made]
            if len(values) > len(programs[len(ends)].nodes):
                ends, values = [*ends, made], [place.inputs]
        else:
            yield cell, ends, signs


def _switched(node: Node, rows: list[Row], cell: Cell) -> tuple[list[Row], list[int | None], Row | None]:
    """What a switch does on a cell, or a row that it must be cut by."""
    made: list[Row] = []
    signs: list[int | None] = []
    spend(sum(map(len, rows)) * len(cell))
    if node.kind == "piecewise":
        for row, slope in zip(rows, node.slopes, strict=True):
            values = [at_ray(row, ray) for ray in cell]
            up, down = any(v > 0 for v in values), any(v < 0 for v in values)
            if up and down and slope != 1:
                return [], [], row
            made.append(row if slope == 1 or not down else total([(slope, row)]))
            signs.append(None if slope == 1 else up - down)
        return made, signs, None
    for window in node.windows:
        players = [i for i in window if i >= 0]
        middle = (tuple(sum(c, Q(0)) for c in zip(*(x for x, _ in cell), strict=True)), 0)
        best = max(players, key=lambda i: at_ray(rows[i], middle))
        for i in players:
            lead = total(((Q(1), rows[i]), (Q(-1), rows[best])))
            if any(at_ray(lead, ray) > 0 for ray in cell):
                return [], [], lead
        made.append(rows[best])
        signs += [None] * len(window)
    return made, signs, None


TOLD: dict[str, tuple[str, ...]] = {
    "regions": ("regions",),
    "bottleneck": ("permutation", "scales", "flips", "hidden", "translation", "exact", "line"),
    "simplified symmetry": ("permutations", "scales"),
    "hyperplane representations differ": (),
    "layers behind differ": (),
}
"""Evidence that is not needed here, since the claim is proven cell by cell; only its fields are looked at."""


def by_cells(case: Case) -> str:
    """All cells of the two together: the claim itself, whatever the evidence says beyond it."""
    keys(case.evidence, "evidence", "kind", *TOLD[case.evidence["kind"]])
    seen, tolerance = set(), case.tolerance or Q(0)
    for cell, (left, right), signs in pieces(case.place, [case.a, case.b]):
        gaps = [total(((Q(1), p), (Q(-1), q))) for p, q in zip(left, right, strict=True)]
        if any(abs(at_ray(gap, ray)) > tolerance * ray[0][0] for gap in gaps for ray in cell):
            if case.tolerance is None:
                raise TooLarge("affine maps that differ, perhaps by rounding")
            if not case.equal:
                return "the exact affine maps differ on a region by more than is allowed"
            raise Fails("the affine maps differ on a region")
        seen.add(tuple(signs))
    if not case.equal:
        raise Fails("the affine maps differ on no region")
    if "regions" in case.evidence and whole(case.evidence["regions"], "regions") != len(seen):
        raise Fails(f"there are {len(seen)} regions")
    return f"the exact affine maps agree on all {len(seen)} regions" + (
        f" within {float(tolerance):g}" if tolerance else ""
    )


# -- bounds of differences, in floats with their errors ----------------------------------------------------------------

U, TINY = 1.01 * 2.0**-53, 1e-290
"""What rounding is off by, relatively, and more than all that the sums of one number lose below the normal floats."""
LEAST = 2.0**-960
"""The size of coefficients below it: their rounding is off by less than ``U`` times that."""
Form = tuple[list[float], float, float]
"""``c + sum_k g_k e_k`` with ``|e_k| <= 1`` as ``[c, g_1, ...]``, what it may be off by, and the sum of all sizes."""
FloatRow = tuple[list[Atom], list[float], list[float]]
"""Atoms, coefficients rounded to nearest, and their sizes."""
Step = tuple[Node, list[Atom], list[FloatRow], list[FloatRow] | None]
"""A switch, the atoms that it makes, what it reads, and the difference from what its partner reads, if it has one."""


@dataclass
class Bounding:
    """Steps through both programs, the rows of the outputs of ``a``, and those of the differences ``a - b``.

    Atom ``(k, i)`` is an output of a switch of ``a``. Atom ``(-1 - k, i)`` is the difference of it from the partner in
    ``b`` where switches are matched, else an output of a switch of ``b``.
    """

    steps: list[Step]
    outputs: list[Row]
    ends: list[Row]


def _floats(row: Row) -> FloatRow:
    try:
        numbers = [float(c) for c in row.values()]
    except OverflowError:
        raise TooLarge("a coefficient beyond the floats") from None
    return list(row), numbers, [max(abs(v), LEAST) for v in numbers]


def paired(found: Matched) -> Bounding:
    """Switches of ``a`` and ``b`` together: ``d' = B d + (A - B) h``."""

    def apart(pair: tuple[Row, Row]) -> Row:
        gap = total(((Q(1), pair[0]), (Q(-1), pair[1])))
        return gap | {(-1 - k, i): c for (k, i), c in pair[1].items() if k > 0}

    steps: list[Step] = []
    for l, mine, theirs, order, pairs in found.steps:
        if [mine.slopes[j] for j in order if mine.slopes] != theirs.slopes:
            raise Fails("activations with other slopes are not matched")
        atoms = [(l, i) for i in range(theirs.size)]
        steps.append((theirs, atoms, [_floats(p) for p, _ in pairs], [_floats(apart(pair)) for pair in pairs]))
    return Bounding(steps, [p for p, _ in found.ends], [apart(pair) for pair in found.ends])


def unpaired(case: Case) -> Bounding:
    """Both programs one after the other."""
    steps: list[Step] = []
    (left, end), (right, last) = gates(case, case.a), gates(case, case.b)

    def other(row: Row) -> Row:
        return {(-1 - k, i) if k else (k, i): c for (k, i), c in row.items()}

    for k, (node, rows) in enumerate(left, start=1):
        steps.append((node, [(k, i) for i in range(node.size)], [_floats(row) for row in rows], None))
    for k, (node, rows) in enumerate(right, start=1):
        steps.append((node, [(-1 - k, i) for i in range(node.size)], [_floats(other(row)) for row in rows], None))
    ends = [total(((Q(1), p), (Q(-1), other(q))), signed=True) for p, q in zip(end, last, strict=True)]
    return Bounding(steps, end, ends)


class Zonotopes:
    """Forms of all atoms on a box; without generators they are plain ranges."""

    def __init__(self, box: list[tuple[float, float]], generators: bool) -> None:
        self.generators, self.count, self.weight = generators, len(box) if generators else 0, [0.0] * len(box)
        self.forms: dict[Atom, Form] = {ONE: ([1.0], 0.0, 1.0)}
        for k, (low, high) in enumerate(box, start=1):
            c = low / 2 + high / 2
            r = max(high - c, c - low) * (1 + 4 * U) + TINY
            parts = [c, *[0.0] * (k - 1), r] if generators else [c]
            self.forms[(0, k)] = (parts, 0.0 if generators else r, abs(c) + r)

    def combined(self, forms: list[Form], weights: list[float], sizes: list[float]) -> Form:
        """A linear combination, with its rounding error; what is exactly zero (neurons that are off) adds none."""
        kept = [k for k, f in enumerate(forms) if f[2]]
        if len(kept) < len(forms):
            forms, weights, sizes = [forms[k] for k in kept], [weights[k] for k in kept], [sizes[k] for k in kept]
        n = len(weights)
        if not n:
            return [0.0], 0.0, 0.0  # exactly
        parts = [sum(map(mul, weights, column)) for column in zip_longest(*(f[0] for f in forms), fillvalue=0.0)] or [
            0.0
        ]
        spend(n * len(parts) // 8)
        reach = sum(map(mul, sizes, [f[2] for f in forms]))
        error = (sum(map(mul, sizes, [f[1] for f in forms])) + (n + 4) * U * reach) * (1 + (n + 4) * U) + TINY
        return parts, error, (sum(map(abs, parts)) + error) * (1 + (len(parts) + 2) * U)

    def of(self, row: FloatRow) -> Form:
        return self.combined([self.forms[a] for a in row[0]], row[1], row[2])

    def mixed(self, *terms: tuple[float, Form]) -> Form:
        return self.combined([f for _, f in terms], [w for w, _ in terms], [abs(w) for w, _ in terms])

    def ends(self, form: Form) -> tuple[float, float]:
        parts, error, size = form
        if not size:
            return 0.0, 0.0
        reach = (sum(map(abs, parts[1:])) + error) * (1 + (len(parts) + 2) * U) + 2 * U * size + TINY
        if not isfinite(parts[0] + reach):  # whatever is beyond the floats bounds nothing
            raise OverflowError("a bound beyond the floats")
        return parts[0] - reach, parts[0] + reach

    def spread(self, form: Form, low: float, high: float) -> Form:
        """The form plus anything between two numbers."""
        middle = low / 2 + high / 2
        reach = max(high - middle, middle - low) * (1 + 4 * U) + TINY
        parts, error, size = form
        parts = [parts[0] + middle, *parts[1:]]
        if self.generators:
            self.count += 1
            parts += [0.0] * (self.count - len(parts)) + [reach]
        else:
            error += reach
        error += 2 * U * (size + abs(middle))
        return parts, error, (size + abs(middle) + reach) * (1 + 8 * U)

    def relu(self, form: Form, low: float, high: float) -> Form:
        if low >= 0:
            return form
        if high <= 0:
            return [0.0], 0.0, 0.0
        lean = min(max(high / (high - low), 0.0), 1.0)
        for k, g in enumerate(form[0][1 : len(self.weight) + 1]):
            self.weight[k] += abs(g)
        return self.spread(self.mixed((lean, form)), 0.0, max(-lean * low, (1 - lean) * high) * (1 + 4 * U))

    def apart(self, z: Form, d: Form, one: tuple[float, float], bend: Form) -> Form:
        """``relu(z) - relu(z - d)``, where ``bend`` is ``relu(z)`` and ``one`` are the ends of ``z``."""
        low, high = self.ends(d)
        other = self.mixed((1.0, z), (-1.0, d))
        least, most = self.ends(other)
        least, most = max(least, one[0] - high), min(most, one[1] - low)
        if most <= 0:
            return bend
        if least >= 0:
            return d if one[0] >= 0 else self.mixed((1.0, bend), (-1.0, z), (1.0, d))
        if one[0] >= 0 or one[1] <= 0:
            return self.mixed((1.0, bend), (-1.0, self.relu(other, least, most)))
        lean = 0.5 if low >= 0 or high <= 0 else high / (high - low)
        up, down = max(high, 0.0), min(low, 0.0)
        top, bottom = max((1 - lean) * up, -lean * down), min(-lean * up, (1 - lean) * down)
        return self.spread(self.mixed((lean, d)), bottom * (1 + 4 * U), top * (1 + 4 * U))

    def run(self, steps: list[Step]) -> None:
        for node, atoms, rows, differences in steps:
            read = [self.of(row) for row in rows]
            seen = [self.ends(form) for form in read]
            gaps = None if differences is None else [self.of(row) for row in differences]
            for i, (k, j) in enumerate(atoms):
                if node.kind == "piecewise":
                    slope = float(node.slopes[i])
                    bend = self.relu(read[i], *seen[i])
                    self.forms[(k, j)] = bend if not slope else self.mixed((slope, read[i]), (1 - slope, bend))
                    if gaps is not None:
                        gap = self.apart(read[i], gaps[i], seen[i], bend)
                        self.forms[(-1 - k, j)] = gap if not slope else self.mixed((slope, gaps[i]), (1 - slope, gap))
                    continue
                window = [w for w in node.windows[i] if w >= 0]
                self.forms[(k, j)] = self.hull(read, seen, window)
                if gaps is not None:
                    ends = [self.ends(gaps[w]) for w in window]
                    self.forms[(-1 - k, j)] = self.spread(
                        ([0.0], 0.0, 0.0), min(e[0] for e in ends), max(e[1] for e in ends)
                    )

    def hull(self, read: list[Form], seen: list[tuple[float, float]], window: list[int]) -> Form:
        """A maximum: the one that beats all others, or a range."""
        best = max(window, key=lambda w: seen[w][0])
        rest = max([seen[w][1] for w in window if w != best], default=-inf)
        if rest <= seen[best][0]:
            return read[best]
        return self.spread(([0.0], 0.0, 0.0), seen[best][0], max(rest, seen[best][1]))


Box = list[tuple[float, float]]


def within(case: Case, bounding: Bounding, leaves: list[tuple[Box, int]]) -> str:
    """Prove the claim on every leaf; one that is not proven at once is halved."""
    worst, count, ends = 0.0, 0, [_floats(row) for row in bounding.ends]
    stack = list(leaves)
    while stack:
        box, depth = stack.pop()
        count += 1
        proven, weight = False, [1.0] * len(box)
        for generators in (False, True) if len(leaves) == 1 else (True,):
            seen = Zonotopes(box, generators)
            try:
                seen.run(bounding.steps)
                bounds = [abs(end) for row in ends for end in seen.ends(seen.of(row))]
                small = all(bound <= (case.tolerance or 0) for bound in bounds)
                proven = _same_class(case, bounding, seen) if case.margin is not None else small
            except OverflowError:
                continue
            weight = seen.weight
            if proven:
                worst = max(worst, *bounds)
                break
        if proven or (case.margin is None and one_map(case, box)):
            continue
        if len(box) > 32:  # halves of boxes with many inputs are hardly smaller
            raise TooLarge("bounds of many inputs that are closer than those of this checker")
        k = max(range(len(box)), key=lambda k: (weight[k] * (box[k][1] > box[k][0]), box[k][1] - box[k][0]))
        middle = box[k][0] / 2 + box[k][1] / 2
        if depth >= 40 or not box[k][0] < middle < box[k][1]:
            raise Fails("on a box the difference is not bounded by what is claimed")
        stack += [([*box[:k], side, *box[k + 1 :]], depth + 1) for side in ((box[k][0], middle), (middle, box[k][1]))]
    what = "b has the class of a" if case.margin is not None else f"the difference is at most {worst:.6g}"
    return f"{what} on each of {count} boxes"


def one_map(case: Case, box: Box) -> bool:
    """Whether both are one affine map each on a box, and these are as close as is claimed, exactly."""
    bounds: dict[Atom, Ends] = {(0, k): (Q(low), Q(high)) for k, (low, high) in enumerate(box, start=1)}

    def switch(node: Node, rows: list[Row]) -> list[Row]:
        if node.kind == "maximum":
            raise Fails("a maximum")
        made = []
        for row, slope in zip(rows, node.slopes, strict=True):
            low, high = hull(row, bounds)
            if slope != 1 and not (low is not None and high is not None and (low >= 0 or high <= 0)):
                raise Fails("a neuron that switches")
            made.append(row if slope == 1 or (low is not None and low >= 0) else total([(slope, row)]))
        return made

    try:
        left, right = (walk(program, case.place.starts(), switch) for program in (case.a, case.b))
    except Fails:
        return False
    ranges = [hull(total(((Q(1), p), (Q(-1), q))), bounds) for p, q in zip(left, right, strict=True)]
    return all(low is not None and high is not None and -low <= (case.tolerance or 0) >= high for low, high in ranges)


def _same_class(case: Case, bounding: Bounding, seen: Zonotopes) -> bool:
    """Nowhere on the box is ``a`` in class ``i`` by the margin while ``b_j > b_i``."""
    n, margin = len(bounding.ends), float(case.margin or 0)

    def most(row: Row) -> float:
        return seen.ends(seen.of(_floats(row)))[1]

    def gap(rows: list[Row], i: int, j: int) -> Row:
        return total(((Q(1), rows[i]), (Q(-1), rows[j])), signed=True)

    for i in range(n):
        leads = [most(gap(bounding.outputs, i, k)) for k in range(n) if k != i]
        if any(lead <= 0 or lead < margin for lead in leads):
            continue
        for j in range(n):
            if j != i and not most(gap(bounding.ends, i, j)) <= margin:
                lower = total(((Q(1), gap(bounding.outputs, j, i)), (Q(1), gap(bounding.ends, i, j))), signed=True)
                if not most(lower) <= 0:
                    return False
    return True


def by_ranges(case: Case) -> str:
    """Nothing but the ranges of the outputs."""
    keys(case.evidence, "evidence", "kind")
    if not case.tolerance:
        raise Fails("ranges prove a tolerance, and nothing else")
    return within(case, unpaired(case), [(case.place.box(), 0)])


def by_boxes(case: Case) -> str:
    """A tree of splits of the box; every leaf is proven again."""
    found = keys(case.evidence, "evidence", "kind", "tree", "matching", "method", optional=["exact"])
    tree, leaves, stack = found["tree"], [], [case.place.box()]
    need(isinstance(tree, list) and found["method"] in ("pair", "single"), "expected a tree of boxes")
    for entry in tree:
        need(bool(stack), "the tree of boxes does not end")
        box = stack.pop()
        if entry is None:
            leaves.append((box, 0))
            continue
        need(isinstance(entry, list) and len(entry) == 2 and type(entry[1]) in (int, float), "expected a split")
        k, v = whole(entry[0], "a coordinate"), float(entry[1])
        need(0 <= k < len(box) and box[k][0] < v < box[k][1], "expected a split inside of the box")
        stack += [[*box[:k], (v, box[k][1]), *box[k + 1 :]], [*box[:k], (box[k][0], v), *box[k + 1 :]]]
    need(not stack, "the tree of boxes is not whole")
    exact = found.get("exact", [])
    need(isinstance(exact, list) and all(type(k) is int and 0 <= k < len(leaves) for k in exact), "expected leaves")
    if case.tolerance is None:
        raise Fails("boxes prove a tolerance, and nothing else")
    matching = found["matching"]
    if matching is not None:
        matches = symmetry_of(keys(matching, "matching", "permutations", "scales"))
    else:
        sizes = [node.size for node, _ in gates(case, case.b, True)[0]]
        matches = [(k, k, list(range(n)), [Q(1)] * n) for k, n in enumerate(sizes, start=1)]
    try:
        how = unpaired(case) if found["method"] == "single" else paired(
            Matched(case, gates(case, case.a, True), gates(case, case.b, True), matches))  # fmt: skip
    except Fails:  # a matching is a hint
        how = unpaired(case)
    return within(case, how, leaves)


# -- certificates ------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[bool, Callable[[Case], str]]] = {
    "identical": (True, by_identity), "symmetry": (True, by_symmetry), "layers": (True, by_layers),
    "output ranges": (True, by_ranges), "normal form": (True, by_forms), "split_boxes": (True, by_boxes),
    "channels": (True, by_channels),
    "regions": (True, by_cells), "bottleneck": (True, by_cells), "simplified symmetry": (True, by_cells),
    "counterexample": (False, by_counterexample), "hyperplane representations differ": (False, by_cells),
    "layers behind differ": (False, by_cells),
}  # fmt: skip
"""Every kind of evidence: what it proves, and how."""


def check(found: Any, models: Sequence[bytes | None] = (None, None)) -> tuple[str, list[str], str]:
    """Prove the claim of a certificate again: the claim in words, a line for each model, and how it was proven.

    ``models`` are the bytes of the model files, to be compared with the hashes that the claim names.
    """
    _Meter.left = WORK
    need(isinstance(found, dict), "expected a certificate in JSON")
    old = f"format {found.get('format')!r}: this checker reads {FORMAT!r}; `fiberscope verify` reads the older ones too"
    if str(found.get("format")).startswith("fiberscope certificate ") and found["format"] != FORMAT:
        raise TooLarge(old)
    need(found.get("format") == FORMAT, old)
    keys(found, "certificate", "format", "claim", "method", "networks", "programs", "evidence")
    claim = keys(
        found["claim"], "claim", "equal", "tolerance", "precision", "domain", "models", optional=["criterion", "margin"]
    )
    need(type(claim["equal"]) is bool and isinstance(found["method"], str), "expected a claim that is true or false")
    if found["programs"] is None:
        raise TooLarge("the networks are not in the certificate as plain programs")
    need(isinstance(found["programs"], list) and len(found["programs"]) == 2, "expected two programs")
    need(isinstance(claim["models"], list) and len(claim["models"]) == 2, "expected two models")
    a, b = (program_of(program) for program in found["programs"])
    lines = [_model(*each) for each in zip("ab", claim["models"], (a, b), models, strict=True)]
    need(a.inputs == b.inputs and a.outputs == b.outputs, "expected networks with the same inputs and outputs")
    case, words = _case(claim, a, b, found["evidence"])
    kind = found["evidence"]["kind"]
    need(kind in KINDS and KINDS[kind][0] is case.equal, f"expected evidence that {words[0]} means, got {kind!r}")
    return " ".join(words), lines, KINDS[kind][1](case)


def _case(claim: Any, a: Program, b: Program, evidence: Any) -> tuple[Case, list[str]]:
    need(isinstance(evidence, dict) and isinstance(evidence.get("kind"), str), "expected evidence with its kind")
    tolerance, precision, criterion = claim["tolerance"], claim["precision"], claim.get("criterion", "value")
    need(criterion in ("value", "argmax") and ("margin" not in claim or criterion == "argmax"), "expected a criterion")
    margin = reals([claim.get("margin", 0.0)], "margin")[0] if criterion == "argmax" else None
    need(margin is None or margin >= 0, "expected a margin of at least 0")
    allowed = None if tolerance is None else reals([tolerance], "tolerance")[0]
    need(
        precision in list(PRECISIONS) if tolerance is None else precision is None, "expected a tolerance or a precision"
    )
    need(allowed is None or allowed >= 0, "expected a tolerance of at least 0")
    bits, lowest, few = PRECISIONS[precision or "float64"]
    place = place_of(claim["domain"], a.inputs)
    made = Case(a, b, place, claim["equal"], allowed, Q(1, 2**bits), Q(1, 2**lowest), few, evidence, margin)
    kind = (
        f"up to {precision} rounding"
        if allowed is None
        else f"within {tolerance!r}"
        if allowed
        else "as real functions"
    )
    if margin is not None:
        made.tolerance = Q(0)  # what knows nothing of classes must show that the two are one function
        kind = "in class" + (f" wherever a is sure by {float(margin)!r}" if margin else "")
    where = json.dumps(claim["domain"])
    return made, [
        "equal" if claim["equal"] else "different",
        kind,
        "on",
        where if len(where) < 400 else where[:400] + " ...",
    ]


def _model(name: str, model: Any, program: Program, data: bytes | None) -> str:
    """A line on one model: hashes compared."""
    keys(model, "model", "weights", "file", "inputs", "outputs")
    need(model["weights"] == program.digest, f"program {name} is not the one that the claim names")
    need(
        (whole(model["inputs"], "inputs"), whole(model["outputs"], "outputs")) == (program.inputs, program.outputs),
        "sizes",
    )
    if model["file"] is None:
        if data is not None:
            raise Fails(f"model {name} of the claim is no file")
        return f"{name}: a model in memory, plain weights sha256 {program.digest}"
    file = keys(model["file"], "file", "name", "sha256", optional=["data"])
    beside = file.get("data", {})
    hashes = [file["sha256"], *(beside.values() if isinstance(beside, dict) else [None])]
    whole_hashes = all(isinstance(v, str) and re.fullmatch("[0-9a-f]{64}", v) for v in hashes)
    need(isinstance(file["name"], str) and whole_hashes, "expected a file with its hash")
    if data is not None and hashlib.sha256(data).hexdigest() != file["sha256"]:
        raise Fails(f"the file of model {name} is another one")
    told = "not compared with a file of yours" if data is None else "your file has this hash"
    told += ", files beside it not compared" if "data" in file else ""
    return f"{name}: {' '.join(file['name'].split())[:200]}, sha256 {file['sha256']} ({told})"


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    if len(arguments) not in (1, 3):
        print("usage: checker.py CERTIFICATE [MODEL_A MODEL_B]", file=sys.stderr)
        return 2
    try:
        content = Path(arguments[0]).read_text(encoding="utf-8")
        models: list[bytes | None] = [Path(name).read_bytes() for name in arguments[1:]]
        models = models or [None, None]
        claim, lines, how = check(json.loads(content, parse_constant=_no_constant), models)
    except Fails as reason:
        print(f"DOES NOT HOLD: {reason}")
        return 1
    except TooLarge as reason:
        print(f"too large for this checker, use `fiberscope verify`: {reason}")
        return 3
    except (Malformed, ValueError, OverflowError, OSError, RecursionError, MemoryError) as error:
        print(f"not a certificate: {' '.join(str(error).split())[:300] or type(error).__name__}", file=sys.stderr)
        return 2
    print(f"HOLDS: the two plain programs are {claim}", *lines, f"proof: {how}", sep="\n")
    print("trusted: this file, Python, and that each plain program is the meaning of the model file with that hash")
    return 0


def _no_constant(text: str) -> Any:
    raise Malformed(f"expected numbers, got {text}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
