"""Data sets: the papers' definitions, determinism, readers of foreign formats, downloads that break off."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.training.datasets import files, formats, real
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.files import Source, download, fetch
from fiberscope.training.datasets.loading import list_datasets, load_dataset
from fiberscope.training.datasets.synthetic import (
    circle_points,
    coherence_embedding,
    random_plane,
    tractrix_points,
)

SYNTHETIC = {
    "f1": {},
    "f2": {},
    "f3": {},
    "g1": {"noise": 0.01},
    "g2": {"noise": 0.01},
    "g3": {"noise": 0.01},
    "circle": {"dimension": 7},
    "tractrix": {},
    "gaussian_mixture": {"points": 60, "test_points": 20},
    "coherence": {"embedding": "frame", "copies": 3},
}


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's cache or variable by accident."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv(files.ENVIRONMENT, raising=False)


@pytest.fixture
def shared_data(shared_folder: Path) -> Path:
    folder = shared_folder / "data"
    if not folder.is_dir():
        pytest.skip(f"no data in {shared_folder}")
    return folder


# -- one interface ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_tasks_are_deterministic_and_depend_on_their_seed(name: str) -> None:
    options = SYNTHETIC[name]
    a, b = load_dataset(name, **options), load_dataset(name, **options)
    assert a.sha256 == b.sha256
    assert load_dataset(name, **options, seed=1).sha256 != a.sha256
    assert a.provenance["options"]["seed"] == 0
    assert a.name in repr(a)
    with pytest.raises(ValueError):
        a.inputs[0] = 0.0


def test_all_synthetic_names_are_tested() -> None:
    shipped = {"digits", "wine", "breast_cancer", "diabetes"}
    assert {entry.name for entry in list_datasets() if not entry.needs_files} == set(SYNTHETIC) | shipped


def test_unknown_names_and_options_are_answered_with_close_ones() -> None:
    with pytest.raises(InputError, match="did you mean fashion_mnist"):
        load_dataset("fashion-mnist")
    with pytest.raises(InputError, match=r"expected options points, noise, seed.*did you mean noise"):
        load_dataset("f1", nois=0.1)


@pytest.mark.parametrize(
    ("inputs", "targets", "text"),
    [
        (np.zeros(3), np.zeros((3, 1)), "inputs"),
        (np.zeros((3, 1), dtype=int), np.zeros((3, 1)), "float type"),
        (np.zeros((3, 1)), np.zeros(3), "targets"),
        (np.zeros((3, 1)), np.zeros((2, 1)), "as many"),
        (np.zeros((0, 1)), np.zeros((0, 1)), "at least one"),
        (np.full((3, 1), np.nan), np.zeros((3, 1)), "finite"),
        (np.zeros((3, 1)), np.array([0, -1, 0]), "labels from 0"),
    ],
)
def test_bad_arrays_are_refused(inputs: np.ndarray, targets: np.ndarray, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Dataset("bad", inputs, targets)


def test_a_change_of_one_bit_changes_the_checksum() -> None:
    data = load_dataset("f1", points=4)
    inputs = data.inputs.copy()
    inputs[0, 0] = np.nextafter(inputs[0, 0], 2)
    assert Dataset("f1", inputs, data.targets).sha256 != data.sha256
    assert Dataset("f1", data.inputs.reshape(2, 2), data.targets[:2]).sha256 != data.sha256


@given(st.integers(3, 60), st.integers(0, 5))
def test_splits_are_disjoint_and_keep_pairs_together(points: int, seed: int) -> None:
    data = Dataset("count", np.arange(points, dtype=float)[:, None], np.arange(points, dtype=float)[:, None])
    parts = data.split((0.5, 0.5), seed)
    assert all((part.inputs == part.targets).all() for part in parts)
    seen = np.concatenate([part.inputs.ravel() for part in parts])
    assert sorted(seen) == list(range(points))


# -- the papers' definitions -----------------------------------------------------------------------------------------


def test_targets_follow_the_formulas() -> None:
    sin, pi = np.sin, np.pi
    x = load_dataset("f3", noise=0.0).inputs
    expected = 1.5 + sin(2 * pi * x) + 0.5 * sin(4 * pi * x) + 0.4 * sin(16 * pi * x)
    np.testing.assert_allclose(load_dataset("f3", noise=0.0).targets, expected, atol=1e-14)
    data = load_dataset("g3")
    assert data.inputs.shape == (400, 2)
    x, y = data.inputs.T
    expected = 1.5 + sin(2 * pi * x) + sin(2 * pi * y) + 0.5 * sin(4 * pi * x) + 0.4 * sin(4 * pi * y)
    np.testing.assert_allclose(data.targets[:, 0], expected, atol=1e-14)


def test_noise_is_on_inputs_and_targets_and_inputs_are_shared() -> None:
    clean, noisy = load_dataset("f1", noise=0.0), load_dataset("f1", points=100)
    for a, b in ((clean.inputs, noisy.inputs), (clean.targets, noisy.targets)):
        assert 0.005 < (a - b).std() < 0.02
    assert (load_dataset("f2").inputs == noisy.inputs).all()


def test_curves_lie_in_random_planes() -> None:
    data = load_dataset("circle", dimension=9, plane_seed=3)
    plane = random_plane(9, 3)
    np.testing.assert_allclose(plane.T @ plane, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(data.inputs, axis=1), 1.0)
    np.testing.assert_allclose(data.inputs @ plane @ plane.T, data.inputs, atol=1e-12)
    flat = load_dataset("circle", noise=0.0, frequency=2.0, amplitude=3.0)
    t = np.arctan2(flat.inputs[:, 1], flat.inputs[:, 0])
    np.testing.assert_allclose(flat.targets[:, 0], 3 * np.sin(2 * t), atol=1e-12)
    # the tractrix: its tangent reaches the axis at distance one
    t, h = np.array([0.3, 1.0, 2.0]), 1e-6
    slope = (tractrix_points(t + h) - tractrix_points(t - h)) / (2 * h)
    point = tractrix_points(t)
    foot = point - slope * (point[:, 1] / slope[:, 1])[:, None]
    np.testing.assert_allclose(np.linalg.norm(foot - point, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(circle_points(t), axis=1), 1.0)


@given(st.sampled_from(["copy", "frame"]), st.integers(1, 10), st.integers(0, 3))
def test_embeddings_have_the_coherence_they_promise(embedding: str, copies: int, seed: int) -> None:
    U = coherence_embedding(embedding, copies, seed=seed)
    np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    np.testing.assert_allclose((U @ U.T).diagonal().max(), 1 / copies)


def test_coherence_task_shares_its_latent_sample() -> None:
    a, b = load_dataset("coherence", copies=2), load_dataset("coherence", embedding="frame", copies=7)
    assert (a.targets == b.targets).all() and len(a.test_targets) == 2048  # type: ignore[arg-type]
    latent = a.inputs @ coherence_embedding("copy", 2)
    np.testing.assert_allclose(a.targets[:, 0], np.maximum(latent.sum(axis=1), 0), atol=1e-12)
    with pytest.raises(InputError, match="copies"):
        load_dataset("coherence", copies=11)


def test_mixture_has_its_intrinsic_dimension_and_separable_classes() -> None:
    data = load_dataset("gaussian_mixture", intrinsic=3, points=500, test_points=50, separation=20.0)
    assert np.linalg.matrix_rank(data.inputs, tol=1e-8) == 3
    centers = np.stack([data.inputs[data.targets == c].mean(axis=0) for c in range(5)])
    nearest = np.linalg.norm(data.inputs[:, None] - centers, axis=2).argmin(axis=1)
    assert (nearest == data.targets).mean() > 0.95


# -- real files ------------------------------------------------------------------------------------------------------


def test_shared_files_load(shared_data: Path) -> None:
    heating, cooling = (load_dataset("energy", shared_data, target=t) for t in ("heating", "cooling"))
    assert heating.inputs.shape == (768, 8) and (heating.inputs == cooling.inputs).all()
    np.testing.assert_allclose(heating.targets.mean(), 0, atol=1e-12)
    assert load_dataset("energy", shared_data, standardise=False).targets[0, 0] == 15.55
    mnist = load_dataset("mnist", shared_data, limit=100, normalise=True)
    assert mnist.inputs.shape == (100, 1, 28, 28) and mnist.targets[:5].tolist() == [5, 0, 4, 1, 9]
    cifar = load_dataset("cifar10_subset", shared_data, limit=50)
    assert cifar.inputs.shape == (50, 3, 32, 32) and 0 <= cifar.inputs.min() < cifar.inputs.max() <= 1


def test_directory_comes_from_the_variable_too(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.ENVIRONMENT, str(shared_data))
    assert len(load_dataset("energy")) == 768
    monkeypatch.setenv(files.ENVIRONMENT, str(shared_data / "nothing"))
    with pytest.raises(InputError, match=r"FIBERSCOPE_DATA: expected an existing directory"):
        load_dataset("energy")


def test_sets_of_scikit_learn_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    ours = load_dataset("digits")
    assert (ours.flat_inputs * 16 == digits.data).all() and (ours.targets == digits.target).all()
    for name in ("wine", "breast_cancer"):
        theirs = getattr(datasets, f"load_{name}")()
        ours = load_dataset(name, standardise=False)
        assert (ours.inputs == theirs.data).all() and (ours.targets == theirs.target).all()
    theirs = datasets.load_diabetes(scaled=False)
    ours = load_dataset("diabetes", standardise=False)
    assert (ours.inputs == theirs.data).all() and (ours.targets[:, 0] == theirs.target).all()


def test_missing_files_say_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise files.urllib.error.URLError("no network")

    monkeypatch.setattr(files.urllib.request, "urlopen", refuse)
    with pytest.raises(InputError) as error:
        load_dataset("mnist", tmp_path)
    for text in ("train-images-idx3-ubyte.gz", str(tmp_path / "mnist"), "no network", "https://", files.ENVIRONMENT):
        assert text in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == [], "looking for a file changed the directory"
    with pytest.raises(InputError, match=r"cifar10-subset\.npz"):
        load_dataset("cifar10_subset", tmp_path)
    with pytest.raises(InputError, match="existing directory"):
        load_dataset("mnist", tmp_path / "none")


def test_wrong_and_damaged_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ENB2012_data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="768 x 10"):
        load_dataset("energy", tmp_path)
    (tmp_path / "ENB2012_data.csv").write_text("a,b\n1,x\n")
    with pytest.raises(InputError, match="table of numbers"):
        load_dataset("energy", tmp_path)
    target = tmp_path / "train-images-idx3-ubyte.gz"
    target.write_bytes(gzip.compress(b"other content"))
    with pytest.raises(InputError, match="sha256"):
        load_dataset("mnist", tmp_path)
    target.write_bytes(gzip.compress(b"x" * 100)[:20])
    with pytest.raises(InputError, match="readable file"):
        load_dataset("mnist", tmp_path)


def cifar_bytes(count: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    records = rng.integers(0, 256, (count, formats.CIFAR_RECORD), dtype=np.uint8)
    records[:, 0] %= 10
    return records.tobytes()


def test_cifar_binary_from_archive_and_from_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {name: cifar_bytes(3, i) for i, name in enumerate(real._CIFAR_BATCHES)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="sha256"):
        load_dataset("cifar10", tmp_path)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    monkeypatch.setattr(real, "_CIFAR", Source("cifar-10-binary.tar.gz", (), digest, ("cifar10",), of_file=True))
    from_archive = load_dataset("cifar10", tmp_path)
    folder = tmp_path / "other" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    from_folder = load_dataset("cifar10", tmp_path / "other")
    assert from_archive.sha256 == from_folder.sha256
    assert from_archive.inputs.shape == (15, 3, 32, 32)
    first = np.frombuffer(contents["data_batch_1.bin"], np.uint8)
    assert from_archive.targets[0] == first[0]
    assert from_archive.inputs[0, 0, 0, 1] == np.float32(first[2]) / np.float32(255)


def test_pickled_cifar_is_not_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (Path.touch, (tmp_path / "sprung",))  # type: ignore[return-value]

    (tmp_path / "cifar-10-python.tar.gz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="python version"):
        load_dataset("cifar10", tmp_path)
    np.savez(tmp_path / "cifar10-subset.npz", x_train=np.array([Trap()], dtype=object), y_train=0, x_test=0, y_test=0)
    with pytest.raises(InputError, match="plain arrays"):
        load_dataset("cifar10_subset", tmp_path)
    assert not (tmp_path / "sprung").exists()


@given(st.binary(max_size=40))
def test_idx_reader_never_crashes(content: bytes) -> None:
    try:
        array = formats.read_idx(content, "any")
    except InputError:
        return
    assert array.nbytes == len(content) - 4 - 4 * array.ndim


# -- downloads -------------------------------------------------------------------------------------------------------

CONTENT = bytes(range(256)) * 4000


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT; ``/cut`` breaks off half way the first time, ``/wrong`` serves something else."""

    requests: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Server.requests.append((self.path, wanted))
        content = b"wrong" if self.path == "/wrong" else CONTENT
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.path != "/norange" else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content) // 2 if self.path == "/cut" and not wanted else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.requests = []
    http = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()
    thread.join()


