"""Equality of three-layer bottleneck networks as real functions: floats are exact rationals, nothing rounds.

Each network is its first-layer rows and the hyperplane representation of the rest on the orthant, which is the image of
a first layer of full rank. The steps are those of the polynomial-time decision of the fiber paper (section 6, Appendix
E), each an identity for *all* parameters that pass its checks, generic or not, so *equal* is unconditional:

- rows that are positive multiples of each other are matched; then the rest must have the same representation;
- a hidden hyperplane may be moved by ``t``, and with a single neuron behind the visible ones may be reflected;
- one first-layer neuron makes the whole network a sum over parallel hyperplanes, which is compared as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fiberscope.equality.bottlenecks.transport import Transport
from fiberscope.errors import InputError
from fiberscope.fibers.one_layer.representation import Form, Primitive, Vector, collected, form_of, opposite, primitive
from fiberscope.network.action.element import is_permutation
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import fractions, nearest


@dataclass(frozen=True, slots=True)
class Hiding:
    """All hyperplanes of the rest hide hyperplane ``index``: oriented so, with weights, over a constant."""

    index: int
    rows: tuple[Vector, ...]
    weights: tuple[Vector, ...]
    affine: tuple[Vector, ...]

    @property
    def bound(self) -> Fraction:
        """Translations must be larger than this number, which is negative."""
        return max(row[-1] / row[self.index] for row in self.rows)

    def translated(self, t: Fraction) -> Form:
        """The rest behind the moved hyperplane."""
        rows = [(*row[:-1], row[-1] - row[self.index] * t) for row in self.rows]
        return collected(zip(rows, self.weights, strict=True), self.affine)


@dataclass(frozen=True, eq=False)
class ExactNet:
    """A chain with two hidden layers: rows ``(w | b)`` of the first, and the form of the rest on the orthant."""

    rows: tuple[Vector, ...]
    tail: Form

    @classmethod
    def of(cls, chain: Network) -> ExactNet:
        """The numbers of a chain as fractions."""
        (W, W2, W3), (b, b2, b3) = chain.weights, chain.biases
        rows = tuple((*w, beta) for w, beta in zip(fractions(W), fractions(b), strict=True))
        return cls(rows, form_of(W2, b2, W3, b3, True))

    @cached_property
    def primitives(self) -> list[tuple[Primitive, Fraction]]:
        """The first-layer rows as primitive rows with their factors."""
        return [primitive(row) for row in self.rows]

    @property
    def constant(self) -> Vector | None:
        """The value, where the rest is constant on the orthant."""
        flat = not self.tail.planes and self.tail.is_constant_but_for_planes
        return tuple(line[-1] for line in self.tail.affine) if flat else None

    @cached_property
    def hiding(self) -> Hiding | None:
        """The hyperplane that the rest hides, for at least two first-layer neurons."""
        tail, d = self.tail, len(self.rows)
        if not tail.planes or d < 2:
            return None
        rows, weights, affine = [], [], [list(row) for row in tail.affine]
        for plane, weight in tail.planes.items():
            row = plane
            if _hides(opposite(plane)) is not None:  # relu(p) = p + relu(-p)
                row = opposite(plane)
                for line, v in zip(affine, weight, strict=True):
                    for k, p in enumerate(plane):
                        line[k] += v * p
            rows.append(row)
            weights.append(weight)
        found = {_hides(row) for row in rows}
        index = found.pop()
        if found or index is None or any(any(line[:-1]) for line in affine):
            return None
        turned = tuple(tuple(Fraction(v) for v in row) for row in rows)
        return Hiding(index, turned, tuple(weights), tuple(tuple(line) for line in affine))

    @cached_property
    def line(self) -> Form:
        """The whole network as one hidden layer on all of space, for one first-layer neuron.

        ``relu(p relu(z) + q) = relu(p z + q)`` for ``p > 0 > q``, and every hyperplane of the rest is of this kind.
        """
        row = self.rows[0]
        bent = [(row, tuple(line[0] for line in self.tail.affine))]
        for (p, q), weight in self.tail.planes.items():
            bent.append(((*(p * v for v in row[:-1]), p * row[-1] + q), weight))
        constant = [[Fraction(0)] * (len(row) - 1) + [line[-1]] for line in self.tail.affine]
        return collected(bent, constant)


def _hides(row: Primitive) -> int | None:
    """The one positive entry of a row that is negative elsewhere, bias included."""
    positive = [k for k, v in enumerate(row) if v > 0]
    alone = len(positive) == 1 and positive[0] < len(row) - 1 and all(row)
    return positive[0] if alone else None


def find_exact(a: ExactNet, b: ExactNet) -> Transport | None:
    """The transport that makes the two one real function, checked; None where there is none of the theorem's kinds."""
    if a.constant is not None and a.constant == b.constant:
        return Transport((), np.ones(0), line=True)
    if len(a.rows) != len(b.rows):
        return None
    found: Transport | None
    if len(a.rows) == 1:
        found = Transport((0,), np.ones(1), line=True)
    else:
        found = _matching(a.primitives, b, (), None, Fraction(0))
        if found is None and a.hiding is not None and b.hiding is not None:
            found = _through_hidden(a, b, a.hiding, b.hiding)
    return found if found is not None and check_exact(a, b, found)[0] else None


