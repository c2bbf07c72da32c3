"""Pairs of networks with a label: equal or different, on which inputs, within what, and why.

One pair for every way in which two models are made to be the same function, or almost. Labels follow from how a pair
is made, not from any method that decides it. A method may leave a pair undecided; it may not contradict a label.

>>> one = pair("dead")
>>> one.equal, one.why
(True, 'a neuron that is never positive was added')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPair:
    """Two networks; ``equal`` says whether ``max |a - b| <= tolerance`` for ``low <= x <= high``, everywhere for None.

    A tolerance of 0 asks for the same real function, None for the same up to the rounding of what is stored. With a
    ``margin`` it says whether no class of ``a`` that is ahead by so much is beaten in ``b``, as ``criterion="argmax"``
    asks. ``at`` is an input that shows it, where they are different.
    """

    name: str
    a: Network
    b: Network
    equal: bool
    why: str
    tolerance: float | None = 0.0
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    at: tuple[float, ...] | None = None
    margin: float | None = None


def _net(seed: int = 0, widths: Sequence[int] = (2, 5, 4, 2)) -> Network:
    """Weights with few bits, so that sums and products of them are exact."""
    rng = np.random.default_rng(seed)
    pairs = list(zip(widths[1:], widths[:-1], strict=True))
    weights = [rng.integers(-8, 9, shape) / 4.0 for shape in pairs]
    return Network(weights, [rng.integers(-8, 9, shape[0]) / 8.0 for shape in pairs])


def _chain(weights: Sequence[FloatArray], biases: Sequence[FloatArray]) -> Network:
    return Network(list(weights), list(biases))


def _cube(n: int, low: float = -1.0, high: float = 1.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (low,) * n, (high,) * n


def _permuted() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    order = np.array([3, 0, 4, 1, 2])
    other = _chain([V[order], W[:, order], U], [b[order], c, d])
    return LabelledPair("permuted", net, other, True, "the neurons of a layer stand in another order")


def _rescaled() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    s = np.array([2.0, 0.5, 4.0, 1.0, 0.25])
    other = _chain([V * s[:, None], W / s, U], [b * s, c, d])
    return LabelledPair("rescaled", net, other, True, "neurons are multiplied by powers of two and divided out behind")


def _image(fold: bool, order: Sequence[int] = (0, 1)) -> Network:
    """Two channels, in any order."""
    rng = np.random.default_rng(3)
    kernel, bias = rng.integers(-8, 9, (2, 1, 3, 3)) / 4.0, rng.integers(-8, 9, (2, 1, 1)) / 8.0
    scale, shift = np.array([2.0, 0.5]).reshape(2, 1, 1), np.array([0.25, -0.5]).reshape(2, 1, 1)
    matrix = rng.integers(-8, 9, (2, 8)) / 4.0
    which = np.array(order)
    kernel, bias, scale, shift = kernel[which], bias[which], scale[which], shift[which]
    last = Dense(matrix.reshape(2, 2, 4)[:, which].reshape(2, 8), (2, 2, 2))
    edge = (1, 1, 1, 1)
    if fold:
        front: list[Node] = [
            Affine(0, Convolution(kernel * scale[..., None], (1, 4, 4), padding=edge), bias * scale + shift),
        ]
    else:
        front = [
            Affine(0, Convolution(kernel, (1, 4, 4), padding=edge), bias),
            Affine(1, Scale(scale, (2, 4, 4)), shift),
        ]
    n = len(front)
    rest: list[Node] = [
        PiecewiseLinear(n, np.zeros(()), (2, 4, 4)),
        MaxPool(n + 1, (2, 4, 4), (2, 2), (2, 2)),
        Affine(n + 2, last, np.array([0.5, -0.25])),
    ]
    return Network.from_nodes([*front, *rest], (1, 4, 4))


def _folded() -> LabelledPair:
    why = "a batch normalisation is folded into the convolution before it"
    return LabelledPair("batch norm folded", _image(False), _image(True), True, why)


def _channels() -> LabelledPair:
    why = "the channels of a convolution stand in another order"
    return LabelledPair("channels permuted", _image(True), _image(True, (1, 0)), True, why)


def _idle() -> LabelledPair:
    """An identity in front, a branch that is constant, and one that nobody reads."""
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    nodes: list[Node] = [
        Affine(0, Dense(np.eye(2)), np.zeros(2)),
        Affine(1, Dense(V), b),
        PiecewiseLinear(2, np.zeros(5), (5,)),
        Affine(3, Dense(W), c - 0.75),
        Affine(0, Dense(np.zeros((4, 2))), np.full(4, 0.75)),
        PiecewiseLinear(5, np.zeros(4), (4,)),
        Affine(0, Dense(V), b),
        Add((4, 6), (4,)),
        PiecewiseLinear(8, np.zeros(4), (4,)),
        Affine(9, Dense(U), d),
    ]
    why = "an identity, a branch that is constant and one that nobody reads were added"
    return LabelledPair("idle parts", net, Network.from_nodes(nodes, (2,)), True, why)


def _fused() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    inner = np.array([[1.0, 0.5], [0.0, 2.0]])
    nodes: list[Node] = [
        Affine(0, Dense(inner), np.array([0.25, 0.5])),
        Affine(1, Dense(V), b),
        PiecewiseLinear(2, np.zeros(5), (5,)),
        Affine(3, Dense(W), c),
        PiecewiseLinear(4, np.zeros(4), (4,)),
        Affine(5, Dense(U), d),
    ]
    fused = _chain([V @ inner, W, U], [b + V @ np.array([0.25, 0.5]), c, d])
    why = "two linear layers in a row are multiplied out"
    return LabelledPair("fused", Network.from_nodes(nodes, (2,)), fused, True, why)


def _unrolled() -> LabelledPair:
    net = _image(True)
    stage = net.nodes[0]
    assert isinstance(stage, Affine)
    matrix = stage.operator.sparse().toarray()
    nodes: list[Node] = [Affine(0, Dense(matrix, (1, 4, 4)), stage.offset), *net.nodes[1:]]
    other = Network.from_nodes(nodes, (1, 4, 4))
    return LabelledPair("unrolled", net, other, True, "a convolution is written as the matrix that it is")


def _residual(order: bool) -> LabelledPair:
    net = _net(5, (3, 3, 3))
    (V, U), (b, d) = net.weights, net.biases
    perm = np.array([2, 0, 1]) if order else np.arange(3)
    made = []
    for rows in (np.arange(3), perm):
        nodes: list[Node] = [
            Affine(0, Dense(V[rows]), b[rows]),
            PiecewiseLinear(1, np.zeros(3), (3,)),
            Affine(2, Dense(U[:, rows]), d),
            Add((3, 0), (3,)),
        ]
        made.append(Network.from_nodes(nodes, (3,)))
    why = "a residual block whose inner neurons stand in another order"
    return LabelledPair("residual, permuted", made[0], made[1], True, why)


def _split() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    other = _chain(
        [np.vstack([V, V[:1]]), np.hstack([np.hstack([W[:, :1] / 2, W[:, 1:]]), W[:, :1] / 2]), U],
        [np.append(b, b[0]), c, d],
    )
    return LabelledPair("split", net, other, True, "a neuron is replaced by two copies that share its outgoing weights")


def _merged() -> LabelledPair:
    one = _split()
    return LabelledPair("merged", one.b, one.a, True, "two neurons with one hyperplane are merged")


def _dead() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    other = _chain([V, np.vstack([W, -np.ones((1, 5))]), np.hstack([U, [[7.0], [3.0]]])], [b, np.append(c, -0.5), d])
    return LabelledPair("dead", net, other, True, "a neuron that is never positive was added")


def _pruned() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    silent = np.hstack([W[:, :4], np.zeros((4, 1))])
    why = "a neuron that nobody reads was removed"
    return LabelledPair(
        "pruned", _chain([V, silent, U], [b, c, d]), _chain([V[:4], W[:, :4], U], [b[:4], c, d]), True, why
    )


def _pruned_away() -> LabelledPair:
    net = _net()
    (V, W, U), (b, c, d) = net.weights, net.biases
    gone = U.copy()
    gone[0, 0] += 0.5
    low, high = _cube(2)
    x = np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    hidden = np.maximum(np.maximum(x @ V.T + b, 0) @ W.T + c, 0)[:, 0]
    best = int(hidden.argmax())
    why = f"an outgoing weight is off by a half, and its neuron is {hidden[best]:g} at a point"
    other = _chain([V, W, gone], [b, c, d])
    at = tuple(map(float, x[best]))
    return LabelledPair("a weight changed", net, other, not hidden[best] > 0, why, 0.0, low, high, at)


def _stored(kind: str) -> LabelledPair:
    """Smallest and largest of all inputs decide the bound: |a - b| is added up layer by layer."""
    rng = np.random.default_rng(9)
    V, U = rng.normal(size=(6, 2)), rng.normal(size=(1, 6))
    b, d = rng.normal(size=6), rng.normal(size=1)

    def rounded(x: FloatArray) -> FloatArray:
        if kind == "float16":
            return x.astype(np.float16).astype(np.float64)
        if kind == "bfloat16":  # eight bits, the first of which is not stored
            mantissa, exponent = np.frexp(x)
            return np.ldexp(np.round(mantissa * 256) / 256, exponent)
        step = float(2.0 ** np.ceil(np.log2(np.abs(x).max() / 127)))
        return np.round(x / step) * step

    made = [rounded(x) for x in (V, b, U, d)]
    hidden = np.abs(V).sum(axis=1) + np.abs(b)
    inner = np.abs(V - made[0]).sum(axis=1) + np.abs(b - made[1])
    bound = float((np.abs(made[2]) @ inner + np.abs(U - made[2]) @ hidden + np.abs(d - made[3])).max())
    low, high = _cube(2)
    tolerance = float(2.0 ** np.ceil(np.log2(bound)))
    why = f"weights rounded to {kind}; added up, the changes amount to {bound:.3g} on the box"
    pair = (_chain([V, U], [b, d]), _chain([made[0], made[2]], [made[1], made[3]]))
    return LabelledPair(f"{kind} weights", pair[0], pair[1], True, why, tolerance, low, high)


def _float16_exactly() -> LabelledPair:
    one = _stored("float16")
    why = "weights rounded to float16 are other numbers; the outputs at zero differ"
    at = (0.0, 0.0)
    differ = bool(one.a(np.zeros((1, 2)))[0, 0] != one.b(np.zeros((1, 2)))[0, 0])
    assert differ
    return LabelledPair("float16 weights, exactly", one.a, one.b, False, why, 0.0, one.low, one.high, at)


def _trees() -> LabelledPair:
    """``max(p, q) = p + relu(q - p)``, as two trees."""

    def largest(shape: str) -> Network:
        def pick(*places: tuple[int, float]) -> FloatArray:
            row = np.zeros((1, 4))
            for k, w in places:
                row[0, k] = w
            return row

        if shape == "balanced":
            # relu(b-a), relu(d-c), then a, c are passed on through differences of ReLUs
            first = np.vstack(
                [pick((0, -1), (1, 1)), pick((2, -1), (3, 1)), *(pick((k, s)) for k in (0, 2) for s in (1, -1))]
            )
            # p = a + r0, q = c + r1 ; relu(q - p), p = relu(p) - relu(-p)
            p, q = np.array([1.0, 0, 1, -1, 0, 0]), np.array([0, 1.0, 0, 0, 1, -1])
            return _chain(
                [first, np.vstack([q - p, p, -p]), np.array([[1.0, 1, -1]])], [np.zeros(6), np.zeros(3), np.zeros(1)]
            )
        first = np.vstack([pick((0, -1), (1, 1)), *(pick((k, s)) for k in (0, 2, 3) for s in (1, -1))])
        p, c, d = (
            np.array([1.0, 1, -1, 0, 0, 0, 0]),
            np.array([0, 0, 0, 1.0, -1, 0, 0]),
            np.array([0, 0, 0, 0, 0, 1.0, -1]),
        )
        second = np.vstack([c - p, p, -p, d, -d])
        r, e = np.array([1.0, 1, -1, 0, 0]), np.array([0, 0, 0, 1.0, -1])
        return _chain(
            [first, second, np.vstack([e - r, r, -r]), np.array([[1.0, 1, -1]])],
            [np.zeros(7), np.zeros(5), np.zeros(3), np.zeros(1)],
        )

    low, high = _cube(4)
    why = "the largest of four by two trees"
    return LabelledPair("max trees", largest("balanced"), largest("ladder"), True, why, 0.0, low, high)


def _on_the_box() -> LabelledPair:
    a = Network([[[1.0], [2.0]], [[1.0, -1.0]]], [[3.0, 5.0], [0.0]])
    why = "two neurons are linear on the box, and only there"
    return LabelledPair("equal on the box", a, Network([[[-1.0]]], [[-2.0]]), True, why, 0.0, (-1.0,), (1.0,))


def _beyond_the_box() -> LabelledPair:
    one = _on_the_box()
    why = "two neurons that are linear on [-1, 1] switch at -2.5 and -3"
    return LabelledPair("equal on a smaller box", one.a, one.b, False, why, 0.0, (-4.0,), (1.0,), (-4.0,))


def _flat() -> LabelledPair:
    net = _net()
    (V, W, U), biases = net.weights, net.biases
    other = _chain([V + np.array([[0.0, 1.0]] * 5), W, U], biases)
    why = "the second input counts otherwise, and is zero on the box"
    return LabelledPair("a flat box", net, other, True, why, 0.0, (-1.0, 0.0), (1.0, 0.0))


def _sliver() -> LabelledPair:
    """A tent of height 2^-12 over [1/2, 1/2 + 2^-10], added to an output."""
    net = _net(1, (2, 4, 1))
    (V, U), (b, d) = net.weights, net.biases
    w = 2.0**-10
    tent = [0.5, 0.5 + w / 2, 0.5 + w]
    other = _chain(
        [np.vstack([V, [[1.0, 0.0]] * 3]), np.hstack([U, [[0.5, -1.0, 0.5]]])],
        [np.append(b, [-t for t in tent]), d],
    )
    low, high = _cube(2)
    why = "a tent of height 2^-12 stands over a strip of width 2^-10"
    return LabelledPair("a sliver", net, other, False, why, 0.0, low, high, (0.5 + w / 2, 0.0))


def _sliver_within() -> LabelledPair:
    one = _sliver()
    why = "a tent of height 2^-12 is all the difference"
    return LabelledPair("a sliver, within", one.a, one.b, True, why, 2.0**-11, one.low, one.high)


def _ulp(tolerance: float | None) -> LabelledPair:
    net = _net()
    (V, W, U), biases = net.weights, list(net.biases)
    biases[-1] = np.nextafter(biases[-1], np.inf)
    name, why = "one ulp", "an output bias is one unit in the last place larger"
    if tolerance is None:
        return LabelledPair(f"{name}, up to rounding", net, _chain([V, W, U], biases), True, why, None)
    return LabelledPair(name, net, _chain([V, W, U], biases), False, why, 0.0, at=(0.0, 0.0))


def _corner(name: str, margin: float | None = None) -> LabelledPair:
    """The second output is lifted by ``16 relu(x + y - 15/8)``, which is positive in a corner of the square only.

    There the first one, ``x + 1``, is ahead of ``y`` by 9/8 at most.
    """
    identity = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
    bias = np.array([0.0, 0.0, 0.0, 0.0, -1.875])
    out = np.array([[1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0, 0.0]])
    lifted = out.copy()
    lifted[1, 4] = 16.0
    a, b = (_chain([identity, rows], [bias, np.array([1.0, 0.0])]) for rows in (out, lifted))
    low, high = _cube(2)
    why = "near the corner (1, 1) the second class wins in b, and nowhere else is anything changed"
    if margin:
        return LabelledPair(name, a, b, True, f"{why}; a is ahead by less there", None, low, high, None, margin)
    return LabelledPair(name, a, b, False, why, 0.5 if margin is None else None, low, high, (1.0, 1.0), margin)


def formula(clauses: Sequence[Sequence[int]], variables: int) -> Network:
    """A network that is zero on the unit cube if and only if a formula in conjunctive normal form has no solution.

    Literals are ``k`` and ``-k`` for variables 1 to n. With ``d_i = min(x_i, 1 - x_i)`` and ``K`` the largest number of
    clauses that a variable is in, the output is ``relu(sum_c min(1, sum of literals) - m + 1/2 - K sum_i d_i)``. It is
    1/2 at a solution. At a point next to an assignment that leaves a clause open, that clause counts at most the sum
    of its ``d_i``, so that the argument is at most ``-1/2``.

    >>> float(formula([[1, 2], [-1]], 2)(np.array([[0.0, 1.0]]))[0, 0])
    0.5
    """
    m, n = len(clauses), variables
    most = max(sum(any(abs(l) == k for l in clause) for clause in clauses) for k in range(1, n + 1))
    rows, bias = np.zeros((m + n, n)), np.zeros(m + n)
    for c, clause in enumerate(clauses):  # relu(1 - sum of literals) = 1 - min(1, sum)
        bias[c] = 1.0
        for l in clause:
            rows[c, abs(l) - 1] -= np.sign(l)
            bias[c] -= 1.0 if l < 0 else 0.0
    for i in range(n):  # x - relu(2 x - 1) = min(x, 1 - x)
        rows[m + i, i], bias[m + i] = 2.0, -1.0
    lift = np.vstack([rows, np.eye(n)])  # x itself, which is not negative on the cube
    total = np.concatenate([-np.ones(m), np.full(n, float(most)), np.full(n, -float(most))])
    return _chain(
        [lift, total[None], np.array([[1.0]])], [np.concatenate([bias, np.zeros(n)]), np.array([0.5]), np.zeros(1)]
    )


def _formula(name: str, clauses: Sequence[Sequence[int]], n: int, solution: Sequence[float] | None) -> LabelledPair:
    zero = Network([np.zeros((1, n))], [[0.0]])
    low, high = _cube(n, 0.0, 1.0)
    why = "a formula without a solution" if solution is None else "a formula with a solution, where the output is 1/2"
    at = None if solution is None else tuple(solution)
    return LabelledPair(name, formula(clauses, n), zero, solution is None, why, 0.0, low, high, at)


_PARITY = [[1, 2, 3], [1, -2, -3], [-1, 2, -3], [-1, -2, 3]]
"""``x1 + x2 + x3`` is odd."""

PAIRS: dict[str, Callable[[], LabelledPair]] = {
    "permuted": _permuted,
    "rescaled": _rescaled,
    "batch norm folded": _folded,
    "channels permuted": _channels,
    "idle parts": _idle,
    "fused": _fused,
    "unrolled": _unrolled,
    "residual, permuted": lambda: _residual(True),
    "split": _split,
    "merged": _merged,
    "dead": _dead,
    "pruned": _pruned,
    "a weight changed": _pruned_away,
    "float16 weights": lambda: _stored("float16"),
    "bfloat16 weights": lambda: _stored("bfloat16"),
    "int8 weights": lambda: _stored("int8"),
    "float16 weights, exactly": _float16_exactly,
    "max trees": _trees,
    "equal on the box": _on_the_box,
    "equal on a smaller box": _beyond_the_box,
    "a flat box": _flat,
    "a sliver": _sliver,
    "a sliver, within": _sliver_within,
    "one ulp": lambda: _ulp(0.0),
    "one ulp, up to rounding": lambda: _ulp(None),
    "values in a corner": lambda: _corner("values in a corner"),
    "a class in a corner": lambda: _corner("a class in a corner", 0.0),
    "a class in a corner, where a is sure": lambda: _corner("a class in a corner, where a is sure", 1.5),
    "no solution": lambda: _formula("no solution", [[1, 2], [1, -2], [-1, 2], [-1, -2]], 2, None),
    "no solution, parity": lambda: _formula(
        "no solution, parity", [*_PARITY, *([-l for l in clause] for clause in _PARITY)], 3, None
    ),
    "a solution, parity": lambda: _formula("a solution, parity", _PARITY, 3, (1.0, 1.0, 1.0)),
}
"""Every pair by name; a call builds it."""


def pair(name: str) -> LabelledPair:
    """The pair of that name in :data:`PAIRS`."""
    if name not in PAIRS:
        raise InputError(f"pair: expected one of {', '.join(PAIRS)}, got {name!r}")
    return PAIRS[name]()
