"""What all tests share: a quiet numerical environment, one Hypothesis profile, the folder of real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before NumPy, torch or matplotlib load: several test processes run side by side, none has a screen.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# No deadline: the first call of a compiled kernel takes seconds, later ones microseconds.
# The same examples in every run, so that a failure belongs to the change under test; new ones are drawn by "thorough".
settings.register_profile("fiberscope", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("fiberscope"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fiberscope"))

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The checkout itself: README, docs, examples."""
    return ROOT


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder of real networks and data: ``FIBERSCOPE_SHARED``, or ``shared`` beside the checkout."""
    folder = Path(os.environ.get("FIBERSCOPE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real files: set FIBERSCOPE_SHARED to their folder (looked at {folder})")
    return folder


@pytest.fixture(scope="session")
def shared_nets(shared_folder: Path) -> Path:
    """The folder of real ONNX networks."""
    folder = shared_folder / "nets"
    if not folder.is_dir():
        pytest.skip(f"no networks in {shared_folder}")
    return folder
