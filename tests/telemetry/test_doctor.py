"""A run that is made ill says so while it goes on, and the doctor says it again in plain words."""

import errno
import os
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from esper.cli import main
from esper.contracts import EsperError, Kind, RansomwareSuspected, RewardHackingSuspected
from esper.growth import blueprint
from esper.rewards import Mode, TermName
from esper.rewards.modes import TERMS_OF
from esper.rl import NonFinite, load_checkpoint
from esper.runs import Quiet, Run, RunDirectory, RunState
from esper.runs.directory import status_now
from esper.telemetry import (
    KINDS,
    AnomalyConfig,
    AnomalyRaised,
    CheckpointWritten,
    DecisionMade,
    DetailChanged,
    EpisodeFinished,
    EventLog,
    GradientsSeen,
    Level,
    RewardPaid,
    RunFailed,
    RunHalted,
    RunInterrupted,
    RunResumed,
    SinkFailed,
    StepMoved,
    TelemetryConfig,
    UpdateExamined,
    UpdateMade,
    effective,
    read_log,
)
from esper.telemetry.doctor import diagnose
from esper.telemetry.sinks import SINKS
from tests.runs.worlds import silent, small_config
from tests.telemetry.cases import STARTED, UPDATE, finished, round_finished


def prepared(tmp_path, ppo=None, **changes):
    """A run that is ready to start, evaluated at its end only."""
    config = small_config(tmp_path, **{"reward": "sparse", "evaluate_every": 100, **changes})
    config = replace(config, ppo=replace(config.ppo, **(ppo or {})))
    directory = RunDirectory.create(tmp_path / "run", config)
    return directory, Run(directory, config, silent())


@pytest.fixture(scope="module")
def well(tmp_path_factory):
    """The directory of a run that nothing happened to."""
    directory, run = prepared(tmp_path_factory.mktemp("well"))
    run.start()
    return directory


def anomalies(directory):
    return [each for each in effective(read_log(directory.events_file)) if isinstance(each.event, AnomalyRaised)]


def kinds(directory):
    return {each.event.kind for each in anomalies(directory)}


def said_by_doctor(directory):
    return "\n".join(diagnose(directory).lines())


def test_a_huge_learning_rate_is_told_by_the_policy_that_moves_too_far(tmp_path):
    """R4-H1: the loop emits it, right after the update that caused it. Exploration bounds ratios from above."""
    fast = {"learning_rate": 1.0, "final_learning_rate": 1.0, "minibatches": 1}
    directory, run = prepared(tmp_path, fast, rounds=4, anomalies=AnomalyConfig(ratio_high=1.5, ratio_updates=1))
    run.start()
    assert {"kl_spike", "ratio_explosion", "ratio_collapse"} <= kinds(directory)
    records = [each.event for each in read_log(directory.events_file)]
    at = next(at for at, event in enumerate(records) if isinstance(event, AnomalyRaised) and event.kind == "kl_spike")
    cause = next(event for event in reversed(records[:at]) if not isinstance(event, AnomalyRaised))
    assert isinstance(cause, UpdateMade)
    assert records[at].figures["kl"] == cause.kl > 0.15
    said = said_by_doctor(directory)
    for kind in ("kl_spike", "ratio_explosion", "ratio_collapse"):
        assert kind in said


def test_gradients_that_grow_are_told_as_drift_although_they_are_clipped(tmp_path):
    """R4-H1."""
    directory, run = prepared(tmp_path, rounds=5, anomalies=AnomalyConfig(gradient_warmup=2))
    weight = run.learner.network.wait_score.weight
    weight.register_hook(lambda gradient: gradient * 10 ** (4 * (run.counters.round >= 3)))
    assert run.start() is RunState.FINISHED
    (drift,) = [each for each in anomalies(directory) if each.event.kind == "gradient_drift"]
    assert drift.round == 3
    assert "gradient_drift since round 4: the gradient norm before clipping is" in said_by_doctor(directory)


def pay_one_a_step(run):
    """What an update learns from: returns that are the steps left, whatever was done."""
    update = run.learner.update
    run.learner.update = lambda rows, *rest, **named: update(
        rows._replace(rewards=torch.ones_like(rows.rewards)), *rest, **named
    )


def test_a_policy_that_always_wants_the_same_is_told_by_the_head_that_collapsed(tmp_path):
    still = {"entropy_weight": 0.0, "final_entropy_weight": 0.0, "exploration": 0.0}
    directory, run = prepared(tmp_path, still, rounds=8)
    with torch.no_grad():
        run.learner.network.wait_score.bias[0] += 50.0
    run.start()
    assert "entropy_collapse" in kinds(directory)
    assert "the head 'op' has 0.0" in said_by_doctor(directory)
    assert main(["doctor", str(directory.path)]) == 1