def source(*urls: str) -> Source:
    return Source("file.bin", urls, hashlib.sha256(CONTENT).hexdigest())


def test_download_is_checked_and_used_the_next_time(server: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None, str]] = []
    good = source(f"{server}/whole")
    content = fetch(good, tmp_path, progress=lambda *args: seen.append(args))
    assert content == CONTENT and (tmp_path / "file.bin").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT), "file.bin")
    assert fetch(good, tmp_path) == CONTENT and len(Server.requests) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_broken_download_continues_where_it_stopped(server: str, tmp_path: Path) -> None:
    cut, target = source(f"{server}/cut"), tmp_path / "file.bin"
    with pytest.raises(InputError, match=r"run again to continue|IncompleteRead"):
        download(cut, target, lambda *_: None)
    assert not target.exists() and (tmp_path / "file.bin.part").stat().st_size == len(CONTENT) // 2
    assert download(cut, target, lambda *_: None) == CONTENT
    assert Server.requests[-1] == ("/cut", f"bytes={len(CONTENT) // 2}-")


def test_server_without_ranges_starts_anew(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"rubbish")
    assert download(source(f"{server}/norange"), tmp_path / "file.bin", lambda *_: None) == CONTENT


def test_wrong_content_is_thrown_away_and_the_next_address_tried(server: str, tmp_path: Path) -> None:
    both = source(f"{server}/wrong", f"{server}/whole")
    assert download(both, tmp_path / "file.bin", lambda *_: None) == CONTENT
    with pytest.raises(InputError, match="sha256"):
        download(source(f"{server}/wrong"), tmp_path / "other.bin", lambda *_: None)
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_target_that_cannot_be_written(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected to write the download"):
        download(source(f"{server}/whole"), tmp_path / "file" / "file.bin", lambda *_: None)


def test_complete_part_is_taken_as_it_is(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert download(source(f"{server}/whole"), tmp_path / "file.bin", lambda *_: None) == CONTENT
