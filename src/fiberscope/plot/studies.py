"""Figures of studies, drawn from their tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import floor, isnan, log10
from statistics import fmean, pstdev
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from fiberscope.errors import InputError
from fiberscope.plot.style import FUNCTION, INK, LAYERS, ORDERED, house_style
from fiberscope.studies.lab.shares import wilson
from fiberscope.studies.lab.study import Picture
from fiberscope.studies.lab.table import Table

QUANTITY = "quantity"
"""The column that tells several ``y`` apart."""

STYLES = ("mean", "curve", "share", "points", "surface", "map")


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
    if picture.style not in STYLES:
        raise InputError(f"picture {picture.name}: expected a style of {', '.join(STYLES)}, got {picture.style!r}")
    shown = _long(table.where(**picture.where), picture)
    if len(shown) == 0:
        raise InputError(f"picture {picture.name}: expected a table with rows, got an empty one")
    parts = shown.groups(picture.panels) if picture.panels else {("",): shown}
    with house_style():
        axes = list(panels) if panels is not None else _new_panels(len(parts), picture.panels != QUANTITY)
        if len(axes) != len(parts):
            raise InputError(f"picture {picture.name}: expected {len(parts)} axes, got {len(axes)}")
        for ax, ((name,), part) in zip(axes, parts.items(), strict=True):
            if picture.behind:
                _grey(ax, table.where(**picture.behind, **_same_panel(picture, name)), picture)
            if picture.style == "map":
                _map(ax, part, picture, _reach(shown, picture))
            else:
                (_surface if picture.style == "surface" else _panel)(ax, part, picture)
            known = picture.panels if picture.panels in picture.words else ""
            whole = ax.get_figure(root=True)
            own = ax.get_position().width * whole.get_figwidth() if whole is not None else 0.0
            ax.set_title(_word(picture, name, known) if picture.panels else _in_lines(picture.title, own))
        figure = axes[0].get_figure(root=True)
        if picture.panels and panels is None and figure is not None:
            figure.suptitle(_in_lines(picture.title, figure.get_figwidth()), fontweight="bold")
        if picture.lines:
            _legend(axes[-1], figure if panels is None else None, 2.0 if picture.style == "points" else 1.0)
    return axes


def _in_lines(title: str, inches: float) -> str:
    """A title in as many lines as its width needs; a letter of the house's titles takes about a ninth of an inch."""
    return "\n".join(wrap(title, max(20, int(9 * inches))))


