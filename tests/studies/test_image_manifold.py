"""The study of images: lines, densities by hand, claims on tables made by hand, one small run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.network.network import Network
from fiberscope.studies.image_manifold import LINES, POINTS, STUDY, density, draw_lines
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.generators import train_generator


def test_lines_join_the_same_images() -> None:
    generator = train_generator(load_dataset("digits"), epochs=1, latent=2)
    lines = draw_lines(generator, 2, 0.3, 0.5, np.random.default_rng(0))
    for curve, chord, noise in zip(*(lines[kind] for kind in LINES), strict=True):
        assert len(curve.points) == POINTS
        np.testing.assert_array_equal(chord.points, curve.points[[0, -1]])
        assert chord.length < curve.length
        assert noise.ambient == 64


def test_density_by_hand() -> None:
    net = Network([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [0.0]])  # kinks at 0 and 1
    found = density(net, [Polyline([[-1.0], [2.0]]), Polyline([[2.0], [4.0]])])
    assert found["regions"] == 2.0
    assert found["length"] == 2.5
    assert found["log_density"] == pytest.approx((np.log(3 / 3) + np.log(1 / 2)) / 2)
    assert found["certified"] is True


def test_a_small_run() -> None:
    options = {"count": 40, "runs": 1, "curves": 1, "epochs": 2, "moments": 2}
    rows = [row for task in STUDY.tasks("quick", options) for row in STUDY.run_task(task)]
    table = Table.of(rows)
    assert set(table.column("line")) == set(LINES)
    assert set(table.column("epoch")) == {0, 1, 2}
    assert all(table.column("certified"))
    assert len(STUDY.summarise(table)) == len(table)


def by_hand(slope: float, chord: float, noise: float, accuracy: float) -> Table:
    rows: list[dict[str, Any]] = []
    for run in range(4):
        for epoch in (0, 5):
            start = 1 + slope * epoch + 0.01 * run * epoch
            for line, shift in (("manifold", 0.0), ("chord", chord), ("noise", noise)):
                rows.append({"run": run, "epoch": epoch, "line": line, "accuracy": accuracy})
                rows[-1]["log_density"] = start + shift * (1 + 0.1 * run)
    return Table.of(rows)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (by_hand(-0.2, 0.5, 0.5, 1.0), [True, True, True, True]),
        (by_hand(0.2, -0.5, -0.5, 0.7), [False, False, False, False]),
        (by_hand(-0.015, 0.0, 0.5, 1.0), [None, None, True, True]),
    ],
)
def test_claims_on_tables_made_by_hand(table: Table, expected: list[bool | None]) -> None:
    assert [verdict.holds for verdict in STUDY.judge(table)] == expected


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="digits or mnist or cifar"):
        STUDY.tasks("quick", {"images": "faces"})
    with pytest.raises(InputError, match="positive integer"):
        STUDY.tasks("quick", {"curves": 0})
