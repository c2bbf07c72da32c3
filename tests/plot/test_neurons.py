"""Pictures of swap costs: what they show is what the result says."""

from __future__ import annotations

import numpy as np

import fiberscope as fs


def classes(scheme: str = "full") -> fs.NeuronClasses:
    rng = np.random.default_rng(0)
    D = np.ones((6, 8)) if scheme == "full" else np.zeros((6, 8))
    return fs.NeuronClasses.from_arrays(rng.normal(size=(6, 8)), D, rng.normal(size=(6, 8)), np.eye(8)[:, :4])


def test_heatmap_shows_the_costs() -> None:
    result = classes()
    ax = fs.plot.swap_costs(result)
    shown = np.asarray(ax.images[0].get_array().filled(np.nan))
    off = ~np.eye(6, dtype=bool)
    assert np.allclose(shown[off], result.swap_costs()[off]) and np.isnan(np.diag(shown)).all()
    assert f"least {result.swap_costs()[off].min():.3g}" in ax.get_title()
    assert len(fs.plot.swap_costs(result.swap_costs(), most=3).images[0].get_array()) == 3


def test_infinite_costs_are_blank() -> None:
    ax = fs.plot.swap_costs(classes("frozen"))
    assert np.isnan(np.asarray(ax.images[0].get_array().filled(np.nan))).all() and "none finite" in ax.get_title()


def test_terms() -> None:
    ax = fs.plot.swap_terms(classes())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["total", "centre", "cross", "mismatch"]
