"""Real ray: on this machine alone, and a cluster of two machines in one."""

import signal
import sys
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import esper
from esper.runs import Game, Job, Played, Purpose
from esper.runs.backends import BadGpus, EpisodeFailed, EpisodeLost, MissingRay, NoCluster, RayBackend, make_backend
from esper.runs.backends.ray import DifferentVersions, Origin, check_origin, resources, room
from esper.telemetry import WorkerReplaced
from tests.runs.test_backends import (
    GAME,
    LONG,
    Misbehaving,
    Slow,
    bits,
    ignore,
    jobs_of,
    reference,
    state_of,
    task,
    weights,
)

__all__ = ["reference", "task", "weights"]
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra 'ray' is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def local(folder) -> Iterator[RayBackend]:
    """One worker of ray on this machine, for all tests that need no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else they are the last to get a core of a busy machine
        with RayBackend(Game(data_dir=str(folder)), 1, LONG, player=Misbehaving) as backend:
            yield backend
    assert not import_module("ray").is_initialized()


class Storeless(Player):
    """A real player whose task would fail if it loaded its data."""

    def play(self, job: Job) -> Played:
        self.game = replace(self.game, data_dir=None)
        return super().play(job)


def orders(*policies: str) -> list[Job]:
    return [Job("digits", seed, policy, Purpose.TRAIN) for seed, policy in enumerate(policies)]


@needs_ray
def test_ray_plays_bit_for_bit_what_this_process_plays_and_workers_load_no_data(
    local, task, weights, reference, tmp_path
):
    lost: list[WorkerReplaced] = []
    with RayBackend(GAME, 2, LONG, player=Loading) as backend:
        played = backend.map(weights, jobs_of(task), ignore, lost.append)
    assert [bits(each) for each in played] == reference
    assert lost == []


@needs_ray
def test_ray_is_asked_once_per_answer(local, monkeypatch):
    ray, calls = import_module("ray"), []
    wait = ray.wait
    monkeypatch.setattr(ray, "wait", lambda *args, **options: calls.append(args) or wait(*args, **options))
    with RayBackend(GAME, 4, LONG, player=Misbehaving) as backend:
        for count in (4, 12):
            calls.clear()
            backend.map(None, orders(*["plays"] * count), ignore, ignore)
            assert len(calls) <= count


@needs_ray
def test_a_worker_of_ray_that_dies_or_sleeps_is_replaced(local, weights):
    lost: list[WorkerReplaced] = []
    played = local.map(weights, orders("plays", "once dies", "plays"), ignore, lost.append)
    assert [each.job.seed for each in played] == [0, 1, 2]
    assert {(each.finished.epochs, each.finished.growth) for each in played} == {(1, 1)}
    assert [(event.reason.split(" (")[0], event.seed) for event in lost] == [("was lost", 1)]
    again = local.map(weights, orders("plays"), ignore, ignore)[0].finished
    assert (again.epochs, again.forced) == (2, played[2].finished.forced)
    local.timeout = 2.0
    lost.clear()
    try:
        (woken,) = local.map(weights, orders("once sleeps"), ignore, lost.append)
    finally:
        local.timeout = LONG
    assert [event.reason for event in lost] == ["gave no answer within 2 s"]
    assert woken.finished.forced != again.forced
    assert state_of(again.forced) is None


@needs_ray
def test_errors_on_ray_end_the_round_as_they_do_everywhere(local):
    with pytest.raises(EpisodeFailed, match=r"(?s)a worker failed:.*in play.*ZeroDivisionError"):
        local.map(None, orders("divides"), ignore, ignore)
    with pytest.raises(EpisodeLost, match="'digits' with seed 0 lost 3 workers"):
        local.map(None, orders("dies"), ignore, ignore)
    assert len(local.map(None, orders("plays"), ignore, ignore)) == 1


@needs_ray
def test_ray_that_is_running_is_joined_and_left_running(local):
    with pytest.raises(NoCluster, match=r"has joined ray at .* already"):
        RayBackend(GAME, 1, LONG, "127.0.0.1:9")
    with RayBackend(GAME, None, LONG) as backend:
        assert backend.workers == 1
    assert import_module("ray").is_initialized()


@needs_ray
@pytest.mark.slow
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
        with RayBackend(Game(data_dir=str(tmp_path)), None, LONG, cluster.address, Slow) as backend:
            assert backend.workers == 2
            played = backend.map(weights, jobs_of(task), kill_node, lost.append)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        cluster.shutdown()
    assert [bits(each) for each in played] == reference
    assert sorted(seen) == list(range(len(reference)))


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingRay, match=r"pip install 'esper-growth\[ray\]'"):
        make_backend("ray", GAME)


@needs_ray
def test_a_wrong_address_is_told_at_once(monkeypatch):
    monkeypatch.setattr(import_module("ray"), "is_initialized", lambda: False)
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


def test_workers_ask_for_a_gpu_only_where_episodes_play_on_one():
    assert resources("cpu", 0) == {"num_cpus": 1}
    assert resources("cuda", 0) == {"num_cpus": 1, "num_gpus": 1}
    assert resources("cuda:0", 0.25) == {"num_cpus": 1, "num_gpus": 0.25}
    assert room({"CPU": 64, "GPU": 4}, resources("cuda", 0.25)) == 16
    assert room({"CPU": 8}, resources("cpu", 0)) == 8
    assert room({"CPU": 8}, resources("cuda", 0)) == 1


@pytest.mark.parametrize(
    ("device", "share", "message"),
    [
        ("cuda", 2, "gpus_per_worker is 2; an episode plays on one GPU"),
        ("cuda", -1, "gpus_per_worker is -1"),
        ("cpu", 0.5, "gpus_per_worker is 0.5, and episodes play on device 'cpu'; take device 'cuda'"),
        ("cuda:1", 0, "no device 'cuda:1'; take 'cuda'"),
    ],
)
def test_a_share_of_a_gpu_that_cannot_be_is_refused(device, share, message):
    with pytest.raises(BadGpus, match=message):
        make_backend("ray", Game(device=device), gpus_per_worker=share)
