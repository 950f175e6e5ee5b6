"""Does growing pay for a language model? Bits per character of Shakespeare at equal training FLOPs.

    python benchmarks/language.py --budget 0.05 --seeds 2       # plays what is missing, as long as it takes
    python benchmarks/language.py --budget 1 --minutes 30       # or so long; the same command goes on
    python benchmarks/language.py --table
    python benchmarks/language.py --figure out/language.png

The text is in the package, the network has width 64 and sees 64 characters, batches are of 32 windows, AdamW has a rate
of 0.003, which rises in the first 5 % of training and falls evenly to nothing in the last 40 %, batch by batch, for all
arms. Budgets count in the FLOPs of 1,800 steps of four layers, with forward and backward pass, rounded to whole batches
in every one of 30 epochs of a host of two layers, which is what policies grow; what grows costs more. Evaluation is not
counted, for nobody: neither that after every epoch, which policies look at, nor what newborns would gain.

Rows have bits per character on the test split, which is looked at once, at the end of training. They go to
`benchmarks/results/language.csv`. What is there is not played again; a process that is killed leaves its row to others,
and several may work on the same rows.

Arms, on held-out seeds:

- `none`, `random`, `heuristic`, `ranker`, `tamiyo`, or any other policy: who decides what grows.
- `search:32`: the best schedule that so many trainings find, on other seeds.
- `depth:4`: a network of so many layers from scratch, with the whole budget. `depth:4@tamiyo` has the FLOPs that
  `tamiyo` used on that seed, and so have all that end in `@tamiyo`.
- `stack:1-2-4:0.1-0.3`: from one layer to two after 10 % of the FLOPs, to four after 30 %; new layers are copies of
  those that they stand behind, and AdamW goes on with what it knows of the others.
- `scratch@tamiyo`, `widened@tamiyo`, `deepened@tamiyo`: the topology that `tamiyo` grew on that seed, and the host
  with more width or depth, until it has as many parameters.

With `--development` seeds are those of searches, so that schedules can be chosen on them.
"""

import argparse
import copy
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from language_rows import Key, Row, Rows, draw_figure, table_of
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
HORIZON = 30
"""Epochs of those who decide. Others take no decisions, and have epochs of few batches so that FLOPs come out even."""
MOST_EPOCHS = 10_000
UNIT = (4, 1_800)
"""Layers and steps of a budget of 1."""
POLICIES = ("none", "random", "heuristic", "ranker", "tamiyo")
STATIC = tuple(f"depth:{layers}" for layers in (1, 2, 3, 4, 6))
STACKED = ("stack:1-2:0.2", "stack:1-2-4:0.1-0.3", "stack:2-4:0.25", "stack:2-4:0.5")
FOLLOWING = ("scratch@tamiyo", "widened@tamiyo", "deepened@tamiyo", *(f"{each}@tamiyo" for each in STATIC))
ARMS = (*POLICIES, *STATIC, *STACKED, *FOLLOWING, "search:32")
REFERENCE = "tamiyo"


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


BASE = replace(
    find_task("shakespeare-char"),
    name="language",
    build_host=partial(GPTHost, find_task("shakespeare-char").classes, SHAPE),
    horizon=HORIZON,
    learning_rate=0.003,
    seed_learning_rate=0.003,
)


def batches_of(budget: float) -> int:
    """Of an epoch of those who decide."""
    layers, steps = UNIT
    return max(1, round(budget * steps * flops_of_layers(layers) / flops_of_layers(SHAPE.layers) / HORIZON))


def budget_in_flops(budget: float) -> float:
    """What a budget is."""
    return float(HORIZON * batches_of(budget) * flops_of_layers(SHAPE.layers))


@cache
def policy_task(budget: float) -> Task:
    """What policies play, registered under a name of its own so that players find it."""
    name = f"language-{budget:g}"
    built = replace(BASE, name=name, batches=batches_of(budget))
    task(name)(lambda: built)
    return built


