"""What of the fold-set paper carries over to convolutional, residual and recurrent networks, and to leaky ReLU?

The paper proves its lemmas for plain chains of ReLU layers, says that almost all of the proof carries over to leaky
ReLU, and hypothesises (section 7) that the analysis extends to convolutional and recurrent networks. Here small
networks of each kind are trained beside a chain with as many units per layer. They have three or four inputs, so that
their complexes are exact in all dimensions, no slices. Every ingredient of the paper is looked at on its own: the
kinks of all units, which of them show in the function, who bends at whom, and what chains of bends prove.

A layer of a residual network is the hidden part of a block; that of a recurrent network is one step of time, which
reads its own inputs, with weights that all steps share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import influence, neuron_forms
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box
from fiberscope.geometry.folds.conditions import (
    distinct_functions,
    no_zero_optimum,
    passing_patterns,
    ranks_are_maximal,
)
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray
from fiberscope.studies._asymmetric_runs import Recipe, train_modules
from fiberscope.studies._small_networks import KERNEL, KINDS, build, hiding, waves
from fiberscope.studies.dependency_graphs import Folds, columns, look
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"networks": 8, "epochs": [0, 20, 100]},
    "paper": {"networks": 15, "epochs": [0, 20, 100, 300]},
}
SHAPES = [[4, 2, 4], [3, 3, 3], [3, 3, 6]]
"""Inputs, hidden layers, units of each: at and beyond the widths of the theorem, which do not increase."""

OTHERS = KINDS[1:]
DOMAINS = {"data": 1.0, "wide": 2.0}
"""Half the edge of the cube where the fold-set is looked at: that of the data, and one twice as wide."""

CONSTRUCTED = "constructed"
CONDITIONS = ("optimum_free", "largest_ranks", "distinct")
"""The three conditions of a general network; the second is about chains of matrices."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per kind and shape, and one for the network that was made by hand."""
    sizes = SIZES[scale] | {"shapes": SHAPES} | {name: value for name, value in options.items() if value is not None}
    if not isinstance(sizes["networks"], int) or sizes["networks"] < 1:
        raise InputError(f"option networks: expected a positive integer, got {sizes['networks']!r}")
    epochs = sorted(set(sizes["epochs"]))
    if not epochs or not all(isinstance(epoch, int) for epoch in epochs) or epochs[0] < 0 or epochs[-1] < 1:
        raise InputError(f"option epochs: expected times from 0 up, got {sizes['epochs']!r}")
    for shape in sizes["shapes"]:
        if len(shape) != 3 or any(not isinstance(n, int) or n < 1 for n in shape):
            raise InputError(f"option shapes: expected inputs, layers and units like [4, 2, 8], got {shape!r}")
        inputs, layers, units = shape
        if inputs < KERNEL or inputs % layers or units % inputs:
            raise InputError(
                f"option shapes: expected layers that divide the inputs, which divide the units, got {shape!r}"
            )
    common = {"epochs": epochs, "networks": sizes["networks"]}
    tasks = [{"kind": kind, "shape": list(shape), **common} for shape in sizes["shapes"] for kind in KINDS]
    return [{"kind": CONSTRUCTED}, *tasks]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network, time and domain."""
    settings = task.settings
    if settings["kind"] == CONSTRUCTED:
        module, box = hiding()
        about = {"kind": "convolutional", "shape": CONSTRUCTED, "hidden_layers": 2, "network": 0, "epoch": 0}
        return [{**about, "loss": None, "domain": CONSTRUCTED, **measure(look(load(module, input_shape=(4,)), box))}]
    inputs, layers, units = settings["shape"]
    seeds = [(task.seed + index) % 2**31 for index in range(settings["networks"])]
    starts = [build(settings["kind"], inputs, layers, units, seed) for seed in seeds]
    data, epochs = waves(inputs), settings["epochs"]
    kept = train_modules(starts, data, seeds, Recipe(epochs[-1], 50, lr=0.01, weight_decay=0.0), epochs)
    X, y = torch.from_numpy(np.array(data.inputs)), torch.from_numpy(np.array(data.targets))
    rows = []
    for epoch in epochs:
        for index, module in enumerate(kept[epoch]):
            with torch.no_grad():
                loss = float(((module(X) - y) ** 2).mean())
            about = {
                "kind": settings["kind"],
                "shape": f"{inputs} inputs, {layers} x {units}",
                "hidden_layers": layers,
                "network": index,
                "epoch": epoch,
                "loss": loss,
            }
            net = load(module, input_shape=(inputs,))
            for domain, half in DOMAINS.items():
                folds = look(net, Box.cube(inputs, -half, half))
                asked = _general(folds.complex) if domain == "wide" else dict.fromkeys(CONDITIONS)
                rows.append({**about, "domain": domain, **measure(folds), **asked})
    return rows


# -- what is measured --------------------------------------------------------------------------------------------------


def measure(folds: Folds) -> dict[str, Any]:
    """What the fold-set of one network shows."""
    kinks, facets = folds.kinks, folds.complex.facets
    size = folds.size(kinks.facets)
    hidden = np.setdiff1d(kinks.facets, folds.shown.facets)
    return {
        **columns(folds),
        "units_order": kinks.order,
        "units_are_surface": kinks.is_surface,
        "hidden_fraction": folds.size(hidden) / size if size else 0.0,
        "cancelled_facets": int((facets.path & ~facets.visible).sum()),
        "bent_fraction": _bent(folds),
        "stranger_bends": _strangers(folds),
        "filters_identified_fraction": _filters(folds),
        **_orientation(folds),
    }


def _bent(folds: Folds) -> float | None:
    """The part of the later units with kinks in the domain whose kinks lie in more than one hyperplane."""
    kinks, width = folds.kinks, folds.first[0].width
    planes: dict[int, set[int]] = {}
    for row, plane in zip(kinks.facets.tolist(), kinks.facet_hyperplane.tolist(), strict=True):
        for unit in kinks.complex.facets.neurons[row].tolist():
            if unit >= width:
                planes.setdefault(unit, set()).add(plane)
    return sum(len(found) > 1 for found in planes.values()) / len(planes) if planes else None


def reach(net: Network) -> BoolArray:
    """Whether a unit (row) can act on another (column) at all, over weights that are not zero."""
    return influence(net, np.eye(net.num_signs, dtype=bool), np.ones((net.num_signs, net.num_signs), dtype=bool))[0]


def _strangers(folds: Folds) -> int:
    """Bending edges between pieces of units of which none acts on the other."""
    acts, graph = reach(folds.complex.net), folds.graphs[1]
    units = [list(piece.neurons) for piece in folds.kinks.pieces]
    return sum(not acts[np.ix_(units[a], units[b])].any() for a, b in graph.edges if graph[a][b]["bends"])


def _filters(folds: Folds) -> float | None:
    """The part of the first layer's filters of which at least one position is identified; None without filters."""
    net, seen = folds.complex.net, folds.first[0]
    shape = net.switches[0].shape
    if len(shape) < 2:
        return None
    return len({unit // shape[-1] for unit in seen.identified}) / shape[0]


def _orientation(folds: Folds) -> dict[str, Any]:
    """Visible facets of single first-layer units, and at how many the gradient says which side is the active one.

    With independent rows the gradient has one coefficient for each unit of the first layer. The paper: on the inactive
    side that of the unit vanishes. With slopes it is smaller there, by the factor of the slope: the larger one wins.
    """
    complex, width = folds.complex, folds.first[0].width
    signs = complex.sign_vectors
    forms = neuron_forms(complex.net, signs[np.zeros(width, dtype=int)], np.arange(width)).value[:, :-1]
    if width > complex.net.in_size or np.linalg.matrix_rank(forms) < width:
        return {"oriented_facets": 0, "oriented_right": 0}
    coefficients = np.abs(complex.affine_maps[0][:, 0] @ np.linalg.pinv(forms))
    total = right = 0
    for facet in folds.shown.facets.tolist():
        makers = complex.facets.neurons[facet]
        if len(makers) == 1 and makers[0] < width:
            unit, sides = int(makers[0]), complex.facets.regions[facet]
            positive, negative = sorted(sides.tolist(), key=lambda region: -int(signs[region, unit]))
            total += 1
            right += bool(coefficients[positive, unit] > coefficients[negative, unit])
    return {"oriented_facets": total, "oriented_right": right}


def _general(complex: Complex) -> dict[str, Any]:
    """The three conditions; ranks of masked products for chains, convolutions written as matrices."""
    net, signs = complex.net, complex.sign_vectors
    chain = net.as_mlp() if len(net.switches[0].shape) > 1 else net
    answers = (
        no_zero_optimum(complex),
        ranks_are_maximal(chain, passing_patterns(net, signs), "occur"),
        distinct_functions(net, signs),
    )
    return {name: answer.holds for name, answer in zip(CONDITIONS, answers, strict=True)}


# -- the claims --------------------------------------------------------------------------------------------------------


def summarise(table: Table) -> Table:
    """Means over the networks, for every kind, shape, domain and time."""
    names = (
        "loss",
        "regions",
        "transparent",
        "is_surface",
        "crossing_fraction",
        "visible_fraction",
        "hidden_fraction",
        "bent_fraction",
        "longest_chain",
        "first_straight_fraction",
        "first_identified_fraction",
        "filters_identified_fraction",
        "first_hidden_chain_fraction",
        "well_connected",
    )
    rows = []
    for key, part in table.groups("kind", "shape", "domain", "epoch").items():
        about = dict(zip(("kind", "shape", "domain", "epoch"), key, strict=True))
        rows.append({**about, "networks": len(part), **{name: _mean(part, name) for name in names}})
    return Table.of(rows)


def _mean(part: Table, name: str) -> float | None:
    return None if set(part.column(name)) == {None} else part.mean(name)


def _rows(table: Table, kind: str, **where: Any) -> Table:
    found = table.where(kind=kind, **where)
    if not len(found):
        raise InputError(f"expected {kind} networks, got none")
    return found


def _trained(table: Table, kind: str, domain: str) -> Table:
    return _rows(table, kind, domain=domain, epoch=max(table.column("epoch")))


def unit_surfaces(table: Table) -> Finding:
    """Corollary A.1, in all rows."""
    good = [row["units_are_surface"] and row["units_order"] <= row["hidden_layers"] for row in table.dicts()]
    return Finding(all(good), f"{sum(good)} of {len(good)} unions of kinks are surfaces of no higher order than layers")


def general(kind: str) -> Callable[[Table], Finding]:
    """Of networks as they are drawn, where one failure refutes *almost all*; what has no meaning decides nothing."""

    def check(table: Table) -> Finding:
        drawn, later = _rows(table, kind, domain="wide", epoch=0), _trained(table, kind, "wide")
        texts: list[str] = []
        answers: list[bool | None] = []
        for name, words in zip(
            CONDITIONS, ("no optimum of value zero", "largest ranks", "distinct functions"), strict=True
        ):
            at_start, trained = (part.column(name) for part in (drawn, later))
            if None in at_start:
                answers.append(None)
                texts.append(f"{words}: not asked, there is no chain of matrices")
                continue
            answers.append(all(at_start))
            kept = f"{sum(at_start)} of {len(at_start)} untrained, {sum(map(bool, trained))} of {len(trained)} trained"
            texts.append(f"{words}: {kept}")
        verdict = False if False in answers else None if None in answers else True
        return Finding(verdict, "; ".join(texts))

    return check


def all_visible(kind: str) -> Callable[[Table], Finding]:
    """Lemma 2 where the network is transparent: every kink of every unit shows."""

    def check(table: Table) -> Finding:
        part, trained = _rows(table, kind), _trained(table, kind, "wide")
        clear = part.where(transparent=True)
        control = _trained(table, "chain", "wide")
        text = (
            f"of trained networks {trained.mean('hidden_fraction'):.1%} of the kinks are hidden on the wide cube "
            f"(chains: {control.mean('hidden_fraction'):.1%}), {trained.mean('transparent'):.0%} are transparent"
        )
        if not len(clear):
            return Finding(None, f"no transparent network; {text}")
        whole = sum(hidden == 0 for hidden in clear.column("hidden_fraction"))
        made = " (one was made by hand)" if len(clear.where(domain=CONSTRUCTED)) else ""
        return Finding(whole == len(clear), f"{whole} of {len(clear)} transparent ones{made} show every kink; {text}")

    return check


def only_paths_hide(table: Table) -> Finding:
    """The reading that needs no layers: a kink hides only where no active path leads on from it."""
    lost = {kind: sum(n > 0 for n in _rows(table, kind).column("cancelled_facets")) for kind in KINDS}
    texts = [f"{kind}: {n} of {len(_rows(table, kind))}" for kind, n in lost.items()]
    return Finding(not any(lost.values()), "fold-sets with a hidden kink that has an active path: " + ", ".join(texts))


def chains_bound_layers(table: Table) -> Finding:
    """Lemma 3 for bends, on the kinks of all units; and the stronger form that a unit bends at what acts on it."""
    late, strange = ([n > 0 for n in table.column(name)] for name in ("bending_violations", "stranger_bends"))
    stated = sum(n > 0 for n in table.column("lemma_violations"))
    text = (
        f"{sum(late)} of {len(table)} sets of kinks have a chain of bends that puts a unit into a wrong layer, "
        f"{sum(strange)} a bend at a unit that does not act on the one that bends; with edges that only meet, {stated}"
    )
    return Finding(not any(late) and not any(strange), text)


def identified(kind: str) -> Callable[[Table], Finding]:
    """No full hyperplane of a later layer has a chain that puts it into the first; and how much of it is found."""

    def check(table: Table) -> Finding:
        part, shares = _rows(table, kind), []
        wrong = sum(n > 0 for n in part.column("wrong_pieces"))
        for domain in DOMAINS:
            own, control = (_trained(table, name, domain) for name in (kind, "chain"))
            mean = own.mean("first_identified_fraction")
            shares.append(f"{mean:.0%} on the {domain} cube (chains: {control.mean('first_identified_fraction'):.0%})")
        text = f"{wrong} of {len(part)} fold-sets mistake a later unit; of the trained first layers chains identify "
        text += " and ".join(shares)
        if kind == "convolutional":
            filters = _trained(table, kind, "wide").mean("filters_identified_fraction")
            text += f"; of their filters {filters:.0%} on the wide one"
        return Finding(wrong == 0, text)

    return check


def orientation(kind: str) -> Callable[[Table], Finding]:
    """Whether the larger coefficient is on the active side, at every facet where the first layer's rows allow it."""

    def check(table: Table) -> Finding:
        total, right = (sum(_rows(table, kind).column(name)) for name in ("oriented_facets", "oriented_right"))
        control, good = (sum(_rows(table, "chain").column(name)) for name in ("oriented_facets", "oriented_right"))
        if not total:
            return Finding(None, "no facet of a first layer with independent rows")
        text = (
            f"the larger coefficient is on the active side at {right} of {total} facets (chains: {good} of {control})"
        )
        return Finding(right == total, text)

    return check


def not_well_connected(table: Table) -> Finding:
    """As for chains: less than half of the trained networks of every kind, on both cubes."""
    shares = {kind: [_trained(table, kind, d).mean("well_connected") for d in DOMAINS] for kind in KINDS}
    texts = [f"{kind}: {data:.0%} and {wide:.0%}" for kind, (data, wide) in shares.items()]
    flat = [share for pair in shares.values() for share in pair]
    text = f"well connected on the {' and the '.join(DOMAINS)} cube: " + ", ".join(texts)
    return Finding(True if max(flat) < 0.5 else False if min(flat) > 0.5 else None, text)


SIGNS = {
    "leaky": "For leaky ReLU a simple workaround for the signs of the scales is not ruled out (read: gradients tell).",
    "residual": "On the inactive side of a unit its direction is missing from the gradient (for residual networks).",
}
STUDY = Study(
    name="fold-sets-of-cnns",
    title="Fold-sets of convolutional, residual and recurrent networks",
    paper="Functional vs. parametric equivalence of ReLU networks",
    figure="the hypothesis at the end of section 7",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "surface",
            "The zero sets of all units are a piece-wise linear surface of order at most the number of layers.",
            "corollary A.1, here for every kind of network",
            unit_surfaces,
        ),
        *(
            Claim(f"general-{kind}", f"Almost all networks are general ({kind}).", "section 3", general(kind))
            for kind in OTHERS
        ),
        *(
            Claim(
                f"visible-{kind}",
                f"The fold-set of a transparent network is the union of all units' zero sets ({kind}).",
                "lemma 2",
                all_visible(kind),
            )
            for kind in OTHERS
        ),
        Claim(
            "paths",
            "Read without layers: a kink is hidden only where no active path leads from its unit to the output.",
            "lemma 2, our reading for every kind of network",
            only_paths_hide,
        ),
        Claim(
            "chains",
            "A path of m bends in the dependency graph puts a unit at least m layers below the last.",
            "lemma 3, for edges that bend, here for every kind of network",
            chains_bound_layers,
        ),
        *(
            Claim(
                f"identified-{kind}",
                f"First-layer hyperplanes can be identified as such from the fold-set alone ({kind}).",
                "section 6",
                identified(kind),
            )
            for kind in OTHERS
        ),
        *(Claim(f"orientation-{kind}", text, "section 6", orientation(kind)) for kind, text in SIGNS.items()),
        Claim(
            "not-well-connected",
            "It could be that typical networks do not have well connected dependency graphs.",
            "section 7, here for every kind of network",
            not_well_connected,
        ),
    ),
    cost={"quick": 180.0, "paper": 600.0},
    options={"networks": None, "epochs": None, "shapes": None},
    pictures=tuple(
        Picture(
            name,
            title,
            x="epoch",
            y=column,
            lines="kind",
            panels="shape",
            x_label="epochs",
            y_label=label,
            each="network",
            where={"domain": "wide"},
            words={"kind": "", "shape": ""},
            caption=caption,
        )
        for name, title, column, label, caption in (
            (
                "hidden",
                "Kinks of units that the function does not show",
                "hidden_fraction",
                "part of all kinks",
                "By volume, on the cube that is twice as wide as that of the data. Thin lines are single networks.",
            ),
            (
                "identified",
                "First-layer units that chains of bends identify",
                "first_identified_fraction",
                "part of the first layer",
                "In the fold-set of the function, on the same cube. Thin lines are single networks.",
            ),
        )
    ),
    summarise=summarise,
)
