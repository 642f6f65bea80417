"""What several commands print: amounts, bars, rows that fit the terminal.

`rich` colours the lines; where they break is decided here, so that the same text comes out on
a terminal, in a file, and without colours.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import click
from rich.console import Console
from rich.text import Text

from ..core import spell
from ..core.tres import Unknown

T = TypeVar("T")

#: Wider lines are harder to read, not easier.
MAX_WIDTH = 100
MIN_WIDTH = 40
#: Below this many columns rows are drawn closer.
NARROW = 72
#: Cells of a bar.
WIDEST_BAR, NARROWEST_BAR = 20, 6


class Signs(NamedTuple):
    """The characters of a bar, and the mark of what was chosen."""

    mine: str
    others: str
    queued: str
    free: str
    chosen: str
    short: str


UNICODE = Signs("█", "▒", "░", "·", "→", "✗")
ASCII = Signs("#", "=", "+", ".", ">", "x")

MINE, OTHERS, QUEUED, FREE = "green", "yellow", "cyan", "dim"
GOOD, BAD, NOTE = "bold green", "bold red", "dim"


def ascii_option(function: Callable[..., T]) -> Callable[..., T]:
    """``--ascii``, as every command that draws has it."""
    return click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")(
        function
    )


class Screen:
    """Where a command prints its result: standard output, as wide as the terminal is."""

    def __init__(self, plain: bool = False, width: Optional[int] = None) -> None:
        self.console = Console(
            file=sys.stdout, width=width, highlight=False, markup=False, emoji=False
        )
        self.width = max(MIN_WIDTH, min(width or self.console.width, MAX_WIDTH))
        self.signs = ASCII if plain or not _draws(self.console) else UNICODE

    def line(self, *parts: object) -> None:
        """One line; a part is text, or text with a style."""
        self.console.print(styled(*parts), no_wrap=True, overflow="ignore", crop=False)

    def lines(self, texts: Sequence[Text]) -> None:
        for text in texts:
            self.line(text)

    def words(self, label: str, text: str, style: str = "", indent: int = 0) -> None:
        """``label  text``, broken at blanks, with what follows under the text."""
        self.lines(paragraph(label, text, self.width, style, indent))


def _draws(console: Console) -> bool:
    """Whether standard output takes the characters of `UNICODE`."""
    try:
        "".join(UNICODE).encode(console.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    asked = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG")
    return os.environ.get("TERM") != "linux" and asked not in ("C", "POSIX")


def styled(*parts: object) -> Text:
    """Text of strings, (string, style) pairs and Texts."""
    text = Text(end="")
    for part in parts:
        if isinstance(part, Text):
            text.append_text(part)
        elif isinstance(part, tuple):
            text.append(clean(str(part[0])), style=str(part[1]))
        else:
            text.append(clean(str(part)))
    return text


def clean(text: str) -> str:
    """`text` without what a terminal would obey, or standard output could not encode."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def paragraph(label: str, text: str, width: int, style: str = "", indent: int = 0) -> List[Text]:
    """A label and a text that is broken at blanks; at least one line."""
    start = " " * indent + label
    room = max(width - len(start), 20)
    rows = textwrap.wrap(
        clean(text), room, break_long_words=False, break_on_hyphens=False
    ) or [""]  # fmt: skip
    found = [styled((start, NOTE if label.strip() else ""), (rows[0], style))]
    found += [styled(" " * len(start), (row, style)) for row in rows[1:]]
    return found