def undecided(steps: int) -> Task:
    """Training for so many steps in which nothing is decided."""
    batches = -(-steps // MOST_EPOCHS)
    return replace(BASE, horizon=round(steps / batches), batches=batches)


class Arms:
    """Plays one arm on one seed at one budget."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.splits: Splits = BASE.load(None)
        self._test = SplitJudge(self.splits.test, BASE.classes, BASE.judged_by)
        self._evaluation = SplitJudge(self.splits.evaluation, BASE.classes, BASE.judged_by)
        self._examiner = Examiner(Game(reward=Mode.SOLO, compute=Compute(), record=False))
        self._schedules: dict[tuple[float, int], Schedule] = {}
        self._trials: dict[Key, TrialJob] = {}

    def all_of(self, keys: Sequence[Key]) -> Iterator[Row]:
        """The rows, played now unless they are known; those that another process plays come last."""
        left = []
        for key in keys:
            row = self._if_free(key)
            if row is None:
                left.append(key)
            else:
                yield row
        yield from (self.play(key) for key in left)

    def play(self, key: Key) -> Row:
        """The row, played now unless it is known."""
        with self.rows.claim(key) as mine:
            return self._played(key) if mine else self.rows.known[key]

    def _if_free(self, key: Key) -> Row | None:
        if key in self.rows.known:
            return self.rows.known[key]
        with self.rows.claim(key, wait=False) as mine:
            return self._played(key) if mine else self.rows.known.get(key)

    def _played(self, key: Key) -> Row:
        budget, arm, seed = key
        name, _, reference = arm.partition("@")
        flops = self.play(Key(budget, reference, seed)).flops if reference else budget_in_flops(budget)
        started = time.process_time()
        if name.startswith("stack:"):
            host, spent = self._stacked(name, flops, seed)
        elif name.startswith("depth:") or reference:
            host, spent = self._static(self._builder(budget, name, reference, seed), flops, seed)
        else:
            return self.rows.add(self._trial(key) if key in self._trials else self._grown(key))
        return self.rows.add(self._row(key, host, spent, time.process_time() - started))

    def _row(self, key: Key, host: nn.Module, flops: float, seconds: float) -> Row:
        bits, evaluation_bits = (
            judge.metric.score(judge.worth(host).quality) for judge in (self._test, self._evaluation)
        )
        size = count_parameters(host.parameters())
        return Row(*key, round(bits, 5), round(evaluation_bits, 5), size, flops, round(seconds, 1))

    # Who decides

    def _grown(self, key: Key) -> Row:
        budget, arm, seed = key
        name = policy_task(budget).name
        if arm.startswith("search:"):
            job: Job = ScheduledJob(name, seed, arm, Purpose.COMPARE, self._searched(budget, int(arm.split(":")[1])))
        else:
            job = Job(name, seed, arm, Purpose.COMPARE)
        started = time.process_time()
        played = self._examiner.play(job)
        assert isinstance(played, Examined)
        row, metric = played.row, self._evaluation.metric
        return Row(
            *key,
            round(row.told, 5),
            round(metric.score(row.evaluation_quality), 5),
            row.parameters,
            row.training_flops,
            round(time.process_time() - started, 1),
            row.kept,
            json.dumps([{**vars(each), "style": each.style.name} for each in played.fossils]),
            played.finished.total,
        )

    def _searched(self, budget: float, trainings: int) -> Schedule:
        """The best schedule; trials that are known are not played again."""
        if (budget, trainings) not in self._schedules:
            name = policy_task(budget).name

            def play(jobs: Sequence[TrialJob]) -> list[float]:
                trials = {Key(budget, f"search:{trainings} {job.policy}", job.seed): job for job in jobs}
                self._trials |= trials
                worth = {row.key: row.worth for row in self.all_of(list(trials))}
                return [worth[key] for key in trials]

            self._schedules[budget, trainings] = search(name, self._examiner.env(name), trainings, play)
        return self._schedules[budget, trainings]

    def _trial(self, key: Key) -> Row:
        """What a schedule was worth; the test split is not looked at."""
        started, nothing = time.process_time(), float("nan")
        finished = self._examiner.play(self._trials[key]).finished
        parameters = round(finished.growth * policy_task(key.budget).host_parameters())
        row = Row(*key, nothing, nothing, parameters, nothing, round(time.process_time() - started, 1))
        return replace(row, worth=finished.total)

    # Who does not

    def _builder(self, budget: float, name: str, reference: str, seed: int) -> Callable[[], nn.Module]:
        if name.startswith("depth:"):
            return host_of(replace(SHAPE, layers=int(name.split(":")[1])))
        grown = self.play(Key(budget, reference, seed))
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
        alone = replace(undecided(round(flops / of_step)), build_host=build, slots=("block0",))
        body = Episode(alone, self.splits, seed, World()).body
        self._train(Trainer(body, alone, seed, Compute()), alone.horizon)
        return body.harvest(), float(of_step * alone.horizon * alone.samples_of(self.splits.train) // alone.batch_size)

    def _stacked(self, name: str, flops: float, seed: int) -> tuple[nn.Module, float]:
        """Layers are doubled in place, each copy behind what it was copied from."""
        depths, steps = stages_of(name, flops)
        staged = undecided(sum(steps))
        ends = [round(done / staged.batches_of(self.splits.train)) for done in accumulate(steps)]
        with global_draws_from(seed, "weights"):
            host: nn.Module = host_of(replace(SHAPE, layers=depths[0]))()
        before: Trainer | None = None
        spent = 0.0
        for depth, (begin, end) in zip(depths, pairwise([0, *ends]), strict=True):
            host = host if before is None else deepened(host, depth)
            body = graft(host, at=["block0"], example=self.splits.train.x[:2])
            body.epoch = begin
            trainer = Trainer(body, staged, seed if before is None else derive(seed, "stage", depth), Compute())
            if before is not None:
                hand_on(before, trainer)
            self._train(trainer, end)
            host, before = body.harvest(), trainer
            spent += flops_of_layers(depth) * staged.batches_of(self.splits.train) * (end - begin)
        return host, spent

    def _train(self, trainer: Trainer, until: int) -> None:
        while trainer.body.epoch < until:
            trainer.epoch(self.splits.train)
            trainer.body.tick()


def stages_of(name: str, flops: float) -> tuple[list[int], list[int]]:
    """How deep the network is in each stage, and for how many steps.

    >>> stages_of("stack:1-2:0.5", 2.0 * 30 * flops_of_layers(1))
    ([1, 2], [30, 17])
    """
    _, layers, shares = name.split(":")
    depths, ends = [int(each) for each in layers.split("-")], [0.0, *(float(each) for each in shares.split("-")), 1.0]
    parts = (end - begin for begin, end in pairwise(ends))
    steps = [round(flops * part / flops_of_layers(depth)) for depth, part in zip(depths, parts, strict=True)]
    return depths, steps


def size_of(shape: GPTShape) -> int:
    """Parameters."""
    with torch.device("meta"):
        return count_parameters(host_of(shape)().parameters())


BLOCK = re.compile(r"^block(\d+)")


def depth_of(host: nn.Module) -> int:
    """Blocks of a network."""
    return sum(bool(BLOCK.match(name)) for name, _ in host.named_children())


def deepened(host: nn.Module, layers: int) -> GPTHost:
    """The network with every block so many times, one behind the other."""
    before, deeper = depth_of(host), host_of(replace(SHAPE, layers=layers))()
    for name in ("embedding", "head"):
        deeper.get_submodule(name).load_state_dict(host.get_submodule(name).state_dict())
    for at in range(layers):
        setattr(deeper, f"block{at}", copy.deepcopy(host.get_submodule(f"block{at * before // layers}")))
    return deeper


def hand_on(before: Trainer, after: Trainer) -> None:
    """What the optimiser knows of the weights that there were before the network was deepened."""
    old, new = before.body.host, after.body.host
    blocks = depth_of(old)
    behind = {at: -(-at * depth_of(new) // blocks) for at in range(blocks)}
    """Where a block is now; its copies come after it."""
    for name, weight in old.named_parameters():
        moved = BLOCK.sub(lambda found: f"block{behind[int(found[1])]}", name)
        state = before.optimizer.state[weight]
        after.optimizer.state[new.get_parameter(moved)] = {what: value.clone() for what, value in state.items()}


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
    parser.add_argument("--reference", default=REFERENCE, help="with which the table compares")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--deciders", nargs="+", default=[REFERENCE], help="whose lines the figure has")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows, started = Rows(given.out), time.monotonic()
    if given.table:
        print("\n".join(table_of(rows, given.reference)))
    if given.figure:
        draw_figure(rows, given.deciders, given.figure)
    if given.table or given.figure:
        return
    seeds = (SEARCH_SEEDS[50_000:] if given.development else EXAM_SEEDS)[given.first_seed :][: given.seeds]
    keys = [Key(budget, arm, seed) for seed in seeds for budget in given.budget for arm in given.arms]
    for row in Arms(rows).all_of(keys):
        print(
            f"{row.budget:g} {row.arm} seed {row.seed}: {row.bits:.3f} bits, {row.seconds:.0f} s, {row.kept}",
            flush=True,
        )
        if time.monotonic() - started > 60 * given.minutes:
            print("the time is over; the same command goes on")
            return


if __name__ == "__main__":
    main()
