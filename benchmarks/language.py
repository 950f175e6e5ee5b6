"""Does growing pay for a language model? Bits per character of Shakespeare at equal training FLOPs.

    python benchmarks/language.py --budget 0.05 --seeds 2       # plays what is missing, as long as it takes
    python benchmarks/language.py --budget 1 --minutes 30       # or so long; the same command goes on
    python benchmarks/language.py --table
    python benchmarks/language.py --figure out/language.png

The text is in the package, the network has width 64 and sees 64 characters, batches are of 32 windows, AdamW has a rate
of 0.003, which rises in the first 5 % of training and falls evenly to nothing in the last 40 %. Budgets count in the
FLOPs of 1,800 steps of four layers, with forward and backward pass. Policies grow a host of two layers in 30 epochs, of
as many batches as give that host the budget; what grows costs more. Rows have bits per character on the test split, at
the end of training; they go to `benchmarks/results/language.csv`, and what is there is not played again.

Arms, on held-out seeds:

- `none`, `random`, `heuristic`, `ranker`, `tamiyo`, or any other policy: who decides what grows.
- `search:32`: the best schedule that so many trainings find, on other seeds.
- `depth:4`: a network of so many layers from scratch, with the whole budget. `depth:4@tamiyo` has the FLOPs that
  `tamiyo` used on that seed, and so have all that end in `@tamiyo`.
- `stack:1-2-4:0.1-0.3`: from one layer to two after 10 % of the FLOPs, to four after 30 %; new layers are copies of
  those that they stand behind.
- `scratch@tamiyo`, `widened@tamiyo`, `deepened@tamiyo`: the topology that `tamiyo` grew on that seed, and the host
  with more width or depth, until it has as many parameters.

With `--development` seeds are those of searches, so that schedules can be chosen on them.
"""

import argparse
import copy
import csv
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from scipy import stats
from torch import nn

from esper.checked import checked
from esper.controller import Schedule
from esper.environment import Compute, Episode, SplitJudge, Splits, Task, Trainer, World, derive, find_task, task
from esper.environment.randomness import global_draws_from
from esper.growth import Fossil, GPTHost, GPTShape, count_flops, count_parameters, graft
from esper.rewards import Mode
from esper.runs import Game, Job
from esper.runs.exam.examiner import PASSES, Examined, Examiner, ScheduledJob, TrialJob
from esper.runs.exam.search import search
from esper.runs.exam.static import from_scratch
from esper.runs.player import Purpose
from esper.runs.seeds import EXAM_SEEDS, SEARCH_SEEDS

RESULTS = Path(__file__).parent / "results" / "language.csv"
SHAPE = GPTShape(layers=2, width=64, heads=4, context=64)
HORIZON, STAGE_EPOCHS = 30, 60
UNIT = (4, 1_800)
"""Layers and steps of a budget of 1."""
POLICIES = ("none", "random", "heuristic", "ranker", "tamiyo")
STATIC = tuple(f"depth:{layers}" for layers in (1, 2, 3, 4, 6))
STACKED = ("stack:1-2:0.2", "stack:1-2-4:0.1-0.3", "stack:2-4:0.25", "stack:2-4:0.5")
FOLLOWING = ("scratch@tamiyo", "widened@tamiyo", "deepened@tamiyo", *(f"{each}@tamiyo" for each in STATIC))
ARMS = (*POLICIES, *STATIC, *STACKED, *FOLLOWING, "search:32")
REFERENCE = "tamiyo"


@dataclass(frozen=True)
class Row:
    """The end of one training. `fossils` is what grew, as JSON; `worth` the return on the evaluation split."""

    budget: float
    arm: str
    seed: int
    bits: float
    evaluation_bits: float
    parameters: int
    flops: float
    seconds: float
    kept: str = ""
    fossils: str = "[]"
    worth: float = 0.0


class Rows:
    """The rows so far, in a file that a crash leaves whole but for its last line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[tuple[float, str, int], Row] = {}
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                for line in csv.DictReader(file):
                    self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        kinds = {each.name: each.type for each in fields(Row)}
        try:
            row = Row(**{name: kinds[name](value) for name, value in line.items()})  # type: ignore[operator]
        except (KeyError, TypeError, ValueError):  # a line that was cut short
            return
        self.known[row.budget, row.arm, row.seed] = row

    def add(self, row: Row) -> Row:
        """Keep it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        with self._path.open("a", newline="", encoding="utf-8") as file:
            file.write("" if not text or text.endswith("\n") else "\n")
            writer = csv.writer(file, lineterminator="\n")
            if not text:
                writer.writerow([each.name for each in fields(Row)])
            writer.writerow(astuple(row))
        self.known[row.budget, row.arm, row.seed] = row
        return row


