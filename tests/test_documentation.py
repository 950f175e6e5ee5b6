"""The tables in docs/ name what the code has, all of it and nothing else; what the words mean is told only there."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

from esper.contracts import CHOICES, Event, HostSnapshot, SlotSnapshot, Snapshot, Topology
from esper.environment import DATA_KINDS, FAMILIES, HOST_FEATURES, SLOT_FEATURES, GrowEnv, Ranges
from esper.environment.families.text_tasks import TEXTUAL
from esper.environment.families.texts import TEXT_KINDS
from esper.environment.observation import BLUEPRINT_FEATURES, SlotView
from esper.environment.observer import offer_of
from esper.rewards import TERMS_OF, Mode, RewardConfig, TermName
from esper.rewards.potentials import PROGRESS
from esper.runs.recordings.schema import COLUMNS
from esper.telemetry import KINDS, AnomalyConfig, Level, TelemetryConfig, events
from esper.telemetry.metrics import METRICS
from esper.telemetry.query import open_run, query
from esper.telemetry.views import VIEWS, columns_of
from tests.environment.worlds import POINTWISE

DOCS = Path(__file__).parents[1] / "docs"
RECORDED = Path(__file__).parent / "telemetry" / "recorded"
UNITS = {
    "fraction", "ratio", "return", "count", "flag", "seconds", "per second", "nats", "norm", "deviations",
    "squared deviations",
}  # fmt: skip


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """What stands below each heading, by its first word."""
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {title.split()[0].strip("`,"): below for title, below in zip(parts[1::2], parts[2::2], strict=True)}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of tables whose first column names something; no cell is empty."""
    for line in text.splitlines():
        if re.match(r"\| (`|\d)", line):
            name, *cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert all([name, *cells]), f"a cell is empty in {line}"
            yield [name.strip("`"), *cells]


def assert_same(told: Mapping[str, str], true: Mapping[str, str]) -> None:
    wrong = [
        f"{word}: the page says {told.get(word, 'nothing')!r}, the code {true.get(word, 'nothing')!r}"
        for word in {**true, **told}
        if told.get(word) != true.get(word)
    ]
    assert not wrong, "\n".join(wrong)


def test_events_md_has_every_field_of_every_event_with_its_type():
    text = page("events.md").split("# Views")[0].split("# Events of a run")[1]
    told = {
        f"{event}.{field}": kind.strip("`") for event, below in sections(text).items() for field, kind, _ in rows(below)
    } | dict.fromkeys(sections(text).keys() - {"Events"}, "")
    parts = [each for each in vars(events).values() if is_dataclass(each) and not issubclass(each, Event)]
    kinds = events.EVENTS | {part.__name__: part for part in parts}
    true = {f"{event}.{field}": sql for event, kind in kinds.items() for field, sql in columns_of(kind).items()}
    assert_same(told, true | dict.fromkeys(kinds, ""))


def test_events_md_has_every_view_with_its_columns():
    text = page("events.md").split("# Views")[1].split("# Examples")[0]
    told = {
        f"{view}.{column}": kind
        for view, below in sections(text).items()
        for column, kind in re.findall(r"`(\w+)` (.+?)(?=, `|$)", below.strip().splitlines()[-1])
    }
    with open_run(RECORDED) as connection:
        true = {
            f"{view}.{column}": kind
            for view in VIEWS
            for column, kind, *_ in connection.execute(f"DESCRIBE {view}").fetchall()
        }
    assert_same(told, true)


def test_every_example_of_events_md_is_answered():
    examples = re.findall(r"```sql\n(.*?)```", page("events.md"), flags=re.DOTALL)
    assert len(examples) == 3
    for sql in examples:
        columns, answer = query(RECORDED, sql)
        assert columns, sql
        assert answer, sql


def test_metrics_md_has_every_metric_with_a_unit():
    told = {name: unit for name, unit, _ in rows(page("metrics.md").split("# Where metrics go")[0])}
    true = [metric.name for metrics in METRICS.values() for metric in metrics]
    assert len(set(true)) == len(true), "two metrics have the same name"
    assert_same(dict.fromkeys(told, "a metric"), dict.fromkeys(true, "a metric"))
    unknown = {name: unit for name, unit in told.items() if unit not in UNITS}
    assert not unknown, f"units that are told nowhere: {unknown}"


def test_diagnostics_md_has_every_kind_of_anomaly_as_it_is_told():
    anomalies = sections(page("diagnostics.md").split("# How much is told")[0])
    assert_same(
        dict.fromkeys(anomalies.keys() - {"Diagnostics", "Anomalies"}, "a kind"), dict.fromkeys(KINDS, "a kind")
    )
    for name, kind in KINDS.items():
        for words in (kind.why, kind.remedy):
            assert words in anomalies[name], f"{name} does not say: {words}"


def test_diagnostics_md_has_every_setting_with_its_default():
    thresholds, levels = page("diagnostics.md").split("# How much is told")
    told = {name: default for name, default, _ in rows(thresholds)}
    told |= re.findall(r"`(relief)` is (\S+) by default", thresholds)
    assert_same(told, {each.name: f"{each.default:g}" for each in fields(AnomalyConfig)})
    told = {cells[0]: cells[1] if cells[2:] else "a level" for cells in rows(levels.split("# esper doctor")[0])}
    config = TelemetryConfig()
    numbers = ("escalate_rounds", "escalate_megabytes", "megabytes")
    true = {name: f"{getattr(config, name):g}" for name in numbers}
    assert_same(told, true | dict.fromkeys(Level, "a level"))


