"""Keeps the last good state of a model and its optimiser, and brings it back when the governor panics."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from esper.environment import Governor, GovernorConfig, Worth
from esper.growth import Body

Moments = dict[str, dict[str, Any]]
"""What an optimiser remembers of each parameter, by the parameter's name."""
FOREIGN = "foreign."
"""Begins the names of parameters that are not the model's."""


class Keeper:
    """The governor of an episode, for a model with an optimiser of the user's own."""

    def __init__(self, body: Body, optimizer: Optimizer, guess: Worth) -> None:
        self._body, self._optimizer, self.guess = body, optimizer, guess
        self._governor = Governor(GovernorConfig(), guess)
        self._moments: Moments = {}

    def check(self, worth: Worth) -> str | None:
        """What is wrong, in words; None if training may go on. What is good is remembered."""
        panic = self._governor.check(self._body, worth.loss, worth.quality)
        if panic is None and not self._governor.alarmed:
            named = {name: self._optimizer.state[each] for name, each in self._named().items() if self._knows(each)}
            self._moments = {name: {key: _copied(value) for key, value in each.items()} for name, each in named.items()}
        return panic

    def roll_back(self) -> None:
        """The model as it last was good, without seeds that are no fossils, and what the optimiser remembered then.

        Learning rates are the scheduler's, and stay.
        """
        self._governor.roll_back(self._body, self._optimizer)
        for name, parameter in self._named().items():
            if name in self._moments:
                self._optimizer.state[parameter] = {key: _copied(value) for key, value in self._moments[name].items()}

    def state_dict(self) -> dict[str, Any]:
        return {"guess": list(self.guess), "governor": self._governor.state_dict(), "moments": self._moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._governor.load_state_dict(state["governor"])
        self._moments = state["moments"]

    def _knows(self, parameter: nn.Parameter) -> bool:
        return parameter in self._optimizer.state

    def _named(self) -> dict[str, nn.Parameter]:
        """The optimiser's parameters."""
        names = {id(parameter): name for name, parameter in self._body.host.named_parameters()}
        held = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        return {names.get(id(each), f"{FOREIGN}{index}"): each for index, each in enumerate(held)}


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)
