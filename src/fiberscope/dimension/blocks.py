"""Ranks of Jacobians with far more columns than rows, a block of columns at a time.

The memory is that of a few squares of the smaller side. Singular values come from a triangular factor that is updated
block by block, ``[L, B] = L' Q`` with orthogonal rows of ``Q``; this is as stable as a decomposition of the whole.
For the exact rank the matrix is multiplied by a random one with few columns, in the layers' own factors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from math import prod
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.dimension.use_gradients import add_block, size_of
from fiberscope.dimension.uses import Use, uses
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.network.walk import choices_of, traced
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import echelon_mod, rank_mod
from fiberscope.numerics.floats import FloatArray, SignArray
from fiberscope.numerics.modular import Residues, add_mod, matmul_mod
from fiberscope.numerics.rank import NumericalRank, numerical_rank
from fiberscope.run import ENDLESS, Run

_HELD = 1 << 24
"""Derivatives with respect to values on the way that are held at once."""


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


def sketched_rank(
    net: Network, X: FloatArray, signs: SignArray, prime: int, upper: int, seed: int, run: Run = ENDLESS
) -> int:
    """Rank of the Jacobian modulo a prime by a sketch of its columns; too small with a probability of
    :func:`sketch_loss`.

    The last layer goes first. At a point with the input ``a`` of that layer its block is ``e_o (x) (a, 1)``, the same
    for every output ``o``. So with ``A`` the matrix of all ``(a, 1)`` and ``N`` a basis of the relations of its rows,
    the rank is ``outputs * rank A`` plus that of ``(N (x) I) J'``, where ``J'`` has the other columns.
    """
    points, outputs = len(X), net.out_size
    ring = ModularAlgebra(prime)
    head = _last_layer(net)
    first, relations = 0, None
    if head is not None:
        found = echelon_mod(np.ascontiguousarray(_last_inputs(net, head, X, signs, ring, run).T), prime, run)
        first, relations = outputs * found.rank, found.kernel()
    rows = points * outputs - first
    count = min(rows, upper - first)
    if count <= 0:
        return first
    table = sketch(net, X, signs, prime, count, seed, run, () if head is None else _names(head))
    if relations is not None:
        table = matmul_mod(relations, table.reshape(points, outputs * count), prime).reshape(rows, count)
    return first + rank_mod(table, prime, run)


def sketch_loss(rows: int) -> Callable[[int], float]:
    """Bound of the probability that a sketch of so many rows has too small a rank, as a function of the prime."""
    return lambda prime: min(1.0, 2 * rows / prime)


def _last_layer(net: Network) -> Affine | None:
    """The last node if it is a dense layer with parameters that are used nowhere else."""
    last = net.nodes[-1]
    if not isinstance(last, Affine) or not isinstance(last.operator, Dense) or last.weight_name is None:
        return None
    if last.bias is not None and last.bias_name is not None and last.bias.size != last.operator.out_size:
        return None
    uses_of = Counter(name for node in net.layout.affine for name in _names(node))
    return last if all(uses_of[name] == 1 for name in _names(last)) else None


def _names(node: Affine) -> tuple[str, ...]:
    return tuple(name for name in (node.weight_name, node.bias_name) if name is not None)


def _last_inputs(
    net: Network, head: Affine, X: FloatArray, signs: SignArray, ring: ModularAlgebra, run: Run
) -> Residues:
    """What enters the last layer at every point, and a one where its bias is a parameter."""
    parts = []
    for part in _chunks(net, len(X)):
        run.check()
        choices = choices_of(net.layout, signs[part])
        parts.append(traced(net.layout, ring.take(X[part]), ring, choices).values[head.source])
    values: Residues = np.concatenate(parts)
    if head.bias_name is None or head.bias is None:
        return values
    return np.concatenate([values, np.ones((len(values), 1), np.uint64)], axis=1)


def _chunks(net: Network, points: int) -> Iterator[slice]:
    """Points whose derivatives with respect to all values of the program are held at once."""
    widest = net.out_size * sum(prod(shape) for shape in net.shapes)
    step = max(1, _HELD // max(1, widest))
    return (slice(start, start + step) for start in range(0, points, step))


def sketch(
    net: Network,
    X: FloatArray,
    signs: SignArray,
    prime: int,
    count: int,
    seed: int,
    run: Run = ENDLESS,
    without: Collection[str] = (),
) -> Residues:
    """``J S`` modulo a prime for a random ``S`` with ``count`` columns, ``(rows, count)``, without forming ``J``.

    In a dense layer a column of ``S`` is an outer product ``u v^T`` of random vectors, so that the layer contributes
    ``(Delta u) * (A v)``. If ``count`` is not below the rank ``r`` of ``J`` modulo the prime, the ranks are the same
    except with probability at most ``2 r / p``: there is an ``S`` that picks ``r`` independent columns of ``J``, so an
    ``r x r`` minor of the sketch is a non-zero polynomial of degree at most ``2 r`` in the random entries (Schwartz and
    Zippel). It never has a larger rank. Parameters ``without`` are left out.
    """
    ring = ModularAlgebra(prime)
    rng = np.random.default_rng(seed)
    result = np.zeros((len(X), net.out_size, count), np.uint64)
    probes: dict[tuple[str, int], list[Residues]] = {}
    for part in _chunks(net, len(X)):
        run.step(part.start, len(X), "points of the Jacobian")
        for group in _by_place(uses(net, X[part], ring, signs[part])):
            name, start = group[0].name, group[0].start
            if name in without:
                continue
            if (name, start) not in probes:
                sizes = group[0].shape if isinstance(group[0].operator, Dense) else (size_of(group[0]),)
                probes[name, start] = [rng.integers(0, prime, size=(n, count), dtype=np.uint64) for n in sizes]
            for use in group:
                run.check()
                own = result[part]
                own[...] = add_mod(own, _sketched(use, len(own), probes[name, start], ring), prime)
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
