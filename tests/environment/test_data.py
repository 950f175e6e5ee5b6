"""Three splits that share nothing, the same in every process, and an error for whatever is missing."""

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from esper.environment import (
    CIFAR10,
    FASHION_MNIST,
    SOURCES,
    MissingData,
    MissingLibrary,
    Splits,
    UnreadableData,
    WrongSchema,
    augmented,
    digits,
    hub,
    spirals,
)
from esper.environment.data import first_rows, partition

TINY = replace(CIFAR10, repository="nobody/tiny", config="plain_text", shape=(3, 4, 4))
GREY = replace(FASHION_MNIST, repository="nobody/grey", shape=(1, 4, 4))
EMBEDDED = {"digits": (digits, (997, 400, 400)), "spirals": (spirals, (1_200, 600, 600))}


def parts(splits: Splits) -> list[Tensor]:
    return [tensor for split in (splits.train, splits.evaluation, splits.test) for tensor in (split.x, split.y)]


def random_states() -> tuple[bytes, ...]:
    return (
        torch.get_rng_state().numpy().tobytes(),
        repr(np.random.get_state()).encode(),
        repr(random.getstate()).encode(),
    )


# Embedded sets


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_set_has_the_documented_sizes_shapes_and_types(name):
    load, sizes = EMBEDDED[name]
    source = SOURCES[name]
    for split, size in zip((load().train, load().evaluation, load().test), sizes, strict=True):
        assert split.x.shape == (size, *source.shape)
        assert split.x.dtype == torch.float32
        assert torch.isfinite(split.x).all()
        assert split.y.shape == (size,)
        assert split.y.dtype == torch.int64
        assert split.y.unique().tolist() == list(range(source.classes))


def test_digits_lie_in_0_to_1_and_spirals_near_the_origin():
    assert digits().train.x.min() == 0.0
    assert digits().train.x.max() == 1.0
    assert spirals().train.x.norm(dim=1).max() < 2.5


def test_partition_gives_every_row_to_exactly_one_split():
    train, evaluation, test = partition((5, 3, 2), torch.Generator().manual_seed(0))
    assert [len(train), len(evaluation), len(test)] == [5, 3, 2]
    assert sorted(torch.cat((train, evaluation, test)).tolist()) == list(range(10))


def test_every_digit_of_the_source_is_in_exactly_one_split():
    raw = torch.tensor(load_digits().images, dtype=torch.float32) / 16.0
    row_of = {image.numpy().tobytes(): row for row, image in enumerate(raw)}
    rows = [
        row_of[image.squeeze(0).numpy().tobytes()]
        for split in (digits().train, digits().evaluation, digits().test)
        for image in split.x
    ]
    assert sorted(rows) == list(range(1_797))
    labels = torch.cat((digits().train.y, digits().evaluation.y, digits().test.y))
    assert labels.tolist() == load_digits().target[rows].tolist()


def test_no_point_of_the_spirals_is_in_two_splits():
    x = torch.cat((spirals().train.x, spirals().evaluation.x, spirals().test.x))
    assert len(x.unique(dim=0)) == 2_400


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_set_neither_reads_nor_moves_the_global_random_numbers(name):
    load, _ = EMBEDDED[name]
    versions = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        np.random.seed(noise)
        random.seed(noise)
        before = random_states()
        versions.append(load.__wrapped__())
        assert random_states() == before
    assert all(torch.equal(a, b) for a, b in zip(*map(parts, versions), strict=True))


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_set_is_loaded_once_and_needs_no_directory(name, tmp_path):
    load, _ = EMBEDDED[name]
    assert load() is SOURCES[name].load(None)
    assert load() is SOURCES[name].load(tmp_path / "not there")


# Hub sets


@pytest.fixture
def datasets(monkeypatch, tmp_path_factory):
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    library.disable_progress_bars()
    return library


def picture(row: int, size: int = 4, grey: bool = False) -> Image.Image:
    pixels = np.full((size, size) if grey else (size, size, 3), row % 256, dtype=np.uint8)
    return Image.fromarray(pixels)


def write(library, folder: Path, splits: dict[str, dict[str, list]]) -> Path:
    """Parquet files in the hub's layout: split → field → values."""
    for split, columns in splits.items():
        features = {
            field: library.Image() if isinstance(values[0], Image.Image) else library.Value(kind_of(values[0]))
            for field, values in columns.items()
        }
        path = folder / "plain_text" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        library.Dataset.from_dict(columns, features=library.Features(features)).to_parquet(path)
    return folder