def _legend(ax: Axes, figure: Figure | None, scale: float) -> None:
    """In the last panel; below the panels where lines or panels are many and it would cover what it explains."""
    handles, labels = ax.get_legend_handles_labels()
    if figure is not None and (len(labels) > 3 or len(figure.axes) > 3):
        longest = max(map(len, labels))
        columns = min(len(labels), max(1, int(12 * figure.get_figwidth() / (longest + 6))))
        rows = -(-len(labels) // columns)
        figure.set_figheight(figure.get_figheight() + 0.25 * rows)
        ncols = -(-len(labels) // rows)
        figure.legend(handles, labels, fontsize="small", loc="outside lower center", ncols=ncols, markerscale=scale)
    else:
        ax.legend(fontsize="small", markerscale=scale)


def has_rows(table: Table, picture: Picture) -> bool:
    """Whether the table has anything to draw in this picture."""
    return set(picture.where) <= set(table.columns) and len(table.where(**picture.where)) > 0


def _long(table: Table, picture: Picture) -> Table:
    """The table as it is for one ``y``; for several, one row for each of them, with its name under ``quantity``.

    Rows that lack one of several are left out: the lines of one picture are means over the same rows.
    """
    if isinstance(picture.y, str) or len(table) == 0:
        return table
    needed = {picture.x, picture.lines, picture.panels, picture.each, *picture.behind} & set(table.columns)
    for y in picture.y:
        table.column(y)  # says which columns there are, if this is none of them
    whole = [row for row in table.dicts() if all(row[y] is not None for y in picture.y)]
    rows = [{**{name: row[name] for name in needed}, QUANTITY: y, "value": row[y]} for y in picture.y for row in whole]
    return Table.of(rows)


def _height(picture: Picture) -> str:
    return picture.y if isinstance(picture.y, str) else "value"


def _same_panel(picture: Picture, name: Any) -> dict[str, Any]:
    return {} if picture.panels in ("", QUANTITY) else {picture.panels: name}


def _word(picture: Picture, name: Any, column: str = "") -> str:
    """What a reader sees for an entry: the picture's own word, else the entry behind the name of its column."""
    if str(name) in picture.words:
        return picture.words[str(name)]
    if column in ("", QUANTITY) or picture.words.get(column) == "":
        return str(name)
    return f"{picture.words.get(column, column)} {name}"


def _new_panels(count: int, share: bool) -> list[Axes]:
    """Panels of a new figure; those of one quantity are compared, so they share their axes."""
    columns = 2 if count == 4 else min(count, 3)  # more in a row would be too small to read on a page
    rows = -(-count // columns)
    figure = Figure(figsize=(max(5.0, 2.9 * columns), 3.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    for ax in grid.flat:
        ax.tick_params(labelbottom=True)
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    return list(grid.flat[:count])


def _panel(ax: Axes, table: Table, picture: Picture) -> None:
    lines = table.groups(picture.lines) if picture.lines else {("",): table}
    colours = _colours(len(lines), picture)
    for index, (color, ((name,), part)) in enumerate(zip(colours, lines.items(), strict=True)):
        label = _word(picture, name, picture.lines) if picture.lines else None
        if picture.style == "points":
            x, y = _points(part, picture)
            size = min(8.0, max(3.0, 60.0 / max(1, len(x)) ** 0.5))  # a few points are seen too
            ax.plot(x, y, ".", markersize=size, alpha=0.6, markeredgewidth=0, color=color, label=label)
        elif picture.style == "share":
            _shares_of(ax, part, picture, index - (len(lines) - 1) / 2, color=color, label=label)
        elif picture.each:
            for run in part.groups(picture.each).values():
                x, mean, _ = _curve(run, picture)
                ax.plot(x, mean, color=color, lw=0.6, alpha=0.25)
            x, mean, _ = _curve(part, picture)  # single runs tangle: the eye follows their mean
            ax.plot(x, mean, color=color, lw=2.2, label=f"{label}, mean" if label else "mean")
        else:
            x, mean, spread = _curve(part, picture)
            few = len(x) <= (40 if picture.style == "mean" else 6)
            ax.plot(x, mean, marker="o" if few else "", markersize=3.5, color=color, label=label)
            if picture.style == "mean":
                _band(ax, (x, mean, spread), color, picture)
    _finish(ax, picture)
    if not picture.log_x and all(isinstance(x, int) for x in table.column(picture.x)):
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # nobody counts half a layer


def _shares_of(ax: Axes, part: Table, picture: Picture, place: float, **look: Any) -> None:
    """Shares of yes with Wilson's intervals; lines are set apart a little, so that no interval hides another."""
    x, share, _ = _curve(part, picture)
    counts = [sum(a == at and b is not None for a, b in _cells(part, picture)) for at in x]
    ends = [wilson(round(p * n), n) for p, n in zip(share, counts, strict=True)]
    reach = [[max(0.0, p - low) for p, (low, _) in zip(share, ends, strict=True)],
             [max(0.0, high - p) for p, (_, high) in zip(share, ends, strict=True)]]  # fmt: skip
    step = min((b - a for a, b in pairwise(x)), default=1.0)
    ax.errorbar([at + 0.06 * place * step for at in x], share, yerr=reach, marker="o", markersize=4, capsize=2.5,
                elinewidth=1.0, **look)  # fmt: skip
    ax.set_ylim(-0.04, 1.04)


def _cells(part: Table, picture: Picture) -> zip[tuple[Any, Any]]:
    return zip(part.column(picture.x), part.column(_height(picture)), strict=True)


def _colours(count: int, picture: Picture) -> list[Any]:
    """The house's colours; curves in an order, such as times, go from light to dark."""
    if picture.style == "curve" and picture.lines not in ("", QUANTITY):
        return list(ORDERED(np.linspace(0.0, 1.0, count)))
    found: list[Any] = [LAYERS[index % len(LAYERS)] for index in range(count)]
    if picture.lines == QUANTITY and count > 4:
        found[5:] = [LAYERS[7], LAYERS[6]][: count - 5]  # the sixth of the palette is too close to ink
        found[-1] = INK  # bounds end with what they bound
    return found


def _band(ax: Axes, curve: tuple[list[Any], list[float], list[float]], color: Any, picture: Picture) -> None:
    x, mean, spread = curve
    low = [m - s for m, s in zip(mean, spread, strict=True)]
    high = [m + s for m, s in zip(mean, spread, strict=True)]
    if picture.log_y:  # a band down to zero has no place on a logarithmic axis
        low = [max(value, 0.05 * m) for value, m in zip(low, mean, strict=True)]
    ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def _finish(ax: Axes, picture: Picture) -> None:
    ax.set_xlabel(picture.x_label or picture.x)
    place = ax.get_subplotspec()
    # where panels are quantities, their titles name them
    named = picture.y_label or ("" if picture.panels == QUANTITY else _height(picture))
    ax.set_ylabel(named if place is None or place.is_first_col() or not _shares(ax) else "")
    for wanted, axis, scale in ((picture.log_x, ax.xaxis, ax.set_xscale), (picture.log_y, ax.yaxis, ax.set_yscale)):
        if wanted:
            scale("log")
            # 20 and .002 rather than powers of ten, and no more of them than fit beside each other
            axis.set_major_locator(LogLocator(numticks=4 if axis is ax.xaxis else 5))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(FuncFormatter(partial(_between, axis)))
    if picture.equal:
        ax.set_aspect("equal", adjustable="box")


def _between(axis: Any, value: float, _: int | None = None) -> str:
    """Twos and fives between the powers of ten, where the axis is short enough for them."""
    low, high = axis.get_view_interval()
    leading = round(value / 10.0 ** floor(log10(value)), 6)
    return f"{value:g}" if high < 100 * low and leading in (2.0, 5.0) else ""


def _shares(ax: Axes) -> bool:
    """Whether another panel has the same vertical axis, which says it all."""
    return len(ax.get_shared_y_axes().get_siblings(ax)) > 1


def _grey(ax: Axes, table: Table, picture: Picture) -> None:
    x, y = _points(table, picture)
    ax.plot(x, y, ".", color=INK, alpha=0.35, markersize=3, zorder=0)


def _surface(ax: Axes, table: Table, picture: Picture) -> None:
    """Smooth colours over scattered points ``(x, y)``, and the points themselves."""
    x, y = _points(table, picture)
    found = ax.tripcolor(x, y, np.asarray(table.column(picture.colour), dtype=float), cmap=FUNCTION, shading="gouraud")
    ax.plot(x, y, ".", color=INK, alpha=0.5, markersize=1.5)
    ax.set_aspect("equal")
    _finish(ax, picture)
    figure = ax.get_figure(root=True)
    if figure is not None:
        figure.colorbar(found, ax=ax, shrink=0.7)


def _reach(table: Table, picture: Picture) -> float:
    """The largest number of a map without its sign: all panels have the same colours."""
    return max((abs(v) for v in table.column(picture.colour) if v is not None and not isnan(v)), default=0.0) or 1.0


def _map(ax: Axes, table: Table, picture: Picture, reach: float) -> None:
    """A square of colour for every pair ``(x, y)`` of whole numbers; white where there is no number."""
    columns = (picture.y, picture.x, picture.colour)
    found = [row for row in zip(*map(table.column, map(str, columns)), strict=True) if row[2] is not None]
    cells = np.full([1 + max((row[k] for row in found), default=0) for k in (0, 1)], np.nan)
    for row, column, value in found:
        cells[row, column] = value
    image = ax.imshow(cells, cmap=FUNCTION, vmin=-reach, vmax=reach, interpolation="nearest")
    _finish(ax, picture)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator("auto", integer=True))
    figure = ax.get_figure(root=True)
    if figure is not None:
        figure.colorbar(image, ax=ax, shrink=0.7)


def _points(part: Table, picture: Picture) -> tuple[list[Any], list[float]]:
    """Pairs of numbers; ``x`` may be names, which stand side by side."""
    pairs = [
        (x if isinstance(x, str) else float(x), float(y))
        for x, y in zip(part.column(picture.x), part.column(_height(picture)), strict=True)
        if x is not None and y is not None
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _curve(part: Table, picture: Picture) -> tuple[list[Any], list[float], list[float]]:
    """Means and standard deviations of ``y`` at every ``x``; rows without a number are left out."""
    found: dict[Any, list[float]] = {}
    for x, y in _cells(part, picture):
        if y is not None and not isnan(y):
            found.setdefault(x, []).append(float(y))
    order = sorted(found)
    return order, [fmean(found[x]) for x in order], [pstdev(found[x]) for x in order]
