"""The picture of a barrier shows its curves, its chords and its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.connectivity.barrier import Barrier, PathValues
from fiberscope.errors import InputError
from fiberscope.plot.barriers import barrier


def result(pairs: int, test: Barrier | None = None) -> Barrier:
    t = np.linspace(0, 1, 5)
    loss = PathValues(
        "loss", t, np.array([[0, 1, 2, 1, 0]] * pairs, dtype=float) * np.arange(1, pairs + 1)[:, None], 1.0
    )
    return Barrier(loss, PathValues("accuracy", t, 1 - loss.values / 10, -1.0), 10, 0.1, test)


def test_curves_chords_and_bands() -> None:
    ax = barrier({"one": result(1), "three": result(3)})
    lines = [line for line in ax.lines if len(line.get_xdata()) == 5]  # type: ignore[arg-type]
    np.testing.assert_allclose(lines[1].get_ydata(), [0, 2, 4, 2, 0])  # type: ignore[arg-type]
    assert len(ax.collections) == 1  # one pair has no deviation
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["one: barrier 2", "three: barrier 4 ± 2"]


def test_accuracy_and_held_out_data() -> None:
    ax = barrier(result(1, result(1)), quantity="accuracy", test=True)
    assert ax.get_ylabel() == "test accuracy"
    with pytest.raises(InputError, match="held-out"):
        barrier(result(1), test=True)
    with pytest.raises(InputError, match="quantity"):
        barrier(result(1), quantity="error")
    with pytest.raises(InputError, match="expected results of"):
        barrier({"x": 3})  # type: ignore[dict-item]