def flops_of_step(host: nn.Module) -> int:
    """Of one batch, forward and backward."""
    return PASSES * BASE.batch_size * count_flops(host.eval(), torch.zeros(1, SHAPE.context, dtype=torch.int64))


@cache
def flops_of_layers(layers: int) -> int:
    """Of one batch of a network of so many layers."""
    return flops_of_step(host_of(replace(SHAPE, layers=layers))())


def host_of(shape: GPTShape) -> Callable[[], GPTHost]:
    """How to build one."""
    return partial(GPTHost, BASE.classes, shape)


def budget_in_flops(budget: float) -> float:
    """What a budget is."""
    layers, steps = UNIT
    return budget * steps * flops_of_layers(layers)


BASE = replace(
    find_task("shakespeare-char"),
    name="language",
    build_host=partial(GPTHost, find_task("shakespeare-char").classes, SHAPE),
    horizon=HORIZON,
    learning_rate=0.003,
    seed_learning_rate=0.003,
)


def batches_for(flops: float, of_step: float, epochs: int) -> int:
    """Of an epoch."""
    return max(1, round(flops / of_step / epochs))


@cache
def policy_task(budget: float) -> Task:
    """What policies play, registered under a name of its own so that players find it."""
    name = f"language-{budget:g}"
    built = replace(BASE, name=name, batches=batches_for(budget_in_flops(budget), flops_of_layers(2), HORIZON))
    task(name)(lambda: built)
    return built


