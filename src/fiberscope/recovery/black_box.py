"""A function that can only be evaluated, back to a network of given widths.

Layer by layer: the first one from straight hyperplanes, the others from surfaces that bend at those before; the signs
of a layer from the coefficients of the next one; the last layer by regression. Then all parameters are polished on the
values that were asked, and the result is tried at fresh points. The ideas are those of Rolnick and Kording (2020),
Carlini et al. (2020), Canales-Martinez et al. (2024), Daniely and Granot (2023) and Foerster et al. (2024); following a
surface over the folds, signs as one linear system, and the remainder that names neurons which never switch are ours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.cutoffs import CRUDE, FITTED, RECOVERED, TOLD
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.known import GIVEN, TAKEN, KnownLayers, StuckError
from fiberscope.recovery.layers.bent_surfaces import Equations, Row
from fiberscope.recovery.layers.first_layer import first_layer, stacked, taken_over
from fiberscope.recovery.layers.later_layers import (
    MORE_BEFORE,
    MORE_DEEP,
    MORE_LINES,
    Layer,
    explain_again,
    next_layer,
)
from fiberscope.recovery.layers.many_kinks import hyperplanes
from fiberscope.recovery.layers.mending import missing_neuron
from fiberscope.recovery.layers.output_fit import FIT_POINTS, fit_outputs
from fiberscope.recovery.layers.refitting import refit_layers
from fiberscope.recovery.layers.value_fit import layer_from_values
from fiberscope.recovery.layers.weighing import weight_from_values
from fiberscope.recovery.oracle import Function, Oracle, SpentError, alive, settle
from fiberscope.recovery.place import place_of
from fiberscope.recovery.polish import forward
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.recovered import Recovery, network_of
from fiberscope.recovery.sharpening import AT_ONCE, freed, hidden, sharpened
from fiberscope.recovery.signs import signs_from_values
from fiberscope.recovery.telling import draw_telling
from fiberscope.recovery.unresolved import Unresolved
from fiberscope.run import Run

ATTEMPTS, ATTEMPTS_CRUDE = 3, 5
"""Searches with other lines before a function is given up; where values are noisy, the first one seldom succeeds."""

FURTHER, FURTHER_WHOLE = 3000, 100
"""Points at which an answer that lacks something is tried before it is taken, and one that does not."""

FITTED_AT_ONCE = 2000
"""Parameters up to which noisy values are explained by a fit of all of them."""

DEEP = 5
"""Networks with more layers of neurons than this, inputs and outputs counted, lose digits from layer to layer."""

HELD_OUT = 100_000
"""Fresh points at which the result is tried."""

EQUAL = "fit equally well, but what was found does not give this function; one of them was taken"


@dataclass
class Search(KnownLayers):
    """One search, and how far it came."""

    whole: bool = False
    polished: bool = False
    accuracy: float | None = None
    holds: bool = False
    earlier: Pool | None = None
    points: tuple[FloatArray, FloatArray] | None = None

    @property
    def by_fits(self) -> bool:
        """Whether values are noisy, and neurons are fitted to them: preactivations of the first layer can be chosen."""
        few = sum(n * (m + 1) for m, n in itertools.pairwise(self.widths)) <= FITTED_AT_ONCE
        narrow = len(self.widths) == 4 and self.widths[1] <= self.widths[0] and few
        return narrow and self.pool.oracle.noise > CRUDE and not self.slope and not self.pool.place.bounded

    def reached(self) -> tuple[bool, bool, int]:
        """How far it came, to be compared with another search."""
        return self.holds, self.whole, len(self.weights)

    def attempt(self) -> None:
        """The whole search, which may get stuck; ``holds`` says that nothing speaks against its answer."""
        try:
            self.run()
            self.whole = True
            self.sharpened()
            self.polished = True
            self.holds = self.explains()
        except StuckError:
            pass

    def lacks(self) -> bool:
        """Whether neurons were not seen, or something is open."""
        found = [len(b) for b in self.biases]
        return bool(self.unresolved) or found != list(self.widths[1:])

    def explains(self) -> bool:
        """Whether what was found is the function at further points."""
        theta = [a for pair in zip(self.weights, self.biases, strict=True) for a in pair]
        oracle = self.pool.oracle
        few = min(FURTHER_WHOLE, 2 * sum(a.size for a in theta))
        count = FURTHER if self.lacks() else few
        X = draw_telling(self.pool.place, hidden(theta, self.slope), self.pool.rng, count)
        Y = oracle.values(X)
        size = max(oracle.scale, float(np.abs(Y).max()))
        # what is too large to be polished together is known less well
        allowed = max(RECOVERED * oracle.noise, FITTED if sum(a.size for a in theta) > AT_ONCE else 0.0)
        return bool(np.abs(forward(theta, X, self.slope)[0] - Y).max() <= allowed * size)

    # -- layers ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All layers, the outputs last; raises :class:`StuckError` where it cannot go on."""
        hidden = self.widths[1:-1]
        if self.earlier is not None and len(self.earlier.planes) == hidden[0]:
            self.add(*taken_over(self.pool, self.earlier))
        elif self.by_fits and not self.pool.effort:
            self.add(*hyperplanes(self.pool, hidden[0]))
        else:
            self.add(*first_layer(self.pool, hidden[0], len(hidden) > 1))
        self.behind(1)
        while (number := self.lacking()) and self.mended(number):
            self.behind(number)
        self.counted()
        self.outputs()

    def behind(self, known: int) -> None:
        """The hidden layers behind the first ones that are known."""
        for number in range(known + 1, len(self.widths) - 1):
            self.deeper(number)

    def lacking(self) -> int:
        """The first layer between the first and the last hidden one of which a neuron was not met; 0 if there is none.

        Those of the last one are aimed at when it is found.
        """
        made = {item.layer for item in self.unresolved if item.reason.startswith(TAKEN)}
        for number in range(2, min(len(self.weights) + 1, len(self.widths) - 2)):
            if len(self.weights[number - 1]) < self.widths[number] or number in made:
                return number
        return 0

    def mended(self, number: int) -> bool:
        """Add a neuron to layer ``number`` that is found where what is known fails, and forget the layers behind it."""
        found = missing_neuron(self.pool, self.prefix, number)
        if found is None:
            return False
        seen = self.widths[number] if len(self.weights[number - 1]) < self.widths[number] else -1
        W, b = self.weights[number - 1][:seen], self.biases[number - 1][:seen]  # one that was made up comes last
        self.weights[number - 1 :] = [np.concatenate([W, found[0][None]])]
        self.biases[number - 1 :] = [np.append(b, found[1])]
        self.unresolved = [item for item in self.unresolved if item.layer < number]
        self.open = [item for item in self.open if item[0] <= number]
        explain_again(self.pool, self.prefix, Layer())
        return True

    def add(self, W: FloatArray, b: FloatArray) -> None:
        number = len(self.weights) + 1
        if not len(W):
            raise self.stuck(number, "the function has no kink on the domain that belongs to it")
        self.weights.append(W)
        self.biases.append(b)
        if not self.lacking():
            self.counted()

    def counted(self) -> None:
        """Refuse more neurons than the widths allow; kinks of a neuron that is missing yet may look like some."""
        for number, b in enumerate(self.biases, 1):
            if len(b) > self.widths[number]:
                raise self.stuck(number, f"expected {self.widths[number]} neurons, found at least {len(b)}")

    def deeper(self, number: int) -> None:
        """Find layer ``number`` and give signs to the one before."""
        last = number == len(self.widths) - 2
        if self.pool.deep:
            now = refit_layers(self.pool, self.prefix)
            self.weights, self.biases = list(now.weights), list(now.biases)
            explain_again(self.pool, self.prefix, Layer())
        whole = len(self.weights[-1]) == self.widths[number - 1]
        more = MORE_LINES if last else MORE_BEFORE if number == len(self.widths) - 3 else MORE_DEEP
        layer = layer_from_values(self.pool, self.prefix, self.widths[number]) if self.by_fits else None
        if layer is None and self.by_fits and not self.pool.effort:
            raise self.stuck(number, "no fit of its neurons to the values explains them")
        layer = layer or next_layer(self.pool, self.prefix, self.widths[number], number, last, whole, more)
        self.points = layer.points
        if not layer.rows:
            why = max(layer.refused, key=lambda text: layer.refused[text], default="no kink is left open")
            raise self.stuck(number, f"none of its neurons was found; {why}")
        if layer.signs is None:
            W, b = self.oriented(layer.rows, last=False)
        else:
            self.weights[-1], self.biases[-1] = layer.signs[:, None] * self.weights[-1], layer.signs * self.biases[-1]
            W, b = self.signed(layer.rows, over=np.eye(len(layer.signs) + 1))
        size = np.linalg.norm(W, axis=1)
        self.add(W / size[:, None], b / size)

    def outputs(self) -> None:
        """The last layer by regression, and the signs of the last hidden one."""
        last = len(self.weights)
        off = sorted({i for layer, _, i in self.open if layer == last})
        robust = bool(self.lacking()) or len(self.weights[-1]) < self.widths[-2]
        fit = fit_outputs(self.pool, self.prefix, robust, off, self.points)
        if not len(fit.X):
            raise self.stuck(last, "no point is known at which the neurons without a kink are off")
        if not fit.holds.mean() > 0.5 and robust:
            raise self.stuck(last, "the outputs are no linear function of the neurons that were found")
        n = len(self.weights[-1])
        told = np.setdiff1d(
            np.arange(len(fit.coefficients)), [n + i for i in off]
        )  # silent neurons have no coefficient
        coefficients, signs = fit.coefficients, None
        if (self.pool.crude or self.points) and not off and not self.slope:
            known = [a for pair in zip(self.weights, self.biases, strict=True) for a in pair]
            known, coefficients = freed(self.pool, known, coefficients, self.points)
            self.keep(known)
            if n == self.widths[-2]:
                signs = signs_from_values(self.prefix.preactivations(fit.X)[-1], fit.Y)
        rows = [Row(Equations(np.eye(len(c))[told], c[told])) for c in coefficients.T]
        W, b = self.oriented(rows, last=True, blind=off, signs=signs)
        self.weights.append(W)
        self.biases.append(b)
        for layer, j, i in self.open:
            if layer == last:
                self.weigh(j, i, [k for k in off if k != i])

    def weigh(self, j: int, i: int, others: list[int]) -> None:
        """The weight of a neuron that is off wherever neuron ``j`` of the last hidden layer switches, from values."""
        last = len(self.weights) - 1
        layers = Prefix(tuple(self.weights[:last]), tuple(self.biases[:last]), self.slope, True)
        weight, told = weight_from_values(self.pool, layers, (self.weights[-1], self.biases[-1]), j, i, others)
        if not told:
            text = f"the weight of neuron {i} of layer {last - 1} in it was not seen"
            if weight is not None:
                text = (
                    f"the weight of neuron {i} of layer {last - 1} in it is free below {weight + 1:.3g}; one was chosen"
                )
            self.unresolved.append(Unresolved(last, j, text))
        if weight is not None:
            self.weights[last - 1][j, i] = weight

    # -- the whole ---------------------------------------------------------------------------------------------

    def sharpened(self) -> None:
        """Polish what is complete; choices of signs that noisy neurons left open are told by sharp ones."""
        theta = [a for pair in zip(self.weights, self.biases, strict=True) for a in pair]
        theta, self.accuracy = sharpened(self.pool, theta, self.slope)
        self.keep(theta)
        if self.by_values is not None:
            X, Y = self.pool.oracle.log()
            pick = self.pool.rng.permutation(len(X))[:FIT_POINTS]
            signs = signs_from_values(hidden(theta, self.slope).preactivations(X[pick])[-1], Y[pick])
            if signs is not None and signs.choices == 1 and (signs.values > 0).all():
                self.unresolved.remove(self.by_values)


