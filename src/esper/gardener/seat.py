"""Where the controller sits: it is shown observations, and what it was shown is kept."""

from collections.abc import Mapping
from typing import Any

import torch

from esper.contracts import ActionCodec, Choices
from esper.controller import Policy
from esper.environment import Observation
from esper.gardener.errors import WrongState
from esper.gardener.processes import is_first, of_the_first

SEED = 0
"""Of what a policy draws that does not always choose what it likes best."""


class PolicySeat:
    """A policy with its state in this training.

    A policy is a function of what it has seen, so its state is kept as that: whoever resumes shows it all again. In
    several processes the first one decides.
    """

    def __init__(self, policy: Policy, codec: ActionCodec) -> None:
        self.policy, self.codec = policy, codec
        self._state = policy.start(codec)
        self._generator = torch.Generator().manual_seed(SEED)
        self._seen: list[Observation] = []
        self._chosen: list[tuple[int, ...]] = []

    def rehearse(self, observation: Observation) -> None:
        """Let the policy decide, and forget about it."""
        PolicySeat(self.policy, self.codec)._act(observation)

    def decide(self, observation: Observation) -> Choices:
        """What the policy chooses, everywhere the same."""
        observation = of_the_first(observation)
        choices = of_the_first(self._act(observation) if is_first() else ())
        self._keep(observation, choices)
        return Choices(choices, self.codec)

    def _keep(self, observation: Observation, choices: tuple[int, ...]) -> None:
        self._seen.append(observation)
        self._chosen.append(choices)

    def _act(self, observation: Observation) -> tuple[int, ...]:
        decision, self._state = self.policy.act(observation, self._state, self._generator)
        if isinstance(decision.choices, Choices):
            self.codec.require(decision.choices.codec)
        return tuple(int(index) for index in decision.choices)

    def state_dict(self) -> dict[str, Any]:
        """The policy's name, what it saw and what it chose."""
        seen = [{name: torch.from_numpy(array.copy()) for name, array in each.items()} for each in self._seen]
        return {"policy": self.policy.name, "seen": seen, "chosen": [list(each) for each in self._chosen]}

    def replayed(self, state: Mapping[str, Any]) -> "PolicySeat":
        """A seat whose policy was shown again what it saw; it must choose as it did."""
        name = self.policy.name
        if state["policy"] != name:
            raise WrongState(f"the saved gardener had the controller '{state['policy']}', this one '{name}'; give it")
        fresh = PolicySeat(self.policy, self.codec)
        for seen, chosen in zip(state["seen"], state["chosen"], strict=True):
            observation = {name: array.numpy().copy() for name, array in seen.items()}
            if fresh._act(observation) != tuple(chosen):
                raise WrongState(f"the controller '{name}' decides otherwise than when it was saved; give the same one")
            fresh._keep(observation, tuple(chosen))
        return fresh
