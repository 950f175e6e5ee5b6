"""How soon training from scratch beats the heuristic and the best schedule made by hand.

    python benchmarks/sample_efficiency.py --out out/efficiency      # at most 15 minutes a run on 2 cores
    python benchmarks/sample_efficiency.py --seeds 10 --rounds 5     # the first 60 episodes; 2 minutes a run on 1 core

Several runs that differ only in their seed are trained on the default task. Every two rounds the controller plays
the evaluation seeds greedily; it beats a bar when its mean return there is higher than the bar's on the same seeds.
Minutes count from the start of the run, with evaluations. A run ends when it has beaten both bars, or after its last
round. Afterwards the best checkpoint of each run, the heuristic and the schedules meet on comparison seeds, which
nothing was chosen on. One row per run goes to `results.csv`.

A run that is there already is not trained again. One that was stopped in the middle must be removed: its minutes would
be wrong.
"""

import argparse
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console
from table import write_csv

from esper.contracts import Event
from esper.controller import Schedule, ScheduledSeed
from esper.environment import DEFAULT_TASK
from esper.runs import Job, Purpose, RoundLines, Run, RunDirectory, RunState, TrainConfig
from esper.runs.backends import Backend, make_backend
from esper.runs.seeds import COMPARISON_SEEDS, EVALUATION_SEEDS
from esper.telemetry import EpisodeFinished, EvaluationMade, RunStarted, read_log

BY_HAND = {
    "one conv_light": (("block1", "conv_light"),),
    "two conv_light": (("block1", "conv_light"), ("block2", "conv_light")),
    "two conv_heavy": (("block1", "conv_heavy"), ("block2", "conv_heavy")),
    "one conv_heavy": (("block0", "conv_heavy"),),
}
"""Schedules that germinate these from the first epoch on and advance as fast as the gates allow."""
CONFIG = TrainConfig(reward="solo", rounds=32, episodes=12, evaluate_every=2, evaluation_episodes=8, keep=1)


class UntilBeaten(RoundLines):
    """Ends the run when an evaluation is above the bar."""

    def __init__(self, bar: float) -> None:
        super().__init__(Console())
        self.bar, self.beaten = bar, False

    def see(self, event: Event) -> None:
        super().see(event)
        if isinstance(event, EvaluationMade):
            self.beaten = event.total > self.bar
        elif isinstance(event, EpisodeFinished) and event.purpose == "train" and self.beaten:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Row:
    """What came of one run. Minutes and episodes are None where the bar was never beaten."""

    seed: int
    minutes: float
    """Of the whole run."""
    episodes: int
    heuristic: float
    """Mean return on the evaluation seeds, as the next one."""
    by_hand: float
    heuristic_minutes: float | None
    heuristic_episodes: int | None
    """Training episodes before the bar was beaten first; evaluations are not counted."""
    by_hand_minutes: float | None
    by_hand_episodes: int | None
    held_out: float
    """Mean return of the best checkpoint on the comparison seeds, as the next two."""
    held_out_heuristic: float
    held_out_by_hand: float
    quality: float
    """Of the best checkpoint on the comparison seeds, as a fraction of the evaluation split."""
    growth: float


