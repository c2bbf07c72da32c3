"""All areas by name."""

from __future__ import annotations

from fuzz.areas import (
    archives,
    certificates,
    curves,
    deadlines,
    equality,
    files,
    parameters,
    points,
    regions,
    states,
    stored,
)
from fuzz.case import Area

AREAS: dict[str, Area] = {
    area.name: area
    for module in (
        points,
        curves,
        regions,
        equality,
        stored,
        certificates,
        parameters,
        files,
        states,
        archives,
        deadlines,
    )
    for area in module.AREAS
}
