"""The one walk over a program, forward and backward, in every algebra.

Values stand in a dictionary under their numbers, the input under 0. Forward, a switch either lets the values decide, as
evaluation does, or does what it is told: *choices* say for every switch which piece is taken, the active neurons of an
activation, the winner of every pooling window. They come from sign vectors, one for all or one for each of the first
rows of the batch, so that a point, a batch of points and the affine maps of many cells are the same walk. Backward goes
from derivatives with respect to any values to derivatives with respect to those before.

Whoever has something to do in between follows the walk node by node; see :func:`walk`. A kind of node that is forgotten
here is a type error.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, assert_never

import numpy as np

from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear, Smooth, Switch
from fiberscope.numerics.algebra.ball import EXACT_ROWS, nearest_floats
from fiberscope.numerics.algebra.base import Algebra, Evaluation, picked
from fiberscope.numerics.algebra.floating import FLOAT_ROWS
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout, Place

V = TypeVar("V")

Choices = Mapping[int, Any]
"""For switches, by their numbers among the nodes, which piece is taken: see ``chosen`` of the nodes."""


def choices_of(layout: Layout, signs: SignArray) -> Choices:
    """What all switches do under sign vectors ``(..., num_signs)``; a zero takes the negative side, as torch does."""
    return {place.index: place.node.chosen(signs[..., place.columns]) for place in layout.places}


# -- forward -----------------------------------------------------------------------------------------------------------


def walk(
    layout: Layout,
    values: dict[int, V],
    algebra: Evaluation[V],
    choices: Choices | None = None,
    *,
    first: int = 0,
    keep: Container[int] = (),
) -> Iterator[int]:
    """Fill in the values from node ``first`` on; gives the number of every node *before* its value is computed.

    There the caller may look at the values, refine all of them, add choices, or put the value of the node in place by
    itself; it may also stop and go on later from the same node. A value is let go after its last use, but for those to
    ``keep``.
    The result of a composite node is computed directly where that is possible, and its parts all the same; who puts a
    value in place inside of it gets the result that follows from that value.

    >>> from fiberscope.network.network import Network
    >>> from fiberscope.numerics.algebra.floating import FLOAT
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> values = {0: np.array([[-3.0]])}
    >>> next(index for index in walk(net.layout, values, FLOAT) if index in net.layout.of_node)
    1
    >>> values  # in front of the first switch
    {1: array([[-3.,  3.]])}
    """
    for index in range(first, len(layout.nodes)):
        yield index
        if index + 1 in values and index in layout.results:
            values.pop(layout.results[index], None)  # computed directly, from other values than these
        elif index in layout.detours and isinstance(algebra, Algebra):
            _shorten(layout, values, algebra, choices, index)
        node = layout.nodes[index]
        if index + 1 not in values:
            values[index + 1] = step(node, values, algebra, None if choices is None else choices.get(index))
        for value in layout.released[index]:
            if value not in keep:
                values.pop(value, None)


def _shorten(
    layout: Layout, values: dict[int, Any], algebra: Algebra[Any], choices: Choices | None, index: int
) -> None:
    """Put the result of a composite node in place where it is known what its switches do, or the values decide."""
    detour = layout.detours[index]
    taken = None
    if choices is not None:
        taken = [choices.get(k) for k in range(index, detour.last + 1) if k in layout.of_node]
        if any(choice is None for choice in taken):
            return  # to be said on the way
    result = detour.node.direct(values[detour.source], algebra, taken)
    if result is not None:
        values[detour.last + 1] = result


def step(node: Node, values: Mapping[int, V] | Sequence[V], algebra: Evaluation[V], choice: Any = None) -> V:
    """The value of one node; a switch does what ``choice`` says, or lets the value decide where it is None."""
    if isinstance(node, Switch):
        return cross(node, values[node.source], algebra, choice)
    return smooth(node, values, algebra)


def smooth(node: Smooth, values: Mapping[int, V] | Sequence[V], algebra: Evaluation[V]) -> V:
    """The value of a node without a kink."""
    match node:
        case Affine():
            return algebra.affine(node.operator, node.offset, values[node.source])
        case Add():
            return algebra.add([values[s] for s in node.sources])
        case Concat():
            return algebra.concat([values[s] for s in node.sources], node.order)
        case _:
            assert_never(node)


def cross(node: Switch, value: V, algebra: Evaluation[V], choice: Any = None) -> V:
    """The value behind a switch."""
    if choice is not None:
        assert isinstance(algebra, Algebra)
        passed: V = _passed(node, value, algebra, choice)
        return passed
    match node:
        case PiecewiseLinear():
            return algebra.piecewise(value, node.slopes)
        case MaxPool():
            return algebra.window_max(value, node.windows)
        case _:
            assert_never(node)


def _passed(node: Switch, value: V, algebra: Algebra[V], choice: Any) -> V:
    match node:
        case PiecewiseLinear():
            return algebra.gate(value, choice, node.leak)
        case MaxPool():
            return algebra.pick(value, choice)
        case _:
            assert_never(node)


def compared(node: Switch, value: V, algebra: Algebra[V]) -> V:
    """What the signs of a switch are those of: preactivations; for pooling the margin of every input of a window."""
    match node:
        case PiecewiseLinear():
            return value
        case MaxPool():
            return algebra.window_margins(value, node.windows)
        case _:
            assert_never(node)


def decided(node: Switch, value: V, algebra: Algebra[V]) -> Any:
    """What a switch does when the value in front of it decides, as :meth:`chosen` says it."""
    match node:
        case PiecewiseLinear():
            return algebra.active(value)
        case MaxPool():
            return algebra.winners(value, node.windows)
        case _:
            assert_never(node)


def output(layout: Layout, start: V, algebra: Evaluation[V], choices: Choices | None = None) -> V:
    """The output alone; every value is let go after its last use, so that deep networks need little memory."""
    values = {0: start}
    for _ in walk(layout, values, algebra, choices):
        pass
    return values[len(layout.nodes)]


def all_values(layout: Layout, start: V, algebra: Evaluation[V], choices: Choices | None = None) -> list[V]:
    """All values in order, the input first."""
    values = {0: start}
    for _ in walk(layout, values, algebra, choices, keep=range(len(layout.nodes))):
        pass
    return [values[k] for k in range(len(values))]


def switches(
    layout: Layout,
    values: dict[int, V],
    algebra: Evaluation[V],
    choices: Choices | None = None,
    *,
    first: int = 0,
    keep: Container[int] = (),
    to_end: bool = False,
) -> Iterator[Place]:
    """The walk from switch to switch: each is given when the value in front of it is known.

    Not further than to the last switch, unless ``to_end``: what signs and boundaries are does not depend on what comes
    behind.
    """
    for index in walk(layout, values, algebra, choices, first=first, keep=keep):
        place = layout.of_node.get(index)
        if place is not None:
            yield place
            if place is layout.places[-1] and not to_end:
                return


def switch_values(layout: Layout, start: V, algebra: Algebra[V]) -> list[V]:
    """What the signs of all switches are those of, in order; see :func:`compared`."""
    values = {0: start}
    return [compared(place.node, values[place.source], algebra) for place in switches(layout, values, algebra)]


def cuts(node: Switch, value: V, algebra: Algebra[V]) -> V:
    """The functions of which a switch cuts regions: preactivations; for pooling ``x_i - x_j`` for all its ``pairs``."""
    match node:
        case PiecewiseLinear():
            return value
        case MaxPool():
            one, other = (algebra.pick(value, index) for index in node.pairs.T)
            return algebra.difference(one, other)
        case _:
            assert_never(node)


def boundary(node: Switch, value: V, algebra: Algebra[V], choice: Any, entries: IntArray | None = None) -> V:
    """What vanishes where a region ends, for some entries of a switch that does what ``choice`` says (default all).

    Preactivations; for pooling every input of a window minus the one that wins. ``entries`` are counted from the
    switch's own first one, ``(k,)`` for all or ``(cells, k)``. Entries of padding give no meaning.
    """
    match node:
        case PiecewiseLinear():
            return value if entries is None else algebra.pick(value, entries)
        case MaxPool():
            own = np.arange(node.num_signs) if entries is None else entries
            inputs = np.maximum(node.windows, 0).reshape(-1)[own]
            best = picked(choice, own // node.window_size)
            return algebra.difference(algebra.pick(value, inputs), algebra.pick(value, best))
        case _:
            assert_never(node)


def boundary_seeds(node: Switch, size: int, choice: Any, entries: IntArray) -> FloatArray:
    """The derivatives of :func:`boundary` with respect to the ``size`` features in front of it, to go back from.

    One entry for each row of ``choice``; ``(rows, size)``.
    """
    rows = np.arange(len(entries))
    delta = np.zeros((len(entries), size))
    match node:
        case PiecewiseLinear():
            delta[rows, entries] = 1.0
        case MaxPool():
            delta[rows, node.windows.reshape(-1)[entries]] += 1.0
            delta[rows, choice[rows, entries // node.window_size]] -= 1.0
        case _:
            assert_never(node)
    return delta


def boundaries(
    layout: Layout,
    values: dict[int, V],
    algebra: Algebra[V],
    choices: Choices,
    *,
    first: int = 0,
    given: bool = True,
) -> V:
    """What vanishes on the boundaries of regions, for all switches from node ``first`` on, side by side.

    ``choices`` say what the switches do on the regions; unless ``given`` the values decide on the way.

    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 2.0], [0.0]])
    >>> start = affine_start(1, np.array([1, 1]), FLOAT_ROWS)
    >>> boundaries(net.layout, {0: start}, FLOAT_ROWS, choices_of(net.layout, np.array([1, 1])))
    array([[ 1., -1.],
           [ 0.,  2.]])
    """
    found = [algebra.pick(values[max(values)], np.zeros(0, dtype=np.int64))]
    for place in switches(layout, values, algebra, choices if given else None, first=first):
        found.append(boundary(place.node, values[place.source], algebra, choices[place.index]))
    return algebra.concat(found, None)


def affine_start(size: int, signs: SignArray, algebra: Algebra[V]) -> V:
    """The input of ``size`` entries as an affine function of itself: where :func:`affine_values` begins."""
    unit = np.eye(size + 1, size)
    return algebra.take(unit if signs.ndim == 1 else unit[None])


def affine_values(layout: Layout, size: int, signs: SignArray, algebra: Algebra[V]) -> list[V]:
    """Every value as an affine function of the input of ``size`` entries, with the signs held fixed.

    In an algebra of rows (``FLOAT_ROWS``, ``BOUNDED_ROWS``, ``EXACT_ROWS``). For one sign vector value ``k`` comes as
    ``(size + 1, features)``, a row for each input coordinate and last the constant term; for ``(cells, num_signs)`` as
    ``(cells, size + 1, features)``, where one block stands for all cells in front of the first switch.
    """
    return all_values(layout, affine_start(size, signs, algebra), algebra, choices_of(layout, signs))


def affine_result(layout: Layout, size: int, signs: SignArray, algebra: Algebra[V]) -> V:
    """The last of :func:`affine_values` alone."""
    return output(layout, affine_start(size, signs, algebra), algebra, choices_of(layout, signs))


def affine_output(layout: Layout, size: int, signs: SignArray) -> FloatArray:
    """The output for one sign vector as in :func:`affine_values`, ``(size + 1, out)``, in float64.

    Where a number on the way leaves the range of floats, it is computed exactly and rounded once: a coefficient is
    infinite only if it is itself beyond that range, and never NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rows: FloatArray = affine_result(layout, size, signs, FLOAT_ROWS)
    if np.isfinite(rows).all():
        return rows
    with EXACT_ROWS.working():
        return nearest_floats(np.asarray(affine_result(layout, size, signs, EXACT_ROWS)))


