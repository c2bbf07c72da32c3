"""The entry function: are two networks the same function?"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from fiberscope.equality.question import Question, Rung
from fiberscope.equality.refutation import by_coverage, by_gradients, by_samples
from fiberscope.equality.rungs.bottleneck import by_bottleneck
from fiberscope.equality.rungs.normal_form import by_forms
from fiberscope.equality.rungs.regions import by_regions
from fiberscope.equality.rungs.structure import by_structure
from fiberscope.equality.rungs.symmetry import by_simplification, by_symmetry
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.geometry.domains import Domain
from fiberscope.geometry.samples import domain_of, sliced
from fiberscope.network.io import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.source import coarsest
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.ulps import ROUNDINGS
from fiberscope.run import Run

RUNGS: tuple[Rung, ...] = (
    by_symmetry,
    by_structure,
    by_samples,
    by_bottleneck,
    by_forms,
    by_coverage,
    by_simplification,
    by_regions,
    by_gradients,
)
"""From cheap to dear; each gives a verdict or None. A method for another class of networks is one more entry."""

DEFAULT_SECONDS = 60.0


def equivalent(
    a: NetworkLike,
    b: NetworkLike,
    domain: Domain | None = None,
    tolerance: float | None = None,
    time_limit: float | None = None,
    seed: int = 0,
) -> Verdict:
    """Whether two networks are the same function on a domain: proven True, proven False, or None for undecided.

    Three kinds of equality, never mixed up:

    - ``tolerance=None``, *up to rounding*: a permutation and rescaling carries one parameter onto the other within a
      few ulps of every entry, or the two have normal forms or affine maps that agree within the rounding error of
      computing them. A counterexample differs by so much more than the rounding errors of evaluating both that a few
      ulps in every parameter cannot explain it.
    - ``tolerance=0``, *the same real function*: floats are exact rationals, one ulp in one weight makes two functions.
    - ``tolerance=e > 0``: ``max |a - b| <= e`` on the domain.

    Methods are tried from cheap to dear: symmetry (permutations, rescalings), random inputs, the theorem about
    three-layer bottlenecks (moved and reflected hyperplanes), normal forms (dead, linear, duplicated neurons; complete
    for one hidden layer), simplification with bounds of the difference, the regions of both networks in up to three
    dimensions, inputs improved along gradients. Every counterexample is
    confirmed in exact arithmetic. In general the question is coNP-hard, so None is a possible answer.

    Parameters
    ----------
    a, b
        Networks with the same numbers of inputs and outputs.
    domain
        A box, orthant, polytope, plane or all of space (None).
    time_limit
        Seconds after which to give up; 60 for None. Every loop looks at it, so it is passed by a second at most.

    Examples
    --------
    >>> net = Network([[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])  # relu(x) - relu(-x) = x
    >>> equivalent(net, Network([[[1.0]]], [[0.0]]), tolerance=0).equal
    True
    >>> other = Network([[[1.0 + 2.0**-52]]], [[0.0]])  # one ulp
    >>> equivalent(net, other, tolerance=0).equal, equivalent(net, other).equal
    (False, True)
    """
    a = as_network(a, "a")
    b = as_network(b, "b")
    start = time.monotonic()
    question = question_for(a, b, domain, tolerance, time_limit, seed)
    precision = question.rounding.precision if question.tolerance is None else None
    for rung in RUNGS:
        if question.seconds_left <= 0:
            question.notes.append("out of time")
            break
        try:
            verdict = rung(question)
        except OutOfTimeError:
            question.notes.append("out of time")
            break
        if verdict is not None:
            return replace(verdict, networks=(a, b), seconds=time.monotonic() - start, precision=precision)
    reason = "; ".join(dict.fromkeys(question.notes)) or "no method decides this pair"
    return Verdict(
        None,
        "no method",
        question.domain,
        question.tolerance,
        reason=reason,
        networks=(a, b),
        seconds=time.monotonic() - start,
        precision=precision,
    )


def question_for(
    a: Network, b: Network, domain: Domain | None, tolerance: float | None, time_limit: float | None, seed: int
) -> Question:
    """The question with everything checked; on a plane, in the coordinates of the slice."""
    _check(a, b, tolerance)
    where = domain_of(a, domain)
    left, place = sliced(a, where)
    right, _ = sliced(b, where)
    allowed = None if tolerance is None else float(tolerance)
    run = Run.begin(time_limit=DEFAULT_SECONDS if time_limit is None else time_limit)
    rounding = ROUNDINGS[coarsest([a.source.precision, b.source.precision])]
    return Question(left, right, place, where, allowed, rounding, run, np.random.default_rng(seed))


def _check(a: Network, b: Network, tolerance: float | None) -> None:
    if a.in_size != b.in_size or a.out_size != b.out_size:
        raise InputError(
            f"networks: expected the same inputs and outputs, got {a.in_size} -> {a.out_size} and "
            f"{b.in_size} -> {b.out_size}"
        )
    if tolerance is not None and not float(real_array(tolerance, "tolerance", ndim=0)) >= 0:
        raise InputError(f"tolerance: expected None, 0 or a positive number, got {tolerance}")
