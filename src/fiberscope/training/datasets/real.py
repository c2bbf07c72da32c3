"""Real data: UCI Energy Efficiency, MNIST, Fashion-MNIST, CIFAR-10, and the small sets that scikit-learn ships."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.files import ENVIRONMENT, Source, checked, fetch, find, search_path
from fiberscope.training.datasets.formats import read_cifar_batch, read_idx, read_npz, read_table, read_tar_members
from fiberscope.training.datasets.registry import register_dataset

_MNIST_URLS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_FASHION_URLS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
_IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION_SHA256 = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
_CIFAR = Source(
    "cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ("cifar10",),
    of_file=True,
)
_CIFAR_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
_CIFAR_SUBSET = Source("cifar10-subset.npz", (), None, ("", "cifar10"))
_ENERGY = Source("ENB2012_data.csv", ("https://archive.ics.uci.edu/static/public/242/data.csv",), None, ("", "energy"))
# Of the 768 x 10 table of numbers: the csv is published in more than one formatting.
_ENERGY_SHA256 = "9911e8d48851b4c8189c02346a26d6f42eadf7a56c43ccc4331f7ab9c4f75fa4"


@register_dataset(
    "energy", "UCI Energy Efficiency: 768 buildings, 8 features; heating or cooling load", needs_files=True
)
def energy(directory: Path | None, *, target: str = "heating", standardise: bool = True) -> Dataset:
    """``target`` is ``"heating"``, ``"cooling"`` or ``"both"``.

    ``standardise`` gives every feature and every target mean 0 and standard deviation 1 (the paper does not say what
    it did; the raw features differ by a factor of a thousand).
    """
    columns = {"heating": [8], "cooling": [9], "both": [8, 9]}
    if target not in columns:
        raise InputError(f"target: expected 'heating', 'cooling' or 'both', got {target!r}")
    table = read_table(fetch(_ENERGY, directory), _ENERGY.name, header=1)
    found = hashlib.sha256(np.ascontiguousarray(table, dtype="<f8").tobytes()).hexdigest()
    if table.shape != (768, 10) or found != _ENERGY_SHA256:
        raise InputError(
            f"{_ENERGY.name}: expected the 768 x 10 numbers of UCI data set 242, got {table.shape} with sha256 {found}"
        )
    scaled = (table - table.mean(axis=0)) / table.std(axis=0) if standardise else table
    made = _from_files([_ENERGY], target=target, standardise=standardise)
    return Dataset("energy", scaled[:, :8], scaled[:, columns[target]], provenance=made)


@register_dataset("mnist", "handwritten digits, 60,000 and 10,000 images of 28 x 28", needs_files=True)
def mnist(directory: Path | None, *, limit: int | None = None, normalise: bool = False) -> Dataset:
    """Images ``(points, 1, 28, 28)`` in float32, pixels in [0, 1]; ``limit`` keeps the first points of each part."""
    sources = [
        Source(name, tuple(base + name for base in _MNIST_URLS), sha256, ("mnist",))
        for name, sha256 in zip(_IDX_FILES, _MNIST_SHA256, strict=True)
    ]
    return _idx_dataset("mnist", sources, directory, (), limit, normalise)


@register_dataset("fashion_mnist", "articles of clothing, in the format of MNIST", needs_files=True)
def fashion_mnist(directory: Path | None, *, limit: int | None = None, normalise: bool = False) -> Dataset:
    """As ``mnist``; also found where Debian's package ``dataset-fashion-mnist`` puts it."""
    sources = [
        Source(name, tuple(base + name for base in _FASHION_URLS), sha256, ("fashion-mnist", "fashion_mnist"))
        for name, sha256 in zip(_IDX_FILES, _FASHION_SHA256, strict=True)
    ]
    return _idx_dataset("fashion_mnist", sources, directory, (Path("/usr/share/datasets"),), limit, normalise)


