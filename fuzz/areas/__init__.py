"""All areas by name."""

from __future__ import annotations

from fuzz.case import Area

from . import equality, points, regions

AREAS: dict[str, Area] = {area.name: area for module in (points, regions, equality) for area in module.AREAS}
