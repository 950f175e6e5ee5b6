"""How numbers and lists are put in a report."""

from collections.abc import Sequence

from esper.runs.exam.statistics import Estimate

ABSENT = "\N{EN DASH}"
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def percent(number: Estimate, digits: int = 1) -> tuple[str, str]:
    """The number in percent, and its interval; no interval if there is none.

    >>> percent(Estimate(0.5, 0.25, 0.75, count=10))
    ('50.0', '[25.0, 75.0]')
    """
    value, low, high = (_rounded(100 * each, digits) for each in (number.value, number.low, number.high))
    return value, "" if number.is_point else f"[{low}, {high}]"


def points(number: Estimate) -> tuple[str, str]:
    """A difference in points, with its sign, and its interval."""
    value, low, high = (_signed(100 * each) for each in (number.value, number.low, number.high))
    return value, "" if number.is_point else f"[{low}, {high}]"


def times(number: float) -> str:
    """A factor."""
    return f"\N{MULTIPLICATION SIGN}{number:.2f}"


def _rounded(number: float, digits: int) -> str:
    """No minus before a zero."""
    return f"{round(number, digits) + 0.0:.{digits}f}"


def _signed(number: float) -> str:
    text = _rounded(number, 2)
    return f"+{text}" if round(number, 2) > 0 else text


def with_prefix(number: float) -> str:
    """Three digits and a prefix.

    >>> with_prefix(1234567.0), with_prefix(52.0), with_prefix(999999.0)
    ('1.23 M', '52', '1.00 M')
    """
    for size, prefix in PREFIXES:
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {prefix}"
    return f"{number:.0f}"


def count(number: int, one: str, many: str = "") -> str:
    """A number of things.

    >>> count(1, "seed"), count(2, "seed"), count(2, "policy", "policies")
    ('1 seed', '2 seeds', '2 policies')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """The names in a sentence; those that would read as several are quoted.

    >>> listed(["one", "two", "three"]), listed(["one", "two, half"])
    ('one, two and three', "one and 'two, half'")
    """
    names = [repr(name) if "," in name or ";" in name or " and " in name else name for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers, runs of them as ranges; the first few of many.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1 to 3, 7, 9 to 10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    shown = [" to ".join(map(str, run)) for run in runs]
    return ", ".join(shown[:8]) + (", …" if shown[8:] else "")
