"""Operations that move entries without computing: views, permutations of axes, concatenations, cuts and picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fiberscope.modules.tracing.axes import (
    ONE,
    Atom,
    Expr,
    Sum,
    at,
    factor,
    fresh,
    is_pinned,
    leaves,
    normal,
    product,
    regroup,
    size_of,
    split,
)
from fiberscope.modules.tracing.tracer import Arguments, Trace, UnknownUse, aligned, layout_of, rule

PICKED = "single members are picked out"


def axis_of(arguments: Arguments, tensor: Tensor, name: str = "dim", default: int = 0) -> int:
    value = arguments.get(name, default)
    return int(value) % max(1, tensor.dim())


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten")
def view(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """The same places in the same order under another shape."""
    x = arguments["self"]
    if "dtype" in arguments:
        raise UnknownUse
    found = regroup(trace.axes(x), output.shape)
    if found is None:
        raise UnknownUse
    trace.passed(0, range(output.dim()), x, range(x.dim()), (True, True))
    return found


@rule("as_strided", "as_strided_")
def restrided(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """The same places under the same shape: strides of axes with one place mean nothing.

    Torch writes them anew where it pools images in the *channels last* order to one pixel.
    """
    x = arguments["self"]
    if list(map(size_of, trace.axes(x))) != list(output.shape) or layout_of(output) != trace.layout:
        raise UnknownUse
    trace.follow(0, x, range(x.dim()))
    return list(trace.axes(x))


@rule("permute", "transpose", "t", "transpose_", "t_", "movedim", "numpy_T")
def permuted(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    axes, n = trace.axes(x), x.dim()
    if x in trace.weights:
        trace.weights[output] = trace.weights[x]
    order = [k % n for k in arguments.get("dims", range(n))]
    if "dims" not in arguments and n > 1:
        i, j = arguments.get("dim0", 0) % n, arguments.get("dim1", 1) % n
        order[i], order[j] = order[j], order[i]
    trace.follow(0, x, order)
    return [axes[k] for k in order]


@rule("unsqueeze", "unsqueeze_")
def unsqueeze(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x, dim = arguments["self"], arguments["dim"] % output.dim()
    axes = list(trace.axes(x))
    axes.insert(dim, ONE)
    trace.follow(0, x, [*range(dim), None, *range(dim, len(axes) - 1)])
    return axes


@rule("squeeze", "squeeze_")
def squeeze(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    dims = arguments.get("dim", list(range(x.dim())))
    gone = {k % max(1, x.dim()) for k in ([dims] if isinstance(dims, int) else dims)}
    kept = [k for k in range(len(trace.axes(x))) if k not in gone or size_of(trace.axes(x)[k]) != 1]
    trace.follow(0, x, kept)
    return [trace.axes(x)[k] for k in kept]


@rule("expand")
def expand(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Along a new axis all entries are the same: any permutation of it goes."""
    x = arguments["self"]
    axes = [ONE] * (output.dim() - x.dim()) + list(trace.axes(x))
    trace.follow(0, x, aligned(x, output))
    return [fresh(n) if n != size_of(e) else e for e, n in zip(axes, output.shape, strict=True)]


