"""Real ray: a cluster of two machines in one, and ray on this machine alone."""

import os
import signal
import sys
import time
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import esper
from esper.runs import Game, Job, Played
from esper.runs.backends import EpisodeFailed, MissingRay, NoCluster, RayBackend, make_backend
from esper.runs.backends.ray import DifferentVersions, Origin, check_origin
from esper.telemetry import WorkerReplaced
from tests.runs.test_backends import (
    GAME,
    LONG,
    Misbehaving,
    Slow,
    bits,
    ignore,
    jobs_of,
    orders,
    reference,
    state_of,
    task,
    weights,
)

__all__ = ["reference", "task", "weights"]
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra 'ray' is not installed")


@pytest.fixture(autouse=True)
def _not_behind_everybody_else(monkeypatch) -> None:
    """Ray's workers are the last to get a core of a busy machine, unless told otherwise."""
    monkeypatch.setenv("RAY_worker_niceness", "0")


class Together(Slow):
    """Begins when another worker begins as well, so that both have work when something happens to one of them."""

    def play(self, job: Job) -> Played:
        folder = Path(self.game.data_dir or "")
        (folder / f"present-{os.getpid()}").touch()
        end = time.monotonic() + 60
        while len(list(folder.glob("present-*"))) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        return super().play(job)


@needs_ray
def test_a_round_outlives_a_machine_of_the_cluster_bit_for_bit(task, weights, reference, tmp_path):
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    try:
        node = cluster.add_node(num_cpus=1)
        lost: list[WorkerReplaced] = []
        seen: list[int] = []

        def kill_node(played: Played) -> None:
            seen.append(played.job.seed)
            if len(seen) == 1:
                cluster.remove_node(node, allow_graceful=False)

        before = signal.getsignal(signal.SIGTERM)
        with RayBackend(Game(data_dir=str(tmp_path)), None, LONG, cluster.address, Together) as backend:
            assert backend.workers == 2
            played = backend.map(weights, jobs_of(task), kill_node, lost.append)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        cluster.shutdown()
    assert [bits(each) for each in played] == reference
    assert sorted(seen) == list(range(len(reference)))
    assert f"on node {node.node_id[:8]}" in lost[0].worker
    assert lost[0].reason.startswith("was lost (Actor")


@needs_ray
def test_ray_on_this_machine_replaces_workers_and_hands_errors_on_and_stops(tmp_path, weights):
    ray = import_module("ray")
    lost: list[WorkerReplaced] = []
    game = Game(data_dir=str(tmp_path))
    with RayBackend(game, 1, LONG, player=Misbehaving) as backend:
        played = backend.map(weights, orders("plays", "once dies", "plays"), ignore, lost.append)
        assert [each.job.seed for each in played] == [0, 1, 2]
        assert {(each.finished.epochs, each.finished.growth) for each in played} == {(1, 1)}
        assert [event.worker.split(" on ")[0] for event in lost] == [f"pid {played[0].finished.forced}"]
        assert "worker process has died" in lost[0].reason
        with pytest.raises(EpisodeFailed, match=r"(?s)a worker failed:.*in play.*ZeroDivisionError"):
            backend.map(None, orders("divides"), ignore, ignore)
        again = backend.map(weights, orders("plays"), ignore, ignore)[0].finished
        assert (again.epochs, again.forced) == (2, played[1].finished.forced)
        backend.timeout = 2.0
        played = backend.map(weights, orders("once sleeps"), ignore, lost.append)
        assert (lost[1].worker.split(" on ")[0], lost[1].reason) == (f"pid {again.forced}", "gave no answer within 2 s")
        assert played[0].finished.forced != again.forced
        assert state_of(again.forced) is None
        with pytest.raises(NoCluster, match=r"has joined ray at .* already"):
            RayBackend(game, 1, LONG, "127.0.0.1:9")
        with RayBackend(game, 1, LONG):
            pass
        assert ray.is_initialized()
    assert not ray.is_initialized()


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingRay, match=r"pip install 'esper-growth\[ray\]'"):
        make_backend("ray", GAME)


@needs_ray
def test_a_wrong_address_is_told_at_once():
    started = time.monotonic()
    with pytest.raises(NoCluster, match=r"nothing answers at '127.0.0.1:9'.*ray start --head"):
        make_backend("ray", GAME, ray_address="127.0.0.1:9")
    assert time.monotonic() - started < 15


def test_a_machine_with_other_versions_is_refused_and_another_processor_is_mentioned():
    here = Origin.here("pid 1 on node a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_origin(here)
    other = Origin("pid 1 on node b", {**here.versions, "esper": "0.0.0"}, here.instructions)
    with pytest.raises(DifferentVersions, match=rf"node b has esper 0.0.0 .* this machine esper {esper.__version__}"):
        check_origin(other)
    with pytest.warns(UserWarning, match="node c computes with AVX-9000"):
        check_origin(Origin("pid 1 on node c", here.versions, "AVX-9000"))
