"""One line for every step."""

from dataclasses import dataclass

from esper.contracts import Action, Op

WORDS = {
    Op.GERMINATE: "plants {0.blueprint} behind {0.slot}",
    Op.ADVANCE: "goes on with what grows behind {0.slot}",
    Op.SET_ALPHA_TARGET: "blends what grows behind {0.slot} to {0.alpha_target:.2g}",
    Op.PRUNE: "removes what grows behind {0.slot}",
    Op.FOSSILIZE: "keeps what grew behind {0.slot}",
    Op.WAIT: "waits",
}


def in_words(action: Action) -> str:
    """What the action does.

    >>> in_words(Action(Op.GERMINATE, "layer1", blueprint="mlp"))
    'plants mlp behind layer1'
    """
    return WORDS[action.op].format(action)


@dataclass(frozen=True)
class Progress:
    """What a step came to. `score` and `loss` are what the evaluation said of the live network, `growth` is its
    parameters over the host's, `done` says in words what was decided.
    """

    epoch: int
    epochs: int
    score: float
    loss: float | None
    growth: float
    done: str

    def __str__(self) -> str:
        loss = "" if self.loss is None else f"  loss {self.loss:.4g}"
        return f"epoch {self.epoch}/{self.epochs}  score {self.score:.4g}{loss}  size x{self.growth:.2f}  {self.done}"
