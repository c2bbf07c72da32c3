"""A simplified network in the float type in which it will be stored, with the proof about those numbers."""

from __future__ import annotations

from dataclasses import replace

from fiberscope.equality.ladder import equivalent
from fiberscope.errors import InputError
from fiberscope.fibers.simplify.simplify import Simplified
from fiberscope.network.formats.storage import holds, rounded


def stored(result: Simplified, dtype: str, time_limit: float = 10.0) -> Simplified:
    """The simplified network rounded to a float type, where that is proven to be the same function up to rounding.

    Sums and products of float32 numbers are not float32 numbers as a rule. A proof about them says nothing of a file
    that holds them rounded, so the rounded network is compared with the original one again. Where equality up to the
    rounding of the original's own precision is not proven, and where the numbers of the original are float64, the
    result stays as it was and needs the wider type.

    >>> import numpy as np
    >>> from fiberscope.network.network import Network
    >>> from fiberscope.fibers.simplify.simplify import simplify
    >>> w = np.array([[0.1], [0.1]], dtype=np.float32)
    >>> v = np.array([[0.1, 7.7]], dtype=np.float32)  # the sum is no float32
    >>> result = simplify(Network([w, v], [np.zeros(2, np.float32), np.zeros(1, np.float32)]))
    >>> small = stored(result, "float32")
    >>> result.exact, small.exact, small.verdict.equal, small.verdict.precision
    (True, False, True, 'float32')
    """
    pair = result.verdict.networks
    if holds(result.network, dtype) or pair is None or pair[0].source.precision == "float64":
        return result
    try:
        network = rounded(result.network, dtype)
    except InputError:  # beyond the range of the type
        return result
    verdict = equivalent(pair[0], network, result.verdict.domain, time_limit=time_limit)
    return replace(result, network=network, verdict=verdict) if verdict.equal is True else result
