"""The catalogue of labelled pairs: labels are true of exact values, and no verdict contradicts one."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.equality import checker
from fiberscope.equality.ladder import equivalent
from fiberscope.testing import PAIRS, fraction_values, pair
from fiberscope.testing.pairs import formula

UNDECIDED: frozenset[str] = frozenset()
"""Pairs that no method decides yet: a ratchet, which only gets shorter."""


def domain_of(one):
    return None if one.low is None else fs.Box(one.low, one.high)


def gap(one, x):
    a, b = (fraction_values(net, x)[-1] for net in (one.a, one.b))
    return max(abs(Fraction(p) - Fraction(q)) for p, q in zip(a, b, strict=True))


def beaten(one, x):
    """Whether the class of ``a``, where it is ahead by the margin, is beaten in ``b``."""
    a, b = ([Fraction(v) for v in fraction_values(net, x)[-1]] for net in (one.a, one.b))
    best = max(range(len(a)), key=a.__getitem__)
    lead = a[best] - max(v for k, v in enumerate(a) if k != best)
    return lead > 0 and lead >= Fraction(one.margin) and max(b) > b[best]


@pytest.mark.parametrize("name", PAIRS)
def test_labels_are_true_of_exact_values(name):
    one = pair(name)
    assert one.name == name and one.why
    domain = domain_of(one) or fs.Space(one.a.in_size)
    if one.margin is not None:
        points = np.concatenate([domain.sample(200, 0), [[1.0, 1.0], [1.0, 0.9375]]])
        assert any(beaten(one, x) for x in ([one.at] if one.at else points)) is not one.equal
        return
    allowed = Fraction(2.0**-40 if one.tolerance is None else one.tolerance)
    if one.equal:
        points = domain.sample(60, 0)
        assert all(gap(one, x) <= allowed for x in points[domain.contains(points)])
    else:
        assert domain.contains([one.at])[0]
        assert gap(one, np.array(one.at)) > allowed


@pytest.mark.parametrize("name", PAIRS)
def test_no_verdict_contradicts_a_label(name, tmp_path):
    one = pair(name)
    options = {} if one.margin is None else {"criterion": "argmax", "margin": one.margin}
    verdict = equivalent(one.a, one.b, domain_of(one), one.tolerance, time_limit=20, **options)
    if verdict.equal is None:
        assert name in UNDECIDED, (verdict, verdict.reason)
        return
    assert verdict.equal is one.equal
    assert name not in UNDECIDED, "decided now: take it off the list"
    verdict.save(tmp_path / "proof.json")
    assert fs.verify(tmp_path / "proof.json").ok
    assert checker.main([str(tmp_path / "proof.json")]) == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_formula_is_zero_unless_it_has_a_solution(seed):
    rng = np.random.default_rng(seed)
    n = 3
    clauses = [[int(k) * int(rng.choice([-1, 1])) for k in rng.choice(np.arange(1, n + 1), 2, False)] for _ in range(7)]
    solutions = [
        x for x in itertools.product([0, 1], repeat=n)
        if all(any((x[abs(l) - 1] == 1) == (l > 0) for l in clause) for clause in clauses)
    ]  # fmt: skip
    net = formula(clauses, n)
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    assert net(corners).max() == (0.5 if solutions else 0.0)
    points = rng.uniform(size=(400, n))
    assert solutions or net(points).max() == 0


def test_an_unknown_pair_is_refused():
    with pytest.raises(fs.InputError, match="expected one of"):
        pair("nothing")
