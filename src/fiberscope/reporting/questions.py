"""The questions of a report, each a function from a model and its data to one section of the page.

A question that cannot be asked raises a named error; the report turns it into a section that says so and what to try.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np

import fiberscope as fs
from fiberscope.errors import InputError, TooLargeError
from fiberscope.explorer.images import image_png, image_shape
from fiberscope.explorer.payload import MOST_REGIONS
from fiberscope.explorer.slices import corner_points, middle_part
from fiberscope.geometry.domains import Box, Domain, Plane
from fiberscope.network.inspection import Inspection
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.network.roles import Roles, roles
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.plot.style import figure_png
from fiberscope.reporting.against import is_the_other_equal
from fiberscope.reporting.dossier import Dossier, on_some
from fiberscope.reporting.graph import neuron_strips, program_svg
from fiberscope.reporting.page import Mark, Section

MOST_ENTRIES = 4_000_000
"""Entries of the Jacobian up to which the functional dimension is asked for, and so many points are taken."""

MOST_DISTANCES = 1_000
"""Points whose distance to the boundary is asked for."""

MOST_HIDDEN = 128
"""Hidden neurons up to which the fiber is asked for: its theorems look at many submatrices."""

MOST_WATCHED, WALK_STEPS = 1_000, 25
"""Parameters up to which a walk along the fiber is shown, and its steps."""

SHRINKS = 5
"""How often a slice with too many regions is made smaller by half."""


Question = Callable[[Dossier], Section]


def questions(dossier: Dossier) -> list[tuple[str, str, Question]]:
    """Name, title and function of every question that the dossier can be asked."""
    asked: list[tuple[str, str, Question]] = [
        ("program", "What is it made of?", _program),
        ("neurons", "What do its neurons do?", _neurons),
        ("regions", "Where is it linear?", _regions),
        ("dimension", "How many directions of the parameters matter?", _dimension),
        ("fiber", "Which other parameters are the same function?", _fiber),
    ]
    if dossier.X is not None:
        asked.append(("distances", "How far are the data from the next boundary?", _distances))
    if dossier.against is not None:
        asked.append(("against", "Is the other model the same function?", is_the_other_equal))
    return asked


def warm_up(other: bool = False) -> None:
    """Let what is compiled on its first use be compiled, so that no answer's time contains it.

    ``other`` says that equality will be asked.
    """
    tiny = Network.random((2, 2, 1), seed=0)
    if other:
        fs.equivalent(tiny, Network.random((2, 3, 1), seed=1), Box.cube(2), time_limit=30.0)
    fs.regions(tiny, Box.cube(2)).verify()
    fs.functional_dimension(tiny, [[0.5, 0.25]])
    fs.boundary_distance(tiny, [[0.5, 0.25]])


def _program(dossier: Dossier) -> Section:
    found = fs.inspect(dossier.net, points=0)
    rows = [
        (
            str(index),
            layer.kind,
            " x ".join(map(str, layer.shape)),
            f"{layer.parameters:,}" if layer.parameters else "",
            "" if layer.norm is None else f"{layer.norm:.4g}",
            "" if layer.largest is None else f"{layer.largest:.4g}",
        )
        for index, layer in enumerate(found.layers, start=1)
    ]
    switches = [k for k, node in enumerate(dossier.net.program) if isinstance(node, PiecewiseLinear)]
    idle = [sum(role in _IDLE for role in own) for _, own in _roles(found, None)]
    marks = {k: n for k, n in zip(switches, idle, strict=True) if n} if len(switches) == len(idle) else {}
    return Section(
        "What is it made of?",
        f"{found.num_parameters:,} parameters in {len(found.layers)} nodes, {found.num_hidden:,} hidden neurons.",
        "The program as it was loaded; batch norms, convolutions and skip connections are kept as they are."
        + (" A red number counts neurons of a layer that are dead, linear or duplicates." if marks else ""),
        rows,
        head=("", "kind", "output", "parameters", "norm", "largest entry"),
        call=f"{dossier.load}\nfs.inspect(net)",
        evidence="read off the file.",
        widget=program_svg(dossier.net, found.layers, marks),
        data=found.to_dict(),
    )


def _neurons(dossier: Dossier) -> Section:
    found = fs.inspect(dossier.net, points=0)
    shared = {layer: sum(len(group) for group in groups) for layer, groups in found.coincident}
    net, X = dossier.net, dossier.X
    seen, rows_seen = (None, 0) if X is None else on_some(partial(roles, net), X, dossier.seconds(5))
    on_data = None if seen is None else seen.per_layer()
    head = ["layer", "neurons", "dead", "linear", "on shared hyperplanes"]
    head += ["dead on the data", "linear on the data", "switching on the data"] if on_data else []
    rows = []
    for index, row in enumerate(found.structural.per_layer()):
        cells: list[str | Mark] = [str(row["layer"]), f"{row['width']:,}"]
        cells += [_idle(row["dead"]), _idle(row["linear"]), _idle(shared.get(row["layer"], 0))]
        if on_data:
            cells += [
                _idle(on_data[index]["dead"]),
                f"{on_data[index]['linear']:,}",
                f"{on_data[index]['switching']:,}",
            ]
        rows.append(cells)
    call = f"{dossier.load}\nfs.inspect(net).structural"
    some = "" if X is None or rows_seen == len(X) else f" The data here are the first {rows_seen:,} of {len(X):,} rows."
    return Section(
        "What do its neurons do?",
        _neurons_in_words(found, on_data),
        "A dead neuron is off for every input, a linear one never switches: both can be removed without changing "
        "anything. Neurons on one hyperplane can be merged. What is said of all inputs is proven from the weights "
        f"layer by layer; there may be more idle neurons than that.{some}",
        rows,
        head=head,
        call=call if X is None else f"{call}\nfs.roles(net, {'X' if rows_seen == len(X) else f'X[:{rows_seen}]'})",
        evidence="certified signs; nothing is sampled but the data.",
        widget=neuron_strips(_roles(found, seen)),
        data={"for_every_input": found.structural.to_dict(), "on_the_data": on_data},
    )


_IDLE = ("dead", "linear", "duplicate")


def _roles(found: Inspection, seen: Roles | None) -> list[tuple[str, list[str]]]:
    """The role of every neuron, layer by layer: the gravest that is known."""
    every = found.structural
    shared = {(layer, n) for layer, groups in found.coincident for group in groups for n in group}
    layers = []
    for layer in np.unique(every.layers).tolist():
        names = []
        for place, k in enumerate(np.flatnonzero(every.layers == layer).tolist()):
            known = (
                ("dead", bool(every.dead[k])),
                ("linear", bool(every.linear[k])),
                ("duplicate", (layer, place) in shared),
                ("silent", seen is not None and bool(seen.dead[k])),
                ("steady", seen is not None and bool(seen.linear[k])),
            )
            names.append(next((name for name, holds in known if holds), "switching"))
        layers.append((f"layer {layer}", names))
    return layers


def _idle(count: int) -> str | Mark:
    return Mark(f"{count:,}", kind="no") if count else "0"


def _neurons_in_words(found: Inspection, on_data: list[dict[str, int]] | None) -> str:
    dead, linear = int(found.structural.dead.sum()), int(found.structural.linear.sum())
    words = f"{dead:,} {'is' if dead == 1 else 'are'} dead and {linear:,} linear for every input"
    if on_data is None:
        return f"{words}, of {found.num_hidden:,}."
    return f"{words}; {sum(row['dead'] for row in on_data):,} of {found.num_hidden:,} never fire on the data."


# -- regions


def _regions(dossier: Dossier) -> Section:
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
        text += f" The whole slice has more than {_most(dossier):,} regions: this is the middle part of it."
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
    left = dossier.seconds(2)  # for all attempts, so that the other questions have their time
    for shrinks in range(SHRINKS + 1):
        begin = perf_counter()
        found = fs.regions(dossier.net, domain, limit=_most(dossier), time_limit=max(1.0, left / 3))
        left -= perf_counter() - begin
        if found.complete:
            return found, domain, shrinks > 0
        domain = middle_part(domain)
    raise TooLargeError(
        f"more than {_most(dossier):,} regions, or no time for them, on every part of the slice that was tried; try a "
        "longer time limit, fs.count_regions, fs.estimate_regions or fs.regions_along"
    )


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
    return [(place, image_png(domain.lift([place])[0], shape, low, high)) for place in places]


# -- parameters


def _dimension(dossier: Dossier) -> Section:
    net, X = dossier.net, dossier.X
    size = net.num_parameters * net.out_size
    most = max(1, MOST_ENTRIES // size)
    every = X is None and net.in_size <= 3 and net.num_parameters <= 600
    drawn = X is None and not every
    if X is None and drawn:
        enough = -(-3 * net.num_parameters // (2 * net.out_size))  # half as many rows again as columns
        if enough > most:
            raise TooLargeError(
                f"{net.num_parameters:,} parameters need more random inputs than a report draws; give data "
                "(--data X.npy), or ask fs.functional_dimension(net, X)"
            )
        X = np.random.default_rng(dossier.seed).normal(size=(enough, net.in_size))
    if X is not None and size > MOST_ENTRIES:
        raise TooLargeError(
            f"one point of {net.num_parameters:,} parameters and {net.out_size} outputs is above what a report asks; "
            "try fs.functional_dimension(net, X[:10])"
        )
    if X is None:
        some, found = None, fs.functional_dimension(net, seed=dossier.seed)
    else:
        ask = partial(fs.functional_dimension, net, seed=dossier.seed)
        found, most = on_some(ask, X[:most], dossier.seconds(3))
        some = X[:most]
    value = found.exact if found.exact is not None else found.lower
    least = "" if found.exact is not None else "At least "
    kind = "random inputs" if drawn else "data points"
    on = "over all batches" if some is None else f"on {len(some):,} {kind}"
    rows = [
        ("exact rank", "not proven" if found.exact is None else str(found.exact)),
        ("proven lower bound", str(found.lower)),
        ("numerical rank in float64", str(found.numerical)),
        ("rank in float32, the rule of the literature", str(found.paper)),
        *(
            (f"bound: {b.name}", f"{b.value}{'' if b.holds else ' (its assumptions are not met)'}")
            for b in found.bounds
        ),
    ]
    what = "X" if X is None or len(X) <= most else f"X[:{most}]"
    code = f"\nX = np.random.default_rng({dossier.seed}).normal(size={X.shape})" if X is not None and drawn else ""
    return Section(
        "How many directions of the parameters matter?",
        f"{least}{value} of {net.num_parameters:,} {on}.",
        "The rank of the Jacobian of the outputs with respect to the parameters. Directions in its kernel change "
        "nothing to first order; rescaling neurons is one reason, idle neurons are another.",
        rows,
        [("Singular values, the two cut-offs, and the exact rank.", figure_png(fs.plot.spectrum(found)))],
        call=f"{dossier.load}{code}\nfs.functional_dimension(net{'' if some is None else ', ' + what})",
        evidence=_why_rank(found.exact, found.failure_probability, found.certified),
        data=found.to_dict(),
    )


def _why_rank(exact: int | None, chance: float | None, certified: bool) -> str:
    if certified:
        return "exact arithmetic modulo primes, and a proven upper bound that meets it."
    if exact is None or chance is None:
        return "a lower bound in exact arithmetic; larger batches may show more."
    return f"exact arithmetic modulo primes; the chance that it is too small is at most {chance:.1g}."


def _fiber(dossier: Dossier) -> Section:
    if dossier.net.num_hidden > MOST_HIDDEN:
        raise TooLargeError(
            f"{dossier.net.num_hidden:,} hidden neurons are above the {MOST_HIDDEN} that a report asks about; try "
            "fs.identifiability(net) or fs.fiber(net), which may take minutes"
        )
    found = fs.fiber(dossier.net)
    answer = found.identifiability
    word = {
        True: "None but permutations and rescalings: the parameter is identifiable.",
        False: "More than permutations and rescalings: the parameter is not identifiable.",
        None: "Permutations and rescalings of neurons; whether there are others is undecided.",
    }
    least = "" if found.dimension_exact else "at least "
    rows = [
        ("symmetries of the architecture", _symmetries(dossier.net)),
        ("dimension, modulo rescaling", "unknown" if found.dimension is None else f"{least}{found.dimension}"),
        ("theorem", answer.theorem),
        *(("reason", text) for text in answer.reasons[:8]),
        *(("assumes", text) for text in answer.assumptions[:4]),
        *((f"component: {part.kind}", part.text or part.theorem) for part in found.components[:8]),
    ]
    return Section(
        "Which other parameters are the same function?",
        word[answer.identifiable],
        "The fiber of a parameter is the set of all parameters of the architecture with the same function.",
        rows,
        open=answer.identifiable is None,
        call=f"{dossier.load}\nfs.fiber(net)",
        evidence="the theorem's assumptions were checked at this parameter."
        if answer.identifiable is not None
        else "no theorem decides it.",
        data=found.to_dict(),
    )


def _symmetries(net: Network) -> str:
    """What every network of the architecture shares with others, in words."""
    if not net.is_chain:
        return "permutations and positive rescalings of neurons, as far as skip connections and pools allow"
    hidden = net.widths[1:-1]
    orders = " x ".join(f"{n}!" for n in hidden)
    return f"{orders} permutations, and a positive factor for each of {sum(hidden):,} neurons" if hidden else "none"


# -- data


def _distances(dossier: Dossier) -> Section:
    assert dossier.X is not None
    ask = partial(fs.boundary_distance, dossier.net)
    found, count = on_some(ask, dossier.X[:MOST_DISTANCES], dossier.seconds(3))
    X = dossier.X[:count]
    finite = found.distance[np.isfinite(found.distance)]
    if not finite.size:
        raise InputError("distances: expected a network with boundaries, got one that is affine")
    nearest = int(found.distance.argmin())
    which = "X" if len(X) == len(dossier.X) else f"X[:{len(X)}]"
    return Section(
        "How far are the data from the next boundary?",
        f"{float(np.median(finite)):.4g} in the median, {float(finite.min()):.2g} at the least.",
        "The distance from a point to the boundary of its linear region. A shorter step in any direction changes no "
        "neuron's sign, so the network is one affine map there.",
        [
            ("points", f"{len(X):,}"),
            ("quartiles", ", ".join(f"{q:.4g}" for q in np.quantile(finite, [0.25, 0.5, 0.75]))),
            ("nearest", f"row {nearest}, by entry {int(found.neuron[nearest])} of the sign vector"),
        ],
        [("Distances of the data to the boundary of their region.", figure_png(fs.plot.distance_histogram(found)))],
        call=f"{dossier.load}\nfs.boundary_distance(net, {which})",
        evidence="certified signs, and distances with proven bounds.",
        data={"distance": found.distance.tolist()},
    )
