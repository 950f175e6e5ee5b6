"""The learner must learn: a decision of several heads, a memory, and a classic. Seconds, not benchmarks."""

from statistics import fmean

import torch

from esper.rl import PPO, PPOConfig, VectorConfig
from tests.rl.worlds import Bandit, Recall

FAST = PPOConfig(learning_rate=3e-3, final_learning_rate=3e-3, entropy_weight=0.05)


def test_policy_learns_a_bandit_that_needs_a_rare_op_and_its_dependent_head():
    """C-rl, R0-X4: the op is chosen in one case of fourteen at first, and pays only with the right style."""
    agent = PPO(
        Bandit,
        environments=16,
        steps=8,
        dependent_masks=True,
        heads={"op": (), "style": [5]},
        network=VectorConfig(hidden=32, memory=0, critic=32),
        config=FAST,
    )
    with torch.no_grad():
        agent.network.actor.bias[5] -= 1.0
    shares = []
    agent.learn(3000, lambda now: shares.append(now.metrics.heads["style"].steps / now.metrics.steps))
    assert shares[0] < 0.1
    assert shares[-1] > 0.9
    assert fmean(agent.evaluate(50)) >= 0.95


def recalled(memory: int) -> float:
    """Share of right answers after training."""
    network = VectorConfig(hidden=16, memory=memory, critic=16)
    agent = PPO(Recall, environments=16, steps=12, network=network, config=FAST)
    agent.learn(4000)
    return fmean(agent.evaluate(100))


def test_memory_carries_a_cue_to_the_question():
    """C-rl, R1-L3: sequences are learned through, over starts inside the rows and over the ends of rollouts."""
    assert recalled(memory=16) >= 0.95


def test_without_memory_the_cue_can_only_be_guessed():
    """The task needs what it claims to need."""
    assert recalled(memory=0) <= 0.65


def test_cartpole_makes_clear_progress():
    """C-rl."""
    agent = PPO(
        "CartPole-v1",
        environments=8,
        steps=64,
        network=VectorConfig(memory=32),
        config=PPOConfig(learning_rate=2e-3, final_learning_rate=2e-3),
    )
    untrained = fmean(agent.evaluate(10))
    agent.learn(6_000)
    assert untrained < 100
    assert fmean(agent.evaluate(10)) >= 150
