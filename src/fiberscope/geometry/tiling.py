r"""Counting in pieces: boxes and planes whose regions do not fit into memory, or are to be counted by many processes.

A region that a cut divides is counted on both sides of it. Regions are convex, so for every box and every cut through
it

.. math:: N(\text{box}) = N(\text{below}) + N(\text{above}) - N(\text{cut}),

where ``N`` of a flat box counts the regions *of the whole space* that meet it. A cut may run along a fold: what it
meets there is the wall between two regions and no region itself, which is decided exactly. Flat boxes are cut by the
same formula when they are too large themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from fiberscope.backends import Backend, choose_backend, outcomes
from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError
from fiberscope.geometry.affine_forms import ExactRegion, batches
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Segment
from fiberscope.geometry.domains import Box, View, view_of
from fiberscope.geometry.engines.choose import NumRegions, cells_on, count_on
from fiberscope.geometry.engines.limits import ADVICE, FACES
from fiberscope.geometry.engines.traversal.engine import visit
from fiberscope.geometry.verify import Certificate, Check
from fiberscope.network.network import Network
from fiberscope.network.walk import affine_start, boundary, choices_of, switches
from fiberscope.numerics.algebra.bounded import BOUNDED_ROWS
from fiberscope.numerics.floats import BoolArray, FloatArray, SignArray
from fiberscope.results import Result, hidden
from fiberscope.run import ENDLESS, STOPPED, Progress, Run

PLACE = 0.4883
"""Where a box is cut, as a part of its side: nowhere that people put folds on purpose."""

PORTION = 4
"""Pieces for every place of a backend: so that none waits long for the last one."""

MOST = 1 << 16
"""More pieces than this are not made: what does not fit then is refused."""

MOST_AT_ONCE = 1 << 10
"""Pieces that one box is cut into, however much too large it is."""

Cut = tuple[int, float]
"""The coordinate that is cut, and where."""


class Span(NamedTuple):
    """``low <= x <= high``; flat where both are the same, a single point where they are everywhere."""

    low: FloatArray
    high: FloatArray

    @property
    def free(self) -> BoolArray:
        """Coordinates in which it is not flat."""
        return np.asarray(self.low < self.high)


class Counted(NamedTuple):
    """What became of a piece: its number of regions, or None if it is too large, by so many times, or was stopped.

    With the signs of the regions and points inside of them where these are asked for.
    """

    regions: int | None
    times: float = 0.0
    text: str = ""
    signs: SignArray | None = None
    points: FloatArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """One box that is counted, with all that a worker needs for it."""

    key: str
    net: Network
    span: Span
    seconds: float
    most: int


class Node:
    """A box of the tree of cuts: counted as a whole, or cut into what is below, above, and the cut between them."""

    __slots__ = ("cut", "found", "parts", "span")

    def __init__(self, span: Span) -> None:
        self.span, self.found = span, Counted(None)
        self.cut: Cut | None = None
        self.parts: tuple[Node, ...] = ()

    def split(self, whole: Box, pieces: float = 2.0) -> None:
        """Cut the side that is longest, measured by the side of the whole; again and again into so many pieces."""
        low, high = self.span
        axis = int(np.argmax((high / 2 - low / 2) / (whole.high / 2 - whole.low / 2)))
        at = float(low[axis] * (1 - PLACE) + high[axis] * PLACE)
        if not low[axis] < at < high[axis]:
            raise TooLargeError(f"{whole}: too many regions at {low.tolist()}, where no float is left for a cut")
        self.cut, self.parts = (axis, at), tuple(Node(part) for part in parts_of(self.span, (axis, at)))
        if pieces > 2:
            for part in self.parts[:2]:
                part.split(whole, pieces / 2)

    def leaves(self) -> Iterator[Node]:
        """The boxes that are counted, in the order of the tree."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def cuts(self) -> Iterator[Cut | None]:
        """The cuts of all boxes in the order of the tree, None for one that is counted."""
        yield self.cut
        for part in self.parts:
            yield from part.cuts()

    def is_inside(self) -> bool:
        """Whether every cut runs through its own box."""
        if self.cut is None:
            return True
        axis, at = self.cut
        return bool(self.span.low[axis] < at < self.span.high[axis]) and all(part.is_inside() for part in self.parts)

    def count(self) -> tuple[int, bool]:
        """So many regions, or at least so many if that is not complete."""
        if not self.parts:
            return self.found.regions or 0, self.found.regions is not None
        (below, whole), (above, also), (cut, sure) = (part.count() for part in self.parts)
        return max(below, above, below + above - cut if sure else 0), whole and also and sure


def parts_of(span: Span, cut: Cut) -> tuple[Span, Span, Span]:
    """Below, above, and what is flat between them."""
    axis, at = cut
    place = np.arange(len(span.low)) == axis
    low, high = np.where(place, at, span.low), np.where(place, at, span.high)
    return Span(span.low, high), Span(low, span.high), Span(low, high)


