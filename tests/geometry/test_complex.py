"""The complex as a result: counts, volumes, maps, certificates, files, domains, and the function it determines."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError, OutOfTimeError, TooLargeError
from fiberscope.geometry import regions as regions_module
from fiberscope.geometry.cells import Cells, Incidence
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice import layers as layers_module
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.planar.engine import planar_cells
from fiberscope.geometry.function import function_from
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.geometry.verify import exact_point_signs, verify
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network
from fiberscope.testing.cases import CASES, DEGENERATE, degenerate
from fiberscope.testing.strategies import chains

SMALL = [name for name in CASES if name != "convolutional"]


def signs_of(complex: Complex) -> list[tuple[int, ...]]:
    return sorted(map(tuple, complex.sign_vectors.tolist()))


@pytest.mark.parametrize("name", SMALL)
def test_certificates_of_all_architectures(name: str) -> None:
    net = CASES[name]()
    complex = regions(net, Box.cube(net.in_size))
    certificate = complex.verify()
    assert certificate.ok, certificate
    assert complex.euler_characteristic == 1
    assert complex.volumes.sum() == pytest.approx(2.0**net.in_size)
    assert certificate.to_dict()["ok"]
    assert {c.name for c in certificate.checks} >= {"witnesses", "labels", "volumes", "Euler characteristic", "balance"}


@given(chains(inputs=st.integers(1, 3), max_width=4, max_hidden=2))
@settings(max_examples=40)
def test_certificates_and_functions_of_degenerate_networks(net: Network) -> None:
    complex = Complex(net, Box.cube(net.in_size), lattice_cells(net, Box.cube(net.in_size)))
    certificate = complex.verify()
    assert certificate.ok, certificate
    X = np.random.default_rng(0).uniform(-1, 1, (200, net.in_size))
    matrix, offset = complex.affine_maps
    size = 1 + np.abs(matrix).sum() + np.abs(offset).sum()
    assert np.abs(function_from(complex)(X) - net(X)).max() <= 1e-12 * size


@given(chains(inputs=st.just(2), max_width=5, max_hidden=3))
@settings(max_examples=60)
def test_both_engines_agree_in_the_plane(net: Network) -> None:
    box = Box([-1, -1.5], [1.25, 1])
    a, b = lattice_cells(net, box), planar_cells(net, box)
    assert [a.count(k) for k in range(3)] == [b.count(k) for k in range(3)]
    for k in range(3):
        assert sorted(map(tuple, a.signs(k).tolist())) == sorted(map(tuple, b.signs(k).tolist()))


@pytest.mark.parametrize("domain", [Space(2), Orthant(2), Polytope([[-1, 0.5], [0, -1]], [1, 2])], ids=repr)
@pytest.mark.parametrize("name", ["chain", "leaky", "through_origin", "integer"])
def test_unbounded_domains(name: str, domain: Space | Orthant | Polytope) -> None:
    net = CASES[name]()
    complex = regions(net, domain)
    certificate = complex.verify()
    assert certificate.ok, certificate
    assert complex.euler_characteristic == (1 if isinstance(domain, Space) else 0)
    A, b = domain.halfspaces()
    rng = np.random.default_rng(0)
    X = rng.normal(0, 5, (3000, 2))
    X = X[(b >= X @ A.T).all(axis=1)]
    assert {tuple(s) for s in net.signs(X).signs.tolist()} <= set(signs_of(complex))
    np.testing.assert_allclose(function_from(complex)(X[:100]), net(X[:100]), atol=1e-10)


def test_volumes_of_a_polytope_and_of_a_plane() -> None:
    net = CASES["residual"]()
    simplex = Polytope(np.concatenate([-np.eye(4), np.ones((1, 4))]), np.array([0.0, 0, 0, 0, 1]))
    complex = regions(net, simplex)
    assert complex.verify().ok
    assert complex.volumes.sum() == pytest.approx(1 / 24)
    rng = np.random.default_rng(1)
    plane = Plane(*rng.normal(size=(3, 4)), Box([-1, 0], [1, 3]))
    sliced = regions(net, plane)
    assert sliced.verify().ok, sliced.verify()
    assert sliced.volumes.sum() == pytest.approx(6)
    S = rng.uniform([-1, 0], [1, 3], (100, 2))
    np.testing.assert_allclose(function_from(sliced)(S), net(plane.lift(S)), atol=1e-12)


def test_regions_have_half_spaces_vertices_and_maps() -> None:
    net = Network.random((3, 6, 5, 2), 0)
    complex = regions(net, Box.cube(3))
    rng = np.random.default_rng(0)
    for index in range(0, complex.num_regions, 7):
        region = complex.region(index)
        assert (region.A @ region.point < region.b).all()
        assert (region.b[:, None] + 1e-12 >= region.A @ region.vertices.T).all()
        assert len(region.rays) == 0
        matrix, offset = net.affine_at(region.point)
        np.testing.assert_allclose(region.affine.matrix, matrix, atol=1e-13)
        np.testing.assert_allclose(region.affine.offset, offset, atol=1e-13)
        assert region.lipschitz == pytest.approx(complex.lipschitz[index])
        # points of the box that fulfil the inequalities are those with the region's signs
        X = rng.uniform(-1, 1, (400, 3))
        inside = (region.b > X @ region.A.T).all(axis=1)
        assert (inside == (net.signs(X).signs == region.signs).all(axis=1)).all()
    with pytest.raises(InputError, match="region"):
        complex.region(complex.num_regions)


def test_adjacency_and_bent_hyperplanes() -> None:
    net = Network.random((2, 6, 5, 1), 4)
    complex = regions(net, Box.cube(2))
    graph = complex.adjacency
    assert len(graph) == complex.num_regions
    assert nx.is_connected(graph)
    for a, b, data in graph.edges(data=True):
        changed = np.flatnonzero(complex.sign_vectors[a] != complex.sign_vectors[b])
        assert tuple(changed) == data["neurons"]
    inner = int((~complex.facets.boundary).sum())
    made = [complex.bent_hyperplane(j)[1] for j in range(net.num_signs)]
    assert sum(map(len, made)) == inner == graph.number_of_edges()
    for j, cells in enumerate(made):
        assert (cells.signs[:, j] == 0).all()
    with pytest.raises(InputError, match="neuron"):
        complex.bent_hyperplane(99)


def test_cells_of_every_dimension() -> None:
    complex = regions(Network.random((3, 5, 4, 1), 1), Box.cube(3))
    assert [len(complex.cells(k)) for k in range(4)] == list(complex.f_vector)
    assert complex.cells(3).signs.shape == complex.sign_vectors.shape
    assert all(len(v) == 2 for v in complex.cells(1).vertices)
    assert complex.bytes_per_region > 0
    assert str(complex.num_regions) in repr(complex)
    assert complex.to_dict()["f_vector"] == list(complex.f_vector)
    with pytest.raises(InputError, match="dim"):
        complex.cells(4)


def test_count_regions_and_limits() -> None:
    net = Network.random((3, 6, 6, 1), 2)
    whole = count_regions(net, Box.cube(3))
    assert whole == regions(net, Box.cube(3)).num_regions
    assert (whole.complete, whole.method) == (True, "skeleton")
    degenerate_net = degenerate("integer")
    assert count_regions(degenerate_net, Space(2)) == regions(degenerate_net, Space(2)).num_regions
    some = count_regions(net, Box.cube(3), limit=5)
    assert not some.complete
    assert 5 < some < whole
    assert str(some) == f"at least {int(some)}"
    strips = Network([[[1.0, 2.0], [2.0, 4.0], [1.0, 2.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, 1.0], [0.0]])
    assert count_regions(strips, Space(2)) == 3  # between parallel lines: no region has a vertex
    wide = Network.random((7, 4, 1), 0)
    many = count_regions(wide, Box.cube(7))
    assert many.method == "traversal"
    assert many == regions(wide, Box.cube(7)).num_regions
    part = regions(net, Box.cube(3), limit=5)
    assert not part.complete
    assert "at least" in repr(part)
    assert 5 < part.num_regions < whole
    certificate = part.verify()
    assert not certificate.ok
    assert [c.name for c in certificate.checks if not c.ok] == ["complete"]
    with pytest.raises(NotGenericError, match="interrupted"):
        _ = part.affine_maps
    with pytest.raises(InputError, match="dimension 3"):
        regions(net, Box.cube(2))
    with pytest.raises(TooLargeError, match="dimensions"):
        regions(Network.random((9, 2, 1), 0), Box.cube(9))


# --- a certificate must be able to fail ---------------------------------------------------------------


def _changed(complex: Complex, **changes: object) -> Complex:
    cells = complex.structure
    fields = {f.name: getattr(cells, f.name) for f in dataclasses.fields(Cells) if not f.name.startswith("_")}
    return Complex(complex.net, complex.domain, Cells(**(fields | changes)))


def _failed(complex: Complex) -> set[str]:
    return {c.name for c in verify(complex).checks if not c.ok}


def test_wrong_complexes_are_caught() -> None:
    net = Network.random((3, 5, 5, 1), 0)
    complex = regions(net, Box.cube(3))
    cells = complex.structure
    assert _failed(complex) == set()
    signs = cells.vertex_signs.copy()
    signs[:, 7] = -signs[:, 7]
    assert "witnesses" in _failed(_changed(complex, vertex_signs=signs))
    # a region too few
    top = cells.boundary[-1]
    short = Incidence(top.indptr[:-1], top.indices[: top.indptr[-2]])
    fewer = _failed(_changed(complex, boundary=(*cells.boundary[:-1], short)))
    assert fewer >= {"walls", "Euler characteristic", "volumes"}
    # a vertex in the wrong place
    points = cells.points.copy()
    inner = np.flatnonzero((np.abs(points) < 0.9).all(axis=1))
    points[inner[0]] = [3.0, 3.0, 3.0]
    assert "volumes" in _failed(_changed(complex, points=points))
    # another network of the same shape
    other = Complex(Network.random((3, 5, 5, 1), 1), complex.domain, cells)
    assert "witnesses" in _failed(other)


def test_a_region_thinner_than_floats_has_a_rational_witness() -> None:
    # two parallel lines one ulp apart: no float lies strictly between them on the diagonal
    b = 1 / 3
    net = Network([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0]]], [[b, np.nextafter(b, 1)], [0.0]])
    complex = Complex(net, Box.cube(2), lattice_cells(net, Box.cube(2)))
    assert complex.num_regions == 3
    certificate = complex.verify()
    assert certificate.ok, certificate


def test_exact_signs_of_rational_points() -> None:
    net = Network([[[3.0]], [[1.0]]], [[-1.0], [0.0]])
    assert exact_point_signs(net, (1, 3)).tolist() == [0]
    assert exact_point_signs(net, (333333, 1000000)).tolist() == [-1]


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [Box.cube(2), Space(2), Orthant(2), Polytope([[1, 1], [-1, 0], [0, -1]], [1, 1, 1])])
def test_saving_and_loading(tmp_path: Path, domain: Box | Space | Orthant | Polytope) -> None:
    complex = regions(degenerate("integer"), domain)
    complex.save(tmp_path / "a.npz")
    again = Complex.load(tmp_path / "a.npz")
    assert identical(complex.net, again.net)
    assert repr(again) == repr(complex)
    assert (again.sign_vectors == complex.sign_vectors).all()
    np.testing.assert_array_equal(again.volumes, complex.volumes)
    assert again.verify().ok


def test_a_plane_through_a_convolutional_network_is_saved(tmp_path: Path) -> None:
    net = CASES["convolutional"]()
    rng = np.random.default_rng(0)
    plane = Plane(*rng.normal(size=(3, 72)), Box.cube(2, -0.1, 0.1))
    complex = regions(net, plane)
    assert complex.verify().ok, complex.verify()
    complex.save(tmp_path / "a.npz")
    again = Complex.load(tmp_path / "a.npz")
    assert (again.sign_vectors == complex.sign_vectors).all()
    np.testing.assert_allclose(function_from(again)([[0.05, 0.02]]), net(plane.lift([[0.05, 0.02]])), atol=1e-12)


def test_files_that_are_no_complex(tmp_path: Path) -> None:
    complex = regions(Network.random((2, 2, 1), 0), Box.cube(2))
    with pytest.raises(InputError, match="npz"):
        complex.save(tmp_path / "a.txt")
    with pytest.raises(InputError, match="no such file"):
        Complex.load(tmp_path / "none.npz")
    (tmp_path / "b.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="something else"):
        Complex.load(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", x=np.zeros(3))
    with pytest.raises(InputError, match="missing or damaged"):
        Complex.load(tmp_path / "c.npz")
    complex.save(tmp_path / "d.npz")
    with np.load(tmp_path / "d.npz") as file:
        arrays = dict(file.items())
    arrays["indices.1"] = arrays["indices.1"] + 1000
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(InputError, match="incidences"):
        Complex.load(tmp_path / "e.npz")


# --- the function -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chain", "deep", "residual", *DEGENERATE])
def test_the_function_is_determined_by_any_region_and_the_weights(name: str) -> None:
    net = CASES[name]()
    complex = regions(net, Box.cube(net.in_size))
    X = np.random.default_rng(3).uniform(-1, 1, (300, net.in_size))
    for region in {0, complex.num_regions // 2, complex.num_regions - 1}:
        np.testing.assert_allclose(function_from(complex, region)(X), net(X), atol=1e-10)
    corners = complex.vertices
    np.testing.assert_allclose(function_from(complex)(corners), net(corners), atol=1e-10)
    with pytest.raises(InputError, match="expected points of"):
        function_from(complex)(np.full((1, net.in_size), 1.5))
    with pytest.raises(InputError, match="region"):
        function_from(complex, -1)


def exactly(net: Network, x: list[float]) -> list[Fraction]:
    """A chain of layers at a point, in fractions."""
    value = [Fraction(v) for v in x]
    layers = list(zip(net.weights, net.biases, strict=True))
    for k, (weight, bias) in enumerate(layers):
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        value = [sum((Fraction(w) * v for w, v in zip(row, value, strict=True)), Fraction(b)) for row, b in rows]
        value = value if k == len(layers) - 1 else [max(v, Fraction(0)) for v in value]
    return value


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("widths", [(1, 6, 4, 2), (2, 8, 8, 1), (3, 5, 5, 2)])
def test_the_function_states_its_error(widths: tuple[int, ...], scale: float) -> None:
    """Also at vertices and on walls, where rounding does not tell regions apart."""
    plain = Network.random(widths, 1)
    net = Network([w * scale for w in plain.weights], list(plain.biases))  # a large scale makes walls steep
    complex = regions(net, Box.cube(widths[0]))
    inside = np.random.default_rng(0).uniform(-1, 1, (60, widths[0]))
    X = np.concatenate([inside, complex.vertices[:40], complex.points[:20]])
    for region in (None, 0):
        function = function_from(complex, region)
        found, error = function(X), function.error(X)
        true = [exactly(net, x) for x in X.tolist()]
        distance = [
            [abs(Fraction(y) - t) for y, t in zip(*pair, strict=True)]
            for pair in zip(found.tolist(), true, strict=True)
        ]
        assert all(
            d <= e
            for row, bounds in zip(distance, error.tolist(), strict=True)
            for d, e in zip(row, bounds, strict=True)
        )
        size = np.abs(found).max()
        assert np.median(error[: len(inside)]) <= 1e-11 * size
        assert np.isfinite(error[: len(inside)]).all()


def test_the_function_knows_where_it_has_no_bound() -> None:
    """Walls of a max pooling come from positions, without a bound."""
    net = CASES["convolutional"]()
    plane = Plane.along(net.in_size, (0, 1))
    complex = regions(net, plane)
    function, X = function_from(complex), complex.points
    error = function.error(X)
    unknown = np.flatnonzero(np.isinf(complex.facets.normal_error))
    beside = np.isin(np.arange(len(X)), complex.facets.regions[unknown])
    assert np.isinf(error[beside]).all()
    assert np.isfinite(error[~beside]).any() or beside.all()
    assert (np.abs(function(X) - net(plane.lift(X))) <= error + 1e-12).all()


def test_a_domain_with_too_many_regions_is_refused_with_an_estimate():
    net = Network.random((5, 50, 50, 50, 1), 0)
    for ask in (regions, count_regions):
        with pytest.raises(TooLargeError, match=r"about .* regions \(estimate, .* the limit of memory is"):
            ask(net, Box.cube(5))
    assert not count_regions(net, Box.cube(5), limit=50).complete


@pytest.mark.parametrize("ask", [regions, count_regions])
def test_how_large_it_will_be_is_asked_once_and_when_it_is_large(ask, monkeypatch):
    net, asked = Network.random((3, 16, 16, 1), 0), []
    monkeypatch.setattr(regions_module, "_check_size", lambda *_: asked.append(True))
    whole = ask(net, Box.cube(3))
    assert asked == []
    monkeypatch.setattr(layers_module, "LARGE", 10)
    again = ask(net, Box.cube(3))
    assert asked == [True]
    assert (again.num_regions, again.complete) == (whole.num_regions, True) if ask is regions else again == whole
    assert not ask(net, Box.cube(3), limit=50).complete and asked == [True]

    def late(*_):
        raise OutOfTimeError

    monkeypatch.setattr(regions_module, "_check_size", late)  # whoever builds sees the deadline itself
    assert ask(net, Box.cube(3)).complete


@pytest.mark.parametrize("ask", [regions, count_regions])
def test_memory_that_is_not_there_is_a_refusal_with_advice(ask, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(layers_module, "grown", full)
    with pytest.raises(TooLargeError, match="memory of this machine is not enough; give limit=, a smaller domain"):
        ask(Network.random((3, 16, 16, 1), 0), Box.cube(3))


@pytest.mark.parametrize("ask", [regions, count_regions])
def test_what_is_no_domain_or_limit(ask):
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match="expected a Box, Plane, Polytope, Orthant or Space, got str"):
        ask(net, "box")
    with pytest.raises(InputError, match="limit: expected a positive number"):
        ask(net, Box.cube(2), limit=0)


def test_an_interrupted_certificate_keeps_what_was_decided() -> None:
    complex = regions(Network.random((2, 5, 4, 1), 0), Box.cube(2))
    names = [check.name for check in complex.verify().checks]

    for stop in range(len(names)):

        def progress(done: int, total: int, text: str, stop: int = stop) -> None:
            assert (total, text) == (len(names), names[done])
            if done == stop:
                raise KeyboardInterrupt

        certificate = complex.verify(progress)
        assert [check.name for check in certificate.checks] == names
        assert [check.ok for check in certificate.checks] == [True] * stop + [None] * (len(names) - stop)
        assert certificate.ok is None and not certificate
        assert repr(certificate).startswith("Certificate(undecided)")
        json.dumps(certificate.to_dict(), allow_nan=False)


def test_a_replaced_complex_of_cells_finds_its_signs_anew() -> None:
    cells = regions(Network.random((2, 4, 1), 0), Box.cube(2)).structure
    before = [cells.signs(k).copy() for k in range(3)]
    flipped = dataclasses.replace(cells, vertex_signs=-cells.vertex_signs)
    assert all(np.array_equal(flipped.signs(k), -before[k]) for k in (0, 1))
    assert all(np.array_equal(cells.signs(k), before[k]) for k in range(3))
