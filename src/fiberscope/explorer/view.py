"""Complexes as a piece of a page: frames, settings, style and script in one self-contained fragment of HTML."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.explorer.assets import asset, script
from fiberscope.explorer.payload import MOST_REGIONS, Marks, encode
from fiberscope.explorer.solid import MOST_REGIONS as MOST_IN_SPACE
from fiberscope.explorer.solid import encode_solid
from fiberscope.files import write_atomically
from fiberscope.geometry.complex import Complex
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>:root {{ color-scheme: light dark }} body {{ margin: 1.5rem auto; padding: 0 1rem; "
    "max-width: 70rem; background: #fbfaf7 }} "
    "@media screen and (prefers-color-scheme: dark) {{ body {{ background: #171a21 }} }}"
    "</style></head><body>{body}</body></html>\n"
)


@dataclass(frozen=True)
class Exploration:
    """A picture that answers, as a fragment of HTML; a notebook shows it, :meth:`save` writes a page.

    It needs no server and fetches nothing.
    """

    title: str
    fragment: str

    def _repr_html_(self) -> str:
        return self.fragment

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page with the picture alone, whole or not at all."""
        write_atomically(Path(path), _PAGE.format(title=escape(self.title), body=self.fragment))

    def __repr__(self) -> str:
        return f"Exploration({self.title}; {len(self.fragment):,} bytes)"


def explore(
    complex: Complex | Sequence[Complex],
    *,
    labels: Sequence[str] | None = None,
    slider: str = "frame",
    walk: Sequence[Network] | None = None,
    points: Any = None,
    point_labels: Any = None,
    pictures: Sequence[tuple[tuple[float, float], bytes]] = (),
    full: bool = False,
) -> Exploration:
    """A complex in two dimensions, a plane through many, or one in space, that can be moved, zoomed and asked.

    Parameters
    ----------
    complex
        From :func:`fiberscope.regions`; several are the frames of a slider, for example the epochs of a training.
    labels, slider
        What each frame is called, and the name of the slider.
    walk
        Networks of one fiber: a second slider moves along them and shows the parameters move while the picture stands
        still.
    points, point_labels
        Data in the coordinates of the picture, ``(points, 2)``, and a class for each.
    pictures
        Small images as ``((s, t), PNG bytes)``.
    full
        Draw every region; without it at most 20,000 of one frame, with a word about the others.
    """
    frames = [complex] if isinstance(complex, Complex) else list(complex)
    if not frames or not all(isinstance(frame, Complex) for frame in frames):
        raise InputError("explore: expected a complex of fs.regions, or several")
    if frames[0].dimension == 3:
        return _in_space(frames, points, pictures, walk)
    names = [str(k) for k in range(len(frames))] if labels is None else [str(name) for name in labels]
    if len(names) != len(frames):
        raise InputError(f"labels: expected one for each of {len(frames)} frames, got {len(names)}")
    marks = Marks(points, point_labels, pictures)
    data: dict[str, Any] = {
        "frames": [encode(frame, marks, full) for frame in frames],
        "labels": names,
        "slider": slider,
    }
    if walk is not None:
        data["walk"] = _walk(frames[0].net, list(walk))
    return Exploration(f"{frames[0].num_regions} regions", fragment(data))


def _in_space(frames: list[Complex], *others: Any) -> Exploration:
    if len(frames) > 1 or any(other is not None and len(other) for other in others):
        raise InputError("explore: expected one complex alone in 3 dimensions: sliders, points and images are planar")
    data = {"frames": [encode_solid(frames[0])], "labels": [""]}
    return Exploration(f"{frames[0].num_regions} regions", fragment(data))


def notebook(complex: Complex) -> str:
    """The picture of a complex for a notebook; nothing where there is none: unbounded, interrupted, too large."""
    most = {2: MOST_REGIONS, 3: MOST_IN_SPACE}.get(complex.dimension, 0)
    bounded = complex.complete and not complex.rays.any()
    return explore(complex).fragment if bounded and complex.num_regions <= most else ""


def fragment(data: dict[str, Any]) -> str:
    """A piece of HTML with the data, the style and the script, which finds it by its class."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f"<style>{asset('explorer.css')}</style>"
        f'<div class="fx"><script type="application/json">{text}</script></div>'
        f"<script>{script()}</script>"
    )


def _walk(net: Network, steps: list[Network]) -> dict[str, Any]:
    values = [_parameters(step) for step in steps]
    if not values or any(value.size != values[0].size for value in values):
        raise InputError("walk: expected networks with the same parameters, got different sizes")
    return {
        "values": [value.tolist() for value in values],
        "labels": [f"step {k} of {len(steps) - 1}" for k in range(len(steps))],
        "caption": f"The {values[0].size} parameters as bars (of the height of their square roots), those that have "
        "moved in red. Every step computes the same function up to the rounding of its numbers, so the picture stands "
        "still.",
    }


def _parameters(net: Network) -> FloatArray:
    return np.concatenate([np.ravel(value) for value in net.parameters.values()])
