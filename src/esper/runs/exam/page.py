"""A report as Markdown and as one HTML page; nothing that was given is taken for markup in either."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import jinja2

from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.directory import OR_ELSEWHERE
from esper.runs.exam.parquet import write_parquet
from esper.runs.exam.tables import Table
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import csv_text

MEANINGFUL = re.compile(r"([\\`*_\[\]<>|~$&])")
"""What Markdown would take for more than text, within a line."""

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("esper.runs.exam"),
    autoescape=jinja2.select_autoescape(enabled_extensions=["html.j2"], default=False),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


@dataclass(frozen=True)
class Picture:
    """A figure of a page."""

    title: str
    alternative: str
    """What it shows, in words."""
    svg: bytes | None
    """None if it cannot be drawn here."""
    file: str = ""
    """The PNG that the Markdown shows; empty for none."""

    @property
    def address(self) -> str | None:
        """The picture itself, as an address."""
        return None if self.svg is None else f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


@dataclass(frozen=True)
class PagePart:
    """A heading and what is below it."""

    title: str
    lead: str
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Page:
    """A whole report. `command` is what held the exam."""

    title: str
    reference: str
    command: str
    parts: tuple[PagePart, ...]
    notes: tuple[str, ...]

    def render(self) -> dict[str, str]:
        """`exam.md` and `exam.html`."""
        return {f"exam.{kind}": TEMPLATES.get_template(f"exam.{kind}.j2").render(page=self) for kind in ("md", "html")}


def write_page(page: Page, rows: Sequence[ExamRow], pictures: Mapping[str, bytes | None], directory: Path) -> None:
    """Write `exam.csv`, `.parquet`, `.md`, `.html` and the pictures that could be drawn, by the names of their files.

    Each file is the old one or the new.
    """
    texts = {"exam.csv": csv_text(rows), **page.render()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(directory / name, text)
        write_parquet(rows, directory / "exam.parquet")
        for name, picture in pictures.items():
            if picture is not None:
                write_whole(directory / name, picture)
    except duckdb.Error as error:
        raise Unwritable(
            f"{directory / 'exam.parquet'} cannot be written ({error}); give an --out that can be written"
        ) from error
    except OSError as error:
        raise Unwritable.because(directory, error, OR_ELSEWHERE) from error


def escape(text: str) -> str:
    r"""The text as one line of Markdown that reads as it is.

    >>> print(escape("<b> | my_policy"))
    \<b\> \| my\_policy
    """
    return MEANINGFUL.sub(r"\\\1", " ".join(text.split()))


def fence(command: str) -> str:
    """What opens and closes a block of Markdown that holds the command, whatever it holds."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))


TEMPLATES.filters |= {"md": escape, "fence": fence}
