"""The language benchmark: equal FLOPs, rows that processes share, and a figure of what was asked for."""

import importlib
import math
import multiprocessing
import os
import signal
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from esper.environment import Compute, Trainer, tasks
from esper.growth import graft
from esper.runs.seeds import EXAM_SEEDS, SEARCH_SEEDS

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
language, rows_module = (importlib.import_module(name) for name in ("language", "language_rows"))
Key, Row, Rows = rows_module.Key, rows_module.Row, rows_module.Rows


@pytest.fixture(autouse=True)
def without_its_tasks_behind_a_test(monkeypatch):
    """The benchmark registers a task for every budget that it plays."""
    monkeypatch.setattr(tasks, "_REGISTRY", dict(tasks._REGISTRY))
    yield
    language.policy_task.cache_clear()


def row(arm="none", seed=0, budget=0.1, bits=3.0, evaluation_bits=3.0, flops=1e9):
    return Row(budget, arm, seed, bits, evaluation_bits, 100, flops, 1.0, "block0 mlp", '[{"slot": "block0"}]', 0.25)


# Equal FLOPs


@pytest.mark.parametrize("budget", [0.05, 0.1, 0.2, 0.4])
def test_every_static_arm_has_the_flops_of_the_budget(budget):
    flops = language.budget_in_flops(budget)
    nominal = budget * 1_800 * language.flops_of_layers(4)
    assert flops == pytest.approx(nominal, rel=0.08), "whole batches in each of 30 epochs"
    for arm in (*language.STATIC, *language.STACKED):
        depths, steps = ([int(arm.split(":")[1])], None) if arm.startswith("depth") else language.stages_of(arm, flops)
        steps = steps or [round(flops / language.flops_of_layers(depths[0]))]
        spent = sum(number * language.flops_of_layers(depth) for depth, number in zip(depths, steps, strict=True))
        assert spent == pytest.approx(flops, rel=0.015), arm
        trained = language.undecided(sum(steps))
        assert trained.horizon * trained.batches == pytest.approx(sum(steps), rel=0.001)
        assert (trained.final_rate, trained.smooth) == (0.0, True)


def test_who_waits_trains_as_the_network_of_that_depth(tmp_path):
    arms = language.Arms(Rows(tmp_path / "rows.csv"))
    waiting, static = arms.all_of([Key(0.003, "none", 0), Key(0.003, "depth:2", 0)])
    assert waiting.flops == static.flops == language.budget_in_flops(0.003)
    assert waiting.bits == pytest.approx(static.bits, abs=1e-3)
    assert waiting.evaluation_bits == pytest.approx(static.evaluation_bits, abs=1e-3)
    assert waiting.parameters == static.parameters
    again = language.Arms(Rows(tmp_path / "rows.csv"))
    assert list(again.all_of([Key(0.003, "none", 0)])) == [waiting], "nothing is played twice"


def test_a_trial_of_a_schedule_is_not_tested_and_not_told(tmp_path):
    assert not set(SEARCH_SEEDS) & set(EXAM_SEEDS)
    trial = row("search:32 schedule 3", SEARCH_SEEDS[0])
    assert list(rows_module.means([trial])) == []


# Stacks


def test_a_deepened_network_has_every_block_again_behind_itself():
    host = language.host_of(language.SHAPE)()
    deeper = language.deepened(host, 4)
    assert deeper.head.weight is deeper.embedding.tokens.weight
    tokens = torch.randint(65, (2, 8))
    expected = host.embedding(tokens)
    for block in (host.block0, host.block0, host.block1, host.block1):
        expected = block(expected)
    assert torch.equal(deeper(tokens), host.head(expected))
    assert not {id(each) for each in deeper.parameters()} & {id(each) for each in host.parameters()}


def test_the_optimiser_goes_on_with_old_weights_and_begins_with_copies():
    splits = language.BASE.load(None)
    host = language.host_of(replace(language.SHAPE, layers=1))()
    task = replace(language.undecided(4), batch_size=2)
    body = graft(host, at=["block0"], example=splits.train.x[:2])
    before = Trainer(body, task, 0, Compute())
    before.epoch(splits.train)
    deeper = graft(language.deepened(body.harvest(), 2), at=["block0"], example=splits.train.x[:2])
    after = Trainer(deeper, task, 0, Compute())
    language.hand_on(before, after)
    known = {name for name, weight in deeper.host.named_parameters() if weight in after.optimizer.state}
    assert known == {name for name, _ in host.named_parameters()}
    weight = deeper.host.get_parameter("block0.mlp.1.weight")
    old = before.optimizer.state[host.get_parameter("block0.mlp.1.weight")]["exp_avg"]
    assert torch.equal(after.optimizer.state[weight]["exp_avg"], old)
    after.epoch(splits.train)
    assert torch.equal(before.optimizer.state[host.get_parameter("block0.mlp.1.weight")]["exp_avg"], old)


