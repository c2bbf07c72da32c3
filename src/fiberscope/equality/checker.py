#!/usr/bin/env python3
"""Check a certificate of equality with nothing but Python: ``python checker.py CERTIFICATE [MODEL_A MODEL_B]``.

This one file imports the standard library and nothing else; it may be copied to a machine on which nothing is
installed. It does not believe what a certificate says. It reads the two networks as plain programs (affine maps,
activations, maxima, sums), hashes them, and proves the claim again, in rational numbers, or in integers or floats with
every rounding error added. It finishes in one of four ways: the claim holds (exit code 0), the evidence does not prove
it (1), this is no certificate (2), or the proof is too large or of a kind for ``fiberscope verify`` (3).

What is left to trust: this file and Python, and that the plain program is the meaning of the model file whose hash the
claim names. The second is what ``fiberscope verify CERTIFICATE A B`` checks, by reading the model files.

A value of a program is a *row*: a sum of rational multiples of *atoms* (the constant, inputs, outputs of switches).
Atom ``(k, i)`` is entry ``i`` of switch ``k``; ``(0, 0)`` is the constant and ``(0, i)`` an input. Where rounding is
allowed, atom ``(-1 - k, i)`` of the same row holds the sum of absolute values that the coefficient was added up from.
There are four ways to prove: rows that agree switch by switch, normal forms that agree, all cells on which both are
affine, and bounds of the difference on boxes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction as Q
from functools import partial
from itertools import compress, pairwise, product
from math import inf, isfinite
from operator import mul
from pathlib import Path
from typing import Any

FORMAT = "fiberscope certificate 4"
MODULES = "fiberscope module certificate 1"
PRECISIONS = {"float64": (53, 1022, 16), "float32": (24, 126, 8), "float16": (11, 14, 8), "bfloat16": (8, 126, 8)}
"""Bits of the unit of rounding, of the least normal number, and how many units count as rounding."""
WORK = 10_000_000_000
"""Products after which a proof is too large for this checker."""
ONE = (0, 0)
UNIT = Q(1)
"""Is told from other numbers by being this object: most products are with one."""
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


# -- reading -----------------------------------------------------------------------------------------------------------


def need(condition: bool, what: str) -> None:
    """What a certificate must have."""
    if not condition:
        raise Malformed(what)


def keys(found: Any, name: str, *expected: str, optional: Sequence[str] = ()) -> Any:
    """A table with these entries and no others."""
    need(isinstance(found, dict), f"expected {name} as a table")
    need(set(expected) <= set(found) <= {*expected, *optional}, f"{name}: expected {', '.join(expected)} and no more")
    return found


def whole(found: Any, name: str) -> int:
    need(type(found) is int, f"expected an integer for {name}")
    return int(found)


def reals(found: Any, name: str) -> list[Q]:
    """A list of finite numbers out of JSON: of floats, as they are hashed, so no integers between two of them."""
    plain = isinstance(found, list) and all(type(v) in (int, float) and isfinite(v) and v == float(v) for v in found)
    need(plain, f"expected {name} as a list of numbers")
    return [Q(v) for v in found]


def listed(found: Any, name: str, count: int | None = None) -> list[Any]:
    """A list, of so many entries, or of any number above zero."""
    fits = isinstance(found, list) and (len(found) == count if count is not None else len(found) > 0)
    need(fits, f"expected {name} as a list" + (f" of {count}" if count is not None else ""))
    return list(found)


def places(found: Any, count: int, name: str, least: int = 0) -> list[int]:
    need(all(type(i) is int and least <= i < count for i in listed(found, name)), f"expected {name} below {count}")
    return list(found)


@dataclass
class Node:
    """``affine``: ``stages`` of sparse lines, an offset; ``piecewise``: slopes; ``maximum``: windows, -1 for none."""

    kind: str
    sources: tuple[int, ...]
    size: int
    stages: list[list[list[tuple[int, Q]]]] = field(default_factory=list)
    offset: list[Q] = field(default_factory=list)
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

    @property
    def neurons(self) -> int:
        return sum(len(node.slopes) + sum(map(len, node.windows)) for node in self.nodes)


NODES = {
    "affine": ("Affine", "stages", "offset"),
    "piecewise": ("PiecewiseLinear", "slopes"),
    "maximum": ("MaxPool", "windows"),
    "add": ("Add",),
    "concat": ("Concat", "order"),
}
"""Kinds of nodes: the name that is hashed, and the fields."""


def program_of(found: Any) -> Program:
    """The plain program of a certificate, with the hash of its content: every part with its length."""
    keys(found, "program", "inputs", "nodes")
    sizes, nodes, digest = [whole(found["inputs"], "inputs")], [], hashlib.sha256()
    need(sizes[0] > 0, "expected inputs")
    body: list[Any] = []
    for entry in listed(found["nodes"], "nodes"):
        node, parts = _node(entry, sizes)
        nodes.append(node)
        sizes.append(node.size)
        body += [NODES[node.kind][0], node.sources, node.size, *parts]
    for part in [sizes[0], sizes[-1], len(nodes), *body]:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(f"{len(data)}:".encode() + data)
    return Program(sizes[0], nodes, digest.hexdigest())


def _packed(values: Sequence[Any], code: str) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *(v + 0.0 if code == "d" else v for v in values))


def _node(entry: Any, sizes: list[int]) -> tuple[Node, list[Any]]:
    """A node, and what is hashed of it beyond its name, sources and size."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    need(kind in list(NODES), f"expected a known kind of node, got {kind!r}")
    keys(entry, "node", "kind", "sources", *NODES[str(kind)][1:])
    sources = tuple(places(entry["sources"], len(sizes), "sources"))
    given = [sizes[s] for s in sources]
    need((len(given) > 1) == (kind in ("add", "concat")), "expected the sources of a node")
    made = Node(str(kind), sources, given[0])
    parts: list[Any] = []
    if kind == "affine":
        parts = [len(listed(entry["stages"], "linear maps"))]
        for stage in entry["stages"]:
            lines, packed = _stage(stage, made.size)
            parts += [(len(lines), made.size), *packed]
            made.stages.append(lines)
            made.size = len(lines)
        shift = [0.0] * made.size if entry["offset"] is None else listed(entry["offset"], "an offset", made.size)
        made.offset = reals(shift, "an offset")
        parts.append(_packed(shift, "d"))
    elif kind == "piecewise":
        made.slopes = reals(listed(entry["slopes"], "slopes", made.size), "slopes")
        parts = [_packed(entry["slopes"], "d")]
    elif kind == "maximum":
        made.windows = [places(window, given[0], "a window", -1) for window in listed(entry["windows"], "windows")]
        need(len({len(w) for w in made.windows}) == 1 and all(max(w) >= 0 for w in made.windows), "a window is empty")
        made.size = len(made.windows)
        parts = [(made.size, len(made.windows[0])), _packed([i for w in made.windows for i in w], "q")]
    elif kind == "add":
        need(len(set(given)) == 1, "a sum does not fit")
    else:
        made.size = sum(given)
        made.order = None if entry["order"] is None else places(entry["order"], made.size, "an order")
        need(made.order is None or sorted(made.order) == list(range(made.size)), "a concatenation does not fit")
        parts = [b"" if made.order is None else _packed(made.order, "q")]
    return made, parts


def _stage(stage: Any, size: int) -> tuple[list[list[tuple[int, Q]]], list[bytes]]:
    """The lines of a linear map: whole rows, whose zeros are left out, or rows with their columns."""
    keys(stage, "linear map", "inputs", "rows", optional=["columns"])
    need(whole(stage["inputs"], "inputs") == size, "a map does not fit")
    rows = [reals(row, "a row") for row in listed(stage["rows"], "rows")]
    if "columns" in stage:
        columns = [places(c, size, "columns") if c != [] else [] for c in listed(stage["columns"], "", len(rows))]
        need(all(i < j for c in columns for i, j in pairwise(c)), "expected columns in their order")
    else:
        need(all(len(row) == size for row in rows), "a row does not fit")
        columns = [[j for j in range(size) if row[j]] for row in rows]
        rows = [[row[j] for j in c] for c, row in zip(columns, rows, strict=True)]
    need([len(c) for c in columns] == [len(row) for row in rows], "columns do not fit")
    starts = [0]
    for c in columns:
        starts.append(starts[-1] + len(c))
    flat, numbers = [j for c in columns for j in c], [float(w) for row in rows for w in row]
    lines = [list(zip(c, row, strict=True)) for c, row in zip(columns, rows, strict=True)]
    return lines, [_packed(starts, "q"), _packed(flat, "q"), _packed(numbers, "d")]


# -- walking -----------------------------------------------------------------------------------------------------------


def total(terms: Iterable[tuple[Q, Row]], shift: Q | None = None, least: Q = Q(0)) -> Row:
    """A sum of multiples of rows and of a constant; sizes are multiplied by absolute values of at least ``least``."""
    found: Row = {}
    for w, row in terms:
        spend(len(row))
        size: Q | None = None
        for atom, c in row.items():
            factor = w
            if atom[0] < 0:
                factor = size = size or max(abs(w), least)
            value = c if factor is UNIT else factor if c is UNIT else factor * c
            found[atom] = found[atom] + value if atom in found else value
    if shift:
        found[ONE] = found.get(ONE, 0) + shift
        if least:
            found[(-1, 0)] = found.get((-1, 0), 0) + max(abs(shift), least)
    return {atom: c for atom, c in found.items() if c}


def less(p: Row, q: Row) -> Row:
    """The difference of two rows."""
    return total(((UNIT, p), (Q(-1), q)))


def linear(node: Node, values: list[list[Any]], combine: Callable[..., Any] = total) -> list[Any]:
    """What an affine map, a sum or a concatenation makes; ``combine(terms, shift)``, where a sum has no ``shift``."""
    rows = values[node.sources[0]]
    if node.kind == "affine":
        for stage in node.stages:
            shifts = node.offset if stage is node.stages[-1] else [Q(0)] * len(stage)
            rows = [combine([(w, rows[j]) for j, w in line], c) for line, c in zip(stage, shifts, strict=True)]
        return rows
    if node.kind == "add":
        columns = zip(*(values[s] for s in node.sources), strict=True)
        return [combine([(UNIT, v) for v in column], None) for column in columns]
    joined = [row for s in node.sources for row in values[s]]
    return joined if node.order is None else [joined[i] for i in node.order]


def walk(
    program: Program,
    start: list[Any],
    switch: Callable[[Node, list[Any]], list[Any]],
    combine: Callable[..., Any] = total,
) -> list[Any]:
    """The outputs, where ``switch`` says what activations and maxima make of what they read."""
    values = [start]
    for node in program.nodes:
        values.append(switch(node, values[node.sources[0]]) if node.switches else linear(node, values, combine))
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

