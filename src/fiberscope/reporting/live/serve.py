"""``fs.explore``: open the live page for some models, in this process."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.extras import import_module
from fiberscope.network.border import NetworkLike, loaded
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.reporting.live.shelf import MOST_BYTES, Item, Shelf, small_network

HOST = "127.0.0.1"


@dataclass(eq=False)
class LiveExplorer:
    """A live page that runs in a thread of this process, at ``address``, until :meth:`stop`."""

    address: str
    _server: Any = field(repr=False)
    _thread: Thread = field(repr=False)
    _folder: Any = field(repr=False)

    def stop(self) -> None:
        """End the server and remove its folder."""
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._folder.cleanup()

    def wait(self) -> None:
        """Stay until the server ends or Ctrl-C."""
        try:
            while self._thread.is_alive():
                self._thread.join(timeout=0.5)
        finally:
            self.stop()

    def __enter__(self) -> LiveExplorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def explore(
    *models: NetworkLike,
    data: Any = None,
    labels: Any = None,
    port: int = 0,
    open_browser: bool = True,
    wait: bool = False,
    most_bytes: int = MOST_BYTES,
) -> LiveExplorer:
    """Open a page for what needs computing: drag weights and lines, slices through images, trainings, two networks.

    The server listens to this machine alone, at an address with a random token; it reads dropped files without
    running code and writes nothing but those, into a folder of its own that is removed at the end.

    Parameters
    ----------
    models
        Whatever :func:`fiberscope.load` takes; without any there is a small network to play with.
    data, labels
        Inputs ``(points, ...)`` for slices through three of them, and a class for each.
    port
        Of the server; 0 takes a free one.
    open_browser
        Whether to open the page in the browser.
    wait
        Stay until Ctrl-C instead of returning while the page lives.
    most_bytes
        Of a dropped file.

    Returns
    -------
    LiveExplorer
        With ``address`` and ``stop()``; it is also a context manager.

    Examples
    --------
    >>> with explore(Network.random((2, 4, 1), seed=0), open_browser=False) as page:
    ...     page.address.split(":")[:2]
    ['http', '//127.0.0.1']
    """
    server_module, uvicorn = _server_modules()
    listening = _listen(port)
    folder = tempfile.TemporaryDirectory(prefix="fiberscope-explore-")
    try:
        shelf = Shelf(Path(folder.name), most_bytes=most_bytes)
        for item in _items(models, data, labels):
            shelf.add(item)
        address = server_module.Address.fresh(listening.getsockname()[1])
        config = uvicorn.Config(
            server_module.make_app(shelf, address), log_level="critical", access_log=False, server_header=False,
            ws="websockets-sansio", ws_max_size=1 << 20, lifespan="off", timeout_graceful_shutdown=2,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listening],), daemon=True, name="fiberscope-explore")
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
    except BaseException:
        listening.close()
        folder.cleanup()
        raise
    found = LiveExplorer(address.url, server, thread, folder)
    if open_browser:
        webbrowser.open(address.url)
    if wait:
        found.wait()
    return found


def _server_modules() -> tuple[Any, Any]:
    """Ours and uvicorn, the only imports of the extra."""
    uvicorn: Any = import_module("uvicorn", "fs.explore")
    import_module("websockets", "fs.explore")
    ours: Any = import_module("fiberscope.reporting.live.server", "fs.explore")
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    return ours, uvicorn


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"port: expected 0 to 65535, got {port}")
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(64)
    except OSError as error:
        found.close()
        raise InputError(f"port {port}: {error.strerror or error}; give another one, or 0 for a free one") from error
    return found


def _items(models: Sequence[NetworkLike], data: Any, labels: Any) -> list[Item]:
    X = None if data is None else real_array(data, "data")
    if X is not None and (X.ndim < 2 or not len(X)):
        raise InputError(f"data: expected inputs (points, ...), got shape {X.shape}")
    flat = None if X is None else X.reshape(len(X), -1)
    classes = None if labels is None else np.asarray(labels).reshape(-1).astype(np.int64)
    if classes is not None and (flat is None or len(classes) != len(flat)):
        raise InputError(f"labels: expected one for each of the data, got {len(classes)}")
    items = []
    for number, model in enumerate(models, start=1):
        net = loaded(model, None)
        items.append(Item(_name(net, number), net, *_fitting(net, flat, classes)))
    if flat is not None and models and all(item.X is None for item in items):
        raise InputError(f"data: expected {items[0].net.in_size} numbers for every point, got {flat.shape[1]}")
    return items or [Item("a small network", small_network())]


def _fitting(net: Network, X: FloatArray | None, labels: IntArray | None) -> tuple[Any, Any]:
    return (X, labels) if X is not None and X.shape[1] == net.in_size else (None, None)


def _name(net: Network, number: int) -> str:
    path = net.source.path
    return path.name if path is not None else f"model {number}: {net.architecture[:40]}"
