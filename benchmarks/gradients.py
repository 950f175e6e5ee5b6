"""Whether the gradient of the actor is right: how much of it is noise, whose it is, and where it points.

    python benchmarks/gradients.py         # prints the table, writes benchmarks/results/gradients.csv; a minute

Toys whose policy gradient is known (`toys.py`), many rollouts of 12 rows, several ways to make a gradient of one:

- `halves`: cosine between the gradients of two such rollouts, which are the halves of one of 24 rows;
- `share`: of a head in the squared gradient of the trunk that all heads have in common;
- `cosine` and `length`: of the mean gradient over all rollouts, against the policy gradient. Both are 1 for an
  estimator without bias; the length is relative, in units of the deviation of gains.
- `planting`: the same of the derivative by one logit, that of planting.
- `score`: the mean over episodes of the summed derivative of the log-probabilities by the logit of doing it. 0 for
  every policy whose log-probabilities are those of what it does.

All are means over policies, with 1.96 standard errors. `esper.rl` makes "one average", recalls rows by "V-trace" and
draws anew.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from table import write_csv
from torch import Tensor
from toys import Exact, Policy, Toy, bandit, exact, hazard, planting

from esper.rl import advantages, normalised
from esper.rl.gae import gains

ROWS, ROLLOUTS = 12, 200
RARE_OP = (0.5, 0.5, 0.5, 0.5, 0.5, -1.5)
PERSISTENCE = 0.95
OUT = Path(__file__).parent / "results" / "gradients.csv"


class Batch(NamedTuple):
    """A rollout: numbers of episodes, and what a learner knows of them; (B, T), with heads (B, T, H)."""

    episodes: Tensor
    free: Tensor
    gains: Tensor
    log_ratio: Tensor
    """Of the present policy to the one that chose."""
    rewards: Tensor
    values: Tensor
    noise: Tensor


Weights = Callable[[Batch], Tensor]
"""(B, T, H): what the gradient of each log-probability is multiplied by."""
Figures = dict[tuple[str, str, str], list[float]]
"""By toy, estimator and measure: one number per policy."""


def play(toy: Toy, known: Exact, behaviour: Tensor, rows: int, source: torch.Generator) -> Batch:
    """Episodes of a policy with these log-probabilities (E, T, H), as the present one sees them."""
    chances = behaviour.sum(dim=(1, 2)).exp() * toy.chance
    episodes = torch.multinomial(chances, rows, replacement=True, generator=source)
    free = toy.free[episodes]
    noise = toy.noise * torch.randn(free.shape[:2], generator=source) * free.any(dim=-1)
    gains = known.gains[episodes] + noise
    ratio = (known.log_probs - behaviour).detach()[episodes]
    return Batch(episodes, free, gains, ratio, toy.rewards[episodes], known.values[episodes], noise)


def joined(*parts: Batch) -> Batch:
    """The rows of all."""
    return Batch(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def per_head(batch: Batch) -> Tensor:
    """Gains normalised for each head, averaged over the steps where it was free."""
    uses = batch.free.unbind(-1)
    return torch.stack([normalised(batch.gains, used) / used.sum().clamp(min=1) for used in uses], dim=-1)


def root(batch: Batch) -> Tensor:
    """The same, each head by the root of its steps and all steps."""
    uses, steps = batch.free.sum(dim=(0, 1)), batch.free.any(dim=-1).sum()
    return per_head(batch) * (uses / steps).sqrt()


def one_average(batch: Batch) -> Tensor:
    """Gains normalised once, averaged over all steps with a choice."""
    deciding = batch.free.any(dim=-1)
    return normalised(batch.gains, deciding).unsqueeze(-1) * batch.free / deciding.sum()


def centred(batch: Batch) -> Tensor:
    """The same, and each head's gains less their mean over its own steps."""
    whole, uses = one_average(batch), batch.free.sum(dim=(0, 1)).clamp(min=1)
    return (whole - whole.sum(dim=(0, 1)) / uses) * batch.free


def head_by_head(batch: Batch) -> Tensor:
    """Old choices count by their own head's ratio, up to 2, and are credited with what the old policy did next."""
    return per_head(batch) * batch.log_ratio.exp().clamp(max=2.0)


def joint(batch: Batch) -> Tensor:
    """Old decisions count by the ratio of the whole decision, up to 2; credited as they were."""
    return one_average(batch) * batch.log_ratio.sum(dim=-1, keepdim=True).exp().clamp(max=2.0)


