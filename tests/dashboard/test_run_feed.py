"""What the page says of a run is what its log says, however the log came to be."""

import json
import math
import os
import random
import shutil
import socket
from dataclasses import replace

import pytest
import torch
from torch import nn

from esper.contracts import Stage, StageChanged
from esper.controller import Schedule, ScheduledSeed
from esper.dashboard.comparing import compared
from esper.dashboard.run_feed import RunFeed
from esper.dashboard.series import MOST_ROWS, Series, row_of
from esper.gardener import Gardener
from esper.telemetry import (
    EpisodeStarted,
    EventLog,
    LiveFile,
    Record,
    RewardPaid,
    RolledBack,
    RoundFinished,
    RunResumed,
    RunStarted,
    UpdateMade,
    read_log,
)
from esper.telemetry.doctor import diagnose
from esper.telemetry.log import SCHEMA, line_of
from esper.telemetry.query import as_json, query
from tests.telemetry.cases import STARTED, UPDATE, decision, episode, finished, round_finished

INJECTION = '<script>alert("x")</script>'


def feed_of(path):
    feed = RunFeed(path)
    feed.refresh()
    return feed


def asked(path, sql):
    """What `esper query --json` prints."""
    return json.loads(as_json(*query(path, sql)))


def test_every_round_on_the_page_is_what_esper_query_says(recorded):
    rows = feed_of(recorded).news()["rounds"]["rows"]
    told = asked(recorded, "SELECT rounds.*, kl, clipped, value_error, gradient_norm, heads FROM rounds JOIN updates "
                           "USING (round) ORDER BY round")  # fmt: skip
    assert len(rows) == len(told) == 3
    for row, true in zip(rows, told, strict=True):
        assert row["round"] == true["round"] + 1
        for name in ("total", "quality", "gain", "growth", "forced_share", "waiting_share", "rollbacks", "ops", "kl",
                     "clipped", "value_error", "gradient_norm"):  # fmt: skip
            assert row[name] == true[name], name
        assert row["entropy"] == {head: figures["entropy"] for head, figures in true["heads"].items()}


def test_evaluations_controls_and_seeds_are_what_esper_query_says(recorded):
    news = feed_of(recorded).news()
    for row, true in zip(news["evaluations"]["rows"], asked(recorded, "FROM evaluations ORDER BY round"), strict=True):
        assert {name: row[name] for name in ("total", "low", "high", "quality", "growth", "by_task")} == {
            name: true[name] for name in ("total", "low", "high", "quality", "growth", "by_task")
        }
    means = asked(
        recorded, "SELECT policy, avg(total) AS total FROM episodes WHERE purpose = 'compare' GROUP BY policy"
    )
    assert {each["name"]: pytest.approx(each["total"]) for each in news["worth"]["policies"]} == {
        each["policy"]: each["total"] for each in means
    }
    counts = "count(*) AS germinated, count(fossilized) AS kept, count(pruned) AS pruned"
    told = asked(recorded, f"SELECT blueprint, slot, {counts} FROM seeds WHERE purpose = 'train' GROUP BY ALL")
    shown = {(each["blueprint"], each["slot"]): each for each in news["seeds"]["rows"]}
    assert told, "the recorded run planted seeds"
    assert {(each["blueprint"], each["slot"]): (each["germinated"], each["kept"], each["pruned"]) for each in told} == {
        key: (each["germinated"], each["kept"], each["pruned"]) for key, each in shown.items()
    }