def black_box(function: Function, widths: tuple[int, ...], domain: Any, max_queries: int | None, seed: int,
              slope: float, run: Run) -> Recovery:  # fmt: skip
    """Recover a network of the widths from values alone; see :func:`fiberscope.recovery.recover.recover`.

    A search that gets stuck, or whose answer fails at further points, is begun anew with other lines; all its queries
    count.
    """
    place = place_of(domain, widths[0])
    oracle = Oracle(function, widths[0], max_queries, seed)
    rng = np.random.default_rng(seed)
    best = Search(Pool.begin(oracle, place, rng, run), widths, slope=slope)
    try:
        settle(oracle, place, rng)
        if oracle.outputs != widths[-1]:
            raise InputError(f"widths: expected {oracle.outputs} outputs, which the function has, got {widths[-1]}")
        place = oracle.place = alive(oracle, place, rng)
        deep = len(widths) > DEEP and oracle.noise <= CRUDE
        for turn in range(ATTEMPTS_CRUDE if oracle.noise > CRUDE else ATTEMPTS):
            pool = Pool.begin(oracle, place, rng, run, effort=turn, deep=deep)
            # a first layer that is whole was measured well, unless even a second search behind it fails
            first = 2 if pool.crude else 1  # the first search takes noisy values for exact ones
            earlier = best.pool if turn >= first and (turn == 1 or pool.crude) and len(widths) > 3 else None
            search = Search(pool, widths, slope=slope, earlier=earlier)
            try:
                search.attempt()
            finally:
                best = max(search, best, key=Search.reached)
            if best.holds or (deep and len(best.weights) > 1):  # other lines were looked at while neurons were missing
                break
    except SpentError:
        text = f"the limit of {max_queries} queries was reached" + (
            "; the parameters are not polished" if best.whole and not best.polished else ""
        )
        best.unresolved.append(Unresolved(len(best.weights) + (not best.whole), None, text))
        if not best.weights and best.pool.planes:
            W, b = stacked(best.pool.planes, widths[0])
            best.weights, best.biases = [W], [b]
    return conclude(best, best.whole, domain, run)


