"""How many episodes per second the backends play. Interleaved, medians.

    python benchmarks/backends.py                                  # about ten minutes on two idle cores
    python benchmarks/backends.py --episodes 4 --repeats 1         # only to see that it runs
    python benchmarks/backends.py --without-ray                    # where the extra `ray` is not installed

Every repeat is one round of learned episodes with seeds that were not played before, the same seeds for all backends
that are compared. The first round, in which workers start, does not count. Two comparisons:

- two worker processes with one. Goal: at least 1.8 times as many episodes per second, on two idle cores.
- two workers of ray on this machine with two worker processes. No goal; ray keeps processes of its own busy.
"""

import argparse
import time
from statistics import median

import torch

from esper.controller import ControllerNetwork
from esper.environment import DEFAULT_TASK, FIELDS
from esper.runs import Game, Job, Purpose
from esper.runs.backends import Backend, Weights, make_backend, usable_cores

GOAL = 1.8


def first_weights() -> Weights:
    """Of an untrained controller."""
    torch.manual_seed(0)
    return ControllerNetwork(FIELDS, Game().network).state_dict()


def round_seconds(backend: Backend, weights: Weights, jobs: list[Job]) -> float:
    """Wall time of one round. Losing a worker would spoil the figure."""
    start = time.perf_counter()
    backend.map(weights, jobs, lambda _: None, refuse)
    return time.perf_counter() - start


def refuse(event: object) -> None:
    """Stop measuring."""
    raise RuntimeError(f"the measurement is void: {event}")


def compare(names: dict[str, tuple[str, int]], task: str, episodes: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of every round of every backend, by turns."""
    weights = first_weights()
    backends = {label: make_backend(name, Game(), workers) for label, (name, workers) in names.items()}
    seconds: dict[str, list[float]] = {label: [] for label in backends}
    try:
        for repeat in range(repeats + 1):
            first = 1_000_000 + repeat * episodes
            jobs = [Job(task, first + place, "learned", Purpose.TRAIN) for place in range(episodes)]
            for label, backend in backends.items():
                taken = round_seconds(backend, weights, jobs)
                if repeat:
                    seconds[label].append(taken)
    finally:
        for backend in backends.values():
            backend.close()
    return seconds


def show(seconds: dict[str, list[float]], episodes: int, goal: str) -> None:
    """Table rows; the ratio is the median over the repeats of episodes per second over those of the first row."""
    first = next(iter(seconds.values()))
    for label, times in seconds.items():
        ratio = median(base / own for base, own in zip(first, times, strict=True))
        reached = goal if times is not first else ""
        print(
            f"| {label} | {median(times):.2f} | {episodes / median(times):.2f} | {ratio:.2f} | {reached} |", flush=True
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure how many episodes per second the backends play.")
    parser.add_argument("--task", default=DEFAULT_TASK, help="a task by name or file (default %(default)s)")
    parser.add_argument("--episodes", type=int, default=24, help="per round (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds per backend (default %(default)s)")
    parser.add_argument("--without-ray", action="store_true", help="only compare worker processes")
    options = parser.parse_args()
    print(f"{options.episodes} episodes of {options.task} a round, {options.repeats} rounds, {usable_cores()} cores\n")
    print("| backend | seconds a round | episodes/s | ratio to the line above | goal |\n|---|---|---|---|---|")
    rounds = (options.task, options.episodes, options.repeats)
    processes = {"process, 1 worker": ("process", 1), "process, 2 workers": ("process", 2)}
    show(compare(processes, *rounds), options.episodes, f"≥ {GOAL}")
    if not options.without_ray:
        clusters = {"process, 2 workers again": ("process", 2), "ray, 2 workers": ("ray", 2)}
        show(compare(clusters, *rounds), options.episodes, "")


if __name__ == "__main__":
    main()
