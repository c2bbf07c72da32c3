"""A program without its affine parts: what every activation and every pool reads, as one affine map of what the ones
before put out.

Batch normalisation, means, residual sums and concatenations are affine, so a program is its switches (activations and
pools) and the composed maps between them. Exporters fold and reorder the affine parts and leave the switches alone, so
two versions of one model have equal skeletons, up to rounding. Beside every coefficient stands the sum of the absolute
values of the products that it was added up from: rounding is measured by this sum, never by what cancellation left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from scipy import sparse as sp

from fiberscope.equality.rounding import sizes_of
from fiberscope.errors import TooLargeError
from fiberscope.network.convolutions import Convolution, Convolving, full_kernel
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Operator, Scale, Sparse
from fiberscope.numerics.floats import INFLATE, LOST, FloatArray, IntArray, gamma
from fiberscope.numerics.ulps import Rounding
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.equality.question import Question

_ENTRIES = 20_000_000
"""Entries of a composed sparse matrix above which a comparison is given up."""

_LOWEST = -900
"""Exponent of the smallest product that is not touched by underflow, however it is added up."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A linear map and, in the same layout, the sums of absolute values behind its coefficients."""

    values: Operator
    sizes: Operator

    @property
    def is_identity(self) -> bool:
        return isinstance(self.values, Scale) and bool((self.values.factors == 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class ComposedMap:
    """``sum pieces[k](value k) + offset``; value 0 is the input, value ``k`` the output of switch ``k``.

    Every coefficient is off by at most ``gamma(roundings)`` times its size; 0 says that none was rounded. Where
    products are below the normal numbers, it may be off by ``lost`` besides.
    """

    pieces: dict[int, Piece]
    offset: FloatArray
    offset_sizes: FloatArray
    roundings: int = 0
    lost: float = 0.0

    @property
    def error(self) -> float:
        """Of a coefficient, relative to its size."""
        return gamma(self.roundings) if self.roundings else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """A switch with the affine map that it reads; ``index`` is its node's place in the program."""

    node: PiecewiseLinear | MaxPool
    index: int
    form: ComposedMap


@dataclass(frozen=True, slots=True, eq=False)
class Skeleton:
    """The switches of a program in order, and its output."""

    gates: tuple[Gate, ...]
    output: ComposedMap


def skeleton(net: Network, rounding: Rounding, run: Run = ENDLESS) -> Skeleton:
    """The skeleton of a program; raises :class:`TooLargeError` where a composed map has too many entries.

    >>> from fiberscope.numerics.ulps import DOUBLE
    >>> found = skeleton(Network([[[2.0]], [[3.0]]], [[1.0], [0.5]]), DOUBLE)
    >>> len(found.gates), found.output.pieces[1].values.coefficients.tolist(), found.output.offset.tolist()
    (1, [[3.0]], [0.5])
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is beyond the floats agrees with nothing
        return _skeleton(net, rounding, run)


def skeletons(question: Question) -> tuple[Skeleton, Skeleton]:
    """Of both networks of a question, made once."""
    found = []
    for net in (question.a, question.b):
        if ("skeleton", net) not in question.kept:
            question.kept["skeleton", net] = skeleton(net, question.rounding, question.run)
        found.append(question.kept["skeleton", net])
    return found[0], found[1]


def _skeleton(net: Network, rounding: Rounding, run: Run) -> Skeleton:
    # A walk of its own and no algebra: switches give new names, and values side by side keep the shapes of images.
    forms = [_start(0, net.in_size, net.input_shape)]
    gates: list[Gate] = []
    for index, node in enumerate(net.nodes):
        run.check()
        match node:
            case Affine():
                form = forms[node.source]
                for stage in node.operator.stages():
                    form = _applied(stage, form, rounding)
                forms.append(form if node.offset is None else _shifted(form, node.offset, rounding))
            case Add():
                forms.append(_summed([forms[s] for s in node.sources]))
            case Concat():
                forms.append(_joined([forms[s] for s in node.sources], node, rounding))
            case PiecewiseLinear() | MaxPool():
                if node.linear.all():
                    forms.append(forms[node.source])
                    continue
                gates.append(Gate(node, index, forms[node.source]))
                forms.append(_start(len(gates), int(np.prod(node.shape)), node.shape))
            case _:
                assert_never(node)
    return Skeleton(tuple(gates), forms[-1])


def _start(name: int, size: int, shape: tuple[int, ...]) -> ComposedMap:
    one = Scale(1.0, shape)
    return ComposedMap({name: Piece(one, one)}, np.zeros(size), np.zeros(size))


def _applied(stage: Operator, form: ComposedMap, rounding: Rounding) -> ComposedMap:
    """One linear map more."""
    if isinstance(stage, Scale) and (stage.factors == 1).all():
        return form
    sizes = sizes_of(stage, rounding)
    rounded = 0
    low = False
    pieces = {}
    for name, piece in form.pieces.items():
        if piece.is_identity:
            pieces[name] = Piece(stage, sizes)
        else:
            low = low or may_underflow(stage.coefficients, piece.values.coefficients)
            pieces[name] = composed(stage, sizes, piece)
            rounded = max(rounded, 0 if _spreads(piece.values) else stage.fan_in + 1)
    offset, offset_sizes = form.offset, form.offset_sizes
    if offset.any() or offset_sizes.any():
        rounded = max(rounded, stage.fan_in + 1)
        low = low or may_underflow(stage.coefficients, offset)
        offset, offset_sizes = stage.apply(offset[None])[0], sizes.apply(offset_sizes[None])[0]
    else:
        offset, offset_sizes = np.zeros(stage.out_size), np.zeros(stage.out_size)
    lost = (stage.fan_in + 1) * LOST if low else 0.0
    if form.lost:
        reach = float(stage.apply_abs(np.ones((1, stage.in_size))).max(initial=1.0))
        lost += reach * form.lost * INFLATE + LOST
    return ComposedMap(pieces, offset, offset_sizes, form.roundings + rounded, lost)


def _shifted(form: ComposedMap, bias: FloatArray, rounding: Rounding) -> ComposedMap:
    sizes = form.offset_sizes + np.maximum(np.abs(bias), rounding.least)
    fresh = not form.offset_sizes.any()
    return ComposedMap(form.pieces, form.offset + bias, sizes, form.roundings + (0 if fresh else 1), form.lost)


def _summed(forms: list[ComposedMap]) -> ComposedMap:
    """The sum of forms; maps of one value are added."""
    pieces: dict[int, Piece] = {}
    rounded = 0
    for form in forms:
        for name, piece in form.pieces.items():
            if name in pieces:
                pieces[name] = added(pieces[name], piece)
                rounded += 1
            else:
                pieces[name] = piece
    filled = sum(bool(form.offset_sizes.any()) for form in forms)
    offset, sizes = (np.sum([getattr(f, name) for f in forms], axis=0) for name in ("offset", "offset_sizes"))
    roundings = max(f.roundings for f in forms) + rounded + max(0, filled - 1)
    return ComposedMap(pieces, offset, sizes, roundings, sum(f.lost for f in forms))


def _joined(forms: list[ComposedMap], node: Concat, rounding: Rounding) -> ComposedMap:
    """Forms side by side: each is put into its places, the rest filled with zeros."""
    total = int(np.prod(node.shape))
    place = np.arange(total) if node.order is None else np.argsort(node.order)
    start, parts = 0, []
    for k, form in enumerate(forms):
        size = form.offset.size
        rows = place[start : start + size]
        spread = _spread(rows, start, node, k)
        start += size
        pieces = {}
        for name, piece in form.pieces.items():
            pieces[name] = Piece(spread, spread) if piece.is_identity else composed(spread, spread, piece)
        offset, sizes = np.zeros(total), np.zeros(total)
        offset[rows], sizes[rows] = form.offset, form.offset_sizes
        parts.append(ComposedMap(pieces, offset, sizes, form.roundings, form.lost))
    return _summed(parts)


def _spread(rows: IntArray, start: int, node: Concat, k: int) -> Operator:
    """The map that puts a value into its places of a larger one; of channels of an image, a convolution."""
    total, own = node.shape, node.shapes[k]
    if node.axis == 0 and len(own) == 3:
        kernel = np.zeros((total[0], own[0], 1, 1))
        first = start // (own[1] * own[2])
        kernel[np.arange(first, first + own[0]), np.arange(own[0])] = 1.0
        return Convolution(kernel, own)
    ones = sp.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(int(np.prod(total)), len(rows)))
    return Sparse(ones, own, total)


# -- maps after maps ---------------------------------------------------------------------------------------------------


def composed(stage: Operator, sizes: Operator, piece: Piece) -> Piece:
    """``stage`` after ``piece``, in the layout of a kernel or a matrix where that is possible, else sparse."""
    found = [_product(outer, inner) for outer, inner in ((stage, piece.values), (sizes, piece.sizes))]
    return Piece(found[0], found[1])


def _product(outer: Operator, inner: Operator) -> Operator:
    if isinstance(outer, Scale):
        factors = np.broadcast_to(outer.factors, outer.in_shape).reshape(-1)
        if isinstance(inner, Scale):
            return Scale(factors * np.broadcast_to(inner.factors, inner.in_shape).reshape(-1), (factors.size,))
        if isinstance(inner, Dense):
            return inner.with_coefficients(inner.matrix * factors[:, None])
        each = per_channel(factors, inner.out_shape)
        if isinstance(inner, Convolution) and each is not None:
            return inner.with_coefficients(inner.kernel * each[:, None, None, None])
    if isinstance(inner, Scale):
        factors = np.broadcast_to(inner.factors, inner.in_shape).reshape(-1)
        if isinstance(outer, Dense):
            return outer.with_coefficients(outer.matrix * factors)
        each = per_channel(factors, outer.in_shape)
        if isinstance(outer, Convolution) and each is not None:
            groups = each.reshape(outer.groups, -1)  # every group of outputs reads its own channels
            per_output = np.repeat(groups, outer.kernel.shape[0] // outer.groups, axis=0)
            return outer.with_coefficients(outer.kernel * per_output[:, :, None, None])
    if isinstance(outer, Dense) and isinstance(inner, Dense):
        return Dense(outer.matrix @ inner.matrix, inner.in_shape)
    if isinstance(outer, Convolution) and isinstance(inner, Convolution):
        found = _of_kernels(outer, inner)
        if found is not None:
            return found
    return _sparse_product(outer, inner)


def _of_kernels(outer: Convolution, inner: Convolution) -> Convolution | None:
    """Two convolutions in a row as one, where one of them mixes channels pixel by pixel."""
    if _pointwise(inner) and outer.in_shape == inner.out_shape:
        kernel = np.einsum("ochw,ci->oihw", full_kernel(outer), full_kernel(inner)[:, :, 0, 0], optimize=True)
        return Convolution(kernel, inner.in_shape, outer.stride, outer.padding, outer.dilation)
    if _pointwise(outer) and outer.in_size == inner.out_size and outer.in_shape[0] == inner.out_shape[0]:
        kernel = np.einsum("oc,cihw->oihw", full_kernel(outer)[:, :, 0, 0], full_kernel(inner), optimize=True)
        return Convolution(kernel, inner.in_shape, inner.stride, inner.padding, inner.dilation)
    return None


def _pointwise(operator: Convolution) -> bool:
    return operator.kernel.shape[2:] == (1, 1) and operator.stride == (1, 1) and not any(operator.padding)


def _spreads(operator: Operator) -> bool:
    """Whether every input goes to one output at most, times a power of two: then products with it are exact."""
    if isinstance(operator, Convolution):
        if not _pointwise(operator) or operator.groups > 1:
            return False
        most = np.count_nonzero(operator.kernel[:, :, 0, 0], axis=0)
    elif isinstance(operator, Sparse):
        most = np.bincount(operator.matrix.indices[operator.coefficients != 0], minlength=1)
    else:
        return False
    if (most > 1).any():
        return False
    numbers = np.abs(operator.coefficients[operator.coefficients != 0])
    return bool((np.frexp(numbers)[0] == 0.5).all())


def per_channel(factors: FloatArray, shape: tuple[int, ...]) -> FloatArray | None:
    """One factor for every channel of an image, if they are the same all over it."""
    if len(shape) != 3:
        return None
    table = factors.reshape(shape[0], -1)
    return table[:, 0] if (table == table[:, :1]).all() else None


def _sparse_product(outer: Operator, inner: Operator) -> Operator:
    checked_size(outer)
    checked_size(inner)
    left, right = outer.sparse(), inner.sparse()
    work = int(np.diff(right.indptr)[left.indices].sum()) if left.nnz else 0
    if work > _ENTRIES:
        raise TooLargeError(f"composed maps: more than {_ENTRIES} products")
    return Sparse(left @ right, inner.in_shape, outer.out_shape)


def checked_size(operator: Operator) -> None:
    entries = operator.in_size * operator.out_size if isinstance(operator, Dense) else operator.out_size
    if isinstance(operator, Convolving):
        entries *= operator.fan_in
    if entries > _ENTRIES:
        raise TooLargeError(f"composed maps: a matrix of more than {_ENTRIES} entries")


def may_underflow(*factors: FloatArray) -> bool:
    """Whether a product of two numbers may be below the normal ones; overflow shows in the result."""
    lowest = 0
    for numbers in factors:
        sizes = np.abs(numbers)
        smallest = float(np.min(sizes, initial=np.inf, where=sizes > 0))
        if smallest == np.inf:
            return False
        least = int(np.frexp(smallest)[1])
        if least > 0 and (np.frexp(sizes[sizes > 0])[0] == 0.5).all():
            return False  # products with 1, 2, 4, ... are exact: sums, concatenations
        lowest += least
    return lowest < _LOWEST


def added(a: Piece, b: Piece) -> Piece:
    if same_layout(a.values, b.values):
        pairs = ((a.values, b.values), (a.sizes, b.sizes))
        found = [p.with_coefficients(p.coefficients + q.coefficients) for p, q in pairs]
        return Piece(found[0], found[1])
    for piece in (a, b):
        checked_size(piece.values)
    shapes = (a.values.in_shape, a.values.out_shape)
    values = Sparse(a.values.sparse() + b.values.sparse(), *shapes)
    return Piece(values, Sparse(a.sizes.sparse() + b.sizes.sparse(), *shapes))


def same_layout(a: Operator, b: Operator) -> bool:
    """Whether equal coefficients mean the same entries of the matrix."""
    if type(a) is not type(b) or a.coefficients.shape != b.coefficients.shape or a.in_size != b.in_size:
        return False
    if isinstance(a, Convolution) and isinstance(b, Convolution):
        geometry = [(c.in_shape, c.stride, c.padding, c.dilation, c.groups) for c in (a, b)]
        return geometry[0] == geometry[1]
    if isinstance(a, Scale):
        return a.in_shape == b.in_shape
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        return np.array_equal(a.matrix.indptr, b.matrix.indptr) and np.array_equal(a.matrix.indices, b.matrix.indices)
    return isinstance(a, Dense)


def entries(operator: Operator) -> tuple[IntArray, Any]:
    """The stored entries of a map: their places in the matrix, row by row and increasing, and their values."""
    checked_size(operator)
    matrix = operator.sparse()
    matrix.sum_duplicates()
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices, matrix.data
