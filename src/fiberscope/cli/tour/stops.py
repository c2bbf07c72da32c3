"""The tour: a small network is trained on two spirals and asked every question the library can answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import nn

import fiberscope as fs
from fiberscope.numerics.floats import FloatArray
from fiberscope.plot.style import figure_png
from fiberscope.reporting.page import Section

SUBTITLE = "Trained on two spirals a moment ago, then asked everything that fiberscope can answer."


@dataclass(frozen=True, eq=False)
class Subject:
    """The network that the tour is about, the data it learned, and the box on which it is looked at."""

    net: fs.Network
    X: FloatArray
    y: FloatArray
    box: fs.Box
    seconds: float
    epochs: int


def train_subject(seed: int = 0, epochs: int = 300) -> Subject:
    """A ``2-16-16-1`` network that tells two spirals apart; a second or two of training."""
    X, y = spirals(300, seed)
    runs = fs.train_many((2, 16, 16, 1), (X, y[:, None]), [seed], epochs=epochs, batch_size=100, lr=0.01)
    return Subject(runs.networks[0], X, y, fs.Box.cube(2, -1.25, 1.25), runs.seconds, epochs)


def spirals(count: int, seed: int = 0, turns: float = 1.5) -> tuple[FloatArray, FloatArray]:
    """Two interleaved spirals of ``count`` points each in the unit disc, labelled -1 and 1."""
    rng = np.random.default_rng(seed)
    t = np.sqrt(rng.uniform(0.02, 1, count))
    angle = 2 * np.pi * turns * t
    arm = np.stack([t * np.cos(angle), t * np.sin(angle)], axis=1)
    X = np.concatenate([arm, -arm]) + rng.normal(0, 0.015, (2 * count, 2))
    return X, np.repeat([-1.0, 1.0], count)


def stops() -> list[tuple[str, Callable[[Subject], Section]]]:
    """The stops of the tour in order, each with the name shown while it is worked out."""
    return [
        ("training", _training),
        ("parameters", _parameters),
        ("signs", _signs),
        ("roles", _roles),
        ("local map", _local),
        ("regions", _regions),
        ("curve", _curve),
        ("distance", _distance),
        ("dimension", _dimension),
        ("equality", _symmetry),
        ("simplification", _simplify),
        ("two trainings", _barrier),
        ("images", _images),
        ("files", _files),
        ("where next", _next),
    ]


def walk(subject: Subject) -> Iterator[tuple[str, Section]]:
    """Every stop's section, as soon as it is there."""
    warm()
    for name, stop in stops():
        yield name, stop(subject)


def warm() -> None:
    """Ask a tiny network what is timed below, so that no time that is shown has compilation in it."""
    tiny = fs.Network.random((2, 3, 3, 1), seed=0)
    tiny.signs(np.zeros((1, 2)))
    fs.regions(tiny, fs.Box.cube(2))
    fs.equivalent(tiny, tiny)


def _training(subject: Subject) -> Section:
    accuracy = float((np.sign(subject.net(subject.X)[:, 0]) == subject.y).mean())
    ax = fs.plot.function(subject.net, subject.box, subject.X, subject.y)
    ax.set_title("What the network computes")
    return Section(
        "A network learns two spirals",
        f"{accuracy:.1%} of {len(subject.y)} points are told apart after {subject.seconds:.1f} s of training.",
        "The colours show the network's one output; the black line is where it changes sign. Everything on this page "
        "is asked of this network.",
        [("network", repr(subject.net)), ("epochs", str(subject.epochs))],
        [("The output on the square, with the data.", figure_png(ax))],
        call="""runs = fs.train_many((2, 16, 16, 1), (X, y[:, None]), [0], epochs=300, batch_size=100, lr=0.01)
net, box = runs.networks[0], fs.Box.cube(2, -1.25, 1.25)
fs.plot.function(net, box, X, y)""",
    )


