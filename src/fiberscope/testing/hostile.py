"""Hypothesis strategies for hostile networks: programs with pooling, residuals and concatenations, and numbers that
round, repeat, vanish, underflow and overflow.

What ordinary random networks never meet is common here: a preactivation that is positive and rounds to zero, a tie of a
pooling window on a whole region, two neurons one unit in the last place apart, a product beyond the floats. Whatever is
said to be exact has to stay exact on all of them; :func:`~fiberscope.testing.fraction_values` says what the truth is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiberscope.network.convolutions import TransposedConvolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Gather
from fiberscope.numerics.floats import FloatArray

Draw = Callable[..., Any]

LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)

NUMBERS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "integer": lambda rng, shape: rng.integers(-2, 3, shape).astype(np.float64),
    "decimal": lambda rng, shape: rng.integers(-20, 21, shape) / 10,
    "cents": lambda rng, shape: rng.integers(-200, 201, shape) / 100,
    "float32": lambda rng, shape: rng.normal(size=shape).astype(np.float32).astype(np.float64),
    "decimal32": lambda rng, shape: (rng.integers(-20, 21, shape) / 10).astype(np.float32).astype(np.float64),
    "normal": lambda rng, shape: rng.normal(size=shape),
    "grown": lambda rng, shape: rng.integers(-20, 21, shape) / 10 * 1e16,
    "subnormal": lambda rng, shape: rng.integers(-4, 5, shape) * SMALLEST,
    "tiny": lambda rng, shape: rng.integers(-20, 21, shape) / 10 * 2.0 ** rng.integers(-1030, -1000, shape),
    "huge": lambda rng, shape: rng.integers(-10, 11, shape) / 10 * LARGEST,
    "root": lambda rng, shape: rng.integers(-20, 21, shape) / 10 * 1e155,  # finite, but not their products
}
"""How numbers are drawn, by name; every number is finite."""

TAME = ("integer", "decimal", "cents", "float32", "decimal32", "normal")
"""Styles of ordinary size: what is computed with them neither underflows nor overflows."""

TRICKS = ("none", "none", "twin", "equal", "opposite", "zero", "thirds")
"""What :func:`layers` does to the rows of a layer once they are drawn."""


@st.composite
def arrays(draw: Draw, shape: tuple[int, ...], styles: Sequence[str] = tuple(NUMBERS)) -> FloatArray:
    """An array of one style of :data:`NUMBERS`, or of two of them mixed entry by entry."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, second = draw(st.sampled_from(list(styles))), draw(st.sampled_from(list(styles)))
    found = NUMBERS[first](rng, shape)
    if draw(st.integers(0, 3)) == 3:
        found = np.where(rng.random(shape) < 0.5, NUMBERS[second](rng, shape), found)
    return np.asarray(found, dtype=np.float64)


@st.composite
def layers(
    draw: Draw, inputs: int, outputs: int, styles: Sequence[str] = tuple(NUMBERS)
) -> tuple[FloatArray, FloatArray]:
    """A weight ``(outputs, inputs)`` and a bias ``(outputs,)``, with one of :data:`TRICKS` played on two rows.

    ``twin``: equal but for one unit in the last place of one entry; ``equal``; ``opposite``; ``zero``: no weights;
    ``thirds``: a third of the other, rounded, so that the two hyperplanes are as close as floats allow.
    """
    row_style = draw(st.sampled_from(list(styles)))
    weight = draw(arrays((outputs, inputs), (row_style,)))
    bias = draw(arrays((outputs,), draw(st.sampled_from([(row_style,), tuple(styles)]))))
    trick = draw(st.sampled_from(TRICKS))
    if trick == "none" or outputs < 2:
        return weight, bias
    i, j = draw(st.permutations(range(outputs)))[:2]
    rows = np.concatenate([weight, bias[:, None]], axis=1)
    rows[j] = {"opposite": -rows[i], "thirds": rows[i] / 3}.get(trick, rows[i])
    if trick == "twin":
        entry = draw(st.integers(0, inputs))
        rows[j, entry] = np.nextafter(rows[j, entry], 0.0 if rows[j, entry] else 1.0)
    if trick == "zero":
        rows[j, :-1] = 0.0
        rows[j, -1] = draw(st.sampled_from([0.0, rows[i, -1]]))
    return rows[:, :-1].copy(), rows[:, -1].copy()


@st.composite
def hostile_chains(
    draw: Draw,
    inputs: Any = None,
    max_width: int = 4,
    max_hidden: int = 3,
    styles: Sequence[str] = tuple(NUMBERS),
) -> Network:
    """Plain chains with the numbers of :func:`layers`; ReLU, or leaky ReLU of slope 0.1 or 0.01."""
    sizes = st.integers(1, max_width)
    widths = [draw(sizes if inputs is None else inputs), *draw(st.lists(sizes, min_size=1, max_size=max_hidden))]
    widths.append(draw(st.integers(1, 2)))
    pairs = [draw(layers(m, n, styles)) for m, n in pairwise(widths)]
    slope = draw(st.sampled_from([0.0, 0.0, 0.1, 0.01]))
    return Network([w for w, _ in pairs], [b for _, b in pairs], "leaky_relu" if slope else "relu", slope=slope)


BLOCKS = (
    "act",
    "act",
    "pool",
    "act_pool",
    "pool_act",
    "residual",
    "residual_act",
    "concat",
    "twice",
    "gather",
    "spread",
)
"""Blocks of :func:`programs`, each behind a dense layer of its own."""


