"""How many networks are determined by their function, as far as the exact functional dimension can say?

Rescaling ``N`` hidden neurons changes nothing, so of ``D`` parameters at most ``D - N`` directions change the function.
Where the functional dimension is ``D - N``, only rescalings have the function nearby; where it is less, the network has
hidden symmetries, to first order at least. Grigsby, Lindsey and Rolnick (2023) estimated how often that happens with
ranks of floats at sampled points. Here ranks are exact, on points that decide them (up to three inputs), and every
shortfall is taken apart into its reasons; over inputs, depth, width and initialisation, and through training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import binomtest

from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.reasons.explain import explain
from fiberscope.errors import InputError, hint
from fiberscope.fibers.identifiability import identifiability, identifiable_fraction
from fiberscope.network.network import Network
from fiberscope.numerics.rank import numerical_rank
from fiberscope.studies._smooth import smooth
from fiberscope.studies._verdicts import verdict
from fiberscope.studies.lab.shares import differs, wilson
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"networks": 20, "others": 20, "depths": [1, 2, 3], "widths": [3, 5, 7], "squares": [2, 3, 4, 5],
              "epochs": [0, 300]},
    "paper": {"networks": 60, "others": 40, "depths": [1, 2, 3, 4], "widths": [3, 5, 8], "squares": [2, 3, 4, 5, 6],
              "epochs": [0, 30, 300, 1000]},
}  # fmt: skip
INPUTS = (1, 2, 3)
SCHEMES = ("he", "small", "torch", "xavier")
"""Normal weights with biases as large, or of standard deviation 1/10; uniform weights and biases; zero biases."""

USUAL = {"inputs": 2, "width": 5}
"""Where the other schemes are looked at, and training."""

SQUARE_DEPTHS = (2, 3)
DECAYS = (0.0, 0.1)
BLOCK = 20
"""Networks per task."""

LARGEST = 9
"""Inputs times hidden layers: beyond, listing all regions takes minutes for a network of width 8."""

SAMPLES = {"sampled": 10, "sampled_more": 100}
"""Normal points for every parameter, in the estimates by floats; the number that the paper took is not known to us."""

SURE = 0.01
"""Chance of a false alarm that a verdict may have, over all comparisons of a claim."""

SMALL = 0.1
"""A share that changes by less is called unchanged."""

ALIKE = 0.95
"""An estimate that is right for so many networks is called right."""

PARTS = ("dead", "linear", "translation", "equal patterns", "one layer", "adjacent layers", "unexplained")


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per cell of the grid and block of networks, then those of training, with and without decay."""
    sizes = {"schemes": list(SCHEMES), **SIZES[scale]}
    sizes |= {name: value for name, value in options.items() if value is not None}
    for name in ("depths", "widths", "squares", "epochs"):
        least = 0 if name == "epochs" else 1
        if not isinstance(sizes[name], list | tuple) or not all(isinstance(n, int) and n >= least for n in sizes[name]):
            raise InputError(f"option {name}: expected a list of integers from {least}, got {sizes[name]!r}")
    for name in ("networks", "others"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    for name in sizes["schemes"]:
        if name not in SCHEMES:
            raise InputError(f"option schemes: expected {', '.join(SCHEMES)}, got {name!r}{hint(str(name), SCHEMES)}")
    shapes = [(n, depth) for n in INPUTS for depth in sizes["depths"] if n * depth <= LARGEST]
    cells = {(n, depth, width, "he"): "start" for n, depth in shapes for width in sizes["widths"]}
    for scheme in sizes["schemes"]:
        cells |= {(USUAL["inputs"], depth, USUAL["width"], scheme): "start" for depth in sizes["depths"]}
    squares = {(n, depth, n, "he"): "square" for depth in SQUARE_DEPTHS for n in sizes["squares"]}
    squares = {cell: kind for cell, kind in squares.items() if cell not in cells}
    names = ("inputs", "depth", "width", "scheme")
    starts = [{"record": kind, **dict(zip(names, cell, strict=True))} for cell, kind in (cells | squares).items()]
    runs = [
        {"record": "run", **USUAL, "depth": depth, "decay": decay, "epochs": sorted({0, *sizes["epochs"]})}
        for depth in sizes["depths"]
        if depth > 1 and max(sizes["epochs"], default=0) > 0
        for decay in DECAYS
    ]
    grid = ("start", "he")  # most networks are in the grid, the others show what else there is
    many = [sizes["networks" if (task["record"], task.get("scheme")) == grid else "others"] for task in starts + runs]
    return [
        {**task, "first": first, "count": min(BLOCK, count - first)}
        for task, count in zip(starts + runs, many, strict=True)
        for first in range(0, count, BLOCK)
    ]


def drawn(widths: Sequence[int], seed: int, scheme: str) -> Network:
    """A network of a scheme."""
    if scheme != "small":
        return Network.random(widths, seed, scheme)
    net = Network.random(widths, seed)
    deviations = [np.sqrt(2 / w.shape[1]) for w in net.weights]
    return Network(net.weights, [b / (10 * size) for b, size in zip(net.biases, deviations, strict=True)])


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network, and in training per epoch."""
    settings = task.settings
    names = ("record", "inputs", "depth", "width")
    about = {name: settings[name] for name in names}
    widths = (about["inputs"], *[about["width"]] * about["depth"], 1)
    numbers = range(settings["first"], settings["first"] + settings["count"])
    if settings["record"] != "run":
        square = about["inputs"] == about["width"] and about["depth"] in SQUARE_DEPTHS
        about |= {"scheme": settings["scheme"], "square": square, "decay": None, "epoch": 0}
        return [{**about, "network": k, **measure(drawn(widths, k, settings["scheme"]), k)} for k in numbers]
    epochs = settings["epochs"]  # network k begins alike with and without decay: they are compared in pairs
    runs = train_many(widths, smooth(about["inputs"]), list(numbers), epochs=epochs[-1], optimizer="adamw", lr=0.01,
                      weight_decay=settings["decay"], batch_size=100, checkpoints=epochs)  # fmt: skip
    rows = []
    for epoch in epochs:
        for k, net in zip(numbers, runs.checkpoints[epoch], strict=True):
            if net is not None:
                more = {"scheme": "he", "square": False, "decay": settings["decay"], "epoch": epoch, "network": k}
                rows.append({**about, **more, **measure(net, k)})
    return rows


def measure(net: Network, seed: int) -> dict[str, Any]:
    """The dimension, exact and as floats see it, the verdict of the theorems, and what a shortfall is made of."""
    found = functional_dimension(net, ranks=("exact", "numerical"), seed=seed)
    needed = net.num_parameters - net.num_hidden
    assert found.lower is not None  # our networks are chains
    full = True if found.lower == needed else None if found.exact is None and found.upper == needed else False
    theorem = identifiability(net)
    row = {
        "needed": needed,
        "exact": found.exact,
        "lower": found.lower,
        "upper": found.upper,
        "certified": found.certified,
        "decisive": found.decisive,
        "numerical": found.numerical,
        "full": full,
        "shortfall": None if found.exact is None else needed - found.exact,
        **{name: float_rank(net, many * net.num_parameters, seed) for name, many in SAMPLES.items()},
        "identifiable": theorem.identifiable,
        "fiber": theorem.fiber_dimension,
        "fiber_exact": theorem.dimension_exact,
    }
    return {**row, **reasons(net, seed, found.decisive and full is False)}


def float_rank(net: Network, points: int, seed: int) -> int:
    """The rank of the float64 Jacobian at normal points, kinks or not: floats would not see them."""
    X = np.random.default_rng(seed).normal(size=(points, net.in_size))
    return numerical_rank(jacobian(net, X)).rank


def reasons(net: Network, seed: int, asked: bool) -> dict[str, int | None]:
    """The shortfall by reasons, which add up to it: the parts of the kernel beyond one rescaling for every neuron."""
    if not asked:
        return dict.fromkeys(PARTS)
    parts = {part.kind: part.dimension for part in explain(net, seed=seed).parts}
    lost = net.num_hidden - parts["rescaling"]  # rescalings of dead neurons are counted among their weights
    return {kind: parts[kind] - (lost if kind == "dead" else 0) for kind in PARTS}


def summarise(table: Table) -> Table:
    """Shares with intervals and means of the reasons, for every cell."""
    rows = []
    keys = ("record", "inputs", "depth", "width", "scheme", "decay", "epoch")
    for values, part in table.groups(*keys).items():
        answers, verdicts = part.column("full"), part.column("identifiable")
        yes = answers.count(True)
        low, high = wilson(yes, len(part))
        equal = [
            a == b for a, b in zip(part.column("sampled_more"), part.column("exact"), strict=True) if b is not None
        ]
        short = [row for row in part.dicts() if row["full"] is False]
        rows.append(
            {**dict(zip(keys, values, strict=True)), "networks": len(part), "full": yes / len(part), "low": low,
             "high": high, "undecided": answers.count(None), "identifiable": verdicts.count(True),
             "not_identifiable": verdicts.count(False), "sampled_right": float(np.mean(equal)) if equal else None,
             "shortfall": _mean(short, "shortfall"), **{kind: _mean(short, kind) for kind in PARTS}}
        )  # fmt: skip
    return Table.of(rows)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(values)) if values else None


# -- the claims ----------------------------------------------------------------------------------------------------


def _trend(groups: Mapping[str, Mapping[int, Table]], sign: int) -> Finding:
    """Along every group from small to large: does the share go one way?

    It holds where no two neighbours, and no first and last, differ the other way, and in some group first and last
    differ the right way; it does not hold where some pair differs the other way. Intervals of all pairs together are
    sure to 1 - SURE.
    """
    pairs = {key: _pairs(sorted(cells)) for key, cells in groups.items()}
    total = sum(map(len, pairs.values()))
    if not total:
        raise InputError("expected two sizes to compare, got one")
    against, along, texts = [], [], []
    for key, cells in groups.items():
        shares = {size: part.column("full") for size, part in sorted(cells.items())}
        found = {pair: differs(shares[pair[0]], shares[pair[1]], 1 - SURE / total) for pair in pairs[key]}
        against += [f"{key}: {a} to {b}" for (a, b), way in found.items() if way == -sign]
        along += [key] * (bool(found) and found[pairs[key][-1]] == sign)
        texts.append(f"{key}: {', '.join(_share(part) for part in shares.values())}")
    words = "rises" if sign > 0 else "falls"
    text = f"{words} from first to last in {len(along)} of {len(groups)} rows"
    text += f", the other way at {'; '.join(against)}" if against else ", nowhere the other way"
    return Finding(False if against else True if along else None, f"{text} ({'; '.join(texts)})")


def _pairs(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours, and first and last at the end."""
    return list(dict.fromkeys([*pairwise(sizes), (sizes[0], sizes[-1])])) if len(sizes) > 1 else []


def _share(answers: Sequence[bool | None]) -> str:
    """A share in percent; as a range where some are undecided."""
    least, most = answers.count(True), len(answers) - answers.count(False)
    low, high = (round(100 * n / len(answers)) for n in (least, most))
    return f"{low}%" if least == most else f"{low} to {high}%"


def _starts(table: Table) -> Table:
    return table.where(record="start", scheme="he")


def _grid(table: Table, along: str, fixed: tuple[str, str]) -> dict[str, dict[int, Table]]:
    """Rows of the grid, with one column varied and two fixed; sizes that stand alone are no row."""
    found: dict[str, dict[int, Table]] = {}
    for (a, b), part in _starts(table).groups(*fixed).items():
        cells = {size: cell for (size,), cell in part.groups(along).items()}
        if len(cells) > 1:
            found[f"{fixed[0]} {a}, {fixed[1]} {b}"] = cells
    return found


def falls_with_depth(table: Table) -> Finding:
    """For every number of inputs and width."""
    return _trend(_grid(table, "depth", ("inputs", "width")), -1)


def rises_with_inputs(table: Table) -> Finding:
    """For every depth and width."""
    return _trend(_grid(table, "inputs", ("depth", "width")), 1)


def rises_alone(table: Table) -> Finding:
    """For every number of inputs and depth: the inputs stay."""
    return _trend(_grid(table, "width", ("inputs", "depth")), 1)


def rises_together(table: Table) -> Finding:
    """As many inputs as neurons in every layer."""
    found: dict[str, dict[int, Table]] = {}
    for (depth, width), part in table.where(square=True).groups("depth", "width").items():
        found.setdefault(f"depth {depth}", {})[width] = part
    return _trend(found, 1)


def never_more(table: Table) -> Finding:
    """The rank of floats on the decisive points knows nothing of the bound; the exact one stops there."""
    rows = [row for row in table.dicts() if row["decisive"]]
    over = sum(row["numerical"] is not None and row["numerical"] > row["needed"] for row in rows)
    over += sum(row["lower"] > row["needed"] for row in rows)
    met = sum(row["full"] is True for row in rows)
    text = f"{over} of {len(rows)} networks with a decisive set are above D - N in exact or float ranks; {met} meet it"
    return Finding(over == 0 if rows else None, text)


def reasons_suffice(table: Table) -> Finding:
    """Nothing unexplained in any shortfall; the reasons as shares of all dimensions that are missing."""
    rows = [row for row in table.dicts() if row["unexplained"] is not None]
    if not rows:
        raise InputError("expected networks with a shortfall, got none")
    missing = sum(row["shortfall"] for row in rows)
    left = [row for row in rows if row["unexplained"]]
    told = ", ".join(f"{kind} {sum(row[kind] for row in rows) / missing:.1%}" for kind in PARTS)
    where = "; ".join(sorted({f"{row['inputs']} inputs, {row['depth']} hidden layers" for row in left}))
    text = f"{len(left)} of {len(rows)} shortfalls have an unexplained part" + (f" ({where})" if where else "")
    return Finding(not left, f"{text}; of {missing} missing dimensions: {told}")


def never_contradict(table: Table) -> Finding:
    """Identifiable means no shortfall; a known fiber is no larger than the shortfall, and as large where it is all."""
    rows = [row for row in table.dicts() if row["shortfall"] is not None]
    wrong = [
        row
        for row in rows
        if (row["identifiable"] is True and row["shortfall"] > 0)
        or (row["fiber"] is not None and row["fiber"] > row["shortfall"])
        or (row["fiber"] is not None and row["fiber_exact"] and row["fiber"] != row["shortfall"])
    ]
    yes, no = (sum(row["identifiable"] is answer for row in rows) for answer in (True, False))
    open_ = [row for row in rows if row["identifiable"] is None]
    local = sum(row["full"] is True for row in open_)
    text = (
        f"{len(wrong)} contradictions in {len(rows)} networks: {yes} identifiable, {no} not, {len(open_)} beyond the "
        f"theorems, of which {local} are determined among their neighbours, by the exact rank"
    )
    return Finding(not wrong if yes + no else None, text)


def by_signs(table: Table) -> Finding:
    """Two hidden layers with as many inputs as neurons: the share of full dimension against the known fraction."""
    texts, fits = [], True
    cells = {n: part for (n,), part in table.where(square=True, depth=2).groups("width").items() if n > 1}
    for n, part in sorted(cells.items()):
        answers = [a for a in part.column("full") if a is not None]
        exact = float(identifiable_fraction([n, n, n, 1]))
        fits = fits and bool(binomtest(sum(answers), len(answers), exact).pvalue > SURE / len(cells))
        texts.append(f"{n}-{n}-{n}-1: {sum(answers) / len(answers):.3f} of {len(answers)}, exactly {exact:.4f}")
    if not cells:
        raise InputError("expected networks with as many inputs as neurons, got none")
    return Finding(fits, "; ".join(texts))


def floats_agree(table: Table) -> Finding:
    """Initialisations with a decisive set, by schemes, which must agree; the verdict is that of the larger sample."""
    whole = [row for row in table.where(record="start").dicts() if row["exact"] is not None and row["decisive"]]
    signs, texts = [], []
    for scheme in dict.fromkeys(row["scheme"] for row in whole):
        rows = [row for row in whole if row["scheme"] == scheme]
        few, many = ([row["exact"] - row[name] for row in rows if row[name] is not None] for name in SAMPLES)
        low, high = wilson(many.count(0), len(many), 1 - SURE)
        signs.append(True if low > ALIKE else False if high < ALIKE else None)
        missed = sum(bool(row["full"]) and row["sampled_more"] < row["exact"] for row in rows)
        texts.append(
            f"{scheme}: {few.count(0) / len(few):.0%} and {many.count(0) / len(many):.1%} ({low:.1%} to {high:.1%}) of "
            f"{len(many)}, less by {np.mean([g for g in many if g > 0] or [0]):.1f} on average in the others, more in "
            f"{sum(g < 0 for g in many)}; {missed} of {sum(bool(row['full']) for row in rows)} full ones are missed"
        )
    one, two = SAMPLES.values()
    holds = True if all(signs) else False if all(sign is False for sign in signs) else None
    return Finding(holds if signs else None, f"equal with {one} and {two} points for a parameter, {'. '.join(texts)}")


def _kept(table: Table, decay: float) -> Finding:
    """From first to last epoch, network by network: McNemar's test says no, an interval within SMALL says yes."""
    part = table.where(record="run", decay=decay)
    groups = {depth: rows for (depth,), rows in part.groups("depth").items()}
    if not groups:
        raise InputError("expected networks after training, got none")
    last = max(part.column("epoch"))
    texts, signs = [], []
    for depth, rows in groups.items():
        first, end = (
            dict(zip(cell.column("network"), cell.column("full"), strict=True))
            for cell in (rows.where(epoch=0), rows.where(epoch=last))
        )
        pairs = [(first[k], end[k]) for k in end if first.get(k) is not None and end[k] is not None]
        gained, lost = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
        up, down = (wilson(n, len(pairs), 1 - SURE / len(groups)) for n in (gained, lost))
        near = max(up[1] - down[0], down[1] - up[0]) <= SMALL
        moved = gained + lost > 0 and binomtest(gained, gained + lost).pvalue <= SURE / len(groups)
        signs.append(False if moved else True if near else None)
        before, after = (sum(x) / len(pairs) for x in zip(*pairs, strict=True))
        texts.append(f"{depth} hidden layers: {before:.0%} to {after:.0%} (+{gained} -{lost} of {len(pairs)})")
    return Finding(verdict(signs), "; ".join(texts))


def kept_by_training(table: Table) -> Finding:
    """Without weight decay."""
    return _kept(table, DECAYS[0])


def kept_by_decay(table: Table) -> Finding:
    """With weight decay."""
    return _kept(table, DECAYS[1])


DRAWN = tuple(kind for kind in PARTS if kind != "equal patterns")  # of which there were none
PAPER = "abstract, and the experiments at initialisation"
WORDS = {"dead": "dead neurons", "linear": "mixtures of linear neurons", "translation": "translations",
         "0.0": "no decay", "0.1": "decay 0.1"}  # fmt: skip

STUDY = Study(
    name="how-many-identifiable",
    title="How many networks are determined by their function, by exact dimensions",
    paper="Hidden symmetries of ReLU networks",
    figure="the experiments on functional dimension at initialisation",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("depth", "Networks without hidden symmetries become rarer with depth.", PAPER, falls_with_depth),
        Claim("inputs", "They become more frequent with the number of inputs.", PAPER, rises_with_inputs),
        Claim("width", "They become more frequent with the width (read: as many inputs as neurons in a layer).", PAPER,
              rises_together),
        Claim("width-alone", "They become more frequent with the width (read: the inputs stay).", PAPER,
              rises_alone),
        Claim("upper-bound", "The functional dimension is at most D - N, parameters without rescalings.",
              "functional dimension, the upper bound", never_more),
        Claim("sampled", "Ranks of floats at normal points are the functional dimension (the paper's estimate).",
              "the experiments; exactness is not claimed there", floats_agree),
        Claim("signs", "With two hidden layers and as many inputs as neurons, signs of the second layer decide the "
              "share.", "The symmetries of three-layer ReLU networks", by_signs),
        Claim("reasons", "Every shortfall has known reasons: dead and linear neurons, translations, what one layer or "
              "two adjacent ones cannot do (ours).", "not in the paper", reasons_suffice),
        Claim("theorems", "Verdicts of the theorems about fibers never contradict the exact dimension (ours).",
              "not in the paper", never_contradict),
        Claim("training", "Training does not change the share of full dimension (a question of ours).",
              "not in the paper", kept_by_training),
        Claim("weight-decay", "Nor does training with weight decay (a question of ours).", "not in the paper",
              kept_by_decay),
    ),
    cost={"quick": 200.0, "paper": 1400.0},
    options=dict.fromkeys(("networks", "others", "depths", "widths", "squares", "epochs", "schemes")),
    pictures=(
        Picture("share", "Networks of full functional dimension", x="depth", y="full", lines="width", panels="inputs",
                x_label="hidden layers", y_label="share", where={"record": "start", "scheme": "he"}, style="share",
                words={"inputs": "inputs:"}, caption="Random initialisations, with Wilson's intervals (95 %)."),
        Picture("squares", "As many inputs as neurons in every layer", x="width", y="full", lines="depth",
                x_label="inputs, and neurons of every layer", y_label="share of full dimension",
                where={"square": True}, style="share", words={"depth": "hidden layers:"},
                caption="Wilson's intervals (95 %); undecided networks, from four inputs on, are left out."),
        Picture("reasons", "What is missing, by reasons", x="depth", y=DRAWN, lines="quantity", panels="inputs",
                x_label="hidden layers", y_label="dimensions", where={"record": "start", "scheme": "he"}, style="curve",
                words={**WORDS, "inputs": "inputs:"}, caption="Means over the networks with a shortfall."),
        Picture("schemes", "Schemes of initialisation", x="depth", y="full", lines="scheme", x_label="hidden layers",
                y_label="share of full dimension", where={"record": "start", **USUAL}, style="share",
                words={"he": "normal", "small": "normal, small biases", "torch": "uniform", "xavier": "zero biases"},
                caption="Two inputs, width 5."),
        Picture("training", "Full dimension through training", x="epoch", y="full", lines="decay", panels="depth",
                x_label="epochs", y_label="share", where={"record": "run"}, style="share",
                words={**WORDS, "depth": "hidden layers:"}, caption="Two inputs, width 5; Wilson's intervals (95 %)."),
    ),
    summarise=summarise,
)  # fmt: skip
