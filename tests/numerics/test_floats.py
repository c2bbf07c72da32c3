"""Norms against those that floats give."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.numerics.floats import spectral_bound


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 8))
def test_spectral_bound(seed, n, m):
    matrix = np.random.default_rng(seed).normal(size=(n, m))
    true = np.linalg.norm(matrix, 2)
    assert true <= spectral_bound(matrix) <= 1.4 * true
    assert spectral_bound(np.zeros((n, m))) >= 0
