"""The answer to a two-network query of VNN-LIB: *unsat* is proven, *sat* has an input that satisfies every constraint
in exact arithmetic, and anything else is *unknown*.

What divides the two: ``vnnlib`` reads the language and knows no network, this asks the ladder and knows no syntax.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fiberscope.equality.counterexample import exact_outputs
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.verdict import Verdict
from fiberscope.equality.vnnlib import Query
from fiberscope.errors import InputError
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden


@dataclass(frozen=True, slots=True, eq=False)
class QueryAnswer(Result):
    """``result`` is ``"unsat"``, ``"sat"`` or ``"unknown"``; ``x`` satisfies the query, with outputs ``f`` and ``g``.

    ``note`` says what was read otherwise than it may have been meant.
    """

    result: str
    reason: str
    note: str = ""
    x: FloatArray | None = None
    f: FloatArray | None = None
    g: FloatArray | None = None
    verdict: Verdict | None = field(default=None, metadata=hidden())

    @property
    def equal(self) -> bool | None:
        """Whether the networks are as close as the query doubts."""
        return {"unsat": True, "sat": False}.get(self.result)

    def lines(self, query: Query) -> str:
        """What a result file of the competition holds: the answer, and the values of all variables with *sat*."""
        if self.x is None or self.f is None or self.g is None:
            return f"{self.result}\n"
        parts = [(query.inputs[0], self.x), (query.inputs[1], self.x), (query.outputs[0], self.f)]
        parts.append((query.outputs[1], self.g))
        values = [f"({name}[{k}] {float(v)!r})" for name, row in parts for k, v in enumerate(row)]
        return f"{self.result}\n(" + "\n".join(values) + ")\n"


CONTRADICTION = (
    "as it is written no outputs at all satisfy the query (an output would have to be above and below at once), so it "
    "is unsat whatever the networks are; --intended asks for any output that differs by more than its margin"
)


def answer_query(
    query: Query, f: NetworkLike, g: NetworkLike, time_limit: float | None = None, seed: int = 0, **options: Any
) -> QueryAnswer:
    """Decide a query, literally as it is read.

    >>> from fractions import Fraction
    >>> from fiberscope.equality.vnnlib import Above, Joined
    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.network.network import Network
    >>> apart = Joined("or", (Above(0, 1, Fraction(1, 4)), Above(0, -1, Fraction(1, 4))))
    >>> query = Query(("f", "g"), ("X", "U"), ("Y", "V"), (1, 1), Box([-1.0], [1.0]), apart)
    >>> f, g = (Network([[[1.0]], [[1.0]]], [[0.0], [shift]]) for shift in (0.0, 0.125))
    >>> answer_query(query, f, g).result
    'unsat'
    """
    first, second = as_network(f, query.networks[0]), as_network(g, query.networks[1])
    for name, net in zip(query.networks, (first, second), strict=True):
        if (net.in_size, net.out_size) != query.sizes:
            want, got = (f"{n} -> {m}" for n, m in (query.sizes, (net.in_size, net.out_size)))
            raise InputError(f"network {name}: expected {want}, the sizes of the query, got {got}")
    if query.impossible:
        return QueryAnswer("unsat", "no outputs satisfy the constraints", CONTRADICTION)
    verdict = equivalent(first, second, query.domain, query.tolerance, time_limit, seed, **options)
    if verdict.equal is True:
        return QueryAnswer("unsat", f"the outputs differ by at most {query.tolerance!r}", verdict=verdict)
    if verdict.counterexample is None:
        return QueryAnswer("unknown", verdict.reason, verdict=verdict)
    example = verdict.counterexample
    x = example.x
    left, right = exact_outputs(first, x), exact_outputs(second, x)
    if query.constraints.holds([q - p for p, q in zip(left, right, strict=True)]):
        return QueryAnswer("sat", verdict.reason, "", x, example.a, example.b, verdict)
    reason = "an input was found at which the networks differ, but not as the query wants"
    return QueryAnswer("unknown", reason, verdict=verdict)
