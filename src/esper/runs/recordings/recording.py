"""A recording that is read: all of it is judged when it is opened, and then streamed, a file at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from esper.contracts import Head, nearest
from esper.environment import derive
from esper.rl import Sequences, join
from esper.runs.recordings.part import read_part
from esper.runs.recordings.schema import BadRecording, RecordingSchema
from esper.runs.trajectory import Trajectory

RECORDING = "recording"
"""Of the recording of a run or an exam, in its directory."""
POOL = 256
"""Episodes among which the next one is drawn: those of some files, so that neighbours in a file are torn apart."""
Code = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A file of a recording, and which of its episodes are meant: 25 bytes for each are kept in memory."""

    path: Path
    tasks: Code
    """Places in the names of the recording."""
    policies: Code
    worlds: Code
    """A number for every task and seed that was played."""
    chosen: NDArray[np.bool_]


@dataclass(frozen=True)
class Recording:
    """Episodes in files, more of them than fit into memory if need be."""

    schema: RecordingSchema
    parts: Sequence[Part]
    _tasks: Sequence[str]
    _policies: Sequence[str]

    @classmethod
    def open(cls, *paths: Path | str) -> "Recording":
        """Files, or directories: what 'esper record' made, or a run or an exam that kept its episodes.

        Reads everything once. If anything in it is wrong, `BadRecording` names the file and the row, and nothing of it
        is given to anybody.
        """
        tasks, policies = _Names(), _Names()
        schema: RecordingSchema | None = None
        parts = []
        for path in paths:
            known: set[int] = set()
            for file in files_of(Path(path)):
                found, trajectories = read_part(file)
                if schema is not None and found != schema:
                    raise BadRecording(
                        f"{file} is of other rules than the files before it: {found.differences(schema)}"
                    )
                schema = found
                _refuse_known(file, trajectories, known)
                about = [each.about for each in trajectories]
                parts.append(
                    Part(
                        path=file,
                        tasks=np.array([tasks.place(each.task) for each in about]),
                        policies=np.array([policies.place(each.policy) for each in about]),
                        worlds=np.array([derive(each.world, "world", each.task) for each in about]),
                        chosen=np.ones(len(about), bool),
                    )
                )
        if schema is None:
            raise BadRecording("no recording was given; name at least one that 'esper record' made")
        return cls(schema, parts, tuple(tasks), tuple(policies))

    @property
    def episodes(self) -> int:
        return sum(int(part.chosen.sum()) for part in self.parts)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Of its episodes, in the order in which they come."""
        return _present(self._tasks, [part.tasks[part.chosen] for part in self.parts])

    @property
    def policies(self) -> tuple[str, ...]:
        return _present(self._policies, [part.policies[part.chosen] for part in self.parts])

    @property
    def heads(self) -> tuple[str, ...]:
        """In the order of choices."""
        return tuple(head.value for head in Head)

    def only(self, policies: Sequence[str] = (), tasks: Sequence[str] = ()) -> "Recording":
        """The episodes of these policies, if any are named, on these tasks, if any are named."""
        for names, known in ((policies, self.policies), (tasks, self.tasks)):
            for name in names:
                if name not in known:
                    raise BadRecording(f"the recording has nothing of '{name}'; {nearest(name, known)}")
        wanted = [self._policies.index(name) for name in policies or self.policies]
        on = [self._tasks.index(name) for name in tasks or self.tasks]
        return self._chosen(lambda part: np.isin(part.policies, wanted) & np.isin(part.tasks, on))

    def split(self, held_out: float = 0.1, seed: int = 0) -> tuple["Recording", "Recording"]:
        """What to learn from, and what to hold out.

        Worlds are held out, a task and a seed each, with all that was played in them; which ones, `seed` alone decides.
        """
        worlds = sorted(
            {int(world) for part in self.parts for world in part.worlds[part.chosen]},
            key=lambda world: derive(seed, "held out", world),
        )
        count = max(1, round(held_out * len(worlds)))
        if not 0.0 < held_out < 1.0 or count >= len(worlds):
            raise BadRecording(
                f"{held_out} of {len(worlds)} worlds cannot be held out so that some are left; "
                "give a share between 0 and 1, or record more seeds"
            )
        out = worlds[:count]
        return self._chosen(lambda part: ~np.isin(part.worlds, out)), self._chosen(
            lambda part: np.isin(part.worlds, out)
        )

    def trajectories(self, generator: torch.Generator | None = None) -> Iterator[Trajectory]:
        """Every episode once: in the order of the files, or shuffled by a generator of one's own.

        A shuffled pass holds at most `POOL` episodes and those of one file in memory.
        """
        if generator is None:
            for part in self.parts:
                yield from _read(part)
            return
        pool: list[Trajectory] = []
        for place in torch.randperm(len(self.parts), generator=generator).tolist():
            pool += _read(self.parts[place])
            while len(pool) > POOL:
                yield _drawn(pool, generator)
        while pool:
            yield _drawn(pool, generator)

    def batches(self, episodes_per_batch: int, generator: torch.Generator | None = None) -> Iterator[Sequences]:
        """Every episode once, so many rows at a time; the last batch may be smaller. See `trajectories`."""
        if episodes_per_batch < 1:
            raise BadRecording(f"{episodes_per_batch} episodes make no batch; give at least 1")
        rows: list[Sequences] = []
        for trajectory in self.trajectories(generator):
            rows.append(trajectory.sequences())
            if len(rows) == episodes_per_batch:
                yield join(rows)
                rows = []
        if rows:
            yield join(rows)

    def _chosen(self, choose: Callable[[Part], NDArray[np.bool_]]) -> "Recording":
        parts = [replace(part, chosen=part.chosen & choose(part)) for part in self.parts]
        return replace(self, parts=[part for part in parts if part.chosen.any()])


def files_of(path: Path) -> list[Path]:
    """The files of a recording."""
    if path.is_file():
        return [path]
    if (path / RECORDING).is_dir():
        path = path / RECORDING
    found = sorted(path.glob("*.parquet")) if path.is_dir() else []
    if not found:
        raise BadRecording(
            f"{path} has no recording; give what 'esper record' made, or a run or an exam that kept its episodes"
        )
    return found


def _refuse_known(file: Path, trajectories: Sequence[Trajectory], known: set[int]) -> None:
    for row, each in enumerate(trajectories):
        task, policy, seed, number = each.about.key
        code = derive(seed, task, policy, number)
        if code in known:
            raise BadRecording(
                f"{file}: row {row}: the episode of '{policy}' on '{task}' with seed {seed} is there twice; "
                "remove one of the files"
            )
        known.add(code)


def _read(part: Part) -> list[Trajectory]:
    """Files may have changed since they were judged, so they are judged again."""
    _, found = read_part(part.path)
    if len(found) != len(part.chosen):
        raise BadRecording(f"{part.path} has changed since it was opened; open the recording again")
    return [each for each, chosen in zip(found, part.chosen, strict=True) if chosen]


def _drawn(pool: list[Trajectory], generator: torch.Generator) -> Trajectory:
    """One of them, which is taken out."""
    place = int(torch.randint(len(pool), (), generator=generator))
    pool[place], pool[-1] = pool[-1], pool[place]
    return pool.pop()


def _present(names: Sequence[str], places: Sequence[Code]) -> tuple[str, ...]:
    there = set().union(*(set(each.tolist()) for each in places))
    return tuple(name for place, name in enumerate(names) if place in there)


class _Names(dict[str, int]):
    """Names, each with a number."""

    def place(self, name: str) -> int:
        return self.setdefault(name, len(self))
