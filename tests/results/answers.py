"""One answer of every kind that the library gives, by the name of its class: the laws of results run over them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import fiberscope as fs
from fiberscope.connectivity.checkpoints.align import Aligned
from fiberscope.connectivity.selfcheck import Drift as OutputDrift
from fiberscope.dimension.functional import functional_dimension
from fiberscope.equality.bottlenecks.transport import Transport
from fiberscope.equality.bounding.pairs import Pairing
from fiberscope.equality.bounding.phases import Leaf
from fiberscope.equality.roundings import RoundingInputs
from fiberscope.equality.rungs.bottleneck import TailsDiffer, Transported
from fiberscope.equality.rungs.identical import SameProgram
from fiberscope.equality.rungs.normal_form import FormsDiffer, NormalForms
from fiberscope.equality.rungs.output_ranges import OutputRanges
from fiberscope.equality.rungs.regions import RegionCount
from fiberscope.equality.rungs.simplification import CarriedSimplified
from fiberscope.equality.rungs.split_boxes import SplitBoxes
from fiberscope.equality.rungs.split_neurons import SplitNeurons
from fiberscope.equality.rungs.structure import LayerOrder
from fiberscope.fibers.conservation import Block
from fiberscope.fibers.construction import Chains
from fiberscope.fibers.membership import Membership
from fiberscope.fibers.one_layer.layer import Hyperplane, OneLayer
from fiberscope.fibers.one_layer.realisations import cells
from fiberscope.fibers.theorems import KnownSymmetry
from fiberscope.geometry.decision import decision_boundary
from fiberscope.geometry.distances.geodesics import geodesic_distance
from fiberscope.geometry.engines.planar.engine import planar_count
from fiberscope.geometry.folds.conditions import Condition
from fiberscope.geometry.folds.fold_set import truncated_fold_sets
from fiberscope.geometry.folds.masked_ranks import MaskedRanks, RankFailure
from fiberscope.modules.action import Axis, Loop
from fiberscope.modules.recording import record_inputs
from fiberscope.modules.tracing.groups import Pinned
from fiberscope.network.action.element import Element, Monomial
from fiberscope.network.source import Source
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.exactness import exactness
from fiberscope.neurons.features import feature_change, least_error
from fiberscope.numerics.grids import Grid
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.numerics.points import solve_point
from fiberscope.numerics.rank import exact_rank, numerical_rank
from fiberscope.recovery.unresolved import Unresolved
from fiberscope.reporting.archive import ArchiveCheck
from fiberscope.studies.lab.runner import StudyInfo, StudyResult, TaskFailure
from fiberscope.studies.lab.study import Task
from fiberscope.studies.lab.study import Verdict as StudyVerdict
from fiberscope.studies.lab.table import Table
from fiberscope.training.seeds import Failure
from fiberscope.training.track import Overhead

NAN, INF = float("nan"), float("inf")
X = np.array([[0.25, -0.5], [1.0, 0.75], [-0.5, 0.125], [0.75, 0.5]])
BOX = fs.Box([-1.0, -1.0], [1.0, 1.0])
NET = fs.Network.random((2, 4, 3, 2), seed=3)
LINE = fs.Network.random((2, 3, 1), seed=1)
DATA = (X, np.array([0, 1, 0, 1]))


@cache
def changed() -> fs.Difference:
    return fs.diff({"w": np.ones((2, 2))}, {"w": np.array([[1.0, 1.5], [2.0, 2.5]]), "b": np.zeros(2)})


@cache
def complex_() -> fs.Complex:
    return fs.regions(NET, BOX)


@cache
def classes() -> NeuronClasses:
    torch.manual_seed(0)
    layer = nn.Linear(5, 4).double()
    broken = fs.break_symmetry(nn.Sequential(layer), "w", fixed=2)
    return fs.neuron_classes(broken[0], np.random.default_rng(0).normal(size=(40, 5)))


@cache
def squashed() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.Tanh())


def generator() -> fs.Network:
    return fs.Network.random((2, 3, 2), seed=8)


@cache
def smooth() -> Any:
    def circle(Z: Any) -> Any:
        return np.concatenate([np.cos(3 * Z), np.sin(3 * Z)], axis=1)

    return fs.regions_along(NET, fs.GeneratorCurve(circle, [0.1], [2.1], points=5))


@cache
def theory() -> Any:
    ensemble = fs.Ensemble.of((2, 4, 1))
    return fs.region_theory(ensemble, fs.Circle(), networks=3, samples=200)


@cache
def estimate() -> Any:
    return fs.estimate_regions(NET, BOX, samples=40, runs=2, points=10, chords=2)


@cache
def dimension() -> fs.FunctionalDimension:
    return functional_dimension(LINE, X)


@cache
def fold_set() -> Any:
    return fs.fold_set(NET, BOX)


@cache
def visible() -> Any:
    return fs.visible_boundary_distance(NET, X)


@cache
def cell() -> Any:
    return next(iter(cells(OneLayer([[1.0], [1.0]], [0.0, -1.0], [[1.0, -1.0]], [0.0], False))))


@cache
def verdict() -> Any:
    return fs.equivalent(NET, fs.permute(NET, [[1, 0, 3, 2], [2, 0, 1]]))


@cache
def different() -> Any:
    return fs.equivalent(NET, fs.Network.random((2, 4, 3, 2), seed=4))


@cache
def audit() -> Any:
    return fs.audit(NET, fs.Network.random((2, 4, 3, 2), seed=4), BOX, data=X)


def query() -> Any:
    text = """(vnnlib-version <2.0>)
