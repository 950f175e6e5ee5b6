"""What looks wrong in a run, found from its events alone.

A `Detector` is fed every event and answers with the anomalies that it raises. It depends on nothing but what it was
fed, so replaying a log leaves it as it was. Only what the learned policy did in training counts: evaluation, comparison
and control policies are passed over, and so are steps that the masks forced.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from esper.contracts import EpisodeEvent, Event, RansomwareSuspected, RewardHackingSuspected
from esper.telemetry.anomaly_kinds import KINDS, AnomalyConfig, Expectations
from esper.telemetry.events import AnomalyRaised, DecisionMade, EpisodeFinished, HeadFigures, RoundFinished, UpdateMade

SQUARABLE = 1e100
"""What is larger, or not a number, would spoil averages of squares for good."""


class Ema:
    """A mean that forgets: each number takes `weight` of it, the first one all."""

    def __init__(self, weight: float) -> None:
        self.weight, self.mean, self.count = weight, 0.0, 0

    def add(self, number: float) -> float:
        """Take in a number and return the mean."""
        self.count += 1
        self.mean += (number - self.mean) * (1.0 if self.count == 1 else self.weight)
        return self.mean


@dataclass(frozen=True)
class Limit:
    """Where an alarm begins and where it is over; if that is higher, it watches for what is too low."""

    raise_at: float
    clear_at: float
    patience: int = 1
    """Figures running beyond the limit that it takes."""


class Hysteresis:
    """An alarm that is raised once and stands until its figure has come all the way back."""

    def __init__(self) -> None:
        self.beyond, self.standing = 0, False

    def see(self, figure: float, limit: Limit) -> bool:
        """Take in a figure; True if the alarm is raised by it. NaN says nothing."""
        if math.isnan(figure):
            return False
        sign = -1.0 if limit.clear_at > limit.raise_at else 1.0
        if sign * figure <= sign * limit.clear_at:
            self.standing = False
        self.beyond = self.beyond + 1 if sign * figure >= sign * limit.raise_at else 0
        raised = self.beyond >= limit.patience and not self.standing
        self.standing = self.standing or raised
        return raised


@dataclass(frozen=True)
class Reading:
    """One figure beside its limit, and what to say if that is passed."""

    kind: str
    figure: float
    limit: Limit
    seen: str
    figures: dict[str, float]
    about: str = ""
    """The head that it is about, where each head has an alarm of its own."""
    may_raise: bool = True
    """Whether it may raise an alarm, or only end one."""

    def anomaly(self) -> AnomalyRaised:
        """What is said: what was seen, why it matters, what to try."""
        kind = KINDS[self.kind]
        return AnomalyRaised(self.kind, f"{self.seen}: {kind.why}; {kind.remedy}", self.figures)


@dataclass
class RoundTally:
    """What the learned policy's training episodes of a round came to, so far."""

    episodes: int = 0
    fossilized: int = 0
    panics: int = 0
    hacking: int = 0
    ransomware: int = 0
    not_finite: int = 0


class CriticError:
    """How the critic's error compares with that of the best constant over the last updates."""

    WARMUP = 8
    """Updates before it is judged. The first is left out: it is made before there is a scale of returns."""

    def __init__(self) -> None:
        self.updates = 0
        self._error, self._mean, self._square = Ema(0.1), Ema(0.1), Ema(0.1)

    def add(self, update: UpdateMade) -> float | None:
        """The comparison after one more update; None while nothing can be said."""
        figures = (update.value_error, update.return_mean, update.return_deviation)
        if not all(abs(figure) < SQUARABLE for figure in figures):
            return None
        self.updates += 1
        if self.updates == 1:
            return None
        error = self._error.add(update.value_error**2)
        mean = self._mean.add(update.return_mean)
        variance = self._square.add(update.return_mean**2 + update.return_deviation**2) - mean**2
        # Where returns hardly vary nothing is there to be known, and rounding would decide.
        if self.updates < self.WARMUP or variance <= 1e-6 * max(mean**2, 1e-6):
            return None
        return math.sqrt(error / variance)


