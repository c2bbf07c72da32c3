"""A neuron that an earlier layer lacks, from where what is known of all layers fails.

A neuron that is off nearly everywhere is met by few lines, and the layers behind it are found without it. Where it is
on the outputs are then no linear function of the last layer: between such a point and one where they are lies a kink
of the missing neuron, and that is followed behind the layers before it.
"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.layers.bent_surfaces import Equations, Row, Walk
from fiberscope.recovery.layers.later_layers import BATCH, TESTS, Layer, note
from fiberscope.recovery.layers.output_fit import edge, fit_outputs
from fiberscope.recovery.pool import HARDER, Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.telling import draw_telling

ENOUGH, TRIED = 12, 40
"""Places where the fit fails that are looked for, and how many are looked into at most."""


def missing_neuron(pool: Pool, prefix: Prefix, number: int) -> tuple[FloatArray, float] | None:
    """Weights and bias, up to a factor, of a neuron that layer ``number`` lacks; None if none is found.

    ``prefix`` are all hidden layers, behind which the outputs are linear at most points.
    """
    oracle, rng = pool.oracle, pool.rng
    known = Prefix(prefix.weights[: number - 1], prefix.biases[: number - 1], prefix.leak, True)
    fit = fit_outputs(pool, prefix, robust=True)
    if fit.holds.mean() < 0.5:
        return None
    good, bad = fit.X[fit.holds], fit.X[fit.residual > 10 * fit.tolerance]
    for _ in range(TESTS // BATCH * HARDER**pool.effort):
        if len(bad) >= ENOUGH:
            break
        more = draw_telling(pool.place, prefix, rng, BATCH)
        bad = np.concatenate([bad, more[fit.off(more, oracle.values(more)) > 10 * fit.tolerance]])
    if not len(bad):
        return None
    layer = Layer([_row(*pair) for pair in zip(prefix.weights[number - 1], prefix.biases[number - 1], strict=True)])
    walk = Walk(oracle, pool.place, known, rng, last=False)
    walk.others = layer.matrix
    for x in bad[rng.permutation(len(bad))[:TRIED]]:
        met = edge(pool, fit, good[rng.integers(len(good))], x, prefix)
        if met is not None and note(pool, known, layer, walk, walk.follow(*met)) and not layer.partial:
            found = layer.rows[-1].coefficients
            return found[:-1], float(found[-1])
    return None


def _row(weights: FloatArray, bias: float) -> Row:
    coefficients = np.append(weights, bias)
    return Row(Equations(np.eye(len(coefficients)), coefficients)).normalised()