def kind_of(value: object) -> str:
    return {int: "int64", str: "string", float: "float64"}[type(value)]


def rows(first: int, count: int, field: str = "img", grey: bool = False) -> dict[str, list]:
    span = range(first, first + count)
    return {field: [picture(row, grey=grey) for row in span], "label": [row % 10 for row in span]}


def rows_of(x: Tensor, source) -> list[int]:
    """The row number that `picture` painted, read back from the normalised first channel."""
    return [round(255 * (value * source.deviation[0] + source.mean[0])) for value in x[:, 0, 0, 0].tolist()]


def test_hub_set_in_a_local_directory_is_cut_into_three_disjoint_splits(datasets, tmp_path):
    write(datasets, tmp_path / "tiny", {"train": rows(0, 21), "test": rows(100, 9)})
    splits = hub(TINY, tmp_path)
    assert rows_of(splits.train.x, TINY) == list(range(16))
    assert rows_of(splits.evaluation.x, TINY) == list(range(16, 21))
    assert rows_of(splits.test.x, TINY) == list(range(100, 109))
    assert splits.evaluation.y.tolist() == [6, 7, 8, 9, 0]
    assert splits.train.x.shape[1:] == (3, 4, 4)
    assert splits.train.x.dtype == torch.float32


def test_evaluation_takes_no_more_than_its_share_of_a_large_set(datasets, tmp_path, monkeypatch):
    monkeypatch.setattr("esper.environment.data.EVALUATION_ROWS", 3)
    write(datasets, tmp_path / "tiny", {"train": rows(0, 30), "test": rows(100, 2)})
    assert rows_of(hub(TINY, tmp_path).evaluation.x, TINY) == [27, 28, 29]


def test_a_set_larger_than_one_batch_of_rows_keeps_its_order(datasets, tmp_path, monkeypatch):
    monkeypatch.setattr("esper.environment.data.BATCH_ROWS", 4)
    write(datasets, tmp_path / "tiny", {"train": rows(0, 15), "test": rows(100, 9)})
    assert rows_of(hub(TINY, tmp_path).test.x, TINY) == list(range(100, 109))


def test_images_are_channels_first_and_normalised_by_the_constants_of_each_channel(datasets, tmp_path):
    pixels = np.zeros((4, 4, 3), dtype=np.uint8)
    pixels[1, 2] = (255, 51, 102)
    columns = {"img": [Image.fromarray(pixels)] * 2, "label": [0, 1]}
    write(datasets, tmp_path / "tiny", {"train": columns, "test": columns})
    x = hub(TINY, tmp_path).test.x[0]
    mean, deviation = torch.tensor(TINY.mean), torch.tensor(TINY.deviation)
    assert torch.allclose(x[:, 1, 2], (torch.tensor([1.0, 0.2, 0.4]) - mean) / deviation)
    assert torch.allclose(x[:, 0, 0], -mean / deviation)


def test_grey_images_have_one_channel(datasets, tmp_path):
    columns = {name: rows(first, 5, "image", grey=True) for name, first in (("train", 0), ("test", 50))}
    write(datasets, tmp_path / "grey", columns)
    assert rows_of(hub(GREY, tmp_path).test.x, GREY) == list(range(50, 55))
    assert hub(GREY, tmp_path).test.x.shape == (5, 1, 4, 4)


def test_directory_of_sets_and_directory_of_the_set_give_the_same_object(datasets, tmp_path, monkeypatch):
    folder = write(datasets, tmp_path / "tiny", {"train": rows(0, 5), "test": rows(100, 2)})
    monkeypatch.chdir(tmp_path)
    first = hub(TINY, tmp_path)
    assert hub(TINY, folder) is first
    assert hub(TINY, Path("tiny")) is first
    assert hub(TINY, Path()) is first


def test_a_set_whose_config_has_its_own_name_is_read_from_the_top(datasets, tmp_path):
    folder = write(datasets, tmp_path / "tiny", {"train": rows(0, 5), "test": rows(100, 2)})
    (folder / "plain_text").rename(folder / "tiny")
    assert hub(TINY, folder) is hub(TINY, tmp_path)


def test_hub_set_leaves_the_global_random_numbers_alone(datasets, tmp_path):
    write(datasets, tmp_path / "tiny", {"train": rows(0, 5), "test": rows(100, 2)})
    before = random_states()
    hub(TINY, tmp_path)
    assert random_states() == before


