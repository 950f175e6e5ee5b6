"""Policies by name or by file."""

from collections.abc import Callable
from pathlib import Path

from esper.contracts import EsperError, ObservationFields, nearest
from esper.controller.constant import Constant, ConstantByRent
from esper.controller.controls import NoGrowth, RandomLegal
from esper.controller.gain_networks import load_gain_networks
from esper.controller.heuristic import Heuristic
from esper.controller.learned import Learned, exploration_of, load_network
from esper.controller.policy import Policy
from esper.controller.ranker import Ranker
from esper.controller.schedule import load_schedule
from esper.controller.seed_keeper import SeedKeeper
from esper.controller.shipped import KEEPER, RANKER, REGRESSIONS, SHIPPED, shipped_file

CONTROLS: dict[str, Callable[[ObservationFields], Policy]] = {
    "none": lambda fields: NoGrowth(),
    "random": lambda fields: RandomLegal(),
    "heuristic": Heuristic,
    "constant": ConstantByRent,
}
"""Policies that are not learned."""

SCHEDULE, SAMPLED, CONSTANT = "schedule:", "sampled:", "constant:"
OWN_RANKER, OWN_KEEPER = "ranker:", "keeper:"


class UnknownPolicy(EsperError):
    """Neither a name nor a file."""


def find_policy(spec: str, fields: ObservationFields) -> Policy:
    """A control by name, `constant:SLOT:BLUEPRINT`, `schedule:FILE`, `ranker` or `keeper`, shipped or of a file
    (`ranker:FILE`), or a controller: a shipped one, that of a run directory, a checkpoint file.

    Controllers play greedily; `sampled:CONTROLLER` draws, with the exploration that it was trained with. `fields` are
    the features of the observations that the policy will see.
    """
    if spec in CONTROLS:
        return CONTROLS[spec](fields)
    if spec.startswith(CONSTANT):
        return Constant.from_name(spec, fields)
    file = file_of(spec)
    if file is None:
        known = [
            *CONTROLS,
            RANKER,
            KEEPER,
            *SHIPPED,
            "constant:SLOT:BLUEPRINT",
            "schedule:FILE",
            "ranker:FILE",
            "keeper:FILE",
            "the directory of a run",
            "CHECKPOINT.pt",
            "sampled:CONTROLLER",
        ]
        raise UnknownPolicy(f"no policy '{spec}'; {nearest(spec, known)}")
    if spec.startswith(SCHEDULE):
        return load_schedule(file)
    if spec == RANKER or spec.startswith(OWN_RANKER):
        return Ranker(load_gain_networks(file), fields, spec)
    if spec == KEEPER or spec.startswith(OWN_KEEPER):
        ranker = Ranker(load_gain_networks(shipped_file(RANKER)), fields)
        return SeedKeeper(load_gain_networks(file), ranker, spec)
    network, greedy = load_network(file, fields), not spec.startswith(SAMPLED)
    return Learned(network, greedy, exploration_of(file), name=spec)


def file_of(spec: str) -> Path | None:
    """The file that a policy is read from; None if it is not read from one."""
    if spec.startswith(SCHEDULE):
        return Path(spec.removeprefix(SCHEDULE))
    for prefix in (OWN_RANKER, OWN_KEEPER):
        if spec.startswith(prefix):
            return Path(spec.removeprefix(prefix))
    name = spec.removeprefix(SAMPLED)
    if name in SHIPPED or spec in REGRESSIONS:
        return shipped_file(name)
    path = Path(name)
    if path.is_dir():
        path = path / "checkpoints" / "best.pt"
    return path if path.is_file() else None
