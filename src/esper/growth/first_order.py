"""What a newborn would gain: the gradient that a seed of each blueprint would get in a slot that has none.

Before it is blended in, the rest of the network is as it is without it. All that is needed are the features at the
slot and the gradient of the loss there, which an ordinary training pass computes anyway, and a pass through the newborn
alone.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esper.contracts import Birth, Gain, Operator
from esper.growth.blending import assemble
from esper.growth.blueprints import Blueprint
from esper.growth.caches import NO_CACHE, CacheUse
from esper.growth.front import Front
from esper.growth.interface import NO_CALL, Call

Numbers = NDArray[np.float32]

MEASURED_AFTER = frozenset(6**power for power in range(8))
"""Epochs after which every empty slot is measured: the later the rarer, so that it stays a small share of the time."""
SETTLING_EPOCHS = 2
"""So long after a seed came or went, what newborns would gain elsewhere is measured again."""
ROWS = 32
"""Of a batch. Twice as many rank blueprints a little better, and take a third more time."""
KEPT_CHANNELS = 32
"""Newborns of at most so many channels are asked together and kept for the next time; wide ones come one by one."""
SEED = 0
"""Of newborns' weights, which draw neither from the births' random numbers nor from the global ones."""
STEADIEST = 1e3
"""The most that a gradient's mean over deviation counts; two halves can agree by chance."""


class GainMeter:
    """Looks at what passes through an empty slot, and tells what newborns would gain there.

    Once armed, it keeps features and gradient of the last training batch until it is read. A batch with fewer rows than
    the one before it, as the last of an epoch may be, is left out. Compiled forward passes are not seen.
    """

    def __init__(self, blueprints: Sequence[Blueprint], channels: int, front: Front) -> None:
        self.armed = False
        self._blueprints, self._channels, self._front = blueprints, channels, front
        self._seen: tuple[Tensor, Tensor, Call] | None = None

    def watch(self, h: Tensor, call: Call) -> Tensor:
        """The same features, in a tensor of their own whose gradient is noted when it comes."""
        # Others may use `h` too; and behind a frozen host nothing else would need a gradient.
        watched = (h if h.requires_grad else h.detach().requires_grad_()).clone()
        rows = min(ROWS, len(h))
        features, share = h.detach()[:rows].clone(), rows / len(h)
        kept = self._front.use.without(call).first_rows(rows, of=len(h))

        def note(gradient: Tensor) -> None:
            if self.armed and (self._seen is None or rows >= len(self._seen[0])):
                self._seen = features, gradient.detach()[:rows] / share, kept

        watched.register_hook(note)
        return watched

    def read(self, like: Tensor) -> tuple[Gain, ...]:
        """One gain per blueprint, for seeds of the type and place of `like`; disarms the meter.

        Empty if no batch was seen. A gain that is not finite is left out.
        """
        seen, self._seen, self.armed = self._seen, None, False
        if seen is None:
            return ()
        # Behind channels-last features that need no gradient, PyTorch's group norm crashes going back.
        h, g = (part.to(like).contiguous() for part in seen[:2])
        with torch.random.fork_rng([h.device] if h.is_cuda else []):
            torch.default_generator.manual_seed(SEED)
            try:
                gradients = self._gradients(h, _halves(g), seen[2].like(h))
            except RuntimeError:  # a blueprint that does not fit these features says so when it is planted
                return ()
        gains = gains_of([each.name for each in self._blueprints], gradients)
        return tuple(gain for gain in gains if math.isfinite(gain.push))

    def _gradients(self, h: Tensor, halves: Sequence[Tensor], call: Call) -> list[Numbers]:
        asked = [each for each in self._blueprints if each.birth is Birth.ZERO]
        kinds = [(each, self._channels, Operator.ADD, h.device, h.dtype, self._front.use) for each in asked]
        if self._channels <= KEPT_CHANNELS and kinds:
            found = first_gradients([kept_newborn(*kind) for kind in kinds], h, halves, call=call)
        else:
            found = [first_gradients([Newborn(*kind)], h, halves, call=call)[0] for kind in kinds]
        by_name = {each.name: numbers for each, numbers in zip(asked, found, strict=True)}
        return [
            by_name[each.name] if each in asked else self._along_delta(each, h, halves, call)
            for each in self._blueprints
        ]

    @torch.no_grad()
    def _along_delta(self, blueprint: Blueprint, h: Tensor, halves: Sequence[Tensor], call: Call) -> Numbers:
        """Of a newborn whose delta is not zero: the gradient of alpha, from 0 on, which only rises."""
        delta = blueprint.newborn(self._channels, self._front)
        seed = assemble(delta, Operator.ADD, self._channels, blueprint.topology).to(h).eval()
        change = seed(h, 1.0, call) - h
        slopes = torch.stack([(change * part).sum() for part in halves]).float()
        falls = slopes if float(slopes.sum()) < 0.0 else torch.zeros_like(slopes)
        return falls[:, None].cpu().numpy()