def main() -> None:
    """Play the bars, train the runs, compare."""
    parser = argparse.ArgumentParser(description="How soon does training beat the bars?")
    parser.add_argument("--out", type=Path, default=Path("out/efficiency"))
    parser.add_argument("--seeds", type=int, default=5, help="runs (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=CONFIG.rounds, help="at most, of a run (default %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="episodes at a time; 0 for one per core")
    parser.add_argument("--held-out", type=int, default=16, help="comparison seeds (default %(default)s)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    schedules = [f"schedule:{write_schedule(given.out, name)}" for name in BY_HAND]
    evaluation, held_out = EVALUATION_SEEDS[: CONFIG.evaluation_episodes], COMPARISON_SEEDS[: given.held_out]
    config = replace(CONFIG, rounds=given.rounds, workers=given.workers)
    with make_backend("process", config.game(), config.workers) as backend:
        bars = {name: mean_return(backend, name, evaluation) for name in ("heuristic", *schedules)}
        print({Path(name).stem: round(total, 3) for name, total in bars.items()}, flush=True)
        champion = max(schedules, key=lambda name: bars[name])
        others = {name: mean_return(backend, name, held_out) for name in ("heuristic", champion)}
    rows = []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        run = trained(given.out / f"seed-{seed}", replace(config, seed=seed), max(bars.values()))
        rows.append(row_of(run, seed, (bars["heuristic"], bars[champion]), tuple(others.values()), held_out))
        write_csv(given.out / "results.csv", [each.name for each in fields(Row)], map(astuple, rows))
        print(rows[-1], flush=True)


def write_schedule(folder: Path, name: str) -> Path:
    """The schedule as a file that a policy can be read from."""
    path = folder / f"{name.replace(' ', '-')}.toml"
    path.write_text(Schedule(tuple(ScheduledSeed(0, *seed) for seed in BY_HAND[name])).to_toml(), encoding="utf-8")
    return path


def mean_return(backend: Backend, policy: str, seeds: Sequence[int]) -> float:
    """Over these seeds of the default task."""
    jobs = [Job(DEFAULT_TASK, seed, policy, Purpose.COMPARE) for seed in seeds]
    return fmean(played.finished.total for played in backend.map(None, jobs, lambda _: None, print))


def trained(path: Path, config: TrainConfig, bar: float) -> RunDirectory:
    """The run of that configuration."""
    if path.exists():
        found = RunDirectory.open(path)
        if found.state() is RunState.FINISHED or any(total > bar for _, _, total in evaluations(found)):
            return found
        raise SystemExit(f"{path} was stopped in the middle; remove it and start again")
    progress = UntilBeaten(bar)
    directory = RunDirectory.create(path, config)
    if Run(directory, config, progress).start() is RunState.INTERRUPTED and not progress.beaten:
        raise SystemExit(f"interrupted; remove {path} before you start again")
    return directory


def evaluations(run: RunDirectory) -> list[tuple[float, int, float]]:
    """Minutes since the start, training episodes so far and mean return, by the run's own log."""
    records = list(read_log(run.events_file))
    start = next(record.time for record in records if isinstance(record.event, RunStarted))
    return [
        ((record.time - start) / 60, (record.round + 1) * CONFIG.episodes, record.event.total)
        for record in records
        if isinstance(record.event, EvaluationMade)
    ]


def row_of(
    run: RunDirectory, seed: int, bars: tuple[float, float], others: tuple[float, ...], held_out: Sequence[int]
) -> Row:
    """When the bars were beaten first, and what its best checkpoint is worth elsewhere."""
    found = evaluations(run)
    (minutes, episodes), (hand_minutes, hand_episodes) = (
        next(((minutes, episodes) for minutes, episodes, total in found if total > bar), (None, None)) for bar in bars
    )
    jobs = [Job(DEFAULT_TASK, each, str(run.path), Purpose.COMPARE) for each in held_out]
    with make_backend("process", CONFIG.game(), 1) as backend:
        played = [each.finished for each in backend.map(None, jobs, lambda _: None, print)]
    return Row(
        seed=seed,
        minutes=found[-1][0],
        episodes=found[-1][1],
        heuristic=bars[0],
        by_hand=bars[1],
        heuristic_minutes=minutes,
        heuristic_episodes=episodes,
        by_hand_minutes=hand_minutes,
        by_hand_episodes=hand_episodes,
        held_out=fmean(each.total for each in played),
        held_out_heuristic=others[0],
        held_out_by_hand=others[1],
        quality=fmean(each.quality for each in played),
        growth=fmean(each.growth for each in played),
    )


if __name__ == "__main__":
    main()
