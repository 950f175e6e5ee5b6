"""What a controller can do: ops, the heads that refine them, and the values each head can take."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any

from esper.contracts.errors import EsperError
from esper.contracts.metric import ACCURACY_GRAIN
from esper.contracts.slots import SlotId
from esper.contracts.stages import Stage


class Op(IntEnum):
    """One of these is executed per epoch."""

    WAIT = 0
    GERMINATE = 1
    SET_ALPHA_TARGET = 2
    PRUNE = 3
    FOSSILIZE = 4
    ADVANCE = 5


class Head(StrEnum):
    """The factors of an action, in their fixed order."""

    OP = "op"
    SLOT = "slot"
    BLUEPRINT = "blueprint"
    STYLE = "style"
    TEMPO = "tempo"
    ALPHA_TARGET = "alpha_target"
    ALPHA_SPEED = "alpha_speed"
    ALPHA_CURVE = "alpha_curve"


class Operator(Enum):
    """How a seed's delta d enters the host's features h at strength a."""

    ADD = "h + a*d"
    MULTIPLY = "h * (1 + a*tanh(d))"
    GATE = "h + a*g(h)*d"


class AlphaCurve(Enum):
    """The shape of an alpha ramp; the value is (shape, steepness)."""

    LINEAR = ("linear", 0.0)
    COSINE = ("cosine", 0.0)
    SIGMOID_GENTLE = ("sigmoid", 6.0)
    SIGMOID = ("sigmoid", 12.0)
    SIGMOID_SHARP = ("sigmoid", 24.0)

    @property
    def steepness(self) -> float:
        return self.value[1]


class Style(Enum):
    """How a seed is blended: the operator, and the curve of its way to its first alpha target."""

    LINEAR_ADD = (Operator.ADD, AlphaCurve.LINEAR)
    LINEAR_MULTIPLY = (Operator.MULTIPLY, AlphaCurve.LINEAR)
    SIGMOID_ADD = (Operator.ADD, AlphaCurve.SIGMOID)
    GATED = (Operator.GATE, AlphaCurve.LINEAR)

    @property
    def operator(self) -> Operator:
        return self.value[0]

    @property
    def curve(self) -> AlphaCurve:
        return self.value[1]


class Tempo(IntEnum):
    """Epochs that a seed takes from the full strength of its youth to its alpha target."""

    FAST = 3
    MEDIUM = 5
    SLOW = 8


class AlphaTarget(float, Enum):
    """The strength a seed is blended to."""

    HALF = 0.5
    MOST = 0.7
    FULL = 1.0


class AlphaSpeed(IntEnum):
    """Ticks a later alpha ramp takes; INSTANT acts at once."""

    INSTANT = 0
    FAST = 3
    MEDIUM = 5
    SLOW = 8


CHOICES: dict[Head, tuple[Enum, ...]] = {
    Head.OP: tuple(Op),
    Head.STYLE: tuple(Style),
    Head.TEMPO: tuple(Tempo),
    Head.ALPHA_TARGET: tuple(AlphaTarget),
    Head.ALPHA_SPEED: tuple(AlphaSpeed),
    Head.ALPHA_CURVE: tuple(AlphaCurve),
}
"""The values of each head by index. Slots and blueprints are missing: they are the body's."""

HEADS_OF: dict[Op, frozenset[Head]] = {
    Op.WAIT: frozenset({Head.OP}),
    Op.GERMINATE: frozenset({Head.OP, Head.SLOT, Head.BLUEPRINT, Head.STYLE, Head.TEMPO, Head.ALPHA_TARGET}),
    Op.SET_ALPHA_TARGET: frozenset(
        {Head.OP, Head.SLOT, Head.STYLE, Head.ALPHA_TARGET, Head.ALPHA_SPEED, Head.ALPHA_CURVE}
    ),
    Op.PRUNE: frozenset({Head.OP, Head.SLOT, Head.ALPHA_SPEED, Head.ALPHA_CURVE}),
    Op.FOSSILIZE: frozenset({Head.OP, Head.SLOT}),
    Op.ADVANCE: frozenset({Head.OP, Head.SLOT}),
}
"""Which heads shape which op. Credit, KL, entropy, pinning and display all read this table."""