Ends = tuple[Q | float, Q | float]
"""Lower and upper end; what is infinite is a float."""


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
        return {ONE: (Q(1), Q(1))} | {(0, k): ends for k, ends in enumerate(self.ends, start=1)}

    def starts(self, sized: bool = False) -> list[Row]:
        """The input rows; with the sizes of their coefficients where rounding is allowed."""
        return [row | ({(-1 - k, i): abs(c) for (k, i), c in row.items()} if sized else {}) for row in self.inputs]

    def box(self) -> list[tuple[float, float]]:
        """The ends of all coordinates, which are floats."""
        if self.halfspaces or any(isinstance(end, float) for ends in self.ends for end in ends):
            raise Fails("the domain is no box")
        return [(float(low), float(high)) for low, high in self.ends]

    def at(self, x: list[Q]) -> list[Row]:
        """The input rows at a point of the domain."""
        if any(x[k : k + 1] != [v] for k, v in self.fixed.items()):
            raise Fails("the input is outside the domain")
        x = [v for k, v in enumerate(x) if k not in self.fixed]
        need(len(x) == len(self.ends), f"x: expected {len(self.ends) + len(self.fixed)} coordinates")
        ray = ((Q(1), *x), 0)
        inside = all(low <= v <= high for v, (low, high) in zip(x, self.ends, strict=True))
        if not (inside and all(at_ray(row, ray) <= 0 for row in self.halfspaces)):
            raise Fails("the input is outside the domain")
        return [{ONE: at_ray(row, ray)} for row in self.inputs]


def place_of(found: Any, inputs: int) -> Place:
    """The domain of a claim about networks with so many inputs."""
    kind = found.get("kind") if isinstance(found, dict) else None
    fields = {"plane": ("origin", "u", "v", "box"), "box": ("low", "high"), "polytope": ("A", "b")}
    need(kind in ("space", "orthant", *fields), f"expected a known kind of domain, got {kind!r}")
    keys(found, "domain", "kind", *fields.get(str(kind), ("dimension",)))
    if kind == "plane":
        rows = zip(*(reals(listed(found[name], name, inputs), name) for name in ("origin", "u", "v")), strict=True)
        inner = place_of(found["box"], 2)
        need(found["box"]["kind"] == "box" and len(inner.ends) == 2, "expected the box of a plane")
        return Place([{(0, k): c for k, c in enumerate(row) if c} for row in rows], inner.ends)
    if kind == "box":
        low, high = (reals(listed(found[name], name, inputs), name) for name in ("low", "high"))
        need(low != high and all(p <= q for p, q in zip(low, high, strict=True)), "expected a box with inner points")
        fixed = {k: p for k, (p, q) in enumerate(zip(low, high, strict=True)) if p == q}
        free = [k for k in range(inputs) if k not in fixed]
        names: list[Row] = [{ONE: c} if c else {} for c in low]
        for i, k in enumerate(free, start=1):
            names[k] = {(0, i): UNIT}
        return Place(names, [(low[k], high[k]) for k in free], fixed=fixed)
    plain: list[Row] = [{(0, k): UNIT} for k in range(1, inputs + 1)]
    if kind != "polytope":
        need(whole(found["dimension"], "dimension") == inputs, f"expected a domain in R^{inputs}")
        return Place(plain, [(Q(0) if kind == "orthant" else -inf, inf)] * inputs)
    b = reals(found["b"], "b")
    A = [reals(listed(row, "A", inputs), "A") for row in listed(found["A"], "A", len(b))]
    cuts = [total([(w, p) for w, p in zip(row, plain, strict=True)], -c) for row, c in zip(A, b, strict=True)]
    made = Place(plain, [(-inf, inf)] * inputs, cuts)
    need(bool(cells(made)), "expected a polytope with interior points")
    return made


def hull(row: Row, bounds: dict[Atom, Ends]) -> Ends:
    """The range of a row, from the ranges of its atoms; exact for rows over the coordinates of a box."""
    ends: list[Q | float] = []
    for side, endless in enumerate((-inf, inf)):
        reached = [(c, bounds[atom][side if c > 0 else 1 - side]) for atom, c in row.items() if atom[0] >= 0]
        ends.append(sum((c * e for c, e in reached if isinstance(e, Q)), Q(0)))
        if any(isinstance(e, float) for _, e in reached):
            ends[side] = endless
    return ends[0], ends[1]


