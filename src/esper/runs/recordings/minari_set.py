"""Recordings to and from data sets of Minari, which other people's offline learners read. Needs the extra `minari`.

Minari has one space for all episodes of a set: what bodies of fewer slots and blueprints lack is padded with zeros, and
cut off again on the way back. What Minari has no place for (task, policy, score, names) is kept beside each episode.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gymnasium import spaces

from esper.contracts import ActionCodec, EsperError, Head
from esper.runs.directory import Unwritable
from esper.runs.recordings.part import EPISODES_PER_PART, write_part
from esper.runs.recordings.recording import Recording
from esper.runs.recordings.row import facts_of, trajectory_of
from esper.runs.recordings.schema import BIT, CHOICE, LOG_PROB, NUMBERS, SEEN, BadRecording, RecordingSchema
from esper.runs.trajectory import Numbers, Trajectory

OURS, MAIN, FORMAT = "esper", "main_data.hdf5", "hdf5"
MOST_BYTES = 200_000_000
"""Of one array of a data set that is read."""


class MissingMinari(EsperError):
    """What reads and writes data sets of Minari is not installed."""


class BadName(EsperError):
    """A directory whose name Minari cannot take for a data set."""


class DataSetExists(EsperError):
    """The place is taken."""


def to_minari(recording: Recording, directory: Path) -> int:
    """A new data set, whole or not at all; how many episodes it has."""
    minari = _minari()
    from minari.data_collector.episode_buffer import EpisodeBuffer  # an extra: everything else does without it
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage

    try:
        parse_dataset_id(directory.name)
    except (ValueError, TypeError) as error:  # the second is what it raises for a name without a version
        raise BadName(f"'{directory.name}' cannot name a Minari data set; end the path as in data/grow-v0") from error
    room = _largest(recording)
    shapes = recording.schema.shapes(room)
    shown = spaces.Dict({name: _space(name, shapes[name]) for name in SEEN})
    with _new(directory) as part:
        storage = MinariStorage.new(part / "data", shown, spaces.MultiDiscrete(list(room.sizes)), data_format=FORMAT)
        told = {"dataset_id": directory.name, "minari_version": minari.__version__, OURS: recording.schema.to_json()}
        storage.update_metadata(told | {"algorithm_name": ", ".join(recording.policies)})
        episodes = recording.trajectories()
        first = 0
        while block := list(islice(episodes, EPISODES_PER_PART)):
            storage.update_episodes([EpisodeBuffer(**_buffer(each, shapes)) for each in block])
            facts = [{OURS: msgspec.json.encode(facts_of(each)).decode()} for each in block]
            storage.update_episode_metadata(facts, range(first, first + len(block)))
            first += len(block)
    return first


def from_minari(directory: Path, path: Path) -> int:
    """A new recording of what `to_minari` wrote, whole or not at all; how many episodes it has."""
    _minari()
    with _new(path) as part:
        episodes, count = _episodes(directory), 0
        schema = _schema(directory)
        while block := list(islice(episodes, EPISODES_PER_PART)):
            write_part(part / f"part-{count // EPISODES_PER_PART:05d}.parquet", block, schema)
            count += len(block)
        if not count:
            raise BadRecording(f"{directory} has no episodes; give what 'esper recording to-minari' wrote")
    return count


def _minari() -> Any:
    missing = [name for name in ("minari", "h5py", "PIL") if find_spec(name) is None]
    if missing:
        raise MissingMinari(f"{' and '.join(missing)} is not installed here; pip install 'esper-growth[minari]'")
    import minari  # an extra

    return minari


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """Where to write what will be at that path when all of it is there."""
    part = path.absolute().with_name(f".{path.name}.part")
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataSetExists(f"{path} is there already; give a place that is new or empty")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        yield part
        part.replace(path)
    except OSError as error:
        raise Unwritable.because(path, error, ", or give another place") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _largest(recording: Recording) -> ActionCodec:
    """A body that has room for all."""
    sizes = [(len(each.codec.slots), len(each.codec.blueprints)) for each in recording.trajectories()]
    slots, blueprints = (range(max(column)) for column in zip(*sizes, strict=True))
    return ActionCodec(tuple(map(str, slots)), tuple(map(str, blueprints)))


def _space(name: str, shape: tuple[int, ...]) -> spaces.Space[Any]:
    return spaces.MultiBinary(shape) if SEEN[name] == BIT else spaces.Box(-np.inf, np.inf, shape, np.float32)


def _buffer(each: Trajectory, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    over = np.arange(each.steps) == each.steps - 1
    infos = {"log_probs": _padded(each.log_probs, (each.steps + 1, len(Head)))}
    if each.values is not None:
        infos["expected"] = _padded(each.values, (each.steps + 1,))
    return {
        "observations": {n: _padded(each.observation[n], (each.steps + 1, *shapes[n])) for n in SEEN},
        "actions": each.choices.astype(np.int64),
        "rewards": each.rewards,
        "terminations": over & each.about.terminated,
        "truncations": over & (not each.about.terminated),
        "infos": infos,
    }


def _padded(array: Numbers, shape: tuple[int, ...]) -> Numbers:
    result = np.zeros(shape, array.dtype)
    result[tuple(slice(size) for size in array.shape)] = array
    return result


def _schema(directory: Path) -> RecordingSchema:
    """Of a set that says all of itself: without spaces Minari would make any environment that is named there."""
    from minari.dataset.minari_storage import MinariStorage  # an extra

    try:
        told = MinariStorage.read_raw_metadata(directory / "data")
        if told["data_format"] != FORMAT or not {"observation_space", "action_space"} <= told.keys():
            raise BadRecording("is not of format hdf5, or names no spaces")
        return RecordingSchema.from_json(told[OURS])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise BadRecording(f"{directory} is no Minari data set that 'esper recording to-minari' wrote") from error
    except BadRecording as error:
        raise BadRecording(f"{directory} {error}") from None


def _episodes(directory: Path) -> Iterator[Trajectory]:
    """One after the other. Raises `BadRecording` for anything that is no episode of a recording."""
    from minari.dataset.minari_storage import MinariStorage  # an extra

    schema = _schema(directory)
    try:
        _require_bounded(directory / "data" / MAIN)
        storage = MinariStorage.read(directory.absolute() / "data")  # it joins relative paths twice
        places = range(storage.total_episodes)
        for number, told, found in zip(
            places, storage.get_episode_metadata(places), storage.get_episodes(places), strict=True
        ):
            try:
                yield _trajectory(told, found, schema)
            except (BadRecording, msgspec.DecodeError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise BadRecording(f"{directory}: episode {number}: {error}; export it again") from error
    except (ValueError, KeyError, TypeError, AssertionError, OSError, RuntimeError) as error:
        raise BadRecording(f"{directory} cannot be read as a Minari data set ({error}); export it again") from error


def _require_bounded(path: Path) -> None:
    """Nothing in it may lie elsewhere, or unpack to more than there can be: a few bytes can claim to be terabytes."""
    import h5py  # an extra

    def look(group: Any) -> None:
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} lies elsewhere")
            found = group[name]
            if isinstance(found, h5py.Group):
                look(found)
            elif found.nbytes > MOST_BYTES or found.is_virtual or found.external:
                raise ValueError(f"{name} has {found.nbytes:,} bytes, or lies elsewhere")

    with h5py.File(path, "r") as file:
        look(file)


def _trajectory(told: Mapping[str, Any], found: Mapping[str, Any], schema: RecordingSchema) -> Trajectory:
    """Through the same judgement as a row of a file."""
    row = msgspec.json.decode(told[OURS])
    shapes = schema.shapes(ActionCodec(tuple(row["slot_names"]), tuple(row["blueprint_names"])))
    steps = len(found["rewards"])
    arrays = {"rewards": found["rewards"], "expected": found["infos"].get("expected", np.empty(0))[:steps]}
    for place, head in enumerate(Head):
        arrays[f"{CHOICE}{head}"] = found["actions"][:, place]
        arrays[f"{LOG_PROB}{head}"] = found["infos"]["log_probs"][:steps, place]
    for name in SEEN:
        cut = (slice(steps + 1), *map(slice, shapes[name]))
        arrays[name] = found["observations"][name][cut]
    numbers = {name: np.ascontiguousarray(arrays[name], kind).ravel() for name, kind in NUMBERS.items()}
    expected = numbers["expected"] if len(numbers["expected"]) else None
    return trajectory_of(row | numbers | {"expected": expected}, schema)
