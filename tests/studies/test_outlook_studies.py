"""The outlook of the paper on data geometry: ratios to the upper bound, and regions drawn to a manifold by training."""

from __future__ import annotations

from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle
from fiberscope.geometry.expectation.manifolds import volume_of
from fiberscope.network.network import Network
from fiberscope.studies import bound_ratios, concentrating_regions
from fiberscope.studies.lab.study import Task
from fiberscope.studies.lab.table import Table


def test_ratios_on_some_manifolds() -> None:
    tasks = bound_ratios.plan("quick", {"networks": 2, "hidden": [[4]]})
    assert len(tasks) == len(bound_ratios.manifolds()) + 1
    about: dict[str, Any] = {"hidden": [3], "networks": 6, "init": "he"}
    found = [
        line
        for name in ("segment", "square", "moved segment")
        for line in bound_ratios.run_task(Task("key", {"manifold": name, **about}, 7))
    ]
    assert len(found) == 2 + len(bound_ratios.DISTANCES)
    for line in found:
        assert line["ratio"] == pytest.approx(line["density"] / line["bound"])
        assert abs(line["density"] - line["theorem"]) < 6 * line["error"] + 0.2 * line["theorem"] + 0.5
    assert all(volume_of(shape) > 0 for shape in bound_ratios.manifolds().values())


def row(**entries: Any) -> dict[str, Any]:
    plain = {"manifold": "circle", "hidden": "8", "distance": 0.0, "density": 1.0, "error": 0.01, "bound": 10.0}
    found = {**plain, **entries}
    return {**found, "ratio": found["density"] / found["bound"], "expected ratio": found["density"] / found["bound"]}


def test_verdicts_on_ratios_of_made_tables() -> None:
    far = {"manifold": "moved segment", "distance": 100.0}
    near = {"manifold": "moved segment", "distance": 1.0}
    calm = Table.of([row(), row(manifold="torus", density=1.5), row(**near), row(**far, density=0.9)])
    assert bound_ratios.never_above(calm).holds and bound_ratios.alike(calm).holds
    assert bound_ratios.lower_bound(calm).holds and bound_ratios.near_the_origin(calm).holds
    wild = Table.of([row(density=11.0), row(manifold="torus", density=0.01), row(**near), row(**far, density=0.001)])
    assert bound_ratios.never_above(wild).holds is False and bound_ratios.alike(wild).holds is False
    assert bound_ratios.lower_bound(wild).holds is False and bound_ratios.near_the_origin(wild).holds is False
    open_one = Table.of([row(density=0.11, error=0.05), row(**near)])
    assert bound_ratios.near_the_origin(open_one).holds is None


def test_the_surrogate_counts_kinks_when_the_bump_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the exact number of breakpoints along the circle: zeros of all neurons, seen or not."""
    monkeypatch.setattr(concentrating_regions, "BUMP", 0.01)
    t = torch.linspace(-pi, pi, 20_001, dtype=torch.float64)[:-1]
    x, way = torch.stack([t.cos(), t.sin()], dim=1), torch.stack([-t.sin(), t.cos()], dim=1)
    net = Network.random((2, 10, 16, 1), 0)
    layers = [(torch.tensor(W), torch.tensor(b)) for W, b in zip(net.weights, net.biases, strict=True)]
    out, crossings = concentrating_regions.forward(layers, x, way)
    assert float(crossings) == pytest.approx(len(regions_along(net, Circle()).breakpoints), abs=1.0)
    np.testing.assert_allclose(out.numpy()[::1000], net(x.numpy()[::1000]), atol=1e-12)


def test_even_boundaries_have_concentration_one() -> None:
    """Many random lines through the square, as far as they meet it: Crofton's formula."""
    rng = np.random.default_rng(0)
    angle, offset = rng.uniform(0, pi, 4000), rng.uniform(-3, 3, 4000)
    kinks = 2 * (np.abs(offset) < 1).sum()
    n = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    length = 0.0
    for (a, b), h in zip(n, offset, strict=True):
        s = np.linspace(-4, 4, 801)
        p = np.stack([a * h - b * s, b * h + a * s], axis=1)
        length += 0.01 * (np.abs(p) <= 2).all(axis=1).sum()
    assert concentrating_regions.concentration(kinks, length) == pytest.approx(1.0, rel=0.06)
    assert np.isnan(concentrating_regions.concentration(1.0, 0.0))


def test_the_surrogate_makes_more_regions(tmp_path: Path) -> None:
    options = {"runs": 2, "steps": 60, "weights": [0.0, 0.01], "frequencies": [2]}
    result = fs.reproduce("concentrating-regions", jobs=1, out=tmp_path, **options)
    rows = result.table.dicts()
    kinks = {weight: np.mean([r["kinks"] for r in rows if r["weight"] == weight]) for weight in (0.0, 0.01)}
    assert kinks[0.01] > kinks[0.0] and len(result.verdicts) == 3


def test_verdicts_on_concentration_of_made_tables() -> None:
    base = [{"run": r, "weight": 0.0, "frequency": 2, "kinks": 10.0 + r % 2} for r in range(4)]
    more = [{**b, "weight": 0.1, "kinks": b["kinks"] + 5 + 0.1 * b["run"]} for b in base]
    assert concentrating_regions.compared("kinks", True)(Table.of(base + more)).holds
    assert concentrating_regions.compared("kinks", False)(Table.of(base + more)).holds is False
    same = [{**b, "weight": 0.1, "kinks": b["kinks"] + (-1) ** b["run"]} for b in base]
    assert concentrating_regions.compared("kinks", True)(Table.of(base + same)).holds is None


def test_bad_options() -> None:
    for module, options, message in (
        (bound_ratios, {"networks": 1}, "networks"),
        (bound_ratios, {"hidden": 3}, "hidden"),
        (concentrating_regions, {"runs": 0}, "runs"),
        (concentrating_regions, {"weights": [0.1]}, "weights"),
    ):
        with pytest.raises(InputError, match=message):
            module.plan("quick", options)  # type: ignore[attr-defined]
