"""One representative of every orbit under permutations and positive rescalings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.fibers.canonical.labelling import WORK, labelling
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import slopes_of, split, with_arrays
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray


def canonical(net: NetworkLike, work: int = WORK) -> Network:
    """The canonical form: every hidden row ``(w | b)`` has largest entry 1 in absolute value, and rows are sorted.

    The norm is the maximum norm. Then a row is divided by one of its own entries, that entry becomes exactly 1, and a
    second application divides by 1: the form is idempotent bit for bit, which division by a Euclidean norm is not.
    The form is bit-identical on permuted copies and on copies rescaled by powers of two, and the same up to rounding
    on other rescaled copies (there the sorting may differ, where rows agree up to rounding; compare networks with
    :func:`same_up_to_symmetry`, not by their canonical forms).

    A neuron whose row is zero puts out zero, so its scale is taken from its outgoing weights, which are given the
    largest entry 1. (Where such neurons read and are read by each other only, one of them keeps its scale; then copies
    may differ in these numbers, which no input sees.) Rows are sorted lexicographically, the bias last. Where rows are
    equal, the order comes from a canonical labelling (:mod:`~fiberscope.fibers.canonical.labelling`): neurons that are
    left without an order are exchanged by a symmetry. Its search may look at about ``work`` numbers; a network with so
    many ties that this is not enough raises :class:`TooLargeError`.

    >>> net = Network([[[2.0], [-4.0]], [[1.0, 1.0]]], [[1.0, 0.0], [0.0]])
    >>> canonical(net).weights
    (array([[-1.],
           [ 1.]]), array([[4., 2.]]))
    """
    net = as_network(net)
    parts = split(net)
    form = normalised(parts.tail)
    found = labelling(form.rows, form.slopes, work)
    if not found.canonical:
        raise TooLargeError(
            f"canonical form: ties between neurons leave more orders than {work} numbers of work can tell apart; "
            "give more by work=, or compare networks with same_up_to_symmetry"
        )
    orders = found.orders
    weights, biases = [], []
    for layer, rows in enumerate(form.rows):
        table = rows if layer == len(orders) else rows[orders[layer]]
        weights.append(table[:, :-1] if layer == 0 else table.take(orders[layer - 1], axis=1))
        biases.append(table[:, -1])
    moved = _with_slopes(parts.tail, orders)
    return parts.joined(with_arrays(moved, weights, biases))


def _with_slopes(chain: Network, orders: list[IntArray]) -> Network:
    from_slopes = slopes_of(chain)
    if all((s == s[0]).all() for s in from_slopes):
        return chain
    nodes = list(chain.nodes)
    for layer, order in enumerate(orders):
        place = 2 * layer + 1
        nodes[place] = PiecewiseLinear(place, from_slopes[layer][order], nodes[place].shape)
    return Network.from_nodes(nodes, chain.input_shape, chain.source.derived)


@dataclass(frozen=True, slots=True, eq=False)
class Normalised:
    """A chain with unit rows: ``rows`` are ``(W_l | b_l)``, ``scales`` what the hidden rows were divided by."""

    rows: list[FloatArray]
    scales: list[FloatArray]
    slopes: tuple[FloatArray, ...]


def normalised(chain: Network) -> Normalised:
    """Hidden rows divided by their largest entry, the next columns multiplied by it; no sorting."""
    weights, biases = chain.weights, chain.biases
    depth = len(weights) - 1
    rows: list[FloatArray] = []
    scales: list[FloatArray] = []
    idle: list[BoolArray] = []
    factor, dropped = np.ones(chain.in_size), np.zeros(chain.in_size, dtype=bool)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what leaves the range is looked at afterwards
        for layer in range(depth + 1):
            table = _scaled_rows(weights[layer], biases[layer], factor if layer else None)
            if layer < depth:
                # columns of neurons that put out zero say nothing about the size of a row
                seen = table[:, np.append(~dropped, True)] if dropped.any() else table
                size = np.maximum(seen.max(axis=1), -seen.min(axis=1)) + 0.0
                idle.append(size == 0)
                size = np.where(size == 0, 1.0, size)
                table /= size[:, None]
                scales.append(size)
                factor, dropped = size, idle[-1]
            rows.append(table)
        if any(i.any() for i in idle) and all(np.isfinite(table).all() for table in rows):
            _scale_idle(rows, scales, idle)
    for layer, table in enumerate(rows):
        _check_range(weights[layer], table[:, :-1], layer + 1)
    return Normalised(rows, scales, slopes_of(chain))


def _scaled_rows(weights: FloatArray, bias: FloatArray, factor: FloatArray | None) -> FloatArray:
    """``(weights * factor | bias)`` without negative zeros."""
    table = np.empty((weights.shape[0], weights.shape[1] + 1))
    np.add(weights if factor is None else weights * factor, 0.0, out=table[:, :-1])
    np.add(bias, 0.0, out=table[:, -1])
    return table


@np.errstate(over="ignore", under="ignore")
def balancing(chain: Network) -> Symmetry:
    """The rescaling of hidden neurons by powers of two to rows of largest entry about 1, as :func:`normalised` does.

    It changes no bit of the function. Inputs are measured by how far from the origin the hyperplanes of the first layer
    lie. The identity where numbers would not be normal floats, or are none.

    >>> balancing(Network([[[3.0]], [[8.0]]], [[0.0], [0.0]])).scales
    (array([0.25]),)
    """
    size, offset = np.abs(chain.weights[0]).max(axis=1), np.abs(chain.biases[0])
    apart = (size > 0) & (offset > 0)
    reach = np.ldexp(1.0, int(np.median(np.frexp(offset[apart])[1] - np.frexp(size[apart])[1]))) if apart.any() else 1.0
    try:
        wide = with_arrays(chain, [chain.weights[0] * reach, *chain.weights[1:]], chain.biases)
        found = [np.ldexp(1.0, -np.frexp(s)[1]) for s in normalised(wide).scales]
        element = Symmetry([np.arange(len(s)) for s in found], found)
        kept = is_normal(chain) and is_normal(element(chain))
    except InputError:
        kept = False
    return element if kept else Symmetry.identity(chain.widths)


def is_normal(chain: Network) -> bool:
    """Whether no number lies between zero and the normal floats, where a product loses digits."""
    return all(bool(((x == 0) | (np.abs(x) >= TINY)).all()) for x in (*chain.weights, *chain.biases))


def _scale_idle(rows: list[FloatArray], scales: list[FloatArray], idle: list[BoolArray]) -> None:
    """Scales of neurons that put out zero: from those of their readers, or of what they read, that are settled.

    A group of such neurons that is tied to nothing settled begins with its last one, whose scale stays.
    """
    settled = [~i for i in idle]
    known = [np.ones(rows[0].shape[1] - 1, dtype=bool), *settled, np.ones(len(rows[-1]), dtype=bool)]

    def settle(layer: int, i: int, size: float) -> None:
        """Divide the outgoing weights of a neuron by ``size``, or its row by the inverse."""
        rows[layer + 1][:, i] /= size
        rows[layer][i] *= size
        scales[layer][i] /= size
        settled[layer][i] = True

    while not all(s.all() for s in settled):
        changed = False
        for layer in range(len(idle) - 1, -1, -1):
            for i in np.flatnonzero(~settled[layer]).tolist():
                out = float(np.abs(rows[layer + 1][known[layer + 2], i]).max(initial=0.0))
                row = float(np.abs(rows[layer][i, :-1][known[layer]]).max(initial=0.0))
                if out or row:
                    settle(layer, i, out or 1.0)
                    if not out:
                        rows[layer][i] /= row
                        rows[layer + 1][:, i] *= row
                        scales[layer][i] *= row
                    changed = True
        if not changed:
            layer = max(k for k, s in enumerate(settled) if not s.all())
            settle(layer, int(np.flatnonzero(~settled[layer])[-1]), 1.0)


def _check_range(before: FloatArray, after: FloatArray, layer: int) -> None:
    size = np.abs(after)
    small = size < TINY
    # the largest of numbers is not a number where one of them is none
    if not np.isfinite(size.max(initial=0.0)) or (small.any() and (np.abs(before[small]) >= TINY).any()):
        raise InputError(
            f"canonical form: rescaled weights of layer {layer} leave the range of float64; rescale the network first"
        )
