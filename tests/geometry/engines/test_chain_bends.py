"""Products from zero to zero: within the stated bound of the exact product, whatever the numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.engines.planar import chain_bends, tracked
from fiberscope.network.network import Network
from fiberscope.numerics.floats import ENTRY_FLOOR

SCALES = (1.0, 2.0**-300, 2.0**200, 1e-3)


def network(rng: np.random.Generator, widths: tuple[int, ...], kind: str) -> Network:
    """Random rows; equal, opposite and nearly equal ones, rows of very different sizes, or small integers."""
    weights, biases = [], []
    for fan_in, width in pairwise(widths):
        W, b = rng.normal(size=(width, fan_in)), rng.normal(size=width) / 2
        if kind == "twins":
            W[1::2], b[1::2] = -W[: width // 2 * 2 : 2], -b[: width // 2 * 2 : 2]
            W[2::3], b[2::3] = W[: len(W[2::3])], np.nextafter(b[: len(b[2::3])], np.inf)
        elif kind == "uneven":
            sizes = 10.0 ** rng.integers(-12, 12, width)
            W, b = W * sizes[:, None], b * sizes
        elif kind == "integers":
            W, b = np.round(2 * W), np.round(2 * b) + 0.5
        weights.append(W)
        biases.append(b)
    return Network(weights, biases)


def root_above(square: Fraction) -> Fraction:
    """Not below the square root."""
    scale = 1 << 1200
    return Fraction(isqrt(int(square * scale * scale)) + 1, scale)


def checked(counts: list[int]) -> Any:
    """The product, with every new row compared with the product in fractions."""
    product = tracked.product

    def compared(stage: Any, z: Any, offset: Any, bends: Any) -> Any:
        found = product(stage, z, offset, bends)
        if bends is None:
            return found
        matrix, b = stage.stored_matrix, np.zeros(stage.out_size) if offset is None else offset
        g = bends.roundings(stage.fan_in, np.hypot(tracked.norms(z), 1.0))
        counts.append(len(bends.row))
        for v in bends.row.tolist():
            a = [Fraction(x) for x in z[v].tolist()]
            for j in range(len(matrix)):
                W = [Fraction(x) for x in matrix[j].tolist()]
                exact = sum((w * x for w, x in zip(W, a, strict=True)), Fraction(float(b[j])))
                size = root_above(sum((w * w for w in W), Fraction(float(b[j])) ** 2))
                assert abs(Fraction(float(found[v, j])) - exact) <= Fraction(float(g[v])) * size + Fraction(ENTRY_FLOOR)
        return found

    return compared


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from(["plain", "twins", "uneven", "integers"]), st.sampled_from(SCALES))
def test_within_the_bound_of_the_exact_product(seed: int, kind: str, scale: float) -> None:
    rng = np.random.default_rng(seed)
    net = network(rng, (2, 6, 5, 4, 1), kind)
    points = rng.normal(size=(3, 2)) * 2 * scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_bends, "WORTH", 0)
        patch.setattr(tracked, "product", checked([]))
        straight_breaks(net, Polyline(points))


def test_neurons_with_one_zero_and_many_of_them_in_a_gap() -> None:
    """Thirty zeros in one gap, some in the same point; and the shortcut is really taken."""
    rng = np.random.default_rng(0)
    first = np.stack([np.ones(30), np.zeros(30)], axis=1) * rng.choice([-1.0, 1.0, 3.0, -0.125], 30)[:, None]
    places = rng.integers(-7, 8, 30) / 8
    net = Network(
        [first, rng.normal(size=(4, 30)), np.ones((1, 4))], [-first[:, 0] * places, rng.normal(size=4), [0.0]]
    )
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_bends, "WORTH", 0)
        patch.setattr(tracked, "product", checked(counts))
        straight_breaks(net, Polyline(np.array([[-1.0, 0.0], [1.0, 0.25]])))
    assert max(counts) == len(set(places.tolist()))


def test_a_wrong_column_would_be_noticed() -> None:
    net = Network.random((2, 8, 5, 1), 0)

    def spoilt(stage: Any, z: Any, offset: Any, bends: Any) -> Any:
        found = product(stage, z, offset, bends)
        if bends is not None:
            found[bends.row[0], 0] += 1e-12
        return found

    product = tracked.product
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_bends, "WORTH", 0)
        patch.setattr(tracked, "product", spoilt)
        patch.setattr(tracked, "product", checked([]))
        with pytest.raises(AssertionError):
            straight_breaks(net, Polyline(np.array([[-1.0, -1.0], [1.0, 0.5]])))
