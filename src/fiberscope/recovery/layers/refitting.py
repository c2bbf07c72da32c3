"""Known layers again, through kinks of their neurons: the place of a kink is sharper than any normal.

A neuron that was followed over folds is known worse than the layers before it by a factor of ten or more, and after a
few layers nothing can be followed any more. Its preactivation is linear in the activations before it and vanishes at
its kinks. So layers are fitted to these, one after the other, each over those that are sharp already. The places are
aimed at: between a point where a neuron is on and one where it is off lies its kink, and which points those are costs
no values to find.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fiberscope.numerics.cutoffs import NOT_ZERO, ORACLE_CLEAR, ORACLE_NOISE, SAME
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.recovery.place import Place
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.probes import locate_all
from fiberscope.recovery.telling import draw_telling
from fiberscope.recovery.tilts import refitted

DRAWN, RANDOM, HALVED = 600, 20_000, 50
"""Points that are drawn to find a neuron on and off, random ones beside them where it is rare, and how often the way
between is halved."""

BETWEEN, MET, EACH = 600, 3, 4
"""Places where a neuron should switch, those of them that are looked at for every coefficient, and those where one of
its inputs is on."""

SEGMENTS = (1e-4, 1e-5, 1e-6)
"""Halves of segments, in parts of the place, on which a kink is looked for."""

ROUGH = 1000.0
"""How far off a kink may be to be used in the first round, in tolerances."""


MOST = 2 / 3
"""Share of the places at which a neuron must switch where it should. What was followed behind a surface of a later
layer switches at less than half of them: where that is flat because neurons between are on, or off."""


def features_of(known: Prefix, X: FloatArray) -> FloatArray:
    """What a neuron behind the known layers is linear in: the activations of the last one, and one."""
    return known.features(X) if known.weights else np.column_stack([X, np.ones(len(X))])


def gradients_of(known: Prefix, row: FloatArray, X: FloatArray) -> FloatArray:
    """By which the preactivation ``row`` changes at the rows of ``X``."""
    if not known.weights:
        return np.broadcast_to(row[:-1], X.shape)
    return np.array([row @ known.cell(known.pattern(x)).slopes for x in X]).reshape(X.shape)


def switches_of(place: Place, known: Prefix, row: FloatArray, drawn: Prefix, rng: np.random.Generator) -> FloatArray:
    """Points where the neuron ``row`` behind the ``known`` layers should switch; they cost no values.

    Points are drawn as the layers ``drawn`` ask for. Where an input of the neuron is seldom on, some are kept at which
    it is. There may be none.
    """
    X = draw_telling(place, drawn, rng, DRAWN)
    z = features_of(known, X) @ row
    if min((z > 0).sum(), (z <= 0).sum()) < DRAWN // 20:
        X = np.concatenate([X, place.draw(rng, RANDOM)])
        z = features_of(known, X) @ row
    on, off = X[z > 0], X[z <= 0]
    if not len(on) or not len(off):
        return X[:0]
    a, b = on[rng.integers(len(on), size=BETWEEN)], off[rng.integers(len(off), size=BETWEEN)]
    for _ in range(HALVED):
        middle = (a + b) / 2
        inside = (features_of(known, middle) @ row > 0)[:, None]
        a, b = np.where(inside, middle, a), np.where(inside, b, middle)
    return a[_spread(features_of(known, a)[:, :-1] > 0, MET * len(row), rng)]


def _spread(on: BoolArray, count: int, rng: np.random.Generator) -> IntArray:
    """Some rows of ``on``, ``(places, inputs)``, so that every input is on in some of them if it is anywhere."""
    order = rng.permutation(len(on))
    rare = [order[np.flatnonzero(on[order, i])[:EACH]] for i in range(on.shape[1])]
    return np.unique(np.concatenate([order[:count], *rare]))


def meet(pool: Pool, known: Prefix, row: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Kinks near places ``X`` where the neuron ``row`` should switch, and how far each of them may be off."""
    U = gradients_of(known, row, X)
    sizes = np.linalg.norm(U, axis=1, keepdims=True)
    X, U = X[sizes[:, 0] > 0], U[sizes[:, 0] > 0] / sizes[sizes[:, 0] > 0]
    found, blurs = [X[:0]], [np.zeros(0)]
    for share in SEGMENTS:
        met = locate_all(pool.oracle, X, U, share * pool.place.size)
        found.append(X[met.found] + met.at[met.found, None] * U[met.found])
        blurs.append(pool.oracle.noise * pool.oracle.scale / np.abs(met.jump[met.found]))
        X, U = X[~met.found], U[~met.found]
    # points are rounded, and so are activations there
    return np.concatenate(found), np.maximum(np.concatenate(blurs), ORACLE_NOISE * pool.place.size)


def sharper(pool: Pool, known: Prefix, row: FloatArray, drawn: Prefix, most: float = MOST) -> FloatArray | None:
    """A neuron behind the ``known`` layers through kinks of it; None where they do not tell it, or tell another one.

    It must be seen to switch at the part ``most`` of the places where it should.
    """
    places = switches_of(pool.place, known, row, drawn, pool.rng)
    X, blurs = meet(pool, known, row, places)
    if len(X) < most * len(places) or not len(X):
        return None
    sizes = np.maximum(np.linalg.norm(gradients_of(known, row, X), axis=1), NOT_ZERO)
    found = refitted(features_of(known, X), row, sizes, blurs, ROUGH * pool.tolerance * pool.place.size)
    if found is None or np.linalg.norm(found - row) > SAME * np.linalg.norm(row):
        return None
    off = np.abs(features_of(known, X) @ found) / sizes
    return found if (off <= ORACLE_CLEAR * blurs).sum() >= most * len(places) else None


def refit_layers(pool: Pool, prefix: Prefix) -> Prefix:
    """The same layers, as far as kinks tell them better; the signs stay."""
    now = prefix
    for k in range(len(prefix.weights)):
        W, b = now.weights[k].copy(), now.biases[k].copy()
        known = Prefix(now.weights[:k], now.biases[:k], prefix.leak, True)
        for i in range(len(W)):
            # layers behind it may hide it at most places
            found = sharper(pool, known, np.append(W[i], b[i]), now, most=0.0)
            if found is not None:
                W[i], b[i] = found[:-1], found[-1]
        now = replace(
            now, weights=(*now.weights[:k], W, *now.weights[k + 1 :]), biases=(*now.biases[:k], b, *now.biases[k + 1 :])
        )
    return now
