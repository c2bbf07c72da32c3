"""The entry: parameters from a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.border import as_network
from fiberscope.recovery.black_box import black_box
from fiberscope.recovery.recovered import Recovery
from fiberscope.run import Progress, Run


def recover(
    function: Any,
    widths: Sequence[int],
    domain: Any = None,
    max_queries: int | None = None,
    seed: int = 0,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Recovery:
    """A ReLU network of the given widths that is the function, from values alone.

    ``function`` takes a batch ``(points, n_0)`` of float64 and gives ``(points, n_L)`` or ``(points,)``; anything that
    :func:`fiberscope.load` takes is asked as a black box. Every row is one query; ``queries`` counts all but those of
    the final check. Parameters are found up to permutation and positive scaling of neurons, and where even that is not
    determined by the function the ``fiber`` of the result holds all of them. What could not be decided is named in
    ``unresolved``, and ``recovered`` is then False.

    Parameters
    ----------
    function
        What is asked.
    widths
        ``(n_0, ..., n_L)``.
    domain
        Where it may be asked: a box, an orthant, a bounded polytope, or None for all of space.
    max_queries
        The most rows to ask; what was found until then is returned and says so.
    seed
        Of the lines and points that are drawn.
    progress, time_limit
        Called with the queries so far; seconds after which :class:`~fiberscope.errors.OutOfTimeError` is raised.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> truth = Network.random((4, 5, 3, 1), seed=3)
    >>> found = recover(truth, (4, 5, 3, 1))
    >>> found.recovered, found.residual < 1e-12
    (True, True)

    Here one neuron of the second layer is active far from zero only and not met; the others are found, it is named.

    >>> found = recover(Network.random((4, 5, 3, 1), seed=0), (4, 5, 3, 1))
    >>> found.recovered, found.residual < 1e-12, [(item.layer, item.neuron) for item in found.unresolved]
    (False, True, [(2, 2)])
    """
    sizes = _widths(widths)
    if max_queries is not None and not max_queries >= 1:
        raise InputError(f"max_queries: expected a positive number, got {max_queries}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: expected a non-negative integer, got {seed!r}")
    ask = function if callable(function) and not hasattr(function, "state_dict") else as_network(function, "function")
    return black_box(ask, sizes, domain, max_queries, int(seed), Run.begin(progress, time_limit))


def _widths(widths: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(widths)
    if len(sizes) < 3 or not all(isinstance(n, int | np.integer) and n >= 1 for n in sizes):
        raise InputError(f"widths: expected at least three positive integers, got {list(sizes)}")
    if len(sizes) > 3 and sizes[0] < 2:
        raise InputError(f"widths: expected two inputs or more with several hidden layers, got {sizes[0]}")
    return tuple(int(n) for n in sizes)
