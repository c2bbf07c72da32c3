"""Regions in batches: the same set as in one, each once, wherever the cuts run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry import tiling as pieces
from fiberscope.geometry.domains import Box, Plane, Space
from fiberscope.geometry.regions import regions
from fiberscope.geometry.streams import RegionStream, iter_regions
from fiberscope.network.network import Network
from fiberscope.testing.hostile import TAME, programs


def rows(signs: np.ndarray) -> list[tuple[int, ...]]:
    return sorted(map(tuple, signs.tolist()))


def collected(stream: RegionStream) -> list[tuple[int, ...]]:
    return sorted(row for batch in stream for row in map(tuple, batch.signs.tolist()))


@settings(max_examples=8)
@given(programs(inputs=st.integers(1, 3), styles=TAME), st.sampled_from([0.25, 0.4883, 0.5]), st.integers(4, 12))
def test_every_region_is_given_once(net: Network, place: float, most: int) -> None:
    """Also with cuts along folds, and with pieces that are cut again and again."""
    box = Box.cube(net.in_size)
    whole = regions(net, box)
    most = max(most, whole.num_regions // 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PLACE", place)
        patch.setattr(pieces, "MOST", 400)
        stream = iter_regions(net, box, most=most)
        try:
            found = collected(stream)
        except TooLargeError:  # more regions than that meet in one point
            return
    assert found == rows(whole.sign_vectors)
    assert stream.complete and stream.num_regions == len(found) and stream.tiling is not None
    checked = stream.tiling.verify(recount=1)
    assert checked.checks[0].ok and checked.ok is not False  # the second engine may leave degenerate ones undecided


@pytest.mark.parametrize("domain", [Box.cube(3), Plane.along(3, (0, 2)), Box([-1.0, 0.5, -1.0], [1.0, 0.5, 0.25])])
def test_points_lie_inside(domain: Box | Plane) -> None:
    net = Network.random((3, 8, 8, 1), 2)
    stream, seen = iter_regions(net, domain, most=8), []
    for batch in stream:
        assert batch.num_regions <= 8 and batch.points.shape == (batch.num_regions, 3)
        np.testing.assert_array_equal(net.signs(batch.points).signs, batch.signs)
        seen += batch.signs.tolist()
    assert len(seen) > 15 and sorted(map(tuple, seen)) == rows(regions(net, domain).sign_vectors)
    assert "complete=True" in repr(stream) and next(stream, None) is None


def test_processes_give_the_same() -> None:
    net = Network.random((2, 12, 12, 1), 0)
    shared = iter_regions(net, Box.cube(2), jobs=2, cluster="threading", most=30)
    assert collected(shared) == rows(regions(net, Box.cube(2)).sign_vectors) and shared.complete


def test_a_stopped_stream_says_so() -> None:
    net = Network.random((2, 12, 12, 1), 0)

    def stop(done: int, total: int | None, text: str) -> None:
        if done > 6:
            raise KeyboardInterrupt

    stream = fs.iter_regions(net, Box.cube(2), progress=stop, most=20)
    found = collected(stream)
    assert 0 < len(found) == stream.num_regions < regions(net, Box.cube(2)).num_regions
    assert not stream.complete and stream.tiling is None
    late = iter_regions(net, Box.cube(2), time_limit=1e-9)
    assert not collected(late) and not late.complete


def test_what_cannot_be_given_is_refused() -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match="domain: expected a Box or a Plane, which can be cut, got Space"):
        iter_regions(net, Space(2))
    with pytest.raises(InputError, match="most: expected a positive number of regions, got 0"):
        iter_regions(net, Box.cube(2), most=0)
    star = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "MOST", 50)
        with pytest.raises(TooLargeError, match="more than 2 regions, and that in"):
            collected(iter_regions(star, Box.cube(2), most=2))
