"""Operations that treat every entry by itself, and those that make tensors of equal entries."""

from __future__ import annotations

from typing import Any

from fiberscope.modules.tracing.axes import Expr, fresh
from fiberscope.modules.tracing.tracer import Arguments, Trace, broadcast, flat, rule


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
    found = [broadcast(trace, list(flat(arguments.values())), out.shape) for out in outs[:1]]
    return found[0] if not isinstance(output, tuple | list) else found * len(outs)


@rule("zeros", "ones", "full", "empty", "scalar_tensor", "new_zeros", "new_ones", "new_full", "new_empty")
@rule("zeros_like", "ones_like", "full_like", "empty_like", "empty_strided", "new_empty_strided")
def uniform(trace: Trace, arguments: Arguments, output: Any) -> list[Expr]:
    """Equal entries: any permutation of an axis leaves them as they are."""
    return [fresh(size) for size in output.shape]