def test_an_episode_is_told_epoch_by_epoch_with_terms_that_sum_to_the_total(recorded):
    feed = feed_of(recorded)
    lines = feed.episodes(limit=100)
    episodes = asked(recorded, "FROM episodes ORDER BY play DESC")
    assert [(each["seed"], each["total"], each["quality"]) for each in lines] == [
        (each["episode"], each["total"], each["quality"]) for each in episodes
    ]
    grown = next(each for each in lines if each["fossilized"] and each["policy"] in {"learned", "greedy"})
    story = feed.episode(grown["number"])
    play = episodes[lines.index(grown)]["play"]
    paid = asked(recorded, f"FROM rewards WHERE play = {play} ORDER BY epoch")
    assert story["quality"] == [each["quality"] for each in paid] == grown["curve"]
    assert story["twin"] == [each["twin_quality"] for each in paid]
    assert None not in story["twin"]
    for epoch, each in enumerate(paid):
        summed = sum(values[epoch] or 0.0 for values in story["terms"].values())
        assert math.isclose(summed, each["total"], abs_tol=1e-9)
        for slot in story["slots"]:
            assert story["alphas"][slot][epoch] == each["alphas"][slot]
            measured = story["contributions"].get(slot, [None] * len(paid))[epoch]
            assert measured == each["contributions"].get(slot)
    stories = [feed.episode(each["number"]) for each in lines]
    curves = [values for each in stories for values in each["contributions"].values()]
    assert any(None in values and any(values) for values in curves), "a newborn's contribution is not measured"
    assert len(story["decisions"]) == grown["epochs"]
    chances = [each["probabilities"]["op"] for each in story["decisions"] if "op" in each["probabilities"]]
    assert any({name for name, _ in each} >= {"WAIT", "GERMINATE"} for each in chances)


def test_a_log_that_grows_line_by_line_gives_the_page_of_the_whole_log(recorded, tmp_path):
    whole = feed_of(recorded)
    path = tmp_path / "growing"
    path.mkdir()
    shutil.copy(recorded / "config.toml", path)
    lines = (recorded / "events.jsonl").read_bytes()
    feed, cursor, gathered, seen = RunFeed(path), "", {"rounds": [], "evaluations": []}, 0
    cuts = sorted(random.Random(0).sample(range(len(lines)), 25))
    for begin, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        with (path / "events.jsonl").open("ab") as file:
            file.write(lines[begin:end])
        feed.refresh()
        news, cursor = feed.news(cursor), feed.cursor
        for name, rows in gathered.items():
            if name in news:
                rows[news[name]["from"] :] = news[name]["rows"]
                seen += len(news[name]["rows"])
    assert gathered == {name: whole.news()[name]["rows"] for name in gathered}
    assert seen < 25 * 5, "only what changed is told again"
    assert feed.news(feed.cursor) == {}
    assert [each.figures for each in feed.log.episodes] == [each.figures for each in whole.log.episodes]
    assert feed.news()["seeds"] == whole.news()["seeds"]


def test_rounds_that_are_played_again_are_told_once(tmp_path):
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write(STARTED, 0)
        for number in (0, 1, 2):
            log.write_all(episode(), number, 7)
            log.write(round_finished(float(number)), number)
    feed = feed_of(tmp_path)
    cursor = feed.cursor
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write(RunResumed("round-00001.pt", ()), 1)
        log.write(round_finished(9.0), 1)
    feed.refresh()
    assert [row["total"] for row in feed.news(cursor)["rounds"]["rows"]] == [0.0, 9.0]
    assert [each["round"] for each in feed.episodes()] == [1]
    assert feed.news()["state"]["resumed"] == 1


def test_a_run_whose_process_is_gone_looks_killed_and_one_that_stopped_does_not_look_alive(copied):
    assert feed_of(copied).news()["state"]["state"] == "finished"
    status = json.loads((copied / "status.json").read_text())
    status |= {"state": "running", "pid": os.getpid(), "started": 1.0, "host": socket.gethostname()}
    (copied / "status.json").write_text(json.dumps(status))
    state = feed_of(copied).news()["state"]
    assert state["state"] == "killed"
    assert state["seconds_left"] is None
    assert state["go_on"] == f"esper resume {copied}"


def test_an_episode_shows_while_it_is_played_and_is_gone_when_it_is_over(copied):
    live = copied / "live"
    file = LiveFile(live, 2, 4711)
    told = [EpisodeStarted(0, "tiny", "learned", "train", 14, 33, ("layer0", "layer1"), ("dense_light",))]
    file.show(told)
    feed = feed_of(copied)
    (now,) = feed.news()["live"]["episodes"]
    assert (now["epochs"], now["horizon"], now["curve"]) == (0, 14, [])
    cursor = feed.cursor
    told += [
        StageChanged(0, "layer0", Stage.DORMANT, Stage.GERMINATED),
        decision(0, "GERMINATE", slot="layer0", blueprint="dense_light"),
        RewardPaid(0, 0.1, {"gain": 0.1}, 0.5, 1.0, 1.1, {}, 0.4, {"layer0": 0.25, "layer1": 0.0}),
    ]
    file.show(told)
    feed.refresh()
    (now,) = feed.news(cursor)["live"]["episodes"]
    assert (now["epochs"], now["curve"], now["twin"]) == (1, [0.5], [0.4])
    assert now["cells"][0] == {"slot": "layer0", "stage": "GERMINATED", "blueprint": "dense_light", "alpha": 0.25}
    assert feed.live_story(now["key"])["quality"] == [0.5]
    file.show([*told, finished()])
    feed.refresh()
    assert feed.news()["live"]["episodes"] == []


