"""The page as one file to send: the same scripts and parts, and in place of a server what they would have asked."""

import base64
import hashlib
import json
import platform
import time
from collections.abc import Sequence
from importlib import resources
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec

from esper.contracts import EsperError, cure_for
from esper.dashboard.comparing import compared
from esper.dashboard.run_feed import RunFeed
from esper.dashboard.sources import DashboardSource, feed_of, require_sources
from esper.telemetry import plain

STATIC = resources.files("esper.dashboard") / "static"
SCRIPTS = ("elements.js", "charts.js", "lanes.js", "run.js", "exam.js", "data.js", "page.js")
"""In the order in which the page loads them."""
MOST_BYTES = 7_500_000
EPISODES = 120
"""That a report of one run holds whole; several runs share them."""


class ReportUnwritable(EsperError):
    """The report cannot be written."""


def write_report(paths: Sequence[Path], out: Path, command: str, versions: dict[str, str]) -> int:
    """Write runs, exams and trainings to one HTML file that needs no network; the bytes that it has."""
    sources = require_sources(paths)
    held = {"made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "command": command}
    versions = versions | {"python": platform.python_version()}
    episodes = max(4, EPISODES // len(sources))
    page = b""
    while True:
        page = _page(held | {"versions": versions} | _content(sources, episodes))
        if len(page) <= MOST_BYTES or not episodes:
            break
        episodes //= 2
    try:
        out.write_bytes(page)
    except OSError as error:
        raise ReportUnwritable(
            f"{out} cannot be written ({error.strerror}); {cure_for(error)}, or give another --out"
        ) from error
    return len(page)


def _content(sources: Sequence[DashboardSource], episodes: int) -> dict[str, Any]:
    """What the page asks a server for, asked beforehand."""
    feeds = {}
    for source in sources:
        feed = feeds[source.name] = feed_of(source)
        if isinstance(feed, RunFeed):
            feed.read_all()
        feed.refresh()
    runs = {name: feed for name, feed in feeds.items() if isinstance(feed, RunFeed) and feed.is_run}
    return {
        "sources": [_held(source, feeds[source.name], episodes) for source in sources],
        "comparisons": {f"{one}\n{two}": compared(runs[one], runs[two]) for one, two in permutations(runs, 2)},
    }


def _held(source: DashboardSource, feed: Any, episodes: int) -> dict[str, Any]:
    told = {"source": source.figures(), "news": feed.news(), "episodes": [], "stories": {}}
    if isinstance(feed, RunFeed):
        lines = feed.worth_a_look(episodes)
        told["episodes"] = [feed.episode_line(line) for line in lines]
        told["stories"] = {str(line.number): feed.episode(line.number) for line in lines}
        for live in feed.news()["live"]["episodes"]:
            told["stories"][live["key"]] = feed.live_story(live["key"])
    return told


def _page(held: dict[str, Any]) -> bytes:
    """One file. Only scripts with these very hashes run; `<` is escaped, so that no text of an event ends a script."""
    data = msgspec.json.encode(plain(held)).replace(b"<", b"\\u003c")
    scripts = [(STATIC / name).read_bytes() for name in SCRIPTS]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in scripts)
    style = (STATIC / "page.css").read_bytes()
    shelter = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    made = json.dumps(held["made"]).strip('"')
    head = (STATIC / "index.html").read_text(encoding="utf-8").partition("<body>")
    body = head[2].partition("<noscript>")[0]
    begin = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{shelter}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Esper, {made}</title>\n<style>\n'
    )
    return b"".join(
        [begin.encode(), style, b"</style>\n</head>\n<body>", body.encode(),
         b'<script type="application/json" id="held">', data, b"</script>\n",
         *(b"<script>" + each + b"</script>\n" for each in scripts), b"</body>\n</html>\n"]
    )  # fmt: skip