LEGAL_IN: dict[Op, frozenset[Stage]] = {
    Op.WAIT: frozenset(Stage),
    Op.GERMINATE: frozenset({Stage.DORMANT}),
    Op.SET_ALPHA_TARGET: frozenset({Stage.HOLDING}),
    Op.PRUNE: frozenset({Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING}),
    Op.FOSSILIZE: frozenset({Stage.HOLDING}),
    Op.ADVANCE: frozenset({Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING}),
}
"""In which stages of its slot an op can be legal; gates may still refuse it."""


class InvalidAction(EsperError):
    """An action lacks what its op needs."""


class WrongBody(EsperError):
    """Choices among the slots and blueprints of one body were given to another."""


@dataclass(frozen=True)
class Action:
    """One decision. Fields that the op does not use are ignored.

    >>> Action(Op.GERMINATE, "stem", blueprint="conv_light").tempo
    <Tempo.FAST: 3>
    >>> Action(Op.PRUNE)
    Traceback (most recent call last):
    ...
    esper.contracts.actions.InvalidAction: PRUNE needs a slot; give one, as in Action(Op.PRUNE, slot=...)
    """

    op: Op
    slot: SlotId | None = None
    blueprint: str | None = None
    style: Style = Style.LINEAR_ADD
    tempo: Tempo = Tempo.FAST
    alpha_target: AlphaTarget = AlphaTarget.FULL
    alpha_speed: AlphaSpeed = AlphaSpeed.FAST
    alpha_curve: AlphaCurve = AlphaCurve.LINEAR

    def __post_init__(self) -> None:
        for head, value in ((Head.SLOT, self.slot), (Head.BLUEPRINT, self.blueprint)):
            if head in HEADS_OF[self.op] and value is None:
                raise InvalidAction(
                    f"{self.op.name} needs a {head}; give one, as in Action(Op.{self.op.name}, {head}=...)"
                )


WAIT = Action(Op.WAIT)


class Choices(tuple[int, ...]):
    """The index of each head's choice, with the codec that knows what the indices stand for."""

    codec: "ActionCodec"

    def __new__(cls, indices: Iterable[int], codec: "ActionCodec") -> "Choices":
        choices = super().__new__(cls, indices)
        choices.codec = codec
        return choices

    def __getnewargs__(self) -> tuple[tuple[int, ...], "ActionCodec"]:
        return tuple(self), self.codec


@dataclass(frozen=True)
class ActionCodec:
    """Between actions and the index of each head's choice, in the fixed order of the heads.

    Slots and blueprints are those of one body, by name: two codecs fit each other only if they are equal. `grain` is
    the least difference in the body's quality that is worth a decision.
    """

    slots: tuple[SlotId, ...]
    blueprints: tuple[str, ...]
    grain: float = field(default=ACCURACY_GRAIN, compare=False)

    def require(self, other: "ActionCodec") -> None:
        """Refuse choices that were made among other slots or blueprints, or in another order of them."""
        for what, wanted, given in (
            ("slots", self.slots, other.slots),
            ("blueprints", self.blueprints, other.blueprints),
        ):
            if wanted != given:
                raise WrongBody(
                    f"the choices are among the {what} {', '.join(given)}; the body has {', '.join(wanted)}, "
                    "so start the policy with the codec of this body"
                )

    def values(self, head: Head) -> tuple[object, ...]:
        """What the head chooses from."""
        own: dict[Head, tuple[object, ...]] = {Head.SLOT: self.slots, Head.BLUEPRINT: self.blueprints}
        return own[head] if head in own else CHOICES[head]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(self.values(head)) for head in Head)

    def decode(self, indices: Iterable[int]) -> Action:
        chosen: dict[str, Any] = {
            head.value: self.values(head)[int(index)] for head, index in zip(Head, indices, strict=True)
        }
        return WAIT if chosen["op"] is Op.WAIT else Action(**chosen)

    def encode(self, action: Action) -> Choices:
        chosen = ((head, getattr(action, head.value)) for head in Head)
        return Choices((0 if value is None else self.values(head).index(value) for head, value in chosen), self)
