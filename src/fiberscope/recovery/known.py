"""What a search knows of a network: layers with signs, the last one without, and what is open.

A layer is found without the signs of its neurons; those behind it are rows over ``(|z|, a, 1)``. Signs make them rows
over activations, and what no choice of signs explains may be one neuron more, which never switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.cutoffs import SPAN
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.layers.bent_surfaces import Row
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.signs import Signs, over_features, signs_of_parts, solve_signs, solve_with_remainder
from fiberscope.recovery.unresolved import Unresolved

TAKEN = "no kink of it was found, and it is taken to be"

GIVEN = "give this function; one of them was taken"
INVISIBLE = (
    "no kink of it was found: it is dead, linear or not read on the domain, and stands here as a neuron of zeros"
)


class StuckError(Exception):
    """No further layer can be found; the reason stands in ``unresolved``."""


@dataclass
class KnownLayers:
    """``weights`` and ``biases`` of layers with signs, of the last one without.

    ``open`` are weights that nothing told yet: layer, neuron and input. ``by_values`` is a choice of signs
    that values may still tell.
    """

    pool: Pool
    widths: tuple[int, ...]
    weights: list[FloatArray] = field(default_factory=list)
    biases: list[FloatArray] = field(default_factory=list)
    unresolved: list[Unresolved] = field(default_factory=list)
    slope: float = 0.0
    open: list[tuple[int, int, int]] = field(default_factory=list)
    by_values: Unresolved | None = None

    @property
    def prefix(self) -> Prefix:
        return Prefix(tuple(self.weights), tuple(self.biases), self.slope)

    def stuck(self, layer: int, reason: str) -> StuckError:
        self.unresolved.append(Unresolved(layer, None, reason))
        return StuckError(reason)

    def keep(self, theta: list[FloatArray]) -> None:
        self.weights, self.biases = theta[::2], theta[1::2]

    def oriented(self, rows: list[Row], last: bool, blind: Sequence[int] = (), signs: Signs | None = None) -> (
        tuple[FloatArray, FloatArray]
    ):  # fmt: skip
        """Give the last known layer its signs; weights and biases of the rows over its activations.

        Nothing is known about the inputs ``blind`` of that layer.
        """
        number = len(self.weights)
        W, b = self.weights[-1], self.biases[-1]
        n = len(W)
        sure = [row.coefficients for row in rows if row.complete] or [row.coefficients for row in rows]
        U, Q = np.array(sure)[:, :n], np.array(sure)[:, n:-1]
        seen = np.setdiff1d(np.arange(W.shape[1]), blind)
        told = signs is not None
        if signs is None and not len(blind) and n == self.widths[number] and not any(row.complete for row in rows):
            signs = signs_of_parts([(row.equations.rows, row.equations.values) for row in rows], W, b, self.slope)
        signs = signs or solve_signs(U, W[:, seen], Q[:, seen] * ((1 - self.slope) / (1 + self.slope)))
        extra: FloatArray | None = None
        # where many layers follow a neuron that was missed is no neuron that never switches
        lacks = self.widths[number] > n and not self.pool.deep
        if signs is None and lacks and not len(blind) and not self.slope:
            found = solve_with_remainder(U, W, Q, self.pool.place.bounded)
            if found is not None:
                signs, extra = found.signs, found.row
        if signs is None:
            what = "the outputs" if last else f"layer {number + 1}"
            raise self.stuck(number, f"no choice of signs of its {n} neurons explains {what}")
        if signs.choices > 1:
            text = f"{signs.choices} choices of signs {GIVEN}"
            self.unresolved.append(Unresolved(number, None, text))
            self.by_values = self.unresolved[-1] if told else None
        for i in np.flatnonzero(~signs.sure) if extra is None else ():
            self.unresolved.append(Unresolved(number, int(i), "its sign does not matter to any neuron that was found"))
        s = signs.values
        self.weights[-1], self.biases[-1] = s[:, None] * W, s * b
        W, b = self.signed(rows, extra)
        return (W, b) if extra is None else self.with_constant(W, b, extra, last)

    def signed(self, rows: list[Row], extra: FloatArray | None = None, over: FloatArray | None = None) -> (
        tuple[FloatArray, FloatArray]
    ):  # fmt: skip
        """Weights and biases over the activations of a layer that has its signs; what they leave open is named.

        ``extra`` is the row of one more neuron of it, which never switches and has no offset yet; ``over`` says how the
        features of the rows are made of its activations, where that is not as usual.
        """
        number, (W, b) = len(self.weights), (self.weights[-1], self.biases[-1])
        T = over_features(W, b, self.slope) if over is None else over
        if extra is not None:
            column = np.concatenate([np.zeros(len(W)), extra, [0.0]])
            T = np.column_stack([T[:, :-1], column, T[:, -1]])
        found = np.zeros((len(rows), T.shape[1]))
        for k, row in enumerate(rows):
            found[k], known = row.over(T)
            self.open += [(number + 1, k, int(i)) for i in np.flatnonzero(~known[:-1])]
        return found[:, :-1], found[:, -1]

    def with_constant(self, W: FloatArray, b: FloatArray, row: FloatArray, last: bool) -> (
        tuple[FloatArray, FloatArray]
    ):  # fmt: skip
        """Add a neuron that never switches to the last known layer, with an offset that keeps it active."""
        number, place, out = len(self.weights), self.pool.place, W[:, -1]
        if number == 1 and place.bounded:
            shift = float(-np.minimum(row * place.low, row * place.high).sum()) + 1.0
            text = f"{TAKEN} active wherever it is read: its offset is free, and one was chosen that keeps it so"
        elif last:
            shift = 1.0
            text = f"{TAKEN} linear: its offset is free, and one was chosen that keeps it active"
        else:
            if (np.sign(out) * np.sign(W[:, :-1]).sum(axis=1)).sum() > 0:  # hiding rows have another sign there
                row, W = -row, np.column_stack([W[:, :-1], -out])
                out = W[:, -1]
            read = np.abs(out) > SPAN * np.abs(out).max()
            shift = float((b[read] / out[read]).max(initial=0.0)) + 1.0  # the same for both orientations of a row
            text = f"{TAKEN} hidden: its hyperplane can be moved, and one place was chosen"
        self.unresolved.append(Unresolved(number, len(self.weights[-1]), text))
        self.weights[-1] = np.concatenate([self.weights[-1], row[None]])
        self.biases[-1] = np.append(self.biases[-1], shift)
        return W, b - out * shift

    def padded(self) -> list[FloatArray]:
        """Weights and biases of the widths asked for; neurons that were not seen are zero, and named."""
        theta: list[FloatArray] = []
        before = 0
        for number, (W, b) in enumerate(zip(self.weights, self.biases, strict=True), 1):
            more = self.widths[number] - len(W)
            for k in range(more):
                self.unresolved.append(Unresolved(number, len(W) + k, INVISIBLE))
            theta += [np.pad(W, ((0, more), (0, before))), np.pad(b, (0, more))]
            before = more
        return theta
