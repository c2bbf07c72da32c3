"""What the page's script reads is what the complex says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.errors import InputError, TooLargeError
from fiberscope.explorer import payload
from fiberscope.explorer.payload import Marks, decode, encode
from fiberscope.explorer.solid import encode_solid
from fiberscope.explorer.view import explore


def unpacked(header, arrays, region):
    """The sign vector of a region, as the script unpacks it."""
    signs = arrays["constant_signs"].astype(int) - 1
    varying, width = arrays["varying"], -(-len(arrays["varying"]) // 4)
    for k, entry in enumerate(varying):
        byte = int(arrays["signs"][region * width + k // 4]) ^ (int(arrays["signs"][k // 4]) if region else 0)
        signs[entry] = (byte >> 2 * (k % 4) & 3) - 1
    return signs


@given(st.integers(0, 10_000), st.sampled_from([(2, 5, 1), (2, 4, 4, 3), (2, 9, 2)]))
@settings(max_examples=25)
def test_the_picture_is_the_complex(seed, widths):
    complex = fs.regions(fs.Network.random(widths, seed), fs.Box.cube(2, -2, 2))
    header, arrays = decode(encode(complex))
    assert header["regions"] == complex.num_regions == len(arrays["areas"])
    assert (header["low"], header["high"]) == ([-2.0, -2.0], [2.0, 2.0])
    np.testing.assert_allclose(arrays["areas"].sum(), 16, rtol=1e-5)
    inside = complex.structure.vertices_of(2)
    matrix, offset = complex.affine_maps
    for region in range(0, complex.num_regions, 7):
        corners = arrays["corners"][arrays["starts"][region] : arrays["starts"][region + 1]]
        assert corners.tolist() == inside[region].tolist()
        assert unpacked(header, arrays, region).tolist() == complex.sign_vectors[region].tolist()
        map_ = arrays["maps"].reshape(complex.num_regions, -1, 3)[region]
        np.testing.assert_allclose(map_[:, :2], matrix[region], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(map_[:, 2], offset[region], rtol=1e-6, atol=1e-7)
    inner = complex.facets.neuron >= 0
    assert sorted(arrays["edge_neuron"]) == sorted(complex.facets.neuron[inner])
    assert arrays["edge_visible"].sum() == complex.facets.visible.sum()


def test_lines_belong_to_their_regions_and_layers():
    complex = fs.regions(fs.Network.random((2, 6, 5, 1), 3), fs.Box.cube(2))
    header, arrays = decode(encode(complex))
    layer_of = np.repeat([0, 1], [6, 5])
    assert (arrays["edge_layer"] == layer_of[arrays["edge_neuron"]]).all()
    for (start, stop), layer in zip(header["layer_ranges"], (0, 1), strict=True):
        assert (arrays["edge_layer"][arrays["edge_order"][start:stop]] == layer).all()
    neighbours = np.bincount(arrays["edge_list"], minlength=len(arrays["edge_neuron"]))
    assert (neighbours == 2).all()  # every inner line is told to both of its regions
    assert header["layers"][1]["visible"] == sorted({int(n) for n in arrays["edge_neuron"] if n >= 6})


def test_the_smallest_regions_are_left_out_and_it_is_said(monkeypatch):
    monkeypatch.setattr(payload, "MOST_REGIONS", 10)
    complex = fs.regions(fs.Network.random((2, 8, 8, 1), 0), fs.Box.cube(2))
    assert complex.num_regions > 20
    header, arrays = decode(encode(complex))
    assert len(arrays["areas"]) == 10
    assert f"{complex.num_regions - 10} smallest are not drawn" in header["note"]
    assert sorted(complex.volumes)[-10:] == pytest.approx(sorted(arrays["areas"]), rel=1e-6)
    assert len(decode(encode(complex, full=True))[1]["areas"]) == complex.num_regions
    for name, row in zip(arrays["names"], range(10), strict=True):
        assert unpacked(header, arrays, row).tolist() == complex.sign_vectors[name].tolist()


def test_a_picture_keeps_to_its_size(monkeypatch):
    complex = fs.regions(fs.Network.random((2, 16, 16, 1), 0), fs.Box.cube(2))
    whole = encode(complex)
    monkeypatch.setattr(payload, "MOST_TEXT", len(whole) // 2)
    text = encode(complex)
    assert len(text) <= len(whole) // 2
    header, arrays = decode(text)
    assert 0 < len(arrays["areas"]) < complex.num_regions == header["regions"]
    assert "smallest are not drawn" in header["note"]
    assert len(encode(complex, full=True)) == len(whole)


def test_slices_have_their_own_axes_and_many_outputs_are_thinned(monkeypatch):
    plane = fs.Plane.through([0.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0])
    complex = fs.regions(fs.Network.random((3, 6, 12), 0), plane)
    monkeypatch.setattr(payload, "MOST_MAPS", 5 * complex.num_regions)
    header, arrays = decode(encode(complex))
    assert header["axes"] == ["s", "t"]
    assert (header["outputs"], header["out_size"]) == (5, 12)
    middle = complex.points
    values = complex.view.net(middle)
    assert arrays["classes"].tolist() == values.argmax(axis=1).tolist()


def test_points_labels_and_pictures():
    complex = fs.regions(fs.Network.random((2, 3, 1), 0), fs.Box.cube(2))
    header, arrays = decode(encode(complex, Marks([[0.5, 0.25]], [3], [((0.0, 1.0), b"png")])))
    assert arrays["points"].tolist() == [0.5, 0.25]
    assert arrays["labels_of_points"].tolist() == [3]
    assert header["pictures"] == [{"at": [0.0, 1.0], "png": "cG5n"}]


@pytest.mark.parametrize(
    ("domain", "message"),
    [(fs.Space(2), "bounded domain"), (fs.Space(3), "bounded domain"), (fs.Box.cube(4), "2 dimensions")],
)
def test_what_is_no_picture_is_refused(domain, message):
    complex = fs.regions(fs.Network.random((domain.ambient, 3, 1), 0), domain)
    with pytest.raises(InputError, match=message):
        explore(complex)
    assert "<table" in complex._repr_html_()  # a notebook shows the numbers all the same


def test_bad_frames_labels_and_points():
    complex = fs.regions(fs.Network.random((2, 3, 1), 0), fs.Box.cube(2))
    with pytest.raises(InputError, match="one for each of 2 frames"):
        explore([complex, complex], labels=["a"])
    with pytest.raises(InputError, match="expected a complex"):
        explore([])
    with pytest.raises(InputError, match="two coordinates"):
        explore(complex, points=[[1.0, 2.0, 3.0]])
    with pytest.raises(InputError, match="same parameters"):
        explore(complex, walk=[complex.net, fs.Network.random((2, 4, 1), 0)])


def test_hostile_names_do_not_leave_the_data(tmp_path):
    complex = fs.regions(fs.Network.random((2, 3, 1), 0), fs.Box.cube(2))
    shown = explore([complex], labels=["</script><script>alert(1)</script>"])
    assert "alert(1)</script>" not in shown.fragment
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


@given(st.integers(0, 10_000))
@settings(max_examples=8)
def test_faces_in_space_are_the_polygons_of_the_complex(seed):
    complex = fs.regions(fs.Network.random((3, 5, 4, 2), seed), fs.Box.cube(3))
    header, arrays = decode(encode_solid(complex))
    facets, vertices = complex.facets, arrays["vertices"].reshape(-1, 3)
    assert (header["dimension"], header["regions"]) == (3, complex.num_regions)
    for face in range(len(facets)):
        corners = vertices[arrays["corners"][arrays["starts"][face] : arrays["starts"][face + 1]]].astype(float)
        fans = np.cross(corners[1:-1] - corners[0], corners[2:] - corners[0])
        area = np.linalg.norm(fans.sum(axis=0)) / 2  # right only if the corners go around
        np.testing.assert_allclose(area, complex.wall_sizes[facets.cell[face]], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(fans, axis=1).sum() / 2, area, rtol=1e-3, atol=1e-5)
    assert arrays["face_regions"].reshape(-1, 2).tolist() == facets.regions.tolist()
    assert unpacked(header, arrays, complex.num_regions - 1).tolist() == complex.sign_vectors[-1].tolist()


def test_a_picture_in_space_stands_alone_and_is_not_too_large(monkeypatch):
    complex = fs.regions(fs.Network.random((3, 3, 1), 0), fs.Box.cube(3))
    assert "<table" in complex._repr_html_()
    assert 'class="fx"' in complex._repr_html_()
    with pytest.raises(InputError, match="one complex alone"):
        explore([complex, complex])
    monkeypatch.setattr("fiberscope.explorer.solid.MOST_REGIONS", 2)
    with pytest.raises(TooLargeError, match="at most 2 regions in space"):
        explore(complex)
