"""A network as plain data, and what it does to affine functions, in integers.

A program is a number of inputs and a tuple of nodes. Value 0 is the input, node ``k`` makes value ``k + 1``:

- ``("affine", source, rows, bias)``: tuples of floats;
- ``("relu", source, slopes)``: ``x`` where positive, ``slope * x`` elsewhere, one slope for every neuron;
- ``("add", sources)`` and ``("concat", sources)``;
- ``("pool", source, kernel, stride)``: maxima over windows of neighbours, without padding.

Of every ``(k, lows, highs)`` of ``clips`` the six nodes from ``k`` on are what :func:`clip` makes of these bounds. The
judge does not look there; the library is given one node in their place.

A value is ``(rows, exponent)``: entry ``i`` is the affine function with coefficients ``rows[i] / 2 ** exponent``, the
constant term last. Floats are dyadic, so integers and one exponent are enough; a point is the case without variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

Row = tuple[int, ...]
Value = tuple[list[Row], int]
Signs = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """``inputs`` and ``nodes`` as above."""

    inputs: int
    nodes: tuple[Any, ...]
    clips: tuple[Any, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Entries of every value, the input first."""
        sizes = [self.inputs]
        for node in self.nodes:
            if node[0] == "affine" or node[0] == "relu":
                sizes.append(len(node[2]))
            elif node[0] == "add":
                sizes.append(sizes[node[1][0]])
            elif node[0] == "concat":
                sizes.append(sum(sizes[s] for s in node[1]))
            else:
                sizes.append(len(windows(sizes[node[1]], node[2], node[3])))
        return tuple(sizes)

    @property
    def outputs(self) -> int:
        return self.sizes[-1]

    @cached_property
    def integers(self) -> tuple[Any, ...]:
        """The numbers of every affine map and every activation over one power of two."""
        found: list[Any] = []
        for node in self.nodes:
            if node[0] == "affine":
                table, exponent = dyadic([*node[2], node[3]])
                found.append((table[:-1], table[-1], exponent))
            elif node[0] == "relu":
                (slopes,), exponent = dyadic([node[2]])
                found.append((slopes, exponent))
            else:
                found.append(None)
        return tuple(found)

    @property
    def is_chain(self) -> bool:
        """Affine maps and activations in turn."""
        kinds = [node[0] for node in self.nodes]
        straight = all(node[1] == k for k, node in enumerate(self.nodes))
        turns = all(kind == ("relu" if k % 2 else "affine") for k, kind in enumerate(kinds))
        return straight and turns and len(kinds) % 2 == 1

    @property
    def has_pool(self) -> bool:
        return any(node[0] == "pool" for node in self.nodes)


def clip(source: int, lows: Sequence[float | None], highs: Sequence[float | None]) -> list[Any]:
    """``min(max(x, low), high)`` as ``high - relu((high - low) - relu(x - low))``; None for no bound."""
    size = len(lows)
    up, down = (tuple(tuple(s * (i == j) for j in range(size)) for i in range(size)) for s in (1.0, -1.0))
    low, high = (tuple(0.0 if x is None else x for x in bounds) for bounds in (lows, highs))
    bends = [tuple(float(x is None) for x in bounds) for bounds in (lows, highs)]
    back = tuple(0.0 - x for x in low)
    return [
        ("affine", source, up, back),
        ("relu", source + 1, bends[0]),
        ("affine", source + 2, down, high),
        ("affine", source + 3, up, back),
        ("relu", source + 4, bends[1]),
        ("affine", source + 5, down, high),
    ]


def windows(size: int, kernel: int, stride: int) -> list[tuple[int, ...]]:
    """Input indices of every pooling window."""
    return [tuple(range(k, k + kernel)) for k in range(0, size - kernel + 1, stride)]


def dyadic(rows: Sequence[Sequence[float | Fraction]]) -> tuple[list[Row], int]:
    """Floats (or fractions over powers of two) as integers over one power of two, ``2 ** exponent``, not below 1."""
    ratios = [[x.as_integer_ratio() for x in row] for row in rows]
    exponent = max((d.bit_length() - 1 for row in ratios for _, d in row), default=0)
    return [tuple(n << (exponent - d.bit_length() + 1) for n, d in row) for row in ratios], exponent


def affine(rows: list[Row], exponent: int, numbers: Any) -> Value:
    """A layer ``W x + b`` on affine functions."""
    matrix, bias, own = numbers
    width = len(rows[0])
    found = []
    for weights, shift in zip(matrix, bias, strict=True):
        total = [0] * width
        for w, row in zip(weights, rows, strict=True):
            if w:
                for i, r in enumerate(row):
                    total[i] += w * r
        total[-1] += shift << exponent
        found.append(tuple(total))
    return found, exponent + own


def activate(rows: list[Row], exponent: int, numbers: Any, signs: Sequence[int]) -> Value:
    """The activation under given signs; sign 0 is the negative side (both agree where the value is zero)."""
    slopes, own = numbers
    one = 1 << own
    factors = [one if s > 0 else slope for s, slope in zip(signs, slopes, strict=True)]
    return [tuple(f * x for x in row) for f, row in zip(factors, rows, strict=True)], exponent + own


