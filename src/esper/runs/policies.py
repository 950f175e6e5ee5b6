"""Policies by name or by file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from esper.contracts import EsperError, nearest
from esper.controller import (
    RANKER,
    SHIPPED,
    Constant,
    ConstantByRent,
    Heuristic,
    Learned,
    NoGrowth,
    Policy,
    RandomLegal,
    Ranker,
    exploration_of,
    load_gain_networks,
    load_network,
    load_schedule,
    shipped_file,
)
from esper.environment import FIELDS

CONTROLS: dict[str, Callable[[], Policy]] = {
    "none": NoGrowth,
    "random": RandomLegal,
    "heuristic": partial(Heuristic, FIELDS),
    "constant": partial(ConstantByRent, FIELDS),
}
"""Policies that are not learned."""

SCHEDULE, SAMPLED, CONSTANT, OWN_RANKER = "schedule:", "sampled:", "constant:", "ranker:"


class UnknownPolicy(EsperError):
    """Neither a name nor a file."""


def find_policy(spec: str) -> Policy:
    """A control by name, `constant:SLOT:BLUEPRINT`, `schedule:FILE`, `ranker`, `ranker:FILE`, or a controller: a
    shipped one, that of a run directory, a checkpoint file.

    Controllers play greedily; `sampled:CONTROLLER` draws, with the exploration that it was trained with.
    """
    if spec in CONTROLS:
        return CONTROLS[spec]()
    if spec.startswith(CONSTANT):
        return Constant.from_name(spec, FIELDS)
    file = file_of(spec)
    if file is None:
        known = [
            *CONTROLS,
            RANKER,
            *SHIPPED,
            "constant:SLOT:BLUEPRINT",
            "schedule:FILE",
            "ranker:FILE",
            "the directory of a run",
            "CHECKPOINT.pt",
            "sampled:CONTROLLER",
        ]
        raise UnknownPolicy(f"no policy '{spec}'; {nearest(spec, known)}")
    if spec.startswith(SCHEDULE):
        return load_schedule(file)
    if spec == RANKER or spec.startswith(OWN_RANKER):
        return Ranker(load_gain_networks(file), FIELDS, spec)
    network, greedy = load_network(file, FIELDS), not spec.startswith(SAMPLED)
    return Learned(network, greedy, exploration_of(file), name=spec)


def file_of(spec: str) -> Path | None:
    """The file that a policy is read from; None if it is not read from one."""
    if spec.startswith(SCHEDULE):
        return Path(spec.removeprefix(SCHEDULE))
    if spec.startswith(OWN_RANKER):
        return Path(spec.removeprefix(OWN_RANKER))
    name = spec.removeprefix(SAMPLED)
    if name in SHIPPED or spec == RANKER:
        return shipped_file(name)
    path = Path(name)
    if path.is_dir():
        path = path / "checkpoints" / "best.pt"
    return path if path.is_file() else None
