"""One episode, told epoch by epoch."""

from rich.console import Console

from esper.contracts import (
    AlphaRetargeted,
    Event,
    OperationRefused,
    RansomwareSuspected,
    RewardHackingSuspected,
    StageChanged,
)
from esper.runs.policies import find_policy
from esper.runs.rollout import Game, Job, Player, Purpose, Tape
from esper.telemetry import DecisionMade, EpisodeFinished, RewardPaid, RolledBack


class Narrator(Tape):
    """Prints a line for everything that happens."""

    def __init__(self, console: Console, horizon: int) -> None:
        super().__init__()
        self.console, self.horizon = console, horizon
        self._aside: list[str] = []
        self._decision = ""

    def write(self, event: Event) -> None:
        """Decisions wait for the reward of their epoch; what happened in between is told below it."""
        super().write(event)
        if isinstance(event, DecisionMade):
            self._decision = _decided(event)
        elif isinstance(event, RewardPaid):
            self.console.print(
                f"epoch {event.epoch + 1:>3}/{self.horizon}  {self._decision:<46}  accuracy {event.accuracy:6.1%}  "
                f"growth x{event.growth:<5.1f} reward {event.total:+.3f}",
                soft_wrap=True,
            )
            for line in self._aside:
                self.console.print(f"               {line}", soft_wrap=True)
            self._aside = []
        else:
            self._aside.append(_told(event))


def narrate_episode(
    policy: str, task: str, seed: int, reward: str, data_dir: str | None, console: Console
) -> EpisodeFinished:
    """Play and print one episode; returns how it ended."""
    find_policy(policy)  # say what is wrong with it before the data is loaded
    player = Player(Game(reward=reward, data_dir=data_dir))
    horizon = player.env(task).task.horizon
    console.print(f"{policy} plays {task}, seed {seed}, {horizon} epochs", soft_wrap=True)
    finished = player.play(Job(task, seed, policy, Purpose.COMPARE), Narrator(console, horizon)).finished
    twin = "" if finished.twin_accuracy is None else f", {finished.twin_accuracy:.1%} without growth"
    console.print(
        f"the end: accuracy {finished.accuracy:.1%}{twin}, {finished.growth:.1f} times the host's parameters, "
        f"{finished.fossilized} seed(s) kept, return {finished.total:+.3f}, {finished.seconds:.1f} s",
        soft_wrap=True,
    )
    return finished


def _decided(event: DecisionMade) -> str:
    details = [event.slot, event.blueprint, event.style, event.tempo, event.alpha_target, event.alpha_speed]
    words = [event.op.lower(), *(detail.lower() for detail in details if detail is not None)]
    return " ".join(words) + (" (forced)" if event.forced else "")


def _told(event: Event) -> str:
    match event:
        case StageChanged(_, slot, before, after, reasons):
            why = f": {', '.join(reasons)}" if reasons else ""
            return f"{slot} goes from {before.name} to {after.name}{why}"
        case AlphaRetargeted(_, slot, alpha, target, ticks):
            return f"{slot}: alpha goes from {alpha:.2f} to {target:.2f} in {ticks} epochs"
        case OperationRefused(_, op, slot, reasons):
            return f"{op} in {slot} refused: {', '.join(reasons)}"
        case RewardHackingSuspected(_, slot, contribution, gain):
            return f"{slot} seems to pay more than it earns: {contribution:+.1%} alone, {gain:+.1%} all together"
        case RansomwareSuspected(_, slot, contribution, gain):
            return f"the host depends on {slot} without gain: {contribution:+.1%} alone, {gain:+.1%} all together"
        case RolledBack(_, reason):
            return f"the governor rolled back: {reason}"
    return type(event).__name__
