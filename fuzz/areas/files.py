"""Files: round trips, damaged files, and ONNX graphs as other programs write them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.case import Area, expect
from fuzz.oracle.program import Program, at

ENDINGS = (".npz", ".safetensors", ".pt", ".onnx")

# -- round trips


def make_files(rng: Random) -> tuple[Any, ...]:
    program = draw.program(rng, rng.randint(1, 3), extreme=0.2)
    damage = [(rng.randrange(4), rng.random(), rng.randrange(256)) for _ in range(3)]
    return program, rng.choice(ENDINGS), damage


def check_files(program: Program, ending: str, damage: Sequence[tuple[int, float, int]]) -> None:
    """What is saved comes back bit by bit; a damaged file is refused in our own words, or is read as something."""
    net = bridge.network(program)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net{ending}"
        fs.save(net, path)
        back = fs.load(path)
        expect(fs.identical(net, back), f"{ending}: another network came back")
        points = [draw.point(Random(k), program.inputs) for k in range(2)]
        with np.errstate(all="ignore"):
            expect(np.array_equal(net(points), back(points), equal_nan=True), f"{ending}: other outputs came back")
        content = path.read_bytes()
        for kind, place, byte in damage:
            path.write_bytes(_damaged(content, kind, place, byte))
            try:
                fs.load(path)
            except fs.FiberscopeError as error:
                expect("\n" not in str(error), f"{ending}: an error of several lines: {error}")


def _damaged(content: bytes, kind: int, place: float, byte: int) -> bytes:
    k = int(place * len(content))
    if kind == 0:
        return content[:k]
    if kind == 1:
        return content[:k] + bytes([byte]) + content[k + 1 :]
    if kind == 2:
        return content[:k] + content[k : k + 16] + content[k:]
    return content[:k] + bytes([content[k] ^ (1 << byte % 8)]) + content[k + 1 :]


# -- ONNX


def make_onnx(rng: Random) -> tuple[Any, ...]:
    program = draw.singles(draw.program(rng, rng.randint(1, 3), kinds="cprt", extreme=0.0))
    nodes = [
        ("relu", node[1], (rng.choice((0.0, 0.0, 0.5)),) * len(node[2])) if node[0] == "relu" else node
        for node in program.nodes
    ]
    return (
        Program(program.inputs, tuple(nodes)),
        rng.randrange(1 << 30),
        tuple(draw.point(rng, program.inputs) for _ in range(3)),
    )


def check_onnx(program: Program, seed: int, points: Sequence[Sequence[float]]) -> None:
    """The loaded graph is the function that the graph says, exactly."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(graph(program, rng), path)
        loaded = bridge.program(fs.load(path))
    for x in points:
        got, wanted = at(loaded, x).outputs, at(program, x).outputs
        expect(got == wanted, f"at {x}: {list(map(float, got))}, exactly {list(map(float, wanted))}")


def graph(program: Program, rng: Random) -> Any:
    """The program as an ONNX model, each layer in one of the ways in which exporters write it."""
    flat = rng.random() < 0.25 and not any(node[0] in ("concat", "pool") for node in program.nodes)
    double = rng.random() < 0.4
    made = _Graph(rng, np.float64 if double else np.float32, flat)
    names = ["x"]
    for k, node in enumerate(program.nodes):
        out = "y" if k == len(program.nodes) - 1 else f"v{k + 1}"
        made.layer(node, [names[s] for s in (node[1] if isinstance(node[1], tuple) else (node[1],))], out, program)
        names.append(out)
    kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
    lead: list[Any] = [] if flat else [rng.choice(("batch", 1))]
    inputs = [helper.make_tensor_value_info("x", kind, [*lead, program.inputs])]
    outputs = [helper.make_tensor_value_info("y", kind, [*lead, program.outputs])]
    content = helper.make_graph(made.nodes, "net", inputs, outputs, made.tensors)
    return helper.make_model(content, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


class _Graph:
    def __init__(self, rng: Random, dtype: Any, flat: bool) -> None:
        self.rng, self.dtype, self.flat = rng, dtype, flat
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def _tensor(self, values: Any, dtype: Any = None) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.array(values, dtype=dtype or self.dtype), name))
        return name

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"n{len(self.nodes)}", **attributes))
        return output

    def layer(self, node: Any, sources: list[str], out: str, program: Program) -> None:
        if node[0] == "affine":
            self._affine(node, sources[0], out)
        elif node[0] == "relu":
            if node[2][0] == 0:
                self._add("Relu", sources, out)
            else:
                self._add("LeakyRelu", sources, out, alpha=node[2][0])
        elif node[0] == "add":
            self._add("Add", sources, out)
        elif node[0] == "concat":
            self._add("Concat", sources, out, axis=self.rng.choice((1, -1)))
        else:
            size = program.sizes[node[1]]
            shaped = self._add("Reshape", [sources[0], self._tensor([-1, 1, 1, size], np.int64)], f"{out}a")
            pooled = self._add("MaxPool", [shaped], f"{out}b", kernel_shape=[1, node[2]], strides=[1, node[3]])
            self._add("Flatten", [pooled], out, axis=1)

    def _affine(self, node: Any, source: str, out: str) -> None:
        W, b = np.array(node[2]), np.array(node[3])
        kind = self.rng.randrange(3)
        if self.flat:
            product = self._add("MatMul", [self._tensor(W), source], f"{out}m")
            self._add("Add", [product, self._tensor(b)] if kind else [self._tensor(b), product], out)
        elif kind == 0:
            turned = self.rng.random() < 0.5
            self._add("Gemm", [source, self._tensor(W if turned else W.T), self._tensor(b)], out, transB=int(turned))
        elif kind == 1:
            product = self._add("MatMul", [source, self._tensor(W.T)], f"{out}m")
            self._add("Add", [product, self._tensor(b)] if self.rng.random() < 0.5 else [self._tensor(b), product], out)
        else:
            product = self._add("MatMul", [source, self._tensor(W.T)], f"{out}m")
            self._add("Sub", [product, self._tensor(-b)], out)


AREAS = (Area("files", make_files, check_files), Area("onnx", make_onnx, check_onnx))