def _parameters(subject: Subject) -> Section:
    found = fs.inspect(subject.net, points=0)
    largest = [layer.largest for layer in found.layers if layer.largest is not None]
    return Section(
        "How many parameters, and how many are too many?",
        f"{found.num_parameters} parameters; {found.rescalings} of them only rescale neurons.",
        "Hidden neurons can be permuted, and each can be scaled by a positive number if its outgoing weights are "
        "divided by it. None of that changes the function, so at most D - N directions of parameter space do.",
        [
            ("parameters D", str(found.num_parameters)),
            ("hidden neurons N", str(found.num_hidden)),
            ("D - N", str(found.num_parameters - found.num_hidden)),
            ("permutations", f"10^{found.log10_permutations:.1f}"),
            ("largest entry per layer", ", ".join(f"{x:.3g}" for x in largest)),
        ],
        call="fs.inspect(net)",
    )


def _signs(subject: Subject) -> Section:
    begin = perf_counter()
    found = subject.net.signs(subject.X)
    seconds = perf_counter() - begin
    patterns = len(np.unique(found.signs, axis=0))
    weight, bias = subject.net.weights[0][0], subject.net.biases[0][0]
    x = -bias * weight / (weight @ weight)
    near = subject.net.signs(x[None])
    value = subject.net.preactivations(x[None])[0][0, 0]
    side = {-1: "negative", 0: "zero", 1: "positive"}[int(near.signs[0, 0])]
    return Section(
        "On which side of every neuron does each point lie?",
        f"{found.signs.size:,} signs, all of them proven, in {1000 * seconds:.0f} ms; {patterns} different patterns.",
        "A sign is proven by a bound of the rounding error; where that does not decide, by arithmetic of higher "
        "precision, and at last by exact arithmetic. A point put on a neuron's line as well as floats allow shows why: "
        f"the float value there is {value:.2g}, the proven sign is {side}.",
        [
            ("decided by the float bound", f"{found.by_float:,}"),
            ("by ball arithmetic", str(found.by_ball)),
            ("exactly", str(found.by_exact)),
            ("point on a line", f"({x[0]:.17g}, {x[1]:.17g})"),
            ("its sign took", "the float bound" if near.by_float == near.signs.size else "more than floats"),
        ],
        call="net.signs(X)",
        seconds=seconds,
    )


def _roles(subject: Subject) -> Section:
    found = fs.roles(subject.net, subject.X)
    rows = [
        (f"layer {row['layer']}", f"{row['dead']} dead, {row['linear']} linear, {row['switching']} switching")
        for row in found.per_layer()
    ]
    idle = int(found.dead.sum())
    return Section(
        "What does each neuron do on the data?",
        f"{int(found.switching.sum())} neurons switch, {int(found.linear.sum())} act linearly, {idle} are dead.",
        "A dead neuron never fires on these points; a linear one always does. Both could be removed without changing "
        "an output on the data.",
        rows,
        call="fs.roles(net, X)",
    )


def _local(subject: Subject) -> Section:
    x = subject.X[0]
    matrix, offset = subject.net.affine_at(x)
    gap = float(np.abs(subject.net(x[None])[0] - matrix @ x - offset).max())
    return Section(
        "What is the network near one point?",
        f"Near ({x[0]:.2f}, {x[1]:.2f}) it is f(x) = {matrix[0, 0]:+.4g} x1 {matrix[0, 1]:+.4g} x2 {offset[0]:+.4g}.",
        "On the region around a point the network is one affine map, read off its weights and the proven signs.",
        [("difference from the network at the point", f"{gap:.1g}")],
        call="matrix, offset = net.affine_at(X[0])",
    )


