"""Time limits: they are kept, and what was found when the time was up claims no more than it is."""

from __future__ import annotations

import time
from functools import cache
from random import Random
from typing import Any

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.equality import acted, changed, finite, judge
from fuzz.case import Area, Disagreement, Skipped, TooSlow, Undecided, expect
from fuzz.oracle.cells import Domain, regions, start_of
from fuzz.oracle.program import Program

KINDS = {"equal": None, "equal exactly": 0.0, "equal within": 1e-3}
"""Tolerances by the question."""

QUESTIONS = ("regions", "count", "traverse", "walk", "estimate", "roles", "verify", *KINDS)

GRACE = 1.0
"""Seconds of work beyond the limit: every loop looks at the clock at least once a second, most of them far sooner."""


def make_deadlines(rng: Random) -> tuple[Any, ...]:
    """A small program, whose answers are known, with hardly any time; or a large network."""
    question = rng.choice(QUESTIONS)
    if rng.random() < 0.5:
        n = rng.choice((1, 2, 2, 3))
        program = draw.chain(rng, draw.widths(rng, n, most=4), kind=rng.choice(("integer", "one decimal", "normal")))
        return question, program, draw.box(rng, n), rng.choice((1e-9, 1e-4, 1e-3, 1e-2, 0.1)), rng.randrange(1 << 16)
    n = rng.choice((2, 3, 4, 8, 20, 100))
    hidden = (8, 20, 60, 150) if question not in KINDS else (20, 150, 600, 1500)
    widths = (n, *(rng.choice(hidden) for _ in range(rng.randint(1, 3))), rng.randint(1, 3))
    return question, widths, ("box", (-1.0,) * n, (1.0,) * n), rng.choice((0.01, 0.1, 0.3)), rng.randrange(1 << 16)


def check_deadlines(question: str, model: Any, domain: Domain, limit: float, seed: int) -> None:
    small = isinstance(model, Program)
    if small and not start_of(domain):
        raise Skipped("no interior")
    _warm()
    found, taken = _timed(question, model, domain, limit, seed)
    if not taken < limit + GRACE:  # a kernel was compiled, or it is too slow the second time too
        found, taken = _timed(question, model, domain, limit, seed)
    expect(taken < limit + GRACE, f"{question} with a limit of {limit} s took {taken:.2f} s of work, twice")
    if isinstance(found, fs.FiberscopeError):
        if isinstance(found, fs.OutOfTimeError):
            raise Undecided("out of time")
        raise found
    if small:
        _judge(question, model, _other(model, seed), domain, found)


def _timed(question: str, model: Any, domain: Domain, limit: float, seed: int) -> tuple[Any, float]:
    """The answer, or the library's refusal, and the seconds of work it took; nothing is kept from an earlier time."""
    pair = _network(model, seed), _other(model, seed)
    net, rival = (bridge.network(m) if isinstance(m, Program) else m for m in pair)
    place = bridge.domain(domain)
    complex_ = fs.regions(net, place, limit=2000, time_limit=2.0) if question == "verify" else None
    if complex_ is not None and not complex_.complete:
        raise Skipped("nothing to verify")
    start = time.process_time()
    found: Any
    try:
        found = _ask(question, net, rival, place, limit, complex_)
    except fs.FiberscopeError as error:
        found = error
    except TooSlow as error:
        raise Disagreement(f"{question} with a limit of {limit} s does not end") from error
    return found, time.process_time() - start


def _network(model: Any, seed: int) -> Any:
    return model if isinstance(model, Program) else fs.Network.random(model, seed)


@cache
def _warm() -> None:
    """Imports and compiled kernels take seconds at their first use."""
    for widths in ((2, 3, 1), (3, 4, 3, 1)):
        net = fs.Network.random(widths, 0)
        place = fs.Box.cube(widths[0])
        for question in QUESTIONS:
            _ask(question, net, fs.Network.random(widths, 1), place, 60.0, fs.regions(net, place))


def _other(model: Any, seed: int) -> Any:
    """A second model that is the same function, or hardly another one."""
    rng = Random(seed)
    if isinstance(model, Program):
        found = acted(rng, model, 2) if rng.random() < 0.5 else changed(rng, model)
        return found if finite(found) else model
    net = _network(model, seed)
    orders = [rng.sample(range(width), width) for width in net.widths[1:-1]]
    moved = fs.permute(net, orders)
    if rng.random() < 0.5:
        return moved
    weights = [w.copy() for w in moved.weights]
    weights[0][0, 0] += 1e-7
    return fs.Network(weights, moved.biases)


def _ask(question: str, net: Any, other: Any, place: Any, limit: float, complex_: Any) -> Any:
    if question == "regions":
        return fs.regions(net, place, time_limit=limit)
    if question == "count":
        return fs.count_regions(net, place, time_limit=limit)
    if question == "traverse":
        walk = fs.traverse(net, place, time_limit=limit)
        return sum(1 for _ in walk), walk.summary
    if question == "walk":
        return fs.count_by_traversal(net, place, time_limit=limit)
    if question == "estimate":
        return fs.estimate_regions(net, place, time_limit=limit)
    if question == "roles":
        return fs.domain_roles(net, place, time_limit=limit)
    if question == "verify":
        return complex_.verify(time_limit=limit)
    return fs.equivalent(net, other, place, tolerance=KINDS[question], time_limit=limit)


def _judge(question: str, program: Program, other: Program, domain: Domain, found: Any) -> None:
    """What is claimed within the time is true, and what is not complete says so."""
    if question.startswith("equal"):
        if found.equal is None:
            raise Undecided(found.method)
        who = f"equivalent says {found.equal} by {found.method}"
        judge(program, other, domain, found.tolerance, found.equal, who, found.precision)
    elif question == "verify":
        expect(found.ok is not False, "verify() fails on a complex that is right")
    elif question in ("regions", "count", "traverse", "walk"):
        truth = len(regions(program, domain))
        given, told = found if question == "traverse" else (None, found)
        number = told.num_regions if question == "regions" else int(getattr(told, "count", told))
        expect(number <= truth and (given is None or given <= truth), f"{question}: {number}, exactly {truth}")
        expect(not told.complete or number == truth, f"{question}: {number} regions (complete), exactly {truth}")
        if not told.complete:
            raise Undecided("not complete")


AREAS = (Area("deadlines", make_deadlines, check_deadlines),)