def v_trace(batch: Batch) -> Tensor:
    """Old decisions count by the ratio of the whole decision, up to 1, and so does all that came after them."""
    counts, deciding = batch.log_ratio.sum(dim=-1).exp().clamp(max=1.0), batch.free.any(dim=-1)
    ends = torch.arange(counts.shape[1]).expand(counts.shape) == counts.shape[1] - 1
    course = batch.rewards, batch.values, torch.zeros_like(counts), ends, torch.ones_like(ends)
    raw = advantages(*course, 1.0, 1.0, counts) + batch.noise
    return gains(raw, deciding, counts, [0] * len(counts)).unsqueeze(-1) * batch.free / deciding.sum()


class Gradients:
    """Of one policy in one toy: derivatives of every log-probability, and the policy gradient, head by head."""

    def __init__(self, toy: Toy, policy: Policy) -> None:
        self.toy, self.known = toy, exact(toy, policy)
        parameters = list(policy.parameters())
        self.trunk = sum(parameter.numel() for parameter in policy.trunk.parameters())
        flat = self.known.log_probs.flatten()
        rows = torch.autograd.grad(
            flat, parameters, torch.eye(len(flat)), is_grads_batched=True, retain_graph=True, materialize_grads=True
        )
        self.each = torch.cat([row.flatten(1) for row in rows], dim=1).reshape(*self.known.log_probs.shape, -1)
        paid = (self.known.chances * toy.rewards.sum(dim=1)).reshape(-1, 1, 1).expand(toy.free.shape)
        self.true = self._summed(paid) / self.known.scale

    def of(self, batch: Batch, weights: Tensor) -> Tensor:
        """(H, parameters): what each head's part of the objective adds to the gradient."""
        room = torch.zeros(self.toy.free.shape)
        return self._summed(room.index_add(0, batch.episodes, weights))

    def _summed(self, weights: Tensor) -> Tensor:
        return torch.einsum("eth,ethp->hp", weights, self.each)


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two gradients."""
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


def examine(toy: Gradients, rollouts: list[Batch], weights: Weights) -> dict[str, float]:
    """All measures of one estimator under one policy."""
    found = torch.stack([toy.of(batch, weights(batch)) for batch in rollouts])
    whole, mean, names = found.sum(dim=1), found.mean(dim=0), list(toy.toy.heads)
    pairs = list(zip(whole[::2], whole[1::2], strict=True))
    true = toy.true.sum(dim=0)
    measures = {
        "halves": sum(cosine(*pair) for pair in pairs) / len(pairs),
        "cosine": cosine(mean.sum(dim=0), true),
        "length": float(mean.sum(dim=0).norm() / true.norm()),
    }
    if len(names) == 1:
        return measures
    trunk = found[..., : toy.trunk]
    squares = trunk.square().sum(dim=-1)
    shares = (squares / squares.sum(dim=1, keepdim=True).clamp(min=1e-20)).mean(dim=0)
    for place, name in enumerate(names):
        own = trunk[:, place]
        both = [cosine(*pair) for pair in zip(own[::2], own[1::2], strict=True)]
        measures[f"halves, {name}"] = sum(both) / len(both)
        measures[f"share, {name}"] = float(shares[place])
        if toy.true[place].norm() > 1e-6:  # there is something to learn
            measures[f"cosine, {name}"] = cosine(mean[place], toy.true[place])
            measures[f"length, {name}"] = float(mean[place].norm() / toy.true[place].norm())
    return measures


def in_bandit(seed: int, count: int = ROLLOUTS) -> dict[str, dict[str, float]]:
    """Rare heads. A row is 12 decisions."""
    toy, source = bandit(), torch.Generator().manual_seed(seed)
    gradients = Gradients(toy, Policy(toy, seed, RARE_OP))
    known = gradients.known
    rollouts = [play(toy, known, known.log_probs.detach(), ROWS * 12, source) for _ in range(count)]
    ways: dict[str, Weights] = {
        "own average of each head": per_head,
        "root of both": root,
        "one average": one_average,
        "one average, heads centred": centred,
    }
    return {name: examine(gradients, rollouts, way) for name, way in ways.items()}


def in_planting(seed: int, count: int = ROLLOUTS) -> dict[str, dict[str, float]]:
    """Of 8 rows one is fresh; the others were made by a policy that knew neither what to plant nor to finish it."""
    toy, source = planting(), torch.Generator().manual_seed(seed)
    old, new = Policy(toy, seed, (0.5, -0.5)), Policy(toy, seed, (0.0, 0.0))
    with torch.no_grad():
        new.head(1).bias[0] += 3.0
        before, later = (torch.tanh(new.trunk(toy.observation[0, step])) for step in (0, 1))
        apart = 3.0 * (later - before) / (later - before).square().sum()
        new.head(0).weight[1] += apart  # at the second step only
        new.head(0).bias[1] -= apart @ before
    gradients = Gradients(toy, new)
    known = gradients.known
    now, then = known.log_probs.detach(), exact(toy, old).log_probs.detach()
    fresh = [play(toy, known, now, ROWS, source) for _ in range(count)]
    mixed = [joined(each, play(toy, known, then, 7 * ROWS, source)) for each in fresh]
    ways: dict[str, tuple[list[Batch], Weights]] = {
        "fresh rows alone": (fresh, one_average),
        "7 of 8 recalled, head by head": (mixed, head_by_head),
        "7 of 8 recalled, joint ratio": (mixed, joint),
        "7 of 8 recalled, V-trace": (mixed, v_trace),
    }
    found = {}
    for name, (rollouts, way) in ways.items():
        found[name] = examine(gradients, rollouts, way)
        planted = torch.stack([gradients.of(batch, way(batch)) for batch in rollouts]).mean(dim=0)[0]
        found[name]["planting"] = float(planted @ _logit(new, toy) / (gradients.true[0] @ _logit(new, toy)))
    return found


def _logit(policy: Policy, toy: Toy) -> Tensor:
    """The direction, among all parameters, of the bias of the first head's last choice."""
    sizes = {name: parameter.numel() for name, parameter in policy.named_parameters()}
    place = sum(size for name, size in list(sizes.items())[: list(sizes).index("heads.0.bias") + 1]) - 1
    return torch.eye(sum(sizes.values()))[place]


