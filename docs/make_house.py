"""Draws the picture of the house, ``_static/house.svg``, for the page on the architecture.

The picture is put into the page as it is, so it takes the theme's colours, light or dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

Room = tuple[str, str, str]
"""A top folder or module of the package, what it is for, and what stands in it."""

FLOORS: tuple[tuple[Room, ...], ...] = (
    (("cli", "parse, call, print", ""),),
    (
        ("explorer", "a page to look around", ""),
        ("plot", "pictures of results", ""),
        ("reporting", "pages of results", ""),
    ),
    (("training", "many seeds, datasets", "datasets"), ("studies", "the papers' studies", "lab")),
    (
        ("fibers", "which are one function?", "canonical paths simplify"),
        ("equality", "are two the same?", "ladder rungs verify"),
        ("recovery", "back from the function", ""),
        ("neurons", "which is which?", ""),
        ("connectivity", "can they be joined?", ""),
    ),
    (
        (
            "geometry",
            "where is it linear?",
            "domains engines complex curves surfaces distances folds ranges",
        ),
        ("dimension", "what can the parameters do?", ""),
    ),
    (
        ("network", "a model as a frozen program", "nodes operators layout walk network border io formats action"),
        ("modules", "live torch modules", "tracing action"),
    ),
    (("numerics", "the only home of tolerances: certified signs, exact ranks, safe linear programs", "algebra lp"),),
    (
        ("errors", "named failures", ""),
        ("extras", "what may be absent", ""),
        ("files", "whole or not at all", ""),
        ("results", "answers", ""),
        ("run", "clock, progress", ""),
        ("backends", "where tasks run", ""),
    ),
)
"""From the roof to the ground; everything stands only on what is below it, or to its left on the same floor."""

WIDTH, LEFT, RIGHT, TOP, HEIGHT, GAP = 860, 40, 820, 96, 62, 10

STYLE = """
  .house text { font-family: inherit; fill: var(--color-foreground-primary, #222); }
  .house .room { fill: var(--color-background-secondary, #f4f4f5); stroke: var(--color-foreground-border, #888); }
  .house .roof { fill: none; stroke: var(--color-foreground-border, #888); stroke-width: 2; stroke-linejoin: round; }
  .house .name { font-weight: 600; font-size: 15px; }
  .house .what { font-size: 12px; }
  .house .inside { font-size: 11px; fill: var(--color-foreground-secondary, #555); font-family: monospace; }
"""


def room(x: float, y: float, width: float, content: Room) -> str:
    """One box with its three lines."""
    name, what, inside = content
    middle = x + width / 2
    lower = 0 if inside else 8
    lines = [("name", name, 21 + lower), ("what", what, 38 + lower), ("inside", inside, 54)]
    texts = "".join(
        f'<text class="{kind}" x="{middle:g}" y="{y + down}" text-anchor="middle">{escape(text)}</text>'
        for kind, text, down in lines
        if text
    )
    return f'<rect class="room" x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="6"/>{texts}\n'


def weight(content: Room) -> float:
    """Rooms are as wide as their longest line."""
    name, what, inside = content
    return max(60.0, 9.0 * len(name), 6.3 * len(what), 7.0 * len(inside)) + 16


def picture() -> str:
    """The whole house."""
    parts, y = [], float(TOP)
    for floor in FLOORS:
        free = RIGHT - LEFT - GAP * (len(floor) - 1)
        total = sum(map(weight, floor))
        x = float(LEFT)
        for content in floor:
            width = free * weight(content) / total
            parts.append(room(x, y, round(width, 1), content))
            x += width + GAP
        y += HEIGHT + GAP
    roof = f'<path class="roof" d="M {LEFT - 24} {TOP - 8} L {WIDTH / 2:g} 24 L {RIGHT + 24} {TOP - 8}"/>\n'
    caption = "fiberscope: every room stands on what is below it"
    head = (
        f'<svg class="house" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" role="img" '
        f'aria-label="{caption}" style="width: 100%; height: auto">\n<style>{STYLE}</style>\n'
    )
    title = f'<text class="what" x="{WIDTH / 2:g}" y="72" text-anchor="middle">a model in, answers out</text>\n'
    return head + roof + title + "".join(parts) + "</svg>\n"


if __name__ == "__main__":
    target = Path(__file__).resolve().parent / "_static" / "house.svg"
    target.write_text(picture(), encoding="utf-8")
