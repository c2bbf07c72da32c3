"""Draw the pictures of the docs with the library: ``.venv/bin/python docs/make_pictures.py``.

The pictures are kept in the tree, because the README shows them too; run this again when they should change.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs

OUT = Path(__file__).resolve().parent / "_static"
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DRAWING = (
    "regions_while_training.py",
    "slice_of_a_cnn.py",
    "slice_through_images.py",
    "fiber_mechanisms.py",
    "curves_while_training.py",
    "regions_along_a_circle.py",
    "regions_on_a_sphere.py",
    "boundary_distance.py",
    "which_neuron.py",
    "barrier.py",
    "merging.py",
    "break_symmetry.py",
    "recovery.py",
)


def draw_landing(file: Path) -> None:
    """The regions of a small network as a mosaic, and its output with the lines that bend it."""
    complex = fs.regions(fs.Network.random((2, 16, 16, 1), seed=4), fs.Box.cube(2, -1.6, 1.6))
    with fs.plot.house_style():
        figure = Figure(figsize=(12, 6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for ax, color in ((left, "mosaic"), (right, "value")):
            fs.plot.regions(complex, color=color, ax=ax)
            ax.set_axis_off()
    fs.plot.save_figure(left, file, dpi=90)
    print(f"{file.name}: {complex}")


def draw_mosaic(file: Path) -> None:
    """The regions of a wider random network; float32 numbers, as a trained one would have."""
    rng = np.random.default_rng(0)
    arrays = []
    for fan_in, width in ((2, 64), (64, 64), (64, 1)):
        scale = np.sqrt(2 / fan_in)
        arrays.append([np.float32(rng.normal(0, scale, (width, fan_in))), np.float32(rng.normal(0, scale, width))])
    complex = fs.regions(fs.Network([w for w, _ in arrays], [b for _, b in arrays]), fs.Box.cube(2))
    ax = fs.plot.regions(complex)
    ax.set_axis_off()
    fs.plot.save_figure(ax, file, dpi=110)
    print(f"{file.name}: {complex}")


def draw_recovery(file: Path) -> None:
    """The folds of a network that was recovered from its values."""
    found = fs.recover(fs.Network.random((4, 8, 6, 1), seed=1), (4, 8, 6, 1), seed=1)
    fs.plot.save_figure(found.plot(), file)
    print(f"{file.name}: {found}")


if __name__ == "__main__":
    gallery = OUT / "gallery"
    gallery.mkdir(parents=True, exist_ok=True)
    draw_landing(OUT / "regions.png")
    draw_mosaic(gallery / "mosaic.png")
    draw_recovery(OUT / "recovery.png")
    for script in DRAWING:
        subprocess.run([sys.executable, EXAMPLES / script], cwd=gallery, check=True)
