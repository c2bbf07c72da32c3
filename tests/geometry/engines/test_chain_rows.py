"""Signs from the rows of all pieces in pairs of floats, against the same from integers."""

from __future__ import annotations

import gc
from fractions import Fraction
from typing import Any
from weakref import ref

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.errors import OutOfTimeError
from fiberscope.geometry.curves import straight
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.engines.planar import chain_rows
from fiberscope.geometry.engines.planar.chain_rows import PieceRows, pair_of
from fiberscope.geometry.engines.planar.exact import BITS, TwofoldOracle, Unclear
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.network.network import Network
from fiberscope.run import Run


def decimals(widths: tuple[int, ...], seed: int) -> Network:
    """Small integers: zeros that coincide, and functionals that vanish on whole pieces."""
    net = Network.random(widths, seed)
    return Network([w.round(0) for w in net.weights], [b.round(0) for b in net.biases])


def twins() -> Network:
    """Neurons that differ by a unit in the last place, and equal ones."""
    net = Network.random((3, 8, 8, 8, 1), 3)
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[0][1], weights[0][3] = np.nextafter(weights[0][0], np.inf), weights[0][2]
    biases[0][1], biases[0][3] = biases[0][0], np.nextafter(biases[0][2], 1.0)
    weights[1][1], biases[1][1] = weights[1][0], biases[1][0]
    return Network(weights, biases)


def scaled(size: float) -> Network:
    net = Network.random((3, 8, 8, 8, 1), 4)
    return Network([net.weights[0] * size, *net.weights[1:]], [net.biases[0] * size, *net.biases[1:]])


ENDS = np.array([[-1.0, 0.5, 0.25], [1.0, -0.75, 0.5]])
BENT = np.array([[-1.0, 0.5, 0.25], [0.0, 0.0, 0.0], [1.0, -0.75, 0.5]])
CASES = {
    "deep": (Network.random((3, *(8,) * 9, 1), 0), ENDS),
    "bent": (Network.random((3, *(8,) * 7, 1), 1), BENT),
    "integers": (decimals((3, 6, 6, 6, 1), 2), ENDS),
    "bent integers": (decimals((3, 6, 6, 6, 1), 5), BENT),
    "twins": (twins(), ENDS),
    "huge": (scaled(2.0**500), ENDS),
    "tiny": (scaled(2.0**-500), ENDS),
}


def vague(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of floats leave every decision open."""
    affine = TrackedAlgebra.affine

    def wide(*args: Any) -> Tracked:
        value = affine(*args)
        return Tracked(value.z, value.c + 1e3 + 1e3 * np.abs(value.z).max(), value.e2 + 1e3, value.r)

    monkeypatch.setattr(TrackedAlgebra, "affine", wide)
    monkeypatch.setattr(straight, "MANY", 1 << 40)


def exactly(found: Breaks) -> list[Any]:
    assert found.exact is not None
    return [found.exact(i) for i in range(len(found.t))]


def unclear(*args: object) -> None:
    raise Unclear


@pytest.mark.parametrize("name", CASES)
def test_breakpoints_are_those_of_integers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, points = CASES[name]
    asked = []
    signs = PieceRows.signs
    vague(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(PieceRows, "is_worth", lambda *_: True)
        patch.setattr(PieceRows, "signs", lambda *args: asked.append(signs(*args)) or asked[-1])
        found = straight_breaks(net, Polyline(points))
        places, rows = exactly(found), found.signs()
    monkeypatch.setattr(PieceRows, "is_worth", lambda *_: False)
    monkeypatch.setattr(TwofoldOracle, "sign_at", unclear)
    monkeypatch.setattr(TwofoldOracle, "ranks", unclear)
    exact = straight_breaks(net, Polyline(points))
    assert places == exactly(exact)
    assert np.array_equal(rows, exact.signs())
    if len(points) == 2 and name != "tiny":
        told = np.concatenate(asked)
        assert (told != 0).mean() > 0.5


def test_many_open_signs_are_decided_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind twenty-five layers floats leave tens of thousands open: none is decided by itself, but zeros."""
    alone = []
    sign_at = straight.Cutter._sign_at
    monkeypatch.setattr(straight.Cutter, "_sign_at", lambda *args: alone.append(1) or sign_at(*args))
    net = Network.random((16, *(16,) * 40, 1), 1)
    found = straight_breaks(net, Polyline(np.random.default_rng(0).uniform(-1, 1, (2, 16))))
    assert found.by_exact > 500
    assert len(alone) < found.by_exact / 4


def test_rows_are_not_made_beyond_what_they_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later stages have more pieces: rows that were worth it in an early one are not made for all that follow."""
    made: list[PieceRows] = []
    rows = PieceRows.rows
    monkeypatch.setattr(PieceRows, "rows", lambda self, *args: made.append(self) or rows(self, *args))
    vague(monkeypatch)
    net = Network.random((3, *(8,) * 7, 1), 0)
    whole = straight_breaks(net, Polyline(ENDS))
    sizes = np.cumsum([3 * stage.high.size for stage in made[-1].stages])
    most = int(sizes[3])
    monkeypatch.setattr(chain_rows, "MOST", most)
    found = straight_breaks(net, Polyline(ENDS))
    assert len(made[-1].stages) == 4 < len(sizes)
    assert exactly(found) == exactly(whole)
    assert np.array_equal(found.signs(), whole.signs())


def test_an_answer_does_not_keep_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Any] = []
    begin = PieceRows.__init__
    monkeypatch.setattr(PieceRows, "__init__", lambda self, *args: known.append(ref(self)) or begin(self, *args))
    vague(monkeypatch)
    net = Network.random((3, *(8,) * 7, 1), 0)
    found = straight_breaks(net, Polyline(ENDS))
    gc.collect()
    assert known
    assert all(rows() is None for rows in known)
    assert len(exactly(found)) == len(found.t)


def test_one_layer_of_open_signs_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    sign_at = straight.Cutter._sign_at

    def late(*args: Any) -> int:
        asked.append(1)
        monkeypatch.setattr(Run, "is_over", True)
        return sign_at(*args)

    vague(monkeypatch)
    monkeypatch.setattr(PieceRows, "is_worth", lambda *_: False)
    monkeypatch.setattr(straight.Cutter, "_sign_at", late)
    with pytest.raises(OutOfTimeError):
        straight_breaks(Network.random((3, 9, 1), 0), Polyline(ENDS), Run())
    assert len(asked) == 1


@given(st.integers(-(2**200), 2**200), st.integers(1, 2**150), st.integers(-900, 700))
def test_pairs_enclose_balls(top: int, below: int, power: int) -> None:
    with flint.ctx.workprec(BITS):
        ball = flint.arb(top) / flint.arb(below) * flint.arb(2) ** power
    high, low, error = pair_of(ball)
    assert abs(Fraction(top, below) * Fraction(2) ** power - Fraction(high) - Fraction(low)) <= Fraction(error)
    assert error <= 2.0**-100 * abs(high) + 2.0**-1021
