"""The entry function: are two networks the same function?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fiberscope.equality.interval import interval_of
from fiberscope.equality.measures import equivalent_by, measure_of
from fiberscope.equality.question import CRITERIA, Question, single_tolerance
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
    split_boxes,
    split_neurons,
    structure,
    symmetry,
)
from fiberscope.equality.verdict import Rung, Verdict
from fiberscope.errors import InputError, OutOfTimeError, UnsupportedModelError
from fiberscope.extras import import_module
from fiberscope.geometry.domains import Domain
from fiberscope.network.border import NetworkLike, as_network, library_of, loaded
from fiberscope.network.network import Network
from fiberscope.run import Progress

RUNGS: tuple[Rung, ...] = (
    identical.RUNG,
    split_boxes.QUICK,
    split_neurons.RUNG,
    symmetry.RUNG,
    structure.RUNG,
    output_ranges.RUNG,
    random_inputs.RUNG,
    bottleneck.RUNG,
    normal_form.RUNG,
    channels.RUNG,
    split_boxes.FIRST,
    covering_inputs.RUNG,
    simplification.RUNG,
    regions.RUNG,
    gradients.RUNG,
    split_boxes.RUNG,
)
"""From cheap to dear. A new method is its file in ``rungs``, one entry here, and its test.

Normal forms, in exact arithmetic, come before channels, which can count roundings where nothing differs.
"""


CLASSES: tuple[Rung, ...] = (
    split_boxes.QUICK,
    split_neurons.RUNG,
    random_inputs.RUNG,
    split_boxes.FIRST,
    split_boxes.RUNG,
)
"""The methods that can be asked about classes; all others show that the two are the same real function, or nothing."""

FIRST_FOR_CLASSES = (identical.RUNG, *CLASSES[:3], symmetry.RUNG, structure.RUNG, split_boxes.FIRST)
"""What knows of classes comes first where they are asked about, and before what takes long that which takes no time."""


def equivalent(
    a: NetworkLike,
    b: NetworkLike,
    domain: Domain | None = None,
    tolerance: float | Sequence[float] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    example: Any = None,
    *,
    criterion: str = "value",
    margin: float | None = None,
    norm: str = "max",
    progress: Progress | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    state: Path | str | None = None,
) -> Verdict:
    """Whether two networks are the same function on a domain: proven True, proven False, or None for undecided.

    Three kinds of equality, never mixed up:

    - ``tolerance=None``, *up to rounding*: a permutation and rescaling carries one parameter onto the other within a
      few ulps of every entry, or the two have normal forms or affine maps that agree within the rounding error of
      computing them. A counterexample differs by so much more than the rounding errors of evaluating both that a few
      ulps in every parameter cannot explain it.
    - ``tolerance=0``, *the same real function*: floats are exact rationals, one ulp in one weight makes two functions.
    - ``tolerance=e > 0``: ``max |a - b| <= e`` on the domain; ``tolerance=[e_1, ..., e_m]``: each output within its
      own; ``norm="sum"``: the sum over all outputs within ``e`` (up to ten of them).

    ``criterion="argmax"`` asks for the same class instead: wherever one output of ``a`` is larger than all others (by
    ``margin`` at least, if one is given, in units of the outputs), no output of ``b`` is larger than the same one of
    ``b``. A counterexample is an input at which the classes differ.

    Methods are tried from cheap to dear: symmetry (permutations, rescalings), random inputs, the theorem about
    three-layer bottlenecks (moved and reflected hyperplanes), normal forms (dead, linear, duplicated neurons; complete
    for one hidden layer), simplification with bounds of the difference, the regions of both networks where they are
    few, and on boxes branch and bound on the difference, for as long as there is time. Every counterexample is
    confirmed in exact arithmetic. In general the question is coNP-hard, so None is a possible answer; ``interval`` says
    what is known of the largest difference in any case.

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
    criterion, margin
        ``"value"`` (compared as ``tolerance`` says) or ``"argmax"``.
    norm
        Of the differences of all outputs: ``"max"`` or ``"sum"``.
    progress
        Is told how far the search is.
    jobs, cluster
        Branch and bound in so many processes (None: one for every core), or on ``"dask://HOST:PORT"`` or another joblib
        backend. The verdict and its certificate do not depend on it.
    state
        A file that holds the open boxes of branch and bound while it runs; a run that was killed goes on from there.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])  # relu(x) - relu(-x) = x
    >>> equivalent(net, Network([[[1.0]]], [[0.0]]), tolerance=0).equal
    True
    >>> other = Network([[[1.0 + 2.0**-52]]], [[0.0]])  # one ulp
    >>> equivalent(net, other, tolerance=0).equal, equivalent(net, other).equal
    (False, True)
    >>> from fiberscope.geometry.domains import Box
    >>> near = Network([[[1.0], [0.5]]], [[0.0, 0.0]]), Network([[[1.0], [0.625]]], [[0.25, 0.0]])  # off by 1/4 and x/8
    >>> [equivalent(*near, Box.cube(1), e).equal for e in ([0.25, 0.125], [0.25, 0.1])]
    [True, False]
    >>> [equivalent(*near, Box.cube(1), e, norm="sum").equal for e in (0.375, 0.3)]
    [True, False]
    """
    ahead = _margin(criterion, margin, tolerance)
    options: dict[str, Any] = {"time_limit": time_limit, "seed": seed, "progress": progress}
    options |= {"jobs": jobs, "cluster": cluster, "state": state}
    single = single_tolerance(tolerance)
    plain = norm == "max" and (tolerance is None or single is not None)
    if not plain and ahead is not None:
        raise InputError("norm: expected 'max' and one tolerance with criterion='argmax', which compares no values")
    quantised = any(str(source).endswith(".onnx") for source in (a, b)) and any(map(is_quantised_file, (a, b)))
    if quantised and plain:
        bounded = import_module("fiberscope.equality.beyond.quantised").equivalent_quantised
        within: Verdict = bounded(a, b, domain, single, ahead, equivalent, **options)
        return within
    programs = None if quantised else as_programs(a, b, example)
    if programs is None and not plain:
        raise InputError(
            "norm, tolerance: expected 'max' and one number for quantised files and for modules that are no programs"
        )
    if programs is None:
        exactly = single if ahead is None else 0.0  # the same class follows from the same real function
        live: Verdict = import_module("fiberscope.equality.beyond.live").equivalent_modules(a, b, example, exactly)
        return replace(live, tolerance=single, margin=ahead)
    a, b = programs
    measure = None if plain else measure_of(tolerance, norm, a.out_size)
    if measure is not None:
        return equivalent_by(measure, a, b, domain, equivalent, **options)
    start = time.monotonic()
    question = Question.of(a, b, domain, single, time_limit, seed, margin=ahead, progress=progress)
    if jobs != 1 or cluster is not None:
        question.backend = import_module("fiberscope.backends").choose_backend(jobs, cluster)
    question.state = None if state is None else Path(state)
    tried: list[tuple[str, float]] = []
    verdict = _decided(question, tried)
    if verdict is None:
        reason = "; ".join(dict.fromkeys(question.notes)) or "no method decides this pair"
        verdict = Verdict(None, "no method", question.domain, question.tolerance, reason=reason, margin=ahead)
    known, seconds = interval_of(question, verdict), time.monotonic() - start
    return replace(
        verdict, networks=(a, b), seconds=seconds, precision=question.precision, interval=known, tried=tuple(tried)
    )


def as_programs(a: NetworkLike, b: NetworkLike, example: Any) -> tuple[Network, Network] | None:
    """Both as networks; None where they are torch modules that are no programs, and an example says how they run."""
    try:
        return as_network(a, "a", example), as_network(b, "b", example)
    except (UnsupportedModelError, InputError) as error:
        live = [library_of(source) == "torch" for source in (a, b)]
        if example is not None and all(live):
            return None
        if isinstance(error, InputError) and example is None and any(live) and not all(live):
            return _of_one_shape(a, b, live[0])  # a module does not tell its inputs; its export does
        if isinstance(error, InputError) or not all(live):
            raise
        raise UnsupportedModelError(f"{error}; with example=inputs such modules are compared by structure") from error


def _of_one_shape(a: NetworkLike, b: NetworkLike, first: bool) -> tuple[Network, Network]:
    """Both as networks, one of them, the first or the second, with inputs of the other one's shape."""
    if first:
        right = as_network(b, "b")
        return loaded(a, right.input_shape, "a"), right
    left = as_network(a, "a")
    return left, loaded(b, left.input_shape, "b")


