"""The page in a real browser: its numbers, its movement, its manners."""

import json
import os
import socket

import pytest

from esper.cli import main
from esper.contracts import Stage, StageChanged
from esper.telemetry import EventLog, RolledBack
from tests.telemetry.cases import decision, finished, round_finished

pytest.importorskip("selenium")
from tests.dashboard.browser import CHROMIUM, DRIVER, chromium, complaints, faults, served, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no chromium with its chromedriver here"),
]
DRAWN = "return document.querySelector('#episodes tbody tr') && document.querySelector('#winning svg') && true"
INJECTION = '"><img src=x onerror="document.title=\'hacked\'"><script>document.title="hacked"</script>'


def asked(path, sql, capsys):
    assert main(["query", str(path), sql, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"


def signed(value):
    return f"{MINUS if value < 0 else '+'}{abs(value):.3f}"


def test_every_number_that_is_shown_is_what_esper_query_says(recorded, capsys):
    told = asked(recorded, "FROM episodes ORDER BY play DESC", capsys)
    rounds = asked(recorded, "FROM rounds ORDER BY round", capsys)
    updates = asked(recorded, "SELECT clipped FROM updates ORDER BY round DESC LIMIT 1", capsys)
    with served(recorded) as address, chromium() as driver:
        driver.get(address)
        wait_for(driver, DRAWN)
        table = driver.execute_script(
            "return [...document.querySelectorAll('#episodes tbody tr.link')]"
            ".map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
        for row, true in zip(table, told, strict=True):
            assert row[2:4] == [true["purpose"], true["policy"]]
            assert row[5:9] == [
                signed(true["total"]), f"{true['quality']:.1%}".replace("%", " %"),
                f"{true['twin_quality']:.1%}".replace("%", " %"), f"{TIMES}{true['growth']:.2f}",
            ]  # fmt: skip
        assert driver.execute_script("return document.querySelector('#alive .state').innerText") == "finished"
        assert driver.execute_script("return document.querySelector('#alive dd').innerText") == "3 / 3"
        label = driver.execute_script(
            "return document.querySelector('#winning svg[role=img]').getAttribute('aria-label')"
        )
        assert f"training, middle half of the episodes: last {signed(rounds[-1]['total'])}" in label
        shown = driver.execute_script("return document.querySelector('[data-gauge=\"clipped share\"]').innerText")
        assert shown == f"{updates[0]['clipped']:.1%}".replace("%", " %")
        assert complaints(driver) == []


def test_an_episode_opens_with_its_lanes_and_a_reload_keeps_the_place(recorded, capsys):
    (grown,) = asked(recorded, "FROM episodes WHERE fossilized > 0 ORDER BY play DESC LIMIT 1", capsys)
    with served(recorded) as address, chromium() as driver:
        driver.get(address)
        wait_for(driver, DRAWN)
        driver.execute_script(
            "[...document.querySelectorAll('#episodes tr.link')]"
            ".find((row) => row.innerText.includes(arguments[0])).click()",
            signed(grown["total"]),
        )
        wait_for(driver, "return document.querySelector('dialog[open] svg')")
        lanes = driver.execute_script(
            "return document.querySelector('dialog svg[aria-label^=\"Stages\"]').getAttribute('aria-label')"
        )
        assert "FOSSILIZED from epoch" in lanes or "HOLDING from epoch" in lanes
        driver.refresh()
        wait_for(driver, "return document.querySelector('dialog[open] svg')")
        assert faults(driver) == []
        driver.execute_script("document.querySelector('dialog').close()")
        assert complaints(driver) == []


def test_a_live_run_moves_the_page_within_two_seconds_and_a_killed_one_looks_killed(copied):
    with served(copied) as address, chromium() as driver:
        driver.get(address)
        wait_for(driver, DRAWN)
        with EventLog(copied / "events.jsonl") as log:
            log.write_all([decision(0, "WAIT"), finished(total=0.98765)], 3, 77)
            log.write(round_finished(0.98765), 3)
        wait_for(driver, "return document.querySelector('#episodes tbody').innerText.includes('+0.988')", 2)
        status = json.loads((copied / "status.json").read_text())
        status |= {"state": "running", "pid": os.getpid(), "started": 1.0, "host": socket.gethostname()}
        (copied / "status.json").write_text(json.dumps(status))
        wait_for(driver, "return document.querySelector('#alive').innerText.includes('killed')", 3)
        said = driver.execute_script("return document.querySelector('#alive').innerText")
        assert "Its process is gone" in said
        assert f"esper resume {copied}" in said


def test_text_of_events_stays_text(copied):
    with EventLog(copied / "events.jsonl") as log:
        told = [StageChanged(0, INJECTION, Stage.DORMANT, Stage.GERMINATED, (INJECTION,)), RolledBack(0, INJECTION)]
        log.write_all([*told, decision(0, "GERMINATE", slot=INJECTION, blueprint=INJECTION)], 3, 5)
        log.write(finished(task=INJECTION, policy=INJECTION, panic=INJECTION, purpose=INJECTION), 3, 5)
        log.write(round_finished(0.1), 3)
    with served(copied) as address, chromium() as driver:
        driver.get(address)
        wait_for(driver, DRAWN)
        driver.execute_script("document.querySelector('#episodes tr.link button').click()")
        wait_for(driver, "return document.querySelector('dialog[open] svg')")
        assert driver.title == "Esper"
        assert INJECTION in driver.execute_script("return document.querySelector('#troubles').innerText")
        assert driver.execute_script("return document.querySelectorAll('img').length") == 0
        assert complaints(driver) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nobody_is_kept_out(recorded, width, dark):
    with served(recorded) as address, chromium(width, 720, dark) as driver:
        driver.get(address)
        wait_for(driver, DRAWN)
        assert faults(driver) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width, "nothing scrolls sideways"


def test_a_report_opens_from_the_disk(recorded, tmp_path):
    assert main(["report", str(recorded), "--out", str(tmp_path / "report.html")]) == 0
    with chromium() as driver:
        driver.get((tmp_path / "report.html").as_uri())
        wait_for(driver, DRAWN)
        driver.execute_script("document.querySelector('#episodes tr.link').click()")
        wait_for(driver, "return document.querySelector('dialog[open] svg')")
        assert faults(driver) == []
        assert complaints(driver) == []
