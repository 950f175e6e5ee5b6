"""The SQL of the views on a log. Their columns are the fields of the events, with the types of their annotations.

Every type of event is a view of that name; the views that people ask for most are made from these. Void events, and
lines that SQL cannot cast to the types of their fields, are in none of them.
"""

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from esper.contracts import RULES, EpisodeEvent, Event, RansomwareSuspected, RewardHackingSuspected, Stage
from esper.telemetry.events import (
    EVENTS,
    AnomalyRaised,
    DecisionMade,
    EpisodeFinished,
    EvaluationMade,
    HeadFigures,
    RewardPaid,
    RolledBack,
    RoundFinished,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    RunStarted,
    SinkFailed,
    UpdateMade,
    WorkerReplaced,
)

ENVELOPE = {
    "schema": "BIGINT",
    "time": "DOUBLE",
    "round": "BIGINT",
    "episode": "BIGINT",
    "event": "VARCHAR",
    "data": "JSON",
}
END_WORDS: dict[type[Event], str] = {
    RunStarted: "unknown",
    RunResumed: "unknown",
    RunFinished: "finished",
    RunFailed: "failed",
    RunHalted: "halted",
    RunInterrupted: "interrupted",
}
"""The state of a run by the last of these events. Events cannot tell a run that is alive from one that was killed."""
SEED_STAGES = tuple(stage.name for stage in Stage if RULES[stage].holds_seed or stage is Stage.PRUNED)
"""The stages of a seed's life, with the one that ends it."""
SUSPICIONS: tuple[type[Event], ...] = (RewardHackingSuspected, RansomwareSuspected)
LEAVES = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}


def sql_type(annotation: Any, optional: bool = True) -> str:
    """The type in SQL of what a field holds. Others than these are refused: an event holds no untyped payload.

    >>> sql_type(tuple[float, ...]), sql_type(dict[str, int | None])
    ('DOUBLE[]', 'MAP(VARCHAR, BIGINT)')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in LEAVES:
        return LEAVES[annotation]
    if arguments[1:] == (NoneType,):
        return sql_type(arguments[0], optional)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return f"{sql_type(arguments[0], optional)}[]"
    if origin is dict and arguments[0] is str:
        return f"MAP(VARCHAR, {sql_type(arguments[1], optional)})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "VARCHAR"
    if is_dataclass(annotation):
        columns = [f'"{name}" {kind}' for name, kind in columns_of(annotation, optional).items()]
        return f"STRUCT({', '.join(columns)})"
    raise TypeError(f"{annotation} cannot be part of an event; use numbers, text, enums, tuples, dicts or dataclasses")


def columns_of(record: Any, optional: bool = True) -> dict[str, str]:
    """The fields of a dataclass in their order, with their types in SQL; `optional`: those that are None by default."""
    hints = get_type_hints(record)
    return {
        each.name: sql_type(hints[each.name], optional)
        for each in fields(record)
        if optional or each.default is not None
    }


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _parsed(source: str, columns: dict[str, str]) -> str:
    """A struct, or NULL where the JSON does not fit."""
    return f"TRY(from_json_strict({source}, {_text(json.dumps(columns))}))"


def _parsed_event(kind: type[Event]) -> str:
    """The same of an event; fields that are None by default may be missing, as in older logs."""
    columns, required = columns_of(kind), columns_of(kind, optional=False)
    if columns == required:
        return _parsed("data", columns)
    older = f"CASE WHEN {_parsed('data', required)} IS NOT NULL THEN from_json(data, {_text(json.dumps(columns))}) END"
    return f"coalesce({_parsed('data', columns)}, {older})"


PREPARE = (
    "CREATE SCHEMA log",
    f"CREATE TABLE log.read (line BIGINT, {', '.join(f'{name} {sql}' for name, sql in ENVELOPE.items())})",
)

TAKE_LINES = f"""
    INSERT INTO log.read
    SELECT line, parsed.* FROM (
        SELECT line, {_parsed("text", ENVELOPE)} AS parsed
        FROM (SELECT unnest($1::BIGINT[]) AS line, unnest($2::VARCHAR[]) AS text)
    )
    WHERE parsed IS NOT NULL