class Detector:
    """Is fed the events of a run in their order, and raises each anomaly once until it is over."""

    def __init__(self, config: AnomalyConfig, expected: Expectations) -> None:
        self.config, self.expected = config, expected
        self.standing: dict[tuple[str, str], AnomalyRaised] = {}
        """The alarms that are not over, by kind and head, as they were raised."""
        self._alarms: dict[tuple[str, str], Hysteresis] = {}
        self._recent_gradient, self._usual_gradient = Ema(0.3), Ema(0.03)
        self._critic = CriticError()
        self._updates = self._barren = 0
        self._episode, self._round = RoundTally(), RoundTally()

    def see(self, event: Event) -> tuple[AnomalyRaised, ...]:
        """Take in an event; the anomalies that it raises."""
        match event:
            case UpdateMade():
                self._updates += 1
                return self._judged(self._readings_of_update(event))
            case RoundFinished():
                tally, self._round = self._round, RoundTally()
                return self._judged(self._readings_of_round(event, tally))
            case EpisodeFinished():
                self._episode_ends(event)
            case RewardHackingSuspected():
                self._episode.hacking += 1
            case RansomwareSuspected():
                self._episode.ransomware += 1
            case DecisionMade() if not tame(event):
                self._episode.not_finite += 1
        return ()

    def _judged(self, readings: Iterator[Reading]) -> tuple[AnomalyRaised, ...]:
        raised = []
        for reading in readings:
            key = reading.kind, reading.about
            alarm = self._alarms.setdefault(key, Hysteresis())
            if reading.may_raise or alarm.standing:
                if alarm.see(reading.figure, reading.limit):
                    self.standing[key] = reading.anomaly()
                    raised.append(self.standing[key])
                elif not alarm.standing:
                    self.standing.pop(key, None)
        return tuple(raised)

    def _episode_ends(self, event: EpisodeFinished) -> None:
        """The events of an episode come before its end, so what was counted since the last one is this one's."""
        counted, self._episode = self._episode, RoundTally()
        if event.policy != "learned" or event.purpose != "train":
            return
        self._round.episodes += 1
        self._round.fossilized += event.fossilized
        self._round.panics += event.panic is not None
        self._round.hacking += counted.hacking
        self._round.ransomware += counted.ransomware
        self._round.not_finite += counted.not_finite + (not math.isfinite(event.total))

    def _high(self, threshold: float, patience: int = 1) -> Limit:
        return Limit(threshold, threshold * self.config.relief, patience)

    def _readings_of_update(self, update: UpdateMade) -> Iterator[Reading]:
        yield self._finite(update)
        heads = {name: head for name, head in update.heads.items() if head.steps and not math.isnan(head.lowest_ratio)}
        if heads:
            yield from self._ratios(heads)
        yield self._divergence(update)
        error = self._critic.add(update)
        if error is not None:
            yield self._value(update, error)
        yield from self._gradient(update)
        for name, head in heads.items():
            if head.entropy is not None and head.steps >= self.config.entropy_choices:
                yield self._entropy_reading(name, head, head.entropy)

    def _finite(self, update: UpdateMade) -> Reading:
        measured = (update.policy_loss, update.value_loss, update.kl, update.gradient_norm, update.value_error)
        lost = sum(not math.isfinite(figure) for figure in measured)
        seen = f"{update.skipped_steps} optimiser steps were left out and {lost} figures of the update are not finite"
        figures = {"skipped_steps": float(update.skipped_steps), "figures": float(lost)}
        return Reading("non_finite", update.skipped_steps + lost, Limit(1, 0), seen, figures)

    def _ratios(self, heads: dict[str, HeadFigures]) -> Iterator[Reading]:
        config = self.config
        name, head = max(heads.items(), key=lambda item: item[1].highest_ratio)
        yield Reading(
            "ratio_explosion",
            head.highest_ratio,
            self._high(config.ratio_high),
            f"the head '{name}' makes a choice {head.highest_ratio:.3g} times as often as before the update",
            _head_figures(head),
        )
        name, head = min(heads.items(), key=lambda item: item[1].lowest_ratio)
        yield Reading(
            "ratio_collapse",
            head.lowest_ratio,
            Limit(config.ratio_low, config.ratio_low / config.relief, config.ratio_updates),
            f"the head '{name}' makes a choice {head.lowest_ratio:.2g} times as often as before, and ratios were "
            f"below {config.ratio_low:g} for {config.ratio_updates} updates running",
            _head_figures(head),
        )

    def _divergence(self, update: UpdateMade) -> Reading:
        target = self.expected.target_kl
        limit = max(self.config.kl_high, 2 * target) if math.isfinite(target) else self.config.kl_high
        seen = f"the policy moved by {update.kl:.3g} nats in one update, and {limit:.3g} is a spike"
        figures = {"kl": update.kl, "clipped": update.clipped, "optimiser_steps": float(update.optimiser_steps)}
        return Reading("kl_spike", update.kl, self._high(limit), seen, figures)

    def _value(self, update: UpdateMade, error: float) -> Reading:
        config = self.config
        seen = (
            f"the critic's error is {error:.2f} times that of a constant, and was no better for "
            f"{config.value_updates} updates running; now it is {update.value_error:.3g} where returns deviate by "
            f"{update.return_deviation:.3g}, and from step to step the critic contradicts itself by "
            f"{update.bellman_error:.3g}"
        )
        figures = {
            "relative_error": error,
            "value_error": update.value_error,
            "bellman_error": update.bellman_error,
            "return_deviation": update.return_deviation,
        }
        return Reading(
            "value_collapse", error, self._high(config.value_error_high, config.value_updates), seen, figures
        )

    def _gradient(self, update: UpdateMade) -> Iterator[Reading]:
        """Norms that are not finite are told by another alarm, and would spoil the averages for good."""
        norm, config = update.gradient_norm, self.config
        if not math.isfinite(norm):
            return
        recent, usual = self._recent_gradient.add(norm), self._usual_gradient.add(norm)
        if self._updates <= config.gradient_warmup or usual <= 0:
            return
        times, harmless = recent / usual, config.gradient_clips * self.expected.max_gradient_norm
        figures = {"gradient_norm": norm, "recent": recent, "usual": usual, "times": times}
        seen = f"the gradient norm before clipping is {recent:.3g} of late, {times:.2g} times its usual {usual:.3g}"
        grown = times if recent >= harmless else 0.0
        yield Reading("gradient_drift", grown, self._high(config.gradient_times), seen, figures, "grown")
        fall = Limit(config.gradient_fall, config.gradient_fall / config.relief)
        yield Reading("gradient_drift", times, fall, seen, figures, "fallen")

    def _entropy_reading(self, name: str, head: HeadFigures, entropy: float) -> Reading:
        config, least = self.config, self.expected.least_entropy
        limit = Limit(least + config.entropy_low, least + config.entropy_clear, config.entropy_updates)
        seen = (
            f"the head '{name}' has {entropy:.3f} of the most entropy it could have over {head.steps} choices, below "
            f"{limit.raise_at:.3f} for {config.entropy_updates} updates running"
        )
        early = self._updates <= config.entropy_until * self.expected.rounds
        return Reading("entropy_collapse", entropy, limit, seen, _head_figures(head), name, may_raise=early)

    def _readings_of_round(self, finished: RoundFinished, tally: RoundTally) -> Iterator[Reading]:
        if tally.episodes:
            lost = f"in {tally.not_finite} places the critic's values or the returns of a round are not finite"
            not_finite = float(tally.not_finite)
            yield Reading("non_finite", not_finite, Limit(1, 0), lost, {"places": not_finite}, "played")
            yield from self._habits(tally)
        if tally.episodes and finished.waiting_share is not None:
            yield from self._growth(finished.waiting_share, finished.forced_share, tally)

    def _habits(self, tally: RoundTally) -> Iterator[Reading]:
        config = self.config
        for kind, count, threshold, rounds, words in (
            ("reward_hacking", tally.hacking, config.hacking_rate, config.suspicion_rounds, "suspicions"),
            ("ransomware", tally.ransomware, config.ransomware_rate, config.suspicion_rounds, "suspicions"),
            ("rollbacks", tally.panics, config.rollback_share, config.rollback_rounds, "rollbacks"),
        ):
            rate = count / tally.episodes
            seen = f"{count} {words} in {tally.episodes} episodes, and as many for {rounds} rounds running"
            figures = {"count": float(count), "episodes": float(tally.episodes), "per_episode": rate}
            yield Reading(kind, rate, self._high(threshold, rounds), seen, figures)

    def _growth(self, waiting: float, forced: float, tally: RoundTally) -> Iterator[Reading]:
        """Rounds in which everything was forced never come here: nobody chose not to grow."""
        config = self.config
        yield Reading(
            "no_growth_collapse",
            waiting,
            self._high(config.waiting_high, config.waiting_rounds),
            f"the policy waits in {waiting:.1%} of the steps that have a choice, and as often for "
            f"{config.waiting_rounds} rounds running",
            {"waiting_share": waiting, "forced_share": forced},
        )
        self._barren = 0 if tally.fossilized else self._barren + 1
        yield Reading(
            "nothing_grew",
            self._barren,
            Limit(config.barren_rounds, 0),
            f"no seed was delivered in the last {self._barren} rounds",
            {"rounds": float(self._barren), "episodes": float(tally.episodes)},
        )


def _head_figures(head: HeadFigures) -> dict[str, float]:
    return {name: float(figure) for name, figure in vars(head).items() if figure is not None}


def tame(event: Event) -> bool:
    """Whether it is one of the many events inside of episodes that say nothing to a detector."""
    if isinstance(event, DecisionMade):
        return event.value is None or math.isfinite(event.value)
    return isinstance(event, EpisodeEvent) and not isinstance(event, RewardHackingSuspected | RansomwareSuspected)
