"""A recording is opened whole or not at all, streamed in batches, and split by worlds."""

import math
import shutil
from dataclasses import replace

import pytest
import torch

from esper.contracts import HEADS_OF, Head, Op
from esper.runs.player import Job, Player, Purpose
from esper.runs.recordings import BadRecording, Recording, recording, write_part
from tests.runs.recordings.recordings import POLICIES, same


@pytest.fixture(scope="module")
def many(recorded, tmp_path_factory):
    """40 episodes in four files."""
    path = tmp_path_factory.mktemp("many")
    for part in range(4):
        episodes = [_again(each, 10 * part + at) for at, each in enumerate((recorded.trajectories * 2)[:10])]
        write_part(path / f"part-{part}.parquet", episodes, recorded.schema)
    return path


def _again(trajectory, seed):
    return replace(trajectory, about=replace(trajectory.about, seed=seed, world=seed // 2))


def seeds(trajectories):
    return [each.about.seed for each in trajectories]


def test_an_opened_recording_says_what_is_in_it(recorded):
    opened = Recording.open(str(recorded.path))
    assert (opened.episodes, opened.tasks, opened.policies) == (6, recorded.config.task, POLICIES)
    assert opened.heads == tuple(head.value for head in Head)
    assert opened.schema == recorded.schema
    assert Recording.open(recorded.file).episodes == 6


def test_a_batch_is_what_the_player_would_have_learned_from(recorded):
    job = Job(recorded.config.task[0], recorded.trajectories[1].about.seed, "sampled:tamiyo", Purpose.TRAIN)
    played = Player(recorded.config.game()).play(job)
    assert same(played.trajectory, recorded.trajectories[1])
    (batch,) = Recording.open(recorded.path).only(["sampled:tamiyo"]).batches(2)
    row = batch.take(torch.tensor([0]))
    row.check(heads=8)
    live = played.sequences
    for name in ("choices", "log_probs", "free", "values", "rewards", "bootstrap", "starts", "ends", "valid"):
        assert torch.equal(getattr(row, name), getattr(live, name)), name
    assert row.observation.keys() == live.observation.keys()
    assert all(torch.equal(row.observation[name], live.observation[name]) for name in live.observation)
    assert row.rewards.double().sum().item() == pytest.approx(played.finished.total, abs=1e-6)


def test_random_draws_are_as_likely_as_is_recorded_and_certain_policies_say_so(recorded):
    for each in recorded.trajectories:
        assert each.about.drawn == (each.about.policy != "heuristic")
        assert each.about.drawn == bool((each.log_probs < -1e-3).any())
    one = recorded.trajectories[0]
    for step, (choices, log_probs) in enumerate(zip(one.choices, one.log_probs, strict=True)):
        ops = int(one.observation["mask_op"][step].sum())
        assert log_probs[0] == pytest.approx(-math.log(ops))
        unused = [place for place, head in enumerate(Head) if head not in HEADS_OF[Op(choices[0])]]
        assert not log_probs[unused].any()


def test_every_episode_comes_once_in_an_order_that_the_generator_decides(many):
    opened = Recording.open(many)
    assert seeds(opened.trajectories()) == list(range(40))
    first, again = (seeds(opened.trajectories(torch.Generator().manual_seed(3))) for _ in range(2))
    assert first == again
    assert sorted(first) == list(range(40))
    assert first != sorted(first)
    generator = torch.Generator().manual_seed(3)
    assert seeds(opened.trajectories(generator)) == first
    assert seeds(opened.trajectories(generator)) != first, "another pass has another order"


def test_no_more_than_the_pool_and_a_file_are_held_in_memory(many, monkeypatch):
    monkeypatch.setattr(recording, "POOL", 5)
    held, most, draw, read = [0], [0], recording._drawn, recording._read

    def count_read(part):
        found = read(part)
        held[0] += len(found)
        most[0] = max(most[0], held[0])
        return found

    def count_drawn(pool, generator):
        held[0] -= 1
        return draw(pool, generator)

    monkeypatch.setattr(recording, "_read", count_read)
    monkeypatch.setattr(recording, "_drawn", count_drawn)
    assert len(seeds(Recording.open(many).trajectories(torch.Generator()))) == 40
    assert most[0] == 15


def test_batches_have_so_many_rows_and_pad_shorter_ones(many):
    assert [batch.rows for batch in Recording.open(many).batches(16, torch.Generator())] == [16, 16, 8]
    with pytest.raises(BadRecording, match="0 episodes make no batch; give at least 1"):
        next(Recording.open(many).batches(0))


def test_worlds_are_held_out_with_all_that_was_played_in_them(many):
    opened = Recording.open(many)
    learned, held_out = opened.split(0.25, seed=1)
    assert (learned.episodes, held_out.episodes) == (30, 10)
    assert sorted(seeds(learned.trajectories()) + seeds(held_out.trajectories())) == list(range(40))
    worlds = [{each.about.world for each in side.trajectories()} for side in (learned, held_out)]
    assert not worlds[0] & worlds[1]
    assert seeds(opened.split(0.25, seed=1)[1].trajectories()) == seeds(held_out.trajectories())
    assert seeds(opened.split(0.25, seed=2)[1].trajectories()) != seeds(held_out.trajectories())


def test_a_share_that_leaves_a_side_empty_is_refused(recorded, many):
    with pytest.raises(BadRecording, match=r"1\.5 of 20 worlds cannot be held out"):
        Recording.open(many).split(1.5)
    with pytest.raises(BadRecording, match=r"0\.9 of 2 worlds cannot be held out .* record more seeds"):
        Recording.open(recorded.path).split(0.9)


def test_what_is_not_in_a_recording_cannot_be_asked_for(recorded):
    opened = Recording.open(recorded.path)
    assert opened.only(["heuristic"]).policies == ("heuristic",)
    with pytest.raises(BadRecording, match="has nothing of 'heuristics'; did you mean 'heuristic'"):
        opened.only(["heuristics"])


def test_nothing_is_opened_if_anything_in_it_is_wrong(many, recorded, tmp_path):
    path = tmp_path / "recording"
    shutil.copytree(many, path)
    write_part(path / "z.parquet", recorded.trajectories[:1], replace(recorded.schema, reward="twin"))
    with pytest.raises(BadRecording, match=r"z.parquet is of other rules than the files before it: reward 'twin'"):
        Recording.open(path)
    shutil.copy(path / "part-1.parquet", path / "z.parquet")
    with pytest.raises(BadRecording, match=r"z.parquet: row 0: the episode of 'random' .* seed 10 is there twice"):
        Recording.open(path)
    (path / "z.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadRecording, match=r"z.parquet cannot be read as a recording"):
        Recording.open(path)
    with pytest.raises(BadRecording, match="has no recording; give what 'esper record' made"):
        Recording.open(tmp_path / "recording" / "nothing")
    with pytest.raises(BadRecording, match="no recording was given"):
        Recording.open()


def test_a_file_that_changes_while_it_is_learned_from_is_refused(many, recorded, tmp_path):
    path = tmp_path / "recording"
    shutil.copytree(many, path)
    opened = Recording.open(path)
    write_part(path / "part-3.parquet", recorded.trajectories, recorded.schema)
    with pytest.raises(BadRecording, match=r"part-3.parquet has changed since it was opened"):
        list(opened.trajectories())
