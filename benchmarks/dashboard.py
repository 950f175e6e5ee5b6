"""What the page costs on a long run: a thousand rounds of sixteen episodes, a million events, made by this program.

    python benchmarks/dashboard.py                # prints the table; half a minute on one core
    python benchmarks/dashboard.py --browser      # also in a headless Chromium; needs selenium, chromium, chromedriver

The log is made of one episode's events over and over, with other seeds, rounds and returns, so that its lines are as
long and as many as a real run's. Goals: loaded in 2 seconds, in memory that does not grow with the log.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esper.contracts import Event, Stage, StageChanged
from esper.dashboard.run_feed import RunFeed
from esper.dashboard.server import encoded
from esper.telemetry import (
    DecisionMade,
    EpisodeFinished,
    EpisodeStarted,
    EvaluationMade,
    EventLog,
    HeadFigures,
    Record,
    RewardPaid,
    RoundFinished,
    RunStarted,
    SeedLife,
    UpdateMade,
)
from esper.telemetry.log import line_of

HEADS = ("op", "slot", "blueprint", "style", "tempo", "alpha_target", "alpha_speed", "alpha_curve")
SLOTS, BLUEPRINTS = ("block0", "block1", "block2"), ("norm", "conv_light", "conv_heavy", "attention", "bottleneck")
EPOCHS, EPISODES = 29, 16
SEED, ROUND = 1_234_567_890, 777_777
"""What stands in the lines of the one episode, to be put another in its place."""


def episode(purpose: str) -> list[Event]:
    """One seed is planted and kept."""
    told: list[Event] = [EpisodeStarted(0, "digits-pointwise", "learned", purpose, EPOCHS, 230, SLOTS, BLUEPRINTS)]
    stages = (Stage.DORMANT, Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
    for epoch in range(EPOCHS):
        if epoch < len(stages) - 1:
            told.append(StageChanged(epoch, "block1", stages[epoch], stages[epoch + 1], ("its gate held",)))
        chances = {head: tuple(round(1 / (at + 2), 4) for at in range(5)) for head in HEADS[:3]}
        op, slot, blueprint = ("GERMINATE", "block1", "conv_light") if epoch == 0 else ("WAIT", None, None)
        told.append(DecisionMade(epoch, op, slot, blueprint, None, None, None, None, None, False, (), 0.25, chances))
        terms = {"quality": 0.02, "rent": -0.001, "intervention_cost": 0.0, "termination": 0.0}
        alphas = {"block0": 0.0, "block1": min(1.0, epoch / 9), "block2": 0.0}
        worth = {"block1": 0.01 * epoch} if epoch else {}
        told.append(RewardPaid(epoch, 0.019, terms, 0.3 + epoch / 50, 1.2, 1.8, worth, 0.3, alphas))
    return told


def finished(purpose: str, total: float) -> EpisodeFinished:
    """The end of it."""
    seeds = (SeedLife("block1", "conv_light", 0, 4, "FOSSILIZED"),)
    ops = {"WAIT": 20, "GERMINATE": 1, "ADVANCE": 4}
    return EpisodeFinished(
        "digits-pointwise", "learned", purpose, total, 0.8, 0.3, 1.8, 1, EPOCHS, 4, ops, None, 1.4, seeds
    )  # fmt: skip


def log_lines(rounds: int) -> Iterator[bytes]:
    """The lines of a run, round by round."""
    drawn = random.Random(0)
    now = time.time() - 20.0 * rounds
    yield line_of(Record(now, 0, None, RunStarted("0.1.0", ("digits-pointwise",), rounds, EPISODES, 0, "twin",
                                                  "process", 2, "cpu")))  # fmt: skip
    body = b"".join(line_of(Record(now, ROUND, SEED, event)) for event in episode("train"))
    for number in range(rounds):
        lines = body.replace(b'"round":%d' % ROUND, b'"round":%d' % number)
        level = 0.6 * number / rounds
        for _ in range(EPISODES):
            seed, total = drawn.randrange(2**20, 2**31), level + drawn.gauss(0, 0.1)
            yield lines.replace(b'"episode":%d' % SEED, b'"episode":%d' % seed)
            yield line_of(Record(now + 20.0 * number, number, seed, finished("train", total)))
        yield from (line_of(Record(now + 20.0 * number, number, None, event)) for event in summary(number, level))


def summary(number: int, level: float) -> Iterator[Event]:
    """The ends of a round."""
    ops = {"WAIT": 0.6, "GERMINATE": 0.1, "ADVANCE": 0.2, "FOSSILIZE": 0.1}
    yield RoundFinished(level, 0.8, 0.3, 1.8, 0.14, 0.6, ops, 0, 15.0, 1.1)
    head = HeadFigures(200, 0.6, 0.2, 0.7, 1.4, 0.01)
    yield UpdateMade(-0.01, 0.3, 0.01, 0.05, 0.5, 0.0, 0.1, level, 0.2, 0.5, 0.1, 0.05, 460, 60, 16, 0, False,
                     dict.fromkeys(HEADS, head), 3.0)  # fmt: skip
    if number % 5 == 4:
        yield EvaluationMade(level, level - 0.05, level + 0.05, 0.8, 0.3, 1.8, {"digits-pointwise": level}, False)


def measured(path: Path) -> dict[str, float]:
    """Seconds of processor time, megabytes and kilobytes."""
    found: dict[str, float] = {}

    def timed(name: str, call: Any) -> Any:
        begin = time.process_time()
        answer = call()
        found[f"{name}, s"] = time.process_time() - begin
        return answer

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    feed = RunFeed(path)

    def read_all() -> None:
        while feed.log.read_on():
            pass

    timed("reading the whole log", read_all)
    timed("making all parts of the page", feed.refresh)
    feed.refresh()
    found["first message, kB"] = len(timed("encoding the first message", lambda: encoded(feed.news()))) / 1e3
    timed("40 episodes for the table", feed.episodes)
    timed("a look at a log without news", feed.refresh)
    cursor = feed.cursor
    with EventLog(path / "events.jsonl") as log:
        log.write_all(summary(0, 0.5), 2_000_000)
    timed("a look at a new round", feed.refresh)
    found["message about a new round, kB"] = len(encoded(feed.news(cursor))) / 1e3
    timed("a visit of the doctor, beside the page", feed.examine)
    found["memory beyond that of the program, MB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    return found


def main() -> None:
    """Make the run, and look at it."""
    parser = argparse.ArgumentParser(description="What the page costs on a long run.")
    parser.add_argument("--rounds", type=int, default=1_000, help="(default %(default)s)")
    parser.add_argument("--browser", action="store_true", help="also in a headless Chromium")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long"
        path.mkdir()
        with (path / "events.jsonl").open("wb") as file:
            for lines in log_lines(given.rounds):
                file.write(lines)
        (path / "config.toml").write_text(f"rounds = {given.rounds}\n")
        size = (path / "events.jsonl").stat().st_size
        events = sum(chunk.count(b"\n") for chunk in (path / "events.jsonl").open("rb"))
        print(f"{given.rounds:,} rounds, {events:,} events, {size / 1e6:,.0f} MB\n\n| measure | |\n|---|---|")
        for name, figure in measured(path).items():
            print(f"| {name} | {figure:,.3g} |")
        if given.browser:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from tests.dashboard.browser import browse_long_run  # what drives the browser comes with the tests

            for name, figure in browse_long_run(path).items():
                print(f"| in the browser: {name} | {figure:,.3g} |")


if __name__ == "__main__":
    main()