def conclude(search: Search, whole: bool, domain: Any, run: Run) -> Recovery:
    """Try the result at fresh points and say what it is worth."""
    oracle = search.pool.oracle
    planes = tuple(zip(search.weights, search.biases, strict=True))
    if not search.holds:
        oracle.same_as_before()
    if not whole:
        search.unresolved = disowned(search.unresolved) + unreached(search)
        return Recovery(search.widths, None, np.inf, oracle.scale, oracle.noise, oracle.spent, 0,
                        tuple(search.unresolved), False, domain, planes, slope=search.slope)  # fmt: skip
    theta = search.padded()
    residual, size = held_out(search, theta, run)
    close = bool(residual <= RECOVERED * oracle.noise * size)
    if not close:
        search.unresolved = disowned(search.unresolved)
        text = f"the network differs by {residual:.2g} at held-out points, more than the noise of the values explains"
        search.unresolved.append(Unresolved(len(search.widths) - 1, None, text))
    elif search.polished and not search.holds:
        text = "the network differs at points where few neurons are active, more than the noise of the values explains"
        search.unresolved.append(Unresolved(len(search.widths) - 1, None, text))
    accuracy = search.accuracy if close and not search.unresolved else None
    if accuracy is not None and accuracy > TOLD and oracle.noise > CRUDE:
        text = f"the values tell parameters to about {accuracy:.0e} only, where rows have norm one"
        search.unresolved.append(Unresolved(len(search.widths) - 1, None, text))
    return Recovery(search.widths, network_of(theta[::2], theta[1::2], search.slope), residual, size, oracle.noise,
                    oracle.spent, HELD_OUT, tuple(search.unresolved), close and not search.unresolved, domain, planes,
                    slope=search.slope, accuracy=accuracy)  # fmt: skip


