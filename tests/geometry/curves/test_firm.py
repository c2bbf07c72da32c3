"""The cutter for many layers against the plain one: the same breakpoints, signs, neurons, exact places."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fiberscope.geometry.curves import breakpoints
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.firm import FirmCutter, is_firm, straight_breaks
from fiberscope.geometry.curves.straight import Cutter
from fiberscope.network.network import Network
from fiberscope.run import ENDLESS

KINDS: dict[str, Any] = {
    "normal": lambda x: x,
    "quarters": lambda x: np.round(4 * x) / 4,
    "signs": lambda x: np.sign(x) * (np.abs(x) > 0.4),
    "decimals": lambda x: np.round(x, 1),
    "tiny": lambda x: x * 2.0**-120,
    "twins": lambda x: np.repeat(x[: len(x) // 2 + 1], 2, axis=0)[: len(x)],
}


def told(found: Breaks) -> tuple[Any, ...]:
    assert found.exact is not None
    exact = [found.exact(i) for i in range(len(found.t))]
    for low, value, high in zip(found.lower, exact, found.upper, strict=True):
        assert low <= value <= high  # type: ignore[operator]
    return exact, found.signs().tolist(), found.neurons.indptr.tolist(), found.neurons.indices.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_the_plain_cutter(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = (2, *rng.integers(1, 9, size=1 + seed % 7).tolist(), 1)
    weights = [KINDS[kind](rng.normal(size=(n, m))) for m, n in pairwise(widths)]
    biases = [KINDS[kind](rng.normal(size=n)) for n in widths[1:]]
    net = Network(weights, biases)
    chain = Polyline(np.round(rng.normal(size=(3, 2)) * 2, 1))
    assert is_firm(net)
    with np.errstate(all="ignore"):
        assert told(FirmCutter(net, chain).breaks(ENDLESS)) == told(Cutter(net, chain, tight=True).breaks(ENDLESS))


def test_bounds_do_not_multiply_with_depth() -> None:
    """Places of breakpoints of twelve layers: as good as at the start, and nothing asked of exact arithmetic."""
    net = Network.random((3, *[24] * 12, 1), 0)
    chain = Polyline([[-1.0, 0.5, 0.2], [1.0, -0.3, 0.1]])
    with np.errstate(all="ignore"):
        firm, plain = (c.breaks(ENDLESS) for c in (FirmCutter(net, chain), Cutter(net, chain, tight=True)))
    assert len(firm.t) == len(plain.t) > 50
    np.testing.assert_allclose(firm.t, plain.t, rtol=0, atol=1e-9)
    widest = [float(np.max(found.upper - found.lower)) for found in (firm, plain)]
    assert widest[0] < widest[1] / 10
    assert firm.by_exact <= plain.by_exact


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 40, 200])
def test_windows_find_what_the_whole_segment_has(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same exact breakpoints, signs and neurons, in however many parts; zeros where parts would meet as well."""
    rng = np.random.default_rng(most)
    widths = (2, *[5] * 7, 1)
    weights = [KINDS[kind](rng.normal(size=(n, m))) for m, n in pairwise(widths)]
    biases = [KINDS[kind](rng.normal(size=n)) for n in widths[1:]]
    net, chain = Network(weights, biases), Polyline([[-1.5, 0.5], [1.0, -1.0]])
    with np.errstate(all="ignore"):
        whole = told(FirmCutter(net, chain).breaks(ENDLESS))
    asked = []
    ask = FirmCutter.breaks
    monkeypatch.setattr(FirmCutter, "breaks", lambda self, run: asked.append(self.window) or ask(self, run))
    monkeypatch.setattr(breakpoints, "MOST", most)
    monkeypatch.setattr(breakpoints, "NARROW", 2.0**-5)
    assert told(straight_breaks(net, chain)) == whole
    assert len(asked) > 1 or most > 1  # one value is less than any layer has


def test_parts_meet_where_no_neuron_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neurons that vanish at 5/8, where parts would meet at first."""
    eye = [[[1.0], [-1.0]], *[[[1.0, 0.0], [0.0, 1.0]]] * 6, [[1.0, 1.0]]]
    net = Network(eye, [[-0.625, 0.625], *[[0.0, 0.0]] * 6, [0.0]])
    chain = Polyline([[0.0], [1.0]])
    whole = told(FirmCutter(net, chain).breaks(ENDLESS))
    ends = set()
    make = FirmCutter.__init__

    def noted(self: FirmCutter, net: Network, chain: Polyline, *window: Any) -> None:
        ends.update(window[0] if window else ())
        make(self, net, chain, *window)

    monkeypatch.setattr(FirmCutter, "__init__", noted)
    monkeypatch.setattr(breakpoints, "MOST", 3)
    monkeypatch.setattr(breakpoints, "NARROW", 0.5)
    assert told(straight_breaks(net, chain)) == whole
    assert {0.625, 0.5625} <= ends
