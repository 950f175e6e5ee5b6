"""`esper fit`."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from esper.cli.console import DONE, out
from esper.controller import GainNetworks, networks_to_bytes
from esper.rl import ImitationConfig, ImitationPass, IQLConfig, IQLStep, Likeness
from esper.runs import Unwritable, write_whole
from esper.runs.backends import one_thread
from esper.runs.keeping import KEEPING, fit_keeping
from esper.runs.offline import Fitted, Offline, OfflineConfig, require_writable
from esper.runs.recordings import Recording
from esper.runs.survey import FitConfig, InvalidFit, fit_gain_networks, read_survey


@dataclass(frozen=True)
class RankerArguments:
    """Make a ranker, which plants what it predicts to gain most, from what was surveyed."""

    surveys: tyro.conf.Positional[tuple[Path, ...]]
    """What 'esper survey' wrote, one file or several."""
    settings: Annotated[FitConfig, tyro.conf.arg(name="")]
    out: Path = Path("ranker.safetensors")
    """Where to; play it as ranker:FILE."""


@dataclass(frozen=True)
class KeeperArguments:
    """Make a keeper, which keeps a seed if it predicts that to pay, from episodes of 'none' and of constants."""

    recordings: tyro.conf.Positional[tuple[Path, ...]]
    """What 'esper record' made, one or several."""
    settings: Annotated[FitConfig, tyro.conf.arg(name="")] = KEEPING
    out: Path = Path("keeper.safetensors")
    """Where to; play it as keeper:FILE."""


@dataclass(frozen=True)
class ImitationSettings(ImitationConfig):
    """Settings of imitation."""

    seed: Annotated[int, tyro.conf.Suppress] = 0


@dataclass(frozen=True)
class IQLSettings(IQLConfig):
    """Settings of implicit Q-learning; the discount is that of the recording."""

    seed: Annotated[int, tyro.conf.Suppress] = 0
    discount: Annotated[float, tyro.conf.Suppress] = 1.0


@dataclass(frozen=True)
class ImitationArguments:
    """Make a controller that decides as recorded policies did."""

    recordings: tyro.conf.Positional[tuple[Path, ...]]
    """What 'esper record' made, or a run or an exam that kept its episodes; one or several."""
    settings: Annotated[ImitationSettings, tyro.conf.arg(name="")] = field(default_factory=ImitationSettings)
    data: Annotated[OfflineConfig, tyro.conf.arg(name="")] = field(default_factory=OfflineConfig)
    out: Path = Path("imitation.pt")
    """The checkpoint to write: play it, examine it, or go on from it with 'esper train --init'."""


@dataclass(frozen=True)
class IQLArguments:
    """Make a controller by implicit Q-learning: the best of what recorded policies did."""

    recordings: tyro.conf.Positional[tuple[Path, ...]]
    """What 'esper record' made, or a run or an exam that kept its episodes; one or several."""
    settings: Annotated[IQLSettings, tyro.conf.arg(name="")] = field(default_factory=IQLSettings)
    data: Annotated[OfflineConfig, tyro.conf.arg(name="")] = field(default_factory=OfflineConfig)
    out: Path = Path("iql.pt")
    """The checkpoint to write: play it, examine it, or go on from it with 'esper train --init'."""


def fit(argv: list[str]) -> int:
    """Fit a policy without playing."""
    kinds = {"ranker": fit_ranker, "keeper": fit_keeper, "imitation": fit_imitation, "iql": fit_iql}
    if argv and argv[0] in kinds:
        return kinds[argv[0]](argv[1:])
    lines = "\n".join(f"  {name:<10} {kind.__doc__}" for name, kind in kinds.items())
    usage = (
        f"usage: esper fit {{{','.join(kinds)}}} FILE... [--out FILE]\n\n{lines}\n\n'esper fit KIND --help' has more."
    )
    if argv and argv[0] in {"--help", "-h"}:
        print(usage)
        return DONE
    raise InvalidFit(f"{f'nothing is fitted by {argv[0]!r}' if argv else 'say what to fit'}; {usage}")


def fit_ranker(argv: list[str]) -> int:
    """A regression on surveys: plants what it predicts to gain most."""
    given = tyro.cli(RankerArguments, args=argv, prog="esper fit ranker")
    given.settings.check()
    if not given.surveys:
        raise InvalidFit("no survey was given; name at least one file that 'esper survey' wrote")
    tables = [read_survey(path) for path in given.surveys]
    for path, table in zip(given.surveys, tables, strict=True):
        if table.fields != tables[0].fields:
            raise InvalidFit(f"{path} has other observations than {given.surveys[0]}; survey both with one esper")
    tasks = [task for table in tables for task in table.tasks]
    with one_thread():
        networks = fit_gain_networks(tasks, tables[0].fields, given.settings)
    return _networks_written(networks, given.out, f"{len(tasks)} tasks")


def fit_keeper(argv: list[str]) -> int:
    """A regression on recordings: keeps a seed if it predicts that to pay."""
    given = tyro.cli(KeeperArguments, args=argv, prog="esper fit keeper")
    given.settings.check()
    recording = Recording.open(*given.recordings)
    with one_thread():
        networks = fit_keeping(recording, given.settings)
    return _networks_written(networks, given.out, f"{recording.episodes} episodes")


def _networks_written(networks: GainNetworks, target: Path, what: str) -> int:
    content = networks_to_bytes(networks)
    try:
        write_whole(target, content)
    except OSError as error:
        raise Unwritable.because(target, error, "; give another --out") from error
    out.print(f"{target}: of {what}, SHA-256 {hashlib.sha256(content).hexdigest()}")
    return DONE


def fit_imitation(argv: list[str]) -> int:
    """A controller that decides as recorded policies did."""
    given = tyro.cli(ImitationArguments, args=argv, prog="esper fit imitation")
    learner, passes = _opened(given.recordings, given.data, given.out), given.settings.passes

    def watch(now: ImitationPass) -> None:
        best = "  best so far" if now.best else ""
        out.print(
            f"pass {now.number}/{passes}  surprise {now.surprise:.4f} nats  held out {_alike(now.held_out)}{best}"
        )

    with one_thread():
        return _written(learner.imitate(given.settings, watch), given.out)


def fit_iql(argv: list[str]) -> int:
    """A controller that makes the best of what recorded policies did, by implicit Q-learning."""
    given = tyro.cli(IQLArguments, args=argv, prog="esper fit iql")
    learner, steps = _opened(given.recordings, given.data, given.out), given.settings.steps

    def watch(now: IQLStep) -> None:
        out.print(
            f"step {now.number}/{steps}  policy {now.policy_loss:.4f}  value {now.value_loss:.4f}  q {now.q_loss:.4f}  "
            f"advantage {now.advantage:.4f}  cut off {now.cut_off:.1%}"
        )

    with one_thread():
        return _written(learner.implicit_q(given.settings, watch), given.out)


def _opened(recordings: tuple[Path, ...], data: OfflineConfig, target: Path) -> Offline:
    """Everything that could go wrong does so here."""
    require_writable(target)
    found = Offline(recordings, data)
    out.print(
        f"{found.training.episodes:,} episodes of {', '.join(found.training.policies)} to learn from, "
        f"{found.held_out.episodes:,} held out"
    )
    return found


def _written(found: Fitted, target: Path) -> int:
    found.save(target)
    heads = ", ".join(f"{name} {share:.1%}" for name, share in found.likeness.heads.items() if share is not None)
    out.print(f"held out: {_alike(found.likeness)}; {heads}")
    guess = found.estimate
    out.print(
        f"importance-weighted estimate of the return, which is no result: {guess.weighted:+.3f}, by what would be "
        f"{guess.effective:.1f} of {guess.episodes} episodes (recorded: {guess.recorded:+.3f})"
    )
    out.print(f"{target}\nnext: esper exam --policy none {target}\n      esper train --init {target}")
    return DONE


def _alike(found: Likeness) -> str:
    repeated = "" if found.repeated is None else f", {found.repeated:.2%} of {found.decisions:,} decisions repeated"
    return f"{found.surprise:.4f} nats{repeated}"
