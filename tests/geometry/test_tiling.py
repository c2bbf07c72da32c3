"""Counting in pieces: the same number as in one, wherever the cuts run, and evidence that notices a change."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry import tiling as pieces
from fiberscope.geometry.domains import Box, Plane, Space, view_of
from fiberscope.geometry.engines.planar import arrange
from fiberscope.geometry.engines.planar import engine as planar
from fiberscope.geometry.engines.planar.mesh import pointers
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.geometry.tiling import Span, count_in_pieces, met_by, solid
from fiberscope.network.network import Network
from fiberscope.run import Run
from fiberscope.testing.hostile import TAME, programs

CROSS = Network([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0]])
"""Folds along both axes, and a neuron that is nothing at all."""


@settings(max_examples=20)
@given(programs(inputs=st.integers(1, 3), styles=TAME), st.sampled_from([0.25, 0.4883, 0.5]), st.integers(2, 6))
def test_pieces_have_as_many_regions_as_the_whole(net: Network, place: float, count: int) -> None:
    box = Box.cube(net.in_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PLACE", place)
        found = count_in_pieces(view_of(net, box), Run(), pieces=count)
    assert found.complete and int(found) == int(count_regions(net, box))


def test_cuts_along_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PLACE", 0.5)
    found = count_in_pieces(view_of(CROSS, Box.cube(2)), Run(), pieces=4)
    assert int(found) == 4
    assert found.tiling.counts == (1, 1, 0, 1, 1, 0, 0)
    assert found.tiling.num_pieces == 4 and repr(found.method) == "'4 pieces'"
    signs = met_by(CROSS, Span(np.array([0.0, -1.0]), np.array([0.0, 1.0])))
    assert signs.tolist() == [[0, -1, 0], [0, 1, 0]] and not solid(CROSS, signs).any()


def test_a_function_that_only_floats_take_for_zero_is_none() -> None:
    tiny = 2.0**-80
    net = Network([[[1.0, 1.0], [1.0, 1.0 + 2.0**-52]], [[1.0, -1.0]], [[1.0]]], [[3.0, 3.0], [tiny], [0.0]])
    assert not solid(net, np.array([[1, 1, 0]], dtype=np.int8))[0]
    same = Network([[[0.1, 0.3], [0.1, 0.3]], [[1.0, -1.0]], [[1.0]]], [[3.0, 3.0], [0.0], [0.0]])
    assert solid(same, np.array([[1, 1, 0]], dtype=np.int8))[0]  # whatever the rounding of the products says


def test_planes_and_flat_boxes() -> None:
    net = Network.random((5, 12, 12, 1), 1)
    plane = Plane.along(5, (0, 3))
    assert int(count_regions(net, plane, jobs=1)) == regions(net, plane).num_regions
    flat = Box([-1.0, 0.5, -1.0, 0.25, 0.0], [1.0, 0.5, 1.0, 0.25, 1.0])
    assert int(count_in_pieces(view_of(net, flat), Run(), pieces=3)) == regions(net, flat).num_regions


def test_what_is_too_large_is_cut_further(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network.random((2, 16, 16, 1), 2)
    whole = count_regions(net, Box.cube(2))
    monkeypatch.setattr(planar, "MEMORY_OF_A_COUNT", 6_000)
    found = count_regions(net, Box.cube(2))
    assert found.complete and int(found) == int(whole) and found.tiling.num_pieces > 4
    assert found.tiling.verify(recount=100)
    monkeypatch.setattr(pieces, "MOST", 1)
    with pytest.raises(TooLargeError, match=r"layer 1 of 2 makes .*, and that in"):
        count_regions(net, Box.cube(2))


def test_one_layer_with_too_many_crossings_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network.random((2, 40, 1), 2)
    whole = count_regions(net, Box.cube(2))
    monkeypatch.setattr(arrange, "MOST_MEETINGS", 100)
    with pytest.raises(TooLargeError, match="crossings of the neurons of one layer do not fit into memory"):
        regions(net, Box.cube(2))
    found = count_regions(net, Box.cube(2))
    assert found.complete and int(found) == int(whole) and found.tiling.num_pieces > 3


def test_threads_and_processes_count_the_same() -> None:
    net = Network.random((3, 6, 6, 1), 0)
    whole = int(count_regions(net, Box.cube(3)))
    assert int(count_regions(net, Box.cube(3), jobs=2, cluster="threading")) == whole


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_counts_the_same() -> None:
    distributed = pytest.importorskip("distributed")
    net = Network.random((2, 64, 64, 1), 0)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        next(iter(cluster.workers.values())).process.process.terminate()
        address = cluster.scheduler_address.removeprefix("tcp://")
        found = count_regions(net, Box.cube(2), cluster=f"dask://{address}")
    assert found.complete and int(found) == int(count_regions(net, Box.cube(2)))


def test_evidence_notices_a_change() -> None:
    found = count_in_pieces(view_of(Network.random((2, 8, 8, 1), 0), Box.cube(2)), Run(), pieces=4).tiling
    assert found.verify().ok is True
    assert found.to_dict()["num_pieces"] == 4 and sum(np.prod(box.high - box.low) for box in found.boxes()) == 4.0
    k = next(k for k, count in enumerate(found.counts) if count)
    more = (*found.counts[:k], found.counts[k] + 1, *found.counts[k + 1 :])
    assert replace(found, counts=more).verify().ok is False
    assert replace(found, counts=more, num_regions=found.num_regions + 1).verify(recount=10).ok is False
    moved = tuple((cut[0], cut[1] + 0.5) if cut else None for cut in found.cuts)
    assert replace(found, cuts=moved).verify(recount=10).ok is False
    outside = tuple((cut[0], 5.0) if cut else None for cut in found.cuts)
    assert replace(found, cuts=outside).verify(recount=0).ok is False
    assert found.verify(time_limit=1e-9).ok is None


def test_interrupted_and_out_of_time() -> None:
    net, seen = Network.random((2, 24, 24, 1), 0), []
    whole = int(count_regions(net, Box.cube(2)))

    def stop(done: int, total: int | None, text: str) -> None:
        seen.append((done, total))
        if done == 5:
            raise KeyboardInterrupt

    found = count_in_pieces(view_of(net, Box.cube(2)), Run.begin(stop), pieces=8)
    assert not found.complete and 0 < int(found) < whole and seen[-1] == (5, 15)
    assert found.tiling.verify().checks[0].ok and "at least" in repr(found)
    late = count_in_pieces(view_of(net, Box.cube(2)), Run(deadline=0.0), pieces=8)
    assert not late.complete and int(late) < whole


@pytest.mark.parametrize(
    ("domain", "options", "words"),
    [
        (Box.cube(2), {"jobs": 2, "limit": 5}, "limit: expected none beside jobs and cluster, got 5"),
        (Box.cube(2), {"jobs": 0}, "jobs: expected a positive integer"),
        (Box.cube(2), {"cluster": "nowhere"}, "cluster: expected one of"),
        (Space(2), {"jobs": 1}, "domain: expected a Box or a Plane, which can be cut, got Space"),
    ],
)
def test_bad_input(domain: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        count_regions(CROSS, domain, **options)


def test_seven_dimensions_are_refused() -> None:
    with pytest.raises(TooLargeError, match="expected at most 6 dimensions, got 7"):
        count_regions(Network.random((7, 3, 1), 0), Box.cube(7), jobs=1)


@given(st.integers(0, 10**6))
def test_corners_are_those_of_all_pairs(seed: int) -> None:
    """The kernel on words of eight signs against single signs."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 6, size=4)
    V, width = 9, int(rng.integers(1, 20))
    signs = np.ones((V, -(-width // 8) * 8), dtype=np.int8)
    signs[:, :width] = rng.integers(-1, 2, size=(V, width))
    loops = [rng.permutation(V)[:n] for n in sizes]
    mesh: Any = type("Mesh", (), {"indptr": pointers(sizes), "loop_v": np.concatenate(loops)})
    expected = [
        [j for j in range(width) if signs[v, j] == 0 and {-1, 1} <= set(signs[loop, j].tolist())]
        for loop in loops
        for v in loop
    ]
    ptr, label = arrange._corners(mesh, signs)
    assert [label[a:b].tolist() for a, b in pairwise(ptr)] == expected
