"""The question where a model is linear: which part of its inputs is looked at, and the picture of it."""

from __future__ import annotations

from time import perf_counter

import numpy as np

import fiberscope as fs
from fiberscope.errors import InputError, OutOfTimeError, TooLargeError
from fiberscope.explorer.images import image_png, image_shape
from fiberscope.explorer.payload import MOST_REGIONS
from fiberscope.explorer.slices import corner_points, middle_part
from fiberscope.geometry.domains import Box, Domain, Plane
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.reporting.dossier import Dossier
from fiberscope.reporting.page import Section

MOST_WATCHED, WALK_STEPS = 1_000, 25
"""Parameters up to which a walk along the fiber is shown, and its steps."""

MOST_PARAMETERS = 4_000_000
"""Up to which a picture is tried: a layer's way into exact numbers takes one long step."""

SHRINKS = 6
"""How often a slice with too many regions is halved for the first part that is looked at."""


def where_is_it_linear(dossier: Dossier) -> Section:
    if dossier.net.num_parameters > MOST_PARAMETERS:
        raise TooLargeError(
            f"{dossier.net.num_parameters:,} parameters are above the {MOST_PARAMETERS:,} of a picture in a report; "
            "try fs.regions_along(net, X[:2]), or fs.regions(net, domain) on a small domain"
        )
    domain, text, call = _place(dossier)
    found, domain, shrunk = _complex(dossier, domain)
    points, labels = _on_picture(dossier, domain)
    view = fs.plot.explore(
        found,
        points=points,
        point_labels=labels,
        pictures=_corners(dossier, domain),
        full=dossier.full,
        walk=_walk(dossier),
    )
    certificate = found.verify(time_limit=max(1.0, min(20.0, dossier.run.seconds_left / 3)))
    word = {True: "the certificate holds", False: "THE CERTIFICATE FAILS", None: "the certificate is undecided"}
    if shrunk:
        words, code = _part_in_words(dossier, domain)
        text, call = text + words, f"{call}\n{code}"
    inner = len(found.facets) - int(found.facets.boundary.sum())
    return Section(
        "Where is it linear?",
        f"On {found.num_regions:,} regions of this {'slice' if isinstance(domain, Plane) else 'rectangle'}.",
        text,
        [
            ("vertices, edges, regions", ", ".join(f"{n:,}" for n in found.f_vector)),
            ("edges where the function bends", f"{int(found.facets.visible.sum()):,} of {inner:,}"),
            ("largest slope on the picture", f"{float(found.lipschitz.max()):.4g}"),
            *((f"certificate: {check.name}", check.text) for check in certificate.checks),
        ],
        call=f"{dossier.load}\n{call}\nfound = fs.regions(net, domain)\nfound.plot()",
        evidence=f"{word[certificate.ok]}; {found.structure.exact_decisions:,} decisions took exact arithmetic.",
        widget=view.fragment,
        data=found.to_dict(),
    )


def _part_in_words(dossier: Dossier, domain: Domain) -> tuple[str, str]:
    """Why only a part of the whole is shown, and the code that makes this part of it."""
    box = domain.box if isinstance(domain, Plane) else domain
    assert isinstance(box, Box)
    (left, low), (right, high) = box.low.tolist(), box.high.tolist()
    words = (
        f" The whole has more than {_most(dossier):,} regions, or more than the time allows: this is the middle of it, "
        f"from {left:.4g} to {right:.4g} and from {low:.4g} to {high:.4g}; a longer --time-limit makes it larger."
    )
    part = f"fs.Box({box.low.tolist()}, {box.high.tolist()})"
    plane = f"fs.Plane(domain.origin, domain.u, domain.v, {part})"
    return words, f"domain = {plane if isinstance(domain, Plane) else part}"


def _walk(dossier: Dossier) -> list[Network] | None:
    """Networks of the same fiber, where the parameters are few enough to be watched: neurons rescaled more and more."""
    net = dossier.net
    if not net.is_chain or len(net.widths) < 3 or net.num_parameters > MOST_WATCHED:
        return None
    rng = np.random.default_rng(dossier.seed)
    ways = [rng.uniform(-0.8, 0.8, size=n) for n in net.widths[1:-1]]
    try:
        return [fs.rescale(net, [np.exp(t * way) for way in ways]) for t in np.linspace(0.0, 1.0, WALK_STEPS)]
    except InputError:  # numbers at the ends of the floats
        return None


def _most(dossier: Dossier) -> int:
    return 10 * MOST_REGIONS if dossier.full else MOST_REGIONS


