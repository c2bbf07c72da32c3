"""VNN-LIB files: input sets, two-network queries, and what is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.equality.vnnlib import read_domain, read_query
from fiberscope.network.network import Network

HEAD = """(vnnlib-version <2.0>) ; a comment (with brackets
(declare-network f (declare-input X_f real [2]) (declare-output Y_f real [1]))
(declare-network g (isomorphic-to f) (declare-input X_g real [2]) (declare-output Y_g real [1]))
(assert (and (>= X_f[0] -1.0) (<= X_f[0] 1e0)))
(assert (and (>= X_g[1] -1) (<= X_g[1] 1)))
(assert (== X_f[0] X_g[0]))
(assert (== X_g[1] X_f[1]))
"""
ANY = "(assert (or (> Y_g[0] (+ Y_f[0] 0.25)) (< Y_g[0] (- Y_f[0] 0.25))))"
NEVER = "(assert (and (> Y_g[0] (+ Y_f[0] 0.25)) (< Y_g[0] (- Y_f[0] 0.25))))"
ABOVE = "(assert (> (- Y_g[0] Y_f[0]) 0.25))"

NET = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
LOWER = Network(NET.weights, [NET.biases[0], [-0.5]])
NEAR = Network(NET.weights, [NET.biases[0], [0.25]])


def written(tmp_path, text):
    path = tmp_path / "query.vnnlib"
    path.write_text(text)
    return path


def test_the_input_set_of_a_file_is_a_box(tmp_path):
    text = """(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)
    (assert (<= X_0 0.5)) (assert (>= X_0 -0.5)) (assert (and (<= X_1 0.1) (>= X_1 0.1)))
    (assert (or (and (>= Y_0 1.0)) (and (<= Y_0 -1))))"""
    box = read_domain(written(tmp_path, text), 2)
    assert isinstance(box, fs.Box)
    assert box.low.tolist() == [-0.5, 0.1] and box.high.tolist() == [0.5, 0.1]


def test_general_constraints_make_a_polytope(tmp_path):
    text = """(declare-const X_0 Real)(declare-const X_1 Real)
    (assert (<= (+ X_0 (* 2 X_1)) 1.0)) (assert (>= X_0 0)) (assert (>= X_1 0))"""
    found = read_domain(written(tmp_path, text), 2)
    assert isinstance(found, fs.Polytope)
    assert found.contains([[0.5, 0.25], [0.5, 0.26], [-0.1, 0.0]]).tolist() == [True, False, False]


def test_a_query_is_answered_by_a_proof_or_an_input(tmp_path):
    query = read_query(written(tmp_path, HEAD + ANY))
    assert isinstance(query.domain, fs.Box) and query.tolerance == 0.25 and not query.impossible
    assert fs.answer_query(query, NET, NEAR).result == "unsat"  # exactly the margin is not more than it
    answer = fs.answer_query(query, NET, LOWER)
    assert answer.result == "sat" and answer.equal is False
    assert answer.lines(query).startswith("sat\n((X_f[0] ") and "(Y_g[0] " in answer.lines(query)
    assert fs.answer_query(query, NET, NEAR).lines(query) == "unsat\n"


def test_a_margin_that_is_no_float_is_rounded_down(tmp_path):
    query = read_query(written(tmp_path, HEAD + ANY.replace("0.25", "0.05")))
    assert query.tolerance == np.nextafter(0.05, 0.0)  # the float 0.05 is more than a twentieth


def test_the_constraints_are_evaluated_as_they_stand(tmp_path):
    query = read_query(written(tmp_path, HEAD + ABOVE))
    answer = fs.answer_query(query, NET, LOWER)  # g is below f, which this does not ask for
    assert answer.result == "unknown" and "not as the query wants" in answer.reason
    above = Network(NET.weights, [NET.biases[0], [0.5]])
    assert fs.answer_query(query, NET, above).result == "sat"


def test_a_contradiction_is_said_and_not_mended_silently(tmp_path):
    query = read_query(written(tmp_path, HEAD + NEVER))
    answer = fs.answer_query(query, NET, LOWER)
    assert query.impossible and answer.result == "unsat" and "--intended" in answer.note
    assert fs.answer_query(query.intended(), NET, LOWER).result == "sat"


def test_the_first_instance_of_the_public_track(shared_nets):
    query = read_query(shared_nets / "acasxu" / "isomorphic_2_2.vnnlib")
    assert query.impossible and query.sizes == (5, 5) and query.networks == ("f", "g")
    assert not query.intended().impossible and len(query.constraints.comparisons()) == 10


BAD = {
    "": "expected a VNN-LIB file",
    "(": "expected a VNN-LIB file",
    "nonsense": "expected a VNN-LIB file",
    "(assert (<= X_0 1)))": "bracket too many",
    "(check-sat)": "expected declarations and assertions",
    "(declare-const Z_0 Real)": "X_i and Y_i",
    "(declare-const X_0 Real)(assert (<= X_0 1))": "two networks",
    HEAD: "constraints on the outputs",
    HEAD + "(assert (<= X_f[0] Y_f[0]))" + ANY: "inputs and outputs together",
    HEAD + "(assert (or (<= X_f[0] 0) (>= X_f[0] 0.5)))" + ANY: "`or` over inputs",
    HEAD + "(assert (> Y_g[0] 3.0))": "corresponding outputs",
    HEAD + "(assert (>= Y_g[0] (+ Y_f[0] 0.1)))": "< or >",
    HEAD + "(assert (<= X_f[0] -2))" + ANY: "empty",
    HEAD + "(assert (<= (* X_f[0] X_f[1]) 1))" + ANY: "product of variables",
    HEAD.replace("(assert (== X_g[1] X_f[1]))", "") + ANY: "to be equal",
    HEAD.replace("X_g real [2]", "X_g real [3]") + ANY: "same inputs and outputs",
    HEAD + "(assert (<= X_f[0] 1e9999999))" + ANY: "variable or a number",
    "(" * 500: "brackets within brackets",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_such_query_is_refused_in_one_line(text, tmp_path):
    with pytest.raises(fs.InputError, match=BAD[text]) as error:
        read_query(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_files_for_other_sizes_are_refused(tmp_path):
    path = written(tmp_path, "(declare-const X_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))")
    with pytest.raises(fs.InputError, match="expected 2 inputs"):
        read_domain(path, 2)
    with pytest.raises(fs.InputError, match="expected 2 -> 1"):
        fs.answer_query(read_query(written(tmp_path, HEAD + ANY)), NET, Network.random((3, 2, 1), 0))
    with pytest.raises(fs.InputError, match="cannot be read"):
        read_domain(tmp_path / "missing.vnnlib", 2)
    (tmp_path / "binary.vnnlib").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(fs.InputError, match="no text"):
        read_domain(tmp_path / "binary.vnnlib", 2)


def test_the_public_parser_reads_the_same(tmp_path):
    vnnlib = pytest.importorskip("vnnlib")
    vnnlib.parse_query_string(HEAD + ANY)
