"""The life of a seed: its stages, what may follow each, and what happens in each. One table."""

from dataclasses import dataclass
from enum import Enum, StrEnum


class Stage(StrEnum):
    """Where a slot stands. The first six are a seed's way in, the last three the way out."""

    DORMANT = "DORMANT"
    GERMINATED = "GERMINATED"
    TRAINING = "TRAINING"
    BLENDING = "BLENDING"
    HOLDING = "HOLDING"
    FOSSILIZED = "FOSSILIZED"
    PRUNED = "PRUNED"
    EMBARGOED = "EMBARGOED"
    RESETTING = "RESETTING"


@dataclass(frozen=True)
class Rule:
    """What one stage allows.

    `holds_seed`: a seed is present. It runs at an alpha above 0, learns, counts as parameters and belongs to the
    optimiser.
    `cools`: the slot is empty and moves on by the clock alone.
    """

    may_become: frozenset[Stage]
    holds_seed: bool = False
    cools: bool = False


def _rule(*may_become: Stage, holds_seed: bool = False, cools: bool = False) -> Rule:
    return Rule(frozenset(may_become), holds_seed, cools)


RULES: dict[Stage, Rule] = {
    Stage.DORMANT: _rule(Stage.GERMINATED),
    Stage.GERMINATED: _rule(Stage.TRAINING, Stage.BLENDING, Stage.PRUNED, holds_seed=True),
    Stage.TRAINING: _rule(Stage.BLENDING, Stage.HOLDING, Stage.PRUNED, holds_seed=True),
    Stage.BLENDING: _rule(Stage.HOLDING, Stage.PRUNED, holds_seed=True),
    Stage.HOLDING: _rule(Stage.BLENDING, Stage.FOSSILIZED, Stage.PRUNED, holds_seed=True),
    Stage.FOSSILIZED: _rule(holds_seed=True),
    Stage.PRUNED: _rule(Stage.EMBARGOED, cools=True),
    Stage.EMBARGOED: _rule(Stage.RESETTING, cools=True),
    Stage.RESETTING: _rule(Stage.DORMANT, cools=True),
}

ADVANCES_TO: dict[Stage, Stage] = {
    Stage.GERMINATED: Stage.TRAINING,
    Stage.TRAINING: Stage.BLENDING,
    Stage.BLENDING: Stage.HOLDING,
}
"""Where the op ADVANCE leads. A seed that need not be blended, because its alpha is on target, goes on to HOLDING."""


class Gate(Enum):
    """The check in front of a stage. HOLDING needs no gate of its own beyond G3, so there is no G4."""

    G0 = Stage.GERMINATED
    G1 = Stage.TRAINING
    G2 = Stage.BLENDING
    G3 = Stage.HOLDING
    G5 = Stage.FOSSILIZED


@dataclass(frozen=True)
class Check:
    """One fact that a gate looked at, and whether it speaks for the operation."""

    fact: str
    holds: bool

    @classmethod
    def that(cls, holds: bool, fact: str, otherwise: str) -> "Check":
        """The sentence that is true: `fact` if it holds, `otherwise` if not."""
        return cls(fact if holds else otherwise, holds)


@dataclass(frozen=True)
class Verdict:
    """What was decided about an operation, and why. True when it may go ahead.

    >>> verdict = Verdict((Check("3 epochs in TRAINING, 2 needed", True), Check("no gradient was measured", False)))
    >>> bool(verdict), verdict.reasons
    (False, ('no gradient was measured',))
    """

    checks: tuple[Check, ...]
    gate: Gate | None = None

    def __bool__(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The facts that decided: those that failed, or all of them when all hold."""
        passed = bool(self)
        return tuple(check.fact for check in self.checks if check.holds is passed)
