"""docs/rewards.md describes what the tables hold."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from esper.rewards import TERMS_OF, Mode, RewardConfig, TermName
from esper.rewards.potentials import PROGRESS

LINES = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text().splitlines()


def row_of(name: str) -> str:
    rows = [line for line in LINES if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1, f"docs/rewards.md has {len(rows)} rows for {name}"
    return rows[0]


@pytest.mark.parametrize("name", TermName)
def test_every_term_has_a_row(name):
    assert row_of(name)


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_has_a_row_with_its_terms(mode):
    mentioned = {name for name in TermName if f"`{name}`" in row_of(mode)}
    assert mentioned == set(TERMS_OF[mode])


@pytest.mark.parametrize("setting", fields(RewardConfig), ids=lambda setting: setting.name)
def test_every_setting_has_a_row_with_its_default_range_and_meaning(setting):
    low, high = setting.metadata["range"]
    default = "from the task" if setting.default is MISSING else f"{setting.default:g}"
    assert row_of(setting.name) == (
        f"| `{setting.name}` | {default} | {low:g} to {high:g} | {setting.metadata['meaning']} |"
    )


def test_worth_of_each_stage_is_stated():
    row = row_of(TermName.SHAPING)
    for stage, (low, high) in PROGRESS.items():
        if low > 0.0:
            slope = f" + {high - low:.1f}·alpha" if high > low else ""
            assert f"{stage.name} {low:g}{slope}" in row
