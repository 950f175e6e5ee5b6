"""Policies by name or by file."""

import hashlib

import pytest
import torch

from esper.contracts import EsperError
from esper.controller import (
    CONTROLS,
    SHIPPED,
    BadRanker,
    ConstantByRent,
    Heuristic,
    Learned,
    NetworkConfig,
    NoGrowth,
    RandomLegal,
    Ranker,
    Schedule,
    ScheduledSeed,
    UnknownPolicy,
    file_of,
    shipped,
    shipped_file,
)
from esper.rl import BadCheckpoint, save_checkpoint
from esper.runs import TrainConfig
from esper.runs.policies import find_policy
from esper.runs.run import new_learner

PLAN = Schedule((ScheduledSeed(3, "layer0", "mlp"),))
SMALL = TrainConfig(network=NetworkConfig(slot=8, trunk=16, memory=16))


@pytest.fixture
def learner():
    return new_learner(SMALL)


@pytest.fixture
def checkpoint(tmp_path, learner):
    path = tmp_path / "controller.pt"
    save_checkpoint(path, learner, {})
    return path


@pytest.fixture
def run(tmp_path, checkpoint):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    checkpoint.rename(tmp_path / "run" / "checkpoints" / "best.pt")
    return tmp_path / "run"


def same_weights(policy, learner):
    ours, theirs = policy.network.state_dict(), learner.network.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("none", NoGrowth), ("random", RandomLegal), ("heuristic", Heuristic), ("constant", ConstantByRent)],
)
def test_a_control_is_found_by_name_and_read_from_no_file(name, kind):
    assert type(find_policy(name)) is kind
    assert find_policy(name).name == name
    assert file_of(name) is None
    assert name in CONTROLS


def test_a_ranker_is_the_shipped_one_or_that_of_a_file(tmp_path):
    assert isinstance(find_policy("ranker"), Ranker)
    assert file_of("ranker") == shipped_file("ranker")
    mine = tmp_path / "mine.safetensors"
    mine.write_bytes(shipped_file("ranker").read_bytes())
    assert find_policy(f"ranker:{mine}").name == f"ranker:{mine}"
    assert file_of(f"ranker:{mine}") == mine
    with pytest.raises(BadRanker, match="nowhere holds no ranker"):
        find_policy("ranker:nowhere")


def test_a_schedule_is_read_from_its_file(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.to_toml())
    spec = f"schedule:{tmp_path / 'plan.toml'}"
    assert find_policy(spec) == PLAN
    assert file_of(spec) == tmp_path / "plan.toml"


def test_a_checkpoint_plays_its_likeliest_choices_and_sampled_it_draws(checkpoint, learner):
    for prefix, greedy in (("", True), ("sampled:", False)):
        spec = f"{prefix}{checkpoint}"
        policy = find_policy(spec)
        assert isinstance(policy, Learned)
        assert (policy.greedy, policy.exploration, policy.name) == (greedy, learner.config.exploration, spec)
        assert same_weights(policy, learner)
        assert file_of(spec) == checkpoint


def test_a_run_is_played_by_its_best_checkpoint(run, learner):
    assert file_of(str(run)) == file_of(f"sampled:{run}") == run / "checkpoints" / "best.pt"
    assert same_weights(find_policy(str(run)), learner)


def test_a_shipped_controller_is_found_by_name_before_any_file(checkpoint, learner, tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    checkpoint.rename(tmp_path / "weights" / "tamiyo-test.pt")
    (tmp_path / "tamiyo-test").write_bytes(b"another file of that name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped.resources, "files", lambda package: tmp_path)
    weights = (tmp_path / "weights" / "tamiyo-test.pt").read_bytes()
    monkeypatch.setitem(SHIPPED, "tamiyo-test", hashlib.sha256(weights).hexdigest())
    for spec in ("tamiyo-test", "sampled:tamiyo-test"):
        assert same_weights(find_policy(spec), learner)
    with pytest.raises(UnknownPolicy, match="no policy 'tamiyo-tset'; did you mean 'tamiyo-test'"):
        find_policy("tamiyo-tset")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("heuristik", "no policy 'heuristik'; did you mean 'heuristic'"),
        (
            "",
            "no policy ''; known: none, random, heuristic, .*the directory of a run, CHECKPOINT.pt, sampled:CONTROLLER",
        ),
        ("nowhere.pt", "known: none, random, heuristic"),
        ("sampled:none", "no policy 'sampled:none'"),
        ("sampled:sampled:x", "no policy 'sampled:sampled:x'"),
        (".", "no policy '.'"),
    ],
)
def test_what_is_neither_a_name_nor_a_file_is_answered_with_what_there_is(spec, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownPolicy, match=message):
        find_policy(spec)
    assert file_of(spec) is None


def test_a_schedule_that_is_not_there_or_wrong_is_an_error_of_its_file(tmp_path):
    with pytest.raises(EsperError, match=r"nowhere\.toml: there is no such file"):
        find_policy(f"schedule:{tmp_path / 'nowhere.toml'}")
    (tmp_path / "plan.toml").write_text("[[seed]]\n")
    with pytest.raises(EsperError, match=r"plan\.toml: it lacks 'seed 1.epoch'"):
        find_policy(f"schedule:{tmp_path / 'plan.toml'}")


def test_a_file_that_is_no_checkpoint_is_refused_by_its_name(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.to_toml())
    with pytest.raises(BadCheckpoint, match=r"plan\.toml"):
        find_policy(str(tmp_path / "plan.toml"))
