"""What a task goes by: the name of a registered one, a draw of a family, or a file."""

import math
import re
from dataclasses import fields, replace
from pathlib import Path

import torch

from esper.contracts import EsperError, Topology, nearest
from esper.environment.data import SOURCES, Source
from esper.environment.families import FAMILIES, MOST_SEEDS, Family
from esper.environment.task_file import FamilyFile, HostShape, InvalidTaskFile, TaskFile, read_task_file
from esper.environment.tasks import InvalidTask, Task, all_tasks, task_on, trained_on_text, with_samples
from esper.environment.text import TEXTS, text_file
from esper.growth import ConvShape, DenseShape, GPTShape, count_parameters, graft

MAX_FILE_PARAMETERS = 50_000_000
HOSTS: dict[str, type[HostShape]] = {"conv": ConvShape, "dense": DenseShape, "gpt": GPTShape}
SETTINGS = {each.name for each in fields(TaskFile)} - {"name", "summary"}
"""What a file says as a task has it."""


class UnknownTask(EsperError):
    """No task of that name."""


FAMILY = "family:"


def find_task(name: str) -> Task:
    """The registered task of that name, the draw of a family (`family:small/17`), or the task in a .toml file."""
    if name.lower().endswith(".toml"):
        return load_task(Path(name))
    if is_drawn(name):
        family, seed = _parts(name)
        if seed is None:
            raise UnknownTask(f"'{name}' is a family of tasks; name one of them, as in {name}/17")
        return family.draw(seed)
    known = {each.name: each for each in all_tasks()}
    if name not in known:
        raise UnknownTask(
            f"no task '{name}'; {nearest(name, known)}; a task of your own is named by its file, as in my-task.toml"
        )
    return known[name]


def find_family(name: str) -> Family:
    """The family of that name, as in `family:small`."""
    return _parts(name)[0]


def task_in_episode(name: str, seed: int) -> Task:
    """What the episode of that seed plays: the task of that name or, of a whole family, its task of that seed."""
    return find_family(name).draw(seed % MOST_SEEDS) if is_family(name) else find_task(name)


def is_drawn(name: str) -> bool:
    """Whether the name is that of a family or of one of its tasks."""
    return name.startswith(FAMILY)


def is_family(name: str) -> bool:
    """Whether the name is that of a whole family, which draws a task for every episode."""
    return is_drawn(name) and _parts(name)[1] is None


def stem_of(name: str) -> str:
    """What files and directories that belong to the task are called after it.

    >>> stem_of("family:small/17"), stem_of("tasks/mine.toml")
    ('family-small-17', 'mine')
    """
    return re.sub("[:/]", "-", name) if is_drawn(name) else Path(name).stem


def _parts(name: str) -> tuple[Family, int | None]:
    family, slash, seed = name.removeprefix(FAMILY).partition("/")
    if family not in FAMILIES:
        raise UnknownTask(f"no family '{family[:80]}'; {nearest(family, FAMILIES)}")
    if slash and not re.fullmatch("0|[1-9][0-9]{0,17}", seed):
        raise UnknownTask(
            f"family '{family}' has no task '{seed[:80]}'; name one by its number, as in {FAMILY}{family}/17"
        )
    return FAMILIES[family], int(seed) if slash else None


def load_task(path: Path) -> Task:
    """The task in a user's TOML file, checked down to whether its slots can be grafted. Loads no data."""
    file = read_task_file(path)
    try:
        if is_drawn(file.name):
            raise InvalidTask(f"only a family can name its task {file.name[:80]!r}; choose another name")
        return _of_family(file) if isinstance(file, FamilyFile) else _built(file, path.parent)
    except EsperError as error:
        raise InvalidTaskFile(f"{path}: {error}") from error


def _of_family(file: FamilyFile) -> Task:
    found = replace(find_task(FAMILY + file.family), name=file.name)
    return found if file.rent is None else replace(found, rent=file.rent)


def _built(file: TaskFile, beside: Path) -> Task:
    source = _source(file, beside)
    settings = {each.name: getattr(file, each.name) for each in fields(Task) if each.name in SETTINGS}
    built = task_on(source, file.shape, file.name, file.summary)
    built = trained_on_text(built) if source.is_text else built
    said = {name: value for name, value in settings.items() if value is not None}
    built = replace(built, **said)
    if file.min_contribution is None:
        built = replace(built, min_contribution=built.grain)
    built = built if file.samples is None else with_samples(built, file.samples)
    _check_fit(source, file.shape, bool(file.augment))
    _check_host(built, source)
    return built


def _source(file: TaskFile, beside: Path) -> Source:
    """What the host learns from; a text is cut to its context."""
    known = [*SOURCES, *TEXTS]
    if file.data is not None and file.data not in known:
        raise InvalidTask(f"there is no data named {file.data[:80]!r}; {nearest(file.data, known)}")
    if file.data in SOURCES:
        return SOURCES[file.data]
    if not isinstance(file.shape, GPTShape):
        raise InvalidTask(f"'{file.data or file.text}' is a text; give it a host of kind 'gpt'")
    text = TEXTS[file.data] if file.data is not None else text_file(_inside(beside, str(file.text)))
    return text.source(file.shape.context)


def _inside(folder: Path, name: str) -> Path:
    """A file below the folder, wherever links and dots lead."""
    found = (folder / name).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise InvalidTask(f"'text' is {name[:80]!r}; name a file that lies beside the task file or below it")
    return found


def _check_fit(source: Source, host: HostShape, augment: bool) -> None:
    images = len(source.shape) == 3
    kind = "gpt" if source.is_text else "conv" if images else "dense"
    if not isinstance(host, HOSTS[kind]):
        raise InvalidTask(f"data '{source.name}' has samples of shape {source.shape}; give it a host of kind '{kind}'")
    if isinstance(host, ConvShape) and min(source.shape[1:]) >> len(host.pool_after) == 0:
        halvings = int(math.log2(min(source.shape[1:])))
        raise InvalidTask(
            f"{len(host.pool_after)} poolings leave nothing of shape {source.shape}; at most {halvings} do"
        )
    if augment and not images:
        raise InvalidTask(f"data '{source.name}' has no images to augment; leave `augment` out")


def _check_host(candidate: Task, source: Source) -> None:
    """Built and grafted without memory for weights or features, and without random numbers."""
    with torch.device("meta"):
        host = candidate.build_host()
        parameters = count_parameters(host.parameters())
        if parameters > MAX_FILE_PARAMETERS:
            raise InvalidTask(f"the host has {parameters:,} parameters; at most {MAX_FILE_PARAMETERS:,} are allowed")
        example = torch.zeros(2, *source.shape, dtype=source.dtype)
        causal = Topology.TRANSFORMER if source.is_text else None  # which cannot be seen without weights
        graft(host, candidate.slots, example, topology=causal, blueprints=candidate.blueprints)
