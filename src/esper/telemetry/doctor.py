"""What is wrong with a run, in plain words, from its directory alone: live, finished or crashed.

Anomalies are found by feeding the log to a new detector, so that runs of older versions are examined as well.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from esper.telemetry.anomalies import Detector, tame
from esper.telemetry.detail import Level
from esper.telemetry.events import (
    AnomalyRaised,
    EpisodeFinished,
    RoundFinished,
    RunFailed,
    RunHalted,
    RunResumed,
    SinkFailed,
    StepMoved,
    UpdateExamined,
    WorkerReplaced,
)
from esper.telemetry.log import LogReport, Record, effective, read_log
from esper.telemetry.run_files import RunFiles, WatchedSettings
from esper.telemetry.status import RunState

FEWEST_ROUNDS = 5
"""At each end of a run, to say whether it learned."""
LATELY = 20
"""Rounds in which an anomaly that comes back, though it is over, still looks wrong."""
NOT_FINITE = re.compile(r"\b(nan|inf|non-?finite|not finite)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong."""

    what: str
    """In a word or two."""
    sentence: str
    """What was seen with its figures, why it matters, what to try."""


@dataclass(frozen=True)
class Diagnosis:
    """What a doctor says of a run."""

    summary: str
    """State and progress."""
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...]
    """Worth knowing, and no illness."""

    @property
    def healthy(self) -> bool:
        return not self.findings

    def lines(self) -> list[str]:
        """All of it, for a terminal."""
        count = len(self.findings)
        wrong = "1 thing looks wrong" if count == 1 else f"{count} things look wrong"
        return [
            self.summary,
            "nothing looks wrong" if self.healthy else wrong,
            *(f"- {finding.what}: {finding.sentence}" for finding in self.findings),
            *(f"(also: {remark})" for remark in self.remarks),
        ]


@dataclass(frozen=True)
class Patient:
    """A run and what its log says."""

    directory: RunFiles
    state: RunState
    records: Sequence[Record]
    """Those that count, without what is tame."""
    resumed: int
    """How often it was gone on with."""
    report: LogReport
    settings: WatchedSettings

    @property
    def writes_events(self) -> bool:
        return self.settings.telemetry.level is not Level.OFF


def diagnose(directory: RunFiles) -> Diagnosis:
    """Examine a run."""
    state, report = directory.state(), LogReport()
    heard = [each for each in read_log(directory.events_file, report) if not tame(each.event)]
    resumed = sum(isinstance(each.event, RunResumed) for each in heard)
    patient = Patient(directory, state, effective(heard), resumed, report, directory.watched())
    anomalies, over = _anomalies(patient)
    status = directory.status()
    progress = "" if status is None else f", {status.round} of {status.rounds} rounds"
    findings = [finding for examine in EXAMINATIONS for finding in examine(patient)]
    remarks = (*_remarks(patient), *_moved(patient), *over)
    return Diagnosis(f"{directory.path}: {state.value}{progress}", (*findings, *anomalies), remarks)


def _state(patient: Patient) -> list[Finding]:
    resume = f"'esper resume {patient.directory.path}'"
    status = patient.directory.status()
    reason = _last_reason(patient) or (status.reason if status else None) or "no reason was written"
    match patient.state:
        case RunState.KILLED:
            said = "the process that trained it is gone without a word; it was killed, or the machine went down"
            return [Finding("killed", f"{said}: nothing of the complete rounds is lost; go on with {resume}")]
        case RunState.FAILED if NOT_FINITE.search(reason):
            said = f"{reason}: a weight or a value of the controller is not a finite number"
            again = f"{resume} from the last checkpoint; if it fails again, lower ppo.learning_rate in a new run"
            return [Finding("failed", f"{said}; try {again}")]
        case RunState.FAILED:
            return [Finding("failed", f"{reason}: an error ended it; mend the cause, then {resume}")]
        case RunState.HALTED:
            return [Finding("halted", f"{reason}: a health check ended it, and the last good checkpoint is kept")]
        case RunState.UNKNOWN:
            said = "status.json is missing or cannot be read, and no process trains it: it ended before its first round"
            return [Finding("unknown state", f"{said}, or the file was removed; try {resume}, or start a new run")]
    return []


def _last_reason(patient: Patient) -> str | None:
    """Why the run ended, in its own last words."""
    ends = [each.event.reason for each in patient.records if isinstance(each.event, RunFailed | RunHalted)]
    return ends[-1] if ends else None


def _damaged(patient: Patient) -> list[Finding]:
    """A crash may cut the line that is being written; what goes beyond that has another cause."""
    report = patient.report
    if report.damaged <= patient.resumed:
        return []
    said = f"{report.damaged} of {report.lines} lines of events.jsonl cannot be read and are left out"
    why = f"a crash cuts one line at most, and the run was resumed {patient.resumed} times"
    return [Finding("damaged log", f"{said}: {why}; check the disk, and take the rest with caution")]


def _no_events(patient: Patient) -> list[Finding]:
    ended = patient.state in {RunState.FINISHED, RunState.HALTED, RunState.INTERRUPTED}
    if patient.records or not ended or not patient.writes_events:
        return []
    return [Finding("no events", "events.jsonl is missing or empty: nothing can be said of how it learned; restore it")]


