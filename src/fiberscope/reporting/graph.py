"""The program of a network as a drawing: boxes from left to right, lines between them, branches above each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from fiberscope.network.network import Network

if TYPE_CHECKING:
    from fiberscope.network.inspection import LayerSummary

MOST_BOXES = 80
_WIDE, _TALL, _GAP, _ROW = 118, 46, 26, 66
_IN_A_LINE = 7

ROLES = {
    "dead": ("#3b3f48", "dead for every input"),
    "linear": ("#e09f3e", "linear for every input"),
    "duplicate": ("#d1495b", "on the hyperplane of another"),
    "silent": ("#a8a29a", "dead on the data"),
    "steady": ("#f2d7a5", "linear on the data"),
    "switching": ("#38a3a5", "switching"),
}
"""What a square of a strip says, from the gravest on, and its colour."""

MOST_SQUARES = 1024
_SQUARE, _PER_ROW = 14, 64

_FILL = {"relu": "#38a3a5", "piecewise linear": "#38a3a5", "max pool": "#f4a261", "add": "#d1495b", "concat": "#d1495b"}


def program_svg(net: Network, layers: Sequence[LayerSummary], idle: Mapping[int, int] | None = None) -> str:
    """An SVG of the program as the user gave it, or nothing where there are too many nodes to look at.

    ``idle`` says for some nodes, by their place in the program, how many of their neurons do nothing of their own.
    """
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
    boxes += [_badge(places[k + 1], count) for k, count in (idle or {}).items()]
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


def _badge(place: tuple[int, int], count: int) -> str:
    x, y = place[0] + _WIDE - 8, place[1] + 2
    text = f"{count:,}"
    wide = 12 + 7 * len(text)
    return (
        f"<g><title>{text} dead, linear or duplicate neurons</title>"
        f'<rect x="{x - wide / 2}" y="{y - 8}" width="{wide}" height="17" rx="8" fill="#b3263c"/>'
        f'<text x="{x}" y="{y + 4.5}" text-anchor="middle" fill="#ffffff" '
        f'font-weight="700">{text}</text></g>'
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


def neuron_strips(layers: Sequence[tuple[str, Sequence[str]]]) -> str:
    """One square for every neuron, layer by layer, with the colour of its role, and a key."""
    rows = "".join(_strip(name, roles) for name, roles in layers)
    there = {role for _, roles in layers for role in roles}
    key = "".join(f'<span><i style="--k:{c}"></i>{text}</span>' for role, (c, text) in ROLES.items() if role in there)
    return f'<div class="strips">{rows}<div class="key">{key}</div></div>'


def _strip(name: str, roles: Sequence[str]) -> str:
    shown = roles[:MOST_SQUARES]
    counts = ", ".join(f"{roles.count(role):,} {text}" for role, (_, text) in ROLES.items() if role in roles)
    cut = "" if len(shown) == len(roles) else f"; {MOST_SQUARES:,} drawn"
    label = f"{name}, {len(roles):,} neurons: {counts}{cut}"
    squares = "".join(
        f'<rect x="{k % _PER_ROW * _SQUARE}" y="{k // _PER_ROW * _SQUARE}" width="11" height="11" rx="2.5" '
        f'fill="{ROLES[role][0]}">'
        + ("" if role == "switching" else f"<title>{name}, neuron {k}: {ROLES[role][1]}</title>")
        + "</rect>"
        for k, role in enumerate(shown)
    )
    wide, tall = _PER_ROW * _SQUARE, -(-len(shown) // _PER_ROW) * _SQUARE
    return (
        f'<figure><figcaption>{label}</figcaption><svg viewBox="0 0 {wide} {tall}" width="{wide}" role="img" '
        f'aria-label="{label}">{squares}</svg></figure>'
    )