@dataclass(frozen=True, slots=True)
class Tiling(Result):
    """The evidence of a count in pieces: the tree of cuts, and the number of regions of every tile.

    ``cuts`` are the boxes of the tree, each followed by what is below, above and in its cut, with None for one that was
    counted; ``counts`` those of the latter, in the same order.
    """

    net: Network = field(repr=False, metadata=hidden())
    box: Box
    num_regions: int
    complete: bool
    cuts: tuple[Cut | None, ...] = field(repr=False)
    counts: tuple[int | None, ...] = field(repr=False)

    told = ("num_pieces",)

    @property
    def num_pieces(self) -> int:
        """Boxes of full dimension that were counted."""
        return len(self.boxes())

    def boxes(self) -> list[Box]:
        """The boxes of full dimension, made anew from the cuts; they share walls and fill the box."""
        return [Box(*node.span) for node in self._tree().leaves() if node.span.free.all()]

    def verify(
        self, progress: Progress | None = None, time_limit: float | None = None, recount: int = 3
    ) -> Certificate:
        """Put the pieces together again, and count the ``recount`` smallest of full dimension one region at a time.

        The second engine visits regions from neighbour to neighbour and shares no decision with the first. It does not
        take max pooling: there nothing is counted again, and the certificate stays undecided.
        """
        run = Run.begin(progress, time_limit)
        tree = self._tree()
        leaves = list(tree.leaves())
        for leaf, count in zip(leaves, self.counts, strict=True):
            leaf.found = Counted(count)
        fits = tree.is_inside() and tree.count() == (self.num_regions, self.complete)
        checks = [Check("sum", fits, None, None, f"{len(leaves)} pieces put together again")]
        solid = [leaf for leaf in leaves if leaf.span.free.all() and leaf.found.regions is not None]
        small = sorted(solid, key=lambda leaf: leaf.found.regions or 0)[:recount]
        done, same, why = 0, True, ""
        try:
            for done, leaf in enumerate(small):
                run.step(done, len(small), "counted again")
                again = visit(View(self.net, Box(*leaf.span)), 0, run.quietly())
                if not again.complete:
                    break
                same &= again.count == leaf.found.regions
            else:
                done = len(small)
        except STOPPED:
            pass
        except UnsupportedModelError as error:  # max pooling: the second engine has nothing to say
            done, why = 0, f"; {error}"
        ok = False if not same else True if done == len(small) else None
        said = f"{done} of {len(solid)} pieces, regions one by one{why}"
        checks.append(Check("counted again", ok, None, None, said))
        return Certificate(tuple(checks), self.num_regions)

    def _tree(self) -> Node:
        rest = iter(self.cuts)

        def grown(span: Span) -> Node:
            node, cut = Node(span), next(rest)
            if cut is not None:
                node.cut, node.parts = cut, tuple(grown(part) for part in parts_of(span, cut))
            return node

        return grown(Span(self.box.low, self.box.high))


def count_in_pieces(
    view: View, run: Run, jobs: int | None = 1, cluster: str | None = None, pieces: int | None = None
) -> NumRegions:
    """The regions of a view on a box, counted in at least so many pieces, and in more where one is too large.

    Out of time or interrupted, the answer is a lower bound.
    """
    backend = choose_backend(jobs, cluster)
    root, places = begin_tiles(view, backend, pieces)
    box = root_box(view)
    waiting = list(root.leaves())
    made, done = len(waiting), 0
    try:
        while waiting:
            now, waiting = waiting[-PORTION * places :], waiting[: -PORTION * places]  # what was cut last comes first
            for node in done_by(counted, view.net, now, run, backend):
                if node.found.regions is not None:
                    done += 1
                else:
                    cut_further(node, box, made)
                    waiting += node.leaves()
                    made = done + len(waiting)
                run.step(done, made, f"{done} of {made} pieces")
    except STOPPED:
        pass
    count, complete = root.count()
    tiling = Tiling(
        view.net, box, count, complete, tuple(root.cuts()), tuple(leaf.found.regions for leaf in root.leaves())
    )
    return NumRegions(count, complete, f"{tiling.num_pieces} pieces", tiling)


def root_box(view: View) -> Box:
    """The box that is cut; raises where there is none."""
    box = view.domain
    if not isinstance(box, Box):
        raise InputError(f"domain: expected a Box or a Plane, which can be cut, got {type(box).__name__}")
    if box.dimension > FACES:
        raise TooLargeError(f"domain: expected at most {FACES} dimensions, got {box.dimension}; {ADVICE}")
    return box


