"""A small file cannot fill the memory: what it unpacks to is asked before it is unpacked, by every reader."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import fiberscope as fs
from fiberscope import files
from fiberscope.cli.array_files import load_array
from fiberscope.errors import FiberscopeError, InputError, TooLargeError
from fiberscope.files import RATIO, gunzip, read_array, read_arrays, unpack_limit
from fiberscope.geometry.storage import read_complex
from fiberscope.training.datasets.files import Source, checked
from fiberscope.training.datasets.formats import read_npz, read_tar_members

SMALL = 1 << 23
"""What small files may unpack to in these tests, instead of 256 MiB: they shall be quick."""

BYTES = SMALL + (1 << 20)
"""What a bomb unpacks to: a little more than any small file may."""

LITTLE = SMALL // 2
"""Memory that a refusal may take."""

DTYPES = st.sampled_from(["<f8", ">f4", "<f2", "<i8", "|u1", "|b1", "<c16", "<U5", "|S3"])


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.UNPACKED == 1 << 28
    monkeypatch.setattr(files, "UNPACKED", SMALL)


@st.composite
def plain_arrays(draw: st.DrawFn) -> Any:
    array = draw(arrays_of.arrays(draw(DTYPES), draw(arrays_of.array_shapes(min_dims=0, min_side=0, max_side=4))))
    return np.asfortranarray(array) if draw(st.booleans()) else array


@given(
    st.dictionaries(st.sampled_from(["x", "layers.0.weight", "file", "ü"]), plain_arrays(), min_size=1), st.booleans()
)
def test_reads_what_numpy_reads(tmp_path_factory: pytest.TempPathFactory, found: dict[str, Any], packed: bool) -> None:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, array in found.items():
            archive.writestr(f"{name}.npy", npy(array))
    ours = read_arrays(path)
    with np.load(path) as theirs:
        assert list(ours) == list(theirs)
        for name in found:
            assert ours[name].dtype == theirs[name].dtype and ours[name].shape == theirs[name].shape
            assert ours[name].tobytes() == theirs[name].tobytes()
            assert ours[name].flags.writeable
    first = next(iter(found))
    single = path.with_suffix(".npy")
    single.write_bytes(npy(found[first]))
    assert read_array(single).tobytes() == found[first].tobytes()
    assert list(read_arrays(path, [first])) == [first]


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zeros(count: int) -> bytes:
    return header((count,), "|u1") + bytes(count)


def bomb(path: Path, name: str = "x.npy", count: int = BYTES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, zeros(count))
    assert path.stat().st_size < count // 500
    return path


def peak(call: Callable[[], Any], kind: type[Exception]) -> tuple[int, str]:
    """The memory that a refusal took, and what it said."""
    tracemalloc.start()
    try:
        with pytest.raises(kind) as caught:
            call()
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bombs")
    bomb(path / "bomb.npz")
    certificate(path)
    return path


def certificate(folder: Path) -> None:
    """A certificate that carries its networks, the first of them a bomb."""
    a = fs.Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    path = folder / "certificate.json"
    fs.equivalent(a, a).save(path)
    content = json.loads(path.read_text())
    place = content["networks"][0]
    place |= {"file": "net.npz", "base64": base64.b64encode((folder / "bomb.npz").read_bytes()).decode()}
    place.pop("path", None)
    path.write_text(json.dumps(content))


READERS: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda folder: read_arrays(folder / "bomb.npz"),
    "network": lambda folder: fs.load(folder / "bomb.npz"),
    "complex": lambda folder: read_complex(folder / "bomb.npz"),
    "data set": lambda folder: read_npz(folder / "bomb.npz", ["x"]),
    "certificate": lambda folder: fs.verify(folder / "certificate.json"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked(reader: str, folder: Path) -> None:
    most, text = peak(lambda: READERS[reader](folder), FiberscopeError)
    assert most < LITTLE
    assert "unpack to" in text and "\n" not in text


def test_many_members_count_together(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(5):
            archive.writestr(f"{index}.npy", zeros(SMALL // 4))
    most, _ = peak(lambda: read_arrays(path), TooLargeError)
    assert most < LITTLE
    assert len(read_arrays(path, ["3"])["3"]) == SMALL // 4  # what is not asked for is not unpacked


def test_an_honest_archive_of_any_size_passes(tmp_path: Path) -> None:
    path = tmp_path / "stored.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("x.npy", zeros(BYTES))
    assert read_arrays(path)["x"].nbytes == BYTES
    assert unpack_limit(BYTES) == RATIO * BYTES


@pytest.mark.parametrize("shape", [(10**12,), (2**62, 2**62), (3,), (1,), (-1, -2), ()])
def test_a_header_must_describe_the_bytes_that_are_there(tmp_path: Path, shape: tuple[int, ...]) -> None:
    content = header(shape) + bytes(16)  # two numbers
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    for call in (
        lambda: read_arrays(tmp_path / "a.npz"),
        lambda: load_array(tmp_path / "a.npy"),
        lambda: fs.load(tmp_path / "a.npz"),
    ):
        most, text = peak(call, InputError)
        assert most < 1 << 20 and "expected" in text and "\n" not in text


@pytest.mark.parametrize("length", range(0, 140, 7))
def test_a_file_that_is_cut_short_is_named(tmp_path: Path, length: int) -> None:
    whole = npy(np.arange(3.0))
    (tmp_path / "a.npy").write_bytes(whole[:length])
    with pytest.raises(InputError, match=r"a\.npy: expected"):
        load_array(tmp_path / "a.npy")


def test_a_directory_that_lies_about_a_member(tmp_path: Path) -> None:
    """The directory claims few bytes, the data unpack to many: no more is read than was claimed, and it is refused."""
    path = bomb(tmp_path / "a.npz", count=1 << 24)
    content = bytearray(path.read_bytes())
    true = len(zeros(1 << 24)).to_bytes(4, "little")
    assert content.count(true) >= 2
    path.write_bytes(bytes(content).replace(true, (200).to_bytes(4, "little")))
    most, _ = peak(lambda: read_arrays(path), InputError)
    assert most < LITTLE


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object))
    for call in (lambda: read_arrays(tmp_path / "a.npz"), lambda: load_array(tmp_path / "a.npy")):
        with pytest.raises(InputError, match="never read"):
            call()


# -- the other packed formats ------------------------------------------------------------------------------------------


def test_gzip_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(bytes(BYTES))
    source = Source("a.gz", (), hashlib.sha256(b"").hexdigest())
    with pytest.raises(TooLargeError, match=r"a\.gz: \d+ bytes that unpack to"):
        checked(source, path)
    assert gunzip(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_tar_members_are_asked_for_their_size() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        member = tarfile.TarInfo("folder/data.bin")
        member.size = BYTES
        tar.addfile(member, io.BytesIO(bytes(BYTES)))
    most, text = peak(lambda: read_tar_members(packed.getvalue(), ["data.bin"], "a.tar.gz"), TooLargeError)
    assert most < LITTLE and text.startswith("a.tar.gz: ")


def deflated(path: Path, content: Any) -> Path:
    """A file of torch, packed by deflate, which torch does not do but reads."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))
    return path