class Newborn:
    """A seed that is never planted: it is asked for its first gradients only, and stays as it was born."""

    def __init__(
        self,
        blueprint: Blueprint,
        channels: int,
        operator: Operator,
        device: torch.device,
        dtype: torch.dtype,
        use: CacheUse = NO_CACHE,
    ) -> None:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(SEED)
            delta = blueprint.newborn(channels, Front(nn.Identity(), use))
            seed = assemble(delta, operator, channels, blueprint.topology)
        self.seed = seed.to(device, dtype).train()
        self._born = [(buffer, buffer.clone()) for buffer in self.seed.buffers()]
        self._awake: list[nn.Parameter] | None = None

    def awake(self, h: Tensor, g: Tensor, alpha: float, call: Call) -> list[nn.Parameter]:
        """The parameters that can have a gradient at birth. From the others a zero weight keeps it, whatever the data.

        Those are frozen, which saves two fifths of the time.
        """
        if self._awake is None:
            own = dict(self.seed.named_parameters())
            woken = {name: each if each.any() else torch.ones_like(each).requires_grad_() for name, each in own.items()}
            now, later = (self._gradients(weights, h, g, alpha, call) for weights in (own, woken))
            for parameter, here, there in zip(own.values(), now, later, strict=True):
                parameter.requires_grad_(bool(here.any()) or not bool(there.any()))
            self._awake = [parameter for parameter in own.values() if parameter.requires_grad]
            self.forget()
        return self._awake

    def _gradients(self, weights: dict[str, Any], h: Tensor, g: Tensor, alpha: float, call: Call) -> tuple[Tensor, ...]:
        blended = torch.func.functional_call(self.seed, weights, (h, alpha, call))
        return torch.autograd.grad(blended, list(weights.values()), g)

    @torch.no_grad()
    def forget(self) -> None:
        """Undo what features that passed through have left behind."""
        for buffer, value in self._born:
            buffer.copy_(value)


@torch.enable_grad()
def first_gradients(
    newborns: Sequence[Newborn], h: Tensor, parts: Sequence[Tensor], alpha: float = 1.0, call: Call = NO_CALL
) -> list[Numbers]:
    """For each newborn (parts, parameters): the gradients that it gets from features `h`, if blended they get `parts`.

    Parameters that cannot have a gradient at birth are left out. One pass for all newborns, as that is fastest.
    """
    whole = torch.stack(list(parts)).sum(dim=0)
    awake = [newborn.awake(h, whole, alpha, call) for newborn in newborns]
    asked = [parameter for parameters in awake for parameter in parameters]
    blended = [newborn.seed(h, alpha, call) for newborn in newborns]
    found = [torch.autograd.grad(blended, asked, [part] * len(newborns), retain_graph=True) for part in parts]
    for newborn in newborns:
        newborn.forget()
    rows = np.stack([torch.cat([each.flatten() for each in row]).float().cpu().numpy() for row in found])
    sizes = [sum(parameter.numel() for parameter in parameters) for parameters in awake]
    return np.split(rows, np.cumsum(sizes)[:-1], axis=1)


kept_newborn = lru_cache(maxsize=256)(Newborn)
"""Newborns know nothing of a host, so those that are alike are one."""


def _halves(g: Tensor) -> list[Tensor]:
    """Two gradients that add up to `g`, each of half of the rows; a single row cannot be halved."""
    if len(g) == 1:
        return [g]
    first, second = g.clone(), g.clone()
    first[len(g) // 2 :], second[: len(g) // 2] = 0.0, 0.0
    return [first, second]


@np.errstate(all="ignore")
def gains_of(names: Sequence[str], gradients: Sequence[Numbers]) -> list[Gain]:
    """The figures of newborns' gradients (halves, parameters), of which halves add up to the whole."""
    halves, first = np.concatenate(gradients, axis=1), np.cumsum([0, *(each.shape[1] for each in gradients[:-1])])
    whole = halves.sum(axis=0)
    norms = np.sqrt(np.add.reduceat(whole * whole, first))
    pushes = np.add.reduceat(np.abs(whole), first)
    if len(halves) == 1:
        return list(map(Gain, names, norms.tolist(), pushes.tolist()))
    sizes = np.abs(halves)
    less, more = sizes.min(axis=0), sizes.max(axis=0)
    agreed = np.add.reduceat(np.where(halves[0] * halves[1] > 0.0, 2.0 * less, 0.0), first)
    still = more == 0.0
    ratios = (more + less + still) / (np.maximum(more - less, more / STEADIEST) + still)
    steadiness = np.add.reduceat(np.log(ratios), first)
    return list(map(Gain, names, norms.tolist(), pushes.tolist(), agreed.tolist(), steadiness.tolist()))