def _idx_dataset(
    name: str,
    sources: list[Source],
    directory: Path | None,
    extra: tuple[Path, ...],
    limit: int | None,
    normalise: bool,
) -> Dataset:
    arrays = [read_idx(fetch(source, directory, extra=extra), source.name) for source in sources]
    images, labels, test_images, test_labels = (array[:limit] for array in arrays)
    mean, std = _moments(arrays[0][:, None]) if normalise else (None, None)
    return Dataset(
        name,
        _pixels(images[:, None], mean, std),
        labels.astype(np.int64),
        _pixels(test_images[:, None], mean, std),
        test_labels.astype(np.int64),
        _from_files(sources, limit=limit, normalise=normalise),
    )


@register_dataset("cifar10", "photographs of ten classes, 50,000 and 10,000 of 3 x 32 x 32", needs_files=True)
def cifar10(directory: Path | None, *, limit: int | None = None, normalise: bool = False) -> Dataset:
    """From the *binary* version: the archive, or its unpacked folder ``cifar-10-batches-bin``.

    The python version is a pickle, and unpickling a file runs whatever code it holds, so it is not read.
    """
    batches = _cifar_batches(directory)
    parts = [read_cifar_batch(batches[name], name) for name in _CIFAR_BATCHES]
    images = np.concatenate([part[0] for part in parts[:-1]])
    labels = np.concatenate([part[1] for part in parts[:-1]])
    made = _from_files([_CIFAR], limit=limit, normalise=normalise)
    return _photographs("cifar10", (images, labels, *parts[-1]), limit, normalise, made)


def _cifar_batches(directory: Path | None) -> dict[str, bytes]:
    places = search_path(directory)
    for place in places:
        for folder in (place / "cifar-10-batches-bin", place / "cifar10" / "cifar-10-batches-bin"):
            if all((folder / name).is_file() for name in _CIFAR_BATCHES):
                return {name: (folder / name).read_bytes() for name in _CIFAR_BATCHES}
    pickled = [p / f / "cifar-10-python.tar.gz" for p in places for f in ("", "cifar10")]
    found = next((path for path in pickled if path.is_file()), None)
    if found is not None and find(_CIFAR, directory) is None:
        raise InputError(
            f"{found}: expected the binary version {_CIFAR.name}, got the python version, whose pickles are not read "
            f"because they can run code; get {_CIFAR.urls[0]}"
        )
    return read_tar_members(fetch(_CIFAR, directory), _CIFAR_BATCHES, _CIFAR.name)


@register_dataset("cifar10_subset", "some of CIFAR-10, from cifar10-subset.npz", needs_files=True)
def cifar10_subset(directory: Path | None, *, limit: int | None = None, normalise: bool = False) -> Dataset:
    """From an ``.npz`` with ``x_train``, ``x_test`` ``(n, 32, 32, 3)`` and ``y_train``, ``y_test``, all uint8."""
    path = find(_CIFAR_SUBSET, directory)
    if path is None:
        places = " or ".join(str(place) for place in search_path(directory))
        raise InputError(
            f"{_CIFAR_SUBSET.name}: expected in {places}, not there; put it there, or name its directory by the option "
            f"`directory` or the variable {ENVIRONMENT}"
        )
    names = ("x_train", "y_train", "x_test", "y_test")
    arrays = read_npz(path, names)
    for name, array in arrays.items():
        want = (32, 32, 3) if name.startswith("x") else ()
        if array.dtype != np.uint8 or array.shape[1:] != want or len(array) == 0:
            raise InputError(f"{path}: expected {name} of uint8 (n, *{want}), got {array.dtype} {array.shape}")
    images, labels, test_images, test_labels = (arrays[name] for name in names)
    parts = (images.transpose(0, 3, 1, 2), labels, test_images.transpose(0, 3, 1, 2), test_labels)
    made = _from_files([_CIFAR_SUBSET], limit=limit, normalise=normalise)
    made["files"][0]["sha256"] = hashlib.sha256(checked(_CIFAR_SUBSET, path)).hexdigest()
    return _photographs("cifar10_subset", parts, limit, normalise, made)


def _photographs(name: str, parts: Any, limit: int | None, normalise: bool, made: dict[str, Any]) -> Dataset:
    images, labels, test_images, test_labels = parts
    mean, std = _moments(images) if normalise else (None, None)
    return Dataset(
        name,
        _pixels(images[:limit], mean, std),
        labels[:limit].astype(np.int64),
        _pixels(test_images[:limit], mean, std),
        test_labels[:limit].astype(np.int64),
        made,
    )


