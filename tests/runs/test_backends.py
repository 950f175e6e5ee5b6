"""The backends that need nothing but this machine; ray has a file of its own."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from esper.contracts import EsperError
from esper.controller import ControllerNetwork, NetworkConfig, UnknownPolicy
from esper.environment import FIELDS, Split, Splits, UnknownTask
from esper.runs import Game, Job, Played, Player, Purpose
from esper.runs.backends import (
    BACKENDS,
    Backend,
    BadWorkers,
    EpisodeFailed,
    EpisodeLost,
    NoWeights,
    ProcessBackend,
    SerialBackend,
    UnknownBackend,
    make_backend,
    usable_cores,
)
from esper.runs.backends import process as process_module
from esper.telemetry import EpisodeFinished, WorkerReplaced

TASK = """
name = "tiny"
data = "spirals"
slots = ["layer0"]
horizon = 6
batch_size = 1024
learning_rate = 0.01
seed_learning_rate = 0.01

[host]
kind = "dense"
widths = [4]
"""
GAME = Game()
LONG = 120.0
POLICIES = ("learned", "greedy", "heuristic", "random", "none", "learned", "learned")


def jobs_of(task: str, count: int = len(POLICIES)) -> list[Job]:
    return [Job(task, seed, POLICIES[seed % len(POLICIES)], Purpose.TRAIN) for seed in range(count)]


def ignore(_: object) -> None:
    pass


def bits(played: Played) -> tuple[object, ...]:
    """All of it but the time that it took."""
    rows = played.sequences
    tensors = {}
    if rows is not None:
        parts = {**rows._asdict(), **rows.observation, **rows.state._asdict()}
        tensors = {name: part for name, part in parts.items() if isinstance(part, torch.Tensor)}
    content = {name: (part.dtype, part.shape, part.numpy().tobytes()) for name, part in tensors.items()}
    return played.job, replace(played.finished, seconds=0.0), played.events, content


class Quick(Player):
    """Plays no episode: `epochs` counts the weights it was given, `forced` is the process, `growth` the threads."""

    loads = 0

    def load(self, weights):
        self.loads += 1

    def play(self, job: Job) -> Played:
        finished = EpisodeFinished(
            task=job.task,
            policy=job.policy,
            purpose=job.purpose.value,
            total=0.0,
            quality=0.0,
            twin_quality=None,
            growth=torch.get_num_threads(),
            fossilized=0,
            epochs=self.loads,
            forced=os.getpid(),
            ops={},
            panic=None,
            seconds=0.0,
        )
        return Played(job, finished, (), None)


class Misbehaving(Quick):
    """Does what the job's policy says; `once` before it: only if it has not been done for this seed before."""

    def play(self, job: Job) -> Played:
        deed, once = job.policy.removeprefix("once "), job.policy.startswith("once ")
        mark = Path(self.game.data_dir or "") / f"{deed}-{job.seed}"
        if not once or not mark.exists():
            if once:
                mark.touch()
            DEEDS[deed](mark.parent)
        return super().play(job)


class Mortal(Player):
    """A real player that dies in its first try at seed 3, and leaves its number behind."""

    def play(self, job: Job) -> Played:
        grave = Path(self.game.data_dir or "") / "died"
        if job.seed == 3 and not grave.exists():
            grave.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().play(job)


class Unpicklable(EsperError):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def refuse(_: Game) -> Player:
    raise EsperError("this game has no rules")


def raises(error: Exception) -> None:
    raise error


def wait_until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


DEEDS: dict[str, Callable[[Path], object]] = {
    "dies": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda _: os._exit(7),
    "leaves": lambda _: os._exit(0),
    "sleeps": lambda _: time.sleep(1000),
    "notes": lambda folder: ((folder / "noted").write_text(str(os.getpid())), time.sleep(1000)),
    "waits": lambda folder: wait_until((folder / "go").exists),
    "divides": lambda _: 1 / 0,
    "quits": lambda _: sys.exit(1),
    "confuses": lambda _: raises(Unpicklable(1, 2)),
    "plays": lambda _: None,
}


