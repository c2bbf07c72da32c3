"""How fiberscope's pictures look: one palette, thin lines, no boxes that carry no information."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from fiberscope.errors import InputError
from fiberscope.files import atomic_path, write_atomically
from fiberscope.run import in_notebook

INK = "#1f2430"
PAPER = "#fbfaf7"
ACCENT = "#d1495b"
LAYERS = ("#1b4965", "#ca6702", "#2a9d8f", "#a43fd0", "#cdb800", "#522914", "#5fd3d8", "#9d7cde")
"""Line colours of the first, second, ... activation layer, apart for colour-blind eyes too."""

ORDERED = LinearSegmentedColormap.from_list("ordered", ["#5aa899", "#2a7f95", "#22477a", "#2d1440"])
"""Colours of lines in an order, such as times: light to dark, and none that fades on paper."""

FUNCTION = LinearSegmentedColormap.from_list(
    "fiberscope", ["#22577a", "#38a3a5", "#c7e9b0", "#f6f1d1", "#f4a261", "#d1495b", "#7a1f3d"]
)
"""Diverging colours for values of a function."""

MOSAIC = ("#22577a", "#2f8f9d", "#57cc99", "#c7e9b0", "#f6f1d1", "#f2cc8f", "#f4a261", "#e07a5f", "#d1495b", "#8f2d56")
"""Colours of regions."""

_SETTINGS: dict[Any, Any] = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=list(LAYERS)),
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "font.size": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house's style and leave the caller's settings as they were."""
    with mpl.rc_context(_SETTINGS):
        yield


def new_axes(ax: Axes | None = None, size: tuple[float, float] = (6.0, 6.0)) -> Axes:
    """The given axes, or new ones on a figure that no global state holds on to."""
    if ax is not None:
        return ax
    with house_style():
        return Figure(figsize=size, layout="constrained").add_subplot()


def colour_bar(ax: Axes, shown: Any, label: str) -> None:
    """A bar beside the axes that says which number a colour means."""
    figure = ax.get_figure(root=True)
    if figure is not None:
        bar = figure.colorbar(shown, ax=ax, shrink=0.75, aspect=28, pad=0.02, label=label)
        bar.outline.set_visible(False)


def png(figure: Figure, dpi: int = 130) -> bytes:
    """The figure as the bytes of a PNG file, without a time stamp: the same picture is the same file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def figure_png(ax: Axes, dpi: int = 130) -> bytes:
    """The figure of the axes as the bytes of a PNG file."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise InputError("plot: expected axes on a figure, got axes that were removed from theirs")
    return png(figure, dpi)


def _shown(ax: Axes) -> bytes | None:
    """The picture of axes that no window and no notebook shows by itself; pyplot numbers those that it manages."""
    figure = ax.get_figure(root=True)
    return None if figure is None or hasattr(figure, "number") else png(figure, dpi=100)


if in_notebook():  # so that axes as the last line of a cell are seen, as everybody expects
    sys.modules["IPython"].get_ipython().display_formatter.formatters["image/png"].for_type(Axes, _shown)


def save_figure(ax: Axes, path: Path | str, dpi: int = 200) -> None:
    """Write the axes' figure as a PNG file, whole or not at all."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{path}: expected a name that ends in .png")
    write_atomically(path, figure_png(ax, dpi))


def save_movie(
    figure: Figure,
    draw: Callable[[int], Any],
    frames: int,
    path: Path | str,
    *,
    frames_per_second: int = 12,
    dpi: int = 80,
) -> None:
    """Write an animated GIF, whole or not at all: ``draw(k)`` draws frame ``k`` on the cleared axes of the figure."""
    if Path(path).suffix.lower() != ".gif":
        raise InputError(f"{path}: expected a name that ends in .gif")
    writer = PillowWriter(fps=frames_per_second)
    with house_style(), atomic_path(path) as part, writer.saving(figure, str(part), dpi=dpi):
        for frame in range(frames):
            for ax in figure.axes:
                ax.clear()
            draw(frame)
            writer.grab_frame()


def mosaic_colors(count: int, seed: int = 0, pairs: np.ndarray | None = None) -> np.ndarray:
    """Colours ``(count, 3)`` for regions in no particular order: the palette, each a little lighter or darker.

    ``pairs`` ``(edges, 2)`` of neighbours get colours that are not the same and not next to each other in the palette,
    as far as there are such.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(MOSAIC), count)
    if pairs is not None:
        _set_apart(chosen, np.asarray(pairs), rng)
    base = np.array([to_rgb(c) for c in MOSAIC])[chosen]
    shift = rng.uniform(-0.12, 0.12, (count, 1))
    return np.asarray(np.clip(np.where(shift > 0, base + shift * (1 - base), base * (1 + shift)), 0, 1))


def _set_apart(chosen: np.ndarray, pairs: np.ndarray, rng: np.random.Generator) -> None:
    """Change colours in place, one region after the other, so that those of its earlier neighbours are avoided."""
    beside: list[list[int]] = [[] for _ in chosen]
    for a, b in pairs.tolist():
        if a != b:
            beside[max(a, b)].append(min(a, b))
    every = np.arange(len(MOSAIC))
    for region, earlier in enumerate(beside):
        taken = chosen[earlier]
        for reach in (1, 0):  # first without the shades beside a neighbour's, then without its own
            free = every[(np.abs(every[:, None] - taken) > reach).all(axis=1)]
            if len(free):
                if chosen[region] not in free:
                    chosen[region] = free[rng.integers(len(free))]
                break
