"""The answer to the question whether two networks are one function, with its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.equality.counterexample import Counterexample
from fiberscope.equality.evidence import Check, Evidence
from fiberscope.geometry.domains import Box, Domain
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden

if TYPE_CHECKING:
    from fiberscope.equality.question import Question
    from fiberscope.equality.roundings import RoundingInputs


@dataclass(frozen=True, slots=True, eq=False)
class Interval(Result):
    """Where the largest difference of an output on a domain lies: ``low <= max |a - b| <= high``.

    ``low`` is the difference at the input ``x``, rounded down from its exact value (from floats with a bound of their
    error for large networks); ``high`` is proven. ``x`` has the coordinates of the input; on a plane those of
    the plane.
    """

    low: float
    high: float
    x: FloatArray | None = None

    @property
    def ratio(self) -> float:
        """``high / low``: how much is left open."""
        if self.high == 0:
            return 1.0
        return self.high / self.low if self.low > 0 else np.inf

    def __repr__(self) -> str:
        return f"Interval([{self.low:.6g}, {self.high:.6g}])"


@dataclass(frozen=True, slots=True, eq=False)
class Verdict(Result):
    """Whether two networks are the same function on a domain: True and False are proven, None is undecided.

    ``tolerance`` names the kind of equality: None *up to rounding*, 0 *the same real function*, a positive number
    *within it everywhere on the domain*. ``evidence`` is what was found: a witness of equality, a counterexample, or
    representations that differ. ``bound`` is the largest difference that is proven (0 for the same real function),
    ``residual`` how far the evidence is from exact agreement, in ulps. ``reason`` says in words what was found.
    ``interval`` holds the largest difference on the domain, whatever the answer is. With a ``margin`` classes were
    compared, and neither tolerance nor bound are about them. ``tried`` are the methods that were asked, each with its
    seconds. Of quantised graphs ``networks`` are programs that have inputs for ``rounding`` besides.

    With ``tolerances``, one for every output, ``tolerance``, ``bound`` and ``interval`` are in units of them: 1 is what
    is allowed. With the ``norm`` ``"sum"`` they are about the sum of all differences. In both cases ``networks`` end in
    what is compared, and a certificate is about those; ``counterexample`` has the outputs as they are.
    """

    equal: bool | None
    method: str
    domain: Domain
    tolerance: float | None = None
    evidence: Evidence | None = field(default=None, metadata=hidden())
    bound: float | None = None
    residual: float | None = None
    seconds: float = 0.0
    reason: str = ""
    networks: tuple[Network, Network] | None = field(default=None, repr=False, metadata=hidden())
    precision: str | None = None
    interval: Interval | None = None
    margin: float | None = None
    tried: tuple[tuple[str, float], ...] = ()
    rounding: RoundingInputs | None = field(default=None, repr=False, metadata=hidden())
    norm: str = "max"
    tolerances: tuple[float, ...] | None = None
    shown: Counterexample | None = field(default=None, repr=False, metadata=hidden())

    told = ("witness=_named_witness", "counterexample")

    def _named_witness(self) -> dict[str, Any] | None:
        return None if self.witness is None else {"kind": self.witness.kind, **self.witness.to_dict()}

    @property
    def witness(self) -> Evidence | None:
        """Why the two are equal, where they are: ``permutations``, ``scales``, ``flips`` and ``translation``."""
        return self.evidence if self.equal else None

    @property
    def counterexample(self) -> Counterexample | None:
        """An input at which the two differ, where one was found."""
        if self.shown is not None:
            return self.shown
        return self.evidence if isinstance(self.evidence, Counterexample) else None

    @property
    def exact(self) -> bool:
        """Whether the two are proven to be the same real function."""
        return self.equal is True and self.bound == 0

    @property
    def kind(self) -> str:
        """The kind of equality in words."""
        if self.tolerances is not None:
            return f"within {', '.join(f'{e:g}' for e in self.tolerances)} output by output"
        told = kind_of(self.tolerance, self.precision, self.margin)
        return f"{told} in the sum of all outputs" if self.norm == "sum" else told

    @property
    def criterion(self) -> str:
        """What was compared: ``"value"`` or ``"argmax"``."""
        return "value" if self.margin is None else "argmax"

    @property
    def next_step(self) -> str:
        """What to try where the question is undecided, as options of the command."""
        tried = [f"--time-limit {max(60, round(10 * self.seconds))}"]
        if not isinstance(self.domain, Box):
            tried.insert(0, "--box LOW HIGH (bounds of differences need a bounded domain)")
        elif self.tolerance is None and self.margin is None:
            tried.insert(0, "--tolerance 1e-3 (a bound is easier to prove than equality up to rounding)")
        return ", or ".join(tried)

    def save(self, path: Path | str, models: tuple[Path | str, Path | str] | None = None) -> None:
        """Write a certificate that :func:`fiberscope.verify` can replay.

        The networks go into the file, or, with ``models``, their paths; in either case with a hash of their content.
        Of quantised graphs there are no paths: their programs with inputs for rounding go into the file.
        """
        import_module("fiberscope.equality.certificates.encoding").write_certificate(path, self, models)

    def __repr__(self) -> str:
        answer = {True: "equal", False: "different", None: "undecided"}[self.equal]
        parts = [f"{answer} {self.kind} on {self.domain}", f"by {self.method}"]
        if self.counterexample is not None:
            parts.append(f"difference {self.counterexample.difference:.3g} at x = {_short(self.counterexample.x)}")
        if self.residual:
            parts.append(f"residual {self.residual:.3g} ulps")
        return f"Verdict({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Rung:
    """One method of equality: its search gives a verdict, or None if it cannot decide.

    ``evidence`` are the kinds of evidence that come with its verdicts; all that the verifier knows it by.
    """

    search: Callable[[Question], Verdict | None]
    evidence: tuple[type[Evidence], ...]

    @property
    def name(self) -> str:
        """In words, after the file of the method."""
        return self.search.__module__.rsplit(".", 1)[-1].replace("_", " ")


def answered(question: Question, method: str, evidence: Evidence, found: Check) -> Verdict:
    """The verdict of a method whose evidence holds."""
    return Verdict(
        evidence.equal, method, question.domain, question.tolerance, evidence, found.bound, found.residual,
        reason=found.text, margin=question.margin,
    )  # fmt: skip


def kind_of(tolerance: float | None, precision: str | None, margin: float | None = None) -> str:
    """A kind of equality in words.

    >>> kind_of(None, "float32"), kind_of(0.0, None), kind_of(0.5, None)
    ('up to float32 rounding', 'as real functions', 'within 0.5')
    """
    if margin is not None:
        return "in the class" + (f" where a is ahead by {margin:g}" if margin else "")
    if tolerance is None:
        return f"up to {precision or 'float64'} rounding"
    return "as real functions" if tolerance == 0 else f"within {tolerance:g}"


def _short(x: FloatArray) -> str:
    text = np.array2string(x, precision=4, threshold=6, edgeitems=2, separator=", ")
    return " ".join(text.split())
