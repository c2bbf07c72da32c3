"""The command line: parse, call, print; no mathematics here."""

from fiberscope.cli.app import main

__all__ = ["main"]
