"""The layers behind the first: every open kink starts a walk, and neurons that no line has met are aimed at."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.cutoffs import (
    NOT_ZERO,
    ORACLE_CLEAR,
    SAME,
    SPAN,
)
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.layers.bent_surfaces import Equations, Row, Walk
from fiberscope.recovery.layers.completing import NEARER, SEEN, completed, open_direction
from fiberscope.recovery.layers.confirmation import confirmed
from fiberscope.recovery.layers.output_fit import Fit, FreeLayer, edge, fit_outputs, least_squares
from fiberscope.recovery.layers.refitting import MOST, features_of, meet, sharper, switches_of
from fiberscope.recovery.pool import HARDER, Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.signs import over_features, solve_signs
from fiberscope.recovery.telling import draw_few, draw_telling
from fiberscope.recovery.tilts import refitted

MORE_LINES, MORE_BEFORE, MORE_DEEP = 7, 10, 90
"""Further lines for a layer that is not whole: the last one, the one before it, where a neuron that is missing is found
later, and those before that, where it is not."""

TESTS, BATCH = 2000, 200
"""Points at which the network without a missing neuron is tried, and how many at once."""

AIMS = 3
"""Places where it failed that are looked into, one after the other."""

DRAWN_FOR = 30
"""Rows without one equation that lines are drawn for, at most."""

PLACES, LINES, ENDS = 12, 4, 2000
"""Places at which such a row must switch to be believed, lines that are drawn for it, and points drawn for these."""

REFIT = 80.0
"""How far a kink may be from a neuron to be used when that is fitted again, in tolerances."""

TWINS, ALIKE = 400, 0.15
"""Points at which two noisy neurons are compared, and the part by which they differ if they are one."""

BESIDE = 3.0
"""How far from the hyperplanes of the first layer such a kink must be, in what one may be off."""

ASTRAY = "what its surface seemed to be at one place does not hold at others"

KNOWN = "it switches where a neuron before it does"

REGRESSIONS, LEFT_OVER = 10, 0.8
"""Rounds of a regression on what is left over, and the part of it that one neuron must explain."""


@dataclass
class Layer:
    """Neurons of one layer over the features of the layers before, and why kinks were left open.

    ``signs`` are those of the layer before, once they are known; the features are then its activations. ``points`` are
    inputs and values that the neurons were fitted to.
    """

    rows: list[Row] = field(default_factory=list)
    partial: list[Row] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    signs: FloatArray | None = None
    points: tuple[FloatArray, FloatArray] | None = None

    @property
    def matrix(self) -> FloatArray:
        return np.array([row.coefficients for row in self.rows])

    def with_partial(self, width: int) -> Layer:
        """The layer with neurons that are known in part, as far as there is room."""
        return Layer(self.rows + self.partial[: width - len(self.rows)], [], self.refused, self.signs)

    def orient(self, prefix: Prefix) -> Prefix | None:
        """The signs of the layer before, from neurons that are known; None where these do not tell."""
        rows, W = self.matrix, prefix.weights[-1]
        leak = (1 - prefix.leak) / (1 + prefix.leak)
        found = solve_signs(rows[:, : len(W)], W, rows[:, len(W) : -1] * leak)
        if found is None or found.choices > 1 or not found.sure.all():
            return None
        self.signs, ahead = found.values, prefix.signed(found.values)
        T = over_features(ahead.weights[-1], ahead.biases[-1], prefix.leak)
        self.rows = [row.within(T) for row in self.rows]
        self.partial = [row.within(T) for row in self.partial]
        return ahead


def next_layer(
    pool: Pool, prefix: Prefix, width: int, number: int, last: bool, whole: bool = False, more: int = MORE_LINES
) -> Layer:
    """At most ``width`` neurons of layer ``number`` behind the known ones; ``last`` if no hidden layer comes after.

    After the lines that are there ``more`` are searched.
    ``whole`` says that the layer before lacks no neuron: its signs are then asked of the first ones that are found.
    """
    layer = Layer()
    walk = Walk(pool.oracle, pool.place, prefix, pool.rng, last or pool.crude)
    walk.failures *= 3 if pool.crude else 1
    tried: set[tuple[int, int]] = set()
    for turn in pool.turns(1 + more):
        if turn > 2 and last and len(layer.rows) + len(layer.partial) >= width:
            break
        if turn == 1:  # once more from where it failed, and nothing is explained that is only near
            tried.clear()
            explain_again(pool, prefix, layer, 0.1)
        elif turn:
            aimed = _aimed(pool, prefix, walk, layer, width) if last and layer.rows else None
            if aimed is False:
                break  # everything is explained without the neurons that are missing
            if len(layer.rows) >= width:
                break
            if aimed:
                continue
            for k in pool.search(*_line(pool, prefix, turn)):
                _explain_known(pool, prefix, layer, k)
        if pool.deep and turn > 1:
            complete(pool, prefix, layer, walk)
        for key in pool.open():
            if key in tried or pool.explained[key[0]][key[1]]:
                continue
            tried.add(key)
            pool.run.step(pool.oracle.spent, pool.oracle.limit, f"layer {number}: {len(layer.rows)} of {width} neurons")
            normal = pool.normal(key)
            if normal is not None:
                note(pool, prefix, layer, walk, walk.follow(pool.point(key), normal))
            if whole and layer.rows and layer.signs is None:
                ahead = layer.orient(prefix)
                if ahead is not None:
                    prefix, failures = ahead, walk.failures
                    walk = Walk(pool.oracle, pool.place, prefix, pool.rng, last or pool.crude)
                    walk.failures, walk.others = failures, layer.matrix
            if len(layer.rows) >= width and (not last or _whole(pool, prefix, layer)):
                return layer
    if pool.deep and not last:
        for row in [row for row in layer.partial if open_direction(row) is not None][:DRAWN_FOR]:
            known = len(layer.rows) >= width or _is_known(pool, layer, row)
            ends = None if known else lines_for(pool, prefix, row)
            if ends is not None:
                for k in pool.search(*ends):
                    _explain_known(pool, prefix, layer, k)
                complete(pool, prefix, layer, walk)
    # what is known in part was followed behind surfaces of later layers, where there are many of them
    return layer if pool.deep and not last else layer.with_partial(width)


def complete(pool: Pool, prefix: Prefix, layer: Layer, walk: Walk) -> None:
    """Take neurons into the layer that lack one equation which kinks tell."""
    X, _ = pool.open_kinks()
    for row in list(layer.partial):
        found = completed(row, prefix.features(X))
        if found is not None and note(pool, prefix, layer, walk, found) and row in layer.partial:
            layer.partial.remove(row)


def lines_for(pool: Pool, prefix: Prefix, row: Row) -> tuple[FloatArray, FloatArray] | None:
    """Ends of lines on which kinks tell what a row lacks; None if it is not seen to be a neuron of this layer."""
    free = open_direction(row)
    if free is None:
        return None
    X = switches_of(pool.place, prefix, row.coefficients, prefix, pool.rng)
    features = features_of(prefix, X)
    X = X[np.abs(features @ free) <= SPAN * np.linalg.norm(features, axis=1)]
    if len(X) < PLACES:
        return None
    found, _ = meet(pool, prefix, row.coefficients, X)
    sizes = np.linalg.norm(features_of(prefix, found), axis=1)
    near = np.abs(features_of(prefix, found) @ row.coefficients) <= SAME * NEARER * sizes
    if near.sum() < MOST * len(X):
        return None
    ends = draw_telling(pool.place, prefix, pool.rng, ENDS)
    features = features_of(prefix, ends)
    ends = ends[np.abs(features @ free) > SEEN * np.linalg.norm(features, axis=1)][: 2 * LINES]
    return (ends[: len(ends) // 2], ends[len(ends) // 2 : len(ends) // 2 * 2]) if len(ends) > 1 else None


def known_row(coefficients: FloatArray) -> Row:
    """The neuron with these coefficients, all of which are known."""
    return Row(Equations(np.eye(len(coefficients)), coefficients)).normalised()


def _line(pool: Pool, prefix: Prefix, turn: int) -> tuple[FloatArray, FloatArray]:
    """A further line, ends ``(1, n)``; every other one joins points where few neurons of known sign are active."""
    if turn % 2 and prefix.signed_layers:
        ends = draw_few(pool.place, prefix, pool.rng, 2)
        if (ends[0] != ends[1]).any():
            return ends[:1], ends[1:]
    return pool.place.lines(pool.rng, 1)


SUPPORT = 3
"""Points on either side of a neuron at which the outputs must be what they should be."""


def _whole(pool: Pool, prefix: Prefix, layer: Layer) -> bool:
    """Whether the outputs are linear in the neurons of the last layer; if not, those that nothing supports are dropped.

    A surface that was followed over a fold onto that of another neuron gives a row of both, which is none.
    """
    fit = fit_outputs(pool, FreeLayer(prefix, layer.matrix), robust=True)
    if pool.crude or fit.holds.all() or fit.holds.mean() < 0.5:
        return True
    _prune(pool, prefix, layer, fit)
    return False


def _prune(pool: Pool, prefix: Prefix, layer: Layer, fit: Fit) -> None:
    """Drop rows that are not on both sides of zero where the fit holds, or that it does not use."""
    z = prefix.features(fit.X[fit.holds]) @ layer.matrix.T
    used = np.abs(fit.coefficients[: len(layer.rows)]).max(axis=1)
    kept = (np.minimum((z > 0).sum(axis=0), (z < 0).sum(axis=0)) >= SUPPORT) & (used > SPAN * used.max())
    if not kept.all():
        layer.rows = [row for row, good in zip(layer.rows, kept, strict=True) if good]
        explain_again(pool, prefix, layer, 0.1)


def note(pool: Pool, prefix: Prefix, layer: Layer, walk: Walk, found: Row | str) -> bool:
    """Take a neuron that was followed into the layer, unless it is there or not confirmed; whether it was taken."""
    if isinstance(found, str):
        layer.refused[found] = layer.refused.get(found, 0) + 1
        return False
    row = found.normalised()
    if _is_known(pool, layer, row):
        return False
    for other in list(layer.partial):
        factor = other.ratio(row, pool.same)
        if factor is not None:
            layer.partial.remove(other)
            row = other.merged(row, factor).normalised()
    if pool.crude and row.complete:
        row = _refitted(pool, prefix, row)
        if _is_known(pool, layer, row) or _is_twin(pool, prefix, layer, row):
            return False
    if pool.crude and np.abs(row.coefficients[: prefix.widths[-1]]).max() > 1 - pool.same:
        layer.refused[KNOWN] = layer.refused.get(KNOWN, 0) + 1
        return False
    sharp = sharper(pool, prefix, row.coefficients, prefix) if pool.deep and row.complete else None
    if sharp is not None:
        row = known_row(sharp)
        if _is_known(pool, layer, row):
            return False
    elif row.complete and (pool.deep or not confirmed(pool, prefix, row.coefficients, walk.last)):
        layer.refused[ASTRAY] = layer.refused.get(ASTRAY, 0) + 1
        return False
    (layer.rows if row.complete else layer.partial).append(row)
    if layer.rows:
        walk.others = layer.matrix
    for k in range(len(pool.lines)):
        _explain_by(pool, prefix, row.coefficients[None], k)
    return True


def _is_known(pool: Pool, layer: Layer, row: Row) -> bool:
    return any(other.ratio(row, pool.same) is not None for other in layer.rows)


def _is_twin(pool: Pool, prefix: Prefix, layer: Layer, row: Row) -> bool:
    """Whether a noisy neuron is nearly one that is known; the one that lies on more kinks is kept."""
    features = prefix.features(draw_telling(pool.place, prefix, pool.rng, TWINS))
    kinks = prefix.features(np.concatenate([line.points for line in pool.lines]))
    room = np.concatenate([np.full(len(line.kinks), pool.tolerance * line.length) for line in pool.lines])
    z = features @ row.coefficients
    for k, other in enumerate(layer.rows):
        o = features @ other.coefficients
        if np.std(o - z * float(z @ o) / max(float(z @ z), NOT_ZERO)) <= ALIKE * np.std(o):
            met = [int((np.abs(kinks @ one.coefficients) <= room).sum()) for one in (row, other)]
            if met[0] > met[1]:
                layer.rows[k] = row
            return True
    return False


def _refitted(pool: Pool, prefix: Prefix, row: Row) -> Row:
    """A noisy neuron again, through all kinks that it nearly explains; those of known ones would draw it to them."""
    (X, blurs), c = pool.open_kinks(), row.coefficients
    W, b = prefix.weights[0], prefix.biases[0]
    far = np.abs(X @ W.T + b) / np.linalg.norm(W, axis=1)
    # noise moves some kinks of the first layer away from where they are explained
    apart = (far > BESIDE * np.maximum(pool.tolerance * pool.place.size, ORACLE_CLEAR * blurs)[:, None]).all(axis=1)
    X, blurs = X[apart], blurs[apart]
    if not len(X):
        return row
    sizes = np.array([np.linalg.norm(prefix.cell(prefix.pattern(x)).slopes.T @ c) for x in X])
    found = refitted(prefix.features(X), c, np.maximum(sizes, NOT_ZERO), blurs,
                     REFIT * pool.tolerance * pool.place.size)  # fmt: skip
    return row if found is None else known_row(found)


def _explain_by(pool: Pool, prefix: Prefix, rows: FloatArray, k: int, strict: float = 1.0) -> None:
    """Mark kinks of a line that lie on surfaces of these neurons."""
    line, done = pool.lines[k], pool.explained[k]
    if len(done):
        features = prefix.features(line.points)
        done |= (np.abs(features @ rows.T) <= strict * pool.tolerance * line.length).any(axis=1)


def explain_again(pool: Pool, prefix: Prefix, layer: Layer, strict: float = 1.0) -> None:
    """Mark the kinks of all lines that known neurons explain, and no others."""
    pool.forget()
    for k in range(len(pool.lines)):
        _explain_known(pool, prefix, layer, k, strict)


def _explain_known(pool: Pool, prefix: Prefix, layer: Layer, k: int, strict: float = 1.0) -> None:
    line, done = pool.lines[k], pool.explained[k]
    if len(done):
        near = [np.abs(z) / np.maximum(np.linalg.norm(W, axis=1), NOT_ZERO) <= strict * pool.tolerance * line.length
                for z, W in zip(prefix.preactivations(line.points), prefix.weights, strict=True)]  # fmt: skip
        done |= np.concatenate(near, axis=1).any(axis=1)
    if layer.rows:
        _explain_by(pool, prefix, layer.matrix, k, strict)


def _aimed(pool: Pool, prefix: Prefix, walk: Walk, layer: Layer, width: int) -> bool | None:
    """Look where the outputs are no linear function of what is known, and follow the kink that must be there.

    True if a neuron was found so, False if there is no such place, None if too much is missing to tell.
    """
    oracle, _place = pool.oracle, pool.place
    matrix = np.array([row.coefficients for row in layer.rows + layer.partial])
    fit = fit_outputs(pool, FreeLayer(prefix, matrix), robust=True)
    if fit.holds.mean() < 0.5:
        return None
    if not layer.partial and not pool.crude and not fit.holds.all():
        before = len(layer.rows)
        _prune(pool, prefix, layer, fit)
        if not layer.rows:
            return None
        if len(layer.rows) < before:
            fit = fit_outputs(pool, FreeLayer(prefix, layer.matrix), robust=True)
            if fit.holds.mean() < 0.5:
                return None
    bad, good = fit.X[fit.residual > 10 * fit.tolerance], fit.X[fit.holds]
    for _ in range(TESTS // BATCH * HARDER**pool.effort):
        if len(bad):
            break
        X = draw_telling(pool.place, prefix, pool.rng, BATCH)
        bad = X[fit.off(X, oracle.values(X)) > 10 * fit.tolerance]
    if not len(bad):
        return False
    if pool.crude and _left_over(pool, prefix, walk, layer, fit):
        return True
    found: bool | None = None
    for x in bad[pool.rng.permutation(len(bad))[:AIMS]]:
        key = edge(pool, fit, good[pool.rng.integers(len(good))], x)
        if key is None:
            continue
        found = note(pool, prefix, layer, walk, walk.follow(*key)) or found
        if len(layer.rows) >= width:
            break
    return found


def _left_over(pool: Pool, prefix: Prefix, walk: Walk, layer: Layer, fit: Fit) -> bool:
    """The one neuron that is missing as what the others leave over: where it is on, that is linear in the features."""
    oracle = pool.oracle
    X = np.concatenate([fit.X, draw_telling(pool.place, prefix, pool.rng, 8 * prefix.num_features)])
    left = oracle.values(X) - fit.prefix.features(X) @ fit.coefficients
    size = np.abs(left).max(axis=1)
    on = size > 10 * fit.tolerance
    if on.sum() < 2 * prefix.num_features:
        return False
    main = np.linalg.svd(left[on], full_matrices=False)[2][0]
    features, values = prefix.features(X[on]), left[on] @ main
    row, kept = np.zeros(features.shape[1]), np.ones(len(values), dtype=bool)
    for _ in range(REGRESSIONS):
        row = least_squares(features[kept], values[kept, None])[:, 0]
        off = np.abs(features @ row - values)
        kept = off <= max(3 * float(np.median(off)), fit.tolerance)
    if kept.mean() < LEFT_OVER or not row.any():
        return False
    before = len(layer.rows)
    note(pool, prefix, layer, walk, known_row(row))
    return len(layer.rows) > before