def begin_tiles(view: View, backend: Backend, pieces: int | None = None) -> tuple[Node, int]:
    """The tree of a box in at least so many pieces, and how many of them are done at a time."""
    box = root_box(view)
    places = backend.jobs if backend.jobs != -1 else 8
    pieces = (2 if places == 1 else PORTION * places) if pieces is None else pieces
    root = Node(Span(box.low, box.high))
    if pieces > 1:
        root.split(box, pieces)
    return root, places


def cut_further(node: Node, box: Box, made: int) -> None:
    """Cut a piece that is too large; raises :class:`KeyboardInterrupt` if it was stopped instead."""
    if made > MOST:
        raise TooLargeError(f"{box}: {node.found.text}, and that in {made} pieces")
    if not node.found.times:
        raise KeyboardInterrupt  # the time is up, or somebody pressed Ctrl-C in the middle of a piece
    node.split(box, min(node.found.times, MOST_AT_ONCE))


def done_by(
    work: Callable[[Tile], Counted], net: Network, nodes: list[Node], run: Run, backend: Backend, most: int = 0
) -> Iterator[Node]:
    """Nodes as they are done."""
    tasks = [Tile(f"{k}", net, node.span, run.seconds_left, most) for k, node in enumerate(nodes)]
    for outcome in outcomes(work, tasks, backend):
        if not outcome.final:
            continue
        if outcome.error:
            raise InputError(f"a worker failed: {outcome.error}")
        node = nodes[int(outcome.task.key)]
        node.found = outcome.value
        yield node


def counted(tile: Tile) -> Counted:
    """What a worker does: the regions that meet a box, flat or not."""
    return within_memory(tile, _counted)


def _counted(tile: Tile, run: Run) -> Counted:
    if tile.span.free.all():
        found = count_on(View(tile.net, Box(*tile.span)), 0, run)
        return Counted(int(found) if found.complete else None)
    signs = met_by(tile.net, tile.span, run)
    return Counted(int(solid(tile.net, np.unique(signs, axis=0), run).sum()))


def within_memory(tile: Tile, work: Callable[[Tile, Run], Counted]) -> Counted:
    """The result of some work, what is too large, or nothing if it was stopped."""
    run = Run.begin(time_limit=max(0.01, tile.seconds)) if isfinite(tile.seconds) else ENDLESS
    try:
        return work(tile, run)
    except (TooLargeError, MemoryError) as error:
        return Counted(None, max(2.0, getattr(error, "times", 2.0)), str(error))
    except STOPPED:
        return Counted(None)


def met_by(net: Network, span: Span, run: Run = ENDLESS) -> SignArray:
    """Sign vectors of what a flat box meets, one row or more for each."""
    if not span.free.any():
        return net.signs(span.low[None]).signs
    if span.free.sum() == 1:
        return polyline_breaks(net, Segment(*span), run).signs()
    found = cells_on(view_of(net, Box(*span)), run)
    if not found.complete:
        run.check()
        raise KeyboardInterrupt
    return found.top_signs


def solid(net: Network, signs: SignArray, run: Run = ENDLESS) -> BoolArray:
    """Which sign vectors are those of regions of full dimension: whatever vanishes there, vanishes as a function.

    Signs in front decide what a neuron is, so the question is asked layer by layer, in floats with bounds, and exactly
    where those leave it open.

    >>> net = Network([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> solid(net, np.array([[1, 0], [0, 0], [-1, 0]], dtype=np.int8)).tolist()  # the second neuron is nothing at all
    [True, False, True]
    """
    vague = (signs == 0) & ~net.linear_entries
    result: BoolArray = np.asarray(~vague.any(axis=1))
    rows = np.flatnonzero(~result)
    for part in batches(net, len(rows), run=run):
        result[rows[part]] = _flat_forms(net, signs[rows[part]], vague[rows[part]])
    return result


def _flat_forms(net: Network, signs: SignArray, vague: BoolArray) -> BoolArray:
    """Whether all ``vague`` entries are the zero function, for every row."""
    zero, left = np.ones(len(signs), dtype=bool), np.zeros(vague.shape, dtype=bool)
    choices, values = choices_of(net.layout, signs), {0: affine_start(net.in_size, signs, BOUNDED_ROWS)}
    with np.errstate(over="ignore", invalid="ignore"):
        for place in switches(net.layout, values, BOUNDED_ROWS, choices):
            columns = vague[:, place.columns]
            if not columns.any():
                continue
            form = boundary(place.node, values[place.source], BOUNDED_ROWS, choices[place.index])
            value, error = (np.broadcast_to(x, (len(signs), *x.shape[1:])) for x in (form.value, form.error))
            zero &= ~(columns & (np.abs(value) > error).any(axis=1)).any(axis=1)
            left[:, place.columns] = columns & ~((value == 0) & (error == 0)).all(axis=1)
    for row in np.flatnonzero(zero & left.any(axis=1)):
        region = ExactRegion(net, signs[row])
        zero[row] = all((region.margin(int(entry)) == 0).all() for entry in np.flatnonzero(left[row]))
    return zero
