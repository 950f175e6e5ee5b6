"""Small networks with three heads, and real rollouts with random masks, random ends and random rewards."""

import math

import torch
from torch import Tensor

from esper.rl import Buffer, Learner, MemoryState, Network, PPOConfig, Sequences, VectorConfig, VectorNetwork, act, join
from esper.rl.reuse import Experience
from esper.rl.sequences import ROW_TENSORS

INPUTS = 3
SIZES = {"op": 3, "slot": 2, "style": 4}
USES = torch.tensor([[True, False, False], [True, True, True], [True, True, False]])
"""Op 0 uses nothing else, op 1 everything, op 2 the slot only."""
STEADY = PPOConfig(
    epochs=6,
    minibatches=1,
    smoothing=0.95,
    max_gradient_norm=0.5,
    target_kl=math.inf,
    learning_rate=0.01,
    final_learning_rate=0.01,
)
"""Every pass is made, over all rows at once."""


def small_network(seed: int = 0, memory: int = 5, uses: Tensor = USES) -> VectorNetwork:
    """Weights far from those at birth, so that no two heads or choices are alike."""
    torch.manual_seed(seed)
    network = VectorNetwork(INPUTS, SIZES, uses, VectorConfig(hidden=6, memory=memory, critic=4))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def open_masks(rows: int) -> Tensor:
    """Everything is legal, (rows, 1, heads, choices)."""
    return (torch.arange(max(SIZES.values())) < torch.tensor([*SIZES.values()]).unsqueeze(-1)).expand(rows, 1, -1, -1)


def random_masks(rows: int, generator: torch.Generator) -> Tensor:
    """A row per op, many choices illegal, many heads with one choice left, none with none."""
    masks = open_masks(rows).expand(-1, SIZES["op"], -1, -1) & (
        torch.rand(rows, SIZES["op"], len(SIZES), max(SIZES.values()), generator=generator) < 0.6
    )
    for head, size in enumerate(SIZES.values()):
        always = torch.randint(size, (rows, SIZES["op"], 1), generator=generator)
        masks[:, :, head] = masks[:, :, head].scatter(-1, always, True)
    return masks


def rollout(
    network: Network,
    rows: int = 3,
    steps: int = 6,
    seed: int = 0,
    ends: float = 0.2,
    masked: bool = True,
    exploration: float = 0.0,
) -> Sequences:
    """Rows in which episodes end with probability `ends` at each step, half of them truncated."""
    generator = torch.Generator().manual_seed(seed)
    example = {"vector": torch.zeros(INPUTS), "mask": random_masks(1, generator)[0] if masked else open_masks(1)[0]}
    buffer = Buffer(rows, steps, example, len(network.heads))
    first = network.memory.start(rows)
    # As after an earlier rollout: the first row goes on with an episode, the others begin one.
    state = MemoryState(*(torch.randn(part.shape, generator=generator).tanh() for part in first))
    starts = torch.arange(rows) > 0
    buffer.begin(state)
    for _ in range(steps):
        seen = {
            "vector": torch.randn(rows, INPUTS, generator=generator),
            "mask": random_masks(rows, generator) if masked else open_masks(rows),
        }
        made = act(network, seen, state, starts, generator, exploration)
        buffer.decide(seen, starts, made.choices, made.log_probs, made.free)
        over = torch.rand(rows, generator=generator) < ends
        truncated = over & (torch.rand(rows, generator=generator) < 0.5)
        rewards = torch.randn(rows, generator=generator)
        buffer.conclude(made.values, rewards, over, torch.randn(rows, generator=generator) * truncated)
        state, starts = made.state, over
    buffer.cut(torch.randn(rows, generator=generator))
    return buffer.sequences()


def alone(sequences: Sequences) -> Experience:
    """These rows as the whole experience, in one group."""
    return Experience(sequences, torch.ones_like(sequences.rewards), (0,) * sequences.rows)


def ragged(network: Network, lengths: tuple[int, ...] = (2, 6, 1, 4), **options: float) -> Sequences:
    """Rows of different lengths, joined and padded."""
    return join([rollout(network, 1, length, seed=place, **options) for place, length in enumerate(lengths)])


def padded(sequences: Sequences, steps: int) -> Sequences:
    """The same rows with padding behind them."""

    def longer(part: Tensor) -> Tensor:
        return torch.cat([part, part.new_zeros(part.shape[0], steps, *part.shape[2:])], dim=1)

    return sequences.mapped(longer, sequences.state)


def tensors_of(sequences: Sequences) -> dict[str, Tensor]:
    """Every tensor by name."""
    return {
        **sequences.observation,
        **{name: getattr(sequences, name) for name in ROW_TENSORS},
        "hidden": sequences.state.hidden,
        "cell": sequences.state.cell,
    }


def weights_of(network: Network) -> dict[str, Tensor]:
    """A copy of everything the network has learned."""
    return {name: value.clone() for name, value in network.state_dict().items()}


def everything_of(learner: Learner) -> dict[str, object]:
    """All that an update may change, copied."""
    moving = learner.optimizer.state_dict()["state"]
    return {
        **weights_of(learner.network),
        **{f"{place}.{name}": value.clone() for place, each in moving.items() for name, value in each.items()},
        "moments": learner.moments,
        "counters": vars(learner.counters).copy(),
        "generator": learner.generator.get_state(),
    }


def assert_same(one: dict[str, object], other: dict[str, object]) -> None:
    """Bit for bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        same = torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name]
        assert same, name