class Arms:
    """Plays one arm on one seed at one budget."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.splits: Splits = BASE.load(None)
        self._test = SplitJudge(self.splits.test, BASE.classes, BASE.judged_by)
        self._evaluation = SplitJudge(self.splits.evaluation, BASE.classes, BASE.judged_by)
        self._examiner = Examiner(Game(reward=Mode.SOLO, compute=Compute(), record=False))
        self._schedules: dict[float, Schedule] = {}

    def play(self, budget: float, arm: str, seed: int) -> Row:
        """The row, played now unless it is known."""
        if (budget, arm, seed) in self.rows.known:
            return self.rows.known[budget, arm, seed]
        name, _, reference = arm.partition("@")
        flops = self.play(budget, reference, seed).flops if reference else budget_in_flops(budget)
        started = time.monotonic()
        if name.startswith("stack:"):
            host, spent = self._stacked(name, flops, seed)
        elif name.startswith("depth:") or reference:
            host, spent = self._static(self._builder(budget, name, reference, seed), flops, seed)
        else:
            return self.rows.add(self._grown(budget, arm, seed))
        return self.rows.add(self._row(budget, arm, seed, host, spent, time.monotonic() - started))

    def _row(self, budget: float, arm: str, seed: int, host: nn.Module, flops: float, seconds: float) -> Row:
        bits, evaluation_bits = (
            judge.metric.score(judge.worth(host).quality) for judge in (self._test, self._evaluation)
        )
        size = count_parameters(host.parameters())
        return Row(budget, arm, seed, round(bits, 5), round(evaluation_bits, 5), size, flops, round(seconds, 1))

    # Who decides

    def _grown(self, budget: float, arm: str, seed: int) -> Row:
        name = policy_task(budget).name
        if arm.startswith("search:"):
            job: Job = ScheduledJob(name, seed, arm, Purpose.COMPARE, self._searched(budget, int(arm.split(":")[1])))
        else:
            job = Job(name, seed, arm, Purpose.COMPARE)
        played = self._examiner.play(job)
        assert isinstance(played, Examined)
        row, metric = played.row, self._evaluation.metric
        return Row(
            budget,
            arm,
            seed,
            round(row.told, 5),
            round(metric.score(row.evaluation_quality), 5),
            row.parameters,
            row.training_flops,
            round(row.seconds, 1),
            row.kept,
            json.dumps([{**vars(each), "style": each.style.name} for each in played.fossils]),
            played.finished.total,
        )

    def _searched(self, budget: float, trainings: int) -> Schedule:
        """The best schedule; trials that are known are not played again."""
        if budget not in self._schedules:
            name = policy_task(budget).name

            def play(jobs: Sequence[TrialJob]) -> list[float]:
                return [self._trial(budget, f"search:{trainings} {job.policy}", job) for job in jobs]

            self._schedules[budget] = search(name, self._examiner.env(name), trainings, play)
        return self._schedules[budget]

    def _trial(self, budget: float, arm: str, job: TrialJob) -> float:
        known = self.rows.known.get((budget, arm, job.seed))
        if known is None:
            finished = self._examiner.play(job).finished
            nothing = float("nan")
            parameters = round(finished.growth * policy_task(budget).host_parameters())
            row = Row(budget, arm, job.seed, nothing, nothing, parameters, nothing, finished.seconds)
            known = self.rows.add(replace(row, worth=finished.total))
        return known.worth

    # Who does not

    def _builder(self, budget: float, name: str, reference: str, seed: int) -> Callable[[], nn.Module]:
        if name.startswith("depth:"):
            return host_of(replace(SHAPE, layers=int(name.split(":")[1])))
        grown = self.play(budget, reference, seed)
        if name == "scratch":
            fossils = [checked(Fossil, each) for each in json.loads(grown.fossils)]
            return from_scratch(BASE, fossils).build_host
        larger = {
            "widened": (replace(SHAPE, width=width) for width in range(SHAPE.width, 2_048, SHAPE.heads)),
            "deepened": (replace(SHAPE, layers=layers) for layers in range(SHAPE.layers, 64)),
        }
        if name not in larger:
            raise SystemExit(f"there is no arm '{name}@{reference}'; known: {', '.join(ARMS)}")
        enough = (shape for shape in larger[name] if size_of(shape) >= grown.parameters)
        return host_of(next(enough))

    def _static(self, build: Callable[[], nn.Module], flops: float, seed: int) -> tuple[nn.Module, float]:
        """A network that does not grow, trained as policies' hosts are; with one slot, in which nothing is planted."""
        of_step = flops_of_step(build())
        batches = batches_for(flops, of_step, HORIZON)
        alone = replace(BASE, build_host=build, slots=("block0",), batches=batches)
        body = Episode(alone, self.splits, seed, World()).body
        self._train(body, alone, seed, HORIZON)
        return body.harvest(), of_step * batches * HORIZON

    def _stacked(self, name: str, flops: float, seed: int) -> tuple[nn.Module, float]:
        """Layers are doubled in place, each copy behind what it was copied from."""
        _, layers, shares = name.split(":")
        depths = [int(each) for each in layers.split("-")]
        ends = [*(float(each) for each in shares.split("-")), 1.0]
        steps = [
            flops * (end - begin) / flops_of_layers(depth)
            for depth, begin, end in zip(depths, (0.0, *ends), ends, strict=False)
        ]
        batches = max(1, round(sum(steps) / STAGE_EPOCHS))
        staged = replace(BASE, horizon=STAGE_EPOCHS, batches=batches)
        until = [round(STAGE_EPOCHS * sum(steps[: at + 1]) / sum(steps)) for at in range(len(steps))]
        with global_draws_from(seed, "weights"):
            host: nn.Module = host_of(replace(SHAPE, layers=depths[0]))()
        spent, done = 0.0, 0
        for stage, (depth, end) in enumerate(zip(depths, until, strict=True)):
            host = host if stage == 0 else deepened(host, depth)
            body = graft(host, at=["block0"], example=self.splits.train.x[:2])
            body.epoch = done
            self._train(body, staged, derive(seed, "stage", stage), end)
            host, done = body.harvest(), end
            spent += flops_of_layers(depth) * batches * (end - (until[stage - 1] if stage else 0))
        return host, spent

    def _train(self, body: Any, trained: Task, seed: int, until: int) -> None:
        trainer = Trainer(body, trained, seed, Compute())
        while body.epoch < until:
            trainer.epoch(self.splits.train)
            body.tick()


def size_of(shape: GPTShape) -> int:
    """Parameters."""
    with torch.device("meta"):
        return count_parameters(host_of(shape)().parameters())