def aligned(values: Sequence[Value]) -> tuple[list[list[Row]], int]:
    """Several values over one power of two."""
    top = max(e for _, e in values)
    return [[tuple(x << (top - e) for x in row) for row in rows] for rows, e in values], top


def joined(node: Any, values: Sequence[Value]) -> Value:
    """A sum or a concatenation."""
    parts, exponent = aligned([values[s] for s in node[1]])
    if node[0] == "concat":
        return [row for part in parts for row in part], exponent
    return [tuple(map(sum, zip(*rows, strict=True))) for rows in zip(*parts, strict=True)], exponent


# -- points


def sign(x: int | Fraction) -> int:
    """-1, 0 or 1."""
    return (x > 0) - (x < 0)


def pool_signs(values: Sequence[int | Fraction]) -> Signs:
    """Of every input against the largest of the others."""
    top = max(values)
    alone = sum(v == top for v in values) == 1
    return tuple((1 if alone else 0) if v == top else -1 for v in values)


@dataclass(frozen=True)
class AtPoint:
    """A program at a point: outputs, values of the switches (pool inputs as given), and signs."""

    outputs: tuple[Fraction, ...]
    signs: Signs
    margins: tuple[Fraction, ...]


def at(program: Program, x: Sequence[Fraction | float | int]) -> AtPoint:
    """Outputs, signs and margins at a rational point.

    A linear neuron (slope 1) has sign +1 by convention.
    """
    point = [Fraction(v) for v in x]
    values: list[list[Fraction]] = [point]
    signs: list[int] = []
    margins: list[Fraction] = []
    for node in program.nodes:
        if node[0] == "affine":
            source = values[node[1]]
            values.append(
                [
                    sum((Fraction(w) * v for w, v in zip(row, source, strict=True) if w), Fraction(b))
                    for row, b in zip(node[2], node[3], strict=True)
                ]
            )
        elif node[0] == "relu":
            source = values[node[1]]
            values.append([v if v > 0 else Fraction(s) * v for v, s in zip(source, node[2], strict=True)])
            signs += [1 if s == 1 else sign(v) for v, s in zip(source, node[2], strict=True)]
            margins += source
        elif node[0] == "add":
            values.append([sum(parts, Fraction(0)) for parts in zip(*(values[s] for s in node[1]), strict=True)])
        elif node[0] == "concat":
            values.append([v for s in node[1] for v in values[s]])
        else:
            source, best = values[node[1]], []
            for window in windows(len(source), node[2], node[3]):
                inside = [source[k] for k in window]
                best.append(max(inside))
                signs += pool_signs(inside)
                margins += [v - max([*inside[:i], *inside[i + 1 :]], default=v - 1) for i, v in enumerate(inside)]
            values.append(best)
    return AtPoint(tuple(values[-1]), tuple(signs), tuple(margins))


# -- affine functions under given signs


def identity(n: int) -> Value:
    """The coordinates of R^n as affine functions."""
    return [tuple(int(i == j) for j in range(n + 1)) for i in range(n)], 0


def combination(origin: Sequence[float], *directions: Sequence[float]) -> Value:
    """The coordinates of ``origin + sum t_k direction_k`` as affine functions of the ``t_k``."""
    columns = [*directions, origin]
    rows = [[c[i] for c in columns] for i in range(len(origin))]
    return dyadic(rows)


@dataclass(frozen=True)
class Forms:
    """The affine functions of a sign vector: outputs, and the margin of every switch entry, as fractions."""

    outputs: tuple[tuple[Fraction, ...], ...]
    margins: tuple[tuple[Fraction, ...], ...]


def fractions(rows: list[Row], exponent: int) -> tuple[tuple[Fraction, ...], ...]:
    """The coefficients themselves."""
    below = 1 << exponent
    return tuple(tuple(Fraction(x, below) for x in row) for row in rows)


def forms(program: Program, signs: Sequence[int], start: Value | None = None) -> Forms:
    """What the program is where the switches have these signs; losing inputs are compared with a winner."""
    margins: list[tuple[Fraction, ...]] = []
    first = identity(program.inputs) if start is None else start
    values = [first]
    entry = 0
    for node, numbers in zip(program.nodes, program.integers, strict=True):
        if node[0] in ("add", "concat"):
            values.append(joined(node, values))
            continue
        rows, exponent = values[node[1]]
        if node[0] == "affine":
            values.append(affine(rows, exponent, numbers))
        elif node[0] == "relu":
            margins += fractions(rows, exponent)
            values.append(activate(rows, exponent, numbers, signs[entry : entry + len(rows)]))
            entry += len(rows)
        else:
            chosen = []
            for window in windows(len(rows), node[2], node[3]):
                own = list(signs[entry : entry + len(window)])
                winner = rows[window[own.index(max(own))]]
                chosen.append(winner)
                differences = [tuple(x - y for x, y in zip(rows[k], winner, strict=True)) for k in window]
                margins += fractions(differences, exponent)
                entry += len(window)
            values.append((chosen, exponent))
    return Forms(fractions(*values[-1]), tuple(margins))
