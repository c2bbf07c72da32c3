"""Counts along one curve for many networks: what a training study asks for in every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Path, Planar
from fiberscope.geometry.curves.ensemble_kernels import count_chain
from fiberscope.geometry.curves.planar_curves import curve_ends
from fiberscope.geometry.curves.root_kernels import CIRCLE, OPEN, TRACTRIX
from fiberscope.network.border import NetworkLike, as_networks
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Tabular
from fiberscope.run import Progress, Run


@dataclass(frozen=True, slots=True, eq=False)
class CurveCounts(Tabular):
    """How many regions each of many networks has along one curve.

    ``counts`` is ``(networks,)``: regions of the parameter's interval. ``breakpoints`` are the parameters for every
    network, on a closed curve with its closing point as the last if that is one. ``certified`` says whether all
    decisions are proven, ``by_float`` how many networks floats with error bounds settled alone.
    """

    counts: IntArray
    breakpoints: tuple[FloatArray, ...] = field(repr=False)
    certified: bool
    by_float: int

    frame = ("counts", "breakpoints")

    def __len__(self) -> int:
        return len(self.counts)


def count_along(
    networks: Sequence[NetworkLike],
    curve: Path,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> CurveCounts:
    """The numbers of regions of many networks along one curve, as by :func:`regions_along` for each, but faster.

    Small chains on circles and tractrices are followed by one compiled loop; wherever its error bounds leave
    something open, and for all other networks and curves, :func:`regions_along` answers. ``progress`` is called as
    ``progress(done, total, text)`` before every network; after ``time_limit`` seconds comes an ``OutOfTimeError``.

    >>> nets = [Network.random((2, 10, 16, 1), seed) for seed in range(3)]
    >>> count_along(nets, Circle()).counts
    array([35, 29, 23])
    """
    run = Run.begin(progress, time_limit)
    if not isinstance(curve, Path):
        raise InputError(f"count_along: expected a list of networks and a curve, got {type(curve).__name__}")
    nets = as_networks(networks, "networks")
    for net in nets:
        if curve.ambient != net.in_size:
            raise InputError(f"curve: expected one in R^{net.in_size} for this network, got R^{curve.ambient}")
    counts, breaks, certified, by_float = [], [], True, 0
    room: _Room | None = None
    for done, net in enumerate(nets):
        run.step(done, len(nets), "networks")
        slope = _one_slope(net) if isinstance(curve, Planar) else None
        if slope is not None and isinstance(curve, Planar):
            if room is None or not room.fits(net):
                room = _Room(net, curve)
            count = room.count(net, slope)
            if count != OPEN:
                counts.append(count)
                breaks.append(room.breakpoints[: count - 1].copy())
                by_float += 1
                continue
        found = regions_along(net, curve)
        counts.append(found.num_regions)
        breaks.append(found.breakpoints)
        certified &= found.certified
    return CurveCounts(np.array(counts, dtype=np.int64), tuple(breaks), certified, by_float)


def _one_slope(net: Network) -> float | None:
    """The slope of all neurons of a chain, if they have one in common and are not linear."""
    if not net.is_chain or len(net.nodes) < 3:
        return None
    first = float(net.layout.slopes[0])
    return first if first != 1 and first >= 0 and (net.layout.slopes == first).all() else None


class _Room:
    """Arrays of the compiled loop, for networks of one shape along one curve."""

    MOST = 4096
    """Pieces; more are left to the general engine."""

    def __init__(self, net: Network, curve: Planar) -> None:
        self.widths = np.array(net.widths)
        wide, most = int(self.widths.max()), self.MOST
        if wide * most * 12 > 1 << 24:
            most = max(64, (1 << 24) // (wide * 12))
        self.model = CIRCLE if isinstance(curve, Circle) else TRACTRIX
        self.rows = np.concatenate([curve.axes, curve.center[None]])
        t, error = curve_ends(curve)
        self.ends = np.stack([t, t - error, t + error], axis=1)
        self.forms = [np.empty((most, 3, wide)) for _ in range(2)]
        self.single = [np.empty((3, wide)) for _ in range(2)]
        self.new = [np.empty((most, 3, wide)) for _ in range(2)]
        self.points = [np.empty((3, most + 1)) for _ in range(2)]
        self.zeros, self.pair, self.breakpoints = np.empty((3, 4 * wide + 8)), np.empty(2), np.empty(most)

    def fits(self, net: Network) -> bool:
        return tuple(self.widths) == net.widths

    def count(self, net: Network, slope: float) -> int:
        """Regions, or :data:`OPEN`."""
        parts = [x.reshape(-1) for layer in zip(net.weights, net.biases, strict=True) for x in layer]
        return int(
            count_chain(
                self.model, np.concatenate(parts), self.widths, self.rows, self.ends, slope, *self.forms,
                *self.single, *self.new, *self.points, self.zeros, self.pair, self.breakpoints,
            )
        )  # fmt: skip
