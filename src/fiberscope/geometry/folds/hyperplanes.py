"""Which affine functions of a network's units have the same zero set, decided exactly.

A unit on a region is an affine function ``w x + b``. Two of them have one zero set if and only if ``(w, b)`` are
multiples of each other. Floats with error bounds tell almost all apart; exact minors decide what they leave open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.errors import UnsupportedModelError
from fiberscope.geometry.affine_forms import ExactRegion, neuron_forms
from fiberscope.geometry.facets import to_scale
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.ball import are_dependent
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, ObjectArray, SignArray, gamma, round_up


@dataclass(frozen=True, slots=True, eq=False)
class FormClasses:
    """``label[i] == label[j]`` if and only if the forms are non-zero multiples of each other; -1 for a zero form.

    ``distinct[i]`` numbers the pairs of a unit and the activity of the layers before it; pairs that agree have one form
    by construction. ``exact_decisions`` counts the comparisons that needed exact numbers.
    """

    label: IntArray
    distinct: IntArray
    exact_decisions: int


def neuron_name(net: Network, entry: int) -> str:
    """How a neuron is called in sentences: layers count from 1, neurons from 0."""
    place = net.layout.at(entry)
    return f"neuron {entry - place.start} of layer {net.layout.places.index(place) + 1}"


def refuse_pooling(net: Network, question: str) -> None:
    """Raise :class:`UnsupportedModelError` if the network has max pooling, whose entries are no affine units."""
    if net.layout.pooled.any():
        raise UnsupportedModelError(f"{question}: expected activations only, got max pooling; take net.as_mlp()")


def form_classes(net: Network, signs: SignArray, entries: IntArray) -> FormClasses:
    """Group the preactivations of neurons ``entries`` on cells with sign vectors ``signs`` by their zero sets.

    Parameters
    ----------
    net
        Without max pooling.
    signs
        ``(count, num_signs)``; only the layers before the neuron matter.
    entries
        ``(count,)``, entries of the sign vector.

    Examples
    --------
    ``x + 1`` and ``-2 x - 2`` vanish together, ``x`` elsewhere:

    >>> net = Network([[[1.0], [-2.0], [1.0]], [[1.0, 1.0, 1.0]]], [[1.0, -2.0, 0.0], [0.0]])
    >>> form_classes(net, np.ones((3, 3), np.int8), np.arange(3)).label.tolist()
    [0, 0, 1]
    """
    refuse_pooling(net, "hyperplanes")
    if not len(entries):
        return FormClasses(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    before = net.layout.switch
    active = (signs > 0) & (before[None, :] < before[entries][:, None])
    keys = np.concatenate([entries[:, None].astype(">i8").view(np.uint8), np.packbits(active, axis=1)], axis=1)
    _, first, distinct = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    distinct = distinct.reshape(-1)
    grouping = _Grouping(net, signs[first], entries[first])
    label = grouping.run()[distinct]
    seen = label >= 0
    # Numbered in the order in which they come, so that an answer does not depend on how keys are sorted.
    _, place, inverse = np.unique(label[seen], return_index=True, return_inverse=True)
    label[seen] = np.argsort(np.argsort(place))[inverse.reshape(-1)]
    return FormClasses(label, distinct, grouping.exact)


class _Grouping:
    """The comparison of forms that may be multiples of each other."""

    def __init__(self, net: Network, signs: SignArray, entries: IntArray) -> None:
        self.net, self.signs, self.entries = net, signs, entries
        self.forms = neuron_forms(net, signs, entries)
        self.known: dict[int, ObjectArray] = {}
        self.exact = 0

    def run(self) -> IntArray:
        label = np.full(len(self.entries), -2, dtype=np.int64)
        for i in np.flatnonzero(~(np.abs(self.forms.value) > self.forms.error).any(axis=1)).tolist():
            if self._is_zero(i):
                label[i] = -1
        rest = np.flatnonzero(label == -2)
        count = 0
        for cluster in _clusters(Bounded(self.forms.value[rest], self.forms.error[rest])):
            heads: list[int] = []
            for i in rest[cluster].tolist():
                head = self._head(i, heads)
                if head is None:
                    heads.append(i)
                    label[i], count = count, count + 1
                else:
                    label[i] = label[head]
        return label

    def _head(self, i: int, heads: list[int]) -> int | None:
        """The first of the heads that is a multiple of form i."""
        if not heads:
            return None
        for k in np.flatnonzero(_maybe_parallel(self.forms, i, np.array(heads))).tolist():
            if self._parallel(i, heads[k]):
                return heads[k]
        return None

    def _form(self, i: int) -> ObjectArray:
        if i not in self.known:
            self.known[i] = ExactRegion(self.net, self.signs[i]).margin(int(self.entries[i]))
        return self.known[i]

    def _is_zero(self, i: int) -> bool:
        self.exact += 1
        return all(x.is_zero() for x in self._form(i))

    def _parallel(self, i: int, j: int) -> bool:
        self.exact += 1
        return are_dependent(self._form(i), self._form(j))


def _clusters(forms: Bounded) -> list[IntArray]:
    """Sets outside of which a form has no multiple: multiples have one distance from a fixed direction.

    For a fixed vector g, ``|x g| / |x|`` is the same for multiples of x. An error e of x changes it by at most
    ``2 |g| |e| / |x|``. Intervals that overlap, in a chain, make a cluster.
    """
    value, error = to_scale(forms.value, forms.error)  # squares must not underflow
    size = value.shape[1]
    g = np.cos(np.arange(1, size + 1) * 2.0)
    length = np.linalg.norm(value, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.abs(value @ g) / length
        slip = round_up((4 * np.linalg.norm(error, axis=1) / length + gamma(4 * size + 16)) * np.linalg.norm(g), 8)
    unknown = ~(np.isfinite(place) & np.isfinite(slip))
    place[unknown], slip[unknown] = 0.0, np.inf
    order = np.argsort(place - slip, kind="stable")
    reach = np.maximum.accumulate((place + slip)[order])
    cuts = np.flatnonzero((place - slip)[order][1:] > reach[:-1]) + 1
    return [np.sort(part) for part in np.split(order, cuts)]


def _maybe_parallel(forms: Bounded, i: int, heads: IntArray) -> BoolArray:
    """False where some minor of the two forms is proven not to vanish."""
    value, error = forms.value, forms.error
    x, y = value[i][None, :], value[heads]
    reach_x, reach_y = np.abs(x) + error[i], np.abs(y) + error[heads]

    def outer(a: FloatArray, b: FloatArray) -> FloatArray:
        return np.asarray(a[:, :, None] * b[:, None, :])

    minor = outer(x, y) - outer(y, x)
    slack = outer(error[i][None, :], reach_y) + outer(reach_x, error[heads])
    slack = slack + slack.swapaxes(1, 2) + gamma(8) * (outer(reach_x, reach_y) + outer(reach_y, reach_x))
    return np.asarray(~(np.abs(minor) > round_up(slack, 16)).any(axis=(1, 2)))
