"""All areas by name."""

from __future__ import annotations

from fuzz.areas import curves, equality, files, parameters, points, regions
from fuzz.case import Area

AREAS: dict[str, Area] = {
    area.name: area for module in (points, curves, regions, equality, parameters, files) for area in module.AREAS
}
