"""Operations along axes that know no order: sums, means, softmax and norms; and pools, which know places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fiberscope.modules.tracing.axes import ONE, Expr, factor, size_of
from fiberscope.modules.tracing.tracer import RULES, Arguments, Trace, UnknownUse, rule


@rule("sum", "mean", "amax", "amin", "prod", "var", "std", "var_mean", "std_mean", "logsumexp", "any", "all", "nansum")
@rule("linalg_vector_norm", "norm", "count_nonzero", "max", "min", "argmax", "argmin", "median", "aminmax")
def reduced(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """The axes that are reduced are gone. Where the answer says *which* entry it was, they are told apart."""
    x = arguments["self"]
    if isinstance(arguments.get("other"), Tensor):
        return RULES["pointwise"](trace, arguments, output)
    dims = arguments.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    chosen = {k % max(1, x.dim()) for k in dims} if dims else set(range(x.dim()))
    axes = trace.axes(x)
    outs = [output] if isinstance(output, Tensor) else list(output)
    if trace.operation in {"argmax", "argmin"} or (len(outs) > 1 and not outs[1].is_floating_point()):
        trace.pin(f"{trace.operation} tells which entry it is", *(axes[k] for k in chosen))
    keep = all(out.dim() == x.dim() for out in outs)
    if not keep and any(out.dim() != x.dim() - len(chosen) for out in outs):
        raise UnknownUse
    found = [ONE if k in chosen else e for k, e in enumerate(axes) if keep or k not in chosen]
    if isinstance(output, Tensor) and trace.operation in {"sum", "mean", "amax", "amin"}:
        trace.level(x, chosen)
        trace.follow(0, x, [None if k in chosen else k for k in range(x.dim()) if keep or k not in chosen])
    return found if isinstance(output, Tensor) else [found] * len(outs)


@rule("_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax")
def softmax(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    x = arguments["self"]
    axes = trace.axes(x)
    dim = int(arguments["dim"]) % max(1, x.dim())
    trace.alone([e for k, e in enumerate(axes) if k != dim], list(axes[dim : dim + 1]))
    return list(axes)


@rule("native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm")
def layer_norm(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """The last axes are normed together, with a weight and a bias of their shape."""
    axes = trace.axes(arguments["input"])
    count = len(arguments["normalized_shape"])
    lead, mixed = axes[: len(axes) - count], axes[len(axes) - count :]
    for name in ("weight", "bias"):
        if arguments.get(name) is not None:
            for mine, other in zip(mixed, trace.axes(arguments[name]), strict=True):
                trace.unify(mine, other)
    trace.alone(lead, mixed)
    _normed(trace, arguments, output, range(len(lead), len(axes)))
    if isinstance(output, Tensor):
        return list(axes)
    statistics = [*lead, *(ONE for _ in mixed)]
    return [list(axes), *(statistics for _ in list(output)[1:])]


def _normed(trace: Trace, arguments: Arguments, output: Any, axes: Sequence[int]) -> None:
    """What comes in is normed; what goes out has the factors of the weight and the bias, which agree."""
    affine = [arguments[name] for name in ("weight", "bias") if arguments.get(name) is not None]
    outs = [output] if isinstance(output, Tensor) else list(output)
    for k, out in enumerate(outs):
        trace.level(k, [j for j in range(out.dim()) if k or j not in axes or not affine])
    for name in ("input", "running_mean", "running_var"):
        if arguments.get(name) is not None:
            trace.level(arguments[name], range(arguments[name].dim()))
    for tensor in affine:
        for k, j in enumerate(axes):
            trace.balance((1, 0, j), (-1, tensor, k))


@rule("native_group_norm", "group_norm")
def group_norm(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """Channels are ``(groups, inside)``; what is inside a group is normed together, with all places."""
    batch, channels, *places = trace.axes(arguments["input"])
    groups = int(arguments["group" if "group" in arguments else "num_groups"])
    cut = factor(channels, size_of(channels) // groups)
    if cut is None:
        raise UnknownUse
    for name in ("weight", "bias"):
        if arguments.get(name) is not None:
            trace.unify(channels, trace.axes(arguments[name])[0])
    trace.alone([batch, cut[0]], [cut[1], *places])
    found = [batch, channels, *places]
    _normed(trace, arguments, output, [1])
    return found if isinstance(output, Tensor) else [found, [batch, cut[0]], [batch, cut[0]]]


@rule("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
@rule("_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_batch_norm_no_update", "batch_norm")
def batch_norm(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """Every channel by itself, with four numbers of its own."""
    axes = trace.axes(arguments["input"])
    batch, channels, *places = axes
    for name in ("weight", "bias", "running_mean", "running_var"):
        if arguments.get(name) is not None:
            trace.unify(channels, trace.axes(arguments[name])[0])
    trace.alone([channels], [batch, *places])
    _normed(trace, arguments, output, [1])
    if isinstance(output, Tensor):
        return list(axes)
    rest = [
        [channels if n == size_of(channels) else trace.pinned(n, "statistics") for n in out.shape]
        for out in list(output)[1:]
    ]
    return [list(axes), *rest]


POOLS = (
    *(f"{kind}{d}d{end}" for kind in ("max_pool", "adaptive_max_pool") for d in "123" for end in ("", "_with_indices")),
    *(f"{kind}{d}d" for kind in ("avg_pool", "_adaptive_avg_pool", "adaptive_avg_pool") for d in "123"),
    *(f"{kind}{d}d" for kind in ("reflection_pad", "replication_pad", "_upsample_nearest_exact") for d in "123"),
    *(f"upsample_{kind}" for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d")),
    *("upsample_trilinear3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler_2d"),
)


@rule(*POOLS)
def placed(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """What happens on the last axes is the same for all others, and knows places."""
    x = arguments.get("self", arguments.get("input"))
    if not isinstance(x, Tensor):
        raise UnknownUse
    axes = trace.axes(x)
    count = next(int(sign) for sign in trace.operation if sign in "123")
    places, lead = axes[-count:], axes[:-count]
    trace.pin("places of a pool", *places)
    trace.alone(lead, places)
    if "grid_sampler" not in trace.operation:
        trace.follow(0, x, [*range(len(lead)), *(None for _ in places)])  # that is all: the places are level
    outs = [output] if isinstance(output, Tensor) else list(output)
    found = [[*lead, *(trace.pinned(n, "places of a pool") for n in out.shape[-count:])] for out in outs]
    return found[0] if isinstance(output, Tensor) else found
