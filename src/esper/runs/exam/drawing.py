"""How the figures of exams look, and how they become image files."""

import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFERENCE_LOOK, CONTROL_LOOK = ("#c8102e", "o"), ("#1a1a1a", "s")
OTHERS = ("#0072b2", "#e69f00", "#009e73", "#8e44ad", "#56b4e9", "#8c564b", "#d55e9e", "#7f7f7f")
MARKERS = ("^", "D", "v", "P", "h", "<", "X", ">", "p")
"""Colours that stay apart for the colour-blind; there are more markers than colours, so pairs repeat late."""
STYLE: dict[Any, Any] = {
    "font.size": 12,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "text.parse_math": False,  # a policy's name may hold dollars
    "text.usetex": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "esper exam",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}
LABEL_LENGTH = 30


def drawn(draw: Callable[["Figure"], None], size: tuple[float, float], kind: Literal["svg", "png"]) -> bytes | None:
    """An image file of that many inches, the same bytes for the same drawing; None if matplotlib is not installed."""
    try:
        import matplotlib as mpl  # an extra: exams do without it
        from matplotlib.figure import Figure
    except ImportError:
        return None
    file = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names may be in any script
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(file, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def label_of(policy: str) -> str:
    """A name that fits a legend. The middle of a long one is left out: the ends of paths tell more."""
    name = "".join(each if each.isprintable() else " " for each in policy)
    if len(name) > LABEL_LENGTH:
        name = f"{name[: LABEL_LENGTH // 2 - 1]}…{name[-LABEL_LENGTH // 2 :]}"
    return f" {name}" if name.startswith("_") else name  # matplotlib leaves out labels that start with a low line
