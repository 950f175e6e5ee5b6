"""What stands before a network's first layer: observations become one flat tensor.

Columns of `vector` are shifted and scaled to mean 0 and deviation 1 if that is wanted, images are read by a
convolution, and a module of the user's own may do all of it.
"""

from collections.abc import Mapping

import torch
from gymnasium import spaces
from torch import Tensor, nn

from esper.rl.errors import RLError, WrongShape
from esper.rl.network import Inputs, MakeEncoder, Observation
from esper.rl.observations import Observations, pixels

FURTHEST = 10.0
"""Deviations from the mean beyond which a normalised number is cut off."""


LEAST = 1e-8
"""The least variance by which a number is scaled."""


class Scale(nn.Module):
    """Numbers at mean 0 and deviation 1, by what has been seen; the statistics change only when told to.

    They are part of the weights, so of every checkpoint. Columns that are not `numbers` pass unchanged, and so does
    everything before the first statistics.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor
    numbers: Tensor

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.register_buffer("numbers", numbers, persistent=False)
        self.register_buffer("mean", torch.zeros(len(numbers)))
        self.register_buffer("variance", torch.ones(len(numbers)))
        self.register_buffer("count", torch.tensor(0, dtype=torch.long))

    def forward(self, vector: Tensor) -> Tensor:
        scaled = ((vector - self.mean) * self.variance.clamp(min=LEAST).rsqrt()).clamp(-FURTHEST, FURTHEST)
        return torch.where(self.numbers & (self.count > 0), scaled, vector)

    @torch.no_grad()
    def take_in(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """Every row (N, columns) counts as much as any row before.

        Gives by which shift and stretch of each column what comes behind can undo the change; None for the first rows.
        """
        if len(rows) == 0:
            return None
        first, old_mean, old = int(self.count) == 0, self.mean.clone(), self.variance.clamp(min=LEAST).sqrt()
        rows = rows.double()
        share = len(rows) / (len(rows) + int(self.count))
        mean, variance = rows.mean(dim=0), rows.var(dim=0, correction=0)
        shift = mean - self.mean
        self.variance.copy_((1 - share) * self.variance + share * variance + share * (1 - share) * shift.square())
        self.mean.add_(share * shift)
        self.count += len(rows)
        stretch = self.variance.clamp(min=LEAST).sqrt() / old
        changed = torch.where(self.numbers, (self.mean - old_mean) / old, 0.0), torch.where(self.numbers, stretch, 1.0)
        return None if first else changed


class Eyes(nn.Module):
    """A small convolution over images (..., *shape), with channels in the first or the last axis; flat features."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.space = space
        shape = space.shape
        self.channels_last = len(shape) == 3 and shape[-1] <= shape[0]
        channels = 1 if len(shape) == 2 else shape[-1] if self.channels_last else shape[0]
        height, width = shape[:2] if self.channels_last or len(shape) == 2 else shape[1:]
        # (kernel, stride) of each layer: coarse first where the image is large.
        large, stride = min(height, width) >= 36, 2 if min(height, width) >= 12 else 1
        steps = ((8, 4), (4, 2), (3, 1)) if large else ((3, stride), (3, stride))
        layers: list[nn.Module] = []
        for place, (kernel, stride) in enumerate(steps):
            convolution = nn.Conv2d(channels, 16 * 2 ** min(place, 1), kernel, stride, padding=0 if large else 1)
            nn.init.orthogonal_(convolution.weight, 2**0.5)
            layers += [convolution, nn.ReLU()]
            channels = convolution.out_channels
        self.layers = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            self.size = self(torch.zeros(1, *shape)).shape[-1]

    def forward(self, image: Tensor) -> Tensor:
        lead = image.shape[: -len(self.space.shape)]
        flat = pixels(image, self.space).reshape(-1, *self.space.shape)
        if flat.dim() == 3:
            flat = flat.unsqueeze(1)
        elif self.channels_last:
            flat = flat.movedim(-1, 1)
        features: Tensor = self.layers(flat)
        return features.view(*lead, -1)


