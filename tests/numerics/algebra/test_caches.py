"""An algebra that outlives a network never answers with that network's numbers."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fiberscope.network.operators import Dense
from fiberscope.numerics.algebra.floating import FloatAlgebra
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.modular import random_primes


@pytest.mark.parametrize("make", [lambda: ModularAlgebra(random_primes(1, 0)[0]), lambda: FloatAlgebra(np.float32)])
def test_a_new_operator_at_an_old_place_is_another_one(make):
    algebra = make()
    for k in range(1, 50):
        operator = Dense(np.full((1, 1), float(k)))
        rows = algebra.take(np.ones((1, 1)))
        assert np.array_equal(algebra.apply(operator, rows), algebra.take(np.full((1, 1), float(k))))
        del operator
        gc.collect(0)  # the youngest generation is enough, and does not take seconds in a large process
