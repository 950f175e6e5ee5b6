"""What decides the results of an exam beside tasks, policies and seeds: all rows of a directory share it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import esper
from esper.controller import file_of
from esper.environment import Splits, find_task
from esper.runs.exam.config import ExamConfig

FORMAT = 3


@dataclass(frozen=True)
class ExamIdentity:
    """What is written to `exam.json`."""

    format: int
    device: str
    esper: str
    torch: str
    files: dict[str, str]
    """SHA-256 of the file behind a policy or a task."""
    data: dict[str, str]
    """SHA-256 of the splits of a task: where they lie does not matter."""
    rents: dict[str, float]
    """Of every task."""

    @classmethod
    def of(cls, config: ExamConfig) -> "ExamIdentity":
        """As it is here and now. Loads the data."""
        files = {name: file_of(name) for name in config.policy}
        files |= {name: Path(name) for name in config.task if name.lower().endswith(".toml")}
        where = Path(config.data_dir) if config.data_dir else None
        return cls(
            format=FORMAT,
            device=config.device,
            esper=esper.__version__,
            torch=str(torch.__version__),
            files={name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file},
            data={name: fingerprint(find_task(name).load(where)) for name in config.task_names()},
            rents=config.rents(),
        )

    def changes(self, now: "ExamIdentity") -> Iterator[str]:
        """What keeps rows of then and now apart, in words."""
        for name, words in {"device": "on", "esper": "with esper", "torch": "with torch"}.items():
            before, after = getattr(self, name), getattr(now, name)
            if before != after:
                yield f"was held {words} {before}, now {after}"
        yield from (f"knows '{name}' with other contents" for name in _changed(self.files, now.files))
        yield from (f"knows task '{name}' with other data" for name in _changed(self.data, now.data))
        for name in _changed(self.rents, now.rents):
            yield f"knows task '{name}' at rent {self.rents[name]}, now {now.rents[name]}"

    def joined(self, now: "ExamIdentity") -> "ExamIdentity":
        """With the tasks and policies of both."""
        files, data, rents = ({**getattr(self, what), **getattr(now, what)} for what in ("files", "data", "rents"))
        return replace(self, files=files, data=data, rents=rents)


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return [name for name in now if before.get(name, now[name]) != now[name]]


def fingerprint(splits: Splits) -> str:
    """SHA-256 of all tensors with their shapes."""
    found = hashlib.sha256()
    for split in (splits.train, splits.evaluation, splits.test):
        for tensor in (split.x, split.y):
            found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            found.update(tensor.contiguous().numpy().data)
    return found.hexdigest()
