"""A neuron that an earlier layer lacks, from where the whole network fails.

A neuron that is off nearly everywhere is met by few lines, and the layers behind it are found without it. The network
then fails where it is on: between a point where it fails and one where it holds lies a kink of the missing neuron,
and that is followed behind the layers before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.numerics.cutoffs import FITTED
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.bent_surfaces import Equations, Row, Walk
from fiberscope.recovery.later_layers import BATCH, TESTS, Layer, edge, note
from fiberscope.recovery.polish import Parameters, forward
from fiberscope.recovery.pool import HARDER, Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.telling import draw_telling

TRIED = 12
"""Places where the network fails that are looked into."""

FEW = 100
"""Points at which it must hold for anything to be learnt from where it does not."""


@dataclass(frozen=True)
class Whole:
    """A network that was found, and how far it may be off before it is polished."""

    theta: Parameters
    slope: float
    tolerance: float

    def off(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return np.asarray(np.abs(Y - forward(self.theta, X, self.slope)[0]).max(axis=1))


def missing_neuron(pool: Pool, theta: Parameters, number: int, slope: float) -> tuple[FloatArray, float] | None:
    """Weights and bias, up to a factor, of a neuron that layer ``number`` of the network lacks; None if none is found.

    ``theta`` are the parameters of a network of all layers that is the function at most points.
    """
    oracle, rng = pool.oracle, pool.rng
    known = Prefix(tuple(theta[: 2 * number - 2 : 2]), tuple(theta[1 : 2 * number - 2 : 2]), slope, True)
    hidden = Prefix(tuple(theta[:-2:2]), tuple(theta[1:-2:2]), slope, True)
    X, Y = oracle.log()
    whole = Whole(theta, slope, FITTED * max(oracle.scale, float(np.abs(Y).max(initial=0.0))))
    off = whole.off(X, Y)
    good, bad = X[off <= whole.tolerance], X[off > 10 * whole.tolerance]
    for _ in range(TESTS // BATCH * HARDER**pool.effort):
        if len(bad) >= TRIED:
            break
        more = draw_telling(pool.place, hidden, rng, BATCH)
        bad = np.concatenate([bad, more[whole.off(more, oracle.values(more)) > 10 * whole.tolerance]])
    if len(good) < FEW or not len(bad):
        return None
    layer = Layer([_row(*pair) for pair in zip(theta[2 * number - 2], theta[2 * number - 1], strict=True)])
    walk = Walk(oracle, pool.place, known, rng, last=False)
    walk.others = layer.matrix
    for x in bad[rng.permutation(len(bad))[:TRIED]]:
        met = edge(pool, whole, good[rng.integers(len(good))], x)
        if met is not None and note(pool, known, layer, walk, walk.follow(*met)) and not layer.partial:
            found = layer.rows[-1].coefficients
            return found[:-1], float(found[-1])
    return None


def _row(weights: FloatArray, bias: float) -> Row:
    coefficients = np.append(weights, bias)
    return Row(Equations(np.eye(len(coefficients)), coefficients)).normalised()
