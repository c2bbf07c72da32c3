"""Which engine follows which kind of curve."""

from __future__ import annotations

from fiberscope.errors import InputError
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Curve, Path, Planar, Polyline
from fiberscope.geometry.curves.planar_curves import planar_breaks
from fiberscope.geometry.curves.smooth import smooth_breaks
from fiberscope.network.network import Network
from fiberscope.run import Run


def breaks_along(net: Network, curve: Path, run: Run) -> Breaks:
    """All breakpoints of a network along a curve of its input space."""
    if isinstance(curve, Polyline):
        return polyline_breaks(net, curve, run)
    if isinstance(curve, Planar):
        return planar_breaks(net, curve, run)
    if isinstance(curve, Curve):
        return smooth_breaks(net, curve, run)
    raise InputError(f"curve: expected a Segment, Polyline, Circle, Tractrix or Curve, got {type(curve).__name__}")