class MixedInputs(Inputs):
    """The columns of `vector`, normalised if wanted, and beside them what a convolution makes of each image."""

    def __init__(self, observations: Observations, normalise: bool) -> None:
        super().__init__()
        self.width, numbers = observations.width, observations.unscaled()
        self.scale = Scale(numbers) if normalise and bool(numbers.any()) else None
        eyes = {name: Eyes(space) for name, space in observations.images.items()}
        self.eyes, self.shapes = nn.ModuleDict(eyes), {name: each.space.shape for name, each in eyes.items()}
        self.size = self.width + sum(each.size for each in eyes.values())

    def forward(self, observation: Observation) -> Tensor:
        parts = [eyes(observation[name]) for name, eyes in self.eyes.items()]
        if self.width:
            parts.insert(0, self.scale(observation["vector"]) if self.scale else observation["vector"])
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def take_in(self, observation: Observation, valid: Tensor) -> tuple[Tensor, Tensor] | None:
        return None if self.scale is None else self.scale.take_in(observation["vector"][valid])

    def schema(self) -> dict[str, object]:
        images = {name: list(shape) for name, shape in self.shapes.items()}
        return {"inputs": self.width} | ({"images": images} if images else {}) | _scaled(self.scale)


class OwnInputs(Inputs):
    """A module of the user's: gets observations in the shape of their space (N, ...), gives features (N, F)."""

    def __init__(self, make: MakeEncoder, observations: Observations, normalise: bool) -> None:
        super().__init__()
        self.observations, numbers = observations, observations.unscaled()
        self.scale = Scale(numbers) if normalise and bool(numbers.any()) else None
        self.module = make(observations.space)
        if not isinstance(self.module, nn.Module):
            raise RLError(
                f"network gave a {type(self.module).__name__}; it must give an nn.Module for {observations.space}"
            )
        self.size = self._size()

    def forward(self, observation: Observation) -> Tensor:
        lead = next(iter(observation.values())).shape[:2]
        names = [leaf.tensor for leaf in self.observations.leaves]
        flat = {name: observation[name].flatten(0, 1) for name in dict.fromkeys(names)}
        if self.scale is not None:
            flat["vector"] = self.scale(flat["vector"])
        features: Tensor = self.module(self.observations.in_shape(flat))
        return features.view(*lead, -1)

    def take_in(self, observation: Observation, valid: Tensor) -> None:
        if self.scale is not None:
            self.scale.take_in(observation["vector"][valid])

    def schema(self) -> dict[str, object]:
        shapes: Mapping[str, object] = {name: list(value.shape) for name, value in self.module.state_dict().items()}
        return {"inputs": f"{type(self.module).__name__} {shapes}"} | _scaled(self.scale)

    @torch.no_grad()
    def _size(self) -> int:
        """Found by trying it with two rows of zeros."""
        empty: Observation = {name: torch.zeros(2, *space.shape) for name, space in self.observations.images.items()}
        if self.observations.width:
            empty["vector"] = torch.zeros(2, self.observations.width)
        try:
            features = self.module(self.observations.in_shape(empty))
        except Exception as error:  # what a user's module stumbles over is not ours to know
            raise WrongShape(
                f"{type(self.module).__name__} failed on two observations of zeros in the shape of "
                f"{self.observations.space}: {error}"
            ) from error
        if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != 2:
            given = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise WrongShape(
                f"{type(self.module).__name__} made {given} of two observations; it must give features of shape (2, F)"
            )
        return features.shape[1]


def _scaled(scale: Scale | None) -> dict[str, object]:
    return {} if scale is None else {"normalise": True}


def inputs_for(observations: Observations, normalise: bool, encoder: MakeEncoder | None) -> Inputs:
    """What a network for these observations reads them with."""
    if encoder is not None:
        return OwnInputs(encoder, observations, normalise)
    return MixedInputs(observations, normalise)