def test_a_frozen_critic_is_told_by_its_error_and_one_that_learns_is_not(tmp_path):
    soon, rate = AnomalyConfig(value_updates=3), {"learning_rate": 3e-3, "final_learning_rate": 3e-3}
    still = {**rate, "value_weight": 0.0}
    frozen, run = prepared(tmp_path, still, rounds=11, anomalies=soon)
    with torch.no_grad():
        for parameter in run.learner.network.critic.parameters():
            parameter.zero_()
    pay_one_a_step(run)
    run.start()
    assert "value_collapse" in kinds(frozen)
    assert "value_collapse since round" in said_by_doctor(frozen)
    assert "times that of a constant" in said_by_doctor(frozen)
    (tmp_path / "other").mkdir()
    learning, run = prepared(tmp_path / "other", rate, rounds=11, anomalies=soon)
    pay_one_a_step(run)
    run.start()
    assert "value_collapse" not in kinds(learning)


def test_a_critic_with_a_weight_that_is_not_a_number_is_told_before_the_run_fails(tmp_path):
    directory, run = prepared(tmp_path)
    with torch.no_grad():
        next(run.learner.network.critic.parameters()).view(-1)[0] = float("nan")
    with pytest.raises(NonFinite, match="nan"):
        run.start()
    assert kinds(directory) == {"non_finite"}
    said = said_by_doctor(directory)
    assert "failed: NonFinite" in said
    assert "a weight or a value of the controller is not a finite number" in said
    assert "non_finite since round 1" in said


def test_a_head_with_a_weight_that_is_not_a_number_fails_with_the_doctors_word(tmp_path):
    directory, run = prepared(tmp_path)
    with torch.no_grad():
        run.learner.network.wait_score.weight[0, 0] = float("nan")
    with pytest.raises(RuntimeError, match="nan"):
        run.start()
    assert "a weight or a value of the controller is not a finite number" in said_by_doctor(directory)


def test_gradients_that_are_not_finite_are_told_from_the_first_one_on(tmp_path):
    directory, run = prepared(tmp_path, rounds=9)
    run.learner.network.wait_score.weight.register_hook(lambda gradient: gradient * float("nan"))
    assert run.start() is RunState.HALTED
    (raised,) = anomalies(directory)
    assert (raised.round, raised.event.kind) == (0, "non_finite")
    said = said_by_doctor(directory)
    assert "halted: 3 updates in a row had gradients that are not finite" in said
    assert "non_finite since round 1: " in said


def test_a_host_that_explodes_is_told_by_its_rollbacks(tmp_path):
    directory, run = prepared(tmp_path, rounds=3)
    task = Path(run.config.task[0])
    task.write_text(task.read_text().replace("\nlearning_rate = 0.01", "\nlearning_rate = 10.0"))
    run.start()
    assert "rollbacks" in kinds(directory)
    assert re.search(r"rollbacks since round \d: \d rollbacks in \d episodes", said_by_doctor(directory))


class Bomb(torch.nn.Module):
    """Nothing at first, and then everything at once."""

    def __init__(self, features):
        super().__init__()
        self.fuse = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return 1e12 * self.fuse * x


class Hostage(torch.nn.Module):
    """Turns every feature around. The host learns to live with that, and no longer without."""

    def __init__(self, features):
        super().__init__()
        self.grip = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        grip = torch.where(self.grip == 0, self.grip, 1.0 + self.grip - self.grip.detach())
        return grip * -2.0 * x


def offers_only(run, name, module, **changes):
    """The run's task has one blueprint, which is made like this, and some other settings."""
    blueprint(name, topology="dense", kind=Kind.MIX_CHANNELS)(module)
    task = Path(run.config.task[0])
    text = task.read_text().replace("[host]", f'blueprints = ["{name}"]\n[host]')
    for setting, value in changes.items():
        text = re.sub(f"{setting} = .*", f"{setting} = {value}", text)
    task.write_text(text)


def test_a_seed_that_explodes_is_told_by_its_rollbacks_and_its_gradients(tmp_path):
    directory, run = prepared(tmp_path, rounds=4, episodes=4, anomalies=AnomalyConfig(rollback_rounds=1))
    offers_only(run, "bomb", Bomb, horizon=12)
    run.start()
    assert "rollbacks" in kinds(directory)
    assert "rollbacks" in said_by_doctor(directory)
    seen = [each.event for each in read_log(directory.events_file) if isinstance(each.event, GradientsSeen)]
    seeds = [figures for event in seen for owner, figures in event.owners.items() if owner != "host"]
    assert seen, "the anomaly asked for details"
    assert max((figures.largest or 0.0) for figures in seeds) > 1e6 or sum(each.not_finite for each in seeds)


