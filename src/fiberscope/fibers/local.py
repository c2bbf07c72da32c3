"""Is a parameter determined by its function among its neighbours? For any widths, by one exact rank.

Rescaling the ``N`` hidden neurons of a chain of ``D`` parameters changes nothing, so the Jacobian of the outputs at any
points has rank ``D - N`` at most. Where it has that rank at points off the folds, the map from parameters to values at
them is smooth nearby and of constant rank: the parameters with the same values form a manifold of dimension ``N``, the
rescalings. So near it no other parameter has the function, and that holds on a whole neighbourhood: this is the open
set on which the function space has the dimension ``D - N``. It exists for all widths of at least two (Grillo and
Montufar 2026); a rank over the rationals proves that a parameter is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.dimension.functional import functional_dimension
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain, Space
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden
from fiberscope.run import Progress, Run

ROUNDS = 3
"""How often more points are drawn, twice as many each time."""

PER_PARAMETER = 3
"""Values for each parameter in the first round."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalIdentifiability(Result):
    """Whether all parameters near one that have its function on the domain are its rescalings.

    ``rank`` is a proven lower bound of that of the Jacobian at ``points``; ``parameters - neurons`` is the most it can
    be. True where they meet; None where they do not: then other parameters nearby may or may not have the function.
    """

    identifiable: bool | None
    rank: int
    parameters: int
    neurons: int
    domain: Domain | None
    points: FloatArray = field(repr=False, metadata=hidden())

    told = ("needed",)

    @property
    def needed(self) -> int:
        """``D - N``, the rank that proves it."""
        return self.parameters - self.neurons

    def __repr__(self) -> str:
        word = "locally identifiable" if self.identifiable else "undecided"
        return f"LocalIdentifiability({word}: rank {self.rank} of {self.needed} on {self.domain or 'all of space'})"


def local_identifiability(
    net: NetworkLike,
    domain: Domain | None = None,
    seed: int = 0,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> LocalIdentifiability:
    """Whether near a parameter only its rescalings have its function, for chains of any widths and outputs.

    Parameters
    ----------
    net
        A chain of dense layers.
    domain
        A box, or None for all of space.
    seed
        Of the points at which the rank is computed.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    Widths that no theorem about all parameters covers:

    >>> from fiberscope.fibers.construction import identifiable_network
    >>> net = identifiable_network((2, 3, 3, 1), Box.cube(2), seed=0)
    >>> local_identifiability(net, Box.cube(2))
    LocalIdentifiability(locally identifiable: rank 19 of 19 on Box([-1, 1] x [-1, 1]))
    """
    net, run = as_network(net), Run.begin(progress, time_limit)
    if not net.is_chain or len(net.widths) < 3:
        raise InputError(f"net: expected a chain of dense layers with a hidden one, got {net.architecture[:60]}")
    if domain is not None and not isinstance(domain, Box | Space):
        raise InputError(f"domain: expected a box or all of space, got {domain}")
    box = domain if isinstance(domain, Box) else None
    if box is not None:
        box.check(net)
    rng, needed = np.random.default_rng(seed), net.num_parameters - net.num_hidden
    X, rank = np.zeros((0, net.in_size)), 0
    for turn in range(ROUNDS):
        run.step(turn, ROUNDS, f"rank {rank} of {needed}")
        count = max(PER_PARAMETER * net.num_parameters // net.out_size << turn, net.in_size + 1)
        X = np.concatenate([X, _points(net, box, count, rng)])
        left = run.seconds_left
        found = functional_dimension(net, X, ranks="exact", seed=seed, time_limit=None if left == np.inf else left)
        rank = found.lower or 0
        if rank == needed:
            break
    proven = True if rank == needed else None
    return LocalIdentifiability(proven, rank, net.num_parameters, net.num_hidden, domain, X)


def _points(net: Network, box: Box | None, count: int, rng: np.random.Generator) -> FloatArray:
    if box is not None:
        return rng.uniform(box.low, box.high, (count, net.in_size))
    return np.asarray(rng.normal(size=(count, net.in_size)) * rng.choice([0.5, 2.0, 8.0], (count, 1)))
