"""A chain that is being simplified: exact layers, what is known of their neurons, and the steps that lose nothing.

Every step is an identity of real functions on the domain. Numbers stay exact to the end; rounding, where it cannot be
avoided, happens once, when the network is built.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.exact_arrays import (
    fractions,
    is_float,
    joined,
    nearest,
    product,
    scaled,
    settled,
    signs,
    total,
)
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.numerics.rows import multiples

Neuron = tuple[int, int]
"""Hidden layer, counted from 1, and index in the network that came in."""


@dataclass(slots=True, eq=False)
class Layers:
    """Weights, biases, slopes, proven signs and the neurons that every row comes from; changed in place."""

    weights: list[Any]
    biases: list[Any]
    slopes: list[FloatArray]
    signs: list[IntArray]
    origins: list[list[tuple[Neuron, ...]]]
    removed: list[tuple[Neuron, str]] = field(default_factory=list)
    merged: list[tuple[Neuron, ...]] = field(default_factory=list)
    composed: int = 0

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.slopes)

    def linear(self, layer: int) -> BoolArray:
        """Neurons that act as the identity."""
        return np.asarray((self.signs[layer] > 0) | (self.slopes[layer] == 1))

    def keep(self, layer: int, mask: BoolArray, reason: str) -> None:
        """Drop the neurons outside the mask; their output no longer matters."""
        for i in np.flatnonzero(~mask):
            self.removed += [(neuron, reason) for neuron in self.origins[layer][i]]
        self._take(layer, np.flatnonzero(mask))

    def _take(self, layer: int, order: IntArray) -> None:
        self.weights[layer], self.biases[layer] = self.weights[layer][order], self.biases[layer][order]
        self.slopes[layer], self.signs[layer] = self.slopes[layer][order], self.signs[layer][order]
        self.origins[layer] = [self.origins[layer][i] for i in order]
        self.weights[layer + 1] = self.weights[layer + 1][:, order]

    # -- steps: each returns whether something changed -----------------------------------------------------------

    def learn_signs(self) -> None:
        """Behind a ReLU, a row without a negative entry is linear and one without a positive entry is dead."""
        for layer in range(self.depth):
            w, b = signs(self.weights[layer]), signs(self.biases[layer])
            clean = layer > 0 and bool((self.slopes[layer - 1] == 0).all() or self._clean(layer - 1))
            constant = ~_any(w)
            up = ((w >= 0).all(axis=1) & clean | constant) & (b >= 0)
            down = ((w <= 0).all(axis=1) & clean | constant) & (b <= 0)
            self.signs[layer] = np.where(
                self.signs[layer] != 0, self.signs[layer], np.where(down, -1, np.where(up, 1, 0))
            )

    def _clean(self, layer: int) -> bool:
        return bool(((self.slopes[layer] == 0) | (self.signs[layer] > 0)).all())

    def drop_idle(self, layer: int) -> bool:
        """Dead neurons, neurons that nobody reads, and constant ones, which go into the next bias."""
        before = len(self.slopes[layer])
        self._unfold_leaky(layer)
        dead = (self.signs[layer] < 0) & (self.slopes[layer] == 0)
        self.keep(layer, ~dead, "dead")
        unread = ~_any(self.weights[layer + 1].T)
        self.keep(layer, ~unread, "outgoing weights are zero")
        constant = ~_any(self.weights[layer])
        if constant.any():
            where = np.flatnonzero(constant)
            value = fractions(self.biases[layer][where])
            slope = fractions(self.slopes[layer][where])
            out = np.array([v if v > 0 else s * v for v, s in zip(value, slope, strict=True)], dtype=object)
            more = product(self.weights[layer + 1][:, where], settled(out.reshape(-1, 1)))[:, 0]
            self.biases[layer + 1] = total(self.biases[layer + 1], more)
            self.keep(layer, ~constant, "constant")
        return len(self.slopes[layer]) != before

    def _unfold_leaky(self, layer: int) -> None:
        """A leaky neuron that is nowhere positive multiplies by its slope: the next layer can do that."""
        where = np.flatnonzero((self.signs[layer] < 0) & (self.slopes[layer] != 0) & (self.slopes[layer] != 1))
        if len(where):
            slopes, columns = self.slopes[layer], self.weights[layer + 1]
            self._set_columns(layer + 1, {int(i): scaled(columns[:, i], Fraction(float(slopes[i]))) for i in where})
            slopes[where] = 1.0

    def _set_columns(self, layer: int, columns: dict[int, Any]) -> None:
        changed = self.weights[layer]
        floats = is_float(changed) and all(map(is_float, columns.values()))
        changed = changed.copy() if floats else fractions(changed).copy()
        for i, column in columns.items():
            changed[:, i] = column if floats else fractions(column)
        self.weights[layer] = changed

    def merge(self, layer: int) -> bool:
        """One neuron for all that share a hyperplane and an orientation; opposite ones where they cancel to a line."""
        rows = joined([self.weights[layer], self.biases[layer].reshape(-1, 1)], axis=1)
        gone = np.zeros(len(rows), dtype=bool)
        linear = self.linear(layer)
        columns: dict[int, Any] = {}
        for group in multiples(rows):
            kept: dict[tuple[bool, float], tuple[int, Fraction]] = {}
            for i, factor in group:
                straight = bool(linear[i])
                slope = 1.0 if straight else float(self.slopes[layer][i])
                # a line has no orientation; a kink keeps to its own side
                key = (straight or factor > 0, slope)
                if key not in kept:
                    kept[key] = (i, factor)
                    continue
                first, unit = kept[key]
                self._absorb(layer, first, i, factor / unit, columns)
                gone[i] = True
            self._cancel(layer, kept, gone, columns)
        if columns:
            self._set_columns(layer + 1, columns)
        if gone.any():
            self._take(layer, np.flatnonzero(~gone))
        return bool(gone.any())

    def _absorb(self, layer: int, first: int, other: int, factor: Fraction, columns: dict[int, Any]) -> None:
        """``v relu(factor z)`` is ``factor v relu(z)``; ``columns`` are the new outgoing weights so far."""
        known = columns.get(first, self.weights[layer + 1][:, first])
        columns[first] = total(known, scaled(self.weights[layer + 1][:, other], factor))
        self.merged.append(self.origins[layer][first] + self.origins[layer][other])
        self.origins[layer][first] += self.origins[layer][other]

    def _cancel(
        self,
        layer: int,
        kept: dict[tuple[bool, float], tuple[int, Fraction]],
        gone: BoolArray,
        columns: dict[int, Any],
    ) -> None:
        """``v relu(z) - v relu(-z) = v z``: two kinks that make one line."""
        if (True, 0.0) not in kept or (False, 0.0) not in kept:
            return
        (i, p), (j, q) = kept[(True, 0.0)], kept[(False, 0.0)]
        one, other = (columns.get(k, self.weights[layer + 1][:, k]) for k in (i, j))
        if total(one, scaled(other, -q / p)).any():
            return
        self.slopes[layer] = self.slopes[layer].copy()
        self.slopes[layer][i] = 1.0
        self.merged.append(self.origins[layer][i] + self.origins[layer][j])
        self.origins[layer][i] += self.origins[layer][j]
        gone[j] = True

    def fuse(self, layer: int) -> bool:
        """One layer for two, where no path has a kink in both and the result is no wider.

        Kinks of the second layer may only read lines of the first. A line through both is carried by a line.
        """
        first, second = self.linear(layer), self.linear(layer + 1)
        w1, b1, w2, b2 = *self._rows(layer), *self._rows(layer + 1)
        kinks1, kinks2 = np.flatnonzero(~first), np.flatnonzero(~second)
        lines1, lines2 = np.flatnonzero(first), np.flatnonzero(second)
        if w2[kinks2][:, kinks1].any():
            return False
        carried = lines2[_any(w2[lines2][:, lines1])]
        width = len(kinks1) + len(kinks2) + len(carried)
        if width > max(len(first), len(second)):
            return False
        through = np.concatenate([kinks2, carried]).astype(np.int64)
        rows = joined([w1, b1.reshape(-1, 1)], axis=1)
        passed = product(w2[through][:, lines1], rows[lines1])
        out = self.weights[layer + 2]
        back = product(out[:, lines2], w2[lines2][:, kinks1])
        only = np.setdiff1d(lines2, carried)
        more = product(out[:, only], b2[only].reshape(-1, 1))[:, 0]
        self.biases[layer + 2] = total(self.biases[layer + 2], more)
        self.weights[layer + 2] = joined([back, out[:, through]], axis=1)
        weights = joined([w1[kinks1], passed[:, :-1]], axis=0)
        biases = joined([b1[kinks1], total(passed[:, -1], b2[through])], axis=0)
        slopes = [self.slopes[layer][kinks1], self.slopes[layer + 1][kinks2], np.ones(len(carried))]
        unknown = np.zeros(width, dtype=np.int64)
        origins = [self.origins[layer][i] for i in kinks1] + [self.origins[layer + 1][i] for i in through]
        lost = [self.origins[layer][i] for i in lines1] + [self.origins[layer + 1][i] for i in only]
        self.removed += [(neuron, "linear, folded into the next layer") for names in lost for neuron in names]
        self._replace_pair(layer, weights, biases, np.concatenate(slopes), unknown, origins)
        return True

    def _rows(self, layer: int) -> tuple[Any, Any]:
        return self.weights[layer], self.biases[layer]

    def _replace_pair(
        self, layer: int, weights: Any, biases: Any, slopes: FloatArray, signs: IntArray, origins: list[Any]
    ) -> None:
        self.weights[layer : layer + 2], self.biases[layer : layer + 2] = [weights], [biases]
        self.slopes[layer : layer + 2], self.signs[layer : layer + 2] = [slopes], [signs]
        self.origins[layer : layer + 2] = [origins]

    def compose(self, layer: int) -> bool:
        """A layer of lines is no layer: its map goes into the next one."""
        if not self.linear(layer).all() or not len(self.slopes[layer]):
            return False
        w, b = self._rows(layer)
        self.removed += [(n, "linear, folded into the next layer") for names in self.origins[layer] for n in names]
        outer = self.weights[layer + 1]
        self.weights[layer : layer + 2] = [product(outer, w)]
        offset = total(self.biases[layer + 1], product(outer, b.reshape(-1, 1))[:, 0])
        self.biases[layer : layer + 2] = [offset]
        del self.slopes[layer], self.signs[layer], self.origins[layer]
        return True

    def reduce_lines(self, layer: int) -> bool:
        """More lines than the next layer has rows, or this one inputs: carry the rows, or the inputs, instead."""
        lines = np.flatnonzero(self.linear(layer))
        readers, inputs = self.weights[layer + 1].shape[0], self.weights[layer].shape[1]
        if len(lines) <= min(readers, inputs):
            return False
        rows = joined([self.weights[layer], self.biases[layer].reshape(-1, 1)], axis=1)[lines]
        out = self.weights[layer + 1][:, lines]
        both = product(out, rows)
        kinks = np.flatnonzero(~self.linear(layer))
        names = [self.origins[layer][i] for i in lines]
        count = min(readers, inputs)
        self.removed += [(n, "linear, merged with other linear neurons") for group in names[count:] for n in group]
        if readers <= inputs:
            new, offset, columns = both[:, :-1], both[:, -1], np.eye(readers)
        else:
            new, offset, columns = np.eye(inputs), np.zeros(inputs), both[:, :-1]
            self.biases[layer + 1] = total(self.biases[layer + 1], both[:, -1])
        self.weights[layer] = joined([self.weights[layer][kinks], new], axis=0)
        self.biases[layer] = joined([self.biases[layer][kinks], offset], axis=0)
        self.weights[layer + 1] = joined([self.weights[layer + 1][:, kinks], columns], axis=1)
        self.slopes[layer] = np.concatenate([self.slopes[layer][kinks], np.ones(count)])
        self.signs[layer] = np.concatenate([self.signs[layer][kinks], np.zeros(count, dtype=np.int64)])
        self.origins[layer] = [self.origins[layer][i] for i in kinks] + names[:count]
        return True

    # -- the result ----------------------------------------------------------------------------------------------

    @property
    def exact(self) -> bool:
        """Whether every number is a float."""
        return all(is_float(x) for x in (*self.weights, *self.biases))

    def close(self, inputs: int) -> None:
        """Without hidden neurons in some layer nothing depends on the input: one constant map is left.

        Arrays whose last fractions went with a removed neuron are floats again.
        """
        if any(not len(s) for s in self.slopes):
            self.weights[:] = [np.zeros((len(self.biases[-1]), inputs))]
            self.biases[:] = [self.biases[-1]]
            self.slopes.clear()
            self.signs.clear()
            self.origins.clear()
        self.weights[:], self.biases[:] = map(settled, self.weights), map(settled, self.biases)

    def network(self, input_shape: tuple[int, ...]) -> Network:
        """The chain with every number rounded to the nearest float."""
        nodes: list[Node] = []
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            names = (f"simplified.{layer}.weight", f"simplified.{layer}.bias")
            operator = Dense(nearest(w), input_shape if layer == 0 else None)
            nodes.append(Affine(len(nodes), operator, nearest(b), *names))
            if layer < self.depth:
                nodes.append(PiecewiseLinear(len(nodes), self.slopes[layer], (len(b),)))
        return Network.from_nodes(nodes, input_shape)


def _any(rows: Any) -> BoolArray:
    """Which rows have a non-zero entry."""
    return rows.astype(bool).any(axis=1) if rows.size else np.zeros(rows.shape[0], dtype=bool)
