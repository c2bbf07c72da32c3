"""Lengths of rows at every scale."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.numerics.arrays import row_lengths


@pytest.mark.parametrize("exponent", [-1070, -700, -449, 0, 451, 1020])
def test_lengths_at_every_scale(exponent: int) -> None:
    rows = np.ldexp(np.array([[3.0, 4.0], [0.0, 0.0], [-5.0, 12.0]]), exponent)
    assert np.array_equal(row_lengths(rows), np.ldexp([5.0, 0.0, 13.0], exponent))


def test_no_rows_and_no_columns() -> None:
    assert row_lengths(np.zeros((0, 3))).shape == (0,)
    assert np.array_equal(row_lengths(np.zeros((2, 0))), [0.0, 0.0])
