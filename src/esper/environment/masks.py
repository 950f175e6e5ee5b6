"""What may be chosen: masks over the heads, from the same snapshot and the same judge that execution asks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esper.contracts import CHOICES, HEADS_OF, Action, Head, Op, SlotSnapshot
from esper.growth import Thresholds, judge

Mask = NDArray[np.int8]


def op_by_slot(slots: Sequence[SlotSnapshot], thresholds: Thresholds) -> Mask:
    """Which op is legal in which slot, shape (ops, slots). WAIT concerns no slot and is legal everywhere."""
    return np.array(
        [[_legal(op, slot, thresholds) for slot in slots] for op in Op],
        dtype=np.int8,
    )


def _legal(op: Op, slot: SlotSnapshot, thresholds: Thresholds) -> bool:
    """Heads other than slot and blueprint never decide legality, and any blueprint of the slot germinates."""
    blueprint = slot.blueprints[0] if slot.blueprints else "none"
    return bool(judge(Action(op, slot.slot, blueprint=blueprint), slot, thresholds))


def masks_of(slots: Sequence[SlotSnapshot], blueprints: Sequence[str], thresholds: Thresholds) -> dict[str, Mask]:
    """One mask per head under its name, and what each op may do where: `op_slot` (ops, slots) and `slot_blueprint`
    (slots, blueprints). A head that no legal op uses is left wide open.
    """
    legal = op_by_slot(slots, thresholds)
    acting = legal[[op for op in Op if Head.SLOT in HEADS_OF[op]]]
    free = [slot for slot, legal_here in zip(slots, legal[Op.GERMINATE], strict=True) if legal_here]
    germinable = {name for slot in free for name in slot.blueprints}
    masks: dict[str, Mask] = {head.value: np.ones(len(values), dtype=np.int8) for head, values in CHOICES.items()}
    masks[Head.OP] = np.max(legal, axis=1)
    masks[Head.SLOT] = _open_if_empty(np.max(acting, axis=0))
    masks[Head.BLUEPRINT] = _open_if_empty(np.array([name in germinable for name in blueprints], dtype=np.int8))
    masks["op_slot"] = legal
    masks["slot_blueprint"] = np.array([[name in slot.blueprints for name in blueprints] for slot in slots], np.int8)
    return masks


def _open_if_empty(mask: Mask) -> Mask:
    return mask if mask.any() else np.ones_like(mask)
