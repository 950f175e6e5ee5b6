"""Writes docs/diagnostics.md from the kinds of anomalies: `python -m esper.telemetry.describe_anomalies`."""

from esper.telemetry.anomaly_kinds import KINDS, RANGES, AnomalyConfig, AnomalyKind
from esper.telemetry.describe import sentence_of, table
from esper.telemetry.detail import LEVELS, TelemetryConfig

INTRODUCTION = """\
# Diagnostics

This file is made by `python -m esper.telemetry.describe_anomalies > docs/diagnostics.md`; a test compares them.

While a run trains, a detector reads the events that it writes and raises an anomaly when something looks wrong: an
`AnomalyRaised` in `events.jsonl` right after the event that caused it, a line on the screen, a row of the view
`anomalies`. Nothing that is learned depends on it, and thresholds can be changed without changing a weight:

```toml
[anomalies]
kl_high = 0.3
```

An anomaly is raised once and stands until its figure has come back: below `relief` times its threshold where it was
too high, above the threshold over `relief` where it was too low. Only training episodes of the learned policy and its
updates count, so controls raise nothing. Steps that the masks forced count for nothing: a head without a choice has
no entropy, and a round without a choice is neither waiting nor barren. Explained variance is never an alarm, because
it means little where returns hardly vary. A resumed run reads its own log first, and goes on with the alarms that
stood; a run without events (`--telemetry.level off`) begins with none.

Phases: gradient norms are judged after `gradient_warmup` updates, the critic from its eighth update on, and entropy
only in the first `entropy_until` of the rounds, since a policy may settle later. Defaults fit the settings of `esper
train`. With this learner they were silent in ten of twelve runs (216 updates: the five runs of
`benchmarks/sample_efficiency.py`, the demo, `make train-tamiyo` with the rewards `solo` and `frugal`, and four short
ones). In one of those five a ratio of 64 and a divergence of 0.29 were told in round 23, and a ratio of 32 in round
26: between rounds 22 and 24 its greedy play went from a return of -0.09 to 0.71, so the policy had jumped
indeed. `make train-tamiyo` with `frugal` is the other: ratios from 21 to 46 in six of its 48 updates, divergences of
0.19 and 0.16, and two ratios below 0.05 for three updates. Heads that are seldom free move furthest; see
[log.md](log.md).
"""

DETAIL = """\
# How much is told

`--telemetry.level`, or `level` in the table `[telemetry]` of `config.toml`. Nothing that is learned depends on it: a
test compares the weights bit for bit. `python benchmarks/telemetry.py` measures what each level costs;
[log.md](log.md) has the figures.

{levels}

Detailed events are `UpdateExamined` (gradients before clipping and weights by part of the controller's network, what it
saw, and what in all that is not finite), `GradientsSeen` (gradients of host and seeds before clipping, epoch by epoch)
and `MemoryExamined` (norms and saturation of the controller's LSTM in an episode). Their figures are computed where
the tensors are and fetched once. Alarms about rewards (`reward_hacking`, `ransomware`) need `normal`.

After an anomaly the next rounds are told in detail, and then it is as before; a `DetailChanged` says when and why.
Where ratios raised the anomaly, the five choices that the update moved most are kept as `StepMoved`, with episode,
epoch, head and ratio.

{settings}

`esper train --profile` records one update and two epochs of one episode of the second round with `torch.profiler`, and
writes a trace and a table of the costliest operations of each to `profile/` in the run's directory. On CUDA and XPU
their activities are recorded too, on MPS signposts are set; only the CPU was ever tried.

Metrics for TensorBoard, W&B and MLflow: [metrics.md](metrics.md).
"""

DOCTOR = """\
# esper doctor

`esper doctor RUN` reads the directory of a live, finished or crashed run and says what looks wrong, why, and what to
try. It exits 0 if nothing does, 1 if something does, 2 if there is no run. It finds anomalies by feeding the log to a
new detector, so that thresholds can be changed in `config.toml` afterwards. Beside the anomalies that still stand,
and those that came more than once in the last 20 rounds, it looks for:

| finding | what it means |
|---|---|
| killed, failed, halted, unknown state | how the run ended, in its own last words, and how to go on |
| damaged log | more lines of `events.jsonl` cannot be read than crashes explain |
| no events | a run that ended has no events although it should |
| sink | a sink of metrics failed; the run went on without it |
| numbers | the last look at an update found gradients, weights or observations that are not finite, by part |
| no learning visible | from 10 rounds on: the mean return of the last fifth of all rounds (at least 5) \
does not exceed that of \
the first by one standard error |
| worse than a control | in a run with `--compare`: a control got a higher mean return on the same seeds |
"""


def _section(name: str, kind: AnomalyKind) -> str:
    defaults = AnomalyConfig()
    rows = [(f"`{each}`", f"{getattr(defaults, each):g}", sentence_of(AnomalyConfig, each)) for each in kind.settings]
    thresholds = table(("threshold", "default", "meaning"), rows) if rows else "It has no threshold: one is too many."
    words = f"Seen: {kind.sign}.\n\nWhy it matters: {kind.why}.\n\nWhat to try: {kind.remedy}."
    return f"## {name}\n\n{words}\n\n{thresholds}\n"


def document() -> str:
    """The whole text."""
    low, high = RANGES["relief"]
    relief = f"`relief` is {AnomalyConfig().relief:g} by default, from {low:g} to {high:g}.\n"
    sections = [_section(name, kind) for name, kind in KINDS.items()]
    levels = table(
        ("level", "what is written to events.jsonl"), [(f"`{each}`", words) for each, words in LEVELS.items()]
    )
    defaults = TelemetryConfig()
    names = ("escalate_rounds", "escalate_megabytes", "megabytes")
    rows = [(f"`{each}`", f"{getattr(defaults, each):g}", sentence_of(TelemetryConfig, each)) for each in names]
    detail = DETAIL.format(levels=levels, settings=table(("setting", "default", "meaning"), rows))
    return "\n".join([INTRODUCTION, "# Anomalies\n", relief, *sections, detail, DOCTOR])


if __name__ == "__main__":
    print(document(), end="")
