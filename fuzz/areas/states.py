"""Files of other programs: numbers without an architecture, and small archives that unpack to very much."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.equality import layers
from fuzz.case import Area, expect
from fuzz.oracle.program import Program, at

# -- state dicts

State = dict[str, Any]

NAMES = (("0", "2", "4", "6"), ("8", "9", "10", "11"), ("fc1", "fc2", "fc3", "fc4"), ("in", "mid", "after", "end"))


def make_states(rng: Random) -> tuple[Any, ...]:
    """Two chains of the same widths, names of their layers, and where in the file their numbers stand."""
    widths = (rng.randint(1, 3), *(rng.randint(1, 3) for _ in range(rng.randint(0, 2))), rng.randint(1, 2))
    kind = rng.choice(("integer", "one decimal", "float32", "normal"))
    a, b = (draw.chain(rng, widths, kind=kind) for _ in range(2))
    dtype = "float32" if kind in ("integer", "float32") and rng.random() < 0.7 else "float64"
    ending = rng.choice((".pt", ".pt", ".ckpt", ".pth", ".safetensors", ".npz"))
    place = rng.choice(("plain", "plain", "nested", "deep", "two")) if ending[1] in "pc" else "plain"
    slope = rng.choice((0.0, 0.0, 0.5, 0.25))
    points = tuple(draw.point(rng, widths[0]) for _ in range(3))
    return a, b, rng.choice(NAMES), rng.choice(("", "", "model.", "module.net.")), dtype, ending, place, slope, points


def check_states(
    a: Program,
    b: Program,
    names: Sequence[str],
    prefix: str,
    dtype: str,
    ending: str,
    place: str,
    slope: float,
    points: Sequence[Sequence[float]],
) -> None:
    """A file without an architecture is refused; with an activation it is just that chain, and no other one."""
    if dtype == "float32":
        a, b = draw.singles(a), draw.singles(b)
    one, two = (_state(p, names, prefix, dtype) for p in (a, b))
    content, keys = _placed(one, two, place)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net{ending}"
        _write(content, path)
        for key in (None, *keys):
            _refused(lambda key=key: fs.load(path, key=key), "a file without an architecture is read as a function")
        _refused(lambda: fs.equivalent(path, path), "files without an architecture are compared")
        said: State = {"activation": "leaky_relu", "slope": slope} if slope else {"activation": "relu"}
        if place == "two":
            _refused(lambda: fs.load(path, **said), "one of two state dicts is guessed")
        for key, program in zip(keys or (None,), (a, b), strict=False):
            _same(fs.load(path, key=key, **said), _leaky(program, slope), points)
            if prefix:
                way = f"{key}.{prefix[:-1]}" if key else prefix[:-1]
                _same(fs.load(path, key=way, **said), _leaky(program, slope), points)
            module = _module(program, names, torch.nn.LeakyReLU, slope)
            _same(fs.load(path, key=key, module=module), _leaky(program, slope), points)
            if len(program.nodes) > 1:
                smooth = _module(program, names, torch.nn.Tanh)
                _refused(
                    lambda key=key, smooth=smooth: fs.load(path, key=key, module=smooth), "tanh is taken for linear"
                )


def _state(program: Program, names: Sequence[str], prefix: str, dtype: str) -> State:
    found: State = {}
    for name, W, b in zip(names, *layers(program), strict=False):
        found[f"{prefix}{name}.weight"] = np.array(W, dtype)
        found[f"{prefix}{name}.bias"] = np.array(b, dtype)
    return found


def _placed(one: State, two: State, place: str) -> tuple[Any, tuple[str, ...]]:
    """The content of the file, and the keys of the first state dict and of the second."""
    moments = {"state": {0: {"step": 1.0}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    if place == "nested":
        return {"epoch": 3, "state_dict": one, "optimizer": moments}, ("state_dict",)
    if place == "deep":
        return {"run": {"best": one, "score": 0.5}, "name": "x"}, ("run.best",)
    if place == "two":
        return {"model": one, "ema": {"model": two, "decay": 0.9}}, ("model", "ema.model")
    return one, ()


def _write(content: Any, path: Path) -> None:
    if path.suffix == ".npz":
        np.savez(path, **content)
    elif path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(_tensors(content), path)


def _tensors(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _tensors(value) for name, value in content.items()}
    return torch.from_numpy(content) if isinstance(content, np.ndarray) else content


def _refused(call: Any, text: str) -> None:
    try:
        found = call()
    except (fs.InputError, fs.UnsupportedModelError):
        return
    expect(False, f"{text}: {found!r}")


def _leaky(program: Program, slope: float) -> Program:
    nodes = [(node[0], node[1], (slope,) * len(node[2])) if node[0] == "relu" else node for node in program.nodes]
    return Program(program.inputs, tuple(nodes))


def _module(program: Program, names: Sequence[str], between: type[torch.nn.Module], *slope: float) -> Any:
    """A module of those names with other numbers and some activation between its layers."""
    parts: dict[str, torch.nn.Module] = {}
    for k, W in enumerate(layers(program)[0]):
        if k:
            parts[f"act{k}"] = between(*slope)
        parts[names[k]] = torch.nn.Linear(len(W[0]), len(W))
    return torch.nn.Sequential(OrderedDict(parts))


def _same(net: Any, program: Program, points: Sequence[Sequence[float]]) -> None:
    loaded = bridge.program(net)
    for x in points:
        got, wanted = at(loaded, x).outputs, at(program, x).outputs
        expect(got == wanted, f"at {x}: {list(map(float, got))}, exactly {list(map(float, wanted))}")


AREAS = (Area("states", make_states, check_states),)
