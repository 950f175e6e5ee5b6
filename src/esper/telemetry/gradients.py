"""Gradients, weights, memories and observations in figures: computed where the tensors are, fetched once.

No loop here depends on what the numbers are, and nothing is asked of the device until all figures are there.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from esper.telemetry.events import ArrayFigures, GradientFigures, MemoryExamined, UpdateExamined, WeightFigures

SATURATED = 0.99
"""The size from which on an entry of a hidden state counts as saturated; tanh has 2 % of its slope left there."""

Gradients = Mapping[str, Sequence[Tensor | None]]
"""The gradients of each owner's parameters; None for a parameter that has none."""


def gradients_of(network: nn.Module) -> dict[str, list[Tensor | None]]:
    """By part: the network's own submodules, and `own` for parameters that belong to none of them."""
    return {name: [parameter.grad for parameter in part] for name, part in parts_of(network).items()}


def parts_of(network: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of a network, by the part that they belong to."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        owner, _, rest = name.partition(".")
        parts.setdefault(owner if rest else "own", []).append(parameter)
    return parts


class GradientCollector:
    """Is shown gradients, batch by batch, and says in the end what they were like."""

    def __init__(self) -> None:
        self._owners: tuple[str, ...] = ()
        self._seen: list[Tensor] = []

    def see(self, gradients: Gradients) -> None:
        """Take in the gradients of one batch; the owners are the same in every batch."""
        self._owners = tuple(gradients)
        self._seen.append(torch.stack([_gradient(parts) for parts in gradients.values()]))

    def figures(self) -> dict[str, GradientFigures]:
        """Of everything that was shown; empty if nothing was."""
        if not self._seen:
            return {}
        norm, largest, zeros, lost, count = torch.stack(self._seen).unbind(dim=-1)
        table = torch.stack([norm.mean(0), largest.amax(0), zeros.mean(0), lost.sum(0), count.amin(0)], dim=-1)
        return {
            owner: GradientFigures(norm, largest, zeros, int(lost))
            if count
            else GradientFigures(None, None, None, int(lost))
            for owner, (norm, largest, zeros, lost, count) in zip(self._owners, table.tolist(), strict=True)
        }


def _gradient(parts: Sequence[Tensor | None]) -> Tensor:
    """Norm, largest entry, share of zeros, number of entries that are not finite, number of entries."""
    present = [part.detach().flatten() for part in parts if part is not None]
    if not present:
        return torch.zeros(5)
    flat = torch.cat(present).float()
    return torch.stack([*_size(flat), (flat == 0).float().mean(), _lost(flat), flat.new_tensor(flat.numel())])


def _size(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Norm and largest entry of what is finite; squares of large entries do not overflow."""
    clean = flat.where(flat.isfinite(), 0.0).abs()
    largest = clean.amax()
    scale = largest.clamp(min=1e-30)
    return scale * (clean / scale).norm(), largest


def _lost(values: Tensor) -> Tensor:
    return (~values.isfinite()).sum().float()


class UpdateExaminer:
    """Looks at a network while it is updated. `see` is to be shown it after every backward pass."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        self._collector = GradientCollector()

    def see(self, network: nn.Module) -> None:
        """Take in the gradients as they are now."""
        self._collector.see(gradients_of(network))

    def report(self, observation: Mapping[str, Tensor], valid: Tensor) -> UpdateExamined:
        """The stability of the update; the observations (B, T, ...) are those that it learned from."""
        return UpdateExamined(
            self._collector.figures(),
            weight_figures(self._network, self._before),
            observation_figures(observation, valid),
        )


@torch.no_grad()
def weight_figures(network: nn.Module, before: Mapping[str, Tensor]) -> dict[str, WeightFigures]:
    """The weights by part; `before` is the network's state before the update."""
    parts = parts_of(network)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    rows = []
    for part in parts.values():
        flat = torch.cat([parameter.flatten() for parameter in part])
        old = torch.cat([before[names[id(parameter)]].flatten() for parameter in part])
        norm, _ = _size(flat)
        rows.append(torch.stack([norm, _size(flat - old)[0] / norm.clamp(min=1e-30), _lost(flat)]))
    table = torch.stack(rows).tolist()
    return {name: WeightFigures(norm, moved, int(lost)) for name, (norm, moved, lost) in zip(parts, table, strict=True)}


def observation_figures(arrays: Mapping[str, Tensor], valid: Tensor) -> dict[str, ArrayFigures]:
    """What was seen in the steps that `valid` (B, T) marks; arrays are (B, T, ...)."""
    table = torch.stack([_array(array[valid].float()) for array in arrays.values()]).tolist()
    return {
        name: ArrayFigures(mean, deviation, lowest, highest, still, int(lost))
        for name, (mean, deviation, lowest, highest, still, lost) in zip(arrays, table, strict=True)
    }


def _array(steps: Tensor) -> Tensor:
    """Of one array (steps, ...), by its finite entries."""
    finite = steps.isfinite()
    count = finite.sum().clamp(min=1)
    clean = steps.where(finite, 0.0)
    mean = clean.sum() / count
    deviation = ((clean - mean).where(finite, 0.0).square().sum() / count).sqrt()
    lowest, highest = steps.where(finite, torch.inf).amin(), steps.where(finite, -torch.inf).amax()
    still = (steps == steps[0]).all(dim=0).float().mean()
    return torch.stack([mean, deviation, lowest, highest, still, _lost(steps)])


def memory_figures(states: Sequence[tuple[Tensor, Tensor] | None]) -> MemoryExamined | None:
    """The health of an LSTM over the states (hidden, cell) that it was in; None where no memory is to speak of."""
    kept = [state for state in states if state is not None and state[0].numel()]
    if not kept:
        return None
    hidden, cell = (torch.stack([state[part].detach().flatten().float() for state in kept]) for part in (0, 1))
    clean_hidden, clean_cell = (values.where(values.isfinite(), 0.0) for values in (hidden, cell))
    figures = torch.stack(
        [
            clean_hidden.norm(dim=-1).mean(),
            clean_cell.norm(dim=-1).mean(),
            clean_cell.abs().amax(),
            (clean_hidden.abs() > SATURATED).float().mean(),
            _lost(hidden) + _lost(cell),
        ]
    )
    hidden_norm, cell_norm, largest_cell, saturated, lost = figures.tolist()
    return MemoryExamined(len(kept), hidden_norm, cell_norm, largest_cell, saturated, int(lost))
