"""Ranks of masked products of weight matrices: ``D_l W_l ... D_k W_k`` with the activity masks D of a network.

A parameter is generic only if all of them are as large as possible, ``min(n_{k-1}, |D_k|, ..., |D_l|)``. The rank
modulo a prime is a proven lower bound, so that the largest possible rank is proven by one elimination in machine
integers; a rank below it is computed again over the integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.network.network import Network
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.floats import BoolArray, FloatArray, ObjectArray
from fiberscope.numerics.modular import Residues, matmul_mod, multiply_mod, residues
from fiberscope.numerics.points import to_dyadic
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Run

MAX_PRODUCTS = 50_000
"""Products that are checked before the answer says that it covers only some."""

_PRIME = 2**61 - 1
"""Any prime will do: a rank that it makes too small is found out."""


@dataclass(frozen=True, slots=True)
class RankFailure(Result):
    """The product from layer ``first`` to layer ``last``, both from 1, with the passing units of each of them."""

    first: int
    last: int
    passing: tuple[tuple[int, ...], ...]
    rank: int
    expected: int

    def __str__(self) -> str:
        names = [f"{list(units)} of layer {layer}" for layer, units in enumerate(self.passing, start=self.first)]
        layers = f"layer {self.first}" if self.first == self.last else f"layers {self.first} to {self.last}"
        return f"the weights of {layers} with units {', '.join(names)} have rank {self.rank}, at most {self.expected}"


@dataclass(frozen=True, slots=True)
class MaskedRanks(Result):
    """How many products were checked, those whose rank is too small, and whether the limit cut the work short."""

    checked: int
    failures: tuple[RankFailure, ...]
    complete: bool


def product_rank(weights: Sequence[FloatArray], masks: Sequence[FloatArray]) -> int:
    """Exact rank of ``D_l W_l ... D_1 W_1`` with diagonal masks, floats taken as exact numbers.

    >>> product_rank([np.eye(2), np.array([[1.0, 1.0], [1.0, -1.0]])], [np.array([1.0, 0.0]), np.ones(2)])
    1
    """
    table: Residues | None = None
    passing = []
    for weight, mask in zip(weights, masks, strict=True):
        table = _step(weight, mask, table)
        passing.append(int(np.count_nonzero(mask)))
    if table is None:
        return 0
    largest = min(weights[0].shape[1], *passing)
    found = rank_mod(table, _PRIME)
    return found if found == largest else _exact(weights, masks)


def _step(weight: FloatArray, mask: FloatArray, table: Residues | None) -> Residues:
    """The residues of ``D W table``."""
    rows = residues(weight, _PRIME)
    rows = rows if table is None else matmul_mod(rows, table, _PRIME)
    return multiply_mod(rows, residues(mask, _PRIME)[:, None], _PRIME)


def _exact(weights: Sequence[FloatArray], masks: Sequence[FloatArray]) -> int:
    product: ObjectArray | None = None
    for weight, mask in zip(weights, masks, strict=True):
        rows, scale = to_dyadic(weight)[0], to_dyadic(mask)[0]
        rows = rows if product is None else rows.dot(product)
        product = rows * scale[:, None]
    assert product is not None
    return int(flint.fmpz_mat(*product.shape, product.ravel().tolist()).rank())


def masked_ranks(
    net: Network,
    patterns: BoolArray,
    limit: int = MAX_PRODUCTS,
    failure_limit: int | None = None,
    run: Run = ENDLESS,
) -> MaskedRanks:
    """Check every product of consecutive layers of a chain under the given activity patterns, ``(count, num_signs)``.

    The work ends early after ``limit`` products or ``failure_limit`` failures, each of which costs exact numbers.
    The last layer takes part, with nothing masked. A leaky unit passes with its slope, so it counts as passing always;
    then no mask singles out a unit, and the largest ranks do not exclude that the paths behind one cancel.

    >>> net = Network([[[1.0, 0.0], [2.0, 0.0]], [[1.0, 1.0]]], [[0.0, 1.0], [0.0]])
    >>> found = masked_ranks(net, np.array([[True, True], [True, False]]))
    >>> found.checked, [str(failure) for failure in found.failures]
    (5, ['the weights of layer 1 with units [0, 1] of layer 1 have rank 1, at most 2'])
    """
    slopes = [np.asarray(node.slopes) for node in net.switches]
    masks = np.where(patterns, 1.0, np.concatenate(slopes)) if slopes else np.zeros((1, 0))
    failures: list[RankFailure] = []
    checked = 0
    for first in range(len(net.weights)):
        own = np.unique(masks[:, net.layout.starts[first] :], axis=0)
        for chosen, table, largest in _products(net, first, own):
            if checked == limit or len(failures) == failure_limit:
                return MaskedRanks(checked, tuple(failures), False)
            run.check()
            checked += 1
            if rank_mod(table, _PRIME) == largest:
                continue
            rank = _exact(net.weights[first : first + len(chosen)], chosen)
            if rank < largest:
                passing = tuple(tuple(np.flatnonzero(mask).tolist()) for mask in chosen)
                failures.append(RankFailure(first + 1, first + len(chosen), passing, rank, largest))
    return MaskedRanks(checked, tuple(failures), True)


def _products(net: Network, first: int, masks: FloatArray) -> Iterator[tuple[list[FloatArray], Residues, int]]:
    """Every product that begins at a layer, with its masks, residues and largest possible rank; a prefix only once."""
    last = len(net.weights) - 1

    def descend(layer: int, rows: FloatArray, chosen: list[FloatArray], table: Residues | None, bound: int) -> Any:
        width = net.widths[layer + 1]
        options = [(np.ones(width), rows)]
        if layer < last:
            heads, back = np.unique(rows[:, :width], axis=0, return_inverse=True)
            options = [(head, rows[back.reshape(-1) == k][:, width:]) for k, head in enumerate(heads)]
        for mask, rest in options:
            largest = min(bound, int(np.count_nonzero(mask)))
            if largest == 0:
                continue  # nothing passes: the product is zero, as it must be
            product = _step(net.weights[layer], mask, table)
            yield [*chosen, mask], product, largest
            if layer < last:
                yield from descend(layer + 1, rest, [*chosen, mask], product, largest)

    yield from descend(first, masks, [], None, net.widths[first])
