"""What an agent stores beside its learner: how it was made, and where it is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from esper.rl.checkpoint import BadCheckpoint, Checkpoint, generator_in, require_same_schema
from esper.rl.config import PPOConfig
from esper.rl.environments import Absent
from esper.rl.errors import RLError
from esper.rl.network import MakeEncoder, Network, VectorConfig

UNNAMED: dict[str, Any] = {"memory_kind": "lstm", "normalise": False}
"""What the network has where a file does not name it."""
SIZES = tuple(each.name for each in fields(VectorConfig) if each.name != "encoder")


def plain_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as dictionaries, lists, tensors and numbers, for a file."""
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "parts": {name: plain_space(part) for name, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [plain_space(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    if isinstance(space, spaces.Box):
        low, high = (torch.from_numpy(bound.astype(np.float64)) for bound in (space.low, space.high))
        return {"kind": "Box", "low": low, "high": high, "dtype": str(space.dtype)}
    raise RLError(f"{space} cannot be written to a file")


def space_in(plain: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that `plain_space` was given."""
    kind = plain["kind"]
    if kind == "Dict":
        return spaces.Dict({name: space_in(part) for name, part in plain["parts"].items()})
    if kind == "Tuple":
        return spaces.Tuple([space_in(part) for part in plain["parts"]])
    if kind == "Discrete":
        return spaces.Discrete(plain["n"], start=plain["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(plain["nvec"], start=plain["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(plain["n"])
    dtype = np.dtype(plain["dtype"]).type
    low, high = (plain[name].numpy().astype(dtype) for name in ("low", "high"))
    return spaces.Box(low, high, dtype=dtype)


def weights_taken(schema: Mapping[str, Any], path: object) -> str:
    """The line of code that makes an agent with a network of this schema and gives it the weights of the file."""
    sizes = UNNAMED | {name: schema[name] for name in SIZES if name in schema}
    if isinstance(schema.get("inputs"), str):
        sizes["encoder"] = "MyEncoder"
    shown = ", ".join(f"{name}={value if name == 'encoder' else repr(value)}" for name, value in sizes.items())
    arguments = ["env", f"network=VectorConfig({shown})"]
    names, uses = list(schema["heads"]), schema.get("uses", [])
    if names != [f"head{place}" for place in range(len(names))] or not all(map(all, uses)):
        used = [[choice for choice, row in enumerate(uses) if row[place]] for place in range(len(names))]
        arguments.append(f"heads={dict(zip(names, used, strict=True))}")
    return f"PPO({', '.join(arguments)}).warm_start({str(path)!r})"


def require_same_network(checkpoint: Checkpoint, network: Network, path: object) -> None:
    """Refuse weights of another network, and say which agent can take them."""
    try:
        require_same_schema(checkpoint.schema, network.schema())
    except BadCheckpoint as error:
        schema = checkpoint.schema
        if schema.get("memory_kind") == "linear" and schema.get("memory") and "changes" not in schema:
            raise BadCheckpoint(
                f"{path} has a linear memory that does not read changes; nothing reads it any more, so train anew"
            ) from None
        raise BadCheckpoint(f"{path}: {error}; {weights_taken(checkpoint.schema, path)} takes its weights") from None


@dataclass(frozen=True)
class Saved:
    """All that an agent stores."""

    settings: dict[str, Any]
    """The arguments that it was made with, and its spaces."""
    sizes: dict[str, Any]
    """Of its network; a module of the user's own only by that there was one."""
    generator: Tensor
    state: list[Any]
    starts: Tensor
    course: list[int]
    rows: dict[str, Any]

    @classmethod
    def in_checkpoint(cls, checkpoint: Checkpoint, path: object) -> "Saved":
        """What an agent stored in a checkpoint."""
        extra = checkpoint.extra
        if "settings" not in extra or "starts" not in extra:
            raise BadCheckpoint(f"{path} is a checkpoint, but not of an agent; give one that PPO.save wrote")
        if "rows" not in extra:
            raise BadCheckpoint(
                f"{path} was written by an agent that did not store its spaces; take its weights alone, with "
                f"{weights_taken(checkpoint.schema, path)}"
            )
        missing = [each.name for each in fields(cls) if each.name not in extra]
        if missing:
            raise BadCheckpoint(f"{path} lacks {', '.join(missing)}; it is damaged")
        return cls(**{each.name: extra[each.name] for each in fields(cls)})

    def plain(self) -> dict[str, Any]:
        """For a file."""
        return vars(self)

    @staticmethod
    def plain_sizes(config: VectorConfig) -> dict[str, Any]:
        """The settings of a network as numbers and strings."""
        return {name: getattr(config, name) for name in SIZES} | {"own": config.encoder is not None}

    def arguments(self) -> dict[str, Any]:
        """What the agent was made with, by the names of the constructor."""
        return {name: self.settings[name] for name in ("seed", "environments", "steps", "heads", "dependent_masks")}

    def source(self, env: Any, path: object) -> Any:
        """The environment to go on in: what is given, else what its name makes, else only its spaces."""
        if env is not None:
            return env
        name = self.settings["env"]
        if name is not None and name.split(":")[-1] in gymnasium.registry:
            return name
        try:
            return Absent(*(space_in(self.settings[name]) for name in ("observation_space", "action_space")))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadCheckpoint(f"{path} has spaces that cannot be read; it is damaged") from None

    def network(self, encoder: MakeEncoder | None, path: object) -> VectorConfig:
        """The sizes of the network, with the module of the user's own if there was one."""
        if self.sizes.get("own") and encoder is None:
            raise BadCheckpoint(
                f"{path} was saved with a network of its own; give it, as in PPO.load(path, network=MyEncoder)"
            )
        if encoder is not None and not self.sizes.get("own"):
            raise BadCheckpoint(f"{path} was saved without a network of its own; leave network= out")
        try:
            sizes = UNNAMED | {name: self.sizes[name] for name in SIZES if name in self.sizes}
            return VectorConfig(**sizes, encoder=encoder)
        except (TypeError, ValueError) as error:
            raise BadCheckpoint(f"{path} has sizes of a network that cannot be ({error}); it is damaged") from None

    def config(self, checkpoint: Checkpoint, path: object) -> PPOConfig:
        """How the learner learned."""
        try:
            return PPOConfig(**checkpoint.config)
        except TypeError:
            own = set(asdict(PPOConfig()))
            raise BadCheckpoint(
                f"{path} has settings {sorted(set(checkpoint.config) - own)} that this program does not know, "
                f"and lacks {sorted(own - set(checkpoint.config))}; take its weights alone, with "
                f"{weights_taken(checkpoint.schema, path)}"
            ) from None

    def memory(self, device: torch.device) -> list[Tensor]:
        """The parts of what the agent remembers."""
        return [part.to(device) for part in self.state]

    def random_numbers(self, device: torch.device) -> torch.Generator:
        """Those by which the agent acts."""
        return generator_in(self.generator, device)

    def require_same_spaces(self, source: Any, path: object) -> None:
        """Refuse an environment that shows or takes something else."""
        for name in ("observation_space", "action_space"):
            own, saved = getattr(source, name), space_in(self.settings[name])
            if own != saved:
                raise BadCheckpoint(f"{path} was saved with {name} {saved}; the environment has {own}")