"""
"""Takes the numbers of lines, and the lines."""

# `void`: a later line resumes the run at this round or an earlier one.
# `play`: an episode's events come before its EpisodeFinished, whose line tells episodes of one seed in one round apart.
ARRANGE = f"""
    CREATE TABLE log.events AS
    WITH resumed AS (SELECT line, round FROM log.read WHERE event = '{RunResumed.__name__}'),
    finished AS (
        SELECT
            line AS play, round, episode,
            data ->> '$.task' AS task, data ->> '$.policy' AS policy, data ->> '$.purpose' AS purpose
        FROM log.read
        WHERE event = '{EpisodeFinished.__name__}'
    )
    SELECT
        line, make_timestamp((time * 1e6)::BIGINT) AS time, happened.round, happened.episode, event, data,
        event <> '{RunStarted.__name__}' AND EXISTS (
            FROM resumed WHERE resumed.line > happened.line AND resumed.round <= happened.round
        ) AS void,
        play, task, policy, purpose
    FROM log.read AS happened ASOF LEFT JOIN finished
        ON happened.round = finished.round AND happened.episode = finished.episode AND line <= play
    WHERE time >= 0 AND time < $1 AND happened.round IS NOT NULL AND event IS NOT NULL
    ORDER BY line
"""
"""Takes the end of time."""


def _event_view(kind: type[Event]) -> str:
    columns = columns_of(kind)
    place = ["line", "time", "round"]
    if issubclass(kind, (EpisodeEvent, EpisodeFinished)):
        place += ["episode", "play"]
    if issubclass(kind, EpisodeEvent):
        place += [name for name in ("task", "policy", "purpose") if name not in columns]
    own = [f'fields."{name}" AS "{name}"' for name in columns]
    parsed = _parsed_event(kind) if columns else "data"
    return f"""
        SELECT {", ".join(place + own)}
        FROM (SELECT *, {parsed} AS fields FROM log.events WHERE event = '{kind.__name__}' AND NOT void)
        WHERE fields IS NOT NULL
    """


def _plain(kind: type[Event]) -> str:
    return f"SELECT * EXCLUDE (line) FROM {kind.__name__}"


def _runs() -> str:
    words = " ".join(f"WHEN '{kind.__name__}' THEN '{word}'" for kind, word in END_WORDS.items())
    told = ", ".join(f"'{kind.__name__}'" for kind in END_WORDS)
    return f"""
        WITH span AS (
            SELECT
                min(time) AS started,
                max_by(time, line) AS last_event,
                max_by(event, line) FILTER (event IN ({told})) AS news,
                max_by(data ->> '$.reason', line) FILTER (event IN ({told})) AS reason,
                count(*) FILTER (event = '{RunResumed.__name__}') AS resumed
            FROM log.events
            HAVING count(*) > 0
        )
        SELECT
            started, last_event, CASE news {words} ELSE 'unknown' END AS state, reason, resumed,
            introduction.* EXCLUDE (line, time, round)
        FROM span LEFT JOIN (FROM {RunStarted.__name__} LIMIT 1) AS introduction ON true
    """


def _seeds() -> str:
    """A life begins with GERMINATED. What was decided in that epoch about that slot is what the seed is."""
    firsts = ", ".join(f"min(epoch) FILTER (after = '{stage}') AS {stage.lower()}" for stage in SEED_STAGES)
    lowered = ", ".join(stage.lower() for stage in SEED_STAGES)
    life = "round, episode, play, task, policy, purpose, slot"
    same = " AND ".join(
        f"lives.{name} IS NOT DISTINCT FROM told.{name}" for name in ("round", "episode", "play", "slot")
    )
    return f"""
        WITH changes AS (
            SELECT *, count(*) FILTER (after = 'GERMINATED') OVER (PARTITION BY {life} ORDER BY line) AS life
            FROM StageChanged
        ),
        lives AS (
            SELECT
                {life}, life, min(line) AS line,
                lead(min(line)) OVER (PARTITION BY {life} ORDER BY life) AS next_line,
                {firsts},
                max_by(after, line) AS stage,
                list({{'epoch': epoch, 'stage': after}} ORDER BY line) AS changes
            FROM changes
            WHERE life > 0 AND after IN {SEED_STAGES}
            GROUP BY {life}, life
        ),
        births AS (SELECT * FROM {DecisionMade.__name__} WHERE op = 'GERMINATE' AND len(refused) = 0),
        measured AS (
            SELECT round, episode, play, line, unnest(map_keys(contributions)) AS slot,
                unnest(map_values(contributions)) AS contribution
            FROM {RewardPaid.__name__}
        ),
        worths AS (
            SELECT lives.line, max_by(told.contribution, told.line) AS contribution
            FROM lives JOIN measured AS told
                ON {same} AND told.line > lives.line AND (lives.next_line IS NULL OR told.line < lives.next_line)
            GROUP BY lives.line
        )
        SELECT
            lives.round, lives.episode, lives.play, lives.task, lives.policy, lives.purpose, lives.slot,
            told.blueprint, told.style, told.tempo, told.alpha_target,
            {lowered}, stage, worths.contribution, changes
        FROM lives
        LEFT JOIN births AS told ON {same} AND lives.germinated = told.epoch
        LEFT JOIN worths ON worths.line = lives.line
        ORDER BY lives.line
    """


def _alphas() -> str:
    life = "time, round, episode, play, task, policy, purpose, epoch"
    return f"""
        SELECT {life}, entry.key AS slot, entry.value AS alpha
        FROM (SELECT {life}, unnest(map_entries(alphas)) AS entry FROM {RewardPaid.__name__})
    """


def _heads() -> str:
    figures = ", ".join(f"entry.value.{name} AS {name}" for name in columns_of(HeadFigures))
    return f"""
        SELECT time, round, entry.key AS head, {figures}
        FROM (SELECT time, round, unnest(map_entries(heads)) AS entry FROM {UpdateMade.__name__})
    """


def _anomalies() -> str:
    """All that an operator should look at, not only what detectors raise."""
    nowhere, no_figures = "NULL::BIGINT AS episode, NULL::BIGINT AS epoch", "MAP {}::MAP(VARCHAR, DOUBLE)"
    raised = f"SELECT line, time, round, {nowhere}, kind, message, figures FROM {AnomalyRaised.__name__}"
    others = [
        f"SELECT line, time, round, episode, epoch, '{RolledBack.__name__}', reason, {no_figures} FROM RolledBack",
        f"SELECT line, time, round, seed, NULL, '{WorkerReplaced.__name__}', worker || ': ' || reason, {no_figures} "
        f"FROM {WorkerReplaced.__name__}",
        f"SELECT line, time, round, NULL, NULL, '{SinkFailed.__name__}', sink || ': ' || reason, {no_figures} "
        f"FROM {SinkFailed.__name__}",
        *(
            f"SELECT line, time, round, episode, epoch, '{kind.__name__}', 'slot ' || slot, "
            f"MAP {{'contribution': contribution, 'gain': gain}} FROM {kind.__name__}"
            for kind in SUSPICIONS
        ),
    ]
    return f"SELECT * EXCLUDE (line) FROM ({' UNION ALL '.join([raised, *others])}) ORDER BY line"


EVENT_VIEWS: dict[str, str] = {name: _event_view(kind) for name, kind in EVENTS.items()}
"""One for every type of event."""

VIEWS: dict[str, str] = {
    "runs": _runs(),
    "rounds": _plain(RoundFinished),
    "episodes": _plain(EpisodeFinished),
    "decisions": _plain(DecisionMade),
    "rewards": _plain(RewardPaid),
    "alphas": _alphas(),
    "seeds": _seeds(),
    "updates": _plain(UpdateMade),
    "heads": _heads(),
    "evaluations": _plain(EvaluationMade),
    "anomalies": _anomalies(),
    "events": "SELECT line, time, round, episode, play, event, data, void FROM log.events",
}
"""What people ask for most; docs/events.md says what is in each."""
