"""The program of a network as a drawing: boxes from left to right, lines between them, branches above each other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fiberscope.network.network import Network

if TYPE_CHECKING:
    from fiberscope.network.inspection import LayerSummary

MOST_BOXES = 80
_WIDE, _TALL, _GAP, _ROW = 118, 46, 26, 66
_IN_A_LINE = 7

_FILL = {"relu": "#38a3a5", "piecewise linear": "#38a3a5", "max pool": "#f4a261", "add": "#d1495b", "concat": "#d1495b"}


def program_svg(net: Network, layers: Sequence[LayerSummary]) -> str:
    """An SVG of the program as the user gave it, or nothing where there are too many nodes to look at."""
    if len(net.program) > MOST_BOXES:
        return ""
    places = _places(net)
    wide = max(x for x, _ in places) + _WIDE + 8
    tall = max(y for _, y in places) + _TALL + 12
    lines = [
        _line(places[source], places[index + 1])
        for index, node in enumerate(net.program)
        for source in dict.fromkeys(node.sources)
    ]
    boxes = [_box(places[0], "input", _size(net.input_shape), "#6b7280")]
    boxes += [
        _box(places[k + 1], layer.kind, _size(layer.shape), _FILL.get(layer.kind, "#22577a"))
        for k, layer in enumerate(layers)
    ]
    label = escape(f"The program: {net.architecture[:120]}")
    return (
        f'<svg viewBox="0 0 {wide} {tall}" role="img" aria-label="{label}" style="width:100%;max-width:{wide}px;'
        'height:auto;font:12px ui-sans-serif,system-ui,sans-serif">' + "".join(lines + boxes) + "</svg>"
    )


def _places(net: Network) -> list[tuple[int, int]]:
    """Upper left corners of the input and of every node; a step to the right for every step of the longest path."""
    depth = [0]
    for node in net.program:
        depth.append(1 + max((depth[source] for source in node.sources), default=0))
    used: dict[int, int] = {}
    rows = []
    for d in depth:
        rows.append(used.get(d, 0))
        used[d] = rows[-1] + 1
    height = max(used.values())
    return [
        ((d % _IN_A_LINE) * (_WIDE + _GAP) + 4, ((d // _IN_A_LINE) * height + row) * _ROW + 6)
        for d, row in zip(depth, rows, strict=True)
    ]


def _box(place: tuple[int, int], kind: str, size: str, colour: str) -> str:
    x, y = place
    middle = x + _WIDE / 2
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_TALL}" rx="7" fill="{colour}" fill-opacity=".16" '
        f'stroke="{colour}" stroke-width="1.4"/>'
        f'<text x="{middle}" y="{y + 19}" text-anchor="middle" fill="currentColor" font-weight="600">'
        f"{escape(kind[:18])}</text>"
        f'<text x="{middle}" y="{y + 35}" text-anchor="middle" fill="currentColor" opacity=".7">{escape(size)}</text>'
    )


def _line(source: tuple[int, int], target: tuple[int, int]) -> str:
    ax, ay = source[0] + _WIDE, source[1] + _TALL / 2
    bx, by = target[0], target[1] + _TALL / 2
    if bx > ax:
        lift = 34 if bx - ax > _GAP and ay == by else 0  # a skip connection goes around what it skips
        path = f"M{ax},{ay} C{ax + 20},{ay - lift * 1.6} {bx - 20},{by - lift * 1.6} {bx},{by}"
    else:  # to the next line of boxes
        path = f"M{ax},{ay} c30,34 -60,20 {(bx - ax) / 2 - 15},{_ROW / 2} S{bx - 30},{by - 14} {bx},{by}"
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity=".45" stroke-width="1.3"/>'


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