def test_torch_files(tmp_path: Path) -> None:
    packed = deflated(tmp_path / "packed.pt", {"0.weight": torch.zeros(BYTES // 4, 1), "0.bias": torch.zeros(1)})
    for call in (lambda: fs.load(packed), lambda: fs.load_generator(packed)):
        with pytest.raises(TooLargeError, match=r"packed\.pt: \d+ bytes that unpack to"):
            call()


@pytest.mark.parametrize("count", [1, 40])
def test_torch_tensors_that_repeat_their_numbers(tmp_path: Path, count: int) -> None:
    """Strides of zero, or many names of one storage, make much out of little."""
    path = tmp_path / "repeated.pt"
    base = torch.zeros(1).expand(BYTES // 8, 1) if count == 1 else torch.zeros(100).expand(300, 100)
    torch.save({f"{index}.weight": base for index in range(count)}, path)
    assert path.stat().st_size < 100_000
    with pytest.raises(TooLargeError, match="unpack to"):
        fs.load(path)


def test_descriptions_and_sparse_matrices(tmp_path: Path) -> None:
    text = {
        "format": "fiberscope",
        "version": 1,
        "input_shape": [10**9],
        "nodes": [{"kind": "piecewise", "source": 0, "slopes": 0.0, "shape": [10**9]}],
    }
    np.savez(tmp_path / "a.npz", fiberscope=np.array(json.dumps(text)))
    most, _ = peak(lambda: fs.load(tmp_path / "a.npz"), TooLargeError)
    assert most < 1 << 20
    made = onnx.helper
    values = made.make_tensor("W", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = made.make_tensor("at", onnx.TensorProto.INT64, [1], [0])
    sparse = made.make_sparse_tensor(values, indices, [2, 10**9])
    sparse.dims[:] = [10**9, 2]
    graph = made.make_graph(
        [made.make_node("Constant", [], ["W"], sparse_value=sparse), made.make_node("MatMul", ["x", "W"], ["y"])],
        "g",
        [made.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 10**9])],
        [made.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 2])],
    )
    (tmp_path / "a.onnx").write_bytes(made.make_model(graph).SerializeToString())
    most, _ = peak(lambda: fs.load(tmp_path / "a.onnx"), FiberscopeError)
    assert most < LITTLE


def test_external_data_that_claims_more_than_its_file_holds(tmp_path: Path) -> None:
    made = onnx.helper
    tensor = onnx.TensorProto(name="W", data_type=onnx.TensorProto.FLOAT, dims=[2, 10**9])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data.bin")
    (tmp_path / "data.bin").write_bytes(bytes(8))
    graph = made.make_graph(
        [made.make_node("MatMul", ["x", "W"], ["y"])],
        "g",
        [made.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])],
        [made.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 10**9])],
        [tensor],
    )
    (tmp_path / "a.onnx").write_bytes(made.make_model(graph).SerializeToString())
    most, text = peak(lambda: fs.load(tmp_path / "a.onnx"), InputError)
    assert most < 1 << 20 and "too short" in text
