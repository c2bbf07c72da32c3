"""The entry functions: regions of a network on a domain, by the engine that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from math import comb, prod

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Domain, View, view_of
from fiberscope.geometry.engines.choose import NumRegions, cells_on, count_on, engine_for
from fiberscope.geometry.engines.limits import ADVICE, MEMORY, MOST_FACES
from fiberscope.geometry.engines.traversal.estimate import estimate
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.mlp import without_pooling
from fiberscope.network.network import Network, Seed
from fiberscope.run import STOPPED, Progress, Run, noticed_interrupts

_BYTES_PER_REGION = {3: 230, 4: 460, 5: 1130, 6: 2750}
"""Measured on random networks."""


def regions(
    net: NetworkLike,
    domain: Domain,
    *,
    progress: Progress | None = None,
    limit: int | None = None,
    time_limit: float | None = None,
) -> Complex:
    """The polyhedral complex of a network on a domain: regions, faces of every dimension, and their signs.

    Parameters
    ----------
    net
        A network with as many inputs as the domain has dimensions (``plane.ambient`` for a plane).
    domain
        A box, polytope, orthant, all of space, or a plane through any input space.
    progress
        Called as ``progress(done, total, text)``. Ctrl-C ends the work: what was found is returned, and its
        ``complete`` is False.
    limit, time_limit
        Stop when there are more regions than that, or after so many seconds; again ``complete`` is False.

    Examples
    --------
    Three lines in general position cut the plane into seven regions:

    >>> from fiberscope.geometry.domains import Space
    >>> net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]])
    >>> regions(net, Space(2)).f_vector
    (3, 9, 7)
    """
    net = as_network(net)
    view = view_of(net, domain)
    run = _guarded(view, Run.begin(progress, time_limit, limit))
    with _memory(domain):
        return Complex(net, domain, cells_on(view, run))


def regions_within(net: Network, domain: Domain, run: Run) -> Complex:
    """As :func:`regions`, as a part of a longer run: the deadline and Ctrl-C are raised.

    Where the run has a limit, what has more regions, or does not fit into memory, is returned as incomplete.

    >>> from fiberscope.geometry.domains import Box
    >>> regions_within(Network.random((2, 3, 1), 0), Box.cube(2), Run.begin(time_limit=60.0)).complete
    True
    """
    view = view_of(net, domain)
    with _memory(domain), noticed_interrupts() as pressed:
        found = Complex(net, domain, cells_on(view, _guarded(view, run.quietly())))
    if not found.complete and (run.limit is None or found.num_regions <= run.limit):
        run.check()
        if run.limit is None or pressed() or engine_for(view.domain) != "planar":  # others stop for no memory
            raise KeyboardInterrupt
    return found


def _guarded(view: View, run: Run) -> Run:
    """A run without a limit that asks how large a complex will be, once it is large enough to be worth the question."""
    asked: list[bool] = []

    def guard() -> None:
        if not asked:  # a second engine may have taken over
            asked.append(True)
            with suppress(*STOPPED):  # whoever builds sees that the run is over, and says how far it came
                _check_size(view, run)

    return run if run.limit is not None else replace(run, guard=guard)


@contextmanager
def _memory(domain: Domain) -> Iterator[None]:
    """Memory that the system does not give is a refusal with advice."""
    try:
        yield
    except MemoryError as error:
        raise TooLargeError(
            f"regions on {domain}: the memory of this machine is not enough; give limit=, a smaller domain, or {ADVICE}"
        ) from error


def _check_size(view: View, run: Run) -> None:
    """Refuse what would not fit into memory, with an estimate; what surely fits is not estimated."""
    net, domain, n = view.net, view.domain, view.domain.dimension
    if not 2 < n <= MOST_FACES:
        return  # in the plane the engine knows, above it says no
    if net.layout.pooled.any():
        net = without_pooling(net)  # a tournament: its losers cut about as many regions as our comparisons
    most = MEMORY // _BYTES_PER_REGION.get(n, 2**n * 50)
    if prod(sum(comb(node.num_signs, i) for i in range(n + 1)) for node in net.switches) <= most:
        return
    guess = estimate(View(net, domain), run.quietly(), samples=200, runs=3, points=100, chords=1)
    if guess.interval[0] > most:
        raise TooLargeError(
            f"about {guess.value:.2g} regions (estimate, {guess.interval[0]:.2g} to {guess.interval[1]:.2g}) on "
            f"{domain}, the limit of memory is {most:.2g}; give limit=, a smaller domain, or a Plane"
        )


def count_regions(
    net: NetworkLike,
    domain: Domain,
    *,
    limit: int | None = None,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
) -> NumRegions:
    """How many regions a network has on a domain.

    In the plane polygons are counted; up to six dimensions vertices and edges suffice if the network is in general
    position, and all faces are built if it is not; above, regions are visited one by one, and above thirty dimensions
    only where neurons are few (else :class:`~fiberscope.errors.TooLargeError` names what to ask instead). With a
    ``limit`` (then the regions are visited from a random one, by ``seed``, or built until there are more), after
    ``time_limit`` seconds, or when interrupted, the answer may be marked as incomplete.

    With ``jobs`` or a ``cluster`` (``"dask://HOST:PORT"``, or any joblib backend) a box or a plane is cut into pieces,
    which are counted by so many processes; what is too large is cut further, so that memory is no limit. ``tiling`` of
    the answer holds the pieces, and its ``verify()`` checks them. A plane that does not fit is always counted so.

    >>> from fiberscope.geometry.domains import Box
    >>> count_regions(Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]), Box.cube(2))
    4
    """
    net = as_network(net)
    view = view_of(net, domain)
    run = Run.begin(progress, time_limit, limit)
    if jobs is not None or cluster is not None:
        if limit is not None:
            raise InputError(f"limit: expected none beside jobs and cluster, got {limit}")
        return _in_pieces(view, run, jobs, cluster)
    with _memory(domain):
        try:
            return count_on(view, seed, _guarded(view, run))
        except (TooLargeError, MemoryError):
            if limit is not None or engine_for(view.domain) != "planar":
                raise
    return _in_pieces(view, run, 1, None)


def _in_pieces(view: View, run: Run, jobs: int | None, cluster: str | None) -> NumRegions:
    in_pieces: Callable[..., NumRegions] = import_module("fiberscope.geometry.tiling").count_in_pieces
    return in_pieces(view, run, jobs, cluster)
