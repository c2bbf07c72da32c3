"""The short way along a polygonal chain: dense or convolutional layers with ReLUs, and no decision that floats cannot
make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.chain_kernels import cut, fill, follow, scan, scatter, thin
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.curves.straight import DEEP, SQUARE
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.chain_bends import gather
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.cutoffs import TAME
from fiberscope.numerics.floats import (
    ENTRY_FLOOR,
    INFLATE,
    FloatArray,
    IntArray,
    SignArray,
    gamma,
    norms,
    spectral_bound,
)
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.network.layout import Place

MOST_SIGNS = 1 << 22
"""Signs of one layer at all points. Among more of them one is open nearly always, and the short way is in vain."""

THIN = 4
"""Products of so many rows are as long as reading the matrix, for which BLAS is too grand."""

LARGE = 1 << 14
"""Smaller matrices stay in the cache; for them no kernel is compiled."""

MOST_TAPS = 1 << 22
"""Numbers of a convolution written as a sparse matrix, which are kept."""

_layers: WeakKeyDictionary[Network, tuple[ChainLayer, ...] | None] = WeakKeyDictionary()


def polyline_breaks(net: Network, chain: Polyline, run: Run = ENDLESS) -> Breaks:
    """All breakpoints of a network along a polygonal chain, by the short way where it goes."""
    found = _short(net, chain, run)
    return straight_breaks(net, chain, run) if found is None else found


@dataclass(frozen=True, slots=True)
class ChainLayer:
    """What is asked of a layer every time; a network never changes.

    ``r`` are norms of the rows ``(W_j, b_j)``, rounded up, ``inverse`` their inverses, ``frobenius`` the norm of all of
    them, ``spectral`` that of the matrix where it is worth its price, infinite elsewhere; ``around`` bounds the
    rounding of a product relative to ``r`` and the norm of the input. A small matrix is
    kept in ``across``, transposed; a convolution in ``taps``: where each column begins, rows, and numbers.
    """

    operator: Dense | Convolution
    offset: FloatArray | None
    start: int
    r: FloatArray
    inverse: FloatArray
    frobenius: float
    spectral: float
    around: float
    across: FloatArray | None
    taps: tuple[IntArray, IntArray, FloatArray] | None

    def product(self, values: FloatArray) -> FloatArray:
        """``W a + b`` for every row."""
        if len(values) <= THIN and isinstance(self.operator, Dense) and self.across is None:
            result = np.empty((len(values), len(self.r)))
            thin(values, self.operator.matrix, result)
        else:
            result = self.operator.apply(values)
        return result if self.offset is None else np.add(result, self.offset, out=result)

    def whole(self, c: FloatArray, e2: FloatArray, rounding: FloatArray) -> FloatArray:
        """Not below the norms of the errors of a product, with its own ``rounding``, of inputs that err by ``e2``."""
        found = c * (self.frobenius * INFLATE)
        if self.spectral < np.inf:
            found = np.minimum(found, (e2 * self.spectral + rounding * self.frobenius) * INFLATE)
        return found * INFLATE

    def columns(self, label: IntArray) -> FloatArray:
        """Some columns of the matrix as rows."""
        if self.across is not None:
            return self.across[label]
        columns = np.empty((len(label), len(self.r)))
        if self.taps is not None:
            scatter(*self.taps, label, columns)
        else:
            gather(self.operator.coefficients, label, columns)
        return columns


def _prepared(net: Network) -> tuple[ChainLayer, ...] | None:
    """The layers before activations; None but for a plain chain of tame dense or convolutional ones with ReLUs."""
    if net not in _layers:
        _layers[net] = _all_layers(net)
    return _layers[net]


def _all_layers(net: Network) -> tuple[ChainLayer, ...] | None:
    found: list[ChainLayer] = []
    if not _is_plain(net):
        return None
    deep = len(net.layout.places) >= DEEP
    for node, place in zip(net.layout.affine, net.layout.places, strict=False):
        layer = _layer(node, place, deep)
        if layer is None:
            return None
        found.append(layer)
    return tuple(found)


def _is_plain(net: Network) -> bool:
    """Whether affine maps and ReLUs take turns, in a row, an affine map last."""
    if len(net.nodes) % 2 == 0 or not isinstance(net.nodes[-1], Affine) or net.layout.slopes.any():
        return False
    return all(
        node.sources == (index,) and isinstance(node, PiecewiseLinear if index % 2 else Affine)
        for index, node in enumerate(net.nodes)
    )


def _layer(node: Affine, place: Place, deep: bool) -> ChainLayer | None:
    operator = node.operator
    if not isinstance(operator, Dense | Convolution):
        return None
    if isinstance(operator, Convolution) and operator.out_size * operator.fan_in > MOST_TAPS:
        return None
    r = track.row_norms(operator)
    r = (r if node.offset is None else np.hypot(r, node.offset)) * (1 + 2.0**-30)
    if not ((r > TAME[0]) & (r < TAME[1])).all():
        return None
    across, taps = None, None
    if isinstance(operator, Convolution):
        matrix = operator.sparse().tocsc()
        taps = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data
    elif operator.matrix.size < LARGE:
        across = np.ascontiguousarray(operator.matrix.T)
    norm = float(np.linalg.norm(r)) * (1 + 2.0**-30)
    spectral, around = np.inf, gamma(operator.fan_in + 6)
    if deep and isinstance(operator, Dense) and max(operator.matrix.shape) <= SQUARE:
        spectral = spectral_bound(operator.matrix)
    return ChainLayer(operator, node.offset, place.start, r, 1 / r, norm, spectral, around, across, taps)


def _short(net: Network, chain: Polyline, run: Run) -> Breaks | None:
    """The breakpoints, or None where something is left open or the network is no plain ReLU chain."""
    points, layers = chain.points, _prepared(net)
    if layers is None:
        return None
    places = Places(np.arange(len(points), dtype=np.float64), np.zeros(len(points)), np.full(len(points), -1))
    e2, norm = np.zeros(len(points)), norms(points)
    if not (norm.max() < TAME[1]) or (layers and len(points) * len(layers[0].r) > MOST_SIGNS):
        return None
    z, rounding = points, norm
    if layers:
        z, rounding = layers[0].product(points), layers[0].around * np.hypot(norm, 1.0)
    decisions = 0
    for index, layer in enumerate(layers):
        run.step(index, len(layers), "layers")
        c, counts = np.empty(len(z)), np.empty(len(z) - 1, dtype=np.int64)
        new = scan(z, e2, norm, rounding, layer.r, ENTRY_FLOOR, c, counts)
        following = layers[index + 1] if index + 1 < len(layers) else None
        after = len(z) + new
        if new < 0 or (following is not None and after * len(following.r) > MOST_SIGNS):
            return None
        made, part, slip = Places.empty(after), np.empty(after), np.empty(after)
        room = np.empty((2, z.shape[1])), np.empty((2, z.shape[1]), dtype=np.int64)
        if not cut(z, c, layer.r, ENTRY_FLOOR, counts, *places, layer.start, *room[0], *room[1], *made, part, slip):
            return None
        places = made
        decisions += z.size + new
        if following is not None:
            out = np.empty_like(z)
            whole = layer.whole(c, e2, rounding)
            e2, norm = np.empty((2, after))
            follow(z, c, whole, layer.r, layer.inverse, counts, places.maker, layer.start, slip, out, e2, norm)
            if not (norm.max() < TAME[1]):
                return None
            size = np.hypot(norm, 1.0) * INFLATE
            rounding = following.around * size
            z = _next(following, z, counts, places.maker, layer.start, part, out, size, rounding)
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


def _next(
    layer: ChainLayer, z: FloatArray, counts: IntArray, maker: IntArray, first: int, part: FloatArray, out: FloatArray,
    size: FloatArray, rounding: FloatArray,
) -> FloatArray:  # fmt: skip
    """Preactivations of the next layer at all points, and ``rounding`` at new ones, from activations at old ones."""
    columns = layer.columns(maker[maker >= first] - first)
    result, room = np.empty((len(maker), len(layer.r))), np.empty((2, len(layer.r)))
    fill(z, counts, maker, first, part, layer.product(out), columns, size, result, rounding, room)
    return result


def _breaks(net: Network, chain: Polyline, t: FloatArray, error: FloatArray, maker: IntArray, decisions: int) -> Breaks:
    asked: list[Breaks] = []

    def full() -> Breaks:
        if not asked:
            asked.append(straight_breaks(net, chain))
        return asked[0]

    def signs() -> SignArray:
        return full().signs()

    def exact(i: int) -> object:
        known = full().exact
        assert known is not None
        return known(i)

    low, high = np.maximum(t - error, chain.interval[0]), np.minimum(t + error, chain.interval[1])
    return Breaks(t, low, high, Incidence(np.arange(len(t) + 1), maker), signs, decisions, 0, exact=exact)
