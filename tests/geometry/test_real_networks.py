"""Real networks from public benchmarks: counted, and the certificate holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fiberscope as fs


def test_tll_with_zero_rows_and_coinciding_hyperplanes(shared_nets: Path) -> None:
    net = fs.load(shared_nets / "tll_8_0.onnx")
    first = net.composed.weights[0]
    assert int((~first.any(axis=1)).sum()) == 34
    complex = fs.regions(net, fs.Box.cube(2))
    assert complex.num_regions == 300 == fs.count_regions(net, fs.Box.cube(2))
    assert complex.verify().ok
    assert (complex.sign_vectors == 0).any(), "zero rows vanish identically, and that is part of the label"


def test_dynamics_in_three_dimensions(shared_nets: Path) -> None:
    net = fs.load(shared_nets / "vdp.onnx")
    complex = fs.regions(net, fs.Box.cube(3))
    assert complex.num_regions == 3755 == fs.count_regions(net, fs.Box.cube(3))
    assert complex.verify().ok


@pytest.mark.parametrize(("name", "axes"), [("acasxu_1_1", (0, 1)), ("acasxu_2_2", (1, 4))])
def test_slices_of_collision_avoidance_networks(shared_nets: Path, name: str, axes: tuple[int, int]) -> None:
    net = fs.load(shared_nets / f"{name}.onnx")
    complex = fs.regions(net, fs.Plane.along(5, axes, box=fs.Box.cube(2, -0.2, 0.2)))
    assert complex.verify().ok
    rng = np.random.default_rng(0)
    sampled = net.signs(fs.Plane.along(5, axes).lift(rng.uniform(-0.2, 0.2, (2000, 2)))).signs
    labels = {row.tobytes() for row in complex.sign_vectors}
    assert {row.tobytes() for row in sampled} <= labels
