"""The controller's network: one set of weights for any number of slots and any set of blueprints.

Every offer, a blueprint in a slot, goes through one encoder; what a slot is offered becomes part of the slot's token,
and the tokens look at each other. The memory, and so the value, reads the host and all tokens.

Everything that can be done has a score of its own: an op in a slot, a blueprint in a slot. Heads are what these scores
sum up to: a slot is as likely as all its offers together, an op as all its slots. So whether and where to grow is
decided by what could be planted, and reordering slots or blueprints reorders their probabilities. The op is drawn
first, then the slot given the op, then the other heads given both.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad, silu

from esper.contracts import (
    CHOICES,
    HEADS_OF,
    AlphaCurve,
    AlphaSpeed,
    AlphaTarget,
    EsperError,
    Head,
    ObservationFields,
    Op,
    Style,
    Tempo,
)
from esper.controller.features import places
from esper.rl import Critic, Encoded, LSTMMemory, MemoryState, Network, Observation, orthogonal, pin

HEADS = tuple(Head)
LATER = HEADS[2:]
"""The heads of the last level; blueprints have scores of their own, the others choose from fixed tables."""
USES = torch.tensor([[head in HEADS_OF[op] for head in HEADS] for op in Op])
"""(ops, heads), from the one table of the contracts."""

PRIOR = {Op.GERMINATE: -4.0, Op.ADVANCE: 1.0, Op.FOSSILIZE: 1.0, Op.PRUNE: -3.0, Op.SET_ALPHA_TARGET: -3.0}
"""First scores of ops, 0 for the others. A newborn controller that prunes as often as it advances kills nearly every
seed before it pays, and learns only that seeds cost. Of offers there are many, each with a score."""
USUAL = {
    Head.STYLE: Style.LINEAR_ADD,
    Head.TEMPO: Tempo.FAST,
    Head.ALPHA_TARGET: AlphaTarget.FULL,
    Head.ALPHA_SPEED: AlphaSpeed.FAST,
    Head.ALPHA_CURVE: AlphaCurve.LINEAR,
}
"""What heads choose unless there is a reason not to: no survey found that it matters."""
HABIT = 3.0
"""First logit of what is usual."""
NEVER = -1e4
"""The score of what is not legal, where scores are summed up."""
POINTS = 10.0
"""A tenth of quality counts as 1."""


class InvalidNetwork(EsperError):
    """Sizes that no network can have."""


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the controller's network."""

    slot: int = 64
    """Width of what is known of a slot, and of an offer."""
    trunk: int = 128
    """Width of what is known of the whole, before the memory."""
    memory: int = 128
    """Size of the LSTM."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 1 <= value <= 4096:
                raise InvalidNetwork(f"network size {name} = {value}; give a whole number from 1 to 4096")


class Attention(nn.Module):
    """What slots learn from each other: one head, added to what they were; nothing at birth."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.asked = orthogonal(nn.Linear(size, 3 * size), 1.0)
        self.told = orthogonal(nn.Linear(size, size), 0.01)

    def forward(self, tokens: Tensor, present: Tensor) -> Tensor:
        """Tokens (..., N, D), of which some are not `present` (..., N)."""
        query, key, value = self.asked(tokens).split(self.size, dim=-1)
        match = (query @ key.transpose(-1, -2)) * self.size**-0.5
        weights = match.masked_fill(~present.unsqueeze(-2), NEVER).softmax(dim=-1)
        told: Tensor = self.told(weights @ value)
        return tokens + told


class Scores(nn.Module):
    """Scores of things, each by what it is and by the context; near 0 at birth, so that all are alike."""

    def __init__(self, things: int, context: int, size: int, scores: int = 1) -> None:
        super().__init__()
        self.thing = orthogonal(nn.Linear(things, size), 2**0.5)
        self.context = orthogonal(nn.Linear(context, size), 1.0)
        self.score = orthogonal(nn.Linear(size, scores), 0.01)

    def forward(self, things: Tensor, context: Tensor) -> Tensor:
        """(..., scores) of things (..., D), in a context that has one axis of size 1 for each axis of things."""
        scores: Tensor = self.score(silu(self.thing(things) + self.context(context)))
        return scores


class GrowthNetwork(Network):
    """Over the heads of growth. Reads the environment's observation by array name; rows of hosts with fewer slots are
    padded with zeros.

    `fields` are the features that it reads, found by name among those that observations show: `shown`, or just these.
    """

    kind: str
    """What checkpoints call it."""
    uses: Tensor

    def __init__(
        self, fields: ObservationFields, config: NetworkConfig | None, shown: ObservationFields | None
    ) -> None:
        super().__init__()
        self.fields, self.config = fields, config or NetworkConfig()
        self._columns = _columns(fields, shown or fields)
        self.heads = tuple(head.value for head in HEADS)
        self.levels = (slice(0, 1), slice(1, 2), slice(2, len(HEADS)))
        self.register_buffer("uses", USES.clone(), persistent=False)

    def read(self, observation: Observation, array: str) -> Tensor:
        """The array, with the columns of the features that are read."""
        columns = self._columns.get(array.removesuffix("_valid"))
        return observation[array] if columns is None else observation[array][..., columns]

    def schema(self) -> dict[str, object]:
        return {
            "network": self.kind,
            "heads": {head.value: len(CHOICES[head]) for head in HEADS if head in CHOICES},
            "uses": USES.tolist(),
            **{f"{name}_features": list(names) for name, names in asdict(self.fields).items()},
            **asdict(self.config),
        }


