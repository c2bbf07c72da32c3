"""Hostile random programs, points and domains; everything from one ``random.Random``."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from .oracle.cells import Domain
from .oracle.program import Program, clip

Number = Callable[[Random], float]


def single(x: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def singles(program: Program) -> Program:
    """The program with the numbers of its affine maps rounded to float32."""
    nodes = [
        ("affine", node[1], tuple(tuple(map(single, row)) for row in node[2]), tuple(map(single, node[3])))
        if node[0] == "affine"
        else node
        for node in program.nodes
    ]
    return Program(program.inputs, tuple(nodes))


NUMBERS: dict[str, Number] = {
    "integer": lambda rng: float(rng.randint(-2, 2)),
    "wide integer": lambda rng: float(rng.randint(-9, 9)),
    "one decimal": lambda rng: rng.randint(-9, 9) / 10,
    "two decimals": lambda rng: rng.randint(-99, 99) / 100,
    "float32": lambda rng: single(rng.gauss(0, 1)),
    "normal": lambda rng: rng.gauss(0, 1),
    "dyadic": lambda rng: rng.choice((-1, 1)) * math.ldexp(rng.choice((1, 1, 3)), rng.randint(-40, 40)),
}
ORDINARY = ("integer", "wide integer", "one decimal", "two decimals", "float32", "normal", "dyadic")

SCALES = (1e16, 1e-16, 1e150, 1e-150, 1e160, 5e-324, 2.0**-1070, 3e-310, 1e300)
"""Where floats are coarse, overflow or are subnormal."""


def numbers(rng: Random, extreme: float) -> Number:
    """One kind of numbers for a layer; with probability ``extreme``, near the ends of the range of floats."""
    draw = NUMBERS[rng.choice(ORDINARY)]
    if rng.random() >= extreme:
        return draw
    scale = rng.choice(SCALES)

    def scaled(rng: Random) -> float:
        x = draw(rng)
        y = x * (scale if rng.random() < 0.7 else 1.0)
        return y if math.isfinite(y) else x

    return scaled


def table(rng: Random, rows: int, columns: int, number: Number, twins: bool = True) -> tuple[list[Any], list[float]]:
    """Rows and biases of a layer, some zero, equal, opposite, rescaled or one ulp apart."""
    matrix = [[number(rng) for _ in range(columns)] for _ in range(rows)]
    bias = [number(rng) if rng.random() < 0.8 else 0.0 for _ in range(rows)]
    if twins and rows > 1 and rng.random() < 0.35:
        i, j = rng.sample(range(rows), 2)
        kind = rng.randrange(5)
        factor = [1.0, 1.0, -1.0, 2.0, 0.5][kind]
        matrix[j] = [factor * x for x in matrix[i]]
        bias[j] = factor * bias[i]
        if kind == 1 or rng.random() < 0.3:
            k = rng.randrange(columns + 1)
            if k == columns:
                bias[j] = math.nextafter(bias[j], rng.choice((-math.inf, math.inf)))
            else:
                matrix[j][k] = math.nextafter(matrix[j][k], rng.choice((-math.inf, math.inf)))
    if twins and rng.random() < 0.1:
        i = rng.randrange(rows)
        matrix[i] = [0.0] * columns
        if rng.random() < 0.5:
            bias[i] = 0.0
    return matrix, bias


class Maker:
    """Builds a program node by node."""

    def __init__(self, rng: Random, inputs: int, extreme: float) -> None:
        self.rng, self.extreme = rng, extreme
        self.sizes = [inputs]
        self.nodes: list[Any] = []
        self.clips: list[Any] = []
        self.leaky = rng.random() < 0.15
        self.clipping = rng.random() < 0.12

    def _add(self, node: Any, size: int) -> int:
        self.nodes.append(node)
        self.sizes.append(size)
        return len(self.nodes)

    def affine(self, source: int, size: int) -> int:
        matrix, bias = table(self.rng, size, self.sizes[source], numbers(self.rng, self.extreme))
        return self._add(("affine", source, tuple(map(tuple, matrix)), tuple(bias)), size)

    def relu(self, source: int) -> int:
        if self.clipping and self.rng.random() < 0.6:
            return self.clip(source)
        slope = self.rng.choice((0.01, 0.5, 0.1, -1.0, -0.3)) if self.leaky else 0.0
        slopes = [slope] * self.sizes[source]
        if self.leaky and self.rng.random() < 0.3:
            slopes[self.rng.randrange(len(slopes))] = self.rng.choice((0.0, 1.0))
        return self._add(("relu", source, tuple(slopes)), len(slopes))

    def clip(self, source: int) -> int:
        """Bounds of one kind for all neurons, as in a model, or of each its own, some of them none."""
        size = self.sizes[source]
        number = numbers(self.rng, self.extreme)
        pairs: list[tuple[float | None, float | None]] = []
        for _ in range(size):
            low, high = sorted((number(self.rng), number(self.rng)))
            missing = self.rng.random()
            pairs.append((None if missing < 0.15 else low, None if missing > 0.85 or not low < high else high))
        if self.rng.random() < 0.4:
            pairs = [self.rng.choice(((0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (0.1, 0.3)))] * size
        lows, highs = zip(*pairs, strict=True)
        self.clips.append((len(self.nodes), lows, highs))
        if source != len(self.nodes):
            self._add(("affine", source, _identity(size), (0.0,) * size), size)
            self.clips[-1] = (len(self.nodes), lows, highs)
        for node in clip(len(self.nodes), lows, highs):
            self._add(node, size)
        return len(self.nodes)

    def pool(self, source: int) -> int:
        size = self.sizes[source]
        kernel = self.rng.randint(2, min(3, size))
        stride = self.rng.randint(1, kernel)
        return self._add(("pool", source, kernel, stride), (size - kernel) // stride + 1)

    def add(self, *sources: int) -> int:
        return self._add(("add", sources), self.sizes[sources[0]])

    def concat(self, *sources: int) -> int:
        return self._add(("concat", sources), sum(self.sizes[s] for s in sources))


def program(
    rng: Random,
    inputs: int,
    *,
    kinds: str = "cprt",
    width: int = 4,
    extreme: float = 0.08,
    outputs: int = 2,
    pools: bool = True,
) -> Program:
    """A random program; ``kinds``: c chain, p pooling behind or in front of ReLU, r residual, t concatenation.

    Without ``pools`` also concatenations have none.
    """
    make = Maker(rng, inputs, extreme)
    kind = rng.choice(kinds)
    last = 0
    if kind == "c":
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            last = make.relu(make.affine(last, rng.randint(1, width)))
    elif kind == "p":
        hidden = make.affine(0, rng.randint(2, width))
        last = make.pool(make.relu(hidden)) if rng.random() < 0.6 else make.relu(make.pool(hidden))
        if rng.random() < 0.3:
            last = make.relu(make.affine(last, rng.randint(1, 2)))
    elif kind == "r":
        size = rng.randint(1, max(1, width - 1))
        base = make.relu(make.affine(0, size)) if rng.random() < 0.5 or size != inputs else 0
        inner = make.affine(make.relu(make.affine(base, rng.randint(1, 2))), size)
        last = make.add(base, inner)
        if rng.random() < 0.7:
            last = make.relu(last)
    else:
        one = make.relu(make.affine(0, rng.randint(1, 2)))
        two = make.affine(rng.choice((0, one)), rng.randint(1, 2))
        last = make.concat(one, two)
        if rng.random() < 0.7:
            last = make.pool(last) if rng.random() < 0.4 and pools else make.relu(last)
    if rng.random() < 0.85 or kind == "c":
        make.affine(last, rng.randint(1, outputs))
    return Program(inputs, tuple(make.nodes), tuple(make.clips))


def _identity(size: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(i == j) for j in range(size)) for i in range(size))


def chain(
    rng: Random, widths: tuple[int, ...], *, extreme: float = 0.0, kind: str | None = None, twins: bool = True
) -> Program:
    """A ReLU chain of given widths; numbers of one kind, or drawn for every layer."""
    nodes: list[Any] = []
    for depth, (columns, rows) in enumerate(itertools.pairwise(widths)):
        number = numbers(rng, extreme) if kind is None else NUMBERS[kind]
        matrix, bias = table(rng, rows, columns, number, twins)
        nodes.append(("affine", 2 * depth, tuple(map(tuple, matrix)), tuple(bias)))
        if depth < len(widths) - 2:
            nodes.append(("relu", 2 * depth + 1, (0.0,) * rows))
    return Program(widths[0], tuple(nodes))


def widths(rng: Random, inputs: int, *, most: int = 3, depth: int = 2, outputs: int = 2) -> tuple[int, ...]:
    """Widths of a small chain."""
    hidden = [rng.randint(1, most) for _ in range(rng.randint(1, depth))]
    return (inputs, *hidden, rng.randint(1, outputs))


def coordinate(rng: Random) -> float:
    """One coordinate of a point: on purpose often a short number."""
    kind = rng.random()
    if kind < 0.4:
        return rng.randint(-20, 20) / 10
    if kind < 0.55:
        return float(rng.randint(-3, 3))
    if kind < 0.6:
        return rng.choice((1e-300, 5e-324, 1e9, -1e9, 1e-17, 2.0**-1074 * 3))
    return rng.gauss(0, 1.5)


def point(rng: Random, n: int) -> tuple[float, ...]:
    """A point of R^n."""
    return tuple(coordinate(rng) for _ in range(n))


def box(rng: Random, n: int) -> Domain:
    """A box, as a rule around the origin."""
    kind = rng.random()
    if kind < 0.5:
        return ("box", (-1.0,) * n, (1.0,) * n)
    low = [rng.choice((-3.0, -2.0, -1.1, -0.3, 0.0, rng.gauss(-1, 1))) for _ in range(n)]
    size = [rng.choice((1.0, 0.3, 4.0, 2.2, abs(rng.gauss(0, 2)) + 1e-3)) for _ in range(n)]
    return ("box", tuple(low), tuple(a + s for a, s in zip(low, size, strict=True)))


def plane(rng: Random, n: int) -> Domain:
    """A plane in R^n with a box of its own."""
    number = NUMBERS[rng.choice(("integer", "one decimal", "normal", "float32"))]
    while True:
        origin, u, v = ([number(rng) for _ in range(n)] for _ in range(3))
        pairs = [(i, j) for i in range(n) for j in range(i)]
        if any(u[i] * v[j] != u[j] * v[i] for i, j in pairs):
            _, low, high = box(rng, 2)
            return ("plane", tuple(origin), tuple(u), tuple(v), low, high)


def polytope(rng: Random, n: int) -> Domain:
    """A box cut by one or two half-spaces, or a cone, perhaps without interior."""
    rows: list[tuple[float, ...]] = []
    sides: list[float] = []
    if rng.random() < 0.8:
        for i in range(n):
            for turn in (-1.0, 1.0):
                rows.append(tuple(turn if k == i else 0.0 for k in range(n)))
                sides.append(float(rng.randint(1, 2)))
    number = NUMBERS[rng.choice(("integer", "one decimal", "normal"))]
    for _ in range(rng.randint(1, 2)):
        rows.append(tuple(number(rng) for _ in range(n)))
        sides.append(abs(number(rng)) + rng.choice((0.0, 0.5)))
    return ("polytope", tuple(rows), tuple(sides))
