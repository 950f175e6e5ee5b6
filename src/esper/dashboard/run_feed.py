"""What the page says of a run, part by part; a part that did not change is not told again."""

import math
import shlex
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from esper.contracts import EsperError
from esper.dashboard.health import gauges
from esper.dashboard.run_log import EpisodeLine, RunLog, Trouble
from esper.dashboard.story import Story, cells_of, story_of
from esper.telemetry import NewerLog, Record, RunFiles, RunState, interval, mean, read_log
from esper.telemetry.doctor import diagnose
from esper.telemetry.sinks.sinks import flattened

Part = dict[str, Any]

SHOWN_TROUBLES, SHOWN_DOTS, KEPT_STORIES, MOST_LIVE = 100, 400, 256, 64
MOST_LIVE_BYTES = 8_000_000
EXAMINE_EVERY = 10.0
"""Seconds between two visits of the doctor, who reads the whole log; more if these take long."""
SERIES = ("rounds", "evaluations")
APART = ("rounds", "metric")
"""What of a run's introduction is told in other places."""


class RunFeed:
    """A run, or one training with a body that grows, by its directory alone."""

    kind = "run"

    def __init__(self, path: Path) -> None:
        self.files = RunFiles(path)
        self.is_run = self.files.config_file.is_file()
        """Whether it is a run of a controller; else it is one training of somebody's model."""
        self.log = RunLog(self.files.events_file)
        self._stories: OrderedDict[int, Story] = OrderedDict()
        self._parts: dict[str, Part] = {}
        self._versions: dict[str, int] = {}
        self._live: dict[Path, tuple[tuple[int, int], list[Record]]] = {}
        self._doctor: Part = {"asked": False}
        self._examined_at, self._examined_lines, self._took = -math.inf, -1, 0.0
        self._refused: str | None = None
        self._is_newer = False

    def refresh(self) -> None:
        """Take in what is new in the directory."""
        self._look_at_live()
        changed = not self._parts
        try:
            if not self._is_newer:
                changed |= self.log.read_on()
                self._refused = None
        except EsperError as error:
            self._refused, self._is_newer = str(error), isinstance(error, NewerLog)
        for name, part in (*self._of_now(), *(self._of_the_log() if changed else ())):
            if self._parts.get(name) != part:
                self._parts[name] = part
                self.log.version += 1
                self._versions[name] = self.log.version

    def read_all(self) -> None:
        """Take in the whole log, however long it is, and ask the doctor."""
        self.refresh()
        while self._refused is None and self.log.has_more:
            lines = self.log.report.lines
            self.refresh()
            if self.log.report.lines == lines:  # the last line has no end yet
                break
        if self.is_run:
            self.examine()

    @property
    def cursor(self) -> str:
        """Where a page is that has everything."""
        return f"{self.log.generation}-{self.log.version}"

    def news(self, cursor: str = "") -> Part:
        """The parts that changed after the cursor, and of series the rows from the first that did."""
        generation, _, version = cursor.rpartition("-")
        known = int(version) if generation == self.log.generation and version.isdecimal() else -1
        told: Part = {name: self._parts[name] for name in self._parts if self._versions[name] > known}
        for name in SERIES:
            series = getattr(self.log, name)
            first = series.since(known)
            if first < len(series.rows) or known < 0:
                told[name] = {"from": first, "rows": series.rows[first:]}
        return told

    def episodes(self, before: int | None = None, limit: int = 40, purpose: str = "") -> list[Part]:
        """The last episodes, or those before a number, the latest first, with curves and cells of their slots."""
        chosen: list[EpisodeLine] = []
        for line in reversed(self.log.episodes):
            if (before is None or line.number < before) and (not purpose or line.purpose == purpose):
                chosen.append(line)
                if len(chosen) >= limit:
                    break
        return [self.episode_line(line) for line in chosen]

    def episode(self, number: int) -> Story | None:
        """One episode that is over; None if there is none of that number."""
        line = next((each for each in reversed(self.log.episodes) if each.number == number), None)
        return None if line is None else self._story(line) | {"line": line.figures}

    def live_story(self, key: str) -> Story | None:
        """One episode that is being played, by its key among the live ones."""
        return next((story for found, story in self._live_stories() if found == key), None)

    def worth_a_look(self, limit: int) -> list[EpisodeLine]:
        """The latest episodes, with those that were rolled back and the best ones; the latest first."""
        lines = list(self.log.episodes)
        few = limit // 4
        chosen = lines[-limit:] if limit else []
        if few:
            chosen += [each for each in lines if each.panic is not None][-few:]
            chosen += sorted(lines, key=lambda each: each.total)[-few:]
        return [each for _, each in sorted({each.number: each for each in chosen}.items(), reverse=True)]

    def paired(self) -> dict[tuple[str, str, int | None], float]:
        """Returns by purpose, task and seed, of the last greedy play on evaluation and held-out seeds."""
        greedy = [each for each in self.log.episodes if each.policy == "greedy"]
        return {(each.purpose, each.task, each.seed): each.total for each in greedy}

    def episode_line(self, line: EpisodeLine) -> Part:
        """A row of the table of episodes."""
        story = self._story(line)
        return line.figures | {"curve": story["quality"], "cells": cells_of(story)}

    def _story(self, line: EpisodeLine) -> Story:
        if line.number not in self._stories:
            self._stories[line.number] = story_of(self.log.events_of(line))
            while len(self._stories) > KEPT_STORIES:
                self._stories.popitem(last=False)
        self._stories.move_to_end(line.number)
        return self._stories[line.number]

    def _of_now(self) -> Iterator[tuple[str, Part]]:
        yield "state", self._state()
        yield "live", {"episodes": [self._live_line(key, story) for key, story in self._live_stories()]}
        yield "doctor", self._doctor

    def _of_the_log(self) -> Iterator[tuple[str, Part]]:
        if self.is_run and "settings" not in self._parts:
            yield "settings", self._all_settings()
        yield "worth", self._worth()
        yield "health", {"gauges": gauges(next(reversed(self.log.rounds.rows), None), self._settings())}
        yield "seeds", {"rows": self.log.seeds(), "known": self.log.seeds_known}
        yield "troubles", {"rows": [self._trouble(each) for each in list(self.log.troubles)[:-SHOWN_TROUBLES:-1]]}
        yield "count", {"episodes": self.log.count, "kept": len(self.log.episodes)}

    def _settings(self) -> Any:
        try:
            return self.files.watched() if self.is_run else None
        except EsperError:
            return None

    def _all_settings(self) -> Part:
        """Every setting by a name with dots, and the command that repeats the run."""
        command = f"esper train --config {shlex.quote(str(self.files.config_file))} --out NEW_DIRECTORY"
        try:
            return {"rows": list(flattened(self.files.settings()).items()), "command": command}
        except EsperError as error:
            return {"rows": [["config.toml", str(error)]], "command": command}

    def _state(self) -> Part:
        log, status = self.log, self.files.status()
        state: str = self.files.state().value
        if state == RunState.UNKNOWN and log.end is not None:
            state = log.end[0]
        began = log.started
        rounds = status.rounds if status else began.rounds if began else None
        last = max(filter(None, (log.last_event, *(records[-1].time for _, records in self._live.values() if records))),
                   default=None)  # fmt: skip
        return {
            "state": state,
            "reason": (log.end[1] if log.end else None) or (status.reason if status else None),
            "refused": self._refused,
            "round": log.rounds.rows[-1]["until"] if log.rounds.rows else status.round if status else None,
            "rounds": rounds,
            "started": log.started_at,
            "last_event": last,
            "seconds_left": self._seconds_left(rounds) if state == RunState.RUNNING else None,
            "episodes_per_minute": self._pace(),
            "resumed": log.resumed,
            "best": status.best if status else None,
            "best_round": None if status is None or status.best_round is None else status.best_round + 1,
            "about": {} if began is None else {name: each for name, each in vars(began).items() if name not in APART},
            "metric": vars(began.metric) if began and began.metric else None,
            "warnings": list(log.report.warnings()),
            "reading": log.has_more,
            "is_run": self.is_run,
            "go_on": f"esper resume {self.files.path}" if self.is_run else None,
        }

    def _seconds_left(self, rounds: int | None) -> float | None:
        """At the pace of the last rounds."""
        paces = self.log.paces
        if rounds is None or len(paces) < 2 or paces[-1][1] <= paces[0][1]:
            return None
        pace = (paces[-1][0] - paces[0][0]) / (paces[-1][1] - paces[0][1])
        return round(max(0.0, pace * (rounds - paces[-1][1]) - (time.time() - paces[-1][0])))

    def _pace(self) -> float | None:
        """Episodes per minute, over the last ones since the run was begun or resumed."""
        finishes, begin = self.log.finishes, self.log.paces[0][0] if self.log.paces else None
        full = len(finishes) == finishes.maxlen
        if not finishes or begin is None:
            return None
        seconds = finishes[-1] - (finishes[0] if full else begin)
        return (len(finishes) - full) * 60 / seconds if seconds > 0 else None

    def _worth(self) -> Part:
        """Growth against quality, by policy: dots of single episodes and means with intervals."""
        compared = [each for each in self.log.episodes if each.purpose == "compare"]
        training = [each for each in self.log.episodes if each.purpose == "train"][-SHOWN_DOTS:]
        played: dict[str, list[EpisodeLine]] = {}
        for each in compared:
            played.setdefault(each.policy, []).append(each)
        means = [_mean_of(policy, lines) for policy, lines in played.items()]
        tasks = dict.fromkeys(each.task for each in training)
        by_task = [_mean_of(task, [each for each in training if each.task == task]) for task in list(tasks)[:50]]
        return {
            "policies": means,
            "training": [[each.growth, each.quality] for each in training],
            "dots": {policy: [[each.growth, each.quality] for each in lines[-SHOWN_DOTS:]]
                     for policy, lines in played.items()},
            "front": front([(each["growth"], each["quality"]) for each in means]
                           or [(row["growth"], row["quality"]) for row in self.log.evaluations.rows]),
            "tasks": by_task if len(by_task) > 1 else [],
        }  # fmt: skip

    def _trouble(self, trouble: Trouble) -> Part:
        """With the number of its episode, and what was decided in that epoch."""
        told = {name: getattr(trouble, name) for name in trouble.__slots__} | {"round": trouble.round + 1}
        line = None
        if trouble.episode is not None:
            line = next(
                (e for e in reversed(self.log.episodes) if e.seed == trouble.episode and e.round == trouble.round), None
            )
        action = None
        if line is not None and trouble.epoch is not None:
            decisions = self._story(line)["decisions"]
            action = next((_words(each) for each in decisions if each["epoch"] == trouble.epoch), None)
        return told | {"number": line.number if line else None, "action": action}

    @property
    def wants_doctor(self) -> bool:
        """Whether something changed since the doctor was here, and he has not been asked too often."""
        due = time.monotonic() - self._examined_at > max(EXAMINE_EVERY, 20 * self._took)
        changed = self._examined_lines != self.log.report.lines
        return self.is_run and changed and due and not self.log.has_more

    def examine(self) -> None:
        """Ask the doctor, who reads the whole log, which takes its time."""
        began, self._examined_lines = time.monotonic(), self.log.report.lines
        try:
            found = diagnose(self.files)
            findings = [{"what": each.what, "sentence": each.sentence} for each in found.findings]
            self._doctor = {"asked": True, "findings": findings, "remarks": list(found.remarks)}
        except EsperError as error:
            self._doctor = {"asked": True, "findings": [], "remarks": [str(error)]}
        self._examined_at = time.monotonic()
        self._took = self._examined_at - began

    def _live_stories(self) -> list[tuple[str, Story]]:
        """The episodes that are being played: of every process one, and what ends the log."""
        stories = []
        over = {(each.round, each.seed, each.purpose, each.policy) for each in list(self.log.episodes)[-2_000:]}
        for path, (_, records) in self._live.items():
            story = _story_of(records)
            place = records[0].round, records[0].episode, story["purpose"], story["policy"]
            if not story["over"] and place not in over:
                stories.append((path.stem, story | {"round": records[0].round + 1, "seed": records[0].episode}))
        going_on = self.log.going_on()
        if going_on:
            own = [each for each in going_on if each.episode == going_on[-1].episode]
            stories.append(("log", _story_of(own) | {"round": own[0].round + 1, "seed": own[0].episode}))
        return stories

    def _live_line(self, key: str, story: Story) -> Part:
        names = ("task", "policy", "purpose", "round", "seed", "epochs", "horizon")
        return {name: story[name] for name in names} | {
            "key": key, "curve": story["quality"], "twin": story["twin"], "cells": cells_of(story),
        }  # fmt: skip

    def _look_at_live(self) -> None:
        """Read the files of the episodes that are being played, if they changed."""
        found = {}
        try:
            paths = sorted(self.files.live.glob("process-*.jsonl"))[:MOST_LIVE]
            for path in paths:
                size = path.stat()
                mark = size.st_mtime_ns, size.st_size
                known = self._live.get(path)
                if known is not None and known[0] == mark:
                    found[path] = known
                elif 0 < size.st_size < MOST_LIVE_BYTES:
                    records = list(read_log(path))
                    if records:
                        found[path] = mark, records
        except (OSError, EsperError):
            pass
        self._live = found


def _story_of(records: Sequence[Record]) -> Story:
    return story_of([each.event for each in records])


def _mean_of(name: str, lines: Sequence[EpisodeLine]) -> Part:
    totals = [each.total for each in lines]
    low, high = interval(totals)
    return {
        "name": name,
        "episodes": len(lines),
        "total": mean(totals),
        "low": low,
        "high": high,
        "quality": mean([each.quality for each in lines]),
        "growth": mean([each.growth for each in lines]),
    }


def _words(decision: Part) -> str:
    """A decision in a few words."""
    detail = [decision["slot"], decision["blueprint"]]
    forced = " (forced)" if decision["forced"] else ""
    return " ".join([decision["op"], *(each for each in detail if each)]) + forced


def front(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    """The points that nothing beats: no other one has more quality at no more growth.

    >>> front([(1.0, 0.5), (2.0, 0.4), (3.0, 0.9)])
    [[1.0, 0.5], [3.0, 0.9]]
    """
    kept: list[list[float]] = []
    for growth, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or quality > kept[-1][1]:
            kept.append([growth, quality])
    return kept