def _regions(subject: Subject) -> Section:
    begin = perf_counter()
    found = fs.regions(subject.net, subject.box)
    seconds = perf_counter() - begin
    certificate = found.verify()
    words = {True: "holds", False: "FAILS", None: "is undecided"}
    inner = len(found.facets) - int(found.facets.boundary.sum())
    mosaic = fs.plot.regions(found, color="mosaic")
    mosaic.set_title(f"{found.num_regions} regions")
    slopes = fs.plot.regions(found, color="value")
    slopes.set_title("The lines of both layers over the output")
    return Section(
        "Where exactly is it linear?",
        f"On {found.num_regions} regions, found in {1000 * seconds:.0f} ms; the certificate {words[certificate.ok]}.",
        "A region is a maximal set on which no neuron changes its sign. The second layer's lines bend where they cross "
        "the first layer's. Every region has a witness point whose signs were evaluated exactly.",
        [
            ("vertices, edges, regions", ", ".join(f"{n:,}" for n in found.f_vector)),
            ("edges where the function bends", f"{int(found.facets.visible.sum())} of {inner}"),
            ("decisions that needed exact arithmetic", str(found.structure.exact_decisions)),
            ("largest slope (Lipschitz constant)", f"{found.lipschitz.max():.4g}"),
            *((f"certificate: {check.name}", check.text) for check in certificate.checks),
        ],
        [
            (
                "Every patch is one region, on which the network is one affine map; the colours only tell neighbours "
                "apart.",
                figure_png(mosaic),
            ),
            ("Blue lines belong to the first layer, orange ones to the second.", figure_png(slopes)),
        ],
        call='complex = fs.regions(net, box)\ncomplex.verify()\ncomplex.plot()\ncomplex.plot(color="value")',
        seconds=seconds,
    )


def _curve(subject: Subject) -> Section:
    circle = fs.Circle(radius=0.8)
    found = fs.regions_along(subject.net, circle)
    ax = fs.plot.under_curve(fs.regions(subject.net, subject.box), found, color="value")
    ax.set_title(f"{found.num_regions} regions along the circle")
    return Section(
        "How often does it bend along a curve?",
        f"A circle of radius 0.8 passes through {found.num_regions} regions"
        f"{', certified' if found.certified else ''}; the function is affine on {found.num_pieces} pieces of it.",
        "Between two breakpoints every neuron is an affine function of the point, and all its zeros on the circle are "
        "found and certified; no sampling is involved.",
        [
            ("shortest piece", f"{found.lengths.min():.3g} of {circle.length:.4g}"),
            ("decisions that needed exact arithmetic", str(found.exact_decisions)),
        ],
        [("Breakpoints along the circle are dots.", figure_png(ax))],
        call="""along = fs.regions_along(net, fs.Circle(radius=0.8))
fs.plot.under_curve(fs.regions(net, box), along, color="value")""",
    )


def _distance(subject: Subject) -> Section:
    found = fs.boundary_distance(subject.net, subject.X)
    nearest = int(found.distance.argmin())
    x, point = subject.X[nearest], found.point[nearest]
    return Section(
        "How far are the data from the next boundary?",
        f"{float(found.distance.mean()):.4f} on average, at least {float(found.distance.min()):.2g}.",
        "The distance from a point to the boundary of its region, with the neuron that makes it and the point on the "
        "boundary that is nearest. A shorter step in any direction changes no sign.",
        [
            ("nearest of all", f"({x[0]:.4f}, {x[1]:.4f}), to ({point[0]:.4f}, {point[1]:.4f})"),
            ("by neuron", str(int(found.neuron[nearest]))),
            ("median", f"{float(np.median(found.distance)):.4f}"),
        ],
        call="fs.boundary_distance(net, X)",
    )


def _barrier(subject: Subject) -> Section:
    X, y = spirals(300, seed=0, turns=0.9)
    one, two = (wide_network(X, y, seed) for seed in (0, 1))
    data = (X.astype(np.float32), (y > 0).astype(np.int64))
    before = fs.barrier(one, two, "cross_entropy", data, points=15)
    matched = fs.match(one, two, data=data)
    after = fs.barrier(one, matched.apply(two), "cross_entropy", data, points=15)
    ax = fs.plot.barrier({"as trained": before, "neurons matched": after})
    return Section(
        "Can two trainings be joined on a straight line?",
        f"The loss on the way rises by {before.barrier:.3g}; after their neurons are matched, by {after.barrier:.2g}.",
        "Two wider networks learned gentler spirals from different initialisations. Half-way between them nothing "
        "works, because neuron 7 of one is another neuron of the other. Matching orders the neurons by the correlation "
        "of their activations, which changes no output; then the networks can be averaged.",
        [("barrier as trained", f"{before.barrier:.4g}"), ("barrier after matching", f"{after.barrier:.4g}")],
        [("Loss along the straight line between the two.", figure_png(ax))],
        call="""before = fs.barrier(a, b, "cross_entropy", (X, y))
matching = fs.match(a, b, data=(X, y))
after = fs.barrier(a, matching.apply(b), "cross_entropy", (X, y))
fs.plot.barrier({"as trained": before, "neurons matched": after})""",
    )


