"""``fiberscope simplify``: what is written takes the place of what was read, and the proof is about that file."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fiberscope as fs

ort = pytest.importorskip("onnxruntime")


def planted(path, kind=np.float32, batch="points", scale=3.0):
    """Two neurons on one hyperplane whose merged weight is no float32, and one that is dead."""
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(4, 3)).astype(kind), rng.normal(size=(2, 4)).astype(kind)
    b, c = rng.normal(size=4).astype(kind), rng.normal(size=2).astype(kind)
    w[1], b[1] = w[0], b[0]
    w[3], b[3] = 0, -1
    v[:, :2] = np.array([[0.1, 0.1 * scale], [1.0, 2.0]], dtype=kind)
    arrays = {"w": w, "b": b, "v": v, "c": c}
    nodes = [
        helper.make_node("Gemm", ["state", "w", "b"], ["h"], "first", transB=1),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("Gemm", ["r", "v", "c"], ["action"], "second", transB=1),
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes,
        "controller",
        [helper.make_tensor_value_info("state", element, [batch, 3])],
        [helper.make_tensor_value_info("action", element, [batch, 2])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def session(path):
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def face(path):
    runtime = session(path)
    return [(v.name, v.type, v.shape) for v in (*runtime.get_inputs(), *runtime.get_outputs())]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("batch", ["points", 1])
def test_the_result_is_a_drop_in(run, tmp_path, kind, batch):
    model, small = planted(tmp_path / "model.onnx", kind, batch), tmp_path / "small.onnx"
    proof = tmp_path / "proof.json"
    done = run("simplify", model, small, "--certificate", proof, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["dtype"] == np.dtype(kind).name and told["verdict"]["equal"] is True
    assert face(model) == face(small)
    read, written = onnx.load(model), onnx.load(small)
    assert (written.ir_version, written.opset_import[0].version) == (read.ir_version, read.opset_import[0].version)
    stored = {t.data_type for t in written.graph.initializer} - {TensorProto.INT64}
    assert stored == {helper.np_dtype_to_tensor_dtype(np.dtype(kind))}
    assert sum(len(t.raw_data) for t in written.graph.initializer) < sum(
        len(t.raw_data) for t in read.graph.initializer
    )
    x = np.random.default_rng(1).normal(size=(1 if batch == 1 else 7, 3)).astype(kind)
    want, got = (session(path).run(["action"], {"state": x})[0] for path in (model, small))
    assert want.dtype == got.dtype == kind
    np.testing.assert_allclose(got, want, rtol=2e-2 if kind == np.float16 else 1e-5, atol=1e-2)
    # the claim is about the two files, and says up to what
    done = run("verify", proof, model, small, "--json")
    replay = json.loads(done.stdout)
    assert replay["ok"] and [m["file"] for m in replay["models"]] == ["model.onnx", "small.onnx"]
    assert all(m["compared"] for m in replay["models"])
    exact = fs.equivalent(fs.load(model), fs.load(small), tolerance=0).equal
    assert (told["exact"], replay["tolerance"] == 0) == (exact, exact)


def test_rounded_numbers_are_not_called_the_same_real_function(run, tmp_path):
    model, small = planted(tmp_path / "model.onnx"), tmp_path / "small.onnx"
    done = run("simplify", model, small)
    assert "the same function up to float32 rounding" in done.stdout and "real function" not in done.stdout
    assert fs.equivalent(fs.load(model), fs.load(small), tolerance=0).equal is False
    planted(model, scale=1.0)  # twice a float32 is a float32
    done = run("simplify", model, small)
    assert "the same real function" in done.stdout
    assert fs.equivalent(fs.load(model), fs.load(small), tolerance=0).equal is True


def test_where_rounding_cannot_be_proven_the_wider_type_is_named(run, tmp_path, monkeypatch):
    """No proof for the rounded numbers: the exact ones are written, behind the types that the model had."""
    monkeypatch.setattr(
        "fiberscope.equality.simplified.equivalent",
        lambda *arguments, **options: fs.Verdict(None, "none", fs.Space(3)),
    )
    model, small = planted(tmp_path / "model.onnx"), tmp_path / "small.onnx"
    done = run("simplify", model, small)
    assert "the same real function" in done.stdout
    assert "its numbers are not all float32, so they are stored as float64" in done.stdout
    assert face(model) == face(small)
    assert fs.equivalent(fs.load(model), fs.load(small), tolerance=0).equal is True


def test_other_formats(run, tmp_path):
    model = planted(tmp_path / "model.onnx")
    for ending in ("npz", "pt", "safetensors"):
        small = tmp_path / f"small.{ending}"
        assert run("simplify", model, small).returncode == 0
        assert run("equal", model, small).returncode == 0
