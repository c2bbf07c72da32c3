"""The entry function: are two networks the same function?"""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import import_module
from typing import Any

from fiberscope.equality.question import Question
from fiberscope.equality.rungs import (
    bottleneck,
    channels,
    covering_inputs,
    gradients,
    identical,
    normal_form,
    output_ranges,
    random_inputs,
    regions,
    simplification,
    structure,
    symmetry,
)
from fiberscope.equality.verdict import Rung, Verdict
from fiberscope.errors import InputError, OutOfTimeError, UnsupportedModelError
from fiberscope.geometry.domains import Domain
from fiberscope.network.io import NetworkLike, as_network, library_of

RUNGS: tuple[Rung, ...] = (
    identical.RUNG,
    symmetry.RUNG,
    structure.RUNG,
    channels.RUNG,
    output_ranges.RUNG,
    random_inputs.RUNG,
    bottleneck.RUNG,
    normal_form.RUNG,
    covering_inputs.RUNG,
    simplification.RUNG,
    regions.RUNG,
    gradients.RUNG,
)
"""From cheap to dear. A new method is its file in ``rungs``, one entry here, and its test."""


def equivalent(
    a: NetworkLike,
    b: NetworkLike,
    domain: Domain | None = None,
    tolerance: float | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    example: Any = None,
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
    example
        Inputs of torch modules, for their shape. With it, modules that are not piecewise linear (transformers, GELU)
        are compared by structure: one program, parameters equal up to permutations of neurons; else undecided.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])  # relu(x) - relu(-x) = x
    >>> equivalent(net, Network([[[1.0]]], [[0.0]]), tolerance=0).equal
    True
    >>> other = Network([[[1.0 + 2.0**-52]]], [[0.0]])  # one ulp
    >>> equivalent(net, other, tolerance=0).equal, equivalent(net, other).equal
    (False, True)
    """
    if any(str(source).endswith(".onnx") for source in (a, b)) and any(map(_quantised, (a, b))):
        bounded = import_module("fiberscope.equality.quantised").equivalent_quantised
        within: Verdict = bounded(a, b, domain, tolerance, time_limit, equivalent)
        return within
    try:
        a, b = as_network(a, "a", example), as_network(b, "b", example)
    except (UnsupportedModelError, InputError):
        if example is None or library_of(a) != "torch" or library_of(b) != "torch":
            raise
        live: Verdict = import_module("fiberscope.equality.live").equivalent_modules(a, b, example, tolerance)
        return live
    start = time.monotonic()
    question = Question.of(a, b, domain, tolerance, time_limit, seed)
    verdict = _decided(question)
    if verdict is None:
        reason = "; ".join(dict.fromkeys(question.notes)) or "no method decides this pair"
        verdict = Verdict(None, "no method", question.domain, question.tolerance, reason=reason)
    return replace(verdict, networks=(a, b), seconds=time.monotonic() - start, precision=question.precision)


def _quantised(source: Any) -> bool:
    """Whether this is a file that rounds what it computes."""
    return bool(import_module("fiberscope.network.quantised").is_quantised(source))


def _decided(question: Question) -> Verdict | None:
    """The verdict of the first rung that has one."""
    try:
        for rung in RUNGS:
            question.run.check()
            verdict = rung.search(question)
            if verdict is not None:
                return verdict
    except OutOfTimeError:
        question.notes.append("out of time")
    return None
