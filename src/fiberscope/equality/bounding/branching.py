"""Branch and bound over boxes: the box with the largest bound is split next, until a goal is reached or the time is up.

The bound of everything is the largest bound of an open box, so it falls while the search goes on and holds whenever it
is stopped. A box is split if and only if its bound is above the goal: the tree of a proof does not depend on the order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

import numpy as np

from fiberscope.equality.bounding.chains import Bounds
from fiberscope.equality.bounding.trees import Growing, Tree, halves, leaves
from fiberscope.errors import OutOfTimeError
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import Run

BATCH, LARGE_BATCH = 32, 256
"""Boxes that are split between two looks at the clock, and at points: an eighth of the open ones within these."""

_ROUND = 0.5
"""Seconds that the boxes between two looks at the clock may take, but for two of them."""

MOST_NODES = 4_000_000
"""Nodes of a tree after which the search stops: more do not fit into memory."""


class Bounder(Protocol):
    """Rigorous bounds of what is asked about on boxes."""

    def bounds(self, low: FloatArray, high: FloatArray) -> Bounds: ...


Look = Callable[[FloatArray], bool]
"""Is told points that may be worth a look; true when the search can stop since one of them decides."""

Exactly = Callable[[FloatArray, FloatArray], bool]
"""Whether what is asked about is exactly zero on a box on which no sign is open."""


Entry = tuple[float, int, FloatArray, FloatArray, int, int]
"""An open box: its bound with the other sign, its number in the tree, its ends, where to split it, open signs."""


class Search:
    """The open boxes of one question. ``low, high``: the box; a ``tree`` of an earlier search is gone on with."""

    def __init__(self, bounder: Bounder, low: FloatArray, high: FloatArray, tree: Tree = (None,)) -> None:
        self.bounder = bounder
        self.tree = Growing()
        self.heap: list[Entry] = []
        self.boxes = 0
        self.stuck = -np.inf
        """The largest bound of a box that cannot be split any more."""
        seconds = getattr(bounder, "seconds", 0.0)  # of a box, where nothing interrupts the work on it
        self._at_once = max(2, int(_ROUND / seconds)) if seconds else 2 * LARGE_BATCH
        self._first_points = np.zeros((0, low.size))
        numbers = self.tree.graft(0, tree)
        lows, highs = leaves(tree, low, high)
        for start in range(0, len(numbers), 4 * BATCH):
            part = slice(start, start + 4 * BATCH)
            self._add(numbers[part], lows[part], highs[part])
        self.first = self.bound
        """The bound that the search began with."""

    @property
    def bound(self) -> float:
        """Of everything: the largest one of an open box."""
        top = -self.heap[0][0] if self.heap else -np.inf
        return float(max(top, self.stuck))

    def spent(self, goal: float) -> bool:
        """Whether no more can be done for a goal: what is above it cannot be split, or there is no room for more."""
        return len(self.tree.cuts) > MOST_NODES or not self.heap or not -self.heap[0][0] > goal

    def _add(self, numbers: list[int], lows: FloatArray, highs: FloatArray) -> FloatArray:
        found = self.bounder.bounds(lows, highs)
        self.boxes += len(numbers)
        rows = zip(numbers, found.high.tolist(), found.dimension.tolist(), found.opened.tolist(), strict=True)
        for k, (node, high, d, opened) in enumerate(rows):
            bound = high if high <= np.inf else np.inf  # not a number: no bound
            heapq.heappush(self.heap, (-bound, node, lows[k], highs[k], d, opened))
        self._first_points = found.points
        return found.points

    def go(
        self,
        goal: float,
        run: Run,
        look: Look | None = None,
        exactly: Exactly | None = None,
        most: int | None = None,
    ) -> bool:
        """Split until the bound is at most ``goal`` (true), or ``look`` says to stop, or the time is up (false).

        ``goal`` is fixed: boxes at or below it stay leaves. ``most``: boxes after which to stop.
        """
        if look is not None and look(self._first_points):
            return False
        while not self.bound <= goal:
            if most is not None and self.boxes >= most:
                return False
            if run.is_over or self.spent(goal):
                return False
            try:
                points = self._round(goal, exactly)
            except OutOfTimeError:
                return False
            run.report(self.boxes, None, f"bound {self.bound:.4g}, {len(self.heap)} boxes open")
            if look is not None and len(points) and look(points):
                return False
        return True

    def take(self, count: int, goal: float, exactly: Exactly | None = None) -> list[Entry]:
        """The open boxes with the largest bounds, which are now somebody else's; to be given back with :meth:`put`."""
        taken: list[Entry] = []
        while self.heap and len(taken) < count and -self.heap[0][0] > goal:
            entry = heapq.heappop(self.heap)
            if not self._settled(entry, exactly):
                taken.append(entry)
        return taken

    def put(
        self,
        node: int,
        low: FloatArray,
        high: FloatArray,
        tree: Tree,
        bounds: FloatArray,
        dimensions: IntArray,
        opened: IntArray,
    ) -> None:
        """A tree in the place of a box that was taken, with what is known of its leaves."""
        numbers = self.tree.graft(node, tree)
        lows, highs = leaves(tree, low, high)
        rows = zip(bounds.tolist(), numbers, lows, highs, dimensions.tolist(), opened.tolist(), strict=True)
        for bound, number, bottom, top, d, count in rows:
            heapq.heappush(self.heap, (-bound, number, bottom, top, d, count))

    def _settled(self, entry: Entry, exactly: Exactly | None) -> bool:
        """Whether a box is exactly zero, or cannot be split."""
        bound, _, low, high, d, opened = entry
        if opened == 0 and exactly is not None and exactly(low, high):
            return True
        if d < 0:
            self.stuck = max(self.stuck, -bound)
            return True
        return False

    def _round(self, goal: float, exactly: Exactly | None) -> FloatArray:
        """Split the boxes with the largest bounds; the points that their parts propose.

        Where the time is up on the way, parts that were not bounded stay open with the bound of the whole.
        """
        numbers: list[int] = []
        lows: list[FloatArray] = []
        highs: list[FloatArray] = []
        wholes: list[Entry] = []
        most = min(2 * min(max(BATCH, len(self.heap) // 8), LARGE_BATCH), self._at_once)
        entry: Entry | None = None
        try:
            while self.heap and len(numbers) < most and -self.heap[0][0] > goal:
                entry = heapq.heappop(self.heap)
                if self._settled(entry, exactly):
                    entry = None
                    continue
                _, node, low, high, d, _ = entry
                cut = (d, float(0.5 * low[d] + 0.5 * high[d]))
                first = self.tree.split(node, cut)
                numbers += [first, first + 1]
                for bottom, top in halves(low, high, *cut):
                    lows.append(bottom)
                    highs.append(top)
                wholes.append(entry)
            if not numbers:
                return np.zeros((0, self._first_points.shape[1]))
            return self._add(numbers, np.array(lows), np.array(highs))
        except OutOfTimeError:
            if entry is not None and not (wholes and wholes[-1] is entry):
                heapq.heappush(self.heap, entry)
            for k, number in enumerate(numbers):
                bound, _, _, _, d, opened = wholes[k // 2]
                heapq.heappush(self.heap, (bound, number, lows[k], highs[k], d, opened))
            raise
