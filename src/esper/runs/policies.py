"""Policies by name or by file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from esper.contracts import EsperError, nearest
from esper.controller import Heuristic, Learned, NoGrowth, Policy, RandomLegal, load_network, load_schedule
from esper.environment import FIELDS

CONTROLS: dict[str, Callable[[], Policy]] = {
    "none": NoGrowth,
    "random": RandomLegal,
    "heuristic": partial(Heuristic, FIELDS),
}
"""Policies that are not learned."""


class UnknownPolicy(EsperError):
    """Neither a name nor a file."""


def find_policy(spec: str, greedy: bool = True) -> Policy:
    """A control by name, `schedule:FILE`, or the controller of a run directory or a checkpoint file."""
    if spec in CONTROLS:
        return CONTROLS[spec]()
    if spec.startswith("schedule:"):
        return load_schedule(Path(spec.removeprefix("schedule:")))
    path = Path(spec)
    if path.is_dir():
        path = path / "checkpoints" / "best.pt"
    if path.is_file():
        return Learned(load_network(path, FIELDS), greedy=greedy, name=spec)
    known = [*CONTROLS, "schedule:FILE", "RUN", "CHECKPOINT.pt"]
    raise UnknownPolicy(f"no policy '{spec}'; {nearest(spec, known)}, where RUN is a run with a best checkpoint")
