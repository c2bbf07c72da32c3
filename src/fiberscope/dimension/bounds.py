"""Upper bounds of the functional dimension on a batch, each with its assumptions and whether they are met."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fiberscope.dimension.affine_rows import directions_in_a_row, mixtures, normalisations, translations_in_a_row
from fiberscope.dimension.exact_rank import Sampled
from fiberscope.dimension.rescalings import rescalings
from fiberscope.dimension.symmetries import HiddenSymmetry, LayerActivity, acts_freely_on, rescaling_rank
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.modular import random_primes, residues
from fiberscope.results import Result

_MOST_ENTRIES = 1 << 25
"""Entries of the table of all directions of a program that change nothing; above, only rescalings count."""

_MOST_PAIRS = 1 << 25
"""Pairs of an entry that an affine map makes and one that it reads, in all maps together; above, nothing is counted."""

_MOST_WORK = 2 * 10**10
"""Products that their rank may cost."""


@dataclass(frozen=True, slots=True)
class Bound(Result):
    """One upper bound; ``holds`` says whether its assumptions are met, ``proven`` whether it then is a theorem here.

    A bound that is not proven is a theorem for almost every parameter, of which is checked what can be, or it rests on
    random primes: then it is too small with probability at most ``failure_probability``.
    """

    name: str
    value: int
    assumptions: str
    holds: bool
    proven: bool
    failure_probability: float = 0.0

    def __repr__(self) -> str:
        return f"Bound({self.name} = {self.value}{'' if self.holds else ', assumptions not met'})"


def bounds(net: Network, found: Sampled, symmetry: HiddenSymmetry | None) -> tuple[Bound, ...]:
    """All bounds, the plain ones first. See the theory page for where each comes from."""
    D, n, outputs = net.num_parameters, net.in_size + 1, net.out_size
    pieces = int(np.minimum(found.counts, n).sum())
    result = [
        Bound("parameters", D, "none", True, True),
        Bound("outputs", min(len(found.X) * outputs, D), "none", True, True),
        Bound(
            "regions", n * outputs * found.regions, "none (Proposition 4.6, with certified sign vectors)", True, True
        ),
        Bound("regions refined", outputs * pieces, "none (at most n_0 + 1 points of a region count)", True, True),
    ]
    if not acts_freely_on(net):
        what = "none (what changes the function on no input: rescalings, normalisations, layers without a bend)"
        return (*result, Bound("rescaling", D - program_symmetry(net), what, True, True))
    N = net.num_hidden
    result.append(
        Bound(
            "rescaling",
            D - N,
            "the rescalings of the hidden neurons are independent at this parameter",
            rescaling_rank(net) == N,
            True,
        )
    )
    if symmetry is not None:
        result.append(_theorem(net, symmetry))
        what = "none (the stabiliser is computed)"
        if not symmetry.complete:
            what = "none (only rescalings and dead neurons counted: the whole group is too large to rank)"
        result.append(Bound("orbit", D - symmetry.directions, what, True, True))
    return tuple(result)


def program_symmetry(net: Network) -> int:
    """At least so many independent directions of a program change the function on no input.

    Its rescalings, what normalisations take back, and mixtures and translations between dense layers in a row; the rank
    modulo a prime can only be too small. Of networks with too many pairs of entries to look at it is 0.
    """
    if (
        sum(stage.out_size * stage.fan_in for node in net.layout.affine for stage in node.operator.stages())
        > _MOST_PAIRS
    ):
        return 0
    alone = rescalings(net)
    more, D = directions_in_a_row(net), net.num_parameters
    count = alone.classes + more
    if more == 0 or count * D > _MOST_ENTRIES or count * count * D > _MOST_WORK:
        return alone.rank
    prime = random_primes(1, 0)[0]
    ring = ModularAlgebra(prime)
    rows = [
        alone.directions(D, prime),
        normalisations(net, ring),
        mixtures(net, ring),
        translations_in_a_row(net, ring),
    ]
    return rank_mod(np.concatenate(rows), prime)


def theorem_value(parameters: int, layers: tuple[LayerActivity, ...]) -> int:
    """``D - sum (n_l - n_l^fix) - sum (n_l^fix)^2``."""
    fixed = [layer.active + layer.inactive for layer in layers]
    return parameters - sum(layer.switching for layer in layers) - sum(f**2 for f in fixed)


def roughly_monotonic(widths: tuple[int, ...]) -> bool:
    """Whether ``n_l - 1 <= n_{l-1}`` for all layers, or ``n_{l-1} - 1 <= n_l`` for all.

    >>> roughly_monotonic((1, 5, 4, 3, 2, 1)), roughly_monotonic((1, 10, 10, 1))
    (True, False)
    >>> roughly_monotonic((5, 4, 3, 2, 1)), roughly_monotonic((1, 2, 3, 3))
    (True, True)
    """
    steps = list(itertools.pairwise(widths))
    return all(b - 1 <= a for a, b in steps) or all(a - 1 <= b for a, b in steps)


def _theorem(net: Network, symmetry: HiddenSymmetry) -> Bound:
    monotonic = roughly_monotonic(net.widths)
    plain = bool(np.isin(net.layout.slopes, (0.0, 1.0)).all())
    text = "roughly monotonic widths (" + ("met" if monotonic else "not met") + "), almost every parameter"
    holds = monotonic and plain and _full_rank(net)
    return Bound("fixed neurons", theorem_value(net.num_parameters, symmetry.layers), text, holds, False)


def _full_rank(net: Network) -> bool:
    """What can be checked of *almost every*: all ``(W_l, b_l)`` have the largest rank possible."""
    prime = random_primes(1, 0)[0]
    for weight, bias in zip(net.weights, net.biases, strict=True):
        matrix = np.column_stack([weight, bias])
        if rank_mod(residues(matrix, prime), prime) < min(matrix.shape):
            return False
    return True