# Rows


def test_rows_are_read_as_they_were_written(tmp_path):
    written = [row(), row("search:8", 3, bits=math.pi), row(seed=1)]
    rows = Rows(tmp_path / "rows.csv")
    for each in written:
        rows.add(each)
    assert list(Rows(tmp_path / "rows.csv").known.values()) == written


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_row_that_was_cut_short_is_played_again_and_harms_no_other(tmp_path, cut):
    path = tmp_path / "rows.csv"
    rows = Rows(path)
    rows.add(row())
    rows.add(row(seed=1))
    path.write_bytes(path.read_bytes()[:-cut])
    after = Rows(path)
    assert list(after.known) == [row().key]
    after.add(row(seed=1))
    assert list(Rows(path).known.values()) == [row(), row(seed=1)]


def _play(path: Path, keys: list[Key], start: multiprocessing.Event) -> None:
    rows = Rows(path)
    start.wait()
    for key in keys:
        with rows.claim(key) as mine:
            if mine:
                rows.add(row(key.arm, key.seed, key.budget))


def test_processes_that_share_the_work_write_every_row_once(tmp_path):
    path, keys = tmp_path / "rows.csv", [Key(0.1, "none", seed) for seed in range(40)]
    context = multiprocessing.get_context("fork")
    start = context.Event()
    each = [context.Process(target=_play, args=(path, order, start)) for order in (keys, keys[::-1], keys)]
    for process in each:
        process.start()
    start.set()
    for process in each:
        process.join(60)
    assert [process.exitcode for process in each] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + len(keys)
    assert set(Rows(path).known) == set(keys)


def _hold(path: Path, key: Key, held: multiprocessing.Event) -> None:
    with Rows(path).claim(key):
        held.set()
        signal.pause()


def test_what_another_process_plays_is_left_to_it_until_it_dies(tmp_path):
    path, key = tmp_path / "rows.csv", Key(0.1, "none", 0)
    context = multiprocessing.get_context("fork")
    held = context.Event()
    other = context.Process(target=_hold, args=(path, key, held))
    other.start()
    assert held.wait(60)
    rows = Rows(path)
    with rows.claim(key, wait=False) as mine:
        assert not mine
    with rows.claim(Key(0.1, "none", 1), wait=False) as mine:
        assert mine
    os.kill(other.pid, signal.SIGKILL)
    other.join(60)
    with rows.claim(key, wait=False) as mine:
        assert mine


# What is told


def test_the_best_fixed_schedule_is_the_best_of_the_evaluation_split_at_each_budget(tmp_path):
    rows = [
        row("stack:1-2:0.2", bits=3.0, evaluation_bits=2.9),
        row("stack:2-4:0.5", bits=2.8, evaluation_bits=3.1),
        row("stack:1-2:0.2", budget=0.2, bits=2.7, evaluation_bits=2.8),
        row("search:32", budget=0.2, bits=2.6, evaluation_bits=2.5),
        row("depth:2"), row("depth:10"), row("depth:2@tamiyo"), row("tamiyo"), row("random"),
    ]  # fmt: skip
    lines = rows_module.lines_of(rows, ["tamiyo"])
    assert list(lines) == ["depth:2", "depth:10", "best fixed schedule", "tamiyo"]
    assert [[each.arm for each in own] for own in lines["best fixed schedule"]] == [["stack:1-2:0.2"], ["search:32"]]
    kept = Rows(tmp_path / "rows.csv")
    for each in rows:
        kept.add(each)
    rows_module.draw_figure(kept, ["tamiyo"], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_table_compares_on_the_same_seeds(tmp_path):
    rows = Rows(tmp_path / "rows.csv")
    for seed, more in ((0, 0.1), (1, 0.3)):
        rows.add(row("none", seed, bits=3.0 + seed))
        rows.add(row("depth:1", seed, bits=3.0 + seed + more))
    rows.add(row("depth:1", 2, bits=9.0))
    told = [line for line in rows_module.table_of(rows, "none") if "depth:1" in line]
    assert "| 3 | 5.467" in told[0]
    assert "+0.200 ± 1.271" in told[0]


def test_stages_follow_each_other_without_a_gap():
    depths, steps = language.stages_of("stack:1-2-4:0.1-0.3", 1e12)
    assert depths == [1, 2, 4]
    shares = [number * language.flops_of_layers(depth) / 1e12 for depth, number in zip(depths, steps, strict=True)]
    assert shares == pytest.approx([0.1, 0.2, 0.7], rel=0.05)
    assert all(one > 0 for one, _ in pairwise(steps))
