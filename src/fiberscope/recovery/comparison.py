"""The network that was found against the one that was asked: a proof, where points are only points."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.numerics.cutoffs import PROVEN
from fiberscope.recovery.place import place_of
from fiberscope.recovery.recovered import Recovery, Unresolved

SECONDS = 10.0
"""Time for the comparison."""


def compared(found: Recovery, truth: Network) -> Recovery:
    """The answer with what :func:`fiberscope.equivalent` says of it, on the domain or the box that stands for space.

    ``proof`` is the bound of the difference that it proves. A point where the two differ by more than rounding is no
    success, whatever the held-out points said. Where it does not decide nothing changes.
    """
    if not found.recovered or found.network is None:
        return found
    place = place_of(found.domain, truth.in_size)
    where = found.domain if place.bounded else Box(place.low, place.high)
    verdict = import_module("fiberscope.equality.ladder").equivalent(
        truth, found.network, where, tolerance=PROVEN * max(found.size, 1.0), time_limit=SECONDS
    )
    if verdict.equal is None:
        return found
    if verdict.equal:
        return replace(found, proof=f"on {where} {verdict.reason} (equivalent: {verdict.method})")
    text = f"a point was found at which the network differs from the one that was asked: {verdict.reason}"
    last = len(found.widths) - 1
    return replace(found, recovered=False, accuracy=None, unresolved=(*found.unresolved, Unresolved(last, None, text)))
