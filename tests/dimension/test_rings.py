"""A ring that outlives a network never answers with that network's numbers."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fiberscope.dimension.rings import FloatRing, ModularRing
from fiberscope.network.operators import Dense
from fiberscope.numerics.modular import random_primes


@pytest.mark.parametrize("make", [lambda: ModularRing(random_primes(1, 0)[0]), lambda: FloatRing(np.float32)])
def test_a_new_operator_at_an_old_place_is_another_one(make):
    ring = make()
    for k in range(1, 50):
        operator = Dense(np.full((1, 1), float(k)))
        rows = ring.take(np.ones((1, 1)))
        assert np.array_equal(ring.apply(operator, rows), ring.take(np.full((1, 1), float(k))))
        del operator
        gc.collect(0)  # the youngest generation is enough, and does not take seconds in a large process
