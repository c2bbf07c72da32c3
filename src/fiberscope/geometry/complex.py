"""The result of asking where a network is linear: its polyhedral complex on a domain, with all that can be read off."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.affine_forms import output_forms
from fiberscope.geometry.cells import Cells, Incidence
from fiberscope.geometry.domains import Domain, View
from fiberscope.geometry.facets import Facets, find_facets, sides_of
from fiberscope.geometry.measures import Metrics, metrics
from fiberscope.geometry.ridges import Balance, Ridges, balance, find_ridges, straight_facets
from fiberscope.network.network import AffineMap, Network
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Pictured, Result, hidden
from fiberscope.run import ENDLESS, Progress, Run

if TYPE_CHECKING:
    import networkx as nx

    from fiberscope.geometry.verify import Certificate


@dataclass(frozen=True, slots=True, eq=False)
class CellSet:
    """Cells of one dimension: which of the complex's ``k``-cells they are, their vertices and their sign vectors."""

    dimension: int
    index: IntArray
    vertices: tuple[IntArray, ...]
    signs: SignArray

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"CellSet({len(self)} cells of dimension {self.dimension})"


@dataclass(frozen=True, slots=True, eq=False)
class Region(Result):
    """One region: its sign vector, affine map, half-spaces ``A x <= b`` (one for each facet), vertices and volume.

    ``rays`` are the directions in which it is unbounded. ``lipschitz`` is the spectral norm of the map's matrix.
    """

    index: int
    signs: SignArray
    affine: AffineMap
    A: FloatArray
    b: FloatArray
    vertices: FloatArray
    rays: FloatArray
    point: FloatArray
    volume: float

    told = ("lipschitz",)

    @property
    def lipschitz(self) -> float:
        return float(_norms(self.affine.matrix[None])[0])

    def __repr__(self) -> str:
        return f"Region({self.index}: {len(self.b)} sides, {len(self.vertices)} vertices, volume {self.volume:.4g})"


