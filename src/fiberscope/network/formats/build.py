"""Building a program from a foreign graph: values with the shapes the graph gives them, and the nodes they cost.

Flattening and reshaping cost nothing: a value carries its current shape, and operators are made for that shape.

Names of parameters are kept only where they are true. A parameter that a model uses in two layouts (transposed in one
place, or as part of a computed weight) cannot be shared by name, so it comes as a constant in all its places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from scipy import sparse as sp

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.formats.graph_values import Named, Value, Window
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Concat, Given, MaxPool, PiecewiseLinear, moved
from fiberscope.network.operators import Composition, Dense, Gather, Operator, Scale, Shape, Sparse
from fiberscope.network.source import Source, coarsest
from fiberscope.numerics.floats import FloatArray, IntArray


class Builder:
    """Collects nodes; every method takes values and gives the value of the new node."""

    def __init__(self, input_shape: Sequence[int], batched: bool = True) -> None:
        self.input = Value(0, tuple(input_shape), batched)
        self.nodes: list[Given] = []
        self.compositions: list[tuple[list[int], str | None]] = []
        self.precisions: set[str] = set()
        self._first: dict[str, FloatArray] = {}
        self._dropped: set[str] = set()

    def push(self, node: Given, shape: Shape, batched: bool) -> Value:
        """One node more, and its value in the shape that the graph gives it."""
        self.nodes.append(node)
        return Value(len(self.nodes), shape, batched)

    def drop_names(self, names: Iterable[str]) -> None:
        """Parameters that also enter the model in another form: constants in all their places."""
        self._dropped |= set(names)

    def _use(self, name: str | None, array: FloatArray) -> None:
        if name is not None and not np.array_equal(self._first.setdefault(name, array), array):
            self._dropped.add(name)

    def affine(
        self,
        value: Value,
        operator: Operator,
        bias: FloatArray | None = None,
        names: tuple[str | None, str | None] = (None, None),
        shape: Shape | None = None,
    ) -> Value:
        """``operator(value) + bias``, with the names of the weight and the bias."""
        if value.size != operator.in_size:
            raise InputError(f"expected an input of shape {operator.in_shape}, got {value.shape}")
        node = Affine(value.index, operator, bias, *names)
        self._use(names[0], operator.coefficients)
        if node.bias is not None:
            self._use(names[1], node.bias)
        return self.push(node, operator.out_shape if shape is None else shape, value.batched)

    # -- dense maps and convolutions ---------------------------------------------------------------------------

    def dense(self, value: Value, weight: Named, bias: Named | None = None) -> Value:
        """``weight @ x + bias`` along the last axis, with a weight ``(out, in)``.

        With other axes before the last, the same matrix acts on every row: a convolution over the rows, and a
        permutation of its output.
        """
        out, width = weight.array.shape
        lead, last = value.shape[:-1], value.shape[-1] if value.shape else 1
        if last != width:
            raise InputError(f"expected {width} entries along the last axis, got shape {value.shape}")
        vector, bias_name = (None, None) if bias is None else (bias.array, bias.name)
        if vector is not None and vector.shape != (out,):
            raise InputError(f"bias: expected shape {(out,)}, got {vector.shape}")
        names = (weight.name, bias_name)
        rows = prod(lead)
        if rows == 1:
            return self.affine(value, Dense(weight.array, value.shape), vector, names, (*lead, out))
        kernel = Convolution(weight.array.reshape(out, 1, 1, width), (1, rows, width))
        columns = self.affine(value, kernel, None if vector is None else vector.reshape(-1, 1, 1), names)
        return self.gather(columns, np.arange(out * rows).reshape(out, rows).T.reshape(*lead, out))

    def dense_left(self, value: Value, weight: Named) -> Value:
        """``weight @ X`` for values ``X`` of shape ``(in, columns)``: the matrix acts along the first axis."""
        out, width = weight.array.shape
        if len(value.shape) != 2 or value.shape[0] != width:
            raise InputError(f"expected a value of shape ({width}, columns), got {value.shape}")
        columns = value.shape[1]
        if columns == 1:
            operator: Operator = Dense(weight.array, value.shape)
        else:
            operator = Convolution(weight.array.reshape(out, width, 1, 1), (width, columns, 1))
        return self.affine(value, operator, None, (weight.name, None), (out, columns))

    def convolution(
        self, value: Value, weight: Named, bias: Named | None, window: Window, groups: int, transposed: bool = False
    ) -> Value:
        """A convolution along one or two axes; one axis is taken as the width of an image of height one.

        A transposed one may have a negative padding at the ends, which makes its output larger.
        """
        axes = len(window.size)
        kernel = weight.array
        if len(value.shape) != axes + 1 or kernel.ndim != axes + 2 or groups < 1:
            raise InputError(
                f"expected an input with {axes + 1} axes (channels first), got {value.shape} "
                f"for a kernel {kernel.shape} in {groups} groups"
            )
        kernel = kernel.reshape(*kernel.shape[:2], *window.planar().size)
        _, stride, padding, dilation = window.planar().pairs()
        _positive((*stride, *dilation), padding[:2] if transposed else padding)
        image = (value.shape[0], *((1, value.shape[1]) if axes == 1 else value.shape[1:]))
        kind = TransposedConvolution if transposed else Convolution
        operator: Operator = kind(kernel, image, stride, padding, dilation, groups)
        channels = operator.out_shape[0]
        if bias is not None and bias.array.shape != (channels,):
            raise InputError(f"bias: expected shape {(channels,)}, got {bias.array.shape}")
        names = (weight.name, None if bias is None else bias.name)
        vector = None if bias is None else bias.array.reshape(-1, 1, 1)
        shape = operator.out_shape if axes == 2 else (channels, operator.out_shape[2])
        return self.affine(value, operator, vector, names, shape)

    def batch_norm(
        self,
        value: Value,
        mean: FloatArray,
        variance: FloatArray,
        epsilon: float,
        gamma: Named | None,
        beta: Named | None,
    ) -> Value:
        """Batch normalisation with its stored statistics, as two affine maps.

        First the constant standardisation ``x / s - mean / s`` with ``s = sqrt(variance + epsilon)`` in float64,
        then ``gamma x + beta``, whose numbers are the model's parameters.
        """
        channels = value.shape[0] if value.shape else 0
        for name, array in (("mean", mean), ("variance", variance)):
            if array.shape != (channels,):
                raise InputError(f"{name}: expected {channels} entries for {value.shape}, got {array.shape}")
        if (variance + epsilon <= 0).any():
            raise InputError("variance: expected positive numbers after adding epsilon")
        column = (channels, *(1 for _ in value.shape[1:]))
        inverse = 1 / np.sqrt(variance + epsilon)
        value = self.affine(value, Scale(inverse.reshape(column), value.shape), (-mean * inverse).reshape(column))
        if gamma is None and beta is None:
            return value
        factors = np.ones(()) if gamma is None else gamma.array.reshape(column)
        offset = None if beta is None else beta.array.reshape(column)
        names = (None if gamma is None else gamma.name, None if beta is None else beta.name)
        return self.affine(value, Scale(factors, value.shape), offset, names)

    # -- entrywise maps ----------------------------------------------------------------------------------------

    def scale(self, value: Value, factors: Named, bias: Named | None = None) -> Value:
        """Entrywise product with constants that broadcast against the value's shape (without the batch axis)."""
        value = self.broadcast(value, _common(value.shape, factors.array.shape))
        offset, name = (None, None) if bias is None else (bias.array, bias.name)
        return self.affine(value, Scale(factors.array, value.shape), offset, (factors.name, name))

    def shift(self, value: Value, bias: Named, fuse: bool) -> Value:
        """Add constants that broadcast; ``fuse`` allows to make them the bias of the map that made the value."""
        shape = _common(value.shape, bias.array.shape)
        before = self.nodes[value.index - 1] if value.index else None
        if fuse and isinstance(before, Affine) and before.bias is None and shape == value.shape:
            vector = _without_leading_ones(bias.array, len(before.shape))
            if vector is not None and _trimmed(before.shape) == _trimmed(shape):
                self.nodes[value.index - 1] = replace(before, bias=vector, bias_name=bias.name)
                self._use(bias.name, vector)
                return value
        value = self.broadcast(value, shape)
        return self.affine(value, Scale(1.0, shape), bias.array, (None, bias.name))

    def activation(self, value: Value, slopes: FloatArray | float, name: str | None = None) -> Value:
        """``max(x, 0) + slope min(x, 0)``; the slopes broadcast to the value's shape and may be a parameter."""
        node = PiecewiseLinear(value.index, np.asarray(slopes, dtype=np.float64), value.shape, name)
        self._use(name, node.own_slopes)
        return self.push(node, value.shape, value.batched)

    def clip(self, value: Value, low: FloatArray | float, high: FloatArray | float, join: bool = True) -> Value:
        """``min(max(x, low), high)``; bounds broadcast and may be infinite. What was just clipped is clipped once more.

        Where ``low >= high`` the result is the constant ``high``. A bound of zero alone is an activation. A clip that
        does more, as a quantiser rounds besides, stays what it is.
        """
        value = self.broadcast(value, _common(_common(value.shape, np.shape(low)), np.shape(high)))
        low, high = (np.broadcast_to(np.asarray(b, dtype=np.float64), value.shape) for b in (low, high))
        before = self.nodes[value.index - 1] if value.index and join else None
        if type(before) is Clip:
            own = before.low.reshape(value.shape), before.high.reshape(value.shape)
            first, last = (np.minimum(np.maximum(b, low), high) for b in own)  # clipping keeps order
            if (first < last).all():
                return self.clip(Value(before.source, value.shape, value.batched), first, last, join=False)
        flat = low >= high
        if flat.any():
            value = self.affine(value, Scale(np.where(flat, 0.0, 1.0), value.shape), np.where(flat, high, 0.0))
            low, high = np.where(flat, -np.inf, low), np.where(flat, np.inf, high)
        if join and np.isinf(low).all() and np.isinf(high).all():
            return value
        if join and not low.any() and np.isinf(high).all():
            return self.activation(value, 0.0)
        return self.push(Clip(value.index, low, high, value.shape), value.shape, value.batched)

    def gather(self, value: Value, index: IntArray, bias: FloatArray | None = None, join: bool = True) -> Value:
        """Entries of the value by their places in it, -1 for a zero, in the shape of ``index``.

        A mere change of shape costs nothing, and rearranging what was just rearranged costs one node, unless ``join``
        says to keep them apart.
        """
        if bias is None and index.size == value.size and (index.reshape(-1) == np.arange(value.size)).all():
            return value.reshaped(index.shape, value.batched)
        before = self.nodes[value.index - 1] if value.index and join else None
        if isinstance(before, Affine) and isinstance(before.operator, Gather) and before.bias is None:
            index = np.where(index < 0, -1, before.operator.index[index])
            return self.gather(Value(before.source, before.operator.in_shape, value.batched), index, bias)
        return self.affine(value, Gather(index, value.shape), bias)

    def sums(self, value: Value, axes: Sequence[int], keep: bool, weight: float = 1.0) -> Value:
        """``weight`` times the sum over axes counted without the batch axis."""
        rest = [a for a in range(len(value.shape)) if a not in axes]
        kept = tuple(1 if a in axes else n for a, n in enumerate(value.shape))
        rows = np.arange(value.size).reshape(value.shape).transpose([*rest, *axes]).reshape(prod(kept), -1)
        starts = np.arange(len(rows) + 1) * rows.shape[1]
        matrix = sp.csr_array((np.full(rows.size, weight), rows.reshape(-1), starts), shape=(len(rows), value.size))
        summed = self.affine(value, Sparse(matrix, value.shape, kept))
        return summed if keep else summed.reshaped(tuple(value.shape[a] for a in rest), value.batched)

    def broadcast(self, value: Value, shape: Shape) -> Value:
        """The value repeated to a larger shape; nothing where it has that shape already."""
        if shape == value.shape:
            return value
        if prod(shape) == value.size:
            return value.reshaped(shape, value.batched)
        return self.gather(value, np.broadcast_to(np.arange(value.size).reshape(value.shape), shape))

    # -- joining -----------------------------------------------------------------------------------------------

    def add(self, values: Sequence[Value]) -> Value:
        """Sum of computed values, which broadcast against each other."""
        values = self.alike(values)
        shape = values[0].shape
        return self.push(Add(tuple(v.index for v in values), shape), shape, values[0].batched)

    def alike(self, values: Sequence[Value]) -> list[Value]:
        """Values repeated to their common shape."""
        if len({(v.batched, len(v.shape) if v.batched else 0) for v in values}) != 1:
            raise UnsupportedModelError(f"joins values of different ranks, {[v.shape for v in values]}")
        shape = values[0].shape
        for value in values[1:]:
            shape = _common(shape, value.shape)
        return [self.broadcast(value, shape) for value in values]

    def subtract(self, a: Value, b: Value) -> Value:
        """``a - b``: the sum with the value scaled by the constant -1."""
        return self.add([a, self.negated(b)])

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Values joined along an axis counted without the batch axis."""
        ranks = {len(v.shape) for v in values}
        if len(ranks) != 1 or not 0 <= axis < min(ranks) or len({v.batched for v in values}) != 1:
            raise InputError(f"cannot join {[v.shape for v in values]} along axis {axis}")
        node = Concat(tuple(v.index for v in values), tuple(v.shape for v in values), axis)
        return self.push(node, node.shape, values[0].batched)

    # -- pooling -----------------------------------------------------------------------------------------------

    def max_pool(self, value: Value, window: Window) -> Value:
        """Maximum over windows along one or two axes."""
        node = self._pool(value, window)
        return self.push(node, _pooled(value, node), value.batched)

    def maximum(self, values: Sequence[Value]) -> Value:
        """The largest of several computed values, entry by entry; they broadcast against each other."""
        values = list({value.index: value for value in self.alike(values)}.values())
        if len(values) == 1:
            return values[0]
        shape, size = values[0].shape, values[0].size
        joined = self.concat([value.reshaped((size,), value.batched) for value in values], 0)
        return self.largest(joined, np.arange(len(values) * size).reshape(len(values), size).T, shape)

    def largest(self, value: Value, table: IntArray, shape: Shape) -> Value:
        """The largest entry of every window of a table of places, in a shape with as many entries as windows."""
        if table.shape[1] == 1:
            return self.gather(value, table.reshape(shape))
        return self.push(MaxPool.over(value.index, value.shape, table), shape, value.batched)

    def largest_along(self, value: Value, axes: Sequence[int], keep: bool) -> Value:
        """The largest entry along axes counted without the batch axis."""
        rest = [a for a in range(len(value.shape)) if a not in axes]
        shape = tuple(1 if a in axes else n for a, n in enumerate(value.shape) if keep or a not in axes)
        table = np.arange(value.size).reshape(value.shape).transpose([*rest, *axes]).reshape(prod(shape), -1)
        return self.largest(value, table, shape)

    def negated(self, value: Value) -> Value:
        """``-x``: the smallest is the largest of what is negated, negated again."""
        return self.scale(value, Named(np.asarray(-1.0)))

    def mean_pool(self, value: Value, window: Window, count_padding: bool) -> Value:
        """Mean over windows: a constant depthwise convolution, or a sparse map where windows differ in size.

        ``count_padding`` counts the padding as zeros; a window that reaches beyond the padding (because sizes were
        rounded up) is cut there.
        """
        node = self._pool(value, window)
        counts = np.outer(*(self._counts(node, axis, count_padding) for axis in (0, 1)))
        channels = node.in_shape[0]
        full = prod(node.kernel)
        if (counts == full).all():
            kernel = np.full((channels, 1, *node.kernel), 1 / full)
            mean = Convolution(kernel, node.in_shape, node.stride, node.padding, node.dilation, channels)
            if mean.out_shape == node.shape:
                return self.affine(value, mean, shape=_pooled(value, node))
        rows, taps = np.nonzero(node.windows >= 0)
        weights = 1 / np.tile(counts.reshape(-1), channels)
        entries = (weights[rows], (rows, node.windows[rows, taps]))
        matrix = sp.csr_array(sp.coo_array(entries, shape=(len(node.windows), value.size)))
        return self.affine(value, Sparse(matrix, node.in_shape, node.shape), shape=_pooled(value, node))

    def mean(self, value: Value, axes: Sequence[int], keep: bool) -> Value:
        """Mean over axes counted without the batch axis."""
        if len(value.shape) in (2, 3) and list(axes) == list(range(1, len(value.shape))):
            size, ones = value.shape[1:], tuple(1 for _ in axes)
            pooled = self.mean_pool(value, Window(size, ones, (0, 0) * len(axes), ones), False)
            return pooled.reshaped((value.shape[0], *ones) if keep else value.shape[:1], value.batched)
        return self.sums(value, axes, keep, 1 / prod(value.shape[a] for a in axes))

    def _pool(self, value: Value, window: Window) -> MaxPool:
        axes = len(window.size)
        if len(value.shape) != axes + 1:
            raise InputError(f"expected an input with {axes + 1} axes (channels first), got {value.shape}")
        image = (value.shape[0], *((1, value.shape[1]) if axes == 1 else value.shape[1:]))
        planar = window.planar()
        size, stride, padding, dilation = planar.pairs()
        _positive((*size, *stride, *dilation), padding)
        return MaxPool(value.index, image, size, stride, padding, dilation, planar.ceil)

    @staticmethod
    def _counts(node: MaxPool, axis: int, count_padding: bool) -> IntArray:
        starts = np.arange(node.shape[1 + axis])[:, None] * node.stride[axis] - node.padding[axis]
        taps = starts + np.arange(node.kernel[axis]) * node.dilation[axis]
        length = node.in_shape[1 + axis]
        low, high = (-node.padding[axis], length + node.padding[axis + 2]) if count_padding else (0, length)
        return np.asarray(((taps >= low) & (taps < high)).sum(axis=1))

    # -- the program -------------------------------------------------------------------------------------------

    def finish(self, result: Value) -> Network:
        """The program that computes ``result``: nodes it does not need are left out."""
        if result.index == 0:
            raise InputError("expected a model that computes something, got one that returns its input")
        nodes: dict[int, Given] = {i + 1: self._renamed(node) for i, node in enumerate(self.nodes)}
        for group, name in self.compositions:
            _merge(nodes, group, name)
        needed, queue = {0}, [result.index]
        while queue:
            index = queue.pop()
            if index not in needed:
                needed.add(index)
                queue += nodes[index].sources
        order = {old: new for new, old in enumerate(sorted(needed))}
        kept = [moved(nodes[old], tuple(order[s] for s in nodes[old].sources)) for old in sorted(needed - {0})]
        return Network.from_nodes(kept, self.input.shape, Source(coarsest(self.precisions)))

    def _renamed(self, node: Given) -> Given:
        if isinstance(node, PiecewiseLinear) and node.slope_name in self._dropped:
            return replace(node, slope_name=None)
        if not isinstance(node, Affine) or not {node.weight_name, node.bias_name} & self._dropped:
            return node
        weight = None if node.weight_name in self._dropped else node.weight_name
        bias = None if node.bias_name in self._dropped else node.bias_name
        return replace(node, weight_name=weight, bias_name=bias)


def _merge(nodes: dict[int, Given], group: list[int], name: str | None) -> None:
    """Join a run of affine maps into one composition; only the last may have a bias."""
    parts = [nodes[index] for index in group]
    affine = [part for part in parts if isinstance(part, Affine)]
    inner = set(group[:-1])
    used = [s for index, node in nodes.items() if index not in group for s in node.sources]
    in_a_row = all(after.source == index for index, after in zip(group, affine[1:], strict=False))
    if len(affine) < len(parts) or not in_a_row or inner & set(used) or any(p.bias is not None for p in affine[:-1]):
        raise InputError(f"composition: expected affine maps in a row, got the nodes {group}")
    operator = Composition([part.operator for part in affine])
    nodes[group[-1]] = replace(affine[-1], source=affine[0].source, operator=operator, weight_name=name)


def _common(a: Shape, b: Shape) -> Shape:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError as error:
        raise InputError(f"shapes {a} and {b} do not broadcast") from error


def _trimmed(shape: Shape) -> Shape:
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def _without_leading_ones(array: FloatArray, ndim: int) -> FloatArray | None:
    extra = max(array.ndim - ndim, 0)
    return array.reshape(array.shape[extra:]) if array.shape[:extra] == (1,) * extra else None


def _positive(steps: tuple[int, ...], padding: tuple[int, ...]) -> None:
    if min(steps) < 1 or min(padding) < 0:
        raise InputError(f"expected positive window sizes and steps and no negative padding, got {steps}, {padding}")


def _pooled(value: Value, node: MaxPool) -> Shape:
    return node.shape if len(value.shape) == 3 else (node.shape[0], node.shape[2])