def test_observation_md_has_every_number_in_its_place_with_its_bounds():
    nothing = Snapshot(
        HostSnapshot(epoch=0, horizon=1, parameters=1, total_parameters=1),
        (SlotSnapshot("slot", Topology.CNN, channels=1, position=0, blueprints=("norm",)),),
    )
    arrays = {
        "host": (HOST_FEATURES, nothing),
        "slots": (SLOT_FEATURES, SlotView(nothing.slots[0], nothing.host, slots=1)),
        "blueprints": (BLUEPRINT_FEATURES, offer_of("norm", nothing.slots[0], host_parameters=1)),
    }
    for array, (features, empty) in arrays.items():
        told = {
            name.strip("`"): f"{place}: {rest}"
            for place, name, _, *rest in rows(sections(page("observation.md"))[array])
        }
        true = {}
        for place, each in enumerate(features):
            gap = "yes" if each.read(empty) is None else "no"
            true[each.name] = f"{place}: {[f'{each.low:g}', f'{each.high:g}', gap]}"
        assert_same(told, true)


def test_observation_md_has_every_array_with_its_shape_and_every_choice():
    below = sections(page("observation.md"))
    told = {name: shape for name, shape, _ in [*rows(below["Arrays"]), *rows(below["Masks"])]}
    env = GrowEnv(POINTWISE)
    observation, _ = env.reset(seed=0)
    sizes = {"S": len(env.codec.slots), "B": len(env.codec.blueprints)}
    for letter, size in sizes.items():
        told = {name: re.sub(rf"\b{letter}\b", str(size), shape) for name, shape in told.items()}
    assert_same(told, {name: f"({', '.join(map(str, array.shape))})" for name, array in observation.items()})
    for choices in CHOICES.values():
        assert ", ".join(choice.name for choice in choices) in below["Masks"]


def test_rewards_md_has_every_term_mode_and_setting():
    text = page("rewards.md")
    told = {cells[0]: " | ".join(cells[1:]) for cells in rows(text)}
    names = [*TermName, *Mode, *(each.name for each in fields(RewardConfig))]
    assert_same(dict.fromkeys(told, "a row"), dict.fromkeys(names, "a row"))
    for mode in Mode:
        mentioned = {name for name in TermName if f"`{name}`" in told[mode]}
        assert mentioned == set(TERMS_OF[mode]), f"{mode}: {mentioned ^ set(TERMS_OF[mode])}"
    for setting in fields(RewardConfig):
        low, high = setting.metadata["range"]
        default = "from the task" if setting.default is MISSING else f"{setting.default:g}"
        assert told[setting.name] == f"{default} | {low:g} to {high:g} | {setting.metadata['meaning']}", setting.name
    for stage, (low, high) in PROGRESS.items():
        slope = f" + {high - low:.1f}·alpha" if high > low else ""
        assert low == 0.0 or f"{stage.name} {low:g}{slope}" in told[TermName.SHAPING], stage


DIFFERENT_FAMILIES = ("small", "wide", "far-exam", "fashion", "cifar")
"""One for every table of ranges."""


def test_families_md_has_every_family_range_and_kind_of_data():
    below = sections(page("families.md"))
    named = re.findall(r"^\| (`.*?) \|", below["Families"], flags=re.MULTILINE)
    assert re.findall(r"`([a-z-]+)`", " ".join(named)) == list(FAMILIES)
    told = {name: " | ".join(cells[:-1]) for name, *cells in rows(below["Ranges"])}
    columns = [FAMILIES[name].ranges for name in DIFFERENT_FAMILIES]
    true = {}
    for each in fields(Ranges):
        usual, *others = (str(getattr(ranges, each.name)) for ranges in columns)
        true[each.name] = " | ".join([usual, *("same" if other == usual else other for other in others)])
    assert_same(told, true)
    told = {name: " | ".join(cells) for name, *cells in rows(below["Data"])}
    assert_same(told, {name: kind_row(name) for name in DATA_KINDS})
    told = {name: cells[0] for name, *cells in rows(below["Texts"])}
    drawn = {each.name: str(getattr(TEXTUAL, each.name)) for each in fields(TEXTUAL)}
    written = {
        each.name: "; ".join(f"{name} {among}" for name, among in each.ranges.items()) for each in TEXT_KINDS.values()
    }
    assert_same(told, {**drawn, **written})


def kind_row(name: str) -> str:
    kind, drawn_by = DATA_KINDS[name], []
    for family in DIFFERENT_FAMILIES:
        ranges = FAMILIES[family].ranges
        dense = "dense" in ranges.topology.values
        drawn_by += [family] if name in (*ranges.images.values, *(ranges.vectors.values if dense else ())) else []
    image = len(kind.shape({each: among.pick(0) for each, among in kind.ranges.items()})) == 3
    space = ("yes" if kind.space else "no") if image else "no pixels"
    drawn = "; ".join(f"{each} {among}" for each, among in kind.ranges.items())
    return f"{', '.join(drawn_by)} | {space} | {drawn} | {kind.meaning}"


def test_recordings_md_has_every_column_with_its_type():
    told: dict[str, str] = {}
    names = list(COLUMNS)
    for line in page("recordings.md").splitlines():
        found = re.match(r"\| (`.*?`) \| ([A-Z]+(?:\[\])?) \|", line)
        if found:
            cell = re.findall(r"`(\w+)`", found[1])
            through = names[names.index(cell[0]) : names.index(cell[-1]) + 1] if "..." in found[1] else cell
            told |= dict.fromkeys(through, found[2])
    assert_same(told, COLUMNS)
