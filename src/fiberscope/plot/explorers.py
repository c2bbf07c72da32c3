"""The picture that answers, under the name that people look for beside the others."""

from fiberscope.explorer.view import explore

__all__ = ["explore"]