def test_a_reward_term_that_can_be_exploited_is_told_by_what_it_pays_for(tmp_path, monkeypatch):
    """A term pays for what removing a seed costs, not for what it brings: a hostage is worth its ransom."""
    monkeypatch.setitem(TERMS_OF, Mode.TWIN, (TermName.CONTRIBUTION, TermName.GAIN_OVER_TWIN))
    touchy = AnomalyConfig(ransomware_rate=0.1, hacking_rate=0.1, suspicion_rounds=1)
    directory, run = prepared(tmp_path, rounds=1, episodes=6, reward="twin", anomalies=touchy)
    offers_only(run, "hostage", Hostage, horizon=20, batch_size=64, learning_rate=0.03, widths=[8, 8])
    run.start()
    records = [each.event for each in read_log(directory.events_file)]
    assert max(event.terms["contribution"] for event in records if isinstance(event, RewardPaid)) > 0.1
    suspected = [event for event in records if isinstance(event, RansomwareSuspected | RewardHackingSuspected)]
    assert suspected
    assert {"ransomware", "reward_hacking"} & kinds(directory)
    assert "suspicions in 6 episodes" in said_by_doctor(directory)


def test_a_dead_sink_is_told_once_and_changes_nothing(tmp_path, well, monkeypatch):
    def dead(self, figures, round):
        raise ConnectionError("nobody is there")

    monkeypatch.setattr(SINKS["tensorboard"], "write", dead)
    directory, run = prepared(tmp_path, telemetry=TelemetryConfig(sinks=("tensorboard",)))
    assert run.start() is RunState.FINISHED
    failed = [each.event for each in read_log(directory.events_file) if isinstance(each.event, SinkFailed)]
    assert failed == [SinkFailed("tensorboard", "ConnectionError: nobody is there")]
    assert "sink tensorboard: ConnectionError: nobody is there: it got no more metrics" in said_by_doctor(directory)
    assert all(torch.equal(weight, weights(directory)[name]) for name, weight in weights(well).items())


def test_a_full_disk_ends_the_run_with_a_word_and_it_goes_on_once_there_is_room(tmp_path, well, monkeypatch):
    directory, run = prepared(tmp_path)
    write, room = os.write, [40_000]

    def filling(file, data):
        if room[0] < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(data)
        return write(file, data)

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(EsperError, match="No space left on device"):
        run.start()
    assert directory.state() is RunState.FAILED
    said = said_by_doctor(directory)
    assert "failed: " in said
    assert "No space left on device" in said
    assert "esper resume" in said
    room[0] = 10**9
    Run(directory, run.config, silent()).resume()
    assert all(torch.equal(weight, weights(directory)[name]) for name, weight in weights(well).items())


def test_an_anomaly_is_followed_by_details_and_then_it_is_as_before(tmp_path):
    """A run that is resumed meanwhile goes on with them."""
    brief = TelemetryConfig(escalate_rounds=2)
    directory, run = prepared(tmp_path, rounds=6, anomalies=AnomalyConfig(gradient_warmup=2), telemetry=brief)
    weight = run.learner.network.wait_score.weight
    weight.register_hook(lambda gradient: gradient * 10 ** (4 * (run.counters.round == 2)))
    run.start()
    assert [each.round for each in anomalies(directory)] == [2]
    records = list(read_log(directory.events_file))
    assert [each.round for each in records if isinstance(each.event, UpdateExamined)] == [3, 4]
    changes = [(each.round, each.event.level) for each in records if isinstance(each.event, DetailChanged)]
    assert changes == [(3, "detailed"), (5, "normal")]


def test_what_moved_most_is_kept_where_ratios_raise_an_anomaly(tmp_path):
    fast = {"learning_rate": 1.0, "final_learning_rate": 1.0, "minibatches": 1}
    directory, run = prepared(tmp_path, fast, rounds=2, anomalies=AnomalyConfig(ratio_high=1.5))
    run.start()
    records = list(read_log(directory.events_file))
    kept = [each for each in records if isinstance(each.event, StepMoved)]
    assert 0 < len(kept) <= 5 * run.config.rounds
    decided = {
        (each.round, each.episode, each.event.epoch): each.event
        for each in records
        if isinstance(each.event, DecisionMade)
    }
    for each in kept:
        assert not decided[each.round, each.event.seed, each.event.epoch].forced
    assert f"the update of round {kept[-1].round + 1} moved choice" in said_by_doctor(directory)


