"""Distances of parameters modulo symmetry, and teachers of known dimension: what the study of approximate fibers needs.

A network is put where its orbit of rescalings has the least norm: there every neuron has as much coming in as going
out. Two such points are compared under all orders of the neurons, the best one found exactly. The distance to a fiber
is that to a member which is sought from the network itself, so it is an upper bound of the least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fiberscope.dimension.decisive import decisive_set
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.equality.largest import largest_difference
from fiberscope.equality.verdict import Interval
from fiberscope.errors import NotGenericError
from fiberscope.geometry.domains import Box
from fiberscope.network.chains import with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.rank import rank_cutoff

SWEEPS = 200
"""Of balancing, neuron by neuron; each lowers the norm."""

RATIO = 1.5
"""How close the ends of an interval of differences shall come."""

PATIENCE = 20.0
"""Seconds for one difference, which takes a fraction of one: numbers shall not depend on the machine."""

ROUNDS, TRIES = 40, 6
"""Of the search for a member: steps, and how often each may be shortened."""

DAMPED, EASED = 0.01, 10.0
"""How much the first step is damped, relative to the largest singular value, and how fast that changes."""

POINTS = 400
"""Points of the box at which functions are matched and derivatives are weighed."""


def vector(net: Network) -> FloatArray:
    """All parameters in the order of the Jacobian's columns."""
    return np.concatenate([p.ravel() for w, b in zip(net.weights, net.biases, strict=True) for p in (w, b)])


def with_vector(net: Network, values: FloatArray) -> Network:
    """The network with these parameters."""
    weights, biases, start = [], [], 0
    for w, b in zip(net.weights, net.biases, strict=True):
        weights.append(values[start : start + w.size].reshape(w.shape))
        biases.append(values[start + w.size : start + w.size + b.size])
        start += w.size + b.size
    return with_arrays(net, weights, biases)


def balanced(net: Network) -> Network:
    """The rescaling of least norm: of every neuron the row with its bias and the column behind it are equally long.

    >>> net = balanced(Network([[[3.0]], [[12.0]]], [[4.0], [1.0]]))
    >>> [float(np.round(w[0, 0], 6)) for w in net.weights]
    [4.64758, 7.745967]
    """
    W, b = [w.copy() for w in net.weights], [x.copy() for x in net.biases]
    for _ in range(SWEEPS):
        for k in range(len(W) - 1):
            into, out = np.hypot(np.linalg.norm(W[k], axis=1), b[k]), np.linalg.norm(W[k + 1], axis=0)
            both = (into > 0) & (out > 0)  # a neuron without one of them has no least point
            scale = np.sqrt(np.where(both, out, 1.0) / np.where(both, into, 1.0))
            W[k], b[k], W[k + 1] = W[k] * scale[:, None], b[k] * scale, W[k + 1] / scale
    return with_arrays(net, W, b)


def orbit_distance(a: Network, b: Network) -> float:
    """The least distance of two balanced parameters with two hidden layers under all orders of neurons."""
    (A, B, C), (p, q, r) = a.weights, a.biases
    (D, E, F), (s, t, u) = b.weights, b.biases
    best = np.inf
    mine = np.column_stack([q, C.T])
    theirs = np.column_stack([t, F.T])
    around = float(np.sum((r - u) ** 2))
    for order in permutations(range(len(p))):
        o = list(order)
        first = float(np.sum((A - D[o]) ** 2) + np.sum((p - s[o]) ** 2)) + around
        if first < best:
            left, right = np.column_stack([B, mine]), np.column_stack([E[:, o], theirs])
            cost = ((left[:, None] - right[None]) ** 2).sum(axis=2)
            best = min(best, first + float(cost[linear_sum_assignment(cost)].sum()))
    return float(np.sqrt(best))


def apart(a: Network, b: Network, box: Box) -> Interval:
    """``max |a - b|`` on the box: found at an input, and proven."""
    return largest_difference(a, b, box, RATIO, PATIENCE)


def descent(target: Network, start: Network, X: FloatArray) -> Iterator[tuple[float, Network]]:
    """Damped least squares on the values of ``target`` at ``X`` (Levenberg and Marquardt): mean error, and network.

    A step has no part in the kernel of the Jacobian, so nothing drifts along the fiber.
    """
    goal, place = target(X).ravel(), vector(start)
    rest = goal - start(X).ravel()
    damping = np.inf
    yield float(np.sqrt(np.mean(rest**2))), start
    for _ in range(ROUNDS):
        left, sizes, right = np.linalg.svd(jacobian(with_vector(start, place), X), full_matrices=False)
        damping = min(damping, DAMPED * float(sizes[0]) ** 2)
        seen = left.T @ rest
        for _ in range(TRIES):
            moved = place + (seen * sizes / (sizes**2 + damping)) @ right
            after = goal - with_vector(start, moved)(X).ravel()
            if after @ after < rest @ rest:
                break
            damping *= EASED
        else:
            return
        place, rest, damping = moved, after, damping / EASED
        yield float(np.sqrt(np.mean(rest**2))), with_vector(start, place)


def near_member(target: Network, start: Network, X: FloatArray) -> tuple[float, Network]:
    """Where the descent ends."""
    *_, last = descent(target, start, X)
    return last


def at_levels(target: Network, start: Network, X: FloatArray, levels: Sequence[float]) -> dict[float | None, Network]:
    """The first networks on the way whose mean errors are at most those levels, falling; else, under None, the last."""
    found: dict[float | None, Network] = {}
    left, net = list(levels), start
    for error, net in descent(target, start, X):
        passed = [level for level in left if error <= level]
        if passed:
            found[passed[-1]] = net
            left = [level for level in left if level < passed[-1]]
        if not left:
            break
    return found or {None: net}


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """Singular directions of the parameter, of the mean square change on the box; ``rank`` is exact there.

    Rows of ``kernel`` change no value on the box to first order, ``least`` changes them least among the others.
    """

    rank: int
    sizes: FloatArray
    kernel: FloatArray
    least: FloatArray

    @property
    def smallest(self) -> float:
        """The smallest singular value that is not zero."""
        return float(self.sizes[self.rank - 1])

    @property
    def seen(self) -> bool:
        """Whether floats see the whole rank at the points: no region is so small that it has none of them."""
        shape = (POINTS, self.kernel.shape[1])
        return self.smallest > rank_cutoff(shape, float(self.sizes[0]), np.dtype(float))


def directions(net: Network, box: Box, X: FloatArray) -> Directions:
    """Float singular vectors at points of the box, as many as the exact rank on its regions."""
    exact = functional_dimension(net, decisive_set(net, box).X, ranks=("exact",)).exact
    assert exact is not None  # a batch was given
    _, sizes, rows = np.linalg.svd(jacobian(net, X) / np.sqrt(len(X)))
    return Directions(exact, sizes, rows[exact:], rows[exact - 1])


# -- teachers of known dimension on the box -----------------------------------------------------------------------

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
