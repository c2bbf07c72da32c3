"""fiberscope looks into the fibers of neural networks.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    # errors
    "FiberscopeError": "errors",
    "InputError": "errors",
    "NotGenericError": "errors",
    "OutOfTimeError": "errors",
    "TooLargeError": "errors",
    "UnsupportedModelError": "errors",
    # network
    "AffineMap": "network.network",
    "Inspection": "network.inspection",
    "CertifiedSigns": "numerics.signs",
    "Network": "network.network",
    "Roles": "network.roles",
    "identical": "network.comparison",
    "inspect": "network.inspection",
    "load": "network.io",
    "permute": "network.action.chain",
    "rescale": "network.action.chain",
    "roles": "geometry.ranges.domain_roles",
    "save": "network.io",
    "structural_roles": "network.roles",
    "Symmetry": "network.action.chain",
    # geometry
    "BoundaryDistance": "geometry.distances.distance",
    "Box": "geometry.domains",
    "Circle": "geometry.curves.curve",
    "Complex": "geometry.complex",
    "CurveDistance": "geometry.distances.along_curve",
    "Curve": "geometry.curves.curve",
    "CurveRegions": "geometry.curves.curve_regions",
    "domain_roles": "geometry.ranges.domain_roles",
    "Ensemble": "geometry.expectation.ensemble",
    "GeneratorCurve": "geometry.curves.generated",
    "GeneratorSurface": "geometry.surfaces.generated",
    "Law": "geometry.expectation.ensemble",
    "Mesh": "geometry.surfaces.shapes",
    "Orthant": "geometry.domains",
    "Plane": "geometry.domains",
    "Polyline": "geometry.curves.curve",
    "Polytope": "geometry.domains",
    "RegionTheory": "geometry.expectation.theory",
    "Segment": "geometry.curves.curve",
    "Space": "geometry.domains",
    "Sphere": "geometry.surfaces.shapes",
    "SurfaceRegions": "geometry.surfaces.surface_regions",
    "Torus": "geometry.surfaces.shapes",
    "Tractrix": "geometry.curves.curve",
    "VisibleDistance": "geometry.distances.nearest_visible",
    "boundary_distance": "geometry.distances.distance",
    "count_along": "geometry.curves.ensembles",
    "count_by_traversal": "geometry.engines.traversal.engine",
    "count_regions": "geometry.regions",
    "decision_boundary": "geometry.decision",
    "dependency_graph": "geometry.folds.dependency",
    "distance_along": "geometry.distances.along_curve",
    "estimate_regions": "geometry.engines.traversal.estimate",
    "expected_boundary_volume": "geometry.expectation.density",
    "fold_set": "geometry.folds.fold_set",
    "first_layer": "geometry.folds.dependency",
    "function_from": "geometry.function",
    "genericity": "geometry.folds.genericity",
    "geodesic_distance": "geometry.distances.geodesics",
    "manifold_jacobian": "geometry.expectation.density",
    "projected_gradients": "geometry.expectation.projection",
    "region_theory": "geometry.expectation.theory",
    "regions": "geometry.regions",
    "regions_along": "geometry.curves.along",
    "regions_on": "geometry.surfaces.regions_on",
    "theory_constants": "geometry.expectation.constants",
    "traverse": "geometry.engines.traversal.engine",
    "visible_boundary_distance": "geometry.distances.nearest_visible",
    # dimension
    "FunctionalDimension": "dimension.functional",
    "effective_rank": "dimension.kernel",
    "functional_dimension": "dimension.functional",
    "jacobian": "dimension.jacobian",
    "kernel_spectrum": "dimension.spectrum",
    "ntk": "dimension.kernel",
    # fibers
    "Fiber": "fibers.fiber",
    "Identifiability": "fibers.identifiability",
    "Match": "fibers.canonical.matching",
    "Simplified": "fibers.simplify.simplify",
    "canonical": "fibers.canonical.form",
    "conservation_drift": "fibers.conservation",
    "conserved_quantities": "fibers.conservation",
    "drift_order": "fibers.conservation",
    "fiber": "fibers.fiber",
    "identifiability": "fibers.identifiability",
    "identifiable_fraction": "fibers.identifiability",
    "identifiable_construction": "fibers.construction",
    "identifiable_network": "fibers.construction",
    "non_localisable_network": "fibers.non_local",
    "same_up_to_symmetry": "fibers.canonical.matching",
    "simplify": "fibers.simplify.simplify",
    "translation_obstruction": "fibers.conservation",
    # equality
    "Audit": "equality.audit",
    "Difference": "equality.diff.changes",
    "Verdict": "equality.verdict",
    "answer_query": "equality.queries",
    "audit": "equality.audit",
    "diff": "equality.diff.diff",
    "equivalent": "equality.ladder",
    "read_domain": "equality.vnnlib",
    "read_query": "equality.vnnlib",
    "verify": "equality.verify",
    # recovery
    "Recovery": "recovery.recovered",
    "recover": "recovery.recover",
    # neurons
    "NeuronClasses": "neurons.classes",
    "break_symmetry": "neurons.asymmetry",
    "coherence": "neurons.coherence",
    "neuron_classes": "neurons.classes",
    "relaxed_cost": "neurons.relaxed",
    "w_mlp": "neurons.asymmetric_models",
    "w_resnet20": "neurons.asymmetric_models",
    "w_vit": "neurons.asymmetric_models",
    # modules
    "effective_weights": "modules.parametrisations",
    "mlp": "modules.models",
    "record_activations": "modules.recording",
    "record_inputs": "modules.recording",
    "resnet20": "modules.models",
    "vit": "modules.models",
    # connectivity
    "Aligned": "connectivity.checkpoints.align",
    "Barrier": "connectivity.barrier",
    "Matching": "connectivity.matching",
    "Matchings": "connectivity.consensus",
    "Structure": "connectivity.structure",
    "align_checkpoints": "connectivity.checkpoints.align",
    "apply_alignment": "connectivity.checkpoints.align",
    "barrier": "connectivity.barrier",
    "chord_deviation": "connectivity.chords",
    "interpolate": "connectivity.paths",
    "load_checkpoint": "connectivity.checkpoints.align",
    "match": "connectivity.matching",
    "match_many": "connectivity.consensus",
    "merge": "connectivity.merging",
    "merge_checkpoints": "connectivity.checkpoints.align",
    "permutation_structure": "connectivity.structure",
    "repair": "connectivity.repair",
    # pages
    "Exploration": "explorer.view",
    "Report": "reporting.report",
    "report": "reporting.report",
    # training and studies
    "Claim": "studies.lab.study",
    "Dataset": "training.datasets.dataset",
    "Finding": "studies.lab.study",
    "Parametrisation": "training.plan",
    "Picture": "studies.lab.study",
    "Study": "studies.lab.study",
    "TrainedGenerator": "training.generators",
    "list_datasets": "training.datasets.loading",
    "list_studies": "studies.lab.runner",
    "load_dataset": "training.datasets.loading",
    "load_generator": "training.generators",
    "read_track": "training.track",
    "register_quantity": "training.quantities",
    "reproduce": "studies.lab.runner",
    "track": "training.track",
    "train_generator": "training.generators",
    "train_many": "training.seeds",
}
_SUBPACKAGES = (
    "connectivity",
    "dimension",
    "equality",
    "errors",
    "explorer",
    "fibers",
    "geometry",
    "modules",
    "network",
    "neurons",
    "numerics",
    "plot",
    "recovery",
    "reporting",
    "studies",
    "testing",
    "training",
)

__all__ = ["__version__", *_NAMES]  # noqa: PLE0604  # the names are the keys of the table above


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"fiberscope.{_NAMES[name]}"), name)
    if name in _SUBPACKAGES:
        return import_module(f"fiberscope.{name}")
    raise AttributeError(f"module 'fiberscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
