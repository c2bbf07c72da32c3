"""Ranks of Jacobians with far more columns than rows, a block of columns at a time.

The memory is that of a few squares of the smaller side. Singular values come from a triangular factor that is updated
block by block, ``[L, B] = L' Q`` with orthogonal rows of ``Q``; this is as stable as a decomposition of the whole.
For the exact rank the matrix is multiplied by a random one with few columns, in the layers' own factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.dimension.use_gradients import add_block, size_of
from fiberscope.dimension.uses import Use, uses
from fiberscope.network.network import Network
from fiberscope.network.operators import Dense
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.floats import FloatArray, SignArray
from fiberscope.numerics.modular import Residues, add_mod, matmul_mod
from fiberscope.numerics.rank import NumericalRank, numerical_rank
from fiberscope.run import ENDLESS, Run


def blocked_rank(
    net: Network, X: FloatArray, ring: Any, signs: SignArray | None, rtol: float | None, run: Run = ENDLESS
) -> NumericalRank | None:
    """Numerical rank of a Jacobian with fewer rows than columns, in a ring of floats; None where that overflows."""
    rows = len(X) * net.out_size
    factor = np.zeros((rows, 0), dtype=ring.dtype)
    for block in column_blocks(net, uses(net, X, ring, signs), len(X), ring, 4 * rows):
        run.check()
        stacked = np.concatenate([factor, block], axis=1)
        if not np.isfinite(stacked).all():
            return None
        factor = np.ascontiguousarray(scipy.linalg.qr(stacked.T, mode="r", overwrite_a=True)[0][:rows].T)
    relative = max(rows, net.num_parameters) * float(np.finfo(ring.dtype).eps) if rtol is None else rtol
    return numerical_rank(factor, rtol=relative) if np.isfinite(factor).all() else None


def column_blocks(net: Network, found: list[Use], points: int, ring: Ring, width: int) -> Iterator[Any]:
    """All columns that are not zero throughout, in blocks ``(rows, about width)``, in no particular order.

    A large dense layer is cut into groups of its neurons; other operators come whole.
    """
    for group in _by_place(found):
        first = group[0]
        outputs = first.delta.shape[1]
        for part in _parts(group, width):
            block = ring.empty((points, outputs, size_of(part[0])))
            for number, use in enumerate(part):
                add_block(use, block, ring, fresh=number == 0)
            yield block.reshape(points * outputs, -1)


def _by_place(found: list[Use]) -> list[list[Use]]:
    groups: dict[tuple[str, int], list[Use]] = {}
    for use in found:
        groups.setdefault((use.name, use.start), []).append(use)
    return list(groups.values())


def _parts(group: list[Use], width: int) -> Iterator[list[Use]]:
    """The uses of one parameter, cut alike."""
    if not all(isinstance(use.operator, Dense) for use in group):
        yield group
        return
    neurons, inputs = group[0].shape
    step = max(1, width // inputs)
    for start in range(0, neurons, step):
        part = slice(start, min(start + step, neurons))
        yield [
            use._replace(
                operator=Dense(use.operator.matrix[part]),  # type: ignore[union-attr]  # the group has dense uses only
                shape=(part.stop - part.start, inputs),
                delta=np.ascontiguousarray(use.delta[:, :, part]),
            )
            for use in group
        ]


def sketch(
    net: Network, X: FloatArray, signs: SignArray, prime: int, count: int, seed: int, run: Run = ENDLESS
) -> Residues:
    """``J S`` modulo a prime for a random ``S`` with ``count`` columns, ``(rows, count)``, without forming ``J``.

    In a dense layer a column of ``S`` is an outer product ``u v^T`` of random vectors, so that the layer contributes
    ``(Delta u) * (A v)``. If ``count`` is not below the rank ``r`` of ``J`` modulo the prime, the ranks are the same
    except with probability at most ``2 r / p``: there is an ``S`` that picks ``r`` independent columns of ``J``, so an
    ``r x r`` minor of the sketch is a non-zero polynomial of degree at most ``2 r`` in the random entries (Schwartz and
    Zippel). It never has a larger rank.
    """
    ring = ModularAlgebra(prime)
    rng = np.random.default_rng(seed)
    result = np.zeros((len(X), net.out_size, count), np.uint64)
    for group in _by_place(uses(net, X, ring, signs)):
        dense = isinstance(group[0].operator, Dense)
        sizes = group[0].shape if dense else (size_of(group[0]),)
        probes = [rng.integers(0, prime, size=(n, count), dtype=np.uint64) for n in sizes]
        for use in group:
            run.check()
            result = add_mod(result, _sketched(use, len(X), probes, ring), prime)
    return result.reshape(len(X) * net.out_size, count)


def _sketched(use: Use, points: int, probes: list[Residues], ring: ModularAlgebra) -> Residues:
    lead, outputs, width = use.delta.shape
    if isinstance(use.operator, Dense):
        left = matmul_mod(use.delta.reshape(lead * outputs, width), probes[0], ring.prime).reshape(lead, outputs, -1)
        right = matmul_mod(use.inputs, probes[1], ring.prime)
        return ring.multiply(left, right[:, None, :])
    block = ring.empty((points, outputs, size_of(use)))
    add_block(use, block, ring, fresh=True)
    return matmul_mod(block.reshape(points * outputs, -1), probes[0], ring.prime).reshape(points, outputs, -1)