def deepened(host: nn.Module, layers: int) -> GPTHost:
    """The network with every block so many times, one behind the other."""
    blocks = [part for name, part in host.named_children() if name.startswith("block")]
    deeper = host_of(replace(SHAPE, layers=layers))()
    deeper.load_state_dict({**deeper.state_dict(), **host.state_dict()})
    for at in range(layers):
        setattr(deeper, f"block{at}", copy.deepcopy(blocks[at * len(blocks) // layers]))
    return deeper


# What is told


def means(rows: Iterable[Row]) -> Iterator[tuple[float, str, list[Row]]]:
    """The rows on held-out seeds, by budget and arm."""
    held = [row for row in rows if row.seed in EXAM_SEEDS]
    for budget in sorted({row.budget for row in held}):
        for arm in dict.fromkeys(row.arm for row in held if row.budget == budget):
            yield budget, arm, [row for row in held if (row.budget, row.arm) == (budget, arm)]


def interval(numbers: Sequence[float]) -> float:
    """Half of a 95 % interval of the mean."""
    if len(numbers) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers))


def print_table(rows: Rows) -> None:
    """Bits of every arm, and what `tamiyo` has less on the same seeds."""
    print("| budget | arm | seeds | bits per character | less the reference | parameters | FLOPs | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for budget, arm, own in means(rows.known.values()):
        bits = [row.bits for row in own]
        pairs = [
            row.bits - rows.known[budget, REFERENCE, row.seed].bits
            for row in own
            if arm != REFERENCE and (budget, REFERENCE, row.seed) in rows.known
        ]
        less = f"{fmean(pairs):+.3f} ± {interval(pairs):.3f}" if pairs else ""
        size, flops, seconds = (fmean(getattr(row, name) for row in own) for name in ("parameters", "flops", "seconds"))
        cells = (f"{budget:g}", arm, len(own), f"{fmean(bits):.3f} ± {interval(bits):.3f}", less)
        print(f"| {' | '.join(map(str, cells))} | {size:,.0f} | {flops:.3g} | {seconds:.0f} |")


def draw_figure(rows: Rows, path: Path) -> None:
    """Bits against training FLOPs: a line for each static depth and schedule, and for who decides."""
    from matplotlib.figure import Figure

    found = list(means(rows.known.values()))
    shown = [arm for arm in dict.fromkeys(arm for _, arm, _ in found) if "@" not in arm]
    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.add_subplot()
    for at, arm in enumerate(shown):
        own = [each for _, name, each in found if name == arm]
        x, y = ([fmean(getattr(row, what) for row in each) for each in own] for what in ("flops", "bits"))
        arms = [0.0 if len(each) < 2 else interval([row.bits for row in each]) for each in own]
        style = "-" if arm.startswith("depth") else "--" if arm.startswith("stack") else "-."
        axes.errorbar(x, y, arms, label=arm, linestyle=style, marker="osD^v<>"[at % 7], capsize=2, color=f"C{at % 10}")
    axes.set_xscale("log")
    axes.set_xlabel("training FLOPs")
    axes.set_ylabel("bits per character, test split")
    axes.grid(color="#e6e6e6")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def main() -> None:
    """Play what is missing, or tell what is there."""
    parser = argparse.ArgumentParser(description="Does growing pay for a language model?")
    parser.add_argument("--budget", type=float, nargs="+", default=[1.0], help="in 1,800 steps of four layers")
    parser.add_argument("--arms", nargs="+", default=ARMS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--development", action="store_true", help="play on the seeds of searches")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows, started = Rows(given.out), time.monotonic()
    if given.table or given.figure:
        if given.table:
            print_table(rows)
        if given.figure:
            draw_figure(rows, given.figure)
        return
    arms = Arms(rows)
    seeds = (SEARCH_SEEDS[50_000:] if given.development else EXAM_SEEDS)[given.first_seed :][: given.seeds]
    for seed in seeds:
        for budget in given.budget:
            for arm in given.arms:
                if time.monotonic() - started > 60 * given.minutes:
                    print("the time is over; the same command goes on")
                    return
                row = arms.play(budget, arm, seed)
                print(f"{budget:g} {arm} seed {seed}: {row.bits:.3f} bits, {row.seconds:.0f} s, {row.kept}", flush=True)


if __name__ == "__main__":
    main()