def hanging(line: str, width: int, indent: int) -> List[Text]:
    """A line that is broken at blanks, with what follows under its column `indent`."""
    rows = textwrap.wrap(
        clean(line),
        max(width, indent + 20),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [styled(row) for row in rows or [""]]


def many(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- bars ----------------------------------------------------------------------------------------


def bar(
    limit: object, used: object, mine: object, queued: int, width: int, signs: Signs
) -> List[Tuple[str, str]]:
    """How full a pool is: my part, the others', what I have queued, and what is free.

    What is there gets a cell however little it is, and a pool that is not full never looks it.
    """
    if not isinstance(limit, int) or not isinstance(used, int):
        return [(("?" if limit is not None else " ") * width, NOTE)]
    if limit <= 0:
        return [("-" * width, NOTE)]
    own = min(mine, used) if isinstance(mine, int) else 0
    total = max(limit, used)
    parts = [own, used - own, min(max(0, queued), max(0, limit - used))]
    free = max(0, total - sum(parts))
    counts = _cells([*parts, free], total, width)
    kinds = ((signs.mine, MINE), (signs.others, OTHERS), (signs.queued, QUEUED), (signs.free, FREE))
    return [(sign * count, style) for (sign, style), count in zip(kinds, counts) if count]


def _cells(parts: Sequence[int], total: int, width: int) -> List[int]:
    """`width` cells shared out by size; whatever is not zero gets one while there are any."""
    counts = [max(part * width // total, 1) if part else 0 for part in parts]
    while sum(counts) > width:
        largest = max(range(len(counts)), key=lambda i: (counts[i], parts[i]))
        counts[largest] -= 1
    while sum(counts) < width:
        # The largest remainder; exact integers, so that equal pools look equal.
        short = max(range(len(counts)), key=lambda i: parts[i] * width - counts[i] * total)
        counts[short] += 1
    return counts


def legend(signs: Signs) -> Text:
    """What the bar's characters mean."""
    return styled(
        (signs.mine, MINE), " yours  ", (signs.others, OTHERS), " others'  ",
        (signs.queued, QUEUED), " queued by you  ", (signs.free, FREE), " free",
    )  # fmt: skip


class Row(NamedTuple):
    """One limit: what is used of it, and a last column that depends on the command."""

    name: str
    limit: object
    used: object
    mine: object
    queued: int
    last: str
    #: The TRES (empty for a count) and the limit's kind, which give the unit.
    tres: str
    kind: str
    #: Marked as what is in the way.
    short: bool = False


def table(
    rows: Sequence[Row], screen: Screen, columns: Optional[Sequence[Row]] = None
) -> List[Text]:
    """`rows` with aligned columns, in `screen.width`. `columns`: all rows to be aligned with."""
    narrow = screen.width < NARROW
    every = [_cell_texts(row, narrow) for row in (columns or rows)]
    widths = [max((len(cells[i]) for cells in every), default=0) for i in range(4)]
    indent, gap = (2, 1) if narrow else (4, 2)
    room = screen.width - indent - sum(widths) - gap * 3 - 1
    cells = min(room, WIDEST_BAR) if room >= NARROWEST_BAR else 0
    return [_row(row, _cell_texts(row, narrow), widths, indent, cells, screen) for row in rows]


def _cell_texts(row: Row, narrow: bool) -> Tuple[str, str, str, str]:
    used, limit, mine, queued = (
        spell.amount(row.tres, value, row.kind)
        for value in (row.used, row.limit, row.mine, row.queued)
    )
    used += ("/" if narrow else " of ") + limit
    mine += " yours" + (f" +{queued}" if row.queued else "")
    return clean(row.name), used, mine, row.last


def _row(
    row: Row,
    texts: Tuple[str, str, str, str],
    widths: Sequence[int],
    indent: int,
    cells: int,
    screen: Screen,
) -> Text:
    name, used, mine, last = texts
    gap = " " if screen.width < NARROW else "  "
    drawn: List[object] = []
    if cells:
        drawn = [*bar(row.limit, row.used, row.mine, row.queued, cells, screen.signs), gap]
    mark = screen.signs.short if row.short else " "
    style = BAD if row.short else ""
    found = styled(
        (mark.rjust(indent - 1) + " ", BAD),
        (name.ljust(widths[0]), style),
        " ",
        *drawn,
        (used.rjust(widths[1]), style),
        gap,
        mine.ljust(widths[2]),
        gap,
        (last.ljust(widths[3]), style),
    )
    found.rstrip()
    return found


def known(value: object) -> object:
    """An amount for JSON: an integer, None for unlimited, or the text ``unknown``."""
    return "unknown" if isinstance(value, Unknown) else value
