"""Counts for many networks at once are those of one network at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Curve, Path, Segment, Tractrix
from fiberscope.geometry.curves.ensembles import count_along
from fiberscope.network.network import Network
from fiberscope.testing import strategies as nets
from fiberscope.testing.cases import CASES, case


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_compiled_loop_counts_as_the_engine(data: st.DataObject) -> None:
    net = data.draw(nets.chains(inputs=st.integers(2, 3), max_width=5, max_hidden=3))
    kind = data.draw(st.sampled_from([Circle, Tractrix]))
    curve = kind.random_plane(net.in_size, data.draw(st.integers(0, 99)))
    found, expected = count_along([net], curve), regions_along(net, curve)
    assert found.counts.tolist() == [expected.num_regions]
    assert np.allclose(found.breakpoints[0], expected.breakpoints, atol=1e-9)
    assert found.certified


@pytest.mark.parametrize("curve", [Circle(), Tractrix()], ids=["circle", "tractrix"])
def test_random_networks_need_no_exact_numbers(curve: Path) -> None:
    networks = [Network.random((2, 10, 16, 1), seed) for seed in range(20)]
    found = count_along(networks, curve)
    assert found.counts.tolist() == [regions_along(net, curve).num_regions for net in networks]
    assert found.by_float == len(found) == 20


def test_other_networks_and_curves() -> None:
    networks = [case(name) for name in CASES if case(name).in_size == 2]
    for curve in (Circle(radius=2.0), Segment([-1.0, 0.5], [2.0, 0.25])):
        assert count_along(networks, curve).counts.tolist() == [regions_along(n, curve).num_regions for n in networks]
    wave = Curve(lambda t: np.stack([t, np.sin(t)], axis=1), (-3.0, 3.0))
    assert not count_along(networks[:1], wave).certified


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"networks, entry 0: expected a Network, .* got int"):
        count_along([3], Circle())
    with pytest.raises(InputError, match=r"R\^3 for this network"):
        count_along([Network.random((3, 2, 1), 0)], Circle())
    assert len(count_along([], Circle())) == 0


def test_one_network_is_not_a_list_and_none_is_no_curve() -> None:
    net = Network.random((2, 3, 1), 0)
    for networks, curve in ((net, Circle()), ([net], None)):
        with pytest.raises(InputError, match="expected a list of networks"):
            count_along(networks, curve)  # type: ignore[arg-type]
