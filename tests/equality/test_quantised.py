"""Quantised graphs: bounded rounding, saturation included; exact questions refuse them by name."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.app import app
from fiberscope.equality import checker
from fiberscope.equality.beyond.rounding_inputs import rounded_pair
from fiberscope.equality.certificates.claims import plain_program
from fiberscope.network.formats.onnx.quantised import is_quantised, load_quantised
from fiberscope.network.nodes import Affine


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
    assert verdict.equal is True and most <= verdict.bound <= 40 and "within half a step" in verdict.reason
    assert fs.equivalent(path, net, box, tolerance=40.0, time_limit=20).equal is True
    assert fs.equivalent(net, path, box, tolerance=most / 2, time_limit=0.3).equal is None
    itself = fs.equivalent(path, path, box, tolerance=2.1 * float(found.drift.max()), time_limit=5)
    assert itself.equal is True


def exactly(net, *numbers):
    """The outputs of a network in fractions."""
    rows = [{checker.ONE: Fraction(v)} for v in numbers]
    return checker.evaluate(checker.program_of(json.loads(json.dumps(plain_program(net)))), rows)


def rounded(value, step, zero, codes):
    """A quantiser in rational numbers, ties to even, as ONNX has it; and what it was handed, clipped."""
    least, most = ((code - zero) * step for code in codes)
    code = max(codes[0], min(codes[1], round(value / step) + zero))
    return (code - zero) * step, max(least, min(most, value))


@pytest.mark.parametrize("steps", [(2**-6, 2**-5, 2**-5), (2**-7, 2**-9, 2**-10)])  # the second one saturates
@pytest.mark.parametrize("where", ["quantisers", "outputs"])
def test_the_file_is_the_program_at_some_roundings(tmp_path, monkeypatch, steps, where):
    """An oracle in fractions finds the roundings of every point; they are within half a step, and give the outputs."""
    if where == "outputs":
        monkeypatch.setattr("fiberscope.equality.beyond.rounding_inputs.MOST_ROUNDINGS", 3)
    weights, biases = chain((3, 4, 3, 2))
    path = quantised_file(tmp_path / "q.onnx", weights, biases, steps)
    plain = load_quantised(path).network
    affine = [node for node in plain.program if isinstance(node, Affine)]
    box = fs.Box.cube(3)
    other, program, found = rounded_pair(fs.Network(weights, biases), path, box)
    count = sum(found.inputs)
    assert found.where == where and found.inputs == (0, 10 if where == "quantisers" else 2)
    assert program.in_size == other.in_size == 3 + count
    for x in np.random.default_rng(0).uniform(-1, 1, (8, 3)):
        values, roundings = [Fraction(v) for v in x], []
        for k, node in enumerate(affine):
            step, zero = Fraction(steps[k]), 0 if k == 0 else -128
            told = [rounded(v, step, zero, (-128, 127)) for v in values]
            roundings += [(code - clipped) / (step / 2) for code, clipped in told]
            rows, offset = node.operator.dense(), node.offset
            values = [
                sum((Fraction(w) * code for w, (code, _) in zip(row, told, strict=True)), Fraction(c))
                for row, c in zip(rows, offset, strict=True)
            ]
            if k + 1 < len(affine):
                values = [max(v, Fraction(0)) for v in values]
        assert all(-1 <= r <= 1 for r in roundings)
        if where == "outputs":
            still = exactly(program, *x, 0, 0)
            ends = [exactly(program, *x, e, e) for e in (-1, 1)]
            assert all(low <= v <= high for low, v, high in zip(ends[0], values, ends[1], strict=True))
            assert still == exactly(plain, *x)
        else:
            assert exactly(program, *x, *roundings) == values
        for rest in ([0] * count, [1] * count):  # a float model does not care
            assert exactly(other, *x, *rest) == exactly(fs.Network(weights, biases), *x)


def proof(tmp_path, **question):
    weights, biases = chain((2, 3, 2))
    path = quantised_file(tmp_path / "q.onnx", weights, biases, (2**-4, 2**-3))
    fs.save(fs.Network(weights, biases), tmp_path / "n.onnx")
    verdict = fs.equivalent(tmp_path / "n.onnx", path, fs.Box.cube(2), time_limit=5, **question)
    assert verdict.equal is True and verdict.interval.low == 0
    verdict.save(tmp_path / "proof.json")
    return path, json.loads((tmp_path / "proof.json").read_text())


@pytest.mark.parametrize("question", [{"tolerance": 1.0}, {"criterion": "argmax", "margin": 2.0}])
def test_certificates(tmp_path, question):
    path, found = proof(tmp_path, **question)
    replay = fs.verify(tmp_path / "proof.json", tmp_path / "n.onnx", path)
    assert replay.ok and replay.rounding.inputs == (0, 5) and replay.domain.ambient == 2
    assert [model.compared for model in replay.models] == [True, True]
    assert fs.verify(tmp_path / "proof.json").ok
    with pytest.raises(fs.InputError, match="both models or none"):
        fs.verify(tmp_path / "proof.json", tmp_path / "n.onnx")
    other = quantised_file(tmp_path / "other.onnx", *chain((2, 3, 2)), (2**-4, 2**-4))
    assert not fs.verify(tmp_path / "proof.json", tmp_path / "n.onnx", other)
    _, about, _ = checker.check(found, [(tmp_path / "n.onnx").read_bytes(), path.read_bytes()])
    assert "the last 5 inputs are roundings" in about[-1] and "your file has this hash" in about[1]


def test_changed_certificates_are_refused(tmp_path):
    _, found = proof(tmp_path, tolerance=1.0)

    def refused(change):
        made = json.loads(json.dumps(found))
        change(made["claim"])
        with pytest.raises((checker.Malformed, checker.Fails)):
            checker.check(made)
        (tmp_path / "changed.json").write_text(json.dumps(made))
        with pytest.raises(fs.InputError):
            fs.verify(tmp_path / "changed.json")

    assert found["claim"]["rounding"] == {"inputs": [0, 5], "where": "quantisers"}
    for inputs in ([0, 4], [0, 6], [5, 0], [1, 4], [0, 7], [-1, 6], [0, 0], [0], [0, 5.0], [True, 4], None, "05"):
        if inputs != [0, 4]:  # one rounding fewer is an input more, and that is true, too
            refused(lambda claim, inputs=inputs: claim["rounding"].update(inputs=inputs))
    refused(lambda claim: claim["rounding"].update(where="nowhere"))
    refused(lambda claim: claim["rounding"].update(more=1))
    refused(lambda claim: claim.update(rounding=None))
    refused(lambda claim: claim["domain"]["low"].__setitem__(3, -0.5))  # roundings that are too small
    refused(lambda claim: claim["domain"]["high"].__setitem__(6, 0.5))
    refused(lambda claim: claim.update(equal=False))


def test_roundings_of_both_are_apart(tmp_path):
    """One input for the rounding of both would let them cancel: a file against itself is not known to be equal."""
    weights, biases = chain((2, 3, 2))
    path = quantised_file(tmp_path / "q.onnx", weights, biases, (2**-4, 2**-3))
    left, right, found = rounded_pair(path, path, fs.Box.cube(2))
    assert found.inputs == (5, 5)
    found.check(left, right)
    for a, b in ((left, left), (right, right), (right, left)):
        with pytest.raises(fs.InputError, match="no rounding of each other"):
            found.check(a, b)
    e = np.zeros((1, 12))
    e[0, 2:7] = 1
    assert np.abs(left(e) - left(0 * e)).max() > 0 and (right(e) == right(0 * e)).all()
    verdict = fs.equivalent(path, path, fs.Box.cube(2), tolerance=1e-3, time_limit=2)
    assert verdict.equal is None and verdict.evidence is None and verdict.interval.low == 0


def test_around_samples_and_on_the_command_line(tmp_path):
    proof(tmp_path, tolerance=1.0)
    np.save(tmp_path / "x.npy", np.array([[0.5, 0.25], [-0.5, 0.75]]))
    files = [str(tmp_path / name) for name in ("n.onnx", "q.onnx")]
    around = fs.equivalent_around(*files, np.load(tmp_path / "x.npy"), 0.01, tolerance=1.0, time_limit=5)
    assert around.equal is True and "2 proven" in repr(around)
    with pytest.raises(fs.InputError, match="rows of 2 numbers"):
        fs.equivalent_around(*files, np.zeros((2, 3)), 0.01, tolerance=1.0)
    run = CliRunner().invoke
    options = ["--box", "-1", "1", "--tolerance", "1"]
    written = ["--certificate", str(tmp_path / "c.json"), "--junit", str(tmp_path / "j.xml")]
    told = run(app, ["equal", *files, *options, *written])
    assert told.exit_code == 0 and "roundings anywhere within half a step" in told.output
    assert run(app, ["verify", str(tmp_path / "c.json"), *files]).exit_code == 0
    balls = ["--same-class", "--margin", "2", "--data", str(tmp_path / "x.npy"), "--radius", "0.01"]
    assert run(app, ["equal", *files, *balls, "--time-limit", "5"]).exit_code == 0
    for bad in ([*options, "--data", str(tmp_path / "x.npy")], ["--box", "-1", "1"]):
        assert isinstance(run(app, ["equal", *files, *bad]).exception, fs.FiberscopeError)


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


def graph_file(path, nodes, opset=21, **constants):
    """Inputs ``(N, 4)``; ``W`` and ``b`` of a layer at the end, a scale ``s`` and an int8 zero point ``z``."""
    given = {"s": np.float32(0.01), "z": np.int8(0), "W": np.float32([[1, -2, 3, 4], [0, 1, 0, -1]]), **constants}
    inits = [v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v), k) for k, v in given.items()]
    graph = helper.make_graph(
        nodes, "q", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], inits,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def node(kind, inputs, output, **options):
    return helper.make_node(kind, inputs.split(), [output], **options)


def ending(name="d"):
    return node("Gemm", f"{name} W", "y", transB=1)


def quantised_by(inputs, written, read="d", **options):
    return [node("QuantizeLinear", inputs, "q", **options), node("DequantizeLinear", written, read, **options)]


TWO = np.float32([0.01, 0.2])
SHAPES = {"there": np.array([-1, 2, 2]), "back": np.array([-1, 4]), "s": TWO, "z": np.zeros(2, np.int8)}


@pytest.mark.parametrize(
    ("nodes", "constants", "text"),
    [
        ([node("QuantizeLinear", "x s z", "q"), node("Cast", "q", "d", to=1), ending()], {}, r"by node 'd' \(Cast"),
        ([node("QuantizeLinear", "x s z", "y")], {}, "read by the output"),
        ([*quantised_by("x s z", "q s z"), node("Cast", "q", "c", to=1), node("Add", "d c", "y")], {}, "'c'"),
        (
            [
                node("Reshape", "x there", "x2"),
                node("QuantizeLinear", "x2 s z", "q", axis=1),
                node("DequantizeLinear", "q s z", "d2", axis=2),
                node("Reshape", "d2 back", "d"),
                ending(),
            ],
            SHAPES,
            "along another axis",
        ),
        ([*quantised_by("x s z", "q s z", axis=0), ending()], {"s": np.full(4, 0.1, np.float32)}, "batch axis"),
        ([*quantised_by("x s", "q s", output_dtype=TensorProto.INT16), ending()], {}, "int16"),
        ([*quantised_by("x s z", "q s z"), ending()], {"z": np.zeros(4, np.int8)}, "one number, or one for each of 1"),
        ([*quantised_by("x s z", "q s z", block_size=2), ending()], {"s": TWO[None], "z": np.int8([[0, 0]])}, "blocks"),
    ],
)  # fmt: skip
def test_other_uses_of_codes_are_refused(tmp_path, nodes, constants, text):
    path = graph_file(tmp_path / "q.onnx", nodes, **constants)
    with pytest.raises(fs.FiberscopeError, match=text):
        load_quantised(path)


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8, None])
def test_the_type_of_codes_without_a_zero_point(tmp_path, kind):
    """It says where values are clipped, and may be told by an attribute alone."""
    nodes = quantised_by("x s", "q s")
    nodes[0] = node("QuantizeLinear", "x s", "q", **({} if kind is None else {"output_dtype": kind}))
    path = graph_file(tmp_path / "q.onnx", [*nodes, ending()])
    found, x = load_quantised(path), np.random.default_rng(0).uniform(-3, 3, (50, 4)).astype(np.float32)
    real = ReferenceEvaluator(str(path)).run(None, {"x": x})[0]
    assert (np.abs(real - found.network(x.astype(np.float64))) <= found.drift + 1e-5).all()


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "INT8"])
def test_constants_of_any_codes(tmp_path, kind):
    """Codes of eight bits may be floats: half is no zero."""
    numbers = [0.5, -1.25, 3.0, 0.125, 2.0, 7.0, -6.0, -0.75]
    values = [int(v) for v in numbers] if kind.startswith("INT") else numbers
    codes = helper.make_tensor("w", getattr(TensorProto, kind), [2, 4], values)
    nodes = [node("DequantizeLinear", "w s", "wd"), node("Gemm", "x wd", "y", transB=1)]
    net = fs.load(graph_file(tmp_path / "w.onnx", nodes, w=codes, s=np.float32(0.25)))
    assert (net.weights[0] == np.reshape(values, (2, 4)) * 0.25).all()


def test_a_constant_that_is_quantised_without_a_zero_point(tmp_path):
    nodes = [node("QuantizeLinear", "w s", "q", output_dtype=TensorProto.INT8), node("DequantizeLinear", "q s", "wd")]
    w = np.float32([[0.5, -0.25, 3, -0.1], [-2, -40, 40, 0]])
    made = graph_file(tmp_path / "w.onnx", [*nodes, node("Gemm", "x wd", "y", transB=1)], w=w, s=np.float32(0.25))
    assert (fs.load(made).weights[0] == np.clip(np.rint(w / 0.25), -128, 127) * 0.25).all()


def test_a_clip_behind_a_quantiser_leaves_its_rounding(tmp_path):
    """Two clips in a row are one, but the first one of these rounds besides."""
    clip = helper.make_node("Clip", ["d", "low", "high"], ["y"])
    pair = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
    ]
    plain = [helper.make_node("Identity", ["x"], ["d"])]
    constants = {"s": np.float32(0.5), "z": np.int8(0), "low": np.float32(-1), "high": np.float32(2)}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "xy"]
    paths = []
    for name, nodes in (("float.onnx", plain), ("int8.onnx", pair)):
        graph = helper.make_graph(
            [*nodes, clip],
            "g",
            ends[:1],
            ends[1:],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
        )
        paths.append(tmp_path / name)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]), paths[-1])
    assert len(load_quantised(paths[1]).halves) == 1
    box = fs.Box([-3.0, -3.0], [3.0, 3.0])
    x = np.random.default_rng(0).uniform(-3, 3, (200, 2)).astype(np.float32)
    seen = np.abs(np.subtract(*(ReferenceEvaluator(str(path)).run(None, {"x": x})[0] for path in paths))).max()
    assert 0.24 < seen <= 0.25
    assert fs.equivalent(*paths, box, 0.2, time_limit=1).equal is None
    verdict = fs.equivalent(*paths, box, 0.26)
    assert verdict.equal and seen <= verdict.bound == pytest.approx(0.25)
    with pytest.raises(fs.InputError, match="in no other file"):
        verdict.save(tmp_path / "proof.json", tuple(paths))


def test_a_file_that_quantises_its_constants_alone_is_plain(tmp_path):
    w = np.array([[0.3, -0.7], [1.1, 0.2]], np.float32)
    path, constants = tmp_path / "net.onnx", {"w": w, "s": np.float32(0.01), "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["v"]),
        helper.make_node("Gemm", ["x", "v"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "xy"]
    inits = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], inits)), path)
    assert not is_quantised(path)
    assert fs.equivalent(path, fs.load(path), tolerance=0).equal is True


def test_a_clip_that_rounding_reaches_is_kept(tmp_path):
    """``10 round(x)`` is clipped at 7, and ``10 x`` is not on the box; the same rounding is subtracted unclipped."""
    constants = {"s": np.float32(1), "t": np.float32(7 / 127), "z": np.int8(0), "w": [[10]], "v": [[-10]], "k": [[0]]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1]) for name in "xy"]
    rounded = [
        helper.make_node(op, inputs.split(), [made])
        for op, inputs, made in (
            ("QuantizeLinear", "x s z", "p"), ("DequantizeLinear", "p s z", "q"), ("Gemm", "q w", "a"),
            ("QuantizeLinear", "a t z", "b"), ("DequantizeLinear", "b t z", "c"), ("Gemm", "q v", "d"),
            ("Add", "c d", "y"),
        )
    ]  # fmt: skip
    paths = []
    for name, nodes in (("zero.onnx", [helper.make_node("Gemm", ["x", "k"], ["y"])]), ("int8.onnx", rounded)):
        inits = [numpy_helper.from_array(np.asarray(v, np.asarray(v).dtype if np.ndim(v) == 0 else np.float32), k)
                 for k, v in constants.items()]  # fmt: skip
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], inits)
        paths.append(tmp_path / name)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]), paths[-1])
    x = np.linspace(0, 0.6, 61, dtype=np.float32)[:, None]
    seen = np.abs(ReferenceEvaluator(str(paths[1])).run(None, {"x": x})[0]).max()
    assert seen == 3
    box = fs.Box([0.0], [0.6])
    assert fs.equivalent(*paths, box, 1.0, time_limit=1).equal is None
    verdict = fs.equivalent(*paths, box, 10.0)
    assert verdict.equal and verdict.bound >= seen
