"""The questions about a model's parameters: how many directions matter, and which others are the same function."""

from __future__ import annotations

from functools import partial

import numpy as np

import fiberscope as fs
from fiberscope.errors import TooLargeError, UnsupportedModelError
from fiberscope.extras import import_module
from fiberscope.network.network import Network
from fiberscope.plot.style import figure_png
from fiberscope.reporting.dossier import Dossier, on_some
from fiberscope.reporting.page import Section

MOST_ENTRIES = 4_000_000
"""Entries of the Jacobian up to which the functional dimension is asked for, and so many points are taken."""

MOST_HIDDEN = 128
"""Hidden neurons up to which the fiber is asked for: its theorems look at many submatrices."""


def how_many_directions(dossier: Dossier) -> Section:
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


def which_others(dossier: Dossier) -> Section:
    if dossier.net.num_hidden > MOST_HIDDEN:
        reason = f"{dossier.net.num_hidden:,} hidden neurons are above the {MOST_HIDDEN} that a report asks about"
        return _known_symmetries(dossier, f"{reason}; fs.identifiability(net) and fs.fiber(net) may take minutes")
    try:
        found = fs.fiber(dossier.net)
    except UnsupportedModelError as error:
        return _known_symmetries(dossier, " ".join(str(error).split()))
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


def _known_symmetries(dossier: Dossier, reason: str) -> Section:
    """What every network of the architecture has, where no theorem is asked: a part of the fiber."""
    rank: int = import_module("fiberscope.dimension.rescalings").rescalings(dossier.net).rank
    answer = f"A family of dimension {rank:,} at least" if rank else "None is known"
    return Section(
        "Which other parameters are the same function?",
        f"{answer}; whether there are others was not asked.",
        "The fiber of a parameter is the set of all parameters of the architecture with the same function. Neurons and "
        "channels may be permuted, and rescaled by positive factors, as far as skip connections, pools and shared "
        "weights allow.",
        [
            ("symmetries of the architecture", _symmetries(dossier.net)),
            ("independent rescalings", f"{rank:,}"),
            ("not asked", reason),
        ],
        open=True,
        call=f"{dossier.load}\nfs.explain(net, X)" if dossier.X is not None else f"{dossier.load}\nfs.explain(net)",
        evidence="the rescalings follow from the program itself, in exact arithmetic; no theorem was asked for more.",
        data={"dimension_at_least": rank, "not_asked": reason},
    )


def _symmetries(net: Network) -> str:
    """What every network of the architecture shares with others, in words."""
    if not net.is_chain:
        return "permutations and positive rescalings of neurons, as far as skip connections and pools allow"
    hidden = net.widths[1:-1]
    orders = " x ".join(f"{n}!" for n in hidden)
    return f"{orders} permutations, and a positive factor for each of {sum(hidden):,} neurons" if hidden else "none"
