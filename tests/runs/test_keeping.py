"""What recorded episodes teach about keeping a seed."""

import math

import pytest

from esper.contracts import Op
from esper.controller import rent_in, size_in
from esper.environment import FIELDS
from esper.runs import Game, Job, Player, Purpose
from esper.runs.keeping import fit_keeping, kept_seeds
from esper.runs.recordings import Recording, RecordingSchema, write_part
from esper.runs.survey import FitConfig, InvalidFit

TASKS = ("family:small/2", "family:small/14")
PLANTED = "constant:first:depthwise"
SMALL = FitConfig(members=2, hidden=4, steps=5)


@pytest.fixture(scope="module")
def played():
    player = Player(Game(reward="solo", trajectories=True))
    jobs = [Job(task, 0, policy, Purpose.TRAIN) for task in TASKS for policy in ("none", PLANTED)]
    return [player.play(job).trajectory for job in jobs]


def recording(folder, trajectories) -> Recording:
    write_part(folder / "part.parquet", trajectories, RecordingSchema.of(Game(reward="solo", trajectories=True)))
    return Recording.open(folder)


def test_a_seed_gains_what_its_episode_has_more_quality_than_that_without_growth(played, tmp_path):
    seeds = list(kept_seeds(recording(tmp_path, played)))
    assert [each.trajectory.about.task for each in seeds] == list(TASKS)
    for each, alone, planted in zip(seeds, played[::2], played[1::2], strict=True):
        assert planted.choices[each.step, 0] == Op.FOSSILIZE
        qualities = [
            trajectory.observation["host"][-1, FIELDS.host.index("quality")] for trajectory in (planted, alone)
        ]
        assert each.gain == pytest.approx(qualities[0] - qualities[1], abs=1e-5)
        grown = planted.observation["host"][-1, FIELDS.host.index("growth")]
        assert size_in(each.seen(), each.slot, FIELDS) == pytest.approx(grown, abs=1e-5)
        assert math.isfinite(rent_in(each.seen(), FIELDS))


def test_the_same_seed_fits_the_same_networks(played, tmp_path):
    whole = recording(tmp_path, played)
    first, again = (fit_keeping(whole, SMALL).state_dict() for _ in range(2))
    assert all(first[name].equal(again[name]) for name in first)


@pytest.mark.parametrize("left", [slice(0, None, 2), slice(1, None, 2)], ids=["no seeds", "nothing to compare with"])
def test_a_recording_without_pairs_is_refused(left, played, tmp_path):
    with pytest.raises(InvalidFit, match="record both"):
        fit_keeping(recording(tmp_path, played[left]), SMALL)
