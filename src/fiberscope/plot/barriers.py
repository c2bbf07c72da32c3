"""The loss along the segment between two models, with the chord that it should not leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fiberscope.connectivity.barrier import Barrier, PathValues
from fiberscope.errors import InputError
from fiberscope.plot.style import INK, LAYERS, house_style, new_axes


def barrier(
    result: Barrier | Mapping[str, Barrier], *, quantity: str = "loss", test: bool = False, ax: Axes | None = None
) -> Axes:
    """A quantity along the path: mean over the pairs, a band of one standard deviation, the chord dashed.

    Parameters
    ----------
    result
        One barrier, or several by name, such as unaligned and aligned.
    quantity
        ``"loss"`` or ``"accuracy"``.
    test
        Draw the held-out data, not the training data.
    """
    ax = new_axes(ax, (6.4, 4.2))
    named: Mapping[str, Barrier] = {"": result} if isinstance(result, Barrier) else result
    with house_style():
        for index, (name, found) in enumerate(named.items()):
            values = _values(found, quantity, test)
            color = LAYERS[index % len(LAYERS)]
            text = f"barrier {values.barrier:.3g}" + ("" if found.pairs == 1 else f" ± {values.barrier_deviation:.2g}")
            ax.plot(values.t, values.mean, color=color, marker=".", ms=4, label=f"{name}: {text}" if name else text)
            ends = values.mean[[0, -1]]
            ax.plot([0, 1], ends, color=color, lw=0.9, ls="--")
            if found.pairs > 1:
                low, high = values.mean - values.deviation, values.mean + values.deviation
                ax.fill_between(values.t, low, high, color=color, alpha=0.15, lw=0)
        ax.axvline(0.5, color=INK, lw=0.5, alpha=0.4)
        ax.set_xlabel("t, from the first model to the second")
        ax.set_ylabel(f"{'test ' if test else ''}{quantity}")
        ax.set_xticks(np.linspace(0, 1, 5))
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def _values(found: Any, quantity: str, test: bool) -> PathValues:
    if not isinstance(found, Barrier):
        raise InputError(f"barrier: expected results of fs.barrier, got {type(found).__name__}")
    part = found.test if test else found
    if part is None:
        raise InputError("barrier: expected held-out data in the result, got none")
    values = {"loss": part.loss, "accuracy": part.accuracy}.get(quantity)
    if values is None:
        raise InputError(f"quantity: expected 'loss' or 'accuracy' (of a classification), got {quantity!r}")
    return values