@pytest.mark.slow
def test_a_worker_that_loads_a_hub_set_and_is_killed_leaves_no_semaphore_behind(datasets, tmp_path):
    """Python says at its end what was left behind; the progress bars of the library share one among processes."""
    write(datasets, tmp_path / "tiny", {"train": rows(0, 5), "test": rows(100, 2)})
    program = (
        "import multiprocessing, os, signal, sys; from pathlib import Path\n"
        "multiprocessing.set_start_method('forkserver')\n"
        "from tests.environment.test_data import TINY, hub\n"
        f"hub(TINY, Path({str(tmp_path)!r})); sys.stdout.write('loaded'); sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert ended.stdout == "loaded"
    assert "leaked" not in ended.stderr


GOOD = {"train": rows(0, 5), "test": rows(100, 2)}
BAD_SCHEMAS = [
    ({"train": rows(0, 5)}, r"has the splits \['train'\], not \['test'\]"),
    ({"train": rows(0, 5, "imgs"), "test": rows(0, 2, "imgs")}, "no field 'img'; did you mean 'imgs'"),
    ({"train": {"img": [picture(0)] * 5}, "test": {"img": [picture(0)]}}, "no field 'label'"),
    ({**GOOD, "test": {"img": [picture(0)]}}, r"labels that are not integers in 0\.\.9"),
    (
        {**GOOD, "test": {"img": [picture(0, size=5)], "label": [0]}},
        r"images of uint8 \(5, 5, 3\), not uint8 \(4, 4, 3\)",
    ),
    ({**GOOD, "test": {"img": [picture(0), picture(0, size=5)], "label": [0, 1]}}, r"not uint8 \(4, 4, 3\)"),
    ({**GOOD, "test": {"img": [picture(0, grey=True)], "label": [0]}}, r"images of uint8 \(4, 4\), not"),
    ({split: {"img": ["0.png"] * 2, "label": [0, 1]} for split in GOOD}, r"not uint8 \(4, 4, 3\)"),
    ({**GOOD, "test": {"img": [picture(0)], "label": [10]}}, r"labels that are not integers in 0\.\.9"),
    ({**GOOD, "test": {"img": [picture(0)], "label": [-1]}}, r"labels that are not integers in 0\.\.9"),
    (
        {split: {"img": [picture(0)] * 2, "label": ["cat", "dog"]} for split in GOOD},
        r"labels that are not integers in 0\.\.9",
    ),
    ({**GOOD, "train": rows(0, 1)}, "split train has 1 rows; training and evaluation need at least 2"),
]


@pytest.mark.parametrize(("splits", "message"), BAD_SCHEMAS)
def test_data_of_another_schema_is_refused(datasets, tmp_path, splits, message):
    write(datasets, tmp_path / "tiny", splits)
    with pytest.raises(WrongSchema, match=message):
        hub(TINY, tmp_path)


def test_another_set_of_the_same_shape_is_no_substitute(datasets, tmp_path):
    """Only the names of the labels tell MNIST from Fashion-MNIST."""
    for names in (list("0123456789"), list(GREY.names)):
        for split in ("train", "test"):
            columns = rows(0, 5, "image", grey=True)
            features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
            path = tmp_path / names[0][0] / "plain_text" / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            datasets.Dataset.from_dict(columns, features=features).to_parquet(path)
    with pytest.raises(WrongSchema, match=r"has the labels 0, 1, 2.*; those of nobody/grey differ"):
        hub(GREY, tmp_path / "0")
    assert len(hub(GREY, tmp_path / "T").train.y) == 4


def test_a_split_without_rows_is_refused(datasets, tmp_path):
    folder = write(datasets, tmp_path / "tiny", GOOD)
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    empty = datasets.Dataset.from_dict({"img": [], "label": []}, features=features)
    empty.to_parquet(folder / "plain_text" / "test-00000-of-00001.parquet")
    with pytest.raises(UnreadableData, match=r'cannot be read \(ValueError: Instruction "test" corresponds to no data'):
        hub(TINY, tmp_path)


def test_a_missing_directory_is_named_with_what_it_should_hold(tmp_path):
    with pytest.raises(MissingData, match=r"no directory .*nowhere; give one with --data-dir DIR that holds 'cifar10'"):
        hub(CIFAR10, tmp_path / "nowhere")


def test_an_empty_directory_is_refused(datasets, tmp_path):
    with pytest.raises(UnreadableData, match=r"cannot be read .*--data-dir DIR needs 'tiny' in the schema of"):
        hub(TINY, tmp_path)


def test_a_broken_file_is_refused(datasets, tmp_path):
    folder = write(datasets, tmp_path / "tiny", GOOD)
    (folder / "plain_text" / "test-00000-of-00001.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(UnreadableData, match=r"tiny cannot be read \(ArrowInvalid: "):
        hub(TINY, tmp_path)


def test_bytes_that_are_no_image_are_refused_with_its_row(datasets, tmp_path):
    folder = write(datasets, tmp_path / "tiny", GOOD)
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    columns = {"img": [{"bytes": b"no picture", "path": None}], "label": [0]}
    broken = datasets.Dataset.from_dict(columns, features=features)
    broken.to_parquet(folder / "plain_text" / "test-00000-of-00001.parquet")
    with pytest.raises(UnreadableData, match="split test cannot be decoded from row 0 on"):
        hub(TINY, tmp_path)


def test_a_failure_is_not_remembered(datasets, tmp_path):
    with pytest.raises(UnreadableData, match="cannot be read"):
        hub(TINY, tmp_path)
    write(datasets, tmp_path / "tiny", GOOD)
    assert len(hub(TINY, tmp_path).test.y) == 2


def test_what_cannot_be_downloaded_is_an_error_that_says_what_to_do(datasets, monkeypatch):
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        MissingData, match=r"nobody/tiny could not be downloaded .*--data-dir DIR, where DIR holds 'tiny'"
    ):
        hub(TINY)


def test_a_missing_library_is_an_error_that_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for data_dir in (None, tmp_path):
        with pytest.raises(MissingLibrary, match=r'pip install "esper-growth\[data\]"'):
            hub(replace(TINY, repository="nobody/unread"), data_dir)


# Parts of a set


@pytest.mark.parametrize(("samples", "few"), [(2, 1), (4, 1), (5, 2), (100, 25), (1_000, 250)])
def test_the_first_rows_are_the_first_and_a_quarter_as_many_to_evaluate_on(samples, few):
    whole, part = spirals(), first_rows(spirals(), samples)
    assert (len(part.train.x), len(part.evaluation.x)) == (samples, few)
    assert torch.equal(part.train.x, whole.train.x[:samples])
    assert torch.equal(part.train.y, whole.train.y[:samples])
    assert torch.equal(part.evaluation.x, whole.evaluation.x[:few])
    assert torch.equal(part.evaluation.y, whole.evaluation.y[:few])
    assert part.test is whole.test


def test_more_rows_than_there_are_give_all_of_them():
    part = first_rows(spirals(), 10_000)
    assert all(torch.equal(one, other) for one, other in zip(parts(part), parts(spirals()), strict=True))


def test_a_part_is_held_once_and_shares_the_memory_of_the_whole():
    part = first_rows(spirals(), 64)
    assert first_rows(spirals(), 64) is part
    assert part.train.x.data_ptr() == spirals().train.x.data_ptr()


# Augmentation


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_augmentation_depends_on_the_batch_and_its_generator_only():
    images = torch.randn(64, 3, 8, 8)
    kept, before = images.clone(), random_states()
    first = augmented(images, generator())
    assert random_states() == before
    assert first.shape == images.shape
    assert first.dtype == images.dtype
    assert torch.equal(images, kept)
    torch.manual_seed(99)
    assert torch.equal(augmented(images, generator()), first)
    assert not torch.equal(augmented(images, generator(4)), first)


def test_augmentation_moves_its_generator_on():
    images, numbers = torch.randn(64, 3, 8, 8), generator()
    assert not torch.equal(augmented(images, numbers), augmented(images, numbers))


def shifts(image: Tensor, padding: int) -> list[Tensor]:
    """All that may become of one image, one by one."""
    _, height, width = image.shape
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    crops = [
        padded[:, top : top + height, left : left + width]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    return crops + [crop.flip(2) for crop in crops]


def test_every_augmented_image_is_a_shift_of_its_own_image_perhaps_mirrored():
    images = torch.randn(200, 2, 5, 6)
    seen = set()
    for image, result in zip(images, augmented(images, generator(), padding=1), strict=True):
        matches = [index for index, each in enumerate(shifts(image, 1)) if torch.equal(each, result)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert seen == set(range(18))
