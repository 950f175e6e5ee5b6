"""A report holds what the page shows, runs nothing but its own scripts, and needs no network."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

from esper.cli import main
from esper.dashboard.run_feed import RunFeed
from esper.telemetry import EventLog, RolledBack, plain
from tests.telemetry.cases import finished

PUBLISHED = Path(__file__).parents[2] / "exams" / "results"


def held_by(file):
    text = file.read_text(encoding="utf-8")
    return text, json.loads(re.search(r'<script type="application/json" id="held">(.*?)</script>', text, re.DOTALL)[1])


def test_a_report_holds_the_parts_settings_and_versions_of_what_it_is_about(recorded, tmp_path, capsys):
    shutil.copytree(recorded, tmp_path / "other")
    file = tmp_path / "report.html"
    paths = [str(recorded), str(tmp_path / "other"), str(PUBLISHED / "spirals")]
    assert main(["report", *paths, "--out", str(file)]) == 0
    assert "MB" in capsys.readouterr().out
    text, held = held_by(file)
    assert file.stat().st_size < 8_000_000
    assert not re.search(r"(src|href)=\"(?!data:|#)", text), "nothing is loaded from elsewhere"
    assert held["command"] == f"esper report {' '.join(paths)} --out {file}"
    assert {"esper", "torch", "python"} <= held["versions"].keys()
    own = held["sources"][0]
    feed = RunFeed(recorded)
    feed.refresh()
    live = json.loads(json.dumps(plain(feed.news())))
    assert own["news"]["rounds"] == live["rounds"]
    assert own["news"]["settings"]["command"].startswith("esper train --config ")
    assert ["rounds", 3] in own["news"]["settings"]["rows"]
    for line in own["episodes"]:
        assert own["stories"][str(line["number"])]["quality"] == line["curve"]
    assert held["comparisons"]["run\nother"]["differences"][0]["value"] == 0
    assert held["sources"][2]["news"]["table"]["groups"]


def test_text_of_events_ends_no_script_and_only_scripts_with_known_hashes_run(copied, tmp_path):
    injection = '</script><script>document.title="hacked"</script><!--'
    with EventLog(copied / "events.jsonl") as log:
        log.write_all([RolledBack(1, injection), finished(panic=injection, task=injection)], 3, 5)
    file = tmp_path / "report.html"
    assert main(["report", str(copied), "--out", str(file)]) == 0
    text, held = held_by(file)
    assert injection not in text
    assert held["sources"][0]["news"]["troubles"]["rows"][0]["words"] == injection
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts}
    assert hashes == set(re.findall(r"'sha256-([^']+)'", text))
    assert len(hashes) == 7


def test_a_directory_without_run_or_exam_and_a_file_that_cannot_be_written_are_refused(tmp_path, recorded, capsys):
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 2
    assert "holds neither a run nor an exam" in capsys.readouterr().err
    assert main(["report", str(recorded), "--out", str(tmp_path / "no" / "r.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
