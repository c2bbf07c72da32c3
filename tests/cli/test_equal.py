"""``equal``, ``verify``, ``canon`` and ``simplify`` as commands: what they print and write, and their exit codes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.app import app
from fiberscope.cli.canon import canon
from fiberscope.cli.diff import diff
from fiberscope.cli.equal import equal, vnncomp
from fiberscope.cli.simplify import simplify
from fiberscope.cli.verify import verify
from fiberscope.errors import FiberscopeError
from fiberscope.fibers.hidden_hyperplanes import flip, translate
from fiberscope.network.action.chain import Symmetry

NAMES = {
    "answer_query": "equality.queries",
    "audit": "equality.audit",
    "read_domain": "equality.vnnlib",
    "read_query": "equality.vnnlib",
    "canonical": "fibers.canonical.form",
    "equivalent": "equality.ladder",
    "equivalent_around": "equality.around",
    "simplify": "fibers.simplify.simplify",
    "verify": "equality.verify",
}


@pytest.fixture(autouse=True)
def public_names(monkeypatch):
    for name, module in NAMES.items():
        if name not in fs._NAMES:
            monkeypatch.setitem(fs._NAMES, name, module)


def run(command, *arguments):
    """Exit code and output; a named error is exit code 2, as in the main program."""
    result = CliRunner().invoke(app, [command.__name__, *map(str, arguments)])
    if isinstance(result.exception, FiberscopeError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def models(tmp_path):
    net = fs.Network.random((3, 8, 8, 2), 0)
    copy = Symmetry.random(net.widths, 1)(net)
    weights = [w.copy() for w in net.weights]
    weights[1][2, 3] += 0.25
    changed = fs.Network(weights, net.biases)
    paths = {}
    for name, model in (
        ("net", net),
        ("copy", copy),
        ("changed", changed),
        ("other", fs.Network.random((2, 3, 2), 0)),
        ("random", fs.Network.random((3, 8, 8, 2), 5)),
    ):
        paths[name] = tmp_path / f"{name}.npz"
        fs.save(model, paths[name])
    return paths


def test_equal_models_exit_zero_and_the_certificate_holds(models, tmp_path):
    proof = tmp_path / "proof.json"
    code, out = run(equal, models["net"], models["copy"], "--tolerance", 0, "--certificate", proof)
    assert code == 0 and "equal" in out and "symmetry" in out
    assert run(verify, proof)[0] == 0
    code, out = run(verify, proof, "--json")
    assert json.loads(out)["ok"] is True


def test_different_models_exit_one_with_a_counterexample(models, tmp_path):
    proof = tmp_path / "proof.json"
    code, out = run(equal, models["net"], models["changed"], "--box", -1, 1, "--json", "--certificate", proof)
    found = json.loads(out)
    assert code == 1 and found["equal"] is False
    x = np.array([found["counterexample"]["x"]])
    assert (np.abs(x) <= 1).all()
    gap = np.abs(fs.load(models["net"])(x) - fs.load(models["changed"])(x)).max()
    assert gap == pytest.approx(found["counterexample"]["difference"])
    assert run(verify, proof)[0] == 0


def test_undecided_exits_three(tmp_path):
    a = fs.Network.random((6, 12, 12, 1), 0)
    rng = np.random.default_rng(0)
    b = fs.Network([w * (1 + 1e-9 * rng.normal(size=w.shape)) for w in a.weights], a.biases)
    for name, net in (("a", a), ("b", b)):
        fs.save(net, tmp_path / f"{name}.npz")
    code, out = run(equal, tmp_path / "a.npz", tmp_path / "b.npz", "--tolerance", 1e-3, "--time-limit", 2)
    assert code == 3 and "undecided" in out


def test_bad_input_exits_two(models, tmp_path):
    assert run(equal, models["net"], models["other"])[0] == 2
    assert run(equal, models["net"], tmp_path / "missing.npz")[0] == 2
    assert run(equal, models["net"], models["copy"], "--box", 1, -1)[0] == 2
    assert run(equal, models["net"], models["copy"], "--tolerance", -1)[0] == 2
    text = tmp_path / "text.json"
    text.write_text("{}")
    assert run(verify, text)[0] == 2


def test_a_tampered_certificate_does_not_hold(models, tmp_path):
    proof = tmp_path / "proof.json"
    run(equal, models["net"], models["changed"], "--certificate", proof)
    found = json.loads(proof.read_text())
    found["claim"]["equal"] = True
    found["evidence"] = {"kind": "normal form", "signs": [[0] * 16, [0] * 16], "hyperplanes": 0, "ulps": 0}
    proof.write_text(json.dumps(found))
    assert run(verify, proof)[0] == 1


def test_canon_writes_the_same_file_for_a_copy(models, tmp_path):
    for name in ("net", "copy"):
        assert run(canon, models[name], tmp_path / f"{name}_canonical.npz")[0] == 0
    a, b = (fs.load(tmp_path / f"{name}_canonical.npz") for name in ("net", "copy"))
    assert fs.identical(a, b)
    assert "already" in run(canon, tmp_path / "net_canonical.npz", tmp_path / "again.npz")[1]


def test_simplify_writes_a_smaller_model_and_its_proof(tmp_path):
    net = fs.Network(
        [[[1.0, 2.0], [2.0, 4.0], [0.0, 0.0], [1.0, -1.0]], [[1.0, 1.0, 5.0, 2.0]]], [[0.5, 1.0, -1.0, 0.0], [0.0]]
    )
    fs.save(net, tmp_path / "net.npz")
    small, proof = tmp_path / "small.npz", tmp_path / "proof.json"
    code, out = run(simplify, tmp_path / "net.npz", small, "--certificate", proof)
    assert code == 0 and "2-2-1" in out and "dead" in out
    assert fs.load(small).widths == (2, 2, 1)
    assert run(verify, proof)[0] == 0
    assert run(equal, tmp_path / "net.npz", small, "--tolerance", 0)[0] == 0


def test_a_moved_hyperplane_is_proven_replayed_and_described(tmp_path):
    """A bottleneck that hides a hyperplane, and a copy in which it is moved and another one reflected."""
    net = fs.Network(
        [np.eye(4)[:3] + 0.25, [[1.0, -2.0, -0.5]], [[3.0], [1.0]]], [[0.5, -1.0, 0.25], [-2.0], [0.25, 0.0]]
    )
    other = fs.Network(*translate(*flip(net.weights, net.biases, 0, 0, (2,)), 0, 0, 1.75))
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for model, path in zip((net, other), paths, strict=True):
        fs.save(model, path)
    proof = tmp_path / "proof.json"
    code, out = run(equal, *paths, "--tolerance", 0, "--certificate", proof)
    assert code == 0 and "bottleneck" in out and "moved by 1.75" in out and "neuron 2 of layer 1 reflected" in out
    code, out = run(verify, proof)
    assert code == 0 and "holds" in out and "moved by 1.75" in out
    found = json.loads(run(equal, *paths, "--json")[1])["witness"]
    assert (
        found["kind"] == "bottleneck"
        and found["flips"] == [2]
        and found["translation"] == "7/4"
        and found["exact"] is True
    )
    broken = json.loads(proof.read_text())
    broken["evidence"]["translation"] = "2"
    proof.write_text(json.dumps(broken))
    assert run(verify, proof)[0] == 1


QUERY = """(vnnlib-version <2.0>)
(declare-network f (declare-input X_f real [3]) (declare-output Y_f real [2]))
(declare-network g (declare-input X_g real [3]) (declare-output Y_g real [2]))
(assert (and (>= X_f[0] 0) (<= X_f[0] 1) (>= X_f[1] 0) (<= X_f[1] 1) (>= X_f[2] 0) (<= X_f[2] 1)))
(assert (== X_f[0] X_g[0])) (assert (== X_f[1] X_g[1])) (assert (== X_f[2] X_g[2]))
(assert (and (> Y_g[0] (+ Y_f[0] 0.001)) (< Y_g[0] (- Y_f[0] 0.001))))
(assert (and (> Y_g[1] (+ Y_f[1] 0.001)) (< Y_g[1] (- Y_f[1] 0.001))))
"""


def test_four_answers_are_printed_and_told(models, tmp_path):
    np.save(tmp_path / "data.npy", np.random.default_rng(0).uniform(-1, 1, size=(50, 3)))
    given = ["--data", tmp_path / "data.npy", "--box", -1, 1]
    code, text = run(equal, models["net"], models["copy"], *given)
    assert code == 0 and "structure: one program up to symmetry, by symmetry" in text
    assert "of 50, 0 of 50 classes differ" in text
    code, text = run(equal, models["net"], models["changed"], *given, "--tolerance", 10, "--json")
    found = json.loads(text)
    assert code == 0 and found["equal"] is True and found["answers"]["structure"] is None
    assert found["answers"]["rounding"]["equal"] is False
    data = found["answers"]["data"]
    assert 0 <= data["largest"] <= found["interval"]["high"] and data["samples"] == 50


def test_an_undecided_answer_says_what_is_known(tmp_path):
    """Other biases: the difference is bounded on all of space, and no method shows it where regions are too many."""
    net = fs.Network.random((5, 8, 8, 2), 0)
    moved = fs.Network(net.weights, [bias + 0.25 for bias in net.biases])
    fs.save(net, tmp_path / "net.npz")
    fs.save(moved, tmp_path / "moved.npz")
    code, text = run(equal, tmp_path / "net.npz", tmp_path / "moved.npz", "--tolerance", 1e9, "--time-limit", 2)
    assert code == 3 and "undecided" in text
    assert "tried: " in text and "try next: --box LOW HIGH" in text


def test_junit_fails_where_the_function_changed(models, tmp_path):
    path = tmp_path / "equal.xml"
    for other, failures in (("copy", 0), ("changed", 1)):
        code, _ = run(equal, models["net"], models[other], "--junit", path)
        suite = ElementTree.parse(path).getroot()
        assert code == failures == int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert suite.attrib["errors"] == "0" and len(suite) == int(suite.attrib["tests"]) == 3


def test_classes_are_a_question_of_their_own(models):
    code, text = run(equal, models["net"], models["random"], "--box", -1, 1, "--same-class")
    assert code == 1 and "in the class" in text and "the classes at x differ" in text
    assert "class 0 in a, and in b class 1 is ahead" in text or "class 1 in a, and in b class 0 is ahead" in text
    code, text = run(equal, models["net"], models["changed"], "--box", -1, 1, "--same-class", "--margin", 100)
    assert code == 0
    assert run(equal, models["net"], models["copy"], "--margin", 1)[0] == 2


def test_classes_that_ties_leave_open_are_asked_about_with_a_margin(tmp_path):
    """Two copies within rounding: at a tie either class may win, and the answer says which margin is enough."""
    a = fs.Network.random((4, 16, 16, 3), 0)
    b = fs.Network([w * (1 + 2.0**-52) for w in a.weights], a.biases)
    for name, net in (("a", a), ("b", b)):
        fs.save(net, tmp_path / f"{name}.npz")
    asked = [tmp_path / "a.npz", tmp_path / "b.npz", "--box", -1, 1, "--same-class"]
    code, text = run(equal, *asked, "--time-limit", 3)
    assert code == 3 and "try next: --margin " in text
    margin = text.split("try next: --margin ")[1].split()[0]
    assert float(margin) < 1e-10
    assert run(equal, *asked, "--margin", margin)[0] == 0


def test_balls_around_samples_have_an_answer_each(models, tmp_path):
    np.save(tmp_path / "data.npy", np.array([[0.3, 0.1, -0.2], [2.0, 0.0, 1.0]]))
    asked = ["--data", tmp_path / "data.npy", "--radius", 0.01, "--time-limit", 5]
    proof, suite = tmp_path / "ball.json", tmp_path / "balls.xml"
    files = ["--certificate", proof, "--junit", suite]
    code, text = run(equal, models["net"], models["changed"], *asked, *files, "--tolerance", 50, "--clip", -1, 3)
    assert code == 0 and "2 proven, 0 refuted, 0 undecided" in text and "wrote 2 certificates" in text
    assert run(verify, tmp_path / "ball-1.json", "--plain")[0] == 0
    assert ElementTree.parse(suite).getroot().attrib["tests"] == "2"
    code, text = run(equal, models["net"], models["random"], *asked)
    assert code == 1 and "refuted: samples 0, 1" in text and "at x = " in text
    told = json.loads(run(equal, models["net"], models["copy"], *asked, "--same-class", "--json")[1])
    assert told["equal"] is True and [ball["equal"] for ball in told["balls"]] == [True, True]


def test_where_boxes_are_bounded_and_kept_is_handed_on(models, tmp_path, monkeypatch):
    told = {}

    def audit(*question, **options):
        told.update(options)
        raise fs.InputError("seen")

    monkeypatch.setattr(fs, "audit", audit, raising=False)
    where = ["--jobs", 0, "--cluster", "dask://host:1", "--state", tmp_path / "open.json"]
    assert run(equal, models["net"], models["copy"], "--box", -1, 1, *where) == (2, "seen")
    assert (told["jobs"], told["cluster"], told["state"]) == (None, "dask://host:1", tmp_path / "open.json")


def test_questions_in_vnnlib(models, tmp_path):
    (tmp_path / "query.vnnlib").write_text(QUERY)
    asked = [models["net"], models["random"], "--vnnlib", tmp_path / "query.vnnlib"]
    code, text = run(equal, *asked)
    assert code == 0 and "unsat" in text and "whatever the networks are" in text
    proof = tmp_path / "proof.json"
    code, text = run(equal, *asked, "--intended", "--certificate", proof)
    assert code == 1 and text.startswith("sat") and run(verify, proof, "--plain")[0] == 0
    assert json.loads(run(equal, *asked, "--intended", "--json")[1])["query"]["result"] == "sat"
    text = "".join(f"(declare-const X_{k} Real)(assert (>= X_{k} 0))(assert (<= X_{k} 1))" for k in range(3))
    (tmp_path / "box.vnnlib").write_text(text)
    code, text = run(equal, models["net"], models["copy"], "--domain", tmp_path / "box.vnnlib")
    assert code == 0 and "Box([0, 1] x [0, 1] x [0, 1])" in text


def test_the_form_of_the_competition(models, tmp_path):
    query, result = tmp_path / "query.vnnlib", tmp_path / "result.txt"
    query.write_text(QUERY)
    for other, word in (("copy", "unsat"), ("random", "sat")):
        assert run(vnncomp, models["net"], models[other], query, result, 20, "--intended")[0] == 0
        assert result.read_text().split("\n")[0] == word
    result.unlink()
    assert run(vnncomp, models["net"], models["other"], query, result, 20)[0] == 2
    assert not result.exists()


def test_bad_questions_are_refused_and_nothing_is_written(models, tmp_path):
    (tmp_path / "query.vnnlib").write_text(QUERY)
    (tmp_path / "small.vnnlib").write_text("(declare-const X_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))")
    np.save(tmp_path / "wide.npy", np.zeros((4, 7)))
    np.save(tmp_path / "nan.npy", np.full((4, 3), np.nan))
    np.save(tmp_path / "good.npy", np.zeros((4, 3)))
    np.save(tmp_path / "none.npy", np.zeros((0, 3)))
    pair = (models["net"], models["copy"])
    out, suite = tmp_path / "out.json", tmp_path / "out.xml"
    good = ["--data", tmp_path / "good.npy"]
    for wrong in (
        ["--box", -1, 1, "--vnnlib", tmp_path / "query.vnnlib"],
        ["--intended"],
        ["--vnnlib", tmp_path / "query.vnnlib", "--tolerance", 1],
        ["--domain", tmp_path / "small.vnnlib"],
        ["--domain", tmp_path / "missing.vnnlib"],
        ["--data", tmp_path / "wide.npy"],
        ["--data", tmp_path / "nan.npy"],
        ["--data", tmp_path / "missing.npy"],
        ["--box", 1, -1],
        ["--tolerance", "nan"],
        ["--radius", 0.1],
        ["--radius", 0.1, "--data", tmp_path / "wide.npy"],
        ["--radius", -1, "--data", tmp_path / "good.npy"],
        ["--radius", 0.1, "--data", tmp_path / "good.npy", "--box", 0, 1],
        ["--radius", 0.1, "--data", tmp_path / "good.npy", "--state", tmp_path / "open.json"],
        ["--radius", 0.1, "--data", tmp_path / "none.npy"],
        ["--radius", 0.1, *good, "--clip", 1, 0],
        ["--radius", 0.1, *good, "--clip", "nan", 1],
        ["--clip", 0, 1],
        ["--vnnlib", tmp_path / "query.vnnlib", "--jobs", 2],
        ["--seed", -1],
        ["--jobs", -1],
        ["--time-limit", -1],
    ):
        code, text = run(equal, *pair, *wrong, "--certificate", out, "--junit", suite)
        assert code == 2 and "\n" not in text.strip(), (wrong, text)
        assert not out.exists() and not suite.exists(), wrong
    assert run(equal, models["net"], models["other"], "--certificate", out)[0] == 2


def test_files_that_could_not_be_written_are_refused_before_the_work(models, tmp_path, monkeypatch):
    """A folder that is missing, one file for two, and a file that is read: no model is lost, and no time either."""

    def never(*question, **options):
        raise AssertionError("asked")

    for name in ("audit", "equivalent_around", "answer_query", "diff"):
        monkeypatch.setattr(fs, name, never, raising=False)
    (tmp_path / "query.vnnlib").write_text(QUERY)
    pair = (models["net"], models["copy"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    out, lost = tmp_path / "out.json", tmp_path / "missing" / "out.json"
    for command, *wrong in (
        (equal, "--certificate", lost, "--junit", out),
        (equal, "--certificate", out, "--junit", lost),
        (equal, "--certificate", out, "--junit", tmp_path),
        (equal, "--certificate", out, "--junit", out),
        (equal, "--certificate", models["copy"]),
        (equal, "--box", -1, 1, "--state", models["net"]),
        (diff, "--plot", models["net"]),
    ):
        code, text = run(command, *pair, *wrong)
        assert code == 2 and "\n" not in text.strip(), (wrong, text)
    assert run(vnncomp, *pair, tmp_path / "query.vnnlib", tmp_path / "query.vnnlib")[0] == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_junit_says_where_a_function_changed_and_what_is_known(models, tmp_path):
    path = tmp_path / "equal.xml"
    run(equal, models["net"], models["changed"], "--box", -1, 1, "--junit", path)
    failure = ElementTree.parse(path).getroot().find("testcase/failure")
    assert "; difference " in failure.text and " at x = [" in failure.attrib["message"]
    net = fs.Network.random((5, 8, 8, 2), 0)
    fs.save(net, tmp_path / "a.npz")
    fs.save(fs.Network(net.weights, [bias + 0.25 for bias in net.biases]), tmp_path / "b.npz")
    asked = [tmp_path / "a.npz", tmp_path / "b.npz", "--tolerance", 1e9, "--time-limit", 1]
    code, _ = run(equal, *asked, "--junit", path)
    error = ElementTree.parse(path).getroot().find("testcase/error")
    assert code == 3 and "the largest difference is between" in error.text and "try next: --box" in error.text


def test_differences_of_files_that_need_words(tmp_path):
    """The options are heard, and a file that is missing is what is wrong."""
    net = fs.Network.random((3, 4, 2), 0)
    state = {f"{2 * k}.{name}": part for k, layer in enumerate(zip(net.weights, net.biases, strict=True))
             for name, part in zip(("weight", "bias"), layer, strict=True)}  # fmt: skip
    np.savez(tmp_path / "state.npz", **state)
    fs.save(net, tmp_path / "net.onnx")
    both = (tmp_path / "state.npz", tmp_path / "net.onnx")
    assert run(diff, *both, "--activation", "relu")[0] == 0
    assert run(diff, both[0], tmp_path / "none.onnx", "--activation", "relu") == (
        2,
        f"{tmp_path / 'none.onnx'}: no such file",
    )
    code, text = run(diff, *both, "--activation", "gelu")
    assert (code, "gelu" in text) == (2, True)