@pytest.fixture(scope="module", autouse=True)
def _workers_start_quickly() -> Iterator[None]:
    """Players of this file are sent by name, so that every worker imports it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_module, "PRELOADED", (*process_module.PRELOADED, "pytest", __name__))
        yield


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("task") / "tiny.toml"
    path.write_text(TASK)
    return str(path)


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return ControllerNetwork(FIELDS, NetworkConfig()).state_dict()


@pytest.fixture(scope="module")
def reference(task, weights) -> list[tuple[object, ...]]:
    with SerialBackend(GAME) as backend:
        return [bits(played) for played in backend.map(weights, jobs_of(task), ignore, ignore)]


@pytest.fixture
def behaved(tmp_path) -> Iterator[ProcessBackend]:
    """Two workers that do what jobs say."""
    with ProcessBackend(Game(data_dir=str(tmp_path)), 2, LONG, Misbehaving) as backend:
        yield backend


def orders(*policies: str) -> list[Job]:
    return [Job("no-task", seed, policy, Purpose.TRAIN) for seed, policy in enumerate(policies)]


def all_at_work(backend: Backend) -> set[int]:
    """The processes of the workers, once every one of them has played."""
    pids: set[int] = set()

    def enough() -> bool:
        played = backend.map(None, orders(*["plays"] * backend.workers), ignore, ignore)
        pids.update(each.finished.forced for each in played)
        return len(pids) == backend.workers

    wait_until(enough)
    return pids


def state_of(pid: int) -> str | None:
    """The kernel's letter for what the process is doing; None if there is no such process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize("workers", [1, 3])
def test_worker_processes_play_bit_for_bit_what_this_process_plays(task, weights, reference, workers):
    with make_backend("process", GAME, workers) as backend:
        played = backend.map(weights, jobs_of(task), ignore, ignore)
    assert [bits(each) for each in played] == reference
    assert sum(len(each[2]) for each in reference) > 40
    assert sum(bool(each[3]) for each in reference) == 4


def test_workers_find_files_where_the_caller_finds_them(weights, task, monkeypatch):
    monkeypatch.chdir(Path(task).parent)
    with make_backend("process", GAME, 1) as backend:
        (played,) = backend.map(weights, [Job("tiny.toml", 0, "none", Purpose.TRAIN)], ignore, ignore)
    assert played.finished.epochs == 6


def test_a_second_round_plays_the_weights_of_the_second_round(task, weights):
    other = {name: value + 0.1 for name, value in weights.items()}
    jobs = jobs_of(task, 2)
    with SerialBackend(GAME) as serial, make_backend("process", GAME, 2) as process:
        for round_weights in (weights, other):
            expected = serial.map(round_weights, jobs, ignore, ignore)
            assert [bits(each) for each in process.map(round_weights, jobs, ignore, ignore)] == [*map(bits, expected)]


def test_data_that_is_given_plays_bit_for_bit_what_is_loaded(task, weights, reference):
    loaded = GAME.load_data(task)
    copies = (Split(split.x.clone(), split.y.clone()) for split in (loaded.train, loaded.evaluation, loaded.test))
    player = Player(replace(GAME, data_dir="nowhere"))
    player.data[task] = Splits(*copies)
    player.load(weights)
    assert bits(player.play(jobs_of(task)[0])) == reference[0]
    assert player.env(task).splits is player.data[task]


def test_playing_leaves_threads_and_random_numbers_of_the_caller_alone(task, weights):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        numbers = torch.get_rng_state()
        with SerialBackend(GAME) as backend:
            backend.map(weights, jobs_of(task, 2), ignore, ignore)
        with SerialBackend(GAME, Quick) as backend:
            (played,) = backend.map(None, orders("plays"), ignore, ignore)
        assert played.finished.growth == 1
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), numbers)
    finally:
        torch.set_num_threads(before)


def test_results_keep_the_order_of_jobs_and_are_reported_as_they_come(behaved, tmp_path):
    seen, threads = [], set()

    def done(played: Played) -> None:
        seen.append(played.job.seed)
        threads.add(threading.current_thread())
        if len(seen) == 3:
            (tmp_path / "go").touch()

    played = behaved.map(None, orders("waits", "plays", "plays", "plays"), done, ignore)
    assert [each.job.seed for each in played] == [0, 1, 2, 3]
    assert seen == [1, 2, 3, 0]
    assert threads == {threading.current_thread()}


def test_weights_are_loaded_once_a_round_by_each_worker_and_all_play_with_one_thread(behaved, weights):
    pids = all_at_work(behaved)
    for count in (1, 2):
        played = behaved.map(weights, orders(*["plays"] * 8), ignore, ignore)
        assert {(each.finished.epochs, each.finished.growth) for each in played} == {(count, 1)}
        assert {each.finished.forced for each in played} <= pids


def test_no_more_workers_are_started_than_there_are_jobs(behaved):
    assert behaved.map(None, [], ignore, ignore) == []
    behaved.map(None, orders("plays"), ignore, ignore)
    assert len(multiprocessing.active_children()) == 1


