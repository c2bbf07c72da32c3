"""Products of 64 x 64 -> 128 bits, written in LLVM's language: operations of kernels.

Whoever compiles such a kernel loads this; see :class:`fiberscope.numerics.compiling.kernels.Later`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def mulhi(typingctx: Any, a: Any, b: Any) -> Any:
    """High 64 bits of the product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def mul_add(typingctx: Any, high: Any, low: Any, a: Any, b: Any) -> Any:
    """``(high, low) + a b`` as a pair of uint64, modulo 2^128."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        shift = ir.Constant(wide, 64)
        total = builder.or_(builder.shl(builder.zext(args[0], wide), shift), builder.zext(args[1], wide))
        product = builder.mul(builder.zext(args[2], wide), builder.zext(args[3], wide))
        total = builder.add(total, product)
        parts = [builder.trunc(builder.lshr(total, shift), word), builder.trunc(total, word)]
        return context.make_tuple(builder, signature.return_type, parts)

    u = types.uint64
    return types.UniTuple(u, 2)(u, u, u, u), codegen
