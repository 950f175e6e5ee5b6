"""Policies that anything worth having must beat: no growth, and growth at random."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from esper.contracts import HEADS_OF, WAIT, ActionCodec, Choices, Head, Op
from esper.controller.policy import Arrays, Decision, decision_for


class NoGrowth:
    """Waits."""

    name = "none"

    def start(self, codec: ActionCodec) -> ActionCodec:
        return codec

    def act(self, observation: Arrays, state: ActionCodec, generator: torch.Generator) -> tuple[Decision, ActionCodec]:
        return decision_for(WAIT, state), state


class RandomLegal:
    """Draws an op that is legal somewhere, a slot where it is, and what else the op needs, each evenly."""

    name = "random"

    def start(self, codec: ActionCodec) -> ActionCodec:
        return codec

    def act(self, observation: Arrays, state: ActionCodec, generator: torch.Generator) -> tuple[Decision, ActionCodec]:
        op = _draw(observation["mask_op"], generator)
        chosen = {Head.OP: op}
        for head in Head:
            if head is not Head.OP and head in HEADS_OF[Op(op)]:
                chosen[head] = _draw(_mask(observation, head, chosen), generator)
        return Decision(Choices((chosen.get(head, 0) for head in Head), state)), state


def _mask(observation: Arrays, head: Head, chosen: Mapping[Head, int]) -> NDArray[Any]:
    """What the head may choose from, given the choices of the heads before it."""
    mask = observation[f"mask_{head}"]
    if head is Head.SLOT:
        mask = observation["mask_op_slot"][chosen[Head.OP]]
    elif head is Head.BLUEPRINT:
        mask = observation["mask_slot_blueprint"][chosen[Head.SLOT]]
    return mask


def _draw(mask: NDArray[Any], generator: torch.Generator) -> int:
    """The index of one of the choices that the mask leaves, each as likely as the other."""
    allowed = np.flatnonzero(mask)
    return int(allowed[int(torch.randint(len(allowed), (), generator=generator))])