def test_a_killed_worker_is_replaced_and_the_round_is_the_same(task, weights, reference, tmp_path):
    lost: list[WorkerReplaced] = []
    with ProcessBackend(Game(data_dir=str(tmp_path)), 2, LONG, Mortal) as backend:
        played = backend.map(weights, jobs_of(task), ignore, lost.append)
    assert [bits(each) for each in played] == reference
    assert lost == [WorkerReplaced(f"pid {(tmp_path / 'died').read_text()}", "was killed by SIGKILL", 3)]


def test_a_stopped_worker_is_timed_out_and_its_episode_is_played_by_another(behaved):
    stopped = min(all_at_work(behaved))
    os.kill(stopped, signal.SIGSTOP)
    behaved.timeout = 1.0
    lost: list[WorkerReplaced] = []
    # Larger than the pipe's room, so that handing it over waits for a reader.
    heavy = {"weight": torch.zeros(1_000_000)}
    assert len(behaved.map(heavy, orders(*["plays"] * 4), ignore, lost.append)) == 4
    assert [(event.worker, event.reason) for event in lost] == [(f"pid {stopped}", "gave no answer within 1 s")]
    assert state_of(stopped) is None


def test_workers_that_die_between_rounds_cost_no_episode_an_attempt(tmp_path):
    with ProcessBackend(Game(data_dir=str(tmp_path)), 4, LONG, Misbehaving) as backend:
        for pid in all_at_work(backend):
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: state_of(pid) is None)
        assert len(backend.map(None, orders("plays"), ignore, ignore)) == 1
        assert len(backend.map(None, orders(*["plays"] * 8), ignore, ignore)) == 8


@pytest.mark.parametrize(
    ("deed", "timeout", "reason"),
    [
        ("dies", LONG, "was killed by SIGKILL"),
        ("exits", LONG, "ended with exit code 7"),
        ("sleeps", 0.5, "gave no answer within 0.5 s"),
    ],
)
def test_an_episode_that_costs_three_workers_is_given_up_by_name(behaved, deed, timeout, reason):
    behaved.map(None, orders("plays", "plays"), ignore, ignore)
    behaved.timeout = timeout
    lost: list[WorkerReplaced] = []
    with pytest.raises(EpisodeLost, match=f"'no-task' with seed 1 lost 3 workers; the last one {reason}; play"):
        behaved.map(None, orders("plays", deed), ignore, lost.append)
    assert [(event.reason, event.seed) for event in lost] == [(reason, 1)] * 3
    behaved.timeout = LONG
    assert len(behaved.map(None, orders("plays", "plays"), ignore, ignore)) == 2


def test_a_worker_that_leaves_as_if_all_were_well_is_replaced(behaved):
    lost: list[WorkerReplaced] = []
    assert len(behaved.map(None, orders("once leaves"), ignore, lost.append)) == 1
    assert [event.reason for event in lost] == ["ended with exit code 0"]


@pytest.mark.slow
def test_fifty_lost_workers_leave_no_process_and_no_open_file(behaved):
    behaved.map(None, orders("plays", "plays"), ignore, ignore)
    server = parent_of(multiprocessing.active_children()[0].pid)
    before = open_files(os.getpid()), open_files(server)
    lost: list[WorkerReplaced] = []
    jobs = [Job("no-task", seed, "once dies", Purpose.TRAIN) for seed in range(100, 150)]
    assert len(behaved.map(None, jobs, ignore, lost.append)) == 50
    assert len(lost) == 50
    assert [state_of(int(event.worker.removeprefix("pid "))) for event in lost] == [None] * 50
    behaved.map(None, orders("plays", "plays"), ignore, ignore)
    # The server closes its copies after the worker that it forked may already have played.
    wait_until(lambda: (open_files(os.getpid()), open_files(server)) == before)
    assert len(multiprocessing.active_children()) == 2


@pytest.mark.parametrize(
    ("job", "error", "message"),
    [
        (Job("digits", 0, "lerned", Purpose.TRAIN), UnknownPolicy, "no policy 'lerned'"),
        (Job("digts", 0, "none", Purpose.TRAIN), UnknownTask, "did you mean 'digits'"),
    ],
)
def test_a_mistake_is_the_same_error_in_a_worker_as_here(weights, job, error, message):
    for backend in (SerialBackend(GAME), ProcessBackend(GAME, 1, LONG)):
        with backend, pytest.raises(error, match=message):
            backend.map(weights, [job], ignore, ignore)


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("divides", "ZeroDivisionError: division by zero"),
        ("confuses", "Unpicklable: 1 and 2"),
        ("quits", "SystemExit: 1"),
    ],
)
def test_any_other_error_ends_the_round_with_the_traceback_of_the_worker(behaved, deed, message):
    started = time.monotonic()
    with pytest.raises(EpisodeFailed, match=f"(?s)a worker failed:.*in play.*{message}"):
        behaved.map(None, orders("sleeps", deed), ignore, ignore)
    assert time.monotonic() - started < 30
    assert len(behaved.map(None, orders("plays", "plays"), ignore, ignore)) == 2