# -- a record of the way, and the way back -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Journey(Generic[V]):
    """A walk with all that derivatives need: values, the input of every stage of affine nodes, what switches did."""

    values: dict[int, V]
    inputs: dict[int, list[V]]
    choices: Choices


def traced(layout: Layout, start: V, algebra: Algebra[V], choices: Choices | None = None) -> Journey[V]:
    """The walk with its record; without choices the values decide, which only algebras with an order can."""
    values = {0: start}
    inputs: dict[int, list[V]] = {}
    taken: dict[int, Any] = dict(choices or {})
    for index in walk(layout, values, algebra, taken, keep=range(len(layout.nodes))):
        node = layout.nodes[index]
        if isinstance(node, Affine):
            inputs[index] = []
            value = values[node.source]
            for stage in node.operator.stages():
                inputs[index].append(value)
                value = algebra.apply(stage, value)
            values[index + 1] = value if node.offset is None else algebra.shift(value, node.offset)
        elif isinstance(node, Switch) and index not in taken:
            taken[index] = decided(node, values[node.source], algebra)
    return Journey(values, inputs, taken)


class Behind(NamedTuple, Generic[V]):
    """A derivative with respect to a value; for the values of affine nodes also behind each of their stages."""

    value: int
    stage: int
    delta: V


