"""Figures of studies, drawn from their tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from statistics import fmean, pstdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from fiberscope.errors import InputError
from fiberscope.plot.style import LAYERS, house_style
from fiberscope.studies.lab.study import Picture
from fiberscope.studies.lab.table import Table


def study_figure(table: Table, picture: Picture, *, panels: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw a picture that a study describes, and return its axes, one per panel.

    Parameters
    ----------
    table
        The study's rows, as in its ``table.json``.
    picture
        Which columns to draw; see :class:`fiberscope.studies.lab.study.Picture`.
    panels
        Axes to draw on; by default a new figure.

    Examples
    --------
    >>> table = Table.of([{"depth": d, "regions": d * d, "width": w} for d in (1, 2, 3) for w in (5, 10)])
    >>> (ax,) = study_figure(table, Picture("r", "Regions", x="depth", y="regions", lines="width"))
    >>> [line.get_label() for line in ax.get_lines()]
    ['width 5', 'width 10']
    """
    if len(table) == 0:
        raise InputError(f"picture {picture.name}: expected a table with rows, got an empty one")
    parts = table.groups(picture.panels) if picture.panels else {("",): table}
    with house_style():
        axes = list(panels) if panels is not None else _new_panels(len(parts))
        if len(axes) != len(parts):
            raise InputError(f"picture {picture.name}: expected {len(parts)} axes, got {len(axes)}")
        for ax, ((name,), part) in zip(axes, parts.items(), strict=True):
            _panel(ax, part, picture)
            ax.set_title(str(name) if picture.panels else picture.title)
        figure = axes[0].get_figure(root=True)
        if picture.panels and panels is None and figure is not None:
            figure.suptitle(picture.title, fontweight="bold")
        if picture.lines:
            axes[-1].legend(fontsize="small")
    return axes


def _new_panels(count: int) -> list[Axes]:
    columns = min(count, 4)
    rows = -(-count // columns)
    figure = Figure(figsize=(max(5.0, 3.2 * columns), 3.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    return list(grid.flat[:count])


def _panel(ax: Axes, table: Table, picture: Picture) -> None:
    lines = table.groups(picture.lines) if picture.lines else {("",): table}
    for index, ((name,), part) in enumerate(lines.items()):
        x, mean, spread = _curve(part, picture)
        color = LAYERS[index % len(LAYERS)]
        label = f"{picture.lines} {name}" if picture.lines else None
        ax.plot(x, mean, marker="o", markersize=3.5, color=color, label=label)
        low = [m - s for m, s in zip(mean, spread, strict=True)]
        high = [m + s for m, s in zip(mean, spread, strict=True)]
        if picture.log_y:  # a band down to zero has no place on a logarithmic axis
            low = [max(value, 0.05 * m) for value, m in zip(low, mean, strict=True)]
        ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    ax.set_xlabel(picture.x_label or picture.x)
    ax.set_ylabel(picture.y_label or picture.y)
    for wanted, axis, scale in ((picture.log_x, ax.xaxis, ax.set_xscale), (picture.log_y, ax.yaxis, ax.set_yscale)):
        if wanted:
            scale("log")
            # 20 and 200 rather than powers of ten: these are counts.
            axis.set_major_formatter(LogFormatter())
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))


def _curve(part: Table, picture: Picture) -> tuple[list[Any], list[float], list[float]]:
    """Means and standard deviations of ``y`` at every ``x``; rows without a number are left out."""
    found: dict[Any, list[float]] = {}
    for x, y in zip(part.column(picture.x), part.column(picture.y), strict=True):
        if y is not None and not isnan(y):
            found.setdefault(x, []).append(float(y))
    order = sorted(found)
    return order, [fmean(found[x]) for x in order], [pstdev(found[x]) for x in order]
