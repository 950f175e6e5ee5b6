"""Writes docs/events.md from the events themselves: `python -m esper.telemetry.describe > docs/events.md`."""

import ast
import inspect
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from esper.contracts import EpisodeEvent
from esper.contracts import events as contract_events
from esper.telemetry.codec import codecs_of
from esper.telemetry.events import EVENTS, PARTS
from esper.telemetry.log import MAX_LINE_BYTES, SCHEMA
from esper.telemetry.query import open_run
from esper.telemetry.views import VIEWS

IN_CONTRACTS = {
    "epoch": "Epochs that had passed since the start of the episode.",
    "slot": "The slot, by the name of the host's submodule.",
    "before": "The stage it left.",
    "after": "The stage it reached.",
    "reasons": "The facts that decided.",
    "alpha": "The strength at which the ramp starts.",
    "target": "The strength at which the ramp ends.",
    "ticks": "The epochs that the ramp takes.",
    "op": "The op that was asked for.",
    "contribution": "Accuracy that the network would lose without this seed, as a fraction.",
    "gain": "Accuracy that all seeds together are known to bring, as a fraction.",
}
"""Fields of the contracts' events, which are told there by the sentence of their class."""

EXAMPLES = (
    (
        "Does it learn? Return, gain over the twin, and what evaluation says of it.",
        """
        SELECT rounds.round, rounds.total, rounds.gain, evaluations.total AS greedy, low, high
        FROM rounds LEFT JOIN evaluations USING (round)
        ORDER BY round
        """,
    ),
    (
        "Which blueprints are worth their place? Training episodes only.",
        """
        SELECT blueprint, count(*) AS seeds, count(fossilized) AS kept, avg(contribution) AS contribution
        FROM seeds WHERE purpose = 'train'
        GROUP BY blueprint ORDER BY kept DESC
        """,
    ),
    (
        "What does the policy choose when it has a choice, and is a head losing its entropy?",
        """
        SELECT round, ops['WAIT'] AS waiting, ops['GERMINATE'] AS germinating, heads['op'].entropy AS op_entropy
        FROM rounds JOIN updates USING (round)
        ORDER BY round
        """,
    ),
)
"""A question, and the SQL that answers it."""

INTRODUCTION = f"""\
# Events

This file is made by `python -m esper.telemetry.describe > docs/events.md`; a test compares them.

A run appends what happens to `events.jsonl` in its directory, one JSON object per line:

| key | meaning |
|---|---|
| `schema` | version of these lines, now {SCHEMA}; a reader refuses newer ones |
| `time` | when the line was written, in Unix seconds; the events of an episode are written together, at its end |
| `round` | rounds that were complete when it happened: the first round is 0 |
| `episode` | the seed of the episode; null for what belongs to no episode |
| `event` | the type, one of those below |
| `data` | the fields of the type, all of them and no others |

Accuracies, shares and probabilities are fractions. Null is "not measured", never zero. A number that is not finite is
one of the strings `"NaN"`, `"Infinity"`, `"-Infinity"`. Members of enumerations go by name.

A line without an end is still being written, or was cut off by a crash; whoever writes next ends it. Readers leave out
and count what is damaged, longer than {MAX_LINE_BYTES:,} bytes, or of an unknown type. After a `RunResumed` in round r,
all earlier lines of round r and later are **void**, since these rounds are played again; a `RunStarted` never is.

`esper.telemetry` reads and writes these files: `EventLog`, `read_log`, `effective`. SQL is answered by
`esper.telemetry.query`, and `esper query RUN "SELECT ..."` shows its answer.
"""

VIEWS_INTRODUCTION = """\
# Views

`esper query` reads the file into a database in memory, with these views. Times are UTC. Void events are left out,
except in `events`. `play` is a number that every episode has of its own: the line of its `EpisodeFinished`. The SQL can
read nothing but this run, and change nothing.

Besides, every type of event is a view of that name with `line`, `time`, `round` and its fields; those of an episode
also have its `episode`, `play`, `task`, `policy` and `purpose`. Maps are read as in `ops['WAIT']`, structs as in
`heads['op'].entropy`.
"""


@cache
def _field_sentences(source: Path) -> dict[tuple[str, str], str]:
    """The text below each field of the classes in a file."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                    and isinstance(text.value.value, str)
                ):
                    found[node.name, field.target.id] = text.value.value
    return found


def sentence_of(record: type[Any], field: str) -> str:
    """What a field means; empty if nothing says it."""
    owner = next(kind for kind in record.__mro__ if field in inspect.get_annotations(kind))
    said = _field_sentences(Path(inspect.getfile(owner))).get((owner.__name__, field), "")
    return said or (IN_CONTRACTS.get(field, "") if owner.__module__ == contract_events.__name__ else "")


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    shown = [header, ["---"] * len(list(header)), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in shown)


def _record_section(name: str, record: type[Any]) -> str:
    rows = [(f"`{field}`", f"`{codec.sql}`", sentence_of(record, field)) for field, codec in codecs_of(record).items()]
    fields = f"\n{table(('field', 'type', 'meaning'), rows)}\n" if rows else ""
    return f"## {name}\n\n{inspect.getdoc(record)}\n{fields}"


def _holders(part: type[Any]) -> str:
    """The events that have figures of this kind."""
    return ", ".join(
        name for name, kind in EVENTS.items() if any(part in get_args(hint) for hint in get_type_hints(kind).values())
    )


def _view_section(name: str, sentence: str, columns: list[tuple[str, str]]) -> str:
    return f"## {name}\n\n{sentence}\n\n{', '.join(f'`{column}` {kind}' for column, kind in columns)}\n"


def document() -> str:
    """The whole text."""
    of_episodes = {name: kind for name, kind in EVENTS.items() if issubclass(kind, EpisodeEvent)}
    of_runs = {name: kind for name, kind in EVENTS.items() if name not in of_episodes}
    with open_run(Path("/nonexistent")) as connection:
        columns = {
            name: [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {name}").fetchall()] for name in VIEWS
        }
    examples = [f"{question}\n\n```sql\n{inspect.cleandoc(sql)}\n```\n" for question, sql in EXAMPLES]
    return (
        "\n".join(
            [
                INTRODUCTION,
                "# Events of a run\n",
                *(_record_section(name, kind) for name, kind in of_runs.items()),
                *(_record_section(f"{part.__name__} (in {_holders(part)})", part) for part in PARTS),
                "# Events of an episode\n",
                *(_record_section(name, kind) for name, kind in of_episodes.items()),
                VIEWS_INTRODUCTION,
                *(_view_section(name, sentence, columns[name]) for name, (sentence, _) in VIEWS.items()),
                "# Examples\n",
                *examples,
            ]
        ).rstrip("\n")
        + "\n"
    )


if __name__ == "__main__":
    print(document(), end="")