def test_a_training_without_a_run_is_shown_from_its_log_alone(tmp_path):
    """Also one that writes neither rewards nor an end, which is all that growth alone can tell."""
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write(StageChanged(0, "stem", Stage.DORMANT, Stage.GERMINATED), 0, 0)
        log.write(StageChanged(3, "stem", Stage.GERMINATED, Stage.TRAINING), 0, 0)
    feed = feed_of(tmp_path)
    (now,) = feed.news()["live"]["episodes"]
    assert now["cells"] == [{"slot": "stem", "stage": "TRAINING", "blueprint": None, "alpha": None}]
    assert feed.live_story("log")["spans"][0] == {"slot": "stem", "stage": "GERMINATED", "begin": 0, "end": 3}
    assert not feed.news()["state"]["is_run"]


def test_junk_is_counted_and_a_newer_log_is_refused_with_what_to_do(copied):
    with (copied / "events.jsonl").open("ab") as file:
        file.write(b"\xff\xfe junk\n" + b"[" * 100_000 + b"\n" + b'{"schema":3')
    feed = feed_of(copied)
    assert feed.news()["state"]["warnings"][0].startswith("2 of ")
    assert len(feed.news()["rounds"]["rows"]) == 3
    with (copied / "events.jsonl").open("ab") as file:
        file.write(b"\n" + line_of(Record(1.0, 0, None, STARTED)).replace(b":%d," % SCHEMA, b":99,", 1))
    feed.refresh()
    assert "update esper to read it" in feed.news()["state"]["refused"]


@pytest.mark.parametrize("name", ["config.toml", "status.json", "live/process-1.jsonl"])
def test_a_file_that_is_junk_spoils_nothing_else(copied, name):
    (copied / name).write_bytes(b"\x00\xff{[" * 100_000)
    news = feed_of(copied).news()
    assert len(news["rounds"]["rows"]) == 3
    assert news["live"]["episodes"] == []


def test_epochs_and_slots_beyond_all_measure_are_left_out_of_the_picture(tmp_path):
    with EventLog(tmp_path / "events.jsonl") as log:
        far = [RewardPaid(2**62, 0.0, {}, 0.5, 1.0, 1.0), decision(-5, "WAIT"), decision(1, "WAIT")]
        log.write_all(
            [*far, *(StageChanged(0, f"s{at}", Stage.DORMANT, Stage.GERMINATED) for at in range(2_000))], 0, 1
        )
        log.write(finished(), 0, 1)
    feed = feed_of(tmp_path)
    story = feed.episode(1)
    assert len(story["slots"]) == 256
    assert story["epochs"] <= 2
    assert [each["epoch"] for each in story["decisions"]] == [1]


def test_a_rollback_is_told_with_its_cause_episode_epoch_and_action(tmp_path):
    with EventLog(tmp_path / "events.jsonl") as log:
        told = [decision(4, "GERMINATE", slot="stem", blueprint="norm"), RolledBack(4, INJECTION)]
        log.write_all([*told, finished(panic=INJECTION)], 2, 99)
    (trouble,) = feed_of(tmp_path).news()["troubles"]["rows"]
    assert (trouble["kind"], trouble["words"], trouble["round"]) == ("rollback", INJECTION, 3)
    assert (trouble["episode"], trouble["epoch"], trouble["number"]) == (99, 4, 1)
    assert trouble["action"] == "GERMINATE stem norm"