def wide_network(X: FloatArray, y: FloatArray, seed: int) -> nn.Module:
    """A torch module ``2-128-128-2`` that has learned the two classes."""
    net = fs.mlp((2, 128, 128, 2), seed, activation=nn.ReLU)
    inputs, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y > 0).long()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(30):
        shuffled = torch.randperm(len(inputs), generator=order)
        for part in (shuffled[i : i + 100] for i in range(0, len(shuffled), 100)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(inputs[part]), labels[part])
            torch.autograd.backward(loss)
            optimizer.step()
    return net.eval()


def _images(subject: Subject) -> Section:
    title = "What lies between three images?"
    call = """net = fs.load("digits.onnx")
plane = fs.Plane.through(images[0], images[3], images[6], margin=0.4)
fs.regions(net, plane).plot()"""
    try:
        data = fs.load_dataset("digits")
    except fs.FiberscopeError as error:
        return Section(title, f"Not asked: {error}", call=call, open=True)
    X, y = data.inputs.reshape(len(data.inputs), -1), data.targets
    net = fs.train_many((64, 32, 32, 10), (X, y), [0], epochs=12, batch_size=64, loss="cross_entropy").networks[0]
    first, second, third = corners = [X[np.flatnonzero(y == digit)[0]] for digit in (0, 3, 6)]
    begin = perf_counter()
    found = fs.regions(net, fs.Plane.through(first, second, third, margin=0.4))
    seconds = perf_counter() - begin
    ax = fs.plot.images_at(fs.plot.regions(found), [corner.reshape(8, 8) for corner in corners])
    ax.set_title(f"{found.num_regions} regions between a 0, a 3 and a 6")
    right = float((net(X).argmax(axis=1) == y).mean())
    return Section(
        title,
        f"{found.num_regions} linear regions, on the plane through a 0, a 3 and a 6.",
        f"A network that reads {right:.1%} of 1,797 digits of 8 by 8 pixels, on the plane through three of them. All "
        "of its input space, 64 dimensions, has far too many regions to list; on a plane every one is found.",
        [("architecture", net.architecture), ("certificate", "holds" if found.verify().ok else "does not hold")],
        [("Every patch is one region; the colours only tell neighbours apart.", figure_png(ax))],
        call=call,
        seconds=seconds,
    )


def _next(subject: Subject) -> Section:
    return Section(
        "Where to go next",
        "Ask your own model.",
        "Every command explains itself with --help, and every function in Python with help(); the documentation goes "
        "from questions to functions.",
        [
            ("one page about your model", "fiberscope report model.onnx"),
            ("is the export the same function?", "fiberscope equal model.onnx export.onnx --certificate proof.json"),
            ("where is it linear?", "fiberscope regions model.onnx --plot regions.png"),
            ("which neurons are idle?", "fiberscope simplify model.onnx small.onnx"),
            ("do a paper's claims hold?", "fiberscope reproduce --list"),
            ("three notebooks", "examples/notebooks: theorist, auditor and merger, teacher"),
        ],
    )


