"""The entry: parameters from a function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fiberscope.equality.ladder import equivalent
from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box
from fiberscope.geometry.folds.fold_set import FoldSet
from fiberscope.network.border import as_network
from fiberscope.network.network import Network
from fiberscope.numerics.cutoffs import PROVEN
from fiberscope.recovery.black_box import black_box
from fiberscope.recovery.place import place_of
from fiberscope.recovery.recovered import Recovery
from fiberscope.recovery.unresolved import Unresolved
from fiberscope.recovery.white_box import white_box
from fiberscope.run import Progress, Run

SECONDS = 10.0
"""Time for the comparison."""


def recover(
    function: Any,
    widths: Sequence[int] | None = None,
    domain: Any = None,
    max_queries: int | None = None,
    seed: int = 0,
    *,
    slope: float = 0.0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Recovery:
    """A network of the given widths that is the function: from values alone, or exactly from its folds.

    ``function`` takes a batch ``(points, n_0)`` of float64 and gives ``(points, n_L)`` or ``(points,)``; anything that
    :func:`fiberscope.load` takes is asked as a black box. Every row is one query; ``queries`` counts all but those of
    the final check. Parameters are found up to permutation and positive scaling of neurons, and where even that is not
    determined by the function the ``fiber`` of the result holds all of them. What could not be decided is named in
    ``unresolved``, and ``recovered`` is then False. Where the function is a network the one that was found is compared
    with it by :func:`fiberscope.equivalent`, within a billionth of its values: ``proof`` says which bound was proven.

    A complex or a fold-set is not asked for values: its folds and affine maps are read, and the answer is in fractions.
    That works for general, transparent networks whose widths do not increase and whose dependency graphs have a chain
    of bends from every neuron (see :func:`fiberscope.identifiable_network`); elsewhere it is refused with the reason.

    Parameters
    ----------
    function
        What is asked; or a :class:`~fiberscope.Complex` or :class:`~fiberscope.FoldSet`.
    widths
        ``(n_0, ..., n_L)``; of a complex those of its network unless others are given.
    domain
        Where it may be asked: a box, an orthant, a bounded polytope, or None for all of space.
    max_queries
        The most rows to ask; what was found until then is returned and says so.
    seed
        Of the lines and points that are drawn.
    slope
        Of the neurons for negative inputs: 0 is ReLU, between 0 and 1 leaky ReLU. A complex has its own.
    progress, time_limit
        Called with the queries so far; seconds after which :class:`~fiberscope.errors.OutOfTimeError` is raised.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> truth = Network.random((4, 5, 3, 1), seed=3)
    >>> found = recover(truth, (4, 5, 3, 1))
    >>> found.recovered, found.residual < 1e-12
    (True, True)

    The function of five neurons with widths for six: what the sixth is cannot be seen, and it is named.

    >>> found = recover(Network.random((4, 5, 1), seed=0), (4, 6, 1))
    >>> found.recovered, found.residual < 1e-12, [(item.layer, item.neuron) for item in found.unresolved]
    (False, True, [(1, 5)])

    From the folds, exactly:

    >>> from fiberscope.fibers.construction import identifiable_network
    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> found = recover(regions(identifiable_network((3, 3, 2, 1), Box.cube(3)), Box.cube(3)))
    >>> found.recovered, found.residual, found.queries
    (True, 0.0, 0)
    """
    run = Run.begin(progress, time_limit)
    folds = function.complex if isinstance(function, FoldSet) else function
    if isinstance(folds, Complex):
        if domain is not None or max_queries is not None or slope:
            raise InputError("recover: expected no domain, limit of queries or slope beside a complex, which has them")
        return white_box(folds, _widths(folds.net.widths if widths is None else widths), run)
    if widths is None:
        raise InputError("widths: expected those of the network to be found, got None")
    sizes = _widths(widths)
    if not 0 <= slope < 1:
        raise InputError(f"slope: expected at least 0 and below 1, got {slope}")
    if max_queries is not None and not (_whole(max_queries) and max_queries >= 1):
        raise InputError(f"max_queries: expected a positive integer, got {max_queries!r}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: expected a non-negative integer, got {seed!r}")
    ask = function if callable(function) and not hasattr(function, "state_dict") else as_network(function, "function")
    if isinstance(ask, Network) and ask.in_size != sizes[0]:
        raise InputError(f"widths: expected {ask.in_size} inputs, which the function has, got {sizes[0]}")
    found = black_box(ask, sizes, domain, max_queries, int(seed), float(slope), run)
    return compared(found, ask) if isinstance(ask, Network) else found


def compared(found: Recovery, truth: Network) -> Recovery:
    """The answer with what :func:`fiberscope.equivalent` says of it, on the domain or the box that stands for space.

    ``proof`` is the bound of the difference that it proves. A point where the two differ by more than rounding is no
    success, whatever the held-out points said. Where it does not decide nothing changes.
    """
    if not found.recovered or found.network is None:
        return found
    place = place_of(found.domain, truth.in_size)
    where = found.domain if place.bounded else Box(place.low, place.high)
    verdict = equivalent(truth, found.network, where, tolerance=PROVEN * max(found.size, 1.0), time_limit=SECONDS)
    if verdict.equal is None:
        return found
    if verdict.equal:
        return replace(found, proof=f"on {where} {verdict.reason} (equivalent: {verdict.method})")
    text = f"a point was found at which the network differs from the one that was asked: {verdict.reason}"
    last = len(found.widths) - 1
    return replace(found, recovered=False, accuracy=None, unresolved=(*found.unresolved, Unresolved(last, None, text)))


def _whole(value: Any) -> bool:
    """Whether it is an integer, and not a truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _widths(widths: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(widths, Iterable):
        raise InputError(f"widths: expected at least three positive integers, got {widths!r}")
    sizes = tuple(widths)
    if len(sizes) < 3 or not all(_whole(n) and n >= 1 for n in sizes):
        raise InputError(f"widths: expected at least three positive integers, got {list(sizes)}")
    if len(sizes) > 3 and sizes[0] < 2:
        raise InputError(f"widths: expected two inputs or more with several hidden layers, got {sizes[0]}")
    return tuple(int(n) for n in sizes)
