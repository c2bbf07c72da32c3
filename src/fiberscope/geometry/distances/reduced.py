"""A network with as few inputs as it has first neurons, in which gradients are as long.

If the first layer is ``W x + b`` with fewer rows than columns and nothing else reads the input, only ``v W`` is ever
asked of ``W``, and ``|v W| = |v L|`` for every ``L`` with ``L L^T = W W^T``. Such a square factor comes from an
orthogonal factorisation ``W = L Q``, or, far sooner where ``W`` has millions of entries, from the Gram matrix. No
computed factor is exact; how far it is off is bounded, with the rounding of the measurement included.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.numerics.cutoffs import GRAM_STRETCH
from fiberscope.numerics.floats import SQUARABLE, TINY, FloatArray, gamma, round_up

_GRAM = 1 << 20
"""Matrices with so many entries are tried by their Gram matrix first."""

_ORTHOGONAL = 1 << 24
"""Matrices with more entries are not factored orthogonally."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """``L``, what ``|v W|`` may differ from ``|v L|``: ``error`` per row, and a factor ``1 +- stretch``.

    ``full`` is a proof that the rows of ``W`` are independent and ``L`` is regular: then two maps ``A W`` and ``B W``
    are equal just where ``A L`` and ``B L`` are.
    """

    L: FloatArray
    error: FloatArray | None
    stretch: float
    full: bool


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A network whose gradients are as long, up to ``error`` per first neuron and a factor ``1 +- stretch``."""

    net: Network
    error: FloatArray | None
    stretch: float
    full: bool


_known: WeakKeyDictionary[Dense, Factor | None] = WeakKeyDictionary()
"""A matrix is factored once, as long as it lives."""


def first_layer(net: Network) -> Affine | None:
    """The first node, if it is a dense layer and alone reads the input."""
    first = net.nodes[0]
    alone = sum(0 in node.sources for node in net.nodes) == 1
    return first if alone and isinstance(first, Affine) and isinstance(first.operator, Dense) else None


def reduced(net: Network) -> Reduced:
    """As many inputs as first neurons, if these are fewer and the matrix can be factored; else the network itself."""
    first = first_layer(net)
    if first is None or not isinstance(first.operator, Dense):
        return Reduced(net, None, 0.0, False)
    operator = first.operator
    if operator not in _known:
        _known[operator] = _factor(operator.matrix)
    found = _known[operator]
    if found is None:
        return Reduced(net, None, 0.0, False)
    nodes = [Affine(0, Dense(found.L), first.bias), *net.nodes[1:]]
    return Reduced(Network.from_nodes(nodes, (len(found.L),)), found.error, found.stretch, found.full)


def _factor(W: FloatArray) -> Factor | None:
    size = np.abs(W).max(axis=1, initial=0.0)  # how far a factor is off is measured by squares, and row by row
    if W.shape[0] >= W.shape[1] or not ((size == 0) | (size > SQUARABLE[0]) & (size < SQUARABLE[1])).all():
        return None
    found = _by_gram(W) if W.size >= _GRAM else None
    return found if found is not None or W.size > _ORTHOGONAL else _by_rotation(W)


def _by_rotation(W: FloatArray) -> Factor:
    Q, R = np.linalg.qr(W.T)
    L = np.ascontiguousarray(R.T)
    k, n = W.shape
    defect = np.linalg.norm(Q.T @ Q - np.eye(k)) + gamma(n + 2) * np.linalg.norm(np.abs(Q).T @ np.abs(Q))
    residual = np.linalg.norm(L @ Q.T - W, axis=1)
    residual = residual + gamma(k + 2) * np.linalg.norm(np.abs(L) @ np.abs(Q).T + np.abs(W), axis=1)
    residual = np.asarray(round_up(residual * (1 + gamma(n + 8)), 4))
    stretch = float(defect * (1 + gamma(k * k + 8))) + gamma(4)
    residual[~W.any(axis=1)] = 0.0
    L[~W.any(axis=1)] = 0.0
    return Factor(L, residual, min(stretch, 1.0), False)


def _by_gram(W: FloatArray) -> Factor | None:
    """The Cholesky factor of ``W W^T``, if that is a good one.

    With ``|W W^T - L L^T| <= E`` the squares ``|v W|^2`` and ``|v L|^2`` differ by at most ``E |v|^2``, and ``|v|`` is
    not above ``|v L| |L^-1|``: a factor of ``1 +- E |L^-1|^2`` on the squares, which is not less on the lengths.
    """
    k, n = W.shape
    terms = Dense(W)
    gram = terms.apply(W)
    try:
        L = np.linalg.cholesky((gram + gram.T) / 2)
        inverse = np.linalg.inv(L)
    except np.linalg.LinAlgError:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        # |W| |W|^T is not above the product of the lengths of rows, a matrix of norm |W|^2
        size = np.linalg.norm(W) ** 2 * (1 + gamma(n * 2 + k + 8))
        square = np.linalg.norm(L) ** 2 * (1 + gamma(2 * k + 8))
        slip = gamma(terms.roundings + 2) * size + k * n * TINY
        off = np.linalg.norm(gram - L @ L.T) + gamma(k + 3) * (size + square)
        defect = np.linalg.norm(np.eye(k) - L @ inverse) + gamma(k + 2) * np.linalg.norm(np.abs(L) @ np.abs(inverse))
        defect = defect * (1 + gamma(k * k + 8)) + gamma(2)
        length = np.abs(inverse).sum(axis=0).max() * np.abs(inverse).sum(axis=1).max()  # not below its squared norm
        stretch = (slip + off) * length / (1 - defect) ** 2 * (1 + gamma(k * k + n + 32)) + gamma(4)
    if not (defect < 0.5 and stretch < GRAM_STRETCH):
        return None
    return Factor(np.ascontiguousarray(L), None, float(stretch), True)