@rule("repeat")
def repeat(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    axes = [ONE] * (output.dim() - x.dim()) + list(trace.axes(x))
    return [product([fresh(n), e]) for e, n in zip(axes, arguments["repeats"], strict=True)]


@rule("cat", "concat", "concatenate")
def cat(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    parts = [tensor for tensor in arguments["tensors"] if tensor.numel()]
    dim = axis_of(arguments, output)
    axes = list(trace.axes(parts[0]))
    for tensor in parts[1:]:
        for k, e in enumerate(trace.axes(tensor)):
            if k != dim:
                trace.unify(axes[k], e)
    axes[dim] = Sum(tuple(trace.axes(tensor)[dim] for tensor in parts))
    for tensor in parts:
        _cut_along(trace, 0, tensor, dim, (False, True))
    return axes


def _cut_along(trace: Trace, out: int, tensor: Tensor, dim: int, whole: tuple[bool, bool]) -> None:
    """An output and an argument with the same axes, and with a part in common on one of them."""
    for k in range(tensor.dim()):
        if k != dim:
            trace.balance((1, out, k), (-1, tensor, k))
    trace.passed(out, [dim], tensor, [dim], whole)


@rule("stack")
def stack(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Tensors keep their own index sets: along a new index, each axis is the family of theirs."""
    parts = arguments["tensors"]
    index = trace.pinned(len(parts), "tensors are stacked")
    axes = [_family(index, tuple(normal(e) for e in found)) for found in zip(*map(trace.axes, parts), strict=True)]
    new = axis_of(arguments, output)
    axes.insert(new, index)
    for tensor in parts:
        for k in range(tensor.dim()):
            trace.passed(0, [k + (k >= new)], tensor, [k], (False, True))
    return axes


def _family(index: Expr, members: tuple[Expr, ...]) -> Expr:
    if not isinstance(index, Atom) or all(e == members[0] for e in members):
        return members[0]
    found = Atom(size_of(members[0]), family=(index, members))
    index.indexed.append(found)
    return found


@rule("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "tensor_split")
def cut(trace: Trace, arguments: Arguments, output: Any) -> list[list[Expr]]:
    x = arguments["self"]
    dim = axis_of(arguments, x)
    axes = trace.axes(x)
    pieces = _pieces(axes[dim], [part.shape[dim] for part in output])
    for i in range(len(output)):
        _cut_along(trace, i, x, dim, (True, False))
    return [[piece if k == dim else e for k, e in enumerate(axes)] for piece in pieces]


def _pieces(e: Expr, sizes: Sequence[int]) -> list[Expr]:
    found: list[Expr] = []
    for size in sizes[:-1]:
        pair = split(e, size)
        if pair is None:
            raise UnknownUse
        found.append(pair[0])
        e = pair[1]
    return [*found, e]


@rule("slice")
def sliced(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    dim = axis_of(arguments, x)
    axes = list(trace.axes(x))
    n, step = x.shape[dim], int(arguments.get("step", 1))
    start = arguments.get("start") or 0
    start = min(max(start + n if start < 0 else start, 0), n)
    if step == 1:
        _cut_along(trace, 0, x, dim, (True, False))
    if output.shape[dim] == n:
        return axes
    if step != 1:
        return _every(trace, axes, dim, start, step, output.shape[dim])
    sizes = [start, output.shape[dim], n - start - output.shape[dim]]
    pieces = _pieces(axes[dim], [size for size in sizes if size])
    axes[dim] = pieces[1 if start else 0]
    return axes


def _every(trace: Trace, axes: list[Expr], dim: int, start: int, step: int, count: int) -> list[Expr]:
    """Every so many entries, as interleaved pairs: one column of a table with that many."""
    pair = factor(axes[dim], step) if start < step and size_of(axes[dim]) == step * count else None
    if pair is None:
        raise UnknownUse
    table = [*axes[:dim], pair[0], pair[1], *axes[dim + 1 :]]
    return _pick(trace, table, dim + 1, start)


@rule("select")
def select(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    dim = axis_of(arguments, x)
    _picked(trace, 0, x, dim)
    return _pick(trace, list(trace.axes(x)), dim, arguments["index"] % x.shape[dim])


@rule("unbind")
def unbind(trace: Trace, arguments: Arguments, output: Any) -> list[list[Expr]]:
    x = arguments["self"]
    dim = axis_of(arguments, x)
    for i in range(x.shape[dim]):
        _picked(trace, i, x, dim)
    return [_pick(trace, list(trace.axes(x)), dim, i) for i in range(x.shape[dim])]


def _picked(trace: Trace, out: int, x: Tensor, dim: int) -> None:
    trace.level(x, [dim])
    for j, k in enumerate(k for k in range(x.dim()) if k != dim):
        trace.passed(out, [j], x, [k], (True, False))


def _pick(trace: Trace, axes: list[Expr], dim: int, i: int) -> list[Expr]:
    """One place of an axis. What stands beside its index everywhere gets a member for every pick."""
    index = normal(axes[dim])
    rest = axes[:dim] + axes[dim + 1 :]
    if not isinstance(index, Atom):
        trace.pin(PICKED, index)
        return rest
    if not index.indexed and index.pin is None:
        beside = {leaf for e in rest for leaf in leaves(e) if leaf.pin is None and leaf.family is None}
        for leaf in trace.dependents(index, beside):
            leaf.family = index, tuple(fresh(leaf.size) for _ in range(index.size))
            index.indexed.append(leaf)
    trace.pin(PICKED, index)
    return [at(e, index, i) for e in rest]


@rule("gather")
def gathered(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """``out[i, j] = x[i, index[i, j]]``: the axis that is looked into is pinned, the others are the index's."""
    x, dim = arguments["self"], axis_of(arguments, arguments["self"])
    found = list(trace.axes(arguments["index"]))
    for k, e in enumerate(trace.axes(x)):
        if k != dim and size_of(e) == size_of(found[k]):
            trace.unify(e, found[k])
        else:
            trace.pin("entries are looked up by their numbers", *([e] if k == dim else [e, found[k]]))
    return found


@rule("index_select", "index", "embedding")
def looked_up(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Rows by their numbers: the rows are told apart, what a row holds goes along."""
    if "weight" in arguments:
        rows, columns = trace.axes(arguments["weight"])
        trace.pin("rows are looked up by their numbers", rows)
        trace.level(arguments["weight"], [0])
        trace.follow(0, arguments["weight"], [*(None for _ in range(output.dim() - 1)), 1])
        return [*trace.axes(arguments["indices"]), columns]
    x, index = arguments["self"], arguments["indices" if "indices" in arguments else "index"]
    if isinstance(index, Tensor):
        dim = axis_of(arguments, x)
        axes = list(trace.axes(x))
        if not all(is_pinned(e) for e in trace.axes(index)) or index.dim() > 1:
            raise UnknownUse
        trace.pin("entries are looked up by their numbers", axes[dim])
        axes[dim] = trace.pinned(output.shape[dim], "entries are looked up by their numbers")
        return axes
    return _indexed(trace, x, list(index), output)


def _indexed(trace: Trace, x: Tensor, indices: list[Any], output: Tensor) -> list[Expr]:
    """Advanced indexing, with index tensors next to each other and pinned themselves."""
    given = [k for k, one in enumerate(indices) if one is not None]
    plain = [one for one in indices if one is not None]
    if given != list(range(given[0], given[-1] + 1)) or not all(is_pinned(e) for one in plain for e in trace.axes(one)):
        raise UnknownUse
    axes = list(trace.axes(x))
    taken = sum(one.dim() if str(one.dtype) == "torch.bool" else 1 for one in plain)
    gone = axes[given[0] : given[0] + taken]
    rest = len(axes) - given[0] - taken
    trace.pin("entries are looked up by their numbers", *gone)
    places = [trace.pinned(n, "looked up") for n in output.shape[given[0] : output.dim() - rest]]
    return [*axes[: given[0]], *places, *axes[given[0] + taken :]]


@rule("index_add", "index_copy")
def added_at(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Rows are added to those of a tensor that an index names: rows are told apart, what they hold goes along."""
    x, rows = arguments["self"], arguments["source"]
    dim = axis_of(arguments, x)
    axes, others = trace.axes(x), trace.axes(rows)
    if not all(is_pinned(e) for e in trace.axes(arguments["index"])):
        raise UnknownUse
    trace.pin("entries are put where an index says", axes[dim], others[dim])
    rest = [k for k in range(x.dim()) if k != dim]
    for k in rest:
        trace.unify(axes[k], others[k])
    trace.alone([axes[k] for k in rest], [axes[dim], others[dim]])
    trace.level(x, [dim])
    trace.level(rows, [dim])
    for tensor in (x, rows):
        trace.follow(0, tensor, [None if k == dim else k for k in range(x.dim())])
    return list(axes)


@rule("index_put")
def put_at(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Rows are written, or added, where index tensors say, along the first axes."""
    x, values, indices = arguments["self"], arguments["values"], list(arguments["indices"])
    if any(one is None or str(one.dtype) == "torch.bool" for one in indices):
        raise UnknownUse
    if not all(is_pinned(e) for one in indices for e in trace.axes(one)):
        raise UnknownUse
    axes, others = trace.axes(x), trace.axes(values)
    rest = list(axes[len(indices) :])
    lead = others[: max(0, len(others) - len(rest))]
    trace.pin("entries are put where an index says", *axes[: len(indices)], *lead)
    for back, e in enumerate(reversed(others[len(lead) :]), start=1):
        if size_of(e) == size_of(rest[-back]):
            trace.unify(e, rest[-back])
    trace.alone(rest, [*axes[: len(indices)], *lead])
    return list(axes)


@rule("flip", "roll", "cumsum", "cumprod", "logcumsumexp", "cummax", "sort", "topk", "tril", "triu")
def ordered(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """The order along some axes matters: they are pinned, and nothing else may depend on them."""
    x = arguments["self"]
    dims = arguments.get("dims", arguments.get("dim", [-2, -1] if "diagonal" in arguments else -1))
    if trace.operation in {"tril", "triu"}:
        dims = [-2, -1]
    chosen = {k % x.dim() for k in ([dims] if isinstance(dims, int) else dims or range(x.dim()))}
    axes = trace.axes(x)
    mixed = [axes[k] for k in chosen]
    trace.pin(f"{trace.operation} knows the order of an axis", *mixed)
    trace.alone([e for k, e in enumerate(axes) if k not in chosen], mixed)
    outs = [output] if isinstance(output, Tensor) else list(output)
    found = [
        [e if size_of(e) == n else trace.pinned(n, trace.operation) for e, n in zip(axes, out.shape, strict=True)]
        for out in outs
    ]
    return found[0] if isinstance(output, Tensor) else found


@rule("constant_pad_nd")
def padded(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Equal numbers before and after; negative pads cut."""
    x, pads = arguments["self"], list(arguments["pad"])
    axes = list(trace.axes(x))
    for k in range(len(pads) // 2):
        low, high = pads[2 * k : 2 * k + 2]
        e = axes[-1 - k]
        if low < 0 or high < 0:
            sizes = [max(0, -low), size_of(e) - max(0, -low) - max(0, -high), max(0, -high)]
            e = _pieces(e, [size for size in sizes if size])[1 if sizes[0] else 0]
        around = [[fresh(low)] if low > 0 else [], [e], [fresh(high)] if high > 0 else []]
        axes[-1 - k] = normal(Sum(tuple(part for side in around for part in side)))
    return axes


@rule("pixel_shuffle", "pixel_unshuffle")
def pixels(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """``(C r r, H, W)`` and ``(C, H r, W r)``."""
    *lead, c, h, w = trace.axes(arguments["self"])
    if trace.operation == "pixel_shuffle":
        r = int(arguments["upscale_factor"])
        cut_c = regroup([c], (size_of(c) // (r * r), r, r))
        if cut_c is None:
            raise UnknownUse
        return [*lead, cut_c[0], product([h, cut_c[1]]), product([w, cut_c[2]])]
    r = int(arguments["downscale_factor"])
    cut_h, cut_w = factor(h, r), factor(w, r)
    if cut_h is None or cut_w is None:
        raise UnknownUse
    return [*lead, product([c, cut_h[1], cut_w[1]]), cut_h[0], cut_w[0]]


@rule("channel_shuffle", "native_channel_shuffle")
def channels(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    n, c, *rest = trace.axes(arguments["self"])
    pair = factor(c, size_of(c) // int(arguments["groups"]))
    if pair is None:
        raise UnknownUse
    return [n, product([pair[1], pair[0]]), *rest]


@rule("im2col")
def patches(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """``(C, H, W)`` to ``(C places, patches)``."""
    *lead, c, h, w = trace.axes(arguments["self"])
    trace.pin("patches are taken", h, w)
    inside = output.shape[-2] // size_of(c)
    return [*lead, product([c, trace.pinned(inside, "patches")]), trace.pinned(output.shape[-1], "patches")]


@rule("unfold")
def windows(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    dim = axis_of(arguments, x, "dimension")
    axes = list(trace.axes(x))
    trace.pin("windows are taken", axes[dim])
    axes[dim] = trace.pinned(output.shape[dim], "windows")
    return [*axes, trace.pinned(output.shape[-1], "windows")]


@rule("glu")
def glu(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """The first half of an axis, gated by the second."""
    x = arguments["self"]
    axes = list(trace.axes(x))
    dim = axis_of(arguments, x, default=-1)
    left, right = _pieces(axes[dim], [x.shape[dim] // 2] * 2)
    trace.unify(left, right)
    axes[dim] = left
    return axes