def test_a_crossed_threshold_is_told_in_words_and_a_missing_figure_is_no_zero(copied):
    calm = {each["name"]: each for each in feed_of(copied).news()["health"]["gauges"]}
    assert not calm["divergence (KL)"]["crossed"]
    with EventLog(copied / "events.jsonl") as log:
        log.write(round_finished(0.1), 3)
        log.write(replace(UPDATE, kl=7.5, heads={"op": replace(UPDATE.heads["op"], entropy=None, steps=0)}), 3)
    alarmed = {each["name"]: each for each in feed_of(copied).news()["health"]["gauges"]}
    assert alarmed["divergence (KL)"]["crossed"]
    assert "no experience supports" in alarmed["divergence (KL)"]["words"]
    assert (alarmed["entropy of op"]["value"], alarmed["entropy of op"]["crossed"]) == (None, False)


def test_the_doctor_is_asked(copied):
    feed = feed_of(copied)
    assert feed.wants_doctor
    assert feed.news()["doctor"] == {"asked": False}
    feed.examine()
    feed.refresh()
    doctor = feed.news()["doctor"]
    found = diagnose(feed.files)
    assert doctor == {
        "asked": True,
        "findings": [{"what": each.what, "sentence": each.sentence} for each in found.findings],
        "remarks": list(found.remarks),
    }
    assert not feed.wants_doctor


def test_rows_of_a_long_run_are_merged_and_keep_their_mean():
    series = Series()
    for number in range(1, 4 * MOST_ROWS + 1):
        series.add(row_of(number, {"total": float(number), "ops": {"WAIT": 0.5}}), number)
    assert MOST_ROWS / 2 <= len(series.rows) <= MOST_ROWS
    assert sum(row["count"] for row in series.rows) == 4 * MOST_ROWS
    mean = sum(row["total"] * row["count"] for row in series.rows) / (4 * MOST_ROWS)
    assert math.isclose(mean, (4 * MOST_ROWS + 1) / 2)
    assert [row["round"] for row in series.rows[1:]] == [row["until"] + 1 for row in series.rows[:-1]]


def test_two_runs_differ_by_what_is_set_and_by_pairs_of_the_same_seeds(recorded, copied):
    lines = (copied / "events.jsonl").read_text().splitlines()
    changed = [json.loads(line) for line in lines]
    for each in changed:
        if each["event"] == "EpisodeFinished" and each["data"]["policy"] == "greedy":
            each["data"]["total"] -= 0.25
    (copied / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in changed))
    text = (copied / "config.toml").read_text()
    (copied / "config.toml").write_text(text.replace("seed = 0", "seed = 5", 1))
    found = compared(feed_of(recorded), feed_of(copied))
    assert found["settings"] == [{"name": "seed", "first": 0, "second": 5}]
    assert {each["purpose"] for each in found["differences"]} == {"evaluate", "compare"}
    assert all(each["value"] == pytest.approx(0.25) for each in found["differences"])


def test_what_a_run_wrote_is_never_changed(copied):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copied.rglob("*")}
    feed = feed_of(copied)
    feed.episodes()
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copied.rglob("*")} == before


def test_the_recorded_run_has_all_that_the_page_asks_for(recorded):
    kinds = {type(each.event) for each in read_log(recorded / "events.jsonl")}
    assert kinds >= {RunStarted, EpisodeStarted, RewardPaid, RoundFinished, UpdateMade}


def test_the_garden_of_somebodys_model_has_the_same_lanes(tmp_path):
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer, plan = torch.optim.Adam(model.parameters()), Schedule((ScheduledSeed(0, "1", "mlp_small"),))
    gardener = Gardener(
        model, optimizer, example=torch.zeros(4, 2), epochs=8, at=["1"], controller=plan, directory=tmp_path / "garden"
    )
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        gardener.step(lambda model: 0.5)
    gardener.harvest()
    feed = RunFeed(tmp_path / "garden")
    feed.read_all()
    story = feed.episode(1)
    assert story["slots"] == ["1"]
    assert [span["stage"] for span in story["spans"] if span["slot"] == "1"][:2] == ["GERMINATED", "TRAINING"]
    assert (story["alphas"]["1"][0], story["alphas"]["1"][-1]) == (0.0, 1.0)
    assert story["decisions"][0]["blueprint"] == "mlp_small"
