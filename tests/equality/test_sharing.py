"""Branch and bound in several processes and on a cluster; killed runs go on from their open boxes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.equality.bounding import sharing
from fiberscope.equality.bounding.branching import Search
from fiberscope.equality.bounding.chains import Bounds
from fiberscope.equality.bounding.pairs import best_pairing
from fiberscope.equality.bounding.sharing import load_state, save_state
from fiberscope.equality.bounding.trees import leaves
from fiberscope.equality.question import Question
from fiberscope.equality.rungs import split_boxes
from fiberscope.equality.rungs.split_boxes import by_split_boxes
from fiberscope.errors import InputError
from fiberscope.network.network import Network

NET = Network.random((4, 12, 12, 1), seed=3)
RNG = np.random.default_rng(3)
OTHER = Network([w + 3e-3 * RNG.normal(size=w.shape) for w in NET.weights], NET.biases)
BOX = fs.Box.cube(4)
TOLERANCE = 0.06


@pytest.fixture(scope="module", autouse=True)
def soon():
    """A pair as small as this one would be decided by the first few boxes, before there is anything to share."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_PROBE", "_MANY", "_MORE"):
            patch.setattr(split_boxes, name, 4)
        yield


@pytest.fixture
def shared(monkeypatch):
    """What was shared out, to see that something was."""
    rounds, share_out = [], sharing.share_out
    monkeypatch.setattr(sharing, "share_out", lambda *given: (rounds.append(given), share_out(*given))[1])
    return rounds


@pytest.fixture(scope="module")
def here(soon):
    found = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 120.0)
    assert found.equal is True and len(found.evidence.tree) > 100
    return found


def test_processes_give_the_same_certificate(here, shared):
    there = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 120.0, jobs=2)
    assert shared
    assert there.equal is True and there.evidence.to_dict() == here.evidence.to_dict()


def test_threads_find_the_counterexample_too():
    found = fs.equivalent(NET, OTHER, BOX, 1e-3, 60.0, jobs=2, cluster="threading")
    assert found.equal is False and found.counterexample.difference > 1e-3


def test_a_cluster_that_loses_a_worker_gives_the_same_certificate(here, shared):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        victim = next(iter(cluster.workers.values()))
        victim.process.process.terminate()
        found = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 240.0, cluster=f"dask://{address}")
    assert shared
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


def test_the_state_is_written_while_boxes_are_elsewhere(here, tmp_path, monkeypatch):
    """And not only at the end: what is killed has something to go on from."""
    path, kept = tmp_path / "state.json", []
    save = sharing.save_state

    def seen(where, *search):
        save(where, *search)
        kept.append(path.read_text())

    monkeypatch.setattr(sharing, "save_state", seen)
    monkeypatch.setattr(sharing, "SECONDS", 1e-3)
    found = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 60.0, state=path, jobs=2, cluster="threading")
    assert found.equal is True and len(kept) > 1
    path.write_text(kept[0])
    assert len(json.loads(kept[0])["tree"]) > 1
    again = fs.equivalent(NET, OTHER, BOX, TOLERANCE, 60.0, state=path)
    assert again.evidence.to_dict() == here.evidence.to_dict()


def test_a_box_that_a_worker_cannot_split_stays_open():
    """It was handed back as proven."""

    class Rigid:
        def bounds(self, low, high):
            count = len(low)
            dimension = np.where(high[:, 0] - low[:, 0] > 0.3, 0, -1)
            bound = np.where(low[:, 0] == 0, 1.0, 0.25)
            return Bounds(bound, dimension, np.zeros(count, dtype=np.int64), low)

    class Pairing:
        def bounder(self, question):
            return Rigid()

    question = Question.of(NET, OTHER, BOX, 0.5, 10.0)
    task = sharing.OpenBox("0", question, Pairing(), np.zeros(4), np.ones(4), 0.5, 5.0)
    part = sharing.explored(task)
    lows, _ = leaves(part.tree, task.low, task.high)
    assert len(lows) == 3 and [bool(bound > 0.5) for bound in part.high] == [bool(x == 0) for x in lows[:, 0]]
    whole = Search(Rigid(), task.low, task.high)
    (entry,) = whole.take(1, 0.5)
    sharing._joined(question, whole, entry, part)
    assert whole.bound == 1.0 and whole.go(0.5, question.run) is False and whole.bound == 1.0
