"""Operations that treat every entry by itself, and those that make tensors of equal entries."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fiberscope.modules.tracing.axes import Expr, fresh
from fiberscope.modules.tracing.tracer import Arguments, Trace, aligned, broadcast, flat, rule


@rule(
    "pointwise", "clone", "copy", "copy_", "alias", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "_to_copy"
)
@rule("hardswish", "hardsigmoid", "hardtanh", "relu6", "elu", "celu", "selu", "leaky_relu", "softplus", "softshrink")
@rule(
    "hardshrink", "mish", "silu", "gelu", "threshold", "log_sigmoid_forward", "rrelu", "nan_to_num", "clamp", "type_as"
)
@rule("fill", "fill_", "zero", "zero_", "masked_fill", "masked_fill_", "_prelu_kernel", "dropout", "native_dropout")
def pointwise(trace: Trace, arguments: Arguments, output: Any) -> Any:
    """Axes that are compared entry by entry are one; an axis of one place goes with any."""
    outs = list(flat([output]))
    given = list(flat(arguments.values()))
    found = broadcast(trace, given, outs[0].shape)
    if isinstance(output, Tensor):
        _scaled(trace, arguments, given, output)
        return found
    return [found] * len(outs)


KEEPS = {
    *("relu", "leaky_relu", "abs", "neg", "clone", "alias", "detach", "contiguous", "lift_fresh", "lift_fresh_copy"),
    *("_to_copy", "dropout"),
}
"""Multiplied by a positive factor, if their argument is."""
ADDS = {"add", "sub", "maximum", "minimum"}


def _scaled(trace: Trace, arguments: Arguments, given: list[Tensor], output: Tensor) -> None:
    """What a positive factor on its arguments does to the result, where that is a power of the factor."""
    name, x = trace.operation.removesuffix("_"), arguments.get("self")
    if not isinstance(x, Tensor) or not output.is_floating_point():
        return
    other = arguments.get("other", arguments.get("src"))
    mine = aligned(x, output)
    if name in KEEPS or (
        name in {"mul", "div"} and isinstance(other, int | float) and "rounding_mode" not in arguments
    ):
        trace.follow(0, x, mine)
    elif name == "copy" and isinstance(other, Tensor):
        trace.follow(0, other, aligned(other, output))
    elif name in ADDS and len(given) == 2 and isinstance(other, Tensor):
        trace.follow(0, x, mine)
        trace.follow(0, other, aligned(other, output))
    elif name in {"mul", "div"} and isinstance(other, Tensor) and "rounding_mode" not in arguments:
        sign = -1 if name == "mul" else 1
        for j, (k, l) in enumerate(zip(mine, aligned(other, output), strict=True)):
            left = [] if k is None else [(-1, x, k)]
            trace.balance((1, 0, j), *left, *([] if l is None else [(sign, other, l)]))
    elif name == "pow" and arguments.get("exponent") in {1, 2, 3, 4}:
        for j, k in enumerate(mine):
            trace.balance((1, 0, j), *([] if k is None else [(-int(arguments["exponent"]), x, k)]))
    elif name == "_prelu_kernel":
        trace.follow(0, x, mine)
        trace.level(arguments["weight"], range(arguments["weight"].dim()))


@rule("zeros", "ones", "full", "empty", "scalar_tensor", "new_zeros", "new_ones", "new_full", "new_empty")
@rule("zeros_like", "ones_like", "full_like", "empty_like", "empty_strided", "new_empty_strided")
def uniform(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Equal entries: any permutation of an axis leaves them as they are."""
    return [fresh(size) for size in output.shape]
