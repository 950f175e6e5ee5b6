"""The examples run as a user would run them."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., list[str]]:
    """Runs an example as its command line does, in this process, which has loaded PyTorch already; what it printed."""

    def lines(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return lines


def test_the_demo_grows_well_past_its_control_and_draws_it(run, tmp_path: Path):
    lines = run("grow_digits.py", "--out", str(tmp_path / "new" / "demo.png"))
    assert sum(line.startswith("epoch ") for line in lines) == 30
    assert not any("refused" in line for line in lines)
    accuracies = [float(line.split("accuracy ")[1].split("%")[0]) for line in lines if "accuracy " in line]
    grown, control = accuracies[20:30], accuracies[-1]
    assert sum(grown) / len(grown) > 65.0
    assert control < 40.0
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_oracle_earns_more_the_more_it_finds(run):
    returns = [float(line.split()[-1]) for line in run("oracle.py", "--seeds", "1")[1:]]
    assert returns[0] == 0.0
    assert returns[-1] > 0.2


def test_ppo_learns_somebody_elses_environment(run):
    assert float(run("ppo_on_gymnasium.py", "--steps", "4000")[-1].split()[-1]) > 100.0, "a random policy has about 20"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "one"), "invalid int value: 'one'"),
        (("--out", "picture.jpeg"), "'picture.jpeg' is not the name of a .png file"),
        (("--out", "/dev/null/demo.png"), "cannot be made"),
    ],
)
def test_the_demo_says_what_is_wrong_with_an_argument_before_it_starts(arguments, message, run, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("grow_digits.py", *arguments)
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("gardener_digits.py", "of what is delivered"),
        ("gardener_tabular.py", "loaded again, the loss is the same: True"),
        ("gardener_transformers.py", "of what is delivered"),
        ("gardener_lightning.py", "harvested: "),
        ("gardener_trainer.py", "of what is delivered"),
        ("gardener_language_model.py", "with the cache it writes the same as without: True"),
    ],
)
def test_a_gardener_joins_loops_of_many_kinds(name, kept, run):
    lines = run(name)
    assert kept in lines[-1]
    assert any(" planted" in line and "0 planted" not in line for line in lines)
