"""Quantised graphs against float ones: within a tolerance on a box, with every rounding bounded by half a step.

The difference of two models is at most that of the continuous programs behind them (clipped where they quantise, not
rounded) and how far rounding takes each from its own. Clips that nothing reaches on the box are left out first, so that
the program of a quantised copy has the layers of the original.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry.domains import Box, Domain
from fiberscope.geometry.ranges.intervals import ranges
from fiberscope.network.border import as_network
from fiberscope.network.formats.onnx.quantised import Quantised, is_quantised, load_quantised
from fiberscope.network.network import Network
from fiberscope.network.nodes import Clip, Given, PiecewiseLinear


def equivalent_quantised(
    a: Any, b: Any, domain: Domain | None, tolerance: float | None, time_limit: float | None, ask: Any
) -> Verdict:
    """As :func:`fiberscope.equivalent`, where a model is a quantised file: True or undecided.

    ``ask`` decides the question about the continuous programs.
    """
    start = time.monotonic()
    for source in (a, b):
        if is_quantised(source) and (not isinstance(domain, Box) or not tolerance):
            raise UnsupportedModelError(
                f"{Path(source).name}: a quantised graph (QuantizeLinear) is no continuous function; it can be "
                "compared within a tolerance above 0 on a box, and not exactly"
            )
    assert isinstance(domain, Box) and tolerance is not None
    made = [_continuous(source, domain, name) for source, name in ((a, "a"), (b, "b"))]
    drift = float(np.nextafter(sum(float(d.max(initial=0.0)) for _, d in made), np.inf))
    told = f"rounding at the quantisers moves the outputs by at most {drift:.6g}"
    left = tolerance - drift
    if not left > 0:
        return Verdict(None, "no method", domain, tolerance, seconds=time.monotonic() - start, reason=told)
    left = float(np.nextafter(left, 0.0))
    found: Verdict = ask(made[0][0], made[1][0], domain, left, time_limit)
    proven = found.equal is True
    bound = None if not proven else left if found.bound is None else found.bound
    return replace(
        found,
        equal=True if proven else None,
        method=f"{found.method}, and bounded rounding" if proven else "no method",
        tolerance=tolerance,
        evidence=None,
        bound=None if bound is None else float(np.nextafter(bound + drift, np.inf)),
        residual=None,
        seconds=time.monotonic() - start,
        reason=f"{told}; without it, {found.reason or 'undecided'}",
        networks=None,
    )


def _continuous(source: Any, box: Box, name: str) -> tuple[Network, Any]:
    """A continuous program on a box, and for each output how far the model is from it."""
    if not is_quantised(source):
        net = as_network(source, name)
        return net, np.zeros(net.out_size)
    found = load_quantised(source)
    if found.network.in_size != box.dimension:
        raise InputError(f"domain: expected {found.network.in_size} coordinates, got {box.dimension}")
    return without_idle_clips(found, box), found.drift


def without_idle_clips(found: Quantised, box: Box) -> Network:
    """The program without the clips whose bounds no value passes on the box: there it is the same function."""
    net, idle = found.network, set()
    seen = _program_ranges(net, box)
    for index, node in enumerate(net.program):
        if isinstance(node, Clip):
            low, high = seen[node.source]
            if (low >= node.low).all() and (high <= node.high).all():
                idle.add(index)
    if not idle:
        return net
    nodes: list[Given] = [
        PiecewiseLinear(node.source, np.ones(1), node.shape) if k in idle and isinstance(node, Clip) else node
        for k, node in enumerate(net.program)
    ]
    return Network.from_nodes(nodes, net.input_shape, net.source.derived)


def _program_ranges(net: Network, box: Box) -> list[tuple[Any, Any]]:
    """Ranges of the values of the program as it was given, whose composite nodes stand for several."""
    plain = ranges(net, box)
    found, at = [plain[0]], 0
    last = {first: detour.last for first, detour in net.layout.detours.items()}
    while at < len(net.nodes):
        at = last.get(at, at) + 1
        found.append(plain[at])
    return [(value.low, value.high) for value in found]
