"""Texts: parts that share nothing, windows whose padding never counts, scores in any unit, and hostile files."""

import hashlib
import json
import math
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from esper.contracts import UNITS, WAIT, Token, metric_of
from esper.environment import (
    Compute,
    Episode,
    InvalidTask,
    InvalidTaskFile,
    Split,
    SplitJudge,
    Trainer,
    World,
    WrongSchema,
    find_task,
    load_task,
    stream,
)
from esper.environment import text as text_module
from esper.environment.data import PADDING, cross_entropy
from esper.environment.hub_text import END, TINY_STORIES, hub_tokens
from esper.environment.text import Parts, held_out, shakespeare_text, splits_of_parts
from esper.environment.training import rate_at
from esper.growth import GPTHost, GPTShape

TINY = replace(
    find_task("shakespeare-char"),
    build_host=lambda: GPTHost(65, GPTShape(layers=1, width=8, heads=2, context=64)),
    slots=("block0.attention", "block0.mlp", "block0"),
    horizon=3,
    batch_size=4,
    batches=5,
)


def counted(*sizes: int) -> Parts:
    """Every token says where it stands in the text."""
    return Parts(*torch.arange(sum(sizes)).split(sizes))


def test_shakespeare_is_in_the_package_whole():
    digest = hashlib.sha256(shakespeare_text().encode()).hexdigest()
    assert digest == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    found = find_task("shakespeare-char")
    assert found.classes == len(set(shakespeare_text())) == 65
    assert found.host_parameters() == 62_832


def test_parts_of_a_text_share_no_token_and_are_in_order():
    splits = splits_of_parts(counted(100, 40, 30), context=8)
    places = [set(split.x.flatten().tolist()) for split in (splits.train, splits.evaluation)]
    assert max(places[0]) < 100 <= min(places[1])
    assert max(places[1]) < 140
    # Padding repeats token 0 in windows of the last part, which is never asked for there.
    tested = splits.test.x[splits.test.y != PADDING]
    assert (tested.min(), tested.max()) == (140, 168)


@pytest.mark.parametrize("part", ["train", "evaluation", "test"])
def test_targets_are_the_tokens_that_come_next(part):
    split = getattr(splits_of_parts(counted(100, 41, 30), context=8), part)
    kept = split.y != PADDING
    assert torch.equal(split.y[kept], split.x[kept] + 1)


def test_windows_to_train_on_overlap_by_half_and_lie_in_the_memory_of_the_text():
    parts = counted(100, 20, 20)
    train = splits_of_parts(parts, context=8).train
    assert train.x[:, 0].tolist() == list(range(0, 92, 4))
    assert train.x.untyped_storage().data_ptr() == parts.train.untyped_storage().data_ptr()


def test_held_out_tokens_are_asked_for_once_each_and_the_last_window_is_padded():
    split = held_out(torch.arange(30), 8, Token())
    assert split.y[split.y != PADDING].tolist() == list(range(1, 30))
    assert split.y[-1].tolist() == [25, 26, 27, 28, 29, PADDING, PADDING, PADDING]


def test_of_many_held_out_tokens_windows_from_all_over_are_evaluated():
    split = held_out(torch.arange(1_001), 10, Token(), most=50)
    assert split.x[:, 0].tolist() == [0, 240, 490, 740, 990]


def test_padding_never_counts():
    host = GPTHost(30, GPTShape(layers=1, width=8, heads=2, context=8))
    whole = held_out(torch.arange(25), 8, Token())
    padded = Split(torch.cat((whole.x, whole.x[:2])), torch.cat((whole.y, torch.full_like(whole.y[:2], PADDING))))
    assert SplitJudge(padded, 30, "loss").worth(host).loss == pytest.approx(
        SplitJudge(whole, 30, "loss").worth(host).loss
    )
    assert SplitJudge(padded, 30).guess == SplitJudge(whole, 30).guess
    gradients = []
    for split in (whole, padded):
        host.zero_grad()
        cross_entropy(host(split.x), split.y).backward()
        gradients.append([parameter.grad.clone() for parameter in host.parameters()])
    assert all(torch.allclose(one, other, atol=1e-7) for one, other in zip(*gradients, strict=True))


def test_tokens_and_classes_have_one_cross_entropy():
    output, y = torch.randn(6, 4, 5), torch.randint(5, (6, 4))
    assert cross_entropy(output, y) == functional.cross_entropy(output.transpose(1, 2), y)
    assert torch.equal(cross_entropy(output[:, 0], y[:, 0]), functional.cross_entropy(output[:, 0], y[:, 0]))


