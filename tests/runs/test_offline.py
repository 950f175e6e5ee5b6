"""Controllers from recordings, as a user makes them; and runs that go on from them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from esper.cli import fit, main
from esper.rl import ImitationConfig, load_checkpoint
from esper.runs import Run, RunDirectory
from esper.runs.offline import Offline, OfflineConfig
from esper.telemetry import UpdateMade, effective, read_log
from tests.runs.worlds import silent, small_config, tiny_task, trained
from tests.test_cli import said_by

SMALL = ["--network.slot", "8", "--network.trunk", "16", "--network.memory", "16"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    """Three episodes of the heuristic and of random play."""
    folder = tmp_path_factory.mktemp("recording")
    words = ["--task", tiny_task(folder), "--policy", "heuristic", "random", "--episodes", "3", "--backend", "serial"]
    assert main(["record", *words, "--out", str(folder / "played"), "--quiet"]) == 0
    return folder / "played"


@pytest.mark.parametrize("method", [["imitation", "--passes", "2"], ["iql", "--steps", "3"]], ids=lambda each: each[0])
def test_a_fitted_controller_is_told_plays_and_is_gone_on_with(method, recording, tmp_path, capsys):
    """Checkpoints are ordinary policies; estimates are shown and never called results."""
    file = tmp_path / "fitted.pt"
    told = said_by(capsys, "fit", method[0], str(recording), *method[1:], *SMALL, "--out", str(file))
    assert "4 episodes of heuristic, random to learn from, 2 held out" in told
    assert "of the return, which is no result" in told
    assert "decisions repeated" in told
    assert "the end" in said_by(capsys, "play", "--policy", str(file), "--task", tiny_task(tmp_path))
    directory, _ = trained(tmp_path / "run", small_config(tmp_path, rounds=1, init=str(file)))
    begun = load_checkpoint(directory.checkpoint(0)).weights
    assert all(torch.equal(begun[name], value) for name, value in load_checkpoint(file).weights.items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to fit; usage: esper fit {ranker,keeper,imitation,iql}"),
        (["clone"], "nothing is fitted by 'clone'; usage: esper fit"),
        (["imitation"], "no recording was given"),
        (["imitation", "nowhere"], "nowhere has no recording; give what 'esper record' made"),
        (["imitation", "RECORDING", "--policies", "heuristik"], "did you mean 'heuristic'?"),
        (["imitation", "RECORDING", "--passes", "0"], "passes = 0; give a value from 1"),
        (["imitation", "RECORDING", "--held-out", "0.99"], "held_out = 0.99; give a value from 0.001 to 0.9"),
        (["iql", "RECORDING", "--expectile", "1.5"], "expectile = 1.5; give a value from 0.5 to 0.999"),
        (["iql", "RECORDING", "--network.slot", "0"], "network size slot = 0; give a whole number"),
        (["iql", "RECORDING", "--out", "."], "is a directory; give a file with --out"),
        (["iql", "RECORDING", "--out", "/dev/null/x.pt"], "cannot be written"),
    ],
)
def test_a_fit_that_cannot_be_made_exits_2_and_leaves_nothing(words, message, recording, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *(str(recording) if word == "RECORDING" else word for word in words)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_middle_of_a_fit_leaves_nothing_half_written(recording, tmp_path, monkeypatch, capsys):
    def pressed(text: str) -> None:
        if text.startswith("pass 2"):
            raise KeyboardInterrupt

    monkeypatch.setattr(fit.out, "print", pressed)
    assert main(["fit", "imitation", str(recording), *SMALL, "--out", str(tmp_path / "clone.pt")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_same_recording_and_seed_give_the_same_controller(recording):
    config = OfflineConfig(seed=3)
    found = [Offline([recording], config).imitate(ImitationConfig(passes=1), print) for _ in range(2)]
    one, other = (each.learner.network.state_dict() for each in found)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert found[0].likeness == found[1].likeness


def test_a_warm_start_goes_on_bit_for_bit_and_tells_how_far_it_is_from_where_it_began(tmp_path):
    """The frozen policy is in the checkpoint; it is resumed before and after the critic has learned alone."""
    first, _ = trained(tmp_path / "first", small_config(tmp_path, rounds=1))
    config = small_config(tmp_path, rounds=3, keep=5, init=str(first.saved()[0]))
    ppo = replace(config.ppo, anchor_weight=0.3, anchor_share=1.0, critic_updates=1)
    whole, _ = trained(tmp_path / "whole", replace(config, ppo=ppo))
    ends = load_checkpoint(whole.saved()[0])
    events = [record.event for record in effective(read_log(whole.events_file))]
    drifts = [event.anchor_kl for event in events if isinstance(event, UpdateMade)]
    assert drifts[0] == pytest.approx(0.0, abs=1e-6)
    assert all(drift > 1e-6 for drift in drifts[1:])
    for left in (0, 2):
        directory = RunDirectory.open(Path(shutil.copytree(whole.path, tmp_path / f"cut-{left}")))
        for path in directory.saved():
            if int(path.stem.removeprefix("round-")) > left:
                path.unlink()
        Run(directory, directory.config(), silent()).resume()
        again = load_checkpoint(directory.saved()[0])
        assert again.counters == ends.counters
        for part in ("weights", "anchor"):
            one, other = getattr(again, part), getattr(ends, part)
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in one), (left, part)
