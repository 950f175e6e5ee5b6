"""How a number becomes a value: choices, spans, and spans in equal ratios. Whole-number arithmetic decides."""

from dataclasses import dataclass
from typing import Any

from esper.environment.randomness import derive

RATIOS = 63
"""Equal ratios into which a `Log` is cut."""


class Choice:
    """One of the values, each as likely as its share of the list.

    >>> Choice(16, 32, 64).pick(4), str(Choice("conv", "conv", "dense"))
    (32, 'conv (2 of 3), dense (1 of 3)')
    """

    def __init__(self, *values: Any) -> None:
        self.values = values

    def pick(self, number: int) -> Any:
        return self.values[number % len(self.values)]

    def __str__(self) -> str:
        each = dict.fromkeys(self.values)
        if len(each) == len(self.values):
            return ", ".join(map(_word, each))
        return ", ".join(f"{_word(value)} ({self.values.count(value)} of {len(self.values)})" for value in each)


@dataclass(frozen=True)
class Span:
    """Any integer from `low` to `high`.

    >>> Span(2, 6).pick(5), str(Span(2, 6))
    (2, '2 to 6')
    """

    low: int
    high: int

    def pick(self, number: int) -> int:
        return self.low + number % (self.high - self.low + 1)

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Log:
    """A number from `low` to `high`, every ratio as likely, to two digits.

    >>> Log(0.01, 0.3).pick(0), Log(0.01, 0.3).pick(RATIOS), str(Log(0.01, 0.3))
    (0.01, 0.3, '0.01 to 0.3, log-uniform')
    """

    low: float
    high: float

    def pick(self, number: int) -> float:
        step = number % (RATIOS + 1)
        return float(f"{self.low * (self.high / self.low) ** (step / RATIOS):.2g}")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}, log-uniform"


Range = Choice | Span | Log


@dataclass(frozen=True)
class Draws:
    """All that is drawn for one task. Every purpose has a number of its own, so that none moves the others."""

    sequence: str
    number: int

    def seed(self, purpose: str) -> int:
        return derive(self.number, self.sequence, purpose)

    def pick(self, purpose: str, among: Range) -> Any:
        return among.pick(self.seed(purpose))

    def bits(self, purpose: str, count: int) -> tuple[bool, ...]:
        """So many throws of a coin."""
        return tuple(bool(self.seed(purpose) >> place & 1) for place in range(count))


def _word(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