(declare-network f (declare-input X_f real [2]) (declare-output Y_f real [2]))
(declare-network g (declare-input X_g real [2]) (declare-output Y_g real [2]))
(assert (and (>= X_f[0] -1) (<= X_f[0] 1) (>= X_f[1] -1) (<= X_f[1] 1)))
(assert (== X_f[0] X_g[0]))(assert (== X_f[1] X_g[1]))
(assert (or (> Y_g[0] (+ Y_f[0] 0.5)) (< Y_g[0] (- Y_f[0] 0.5)) (> Y_g[1] (+ Y_f[1] 0.5)) (< Y_g[1] (- Y_f[1] 0.5))))
"""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "query.vnnlib").write_text(text)
        return fs.answer_query(fs.read_query(f"{folder}/query.vnnlib"), NET, fs.Network.random((2, 4, 3, 2), seed=4))


@cache
def replay() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        verdict().save(Path(folder) / "proof.json")
        return fs.verify(Path(folder) / "proof.json")


def transport() -> Transport:
    return Transport((1, 0), np.array([1.0, 2.0]), (0,), 1, Fraction(1, 3))


@cache
def study() -> StudyResult:
    table = Table(("task", "x"), (("a", 0.5), ("b", NAN)))
    verdict = StudyVerdict("first", "numbers grow", "figure 1", None, "too few <runs>")
    failure = TaskFailure("k", {"n": 1}, 3, "ValueError: no")
    folder = Path("studies") / "here"
    return StudyResult(
        "name", "quick", folder, {"version": "1"}, table, table, (verdict,), (failure,), ("a",), 1, 1, 0.5
    )


@cache
def runs() -> Any:
    return fs.train_many((2, 3, 1), (X, X[:, :1]), [0, 1], epochs=2, checkpoints=[1])


def _polyhedron() -> Polyhedron:
    return Polyhedron([[3.0]], [1.0])


@cache
def chords() -> Any:
    a, b = (fs.Network.random((2, 4, 2), seed=s).to_torch() for s in (0, 1))
    return fs.chord_deviation(a, b, (X, torch.tensor(DATA[1])), loss="cross_entropy", points=3)


@cache
def matching() -> Any:
    return fs.match(NET, fs.permute(NET, [[1, 0, 3, 2], [2, 0, 1]]), data=X)


@cache
def barrier() -> Any:
    return fs.barrier(NET, fs.Network.random((2, 4, 3, 2), seed=4), "cross_entropy", DATA, 3)


@cache
def record() -> Any:
    return fs.track(LINE.to_torch(), X, quantities=["weight_norms"])(0)


Maker = Callable[[], Any]
ANSWERS: dict[str, Maker] = {
    # numerics
    "CertifiedSigns": lambda: NET.signs(X),
    "ExactPoint": lambda: solve_point(np.array([[3.0, 1.0]])),
    "ExactRank": lambda: exact_rank(np.eye(2)),
    "Feasibility": lambda: _polyhedron().interior(),
    "LPAnswer": lambda: _polyhedron().maximize([1.0], exact=True),
    "NumericalRank": lambda: numerical_rank(np.eye(2)),
    # network
    "AffineMap": lambda: NET.affine_at([0.25, -0.5]),
    "Inspection": lambda: fs.inspect(NET, points=10),
    "LayerSummary": lambda: fs.inspect(NET, points=0).layers[0],
    "Roles": lambda: fs.roles(NET, X),
    "Source": lambda: Source("float32", Path("a") / "b.onnx", "0" * 64),
    # modules
    "Moments": lambda: record_inputs(LINE.to_torch(), None, X)["0"],
    "Axis": lambda: matching().structure.groups[0].axes[0],
    "Axis of copies": lambda: Axis("weight", 0, 4, copies=(Loop(1, 3),), power=-1),
    "Group": lambda: matching().structure.groups[0],
    "Monomial": lambda: Monomial([[1, 0]], [[2.0, 4.0]], ["heads"]),
    "Pinned": lambda: Pinned("linear.weight", 0, 3, "it is <read>"),
    # geometry
    "Balance": lambda: complex_().balance(),
    "BoundaryDistance": lambda: fs.boundary_distance(NET, X),
    "Certificate": lambda: complex_().verify(),
    "Check": lambda: complex_().verify().checks[0],
    "ChordDensity": lambda: estimate().chords,
    "Complex": complex_,
    "Condition": lambda: Condition(None, "one <region>", reasons=("a < b",)),
    "Constants": lambda: theory().constants,
    "CurveCounts": lambda: fs.count_along([NET], fs.Circle()),
    "CurveDistance": lambda: fs.distance_along(fs.regions_along(NET, fs.Circle()), [0.5, 1.0]),
    "CurveRegions": lambda: fs.regions_along(NET, fs.Circle()),
    "DecisionBoundary": lambda: decision_boundary(complex_()),
    "LevelPersistence": lambda: fs.level_persistence(NET, BOX),
    "LevelTopology": lambda: fs.level_topology(NET, BOX, 0.25),
    "Ensemble": lambda: theory().ensemble,
    "ExpectedVolume": lambda: theory().expected,
    "Facet": lambda: next(iter(fs.traverse(NET, BOX))).facets[0],
    "Facets": lambda: complex_().facets,
    "FirstLayer": lambda: fs.first_layer(fold_set()),
    "FoldSet": fold_set,
    "GeneratorCurveRegions": lambda: fs.regions_along(NET, fs.GeneratorCurve(generator(), [0.0, 0.0], [1.0, 1.0])),
    "GeneratorSurfaceRegions": lambda: fs.regions_on(NET, fs.GeneratorSurface(generator(), [0, 0], [1, 0], [0, 1])),
    "Genericity": lambda: fs.genericity(NET, BOX),
    "GeodesicDistance": lambda: geodesic_distance(fs.Sphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]),
    "MaskedRanks": lambda: MaskedRanks(3, (RankFailure(0, 1, ((0,), (1, 2)), 1, 2),), False),
    "Measured": lambda: theory().measured,
    "Piece": lambda: fold_set().pieces[0],
    "PlanarCount": lambda: planar_count(NET, BOX),
    "ProjectedGradients": lambda: fs.projected_gradients(NET, fs.Circle(), places=3),
    "Proven": lambda: fs.regions_along(NET, fs.GeneratorCurve(squashed(), [0.0, 0.0], [1.0, 1.0])).proven,
    "RankFailure": lambda: RankFailure(0, 1, ((0,), (1, 2)), 1, 2),
    "Refinement": lambda: smooth().refinement[0],
    "VisitedRegion": lambda: next(iter(fs.traverse(NET, BOX))),
    "Region of a complex": lambda: complex_().region(0),
    "RegionBatch": lambda: next(fs.iter_regions(NET, BOX)),
    "RegionCount": lambda: fs.count_by_traversal(NET, BOX),
    "RegionEstimate": estimate,
    "RegionTheory": theory,
    "Richness": lambda: estimate().richness,
    "Curvature": lambda: fs.curvature(fs.Sphere(), [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "RoundRegions": lambda: fs.round_regions(fs.Network.random((3, 4, 1), 0), fs.Sphere()),
    "SurfaceRegions": lambda: fs.regions_on(NET, fs.Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]])),
    "Tiling": lambda: fs.count_regions(NET, BOX, jobs=1).tiling,
    "Truncation": lambda: truncated_fold_sets(complex_(), 2),
    "VisibleDistance": visible,
    # dimension
    "Bound": lambda: dimension().bounds[0],
    "DecisiveSet": lambda: fs.decisive_set(NET),
    "KernelDecomposition": lambda: fs.explain(NET, X),
    "KernelPart": lambda: fs.explain(NET, X).parts[0],
    "FunctionalDimension": dimension,
    "HiddenSymmetry": lambda: dimension().symmetry,
    "KernelEigenfunctions": lambda: fs.kernel_eigenfunctions(LINE, X, 1),
    "KernelSpectrum": lambda: fs.kernel_spectrum(LINE, X, count=2),
    "LearningCoefficient": lambda: fs.learning_coefficient(LINE, X, chains=2, draws=4, burn_in=0),
    "LayerActivity": lambda: dimension().symmetry.layers[0],
    # fibers
    "Assignment": lambda: cell().assignment,
    "Block": lambda: Block(1, (0, 2), np.eye(2)),
    "Cell": cell,
    "Chains": lambda: Chains(1, 2, (0, 3), 1, 4),
    "Component": lambda: fs.fiber(NET).components[0],
    "Conserved": lambda: fs.conserved_quantities(LINE, X),
    "Construction": lambda: fs.identifiable_construction((2, 2, 1), fs.Box.cube(2), seed=0),
    "DomainRoles": lambda: fs.domain_roles(NET, BOX),
    "Drift": lambda: fs.conservation_drift([LINE, LINE]),
    "DriftOrder": lambda: fs.drift_order({0.1: 0.02, 0.05: 0.01}),
    "Fiber": lambda: fs.fiber(NET),
    "Hyperplane": lambda: Hyperplane(np.ones(2), 0.5, (0, 1), (True, False), np.array([1.0]), True),
    "Identifiability": lambda: fs.identifiability(NET),
    "IdentifiableFraction": lambda: fs.identifiable_fraction((2, 2, 1, 1)),
    "KnownSymmetry": lambda: KnownSymmetry("dead", 1, (0, 2), 1, True, "neuron <0> is dead"),
    "Deformation": lambda: fs.deformations(fs.Network.random((1, 3, 2, 1), 0)).families[0],
    "Deformations": lambda: fs.deformations(fs.Network.random((1, 3, 2, 1), 0)),
    "LocalIdentifiability": lambda: fs.local_identifiability(fs.Network.random((2, 3, 2, 1), 0), BOX),
    "Stratum": lambda: fs.fiber(LINE).topology().strata[0],
    "Topology": lambda: fs.fiber(LINE).topology(),
    "Match": lambda: fs.same_up_to_symmetry(NET, fs.Network.random((2, 4, 3, 2), seed=4)),
    "Membership": lambda: Membership(None, "a < b"),
    "NonLocal": fs.non_localisable_network,
    "Obstruction": lambda: fs.translation_obstruction(NET, 0, X),
    "Symmetry": lambda: fs.same_up_to_symmetry(NET, NET).symmetry,
    # equality
    "Carried": lambda: verdict().evidence,
    "CarriedSimplified": lambda: CarriedSimplified(verdict().evidence),
    "Counterexample": lambda: different().counterexample,
    "FormsDiffer": FormsDiffer,
    "Change": lambda: changed().layers[0],
    "Difference": changed,
    "Grid": lambda: Grid(0.25, 3, 8),
    "LayerOrder": lambda: LayerOrder((1, 0)),
    "Audit": audit,
    "DataAgreement": lambda: audit().data,
    "Model": lambda: replay().models[0],
    "QueryAnswer": query,
    "NormalForms": lambda: NormalForms((np.array([1, 0]), np.array([-1, 1])), 2, 0),
    "Interval": lambda: fs.Interval(0.25, 0.5, np.zeros(2)),
    "OutputRanges": OutputRanges,
    "SplitBoxes": lambda: SplitBoxes(((0, 0.5), None, None), Pairing()),
    "SplitNeurons": lambda: SplitNeurons(0, (((Leaf(((0, 1, 0.5),), ()),),), ((Leaf((), ()),),))),
    "RoundingInputs": lambda: RoundingInputs((0, 2), "quantisers"),
    "VerdictsAround": lambda: fs.VerdictsAround((verdict(), different()), 0.5),
    "RegionCount of equality": lambda: RegionCount(3),
    "Replay": replay,
    "SameProgram": SameProgram,
    "Simplified": lambda: fs.simplify(fs.Network([[[1.0], [0.0]], [[1.0, 1.0]]], [[0.0, -1.0], [0.0]])),
    "TailsDiffer": TailsDiffer,
    "Transport": transport,
    "Transported": lambda: Transported(transport()),
    "Verdict": verdict,
    "Verdict of a difference": different,
    # recovery
    "Recovery": lambda: fs.recover(LINE, (2, 3, 1)),
    "Unresolved": lambda: Unresolved(2, 3, "it is <dead>"),
    # neurons
    "CheapestPermutation": lambda: classes().cheapest_permutation(),
    "Concentration": lambda: classes().concentration(),
    "Exactness": lambda: exactness(classes(), np.random.default_rng(0).normal(size=(40, 5))),
    "Gap": lambda: classes().gaps[0],
    "JointCost": lambda: classes().joint_cost([1, 0, 2, 3], [0, 1, 2, 3, 4]),
    "LayerChord": lambda: chords().layers[0],
    "NeuronClasses": classes,
    "ReindexingCosts": lambda: classes().reindexing_costs(),
    "RelaxedCosts": lambda: fs.relaxed_cost(
        (np.zeros((2, 3)), np.ones((2, 3)), np.eye(2, 3)), np.eye(3), beta=0.1, steps=5
    ),
    "Sensitivity": lambda: classes().swap_sensitivities(),
    "Smallest": lambda: classes().smallest_output_cost(),
    "Subspace": lambda: classes().subspace,
    "SwapTerms": lambda: classes().swap_terms(),
    # connectivity
    "Barrier": barrier,
    "ChordDeviation": chords,
    "Drift of outputs": lambda: OutputDrift("linear0", NAN, 1e-6),
    "GroupObjective": lambda: matching().objectives[0],
    "Matching": matching,
    "Aligned": lambda: Aligned(Path("c"), (2.0, 1.0), 3, 4, 0.5, None, None, Element({})),
    "Matchings": lambda: fs.match_many([NET, NET]),
    "FeatureChange": lambda: feature_change([[1.0, 0.0]], [[0.0, 1.0]]),
    "LeastError": lambda: least_error([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0]),
    "Rotations": lambda: fs.rotations(matching().structure),
    "PathValues": lambda: barrier().loss,
    "Structure": lambda: matching().structure,
    # pages
    "Report": lambda: fs.report(fs.Network.random((2, 2, 1), 0)),
    # training and studies
    "Dataset": lambda: fs.Dataset("toy", X, X[:, :1]),
    "Failure": lambda: Failure(1, 2, "the loss"),
    "Overhead": lambda: Overhead(0.5, 0.25, 3),
    "Record": record,
    "ArchiveCheck": lambda: ArchiveCheck(3, ("gap-rate",), (), ("a.csv: damaged",)),
    "StudyInfo": lambda: StudyInfo("a", "b", "c", "d", {"quick": 1}, {"quick": 0.5}, {"quick": "-"}, {"n": (1, 2)}),
    "StudyResult": study,
    "Table": lambda: study().table,
    "Task": lambda: Task("a", {"n": 1}, 3),
    "TaskFailure": lambda: study().failures[0],
    "TrainedGenerator": lambda: fs.train_generator(
        np.random.default_rng(0).random((8, 2, 2)), latent=1, widths=(2,), epochs=1
    ),
    "TrainingRuns": runs,
    "Verdict of a study": lambda: study().verdicts[0],
}
