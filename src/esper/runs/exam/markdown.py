"""What an exam found, as Markdown."""

import re

from esper.runs.exam.findings import Cell, Findings, Section, Table

MEANINGFUL = re.compile(r"([\\`*_\[\]<>|~$&])")
"""What Markdown would take for more than text, within a line."""


def to_markdown(findings: Findings) -> str:
    """The whole report without its pictures; nothing in it is taken for markup."""
    parts = [f"# {escape(findings.title)}", escape(findings.lead), _fenced(findings.command)]
    for section in findings.sections:
        parts += _section(section)
    notes = "\n".join(f"- {escape(note)}" for note in findings.notes)
    return "\n\n".join([*parts, "## How to read this", notes]) + "\n"


def escape(text: str) -> str:
    r"""The text as one line that reads as it is.

    >>> print(escape("<b> | my_policy"))
    \<b\> \| my\_policy
    """
    return MEANINGFUL.sub(r"\\\1", " ".join(text.split()))


def _section(section: Section) -> list[str]:
    tables = [part for table in section.tables for part in (f"### {escape(table.caption)}", _table(table))]
    fronts = "\n".join(f"- {escape(plane.sentence)}" for plane in section.planes)
    return [f"## {escape(section.title)}", escape(section.lead), *tables, *(["### Fronts", fronts] if fronts else [])]


def _table(table: Table) -> str:
    rule = ["---", *["---:"] * (len(table.header) - 1)]
    lines = [map(escape, table.header), rule, *(map(_cell, line) for line in table.lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    text = f"**{escape(cell.text)}**" if cell.is_strong else escape(cell.text)
    return f"{text} {cell.interval}".rstrip()


def _fenced(command: str) -> str:
    """A block that ends where it should, whatever the command holds."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
    return f"{fence}sh\n{command}\n{fence}"