# -- the small sets inside scikit-learn --------------------------------------------------------------------------


def _shipped(file: str, header: int, delimiter: str = ",") -> FloatArray:
    """A table from scikit-learn's own folder; the package is not imported, which would take a second."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise InputError("scikit-learn: expected to be installed, got none (pip install fiberscope[sklearn])")
    path = Path(spec.origin).parent / "datasets" / "data" / file
    if not path.is_file():
        raise InputError(f"scikit-learn: expected its data file {path}, not there (another version?)")
    return read_table(checked(Source(file, (), None), path), file, header=header, delimiter=delimiter)


def _standard(X: FloatArray, standardise: bool) -> FloatArray:
    if not standardise:
        return X
    spread = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


@register_dataset("digits", "scikit-learn's digits, 1,797 images of 8 x 8")
def digits() -> Dataset:
    """Images ``(points, 1, 8, 8)``, pixels in [0, 1]."""
    table = _shipped("digits.csv.gz", 0)
    images = (table[:, :-1] / 16.0).reshape(-1, 1, 8, 8)
    return Dataset("digits", images, table[:, -1].astype(np.int64), provenance=_ship("digits"))


@register_dataset("wine", "scikit-learn's wine, 178 points, 13 features, 3 classes")
def wine(*, standardise: bool = True) -> Dataset:
    """Features of mean 0 and standard deviation 1, unless told otherwise."""
    table = _shipped("wine_data.csv", 1)
    made = _ship("wine", standardise=standardise)
    return Dataset("wine", _standard(table[:, :-1], standardise), table[:, -1].astype(np.int64), provenance=made)


@register_dataset("breast_cancer", "scikit-learn's breast cancer, 569 points, 30 features, 2 classes")
def breast_cancer(*, standardise: bool = True) -> Dataset:
    """Features of mean 0 and standard deviation 1, unless told otherwise."""
    table = _shipped("breast_cancer.csv", 1)
    made = _ship("breast_cancer", standardise=standardise)
    labels = table[:, -1].astype(np.int64)
    return Dataset("breast_cancer", _standard(table[:, :-1], standardise), labels, provenance=made)


@register_dataset("diabetes", "scikit-learn's diabetes, 442 points, 10 features, one target")
def diabetes(*, standardise: bool = True) -> Dataset:
    """Features and target of mean 0 and standard deviation 1, unless told otherwise."""
    X = _shipped("diabetes_data_raw.csv.gz", 0, delimiter=" ")
    y = _shipped("diabetes_target.csv.gz", 0).reshape(-1, 1)
    made = _ship("diabetes", standardise=standardise)
    return Dataset("diabetes", _standard(X, standardise), _standard(y, standardise), provenance=made)


# -- shared --------------------------------------------------------------------------------------------------------


def _moments(images: npt.NDArray[np.uint8]) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of every channel of pixels in [0, 1], from exact integer sums."""
    count = images.size // images.shape[1]
    first = images.sum(axis=(0, 2, 3), dtype=np.int64)
    counts = [np.bincount(images[:, c].reshape(-1), minlength=256) for c in range(images.shape[1])]
    second = np.array([int((c * np.arange(256, dtype=np.int64) ** 2).sum()) for c in counts])
    mean = first / count
    return mean / 255, np.sqrt(second / count - mean**2) / 255


def _pixels(images: npt.NDArray[np.uint8], mean: FloatArray | None, std: FloatArray | None) -> npt.NDArray[np.float32]:
    scaled = images.astype(np.float32) / np.float32(255)
    if mean is None or std is None:
        return scaled
    shape = (1, -1, 1, 1)
    return np.asarray((scaled - mean.reshape(shape).astype(np.float32)) / std.reshape(shape).astype(np.float32))


def _from_files(sources: list[Source], **options: Any) -> dict[str, Any]:
    files = [{"name": s.name, "sha256": s.sha256, "urls": list(s.urls)} for s in sources]
    return {"kind": "files", "files": files, "options": options}


def _ship(name: str, **options: Any) -> dict[str, Any]:
    return {"kind": "scikit-learn", "name": name, "options": options}
