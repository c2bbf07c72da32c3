"""Every real file against its permuted, rescaled, re-exported and half-precision copies: all of them are proven."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import fiberscope as fs
from fiberscope.testing.cases import CASES

FILES = (
    "acasxu_1_1", "acasxu_1_1_perturbed", "acasxu_1_2", "acasxu_2_2", "cartpole", "gcas", "heloc", "heloc_2e5",
    "lunarlander", "mnist8x8_a", "mnist8x8_b", "mnist_256x2", "mnist_256x4", "mnist_256x4_split", "tll_8_0", "vdp",
)  # fmt: skip
OTHERS = ("acasxu/1_1", "acasxu/3_7", "acasxu/5_9")


def test_no_file_is_left_out(shared_nets: Path) -> None:
    assert {path.stem for path in shared_nets.glob("*.onnx")} == set(FILES)


@pytest.mark.parametrize("name", FILES + OTHERS)
def test_copies_of_a_real_file_are_proven(name: str, shared_nets: Path, tmp_path: Path) -> None:
    file, copy = shared_nets / f"{name}.onnx", tmp_path / "copy.onnx"
    net = fs.load(file)
    chain = net if net.is_chain else net.as_mlp()
    moved = fs.Symmetry.random(chain.widths, 1)
    for element in (
        fs.Symmetry(moved.permutations, [np.ones(len(order)) for order in moved.permutations]),
        fs.Symmetry([np.arange(len(scale)) for scale in moved.scales], moved.scales),
        fs.Symmetry.random(chain.widths, 2, dyadic=False),
    ):
        fs.save(element(chain), copy)
        assert fs.equivalent(file, copy).equal is True
    fs.save(net, copy)
    assert fs.equivalent(file, copy).equal is True
    halved = fs.equivalent(file, net.to_torch().half())
    assert halved.equal is True and halved.precision == "float16"
    for dynamo in (False, True):
        exported(net.to_torch().float(), net.input_shape, copy, dynamo)
        assert fs.equivalent(file, copy).equal is True


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", ["convolutional", "mixed_linear", "leaky"])
def test_what_goes_to_torch_can_be_exported_and_read_again(name: str, dynamo: bool, tmp_path: Path) -> None:
    """No choice by ``x > 0``, which may jump, and no padding with minus infinity, which is no number."""
    net = CASES[name]()
    exported(net.to_torch(), net.input_shape, tmp_path / "copy.onnx", dynamo)
    assert fs.equivalent(net, tmp_path / "copy.onnx").equal is True


def exported(module: torch.nn.Module, shape: tuple[int, ...], path: Path, dynamo: bool) -> None:
    example = torch.zeros((1, *shape), dtype=next(module.parameters()).dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (example,), str(path), dynamo=dynamo, verbose=False)