def check_exact(a: ExactNet, b: ExactNet, found: Transport) -> tuple[bool, str]:
    """Whether a transport proves equality: rows are compared as fractions, then the rest on the orthant."""
    if found.line and not found.permutation:
        same = a.constant is not None and a.constant == b.constant
        return same, found.text if same else "the networks are not constant, or not the same constant"
    if found.line:
        same = len(a.rows) == len(b.rows) == 1 and a.line == b.line
        return same, found.text if same else "the sums over parallel hyperplanes differ"
    if not is_permutation(found.permutation, len(a.rows)) or len(b.rows) != len(a.rows):
        return False, "the permutation does not fit the first layers"
    rows, tail = carried(a, found)
    scales = []
    for i, k in enumerate(found.permutation):
        (key, factor), (mine, other) = b.primitives[i], primitive(rows[k])
        if key != mine:
            return False, f"neuron {i} of the second network's first layer is no multiple of neuron {k} of the first's"
        scales.append(factor / other)
    same = b.tail.moved(found.permutation, scales) == tail
    return same, found.text if same else "the layers behind differ on the orthant"


def carried(a: ExactNet, found: Transport) -> tuple[Sequence[Vector], Form]:
    """The first-layer rows and the rest of ``a`` after reflections and the translation, their conditions checked."""
    if found.hidden is None:
        if found.flips or found.translation:
            raise InputError("transport: expected a hidden hyperplane with flips or a translation")
        return a.rows, a.tail
    hiding, t = a.hiding, found.translation
    if hiding is None or hiding.index != found.hidden:
        raise InputError(f"transport: expected a hyperplane that is hidden, got {found.hidden}")
    if not t > hiding.bound:
        low, got = nearest(np.array([hiding.bound, t], dtype=object))
        raise InputError(f"transport: expected a translation above {low:.6g}, got {got:.6g}")
    rows = list(_reflected(a.rows, hiding, found.flips))
    moved = rows[hiding.index]
    rows[hiding.index] = (*moved[:-1], moved[-1] + t)
    return rows, hiding.translated(t)


def _reflected(rows: Sequence[Vector], hiding: Hiding, flips: Sequence[int]) -> list[Vector]:
    """``A_S`` applied to the rows: neuron ``k`` is reflected, and the hidden one loses it."""
    i, new = hiding.index, list(rows)
    if flips and len(hiding.rows) != 1:
        raise InputError("transport: expected one neuron behind the first layer where neurons are reflected")
    for k in flips:
        if k == i or not 0 <= k < len(rows):
            raise InputError(f"transport: expected flips other than {i}, below {len(rows)}, got {k}")
        share = hiding.rows[0][k] / hiding.rows[0][i]  # negative
        new[i] = tuple(v + share * w for v, w in zip(new[i], rows[k], strict=True))
        new[k] = tuple(-w for w in rows[k])
    return new


def _matching(
    mine: Sequence[tuple[Primitive, Fraction]], b: ExactNet, flips: tuple[int, ...], hidden: int | None, t: Fraction
) -> Transport | None:
    """Rows of ``b`` that are positive multiples of rows of ``a``, all of them."""
    places = {key: k for k, (key, _) in enumerate(mine)}
    order = [places.get(key) for key, _ in b.primitives]
    if None in order or len(set(order)) < len(order):
        return None
    permutation = [k for k in order if k is not None]
    exact = [factor / mine[k][1] for (_, factor), k in zip(b.primitives, permutation, strict=True)]
    scales = nearest(np.array(exact, dtype=object))
    if not (np.isfinite(scales) & (scales > 0)).all():  # a witness is written in floats
        return None
    return Transport(tuple(permutation), scales, flips, hidden, t)


def _through_hidden(a: ExactNet, b: ExactNet, mine: Hiding, theirs: Hiding) -> Transport | None:
    i, j = mine.index, theirs.index
    flips: tuple[int, ...] = ()
    if len(mine.rows) == len(theirs.rows) == 1:
        seen = {key for k, (key, _) in enumerate(b.primitives) if k != j}
        flips = tuple(k for k, (key, _) in enumerate(a.primitives) if k != i and opposite(key) in seen)
    rows = _reflected(a.rows, mine, flips)
    (key, factor), (other, size) = primitive(rows[i][:-1]), primitive(b.rows[j][:-1])
    if key != other:
        return None
    t = b.rows[j][-1] * (factor / size) - rows[i][-1]
    if not t > mine.bound:
        return None
    rows[i] = (*rows[i][:-1], rows[i][-1] + t)
    return _matching([primitive(row) for row in rows], b, flips, i, t)


def tails_differ(a: ExactNet, b: ExactNet) -> bool:
    """Whether two bottlenecks are proven different whatever they hide: the first layers match, the rest does not.

    For one first-layer neuron the whole networks are compared.
    """
    if len(a.rows) != len(b.rows):
        return False
    if len(a.rows) == 1:
        return a.line != b.line
    found = _matching(a.primitives, b, (), None, Fraction(0))
    return found is not None and not check_exact(a, b, found)[0]
