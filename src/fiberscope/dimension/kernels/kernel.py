"""The empirical neural tangent kernel in closed form, and its effective rank.

The derivative with respect to a dense layer is an outer product, so the kernel never needs the Jacobian:
``K = sum_l (Delta_l Delta_l^T) * (A_{l-1} A_{l-1}^T + 1)``, an entrywise product of two Gram matrices per layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from fiberscope import modules
from fiberscope.dimension.jacobian import MEMORY, check_memory, with_own_parameters
from fiberscope.dimension.kernels.small import MOST_POINTS, plain_chain, small_kernel
from fiberscope.dimension.use_gradients import add_block, size_of
from fiberscope.dimension.uses import Use, uses
from fiberscope.errors import InputError, TooLargeError
from fiberscope.network.border import as_model
from fiberscope.network.network import Network
from fiberscope.network.operators import Dense
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.arrays import batch, real_array
from fiberscope.numerics.cutoffs import SYMMETRY
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.run import ENDLESS, Progress, Run

_STRIP_BYTES = 1 << 18
"""Size of the strips in which narrow layers are summed: three of them stay in a core's cache."""

_WIDE = 48
"""Inner products from this length on are limited by arithmetic and not by memory."""

_TALL = 1024
"""Rows of the strips in which wide layers are summed; an eighth of it with several outputs, where they are long."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """``(delta delta'^T) * (inputs inputs'^T + plus)``; without inputs the second factor is ``plus``.

    ``delta`` is ``(points * outputs, width)``, or ``(outputs, width)`` where ``constant``; ``inputs`` is ``(points,
    width)``.
    """

    delta: tuple[FloatArray, FloatArray]
    inputs: tuple[FloatArray, FloatArray] | None
    plus: int
    constant: bool

    @property
    def square(self) -> bool:
        """Whether both factors are products of a matrix with its own transpose."""
        return self.delta[0] is self.delta[1] and (self.inputs is None or self.inputs[0] is self.inputs[1])

    @property
    def width(self) -> int:
        """Length of the longer inner product: what the cost per entry depends on."""
        return int(max(self.delta[0].shape[1], 0 if self.inputs is None else self.inputs[0].shape[1]))


def ntk(
    net: Any,
    X: Any,
    Y: Any = None,
    *,
    by: str | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Any:
    r"""The empirical tangent kernel :math:`K(X, Y) = J(X) J(Y)^{\mathsf T}`, without forming :math:`J`.

    With ``n`` outputs, entry ``(i * n + o, j * n + p)`` belongs to output ``o`` at ``X[i]`` and output ``p`` at
    ``Y[j]``; ``K.reshape(len(X), n, len(Y), n)`` takes the indices apart. Signs are those of :func:`jacobian`.

    Dense layers enter as products of Gram matrices (also where layers share parameters), other layers as the Gram
    matrix of their own columns of the Jacobian. For a torch module blocks of the Jacobian are multiplied.

    Parameters
    ----------
    net
        A :class:`Network` or any ``torch.nn.Module``.
    X, Y
        Batches ``(points, in_size)``; ``Y=None`` means ``Y = X``, and the answer is exactly symmetric.
    by
        ``"layer"`` gives one kernel for every layer instead, in a dictionary by the names of the layers (what the names
        of parameters begin with); ``"parameter"`` one for every parameter. Their sum is the kernel.
    memory
        Bytes that the answer may take.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

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
    >>> ntk(net, [[3.0]], by="layer")
    {'0': array([[250.]]), '2': array([[50.]])}
    """
    net = as_model(net)
    check_memory(memory)
    if by not in (None, "layer", "parameter"):
        raise InputError(f"by: expected 'layer', 'parameter' or None, got {by!r}")
    run = Run.begin(progress, time_limit)
    if not isinstance(net, Network):
        if by is None:
            return modules.derivatives.ntk(net, X, Y, memory, run)
        groups = _groups([name for name, _ in net.named_parameters()], by)
        share = memory // max(1, len(groups)) or 1
        return {group: modules.derivatives.ntk(net, X, Y, share, run, names) for group, names in groups.items()}
    net = with_own_parameters(net)
    X = batch(X, net.in_size)
    right_batch = X if Y is None else batch(Y, net.in_size, "Y")
    outputs = net.out_size
    if by is None and Y is None and len(X) <= MOST_POINTS and (layers := plain_chain(net)) is not None:
        _check(len(X), len(X), memory)
        run.step(0, 1, "rows of the kernel")
        return small_kernel(layers, X)
    groups = {"": tuple(net.parameters)} if by is None else _groups(net.parameters, by)
    _check(len(groups) * len(X) * outputs, len(right_batch) * outputs, memory)
    left = uses(net, X, FLOAT)
    right = left if Y is None else uses(net, right_batch, FLOAT)
    kernels = {}
    for group, names in groups.items():
        own, other = ([use for use in found if use.name in names] for found in (left, right))
        if Y is None:
            other = own
        terms = kernel_terms(own, other, len(X), len(right_batch))
        sizes = (len(X), len(right_batch), outputs)
        # A parameter that no output depends on has no use, and its kernel is zero.
        zero = np.zeros((len(X) * outputs, len(right_batch) * outputs))
        kernels[group] = sum_terms(terms, sizes, symmetric=Y is None, run=run) if terms else zero
    return kernels if by is not None else kernels[""]


def _groups(names: Iterable[str], by: str) -> dict[str, tuple[str, ...]]:
    """Parameters by layer, or each alone, in order.

    >>> _groups(["0.weight", "0.bias", "head.weight"], "layer")
    {'0': ('0.weight', '0.bias'), 'head': ('head.weight',)}
    """
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        group = name.rpartition(".")[0] or name if by == "layer" else name
        groups[group] = (*groups.get(group, ()), name)
    return groups


def _check(rows: int, columns: int, memory: int) -> None:
    if not 8 * rows * columns <= memory:
        raise TooLargeError(
            f"a {rows} x {columns} kernel needs {8 * rows * columns / 2**30:.1f} GiB, the limit is "
            f"{memory / 2**30:.1f} GiB; take fewer points, raise memory=, or ask "
            "kernel_spectrum(net, X), which never forms it"
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
    left = _rows(a, points, constant)
    delta = (left, left if a.delta is b.delta else _rows(b, others, constant))
    weights = [pair for pair in found if pair[0].operator is not None]
    plus = len(found) - len(weights)
    if not weights:
        return Term(delta, None, plus, constant)
    # Several weights meet at one layer only if they share its input and its result: their inputs stand side by side.
    sides = [_joined([pair[side].inputs for pair in weights]) for side in (0, 1)]
    return Term(delta, (sides[0], sides[1]), plus, constant)


def _rows(use: Use, points: int, constant: bool) -> FloatArray:
    lead, outputs, width = use.delta.shape
    if constant or lead == points:
        return np.asarray(use.delta.reshape(-1, width))
    return np.broadcast_to(use.delta, (points, outputs, width)).reshape(-1, width)


def _joined(parts: list[FloatArray]) -> FloatArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _gram(group: list[tuple[Use, Use]], points: int, others: int) -> Term:
    """The columns of one parameter, formed."""
    blocks: list[FloatArray] = []
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
    return Term((blocks[0], blocks[1]), None, 1, constant=False)


def sum_terms(terms: list[Term], sizes: tuple[int, int, int], symmetric: bool, run: Run = ENDLESS) -> FloatArray:
    """The sum, strip by strip of the rows; of a symmetric kernel only the strips from the diagonal on.

    Long inner products want tall strips, so that the matrix product is at its best; short ones want strips that stay in
    the cache. So the two kinds are summed one after the other.
    """
    points, others, outputs = sizes
    result = np.empty((points * outputs, others * outputs))
    wide = [term for term in terms if term.width >= _WIDE]
    narrow = [term for term in terms if term.width < _WIDE]
    tall = max(1, (_TALL if outputs == 1 else _TALL // 8) // outputs)
    flat = max(1, min(tall, max(32, _STRIP_BYTES // (8 * others * outputs)) // outputs))
    fresh = True
    for group, step in ((wide, tall), (narrow, flat)):
        if group:
            _sweep(group, result, sizes, min(points, step), symmetric, fresh, run)
            fresh = False
    if fresh:
        result[...] = 0.0
    step = outputs * min(points, flat if narrow else tall)
    # In one strip NumPy computes A A^T as a symmetric product; pairs of different uses are transposes of each other
    # only up to rounding.
    if symmetric and (step < len(result) or not all(term.square for term in terms)):
        _mirror(result, step)
    return result


def _sweep(
    terms: list[Term],
    result: FloatArray,
    sizes: tuple[int, int, int],
    step: int,
    symmetric: bool,
    fresh: bool,
    run: Run,
) -> None:
    points, others, outputs = sizes
    alone = fresh and len(terms) == 1
    work = np.empty(step * others * (1 + (0 if alone else outputs**2)))
    for first in range(0, points, step):
        run.step(first, points, "rows of the kernel")
        rows = slice(first, min(first + step, points))
        columns = slice(first if symmetric else 0, others)
        strip = result[first * outputs : rows.stop * outputs, columns.start * outputs :]
        for number, term in enumerate(terms):
            _add_term(term, rows, columns, outputs, strip, work, fresh and number == 0)


def _mirror(result: FloatArray, step: int) -> None:
    """Copy what lies above the diagonal below it, in blocks; what lies below was not computed."""
    size = len(result)
    for first in range(0, size, step):
        end = min(first + step, size)
        block = result[first:end, first:end]
        # A product of a matrix with its transpose need not be symmetric to the last bit.
        np.copyto(block, block.T, where=_below(end - first))
        if end < size:
            result[end:, first:end] = result[first:end, end:].T


@lru_cache(maxsize=8)
def _below(size: int) -> BoolArray:
    return np.tri(size, k=-1, dtype=bool)


def _add_term(
    term: Term, rows: slice, columns: slice, outputs: int, strip: FloatArray, work: FloatArray, fresh: bool
) -> None:
    """Add one term to a strip, or write it if ``fresh``; ``work`` holds what is computed on the way."""
    m, n = rows.stop - rows.start, columns.stop - columns.start
    gram: Any = None
    if term.inputs is not None or term.constant:
        gram = work[: m * n].reshape(m, n)
        if term.inputs is None:
            gram[...] = term.plus
        else:
            np.matmul(term.inputs[0][rows], term.inputs[1][columns].T, out=gram)
            if term.plus:
                gram += term.plus
    if term.constant:
        _add_constant(term.delta[0] @ term.delta[1].T, gram, outputs, strip, fresh)
        return
    size = strip.size
    target = strip if fresh else work[len(work) - size :].reshape(strip.shape)
    left = term.delta[0][rows.start * outputs : rows.stop * outputs]
    right = term.delta[1][columns.start * outputs : columns.stop * outputs]
    np.matmul(left, right.T, out=target)
    if gram is None:
        if term.plus != 1:
            target *= term.plus
    elif outputs == 1:
        target *= gram
    else:
        blocks = target.reshape(m, outputs, n * outputs) if target is not strip else None
        spread = np.repeat(gram, outputs, axis=1)
        if blocks is None:
            for o in range(outputs):
                target[o::outputs] *= spread
        else:
            blocks *= spread[:, None, :]
    if not fresh:
        strip += target


def _add_constant(matrix: FloatArray, gram: FloatArray, outputs: int, strip: FloatArray, fresh: bool) -> None:
    """``matrix[o, p] * gram[i, j]``: the last layer, whose delta is the same at all points."""
    if fresh and outputs == 1:
        np.multiply(gram, matrix[0, 0], out=strip)
        return
    if fresh:
        strip[...] = 0.0
    for o, p in np.argwhere(matrix):
        part = strip[o::outputs, p::outputs]
        part += gram if matrix[o, p] == 1 else matrix[o, p] * gram


def effective_rank(K: Any) -> float:
    r"""A rank for spectra that decay: :math:`\exp(-\sum p_i \log p_i)` with :math:`p_i = \lambda_i / \sum_j \lambda_j`.

    ``K`` is a symmetric, positive semidefinite matrix, such as a tangent kernel. The value lies between 1 and the rank;
    it is ``r`` for ``r`` equal eigenvalues. Eigenvalues below zero, which only rounding makes, count as zero; a matrix
    of zeros has effective rank 0.

    References
    ----------
    O. Roy, M. Vetterli: The effective rank. EUSIPCO 2007.

    Examples
    --------
    >>> round(effective_rank([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]), 12)
    2.0
    """
    return spectral_rank(np.asarray(np.linalg.eigvalsh(_symmetric(K)), dtype=np.float64))


def _symmetric(K: Any) -> FloatArray:
    matrix = real_array(K, "K", ndim=2)
    if matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"K: expected a square matrix, got shape {matrix.shape}")
    scale = float(np.abs(matrix).max())
    # Float32 kernels come in too; their two halves differ by more than float64 would allow.
    if not np.allclose(matrix, matrix.T, rtol=SYMMETRY[0], atol=SYMMETRY[1] * scale):
        raise InputError("K: expected a symmetric matrix (the tangent kernel of one batch with itself)")
    return matrix


def kernel_alignment(K: Any, targets: Any) -> float:
    r"""How well a kernel fits targets: the cosine of the angle between :math:`K` and :math:`y y^{\mathsf T}`.

    .. math:: A = \frac{y^{\mathsf T} K y}{\|K\|_F \, y^{\mathsf T} y}

    Between 0 and 1 for a kernel matrix; 1 if :math:`K` is a multiple of :math:`y y^{\mathsf T}`.

    Parameters
    ----------
    K
        A symmetric matrix such as ``ntk(net, X)``, ``(points * n, points * n)``.
    targets
        As many numbers, or ``(points, n)``; of labels subtract what is common to all first, or take plus and minus one.

    References
    ----------
    N. Cristianini, J. Shawe-Taylor, A. Elisseeff, J. Kandola: On kernel-target alignment. NeurIPS 2001.

    Examples
    --------
    >>> kernel_alignment([[1.0, -1.0], [-1.0, 1.0]], [1.0, -1.0])
    1.0
    """
    matrix = _symmetric(K)
    y = real_array(targets, "targets").reshape(-1)
    if len(y) != len(matrix):
        raise InputError(f"targets: expected {len(matrix)} numbers as K has rows, got {len(y)}")
    size = float(np.linalg.norm(matrix)) * float(y @ y)
    if not size > 0:
        raise InputError("kernel_alignment: expected a kernel and targets other than zero")
    return float(y @ matrix @ y) / size


def spectral_rank(eigenvalues: FloatArray) -> float:
    """Effective rank from eigenvalues; see :func:`effective_rank`."""
    positive = np.maximum(eigenvalues, 0.0)
    total = positive.sum()
    if total == 0:
        return 0.0
    shares = positive[positive > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))
