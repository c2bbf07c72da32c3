"""Quantised graphs against float ones on a box: what holds for all roundings of half a step holds for the files.

Both are taken as plain programs with inputs for the rounding, see :mod:`fiberscope.equality.beyond.rounding_inputs`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fiberscope.equality.beyond.rounding_inputs import rounded_pair
from fiberscope.equality.roundings import QUANTISERS
from fiberscope.equality.verdict import Interval, Verdict
from fiberscope.errors import UnsupportedModelError
from fiberscope.geometry.domains import Box, Domain
from fiberscope.network.formats.onnx.quantised import is_quantised


def equivalent_quantised(
    a: Any, b: Any, domain: Domain | None, tolerance: float | None, margin: float | None, ask: Any, **options: Any
) -> Verdict:
    """As :func:`fiberscope.equivalent`, where a model is a quantised file: True or undecided.

    ``ask`` decides the question about the programs.
    """
    start = time.monotonic()
    for source in (a, b):
        if is_quantised(source) and (not isinstance(domain, Box) or not (tolerance or margin is not None)):
            raise UnsupportedModelError(
                f"{Path(source).name}: a quantised graph (QuantizeLinear) is no continuous function; it can be "
                "compared on a box, within a tolerance above 0 or by class, and not exactly"
            )
    assert isinstance(domain, Box)
    left, right, rounding = rounded_pair(a, b, domain)
    criterion = "value" if margin is None else "argmax"
    found: Verdict = ask(left, right, rounding.box(domain), tolerance, criterion=criterion, margin=margin, **options)
    count = sum(rounding.inputs)
    each = "half a step" if rounding.where == QUANTISERS else "what half steps of all quantisers add up to"
    told = f"with each of {count} roundings anywhere within {each}, {found.reason or 'undecided'}"
    if found.equal is False:
        told = f"roundings of half a step can take them further apart, which need not be those of the file; {told}"
    proven = found.equal is True
    high = None if found.interval is None else found.interval.high
    return replace(
        found,
        equal=True if proven else None,
        method=f"{found.method}, and bounded rounding" if proven else "no method",
        domain=domain,
        evidence=found.evidence if proven else None,
        bound=found.bound if proven else None,
        residual=None,
        seconds=time.monotonic() - start,
        reason=told,
        interval=None if high is None else Interval(0.0, high),
        rounding=rounding if proven and count else None,
        networks=(left, right) if proven else None,
    )
