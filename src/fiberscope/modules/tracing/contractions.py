"""Sums of products: matrices, convolutions, and attention as one operation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fiberscope.modules.tracing.axes import ONE, Expr, factor, product, size_of
from fiberscope.modules.tracing.tracer import Arguments, Trace, UnknownUse, aligned, broadcast, rule


@rule("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot", "linear", "matmul")
def matrices(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """The axis that is summed over is one index set on both sides."""
    if "weight" in arguments:  # linear
        x, w, added = arguments["input"], arguments["weight"], arguments.get("bias")
        (*lead, k), (n, j) = trace.axes(x), trace.axes(w)
        trace.unify(k, j)
        trace.summed([k], [*lead, n])
        trace.balance((1, x, -1), (1, w, 1))
        trace.follow(0, x, [*range(len(lead)), None][:-1])
        trace.balance((1, 0, len(lead)), (-1, w, 0))
        found = [*lead, n]
    else:
        names = next(
            pair
            for pair in (
                ("mat1", "mat2"),
                ("batch1", "batch2"),
                ("mat", "vec"),
                ("self", "mat2"),
                ("self", "vec"),
                ("self", "tensor"),
                ("self", "other"),
            )
            if pair[0] in arguments and pair[1] in arguments
        )
        x, w = arguments[names[0]], arguments[names[1]]
        added = arguments.get("self") if "self" not in names else None
        found, k = _multiplied(trace, x, w)
    if added is not None:
        trace.follow(0, added, aligned(added, output))
        for mine, other in zip(found, broadcast(trace, [added], output.shape), strict=True):
            if size_of(other) == size_of(mine):
                trace.unify(mine, other)
    trace.read(w, k)
    return found


def _multiplied(trace: Trace, x: Tensor, w: Tensor) -> tuple[list[Expr], Expr]:
    left, right = list(trace.axes(x)), list(trace.axes(w))
    if len(left) > 3 or len(right) > 3 or (len(left) > 2 and len(left) != len(right)):
        raise UnknownUse
    k = left[-1]
    trace.unify(k, right[-2] if len(right) > 1 else right[-1])
    for mine, other in zip(left[:-2], right[:-2], strict=False):
        trace.unify(mine, other)
    rows, columns = left[max(0, len(left) - 2) : -1], right[-1:] if len(right) > 1 else []
    trace.summed([k], [*rows, *columns], left[:-2])
    batch = max(0, len(left) - 2)
    trace.balance((1, x, -1), (1, w, -2 if len(right) > 1 else -1))
    for j in range(batch):
        trace.balance((1, 0, j), (-1, x, j), (-1, w, j))
    if rows:
        trace.balance((1, 0, batch), (-1, x, -2))
    if columns:
        trace.balance((1, 0, batch + len(rows)), (-1, w, -1))
    return [*left[:-1], *columns], k


@rule("_grouped_mm", "grouped_mm_fallback", "transformers::grouped_mm_fallback")
def experts(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Rows ``(n, k)``, sorted by expert, each times the matrix ``(k, m)`` of its own; neurons go alike in all experts.

    Where an expert begins is a number of rows, so both the rows and the experts are told apart.
    """
    names = ("self", "mat2") if "mat2" in arguments else ("input", "weight")
    x, w = (arguments[name] for name in names)
    if x.dim() != 2 or w.dim() != 3 or arguments.get("bias") is not None:
        raise UnknownUse
    (rows, k), (matrices_of, j, m) = trace.axes(x), trace.axes(w)
    trace.pin("rows are sorted by expert", rows, matrices_of)
    trace.unify(k, j)
    trace.alone([k, m], [rows, matrices_of])
    trace.summed([k], [rows, m], [matrices_of])
    trace.level(x, [0])
    trace.level(w, [0])
    trace.balance((1, x, 1), (1, w, 1))
    trace.level(0, [0])
    trace.balance((1, 0, 1), (-1, w, 2))
    return [rows, m]


