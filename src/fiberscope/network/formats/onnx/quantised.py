"""Quantised graphs: a continuous program, and how far rounding takes the file's function from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fiberscope.errors import InputError
from fiberscope.files import sha256_of
from fiberscope.network.formats.onnx.quantisers import Quantiser
from fiberscope.network.formats.onnx.reader import read_quantised
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Composite, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.numerics.algebra.base import gather
from fiberscope.numerics.floats import TINY, FloatArray, round_up


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """The program of a quantised file: ``network`` clips where the file quantises and does not round.

    ``halves`` are half the steps of the quantisers, by their places in ``network.program``. The file's function, its
    quantisers taken in real arithmetic, is within ``drift`` of the network everywhere, for each output.
    """

    network: Network
    halves: dict[int, FloatArray]

    @property
    def gaps(self) -> list[FloatArray]:
        """For every value of ``network.program`` a bound of how far the file's value is from it.

        Every node passes a difference on by at most its Lipschitz constant, entry by entry; a quantiser adds half a
        step. What saturates is clipped in both.
        """
        found = [np.zeros(self.network.in_size)]
        with np.errstate(over="ignore", invalid="ignore"):
            for index, node in enumerate(self.network.program):
                gap = _passed(node, [found[s] for s in node.sources])
                if index in self.halves:
                    gap = round_up(gap + self.halves[index], 2)
                found.append(gap)
        return found

    @property
    def drift(self) -> FloatArray:
        return self.gaps[-1]


def _passed(node: Given, gaps: list[FloatArray]) -> FloatArray:
    match node:
        case Affine():
            gap = gaps[0]
            for stage in node.operator.stages():
                if gap.any():
                    gap = round_up(stage.apply_abs(gap[None])[0] + stage.fan_in * TINY, stage.fan_in + 4)
                else:
                    gap = np.zeros(stage.out_size)
            return gap
        case PiecewiseLinear():
            return np.where(gaps[0] == 0, 0.0, round_up(np.maximum(1.0, np.abs(node.slopes)) * gaps[0], 3))
        case Add():
            total = np.sum(gaps, axis=0)
            return np.where(total == 0, 0.0, round_up(total, len(gaps) + 1))
        case Concat():
            joined = np.concatenate(gaps)
            return joined if node.order is None else joined[node.order]
        case MaxPool():
            return np.asarray(gather(gaps[0][None], node.windows, 0.0)[0].max(axis=1))
        case Composite():
            return gaps[0]  # clips
        case _:
            assert_never(node)


def is_quantised(source: Any) -> bool:
    """Whether this is the path of an ONNX file that quantises what it computes, and not its stored numbers alone."""
    if not isinstance(source, str | Path) or Path(source).suffix != ".onnx" or not Path(source).is_file():
        return False
    try:
        graph = onnx.load(str(source), load_external_data=False).graph
    except (DecodeError, ValueError, TypeError, OSError):  # damaged: who reads it says so
        return False
    known = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if known.issuperset(name for name in node.input if name):
            known.update(node.output)
        elif node.op_type == "QuantizeLinear":
            return True
    return False


def load_quantised(path: Path | str) -> Quantised:
    """Read a file with ``QuantizeLinear`` and ``DequantizeLinear`` pairs (int8, uint8; per tensor or per channel)."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    found = read_quantised(file)
    halves = {k: np.asarray(node.half) for k, node in enumerate(found.program) if isinstance(node, Quantiser)}
    program = [
        Clip(node.source, node.low, node.high, node.shape) if isinstance(node, Quantiser) else node
        for node in found.program
    ]
    source = found.source.at(file, sha256_of(file))
    return Quantised(Network.from_nodes(program, found.input_shape, source), halves)