def test_an_error_in_making_the_player_reaches_the_caller():
    with ProcessBackend(GAME, 2, LONG, refuse) as backend, pytest.raises(EsperError, match="this game has no rules"):
        backend.map(None, orders("plays", "plays"), ignore, ignore)


def test_closing_ends_busy_and_idle_workers_within_a_second(behaved):
    pids = all_at_work(behaved)
    started = time.monotonic()
    behaved.close()
    assert time.monotonic() - started < 1
    assert multiprocessing.active_children() == []
    assert {state_of(pid) for pid in pids} == {None}


def test_a_script_that_does_not_guard_its_start_is_told_to(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from esper.runs import Game, Job, Purpose\n"
        "from esper.runs.backends import make_backend\n"
        "with make_backend('process', Game(), 2) as backend:\n"
        "    backend.map(None, [Job('digits', 0, 'none', Purpose.TRAIN)], print, print)\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert "NoWorkers: 3 workers were lost before they started; the last one ended with exit code" in ended.stderr
    assert "must start from 'if __name__ == \"__main__\":'" in ended.stderr.splitlines()[-1]


def interrupted_then_endless(directory: str) -> None:
    """What the next test runs in a process of its own: a round that is interrupted, and one that is never finished."""
    process_module.PRELOADED = (process_module.__name__, "pytest", __name__)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell runs in the background
    with ProcessBackend(Game(data_dir=directory), 2, LONG, Misbehaving) as backend:
        try:
            backend.map(None, orders("plays", "plays", "sleeps", "sleeps"), announce(2), ignore)
        except KeyboardInterrupt:
            print("interrupted with", len(multiprocessing.active_children()), "workers left", flush=True)
        backend.map(None, orders("plays", "plays", "sleeps", "sleeps"), announce(2), ignore)


def announce(count: int) -> Callable[[Played], None]:
    """Say who the workers are when so many jobs are done."""
    pids: list[int] = []

    def done(played: Played) -> None:
        pids.append(played.finished.forced)
        if len(pids) == count:
            print(*{child.pid for child in multiprocessing.active_children()}, flush=True)

    return done


def test_interrupting_ends_the_workers_and_killing_the_parent_leaves_no_orphan(tmp_path):
    code = f"from {__name__} import interrupted_then_endless as run; run({str(tmp_path)!r})"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        first = [int(pid) for pid in parent.stdout.readline().split()]
        time.sleep(0.2)
        interrupted = time.monotonic()
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.readline() == "interrupted with 0 workers left\n"
        assert time.monotonic() - interrupted < 2
        second = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(first) == len(second) == 2
        assert set(first).isdisjoint(second)
        server = parent_of(second[0])
        os.kill(parent.pid, signal.SIGKILL)
        killed = time.monotonic()
        # The pipe ends when nobody holds it any more.
        assert "Traceback" not in parent.stderr.read()
        assert time.monotonic() - killed < 5
        for pid in (*first, *second, server):
            wait_until(lambda pid=pid: state_of(pid) in (None, "Z"), seconds=5)


def test_backends_are_found_by_name(task, weights):
    assert usable_cores() == len(os.sched_getaffinity(0))
    with make_backend("process", GAME) as backend:
        assert backend.workers == usable_cores()
    with make_backend("process", GAME, 0) as backend:
        assert backend.workers == usable_cores()
    with make_backend("serial", GAME, 1) as backend:
        assert backend.workers == 1
    with pytest.raises(UnknownBackend, match="no backend 'proces'; did you mean 'process'"):
        make_backend("proces", GAME)
    for name in BACKENDS:
        with pytest.raises(BadWorkers, match="-1 workers cannot play"):
            make_backend(name, GAME, -1)
    with pytest.raises(BadWorkers, match="'serial' has one worker, not 3"):
        make_backend("serial", GAME, 3)


@pytest.mark.parametrize("name", ["serial", "process"])
def test_a_learned_policy_is_never_played_with_weights_that_nobody_gave(name, task):
    with make_backend(name, GAME, 1) as backend, pytest.raises(NoWeights, match="policy 'learned' needs the weights"):
        backend.map(None, jobs_of(task, 1), ignore, ignore)