def test_numbers_that_are_not_finite_are_told_with_the_part_they_are_in(tmp_path):
    directory, run = prepared(tmp_path, rounds=2, telemetry=TelemetryConfig(level=Level.DETAILED))
    run.learner.network.wait_score.weight.register_hook(lambda gradient: gradient * float("nan"))
    run.start()
    assert "not finite are " in said_by_doctor(directory)
    assert "gradients of wait_score" in said_by_doctor(directory)


TOUCHY = AnomalyConfig(
    ratio_high=1.01, ratio_low=0.99, ratio_updates=2, kl_high=1e-6, gradient_warmup=1, gradient_times=1.01,
    gradient_clips=0.0, waiting_high=0.3, waiting_rounds=2, barren_rounds=4, entropy_low=0.9, entropy_clear=0.95,
    entropy_updates=4, entropy_choices=1, relief=0.5,
)  # fmt: skip


def weights(directory):
    return load_checkpoint(directory.saved()[0]).weights


def test_what_is_learned_does_not_depend_on_what_is_raised(tmp_path, well):
    touchy, run = prepared(tmp_path, anomalies=TOUCHY)
    run.start()
    assert anomalies(well) == []
    assert anomalies(touchy)
    assert all(torch.equal(weight, weights(touchy)[name]) for name, weight in weights(well).items())


class Impatient(Quiet):
    """Presses Ctrl-C when the first episode of the fourth round is over."""

    updates = 0

    def see(self, event):
        self.updates += isinstance(event, UpdateMade)
        if self.updates == 3 and isinstance(event, EpisodeFinished) and event.purpose == "train":
            raise KeyboardInterrupt


def test_a_resumed_run_raises_what_the_whole_run_raises(tmp_path):
    """Also alarms whose patience began before the interruption, and none that stood already."""
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole, run = prepared(tmp_path / "whole", rounds=6, anomalies=TOUCHY)
    run.start()
    cut, first = prepared(tmp_path / "cut", rounds=6, anomalies=TOUCHY)
    assert Run(cut, first.config, Impatient(Console(file=StringIO()))).start() is RunState.INTERRUPTED
    assert 0 < len(anomalies(cut)) < len(anomalies(whole))
    second = Run(cut, first.config, silent())
    second.resume()
    assert [(each.round, each.event) for each in anomalies(cut)] == [
        (each.round, each.event) for each in anomalies(whole)
    ]
    assert second.recorder.detector.standing == run.recorder.detector.standing
    assert len({each.event.kind for each in anomalies(whole)}) >= 4


def test_a_short_run_that_went_well_is_healthy(well, capsys):
    assert main(["doctor", str(well.path)]) == 0
    assert capsys.readouterr().out == f"{well.path}: finished, 3 of 3 rounds\nnothing looks wrong\n"


def made(tmp_path, *events, state=RunState.FINISHED, **changes):
    """A run with these events in rounds of their own."""
    directory = RunDirectory.create(tmp_path / "made", small_config(tmp_path, **changes))
    if events:
        with EventLog(directory.events_file) as log:
            log.write(STARTED, 0)
            for at, event in enumerate(events):
                log.write(event, at, 7)
    status = status_now(RunState.RUNNING if state is RunState.KILLED else state, len(events), 20)
    directory.write_status(replace(status, started=0.0) if state is RunState.KILLED else status)
    return directory


RISING = [round_finished(0.1 * at) for at in range(12)]
ENDINGS = [
    (
        RunState.KILLED,
        CheckpointWritten("round-00001.pt"),
        "killed: the process that trained it is gone",
        "esper resume",
    ),
    (RunState.FAILED, RunFailed("OSError: no room"), "failed: OSError: no room", "mend the cause, then 'esper resume"),
    (RunState.FAILED, RunFailed("ValueError: got inf"), "failed: ValueError: got inf", "lower ppo.learning_rate"),
    (RunState.HALTED, RunHalted("3 bad updates"), "halted: 3 bad updates", "the last good checkpoint is kept"),
]


@pytest.mark.parametrize(("state", "event", "what", "advice"), ENDINGS, ids=[str(each[1]) for each in ENDINGS])
def test_how_a_run_ended_is_told_with_the_way_on(tmp_path, state, event, what, advice, capsys):
    directory = made(tmp_path, event, state=state)
    assert directory.state() is state
    assert main(["doctor", str(directory.path)]) == 1
    said = capsys.readouterr().out
    assert f"\n1 thing looks wrong\n- {what}" in said
    assert advice in said


