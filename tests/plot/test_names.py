"""Every picture can be reached through ``fs.plot``, also after its module was imported."""

from __future__ import annotations

from importlib import import_module

import pytest

from fiberscope import plot


@pytest.mark.parametrize("name", plot.__all__)
def test_name_is_a_function_or_a_palette_and_not_shadowed_by_its_module(name):
    import_module(f"fiberscope.plot.{plot._NAMES[name]}")
    assert callable(getattr(plot, name)) != name.isupper()
    assert plot._NAMES[name] != name
