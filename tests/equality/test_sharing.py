"""Branch and bound in several processes and on a cluster; killed runs go on from their open boxes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.equality.bounding.branching import Search
from fiberscope.equality.bounding.pairs import best_pairing
from fiberscope.equality.bounding.sharing import load_state, save_state
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.split_boxes import by_split_boxes
from fiberscope.errors import InputError
from fiberscope.network.network import Network

NET = Network.random((4, 12, 12, 1), seed=3)
RNG = np.random.default_rng(3)
OTHER = Network([w + 3e-3 * RNG.normal(size=w.shape) for w in NET.weights], NET.biases)
BOX = fs.Box.cube(4)
TOLERANCE = 0.06


@pytest.fixture(scope="module")
def here():
    found = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 120.0)
    assert found.equal is True and len(found.evidence.tree) > 100
    return found


def test_processes_give_the_same_certificate(here):
    there = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 120.0, jobs=2)
    assert there.equal is True and there.evidence.to_dict() == here.evidence.to_dict()


def test_threads_find_the_counterexample_too():
    found = fs.equivalent(NET, OTHER, BOX, 1e-3, 60.0, jobs=2, cluster="threading")
    assert found.equal is False and found.counterexample.difference > 1e-3


def test_a_cluster_that_loses_a_worker_gives_the_same_certificate(here):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        victim = next(iter(cluster.workers.values()))
        victim.process.process.terminate()
        found = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 240.0, cluster=f"dask://{address}")
    assert found.equal is True and found.evidence.to_dict() == here.evidence.to_dict()


def test_a_killed_run_goes_on_from_its_open_boxes(here, tmp_path):
    path = tmp_path / "state.json"
    question = Question.of(NET, OTHER, BOX, TOLERANCE, 120.0)
    pairing, bounder = best_pairing(question, BOX)
    search = Search(bounder, BOX.low, BOX.high)
    search.go(TOLERANCE, question.run, most=60)  # and here it was killed
    save_state(path, question, pairing, search)
    begun = len(json.loads(path.read_text())["tree"])
    assert 1 < begun < len(here.evidence.tree)
    found = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 120.0, state=path)
    assert found.equal is True and found.evidence.to_dict() == here.evidence.to_dict()


def test_a_state_of_another_question_is_refused(tmp_path):
    path = tmp_path / "state.json"
    question = Question.of(NET, OTHER, BOX, TOLERANCE, 120.0)
    by_split_boxes(question)
    save_state(path, question, *question.record.search)
    assert load_state(path, question) is not None
    with pytest.raises(InputError, match="another"):
        load_state(path, Question.of(NET, OTHER, BOX, 0.5))
    path.write_text("no JSON")
    with pytest.raises(InputError, match="something else"):
        load_state(path, question)
