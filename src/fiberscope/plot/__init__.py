"""Pictures: functions that take results and return matplotlib axes."""

from __future__ import annotations

from typing import Any

from fiberscope.extras import import_module

_NAMES = {
    "MOSAIC": "style",
    "barrier": "barriers",
    "boundary_distance": "distances",
    "curve_bars": "curves",
    "dependency_graph": "fold_sets",
    "difference": "differences",
    "distance_histogram": "distances",
    "eigenfunctions": "spectra",
    "explore": "explorers",
    "fiber": "fibers",
    "fiber_movie": "fibers",
    "fold_set": "fold_sets",
    "function": "functions",
    "house_style": "style",
    "images_at": "thumbnails",
    "matching_objectives": "matchings",
    "projected_gradients": "distances",
    "recovered": "recoveries",
    "regions": "complexes",
    "curvature": "surfaces",
    "round_regions": "surfaces",
    "save_figure": "style",
    "save_movie": "style",
    "kernel_parts": "spectra",
    "spectrum": "spectra",
    "study_figure": "studies",
    "surface": "surfaces",
    "swap_costs": "neurons",
    "swap_terms": "neurons",
    "under_curve": "curves",
}
__all__ = list(_NAMES)


def __dir__() -> list[str]:
    return sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"fiberscope.plot.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'fiberscope.plot' has no attribute {name!r}")
