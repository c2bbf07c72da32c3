"""The plain way to find a network's regions on a square: split polygons one by one, neuron by neuron, in floats.

Slow and obvious, without shared vertices and without certainty: a vertex within ``1e-12`` of a line counts as on it.
"""

from __future__ import annotations

import numpy as np

Polygon = list[tuple[float, float]]


def split(polygon: Polygon, line: np.ndarray) -> tuple[Polygon, Polygon]:
    """The parts where ``a x + b y + c`` is positive and negative; one of them is empty if the line misses."""
    a, b, c = line.tolist()
    values = [a * x + b * y + c for x, y in polygon]
    if min(values) > -1e-12:
        return polygon, []
    if max(values) < 1e-12:
        return [], polygon
    above: Polygon = []
    below: Polygon = []
    for k, (x, y) in enumerate(polygon):
        u, v = polygon[(k + 1) % len(polygon)]
        here, there = values[k], values[(k + 1) % len(polygon)]
        if here >= 0:
            above.append((x, y))
        if here <= 0:
            below.append((x, y))
        if here * there < 0:
            t = here / (here - there)
            point = (x + t * (u - x), y + t * (v - y))
            above.append(point)
            below.append(point)
    return above, below


def regions(weights: list[np.ndarray], biases: list[np.ndarray]) -> list[tuple[Polygon, np.ndarray]]:
    """Regions of a ReLU chain on [-1, 1]^2, each with the affine map ``(n, 3)`` of its last hidden layer."""
    square = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
    cells: list[tuple[Polygon, np.ndarray]] = [(square, np.eye(2, 3))]
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        finer = []
        for polygon, rows in cells:
            lines = W @ rows
            lines[:, 2] += b
            parts = [(polygon, np.zeros(len(b)))]
            for j, line in enumerate(lines):
                halves = []
                for part, mask in parts:
                    above, below = split(part, line)
                    if above:
                        active = mask.copy()
                        active[j] = 1.0
                        halves.append((above, active))
                    if below:
                        halves.append((below, mask))
                parts = halves
            finer += [(part, lines * mask[:, None]) for part, mask in parts]
        cells = finer
    return cells
