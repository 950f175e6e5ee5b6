"""The governor: sees catastrophe coming over a host, brings back the last good state, and ends the episode."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from esper.contracts import EsperError
from esper.environment.evaluation import Worth
from esper.growth import Body


class InvalidGovernor(EsperError):
    """A governor's threshold lies outside its range."""


@dataclass(frozen=True)
class GovernorConfig:
    """When to panic. Losses are compared with the loss of guessing, ln(classes or vocabulary).

    `learned_share`: the host has learned once its loss fell below this share of the guessing loss.
    `collapsed_share`: it has collapsed when its loss is above this share again and it only guesses.
    `window`, `sigmas`, `absolute_share`, `relative`: it diverges when the loss exceeds the mean of the last `window`
    losses by `sigmas` standard deviations, by `absolute_share` of the guessing loss and by the factor `relative`.
    `patience`: how many epochs running that must be so; numbers that are not finite are not waited for.
    """

    learned_share: float = 0.8
    collapsed_share: float = 0.95
    window: int = 5
    sigmas: float = 4.0
    absolute_share: float = 0.5
    relative: float = 1.5
    patience: int = 2

    def __post_init__(self) -> None:
        if not 0.0 < self.learned_share < self.collapsed_share <= 1.0:
            raise InvalidGovernor(
                f"learned_share {self.learned_share} and collapsed_share {self.collapsed_share} must satisfy "
                "0 < learned_share < collapsed_share <= 1"
            )
        for name, least in (
            ("window", 2),
            ("sigmas", 1.0),
            ("absolute_share", 0.0),
            ("relative", 1.0),
            ("patience", 1),
        ):
            if not least <= getattr(self, name) < math.inf:
                raise InvalidGovernor(f"{name} is {getattr(self, name)}; give a number of at least {least}")


class Governor:
    """Watches one episode. It holds one copy of the body's state, whatever the length of the episode."""

    def __init__(self, config: GovernorConfig, guess: Worth) -> None:
        """`guess` is what blind guessing is worth."""
        self._config = config
        self._guess = guess
        self._recent: deque[float] = deque(maxlen=config.window)
        self._best_loss = math.inf
        self._strikes = 0
        self._good: dict[str, Any] | None = None

    def check(self, body: Body, loss: float, quality: float) -> str | None:
        """What is wrong, in words, or None; then the present state is kept as the last good one."""
        panic = self._non_finite(body, loss)
        if panic is not None:
            return panic
        panic = self._collapsed(loss, quality) or self._diverged(loss)
        self._strikes = 0 if panic is None else self._strikes + 1
        if panic is None:
            self._recent.append(loss)
            self._best_loss = min(self._best_loss, loss)
            self.remember(body)
        return panic if self._strikes >= self._config.patience else None

    def remember(self, body: Body) -> None:
        """Keep this state, and only this, to come back to."""
        self._good = {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in body.state_dict().items()
        }

    @property
    def alarmed(self) -> bool:
        """Whether something was wrong when it last looked, though not often enough to panic."""
        return self._strikes > 0

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers, the last good state included."""
        return {
            "recent": list(self._recent),
            "best_loss": self._best_loss,
            "strikes": self._strikes,
            "good": self._good,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._recent = deque(state["recent"], maxlen=self._config.window)
        self._best_loss, self._strikes, self._good = state["best_loss"], state["strikes"], state["good"]

    def roll_back(self, body: Body, optimizer: torch.optim.Optimizer) -> None:
        """Host and fossils as they last were good; live seeds removed; no momentum into the old direction.

        The clock goes on: what happened has happened.
        """
        now = body.epoch
        if self._good is not None:
            body.load_state_dict(self._good)
            body.epoch = now
        body.uproot()
        optimizer.state.clear()

    def _non_finite(self, body: Body, loss: float) -> str | None:
        if not math.isfinite(loss):
            return f"the evaluation loss is {loss}"
        sums = torch.stack([parameter.detach().sum() for parameter in body.host_weights()])
        return None if bool(sums.isfinite().all()) else "a weight of the host is not finite"

    def _collapsed(self, loss: float, quality: float) -> str | None:
        config = self._config
        learned = self._best_loss < config.learned_share * self._guess.loss
        guesses = quality <= self._guess.quality and loss >= config.collapsed_share * self._guess.loss
        return (
            f"quality {quality:.3f} is a guess after a loss of {self._best_loss:.3f}" if learned and guesses else None
        )

    def _diverged(self, loss: float) -> str | None:
        config, recent = self._config, self._recent
        if not recent:
            return None
        mean = fmean(recent)
        margin = max(config.sigmas * pstdev(recent), config.absolute_share * self._guess.loss)
        diverged = loss > mean + margin and loss > config.relative * mean
        return f"loss {loss:.3f} is far above its recent mean of {mean:.3f}" if diverged else None
