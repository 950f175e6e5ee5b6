"""The `esper` command. What a user can mend is said in one message on stderr, with exit code 2."""

import sys
from collections.abc import Sequence
from importlib import import_module

import esper
from esper.cli.console import DONE, INTERRUPTED, USER_ERROR
from esper.contracts import EsperError, nearest

COMMANDS = {
    "train": ("esper.cli.train:train", "train a controller"),
    "resume": ("esper.cli.train:resume", "go on with a run that was interrupted, killed or failed"),
    "play": ("esper.cli.play:play", "play one episode and tell what happens, epoch by epoch"),
    "exam": ("esper.cli.exam:exam", "compare policies on held-out seeds, with intervals"),
    "record": ("esper.cli.record:record", "play and keep whole episodes, for learners that do not play"),
    "recording": ("esper.cli.record:recording", "show a recording, or carry it to and from a Minari data set"),
    "survey": ("esper.cli.survey:survey", "train every single seed on many tasks: what there is to win"),
    "fit": ("esper.cli.fit:fit", "make a ranker from a survey: the bar for learned controllers"),
    "runs": ("esper.cli.runs:runs", "list runs with state, progress, best and age"),
    "show": ("esper.cli.runs:show", "show one run (state, settings, last rounds) or what grew in a garden"),
    "compare": ("esper.cli.runs:compare", "show runs side by side: return, quality, growth, cost, settings"),
    "doctor": ("esper.cli.runs:doctor", "say what looks wrong with a run, why, and what to try"),
    "watch": ("esper.cli.dashboard:watch", "show runs and exams on a live page"),
    "report": ("esper.cli.dashboard:report", "write runs and exams to one HTML file"),
    "query": ("esper.cli.runs:query", "ask a run's events by SQL"),
    "tasks": ("esper.cli.tasks:tasks", "list the tasks"),
    "checkpoint": ("esper.cli.checkpoint:checkpoint", "show, upgrade or export a checkpoint"),
}
"""Every command: where it is, and what it does. Nothing is imported until one is asked for."""


class UnknownCommand(EsperError):
    """No command has that name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except _mistakes() as error:
        print(f"esper: {type(error).__name__}: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("esper: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone: nobody is left to tell
        sys.stderr.close()
        return DONE
    except SystemExit as stop:  # how the parser ends after --help or a wrong flag
        return stop.code if isinstance(stop.code, int) else USER_ERROR


def _mistakes() -> tuple[type[Exception], ...]:
    """What a user can mend. `rl` knows nothing of ours, so its errors are their own, once it is loaded."""
    learning = sys.modules.get("esper.rl")
    return (EsperError,) if learning is None else (EsperError, learning.RLError)


def _dispatch(arguments: list[str]) -> int:
    name, *rest = arguments or [""]
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in {"", "-h", "--help", "help"}:
        print(_overview())
        return DONE if name else USER_ERROR
    if name == "--version":
        print(f"esper {esper.__version__}")
        return DONE
    if name not in COMMANDS:
        raise UnknownCommand(f"no command '{name}'; {nearest(name, COMMANDS)}")
    module, _, function = COMMANDS[name][0].partition(":")
    code: int = getattr(import_module(module), function)(rest)
    return code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items())
    return (
        f"usage: esper COMMAND ...\n\nGrow a neural network while it trains.\n\ncommands:\n{lines}\n\n"
        "'esper help COMMAND' explains a command, 'esper --version' tells the version."
    )
