"""Two runs side by side: what differs in their settings, and by how much their greedy play differs."""

from typing import Any

from esper.contracts import EsperError
from esper.dashboard.run_feed import RunFeed
from esper.telemetry import interval, mean
from esper.telemetry.sinks.sinks import flattened


def compared(one: RunFeed, two: RunFeed) -> dict[str, Any]:
    """The settings that differ, and the paired difference of returns on the seeds that both played greedily."""
    return {"settings": _settings(one, two), "differences": _differences(one, two)}


def _settings(one: RunFeed, two: RunFeed) -> list[dict[str, Any]]:
    try:
        first, second = (flattened(feed.files.settings()) if feed.is_run else {} for feed in (one, two))
    except EsperError:
        return []
    names = dict.fromkeys([*first, *second])
    return [
        {"name": name, "first": first.get(name), "second": second.get(name)}
        for name in names
        if first.get(name) != second.get(name)
    ]


def _differences(one: RunFeed, two: RunFeed) -> list[dict[str, Any]]:
    """First minus second, by purpose, on the same tasks and seeds."""
    first, second = one.paired(), two.paired()
    found = []
    for purpose in ("evaluate", "compare"):
        pairs = [first[key] - second[key] for key in first.keys() & second.keys() if key[0] == purpose]
        if pairs:
            low, high = interval(pairs)
            found.append({"purpose": purpose, "pairs": len(pairs), "value": mean(pairs), "low": low, "high": high})
    return found
