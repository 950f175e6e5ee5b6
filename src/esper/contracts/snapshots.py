"""Frozen pictures of host and slots. `None` means "not measured" and is never a zero."""

from dataclasses import dataclass
from enum import Enum

from esper.contracts.actions import Style, Tempo
from esper.contracts.errors import EsperError
from esper.contracts.slots import SlotId, Topology
from esper.contracts.stages import Stage


class AlphaMode(Enum):
    """What alpha is doing."""

    STILL = "still"
    RISING = "rising"
    FALLING = "falling"


class InvalidSnapshot(EsperError):
    """A snapshot claims what cannot be."""


@dataclass(frozen=True)
class Gain:
    """What the first gradient of a newborn would be: one of this blueprint, added at full strength to an empty slot.

    `norm` is its length, `push` the sum of its entries' sizes: what a first step of Adam gains. `agreed` is the part of
    the push on which both halves of the batch agree, `steadiness` the sum over parameters of ln(mean over deviation of
    the size between the halves), as in ZiCo. A batch of one row does not tell these two.
    """

    blueprint: str
    norm: float
    push: float
    agreed: float | None = None
    steadiness: float | None = None


@dataclass(frozen=True)
class SlotSnapshot:
    """One slot at one moment.

    `position` is the slot's place in the forward pass, from 0; `blueprints` are those that may germinate here.
    `age` counts epochs in the present stage. `gradient_norm` is the mean over the last epoch's batches.
    `contribution` is the quality that the network loses without this seed, `improvement` what it has gained since the
    seed's birth, whoever it is due to. `alpha_target` is where the seed is to end, which a newborn at full strength is
    on its way to only when it blends.
    `gains` has one gain per blueprint, as they were last measured; none if they were not, or if there is a seed.
    `resolution` counts the positions of the features (1 of a plain vector), `reach` the positions of the input that the
    middle one of them depends on, and `reach_share` is the share that these are of an input image. `front_parameters`
    are those of the submodule in front of the slot, which a copy of it has.
    `ready` says of a held seed that its gate would let it through into FOSSILIZED now.
    """

    slot: SlotId
    topology: Topology
    channels: int
    position: int
    blueprints: tuple[str, ...]
    stage: Stage = Stage.DORMANT
    age: int = 0
    blueprint: str | None = None
    style: Style | None = None
    tempo: Tempo | None = None
    alpha: float = 0.0
    alpha_target: float = 0.0
    alpha_mode: AlphaMode = AlphaMode.STILL
    parameters: int = 0
    gradient_norm: float | None = None
    contribution: float | None = None
    improvement: float | None = None
    anomalies: tuple[str, ...] = ()
    gains: tuple[Gain, ...] = ()
    resolution: int = 1
    reach: int | None = None
    reach_share: float | None = None
    ready: bool = False
    front_parameters: int = 0

    def __post_init__(self) -> None:
        if self.alpha == 0.0 and self.contribution is not None:
            raise InvalidSnapshot(
                f"slot '{self.slot}' has alpha 0 and a contribution of {self.contribution}; "
                "at alpha 0 a contribution is not measured: leave it None"
            )
        if self.ready and self.stage is not Stage.HOLDING:
            raise InvalidSnapshot(f"slot '{self.slot}' is ready in {self.stage.name}; only held seeds are")

    @property
    def pruning(self) -> bool:
        """Alpha is on its way to 0, after which the seed is removed."""
        return self.stage is Stage.BLENDING and self.alpha_target == 0.0

    @property
    def delivered(self) -> bool:
        """Whether the seed is in what is delivered: it is a fossil, or could become one now."""
        return self.stage is Stage.FOSSILIZED or self.ready


@dataclass(frozen=True)
class HostSnapshot:
    """The training run at one moment. Losses are in nats; quality is what `Metric` makes of a score.

    `parameters` counts the host alone, `total_parameters` adds every seed that is present, `depth` counts the host's
    layers that have a matrix of weights. `outcomes` are the classes, or the tokens of a vocabulary, `rows` the samples
    that an epoch trains on. `rent` is the quality that growing by a factor e must bring to pay. The previous evaluation
    is that of one epoch before.
    """

    epoch: int
    horizon: int
    parameters: int
    total_parameters: int
    train_loss: float | None = None
    evaluation_loss: float | None = None
    evaluation_quality: float | None = None
    gradient_norm: float | None = None
    previous_loss: float | None = None
    previous_quality: float | None = None
    depth: int | None = None
    outcomes: int | None = None
    rows: int | None = None
    rent: float | None = None


@dataclass(frozen=True)
class Snapshot:
    """All that a decision, its masks and its reward are computed from."""

    host: HostSnapshot
    slots: tuple[SlotSnapshot, ...]

    @property
    def delivered(self) -> frozenset[SlotId]:
        """The slots whose seeds are delivered with the host if the episode ends now."""
        return frozenset(slot.slot for slot in self.slots if slot.delivered)