def _complex(dossier: Dossier, domain: Domain) -> tuple[fs.Complex, Domain, bool]:
    """The complex on the domain, or on a smaller part of it that has few enough regions."""
    begin, left = perf_counter(), dossier.seconds(2)  # for all attempts, so that the other questions have their time
    found, whole = _within(dossier, domain, left / 3)
    if whole:
        return found, domain, False
    left -= perf_counter() - begin
    return _small_part(dossier, domain, max(1.0, left))


def _within(dossier: Dossier, domain: Domain, seconds: float) -> tuple[fs.Complex, bool]:
    """The complex with its facets and maps, which may take longer than the regions, and whether the time was enough."""
    run = dossier.run.within(seconds)
    found = fs.regions(dossier.net, domain, limit=_most(dossier), time_limit=seconds)
    if dossier.pressed():
        raise KeyboardInterrupt  # which the engine took for the end of its own part
    if not found.complete:
        return found, False
    try:
        found.find_within(run, "bounded_maps", "facets")
    except OutOfTimeError:
        return found, False
    return found, True


def _small_part(dossier: Dossier, domain: Domain, seconds: float) -> tuple[fs.Complex, Domain, bool]:
    """The middle of a domain that is too large: a tiny part first, then larger ones as long as the time allows.

    Regions are as many as the area, and so is the work: each part says how large the next one may be.
    """
    share, kept = 2.0**-SHRINKS, None
    while True:
        begin = perf_counter()
        part = middle_part(domain, share)
        found, whole = _within(dossier, part, seconds)
        if whole:
            kept = (found, part, True)
        took = perf_counter() - begin
        seconds -= took
        room = min(_most(dossier) / max(1, found.num_regions), max(0.0, seconds) / max(took, 1e-3)) / 2
        grown = min(0.5, share * room**0.5)
        if not whole or grown < 1.5 * share:
            break
        share = grown
    if kept is None:
        raise TooLargeError(
            f"more than {_most(dossier):,} regions, or no time for them, even on a {2**SHRINKS}th of the slice; try a "
            "longer time limit, fs.estimate_regions(net, domain), or fs.regions_along(net, X[:2])"
        )
    return kept


def _place(dossier: Dossier) -> tuple[Domain, str, str]:
    """Where to look, why there, and the code that says so."""
    net, X = dossier.net, dossier.X
    if dossier.domain is not None:
        return dossier.domain, "The domain that was asked for.", f"domain = fs.{dossier.domain!r}"
    if net.in_size == 2 and X is None:
        return Box.cube(2), "The square from -1 to 1, since no data were given.", "domain = fs.Box.cube(2)"
    if net.in_size == 2 and X is not None:
        low, high = X.min(axis=0), X.max(axis=0)
        margin = 0.1 * np.where(high > low, high - low, 1.0)
        box = Box(low - margin, high + margin)
        code = f"domain = fs.Box({(low - margin).tolist()}, {(high + margin).tolist()})"
        return box, "The rectangle around the data, with a margin.", code
    if net.in_size < 2:
        raise InputError("regions: expected at least two inputs for a picture, got one; try fs.regions_along")
    if X is None or len(X) < 3:
        rng = np.random.default_rng(dossier.seed)
        three = rng.normal(size=(3, net.in_size))
        text = "A plane through three random inputs (normal, since no data were given)"
        code = (
            f"three = np.random.default_rng({dossier.seed}).normal(size=(3, {net.in_size}))\n"
            "domain = fs.Plane.through(*three)"
        )
        return Plane.through(*three), f"{text}, which stand at (0, 0), (1, 0) and (0, 1).", code
    rows, why = corner_points(X, dossier.classes)
    code = f"domain = fs.Plane.through(*X[{list(rows)}])"
    return Plane.through(*X[list(rows)]), f"A plane through three of the data: {why}.", code


def _on_picture(dossier: Dossier, domain: Domain) -> tuple[FloatArray | None, IntArray | None]:
    """Data in the plane of the picture, where the data have two coordinates."""
    if dossier.X is None or dossier.net.in_size != 2 or not isinstance(domain, Box):
        return None, None
    inside = ((domain.low <= dossier.X) & (domain.high >= dossier.X)).all(axis=1)
    classes = dossier.classes
    return dossier.X[inside], None if classes is None else classes[inside]


def _corners(dossier: Dossier, domain: Domain) -> list[tuple[tuple[float, float], bytes]]:
    shape = image_shape(dossier.net.input_shape)
    if dossier.X is None or shape is None or not isinstance(domain, Plane):
        return []
    low, high = float(dossier.X.min()), float(dossier.X.max())
    places = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    if not (domain.box.low <= 0).all() or not (domain.box.high >= 1).all():  # a part of it, without the data themselves
        (left, bottom), (right, top) = domain.box.low.tolist(), domain.box.high.tolist()
        places = [(left, bottom), (right, bottom), (left, top)]
    return [(place, image_png(domain.lift([place])[0], shape, low, high)) for place in places]
