"""Not-a-number and overflow never pass for a proof, a gap or a hit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.neurons.chord import ChordSums
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.gaps import nearest
from fiberscope.neurons.layers import from_arrays
from fiberscope.neurons.sensitivity import relative_bound, sensitivity

HOSTILE = st.sampled_from([np.nan, np.inf, 0.0, 1.0, 0.3, 5e-324, 1e-200, 1e308])


@given(*[HOSTILE] * 5)
@example(0.0, 5e-324, 0.0, np.nan, np.nan)  # what moves has a square that vanishes
def test_a_sensitivity_of_nonsense_is_no_bound(
    delta: float, moved: float, turned: float, epsilon: float, mu: float
) -> None:
    with np.errstate(all="ignore"):
        found = sensitivity(1.0, delta, moved, turned, epsilon, mu)
        if np.isnan([delta, moved, turned, epsilon, mu]).any():
            assert not bool(found.holds) or np.isnan(turned)
            # where something moves, no finite number is claimed from nonsense
            if not (delta == 0 and moved == 0):
                assert not np.isfinite(found.bound) or not np.isnan([delta, moved, turned, mu]).any()
        assert not relative_bound(np.asarray(np.nan), epsilon, mu) < np.inf


def test_a_distance_that_is_no_number_is_no_gap() -> None:
    value, _ = nearest(np.array([[0.0], [np.nan], [5.0]]))
    assert np.isnan(value)
    assert nearest(np.zeros((1, 2))) == (np.inf, None)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_weights_that_cannot_be_squared_are_refused(place: int, value: float) -> None:
    parts = [np.ones((2, 2)) for _ in range(3)]
    parts[place][0, 1] = value
    with pytest.raises(InputError, match="layer"):
        from_arrays(*parts)
    with pytest.raises(InputError):
        NeuronClasses.from_arrays(*parts, np.eye(2))
    with pytest.raises(InputError, match="squares"):
        from_arrays(np.zeros((1, 1)), [[1e100]], [[1e100]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_samples_that_are_no_numbers_are_refused_by_name(value: float) -> None:
    a, b = (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).double() for _ in range(2))
    X = np.ones((5, 2))
    X[3, 1] = value
    for call in (
        lambda: fs.record_inputs(a, ["0"], X),
        lambda: fs.record_activations(a, "0", X),
        lambda: fs.match(a, b, data=X),
    ):
        with pytest.raises(InputError, match=r"layer [02]: expected finite|outputs: expected finite"):
            call()
    if not np.isfinite(value):
        with pytest.raises(InputError, match="layer 0: expected finite inputs"):
            fs.chord_deviation(a, b, X)
    image = nn.Sequential(nn.Conv2d(1, 1, 2)).double()
    with pytest.raises(InputError, match="layer 0: expected finite"):
        fs.record_inputs(image, ["0"], X[None, None])


def test_a_fixed_part_that_vanishes_gives_no_small_ratio() -> None:
    layer = from_arrays(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
    sums = ChordSums(layer, layer, "relu", np.array([0.0, 1.0]))
    sums.add(np.array([[1.0]]))
    assert sums.result().q == np.inf and sums.result().bound == np.inf
    sums.norms[:] = np.nan
    assert not sums.result().bound < np.inf


def test_outputs_that_are_no_numbers_hit_no_label() -> None:
    class Lost(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(x) * float("nan")
            return result

    X, Y = np.ones((6, 2)), np.zeros(6, dtype=np.int64)
    found = fs.barrier(Lost(), Lost(), "cross_entropy", (X, Y), 3)
    assert found.accuracy is not None and (found.accuracy.values == 0).all()
    assert np.isnan(found.barrier) and np.isnan(found.midpoint)
