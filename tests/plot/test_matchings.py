"""The picture of matching objectives: what it shows is what the matchings say."""

from __future__ import annotations

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.network.network import Network


def matching(widths: tuple[int, ...], seed: int) -> fs.Matching:
    rng = np.random.default_rng(seed)
    a, b = (Network.random(widths, seed + i) for i in range(2))
    return fs.match(a, b, data=rng.normal(size=(30, widths[0])))


@pytest.mark.parametrize("kind", ["identity", "optimal", "random"])
def test_heatmap_shows_the_objectives(kind: str) -> None:
    results = {"first": matching((3, 5, 5, 2), 0), "second": matching((3, 5, 5, 2), 2)}
    ax = fs.plot.matching_objectives(results, kind=kind)
    expected = [[getattr(part, kind) for part in found.objectives] for found in results.values()]
    assert np.allclose(np.asarray(ax.images[0].get_array()), expected)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second"]
    texts = [text.get_text() for text in ax.texts]
    assert len(texts) == 4 and texts[0].startswith(f"{expected[0][0]:.2f}")
    assert all((" of " in text) == (kind == "identity") for text in texts)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InputError, match="one of identity"):
        fs.plot.matching_objectives({"a": matching((3, 4, 2), 0)}, kind="best")
    with pytest.raises(InputError, match="one architecture"):
        fs.plot.matching_objectives({"a": matching((3, 4, 2), 0), "b": matching((3, 4, 4, 2), 0)})
    with pytest.raises(InputError, match="at least one"):
        fs.plot.matching_objectives({})