def lasting(toy: Toy, known: Exact) -> Tensor:
    """Log-probabilities (E, T, 1) where a number decides that is kept from step to step, or sometimes drawn anew."""
    doing = torch.where(toy.choices == 1, known.log_probs.exp(), 1 - known.log_probs.exp()).detach().squeeze(-1)
    chance, most = torch.zeros_like(doing), torch.zeros(len(doing))
    for step in range(doing.shape[1]):
        now = doing[:, step]
        chance[:, step] = (1 - PERSISTENCE) * now + PERSISTENCE * ((now - most) / (1 - most)).clamp(min=0.0)
        most = torch.maximum(most, now)
    done = toy.choices.squeeze(-1) == 1
    return torch.where(done, chance, 1 - chance).log().unsqueeze(-1).masked_fill(~toy.free, 0.0)


def in_hazard(seed: int, count: int = ROLLOUTS) -> dict[str, dict[str, float]]:
    """Doing it pays 0, leaving it 1."""
    toy, source = hazard(0.0, 1.0), torch.Generator().manual_seed(seed)
    gradients = Gradients(toy, Policy(toy, seed, (2.5, 0.0)))
    known = gradients.known
    anew, kept = known.log_probs.detach(), lasting(toy, known)
    found = {}
    for name, behaviour, way in (
        ("drawn anew", anew, one_average),
        ("lasting, as if drawn anew", kept, one_average),
        ("lasting, V-trace", kept, v_trace),
    ):
        rollouts = [play(toy, known, behaviour, ROWS, source) for _ in range(count)]
        found[name] = examine(gradients, rollouts, way)
        found[name]["score"] = score(toy, known, behaviour)
    return found


def score(toy: Toy, known: Exact, behaviour: Tensor) -> float:
    """Summed derivative of the policy's log-probabilities by the logit of doing it, in episodes of `behaviour`."""
    made = known.log_probs.detach().exp().squeeze(-1)
    derivative = torch.where(toy.choices.squeeze(-1) == 1, 1 - made, made - 1) * toy.free.squeeze(-1)
    return float((behaviour.sum(dim=(1, 2)).exp() * toy.chance) @ derivative.sum(dim=1))


def interval(numbers: list[float]) -> tuple[float, float, float]:
    """Mean, and the mean less and plus 1.96 of its standard errors."""
    values = torch.tensor(numbers)
    error = 1.96 * float(values.std()) / len(numbers) ** 0.5
    return float(values.mean()), float(values.mean()) - error, float(values.mean()) + error


def main() -> None:
    """Measure everything, print and write it."""
    parser = argparse.ArgumentParser(description="Is the gradient of the actor right?")
    parser.add_argument("--policies", type=int, default=20, help="random policies per toy (default %(default)s)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    figures: Figures = defaultdict(list)
    toys = {"bandit": in_bandit, "planting": in_planting, "hazard": in_hazard}
    for toy, measured in toys.items():
        for seed in range(given.policies):
            for estimator, measures in measured(seed).items():
                for measure, number in measures.items():
                    figures[toy, estimator, measure].append(number)
    rows = [(*key, *(f"{number:.3f}" for number in interval(numbers))) for key, numbers in figures.items()]
    for row in rows:
        print(f"{row[0]:9} {row[1]:32} {row[2]:16} {row[3]:>7}  [{row[4]}, {row[5]}]")
    write_csv(OUT, ["toy", "estimator", "measure", "mean", "low", "high"], rows)


if __name__ == "__main__":
    main()
