"""Functions and methods of torch that move, repeat or leave out entries; each takes the arguments of torch's own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor, prod
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.action.element import is_permutation
from fiberscope.network.formats.graph_values import Value
from fiberscope.network.formats.rearrange import depth_to_space, padded, places, space_to_depth
from fiberscope.network.formats.resample import along_axes, cell_means, coordinates, linear
from fiberscope.network.formats.torch.traced_values import BATCH, BatchSize, Const, Reader
from fiberscope.network.operators import Sparse
from fiberscope.numerics.floats import IntArray

Handler = Callable[..., Any]


def cat(r: Reader, tensors: Any, dim: int = 0, *, axis: int | None = None) -> Value:
    if not all(isinstance(value, Value) for value in tensors):
        raise UnsupportedModelError("joining constants to computed values is not supported")
    return r.builder.concat(list(tensors), r.axis(tensors[0], dim if axis is None else axis))


def flatten(r: Reader, input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if not input.shape and start_dim in (1, -1):
        return input.reshaped((1,))
    first, last = r.axis(input, start_dim), r.axis(input, end_dim)
    shape = input.shape
    return input.reshaped((*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))


def unflatten(r: Reader, input: Value, dim: int, sizes: Any) -> Value:
    axis = r.axis(input, dim)
    sizes = [int(n) for n in sizes]
    if -1 in sizes:
        sizes[sizes.index(-1)] = input.shape[axis] // max(1, -prod(sizes))
    return input.reshaped((*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))


def reshape(r: Reader, input: Value, *shape: Any) -> Value:
    target = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    return r.reshaped(input, target)


def squeeze(r: Reader, input: Value, dim: Any = None) -> Value:
    if dim is None:
        raise UnsupportedModelError("squeezing all axes also takes the axis of a batch of one point; say which")
    axes = [r.axis(input, axis) for axis in ((dim,) if isinstance(dim, int) else dim)]
    return input.reshaped([n for axis, n in enumerate(input.shape) if n != 1 or axis not in axes])


def unsqueeze(r: Reader, input: Value, dim: int) -> Value:
    axis = r.axis(input, dim, extra=1)
    return input.reshaped((*input.shape[:axis], 1, *input.shape[axis:]))


def size(r: Reader, input: Value, dim: int | None = None) -> Any:
    full = (BATCH, *input.shape)
    return full if dim is None else full[dim]


def attribute(r: Reader, input: Any, name: str) -> Any:
    if isinstance(input, tuple) and name == "values":
        return input[0]  # of a maximum along an axis, which comes with places
    if name == "shape":
        return size(r, input)
    if name == "ndim":
        return len(input.shape) + 1
    if name == "device":
        return torch.device("cpu")  # where constants are made on the way
    if name == "mT":
        return transpose(r, input, -2, -1)
    raise UnsupportedModelError(f"attribute {name!r} of a tensor is not supported")


def rank(r: Reader, input: Value) -> int:
    return len(input.shape) + 1


# -- views -------------------------------------------------------------------------------------------------------------


def getitem(r: Reader, input: Any, key: Any) -> Any:
    """Indexing, which must leave the batch axis alone."""
    if not isinstance(input, Value):
        return input[key]  # one of several values, or a size
    keys = key if isinstance(key, tuple) else (key,)
    if not keys or not (keys[0] is Ellipsis or keys[0] == slice(None)):
        raise UnsupportedModelError("indexing along the batch axis mixes the points")
    plain = tuple(_key(part) for part in keys)
    stack = np.stack([places(input.shape), places(input.shape) + input.size])
    try:
        index = stack[plain]
    except IndexError as error:
        raise InputError(f"cannot index {input.shape}: {error}") from error
    if len(index) != 2 or not np.array_equal(index[1], index[0] + input.size):
        raise UnsupportedModelError("indexing along the batch axis mixes the points")
    return r.moved(input, index[0])


def _key(part: Any) -> Any:
    if isinstance(part, Const):
        return part.tensor.numpy()
    if isinstance(part, list):
        return [_key(entry) for entry in part]
    known = part is None or part is Ellipsis or isinstance(part, int)
    if isinstance(part, slice):
        known = all(n is None or isinstance(n, int) for n in (part.start, part.stop, part.step))
    if not known or isinstance(part, bool):
        raise UnsupportedModelError(f"an index of type {type(part).__name__} is not supported")
    return part


def transpose(r: Reader, input: Value, dim0: int, dim1: int) -> Value:
    return r.moved(input, places(input.shape).swapaxes(r.axis(input, dim0), r.axis(input, dim1)))


def permute(r: Reader, input: Value, *dims: Any) -> Value:
    order = [n % (len(input.shape) + 1) for n in _listed(dims)]
    if order[:1] != [0] or not is_permutation(order, len(input.shape) + 1):
        raise UnsupportedModelError(f"a permutation {tuple(order)} does not leave the batch axis first")
    return r.moved(input, places(input.shape).transpose([n - 1 for n in order[1:]]))


def movedim(r: Reader, input: Value, source: Any, destination: Any) -> Value:
    ends = [[r.axis(input, n) for n in ((end,) if isinstance(end, int) else end)] for end in (source, destination)]
    return r.moved(input, np.moveaxis(places(input.shape), *ends))


def split(r: Reader, tensor: Value, split_size_or_sections: Any, dim: int = 0) -> tuple[Value, ...]:
    axis = r.axis(tensor, dim)
    given, size = split_size_or_sections, tensor.shape[axis]
    if isinstance(given, int):
        cuts = list(range(given, size, given))
    else:
        cuts = np.cumsum(given)[:-1].tolist()
        if sum(given) != size:
            raise InputError(f"split: expected sizes that add up to {size}, got {tuple(given)}")
    return tuple(r.moved(tensor, index) for index in np.split(places(tensor.shape), cuts, axis=axis))


def chunk(r: Reader, input: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    return split(r, input, -(-input.shape[r.axis(input, dim)] // chunks), dim)


def unbind(r: Reader, input: Value, dim: int = 0) -> tuple[Value, ...]:
    axis = r.axis(input, dim)
    return tuple(r.moved(input, np.take(places(input.shape), k, axis=axis)) for k in range(input.shape[axis]))


def narrow(r: Reader, input: Value, dim: int, start: int, length: int) -> Value:
    index = places(input.shape)
    return r.moved(input, np.take(index, np.arange(start, start + length), axis=r.axis(input, dim)))


def select(r: Reader, input: Value, dim: int, index: int) -> Value:
    return r.moved(input, np.take(places(input.shape), index, axis=r.axis(input, dim)))


def expand(r: Reader, input: Value, *sizes: Any) -> Value:
    first, *rest = _listed(sizes)
    if not (isinstance(first, BatchSize) or first == -1) or len(rest) < len(input.shape):
        raise UnsupportedModelError(f"cannot expand {input.shape} to {(first, *rest)}: the batch axis must stay first")
    own = (1,) * (len(rest) - len(input.shape)) + input.shape
    shape = tuple(n if m == -1 else m for n, m in zip(own, rest, strict=True))
    return r.moved(input, np.broadcast_to(places(own), shape))


def _listed(arguments: tuple[Any, ...]) -> list[Any]:
    return list(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], tuple | list) else list(arguments)


# -- copies ------------------------------------------------------------------------------------------------------------


def stack(r: Reader, tensors: Any, dim: int = 0) -> Value:
    return cat(r, [unsqueeze(r, tensor, dim) for tensor in tensors], dim)


def pad(r: Reader, input: Value, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Value:
    if len(pad) % 2 or len(pad) > 2 * len(input.shape) or not all(isinstance(n, int) for n in pad):
        raise UnsupportedModelError(f"padding {tuple(pad)} of a value of shape {input.shape} is not supported")
    widths = [(0, 0)] * len(input.shape)
    for k in range(0, len(pad), 2):  # the last axis comes first
        widths[-1 - k // 2] = pad[k], pad[k + 1]
    index = padded(places(input.shape), widths, mode)
    number = r.named(0.0 if value is None else value, "value").array
    return r.moved(input, index, np.where(index < 0, number, 0.0) if number.any() else None)


def flip(r: Reader, input: Value, *dims: Any) -> Value:
    return r.moved(input, np.flip(places(input.shape), tuple(r.axis(input, n) for n in _listed(dims))))


def roll(r: Reader, input: Value, shifts: Any, dims: Any = None) -> Value:
    if dims is None:
        raise UnsupportedModelError("rolling over all axes mixes the points of a batch")
    axes = [r.axis(input, n) for n in ((dims,) if isinstance(dims, int) else dims)]
    return r.moved(input, np.roll(places(input.shape), shifts, axes))


def repeat(r: Reader, input: Value, *sizes: Any) -> Value:
    first, *rest = _listed(sizes)
    if first != 1 or len(rest) < len(input.shape):
        raise UnsupportedModelError("repeating the batch adds points")
    return r.moved(input, np.tile(places(input.shape), rest))


def index_select(r: Reader, input: Value, dim: int, index: Any) -> Value:
    return r.moved(input, np.take(places(input.shape), _key(index), axis=r.axis(input, dim)))


def _image(input: Value) -> IntArray:
    if len(input.shape) != 3:
        raise InputError(f"expected (batch, channels, height, width), got {input.shape} without the batch axis")
    return places(input.shape)


def pixel_shuffle(r: Reader, input: Value, upscale_factor: int) -> Value:
    return r.moved(input, depth_to_space(_image(input), upscale_factor))


def pixel_unshuffle(r: Reader, input: Value, downscale_factor: int) -> Value:
    return r.moved(input, space_to_depth(_image(input), downscale_factor))


def channel_shuffle(r: Reader, input: Value, groups: int) -> Value:
    channels, *rest = input.shape
    if groups < 1 or channels % groups:
        raise InputError(f"expected channels divisible by {groups}, got {input.shape}")
    index = places(input.shape).reshape(groups, channels // groups, *rest)
    return r.moved(input, index.swapaxes(0, 1).reshape(input.shape))


# -- resizing ----------------------------------------------------------------------------------------------------------


def interpolate(
    r: Reader,
    input: Value,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Value:
    spatial = input.shape[1:]
    if antialias:
        raise UnsupportedModelError("antialiasing is not supported")
    factors = None if scale_factor is None else _each(scale_factor, len(spatial), float)
    if factors is None:
        counts = _each(size, len(spatial), int)
    else:
        counts = [floor(n * f) for n, f in zip(spatial, factors, strict=True)]
    if min(counts, default=0) < 1:
        raise InputError(f"cannot resize {input.shape} to {tuple(counts)}")
    if factors is None or recompute_scale_factor:
        scales = [Fraction(m, n) for n, m in zip(spatial, counts, strict=True)]
        factors = None
    else:
        scales = [Fraction(f) for f in factors]
    if mode in ("nearest", "nearest-exact"):
        index = places(input.shape)
        for axis, n in enumerate(spatial):
            options = {"size": counts[axis]} if factors is None else {"scale_factor": factors[axis]}
            line = torch.arange(n, dtype=torch.float32).reshape(1, 1, n)  # torch rounds in its own way: let it
            chosen = F.interpolate(line, mode=mode, **options).reshape(-1).numpy().astype(np.int64)
            index = np.take(index, chosen, axis=axis + 1)
        return r.moved(input, index)
    if mode == "area":
        return r.builder.affine(input, cells(input, counts))
    if mode != {1: "linear", 2: "bilinear"}.get(len(spatial)):
        raise UnsupportedModelError(f"resizing in mode {mode!r} is not supported")
    how = "align_corners" if align_corners else "half_pixel"
    lines = zip(spatial, counts, scales, strict=True)
    return r.builder.affine(input, _spatial(input, [linear(coordinates(n, m, s, how), n) for n, m, s in lines]))


def _each(given: Any, axes: int, kind: type) -> list[Any]:
    found = [given] * axes if isinstance(given, int | float) else list(given)
    if len(found) != axes or not all(isinstance(n, int | float) for n in found):
        raise UnsupportedModelError(f"expected {axes} sizes or factors, got {given!r}")
    return [kind(n) for n in found]


def cells(input: Value, counts: Sequence[int]) -> Sparse:
    """Means over cells that cover the image, so many along each axis."""
    return _spatial(input, [cell_means(n, m) for n, m in zip(input.shape[1:], counts, strict=True)])


def _spatial(input: Value, matrices: Sequence[Any]) -> Sparse:
    """A matrix along every axis but the channels."""
    shape = (input.shape[0], *(matrix.shape[0] for matrix in matrices))
    return Sparse(along_axes([np.eye(input.shape[0]), *matrices]), input.shape, shape)


FUNCTIONS: dict[Any, Handler] = {
    getattr: attribute,
    operator.getitem: getitem,
    torch.cat: cat,
    torch.concat: cat,
    torch.chunk: chunk,
    torch.flatten: flatten,
    torch.flip: flip,
    torch.index_select: index_select,
    torch.movedim: movedim,
    torch.moveaxis: movedim,
    torch.narrow: narrow,
    torch.permute: permute,
    torch.pixel_shuffle: pixel_shuffle,
    torch.pixel_unshuffle: pixel_unshuffle,
    torch.channel_shuffle: channel_shuffle,
    torch.reshape: reshape,
    torch.roll: roll,
    torch.select: select,
    torch.split: split,
    torch.squeeze: squeeze,
    torch.stack: stack,
    torch.swapaxes: transpose,
    torch.swapdims: transpose,
    torch.transpose: transpose,
    torch.unbind: unbind,
    torch.unflatten: unflatten,
    torch.unsqueeze: unsqueeze,
    F.channel_shuffle: channel_shuffle,
    F.interpolate: interpolate,
    F.pad: pad,
    F.pixel_shuffle: pixel_shuffle,
    F.pixel_unshuffle: pixel_unshuffle,
    F.upsample: interpolate,
}

METHODS: dict[str, Handler] = {
    "chunk": chunk,
    "dim": rank,
    "expand": expand,
    "flatten": flatten,
    "flip": flip,
    "index_select": index_select,
    "movedim": movedim,
    "moveaxis": movedim,
    "narrow": narrow,
    "permute": permute,
    "repeat": repeat,
    "reshape": reshape,
    "roll": roll,
    "select": select,
    "size": size,
    "split": split,
    "squeeze": squeeze,
    "swapaxes": transpose,
    "swapdims": transpose,
    "transpose": transpose,
    "unbind": unbind,
    "unflatten": unflatten,
    "unsqueeze": unsqueeze,
    "view": reshape,
}
