"""The questions of a report, each a function from a model and its data to one section of the page.

A question that cannot be asked raises a named error; the report turns it into a section that says so and what to try.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.geometry.engines.planar.flips import WIDE
from fiberscope.network.inspection import Inspection
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.network.roles import Roles, roles
from fiberscope.plot.style import figure_png
from fiberscope.reporting.dossier import Dossier, on_some
from fiberscope.reporting.graph import neuron_strips, program_svg
from fiberscope.reporting.page import Mark, Section

MOST_DISTANCES = 1_000
"""Points whose distance to the boundary is asked for."""


def warm_up(wide: bool = False, other: bool = False) -> None:
    """Let what is compiled on its first use be compiled, so that no answer's time contains it.

    ``wide`` says that layers are wide enough for updates from vertex to vertex, ``other`` that equality will be asked.
    """
    tiny = Network.random((2, 2, 1), seed=0)
    if wide:
        fs.count_regions(Network.random((2, WIDE, 2, 1), seed=0), Box.cube(2))
    if other:
        fs.equivalent(tiny, Network.random((2, 3, 1), seed=1), Box.cube(2), time_limit=30.0)
    fs.regions(tiny, Box.cube(2)).verify()
    fs.functional_dimension(tiny, [[0.5, 0.25]])
    fs.boundary_distance(tiny, [[0.5, 0.25]])


def what_is_it_made_of(dossier: Dossier) -> Section:
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


def what_do_its_neurons_do(dossier: Dossier) -> Section:
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


def how_far_are_the_data(dossier: Dossier) -> Section:
    assert dossier.X is not None
    ask = partial(fs.boundary_distance, dossier.net)
    found, count = on_some(ask, dossier.X[:MOST_DISTANCES], dossier.seconds(3))
    X = dossier.X[:count]
    finite = found.distance[np.isfinite(found.distance)]
    if not finite.size:
        raise InputError("distances: expected a network with boundaries, got one that is affine")
    nearest, on = int(found.distance.argmin()), int((found.distance == 0).sum())
    which = "X" if len(X) == len(dossier.X) else f"X[:{len(X)}]"
    text = (
        "The distance from a point to the boundary of its linear region. A shorter step in any direction changes no "
        "neuron's sign, so the network is one affine map there."
    )
    if on:
        text += (
            f" {on:,} of the points lie on a boundary themselves, as images do whose background ties in a pooling "
            "window; fs.visible_boundary_distance(net, X) asks for boundaries at which the function bends."
        )
    # a logarithmic picture has no place for zero
    picture = figure_png(fs.plot.distance_histogram(found)) if (finite > 0).any() else None
    return Section(
        "How far are the data from the next boundary?",
        f"{float(np.median(finite)):.4g} in the median, {float(finite.min()):.2g} at the least.",
        text,
        [
            ("points", f"{len(X):,}"),
            ("points on a boundary", f"{on:,}"),
            ("quartiles", ", ".join(f"{q:.4g}" for q in np.quantile(finite, [0.25, 0.5, 0.75]))),
            ("nearest", f"row {nearest}, by entry {int(found.neuron[nearest])} of the sign vector"),
        ],
        []
        if picture is None
        else [("Distances of the data to the boundary of their region, where not zero.", picture)],
        call=f"{dossier.load}\nfs.boundary_distance(net, {which})",
        evidence="certified signs, and distances with proven bounds.",
        data={"distance": found.distance.tolist()},
    )
