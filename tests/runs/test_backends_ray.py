"""Real ray: on this machine alone, and a cluster of two machines in one."""

import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import esper
from esper.environment import GrowEnv, Splits, UnknownTask, find_task
from esper.runs import Game, Job, Played, Player, Purpose
from esper.runs.backends import BadGpus, EpisodeFailed, MissingRay, NoCluster, RayBackend, make_backend
from esper.runs.backends.ray import DifferentVersions, Origin, check_origin, resources, room
from esper.runs.backends.worker import Parcel
from esper.telemetry import WorkerReplaced
from tests.runs.test_backends import (
    GAME,
    LONG,
    Misbehaving,
    bits,
    ignore,
    jobs_of,
    reference,
    state_of,
    task,
    wait_until,
    weights,
)

__all__ = ["reference", "task", "weights"]
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra 'ray' is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def local(folder) -> Iterator[RayBackend]:
    """Two workers of ray on this machine, for all tests that need no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else they are the last to get a core of a busy machine
        with RayBackend(Game(data_dir=str(folder)), 2, LONG, player=Misbehaving) as backend:
            yield backend
    assert not import_module("ray").is_initialized()


def refuse_to_load(_: Path | None) -> Splits:
    raise AssertionError("a worker loads data")


class Provided(Player):
    """A real player of tasks that cannot load their data."""

    def env(self, task: str) -> GrowEnv:
        return self.game.build_env(replace(find_task(task), load=refuse_to_load), self.data.get(task))


class Doomed(Player):
    """A real player that takes its time on the machine that is going to be lost."""

    def play(self, job: Job) -> Played:
        folder = Path(self.game.data_dir or "")
        if import_module("ray").get_runtime_context().get_node_id() == (folder / "doomed").read_text():
            (folder / "plays").touch()
            time.sleep(60)
        return super().play(job)


def orders(*policies: str) -> list[Job]:
    return [Job("digits", seed, policy, Purpose.TRAIN) for seed, policy in enumerate(policies)]


@needs_ray
@pytest.mark.slow
def test_a_round_outlives_a_machine_of_the_cluster_bit_for_bit(task, weights, reference, tmp_path):
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    try:
        node = cluster.add_node(num_cpus=1)
        lost: list[WorkerReplaced] = []
        seen: list[int] = []

        (tmp_path / "doomed").write_text(node.node_id)

        def kill_node(played: Played) -> None:
            seen.append(played.job.seed)
            if len(seen) == 1:
                wait_until((tmp_path / "plays").exists)
                cluster.remove_node(node, allow_graceful=False)

        before = signal.getsignal(signal.SIGTERM)
        with RayBackend(Game(data_dir=str(tmp_path)), None, LONG, cluster.address, Doomed) as backend:
            assert backend.workers == 2
            played = backend.map(weights, jobs_of(task), kill_node, lost.append)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        cluster.shutdown()
    assert [bits(each) for each in played] == reference
    assert sorted(seen) == list(range(len(reference)))
    assert f"on node {node.node_id[:8]}" in lost[0].worker


@needs_ray
def test_ray_plays_bit_for_bit_what_this_process_plays_with_data_that_is_loaded_once(
    local, task, weights, reference, monkeypatch
):
    ray, stored = import_module("ray"), []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda thing: stored.append(type(thing)) or put(thing))
    with RayBackend(GAME, 2, LONG, player=Provided) as backend:
        for count in (7, 1):
            played = backend.map(weights, jobs_of(task, count), ignore, ignore)
            assert [bits(each) for each in played] == reference[:count]
    assert stored == [Parcel, list, Parcel]


@needs_ray
def test_what_families_draw_is_made_by_the_worker_that_plays_it(local, monkeypatch):
    ray, stored = import_module("ray"), []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda thing: stored.append(type(thing)) or put(thing))
    jobs = [Job(name, 5, "none", Purpose.TRAIN) for name in ("family:small", "family:small/5")]
    with RayBackend(replace(GAME, reward="solo"), 2, LONG) as backend:
        drawn, named = backend.map(None, jobs, ignore, ignore)
    assert stored == [Parcel]
    assert drawn.finished.quality == named.finished.quality


@needs_ray
def test_ray_is_asked_at_most_twice_per_episode_however_many_workers_there_are(local, monkeypatch):
    ray, calls = import_module("ray"), []
    wait = ray.wait
    monkeypatch.setattr(ray, "wait", lambda *args, **options: calls.append(args) or wait(*args, **options))
    with RayBackend(GAME, 4, LONG, player=Misbehaving) as backend:
        for count in (4, 12):
            calls.clear()
            backend.map(None, orders(*["plays"] * count), ignore, ignore)
            assert len(calls) <= 2 * count


@needs_ray
@pytest.mark.parametrize(
    ("deed", "timeout", "reason"),
    [("dies", LONG, r"was lost \(\w+\)"), ("sleeps", 1.0, "gave no answer within 1 s")],
)
def test_a_worker_of_ray_that_dies_or_sleeps_is_replaced(local, weights, monkeypatch, deed, timeout, reason):
    monkeypatch.setattr(local, "timeout", timeout)
    lost: list[WorkerReplaced] = []
    played = local.map(weights, orders("plays", f"once {deed}", "plays"), ignore, lost.append)
    assert [each.job.seed for each in played] == [0, 1, 2]
    assert [event.seed for event in lost] == [1]
    assert re.fullmatch(reason, lost[0].reason)
    pid, node = re.fullmatch(r"pid (\d+) on node (\w+)", lost[0].worker).groups()
    assert import_module("ray").nodes()[0]["NodeID"].startswith(node)
    wait_until(lambda: state_of(int(pid)) is None)


@needs_ray
def test_workers_of_ray_load_the_weights_once_a_round_and_play_with_one_thread(local, weights):
    with RayBackend(GAME, 1, LONG, player=Misbehaving) as backend:
        for rounds in (1, 2):
            played = backend.map(weights, orders(*["plays"] * 3), ignore, ignore)
            assert {each.finished.growth for each in played} == {1}
            # Ray may play in a process that was not there in the round before.
            assert all(1 <= each.finished.epochs <= rounds for each in played)


@needs_ray
def test_errors_on_ray_are_those_of_every_backend(local):
    with pytest.raises(EpisodeFailed, match=r"(?s)a worker failed:.*in play.*ZeroDivisionError"):
        local.map(None, orders("divides"), ignore, ignore)
    with pytest.raises(UnknownTask, match="did you mean 'digits'"):
        local.map(None, [Job("digts", 0, "none", Purpose.TRAIN)], ignore, ignore)


@needs_ray
def test_an_interruption_ends_what_plays_on_ray(local, folder):
    def interrupt(_: Played) -> None:
        wait_until((folder / "noted").exists)
        raise KeyboardInterrupt("Ctrl-C")

    with pytest.raises(KeyboardInterrupt, match="Ctrl-C"):
        local.map(None, orders("notes", "plays"), interrupt, ignore)
    wait_until(lambda: state_of(int((folder / "noted").read_text())) is None, seconds=5)
    assert len(local.map(None, orders("plays"), ignore, ignore)) == 1


@needs_ray
def test_ray_that_is_running_is_joined_and_left_running(local):
    with pytest.raises(NoCluster, match=r"has joined ray at .* already"):
        RayBackend(GAME, 1, LONG, "127.0.0.1:9")
    with RayBackend(GAME, None, LONG) as backend:
        assert backend.workers == 2
    assert import_module("ray").is_initialized()


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
    assert resources("cpu", 0.25) == {"num_cpus": 1}
    assert room({"CPU": 64, "GPU": 4}, resources("cuda", 0.25)) == 16
    assert room({"CPU": 8}, resources("cpu", 0)) == 8
    assert room({"CPU": 8}, resources("cuda", 0)) == 1
    for share in (-1, 2):
        with pytest.raises(BadGpus, match=f"gpus_per_worker is {share}; an episode plays on one GPU"):
            make_backend("ray", Game(), gpus_per_worker=share)
