"""Policies that anything worth having must beat: no growth, and growth at random."""

import math
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
        chosen: dict[Head, int] = {}
        log_probs: dict[Head, float] = {}
        for head in Head:
            if head is Head.OP or head in HEADS_OF[Op(chosen[Head.OP])]:
                mask = _mask(observation, head, chosen)
                chosen[head], log_probs[head] = _draw(mask, generator), -math.log(np.count_nonzero(mask))
        choices = Choices((chosen.get(head, 0) for head in Head), state)
        return Decision(choices, log_probs=tuple(log_probs.get(head, 0.0) for head in Head)), state


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
