"""The torch side: what needs a live ``torch.nn.Module``. Submodules load when first used, and torch with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiberscope.extras import import_module

if TYPE_CHECKING:
    from fiberscope.modules import batches, calls, derivatives, draws, models, parametrisations, recording, stacked

__all__ = ["batches", "calls", "derivatives", "draws", "models", "parametrisations", "recording", "stacked"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"fiberscope.modules.{name}", f"fiberscope.modules.{name}")
    raise AttributeError(f"module 'fiberscope.modules' has no attribute {name!r}")
