"""The network of `tamiyo-small`: what could be planted in a slot is seen only when that slot has been chosen.

Slots are pooled, and slots and blueprints pointed at. Nothing is trained with it any more.
"""

import torch
from torch import Tensor, nn

from esper.contracts import CHOICES, Head, ObservationFields, Op
from esper.controller.network import HEADS, LATER, GrowthNetwork, NetworkConfig, joined, row_of, stacked
from esper.rl import Critic, Encoded, LSTMMemory, MemoryState, Observation, orthogonal, pin

PLAIN_HEADS = tuple(head for head in LATER if head is not Head.BLUEPRINT)


class Pointer(nn.Module):
    """Scores things by how well their key meets a query; near 0 at birth, so that all are alike."""

    def __init__(self, things: int, context: int, size: int) -> None:
        super().__init__()
        self.key = orthogonal(nn.Linear(things, size), 1.0)
        self.query = orthogonal(nn.Linear(context, size), 0.01)
        self.scale: float = size**-0.5

    def forward(self, things: Tensor, context: Tensor) -> Tensor:
        """Scores (..., N) of things (..., N, D) in a context (..., C)."""
        scores: Tensor = self.key(things) @ self.query(context).unsqueeze(-1)
        return self.scale * scores.squeeze(-1)


class PooledNetwork(GrowthNetwork):
    """With `offer_bits` it reads the bits of blueprints too."""

    kind = "controller"

    def __init__(
        self, fields: ObservationFields, config: NetworkConfig, shown: ObservationFields, offer_bits: bool
    ) -> None:
        super().__init__(fields, config, shown)
        self.offer_bits = offer_bits
        width, trunk, memory = self.config.slot, self.config.trunk, self.config.memory
        gain = 2**0.5
        self.slot_encoder = orthogonal(nn.Linear(2 * len(fields.slots) + len(Op), width), gain)
        self.offer_encoder = orthogonal(nn.Linear((1 + offer_bits) * len(fields.blueprints), width), gain)
        self.trunk = orthogonal(nn.Linear(2 * len(fields.host) + len(Op) + 2 * width, trunk), gain)
        self.memory = LSTMMemory(trunk, memory)
        self.critic = Critic(memory, trunk)
        self.op_head = orthogonal(nn.Linear(memory, len(Op)), 0.01)
        self.slot_op = nn.Embedding(len(Op), memory)
        self.slot_head = Pointer(width, memory, width)
        self.context_op = nn.Embedding(len(Op), trunk)
        self.context = orthogonal(nn.Linear(memory + width, trunk), gain)
        self.blueprint_head = Pointer(width, trunk, width)
        self.plain_heads = nn.ModuleDict(
            {head.value: orthogonal(nn.Linear(trunk, len(CHOICES[head])), 0.01) for head in PLAIN_HEADS}
        )

    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        by_slot = observation["mask_op_slot"].transpose(-1, -2)
        features, bits = self.read(observation, "slots"), self.read(observation, "slots_valid")
        slots = torch.tanh(self.slot_encoder(joined(features, bits, by_slot)))
        # Padding has no measured feature, and every real slot has.
        present = bits.any(dim=-1, keepdim=True)
        mean = (slots * present).sum(dim=-2) / present.sum(dim=-2).clamp(min=1)
        best = slots.masked_fill(~present, -1.0).amax(dim=-2)
        host = self.read(observation, "host"), self.read(observation, "host_valid")
        whole = joined(*host, observation["mask_op"], mean, best)
        remembered, state = self.memory(torch.tanh(self.trunk(whole)), state, starts)
        return Encoded((remembered, slots), self.critic(remembered), state)

    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        remembered, slots = encoded.features
        if level == 0:
            return self.op_head(remembered).unsqueeze(-2), observation["mask_op"].bool().unsqueeze(-2)
        op, used = choices[..., 0], self.uses[choices[..., 0]]
        if level == 1:
            scores = self.slot_head(slots, remembered + self.slot_op(op))
            return scores.unsqueeze(-2), pin(
                row_of(observation["mask_op_slot"], op).bool().unsqueeze(-2), used[..., 1:2]
            )
        slot = choices[..., 1]
        context = torch.tanh(self.context(torch.cat([remembered, row_of(slots, slot)], dim=-1)) + self.context_op(op))
        arrays = ("blueprints", "blueprints_valid")[: 1 + self.offer_bits]
        offers = torch.tanh(
            self.offer_encoder(joined(*(row_of(self.read(observation, name), slot) for name in arrays)))
        )
        scores = [
            self.blueprint_head(offers, context) if head is Head.BLUEPRINT else self.plain_heads[head.value](context)
            for head in LATER
        ]
        masks = [
            row_of(observation["mask_slot_blueprint"], slot) if head is Head.BLUEPRINT else observation[f"mask_{head}"]
            for head in LATER
        ]
        return stacked(scores), pin(stacked(masks).bool(), used[..., 2:])

    def head_gradients(self) -> list[list[Tensor | None]]:
        own: dict[Head, list[nn.Module]] = {
            Head.OP: [self.op_head],
            Head.SLOT: [self.slot_head, self.slot_op],
            Head.BLUEPRINT: [self.blueprint_head, self.offer_encoder],
        }
        modules = (own.get(head) or [self.plain_heads[head.value]] for head in HEADS)
        return [[parameter.grad for module in group for parameter in module.parameters()] for group in modules]

    def schema(self) -> dict[str, object]:
        return super().schema() | {"offer_bits": self.offer_bits}
