"""Bad files: one line that says what was expected and what came; nothing runs, nothing is written."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from safetensors.numpy import save_file
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

from fiberscope.errors import FiberscopeError, InputError, TooLargeError, UnsupportedModelError
from fiberscope.network.formats.program import describe
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.testing import CASES

ENDINGS = ("onnx", "npz", "safetensors", "pt")


def refused(source: Any, message: str, kind: type[FiberscopeError] = InputError, **options: Any) -> None:
    with pytest.raises(kind, match=message) as caught:
        load(source, **options)
    assert "\n" not in str(caught.value)


# -- paths -------------------------------------------------------------------------------------------------------


def test_wrong_paths(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Readme")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "empty.pt").touch()
    refused(tmp_path / "none.onnx", "none.onnx: no such file")
    refused(str(tmp_path / "none.onnx"), "no such file")
    refused(tmp_path / "folder.onnx", "expected a file, got a folder")
    refused(tmp_path / "pipeline.joblib", "pickles are not opened, since they can run code: load it yourself")
    refused(tmp_path / "README.md", r"expected a file ending in .ckpt, .npz, .onnx, .pt, .pth, .safetensors, got '.md'")
    refused(tmp_path / "net.onx", r"got '.onx' \(closest: .onnx\)")
    refused(tmp_path / "net.safetensor", r"\(closest: .safetensors\)")
    refused(tmp_path / "net", "got 'no ending'")
    refused(tmp_path, "got a folder; folders of checkpoints are for align, merge and diff")
    refused(tmp_path / "empty.pt", "the file is empty")
    for source in (None, 3, [1.0], {"w": np.ones(2)}):
        refused(source, "source: expected a Network, a torch module, a scikit-learn MLP or the path of a")


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    save(CASES["chain"](), tmp_path / "NET.NPZ")
    assert load(tmp_path / "NET.NPZ").widths == (2, 5, 4, 3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_files_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    save(CASES["chain"](), path)
    path.chmod(0)
    refused(path, "cannot be read|damaged")
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"):
        save(CASES["chain"](), tmp_path / "other.npz")


def test_saving_to_wrong_paths(tmp_path: Path) -> None:
    net = CASES["chain"]()
    (tmp_path / "folder.npz").mkdir()
    for path, message in {
        "net.txt": "expected a file ending in",
        "none/net.npz": "no folder",
        "folder.npz": "a folder of that name",
    }.items():
        with pytest.raises(InputError, match=message):
            save(net, tmp_path / path)
    with pytest.raises(InputError, match="dtype: expected 'float32', 'float64' or None, got 'half'"):
        save(net, tmp_path / "net.npz", "half")
    with pytest.raises(InputError, match=r"net: expected a Network, a torch module, .* got Tensor"):
        save(torch.ones(1), tmp_path / "net.npz")
    assert os.listdir(tmp_path) == ["folder.npz"]


# -- damaged files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "content", [b"# A readme\n\nSome text.\n", b"\x00" * 100, b"PK\x03\x04 not a zip", b"\x80\x02."]
)
def test_files_of_another_format(ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"net.{ending}"
    path.write_bytes(content)
    refused(path, "expected an? ")


@pytest.mark.parametrize("ending", ENDINGS)
def test_another_format_of_ours(ending: str, tmp_path: Path) -> None:
    for other in ENDINGS:
        if other != ending:
            save(CASES["chain"](), tmp_path / f"net.{other}")
            path = tmp_path / f"as_{other}.{ending}"
            path.write_bytes((tmp_path / f"net.{other}").read_bytes())
            refused(path, "expected")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", ["chain", "residual"])
def test_truncated_files(ending: str, name: str, tmp_path: Path) -> None:
    """Cut anywhere, a file is refused; for ONNX a cut may also leave a smaller but whole graph, never this one."""
    path = tmp_path / f"net.{ending}"
    net = CASES[name]()
    save(net, path)
    whole = path.read_bytes()
    for part in np.linspace(1, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:part])
        with pytest.raises(FiberscopeError) as caught:
            load(path)
        assert "\n" not in str(caught.value)


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """A file after an accident: cut, with flipped bits, with other bytes near an end, with a gap, with a few more."""
    content, size = bytearray(whole), len(whole)
    match int(rng.integers(6)):
        case 0:
            del content[rng.integers(1, size) :]
        case 1:
            for place in rng.integers(0, size, rng.integers(1, 4)):
                content[place] ^= 1 << int(rng.integers(8))
        case 2 | 3 as end:
            for place in rng.integers(0, min(size, 500), rng.integers(1, 4)):
                content[place if end == 2 else size - 1 - place] = rng.integers(256)
        case 4:
            start = rng.integers(size - 1)
            del content[start : start + rng.integers(1, 50)]
        case _:
            start = rng.integers(size)
            content[start:start] = rng.integers(0, 256, rng.integers(1, 20), dtype=np.uint8).tobytes()
    return bytes(content)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_never_end_in_a_foreign_error(ending: str, tmp_path: Path) -> None:
    """A flipped bit in a number is another number; anything else is one line of ours, and one that was foreseen."""
    path = tmp_path / f"net.{ending}"
    whole: list[tuple[bytes, dict[str, Any]]] = []
    for net in CASES.values():
        save(net(), path)
        whole.append((path.read_bytes(), {}))
    if ending != "onnx":
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        written({name: tensor.numpy() for name, tensor in module.state_dict().items()}, path)
        whole += [(path.read_bytes(), {"activation": "relu"}), (path.read_bytes(), {"module": module})] * 4
    rng = np.random.default_rng(0)
    for _ in range(4000 if settings.get_current_profile_name() == "thorough" else 300):
        content, options = whole[rng.integers(len(whole))]
        path.write_bytes(damaged(content, rng))
        try:
            load(path, **options)
        except FiberscopeError as error:
            assert "\n" not in str(error) and "foreseen" not in str(error)


def test_what_a_reader_has_not_foreseen_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path, request: Any) -> Network:
        raise ZeroDivisionError("two\nlines")

    save(CASES["chain"](), tmp_path / "net.npz")
    monkeypatch.setattr("fiberscope.network.formats.stored.npz_file.read", broken)
    refused(tmp_path / "net.npz", r"damaged, or nothing that the reader has foreseen \(ZeroDivisionError: two lines\)")


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(ending: str, value: float, tmp_path: Path) -> None:
    arrays = {"0.weight": np.full((2, 2), value), "0.bias": np.zeros(2)}
    refused(written(arrays, tmp_path / f"net.{ending}"), "0.weight: expected finite numbers", activation="relu")


# -- files that would run code -------------------------------------------------------------------------------------


class Malicious:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def test_pickles_do_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    bad = Malicious(trace)
    torch.save({"0.weight": bad}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(bad))
    torch.save({"0.weight": bad}, tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    np.savez(tmp_path / "d.npz", **{"0.weight": np.array([bad], dtype=object)})  # type: ignore[arg-type]
    (tmp_path / "e.npz").write_bytes(pickle.dumps(bad))
    np.savez(tmp_path / "f.npz", fiberscope=np.array(bad, dtype=object))
    torch.save(torch.nn.Linear(2, 2), tmp_path / "g.pt")
    for name in "abcg":
        refused(tmp_path / f"{name}.pt", "expected a state dict")
    for name in "def":
        refused(tmp_path / f"{name}.npz", "pickled objects, which are never read|something else")
    assert not trace.exists()
    pickle.loads(pickle.dumps(bad)).close()
    assert trace.exists()  # the trap works


# -- state dicts of others -----------------------------------------------------------------------------------------


def written(arrays: dict[str, Any], path: Path) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        save_file(arrays, path)
    else:
        torch.save({name: torch.as_tensor(array) for name, array in arrays.items()}, path)
    return path


def layers(*widths: int, names: tuple[str, ...] = (), bias: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {}
    for index, (m, n) in enumerate(itertools.pairwise(widths)):
        prefix = names[index] if names else f"net.layers.{2 * index}"
        arrays[f"{prefix}.weight"] = rng.normal(size=(n, m)).astype(np.float32)
        if bias:
            arrays[f"{prefix}.bias"] = rng.normal(size=n).astype(np.float32)
    return arrays


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt"])
def test_plain_state_dicts_are_chains_where_that_is_said(ending: str, tmp_path: Path) -> None:
    arrays = layers(3, *(4,) * 7, 2)  # more than ten entries: numbers, not letters, give the order
    refused(written(arrays, tmp_path / f"net.{ending}"), "holds numbers and no architecture")
    net = load(tmp_path / f"net.{ending}", activation="relu")
    assert net.widths == (3, *(4,) * 7, 2) and set(net.parameters) == set(arrays)
    x = np.ones((1, 3))
    want = x
    for index in range(8):
        want = want @ arrays[f"net.layers.{2 * index}.weight"].T.astype(float) + arrays[f"net.layers.{2 * index}.bias"]
        want = np.maximum(want, 0) if index < 7 else want
    np.testing.assert_allclose(net(x), want, rtol=1e-12)
    assert load(written(layers(3, 2, bias=False), tmp_path / f"net.{ending}"), activation="relu").widths == (3, 2)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "anything"])
def test_nested_state_dicts(key: str, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    torch.save({key: module.state_dict(), "epoch": 3}, tmp_path / "net.pt")
    X = np.random.default_rng(0).normal(size=(4, 2))
    want = module.double()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(load(tmp_path / "net.pt", activation="relu")(X), want, rtol=1e-12)


def test_the_order_of_a_sorted_file_must_be_certain(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    names = ("input", "body", "head")
    assert load(written(layers(2, 3, 4, 1, names=names), path), activation="relu").widths == (2, 3, 4, 1)
    square = layers(2, 3, 3, 3, names=names)
    refused(written(square, path), r"order of the layers .* is not in the file", activation="relu")
    assert load(written(square, tmp_path / "net.pt"), activation="relu").widths == (2, 3, 3, 3)


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt"])
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            layers(2, 3) | {"conv.weight": np.ones((1, 1, 3, 3))},
            r"got conv.weight of shape \(1, 1, 3, 3\); give the model",
        ),
        (layers(2, 3) | {"running_mean": np.ones(3)}, "got running_mean"),
        ({"a.bias": np.ones(3)}, "got a.bias"),
        ({"0.weight": np.ones((3, 2)), "0.bias": np.ones(4)}, "0.bias: expected 3 entries"),
        ({"0.weight": np.ones((3, 2)), "1.weight": np.ones((3, 2))}, "1.weight: expected 3 columns.*--module"),
        ({"0.weight": np.ones((3, 2), dtype=np.int64)}, "0.weight: expected a floating-point array, got int64"),
        ({"0.weight": np.ones((0, 2))}, "at least one row"),
    ],
)
def test_other_state_dicts_are_refused_with_advice(arrays: Any, message: str, ending: str, tmp_path: Path) -> None:
    refused(written(arrays, tmp_path / f"net.{ending}"), message, activation="relu")


def test_torch_files_with_something_else(tmp_path: Path) -> None:
    for content, message in (
        ([torch.ones(2)], "expected a state dict of tensors, got a list"),
        ({"lr": 0.1}, "got a float under 'lr'"),
        ({}, "got nothing"),
        ({"fiberscope": "{}"}, "description: malformed"),
        ({"0.weight": torch.ones(2, 2).to_sparse()}, "0.weight: expected a plain dense tensor"),
    ):
        torch.save(content, tmp_path / "net.pt")
        refused(tmp_path / "net.pt", message)
    (tmp_path / "net.pt").write_bytes(pickle.dumps({"a": 1}))  # of another protocol than torch's
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(tmp_path / "net.pt", "pickled objects|something else")
    np.save(tmp_path / "array.npy", np.ones(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    refused(tmp_path / "array.npz", "a single array|several arrays")
    written({"0.weight": torch.ones(2, 2, dtype=torch.bfloat16)}, tmp_path / "half.pt")
    assert load(tmp_path / "half.pt", activation="relu").widths == (2, 2)


# -- descriptions --------------------------------------------------------------------------------------------------


def with_description(content: Any, path: Path, arrays: dict[str, Any] | None = None) -> Path:
    np.savez(path, fiberscope=np.array(json.dumps(content)), **(arrays or {}))
    return path


def test_damaged_descriptions(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    made = describe(CASES["residual"](), "float64")
    arrays = made.parameters | made.constants
    good = json.loads(made.text)
    assert load(with_description(good, path, arrays)).in_size == 4
    refused(with_description(good | {"version": 2}, path, arrays), "expected version 1, got 2")
    refused(with_description(good | {"nodes": []}, path, arrays), "at least one node")
    refused(with_description(good | {"input_shape": [5]}, path, arrays), "expected 4 inputs, got 5")
    refused(with_description(good | {"input_shape": ["4"]}, path, arrays), "expected integers")
    refused(with_description([], path), "description: malformed")
    refused(with_description(good, path), "description: malformed")
    for key, value in {
        "kind": "lstm",
        "source": 99,
        "operator": {"kind": "fft"},
        "bias_name": 3,
        "bias": "gone",
    }.items():
        nodes = [good["nodes"][0] | {key: value}, *good["nodes"][1:]]
        refused(with_description(good | {"nodes": nodes}, path, arrays), "description|sources|unknown")
    huge = good | {"nodes": [{"kind": "piecewise", "source": 0, "slopes": 0.0, "shape": [2**44]}]}
    refused(with_description(huge, path, arrays), "does not fit into memory", TooLargeError)
    np.savez(path, fiberscope=np.ones(3))
    refused(path, "description: malformed")


def test_indices_outside_of_a_sparse_matrix_are_caught(tmp_path: Path) -> None:
    """Compiled products trust the indices, so a file with wrong ones must not get that far."""
    made = describe(CASES["residual"](), "float64")
    good = json.loads(made.text)
    (operator,) = (n["operator"] for n in good["nodes"] if n["kind"] == "affine" and n["operator"]["kind"] == "sparse")
    stored = made.parameters | made.constants
    ends = np.zeros_like(stored[operator["indptr"]])
    ends[1] = 2**40  # row pointers that end in zero again: SciPy's own check lets them pass
    for key, change in (
        ("indices", stored[operator["indices"]] + 10**6),
        ("indices", stored[operator["indices"]] - 1),
        ("indices", stored[operator["indices"]].astype(float)),
        ("indices", stored[operator["indices"]][:-1]),
        ("indptr", stored[operator["indptr"]][::-1]),
        ("indptr", stored[operator["indptr"]] + 1),
        ("indptr", stored[operator["indptr"]][1:]),
        ("indptr", ends),
    ):
        arrays = stored | {operator[key]: change}
        refused(with_description(good, tmp_path / "net.npz", arrays), "sparse matrix: expected")


# -- scikit-learn --------------------------------------------------------------------------------------------------


def data() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(60, 3))
    return X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_scikit_learn_networks(activation: str) -> None:
    X, y = data()
    options: dict[str, Any] = {
        "hidden_layer_sizes": (5, 4),
        "activation": activation,
        "max_iter": 20,
        "random_state": 0,
    }
    regressor = MLPRegressor(**options).fit(X, y)
    net = load(regressor)
    assert net.widths == (3, 5, 4, 1)
    np.testing.assert_allclose(net(X)[:, 0], regressor.predict(X), rtol=1e-12, atol=1e-12)
    assert net.linear_entries.all() == (activation == "identity")

    classifier = MLPClassifier(**options).fit(X, y)
    logits = load(classifier)(X)
    soft = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(soft / soft.sum(axis=1, keepdims=True), classifier.predict_proba(X), rtol=1e-10)

    binary = MLPClassifier(**options).fit(X.astype(np.float32), y > 0)
    probability = 1 / (1 + np.exp(-load(binary)(X.astype(np.float32))[:, 0]))
    np.testing.assert_allclose(probability, binary.predict_proba(X.astype(np.float32))[:, 1], rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_models_that_are_refused() -> None:
    X, y = data()
    refused(MLPRegressor(), "MLPRegressor: expected a fitted model")
    tanh = MLPClassifier(activation="tanh", max_iter=1).fit(X, y)
    refused(tanh, "activation 'tanh' is not piecewise linear", UnsupportedModelError)
    refused(LinearRegression().fit(X, y), "LinearRegression: expected an MLPClassifier", UnsupportedModelError)
    regressor = MLPRegressor(max_iter=1).fit(X, y)
    with pytest.raises(InputError, match=r"input_shape: expected \(3,\) or as many entries, got \(4,\)"):
        load(regressor, (4,))


def test_torch_objects_that_are_no_modules() -> None:
    for source in (torch.ones(2, 2), torch.optim.SGD([torch.ones(1)], 0.1)):
        refused(source, "expected a Network, a torch module")


def test_names_with_line_breaks_do_not_break_the_message(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    np.savez(path, **{"a\nb.weight": np.full((1, 1), np.nan)})  # type: ignore[arg-type]
    refused(path, "a b.weight: expected finite numbers", activation="relu")


def test_an_archive_with_a_member_outside(tmp_path: Path) -> None:
    """Names with dots and slashes stay names: nothing is unpacked to the disk."""
    buffer = io.BytesIO()
    np.save(buffer, np.ones((2, 2)))
    with zipfile.ZipFile(tmp_path / "net.npz", "w") as archive:
        archive.writestr("../../evil.weight.npy", buffer.getvalue())
    assert load(tmp_path / "net.npz", activation="relu").widths == (2, 2)
    assert os.listdir(tmp_path) == ["net.npz"]


def test_networks_load_from_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(Network.random((2, 3, 1), 0), "net.onnx")
    assert load("net.onnx").widths == (2, 3, 1)
