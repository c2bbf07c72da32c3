"""Loading and saving networks; each format lives in its own module, loaded when it is first needed."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from fiberscope.errors import FiberscopeError, InputError, TooLargeError
from fiberscope.extras import import_module
from fiberscope.files import sha256_of, write_atomically
from fiberscope.network.border import NetworkLike, as_network, library_of
from fiberscope.network.formats.float_types import narrowest, rounded
from fiberscope.network.formats.request import Request, UnneededError
from fiberscope.network.formats.stored.state_dict import Numbers, as_chain
from fiberscope.network.network import Network
from fiberscope.network.source import coarsest

_FORMATS = "fiberscope.network.formats"
_READERS = {
    ".onnx": "onnx.reader",
    ".npz": "stored.npz_file",
    ".safetensors": "stored.safetensors_file",
    ".pt": "stored.torch_file",
    ".pth": "stored.torch_file",
    ".ckpt": "stored.torch_file",
}
_WRITERS = {ending: name for ending, name in _READERS.items() if ending != ".ckpt"} | {".onnx": "onnx.writer"}


def load(
    source: NetworkLike,
    input_shape: Sequence[int] | None = None,
    *,
    activation: str | None = None,
    slope: float = 0.01,
    module: Any = None,
    key: str | None = None,
    until: str | None = None,
) -> Network:
    """A network from a model in memory or from a file.

    Numbers are taken over exactly: float16 and float32 are float64 as they stand. Batch normalisation comes with its
    stored statistics, dropout as the identity (what torch calls evaluation mode). Division by a constant, means and
    standard deviations become factors rounded once to float64. Files never run code.

    Parameters
    ----------
    source
        A ``torch.nn.Module``, a fitted scikit-learn ``MLPClassifier`` or ``MLPRegressor`` (its values before the output
        activation) or a ``Pipeline`` of scalers that ends in one, a :class:`Network`, or the path of a file:
        ``.onnx``, ``.npz``, ``.safetensors``, ``.pt`` or ``.ckpt``.
    input_shape
        Shape of one input, without the batch axis; needed where the model does not tell it.
    activation, slope
        For a file that holds numbers and no architecture (a state dict): it is a chain of dense layers with
        ``"relu"`` or ``"leaky_relu"`` between them. Files that :func:`save` wrote hold their architecture.
    module
        For such a file, instead: the torch module that the numbers belong to, or a function without arguments that
        makes it. It must have just the names and shapes of the file, up to a prefix; it is left as it was.
    key
        Where in a checkpoint the state dict stands, such as ``"model"`` or ``"ema.state_dict"``, perhaps with a prefix
        of names at its end. Needed only where there are several.
    until
        The last node to keep: the network is what this node gives. For ONNX the name of a node or of the tensor that
        it gives, for torch that of a submodule or of a traced node.

    Raises
    ------
    InputError
        The file is missing, damaged or of another format, holds no architecture, numbers are not finite, or shapes do
        not fit.
    UnsupportedModelError
        A part of the model is not piecewise linear, or not supported yet; the message names the node and says which.

    Examples
    --------
    >>> import tempfile
    >>> net = Network.random((2, 3, 1), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(net, f"{folder}/net.npz")
    ...     load(f"{folder}/net.npz")
    Network(2-3-1; 13 parameters, 3 hidden neurons)
    """
    request = Request(_shape(input_shape), activation, slope, module, key, until)
    return _load(source, request, "source")


def load_many(
    sources: Sequence[NetworkLike], input_shape: Sequence[int] | None = None, **options: Any
) -> list[Network]:
    """As :func:`load` for every source, where each takes the options that it needs; none may be needed by nobody.

    >>> net = Network.random((2, 3, 1), seed=0)
    >>> load_many([net], activation="relu")
    Traceback (most recent call last):
    fiberscope.network.formats.request.UnneededError: activation: expected none for a Network, which has
    its architecture
    """
    request = Request(_shape(input_shape), **options)
    found, unneeded = [], []
    for source in sources:
        own, refused = request, {}
        while True:
            try:
                found.append(_load(source, own, "source"))
                break
            except UnneededError as error:
                refused[error.option] = error
                nothing: dict[str, Any] = {error.option: None}
                own = replace(own, **nothing)
        unneeded.append(refused)
    for option in set(unneeded[0]).intersection(*unneeded[1:]) if unneeded else ():
        raise unneeded[0][option]
    return found


def load_plain(source: NetworkLike, shape: tuple[int, ...] | None, name: str) -> Network:
    """As :func:`load` without options; ``name`` is what the caller's user calls the source, for the message."""
    return _load(source, Request(shape), name)


def _load(source: Any, request: Request, name: str) -> Network:
    shape = request.shape
    if isinstance(source, Network):
        request.refuse("a Network, which has its architecture", "activation", "module", "key", "until")
        return _with_input_shape(source, shape)
    if isinstance(source, str | os.PathLike):
        return _read(Path(os.fspath(source)), request)
    library = library_of(source)
    if library == "torch":
        request.refuse("a torch module, which has its architecture", "activation", "module", "key")
        read: Network = import_module(f"{_FORMATS}.torch.module").read(source, shape, request.until)
        return read
    if library == "sklearn":
        request.refuse("a scikit-learn MLP, which has its architecture", "activation", "module", "key", "until")
        return _with_input_shape(import_module(f"{_FORMATS}.sklearn_mlp").read(source, shape), shape)
    raise InputError(
        f"{name}: expected a Network, a torch module, a scikit-learn MLP or the path of a model file, "
        f"got {type(source).__name__}"
    )


def _read(path: Path, request: Request) -> Network:
    reader = _module(path, _READERS)
    _check_file(path)
    try:
        digest = sha256_of(path)
        found = import_module(f"{_FORMATS}.{reader}", f"a {path.suffix} file").read(path, request)
        net = found if isinstance(found, Network) else _function(found, request)
        net = _with_input_shape(net, request.shape)
        return net.with_source(net.source.at(path, digest))
    except UnneededError as error:
        raise UnneededError(f"{path}: {error}", error.option) from error
    except FiberscopeError as error:
        # Names out of a file may hold anything; a message has one line.
        raise type(error)(f"{path}: {_line(error)}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise TooLargeError(f"{path}: the network does not fit into memory, or its sizes are damaged") from error
    except Exception as error:
        # No reader should get here; but whatever a damaged file makes it do, the caller gets an error of ours.
        reason = f"{type(error).__name__}: {_line(error)[:200]}"
        raise InputError(f"{path}: damaged, or nothing that the reader has foreseen ({reason})") from error


def _function(numbers: Numbers, request: Request) -> Network:
    """Of numbers without an architecture: the request says which function they make."""
    if request.module is None:
        return as_chain(numbers, request)
    module = import_module(f"{_FORMATS}.stored.module_state", "module=").filled(request.module, numbers.state)
    net: Network = import_module(f"{_FORMATS}.torch.module").read(module, request.shape, request.until)
    precision = coarsest([net.source.precision, numbers.precision])
    return net.with_source(replace(net.source, precision=precision))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def save(net: NetworkLike, path: str | os.PathLike[str], dtype: str | None = None) -> None:
    """Write a network to a file; :func:`load` gives back the same program with bit-identical numbers.

    The file appears whole or not at all. A network that came from an ONNX file, or was made from one that did, is
    written to ONNX with the same names, types and batch axis of its input and output, so that it can take its place.

    Parameters
    ----------
    net
        The network, or whatever :func:`load` takes.
    path
        Where to; the ending says the format: ``.onnx``, ``.npz``, ``.safetensors`` or ``.pt``.
    dtype
        ``"float32"`` rounds every number, ``"float64"`` keeps all bits. By default the type of the ONNX file that the
        network came from, else float32, is used where it holds every number exactly, and a wider one elsewhere.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Network([[[0.5]]], [[1.0]]), f"{folder}/net.onnx")
    ...     load(f"{folder}/net.onnx").weights
    (array([[0.5]]),)
    """
    net = as_network(net)
    if dtype not in (None, "float32", "float64"):
        raise InputError(f"dtype: expected 'float32', 'float64' or None, got {dtype!r}")
    target = Path(os.fspath(path))
    writer = _module(target, _WRITERS)
    if target.is_dir() or not target.parent.is_dir():
        what = "a folder of that name" if target.is_dir() else f"no folder {target.parent}"
        raise InputError(f"{target}: expected a path for a new file, found {what}")
    if dtype == "float32":
        net = rounded(net)
    face = net.source.interface if writer == "onnx.writer" else None
    if face is not None and dtype is not None:
        net = net.with_source(replace(net.source, interface=replace(face, dtype=dtype)))
    chosen = dtype or narrowest(net, preferred_type(net, target))
    content: bytes = import_module(f"{_FORMATS}.{writer}", f"a {target.suffix} file").encode(net, chosen)
    try:
        write_atomically(target, content)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from error


def preferred_type(net: Network, path: str | os.PathLike[str]) -> str:
    """The float type in which :func:`save` writes a network to this path if it holds every number.

    >>> preferred_type(Network([[[0.1]]], [[0.0]]), "net.npz")
    'float32'
    """
    face = net.source.interface if Path(os.fspath(path)).suffix.lower() == ".onnx" else None
    return "float32" if face is None else face.dtype


def _shape(input_shape: Sequence[int] | None) -> tuple[int, ...] | None:
    if input_shape is None:
        return None
    try:
        shape = tuple(input_shape)
        sizes = tuple(int(n) for n in shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"input_shape: expected positive integers, got {input_shape!r}") from error
    if sizes != shape or min(sizes, default=1) < 1:
        raise InputError(f"input_shape: expected positive integers, got {input_shape!r}")
    return sizes


def _with_input_shape(net: Network, shape: tuple[int, ...] | None) -> Network:
    """Values are flat, so any shape of the right size will do."""
    if shape is None or shape == net.input_shape:
        return net
    if prod(shape) != net.in_size:
        raise InputError(f"input_shape: expected {net.input_shape} or as many entries, got {shape}")
    return Network.from_nodes(net.program, shape, net.source)


_PICKLES = (".joblib", ".pickle", ".pkl")


def _module(path: Path, table: dict[str, str]) -> str:
    ending = path.suffix.lower()
    if ending in table:
        return table[ending]
    close = difflib.get_close_matches(ending, table, n=1, cutoff=0.5)
    hint = f" (closest: {close[0]})" if close else ""
    if ending in _PICKLES:
        hint = "; pickles are not opened, since they can run code: load it yourself and give the object to fs.load"
    known, got = ", ".join(sorted(table)), repr(ending or "no ending")
    if path.is_dir():
        got, hint = "a folder", "; folders of checkpoints are for align, merge and diff"
    raise InputError(f"{path}: expected a file ending in {known}, got {got}{hint}")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: expected a file, got a folder")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: expected a regular file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