def _dimension(subject: Subject) -> Section:
    found = fs.functional_dimension(subject.net, subject.X)
    rows = [
        ("exact rank", f"{found.exact}{', certified by an upper bound that meets it' if found.certified else ''}"),
        ("numerical rank in float64", str(found.numerical)),
        ("rank in float32, the rule of the literature", str(found.paper)),
        ("regions that the data visit", str(found.regions_sampled)),
        *(
            (f"bound: {b.name}", f"{b.value}{'' if b.holds else ' (its assumptions are not met)'}")
            for b in found.bounds
        ),
    ]
    return Section(
        "How many directions of parameter space change what it does on the data?",
        f"{found.exact} of {found.num_parameters}.",
        "The rank of the Jacobian of all outputs on the data with respect to all parameters. Floats are taken as exact "
        "rational numbers and the rank is computed modulo two large random primes.",
        rows,
        [("Singular values, the two cut-offs, and the exact rank.", figure_png(fs.plot.spectrum(found)))],
        call="found = fs.functional_dimension(net, X)\nfound.plot()",
    )


def _symmetry(subject: Subject) -> Section:
    rng = np.random.default_rng(0)
    widths = subject.net.widths[1:-1]
    moved = fs.permute(subject.net, [rng.permutation(n) for n in widths])
    moved = fs.rescale(moved, [2.0 ** rng.integers(-3, 4, n) for n in widths])
    distance = np.sqrt(sum(float(((subject.net.parameters[k] - v) ** 2).sum()) for k, v in moved.parameters.items()))
    equal = fs.equivalent(subject.net, moved, tolerance=0)
    weights = [w.copy() for w in moved.weights]
    weights[0][0, 0] = np.nextafter(weights[0][0, 0], np.inf)
    nudged = fs.Network(weights, moved.biases)
    differs = fs.equivalent(subject.net, nudged, tolerance=0)
    answers = {True: "proven equal", False: "proven different", None: "undecided"}
    return Section(
        "Is a copy with other parameters the same function?",
        f"A copy at distance {distance:.1f} in parameter space: {answers[equal.equal]} "
        f"in {1000 * equal.seconds:.0f} ms.",
        "The neurons of both layers were shuffled and rescaled by powers of two. With the last bit of one weight "
        f"changed, the real function is another one: {answers[differs.equal]}.",
        [
            ("distance of the parameters", f"{distance:.4g}"),
            ("the copy", f"{answers[equal.equal]}, by {equal.method}"),
            ("one bit changed in one weight", f"{answers[differs.equal]}, by {differs.method}"),
        ],
        call="""copy = fs.rescale(fs.permute(net, permutations), scales)
fs.equivalent(net, copy, tolerance=0)""",
        seconds=equal.seconds,
    )


def _simplify(subject: Subject) -> Section:
    found = fs.simplify(subject.net, subject.box)
    before, after = subject.net, found.network
    return Section(
        "Can it be smaller without changing anything?",
        f"On the square, {before.num_hidden} hidden neurons become {after.num_hidden}, and "
        f"{before.num_parameters} parameters {after.num_parameters}.",
        "Neurons that are dead or linear on the whole square are removed or folded, with a proof; those whose role is "
        "not proven are left alone.",
        [
            ("before", before.architecture),
            ("after", after.architecture),
            ("the same function there", {True: "proven", False: "refuted", None: "undecided"}[found.verdict.equal]),
        ],
        call="small = fs.simplify(net, box)\nsmall.network, small.verdict",
    )


def _files(subject: Subject) -> Section:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("npz", "safetensors", "pt", "onnx"):
            path = Path(folder) / f"model.{ending}"
            fs.save(subject.net, path)
            same = fs.identical(fs.load(path), subject.net)
            rows.append((f".{ending}", f"{path.stat().st_size:,} bytes, {'bit-identical' if same else 'CHANGED'}"))
    return Section(
        "Does it survive being written to a file?",
        "Yes: written and read again in four formats, every bit is the same."
        if all("bit-identical" in value for _, value in rows)
        else "No: a format changed it.",
        "Torch modules and scikit-learn networks can be loaded as well, and files are never unpickled.",
        rows,
        call='fs.save(net, "model.onnx")\nfs.identical(fs.load("model.onnx"), net)',
    )
