"""What changed between two models, and does it matter? Four answers, from the most that can be said to the least.

1. *Structure*: they are the same program, or their parameters are the same up to a symmetry.
2. *Rounding*: they are the same function up to the rounding of the precision that their numbers are stored in.
3. *Data*: how far apart they are on samples; this is measured and proves nothing about other inputs.
4. *Domain*: the question that was asked, with a proof or a counterexample.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fiberscope.equality.counterexample import exact_outputs
from fiberscope.equality.ladder import RUNGS, as_programs, equivalent
from fiberscope.equality.measures import measure_of
from fiberscope.equality.question import DEFAULT_SECONDS, Question, single_tolerance
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.extras import import_module
from fiberscope.geometry.domains import Domain
from fiberscope.network.border import NetworkLike
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result

STRUCTURAL = frozenset({"identical", "symmetry", "layers", "channels"})
"""Kinds of evidence that show one program in two forms, whatever the domain."""

_CHUNK = 1024
"""Samples that are evaluated at once."""

_EXACT = 1_000_000
"""Parameters up to which the worst sample is evaluated exactly."""


@dataclass(frozen=True, slots=True, eq=False)
class DataAgreement(Result):
    """How two models agree on samples: measured in float64, at these inputs and at no others.

    ``largest`` is the largest difference of an output, at sample ``worst``; there it is exact, rounded to nearest, if
    ``exact``. ``differing`` are the samples whose classes (the first largest output) differ, None with one output.
    Live modules that are no programs are measured in their own precision, and have classes where they give a vector.
    """

    samples: int
    largest: float
    worst: int
    exact: bool
    differing: IntArray | None
    a: FloatArray
    b: FloatArray

    @property
    def text(self) -> str:
        """In words."""
        told = f"largest difference {self.largest:.6g} at sample {self.worst} of {self.samples}"
        if self.differing is None:
            return told
        return f"{told}, {len(self.differing)} of {self.samples} classes differ"


@dataclass(frozen=True, slots=True, eq=False)
class Audit(Result):
    """Four answers about two models; ``structure`` is None where none was found, ``data`` where none were given.

    ``verdict`` answers the question that was asked. It is all that an exit code or an assertion should look at.
    """

    structure: Verdict | None
    rounding: Verdict
    data: DataAgreement | None
    verdict: Verdict
    seconds: float

    @property
    def equal(self) -> bool | None:
        """The answer to the question that was asked."""
        return self.verdict.equal


def agreement(a: Network, b: Network, data: Any) -> DataAgreement:
    """How two networks agree on samples ``(count, in_size)``, or of any shape with the samples along the first axis.

    >>> found = agreement(Network([[[1.0]]], [[0.0]]), Network([[[1.5]]], [[0.0]]), [[0.0], [2.0], [-1.0]])
    >>> found.largest, found.worst
    (1.0, 1)
    """
    points = real_array(data, "data")
    if points.ndim == 0 or not len(points) or points.size != len(points) * a.in_size:
        raise InputError(f"data: expected samples of {a.in_size} numbers, got an array of shape {points.shape}")
    points = points.reshape(len(points), a.in_size)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = np.array_split(points, -(-len(points) // _CHUNK))
        left, right = (np.concatenate([net(part) for part in parts]) for net in (a, b))
    measured = _measured(left, right, a.out_size > 1)
    if max(a.num_parameters, b.num_parameters) > _EXACT:
        return measured
    x = points[measured.worst]
    largest = float(max(abs(p - q) for p, q in zip(exact_outputs(a, x), exact_outputs(b, x), strict=True)))
    return replace(measured, largest=largest, exact=True)


def _measured(left: FloatArray, right: FloatArray, classes: bool) -> DataAgreement:
    """From what both give on the samples, a row for each."""
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.abs(left - right).max(axis=1)
    gaps = np.where(np.isnan(gaps), np.inf, gaps)
    worst = int(gaps.argmax())
    differing = np.flatnonzero(left.argmax(axis=1) != right.argmax(axis=1)) if classes else None
    return DataAgreement(len(left), float(gaps[worst]), worst, False, differing, left[worst], right[worst])


def _agreement_of_modules(a: Any, b: Any, data: Any) -> DataAgreement:
    """How two live modules agree on samples."""
    outputs_on = import_module("fiberscope.equality.beyond.live").outputs_on
    (left, vector), (right, _) = (outputs_on(source, name, data) for source, name in ((a, "a"), (b, "b")))
    if left.shape != right.shape:
        raise InputError(f"outputs: expected as many of both, got {left.shape[1]} and {right.shape[1]} a sample")
    return _measured(left, right, vector and left.shape[1] > 1)


def structure(a: Network, b: Network, domain: Domain | None = None, time_limit: float = 10.0) -> Verdict | None:
    """The verdict of the methods that show one program in two forms, on all of space or with a bound on a box."""
    question = Question.of(a, b, domain, None, time_limit)
    rungs = [rung for rung in RUNGS if {kind.kind for kind in rung.evidence} <= STRUCTURAL]
    start = time.monotonic()
    try:
        for rung in rungs:
            question.run.check()
            found = rung.search(question)
            if found is not None:
                seconds = time.monotonic() - start
                return replace(found, networks=(a, b), seconds=seconds, precision=question.precision)
    except OutOfTimeError:
        pass
    return None


def audit(
    a: NetworkLike,
    b: NetworkLike,
    domain: Domain | None = None,
    tolerance: float | Sequence[float] | None = None,
    data: Any = None,
    time_limit: float | None = None,
    seed: int = 0,
    example: Any = None,
    **options: Any,
) -> Audit:
    """Four answers about two models: structure, rounding, data, and the question about a domain.

    Parameters
    ----------
    a, b
        Networks with the same numbers of inputs and outputs.
    domain, tolerance, seed
        The question, as for :func:`fiberscope.equivalent`; further ``options`` are handed on to it.
    data
        Samples ``(count, in_size)`` on which the two are compared besides; None for none.
    time_limit
        Seconds for all answers together; 60 for None.
    example
        Inputs of torch modules, as for :func:`fiberscope.equivalent`. With it, modules that are not piecewise linear
        are compared too: by structure, and on ``data`` in the form that they take, such as a dict of token ids.

    Examples
    --------
    >>> from fiberscope.geometry.domains import Box
    >>> net = Network.random((2, 4, 1), seed=0)
    >>> other = Network(net.weights, [net.biases[0] + 1e-3, net.biases[1]])
    >>> found = audit(net, other, Box.cube(2), tolerance=0.1, data=[[0.0, 0.0], [1.0, 1.0]])
    >>> found.structure, found.rounding.equal, found.equal
    (None, False, True)
    """
    start, seconds = time.monotonic(), DEFAULT_SECONDS if time_limit is None else time_limit
    programs = as_programs(a, b, example)
    if programs is None:
        verdict = equivalent(a, b, domain, tolerance, time_limit, seed, example, **options)
        measured = None if data is None else _agreement_of_modules(a, b, data)
        return Audit(verdict if verdict.equal else None, verdict, measured, verdict, time.monotonic() - start)
    a, b = programs
    single, norm = single_tolerance(tolerance), options.get("norm", "max")
    if norm != "max" or (single is None and tolerance is not None):
        measure_of(tolerance, norm, a.out_size)
    Question.of(
        a, b, domain, single, seconds, seed, margin=options.get("margin")
    )  # what cannot be asked is refused before anything is done
    measured = None if data is None else agreement(a, b, data)
    shape = structure(a, b, domain, min(10.0, seconds / 4))
    asked_rounding = tolerance is None and options.get("criterion", "value") == "value"
    rounding = shape
    if rounding is None and not asked_rounding:
        rounding = equivalent(a, b, domain, None, seconds / 4, seed)
    left = max(seconds - (time.monotonic() - start), 0.001)
    verdict = equivalent(a, b, domain, tolerance, left, seed, **options)
    if asked_rounding or rounding is None:
        rounding = verdict
    return Audit(shape, rounding, measured, verdict, time.monotonic() - start)
