"""How well are networks recovered from values, against width, depth and training?

Networks are trained on a smooth function of many inputs, and before and after training each is handed to
:func:`fiberscope.recover` as a black box. A row says whether it came back, from how many queries, in how much time, and
if not, which layer was the first that is not known and why. Three statements of the literature are looked at: that
queries grow like the number of parameters (a polynomial of low degree, Carlini et al. 2020), that deep networks are the
hard ones, and that nothing false is ever returned, which is ours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.numerics.cutoffs import RECOVERED
from fiberscope.recovery.recover import recover
from fiberscope.studies._smooth import smooth
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"networks": 4, "widths": [[5, 5, 1], [10, 10, 1], [10, 8, 8, 1], [10, 6, 6, 6, 1]], "epochs": [0, 30]},
    "paper": {
        "networks": 20,
        "widths": [[10, 5, 1], [10, 10, 1], [10, 20, 1], [10, 40, 1], [10, 5, 5, 1], [10, 10, 10, 1], [10, 15, 15, 1],
                   [10, 8, 8, 8, 1], [10, 8, 8, 8, 8, 1]],
        "epochs": [0, 30, 300],
    },
}  # fmt: skip
BLOCK = 10
"""Networks per task: they are trained in one batch."""

TRIED = 5000
"""Points at which truth and answer are compared."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per architecture and block of networks."""
    sizes = {**SIZES[scale], **{name: value for name, value in options.items() if value is not None}}
    for widths in sizes["widths"]:
        if len(widths) < 3 or widths[-1] != 1 or any(not isinstance(n, int) or n < 1 for n in widths):
            raise InputError(f"option widths: expected lists like [10, 8, 8, 1] with one output, got {widths!r}")
        if widths[0] < 2:
            raise InputError(f"option widths: expected two inputs or more, got {widths!r}")
    if not isinstance(sizes["networks"], int) or sizes["networks"] < 1:
        raise InputError(f"option networks: expected a positive integer, got {sizes['networks']!r}")
    epochs = sorted(set(sizes["epochs"]))
    if not epochs or epochs[0] < 0 or epochs[-1] < 1:
        raise InputError(f"option epochs: expected times from 0 up, got {sizes['epochs']!r}")
    return [
        {"widths": list(widths), "epochs": epochs, "first": first, "count": min(BLOCK, sizes["networks"] - first)}
        for widths in sizes["widths"]
        for first in range(0, sizes["networks"], BLOCK)
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network and time."""
    settings, epochs = task.settings, task.settings["epochs"]
    widths = settings["widths"]
    seeds = [(task.seed + index) % 2**31 for index in range(settings["count"])]
    runs = train_many(widths, smooth(widths[0]), seeds, epochs=epochs[-1], lr=0.01, batch_size=50, checkpoints=epochs)
    rows = []
    for epoch in epochs:
        for index, net in enumerate(runs.checkpoints[epoch]):
            if net is not None:
                about = {"widths": "-".join(map(str, widths)), "hidden_layers": len(widths) - 2, "epoch": epoch,
                         "network": settings["first"] + index}  # fmt: skip
                rows.append({**about, **measure(net, settings["first"] + index)})
    return rows


def measure(net: Network, seed: int) -> dict[str, Any]:
    """What comes back of one network, asked as a black box."""
    begin = time.process_time()
    found = recover(net, net.widths, seed=seed)
    seconds = time.process_time() - begin
    first = found.unresolved[0] if found.unresolved else None
    apart = np.inf
    if found.network is not None:  # the truth is known here: wider points than those of the search
        X = np.random.default_rng(seed).normal(size=(TRIED, net.in_size)) * 5
        truth = net(X)
        apart = float(np.abs(found.network(X) - truth).max() / np.abs(truth).max())
    close = bool(apart <= RECOVERED * found.noise)
    return {
        "parameters": sum(w.size for w in net.weights) + sum(b.size for b in net.biases),
        "recovered": found.recovered,
        "function": close,
        "queries": found.queries,
        "seconds": seconds,
        "apart": None if found.network is None else apart,
        "layers": len(found.hyperplanes),
        "open_layer": None if first is None else first.layer,
        "reason": None if first is None else first.reason,
        "false": found.recovered and not close,
    }


def summarise(table: Table) -> Table:
    """Shares and means over the networks of every architecture and time."""
    rows = []
    for (widths, epoch), part in table.groups("widths", "epoch").items():
        good = part.where(recovered=True)
        rows.append(
            {"widths": widths, "epoch": epoch, "networks": len(part), "parameters": part.column("parameters")[0],
             "recovered": part.mean("recovered"), "function": part.mean("function"),
             "queries": good.mean("queries") if len(good) else None, "seconds": part.mean("seconds")}
        )  # fmt: skip
    return Table.of(rows)


# -- the claims ----------------------------------------------------------------------------------------------------


def nothing_false(table: Table) -> Finding:
    """Recovered means that the values at fresh points agree."""
    wrong = sum(bool(x) for x in table.column("false"))
    done = sum(bool(x) for x in table.column("recovered"))
    return Finding(wrong == 0, f"{wrong} of {done} networks that are called recovered are another function")


def few_queries(table: Table) -> Finding:
    """Queries per parameter of those that came back."""
    part = table.where(recovered=True)
    if not len(part):
        raise InputError("expected a network that was recovered, got none")
    each = np.array(part.column("queries")) / np.array(part.column("parameters"))
    text = f"{np.median(each):.0f} queries for a parameter in the median, {each.max():.0f} at most"
    return Finding(bool(np.median(each) <= np.log2(max(part.column("parameters"))) * 4), text)


def deep_is_hard(table: Table) -> Finding:
    """The share that comes back, by the number of hidden layers, over all times."""
    shares = {depth: part.mean("recovered") for (depth,), part in table.groups("hidden_layers").items()}
    order = [shares[depth] for depth in sorted(shares)]
    text = "; ".join(f"{depth} hidden: {shares[depth]:.0%}" for depth in sorted(shares))
    if len(order) < 2:
        return Finding(None, f"{text}; one depth only")
    return Finding(bool(order[-1] < order[0]), text)


STUDY = Study(
    name="recovery",
    title="Recovery from values against width, depth and training",
    paper="Cryptanalytic extraction of neural network models",
    figure="the tables of queries, and what is said about depth",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("nothing-false", "What is called recovered is the function.", "ours", nothing_false),
        Claim("few-queries", "Queries grow like the parameters, up to a logarithm.", "Carlini et al.", few_queries),
        Claim("deep-is-hard", "Deep networks are harder than shallow ones.", "Foerster et al.", deep_is_hard),
    ),
    cost={"quick": 150.0, "paper": 1500.0},
    options={"networks": None, "widths": None, "epochs": None},
    pictures=(
        Picture("recovered", "Networks that come back", x="epoch", y="recovered", lines="widths", x_label="epochs",
                y_label="share of the networks",
                caption="Recovered: every parameter is known, and fresh values agree."),
        Picture("queries", "Queries", x="parameters", y="queries", lines="epoch", x_label="parameters",
                y_label="queries", caption="Means over the networks that came back."),
    ),
    summarise=summarise,
)  # fmt: skip
