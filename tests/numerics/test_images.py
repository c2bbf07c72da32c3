"""Images of matrices: ranks, membership and forms against exact cases and the pseudoinverse."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.numerics.images import image_of


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 6), st.integers(0, 10**6))
def test_image_of_products(k: int, d: int, rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = min(rank, k, d)
    matrix = rng.normal(size=(k, rank)) @ rng.normal(size=(rank, d))
    found = image_of(matrix)
    assert found.rank == rank
    inside = (matrix @ rng.normal(size=(d, 3))).T
    assert found.contains(inside, np.linalg.norm(inside, axis=1) + 1).all()
    forms = np.einsum("ij,jk,ik->i", inside, np.linalg.pinv(matrix @ matrix.T, rcond=1e-9, hermitian=True), inside)
    assert np.allclose(found.forms(inside), forms, rtol=1e-4, atol=1e-8)
    if rank < k:
        outside = inside + np.linalg.svd(matrix)[0][:, -1] * 1e-6 * (1 + np.linalg.norm(inside, axis=1, keepdims=True))
        assert not found.contains(outside, np.linalg.norm(inside, axis=1) + 1).any()


def test_nothing_has_no_image() -> None:
    found = image_of(np.zeros((2, 3)))
    assert found.rank == 0 and found.gap == np.inf
    assert found.contains(np.array([[0.0, 0.0], [1e-9, 0.0]]), 1.0).tolist() == [True, False]
    assert image_of(np.zeros((2, 0))).rank == 0
