"""Complexes of regions, by all engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.points import LARGEST
from fuzz.case import Area, Skipped, Undecided, expect, float_of
from fuzz.oracle.cells import Domain, regions, start_of
from fuzz.oracle.parameters import root_bounds
from fuzz.oracle.program import Program

Maps = dict[tuple[int, ...], tuple[tuple[Fraction, ...], ...]]


def compare(found: Any, wanted: Maps) -> None:
    """The set of regions, and the Euler characteristic."""
    if not found.complete:
        raise Undecided("not complete")
    signs = set(map(tuple, found.sign_vectors.tolist()))
    expect(found.num_regions == len(wanted), f"{found.num_regions} regions, exactly {len(wanted)}")
    expect(signs == set(wanted), f"other sign vectors: {sorted(signs ^ set(wanted))}")


def check_maps(found: Any, wanted: Maps) -> None:
    """The affine maps lie within their bounds, are never NaN, and infinite only beyond the floats."""
    forms = found.bounded_maps
    for signs, values, errors in zip(found.sign_vectors.tolist(), forms.value, forms.error, strict=True):
        exact = [x for row in wanted[tuple(signs)] for x in row]
        for got, error, truth in zip(values.ravel().tolist(), errors.ravel().tolist(), exact, strict=True):
            text = f"a coefficient is {got} with error {error}, exactly {float_of(truth)}"
            if math.isfinite(got):
                expect(error == math.inf or abs(Fraction(got) - truth) <= Fraction(error), text)
            else:
                expect(abs(truth) > LARGEST and (got > 0) == (truth > 0), text)


def count(net: Any, domain: Any, wanted: Maps) -> None:
    """``count_regions`` as well."""
    found = fs.count_regions(net, domain)
    expect(int(found) <= len(wanted), f"count_regions: {found!r} by {found.method}, exactly {len(wanted)}")
    if found.complete:
        expect(int(found) == len(wanted), f"count_regions: {found!r} by {found.method}, exactly {len(wanted)}")


# -- the plane


def make_planar(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((2, 2, 2, 3, 4))
    program = draw.program(rng, n, kinds="cpppprt", extreme=0.12)
    domain = draw.box(rng, 2) if n == 2 and rng.random() < 0.8 else draw.plane(rng, n)
    return program, domain, rng.random() < 0.25


def check_planar(program: Program, domain: Domain, certificate: bool) -> None:
    net, place = bridge.network(program), bridge.domain(domain)
    wanted = regions(program, domain)
    found = fs.regions(net, place)
    compare(found, wanted)
    expect(found.euler_characteristic == 1, f"Euler characteristic {found.euler_characteristic}")
    count(net, place, wanted)
    check_maps(found, wanted)
    if certificate:
        proof = found.verify()
        failed = [c.name for c in proof.checks if c.ok is False]
        expect(proof.ok is not False, f"verify() fails ({', '.join(failed)}) on a complex that is right")
        if proof.ok is None:
            raise Undecided("verify")


# -- the lattice


def make_lattice(rng: Random) -> tuple[Any, ...]:
    kind = rng.choice(("box1", "box3", "polytope", "polytope", "orthant", "space"))
    n = {"box1": 1, "box3": 3}.get(kind) or rng.choice((1, 2, 2, 3))
    pools = kind not in ("orthant", "space") or rng.random() < 0.05  # which are refused with pools today
    kinds = "cpprt" if pools else "ccrt"
    program = draw.program(rng, n, kinds=kinds, width=3, extreme=0.15, pools=pools)
    if kind.startswith("box"):
        return program, draw.box(rng, n)
    return program, draw.polytope(rng, n) if kind == "polytope" else (kind, n)


def check_lattice(program: Program, domain: Domain) -> None:
    if not start_of(domain):
        raise Skipped("no interior")
    net, place = bridge.network(program), bridge.domain(domain)
    wanted = regions(program, domain)
    count(net, place, wanted)
    compare(fs.regions(net, place), wanted)


# -- traversal


def make_traversal(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 2, 2, 3))
    pools = rng.random() < 0.05  # which are refused today
    program = draw.program(rng, n, kinds="ccprt" if pools else "ccrt", width=3, extreme=0.15, pools=pools)
    kind = rng.choice(("box", "box", "polytope", "orthant", "space"))
    if kind == "box":
        return program, draw.box(rng, n)
    return program, draw.polytope(rng, n) if kind == "polytope" else (kind, n)


def check_traversal(program: Program, domain: Domain) -> None:
    if not start_of(domain):
        raise Skipped("no interior")
    wanted = regions(program, domain)
    walk = fs.traverse(bridge.network(program), bridge.domain(domain))
    seen = [tuple(region.signs.tolist()) for region in walk]
    expect(len(set(seen)) == len(seen), "a region was visited twice")
    expect(set(seen) <= set(wanted), f"regions that do not exist: {sorted(set(seen) - set(wanted))}")
    if not walk.summary.complete:
        raise Undecided("not complete")
    expect(len(seen) == len(wanted), f"{len(seen)} regions (complete), exactly {len(wanted)}")


# -- facets


def make_facets(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 2, 2, 2, 3))
    program = draw.program(rng, n, kinds="cpppprt", width=4 if n < 3 else 3, extreme=0.1)
    return program, draw.box(rng, n) if rng.random() < 0.8 or n == 1 else draw.polytope(rng, n)


def check_facets(program: Program, domain: Domain) -> None:
    if not start_of(domain):
        raise Skipped("no interior")
    net, place = bridge.network(program), bridge.domain(domain)
    maps = regions(program, domain)
    found = fs.regions(net, place)
    compare(found, maps)
    check_maps(found, maps)
    facets = found.facets
    signs = [tuple(s) for s in found.sign_vectors.tolist()]
    for k, (a, b) in enumerate(facets.regions.tolist()):
        if b < 0:
            continue
        one, two = maps[signs[a]], maps[signs[b]]
        jump = [[q - p for p, q in zip(x[:-1], y[:-1], strict=True)] for x, y in zip(one, two, strict=True)]
        bends = any(map(any, jump))
        expect(bool(facets.visible[k]) == bends, f"facet {k} visible: {facets.visible[k]}, exactly {bends}")
        if bends:
            _check_weight(facets, k, jump)


def _check_weight(facets: Any, k: int, jump: Sequence[Sequence[Fraction]]) -> None:
    """``A_2 - A_1 = w n^T``: every row is a multiple of the unit normal, so its length is the weight."""
    normal = [Fraction(x) for x in facets.normal[k].tolist()]
    error = float(facets.weight_error[k])
    if not error < float("inf"):
        return
    for row, weight in zip(jump, facets.weight[k].tolist(), strict=True):
        if not math.isfinite(weight):
            return  # beyond the range of floats, as documented
        along = sum((g * n for g, n in zip(row, normal, strict=True)), Fraction(0))
        low, high = root_bounds(sum((g * g for g in row), Fraction(0)))
        if along < 0:
            low, high = -high, -low
        off = max(low - Fraction(weight), Fraction(weight) - high, Fraction(0))
        expect(off <= Fraction(error), f"weight {weight} of facet {k}: off by {float(off)}, stated error {error}")


AREAS = (
    Area("planar", make_planar, check_planar),
    Area("lattice", make_lattice, check_lattice),
    Area("traversal", make_traversal, check_traversal),
    Area("facets", make_facets, check_facets),
)
