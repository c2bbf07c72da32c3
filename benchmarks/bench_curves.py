"""Regions along curves: segments against plain NumPy, the circle and the tractrix against one SLSQP for every neuron.

The segments are those of the measured facts (177 and 790 regions, where the plain floats agree). The local optimiser
only ever finds some of the zeros: its answer agrees if it is no larger than ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Planar, Segment, Tractrix
from fiberscope.geometry.curves.ensembles import count_along
from fiberscope.network.network import Network
from harness import Case
from reference_curves import count_on_segment, zeros_by_slsqp


def rounded(net: Network) -> Network:
    """The network with its numbers rounded to float32."""
    weights, biases = ([x.astype(np.float32).astype(np.float64) for x in y] for y in (net.weights, net.biases))
    return Network(weights, biases)


def on_segment(widths: tuple[int, ...], quick: bool) -> Case:
    net = rounded(Network.random(widths, 0))
    rng = np.random.default_rng(10000)
    a, b = (rng.normal(size=widths[0]).astype(np.float32).astype(np.float64) for _ in range(2))
    curve = Segment(a, b)
    weights, biases = list(net.weights), list(net.biases)
    return Case(
        method="segment (NumPy, layer by layer)",
        network="-".join(map(str, widths)),
        ours=lambda: regions_along(net, curve).num_regions,
        reference=lambda: count_on_segment(weights, biases, a, b),
        quick=quick,
    )


def on_curve(name: str, curve: Planar, many: bool) -> Case:
    net = Network.random((2, 10, 16, 1), 0)

    def values(x: np.ndarray) -> np.ndarray:
        return np.concatenate(net.preactivations(x), axis=1)

    def one() -> int:
        return regions_along(net, curve).num_regions - 1

    def several() -> int:
        return int(count_along([net], curve).counts[0]) - 1

    ours: Callable[[], int] = several if many else one
    return Case(
        method=f"{name} (SLSQP per neuron)" + (", compiled" if many else ""),
        network="2-10-16-1",
        ours=ours,
        reference=lambda: len(zeros_by_slsqp(values, curve, curve.interval, 26)),
        agree=lambda mine, other: 0 < other <= mine,
        quick=many,
    )


def cases() -> list[Case]:
    straight = [on_segment((784, 256, 64, 1), True), on_segment((784, 512, 512, 512, 10), False)]
    curves = [("circle", Circle()), ("tractrix", Tractrix())]
    return straight + [on_curve(name, curve, many) for name, curve in curves for many in (False, True)]