def backward(
    layout: Layout, choices: Choices, deltas: Mapping[int, V], algebra: Algebra[V], first: int = 0
) -> Iterator[Behind[V]]:
    """Derivatives with respect to all values from ``first`` on, the last value first, each when it is complete.

    ``deltas`` are those of functions with respect to some values, ``(..., features)``, from which all others follow.
    Values that no function depends on do not occur. Of an affine node the derivative behind its last stage is the one
    with respect to its value; those behind the stages before it follow.

    >>> from fiberscope.network.network import Network
    >>> from fiberscope.numerics.algebra.floating import FLOAT
    >>> net = Network([[[1.0], [-2.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> choices = choices_of(net.layout, np.array([1, 1]))
    >>> [(at.value, at.delta.tolist()) for at in backward(net.layout, choices, {3: np.eye(1)}, FLOAT)]
    [(3, [[1.0]]), (2, [[1.0, 1.0]]), (1, [[1.0, 1.0]]), (0, [[-1.0]])]
    """
    waiting: dict[int, list[V]] = {value: [delta] for value, delta in deltas.items()}
    for value in range(len(layout.nodes), first - 1, -1):
        parts = waiting.pop(value, None)
        if parts is None:
            continue
        delta = parts[0] if len(parts) == 1 else algebra.add(parts)
        if value == 0:
            yield Behind(0, 0, delta)
            return
        node = layout.nodes[value - 1]
        back: list[V]
        if isinstance(node, Affine):
            stages = node.operator.stages()
            for k in range(len(stages) - 1, -1, -1):
                yield Behind(value, k, delta)
                if k > 0 or node.source >= first:
                    delta = algebra.adjoint(stages[k], delta)
            back = [delta]
        else:
            yield Behind(value, 0, delta)
            back = _before(node, choices.get(value - 1), delta, algebra)
        for source, part in zip(node.sources, back, strict=True):
            if source >= first:
                waiting.setdefault(source, []).append(part)


def _before(node: Switch | Add | Concat, choice: Any, delta: V, algebra: Algebra[V]) -> list[V]:
    """Derivatives with respect to the sources of a node that is not affine."""
    match node:
        case PiecewiseLinear():
            return [algebra.gate(delta, choice, node.leak)]
        case MaxPool():
            return [algebra.scatter(delta, choice, prod(node.in_shape))]
        case Add():
            return [delta] * len(node.sources)
        case Concat():
            return algebra.split(delta, node.order, [prod(shape) for shape in node.shapes])
        case _:
            assert_never(node)
