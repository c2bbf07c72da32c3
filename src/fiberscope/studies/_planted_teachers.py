"""Teachers of known dimension on a box: full, or with something planted that makes them smaller."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import NotGenericError
from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._near_members import POINTS, Directions, balanced, directions

NARROW = (2, 3, 2, 1)
BOX = Box.cube(2)
FULL = "full"
DRAWS = 400
BEYOND = 1.25
"""A planted dead or linear neuron switches this many half widths of the box away from its middle."""

ENOUGH = 0.6
"""Planted teachers keep so much of the full dimension: the others are nearly affine."""


def points(seed: int) -> FloatArray:
    """Points of the box at which everything is weighed."""
    return np.random.default_rng(seed).uniform(-1, 1, (POINTS, BOX.dimension))


def scaled(net: Network, X: FloatArray) -> Network:
    """With values of range 1 at the points, and balanced."""
    size = float(np.ptp(net(X)))
    if size == 0:
        raise NotGenericError("the function is constant at the points")
    return balanced(Network([*net.weights[:-1], net.weights[-1] / size], [*net.biases[:-1], net.biases[-1] / size]))


def planted(net: Network, kind: str, gap: float | None = None) -> Network:
    """A degenerate neighbour; ``gap`` stops short of it: a corner of the box or an angle of that size is left."""
    (A, B, C), (p, q, r) = ([x.copy() for x in part] for part in (net.weights, net.biases))
    away = BEYOND if gap is None else 1 - gap
    if kind in ("dead", "linear"):
        p[0] = (-away if kind == "dead" else away) * np.abs(A[0]).sum()
    elif kind == "twins":
        turn = 0.0 if gap is None else gap
        A[1], p[1] = A[0] + turn * A[1], p[0] + turn * p[1]
    elif kind == "hidden":
        B, q = -np.abs(B), -np.abs(q)
        B[:, 0] = -B[:, 0]
    return Network([A, B, C], [p, q, r])


def teacher(kind: str, number: int) -> tuple[Network, FloatArray, Directions]:
    """A teacher of a kind with its directions; drawn until its exact rank on the box is seen at the points too.

    The full ones have rank ``D - N``; planted ones are made of those, but for hidden hyperplanes.
    """
    X = points(number)
    for draw in range(DRAWS):
        net = Network.random(NARROW, np.random.default_rng([number, draw]))
        net = Network(net.weights, [b / 2 for b in net.biases])  # hyperplanes that meet the box
        try:
            net = scaled(net if kind == FULL else planted(net, kind), X)
        except NotGenericError:
            continue
        found = directions(net, BOX, X)
        full = net.num_parameters - net.num_hidden
        if found.seen and (found.rank == full if kind == FULL else ENOUGH * full <= found.rank < full):
            return net, X, found
    raise NotGenericError(f"no {kind} teacher in {DRAWS} draws")
