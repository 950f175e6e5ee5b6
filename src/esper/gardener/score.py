"""What a user's evaluation says: one number, or a dictionary with a loss beside it, in the direction that is better."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from esper.gardener.errors import NoScore
from esper.growth import Body, Coalition

Direction = Literal["max", "min"]
Evaluate = Callable[[Any], Any]
"""Given the model, returns its score; a number, or a mapping that has `accuracy` or `score`, and perhaps `loss`."""

NAMES: dict[str, tuple[str, ...]] = {"max": ("score", "accuracy"), "min": ("score", "loss")}
"""Under what names a score is looked for in a mapping."""


@dataclass(frozen=True)
class Answer:
    """What an evaluation said. A loss that was not told is None."""

    score: float
    loss: float | None

    @property
    def finite(self) -> bool:
        return math.isfinite(self.score) and (self.loss is None or math.isfinite(self.loss))


def read_answer(told: Any, direction: Direction) -> Answer:
    """The score and the loss in what an evaluation returned.

    >>> read_answer({"accuracy": 0.9, "loss": 0.3}, "max"), read_answer(0.3, "min")
    (Answer(score=0.9, loss=0.3), Answer(score=0.3, loss=0.3))
    """
    if not isinstance(told, Mapping):
        score = _number(told, "it")
        return Answer(score, score if direction == "min" else None)
    name = next((name for name in NAMES[direction] if name in told), None)
    if name is None:
        raise NoScore(
            f"evaluate returned a mapping with {', '.join(map(repr, told)) or 'nothing'}; for direction='{direction}' "
            f"it needs {' or '.join(map(repr, NAMES[direction]))}"
        )
    score, loss = _number(told[name], f"'{name}'"), told.get("loss")
    return Answer(score, _number(loss, "'loss'") if loss is not None else score if direction == "min" else None)


def _number(value: Any, what: str) -> float:
    try:
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, str | bytes | bool):
            raise TypeError
        return float(number)
    except (TypeError, ValueError, RuntimeError):
        raise NoScore(
            f"evaluate returned a {type(value).__name__} where {what} must be a number; return the score, such as the "
            "accuracy as a fraction, or a dict like {'accuracy': 0.93, 'loss': 0.2}"
        ) from None


def answers_for(
    body: Body, evaluate: Callable[[], Any], coalitions: Sequence[Coalition], direction: Direction
) -> list[Answer]:
    """What the evaluation says of the network with the seeds of each coalition alone.

    Whatever happens, modes are as before. All calls but the first leave the random numbers as they were, so that how
    often an evaluation is asked changes nothing that comes after it.
    """
    answers = []
    for index, coalition in enumerate(coalitions):
        with in_evaluation(body.host), body.only(coalition), torch.random.fork_rng(_devices(), enabled=index > 0):
            answers.append(read_answer(evaluate(), direction))
    return answers


def _devices() -> list[int]:
    return [torch.cuda.current_device()] if torch.cuda.is_initialized() else []


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every submodule is in the mode that it was in."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
