"""Is a network in the fiber of another?"""

from __future__ import annotations

from fiberscope.equality.ladder import equivalent
from fiberscope.fibers.membership import Membership
from fiberscope.geometry.domains import Domain
from fiberscope.network.network import Network


def membership(net: Network, other: Network, domain: Domain | None = None) -> Membership:
    """Whether ``other`` is in the fiber of ``net``: of its architecture and, up to rounding, its function."""
    if net.architecture != other.architecture:
        return Membership(False, f"another architecture: {other.architecture[:60]} instead of {net.architecture[:60]}")
    verdict = equivalent(net, other, domain, time_limit=20.0)
    if verdict.equal is not None:
        return Membership(verdict.equal, f"by {verdict.method}: {verdict.reason}", verdict)
    return Membership(None, verdict.reason or "no method decides this pair", verdict)
