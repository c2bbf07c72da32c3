"""The exact rank of a Jacobian: certified signs, then forward and backward modulo primes.

With the signs fixed every entry of the Jacobian is a sum of products of floats, hence a dyadic rational with a residue
modulo every odd prime. Nothing is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from fiberscope.dimension.blocks import sketch_loss, sketched_rank
from fiberscope.dimension.jacobian import rows_in_ring
from fiberscope.dimension.kinks import describe, kinks
from fiberscope.dimension.row_space import Sketch, streamed_rank, streaming_loss
from fiberscope.dimension.spans import entry_bits
from fiberscope.dimension.zeros import certified
from fiberscope.errors import TooLargeError
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import Ranks, pivots_mod
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import Residues, random_primes, residues
from fiberscope.numerics.rank import ExactRank, agreed_rank, minor_bits
from fiberscope.run import ENDLESS, Run

WIDE = 6
"""From this ratio of columns to rows on a Jacobian is sketched and not formed."""

_TALL = 1 << 21
"""Entries from which on a Jacobian with more than twice as many rows as columns is streamed."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """A batch without its points on kinks: certified signs, and which points share a sign vector.

    ``region`` numbers the sign vectors in order of first appearance, ``(points,)``; ``counts`` says how many points
    each has. ``on_boundary`` are the indices, in the batch that was given, of the points that were left out, and
    ``reasons`` says of each which neuron or window is at fault.
    """

    X: FloatArray
    signs: SignArray
    region: IntArray
    counts: IntArray
    on_boundary: IntArray
    reasons: tuple[str, ...] = ()

    @property
    def regions(self) -> int:
        return len(self.counts)


def sample(net: Network, X: FloatArray, run: Run = ENDLESS) -> Sampled:
    """Certify the signs of a batch and set its points on kinks apart: see :mod:`fiberscope.dimension.kinks`."""
    signs = certified(net, X, run.quietly())
    zero = kinks(net, X, signs, run)
    bad = zero.any(axis=1)
    kept = signs[~bad]
    packed = np.packbits(kept > 0, axis=1) if kept.shape[1] else np.zeros((len(kept), 1), np.uint8)
    # Entries that are zero without a kink are told apart from negative ones too: one formula for every sign vector.
    ties = kept == 0
    if ties.any():
        packed = np.concatenate([packed, np.packbits(ties, axis=1)], axis=1)
    _, first, inverse, counts = np.unique(packed, axis=0, return_index=True, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(first))
    ordered = np.empty_like(counts)
    ordered[rank] = counts
    region = rank[inverse.reshape(-1)]
    left_out = np.flatnonzero(bad)
    reasons = tuple(_reason(net, int(i), zero[i]) for i in left_out)
    return Sampled(X[~bad], kept, region, ordered, left_out, reasons)


def _reason(net: Network, point: int, entries: BoolArray) -> str:
    first = int(entries.argmax())
    return f"point {point}: {describe(net, first)} is exactly at its kink, and its sides differ in the outputs"


def spanning_points(found: Sampled, run: Run = ENDLESS) -> IntArray:
    """Points whose rows span the row space of the whole Jacobian, proven over the rationals.

    On a region the rows are affine functions of the point. So of a region with more than ``n_0 + 1`` points it is
    enough to keep ``n_0 + 1`` that are affinely independent; independent modulo a prime is independent.
    """
    n = found.X.shape[1] + 1
    crowded = np.flatnonzero(found.counts > n)
    if len(crowded) == 0:
        return np.arange(len(found.X))
    prime = random_primes(1, 0)[0]
    keep = np.ones(len(found.X), dtype=bool)
    order = np.argsort(found.region, kind="stable")
    ends = np.cumsum(found.counts)
    for region in crowded:
        run.check()
        members = order[ends[region] - found.counts[region] : ends[region]]
        lifted = np.column_stack([found.X[members], np.ones(len(members))])
        pivots = pivots_mod(residues(np.ascontiguousarray(lifted.T), prime), prime)
        if len(pivots) == n:
            keep[members] = False
            keep[members[list(pivots)]] = True
    return np.flatnonzero(keep)


def residue_rows(net: Network, X: FloatArray, signs: SignArray, prime: int, run: Run = ENDLESS) -> Residues:
    """The Jacobian modulo a prime, ``(points * out_size, num_parameters)``."""
    rows: Residues = rows_in_ring(net, X, ModularAlgebra(prime), signs, run)
    return rows


def exact_jacobian_rank(
    net: Network,
    found: Sampled,
    upper: int | None = None,
    seed: int = 0,
    run: Run = ENDLESS,
    memory: float = inf,
) -> ExactRank:
    """Rank over the rationals; one prime is enough where its rank meets a proven ``upper`` bound.

    A Jacobian with far more columns than rows, or beyond the ``memory``, is not formed but sketched; one with far more
    rows than columns is streamed.
    """
    keep = spanning_points(found, run)
    X, signs = found.X[keep], found.signs[keep]
    rows, D = len(X) * net.out_size, net.num_parameters
    most = min(rows, D) if upper is None else min(rows, D, upper)
    way = way_of(rows, D, memory)
    sketch_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])

    known, ranks = Sketch(net, (X, signs), sketch_seed), Ranks(sketch_seed)

    def rank_of(prime: int) -> int:
        nonlocal known
        match way:
            case "sketched":
                return sketched_rank(net, X, signs, prime, most, sketch_seed, run)
            case "streamed":
                rank, known = streamed_rank(known, prime, most, run)
                return rank
            case "formed":
                return ranks.of(residue_rows(net, X, signs, prime, run), prime, run)

    losses: dict[str, Callable[[int], float]] = {
        "sketched": sketch_loss(rows),
        "streamed": streaming_loss(rows),
        "formed": ranks.loss,
    }
    # Minors that are not zero have at most as many rows as the bound says.
    return agreed_rank(
        rank_of, (rows, D), lambda: minor_bits(entry_bits(net, X), most), upper=upper, loss=losses[way], seed=seed
    )


def way_of(rows: int, columns: int, memory: float = inf) -> Literal["formed", "sketched", "streamed"]:
    """How the rank of a Jacobian of this shape is found; :class:`TooLargeError` where no way fits the memory."""
    small, large = min(rows, columns), max(rows, columns)
    # A table and a copy that is eliminated; and a kernel, for the streamed one.
    tall = rows > 2 * columns and rows * columns > _TALL
    wide = columns > WIDE * rows
    if not (tall or wide) and 8 * 3 * rows * columns <= memory:
        return "formed"
    need = 8 * 5 * small * small
    if not need <= memory:
        raise TooLargeError(
            f"the exact rank of a {rows} x {columns} Jacobian needs {need / 2**30:.1f} GiB here, the limit is "
            f"{memory / 2**30:.1f} GiB; take fewer points or fewer parameters, or raise memory="
        )
    return "streamed" if large == rows else "sketched"
