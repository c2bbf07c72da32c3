"""Every public function takes whatever ``fs.load`` takes, and refuses anything else in one line.

The tables below name every public function once. One that is new has to be entered, or the first test fails.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPRegressor
from torch import nn

import fiberscope as fs
from fiberscope.network.border import as_model, as_network, as_networks, as_torch

X = np.array([[0.25, -0.5], [1.0, 0.75], [-0.5, 0.125]])
BOX = fs.Box([-1.0, -1.0], [1.0, 1.0])
SEGMENT = fs.Segment([-1.0, -0.5], [1.0, 0.75])
PERMUTATIONS = [[2, 0, 1], [1, 0]]
Call = Callable[[Any], Any]

NET = fs.Network.random((2, 3, 2, 1), seed=3)


def _refusal(function: Call, net: Any, *arguments: Any) -> str:
    """What is said of a network whose hyperplanes are all seen, which is known only after it was read."""
    try:
        function(net, *arguments)
    except fs.InputError as error:
        if "not seen" in str(error) or "living neuron" in str(error):
            return str(error)
        raise
    raise AssertionError("a hyperplane that is seen was moved")


# name -> a question about the function or the parameters of a network; all models of one network get one answer
TAKES: dict[str, Call] = {
    "audit": lambda net: fs.audit(net, NET, BOX, data=X),
    "boundary_distance": lambda net: fs.boundary_distance(net, X),
    "canonical": fs.canonical,
    "conservation_drift": lambda net: fs.conservation_drift([NET, net]),
    "conserved_quantities": lambda net: fs.conserved_quantities(net, X),
    "curvature": lambda net: fs.curvature(net, X),
    "count_along": lambda net: fs.count_along([net, NET], fs.Circle()),
    "count_by_traversal": lambda net: fs.count_by_traversal(net, BOX),
    "count_regions": lambda net: fs.count_regions(net, BOX),
    "iter_regions": lambda net: list(fs.iter_regions(net, BOX)),
    "domain_roles": lambda net: fs.domain_roles(net, BOX),
    "equivalent": lambda net: fs.equivalent(net, NET),
    "equivalent_around": lambda net: fs.equivalent_around(net, NET, np.zeros((1, NET.in_size)), 0.1).equal,
    "estimate_regions": lambda net: fs.estimate_regions(net, BOX, samples=40, runs=2, points=10, chords=2),
    "fiber": fs.fiber,
    "deformations": fs.deformations,
    "flip": lambda net: _refusal(fs.flip, net, 0, 0, [1]),
    "fold_set": lambda net: fs.fold_set(net, BOX).pieces,
    "genericity": lambda net: fs.genericity(net, BOX),
    "identical": lambda net: fs.identical(net, NET),
    "identifiability": fs.identifiability,
    "inspect": lambda net: fs.inspect(net, points=10),
    "largest_difference": lambda net: fs.largest_difference(net, NET, BOX).high,
    "level_persistence": lambda net: fs.level_persistence(net, BOX).num_pairs,
    "level_topology": lambda net: fs.level_topology(net, BOX, 0.25),
    "load": fs.load,
    "local_identifiability": fs.local_identifiability,
    "manifold_jacobian": lambda net: fs.manifold_jacobian(net, X, [0], [[0.0, 2.0]]),
    "permute": lambda net: fs.permute(net, PERMUTATIONS),
    "projected_gradients": lambda net: fs.projected_gradients(net, SEGMENT, places=3),
    "regions": lambda net: fs.regions(net, BOX).sign_vectors,
    "regions_along": lambda net: fs.regions_along(net, SEGMENT),
    "regions_on": lambda net: fs.regions_on(net, fs.Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]])).num_regions,
    "rescale": lambda net: fs.rescale(net, [[1.0, 2.0, 4.0], None]),
    "roles": lambda net: fs.roles(net, X),
    "same_up_to_symmetry": lambda net: fs.same_up_to_symmetry(net, NET),
    "diff": lambda net: fs.diff(net, NET).to_dict(),
    "report": lambda net: sorted(fs.report(net).answers),
    "simplify": fs.simplify,
    "structural_roles": fs.structural_roles,
    "translate": lambda net: _refusal(fs.translate, net, 0, 0, 0.5),
    "translation_obstruction": lambda net: fs.translation_obstruction(net, 0, X),
    "traverse": lambda net: sorted(region.signs.tolist() for region in fs.traverse(net, BOX)),
    "visible_boundary_distance": lambda net: fs.visible_boundary_distance(net, X),
}

# further places where a network comes in
ALSO: dict[str, Call] = {
    "Fiber.connection": lambda net: fs.fiber(NET).connection(net).connected,
    "Fiber.contains": lambda net: fs.fiber(NET).contains(net).contained,
    "Fiber.path": lambda net: fs.fiber(NET).path(net) is None,
    "GeneratorCurve": lambda net: fs.GeneratorCurve(net, [0.0, 0.0], [1.0, 1.0])([0.0, 0.5]),
    "equivalent, second": lambda net: fs.equivalent(NET, net),
    "identical, second": lambda net: fs.identical(NET, net),
    "plot.fiber": lambda net: len(fs.plot.fiber([NET, net], BOX, resolution=4)),
    "plot.function": lambda net: fs.plot.function(net, BOX, resolution=4).get_xlim(),
    "roles on a domain": lambda net: fs.roles(net, BOX),
    "same_up_to_symmetry, second": lambda net: fs.same_up_to_symmetry(NET, net),
    "train_many, init": lambda net: fs.train_many(
        NET.widths, (X, X[:, :1]), [0], epochs=1, init=[net], optimizer="sgd"
    ).networks[0],
}

# name -> a question that is also asked of live modules of any kind; a torch module is taken as it stands
LIVE: dict[str, Call] = {
    "barrier": lambda net: fs.barrier(net, NET if not isinstance(net, nn.Module) else net, "mse", (X, X[:, :1]), 3),
    "chord_deviation": lambda net: fs.chord_deviation(net, net, X, points=3).worst,
    "decisive_set": lambda net: fs.decisive_set(net).X,
    "explain": lambda net: [part.dimension for part in fs.explain(net, X).parts],
    "functional_dimension": lambda net: fs.functional_dimension(net, X).exact,
    "interpolate": lambda net: as_network(fs.interpolate(net, net, 0.5)),
    "jacobian": lambda net: np.asarray(fs.jacobian(net, X)),
    "kernel_eigenfunctions": lambda net: fs.kernel_eigenfunctions(net, X, 1).num_points,
    "kernel_spectrum": lambda net: fs.kernel_spectrum(net, X, count=2),
    "learning_coefficient": lambda net: fs.learning_coefficient(net, X, chains=2, draws=4, burn_in=0).num_parameters,
    "match": lambda net: fs.match(net, net, data=X).permutations,
    "match_many": lambda net: [dict(one) for one in fs.match_many([net, net]).elements],
    "merge": lambda net: as_network(fs.merge([net, net])),
    "repair": lambda net: as_network(fs.repair(net, X, (net, net))),
    "ntk": lambda net: np.asarray(fs.ntk(net, X)),
    "permutation_structure": lambda net: [group.size for group in fs.permutation_structure(net, X).groups],
    "track": lambda net: fs.track(net, X, quantities=["regions_sampled"])(0).values,
}

# public functions that ask about no network: what their first argument is
OTHERS = {
    "align_checkpoints": "a folder",
    "answer_query": "a query",
    "apply_alignment": "a folder",
    "break_symmetry": "a module that is changed",
    "coherence": "a basis",
    "decision_boundary": "a complex",
    "deep_linear_coefficient": "widths",
    "dependency_graph": "a fold-set",
    "distance_along": "regions along a curve",
    "drift_order": "drifts",
    "effective_rank": "a kernel",
    "kernel_alignment": "a kernel",
    "effective_weights": "a module with parametrisations",
    "expected_boundary_volume": "an ensemble",
    "explore": "any number of models, which it serves",
    "first_layer": "a fold-set",
    "function_from": "a complex",
    "geodesic_distance": "a shape",
    "identifiable_construction": "widths",
    "identifiable_fraction": "widths",
    "identifiable_network": "widths",
    "lightning_callback": "a tracker",
    "list_datasets": "nothing",
    "list_studies": "a folder",
    "load_checkpoint": "a folder",
    "load_dataset": "a name",
    "load_generator": "the path of a generator",
    "merge_checkpoints": "folders",
    "mlp": "widths",
    "neuron_classes": "a layer of a module",
    "non_localisable_network": "widths",
    "read_domain": "the path of a VNN-LIB file",
    "read_query": "the path of a VNN-LIB file",
    "read_track": "the path of a record",
    "record_activations": "a module that is run",
    "recover": "a function, which may be a model",
    "record_inputs": "a module that is run",
    "region_theory": "an ensemble",
    "register_quantity": "a name",
    "relaxed_cost": "a layer of a module",
    "reproduce": "the name of a study",
    "resnet20": "a width",
    "linear_groups": "a structure",
    "rotations": "a structure",
    "show_progress": "a label",
    "tensorboard_log": "a writer",
    "theory_constants": "an ensemble",
    "train_generator": "data",
    "train_many": "widths",
    "trainer_callback": "a tracker",
    "verify": "the path of a certificate",
    "vit": "a size",
    "w_mlp": "widths",
    "wandb_log": "a run",
    "w_resnet20": "a width",
    "w_vit": "a size",
}

FILES = itertools.count()
FOLDER: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    FOLDER.append(tmp_path_factory.mktemp("border"))


def _saved(net: Any) -> fs.Network:
    path = FOLDER[-1] / f"{next(FILES)}.npz"
    fs.save(net, path)
    return fs.load(path)


TAKES["save"] = _saved


def _round(net: Any) -> str:
    """All networks here have two inputs: on a sphere the answer is that they do not fit, once they have been read."""
    try:
        fs.round_regions(net, fs.Sphere())
    except fs.InputError as error:
        if "expected one in R^2 for this network" in str(error):
            return str(error)
        raise
    raise AssertionError("a sphere in a plane")


TAKES["round_regions"] = _round


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """One network in every form."""
    folder = FOLDER[-1]
    for ending in ("onnx", "npz", "pt", "safetensors"):
        fs.save(NET, folder / f"net.{ending}")
    mlp = MLPRegressor(hidden_layer_sizes=(3, 2)).partial_fit(X, [0.0, 1.0, 2.0])
    mlp.coefs_, mlp.intercepts_ = [w.T for w in NET.weights], list(NET.biases)
    return {
        "torch module": NET.to_torch(),
        "path": folder / "net.onnx",
        "string": str(folder / "net.npz"),
        "pt": folder / "net.pt",
        "safetensors": str(folder / "net.safetensors"),
        "scikit-learn": mlp,
    }


def plain(answer: Any) -> Any:
    """An answer as nested plain data, without times and places."""
    if isinstance(answer, fs.Network):
        return [answer.input_shape, {name: value.tolist() for name, value in answer.parameters.items()}]
    if hasattr(answer, "to_dict"):
        return plain(answer.to_dict())
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items() if key not in ("seconds", "tried", "path", "sha256")}
    if isinstance(answer, list | tuple):
        return [plain(part) for part in answer]
    if isinstance(answer, np.ndarray | torch.Tensor):
        return np.asarray(answer).tolist()
    return answer if isinstance(answer, int | float | str | bool | None) else repr(answer)


def test_every_public_function_is_in_one_table() -> None:
    functions = {name for name in fs.__all__ if callable(getattr(fs, name)) and not inspect.isclass(getattr(fs, name))}
    tables = [set(TAKES), set(LIVE), set(OTHERS)]
    assert functions == set().union(*tables)
    assert sum(map(len, tables)) == len(functions)


def test_the_annotation_says_so() -> None:
    for name in TAKES.keys() - {"load"}:
        first = next(iter(inspect.signature(getattr(fs, name)).parameters.values()))
        assert "NetworkLike" in str(first.annotation), name


@pytest.mark.parametrize("name", sorted(TAKES | ALSO))
def test_every_form_of_a_network_gets_the_same_answer(name: str, models: dict[str, Any]) -> None:
    ask = (TAKES | ALSO)[name]
    expected = plain(ask(NET))
    for form, model in models.items():
        assert plain(ask(model)) == expected, form


@pytest.mark.parametrize("name", sorted(LIVE))
def test_questions_about_modules_take_everything_else_too(name: str, models: dict[str, Any]) -> None:
    ask = LIVE[name]
    expected = plain(ask(NET))
    for form, model in models.items():
        answer = plain(ask(model))
        if form != "torch module":
            assert answer == expected, form


@pytest.mark.parametrize("garbage", [3, None, np.zeros((2, 2)), {"weight": 1}, torch.zeros(2), nn.Linear, object()])
@pytest.mark.parametrize("name", sorted(TAKES | ALSO | LIVE))
def test_anything_else_is_refused_in_one_line(name: str, garbage: Any) -> None:
    if name == "track" and garbage is None:
        pytest.skip("None stands for the networks of train_many")
    if name == "GeneratorCurve" and garbage is nn.Linear:
        pytest.skip("a class is a function")
    if name == "diff" and isinstance(garbage, dict):
        pytest.skip("a mapping is a state dict, and is refused as one")
    with pytest.raises(fs.InputError) as caught:
        (TAKES | ALSO | LIVE)[name](garbage)
    message = str(caught.value)
    assert "expected a Network, a torch module, a scikit-learn MLP" in message, message
    assert message.endswith(f"got {type(garbage).__name__}"), message
    assert "\n" not in message


def test_a_list_is_needed_where_networks_are_many() -> None:
    for given in (NET, "net.onnx", 3, None):
        with pytest.raises(fs.InputError, match="expected a list of networks, got"):
            as_networks(given)  # type: ignore[arg-type]


def test_a_batch_tells_the_shape_of_an_image() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1)).double()
    images = np.random.default_rng(0).normal(size=(2, 1, 3, 3))
    with pytest.raises(fs.InputError, match="input_shape"):
        fs.count_regions(module, BOX)
    net = fs.load(module, (1, 3, 3))
    assert plain(fs.boundary_distance(module, images)) == plain(fs.boundary_distance(net, images))


def test_borders_leave_alone_what_is_right_already() -> None:
    module = NET.to_torch()
    assert as_network(NET) is NET
    assert as_model(module) is module
    assert as_torch(module) is module
    assert as_model(NET) is NET