def _learning(patient: Patient) -> list[Finding]:
    """Compares the two ends of the run; a rise within one standard error is not seen as one."""
    totals = [each.event.total for each in patient.records if isinstance(each.event, RoundFinished)]
    size = max(FEWEST_ROUNDS, len(totals) // 5)
    if len(totals) < 2 * size or not all(map(math.isfinite, totals)):
        return []
    first, last = totals[:size], totals[-size:]
    rise = fmean(last) - fmean(first)
    noise = math.sqrt((stdev(first) ** 2 + stdev(last) ** 2) / size)
    if rise > noise:
        return []
    said = (
        f"the mean return of the last {size} rounds is {fmean(last):+.3f}, that of the first {size} was "
        f"{fmean(first):+.3f}, and {noise:.3f} of the difference may be chance"
    )
    advice = "give it more rounds or more episodes per round, another ppo.learning_rate, or a lower rent"
    return [Finding("no learning visible", f"{said}: the controller is no better than when it began; {advice}")]


def _comparison(patient: Patient) -> list[Finding]:
    """Means over the seeds that the controller and a control both played."""
    played: dict[str, dict[tuple[str, int | None], float]] = {}
    for record in patient.records:
        event = record.event
        if isinstance(event, EpisodeFinished) and event.purpose == "compare":
            played.setdefault(event.policy, {})[event.task, record.episode] = event.total
    ours = played.pop("greedy", {})
    better = []
    for control, theirs in played.items():
        both = ours.keys() & theirs.keys()
        mine, other = (fmean(each[key] for key in both) if both else 0.0 for each in (ours, theirs))
        if mine < other:
            better.append(f"{control} gets {other:+.3f} where the controller gets {mine:+.3f} ({len(both)} episode(s))")
    if not better:
        return []
    advice = "train longer or with more episodes per round, and compare on more seeds with 'esper exam'"
    return [Finding("worse than a control", f"on the same held-out seeds {', '.join(better)}; {advice}")]


def _sinks(patient: Patient) -> list[Finding]:
    failed = [each.event for each in patient.records if isinstance(each.event, SinkFailed)]
    why = "it got no more metrics, and the run went on; mend the cause and 'esper resume', or leave the sink out"
    return [Finding(f"sink {each.sink}", f"{each.reason}: {why}") for each in failed]


def _numbers(patient: Patient) -> list[Finding]:
    """What the last look at an update found; there is one only where telemetry was detailed."""
    looks = [each for each in patient.records if isinstance(each.event, UpdateExamined)]
    if not looks:
        return []
    at, last = looks[-1].round + 1, looks[-1].event
    assert isinstance(last, UpdateExamined)
    lost = {
        f"{what} of {name}": figures.not_finite
        for what, table in (("gradients", last.gradients), ("weights", last.weights), ("entries", last.observations))
        for name, figures in table.items()
        if figures.not_finite
    }
    if not lost:
        return []
    told = ", ".join(f"{count} {place}" for place, count in lost.items())
    advice = "begin with the first of them, and resume from a checkpoint before that round with a lower learning rate"
    return [Finding(f"numbers in round {at}", f"not finite are {told}; {advice}")]


EXAMINATIONS: tuple[Callable[[Patient], list[Finding]], ...] = (
    _state, _damaged, _no_events, _sinks, _numbers, _learning, _comparison,
)  # fmt: skip


def _anomalies(patient: Patient) -> tuple[list[Finding], list[str]]:
    """The anomalies that still stand or come again and again, and a word about those that are over."""
    detector = Detector(patient.settings.anomalies, patient.settings.expected)
    raised = [(each.round + 1, anomaly) for each in patient.records for anomaly in detector.see(each.event)]
    standing = [(at, each) for at, each in raised if any(each is other for other in detector.standing.values())]
    findings = [Finding(f"{each.kind} since round {at}", each.message) for at, each in standing]
    now = max((each.round + 1 for each in patient.records), default=0)
    over: dict[str, list[tuple[int, AnomalyRaised]]] = {}
    for at, each in raised:
        if each.kind not in {other.kind for _, other in standing}:
            over.setdefault(each.kind, []).append((at, each))
    remarks = []
    for kind, times in over.items():
        lately = [(at, each) for at, each in times if at > now - LATELY]
        rounds = f"round {times[-1][0]}" if len(times) == 1 else f"{len(times)} rounds, last in {times[-1][0]}"
        if len(lately) > 1:
            findings.append(Finding(f"{kind} in {rounds}", lately[-1][1].message))
        else:
            remarks.append(f"over by now: {kind} in {rounds}")
    return findings, remarks


def _moved(patient: Patient) -> list[str]:
    """Of the last update that moved the policy too far, the choice that it moved most."""
    steps = [(each.round + 1, each.event) for each in patient.records if isinstance(each.event, StepMoved)]
    if not steps:
        return []
    at, _ = steps[-1]
    first = next(event for round_number, event in steps if round_number == at)
    return [
        f"the update of round {at} moved choice {first.choice} of the head '{first.head}' in epoch {first.epoch} of "
        f"episode {first.seed} most: it is {first.ratio:.3g} times as likely; others are in the view StepMoved"
    ]


def _remarks(patient: Patient) -> list[str]:
    lost = sum(isinstance(each.event, WorkerReplaced) for each in patient.records)
    told = {
        f"{lost} worker(s) died or hung and were replaced": lost,
        f"it was interrupted; go on with 'esper resume {patient.directory.path}'": patient.state
        is RunState.INTERRUPTED,
        "it writes no events, so that little can be said": not patient.writes_events,
    }
    return [*(text for text, holds in told.items() if holds), *patient.report.warnings()]