@st.composite
def programs(
    draw: Draw,
    inputs: Any = None,
    max_width: int = 4,
    max_blocks: int = 3,
    styles: Sequence[str] = tuple(NUMBERS),
    blocks: Sequence[str] = BLOCKS,
) -> Network:
    """Programs of one to ``max_blocks`` :data:`BLOCKS` and a last dense layer.

    ``act``: an activation (ReLU, leaky, or one slope for each neuron, 1 among them); ``pool``: windows that may overlap
    and be padded, so that a maximum over one entry, and the same entry in two windows, occur; ``act_pool``: ReLU, then
    the maximum, whose ties at zero fill whole regions; ``pool_act``; ``residual``: the value before is added;
    ``residual_act``: and an activation follows; ``concat``: the value before stands beside the new one; ``twice``: a
    value is added to itself; ``gather``: entries are moved, repeated, left out or set to zero, then an activation;
    ``spread``: a transposed convolution, then an activation; ``clip``: bounds on one side, both or none.
    """
    size = draw(st.integers(1, 3) if inputs is None else inputs)
    build = _Builder(draw, styles, size)
    for kind in draw(st.lists(st.sampled_from(list(blocks)), min_size=1, max_size=max_blocks)):
        before, width = build.last, build.width
        same = kind.startswith("residual")
        build.dense(width if same else draw(st.integers(1, max_width)))
        if kind in ("act", "act_pool", "residual", "concat", "twice"):
            build.activation()
        if "pool" in kind:
            build.pool()
        if same:
            build.add(build.last, before)
        if kind == "twice":
            build.add(build.last, build.last)
        if kind == "concat":
            build.concat(before, width)
        if kind == "clip":
            build.clip()
        if kind == "gather":
            build.gather()
        if kind == "spread":
            build.spread()
        if kind in ("pool_act", "residual_act", "gather", "spread", "clip"):
            build.activation()
    build.dense(draw(st.integers(1, 2)))
    return Network.from_nodes(build.nodes, (size,))


class _Builder:
    """A program that grows node by node; ``last`` is the newest value, ``width`` its size."""

    def __init__(self, draw: Draw, styles: Sequence[str], size: int) -> None:
        self.draw, self.styles, self.width = draw, styles, size
        self.nodes: list[Given] = []

    @property
    def last(self) -> int:
        return len(self.nodes)

    def dense(self, outputs: int) -> None:
        weight, bias = self.draw(layers(self.width, outputs, self.styles))
        self.nodes.append(Affine(self.last, Dense(weight), bias))
        self.width = outputs

    def activation(self) -> None:
        kind = self.draw(st.sampled_from(["relu", "relu", "leaky", "mixed"]))
        choices = {"relu": [0.0], "leaky": [0.1], "mixed": [0.0, 0.01, 0.25, 1.0, -1.0]}[kind]
        slopes = [self.draw(st.sampled_from(choices)) for _ in range(self.width)]
        self.nodes.append(PiecewiseLinear(self.last, np.array(slopes), (self.width,)))

    def pool(self) -> None:
        if self.width > 1 and self.draw(st.booleans()):
            windows = st.lists(st.permutations(range(self.width)), min_size=1, max_size=3)
            table = [window[:2] for window in self.draw(windows)]
            self.nodes.append(MaxPool.over(self.last, (self.width,), table))
            self.width = len(table)
            return
        kernel = self.draw(st.integers(1, self.width))
        stride, pad = self.draw(st.integers(1, kernel)), self.draw(st.integers(0, kernel - 1))
        node = MaxPool(self.last, (1, 1, self.width), (1, kernel), (1, stride), (0, pad // 2, 0, pad - pad // 2))
        self.nodes.append(node)
        self.width = int(np.prod(node.shape))

    def clip(self) -> None:
        low, high = np.sort(self.draw(arrays((2, self.width), self.styles)), axis=0)
        missing = [
            self.draw(st.sampled_from([(False, False), (True, False), (False, True)])) for _ in range(self.width)
        ]
        low = np.where([m[0] for m in missing], -np.inf, low)
        high = np.where([m[1] for m in missing] | (low >= high), np.inf, high)
        self.nodes.append(Clip(self.last, low, high, (self.width,)))

    def gather(self) -> None:
        index = self.draw(st.lists(st.integers(-1, self.width - 1), min_size=1, max_size=self.width + 1))
        self.nodes.append(Affine(self.last, Gather(np.array(index), (self.width,))))
        self.width = len(index)

    def spread(self) -> None:
        stride = self.draw(st.integers(1, 2))
        kernel = self.draw(arrays((1, 1, 1, 2), self.styles))
        made = TransposedConvolution(kernel, (1, 1, self.width), (1, stride), (0, stride - 1, 0, 0))
        self.nodes.append(Affine(self.last, made))
        self.width = made.out_size

    def add(self, *sources: int) -> None:
        self.nodes.append(Add(sources, (self.width,)))

    def concat(self, before: int, width: int) -> None:
        self.nodes.append(Concat((self.last, before), ((self.width,), (width,))))
        self.width += width


@st.composite
def hostile_batches(
    draw: Draw, net: Network, max_points: int = 4, styles: Sequence[str] = tuple(NUMBERS)
) -> FloatArray:
    """A batch for ``net`` of the numbers of :data:`NUMBERS`; some points repeat a coordinate or are zero."""
    count = draw(st.integers(1, max_points))
    points: FloatArray = draw(arrays((count, net.in_size), styles))
    where = draw(st.sampled_from(["as drawn", "as drawn", "diagonal", "origin"]))
    if where == "diagonal":
        points[0] = points[0, 0]
    elif where == "origin":
        points[0] = 0.0
    return points
