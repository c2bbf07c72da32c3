"""Quantised graphs: bounded rounding, saturation included; exact questions refuse them by name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import fiberscope as fs
from fiberscope.network.formats.onnx.quantised import is_quantised, load_quantised


def quantised_file(path, weights, biases, steps, kind=np.int8, per_channel=False, quantise_input=True, opset=19):
    """A dense chain whose weights are stored as codes and whose values are quantised behind every layer."""
    nodes, inits, now = [], [], "x"

    def constant(name, array):
        inits.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def pair(value, name, step, zero):
        args = [constant(f"{name}_s", np.float32(step)), constant(f"{name}_z", kind(zero))]
        nodes.append(helper.make_node("QuantizeLinear", [value, *args], [f"{name}_q"], name=f"{name}_Q"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *args], [f"{name}_d"], name=f"{name}_D"))
        return f"{name}_d"

    if quantise_input:
        now = pair(now, "input", steps[0], 0 if kind == np.int8 else 128)
    for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
        scale = (np.abs(w).max(axis=1) if per_channel else np.abs(w).max()) / 127
        scale = np.atleast_1d(scale).astype(np.float32)
        codes = np.round(w / scale[:, None]).astype(np.int8)
        shape = scale if per_channel else scale[0]
        zero = np.zeros(len(scale), np.int8) if per_channel else np.int8(0)
        names = [constant(f"w{k}", codes), constant(f"w{k}_s", shape), constant(f"w{k}_z", zero)]
        nodes.append(helper.make_node("DequantizeLinear", names, [f"w{k}_d"], axis=0))
        bias = constant(f"b{k}", b.astype(np.float32))
        nodes.append(helper.make_node("Gemm", [now, f"w{k}_d", bias], [f"z{k}"], transB=1))
        now = f"z{k}"
        if k + 1 < len(weights):
            nodes.append(helper.make_node("Relu", [now], [f"r{k}"]))
            now = f"r{k}"
            if steps:
                now = pair(now, f"h{k}", steps[k + 1], -128 if kind == np.int8 else 0)
    graph = helper.make_graph(
        nodes, "q", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", weights[0].shape[1]])],
        [helper.make_tensor_value_info(now, TensorProto.FLOAT, ["N", weights[-1].shape[0]])], inits,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def chain(widths=(3, 8, 6, 2), seed=0):
    net = fs.Network.random(widths, seed)
    return [w.astype(np.float32) for w in net.weights], [b.astype(np.float32) for b in net.biases]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("steps", [(2**-6, 2**-5, 2**-5), (2**-7, 2**-9, 2**-10)])  # the second one saturates
def test_the_bound_holds(tmp_path, kind, per_channel, steps):
    weights, biases = chain()
    path = quantised_file(tmp_path / "q.onnx", weights, biases, steps, kind, per_channel)
    found = load_quantised(path)
    assert is_quantised(path) and len(found.halves) == 3
    session = ReferenceEvaluator(str(path))
    x = np.random.default_rng(1).uniform(-1.5, 1.5, (400, 3)).astype(np.float32)
    real = session.run(None, {"x": x})[0]
    off = np.abs(real - found.network(x.astype(np.float64)))
    assert (off <= found.drift + 1e-5).all() and off.max() > found.drift.max() / 1000
    net = fs.Network(weights, biases)
    box = fs.Box.cube(3)
    inside = np.abs(x).max(axis=1) <= 1
    most = float(np.abs(real[inside] - net(x[inside].astype(np.float64))).max())
    verdict = fs.equivalent(net, path, box, tolerance=40.0, time_limit=20)
    assert verdict.equal is True and most <= verdict.bound <= 40 and "rounding at the quantisers" in verdict.reason
    assert fs.equivalent(path, net, box, tolerance=40.0, time_limit=20).equal is True
    assert fs.equivalent(net, path, box, tolerance=most / 2, time_limit=2).equal is None
    itself = fs.equivalent(path, path, box, tolerance=2.1 * float(found.drift.max()), time_limit=5)
    assert itself.equal is True
    with pytest.raises(fs.InputError, match="quantised graphs has no certificate"):
        itself.save(tmp_path / "proof.json")


def test_exact_questions_refuse_it_by_name(tmp_path):
    weights, biases = chain()
    path = quantised_file(tmp_path / "q.onnx", weights, biases, (0.1, 0.1, 0.1))
    net = fs.Network(weights, biases)
    for tolerance, box in ((None, fs.Box.cube(3)), (0, fs.Box.cube(3)), (1.0, None)):
        with pytest.raises(fs.UnsupportedModelError, match=r"q\.onnx: a quantised graph"):
            fs.equivalent(net, path, box, tolerance)
    with pytest.raises(fs.UnsupportedModelError, match="QuantizeLinear"):
        fs.load(path)
    with pytest.raises(fs.FiberscopeError):
        fs.equivalent(net, path, fs.Box.cube(2), 1.0)


def test_stored_codes_are_plain_weights(tmp_path):
    """Weights alone in int8: a float network, and proven equal to its dequantised copy."""
    weights, biases = chain((3, 5, 2))
    path = tmp_path / "w.onnx"
    quantised_file(path, weights, biases, (), quantise_input=False, per_channel=True, opset=13)
    net = fs.load(path)
    scales = [np.abs(w).max(axis=1).astype(np.float32) / np.float32(127) for w in weights]
    plain = [np.round(w / s[:, None]).astype(np.int8) * s[:, None] for w, s in zip(weights, scales, strict=True)]
    assert fs.equivalent(net, fs.Network(plain, biases)).equal is True
    assert not is_quantised(path) and is_quantised(str(path)) is False