class ControllerNetwork(GrowthNetwork):
    """Sees what could be planted before it chooses."""

    kind = "controller of offers"

    def __init__(
        self,
        fields: ObservationFields,
        config: NetworkConfig | None = None,
        shown: ObservationFields | None = None,
    ) -> None:
        super().__init__(fields, config, shown)
        self._rent = places(fields.host, ["rent"])["rent"]
        self._slot = places(fields.slots, ["size", "contribution"])
        self._cost = places(fields.blueprints, ["cost"])["cost"]
        width, trunk, memory = self.config.slot, self.config.trunk, self.config.memory
        gain = 2**0.5
        self.offer_encoder = orthogonal(nn.Linear(2 * len(fields.blueprints) + 2, width), gain)
        self.slot_encoder = orthogonal(nn.Linear(2 * len(fields.slots) + len(Op) + 2 + 2 * width, width), gain)
        self.attention = Attention(width)
        self.trunk = orthogonal(nn.Linear(2 * len(fields.host) + len(Op) + 2 * width, trunk), gain)
        self.memory = LSTMMemory(trunk, memory)
        self.critic = Critic(memory, trunk)
        self.offer_scores = Scores(2 * width, memory, width)
        self.op_scores = Scores(width, memory, width, len(Op))
        self.wait_score = orthogonal(nn.Linear(memory, 1), 0.01)
        self.offer_scores.score.bias.data.fill_(PRIOR[Op.GERMINATE])
        self.op_scores.score.bias.data.copy_(torch.tensor([PRIOR.get(op, 0.0) for op in Op]))
        self.context_op = nn.Embedding(len(Op), trunk)
        self.context = orthogonal(nn.Linear(memory + width, trunk), gain)
        self.plain_heads = nn.ModuleDict({head.value: _plain_head(trunk, head) for head in USUAL})
        nn.init.normal_(self.context_op.weight, std=0.1)
        self.described = memory + 2 * width + sum(len(CHOICES[head]) for head in (Head.OP, *USUAL))

    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        offers, fits = self._offers(observation)
        tokens, present = self._tokens(observation, offers, fits)
        host = self.read(observation, "host"), self.read(observation, "host_valid")
        whole = joined(*host, observation["mask_op"], *_pooled(tokens, present))
        remembered, state = self.memory(torch.tanh(self.trunk(whole)), state, starts)
        by_offer = self._by_offer(offers, tokens, remembered)
        by_slot = self._by_slot(tokens, remembered, by_offer.masked_fill(~fits, NEVER))
        return Encoded((remembered, tokens, by_offer, by_slot, offers), self.critic(remembered), state)

    def _offers(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """What is known of each offer (..., slots, blueprints, width), and which of them fit."""
        features, fits = self.read(observation, "blueprints"), observation["mask_slot_blueprint"].bool()
        price = self._rents(observation) * features[..., self._cost : self._cost + 1]
        bits = self.read(observation, "blueprints_valid")
        return silu(self.offer_encoder(joined(features, bits, fits.unsqueeze(-1), POINTS * price))), fits

    def _tokens(self, observation: Observation, offers: Tensor, fits: Tensor) -> tuple[Tensor, Tensor]:
        """What is known of each slot (..., slots, width), and which of them are there."""
        features, bits = self.read(observation, "slots"), self.read(observation, "slots_valid")
        size, contribution = (features[..., at : at + 1] for at in self._slot.values())
        price = self._rents(observation).squeeze(-2) * size
        legal = observation["mask_op_slot"].transpose(-1, -2)
        known = joined(features, bits, legal, POINTS * price, POINTS * contribution, *_pooled(offers, fits))
        # Padding has no measured feature, and every real slot has.
        present = bits.any(dim=-1)
        return self.attention(silu(self.slot_encoder(known)), present), present

    def _rents(self, observation: Observation) -> Tensor:
        """The quality that a factor e of size must bring, (..., 1, 1, 1); 0 if nobody says."""
        host, valid = self.read(observation, "host"), self.read(observation, "host_valid")
        rent = torch.where(valid[..., self._rent].bool(), 10.0 ** host[..., self._rent], 0.0)
        return rent[..., None, None, None]

    def _by_offer(self, offers: Tensor, tokens: Tensor, remembered: Tensor) -> Tensor:
        """The score of each offer, (..., slots, blueprints)."""
        places_of = tokens.unsqueeze(-2).expand_as(offers)
        scores: Tensor = self.offer_scores(torch.cat([offers, places_of], dim=-1), remembered[..., None, None, :])
        return scores.squeeze(-1)

    def _by_slot(self, tokens: Tensor, remembered: Tensor, by_offer: Tensor) -> Tensor:
        """The score of each op in each slot, (..., ops, slots); growing there is worth what all its offers are."""
        scores = self.op_scores(tokens, remembered.unsqueeze(-2))
        germinate = torch.arange(len(Op), device=scores.device) == Op.GERMINATE
        return torch.where(germinate, by_offer.logsumexp(dim=-1, keepdim=True), scores).transpose(-1, -2)

    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        remembered, tokens, by_offer, by_slot, _ = encoded.features
        legal = observation["mask_op_slot"].bool()
        if level == 0:
            by_op = by_slot.masked_fill(~legal, NEVER).logsumexp(dim=-1)
            scores = torch.cat([self.wait_score(remembered), by_op[..., 1:]], dim=-1)
            return scores.unsqueeze(-2), observation["mask_op"].bool().unsqueeze(-2)
        op, used = choices[..., 0], self.uses[choices[..., 0]]
        if level == 1:
            return row_of(by_slot, op).unsqueeze(-2), pin(row_of(legal, op).unsqueeze(-2), used[..., 1:2])
        slot = choices[..., 1]
        context = torch.tanh(self.context(torch.cat([remembered, row_of(tokens, slot)], dim=-1)) + self.context_op(op))
        offers, fits = row_of(by_offer, slot), row_of(observation["mask_slot_blueprint"], slot)
        scores_of = [offers if head is Head.BLUEPRINT else self.plain_heads[head.value](context) for head in LATER]
        masks = [fits if head is Head.BLUEPRINT else observation[f"mask_{head}"] for head in LATER]
        return stacked(scores_of), pin(stacked(masks).bool(), used[..., 2:])

    def describe(self, encoded: Encoded, choices: Tensor) -> Tensor:
        """Beside what is remembered the slot, what was offered there, and a bit for each choice of the other heads."""
        remembered, tokens, _, _, offers = encoded.features
        made = dict(zip(HEADS, choices.unbind(dim=-1), strict=True))
        used = dict(zip(HEADS, self.uses[made[Head.OP]].unsqueeze(-1).unbind(dim=-2), strict=True))
        parts = {head: one_hot(made[head], len(CHOICES[head])) for head in (Head.OP, *USUAL)}
        parts[Head.SLOT] = row_of(tokens, made[Head.SLOT])
        parts[Head.BLUEPRINT] = row_of(row_of(offers, made[Head.SLOT]), made[Head.BLUEPRINT])
        return torch.cat([remembered, *(part * used[head] for head, part in parts.items())], dim=-1)

    def head_gradients(self) -> list[list[Tensor | None]]:
        """Slots to grow in are chosen by their offers, so that these belong to two heads."""
        own: dict[Head, list[nn.Module]] = {
            Head.OP: [self.wait_score],
            Head.SLOT: [self.op_scores, self.offer_scores],
            Head.BLUEPRINT: [self.offer_scores],
        }
        modules = (own.get(head) or [self.plain_heads[head.value]] for head in HEADS)
        return [[parameter.grad for module in group for parameter in module.parameters()] for group in modules]


def _plain_head(inputs: int, head: Head) -> nn.Linear:
    """At birth it chooses what is usual, mostly."""
    layer = orthogonal(nn.Linear(inputs, len(CHOICES[head])), 0.01)
    layer.bias.data[CHOICES[head].index(USUAL[head])] = HABIT
    return layer


def _columns(fields: ObservationFields, shown: ObservationFields) -> dict[str, list[int]]:
    """Where the features are in each array, for arrays that show others too, or in another order."""
    there = asdict(shown)
    found = {array: list(places(there[array], names).values()) for array, names in asdict(fields).items()}
    return {array: columns for array, columns in found.items() if columns != list(range(len(there[array])))}


def joined(*parts: Tensor) -> Tensor:
    """Features and bits of one thing, side by side."""
    return torch.cat([part.float() for part in parts], dim=-1)


def _pooled(things: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and maximum over the things (..., N, D) that are there (..., N); 0 if none is."""
    there = there.unsqueeze(-1)
    mean = (things * there).sum(dim=-2) / there.sum(dim=-2).clamp(min=1)
    most = things.masked_fill(~there, NEVER).amax(dim=-2)
    return mean, torch.where(there.any(dim=-2), most, 0.0)


def row_of(table: Tensor, index: Tensor) -> Tensor:
    """`table[..., index, :]` for each leading position; tables have any number of axes behind."""
    behind = table.shape[index.dim() + 1 :]
    spread = index.reshape(*index.shape, *(1,) * (len(behind) + 1)).expand(*index.shape, 1, *behind)
    return table.gather(index.dim(), spread).squeeze(index.dim())


def stacked(parts: list[Tensor]) -> Tensor:
    """(..., heads, choices), with room for the head of most choices; what is beyond a head's own is 0."""
    room = max(part.shape[-1] for part in parts)
    return torch.stack([pad(part, (0, room - part.shape[-1])) for part in parts], dim=-2)
