"""The base of everything that watches the operations which torch runs.

Torch hides a dispatch mode from its compiler, and loads the compiler for that at the first operation: most of a second,
for programs that compile nothing. Here the mode is hidden only if the compiler is there.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

COMPILER = "torch._dynamo"


class Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode whose ``__torch_dispatch__`` sees every operation; the compiler is not loaded for it.

    >>> class Names(Dispatch):
    ...     seen = []
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         self.seen.append(func._schema.name)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names() as names:
    ...     _ = torch.zeros(2).abs()
    >>> names.seen[-1]
    'aten::abs'
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        own = cls.__dict__.get("__torch_dispatch__")
        if own is None:
            return
        hide: Any = getattr(torch, "_disable_dynamo", None)  # a private name: without it, as it was before torch 2.5
        hidden = own if hide is None else hide(own, recursive=True)

        def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return (hidden if COMPILER in sys.modules else own)(self, func, types, args, kwargs)

        cls.__torch_dispatch__ = dispatch  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch need not wrap the method: that is done here."""
        return False
