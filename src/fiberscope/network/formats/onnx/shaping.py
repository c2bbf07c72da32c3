"""ONNX operators that move, repeat, leave out, add up or interpolate entries: one function per operator.

Where a value has a batch axis, nothing may happen along it. A graph for one point may do as it likes with an axis of
size one in front; that is then an axis as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.action.element import is_permutation
from fiberscope.network.formats.graph_values import Value
from fiberscope.network.formats.onnx.graph import Attributes, Graph, MixesBatchError
from fiberscope.network.formats.rearrange import depth_to_space, padded, places, space_to_depth
from fiberscope.network.formats.resample import along_axes, coordinates, linear, nearest
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Gather, Sparse


def _flatten(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    full = graph.full(value)
    axis = attributes.integer("axis", 1)
    if not -len(full) <= axis <= len(full):
        raise InputError(f"axis: expected at most {len(full)}, got {axis}")
    axis = axis + len(full) if axis < 0 else axis
    return graph.reshaped(value, [prod(full[:axis]), prod(full[axis:])])


def _reshape(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    full = graph.full(value)
    if "shape" in attributes.found:  # before opset 5
        target = list(attributes.integers("shape", ()))
    else:
        constant = graph.constant(node, 1)
        if constant is None:
            raise UnsupportedModelError("its target shape is not a constant")
        target = list(constant.integers())
    if not attributes.integer("allowzero", 0):
        target = [full[i] if n == 0 else n for i, n in enumerate(target)]
    if target.count(-1) > 1 or min(target, default=1) < -1:
        raise InputError(f"expected at most one -1 in the target shape, got {target}")
    if -1 in target:
        rest = prod(n for n in target if n != -1)
        if rest == 0 or prod(full) % rest:
            raise InputError(f"cannot reshape {tuple(full)} to {tuple(target)}")
        target[target.index(-1)] = prod(full) // rest
    return graph.reshaped(value, target)


def _axes(graph: Graph, node: Any, attributes: Attributes, index: int) -> tuple[int, ...] | None:
    """Axes as an attribute, in older files, or as an input."""
    if "axes" in attributes.found:
        return attributes.integers("axes", ())
    return graph.integers(node, index, "axes")


def _squeeze(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    full = graph.full(value)
    axes = _axes(graph, node, attributes, 1)
    if axes is None:
        gone = {a for a, n in enumerate(full) if n == 1 and not (a == 0 and value.batched)}
    else:
        gone = {a % len(full) for a in axes if -len(full) <= a < len(full)}
        if len(gone) != len(axes) or any(full[a] != 1 for a in gone):
            raise InputError(f"axes: expected axes of size 1 of {tuple(full)}, got {axes}")
    return graph.reshaped(value, [n for a, n in enumerate(full) if a not in gone])


def _unsqueeze(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, axes = graph.value(node), _axes(graph, node, attributes, 1) or ()
    full = graph.full(value)
    rank = len(full) + len(axes)
    new = {a % rank for a in axes if -rank <= a < rank}
    if len(new) != len(axes):
        raise InputError(f"axes: expected different axes below {rank}, got {axes}")
    rest = iter(full)
    return graph.reshaped(value, [1 if a in new else next(rest) for a in range(rank)])


def _transpose(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    full = graph.full(value)
    order = attributes.integers("perm", tuple(reversed(range(len(full)))))
    if not is_permutation(order, len(full)):
        raise InputError(f"perm: expected the axes of {tuple(full)}, got {order}")
    if not value.batched:
        return graph.builder.gather(value, places(value.shape).transpose(order))
    if order[0] == 0:
        return graph.builder.gather(value, places(value.shape).transpose([a - 1 for a in order[1:]]))
    if graph.batch != 1:
        raise MixesBatchError(f"transposing {tuple(full)} by {order} mixes the points of a batch")
    moved = places(full).transpose(order)
    return graph.reshaped(graph.builder.gather(value.reshaped(full, False), moved), list(moved.shape))


def _slice(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    if "starts" in attributes.found:  # before opset 10
        starts, ends = attributes.integers("starts", ()), attributes.integers("ends", ())
        axes, steps = attributes.integers("axes", tuple(range(len(starts)))), (1,) * len(starts)
    else:
        starts, ends = (graph.integers(node, 1 + k, what) or () for k, what in enumerate(("start", "end")))
        axes = graph.integers(node, 3, "axes") or tuple(range(len(starts)))
        steps = graph.integers(node, 4, "steps") or (1,) * len(starts)
    index = places(value.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        rank = len(value.shape) + value.batched
        if value.batched and axis % rank == 0 and start == 0 and end >= graph.batch and step == 1:
            continue
        # an end before the beginning is said by a number that is smaller than minus the size
        size = index.shape[own := graph.axis(value, axis, "a slice")]
        last = None if step < 0 and end < -size else end
        index = index[(slice(None),) * own + (slice(start, last, step),)]
    if not index.size:
        raise InputError(f"nothing is left of {value.shape}")
    return graph.builder.gather(value, index)


def _split(graph: Graph, node: Any, attributes: Attributes) -> list[Value]:
    value = graph.value(node)
    axis = graph.axis(value, attributes.integer("axis", 0), "a split")
    size, count = value.shape[axis], len(node.output)
    given = attributes.integers("split", ()) if "split" in attributes.found else graph.integers(node, 1, "sizes")
    if given is None:
        part = -(-size // attributes.integer("num_outputs", count))
        given = (*(part,) * (count - 1), size - part * (count - 1))
    if len(given) != count or sum(given) != size or min(given) < 1:
        raise InputError(f"split: expected {count} sizes that add up to {size}, got {given}")
    return [
        graph.builder.gather(value, index) for index in np.split(places(value.shape), np.cumsum(given)[:-1], axis=axis)
    ]


def _gather(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, constant = graph.value(node), graph.constant(node, 1)
    if constant is None:
        raise UnsupportedModelError("its indices are not a constant")
    axis = graph.axis(value, attributes.integer("axis", 0), "a selection")
    wanted = np.array(constant.integers()).reshape(tuple(int(n) for n in constant.proto.dims))
    size = value.shape[axis]
    if wanted.size and not (wanted.min() >= -size and wanted.max() < size):
        raise InputError(f"indices: expected numbers from {-size} to {size - 1}, got another one")
    shapes = graph.notes.shapes.get(node.name)
    if shapes is None:
        return graph.builder.gather(value, np.take(places(value.shape), wanted, axis=axis))
    # a file of our own: just the operator that was written, with the zero that was put behind its input
    before = graph.builder.nodes[value.index - 1] if value.index else None
    if node.name in graph.notes.joined and isinstance(before, Affine) and isinstance(before.operator, Gather):
        wanted, value = before.operator.index[wanted], Value(before.source, before.operator.in_shape, value.batched)
    operator = Gather(wanted, *shapes)
    return graph.builder.affine(value, operator, shape=(operator.out_size,))


def _pad(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    full = graph.full(value)
    if "pads" in attributes.found:  # before opset 11
        pads, number = attributes.integers("pads", ()), attributes.number("value", 0.0)
    else:
        pads = graph.integers(node, 1, "padding") or ()
        fill = graph.constant(node, 2)
        number = 0.0 if fill is None else float(graph.named(fill).array.reshape(()))
    axes = graph.integers(node, 3, "axes") or tuple(range(len(full)))
    if len(pads) != 2 * len(axes):
        raise InputError(f"pads: expected {2 * len(axes)} numbers for {tuple(full)}, got {pads}")
    widths = [(0, 0)] * len(full)
    for k, axis in enumerate(axes):
        widths[axis] = pads[k], pads[k + len(axes)]
    if value.batched and any(widths.pop(0)):
        raise MixesBatchError("padding along the batch axis adds points")
    index = padded(places(value.shape), widths, attributes.text("mode", "constant"))
    bias = np.where(index < 0, number, 0.0) if number else None
    return graph.builder.gather(value, index, bias, join=node.name not in graph.notes.joined)


def _expand(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, target = graph.value(node), graph.integers(node, 1, "shape") or ()
    full = graph.full(value)
    wanted = list(np.broadcast_shapes(tuple(full), target))
    value = value.reshaped((1,) * (len(wanted) - len(full)) + tuple(full), False) if len(wanted) > len(full) else value
    if value.batched and wanted[0] != graph.batch:
        raise MixesBatchError(f"a batch of {graph.batch} cannot be expanded to {tuple(wanted)}")
    return graph.builder.broadcast(value, tuple(wanted[value.batched :]))


def _tile(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, repeats = graph.value(node), list(graph.integers(node, 1, "repeats") or ())
    if len(repeats) != len(value.shape) + value.batched:
        raise InputError(f"repeats: expected {len(value.shape) + value.batched} numbers, got {repeats}")
    if value.batched and repeats.pop(0) != 1:
        raise MixesBatchError("repeating the batch adds points")
    return graph.builder.gather(value, np.tile(places(value.shape), repeats))


def _image(graph: Graph, node: Any) -> Value:
    value = graph.value(node)
    if not value.batched or len(value.shape) != 3:
        raise UnsupportedModelError(f"expected (batch, channels, height, width), got {tuple(graph.full(value))}")
    return value


def _depth_to_space(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, mode = _image(graph, node), attributes.text("mode", "DCR")
    index = depth_to_space(places(value.shape), attributes.integer("blocksize", 0), mode == "DCR")
    return graph.builder.gather(value, index)


def _space_to_depth(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = _image(graph, node)
    index = space_to_depth(places(value.shape), attributes.integer("blocksize", 0), blocks_first=True)
    return graph.builder.gather(value, index)


# -- sums and resizing -------------------------------------------------------------------------------------------------


def _reduced(graph: Graph, node: Any, attributes: Attributes, kind: str) -> Value:
    value = graph.value(node)
    full = graph.full(value)
    given = _axes(graph, node, attributes, 1)
    if not given and attributes.integer("noop_with_empty_axes", 0):
        return value
    axes = sorted({a % len(full) for a in (given or range(len(full))) if -len(full) <= a < len(full)})
    if given and len(axes) != len(given):
        raise InputError(f"axes: expected different axes of {tuple(full)}, got {given}")
    if value.batched and 0 in axes:
        if graph.batch != 1:
            raise MixesBatchError("a sum along the batch axis mixes the points")
        value = value.reshaped(full, False)
    own = [a - value.batched for a in axes]
    keep = bool(attributes.integer("keepdims", 1))
    match kind:
        case "mean":
            result = graph.builder.mean(value, own, keep)
        case "sum":
            result = graph.builder.sums(value, own, keep)
        case "max":
            result = graph.builder.largest_along(value, own, keep)
        case _:
            negated = graph.builder.largest_along(graph.builder.negated(value), own, keep)
            result = graph.builder.negated(negated)
    return graph.reshaped(result, graph.full(result)) if not result.batched else result


def _resize(graph: Graph, node: Any, attributes: Attributes) -> Value:
    """Resize, and its forerunner Upsample: nearest entries and linear interpolation with constant factors."""
    value = graph.value(node)
    for name, usual in (("antialias", "0"), ("exclude_outside", "0"), ("keep_aspect_ratio_policy", "stretch")):
        if attributes.text(name, usual) != usual:
            raise UnsupportedModelError(f"option {name} is not supported")
    old = node.op_type == "Upsample" or len(node.input) == 2  # before opset 11
    counts, scales = _targets(graph, node, attributes, old)
    lines = list(zip(value.shape, counts, scales, strict=True))
    mode = attributes.text("mode", "nearest")
    how = attributes.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if mode == "nearest":
        rounding, index = attributes.text("nearest_mode", "floor" if old else "round_prefer_floor"), places(value.shape)
        for axis, (size, count, scale) in enumerate(lines):
            if scale != 1:
                index = np.take(index, nearest(size, count, float(scale), how, rounding), axis=axis)
        return graph.builder.gather(value, index)
    if mode != "linear":
        raise UnsupportedModelError(f"resizing in mode {mode!r} is not supported")
    matrices = [
        np.eye(size) if scale == 1 else linear(coordinates(size, count, scale, how), size)
        for size, count, scale in lines
    ]
    return graph.builder.affine(value, Sparse(along_axes(matrices), value.shape, tuple(counts)))


def _targets(graph: Graph, node: Any, attributes: Attributes, old: bool) -> tuple[list[int], list[Fraction]]:
    """New size of every axis but the batch, and the factor; a factor of one changes nothing."""
    value = graph.value(node)
    full = graph.full(value)
    axes = attributes.integers("axes", ()) or tuple(range(len(full)))
    sizes = None if old else graph.integers(node, 3, "sizes")
    factors = None if sizes is not None else _factors(graph, node, attributes, 1 if old else 2)
    given = factors if sizes is None else sizes
    if given is None or len(given) != len(axes):
        raise InputError(f"expected sizes or factors for {len(axes)} axes")
    counts, scales = list(full), [Fraction(1)] * len(full)
    for axis, wanted in zip(axes, given, strict=True):
        if sizes is None:
            scales[axis] = Fraction(float(wanted))
            counts[axis] = int(np.float32(full[axis]) * np.float32(wanted))
        else:
            counts[axis], scales[axis] = wanted, Fraction(wanted, full[axis])
    if min(counts) < 1 or min(scales) <= 0:
        raise InputError(f"cannot resize {tuple(full)} to {tuple(counts)}")
    if value.batched:
        counts.pop(0)
        if scales.pop(0) != 1:
            raise MixesBatchError("resizing along the batch axis mixes the points")
    return counts, scales


def _factors(graph: Graph, node: Any, attributes: Attributes, index: int) -> Any:
    if "scales" in attributes.found:  # Upsample before opset 9
        return np.asarray(attributes.found["scales"], dtype=np.float64)
    found = graph.constant(node, index)
    if found is None:
        raise UnsupportedModelError("its factors are not constant")
    return found.floats() if prod(found.proto.dims) else None


SHAPES: dict[str, Callable[[Graph, Any, Attributes], Value | list[Value]]] = {
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Pad": _pad,
    "ReduceMax": partial(_reduced, kind="max"),
    "ReduceMean": partial(_reduced, kind="mean"),
    "ReduceMin": partial(_reduced, kind="min"),
    "ReduceSum": partial(_reduced, kind="sum"),
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resize,
}
