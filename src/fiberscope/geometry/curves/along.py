"""The entry function: regions of a network along a curve."""

from __future__ import annotations

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.curves.curve_regions import CurveRegions
from fiberscope.geometry.curves.generated import GeneratorCurve, breaks_along, regions_through
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.run import Progress, Run


def regions_along(
    net: NetworkLike, curve: Path, *, progress: Progress | None = None, time_limit: float | None = None
) -> CurveRegions:
    """The regions that a curve passes through, in order.

    A region is a maximal open interval of the parameter on which the sign of every neuron is constant, zero allowed.

    Parameters
    ----------
    net
        Any network with ``curve.ambient`` inputs.
    curve
        A segment, polyline, circle, tractrix, any continuous function, or a curve through a generator.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    The absolute value has a kink at 0, and both its neurons vanish there:

    >>> from fiberscope.geometry.curves.curve import Segment
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> found = regions_along(net, Segment([-1.0], [3.0]))
    >>> found.num_regions, found.breakpoints, found.neurons
    (2, array([0.25]), ((0, 1),))
    """
    return along_within(as_network(net), curve, Run.begin(progress, time_limit))


def along_within(net: Network, curve: Path, run: Run) -> CurveRegions:
    """:func:`regions_along` as a part of a longer run."""
    if not isinstance(curve, Path):
        raise InputError(f"curve: expected a Segment, Polyline, Circle, Tractrix or Curve, got {type(curve).__name__}")
    if curve.ambient != net.in_size:
        raise InputError(f"curve: expected one in R^{net.in_size} for this network, got R^{curve.ambient}")
    if isinstance(curve, GeneratorCurve):
        return regions_through(net, curve, run)
    return CurveRegions(net, curve, breaks_along(net, curve, run))
