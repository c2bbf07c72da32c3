"""A client of a dask scheduler; apart, because the package ``distributed`` is an extra and takes a second to load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

from fiberscope.errors import InputError


@contextmanager
def connect(address: str, seconds: float) -> Iterator[Client]:
    """Connect to ``HOST:PORT``; a cluster without a worker is refused, since nothing would ever be done there."""
    try:
        client = Client(f"tcp://{address}", timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"cluster: expected a dask scheduler at {address}, got {type(error).__name__}") from error
    try:
        try:
            client.wait_for_workers(1, timeout=seconds)
        except TimeoutError as error:
            raise InputError(f"cluster: expected at least one worker at {address}, got none") from error
        yield client
    finally:
        client.close()