def _short(value: Q, up: bool) -> Q:
    """A value rounded outward to a hundred bits."""
    shift = 100 - value.numerator.bit_length() + value.denominator.bit_length()
    top, below = value.numerator << max(shift, 0), value.denominator << max(-shift, 0)
    return Q(-((-top) // below) if up else top // below) / Q(2) ** shift


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
    def rounding(self) -> Q:
        """The least normal number where rounding is allowed, else 0."""
        return self.least if self.tolerance is None else Q(0)


# -- programs whose switches correspond --------------------------------------------------------------------------------

Gates = tuple[list[tuple[Node, list[Row]]], list[Row]]


def gates(case: Case, program: Program, every: bool = False) -> Gates:
    """Every switch with the rows that it reads, over the outputs of earlier ones, and the output rows."""
    found: list[tuple[Node, list[Row]]] = []

    def switch(node: Node, rows: list[Row]) -> list[Row]:
        if not every and node.kind == "piecewise" and all(s == 1 for s in node.slopes):
            return rows
        found.append((node, rows))
        k = len(found)
        return [{(k, i): UNIT} | ({(-1 - k, i): UNIT} if case.rounding else {}) for i in range(node.size)]

    return found, walk(program, case.place.starts(bool(case.rounding)), switch, partial(total, least=case.rounding))


Match = tuple[int, int, list[int], list[Q]]
"""``k, l, order, scales``: entry ``i`` of switch ``l`` of ``b`` is ``scales[i]`` times entry ``order[i]`` of switch
``k`` of ``a``."""


class Matched:
    """The rows of ``a`` written over the atoms of ``b``, beside those of ``b``, switch by switch, and the outputs."""

    def __init__(self, a: Gates, b: Gates, matches: list[Match]) -> None:
        self.steps: list[tuple[int, Node, list[Q], list[tuple[Row, Row]]]] = []
        self.names: dict[Atom, tuple[Atom, Q]] = {ONE: (ONE, UNIT)}
        known = {0}
        if not len(matches) == len(a[0]) == len(b[0]):
            raise Fails("the switches do not match")
        for k, l, order, scales in matches:
            (mine, left), (theirs, right) = a[0][k - 1], b[0][l - 1]
            if mine.kind != theirs.kind or mine.size != theirs.size or sorted(order) != list(range(theirs.size)):
                raise Fails("two switches are not of one kind and size")
            source, factors = order, scales
            if mine.kind == "maximum":
                if mine.windows != theirs.windows or order != sorted(order) or set(scales) != {Q(1)}:
                    raise Fails("two maxima have other windows")
                source, factors = list(range(len(right))), [UNIT] * len(right)
            pairs = [(self._moved(left[j], s), row) for j, s, row in zip(source, factors, right, strict=True)]
            if any(max(atom[0], -1 - atom[0]) not in known for _, row in pairs for atom in row):
                raise Fails("a layer reads one that is not matched before it")
            known.add(l)
            self.names |= {(k, j): ((l, i), s) for i, (j, s) in enumerate(zip(order, scales, strict=True))}
            self.steps.append((l, theirs, [mine.slopes[j] for j in order if mine.slopes], pairs))
        self.ends = [(self._moved(p, UNIT), q) for p, q in zip(a[1], b[1], strict=True)]

    def _moved(self, row: Row, scale: Q) -> Row:
        made: Row = {}
        for (k, i), c in row.items():
            plain = (max(k, -1 - k), i)
            if plain[0] and plain not in self.names:
                raise Fails("a layer reads one that is not matched before it")
            (l, j), s = self.names.get(plain, (plain, UNIT))
            made[(-1 - l if k < 0 else l, j)] = c if scale is UNIT is s else c * scale / s
        return made

    def same(self, case: Case) -> str:
        """Prove that all numbers agree, exactly or up to rounding."""
        worst = Q(0)
        pairs = [pair for step in self.steps for pair in step[3]] + self.ends
        numbers = [
            (
                abs(p.get(atom, Q(0)) - q.get(atom, Q(0))),
                [row.get((-1 - atom[0], atom[1]), case.least) for row in (p, q)],
            )
            for p, q in pairs
            for atom in {**p, **q}
            if atom[0] >= 0 and p.get(atom) != q.get(atom)
        ]
        slopes = [(p, q) for _, node, mine, _ in self.steps for p, q in zip(mine, node.slopes, strict=True) if p != q]
        for gap, sizes in numbers + [(abs(p - q), [abs(p), abs(q)]) for p, q in slopes]:
            room = 2 * case.unit * max(*sizes, case.least)
            if case.tolerance is not None or not gap <= case.few * room:
                raise Fails("the numbers of the two do not agree")
            worst = max(worst, gap / room)
        return "exactly" if not worst else f"within {float(worst):.3g} units of rounding"


def symmetry_of(found: Any) -> list[Match]:
    """A permutation and rescaling of the neurons of every layer."""
    orders, made = found["permutations"], []
    need(isinstance(orders, list), "expected permutations")
    for k, (order, scales) in enumerate(zip(orders, listed(found["scales"], "scales", len(orders)), strict=True), 1):
        row = reals(listed(scales, "scales", len(listed(order, "a permutation"))), "scales")
        need(all(s > 0 for s in row), "expected scales above 0")
        made.append((k, k, [whole(i, "a permutation") for i in order], row))
    return made


def in_place(case: Case, order: Sequence[int] | None, every: bool) -> list[Match]:
    """Switches of ``a``, of which ``k`` is switch ``order[k]`` of ``b``, with the entries as they stand."""
    sizes = [node.size for node, _ in gates(case, case.b, every)[0]]
    order = range(len(sizes)) if order is None else order
    if sorted(order) != list(range(len(sizes))):
        raise Fails("the layers do not match")
    return [(k, j + 1, list(range(sizes[j])), [UNIT] * sizes[j]) for k, j in enumerate(order, start=1)]


def by_matches(case: Case) -> str:
    """Neurons of chains, permuted and rescaled; or switches in another order, and whatever maps between them."""
    every = "permutations" in case.evidence
    if every:
        matches, how = symmetry_of(case.evidence), "with the neurons permuted and rescaled"
    else:
        order = case.evidence["order"]
        need(isinstance(order, list) and all(type(j) is int and j >= 0 for j in order), "expected an order of layers")
        matches, how = in_place(case, order, False), f"with {len(order)} switches matched"
    found = Matched(gates(case, case.a, every), gates(case, case.b, every), matches)
    try:
        return f"{how}, all numbers agree {found.same(case)}"
    except Fails:
        if not case.tolerance:
            raise
    try:
        bounding = paired(found)
    except Fails:  # activations with other slopes
        bounding = unpaired(case)
    return f"{how}, {within(case, bounding)}"


def by_identity(case: Case) -> str:
    """One program twice."""
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
    found = case.evidence
    start = case.place.at(reals(found["x"], "x"))
    left, right = evaluate(case.a, start), evaluate(case.b, start)
    told = [reals(found[name], name) for name in ("a", "b")]
    numbers = reals([found["difference"], found["allowed"]], "numbers")
    if told != [[near(v) for v in values] for values in (left, right)]:
        raise Fails("the outputs at the input are not what the certificate tells")
    gaps, allowed = [abs(p - q) for p, q in zip(left, right, strict=True)], [case.tolerance or Q(0)] * len(left)
    if case.margin is not None:  # a has one class, by the margin, and b puts another one above it
        i = max(range(len(left)), key=lambda k: left[k])
        lead = min([left[i] - v for k, v in enumerate(left) if k != i], default=Q(0))
        if not (lead > 0 and lead >= case.margin):
            raise Fails("the class at the input is not one by the margin")
        gaps = [max(right) - right[i]]
    elif case.tolerance is None:
        both = [_Movement(case, program, start) for program in (case.a, case.b)]
        allowed = [sum((m.most(k) for m in both), Q(0)) for k in range(len(gaps))]
        for k in sorted(range(len(gaps)), key=lambda k: allowed[k] - gaps[k])[:4]:
            if not any(gap > most for gap, most in zip(gaps, allowed, strict=True)):
                allowed[k] = min(allowed[k], sum((m.closer(k) for m in both), Q(0)))
    worst = max(range(len(gaps)), key=lambda k: gaps[k] - allowed[k])
    if not gaps[worst] > allowed[worst]:
        raise Fails("the exact outputs at the input do not differ by more than is allowed")
    exact = [near(gaps[worst]), near(allowed[worst])]
    if numbers != exact if case.tolerance is not None else not 0 <= numbers[1] <= numbers[0] == exact[0]:
        raise Fails("the difference at the input is not what the certificate tells")
    if case.margin is not None:
        return f"a is in class {i} by {float(near(lead)):.6g}, b is not"
    return f"the exact outputs at the input differ by {float(exact[0]):.6g}, {float(exact[1]):.6g} is allowed"


Moving = tuple[Q, Q, Q, Q]
"""A value, how far it may be off in float64, how far rounding moves it, and what of that came in behind switches."""


class _Movement:
    """What rounding explains at an input: every parameter moved by twice a few units, and 32 times what evaluating in
    float64 loses."""

    def __init__(self, case: Case, program: Program, start: list[Row]) -> None:
        self.program, self.share, self.least = program, 2 * case.few * case.unit, case.least
        self.marks: list[list[tuple[int, Q, Q]]] = []
        """Of every output of a switch: which input it follows, with which slope, and what comes in there."""
        ends = [(row.get(ONE, Q(0)), Q(0), Q(0), Q(0)) for row in start]
        self.ends: list[Moving] = walk(program, ends, self.switch, self.combine)

    def combine(self, terms: list[tuple[Q, Moving]], shift: Q | None) -> Moving:
        u, own = Q(1, 2**53), self.share if shift is not None else Q(0)
        loss = len(terms) * u * (1 + Q(1, 2**20))
        spend(4 * len(terms))
        v = sum((w * t[0] for w, t in terms), Q(0)) + (shift or 0)
        e = sum((abs(w) * (t[1] + loss * abs(t[0])) for w, t in terms), u * abs(v) if shift else Q(0))
        sizes, first = [max(abs(w), self.least) for w, _ in terms], own * max(abs(shift or Q(0)), self.least)
        d = sum((w * (t[2] + own * (t[2] + abs(t[0]))) for w, (_, t) in zip(sizes, terms, strict=True)), Q(0))
        f = sum((w * (t[3] + own * (t[3] + t[2] + abs(t[0]))) for w, (_, t) in zip(sizes, terms, strict=True)), Q(0))
        return v, e, d + (first if shift else 0), f + (first if shift else 0)

    def switch(self, node: Node, old: list[Moving]) -> list[Any]:
        if node.kind == "piecewise":
            found = [self.bent(i, *t, slope) for i, (t, slope) in enumerate(zip(old, node.slopes, strict=True))]
        else:
            found = [self.largest(old, [i for i in window if i >= 0]) for window in node.windows]
        self.marks.append([mark for _, mark in found])
        return [made for made, _ in found]

    def bent(self, i: int, v: Q, e: Q, d: Q, f: Q, slope: Q) -> tuple[Moving, tuple[int, Q, Q]]:
        if slope == 1:
            return (v, e, d, f), (i, slope, Q(0))
        way, own = Q(1) if v > 0 else slope, self.share * abs(slope) * (abs(v) + e + d)
        mark = i, way, abs(way) * f + own + (0 if abs(v) > d else abs(1 - slope) * d)
        if slope == 0:
            return (way * v, Q(0) if v < -e else e, Q(0) if v < -(e + d) else d, Q(0)), mark
        steep = max(Q(1), abs(slope))
        return (way * v, steep * e + abs(way * v) / 2**53, steep * d + own, Q(0)), mark

    def largest(self, old: list[Moving], window: list[int]) -> tuple[Moving, tuple[int, Q, Q]]:
        best = max(window, key=lambda i: old[i][0])
        e, d = (max(old[i][k] for i in window) for k in (1, 2))
        alone = all(old[i][0] + old[i][2] < old[best][0] - old[best][2] for i in window if i != best)
        return (old[best][0], e, d, Q(0)), (best, Q(1), old[best][3] + (0 if alone else 2 * d))

    def most(self, k: int) -> Q:
        """Everything added up."""
        return 32 * self.ends[k][1] + self.ends[k][2]

    def closer(self, k: int) -> Q:
        """What comes in between switches, times the exact derivative of output ``k`` there."""
        nodes, marks, found = self.program.nodes, list(self.marks), 32 * self.ends[k][1] + self.ends[k][3]
        behind: list[dict[int, Q]] = [{} for _ in nodes] + [{k: Q(1)}]
        for index in range(len(nodes) - 1, -1, -1):
            node, steep = nodes[index], behind[index + 1]
            if node.switches:
                ways, now, steep = marks.pop(), steep, {}
                found += sum((abs(c) * ways[i][2] for i, c in now.items()), Q(0))
                _add(steep, ((ways[i][0], c * ways[i][1]) for i, c in now.items()))
            for stage in reversed(node.stages):
                now, steep = steep, {}
                _add(steep, ((j, c * w) for i, c in now.items() for j, w in stage[i]))
            if node.kind == "concat":
                steep = {i if node.order is None else node.order[i]: c for i, c in steep.items()}
            first = 0
            for source in node.sources:
                size = nodes[source - 1].size if source else self.program.inputs
                _add(behind[source], ((i - first, c) for i, c in steep.items() if first <= i < first + size))
                first += 0 if node.kind == "add" else size
        return found


def _add(found: dict[int, Q], terms: Iterable[tuple[int, Q]]) -> None:
    for i, c in terms:
        found[i] = found.get(i, Q(0)) + c
        spend(1)


# -- sums of ReLUs of sums of ReLUs ------------------------------------------------------------------------------------


class Forms:
    """Rows over one table of hyperplanes: ``relu(t p) = t relu(p)`` for ``t > 0``, ``relu(p) = p + relu(-p)``, and what
    is of one sign is dead or linear. Two programs that come out the same are the same real function; with ``room``,
    the same up to so much rounding of what every coefficient was added up from."""

    def __init__(self, place: Place, room: Q = Q(0), least: Q = Q(0), ranged: bool = False) -> None:
        self.place, self.bounds, self.room, self.least = place, place.bounds, room, least if room else Q(0)
        self.atoms: dict[Any, tuple[Atom, Row]] = {}
        self.facts: dict[Any, tuple[int, Row]] = {}
        self.unproven: list[int] = []
        self.inside: dict[Atom, Row] | None = None
        """The rows of atoms, where a maximum of ReLUs is taken as the ReLU of a maximum, which it is."""
        whole_lines = {atom: (Q(0) if low >= 0 else -inf, inf) for atom, (low, _) in self.bounds.items()}
        self.signs: dict[Atom, Ends] = self.bounds if ranged else whole_lines | {ONE: (Q(1), Q(1))}
        """What tells the signs of rows: the ranges of their atoms, or only the signs of these."""

    def cleaned(self, row: Row) -> Row:
        """Without what rounding may have left of a zero."""
        if not self.room:
            return row
        return {(k, i): c for (k, i), c in row.items() if k < 0 or abs(c) > self.room * row.get((-1 - k, i), Q(0))}

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
        """The sign of a row on the domain, where its terms or what was proven tell it."""
        low, high = hull(row, self.signs)
        if low >= 0 or high <= 0:
            return 1 if low >= 0 else -1
        name, _, sizes = self.unit(row)
        fact, turn = self.found(self.facts, name, sizes)
        return None if fact is None else fact if turn > 0 else -fact

    def bend(self, row: Row, slope: Q = Q(0), sign: int = 0) -> Row:
        """``slope * row + (1 - slope) * relu(row)``; a ``sign`` that is not 0 is proven elsewhere."""
        row = self.cleaned(row)
        if slope == 1:  # no switch: nobody proves a sign that is told of it
            return row
        if sign and any(atom[0] >= 0 for atom in row):
            name, _, sizes = self.unit(row)
            self.facts[name] = sign, sizes
        known = sign or self.known(row)
        if known == 1:
            return row
        if known is not None:
            return total([(slope, row)])
        name, lead, sizes = self.unit(row)
        atom, turn = self.found(self.atoms, name, sizes)
        if atom is None:
            atom, turn = (1 + len(self.atoms), 0), Q(1)
            self.atoms[name] = atom, sizes
            low, high = (max(end, Q(0)) for end in hull(dict(name), self.bounds))
            self.bounds[atom] = (_short(Q(low), False), high if isinstance(high, float) else _short(high, True))
            self.signs.setdefault(atom, (Q(0), inf))
            if self.inside is not None:
                self.inside[atom] = dict(name) | {(-1 - k, i): size for (k, i), size in sizes.items() if self.room}
        one: Row = {atom: Q(1)} | ({(-1 - atom[0], 0): Q(1)} if self.room else {})
        part = [(slope, row), ((1 - slope) * lead * abs(turn), one)]
        return total(part if turn > 0 else [*part, (1 - slope, row)])

    def of(self, program: Program, signs: list[int] | None = None) -> list[Row]:
        """The outputs of a program with the signs of its neurons on the domain; ``unproven`` are left to be proven."""
        place, self.unproven, told = 0, [], signs or [0] * program.neurons

        def switch(node: Node, rows: list[Row]) -> list[Row]:
            nonlocal place
            if node.kind == "maximum":
                place += sum(map(len, node.windows))
                return [self.largest([rows[i] for i in window if i >= 0]) for window in node.windows]
            mine = told[place : place + len(rows)]
            for k, (row, sign) in enumerate(zip(rows, mine, strict=True), start=place):
                low, high = hull(row, self.bounds) if sign else (Q(0), Q(0))
                if low < 0 if sign > 0 else high > 0:
                    self.unproven.append(k)
            place += len(rows)
            return [self.bend(*each) for each in zip(rows, node.slopes, mine, strict=True)]

        return walk(program, self.place.starts(bool(self.room)), switch, partial(total, least=self.least))

    def largest(self, players: list[Row]) -> Row:
        """``max(p, q) = q + relu(p - q)``, pair by pair."""
        terms = [[(atom, c) for atom, c in row.items() if atom[0] >= 0] for row in players]
        inside = self.inside
        if inside is not None and all(len(t) == 1 and t[0][0] in inside and t[0][1] > 0 for t in terms):
            return self.bend(self.largest([total([(t[0][1], inside[t[0][0]])]) for t in terms]))
        while len(players) > 1:
            pairs = list(zip(players[::2], players[1::2], strict=False))
            won = [total(((Q(1), q), (Q(1), self.bend(less(p, q))))) for p, q in pairs]
            players = won + players[len(players) - len(players) % 2 :]
        return players[0]

    def gaps(self, left: list[Row], right: list[Row]) -> list[Row]:
        """The differences of outputs; all empty where the two are the same."""
        return [self.cleaned(less(p, q)) for p, q in zip(left, right, strict=True)]

    def agree(self, left: list[Row], right: list[Row]) -> bool:
        return not any(atom[0] >= 0 for gap in self.gaps(left, right) for atom in gap)


def by_forms(case: Case) -> str:
    """Normal forms that agree, with signs of neurons on the domain."""
    found = case.evidence
    ulps, count = whole(found["ulps"], "ulps"), whole(found["hyperplanes"], "hyperplanes")
    if not 0 <= ulps <= (case.few if case.tolerance is None else 0):
        raise Fails("that many units of rounding prove nothing here")
    table, ends = Forms(case.place, ulps * case.unit, case.least), []
    for program, signs in zip((case.a, case.b), listed(found["signs"], "signs", 2), strict=True):
        told = signs if signs == [] == [0] * program.neurons else listed(signs, "signs", program.neurons)
        need(all(type(s) is int and -1 <= s <= 1 for s in told), "expected signs among -1, 0, 1")
        ends.append(table.of(program, told))
        for _, _, seen in pieces(case.place, [program]) if table.unproven else ():
            if any((seen[k] or 0) * told[k] < 0 for k in table.unproven):
                raise Fails("a sign that the normal form uses is wrong")
    if not table.agree(*ends):
        raise Fails("the normal forms differ")
    if not ulps and len(table.atoms) != count:
        raise Fails(f"there are {len(table.atoms)} hyperplanes and not {count}")
    how = f"within {ulps} units of rounding" if ulps else "exactly"
    return f"the normal forms agree over {len(table.atoms)} hyperplanes, {how}"


def by_channels(case: Case) -> str:
    """Channels that are multiples of others: their normal forms show it, without the evidence."""
    need(isinstance(case.evidence["switches"], list), "expected switches")
    table = Forms(case.place, case.few * case.unit if case.tolerance is None else Q(0), case.least)
    table.inside = {}
    if table.agree(table.of(case.a), table.of(case.b)):
        how = "up to rounding" if table.room else "exactly"
        return f"the normal forms agree over {len(table.atoms)} hyperplanes, {how}"
    if case.tolerance and len(case.place.ends) <= 8:
        return within(case, unpaired(case))
    raise TooLarge("channels that are only bounded, or whose normal forms do not agree")


# -- cells on which both are one affine map ----------------------------------------------------------------------------

Ray = tuple[tuple[Q, ...], int]
"""A corner ``(1, x)`` or a direction ``(0, x)`` of a cell, and the set of half-spaces whose boundary it is on."""
Cell = list[Ray]


def cells(place: Place) -> list[Cell]:
    """The domain as cells with corners: one, or one for every orthant where a coordinate has no end.

    A cone from one corner along all coordinates, of which ray ``k`` is on all sides but one, cut by everything else.
    """
    n, cuts = len(place.ends), list(place.halfspaces)
    if n > 8:
        raise TooLarge(f"corners in {n} dimensions")
    options: list[list[tuple[Q | float, int]]] = []
    for k, (low, high) in enumerate(place.ends, start=1):
        options.append([(low, 1)] if low > -inf else [(high, -1)] if high < inf else [(Q(0), 1), (Q(0), -1)])
        if low > -inf and high < inf:
            cuts.append({(0, k): Q(1), ONE: -Q(high)})
    found: list[Cell] = []
    for choice in product(*options):
        rays = [[Q(1), *(Q(v) for v, _ in choice)]]
        rays += [[Q(turn * (i == k)) for i in range(n + 1)] for k, (_, turn) in enumerate(choice, start=1)]
        found.append([(tuple(ray), (1 << n + 1) - 1 - (1 << k)) for k, ray in enumerate(rays)])
    for row in cuts:
        found = [part for cell in found for part in cut(cell, row)[:1] if part]
    return found


def at_ray(row: Row, ray: Ray) -> Q:
    """The value of a row over the coordinates at a corner, or its slope in a direction."""
    return sum((c * ray[0][k] for (s, k), c in row.items() if s == 0), Q(0))


def cut(cell: Cell, row: Row) -> tuple[Cell, Cell]:
    """The parts with ``row <= 0`` and ``row >= 0``; empty where the cell has no inner points."""
    side = 1 << max(tight.bit_length() for _, tight in cell)
    values = [at_ray(row, ray) for ray in cell]
    below, above = ([ray for ray, v in zip(cell, values, strict=True) if v * s > 0] for s in (-1, 1))
    on = [(x, tight | side) for (x, tight), v in zip(cell, values, strict=True) if v == 0]
    for (p, v), (q, w) in product(zip(cell, values, strict=True), zip(cell, values, strict=True)):
        if v > 0 > w:
            common = p[1] & q[1]
            spend(len(cell))
            if not any(r is not p and r is not q and common & r[1] == common for r in cell):
                point = [v * b - w * a for a, b in zip(p[0], q[0], strict=True)]
                scale = point[0] or max(map(abs, point))
                on.append((tuple(c / scale for c in point), common | side))
    return (below + on if below else []), (above + on if above else [])


def pieces(place: Place, programs: list[Program]) -> Iterator[tuple[Cell, list[list[Row]], list[int | None]]]:
    """Cells on which every program is one affine map: the outputs as rows over the coordinates, signs of neurons."""
    stack: list[tuple[Cell, list[list[Row]], list[list[Row]], list[int | None]]] = [
        (cell, [], [place.inputs], []) for cell in cells(place)
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
    for row, slope in zip(rows, node.slopes, strict=False):
        values = [at_ray(row, ray) for ray in cell]
        up, down = any(v > 0 for v in values), any(v < 0 for v in values)
        if up and down and slope != 1:
            return [], [], row
        made.append(row if slope == 1 or not down else total([(slope, row)]))
        signs.append(None if slope == 1 else up - down)
    for window in node.windows:
        players = [i for i in window if i >= 0]
        middle = (tuple(sum(c, Q(0)) for c in zip(*(x for x, _ in cell), strict=True)), 0)
        best = max(players, key=lambda i: at_ray(rows[i], middle))
        for i in players:
            lead = less(rows[i], rows[best])
            if any(at_ray(lead, ray) > 0 for ray in cell):
                return [], [], lead
        made.append(rows[best])
        signs += [None] * len(window)
    return made, signs, None


def by_cells(case: Case) -> str:
    """All cells of the two together: the claim itself, whatever the evidence says beyond it."""
    seen, tolerance = set(), case.tolerance or Q(0)
    if not case.equal and case.margin is not None:
        raise Fails("functions that differ may have the same classes")
    for cell, (left, right), signs in pieces(case.place, [case.a, case.b]):
        gaps = [less(p, q) for p, q in zip(left, right, strict=True)]
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
    how = f" within {float(tolerance):g}" if tolerance else ""
    return f"the exact affine maps agree on all {len(seen)} regions{how}"


# -- bounds of differences, in fixed point -----------------------------------------------------------------------------
#
# A form ``c + sum_k g_k e_k``, ``|e_k| <= 1``, is one integer, ``c + g_1 2^w + g_2 2^(2w) + ...``: parts in units of
# ``2^-bits``. What is linear is done to all parts at once, by sums of products of integers, which are exact; only a
# shift to the right rounds, every part down by less than a unit. A part may be negative: it borrows from the next one.
# The integer still tells its parts as long as all are below ``2^(w-1)`` in size, and none is taken apart before a bound
# of the sum of their sizes is known to be below that. Beside it stand an ``error``, which bounds what all rounding was
# off by, and a ``size``, at least the sum of the absolute parts and the error, so at least any value.
#
# Whatever a box proves to be linear stays linear on every part of it. So where the tree was looked at, the rows are
# written anew: the same walk, with a part of its own for what every open switch makes, gives all rows over these and
# the inputs. Further down most of the networks is gone.

Form = tuple[int, int, int]
"""Parts, error and size."""
ZERO: Form = (0, 0, 0)
Line = tuple[tuple[Atom, ...], list[int], list[float], int, int, int]
"""A row: atoms, weights in units of ``2^-bits``, their sizes and the sum of these, how many are off by less than one,
an error. What is exactly zero, and nothing else, has the weight 0, or the row has an error."""
Box = list[tuple[float, float]]
Span = tuple[int, int]
Link = tuple[int, int, int, int, int, int, int]
"""``i, p, r, q, low, high, error``: something between ``low`` and ``high`` more than ``p z + r h + q d``, of what entry
``i`` reads, makes, and reads more than its partner; where ``low`` and ``high`` are one number, up to an error."""
Links = tuple[list[Link], list[Link]]
SMALL = 6
"""Bits by which errors are below the tolerance."""
AIM = 28
"""Bits of values below the tolerance; 40 more where these do not do."""
FEW, EVERY = 4, 4
"""Leaves below a box from which on it is worth a look of its own, and how many splits below the last one."""


@dataclass
class Step:
    """A switch, the atoms that it makes, what it reads, and the difference from what its partner reads, if it has one;
    as rows, or as lines."""

    node: Node
    atoms: list[Atom]
    rows: list[Any]
    gaps: list[Any] | None


@dataclass
class Bounding:
    """Steps through both programs, the rows of the outputs of ``a``, and those of the differences ``a - b``.

    Atom ``(k, i)`` is an output of a switch of ``a``. Atom ``(k, -1 - i)`` is the difference of it from the partner in
    ``b`` where switches are matched, else an output of a switch of ``b``.
    """

    steps: list[Step]
    outputs: list[Any]
    ends: list[Any]

    def fixed(self, bits: int) -> Bounding:
        """With lines for rows."""
        steps = [
            Step(s.node, s.atoms, lines(s.rows, bits), None if s.gaps is None else lines(s.gaps, bits))
            for s in self.steps
        ]
        return Bounding(steps, lines(self.outputs, bits), lines(self.ends, bits))


def lines(rows: list[Row], bits: int) -> list[Line]:
    """Rows in fixed point: over the atoms of all of them where most have most, so that these are gathered only once."""
    shared = tuple(dict.fromkeys(atom for row in rows for atom in row))
    dense, made = 4 * sum(map(len, rows)) > len(rows) * len(shared), []
    for row in rows:
        atoms = shared if dense else tuple(row)
        both = [divmod(row[a].numerator << bits, row[a].denominator) if a in row else (0, 0) for a in atoms]
        made.append(line(atoms, [w or int(rest > 0) for w, rest in both], sum(rest > 0 for _, rest in both), 0))
    return made


def line(atoms: tuple[Atom, ...], weights: list[int], rough: int, error: int) -> Line:
    sizes = [*map(abs, weights)]
    return atoms, weights, [*map(float, sizes)], sum(sizes), rough, error


def less_form(p: Form, q: Form) -> Form:
    """A difference, which rounds nothing."""
    return p[0] - q[0], p[1] + q[1], p[2] + q[2]


class Zonotopes:
    """Forms of all atoms of a program on a box, of its ``outputs`` and ``ends``, and the ``spans`` of the latter.

    There is a part of every atom of ``reaches``, in their order, of something of that size in it. After another look
    was ``told``, it is all of the atom: an input, or what is open there.
    """

    def __init__(self, bits: int, width: int, box: Box, found: Bounding, told: Zonotopes | None = None) -> None:
        self.bits, self.width, self.half, self.whole = bits, width, 1 << width - 1, 1 << bits
        self.box, self.found, self.told = box, found, told
        self.reaches, self.unit = {ONE: self.whole}, 1
        self.forms: dict[Atom, Form] = {ONE: (self.whole, 0, self.whole)}
        self.read: list[tuple[list[Form], list[Form], Links]] = []
        for k, (low, high) in enumerate(box, start=1):
            (m, d), (n, e) = low.as_integer_ratio(), high.as_integer_ratio()
            first, last = (m << bits) // d, -((-n << bits) // e)
            least = -max(-first, last) if told else first
            self.forms[(0, k)] = self.spread((0, k), ZERO, least, -least if told else last)
        for step in found.steps:
            self.run(step)
        self.outputs, (self.ends, self.spans) = self.of(found.outputs)[0], self.of(found.ends)

    def spread(self, atom: Atom, form: Form, low: int, high: int) -> Form:
        """The form plus anything between two numbers, which is a part of its own."""
        middle = low + high >> 1
        reach = high - middle
        parts, error, size = form[0] + middle, form[1], form[2] + abs(middle) + reach
        if size >= self.half:
            raise OverflowError("a part does not fit")
        if reach:
            place = self.width * len(self.reaches)
            self.unit |= 1 << place
            self.reaches[atom] = reach
            parts += reach << place
        return parts, error, size

    def rounded(self, parts: int, size: int) -> int:
        """Parts without the bits of weights, rounded down; the sum of their sizes is at most ``size``."""
        if size >= self.half:
            raise OverflowError("a part does not fit")
        unit, left = self.unit, self.width - self.bits
        kept = parts + (unit << self.width - 1) >> self.bits & (unit << left) - unit
        return kept - (unit << left - 1)

    def span(self, form: Form) -> Span:
        """Between what a form is."""
        parts, error, size = form
        if size >= self.half:
            raise OverflowError("a part does not fit")
        width, count = self.width, len(self.reaches) - 1
        parts += self.unit << width - 1
        middle = (parts & 2 * self.half - 1) - self.half
        if count:
            parts >>= width
            top = (self.unit >> width) << width - 1
            positive = parts & top
            negative = positive ^ top
            # half more stands there: it goes where a part is at least zero, else the part is turned round, up to one
            parts ^= positive ^ (negative - (negative >> width - 1))
            error += negative.bit_count()
            while count > 1:
                count = count + 1 >> 1
                parts = (parts >> width * count) + (parts & (1 << width * count) - 1)
            error += parts
        return middle - error, middle + error

    def apart(self, form: Form, count: int) -> list[int]:
        """The first parts."""
        step, some = self.width // 8, min(count, form[0].bit_length() // self.width + 2)
        data = (form[0] + (self.unit << self.width - 1)).to_bytes(len(self.reaches) * step, "little")
        found = [int.from_bytes(data[k : k + step], "little") - self.half for k in range(0, some * step, step)]
        return found + [0] * (count - some)

    def of(self, rows: list[Line]) -> tuple[list[Form], list[Span]]:
        """Combinations of forms, and between what they are."""
        ready, made, seen, count = {}, list[Form](), list[Span](), len(self.reaches)
        for atoms in {row[0] for row in rows}:
            parts, errors, sizes = zip(*(self.forms[atom] for atom in atoms), strict=True) if atoms else ((), (), ())
            ready[atoms] = parts, [*map(float, errors)], sizes, max(sizes, default=0)
        for atoms, weights, absolute, norm, rough, error in rows:
            parts, losses, sizes, reach = ready[atoms]
            spend(1 + len(parts) * count // 32)
            total = sum(map(mul, weights, parts))
            if total or error or any(map(mul, weights, sizes)):
                total = self.rounded(total, norm * reach)
                off: float = sum(map(mul, absolute, losses))  # up to 2^-20 of it: no product is below the normal floats
                lost = (int(off * (1 + 2.0**-20)) + rough * reach >> self.bits) + 2 + count + error
                low, high = self.span((total, lost, self.half - 1))  # a weight has some bits: what is rounded fits
                made.append((total, lost, max(abs(low), abs(high))))
                seen.append((low, high))
            else:
                made.append(ZERO)  # exactly
                seen.append((0, 0))
        return made, seen

    def mixed(self, *terms: tuple[int, Form]) -> Form:
        """A combination of a few forms."""
        some = [(w, form) for w, form in terms if w and form[2]]
        if len(some) < 2 and (not some or some[0][0] == self.whole):
            return some[0][1] if some else ZERO
        size = sum(abs(w) * form[2] for w, form in some)
        parts = self.rounded(sum(w * form[0] for w, form in some), size)
        error = (sum(abs(w) * form[1] for w, form in some) >> self.bits) + 1 + len(self.reaches)
        return parts, error, (size >> self.bits) + 1 + len(self.reaches) + error

    def run(self, step: Step) -> None:
        """One switch: how it was linked to what it reads, and its forms."""
        z, seen = self.of(step.rows)
        d, apart = self.of(step.gaps) if step.gaps is not None else ([], [])
        links = self.maxima if step.node.kind == "maximum" else self.bends
        mine, theirs = self.told.read[len(self.read)][2] if self.told else links(step.node, z, seen, d, apart)
        self.read.append((z, d, (mine, theirs)))
        made = [self.linked(atom, link, z, d, ZERO) for atom, link in zip(step.atoms, mine, strict=True)]
        for (k, i), link, h in zip(step.atoms, theirs, made, strict=False):
            self.linked((k, -1 - i), link, z, d, h)

    def linked(self, atom: Atom, link: Link, z: list[Form], d: list[Form], h: Form) -> Form:
        i, p, r, q, low, high, error = link
        if self.told and low < high:
            form = self.spread(atom, ZERO, -self.told.forms[atom][2], self.told.forms[atom][2])
        else:
            form = self.mixed((p, z[i]), (r, h), (q, d[i] if q else ZERO))
            if low or high:
                form = self.spread(atom, form, low, high)
            if error:
                form = form[0], form[1] + error, form[2] + error
        self.forms[atom] = form
        return form

    def beside(self, low: int, high: int, s: int, rough: bool) -> tuple[int, int, int, int]:
        """The weight of a line beside an activation between two values, between what the rest is, and an error."""
        one = self.whole
        if low >= 0 or (s == one and not rough):
            return one, 0, 0, 0
        if high <= 0:
            return s, 0, 0, rough * ((-low >> self.bits) + 1)
        lean = (one * high - s * low) // (high - low)
        reached, extra = ((s - lean) * low, 0, (one - lean) * high), rough * max(-low, high)
        return lean, min(reached) - extra >> self.bits, -(-max(reached) - extra >> self.bits), 0

    def bends(self, node: Node, z: list[Form], seen: list[Span], d: list[Form], apart: list[Span]) -> Links:
        """What activations do, and of matched ones to the difference."""
        mine, theirs = list[Link](), list[Link]()
        for i, (slope, (low, high)) in enumerate(zip(node.slopes, seen, strict=True)):
            s, rest = divmod(slope.numerator << self.bits, slope.denominator)
            p, bottom, top, lost = self.beside(low, high, s, rest > 0)
            mine.append((i, p, 0, 0, bottom, top, lost))
            if d:
                theirs.append(self.parted(mine[-1], low, high, *apart[i], less_form(z[i], d[i]), s, rest > 0))
        return mine, theirs

    def parted(
        self, mine: Link, low: int, high: int, least: int, most: int, partner: Form, s: int, rough: bool
    ) -> Link:
        """What an activation does more than its partner, which reads something between ``least`` and ``most`` less."""
        one, (i, p, _, _, bottom, top, _) = self.whole, mine
        if not (least or most):
            return i, 0, 0, 0, 0, 0, 0
        down, up = low - most, high - least
        if down < 0 < up:
            first, last = self.span(partner)
            down, up = max(down, first), min(up, last)
        q, lower, upper, _ = self.beside(down, up, s, rough)
        own = bottom < top
        if own and lower < upper:
            # both are open: the difference is between its multiples by one and by the slope
            share = one * high // (high - low)
            if least < 0 < most:  # any factor between these leaves as little
                small, large = sorted((one * -least // (most - least), one * most // (most - least)))
                share = min(max(share, small), large)
            w = s + ((one - s) * share >> self.bits)
            reached, extra = [0, *((v - w) * g for v in (one, s) for g in (least, most))], rough * max(-least, most)
            first, last = min(reached) - extra >> self.bits, -(-max(reached) - extra >> self.bits)
            if last - first <= upper - lower + top - bottom:
                return i, 0, 0, w, first, last, 0
        lost = (max(-low, high) + max(-down, up) >> self.bits) + 1 if rough and min(low, down) < 0 else 0
        wide = lower < upper
        line = (-q, one, q) if own else (p - q, 0, q)
        return i, *line, -upper - wide * lost, -lower + wide * lost, 0 if wide else lost

    def maxima(self, node: Node, z: list[Form], seen: list[Span], d: list[Form], apart: list[Span]) -> Links:
        """Maxima: the one that beats all others, or a range."""
        one, mine, theirs = self.whole, list[Link](), list[Link]()
        for places in node.windows:
            window = [w for w in places if w >= 0]
            floor = max(seen[w][0] for w in window)
            first = [w for w in window if seen[w][1] >= floor]
            alone, top = len(first) == 1, max(seen[w][1] for w in first)
            mine.append((first[0], one, 0, 0, 0, 0, 0) if alone else (0, 0, 0, 0, floor, top, 0))
            if d:  # at most the difference where the one of ``a`` is attained, at least where that of ``b`` is
                other = {w: self.span(less_form(z[w], d[w])) for w in window}
                second = [w for w in window if other[w][1] >= max(low for low, _ in other.values())]
                least, most = min(apart[w][0] for w in second), max(apart[w][1] for w in first)
                one_place = alone and first == second
                theirs.append((first[0], 0, 0, one, 0, 0, 0) if one_place else (0, 0, 0, 0, least, most, 0))
        return mine, theirs

    def shares(self) -> list[int]:
        """How far the signs that are open depend on every input."""
        n, found = len(self.box), [0] * len(self.box)
        for z, _, (mine, _) in self.read:
            for form in (z[i] for i, *_, low, high, _ in mine if low < high):
                found = [total + abs(part) for total, part in zip(found, self.apart(form, 1 + n)[1:], strict=True)]
        return found if any(found) else [1] * n

    def reduced(self) -> Bounding:
        """The program for parts of the box, if it fits."""
        with suppress(OverflowError):
            return self._anew()
        return self.found

    def _anew(self) -> Bounding:
        new, steps = Zonotopes(self.bits, self.width, self.box, self.found, self), []
        for step, (z, d, links) in zip(self.found.steps, new.read, strict=True):
            live = [any(link[4] < link[5] for link in each) for each in zip(*filter(None, links), strict=True)]
            if not any(live):
                continue
            node, kept = step.node, live
            if node.kind == "piecewise":
                node = Node(node.kind, (), sum(live), slopes=[*compress(node.slopes, live)])
            else:  # a maximum stays whole
                live, kept = [True] * len(live), [True] * len(z)
            both = [[*compress(each, kept)] for each in (step.rows, z, step.gaps or [], d)]
            gaps = new.rows(*both[2:]) if links[1] else None
            steps.append(Step(node, [*compress(step.atoms, live)], new.rows(*both[:2]), gaps))
        return Bounding(steps, new.rows(self.found.outputs, new.outputs), new.rows(self.found.ends, new.ends))

    def rows(self, old: list[Line], forms: list[Form]) -> list[Line]:
        """Rows over the atoms that have parts: as they were, where they read no others, else as their forms are."""
        made, parted, known = list[Line](), tuple(self.reaches), dict[Any, tuple[list[bool], list[bool]]]()
        for (atoms, weights, _, _, rough, error), form in zip(old, forms, strict=True):
            if atoms not in known:
                stay = [atom in self.reaches for atom in atoms]
                known[atoms] = stay, [not s and self.forms[atom] != ZERO for s, atom in zip(stay, atoms, strict=True)]
            stay, gone = known[atoms]
            if any(compress(weights, gone)):
                parts = zip(self.apart(form, len(parted)), self.reaches.values(), strict=True)
                shares = [part and (part << self.bits) // reach for part, reach in parts]
                made.append(line(parted, shares, len(parted), form[1]))
            else:
                made.append(line(tuple(compress(atoms, stay)), [*compress(weights, stay)], rough, error))
        used = [any(column) for column in zip(*(row[1] for row in made if row[0] is parted), strict=True)]
        atoms = tuple(compress(parted, used))
        return [line(atoms, [*compress(row[1], used)], len(atoms), row[5]) if row[0] is parted else row for row in made]


def other(row: Row) -> Row:
    """A row over the switches of ``b``."""
    return {(k, -1 - i) if k else (k, i): c for (k, i), c in row.items()}


def paired(found: Matched) -> Bounding:
    """Switches of ``a`` and ``b`` together: ``d' = B d + (A - B) h``."""

    def apart(pairs: list[tuple[Row, Row]]) -> list[Row]:
        return [less(p, q) | {atom: c for atom, c in other(q).items() if atom[0]} for p, q in pairs]

    steps: list[Step] = []
    for l, node, slopes, pairs in found.steps:
        if slopes != node.slopes:
            raise Fails("activations with other slopes are not matched")
        steps.append(Step(node, [(l, i) for i in range(node.size)], [p for p, _ in pairs], apart(pairs)))
    return Bounding(steps, [p for p, _ in found.ends], apart(found.ends))


def unpaired(case: Case) -> Bounding:
    """Both programs one after the other."""
    (left, end), (right, last) = gates(case, case.a), gates(case, case.b)
    steps = [Step(node, [(k, i) for i in range(node.size)], rows, None) for k, (node, rows) in enumerate(left, start=1)]
    for k, (node, rows) in enumerate(right, start=1):
        steps.append(Step(node, [(k, -1 - i) for i in range(node.size)], [other(row) for row in rows], None))
    return Bounding(steps, end, [less(p, other(q)) for p, q in zip(end, last, strict=True)])


class Cover:
    """Proves a claim box by box, with so many bits more than usual."""

    def __init__(self, case: Case, found: Bounding, more: int) -> None:
        self.case, self.worst, self.count = case, 0, 0
        aim = case.tolerance or Q(0)
        if case.margin is not None or not aim:  # nothing to compare with but what the outputs are
            start = _at(case, [(Q(low) + Q(high)) / 2 for low, high in case.place.box()])
            aim = (max(map(abs, evaluate(case.a, start))) or Q(1)) / 2**16
        self.bits = max(16, AIM + more - aim.numerator.bit_length() + aim.denominator.bit_length())
        self.width = 8 * (self.bits // 4 + 4)
        try:
            self.program = found.fixed(self.bits)
        except OverflowError:
            raise TooLarge("values beyond the floats") from None

    def look(self, box: Box, program: Bounding) -> tuple[bool, Zonotopes | None]:
        """Whether the claim is proven on a box, and the forms there; parts have more room where they need it."""
        for width in (self.width, 2 * self.width, 4 * self.width):
            try:
                seen = Zonotopes(self.bits, width, box, program)
                if self.case.margin is not None:
                    return _same_class(self.case, seen), seen
            except OverflowError:
                continue
            bound = max(abs(end) for ends in seen.spans for end in ends)
            proven = bound <= (self.case.tolerance or 0) * 2**self.bits
            self.worst = max(self.worst, bound) if proven else self.worst
            return proven, seen
        return False, None

    def lacking(self, box: Box) -> int:
        """Bits by which errors are too large for the tolerance."""
        seen = self.look(box, self.program)[1]
        if seen is None or not self.case.tolerance:
            return 0
        error = max(form[1] for form in seen.ends)
        return max(0, error.bit_length() + SMALL - int(self.case.tolerance * 2**self.bits).bit_length())

    def walk(self, box: Box, tree: list[Any]) -> None:
        """Every leaf of a tree of splits, in preorder; what is proven further up needs no look below."""
        sizes, waiting = list[int](), list[int]()
        for entry in reversed(tree):
            need(entry is None or len(waiting) > 1, "the tree of boxes is not whole")
            waiting.append(1 if entry is None else waiting.pop() + waiting.pop())
            sizes.append(waiting[-1])
        need(len(waiting) == 1, "the tree of boxes is not whole")
        todo = [(box, self.program, EVERY, False)]
        for entry, leaves in zip(tree, reversed(sizes), strict=True):
            box, program, since, proven = todo.pop()
            if entry is None:
                if not proven:
                    self.leaf(box, program)
                continue
            need(type(listed(entry, "a split", 2)[1]) in (int, float), "expected a split")
            k, v = whole(entry[0], "a coordinate"), float(entry[1])
            need(0 <= k < len(box) and box[k][0] < v < box[k][1], "expected a split inside of the box")
            if not proven and leaves >= FEW and since >= EVERY:
                proven, seen = self.look(box, program)
                self.count += proven
                if seen is not None and not proven:
                    program, since = seen.reduced(), 0
            todo += [(half, program, since + 1, proven) for half in reversed(halves(box, k, v))]

    def leaf(self, box: Box, program: Bounding) -> None:
        """A box; one that is not proven at once is halved."""
        case, todo = self.case, [(box, program, 0)]
        while todo:
            box, program, depth = todo.pop()
            self.count += 1
            proven, seen = self.look(box, program)
            if proven or (case.margin is None and not case.tolerance and _exactly(case, box)):
                continue
            if len(box) > 32:  # halves of boxes with many inputs are hardly smaller
                raise TooLarge("bounds of many inputs that are closer than those of this checker")
            weight = [1] * len(box) if seen is None else seen.shares()
            k = max(range(len(box)), key=lambda k: (weight[k] * (box[k][1] > box[k][0]), box[k][1] - box[k][0]))
            middle = box[k][0] / 2 + box[k][1] / 2
            if depth >= 40 or not box[k][0] < middle < box[k][1]:
                corners = product(*([Q(low), Q(high)] for low, high in box)) if len(box) <= 6 else ()
                if any(_wrong(case, x) for x in ([(Q(low) + Q(high)) / 2 for low, high in box], *corners)):
                    raise Fails("at an input of the domain the claim is wrong")
                raise TooLarge("bounds that are closer than those of this checker")
            program = program if seen is None else seen.reduced()
            todo += [(half, program, depth + 1) for half in halves(box, k, middle)]


def halves(box: Box, k: int, v: float) -> tuple[Box, Box]:
    return [*box[:k], (box[k][0], v), *box[k + 1 :]], [*box[:k], (v, box[k][1]), *box[k + 1 :]]


def within(case: Case, bounding: Bounding, tree: Sequence[Any] = (None,)) -> str:
    """Prove the claim on every leaf of a tree of splits; what rounding left open is tried with more bits."""
    box = case.place.box()
    for more in (0, 40):
        try:
            cover = Cover(case, bounding, more)
            if lacking := cover.lacking(box) if len(tree) > 1 else 0:
                cover = Cover(case, bounding, more + lacking)
            cover.walk(box, list(tree))
            break
        except TooLarge:
            if more:
                raise
    worst = Q(cover.worst, 2**cover.bits)
    what = "b has the class of a" if case.margin is not None else f"the difference is at most {float(worst):.6g}"
    return f"{what} on each of {cover.count} boxes"


def _at(case: Case, x: Sequence[Q]) -> list[Row]:
    """The inputs at a point of the domain, in its coordinates."""
    return [{ONE: at_ray(row, ((Q(1), *x), 0))} for row in case.place.inputs]


def _wrong(case: Case, x: Sequence[Q]) -> bool:
    """Whether the exact outputs at a point refute a claim of equality."""
    left, right = (evaluate(program, _at(case, x)) for program in (case.a, case.b))
    if case.margin is None:
        return max(abs(p - q) for p, q in zip(left, right, strict=True)) > (case.tolerance or 0)
    i = max(range(len(left)), key=lambda k: left[k])
    lead = min([left[i] - v for k, v in enumerate(left) if k != i], default=Q(0))
    return lead > 0 and lead >= case.margin and max(right) > right[i]


def _exactly(case: Case, box: Box) -> bool:
    """Whether the two are one function on a box, where ranges tell the signs of neurons."""
    table = Forms(Place(case.place.inputs, [(Q(low), Q(high)) for low, high in box]), ranged=True)
    return table.agree(table.of(case.a), table.of(case.b))


def _same_class(case: Case, seen: Zonotopes) -> bool:
    """Nowhere on the box is ``a`` in class ``i`` by the margin while ``b_j > b_i``."""
    outputs, gaps = seen.outputs, seen.ends
    n, margin = len(gaps), (case.margin or 0) * 2**seen.bits

    def most(p: Form, q: Form) -> int:
        return seen.span(less_form(p, q))[1]

    for i in range(n):
        leads = [most(outputs[i], outputs[k]) for k in range(n) if k != i]
        if any(lead <= 0 or lead < margin for lead in leads):
            continue
        theirs = less_form(outputs[i], gaps[i])
        for j in range(n):
            if j != i and most(gaps[i], gaps[j]) > margin and most(less_form(outputs[j], gaps[j]), theirs) > 0:
                return False
    return True


def by_boxes(case: Case) -> str:
    """A tree of splits of the box, or none; every leaf is proven again."""
    found = {"tree": [None], "method": "single", "matching": None} | case.evidence
    need(isinstance(found["tree"], list) and found["method"] in ("pair", "single"), "expected a tree of boxes")
    if case.tolerance is None or not (case.tolerance or "tree" in case.evidence):
        raise Fails("boxes prove a tolerance, ranges one above 0, and nothing else")
    if found["matching"] is not None:
        matches = symmetry_of(keys(found["matching"], "matching", "permutations", "scales"))
    if found["method"] == "single":
        return within(case, unpaired(case), found["tree"])
    try:
        matches = in_place(case, None, True) if found["matching"] is None else matches
        how = paired(Matched(gates(case, case.a, True), gates(case, case.b, True), matches))
    except Fails:  # a matching is a hint
        how = unpaired(case)
    return within(case, how, found["tree"])


# -- bounds by lines, where the signs of neurons are told --------------------------------------------------------------

U, TINY = 1.01 * 2.0**-53, 1e-290
"""What rounding is off by, relatively, and more than all that the sums of one number lose below the normal floats."""
dot: Callable[[Sequence[float], Sequence[float]], float] = getattr(math, "sumprod", lambda p, q: sum(map(mul, p, q)))
Signs = dict[tuple[int, int], int]
Numbers = dict[tuple[int, int], float]
Leaf = tuple[Signs, Numbers, Numbers]
"""Signs of neurons (switch, place), slopes of lines below, and factors of signs that are not negative."""


class Lines:
    """Upper bounds of rows on a box: going back, every activation becomes a line above or below it.

    Every coefficient meets something of at most ``reach``, so that what rounding loses is a number.
    """

    def __init__(self, case: Case, program: Program) -> None:
        self.box, self.layers = case.place.box(), list[tuple[Node, list[Atom], list[list[float]]]]()
        self.reach: dict[Atom, float] = {ONE: 1.0}
        self.reach |= {(0, k): max(map(abs, ends)) for k, ends in enumerate(self.box, start=1)}
        self.ends: dict[tuple[int, int], tuple[float, float]] = {}
        self.sizes: dict[tuple[int, int], float] = {}
        found, rows = gates(case, program, True)
        self.outputs = [{atom: float(c) for atom, c in row.items()} for row in rows]
        for k, (node, reads) in enumerate(found):
            if node.kind != "piecewise" or any(s > 1 for s in node.slopes):
                raise TooLarge("lines for other switches than activations with slopes up to 1")
            atoms = list(dict.fromkeys(atom for row in reads for atom in row))
            each = [{atom: float(c) for atom, c in row.items()} for row in reads]
            for i, row in enumerate(each):
                self.sizes[(k, i)] = size = (
                    sum((abs(c) + TINY) * self.reach[atom] for atom, c in row.items()) * (1 + 1e-9) + TINY
                )
                high, low = self.upper(row), -self.upper({atom: -c for atom, c in row.items()})
                self.ends[(k, i)] = max(low, -size), min(high, size)
            self.layers.append((node, atoms, [[row.get(atom, 0.0) for row in each] for atom in atoms]))
            for i, slope in enumerate(node.slopes):
                self.reach[(k + 1, i)] = max(map(abs, self.ends[(k, i)])) * max(1.0, abs(float(slope))) * (1 + 4 * U)

    def line(self, at: tuple[int, int], slope: float, above: bool, leaf: Leaf) -> tuple[float, float]:
        """The slope of a line above or below an activation, and its value at zero."""
        (low, high), (signs, slopes, _) = self.ends[at], leaf
        if slope == 1 or max(low, 0.0) == low or signs.get(at, 0) > 0:
            return 1.0, 0.0
        if high <= 0 or signs.get(at, 0) < 0:
            return slope, 0.0
        if not above:  # any line through zero between the two pieces
            return min(max(slopes.get(at, 1.0 if high > -low else slope), slope), 1.0), 0.0
        chord = (high - slope * low) / (high - low)
        return chord, max(0.0, (slope - chord) * low, (1 - chord) * high) * (1 + 8 * U) + TINY

    def upper(self, row: dict[Atom, float], leaf: Leaf = ({}, {}, {})) -> float:
        """More than the row anywhere on the box where the signs are those of the leaf."""
        coefficients, shifts = dict(row), [0.0]
        lost = sum((4 * U * abs(c) + TINY) * self.reach[atom] for atom, c in row.items())
        for k in range(len(self.layers) - 1, -1, -1):
            node, atoms, columns = self.layers[k]
            passed = [0.0] * node.size
            for i, slope in enumerate(map(float, node.slopes)):
                c, factor = coefficients.pop((k + 1, i), 0.0), leaf[2].get((k, i), 0.0)
                if c or factor:
                    lean, shift = self.line((k, i), slope, c > 0, leaf)
                    shifts.append(c * shift)
                    passed[i] = c * lean + leaf[0].get((k, i), 0) * factor  # not less where the sign is right
                    lost += (4 * U * (abs(c * lean) + factor) + TINY) * self.sizes[(k, i)] + U * abs(c * shift)
            lost += (node.size + 8) * U * sum(abs(w) * self.sizes[(k, i)] for i, w in enumerate(passed))
            spend(node.size * len(atoms) // 8)
            for atom, column in zip(atoms, columns, strict=True):
                coefficients[atom] = now = coefficients.get(atom, 0.0) + dot(passed, column)
                lost += (U * abs(now) + TINY) * self.reach[atom]
        parts = shifts + [c * (self.box[k - 1][c > 0] if k else 1.0) for (_, k), c in coefficients.items()]
        lost += 2 * U * sum(map(abs, parts))
        if not isfinite(2 * lost):  # which holds a part of all sizes
            raise Fails("a bound beyond the floats")
        return math.fsum(parts) + lost * (1 + 1e-9) + TINY


def by_neurons(case: Case) -> str:
    """Trees of signs: on every leaf another class than one is not ahead, in both programs."""
    found, n, count = case.evidence, case.a.outputs, 0
    own = whole(found["own"], "a class")
    need(0 <= own < n, "expected a class")
    if case.margin is None:
        raise Fails("a class that both have says nothing of values")
    for program, trees in zip((case.a, case.b), listed(found["trees"], "trees", 2), strict=True):
        known = Lines(case, program)
        others = [j for j in range(n) if j != own]
        for j, tree in zip(others, listed(trees, "trees", n - 1), strict=True):
            ours, theirs = known.outputs[own], known.outputs[j]
            row = {atom: theirs.get(atom, 0.0) - ours.get(atom, 0.0) for atom in {**ours, **theirs}}
            gap = (
                4 * U * sum((abs(c) + TINY) * known.reach[atom] for part in (ours, theirs) for atom, c in part.items())
            )
            for leaf in _leaves(listed(tree, "a tree"), known):
                count += 1
                if not known.upper(row, leaf) + gap <= 0:
                    raise Fails("another class may be ahead on a part of the box")
    return f"both have class {own}, shown in {count} parts by the signs of neurons"


def _leaves(tree: list[Any], known: Lines) -> Iterator[Leaf]:
    """The leaves of a tree in preorder, with the signs above them: first where a neuron is at least zero."""

    def told(entry: Any, count: int) -> tuple[int, int]:
        k, i = (whole(v, "a neuron") for v in listed(entry, "a neuron", count)[:2])
        need((k, i) in known.ends, "expected a neuron")
        return k, i

    stack: list[Signs] = [{}]
    for entry in tree:
        need(bool(stack), "the tree does not end")
        signs = stack.pop()
        if all(type(part) is int for part in listed(entry, "a split or a leaf", 2)):
            stack += [signs | {told(entry, 2): sign} for sign in (-1, 1)]
            continue
        need(all(isinstance(part, list) for part in entry), "expected a leaf")
        slopes, factors = ({told(each, 3): float(reals(each[2:], "a number")[0]) for each in part} for part in entry)
        need(all(type(each[2]) is float for part in entry for each in part), "expected numbers of neurons")
        need(all(factor >= 0 for factor in factors.values()), "expected factors of at least 0")
        yield signs, slopes, factors
    need(not stack, "the tree is not whole")


# -- certificates ------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[bool, Callable[[Case], str], tuple[str, ...]]] = {
    "identical": (True, by_identity, ()),
    "symmetry": (True, by_matches, ("permutations", "scales")),
    "layers": (True, by_matches, ("order",)),
    "normal form": (True, by_forms, ("signs", "hyperplanes", "ulps")),
    "channels": (True, by_channels, ("switches",)),
    "output ranges": (True, by_boxes, ()),
    "split_boxes": (True, by_boxes, ("tree", "matching", "method")),
    "split_neurons": (True, by_neurons, ("own", "trees")),
    "regions": (True, by_cells, ("regions",)),
    "bottleneck": (True, by_cells, ("permutation", "scales", "flips", "hidden", "translation", "exact", "line")),
    "simplified symmetry": (True, by_cells, ("permutations", "scales")),
    "counterexample": (False, by_counterexample, ("x", "a", "b", "difference", "allowed")),
    "hyperplane representations differ": (False, by_cells, ()),
    "layers behind differ": (False, by_cells, ()),
}
"""Every kind of evidence: what it proves, how, and its fields (those that ``by_cells`` does without are only told)."""


def check(found: Any, models: Sequence[bytes | None] = (None, None)) -> tuple[str, list[str], str]:
    """Prove the claim of a certificate again: the claim in words, a line for each model, and how it was proven.

    ``models`` are the bytes of the model files, to be compared with the hashes that the claim names.
    """
    _Meter.left = WORK
    need(isinstance(found, dict), "expected a certificate in JSON")
    if found.get("format") == MODULES:
        return _modules(found)
    old = f"format {found.get('format')!r}: this checker reads {FORMAT!r}; `fiberscope verify` reads the older ones too"
    if str(found.get("format")).startswith("fiberscope certificate ") and found["format"] != FORMAT:
        raise TooLarge(old)
    need(found.get("format") == FORMAT, old)
    keys(found, "certificate", "format", "claim", "method", "networks", "programs", "evidence")
    told = ("equal", "tolerance", "precision", "domain", "models")
    claim = keys(found["claim"], "claim", *told, optional=["criterion", "margin", "rounding"])
    need(type(claim["equal"]) is bool and isinstance(found["method"], str), "expected a claim that is true or false")
    if found["programs"] is None:
        raise TooLarge("the networks are not in the certificate as plain programs")
    a, b = (program_of(program) for program in listed(found["programs"], "programs", 2))
    named = zip("ab", listed(claim["models"], "models", 2), (a, b), models, strict=True)
    about = [_model(*each) for each in named]
    need(a.inputs == b.inputs and a.outputs == b.outputs, "expected networks with the same inputs and outputs")
    if "rounding" in claim:
        about.append(_roundings(claim, a, b))
    evidence = found["evidence"]
    kind = evidence.get("kind") if isinstance(evidence, dict) else None
    fits = isinstance(kind, str) and kind in KINDS and KINDS[kind][0] is claim["equal"]
    need(fits, f"expected evidence that fits the claim, got {kind!r}")
    case, words = _case(claim, a, b, keys(evidence, "evidence", "kind", *KINDS[str(kind)][2]))
    return words, about, KINDS[str(kind)][1](case)


def digest_of(values: Sequence[float]) -> str:
    """A hash of numbers as float64."""
    return hashlib.sha256(_packed(values, "d")).hexdigest()


def same_numbers(claim: Any, left: Sequence[float], right: Sequence[float]) -> bool:
    """Whether numbers are the same, or up to a few units of rounding where the claim allows that."""
    if claim["precision"] is None:
        return list(left) == list(right)
    bits, lowest, few = PRECISIONS[claim["precision"]]
    unit, least = Q(1, 2**bits), Q(1, 2**lowest)
    pairs = [(Q(p), Q(q)) for p, q in zip(left, right, strict=True) if p != q]
    return all(abs(p - q) <= few * unit * max(abs(p), abs(q), least) for p, q in pairs)


def module_claim(found: Any) -> tuple[Any, str]:
    """The claim of a certificate of modules, and in words."""
    keys(found, "certificate", "format", "claim", "program", "element", "orders", "numbers")
    told = ("equal", "tolerance", "precision", "inputs", "models")
    claim = keys(found["claim"], "claim", *told, optional=["criterion", "margin"])
    tolerance, margin = claim["tolerance"], "margin" in claim
    need(claim["equal"] is True and whole(claim["inputs"], "inputs") > 0, "expected a claim of equality")
    need(margin == ("criterion" in claim) and claim.get("criterion", "argmax") == "argmax", "expected a criterion")
    exactly = margin or (tolerance is not None and reals([tolerance], "tolerance")[0] >= 0)
    need(claim["precision"] is None if exactly else claim["precision"] in list(PRECISIONS), "expected a precision")
    need((tolerance is None or not margin) and reals([claim.get("margin", 0)], "margin")[0] >= 0, "expected a margin")
    for part in listed(claim["models"], "models", 2):
        need(isinstance(part, dict) and all(isinstance(name, str) for name in part), "expected tensors by name")
        for tensor in part.values():
            shape = keys(tensor, "tensor", "shape", "sha256")["shape"]
            need(isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape), "expected shapes")
    program = keys(found["program"], "program", "steps", "outputs")
    need(
        all(isinstance(line, str) for part in program.values() for line in listed(part, "a program")), "expected lines"
    )
    kind = "as real functions" if exactly else f"up to {claim['precision']} rounding"
    return claim, f"equal {kind} on inputs of {claim['inputs']} numbers"


def _modules(found: Any) -> tuple[str, list[str], str]:
    """Two modules that run one program: their numbers are compared; what they run is not seen here."""
    claim, words = module_claim(found)
    if found["numbers"] is None or found["orders"] is None:
        raise TooLarge("the numbers of the modules are not in the certificate")
    orders, (left, right) = found["orders"], listed(found["numbers"], "numbers", 2)
    need(isinstance(orders, dict) and isinstance(found["element"], dict), "expected orders by name")
    need(bool(found["element"]) or not orders, "expected the groups of neurons whose order is another one")
    about = []
    for name, model, values in zip("ab", claim["models"], (left, right), strict=True):
        need(isinstance(values, dict) and set(values) == set(model), "expected the numbers of every tensor")
        for key, numbers in values.items():
            reals(numbers, "numbers")
            need(len(numbers) == math.prod(model[key]["shape"]), f"tensor {key} of {name} does not fit")
            need(digest_of(numbers) == model[key]["sha256"], f"tensor {key} of {name} is not the one of the claim")
        about.append(f"{name}: a module of {len(values)} tensors, {sum(map(len, values.values()))} numbers")
    shapes = [{key: tensor["shape"] for key, tensor in model.items()} for model in claim["models"]]
    need(shapes[0] == shapes[1] and set(orders) <= set(left), "expected tensors of the same names and shapes")
    for key, numbers in left.items():
        order = orders.get(key, list(range(len(numbers))))
        fits = isinstance(order, list) and all(type(i) is int for i in order)
        need(fits and sorted(order) == list(range(len(numbers))), f"the order of {key} is none")
        if not same_numbers(claim, [numbers[i] for i in order], right[key]):
            raise Fails(f"the numbers of {key} do not agree")
    count = len(found["program"]["steps"])
    trust = f"trusted: both modules run the {count} operations of the certificate on inputs of the example's shape"
    about.append(
        trust + (f", which do not see the order of {len(found['element'])} groups of neurons" if orders else "")
    )
    return words, about, f"all tensors agree, {len(orders)} of them in another order"


def _case(claim: Any, a: Program, b: Program, evidence: Any) -> tuple[Case, str]:
    """What is claimed, and in words."""
    tolerance, precision, criterion = claim["tolerance"], claim["precision"], claim.get("criterion", "value")
    need(criterion in ("value", "argmax") and ("margin" not in claim or criterion == "argmax"), "expected a criterion")
    margin = reals([claim.get("margin", 0.0)], "margin")[0] if criterion == "argmax" else None
    allowed = None if tolerance is None else reals([tolerance], "tolerance")[0]
    need(precision in list(PRECISIONS) if tolerance is None else precision is None, "expected tolerance or precision")
    need((margin or 0) >= 0 and (allowed or 0) >= 0, "expected a tolerance and a margin of at least 0")
    bits, lowest, few = PRECISIONS[precision or "float64"]
    kind = f"within {tolerance!r}" if allowed else "as real functions"
    kind = f"up to {precision} rounding" if allowed is None else kind
    if margin is not None:
        allowed = Q(0)  # what knows nothing of classes must show that the two are one function
        kind = "in class" + (f" wherever a is sure by {float(margin)!r}" if margin else "")
    where, place = json.dumps(claim["domain"]), place_of(claim["domain"], a.inputs)
    made = Case(a, b, place, claim["equal"], allowed, Q(1, 2**bits), Q(1, 2**lowest), few, evidence, margin)
    answer = "equal" if claim["equal"] else "different"
    return made, f"{answer} {kind} on {where if len(where) < 400 else where[:400] + ' ...'}"


def _roundings(claim: Any, a: Program, b: Program) -> str:
    """Of quantised models: the last inputs are roundings between -1 and 1, those of ``a`` and then those of ``b``.

    What holds for all values holds for those of the models, since neither program reads a rounding of the other.
    """
    found = keys(claim["rounding"], "rounding", "inputs", "where")
    own, theirs = (whole(k, "roundings") for k in listed(found["inputs"], "roundings", 2))
    n, domain = a.inputs - own - theirs, claim["domain"]
    need(min(own, theirs) >= 0 < own + theirs and n > 0 and claim["equal"], "expected roundings of equal models")
    need(isinstance(domain, dict) and domain.get("kind") == "box", "expected roundings behind the inputs of a box")
    ends = [listed(domain.get(side), "a box", a.inputs)[n:] for side in ("low", "high")]
    need(ends == [[-1] * (own + theirs), [1] * (own + theirs)], "expected roundings between -1 and 1")
    for program, others in ((a, range(n + own, a.inputs)), (b, range(n, n + own))):
        for node in program.nodes:
            mixes = not node.stages or any(w and j in others for line in node.stages[0] for j, w in line)
            need(0 not in node.sources or not mixes, "expected programs that read no rounding of each other")
    what = {"quantisers": "half a step at a quantiser", "outputs": "all rounding of a model at an output"}
    need(found["where"] in list(what), "expected where it is rounded")
    told = f"the last {own + theirs} inputs are roundings, {what[found['where']]} each, {own} of a and {theirs} of b"
    return f"rounding: {told}; trusted: each model is its program at some values of them"


def _model(name: str, model: Any, program: Program, data: bytes | None) -> str:
    """A line on one model: hashes compared."""
    keys(model, "model", "weights", "file", "inputs", "outputs")
    need(model["weights"] == program.digest, f"program {name} is not the one that the claim names")
    sizes = (whole(model["inputs"], "inputs"), whole(model["outputs"], "outputs"))
    need(sizes == (program.inputs, program.outputs), f"program {name} has other inputs or outputs than the claim names")
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
    return f"{name}: {json.dumps(file['name'][:200])}, sha256 {file['sha256']} ({told})"


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    if len(arguments) not in (1, 3):
        print("usage: checker.py CERTIFICATE [MODEL_A MODEL_B]", file=sys.stderr)
        return 2
    try:
        content = Path(arguments[0]).read_text(encoding="utf-8")
        models: list[bytes | None] = [Path(name).read_bytes() for name in arguments[1:]]
        claim, about, how = check(read(content), models or [None, None])
    except Fails as reason:
        print(f"DOES NOT HOLD: {_on_one_line(reason)}")
        return 1
    except TooLarge as reason:
        print(f"too large for this checker, use `fiberscope verify`: {reason}")
        return 3
    except (Malformed, ValueError, OverflowError, OSError, RecursionError, MemoryError) as error:
        print(f"not a certificate: {_on_one_line(error) or type(error).__name__}", file=sys.stderr)
        return 2
    print(
        f"HOLDS: the two {'modules' if about[-1].startswith('trusted') else 'plain programs'} are {claim}",
        *about,
        f"proof: {how}",
        sep="\n",
    )
    print("trusted: this file, Python, and that each plain program is the meaning of the model file with that hash")
    return 0


def read(content: str) -> Any:
    """JSON without what a reader may take for something else: NaN, infinities, one key twice."""
    return json.loads(content, parse_constant=_no_constant, object_pairs_hook=_table)


def _no_constant(text: str) -> Any:
    raise Malformed(f"expected numbers, got {text}")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len(dict(pairs)) == len(pairs), "expected every key once")
    return dict(pairs)


def _on_one_line(error: Exception) -> str:
    """What a certificate calls things may not move the cursor, or start a line that looks like an answer."""
    return "".join(c if c.isprintable() else " " for c in str(error))[:300]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
