"""The fuzzer itself: its judge stands alone and knows known answers, every area runs, a lie is found."""

from __future__ import annotations

import ast
import json
import sys
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fuzz.__main__ as fuzz_main  # noqa: E402
from fuzz import bridge, draw, runner  # noqa: E402
from fuzz.areas import AREAS, equality  # noqa: E402
from fuzz.case import Area, Disagreement, expect  # noqa: E402
from fuzz.oracle import cells, parameters  # noqa: E402
from fuzz.oracle.program import Program, at, clip  # noqa: E402

SMOKE = 24


def chain(*layers):
    nodes = []
    for k, (rows, bias) in enumerate(layers):
        if k:
            nodes.append(("relu", 2 * k - 1, (0.0,) * len(layers[k - 1][1])))
        nodes.append(("affine", 2 * k, tuple(map(tuple, rows)), tuple(bias)))
    return Program(len(layers[0][0][0]), tuple(nodes))


def test_the_judge_imports_nothing_but_the_standard_library():
    allowed = {*sys.stdlib_module_names}
    for path in (ROOT / "fuzz" / "oracle").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= allowed
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module.partition(".")[0] in allowed
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1


def test_the_judge_knows_known_answers():
    cross = chain(([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    assert len(cells.regions(cross, ("box", (-1.0, -1.0), (1.0, 1.0)))) == 4
    assert len(cells.regions(cross, ("space", 2))) == 4
    assert len(cells.regions(cross, ("orthant", 2))) == 1
    assert at(cross, [-1, Fraction(1, 3)]).outputs == (Fraction(1, 3),)
    # lines in general position: 1 + m + m (m - 1) / 2, and planes
    lines = chain(([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -2.0]], [0.1, 0.2, 0.4, 0.9]), ([[1.0] * 4], [0.0]))
    assert len(cells.regions(lines, ("space", 2))) == 1 + 4 + 6
    eye = [[float(i == j) for j in range(3)] for i in range(3)]
    planes = chain(([*eye, [1.0, 1.0, 1.0]], [0.0, 0.0, 0.0, 0.5]), ([[1.0] * 4], [0.0]))
    assert len(cells.regions(planes, ("space", 3))) == 1 + 4 + 6 + 4
    found = cells.along(cross, (-1.0, -2.0), (1.0, 1.0))
    assert found.breakpoints == (Fraction(1, 2), Fraction(2, 3)) and found.neurons == ((0,), (1,))
    assert cells.largest_difference(cross, chain(([[1.0, 1.0]], [0.0])), ("box", (-1.0, -1.0), (1.0, 1.0))) == 2
    assert cells.largest_difference(cross, chain(([[1.0, 1.0]], [0.0])), ("space", 2)) is None
    assert cells.same_function(cross, chain(([[1.0, 1.0]], [0.0])), ("orthant", 2))


def test_the_judge_of_equality_up_to_rounding_looks_at_the_domain_only():
    zero = chain(([[0.0]], [0.0]), ([[1.0]], [0.0]))
    left = chain(([[-1.0]], [0.0]), ([[1.0]], [0.0]))
    equality.judge(zero, left, ("orthant", 1), None, True, "somebody says True")
    for domain in (("space", 1), ("box", (-1.0,), (1.0,))):
        with pytest.raises(Disagreement, match="more than a rounding"):
            equality.judge(zero, left, domain, None, True, "somebody says True")


@pytest.mark.parametrize("seed", range(30))
def test_the_cells_of_the_judge_agree_with_its_points(seed):
    rng = Random(seed)
    n = rng.randint(1, 3)
    program = draw.program(rng, n, width=3, extreme=0.2)
    low, high = (-1.5,) * n, (1.0,) * n
    found = cells.leaves_on(program, ("box", low, high))
    for leaf in found:
        here = at(program, leaf.cell.inside())
        assert here.signs == leaf.signs
        inner = [*leaf.cell.inside(), 1]
        rows, exponent = leaf.outputs
        values = [sum(c * x for c, x in zip(row, inner, strict=True)) / (1 << exponent) for row in rows]
        assert tuple(values) == here.outputs
    known = {leaf.signs for leaf in found}
    for _ in range(50):
        x = [rng.randint(-1500, 1000) / 1024 for _ in range(n)]
        signs = at(program, x).signs
        assert signs in known or 0 in signs
    assert (
        known
        <= set(cells.regions(program, ("polytope", ((1.0,) * n,), (9.0,))))
        <= set(cells.regions(program, ("space", n)))
    )


def test_a_clip_is_one_for_the_judge_and_for_the_library():
    lows, highs = (0.1, None, 0.3, None), (0.3, 2.0, None, None)
    program = Program(4, tuple(clip(0, lows, highs)), ((0, lows, highs),))
    net = bridge.network(program)
    assert len(net.program) == 1 and bridge.program(net) == Program(4, program.nodes)
    for x in ([-5.0] * 4, [0.1, 2.0, 0.3, 5.0], [0.2] * 4, [7.0] * 4):
        wanted = [v if a is None else max(v, a) for v, a in zip(x, lows, strict=True)]
        wanted = [v if b is None else min(v, b) for v, b in zip(wanted, highs, strict=True)]
        assert list(at(program, x).outputs) == wanted == net([x])[0].tolist()
    found = [draw.program(Random(seed), 2) for seed in range(200)]
    assert 5 < sum(bool(p.clips) for p in found) < 50
    assert all(ast.literal_eval(repr(p.clips)) == p.clips for p in found)


def test_the_judge_knows_parameters():
    bump = chain(([[1.0]], [0.5]), ([[2.0]], [0.0]))
    assert parameters.full_ranks(bump, Random(0)) == (3, 3)
    assert parameters.batch_rank(bump, [[-2.0], [-3.0]]) == 1
    assert parameters.one_layer_identifiable(bump) is True
    pair = chain(([[1.0], [-1.0]], [0.0, 1.0]), ([[1.0, 1.0]], [0.0]))
    assert parameters.one_layer_identifiable(pair) is False
    low, high = parameters.root_bounds(Fraction(2))
    assert low * low <= 2 <= high * high and high - low < Fraction(1, 2**150)


@pytest.mark.parametrize("name", AREAS)
def test_every_area_runs(name):
    tally = runner.Tally()
    for seed in range(SMOKE):
        runner.one(AREAS[name], seed, tally, shrink=False)
    assert tally.cases > SMOKE // 3
    assert tally.undecided < tally.cases
    assert not tally.failures, tally.failures[0]


def test_a_lie_is_found_made_smaller_and_can_be_repeated():
    def make(rng):
        return (Program(1, (("affine", 0, ((rng.gauss(0, 1),),), (rng.gauss(0, 1),)),)),)

    def check(program):
        expect(program.nodes[0][3][0] <= 0, "a positive bias")

    tally = runner.Tally()
    for seed in range(20):
        runner.one(Area("lie", make, check), seed, tally)
    assert 0 < len(tally.failures) < 20 == tally.cases
    failure = tally.failures[0]
    assert failure.command == f"make fuzz AREA=lie SEED={failure.seed} CASES=1"
    assert (
        failure.source == "AREAS['lie'].check(Program(inputs=1, nodes=(('affine', 0, ((0.0,),), (1.0,)),), clips=()))"
    )


def test_a_foreign_exception_is_a_disagreement():
    def check():
        raise ZeroDivisionError("in the middle")

    tally = runner.Tally()
    runner.one(Area("crash", lambda rng: (), check), 0, tally)
    assert "ZeroDivisionError" in tally.failures[0].text


def test_what_is_found_is_told_at_once_and_written_before_the_end(tmp_path, capsys):
    path = tmp_path / "report.json"
    report = fuzz_main._Report(3, path, terminal=False)
    tallies = {"lie": runner.Tally(cases=4)}
    report(tallies, 1.0)
    assert not path.exists() and capsys.readouterr().out == ""
    tallies["lie"].failures.append(runner.Failure("lie", 5, "a positive bias", "check()"))
    report(tallies, 2.0)
    assert (
        "DISAGREEMENT in lie: a positive bias\n  repeat: make fuzz AREA=lie SEED=5 CASES=1" in capsys.readouterr().out
    )
    assert json.loads(path.read_text())["areas"]["lie"]["disagreements"][0]["seed"] == 5
    tallies["lie"].cases = 9
    report(tallies, 3.0)
    assert capsys.readouterr().out == ""
    report(tallies, 63.0)
    assert json.loads(path.read_text())["areas"]["lie"]["cases"] == 9
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
