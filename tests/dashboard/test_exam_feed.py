"""What the page says of an exam, from published rows and from rows as they come."""

import shutil
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from esper.dashboard.exam_feed import ExamFeed
from esper.telemetry import ExamStatus, RunState, read_rows, this_process

PUBLISHED = Path(__file__).parents[2] / "exams" / "results"


def feed_of(path):
    feed = ExamFeed(path)
    feed.refresh()
    return feed


@pytest.mark.parametrize("name", ["spirals", "small-exam"])
def test_the_table_of_a_published_exam_has_the_means_of_its_rows(name):
    rows = read_rows(PUBLISHED / name / "exam.csv")
    news = feed_of(PUBLISHED / name).news()
    assert news["state"]["state"] == "finished"
    (group,) = news["table"]["groups"]
    for line in group["policies"]:
        own = [row for row in rows if row.policy == line["policy"]]
        assert line["rows"] == len(own)
        assert line["quality"]["value"] == pytest.approx(fmean(row.quality for row in own))
        assert line["quality"]["low"] <= line["quality"]["value"] <= line["quality"]["high"]
        assert line["growth"] == pytest.approx(fmean(row.growth for row in own))
        if line["policy"] != "none":
            control = {(row.task, row.seed): row.score for row in rows if row.policy == "none"}
            assert line["gain"]["value"] == pytest.approx(fmean(row.score - control[row.task, row.seed] for row in own))


def test_an_exam_that_is_held_shows_its_rows_as_they_come_and_a_killed_one_looks_killed(tmp_path):
    rows = read_rows(PUBLISHED / "spirals" / "exam.csv")
    (tmp_path / "exam.json").write_text("{}")
    feed = feed_of(tmp_path)
    assert feed.news()["table"]["groups"] == []

    def hold(own, started):
        with (tmp_path / "rows.jsonl").open("ab") as file:
            for row in own:
                file.write(msgspec.json.encode({"row": row, "fossils": []}) + b"\n")
            file.write(b'{"trial": ["spirals", "search:3", 1], "worth": 0.5}\njunk\n')
        how_far = {"stage": "spirals", "done": len(own), "total": len(rows), "command": "esper exam"}
        status = ExamStatus(state=RunState.RUNNING, **how_far, **this_process() | started)
        (tmp_path / "status.json").write_bytes(msgspec.json.encode(status))
        feed.refresh()

    cursor = feed.cursor
    hold(rows[:7], {})
    news = feed.news(cursor)
    assert (news["state"]["state"], news["state"]["done"], news["state"]["rows"]) == ("running", 7, 7)
    hold(rows[7:], {"started": 1.0})
    assert feed.news()["state"]["state"] == "killed"
    (tmp_path / "status.json").unlink()
    shutil.copytree(PUBLISHED / "spirals", tmp_path / "published")
    assert feed.news()["table"]["groups"] == feed_of(tmp_path / "published").news()["table"]["groups"]
