"""What the parameters of a chain do: exact ranks of Jacobians, differentiability, identifiability by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import isqrt
from random import Random

from .cells import leaves_on
from .program import Program, Signs, at

Vector = list[Fraction]
Rank = Callable[[Iterable[Sequence[Fraction]]], int]


def rank(rows: Iterable[Sequence[Fraction | int]]) -> int:
    """Rank over the rationals, by elimination."""
    basis: dict[int, list[Fraction]] = {}
    for given in rows:
        row = [Fraction(x) for x in given]
        for pivot, old in basis.items():
            if row[pivot]:
                factor = row[pivot]
                row = [x - factor * y for x, y in zip(row, old, strict=True)]
        pivot = next((k for k, x in enumerate(row) if x), None)
        if pivot is None:
            continue
        lead = row[pivot]
        row = [x / lead for x in row]
        for place, old in basis.items():
            if old[pivot]:
                factor = old[pivot]
                basis[place] = [x - factor * y for x, y in zip(old, row, strict=True)]
        basis[pivot] = row
    return len(basis)


PRIME = 2**61 - 1


def quick_rank(rows: Iterable[Sequence[Fraction]]) -> int:
    """Rank modulo a prime: never more than the rank, and as a rule equal; who disagrees with it asks :func:`rank`."""
    basis: dict[int, list[int]] = {}
    inverses: dict[int, int] = {}
    for given in rows:
        row = []
        for x in given:
            d = x.denominator
            if d not in inverses:
                inverses[d] = pow(d, -1, PRIME)
            row.append(x.numerator * inverses[d] % PRIME)
        for pivot, old in basis.items():
            factor = row[pivot]
            if factor:
                row = [(x - factor * y) % PRIME for x, y in zip(row, old, strict=True)]
        pivot = next((k for k, x in enumerate(row) if x), None)
        if pivot is not None:
            lead = pow(row[pivot], -1, PRIME)
            basis[pivot] = [x * lead % PRIME for x in row]
    return len(basis)


def layers_of(program: Program) -> list[tuple[list[list[Fraction]], Vector, Vector]]:
    """Matrices, biases and slopes of a chain; the last slopes are empty."""
    affine = [node for node in program.nodes if node[0] == "affine"]
    relu = [node for node in program.nodes if node[0] == "relu"]
    slopes = [[Fraction(s) for s in node[2]] for node in relu] + [[]]
    return [
        ([[Fraction(w) for w in row] for row in node[2]], [Fraction(b) for b in node[3]], s)
        for node, s in zip(affine, slopes, strict=True)
    ]


def jacobian_rows(program: Program, x: Sequence[Fraction | float], signs: Signs) -> list[Vector]:
    """Derivatives of the outputs by all weights and biases of a chain, layer by layer, at fixed signs."""
    layers = layers_of(program)
    inputs, factors, entry = [[Fraction(v) for v in x]], [], 0
    for matrix, bias, slopes in layers[:-1]:
        z = [sum((w * v for w, v in zip(row, inputs[-1], strict=True)), b) for row, b in zip(matrix, bias, strict=True)]
        own = [Fraction(1) if signs[entry + k] > 0 else s for k, s in enumerate(slopes)]
        entry += len(z)
        factors.append(own)
        inputs.append([f * v for f, v in zip(own, z, strict=True)])
    rows = []
    for out in range(len(layers[-1][0])):
        back = [Fraction(int(k == out)) for k in range(len(layers[-1][0]))]
        parts: list[Vector] = []
        for depth in range(len(layers) - 1, -1, -1):
            matrix = layers[depth][0]
            parts.append([g * v for g in back for v in inputs[depth]] + back)
            if depth:
                back = [
                    factors[depth - 1][k] * sum((g * row[k] for g, row in zip(back, matrix, strict=True)), Fraction(0))
                    for k in range(len(matrix[0]))
                ]
        rows.append([v for part in reversed(parts) for v in part])
    return rows


def batch_rank(program: Program, points: Sequence[Sequence[float]], rank: Rank = quick_rank) -> int:
    """Rank of the Jacobian on a batch of points without kinks."""
    return rank(row for x in points for row in jacobian_rows(program, x, at(program, x).signs))


def full_ranks(program: Program, rng: Random, rank: Rank = quick_rank) -> tuple[int, int]:
    """The largest rank over all batches, without and with regions on which a neuron is zero all over.

    On a region derivatives are affine in ``x``, so ``n + 1`` points will do; they need not lie in the region, the
    affine functions are the same. Where a neuron is zero all over, outputs need not be differentiable.
    """
    n = program.inputs
    corners = [[Fraction(0)] * n, *([Fraction(int(i == k)) for i in range(n)] for k in range(n))]
    cells = {leaf.signs: leaf.cell for leaf in leaves_on(program, ("space", n))}
    plain = [s for s in sorted(cells) if 0 not in s]
    smooth = [s for s in sorted(cells) if 0 in s and differentiable(program, cells[s].inside(), rng)]
    rows = [[row for s in some for x in corners for row in jacobian_rows(program, x, s)] for some in (plain, smooth)]
    low = rank(rows[0])
    return low, rank([*rows[0], *rows[1]]) if rows[1] else low


# -- differentiability


def directional(program: Program, x: Sequence[float | Fraction], direction: Sequence[int]) -> Vector:
    """One-sided derivative of a chain's outputs along a direction of its parameters.

    ``relu`` has the one-sided derivative ``relu(dz)`` where ``z = 0``.
    """
    layers = layers_of(program)
    value, slope = [Fraction(v) for v in x], [Fraction(0)] * len(x)
    place = 0
    for matrix, bias, slopes in layers:
        rows, width = len(matrix), len(value)
        dw = direction[place : place + rows * width]
        db = direction[place + rows * width : place + rows * width + rows]
        place += rows * width + rows
        z, dz = [], []
        for k in range(rows):
            z.append(sum((w * v for w, v in zip(matrix[k], value, strict=True)), bias[k]))
            moved = sum((w * d for w, d in zip(matrix[k], slope, strict=True)), Fraction(db[k]))
            dz.append(moved + sum((d * v for d, v in zip(dw[k * width : (k + 1) * width], value, strict=True)), 0))
        if slopes:
            up = [v > 0 or (v == 0 and d > 0) for v, d in zip(z, dz, strict=True)]
            slope = [d if u else s * d for u, d, s in zip(up, dz, slopes, strict=True)]
            value = [v if v > 0 else s * v for v, s in zip(z, slopes, strict=True)]
        else:
            value, slope = z, dz
    return slope


def differentiable(program: Program, x: Sequence[float | Fraction], rng: Random, tries: int = 24) -> bool:
    """Whether the outputs are differentiable in the parameters at ``x``: False is proven, True is not refuted.

    The outputs are differentiable if and only if the one-sided derivative is linear in its direction.
    """
    count = sum(len(m) * (len(m[0]) + 1) for m, _, _ in layers_of(program))
    unit = []
    for k in range(count):
        e = [int(i == k) for i in range(count)]
        forward, backward = directional(program, x, e), directional(program, x, [-v for v in e])
        if any(p + q for p, q in zip(forward, backward, strict=True)):
            return False
        unit.append(forward)
    for _ in range(tries):
        d = [rng.randint(-9, 9) for _ in range(count)]
        wanted = [sum((c * u[o] for c, u in zip(d, unit, strict=True)), Fraction(0)) for o in range(len(unit[0]))]
        if directional(program, x, d) != wanted:
            return False
    return True


# -- identifiability of one hidden layer


def one_layer_identifiable(program: Program) -> bool | None:
    """Whether the fiber of ``v relu(w x + b) + c`` on all of space is one orbit; None for shared hyperplanes.

    With different hyperplanes and nothing zero, every other member has the same hyperplanes, one neuron on each, and a
    set T of them reversed, which changes the linear part by ``sum over T of v_i w_i^T``.
    """
    (first, bias, slopes), (last, _, _) = layers_of(program)
    if any(slopes):
        return None
    hidden = range(len(first))
    columns = [[row[i] for row in last] for i in hidden]
    if any(not any(first[i]) or not any(columns[i]) for i in hidden):
        return False
    shared = False
    for i, j in itertools.combinations(hidden, 2):
        one, two = [*first[i], bias[i]], [*first[j], bias[j]]
        pivot = next(k for k, x in enumerate(one) if x)
        ratio = two[pivot] / one[pivot]
        if all(y == ratio * x for x, y in zip(one, two, strict=True)):
            if ratio > 0:
                return False
            shared = True
    if shared:
        return None
    terms = [[v * w for v in columns[i] for w in first[i]] for i in hidden]
    sums: set[tuple[Fraction, ...]] = {tuple([Fraction(0)] * len(terms[0]))}
    for term in terms:  # a sum of earlier terms that this one makes vanish
        if tuple(-x for x in term) in sums:
            return False
        sums |= {tuple(x + y for x, y in zip(old, term, strict=True)) for old in sums}
    return True


# -- lengths


def root_bounds(square: Fraction, bits: int = 160) -> tuple[Fraction, Fraction]:
    """Rational bounds of a square root, relative distance below ``2 ** -bits``."""
    if not square:
        return Fraction(0), Fraction(0)
    n, d = square.numerator, square.denominator
    shift = max(0, 2 * bits + d.bit_length() - n.bit_length() + 2)
    shift += shift % 2
    low = isqrt((n << shift) // d)
    below = 1 << (shift // 2)
    return Fraction(low, below), Fraction(low + 1, below)
