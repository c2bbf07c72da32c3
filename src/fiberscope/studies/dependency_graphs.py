"""Do typical, trained networks have well-connected dependency graphs? The question of section 7 of the fold-set paper.

The paper's theorem makes one network identifiable by building it so that every first-layer hyperplane has a chain of
descendants through all later layers, and says that typical networks may not be like that. Here small networks with two
inputs are trained, and at several times the fold-set of each is found exactly: which units show at all, which
first-layer units show as full lines, and which of these have the chain that proves where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from fiberscope.errors import InputError, hint
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box
from fiberscope.geometry.folds.conditions import is_transparent
from fiberscope.geometry.folds.dependency import FirstLayer, dependency_graph, first_layer, layers_of, longest_chains
from fiberscope.geometry.folds.fold_set import FoldSet, fold_set
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.numerics.floats import IntArray
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {
        "networks": 10,
        "widths": [[2, 8, 8, 1], [2, 6, 6, 6, 1]],
        "datasets": ["g1", "g3"],
        "epochs": [0, 10, 30, 100, 300],
    },
    "paper": {
        "networks": 20,
        "widths": [[2, 8, 8, 1], [2, 16, 16, 1], [2, 6, 6, 6, 1], [2, 12, 12, 12, 1], [2, 8, 8, 8, 8, 1]],
        "datasets": ["g1", "g2", "g3"],
        "epochs": [0, 10, 30, 100, 300, 1000],
    },
}
BLOCK = 10
"""Networks per task: they are trained in one batch."""

DOMAINS = {"data": Box.cube(2, 0.0, 1.0), "wide": Box.cube(2, -1.0, 2.0)}
"""Where the fold-set is looked at: the square of the data, and one three times as wide around it."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per data set, architecture and block of networks."""
    sizes = {**SIZES[scale], **{name: value for name, value in options.items() if value is not None}}
    for widths in sizes["widths"]:
        if len(widths) < 3 or widths[0] != 2 or any(not isinstance(n, int) or n < 1 for n in widths):
            raise InputError(f"option widths: expected lists like [2, 8, 8, 1] with two inputs, got {widths!r}")
    for name in sizes["datasets"]:
        if name not in ("g1", "g2", "g3"):
            close = hint(str(name), ("g1", "g2", "g3"))
            raise InputError(f"option datasets: expected some of g1, g2, g3, got {name!r}{close}")
    if not isinstance(sizes["networks"], int) or sizes["networks"] < 1:
        raise InputError(f"option networks: expected a positive integer, got {sizes['networks']!r}")
    epochs = sorted(set(sizes["epochs"]))
    if not epochs or epochs[0] < 0 or epochs[-1] < 1:
        raise InputError(f"option epochs: expected times from 0 up, got {sizes['epochs']!r}")
    return [
        {
            "dataset": name,
            "widths": list(widths),
            "epochs": epochs,
            "first": first,
            "count": min(BLOCK, sizes["networks"] - first),
        }
        for name in sizes["datasets"]
        for widths in sizes["widths"]
        for first in range(0, sizes["networks"], BLOCK)
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network, time and domain."""
    settings = task.settings
    epochs = settings["epochs"]
    # Seeds below 2^31 that differ between the networks of all tasks, as far as the task's own seed does.
    seeds = [(task.seed + index) % 2**31 for index in range(settings["count"])]
    runs = train_many(
        settings["widths"],
        load_dataset(settings["dataset"]),
        seeds,
        epochs=epochs[-1],
        lr=0.01,
        batch_size=50,
        checkpoints=epochs,
    )
    rows = []
    for epoch in epochs:
        for index, net in enumerate(runs.checkpoints[epoch]):
            if net is None:
                continue
            loss = float(runs.losses[index, epoch - 1]) if epoch else None
            about = {
                "dataset": settings["dataset"],
                "widths": "-".join(map(str, settings["widths"])),
                "hidden_layers": len(settings["widths"]) - 2,
                "network": settings["first"] + index,
                "epoch": epoch,
                "loss": loss,
            }
            rows += [{**about, "domain": name, **measure(net, box)} for name, box in DOMAINS.items()]
    return rows


@dataclass(frozen=True, slots=True)
class Folds:
    """The fold-set of the function, the kinks of all units, and what chains say about the first layer in each."""

    shown: FoldSet
    kinks: FoldSet
    graphs: tuple[nx.DiGraph[int], nx.DiGraph[int]]
    first: tuple[FirstLayer, FirstLayer]

    @property
    def complex(self) -> Complex:
        return self.shown.complex

    @property
    def transparent(self) -> bool:
        signs = self.complex.sign_vectors
        return bool(is_transparent(self.complex.net, signs, f"{len(signs)} regions", exhaustive=True).holds)

    def size(self, facets: IntArray) -> float:
        """The volume of some facets together."""
        return float(self.complex.wall_sizes[self.complex.facets.cell[facets]].sum())


def look(net: Network, box: Box) -> Folds:
    """Everything that is measured of one network on a box."""
    complex = regions(net, box)
    shown, kinks = fold_set(complex), fold_set(complex, surface="units")
    graphs = dependency_graph(shown), dependency_graph(kinks)
    return Folds(shown, kinks, graphs, (first_layer(shown, graphs[0]), first_layer(kinks, graphs[1])))


def measure(net: Network, box: Box) -> dict[str, Any]:
    """What the fold-set of one network on a box shows; fractions are of all units, and of all first-layer units."""
    return columns(look(net, box))


def columns(folds: Folds) -> dict[str, Any]:
    """What was seen, as the entries of a row."""
    shown, kinks = folds.shown, folds.kinks
    seen, there = folds.first
    width = seen.width
    size = folds.size(shown.facets)
    return {
        "regions": folds.complex.num_regions,
        "transparent": folds.transparent,
        "is_surface": shown.is_surface,
        "order": shown.order,
        "pieces": len(shown.pieces),
        "longest_chain": max(longest_chains(folds.graphs[0]).values(), default=0),
        "loose_fraction": folds.size(shown.rest) / size if size else 0.0,
        "crossing_fraction": float(kinks.units.mean()),
        "visible_fraction": float(shown.units.mean()),
        "first_crossing_fraction": float(kinks.units[:width].mean()),
        "first_straight_fraction": len(seen.straight) / width,
        "first_identified_fraction": len(seen.identified) / width,
        "first_hidden_chain_fraction": len(there.identified) / width,
        "wrong_pieces": len(seen.wrong),
        "well_connected": seen.well_connected,
        "lemma_violations": _violations(kinks, _all_chains(folds.graphs[1])),
        "bending_violations": _violations(kinks, longest_chains(folds.graphs[1])),
    }


def _all_chains(graph: nx.DiGraph[int]) -> dict[int, int]:
    """The longest paths of the paper's edges, whether they bend or only meet."""
    plain: nx.DiGraph[int] = nx.DiGraph()
    plain.add_nodes_from(graph)
    plain.add_edges_from(graph.edges)
    return longest_chains(plain)


def _violations(found: FoldSet, chains: Mapping[int, int]) -> int:
    """Pieces of units' kinks that lie in a layer too late for their chains, against Lemma 3."""
    depth = len(found.complex.net.switches)
    return sum(min(layers_of(found, piece)) > depth - chains[piece.index] for piece in found.pieces)


def summarise(table: Table) -> Table:
    """Means over the networks, for every architecture, data set, domain and time."""
    columns = (
        "loss",
        "regions",
        "transparent",
        "is_surface",
        "crossing_fraction",
        "visible_fraction",
        "first_crossing_fraction",
        "first_straight_fraction",
        "first_identified_fraction",
        "first_hidden_chain_fraction",
        "wrong_pieces",
        "well_connected",
    )
    rows = []
    for (dataset, widths, domain, epoch), part in table.groups("dataset", "widths", "domain", "epoch").items():
        means = {name: None if set(part.column(name)) == {None} else part.mean(name) for name in columns}
        rows.append(
            {"dataset": dataset, "widths": widths, "domain": domain, "epoch": epoch, "networks": len(part), **means}
        )
    return Table.of(rows)


# -- the claims ----------------------------------------------------------------------------------------------------


def _trained(table: Table, domain: str) -> tuple[Table, Table]:
    """The rows on a domain before training and after the longest."""
    part = table.where(domain=domain)
    epochs = part.column("epoch")
    if not epochs:
        raise InputError(f"expected rows on the domain {domain!r}, got none")
    return part.where(epoch=0), part.where(epoch=max(epochs))


def not_well_connected(table: Table) -> Finding:
    """Well connected: the fold-set shows exactly the first layer, all of it, by chains through all later layers."""
    shares, texts = [], []
    for domain in DOMAINS:
        before, after = _trained(table, domain)
        share = after.mean("well_connected")
        shares.append(share)
        begin = f", {before.mean('well_connected'):.0%} before training" if len(before) else ""
        texts.append(
            f"on the {domain} square {share:.0%} of {len(after)} trained networks are well connected{begin}; "
            f"{after.mean('first_identified_fraction'):.0%} of their first-layer units are identified"
        )
    return Finding(True if max(shares) < 0.5 else False if min(shares) > 0.5 else None, "; ".join(texts))


def rarely_transparent(table: Table) -> Finding:
    """The theorem's network is transparent; Lemmas 1 and 2 need it."""
    texts, shares = [], []
    for domain in DOMAINS:
        _, after = _trained(table, domain)
        shares.append(after.mean("transparent"))
        texts.append(
            f"on the {domain} square {shares[-1]:.0%} of the trained networks are transparent, "
            f"{after.mean('is_surface'):.0%} have a fold-set that is a piece-wise linear surface"
        )
    return Finding(True if min(shares) > 0.5 else False if max(shares) < 0.5 else None, "; ".join(texts))


def transparent_means_surface(table: Table) -> Finding:
    """Lemma 2, where it applies. Training has no reason to leave the set of general networks."""
    part = table.where(transparent=True)
    if not len(part):
        raise InputError("expected a transparent network, got none")
    deepest = max(o - h for o, h in zip(part.column("order"), part.column("hidden_layers"), strict=True))
    surfaces = sum(bool(x) for x in part.column("is_surface"))
    text = f"{surfaces} of {len(part)} fold-sets of transparent networks are surfaces, none of higher order than layers"
    return Finding(surfaces == len(part) and deepest <= 0, text)


def chains_bound_layers(table: Table) -> Finding:
    """Lemma 3 as it is stated, with its edges; and with those alone at which the later piece bends."""
    stated, bending = ([n > 0 for n in table.column(f"{kind}_violations")] for kind in ("lemma", "bending"))
    text = (
        f"{sum(stated)} of {len(table)} sets of units' kinks violate it (two units of one layer that cross); "
        f"{sum(bending)} do if only edges count at which the later piece bends"
    )
    return Finding(not any(stated), text)


def chains_in_the_function(table: Table) -> Finding:
    """Bending chains in the fold-set of the function: a straight continuation may be invisible."""
    wrong = table.where(transparent=False)
    right = table.where(transparent=True)
    bad = [sum(w > 0 for w in part.column("wrong_pieces")) for part in (wrong, right)]
    text = (
        f"a full line of a later layer has a chain that puts it into the first in {bad[1]} of {len(right)} transparent "
        f"fold-sets and in {bad[0]} of {len(wrong)} others"
    )
    return Finding(sum(bad) == 0, text)


STUDY = Study(
    name="dependency-graphs",
    title="Dependency graphs of trained networks",
    paper="Functional vs. parametric equivalence of ReLU networks",
    figure="the question of section 7",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "not-well-connected",
            "It could be that typical networks do not have well connected dependency graphs, and are therefore not "
            "easily identifiable.",
            "section 7",
            not_well_connected,
        ),
        Claim(
            "transparent",
            "For any input, at least one unit on each layer is active (as in the network of the theorem).",
            "section 3, lemma 4",
            rarely_transparent,
        ),
        Claim(
            "surface",
            "The fold-set of a general and transparent network is a piece-wise linear surface of order at most L - 1.",
            "lemma 2",
            transparent_means_surface,
        ),
        Claim(
            "chains",
            "If the dependency graph has a directed path of length m from a piece, its unit lies at least m layers "
            "below the last.",
            "lemma 3",
            chains_bound_layers,
        ),
        Claim(
            "identified-as-such",
            "First-layer hyperplanes can be identified as such, using only the information contained in the fold-set.",
            "section 6, for transparent networks",
            chains_in_the_function,
        ),
    ),
    cost={"quick": 20.0, "paper": 200.0},
    options={"networks": None, "widths": None, "datasets": None, "epochs": None},
    pictures=(
        Picture(
            "identified",
            "First-layer units that chains identify",
            x="epoch",
            y="first_identified_fraction",
            lines="widths",
            panels="domain",
            x_label="epochs",
            y_label="fraction of the first layer",
            caption="A unit is identified if its line is a full piece with descendants through all later layers.",
        ),
        Picture(
            "visible",
            "Units that show in the fold-set",
            x="epoch",
            y="visible_fraction",
            lines="widths",
            panels="domain",
            x_label="epochs",
            y_label="fraction of all units",
            caption="Units with at least one visible facet in the domain.",
        ),
        Picture(
            "straight",
            "First-layer units that show as full lines",
            x="epoch",
            y="first_straight_fraction",
            lines="widths",
            panels="domain",
            x_label="epochs",
            y_label="fraction of the first layer",
            caption="What keeps a line from being full is a layer that is off on a part of it.",
        ),
    ),
    summarise=summarise,
)
