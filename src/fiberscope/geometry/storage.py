"""Saving and loading a complex: one ``.npz`` file with its network, its domain and its cells; no pickle, never half."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.files import atomic_path, read_arrays
from fiberscope.geometry.cells import Cells, Incidence, pool_layout
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.network.formats.program import describe, restore
from fiberscope.network.network import Network

VERSION = 1


def save_complex(path: str | os.PathLike[str], net: Network, domain: Domain, cells: Cells) -> None:
    """Write a complex to a ``.npz`` file; a file that was there is replaced only by a whole new one."""
    target = Path(os.fspath(path))
    if target.suffix != ".npz":
        raise InputError(f"{target}: expected a name that ends in .npz")
    made = describe(net, "float64")
    kind, sides = domain_parts(domain)
    header = {
        "format": "fiberscope.complex",
        "version": VERSION,
        "network": made.text,
        "domain": kind,
        "dimension": cells.dimension,
        "complete": cells.complete,
        "exact_decisions": cells.exact_decisions,
        "float_decisions": cells.float_decisions,
    }
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header)), "points": cells.points}
    arrays["vertex_signs"] = cells.vertex_signs
    extra = {"rays": cells.rays, "domain_signs": cells.domain_signs, "point_errors": cells.point_errors}
    for name, value in extra.items():
        if value is not None:
            arrays[name] = value
    for k, inside in enumerate(cells.boundary, start=1):
        arrays[f"indptr.{k}"], arrays[f"indices.{k}"] = inside.indptr, inside.indices
    arrays |= {f"domain.{name}": value for name, value in sides.items()}
    arrays |= {f"network.{name}": value for name, value in (made.parameters | made.constants).items()}
    with atomic_path(target) as part:
        np.savez_compressed(part, **arrays)


def read_complex(path: str | os.PathLike[str]) -> tuple[Network, Domain, Cells]:
    """Network, domain and cells of a complex that :func:`save_complex` wrote."""
    source = Path(os.fspath(path))
    try:
        arrays = read_arrays(source)
    except FileNotFoundError as error:
        raise InputError(f"{source}: no such file") from error
    except TooLargeError as error:
        raise TooLargeError(f"{source}: {error}") from error
    except (OSError, InputError) as error:
        raise InputError(f"{source}: expected a complex saved by fiberscope, got something else") from error
    try:
        header = json.loads(str(arrays["header"]))
        if header["format"] != "fiberscope.complex" or header["version"] != VERSION:
            raise InputError(f"{source}: expected version {VERSION}, got {header['version']!r}")
        return _rebuild(header, arrays)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"{source}: expected a complex saved by fiberscope, {error} is missing or damaged") from error


def _rebuild(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[Network, Domain, Cells]:
    own = {name.removeprefix("network."): value for name, value in arrays.items() if name.startswith("network.")}
    net = restore(header["network"], own)
    sides = {name.removeprefix("domain."): value for name, value in arrays.items() if name.startswith("domain.")}
    domain = domain_of_parts(header["domain"], int(header["dimension"]), sides)
    boundary = tuple(
        Incidence(arrays[f"indptr.{k}"], arrays[f"indices.{k}"]) for k in range(1, int(header["dimension"]) + 1)
    )
    points, signs = arrays["points"], arrays["vertex_signs"]
    _check(points, signs, boundary, net.num_signs)
    cells = Cells(
        points=points,
        vertex_signs=signs,
        boundary=boundary,
        rays=arrays.get("rays"),
        exact_decisions=int(header["exact_decisions"]),
        float_decisions=int(header["float_decisions"]),
        domain_signs=arrays.get("domain_signs"),
        complete=bool(header["complete"]),
        point_errors=arrays.get("point_errors"),
        pools=pool_layout(net.layout),
    )
    return net, domain, cells


def _check(points: Any, signs: Any, boundary: tuple[Incidence, ...], num_signs: int) -> None:
    """What the file claims must at least fit together, or a kernel would read beyond its arrays."""
    if signs.shape != (len(points), num_signs) or points.shape[1] != len(boundary):
        raise InputError(f"complex: shapes {points.shape} and {signs.shape} do not fit the network")
    below = len(points)
    for inside in boundary:
        ends = inside.indptr
        fits = len(ends) > 1 and ends[0] == 0 and (np.diff(ends) > 0).all() and ends[-1] == len(inside.indices)
        if not fits or inside.indices.min() < 0 or inside.indices.max() >= below:
            raise InputError("complex: the incidences of its cells do not fit together")
        below = len(inside)


def domain_parts(domain: Domain) -> tuple[str, dict[str, Any]]:
    """The kind of a domain and its arrays; an orthant and all of space have a dimension only."""
    match domain:
        case Box():
            return "box", {"low": domain.low, "high": domain.high}
        case Polytope():
            return "polytope", {"A": domain.A, "b": domain.b}
        case Plane():
            parts = {"origin": domain.origin, "u": domain.u, "v": domain.v}
            return "plane", {**parts, "low": domain.box.low, "high": domain.box.high}
        case Orthant():
            return "orthant", {}
        case Space():
            return "space", {}


def domain_of_parts(kind: str, dimension: int, sides: Mapping[str, Any]) -> Domain:
    """The domain of a file from what :func:`domain_parts` says of it; a KeyError where something is missing."""
    match kind:
        case "box":
            return Box(sides["low"], sides["high"])
        case "polytope":
            return Polytope(sides["A"], sides["b"])
        case "plane":
            return Plane(sides["origin"], sides["u"], sides["v"], Box(sides["low"], sides["high"]))
        case "orthant":
            return Orthant(dimension)
        case "space":
            return Space(dimension)
    raise InputError(f"expected a known kind of domain, got {kind!r}")