@dataclass(frozen=True, eq=False)
class Complex(Pictured):
    """The canonical polyhedral complex of a network on a domain; made by :func:`fiberscope.regions`.

    A region is a maximal connected open set on which the sign of every neuron is constant, zero allowed. On a
    :class:`Plane`, or a box that is flat in some coordinates, all coordinates, normals, volumes and maps are those of
    the slice, and ``view.lift`` leads back. On unbounded domains ``rays`` marks vertices that stand for directions;
    cells that lie at infinity are not counted.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> complex = regions(net, Box.cube(2))
    >>> complex
    Complex(4 regions of 2-2-1 on Box([-1, 1] x [-1, 1]); f-vector 9, 12, 4)
    >>> complex.volumes.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    net: Network = field(metadata=hidden())
    domain: Domain
    structure: Cells = field(metadata=hidden())

    told = (
        "network=net.architecture",
        "complete",
        "num_regions",
        "f_vector",
        "euler_characteristic",
        "exact_decisions=structure.exact_decisions",
        "float_decisions=structure.float_decisions",
        "bytes_per_region",
    )
    picture = "regions"

    # -- counts ------------------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        return self.structure.dimension

    @property
    def complete(self) -> bool:
        """False when the work was interrupted: then there are *at least* so many regions."""
        return self.structure.complete

    @property
    def num_regions(self) -> int:
        return self.structure.count(self.dimension)

    @cached_property
    def f_vector(self) -> tuple[int, ...]:
        """Number of cells of every dimension."""
        return tuple(int((~self.structure.at_infinity(k)).sum()) for k in range(self.dimension + 1))

    @property
    def euler_characteristic(self) -> int:
        """``sum (-1)^k f_k``: 1 on a bounded domain, ``(-1)^n`` on all of R^n, 0 on an orthant."""
        return sum((-1) ** k * count for k, count in enumerate(self.f_vector))

    @property
    def bytes_per_region(self) -> float:
        """Memory of the whole structure, divided by the number of regions."""
        return self.structure.nbytes / self.num_regions

    # -- cells -------------------------------------------------------------------------------------------------

    @property
    def vertices(self) -> FloatArray:
        """Coordinates of the vertices; those marked by :attr:`rays` are directions at infinity."""
        return self.structure.points

    @property
    def rays(self) -> BoolArray:
        """Which vertices stand for directions at infinity."""
        return self.structure.at_infinity(0)

    def cells(self, dim: int) -> CellSet:
        """The cells of one dimension, those at infinity left out."""
        if not 0 <= dim <= self.dimension:
            raise InputError(f"dim: expected 0 to {self.dimension}, got {dim}")
        index = np.flatnonzero(~self.structure.at_infinity(dim))
        return self._cell_set(dim, index)

    def _cell_set(self, dim: int, index: IntArray) -> CellSet:
        inside = self.structure.vertices_of(dim)
        vertices = tuple(inside[int(c)] for c in index)
        return CellSet(dim, index, vertices, self.structure.signs(dim)[index])

    @property
    def sign_vectors(self) -> SignArray:
        """Of the regions, ``(regions, num_signs)``."""
        return self.structure.top_signs

    def bent_hyperplane(self, neuron: int) -> tuple[CellSet, ...]:
        """Where the neuron, an entry of the sign vector, vanishes: its cells of every dimension from 0 up."""
        if not 0 <= neuron < self.net.num_signs:
            raise InputError(f"neuron: expected 0 to {self.net.num_signs - 1}, got {neuron}")
        sets = []
        for k in range(self.dimension + 1):
            zero = (self.structure.signs(k)[:, neuron] == 0) & ~self.structure.at_infinity(k)
            sets.append(self._cell_set(k, np.flatnonzero(zero)))
        return tuple(sets)

    # -- sizes and maps ----------------------------------------------------------------------------------------

    @cached_property
    def view(self) -> View:
        """Network and domain in the coordinates of the complex, and the way back to the input space."""
        return self.domain.view(self.net)

    @cached_property
    def _metrics(self) -> dict[int, Metrics]:
        return metrics(self.structure, max(0, self.dimension - 2))

    def _measure_within(self, run: Run) -> None:
        """Find points and volumes of all cells ahead of the first question about them, within the time of a run."""
        if "_metrics" not in self.__dict__:
            self.__dict__["_metrics"] = metrics(self.structure, max(0, self.dimension - 2), run)

    def find_within(self, run: Run, *names: str) -> None:
        """Find ``bounded_maps``, ``facets``, ``ridges`` ahead of the first question about them, in the time of a run.

        Raises :class:`~fiberscope.OutOfTimeError` behind its deadline; what was found until then is kept.
        """
        self._measure_within(run)
        for name in names:
            if name not in self.__dict__:
                self.__dict__[name] = getattr(self, f"_{name}")(run)

    @property
    def volumes(self) -> FloatArray:
        """Volume of every region; infinite for an unbounded one."""
        return self._metrics[self.dimension].volumes

    @property
    def wall_sizes(self) -> FloatArray:
        """Volume of every ``(d-1)``-cell in its own dimension."""
        return self._metrics[self.dimension - 1].volumes

    @property
    def points(self) -> FloatArray:
        """A point inside of every region."""
        return self._metrics[self.dimension].points

    @cached_property
    def bounded_maps(self) -> Bounded:
        """Affine maps ``(regions, out, d + 1)``, the constant term last, with bounds of their errors."""
        return self._bounded_maps(ENDLESS)

    def _bounded_maps(self, run: Run) -> Bounded:
        self._require_complete("affine maps")
        return output_forms(self.view.net, self.sign_vectors, run)

    def _require_complete(self, what: str) -> None:
        if not self.complete:
            raise NotGenericError(f"{what}: expected a complete complex, got one that was interrupted")

    @property
    def affine_maps(self) -> tuple[FloatArray, FloatArray]:
        """Matrices ``(regions, out, d)`` and offsets ``(regions, out)``, infinite beyond the range of floats."""
        return self.bounded_maps.value[:, :, :-1], self.bounded_maps.value[:, :, -1]

    @cached_property
    def lipschitz(self) -> FloatArray:
        """Spectral norm of every region's matrix; the largest is the Lipschitz constant on the domain.

        Infinite beyond the range of floats.
        """
        return _norms(self.affine_maps[0])

    def region(self, index: int) -> Region:
        """One region with its half-spaces, vertices, volume and affine map."""
        if not 0 <= index < self.num_regions:
            raise InputError(f"region: expected 0 to {self.num_regions - 1}, got {index}")
        own = self.structure.vertices_of(self.dimension)[index]
        matrix, offset = self.affine_maps
        rows = self.facets_of[index]
        turn = np.where(self.facets.regions[rows, 0] == index, 1.0, -1.0)
        return Region(
            index=index,
            signs=self.sign_vectors[index],
            affine=AffineMap(matrix[index], offset[index]),
            A=self.facets.normal[rows] * turn[:, None],
            b=self.facets.offset[rows] * turn,
            vertices=self.vertices[own[~self.rays[own]]],
            rays=self.vertices[own[self.rays[own]]],
            point=self.points[index],
            volume=float(self.volumes[index]),
        )

    # -- facets and ridges -------------------------------------------------------------------------------------

    @cached_property
    def facets(self) -> Facets:
        """Every facet with its neurons, normal, weight, and whether it is visible."""
        return self._facets(ENDLESS)

    def _facets(self, run: Run) -> Facets:
        d = self.dimension
        flat = self.structure.at_infinity(d - 1)
        self._require_complete("facets")
        return find_facets(
            self.view.net, self.view.domain, self.structure, self._metrics[d], self._metrics[d - 1], flat, run
        )

    @cached_property
    def sides(self) -> IntArray:
        """The regions on both sides of every ``(d-1)``-cell, -1 for none."""
        return sides_of(self.structure.boundary[-1], self.structure.count(self.dimension - 1))

    @cached_property
    def facets_of(self) -> Incidence:
        """For every region the rows of :attr:`facets` that bound it."""
        regions = self.facets.regions
        row, side = np.nonzero(regions >= 0)
        owner = regions[row, side]
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=self.num_regions)
        return Incidence(pointers(counts), row[order])

    @cached_property
    def adjacency(self) -> nx.Graph[int]:
        """The regions as a graph; an edge carries the row of its facet, its neurons, and whether it is visible."""
        graph: nx.Graph[int] = import_module("networkx").Graph()  # dear to load, and seldom asked for
        graph.add_nodes_from(range(self.num_regions))
        for row in np.flatnonzero(~self.facets.boundary).tolist():
            a, b = self.facets.regions[row].tolist()
            neurons = tuple(self.facets.neurons[row].tolist())
            graph.add_edge(a, b, facet=row, neurons=neurons, visible=bool(self.facets.visible[row]))
        return graph

    @property
    def breakpoint_complex(self) -> IntArray:
        """Rows of the visible facets: together they are the set where the function is not differentiable."""
        return np.flatnonzero(self.facets.visible)

    @cached_property
    def ridges(self) -> Ridges:
        """Inner cells of codimension two, with the facets around them."""
        return self._ridges(ENDLESS)

    def _ridges(self, run: Run) -> Ridges:
        d = self.dimension
        deep = self._metrics[max(0, d - 2)]
        return find_ridges(self.view.net, self.structure, self.facets, deep, self._metrics[d - 1], run)

    @cached_property
    def bending(self) -> BoolArray:
        """Which of the :attr:`ridges` have a facet without a straight continuation; decided exactly."""
        straight, _ = straight_facets(self.view.net, self.structure, self.facets, self.ridges)
        if not len(self.ridges):
            return np.zeros(0, dtype=bool)
        return ~np.logical_and.reduceat(straight, self.ridges.facets.indptr[:-1])

    def balance(self) -> Balance:
        """The balancing condition around every inner ridge, with its error."""
        return balance(self.facets, self.ridges)

    # -- questions ---------------------------------------------------------------------------------------------

    def verify(self, progress: Progress | None = None, time_limit: float | None = None) -> Certificate:
        """Check everything that can be checked; see :func:`fiberscope.geometry.verify.verify`."""
        found: Certificate = import_module("fiberscope.geometry.verify").verify(self, progress, time_limit)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the complex with its network and domain to a ``.npz`` file, which :meth:`load` reads."""
        import_module("fiberscope.geometry.storage").save_complex(path, self.net, self.domain, self.structure)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Complex:
        """Read a complex from a ``.npz`` file."""
        return cls(*import_module("fiberscope.geometry.storage").read_complex(path))

    def _repr_html_(self) -> str:
        """For a notebook: a picture that answers, where there is one, and the numbers."""
        shown: str = import_module("fiberscope.explorer.view").notebook(self)
        return shown + super()._repr_html_()

    def __repr__(self) -> str:
        least = "" if self.complete else "at least "
        counts = ", ".join(map(str, self.f_vector))
        text = self.net.architecture
        text = text if len(text) <= 60 else text[:57] + "..."
        return f"Complex({least}{self.num_regions} regions of {text} on {self.domain}; f-vector {counts})"


def _norms(matrices: FloatArray) -> FloatArray:
    """Spectral norms; infinite where an entry is."""
    norms, finite = np.full(len(matrices), np.inf), np.isfinite(matrices).all(axis=(1, 2))
    norms[finite] = np.linalg.norm(matrices[finite], 2, axis=(1, 2))
    return norms
