"""Regions by traversal against the obvious way, one linear program per neuron and region; and estimating against it."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog

from fiberscope.geometry.domains import Box
from fiberscope.geometry.engines.traversal.engine import count_by_traversal
from fiberscope.geometry.engines.traversal.estimate import estimate_regions
from fiberscope.network.network import Network
from harness import Case


def network(widths: tuple[int, ...]) -> Network:
    """He-normal weights and biases, rounded to float32."""
    rng = np.random.default_rng(0)
    weights, biases = [], []
    for m, n in pairwise(widths):
        weights.append(rng.normal(0, np.sqrt(2 / m), (n, m)).astype(np.float32).astype(np.float64))
        biases.append(rng.normal(0, np.sqrt(2 / m), n).astype(np.float32).astype(np.float64))
    return Network(weights, biases)


def halfspaces(net: Network, pattern: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The cell of an activation pattern as ``A x <= b``."""
    signs = np.where(pattern, 1.0, -1.0)
    matrix, offset, rows, start = np.eye(net.in_size), np.zeros(net.in_size), [], 0
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        matrix, offset = weight @ matrix, weight @ offset + bias
        own = signs[start : start + len(bias)]
        rows.append(-own[:, None] * np.column_stack([matrix, -offset]))
        matrix, offset = (own > 0)[:, None] * matrix, (own > 0) * offset
        start += len(bias)
    table = np.concatenate(rows)
    return table[:, :-1], table[:, -1]


def by_programs(net: Network, limit: int | None = None) -> int:
    """Breadth-first search on ``[-1, 1]^n``: neuron k is a facet if its row, moved out by one, is met by the cell."""
    first = tuple(np.concatenate([z[0] > 0 for z in net.preactivations(np.full((1, net.in_size), 0.123))]).tolist())
    seen, queue = {first}, deque([first])
    while queue and (limit is None or len(seen) < limit):
        pattern = queue.popleft()
        A, b = halfspaces(net, pattern)
        for k in range(len(b)):
            relaxed = b.copy()
            relaxed[k] += 1.0
            found = linprog(-A[k], A_ub=A, b_ub=relaxed, bounds=(-1, 1), method="highs-ds")
            if found.status == 0 and -found.fun > b[k] + 1e-9:
                neighbour = (*pattern[:k], not pattern[k], *pattern[k + 1 :])
                if neighbour not in seen:
                    seen.add(neighbour)
                    queue.append(neighbour)
    return len(seen) if limit is None else min(limit, len(seen))


def counting_case(widths: tuple[int, ...], limit: int | None, quick: bool) -> Case:
    net = network(widths)
    box = Box.cube(widths[0])
    return Case(
        method="regions by traversal, against one linear program per neuron",
        network=net.architecture + ("" if limit is None else f", the first {limit}"),
        ours=lambda: count_by_traversal(net, box, limit=limit).count,
        reference=lambda: by_programs(net, limit),
        quick=quick,
    )


def estimate_case() -> Case:
    net = network((5, 16, 16, 1))
    box = Box.cube(5)
    return Case(
        method="estimating the number of regions, against counting",
        network=net.architecture,
        ours=lambda: estimate_regions(net, box, samples=1000, points=0, chords=0),
        reference=lambda: count_by_traversal(net, box).count,
        agree=lambda found, count: bool(abs(found.value - count) < 5 * found.standard_error),
        quick=False,
    )


def cases() -> list[Case]:
    return [
        counting_case((3, 6, 6, 1), None, quick=True),
        counting_case((3, 16, 16, 1), 200, quick=False),
        counting_case((6, 16, 16, 1), 300, quick=False),
        counting_case((8, 64, 64, 4), 500, quick=False),
        estimate_case(),
    ]
