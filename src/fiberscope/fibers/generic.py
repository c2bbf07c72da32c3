"""Is a bottleneck generic? What its theorem assumes (Definition 8 of the fiber paper), checked at the parameter.

Behind a first layer of full rank every orthant occurs. Two things are left to look at, each in exact arithmetic:

- every square submatrix of ``(W_2 | b_2)`` and of ``W_3`` is regular. Then in every orthant the hyperplanes of the
  second layer meet in the expected dimension (supertransversality), and ``D' W_2 D`` and ``W_3 D'`` have full rank;
- ``W_3 D' W_2 D`` has the largest possible rank for all masks. With one unit in ``D`` and one output this says that no
  set of second-layer neurons cancels for a first-layer hyperplane, which would not be seen then.

A residue that is not zero proves that a determinant is not; one that is zero is looked at again over the integers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import comb

import flint
import numpy as np

from fiberscope.fibers.one_layer.cancelling import cancelling_subset
from fiberscope.fibers.one_layer.layer import OneLayer
from fiberscope.numerics.exact_arrays import fractions
from fiberscope.numerics.floats import FloatArray, IntArray, ObjectArray
from fiberscope.numerics.points import to_dyadic

MINORS = 6_000_000
"""Determinants up to which all of them are looked at to show that a parameter is generic."""

AMONG = "a statement among generic parameters"

_PRIME = (1 << 31) - 1
_CHUNK = 1 << 20
_TOO_MANY = "the masked products of W_3 and W_2 are too many"


@dataclass(frozen=True, slots=True)
class Generic:
    """Whether a bottleneck is generic (None: not decided), what was looked at, and what fails or is left open."""

    holds: bool | None
    texts: tuple[str, ...]
    reason: str = ""


def bottleneck_genericity(layer: OneLayer) -> Generic:
    """The conditions on the layers behind a first layer of full rank.

    >>> rows, out = [[-1.0, 2.0, 3.0], [-2.0, 5.0, 1.0]], [[2.0, -1.0]]  # the first column of their product vanishes
    >>> bottleneck_genericity(OneLayer(rows, [1.0, 3.0], out, [0.0], True)).reason
    'the weights W_3 D W_2 from neuron 0 of layer 1 through neurons 0, 1 of layer 2 cancel'
    """
    checks = (
        ("all square submatrices of (W_2 | b_2) are regular", *_minors_reason(layer.rows, "(W_2 | b_2)")),
        ("all square submatrices of W_3 are regular", *_minors_reason(layer.V, "W_3")),
        ("masked products of all layers have full rank", *_products_reason(layer)),
    )
    word = {True: "checked exactly", False: "refuted", None: "not decided: too many to check"}
    answers = [answer for _, answer, _ in checks]
    holds = False if False in answers else None if None in answers else True
    reason = next((why for _, answer, why in checks if answer is holds), "") if holds is not True else ""
    return Generic(holds, (AMONG, *(f"{text} ({word[answer]})" for text, answer, _ in checks)), reason)


def _minors_reason(matrix: FloatArray, name: str) -> tuple[bool | None, str]:
    answer = generic_minors(matrix)
    why = {True: "", False: f"a square submatrix of {name} is singular"}
    return answer, why.get(bool(answer), "") if answer is not None else f"{name} has too many square submatrices"


def generic_minors(matrix: FloatArray) -> bool | None:
    """Whether every square submatrix is regular, exactly; None where there are too many to look at.

    >>> generic_minors(np.array([[1.0, 2.0], [2.0, 4.0]])), generic_minors(np.array([[1.0, 2.0], [2.0, 1.0]]))
    (False, True)
    """
    m, n = matrix.shape
    if not (matrix != 0).all():
        return False
    if comb(m + n, m) - 1 > MINORS:  # sum over k of (m choose k) (n choose k)
        return None
    numbers = to_dyadic(matrix)[0]
    table = _residues(numbers)
    minors = table
    above: list[tuple[int, ...]] = [(i,) for i in range(m)]
    for k in range(2, min(m, n) + 1):
        rows = list(itertools.combinations(range(m), k))
        places = {subset: place for place, subset in enumerate(above)}
        parents = np.array([places[subset[:-1]] for subset in rows])
        minors = _next_minors(minors[parents], table[[subset[-1] for subset in rows]], n, k)
        for i, j in np.argwhere(minors == 0).tolist():
            columns = next(itertools.islice(itertools.combinations(range(n), k), j, None))
            if _determinant(numbers[np.ix_(rows[i], columns)]) == 0:
                return False
        above = rows
    return True


def _residues(numbers: ObjectArray) -> IntArray:
    return np.asarray(numbers % _PRIME, dtype=np.int64)


def _determinant(square: ObjectArray) -> int:
    return int(flint.fmpz_mat(*square.shape, square.ravel().tolist()).det())


def _next_minors(minors: IntArray, last: IntArray, n: int, k: int) -> IntArray:
    """Determinants of ``k`` columns by the last of ``k`` rows, for a batch: ``(batch, n choose k)`` modulo the prime.

    ``minors`` are those of the rows before, for ``k - 1`` columns each in lexicographic order, ``last`` the last row.
    """
    places = {subset: place for place, subset in enumerate(itertools.combinations(range(n), k - 1))}
    subsets = list(itertools.combinations(range(n), k))
    columns = np.array(subsets)
    without = np.array([[places[s[:t] + s[t + 1 :]] for t in range(k)] for s in subsets])
    found = np.empty((len(last), len(subsets)), dtype=np.int64)
    step = max(1, _CHUNK // len(subsets))
    for start in range(0, len(last), step):
        part = slice(start, start + step)
        total = np.zeros((len(last[part]), len(subsets)), dtype=np.int64)
        for t in range(k):
            term = last[part][:, columns[:, t]] * minors[part][:, without[:, t]] % _PRIME
            total += term if (k - 1 - t) % 2 == 0 else _PRIME - term
        found[part] = total % _PRIME
    return found


def _products_reason(layer: OneLayer) -> tuple[bool | None, str]:
    """Whether ``W_3 D' W_2 D`` always has the largest rank, where the factors have, and what fails.

    No more passing neurons than outputs lose no rank, since their columns of ``W_3`` are independent.
    """
    if layer.n <= layer.m:
        return True, ""
    full = _product_ranks(layer) if layer.m > 1 else None
    if full is not None:
        return full, "" if full else "a masked product of W_3 and W_2 is not of full rank"
    answer, why = _column_cancels(layer)
    return (None, _TOO_MANY) if answer and layer.m > 1 else (answer, why)


def _column_cancels(layer: OneLayer) -> tuple[bool | None, str]:
    """Whether the weights from one first-layer neuron never cancel, and a case in which they do."""
    decided = True
    for i in range(layer.d):
        found = cancelling_subset(_paths(layer, i))
        if found.subset is not None:
            through = ", ".join(map(str, found.subset))
            return (
                False,
                f"the weights W_3 D W_2 from neuron {i} of layer 1 through neurons {through} of layer 2 cancel",
            )
        decided = decided and found.decided
    return (True, "") if decided else (None, _TOO_MANY)


def _paths(layer: OneLayer, i: int) -> ObjectArray:
    """``v_j W_2[j, i]`` for every second-layer neuron, ``(n_2, m)``."""
    return np.asarray(fractions(layer.V).T * fractions(layer.W)[:, [i]], dtype=object)


def _product_ranks(layer: OneLayer) -> bool | None:
    """The maximal minors of ``V_J W_J`` for all sets ``J`` of at least ``m`` neurons; None where they are too many."""
    n, m, d = layer.n, layer.m, layer.d
    small, large = min(m, d), max(m, d)
    if n > 22 or (m * d + comb(large, small) * small) << n > MINORS << 2:
        return None
    V, W = to_dyadic(layer.V)[0], to_dyadic(layer.W)[0]
    terms = [_residues(np.outer(V[:, j], W[j])) for j in range(n)]
    sums, sizes = np.zeros((1, m, d), dtype=np.int64), np.zeros(1, dtype=np.int64)
    for term in terms:
        sums = np.concatenate([sums, (sums + term) % _PRIME])
        sizes = np.concatenate([sizes, sizes + 1])
    wide = sums if m <= d else sums.transpose(0, 2, 1)
    kept = np.flatnonzero(sizes >= m)
    minors = wide[kept, 0]
    for k in range(2, small + 1):
        minors = _next_minors(minors, wide[kept, k - 1], large, k)
    # with fewer inputs than outputs one regular square is enough, otherwise every one is asked for
    bad = (minors == 0).any(axis=1) if m <= d else (minors == 0).all(axis=1)
    return not any(_deficient(layer, int(index)) for index in kept[bad])


def _deficient(layer: OneLayer, index: int) -> bool:
    """Whether some columns of ``V_J W_J`` have less than the largest rank, exactly."""
    J = [j for j in range(layer.n) if index >> j & 1]
    exact = to_dyadic(layer.V[:, J])[0] @ to_dyadic(layer.W[J])[0]
    size = min(layer.m, layer.d)
    columns = itertools.combinations(range(layer.d), size)
    return any(int(flint.fmpz_mat(layer.m, size, exact[:, list(c)].ravel().tolist()).rank()) < size for c in columns)