# Scores


@pytest.mark.parametrize("judged_by", UNITS)
def test_a_network_has_one_quality_by_every_unit_of_loss(judged_by):
    metric, nats = metric_of(judged_by, 65, Token(3.0, 3.5)), 1.8
    unit = UNITS[judged_by]
    told = unit.tell(nats, unit.size_of(Token(3.0, 3.5)))
    assert metric.quality(told) == pytest.approx(1 - nats / math.log(65))
    assert metric.score(metric.quality(told)) == pytest.approx(told)
    assert not metric.higher_is_better


def test_losses_are_told_in_words_that_a_person_reads():
    quality = 1 - 1.8 / math.log(65)
    shown = {judged_by: metric_of(judged_by, 65, Token(3.0, 3.5)).show(quality) for judged_by in UNITS}
    assert shown == {
        "loss": "1.800 nats",
        "perplexity": "6.050",
        "bits per character": "0.866 bits per character",
        "bits per byte": "0.742 bits per byte",
    }


# Training


def test_an_epoch_is_so_many_batches_drawn_by_the_episode_alone():
    splits, steps = TINY.load(None), []
    episode = Episode(TINY, splits, 3, World())
    episode.trainer.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    torch.manual_seed(99)
    episode.step(WAIT)
    assert len(steps) == 5
    assert episode.snapshot.host.rows == 20
    again = Episode(TINY, splits, 3, World())
    again.step(WAIT)
    assert again.evaluation.loss == episode.evaluation.loss
    draws = [torch.stack(TINY.draw_batches(splits.train, stream(seed, "order"))) for seed in (3, 3, 4)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_smooth_rate_warms_up_holds_and_falls_to_nothing():
    task = replace(TINY, horizon=10, warmup_share=0.2, cooldown_share=0.5)
    assert [round(rate_at(epochs, task), 3) for epochs in (0, 0.5, 2, 5, 7.5, 10)] == [0, 0.25, 1, 1, 0.5, 0]
    body = Episode(task, task.load(None), 0, World()).body
    trainer, rates = Trainer(body, task, 0, Compute()), []
    trainer.optimizer.register_step_post_hook(lambda own, *_: rates.append(own.param_groups[0]["lr"]))
    trainer.epoch(task.load(None).train)
    assert rates == pytest.approx([task.learning_rate * 0.5 * (at + 0.5) / 5 for at in range(5)])


def test_warming_up_by_whole_epochs_is_refused():
    with pytest.raises(InvalidTask, match="set smooth, or leave out warmup_share"):
        replace(TINY, smooth=False)


# A user's file

WORDS = "it was the best of times, it was the worst of times; " * 40


def write(folder: Path, text: str = '"words.txt"', **host: object) -> Path:
    shape = {"layers": 1, "width": 8, "heads": 2, "context": 16, **host}
    path = folder / "mine.toml"
    path.write_text(
        textwrap.dedent(f"""
        name = "mine"
        text = {text}
        slots = ["block0"]
        horizon = 2
        batches = 4
        batch_size = 4
        learning_rate = 0.01
        seed_learning_rate = 0.01
        judged_by = "bits per byte"
        [host]
        kind = "gpt"
        """)
        + "\n".join(f"{key} = {value}" for key, value in shape.items())
    )
    return path


def test_a_file_of_text_is_a_task_character_by_character(tmp_path):
    (tmp_path / "words.txt").write_text(WORDS + "ÿ" * 200)
    task = load_task(write(tmp_path))
    assert (task.classes, task.batches, task.judged_by) == (len(set(WORDS)) + 1, 4, "bits per byte")
    splits = task.load(None)
    assert splits.test.token == Token(1.0, 2.0)
    episode = Episode(task, splits, 0, World())
    episode.step(WAIT)
    assert "bits per byte" in episode.judge.metric.show(episode.evaluation.quality)


def test_what_a_file_on_a_text_leaves_out_is_as_texts_are_trained(tmp_path):
    (tmp_path / "words.txt").write_text(WORDS)
    path = write(tmp_path)
    path.write_text(path.read_text().replace('judged_by = "bits per byte"', "").replace("batches = 4", ""))
    task, usual = load_task(path), find_task("shakespeare-char")
    left_out = (
        "judged_by",
        "optimizer",
        "rent",
        "batches",
        "warmup_share",
        "final_rate",
        "smooth",
        "min_contribution",
    )
    assert [getattr(task, each) for each in left_out] == [getattr(usual, each) for each in left_out]
    path.write_text(path.read_text().replace("horizon = 2", "horizon = 2\nsmooth = true\nrent = 0.5\nfinal_rate = 1.0"))
    said = load_task(path)
    assert (said.rent, said.final_rate, said.batches) == (0.5, 1.0, usual.batches)
    path.write_text(path.read_text().replace("smooth = true", 'judged_by = "perplexiti"'))
    with pytest.raises(InvalidTaskFile, match="'judged_by' is 'perplexiti'; did you mean 'perplexity'"):
        load_task(path)


def test_a_text_that_changed_since_is_refused(tmp_path):
    (tmp_path / "words.txt").write_text(WORDS)
    task = load_task(write(tmp_path))
    (tmp_path / "words.txt").write_text(WORDS + "!")
    with pytest.raises(text_module.UnusableText, match="the text has '!', which is not in its vocabulary"):
        task.load(None)


BAD_TEXTS = [
    (None, "there is no file"),
    (b"\xff\xfe\x00h" * 400, r"is not UTF-8 text \(byte 0\); convert it"),
    (b"ab\0" * 400, "has characters of code 0"),
    (b"a" * 2_000, "has 1 different characters; give a text with 2 to 10,000"),
    (b"", "has 0 different characters"),
    (b"ab" * 60_000, "is larger than 100,000 bytes; give a part of it"),
]


@pytest.mark.parametrize(("content", "message"), BAD_TEXTS)
def test_a_text_that_cannot_be_used_is_refused_before_anything_is_trained(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr(text_module, "MOST_BYTES", 100_000)
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(InvalidTaskFile, match=message):
        load_task(write(tmp_path))


def test_a_text_shorter_than_its_windows_is_refused(tmp_path):
    (tmp_path / "words.txt").write_text("ab" * 100)
    with pytest.raises(text_module.UnusableText, match="a text of at least 340 tokens"):
        load_task(write(tmp_path)).load(None)


@pytest.mark.parametrize("name", ["../words.txt", "/etc/hostname", "link.txt"])
def test_a_text_outside_the_folder_of_the_task_is_refused(tmp_path, name):
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "words.txt").write_text(WORDS)
    (folder / "link.txt").symlink_to(tmp_path / "words.txt")
    with pytest.raises(InvalidTaskFile, match="lies beside the task file or below it"):
        load_task(write(folder, text=f'"{name}"'))


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ({"heads": 3}, "width = 8 cannot be shared among heads = 3"),
        ({"context": 1}, "host.context = 1; give a value from 2 to 2,048"),
        ({"layers": 65}, "host.layers = 65; give a value from 1 to 64"),
        ({"width": 1_024, "layers": 64}, r"host has 8\d\d,\d+,\d+ parameters; at most 50,000,000"),
        ({"depth": 2}, "there is no key 'host.depth'"),
    ],
)
def test_a_transformer_that_cannot_be_is_refused(tmp_path, host, message):
    (tmp_path / "words.txt").write_text(WORDS)
    with pytest.raises(InvalidTaskFile, match=message):
        load_task(write(tmp_path, **host))


# The hub


def test_stories_are_encoded_by_what_is_trained_on_and_told_in_bits_per_byte(tmp_path):
    for split, tales in (("train", 60), ("validation", 12)):
        lines = [
            json.dumps({"text": f"Once upon a time there were {at} little cats. They slept."}) for at in range(tales)
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    source = replace(TINY_STORIES, repository="nobody/tales", documents=50, held_out=10, vocabulary=300)
    train, held = hub_tokens(source, tmp_path)
    assert train.tokens.max() < 300
    assert (train.tokens == 0).sum() == 50, f"{END} is token 0"
    assert train.size.bytes == pytest.approx(train.size.characters)
    assert 3 < held.size.bytes < 30
    with pytest.raises(WrongSchema, match="has no field 'story'"):
        hub_tokens(replace(source, field="story"), tmp_path)


def test_causal_hosts_never_see_what_they_are_asked_for():
    """What makes the loss honest: the score of a token depends on nothing from it on."""
    host: nn.Module = TINY.build_host().eval()
    tokens = TINY.load(None).evaluation.x[:2]
    changed = tokens.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 65
    assert torch.equal(host(tokens)[:, :40], host(changed)[:, :40])
