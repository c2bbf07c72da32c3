"""The short way along a polygonal chain: dense ReLU layers, and no decision that floats cannot make."""

from __future__ import annotations

from functools import cache
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.chain_kernels import cut, scan
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.chain_bends import Bends, is_worth
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.numerics.cutoffs import TAME
from fiberscope.numerics.floats import ENTRY_FLOOR, INFLATE, FloatArray, IntArray, SignArray, gamma
from fiberscope.run import ENDLESS, Run

Norms = tuple[FloatArray, FloatArray, float]
"""Norms of the rows ``(W_j, b_j)``, rounded up, their inverses, and the norm of all of them."""

MOST_SIGNS = 1 << 22
"""Signs of one layer at all points. Among more of them one is open nearly always, and the short way is in vain."""

_norms: WeakKeyDictionary[Affine, Norms | None] = WeakKeyDictionary()


def polyline_breaks(net: Network, chain: Polyline, run: Run = ENDLESS) -> Breaks:
    """All breakpoints of a network along a polygonal chain, by the short way where it goes."""
    found = _short(net, chain, run)
    return straight_breaks(net, chain, run) if found is None else found


def _row_norms(node: Affine) -> Norms | None:
    """Kept for every layer: a network never changes."""
    if node not in _norms:
        matrix = node.operator.dense()
        r = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
        r = (r if node.offset is None else np.hypot(r, node.offset)) * (1 + 2.0**-30)
        tame = bool(((r > TAME[0]) & (r < TAME[1])).all())
        _norms[node] = (r, 1 / r, float(np.linalg.norm(r)) * (1 + 2.0**-30)) if tame else None
    return _norms[node]


def _short(net: Network, chain: Polyline, run: Run) -> Breaks | None:
    """The breakpoints, or None where something is left open or the network is no plain ReLU chain."""
    if not net.is_chain or net.layout.slopes.any():
        return None
    values: FloatArray = chain.points
    t, error = np.arange(len(values), dtype=np.float64), np.zeros(len(values))
    maker = np.full(len(values), -1)
    e2, norm = np.zeros(len(values)), np.linalg.norm(values, axis=1) * INFLATE
    decisions, bends = 0, None
    layers = net.layout.affine[:-1]
    for index, (node, place) in enumerate(zip(layers, net.layout.places, strict=True)):
        run.step(index, len(layers), "layers")
        norms = _row_norms(node)
        if norms is None or not (norm.max() < TAME[1]) or len(values) * len(norms[0]) > MOST_SIGNS:
            return None
        r, inverse, frobenius = norms
        z = track.product(node.operator, values, node.offset, bends)
        size = np.hypot(norm, 1.0)
        fan_in = node.operator.fan_in
        rounding = gamma(fan_in + 6) * size if bends is None else bends.roundings(fan_in, size)
        c, counts = np.empty(len(z)), np.empty(len(z) - 1, dtype=np.int64)
        new = scan(z, e2, norm, rounding, r, ENTRY_FLOOR, c, counts)
        if new < 0:
            return None
        total, width = len(z) + new, z.shape[1]
        values = np.empty((total if index + 1 < len(layers) else 0, width))
        e2, norm, new_t, new_error, part = np.empty((5, total))
        new_maker = np.empty(total, dtype=np.int64)
        room = np.empty((2, width)), np.empty((2, width), dtype=np.int64)
        sure = cut(
            z, c, r, inverse, ENTRY_FLOOR, counts, t, error, maker, place.start, frobenius, *room[0], *room[1], values,
            new_t, new_error, new_maker, e2, norm, part,
        )  # fmt: skip
        if not sure:
            return None
        t, error, maker = new_t, new_error, new_maker
        bends = (
            _bends(z, counts, part, maker - place.start) if index + 1 < len(layers) and is_worth(new, width) else None
        )
        decisions += z.size + new
    made = maker >= 0  # no neuron vanishes at a given point: signs there are certain
    return _breaks(net, chain, t[made], error[made], maker[made], decisions)


def _bends(z: FloatArray, counts: IntArray, part: FloatArray, label: IntArray) -> Bends:
    """What bends between neighbours that had so many zeros between them; ``z`` are the values at the old points."""
    points = np.concatenate([[0], np.cumsum(counts)])
    old = points + np.arange(len(points))
    new = np.delete(np.arange(len(part)), old)
    gap = np.repeat(np.arange(len(counts)), counts)
    own, rank = label[new], np.arange(len(new)) - points[gap]
    x, y = z[gap, own], z[gap + 1, own]
    return Bends(old, new, old[gap], old[gap + 1], part[new], points, points, own, rank, x, y)


def _breaks(net: Network, chain: Polyline, t: FloatArray, error: FloatArray, maker: IntArray, decisions: int) -> Breaks:
    @cache
    def full() -> Breaks:
        return straight_breaks(net, chain)

    def signs() -> SignArray:
        return full().signs()

    def exact(i: int) -> object:
        known = full().exact
        assert known is not None
        return known(i)

    low, high = (np.clip(x, *chain.interval) for x in (t - error, t + error))
    return Breaks(t, low, high, Incidence(np.arange(len(t) + 1), maker), signs, decisions, 0, exact=exact)
