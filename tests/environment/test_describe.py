"""docs/observation.md says what an agent really gets."""

from pathlib import Path

import numpy as np
import pytest

from esper.environment import FIELDS, HOST_FEATURES, SLOT_FEATURES, GrowEnv
from esper.environment.describe import ARRAYS, MASK_ARRAYS, render
from tests.environment.worlds import POINTWISE, grower, play

PAGE = Path(__file__).parents[2] / "docs" / "observation.md"


@pytest.fixture(scope="module")
def env() -> GrowEnv:
    return GrowEnv(POINTWISE)


def test_the_page_is_what_the_tables_render():
    assert PAGE.read_text() == render(), "run python -m esper.environment.describe > docs/observation.md"


def test_the_page_has_every_array_of_an_observation_with_its_shape(env):
    sizes = {"S": len(env.codec.slots), "B": len(env.codec.blueprints)}
    described = {row.name: tuple(sizes.get(size, size) for size in row.shape) for row in (*ARRAYS, *MASK_ARRAYS)}
    observation, _ = env.reset(seed=0)
    assert described == {name: array.shape for name, array in observation.items()}


def rows_of(table: str) -> list[list[str]]:
    section = render().split(f"## `{table}`")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ") and "`" in line]


@pytest.mark.parametrize("table", ["host", "slots", "blueprints"])
def test_numbers_stand_in_the_order_of_their_array(table):
    assert [row[1].strip("`") for row in rows_of(table)] == list(getattr(FIELDS, table))
    assert [int(row[0]) for row in rows_of(table)] == list(range(len(rows_of(table))))


@pytest.mark.parametrize(("table", "features"), [("host", HOST_FEATURES), ("slots", SLOT_FEATURES)])
def test_what_the_page_calls_always_measured_always_is(env, table, features):
    always = [row[-1] == "no" for row in rows_of(table)]
    assert 0 < sum(always) < len(features)
    first, _ = env.reset(seed=0)
    played = play(env, grower(("block1", "conv_light")), seed=0)
    for observation in (first, *(record["observation"] for record in played)):
        assert np.asarray(observation[f"{table}_valid"])[..., always].all()
