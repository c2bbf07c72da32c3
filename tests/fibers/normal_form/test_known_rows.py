"""Rows that are multiples of each other up to rounding are found at once, as a loop over them would find them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.fibers.normal_form.program_forms import normal_form
from fiberscope.fibers.normal_form.table import Known, Table
from fiberscope.network.nodes import MaxPool
from fiberscope.numerics.floats import FloatArray, U

ENTRIES = st.sampled_from((-1.0, -0.5, 0.0, 0.5, 1.0, 1.0 - U, 1.0 + 2 * U, 1e-300, np.inf, np.nan))
SIZES = st.sampled_from((0.0, 5e-324, 1.0, 2.0, 1e308, np.inf))


@given(st.data(), st.integers(1, 3))
def test_the_first_row_that_is_near(data: st.DataObject, atoms: int) -> None:
    rows = st.tuples(*[st.lists(kind, min_size=atoms, max_size=atoms).map(np.array) for kind in (ENTRIES, SIZES)])
    known = data.draw(st.lists(rows, min_size=1, max_size=12))
    unit, size = data.draw(rows)
    table = Known(atoms)
    for name, row in enumerate(known):
        table.append(name, *row)
    assert table.closest(unit, size, U, 4) == _by_a_loop(known, unit, size)


def _by_a_loop(
    known: list[tuple[FloatArray, ...]], unit: FloatArray, size: FloatArray
) -> tuple[int, int, float] | None:
    with np.errstate(all="ignore"):
        for name, (other, other_size) in enumerate(known):
            room = (size + other_size) * U
            if all(0 < r < np.inf for r in room):
                for sign in (1, -1):
                    worst = np.max(np.abs(unit - sign * other) / room)
                    if worst <= 4:
                        return name, sign, float(worst)
    return None


def test_wide_layers_keep_the_deadline() -> None:
    """Six hundred neurons of two inputs were compared pair by pair: seconds beyond a limit of .3."""
    net = fs.Network.random((2, 600, 20, 150, 1), 0)
    other = fs.Network([w + 1e-7 * (i == 0) for i, w in enumerate(net.weights)], net.biases)
    taken = []
    for _ in range(3):  # the first one compiles
        start = time.process_time()
        fs.equivalent(net, other, fs.Box.cube(2), time_limit=0.4)
        taken.append(time.process_time() - start)
    assert min(taken) < 1.4


def test_pools_look_at_the_clock():
    pool = fs.Network.from_nodes([MaxPool(0, (1, 3, 3), (2, 2), (1, 1))], (1, 3, 3))
    with pytest.raises(fs.TooLargeError, match="out of time"):
        normal_form(pool, Table(9, deadline=0.0))
    assert len(normal_form(pool, Table(9))) == 4