@rule("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "mkldnn_convolution")
def convolution(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Channels are contracted group by group; places are pinned, since a kernel knows left from right.

    A weight is ``(out, in / groups, ...)``, a transposed one ``(in, out / groups, ...)``. With groups both channel
    axes are ``(groups, inside)``.
    """
    x, w, b = arguments["input"], arguments["weight"], arguments.get("bias")
    groups, transposed = int(arguments.get("groups", 1)), bool(arguments.get("transposed", False))
    axes, kernel = trace.axes(x), trace.axes(w)
    blocks = factor(kernel[0], size_of(kernel[0]) // groups)
    if x.dim() != w.dim() or blocks is None:
        raise UnknownUse
    inside = product([blocks[0], kernel[1]])
    given, made = (kernel[0], inside) if transposed else (inside, kernel[0])
    trace.unify(axes[1], given)
    summed, other = (blocks[1], kernel[1]) if transposed else (kernel[1], blocks[1])
    trace.summed([summed], [axes[0], other, *axes[2:]], [blocks[0]])
    if b is not None:
        trace.unify(made, trace.axes(b)[0])
    trace.read(w, axes[1])
    _channels_scaled(trace, arguments, output)
    steps = (*arguments.get("stride", ()), *arguments.get("dilation", ()))
    if set(w.shape[2:]) == {1} and output.shape[2:] == x.shape[2:] and set(steps) <= {1}:
        return [axes[0], made, *axes[2:]]  # a linear map at every place
    trace.pin("places of a convolution", *axes[2:], *kernel[2:])
    return [axes[0], made, *(trace.pinned(n, "places of a convolution") for n in output.shape[2:])]


def _channels_scaled(trace: Trace, arguments: Arguments, output: Tensor) -> None:
    x, w, b = arguments["input"], arguments["weight"], arguments.get("bias")
    places = range(2, x.dim())
    for tensor in (x, w, 0):
        trace.level(tensor, places)
    trace.balance((1, 0, 0), (-1, x, 0))
    if arguments.get("transposed"):
        trace.balance((1, x, 1), (1, w, 0))
        trace.balance((1, 0, 1), (-1, w, 1))
    elif w.shape[1] == 1 and w.shape[0] == x.shape[1]:  # each channel by itself
        trace.balance((1, 0, 1), (-1, x, 1), (-1, w, 0))
    else:
        trace.balance((1, x, 1), (1, w, 1))
        trace.balance((1, 0, 1), (-1, w, 0))
    if b is not None:
        trace.balance((1, 0, 1), (-1, b, 0))


ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "scaled_dot_product_attention",
)


@rule(*ATTENTION)
def attention(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """``softmax(q k^T + mask) v``, heads one by one; several heads of ``q`` may share one of ``k`` and ``v``.

    Queries ``(batch, heads, T, E)``, keys and values ``(batch, kv heads, S, .)``; query head ``h`` reads key head
    ``h // (heads / kv heads)``.
    """
    q, k, v = (trace.axes(arguments[name]) for name in ("query", "key", "value"))
    if not len(q) == len(k) == len(v) == 4:
        raise UnknownUse
    mask = arguments.get("attn_mask", arguments.get("attn_bias"))
    trace.unify(k[1], v[1])
    trace.unify(k[2], v[2])
    trace.unify(q[3], k[3])
    trace.unify(q[0], k[0])
    trace.unify(q[0], v[0])
    shared = size_of(q[1]) // size_of(k[1])
    heads = factor(q[1], shared)
    if heads is None:
        raise UnknownUse
    trace.unify(heads[0], k[1])
    if arguments.get("is_causal"):
        trace.pin("a causal mask", q[2], k[2])
    if mask is not None:
        shape = (*(size_of(e) for e in q[:3]), size_of(k[2]))
        for mine, other in zip((*q[:3], k[2]), broadcast(trace, [mask], shape), strict=True):
            trace.unify(mine, other)
    trace.alone([*q, v[3]], [k[2]])
    trace.summed([q[3]], [q[2], k[2]], q[:2])
    trace.summed([k[2]], [q[2], v[3]], q[:2])
    result = [*q[:3], v[3]]
    for name in ("query", "key", "value"):
        trace.level(arguments[name], range(3))
    trace.level(0, range(3))
    trace.balance((1, arguments["query"], 3), (1, arguments["key"], 3))
    trace.balance((1, 0, 3), (-1, arguments["value"], 3))
    if isinstance(output, Tensor):
        return result
    outs = [one for one in output if isinstance(one, Tensor)]
    for i, out in enumerate(outs[1:], start=1):
        trace.level(i, range(out.dim()))
    return [result, *(_by_size(trace, q, out) for out in outs[1:])]


def _by_size(trace: Trace, q: tuple[Expr, ...], out: Tensor) -> list[Expr]:
    """Statistics that nobody reads: ``(batch, heads, T)``, or numbers of the kernel's own."""
    if tuple(out.shape) == tuple(size_of(e) for e in q[:3]):
        return list(q[:3])
    return [trace.pinned(n, "statistics of attention") if n != 1 else ONE for n in out.shape]
