"""What an exam found, as one HTML page that needs nothing else."""

import base64
from html import escape
from string import Template

from esper.runs.exam.drawing import draw_plane
from esper.runs.exam.findings import Cell, Findings, Plane, Section, Table

STYLE = """
:root { color-scheme: light; --ink: #1c1e21; --soft: #5b6169; --line: #e1e4e8; --accent: #c8102e; --paper: #ffffff; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f5f7; color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 1.35rem; margin: 0 0 2px; }
h3 { font-size: 1.02rem; margin: 24px 0 8px; }
p { margin: 0 0 12px; max-width: 80ch; }
.soft { color: var(--soft); }
pre { background: #1c1e21; color: #f2f3f5; padding: 12px 16px; border-radius: 6px; font-size: 0.86rem; margin: 16px 0 0;
  white-space: pre-wrap; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 20px 24px 24px;
  margin-top: 24px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.87rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { padding: 7px 9px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; white-space: normal; line-height: 1.25;
  border-bottom: 2px solid #c9ced4; }
td { line-height: 1.3; }
tbody th { font-weight: 400; line-height: 1.3; white-space: normal; overflow-wrap: anywhere; min-width: 8.5rem;
  max-width: 16rem; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); padding-left: 0; }
tbody tr:last-child > * { border-bottom: 0; }
tbody tr:hover > * { background: #f7f8fa; }
.interval { color: var(--soft); font-size: 0.9em; display: block; line-height: 1.2; }
.planes { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 20px 28px;
  align-items: start; }
figure { margin: 0; }
figure h3 { margin-top: 20px; }
figure img { width: 100%; height: auto; display: block; }
figcaption { font-size: 0.9rem; color: var(--soft); margin-top: 8px; }
ul { margin: 8px 0 0; padding-left: 20px; font-size: 0.92rem; color: #3a3f45; }
li { margin-bottom: 6px; max-width: 95ch; }
@media (max-width: 640px) {
  main { padding: 20px 10px 32px; }
  section { padding: 16px 14px 18px; }
  h1 { font-size: 1.5rem; }
  tbody th { min-width: 6.5rem; max-width: 9rem; }
}
@media print { body { background: #fff; } section { border: 0; padding: 0; } }
"""

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
<header>
<h1>$title</h1>
<p>$lead</p>
<pre><code>$command</code></pre>
</header>
$sections
<section>
<h2>How to read this</h2>
<ul>
$notes
</ul>
</section>
</main>
</body>
</html>
""")

NO_FIGURES = (
    "This page has no figures, because matplotlib is not installed where it was made; "
    "pip install 'esper-growth[demo]' brings it."
)


def to_page(findings: Findings) -> str:
    """The page: tables, pictures within it, no scripts; everything that was given stands there as text."""
    return PAGE.substitute(
        title=escape(findings.title),
        style=STYLE,
        lead=escape(findings.lead),
        command=escape(findings.command),
        sections="\n".join(map(_section, findings.sections)),
        notes="\n".join(f"<li>{escape(note)}</li>" for note in findings.notes),
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>", f'<p class="soft">{escape(section.lead)}</p>']
    parts += [_table(table) for table in section.tables]
    if section.planes:
        pictures = [(plane, draw_plane(plane)) for plane in section.planes]
        drawn = "\n".join(_figure(plane, picture) for plane, picture in pictures)
        parts.append(f'<div class="planes">\n{drawn}\n</div>')
        if None in (picture for _, picture in pictures):
            parts.append(f'<p class="soft">{escape(NO_FIGURES)}</p>')
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _figure(plane: Plane, picture: bytes | None) -> str:
    title, words = escape(f"Accuracy against {plane.cost}"), escape(plane.sentence)
    image = ""
    if picture is not None:
        data = base64.b64encode(picture).decode()
        image = (
            f'<img alt="{title}: a dot per seed, means with 95 % intervals" src="data:image/svg+xml;base64,{data}">\n'
        )
    return f"<figure>\n<h3>{title}</h3>\n{image}<figcaption>{words}</figcaption>\n</figure>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name).replace(" %", "&nbsp;%")}</th>' for name in table.header)
    lines = "\n".join(
        f'<tr><th scope="row">{_cell(first)}</th>{"".join(f"<td>{_cell(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in table.lines
    )
    return (
        f'<h3>{escape(table.caption)}</h3>\n<div class="scroll"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table></div>"
    )


def _cell(cell: Cell) -> str:
    text = f"<strong>{escape(cell.text)}</strong>" if cell.is_strong else escape(cell.text)
    return f'{text} <span class="interval">{escape(cell.interval)}</span>' if cell.interval else text
