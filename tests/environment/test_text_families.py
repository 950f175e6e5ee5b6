"""Families of texts: the same task for ever, symbols of its own vocabulary, and tasks that no other family has."""

import hashlib

import numpy as np
import pytest

from esper.environment import FAMILIES, find_task
from esper.environment.families.text_tasks import HELD_OUT
from esper.environment.families.texts import TEXT_KINDS

NUMBERS = range(12)
SUMMARY = "brackets, 9 symbols, 16000 tokens; 4 layers of 32, context 32; adam 0.014, rent 0.024"
DIGEST = "c2c972604411c7aa"


def look_of(name: str, number: int) -> dict[str, int]:
    return {each: among.pick(number) for each, among in TEXT_KINDS[name].ranges.items()}


def written(name: str, number: int = 5, count: int = 3_000) -> np.ndarray:
    kind = TEXT_KINDS[name]
    return kind.write(look_of(name, number), np.random.Generator(np.random.PCG64(7)), count)


@pytest.mark.parametrize("name", TEXT_KINDS)
@pytest.mark.parametrize("number", [0, 1, 2, 999_999])
def test_a_text_has_the_asked_length_and_stays_within_its_vocabulary(name, number):
    tokens = written(name, number)
    assert tokens.shape == (3_000,)
    assert tokens.min() >= 0
    assert tokens.max() < TEXT_KINDS[name].vocabulary(look_of(name, number))


@pytest.mark.parametrize("name", TEXT_KINDS)
def test_a_text_has_something_to_learn(name):
    """Pairs of neighbours, or of what stands as far apart as its echo, tell more than single symbols do."""
    tokens = written(name, 6, 20_000)
    apart = look_of(name, 6)["length"] + 1 if name == "echo" else 1
    size = tokens.max() + 1
    pairs = np.bincount(tokens[:-apart] * size + tokens[apart:], minlength=size * size).reshape(size, size)
    joint, single = pairs / pairs.sum(), pairs.sum(axis=0) / pairs.sum()
    first = joint.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nansum(joint * np.log(joint / (first * single)))
    assert information > 0.05


def test_sums_are_right():
    lines = _lines(written("sums", 4).tolist(), 12)
    assert len(lines) > 100
    for line in lines:
        left, right = line[: line.index(11)], line[line.index(11) + 1 :]
        one, other = left[: left.index(10)], left[left.index(10) + 1 :]
        assert _number(one) + _number(other) == _number(right)


def _lines(tokens: list[int], end: int) -> list[list[int]]:
    cuts = [at for at, token in enumerate(tokens) if token == end]
    return [tokens[begin + 1 : stop] for begin, stop in zip([-1, *cuts], cuts, strict=False)]


def _number(digits: list[int]) -> int:
    return sum(digit * 10**place for place, digit in enumerate(digits))


def test_brackets_are_closed_by_their_own_kind():
    kinds, opened = look_of("brackets", 5)["kinds"], []
    for token in written("brackets").tolist():
        if token < kinds:
            opened.append(token)
        elif token < 2 * kinds:
            assert opened.pop() == token - kinds


def test_a_task_of_a_name_is_the_same_for_ever():
    task = find_task("family:text/17")
    assert task.summary == SUMMARY
    splits = task.load(None)
    assert hashlib.sha256(splits.train.x.contiguous().numpy().tobytes()).hexdigest()[:16] == DIGEST
    assert sum(int((split.y >= 0).sum()) for split in (splits.evaluation, splits.test)) == 2 * (HELD_OUT - 1)


def test_the_families_of_texts_share_no_task():
    drawn = [
        find_task(f"family:{family}/{number}") for family in ("text", "text-dev", "text-exam") for number in NUMBERS
    ]
    assert len({(task.summary, task.horizon, task.batches) for task in drawn}) == len(drawn)
    assert {task.judged_by for task in drawn} == {"loss"}


def test_older_families_draw_what_they_always_drew():
    assert find_task("family:small/17").summary == (
        "digits 1x8x8, 9 classes, up to 128 rows; blocks 12-13-14-15-16, kernels 1-1-3-1-3, batch norm, 2 pooled, "
        "residual; sgd 0.12, rent 0.14"
    )
    assert [name for name in FAMILIES if not name.startswith("text")] == [
        "small", "small-dev", "small-exam", "wide", "far-exam", "fashion", "cifar",
    ]  # fmt: skip