def is_quantised_file(source: Any) -> bool:
    """Whether this is a file that rounds what it computes."""
    return bool(import_module("fiberscope.network.formats.onnx.quantised").is_quantised(source))


def _margin(criterion: str, margin: float | None, tolerance: Any) -> float | None:
    """The margin of a question about classes, None for one about values."""
    if criterion not in CRITERIA:
        raise InputError(f"criterion: expected one of {', '.join(CRITERIA)}, got {criterion!r}")
    if criterion == "value":
        if margin is not None:
            raise InputError("margin: expected criterion='argmax' with it, got 'value'")
        return None
    if tolerance is not None:
        raise InputError("tolerance: expected none with criterion='argmax', which compares no values")
    return 0.0 if margin is None else margin


def _decided(question: Question, tried: list[tuple[str, float]]) -> Verdict | None:
    """The verdict of the first rung that has one; those that were asked are listed with their seconds."""
    try:
        rest = [rung for rung in RUNGS if rung not in FIRST_FOR_CLASSES]
        order = RUNGS if question.margin is None else (*FIRST_FOR_CLASSES, *rest)
        for rung in order:
            question.run.step(len(tried), len(RUNGS), rung.name)
            start = time.monotonic()
            try:
                verdict = _asked(rung, question)
            finally:
                tried.append((rung.name, time.monotonic() - start))
            if verdict is not None:
                return verdict
    except OutOfTimeError:
        question.notes.append("out of time")
    return None


def _asked(rung: Rung, question: Question) -> Verdict | None:
    """What a method says; one that knows nothing of classes can show that the two are the same real function."""
    if question.margin is None or rung in CLASSES:
        return rung.search(question)
    found = rung.search(question.exactly())
    return replace(found, tolerance=None, margin=question.margin) if found is not None and found.equal else None
