"""The empirical neural tangent kernel in closed form, and its effective rank.

The derivative with respect to a dense layer is an outer product, so the kernel never needs the Jacobian:
``K = sum_l (Delta_l Delta_l^T) * (A_{l-1} A_{l-1}^T + 1)``, an entrywise product of two Gram matrices per layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fiberscope import modules
from fiberscope.dimension.gradients import add_block, size_of
from fiberscope.dimension.jacobian import LIMIT, check_parameters
from fiberscope.dimension.passes import FLOAT, Use, uses
from fiberscope.errors import InputError, TooLargeError
from fiberscope.network.network import Network
from fiberscope.network.operators import Dense
from fiberscope.numerics.arrays import batch, real_array
from fiberscope.numerics.floats import FloatArray

_STRIP_BYTES = 1 << 19
"""Size of the strips in which a kernel is summed: two of them stay in a core's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """``(delta delta'^T) * (inputs inputs'^T)``; a factor that is None is 1.

    ``delta`` is ``(points * outputs, width)``, or ``(outputs, width)`` where ``constant``; ``inputs`` is ``(points,
    width)``.
    """

    delta: tuple[FloatArray, FloatArray]
    inputs: tuple[FloatArray, FloatArray] | None
    constant: bool


def ntk(net: Any, X: Any, Y: Any = None, *, limit: int = LIMIT) -> Any:
    r"""The empirical tangent kernel :math:`K(X, Y) = J(X) J(Y)^{\mathsf T}`, without forming :math:`J`.

    With ``n`` outputs, entry ``(i * n + o, j * n + p)`` belongs to output ``o`` at ``X[i]`` and output ``p`` at
    ``Y[j]``; ``K.reshape(len(X), n, len(Y), n)`` takes the indices apart. Signs are those of :func:`jacobian`.

    Dense layers enter as products of Gram matrices (also where layers share parameters), other layers as the Gram matrix
    of their own columns of the Jacobian. For a torch module blocks of the Jacobian are multiplied, never all of it.

    Parameters
    ----------
    net
        A :class:`Network` or any ``torch.nn.Module``.
    X, Y
        Batches ``(points, in_size)``; ``Y=None`` means ``Y = X``, and the answer is exactly symmetric.
    limit
        Bytes that the answer may take.

    References
    ----------
    A. Jacot, F. Gabriel, C. Hongler: Neural tangent kernel. NeurIPS 2018.

    Examples
    --------
    >>> net = Network([[[2.0]], [[5.0]]], [[1.0], [0.0]])
    >>> ntk(net, [[3.0]])  # 15^2 + 5^2 + 7^2 + 1
    array([[300.]])
    >>> ntk(net, [[3.0]], [[-1.0]])  # there the neuron is off: only the last bias is shared
    array([[1.]])
    """
    if not isinstance(net, Network):
        return modules.derivatives.ntk(net, X, Y, limit)
    check_parameters(net)
    X = batch(X, net.in_size)
    right_batch = X if Y is None else batch(Y, net.in_size, "Y")
    outputs = net.out_size
    _check(len(X) * outputs, len(right_batch) * outputs, limit)
    left = uses(net, X, FLOAT)
    right = left if Y is None else uses(net, right_batch, FLOAT)
    terms = kernel_terms(left, right, len(X), len(right_batch))
    return sum_terms(terms, (len(X), len(right_batch), outputs), symmetric=Y is None)


def _check(rows: int, columns: int, limit: int) -> None:
    if 8 * rows * columns > limit:
        raise TooLargeError(
            f"a {rows} x {columns} kernel needs {8 * rows * columns / 2**30:.1f} GiB, the limit is "
            f"{limit / 2**30:.1f} GiB; take fewer points, raise limit=, or ask "
            "fiberscope.dimension.spectrum.kernel_spectrum, which never forms it"
        )


def kernel_terms(left: list[Use], right: list[Use], points: int, others: int) -> list[Term]:
    """What has to be summed: for every parameter all pairs of its uses, a layer's weight and bias together."""
    terms: list[Term] = []
    by_name: dict[str, list[tuple[Use, Use]]] = {}
    for a, b in zip(left, right, strict=True):
        by_name.setdefault(a.name, []).append((a, b))
    pairs: dict[tuple[int, int], list[tuple[Use, Use]]] = {}
    for group in by_name.values():
        if not _factorises([a for a, _ in group]):
            terms.append(_gram(group, points, others))
            continue
        for a, _ in group:
            for _, b in group:
                if a.start == b.start:  # other parts of a composition have other numbers
                    pairs.setdefault((id(a.delta), id(b.delta)), []).append((a, b))
    terms += [_factored(found, points, others) for found in pairs.values()]
    return terms


def _factorises(group: list[Use]) -> bool:
    """Whether all uses of a parameter are weights of dense layers, or all are biases with one entry per neuron."""
    if all(use.operator is None for use in group):
        return all(prod(use.shape) == prod(use.full) for use in group)
    return all(isinstance(use.operator, Dense) for use in group)


def _factored(found: list[tuple[Use, Use]], points: int, others: int) -> Term:
    """One product of Gram matrices for all parameters that meet at the same pair of layers."""
    a, b = found[0]
    constant = len(a.delta) == len(b.delta) == 1
    delta = (_rows(a, points, constant), _rows(b, others, constant))
    weights = [pair for pair in found if pair[0].operator is not None]
    biases = len(found) - len(weights)
    if not weights and biases == 1 and not constant:
        return Term(delta, None, constant)
    # A column of ones turns A A^T into A A^T + 1: the bias for the price of one more product.
    extra = [np.sqrt(biases)] if biases else []
    left, right = (
        _joined([*(pair[side].inputs for pair in weights), *(np.full((count, 1), x) for x in extra)])
        for side, count in ((0, points), (1, others))
    )
    return Term(delta, (left, right), constant)


def _rows(use: Use, points: int, constant: bool) -> FloatArray:
    _, outputs, width = use.delta.shape
    delta = use.delta if constant else np.broadcast_to(use.delta, (points, outputs, width))
    return np.ascontiguousarray(delta).reshape(-1, width)


def _joined(parts: list[FloatArray]) -> FloatArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _gram(group: list[tuple[Use, Use]], points: int, others: int) -> Term:
    """The columns of one parameter, formed."""
    blocks = []
    for side, count in ((0, points), (1, others)):
        if side == 1 and all(a is b for a, b in group):
            blocks.append(blocks[0])
            continue
        outputs = group[0][0].delta.shape[1]
        size = max(pair[side].start + size_of(pair[side]) for pair in group)
        block = np.empty((count, outputs, size))
        written: set[int] = set()
        for pair in group:
            use = pair[side]
            add_block(use, block[:, :, use.start : use.start + size_of(use)], FLOAT, use.start not in written)
            written.add(use.start)
        blocks.append(block.reshape(count * outputs, size))
    return Term((blocks[0], blocks[1]), None, constant=False)


def sum_terms(terms: list[Term], sizes: tuple[int, int, int], symmetric: bool) -> FloatArray:
    """The sum, strip by strip of the rows; of a symmetric kernel only the strips from the diagonal on."""
    points, others, outputs = sizes
    result = np.empty((points * outputs, others * outputs))
    step = max(1, min(points, max(64, _STRIP_BYTES // (8 * others * outputs)) // outputs))
    work = np.empty(2 * step * outputs * others * outputs)
    for first in range(0, points, step):
        rows = slice(first, min(first + step, points))
        columns = slice(first if symmetric else 0, others)
        strip = result[first * outputs : rows.stop * outputs, columns.start * outputs :]
        _strip(terms, rows, columns, outputs, strip, work)
        if symmetric and rows.stop < others:
            beyond = (rows.stop - first) * outputs
            result[rows.stop * outputs :, first * outputs : rows.stop * outputs] = strip[:, beyond:].T
        if symmetric:
            _mirror(strip[:, : (rows.stop - first) * outputs])
    return result


def _mirror(block: FloatArray) -> None:
    """Make a diagonal block symmetric to the last bit: a product of a matrix with its transpose need not be."""
    lower = np.tril_indices(len(block), -1)
    block[lower] = block.T[lower]


def _strip(terms: list[Term], rows: slice, columns: slice, outputs: int, strip: FloatArray, work: FloatArray) -> None:
    size = strip.size
    product, factor = work[:size].reshape(strip.shape), work[size : 2 * size]
    m, n = rows.stop - rows.start, columns.stop - columns.start
    fresh = True
    for term in terms:
        target = strip if fresh else product
        gram = None
        if term.inputs is not None:
            gram = factor[: m * n].reshape(m, n)
            np.matmul(term.inputs[0][rows], term.inputs[1][columns].T, out=gram)
        if term.constant:
            _constant(term.delta[0] @ term.delta[1].T, gram, outputs, target)
        else:
            left = term.delta[0][rows.start * outputs : rows.stop * outputs]
            right = term.delta[1][columns.start * outputs : columns.stop * outputs]
            np.matmul(left, right.T, out=target)
            if gram is not None and outputs == 1:
                np.multiply(target, gram, out=target)
            elif gram is not None:
                blocks = target.reshape(m, outputs, n * outputs)
                np.multiply(blocks, np.repeat(gram, outputs, axis=1)[:, None, :], out=blocks)
        if not fresh:
            strip += product
        fresh = False
    if fresh:
        strip[...] = 0.0


def _constant(matrix: FloatArray, gram: Any, outputs: int, target: FloatArray) -> None:
    """``matrix[o, p] * gram[i, j]``: the last layer, whose delta is the same at all points."""
    if outputs == 1:
        np.multiply(gram, matrix[0, 0], out=target)
        return
    m, n = gram.shape
    target[...] = 0.0
    blocks = target.reshape(m, outputs, n, outputs)
    for o, p in np.argwhere(matrix):
        blocks[:, o, :, p] = matrix[o, p] * gram


def effective_rank(K: Any) -> float:
    r"""A rank for spectra that decay: :math:`\exp(-\sum_i p_i \log p_i)` with :math:`p_i = \lambda_i / \sum_j \lambda_j`.

    ``K`` is a symmetric, positive semidefinite matrix, such as a tangent kernel. The value lies between 1 and the rank; it
    is ``r`` for ``r`` equal eigenvalues. Eigenvalues below zero, which only rounding makes, count as zero; the matrix of
    zeros has effective rank 0. It is no lower bound of a rank in the sense of linear algebra, only of its size.

    References
    ----------
    O. Roy, M. Vetterli: The effective rank. EUSIPCO 2007.

    Examples
    --------
    >>> round(effective_rank([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]), 12)
    2.0
    """
    matrix = real_array(K, "K", ndim=2)
    if matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"K: expected a square matrix, got shape {matrix.shape}")
    scale = float(np.abs(matrix).max())
    # Float32 kernels come in too; their two halves differ by more than float64 would allow.
    if not np.allclose(matrix, matrix.T, rtol=1e-4, atol=1e-5 * scale):
        raise InputError("K: expected a symmetric matrix (the tangent kernel of one batch with itself)")
    return spectral_rank(np.linalg.eigvalsh(matrix))


def spectral_rank(eigenvalues: FloatArray) -> float:
    """Effective rank from eigenvalues; see :func:`effective_rank`."""
    positive = np.maximum(eigenvalues, 0.0)
    total = positive.sum()
    if total == 0:
        return 0.0
    shares = positive[positive > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))
