"""Rows that come one after the other, no more than a page can draw: when there are too many, neighbours are merged."""

from bisect import bisect_right
from typing import Any

Row = dict[str, Any]
"""What a page draws of a round. Numbers, or dicts of them; `round` is the first and `until` the last that it is of."""

MOST_ROWS = 2_000


class Series:
    """Rows in the order of rounds; each knows in which version of the page it changed last."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.versions: list[int] = []
        self.generation = 0
        """Changes when rows were merged or taken away, so that whoever has some must begin anew."""
        self.span = 1
        """Rounds that a row stands for."""

    def add(self, row: Row, version: int) -> None:
        """Append a row, or merge it into the last one as long as that stands for too few rounds."""
        if self.rows and self.rows[-1]["count"] < self.span:
            self.rows[-1] = merged(self.rows[-1], row)
            self.versions[-1] = version
        else:
            self.rows.append(row)
            self.versions.append(version)
        if len(self.rows) > MOST_ROWS:
            self._thin(version)

    def change_last(self, changes: Row, version: int) -> None:
        """Add to the row that was added last."""
        self.rows[-1] = self.rows[-1] | changes
        self.versions[-1] = version

    def forget_from(self, round_number: int) -> None:
        """Take away that round and later ones."""
        kept = [row for row in self.rows if row["until"] < round_number]
        if len(kept) < len(self.rows):
            self.rows, self.versions = kept, self.versions[: len(kept)]
            self.generation += 1

    def since(self, version: int) -> int:
        """The place of the first row that changed after a version."""
        return bisect_right(self.versions, version)

    def _thin(self, version: int) -> None:
        pairs = [self.rows[at : at + 2] for at in range(0, len(self.rows), 2)]
        self.rows = [merged(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        self.versions = [version] * len(self.rows)
        self.span *= 2
        self.generation += 1


def row_of(round_number: int, figures: Row) -> Row:
    """A row of one round."""
    return {"round": round_number, "until": round_number, "count": 1, **figures}


def merged(one: Row, two: Row) -> Row:
    """One row for both: numbers are means over the rounds, what only one has is taken from there.

    >>> merged(row_of(1, {"total": 1.0, "ops": {"WAIT": 0.5}}), row_of(2, {"total": 3.0, "ops": {}}))
    {'round': 1, 'until': 2, 'count': 2, 'total': 2.0, 'ops': {'WAIT': 0.5}}
    """
    counts = one["count"], two["count"]
    own = {"round": one["round"], "until": two["until"], "count": sum(counts)}
    return own | {key: _mean(one.get(key), two.get(key), counts) for key in {**one, **two} if key not in own}


def _mean(one: Any, two: Any, counts: tuple[int, int]) -> Any:
    if isinstance(one, dict) and isinstance(two, dict):
        return {key: _mean(one.get(key), two.get(key), counts) for key in {**one, **two}}
    if one is None or two is None or isinstance(two, str):
        return one if two is None else two
    return (one * counts[0] + two * counts[1]) / sum(counts)