def disowned(items: list[Unresolved]) -> list[Unresolved]:
    """The same where the answer is not the function: choices of signs that fit equally well do not give it then."""
    return [replace(item, reason=item.reason.replace(GIVEN, EQUAL)) for item in items]


def unreached(search: Search) -> list[Unresolved]:
    """Layers of which neurons are missing, and the first one that was not looked for."""
    found, hidden = [len(b) for b in search.biases], search.widths[1:-1]
    pairs = enumerate(zip(found, hidden, strict=False), 1)
    items = [Unresolved(k, None, f"{n} of its {width} neurons were found") for k, (n, width) in pairs if n < width]
    if len(found) < len(hidden):
        what = "it was" if len(found) + 1 == len(hidden) else f"it and the layers up to {len(hidden)} were"
        items.append(Unresolved(len(found) + 1, None, f"{what} not reached"))
    return items


def held_out(search: Search, theta: list[FloatArray], run: Run) -> tuple[float, float]:
    """The largest difference at fresh points, which are not counted, and the largest value there."""
    oracle, place, rng = search.pool.oracle, search.pool.place, search.pool.rng
    worst, size, done = 0.0, oracle.scale, 0
    step = max(1, min(HELD_OUT, 2_000_000 // place.low.size))
    while done < HELD_OUT:
        X = place.draw(rng, min(step, HELD_OUT - done))
        Y = oracle.uncounted(X)
        off = np.abs(Y - forward(theta, X, search.slope)[0]).max()
        worst = float(np.maximum(worst, off))  # NaN stays, and is not close to anything
        size, done = max(size, float(np.abs(Y).max())), done + len(X)
        run.step(done, HELD_OUT, "held-out points")
    return worst, size
