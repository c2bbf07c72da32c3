"""The short way along a polygonal chain: dense or convolutional layers with ReLUs, and no decision that floats cannot
make."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.chain_kernels import cut, fill, follow, scan, scatter, thin
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.chain_bends import gather
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.cutoffs import TAME
from fiberscope.numerics.floats import ENTRY_FLOOR, INFLATE, FloatArray, IntArray, SignArray, gamma
from fiberscope.run import ENDLESS, Run

Norms = tuple[FloatArray, FloatArray, float]
"""Norms of the rows ``(W_j, b_j)``, rounded up, their inverses, and the norm of all of them."""

MOST_SIGNS = 1 << 22
"""Signs of one layer at all points. Among more of them one is open nearly always, and the short way is in vain."""

THIN = 4
"""Products of so many rows are as long as reading the matrix, for which BLAS is too grand."""

LARGE = 1 << 14
"""Smaller matrices stay in the cache; for them no kernel is compiled."""

MOST_TAPS = 1 << 22
"""Numbers of a convolution written as a sparse matrix, which are kept."""

_norms: WeakKeyDictionary[Affine, Norms | None] = WeakKeyDictionary()
_sparse: WeakKeyDictionary[Affine, tuple[IntArray, IntArray, FloatArray]] = WeakKeyDictionary()
"""Convolutions by columns: where each one begins, rows, and numbers."""


def polyline_breaks(net: Network, chain: Polyline, run: Run = ENDLESS) -> Breaks:
    """All breakpoints of a network along a polygonal chain, by the short way where it goes."""
    found = _short(net, chain, run)
    return straight_breaks(net, chain, run) if found is None else found


def _row_norms(node: Affine) -> Norms | None:
    """Kept for every layer: a network never changes."""
    if node not in _norms:
        r = track.row_norms(node.operator)
        r = (r if node.offset is None else np.hypot(r, node.offset)) * (1 + 2.0**-30)
        tame = bool(((r > TAME[0]) & (r < TAME[1])).all())
        _norms[node] = (r, 1 / r, float(np.linalg.norm(r)) * (1 + 2.0**-30)) if tame else None
    return _norms[node]


def _columns(node: Affine, label: IntArray) -> FloatArray:
    """Some columns of a layer's matrix as rows."""
    columns = np.empty((len(label), node.operator.out_size))
    if isinstance(node.operator, Dense):
        if node.operator.matrix.size < LARGE:
            return np.ascontiguousarray(node.operator.matrix[:, label].T)
        gather(node.operator.matrix, label, columns)
        return columns
    if node not in _sparse:
        matrix = node.operator.sparse().tocsc()
        _sparse[node] = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data
    scatter(*_sparse[node], label, columns)
    return columns


def _layers(net: Network) -> tuple[Affine, ...] | None:
    """The layers before the activations, if this is a plain chain of dense or convolutional ones with ReLUs."""
    if len(net.nodes) % 2 == 0 or not isinstance(net.nodes[-1], Affine) or net.layout.slopes.any():
        return None
    for index, node in enumerate(net.nodes[:-1]):
        if node.sources != (index,) or not isinstance(node, PiecewiseLinear if index % 2 else Affine):
            return None
        if isinstance(node, Affine) and not isinstance(node.operator, Dense | Convolution):
            return None
    return net.layout.affine[:-1]


def _short(net: Network, chain: Polyline, run: Run) -> Breaks | None:
    """The breakpoints, or None where something is left open or the network is no plain ReLU chain."""
    points, layers = chain.points, _layers(net)
    if layers is None:
        return None
    places = Places(np.arange(len(points), dtype=np.float64), np.zeros(len(points)), np.full(len(points), -1))
    e2, norm = np.zeros(len(points)), np.linalg.norm(points, axis=1) * INFLATE
    if not (norm.max() < TAME[1]) or not _fit(len(points), layers[:1]):
        return None
    z = _product(layers[0], points) if layers else points
    rounding = gamma(layers[0].operator.fan_in + 6) * np.hypot(norm, 1.0) if layers else norm
    decisions = 0
    for index, (node, place) in enumerate(zip(layers, net.layout.places, strict=True)):
        run.step(index, len(layers), "layers")
        norms = _row_norms(node)
        assert norms is not None
        r, inverse, frobenius = norms
        c, counts = np.empty(len(z)), np.empty(len(z) - 1, dtype=np.int64)
        new = scan(z, e2, norm, rounding, r, ENTRY_FLOOR, c, counts)
        after, next_layer = len(z) + max(new, 0), layers[index + 1 : index + 2]
        if new < 0 or not _fit(after, next_layer):
            return None
        made, part, slip = Places.empty(after), np.empty(after), np.empty(after)
        room = np.empty((2, z.shape[1])), np.empty((2, z.shape[1]), dtype=np.int64)
        if not cut(z, c, r, ENTRY_FLOOR, counts, *places, place.start, *room[0], *room[1], *made, part, slip):
            return None
        places = made
        decisions += z.size + new
        for following in next_layer:
            out = np.empty_like(z)
            e2, norm = np.empty((2, after))
            follow(z, c, r, inverse, counts, frobenius, places.maker, place.start, slip, out, e2, norm)
            if not (norm.max() < TAME[1]):
                return None
            size = np.hypot(norm, 1.0) * INFLATE
            rounding = gamma(following.operator.fan_in + 6) * size
            z = _next(following, z, counts, places.maker, place.start, part, out, size, rounding)
    return _breaks(net, chain, *places.made(), decisions)


class Places(NamedTuple):
    """Parameters of points, bounds of their errors, and the neurons that vanish there; -1 for none."""

    t: FloatArray
    error: FloatArray
    maker: IntArray

    @classmethod
    def empty(cls, count: int) -> Places:
        return cls(np.empty(count), np.empty(count), np.empty(count, dtype=np.int64))

    def made(self) -> Places:
        """The breakpoints. No neuron vanishes at a given point: signs there are certain."""
        keep = self.maker >= 0
        return Places(self.t[keep], self.error[keep], self.maker[keep])


def _fit(points: int, layers: Sequence[Affine]) -> bool:
    """Whether layers can be asked at so many points."""
    return all(
        points * node.operator.out_size <= MOST_SIGNS
        and (isinstance(node.operator, Dense) or node.operator.out_size * node.operator.fan_in <= MOST_TAPS)
        and _row_norms(node) is not None
        for node in layers
    )


def _product(node: Affine, values: FloatArray) -> FloatArray:
    """``W a + b`` for every row."""
    if len(values) <= THIN and isinstance(node.operator, Dense) and node.operator.matrix.size >= LARGE:
        result = np.empty((len(values), node.operator.out_size))
        thin(values, node.operator.matrix, result)
    else:
        result = node.operator.apply(values)
    return result if node.offset is None else np.add(result, node.offset, out=result)


def _next(
    node: Affine, z: FloatArray, counts: IntArray, maker: IntArray, first: int, part: FloatArray, out: FloatArray,
    size: FloatArray, rounding: FloatArray,
) -> FloatArray:  # fmt: skip
    """Preactivations of the next layer at all points, and ``rounding`` at new ones, from activations at old ones."""
    own, columns = _product(node, out), _columns(node, maker[maker >= first] - first)
    width = node.operator.out_size
    result = np.empty((len(maker), width))
    fill(z, counts, maker, first, part, own, columns, size, result, rounding, np.empty((2, width)))
    return result


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
