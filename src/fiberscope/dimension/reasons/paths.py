"""The algebraic Jacobian: an upper bound of the rank from paths.

With the signs fixed an output of a chain is a sum over paths from an input, or from a bias, to the output, along
neurons that are on: the product of the weights of the path times its input. So the Jacobian on a batch is a product of
a matrix that depends on points and signs and of the Jacobian of these products in the parameters, for all paths that
are on at some point: the *algebraic* Jacobian. Where no weight is zero its rank is that of the paths as sets of
weights. At one point these span the flows through the neurons that are on; a direction that all of them annihilate
rescales, at every point, the neurons that are on there, each point in its own way. So the bound lies at or below that
of the rescalings.

J. E. Grigsby, K. Lindsey: On functional dimension and persistent pseudodimension. 2024.
"""

from __future__ import annotations

import numpy as np

from fiberscope.dimension.bounds import Bound
from fiberscope.dimension.exact_rank import Sampled, residue_rows
from fiberscope.network.network import Network
from fiberscope.numerics.elimination import echelon_mod
from fiberscope.numerics.floats import SignArray
from fiberscope.numerics.modular import Residues, multiply_mod, random_primes, residues
from fiberscope.numerics.rank import failure_bound
from fiberscope.run import ENDLESS, Run

WORK = 4 * 10**9
"""Products that one elimination may cost; above, there is no such bound."""

_RANGE = 1 << 40
"""Random weights and inputs are drawn from 1 to this."""


def algebraic_bound(net: Network, found: Sampled, run: Run = ENDLESS) -> Bound | None:
    """The rank of the algebraic Jacobian of a chain on a batch; None where it is too large to find.

    Random flows are collected until new ones, a whole round with other weights, add nothing: the span then is whole,
    except with the probability that is told.

    ``v_1 relu(x) + v_2 relu(-x)``, where the two neurons are never on together: two weights each, and one rescaling.

    >>> from fiberscope.dimension.exact_rank import sample
    >>> from fiberscope.network.nodes import Affine, PiecewiseLinear
    >>> from fiberscope.network.operators import Dense
    >>> nodes = [Affine(0, Dense(np.array([[1.0], [-1.0]])), None, "w"), PiecewiseLinear(1, 0.0, (2,))]
    >>> net = Network.from_nodes([*nodes, Affine(2, Dense(np.array([[1.0, 2.0]])), None, "v")], (1,))
    >>> algebraic_bound(net, sample(net, np.array([[1.0], [-1.0]])))
    Bound(algebraic Jacobian = 2)
    """
    D = net.num_parameters
    _, first = np.unique(found.region, return_index=True)
    signs = found.signs[first]
    rows = max(len(signs) * net.out_size, D)
    if rows * D * D > WORK or WORK // max(1, len(signs) * D) < D:
        return None
    prime = random_primes(1, 0)[0]
    rng = np.random.default_rng(0)
    basis: Residues = np.zeros((0, D), np.uint64)
    while True:
        run.check()
        table = np.concatenate([basis, *(_flows(net, signs, prime, rng) for _ in range(1 + D // (8 * rows)))])
        echelon = echelon_mod(table, prime, run)
        if echelon.rank == len(basis):
            break
        basis = np.ascontiguousarray(table[np.sort(np.asarray(echelon.order[: echelon.rank]))])
    whole = all(value.all() for value in net.parameters.values())
    failure = failure_bound(D * (D.bit_length() + 1), 1) + 2 * (len(net.weights) + 1) / _RANGE
    return Bound("algebraic Jacobian", len(basis), "no weight and no bias is zero", whole, False, failure)


def _flows(net: Network, signs: SignArray, prime: int, rng: np.random.Generator) -> Residues:
    """One random flow for every sign vector and output, with one set of random weights, as rows modulo the prime."""
    drawn = {name: rng.integers(1, _RANGE, value.shape).astype(np.float64) for name, value in net.parameters.items()}
    other = net.with_parameters(drawn)
    X = rng.integers(1, _RANGE, (len(signs), net.in_size)).astype(np.float64)
    weights = np.concatenate([value.reshape(-1) for value in other.parameters.values()])
    return multiply_mod(residue_rows(other, X, signs, prime), residues(weights, prime), prime)