def test_a_run_without_a_status_is_told(tmp_path):
    directory = made(tmp_path, *RISING)
    directory.status_file.unlink()
    assert [each.what for each in diagnose(directory).findings] == ["unknown state"]


def test_a_live_run_is_examined_without_being_disturbed(tmp_path):
    directory = made(tmp_path, *RISING, state=RunState.RUNNING)
    with directory.locked():
        found = diagnose(RunDirectory.open(directory.path))
    assert found.healthy
    assert ": running, 12 of 20 rounds" in found.summary


def test_an_interrupted_run_is_not_ill(tmp_path):
    found = diagnose(made(tmp_path, *RISING, RunInterrupted(), state=RunState.INTERRUPTED))
    assert found.healthy
    assert any("go on with 'esper resume" in remark for remark in found.remarks)


def test_damaged_lines_are_told_unless_a_crash_explains_them(tmp_path):
    directory = made(tmp_path, *RISING)
    with directory.events_file.open("a") as file:
        file.write("half a li\n")
    assert "damaged log: 1 of 14 lines" in said_by_doctor(directory)
    with EventLog(directory.events_file) as log:
        log.write(RunResumed("round-00012.pt", ()), 12)
    found = diagnose(directory)
    assert found.healthy
    assert found.remarks == ("1 of 15 lines are damaged and were left out",)


def test_a_run_that_lost_its_events_is_told_and_one_without_is_not_ill(tmp_path):
    assert [each.what for each in diagnose(made(tmp_path)).findings] == ["no events"]
    (tmp_path / "quiet").mkdir()
    found = diagnose(made(tmp_path / "quiet", telemetry=TelemetryConfig(level=Level.OFF)))
    assert found.healthy
    assert found.remarks == ("it writes no events, so that little can be said",)


def test_a_run_whose_return_does_not_rise_is_told_with_both_ends(tmp_path):
    (tmp_path / "flat").mkdir()
    assert diagnose(made(tmp_path, *RISING)).healthy
    flat = [round_finished(0.5 + 0.1 * (at % 2)) for at in range(11)]
    (found,) = diagnose(made(tmp_path / "flat", *flat)).findings
    assert found.what == "no learning visible"
    assert "the last 5 rounds is +0.540, that of the first 5 was +0.540" in found.sentence


def test_too_few_rounds_say_nothing_about_learning(tmp_path):
    assert diagnose(made(tmp_path, *[round_finished(0.5)] * 9)).healthy


def test_a_controller_that_a_control_beats_is_told_with_both_returns(tmp_path):
    def compared(policy, total):
        return finished(policy=policy, purpose="compare", total=total)

    (tmp_path / "better").mkdir()
    controls = [compared("none", 0.4), compared("random", -0.2), compared("heuristic", 0.2)]
    (found,) = diagnose(made(tmp_path, compared("greedy", 0.3), *controls)).findings
    assert found.what == "worse than a control"
    assert "none gets +0.400 where the controller gets +0.300 (1 episode(s))" in found.sentence
    assert "heuristic" not in found.sentence
    assert diagnose(made(tmp_path / "better", compared("greedy", 0.5), *controls)).healthy


def update_with(kl):
    return replace(UPDATE, kl=kl)


def test_an_anomaly_is_told_while_it_stands_or_when_it_keeps_coming_back(tmp_path):
    for name, divergences, what in (
        ("stands", [0.01, 0.9], "kl_spike since round 2"),
        ("again", [0.9, 0.01, 0.9, 0.01], "kl_spike in 2 rounds, last in 3"),
        ("over", [0.9, 0.01], None),
    ):
        (tmp_path / name).mkdir()
        found = diagnose(made(tmp_path / name, *map(update_with, divergences)))
        assert [each.what for each in found.findings] == ([] if what is None else [what])
    assert found.remarks == ("over by now: kl_spike in round 1",)


def test_thresholds_of_the_runs_own_settings_count(tmp_path):
    directory = made(tmp_path, update_with(0.9), anomalies=AnomalyConfig(kl_high=1.0))
    assert diagnose(directory).healthy
    assert "kl_high = 1.0" in directory.config_file.read_text()


def test_a_directory_without_a_run_exits_2(tmp_path, capsys):
    assert main(["doctor", str(tmp_path / "nowhere")]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_every_remedy_names_settings_that_exist(tmp_path):
    config = small_config(tmp_path)
    for kind in KINDS.values():
        for word in kind.remedy.replace(",", " ").replace(")", " ").split():
            if word.startswith("ppo."):
                assert hasattr(config.ppo, word.removeprefix("ppo.")), word
