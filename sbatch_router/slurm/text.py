"""What all of Slurm's answers have in common, and `squeue --me`'s rows.

Text in, core values out: nothing here runs a command. What cannot be read raises `ParseError`
and nothing else; half an answer is never read as a whole one.
"""

from __future__ import annotations

from ..core.record import Record
from ..core.snapshot import Job
from ..core.tres import UNKNOWN, parse_tres

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from ..core.tres import Amount, Tres

#: Columns of `squeue -O`: ``:0`` prints a value in full, ``|`` follows it (squeue(1)). The
#: reason comes last, as slurmctld may have put any text there.
SQUEUE_FORMAT = (
    "JobArrayID:0|,State:0|,TimeLimit:0|,tres-alloc:0|,Account:0|,QOS:0|,Partition:0|,Reason:0"
)
_SQUEUE_HEADER = "JOBID|STATE|TIME_LIMIT|TRES_ALLOC|ACCOUNT|QOS|PARTITION|REASON"


class ParseError(Exception):
    """An answer that is not what Slurm prints. `where`: the command; `what`: one clause."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what


class Table(Record):
    """A parsable listing: the rows as column name -> text."""

    columns: Tuple[str, ...]
    rows: Tuple[Dict[str, str], ...]


def decode(data: bytes) -> str:
    """Text of Slurm's output. Comments and job names may be bytes of any kind."""
    return data.decode("utf-8", "surrogateescape")


def whole_lines(data: bytes, where: str) -> List[str]:
    """The lines of an answer, which must end with a line's end. Raises ParseError."""
    if not data.strip():
        raise ParseError(where, "the answer was empty")
    if not data.endswith(b"\n"):
        raise ParseError(where, "the answer was cut off")
    return decode(data).split("\n")[:-1]


def parse_table(data: bytes, where: str, required: Sequence[str]) -> Table:
    """A listing with ``|`` between its columns and its column names in the first row.

    What a site prints before that row is ignored. Raises ParseError when no row names all the
    `required` columns, or when a row has another number of columns.
    """
    lines = whole_lines(data, where)
    columns: Tuple[str, ...] = ()
    rows = []
    for line in lines:
        fields = line.split("|")
        if not columns:
            if all(name in fields for name in required):
                columns = tuple(fields)
        elif len(fields) == len(columns):
            rows.append(dict(zip(columns, fields)))
        else:
            what = f"{len(fields)} columns instead of {len(columns)}: {line[:80]!r}"
            raise ParseError(where, what)
    if not columns:
        raise ParseError(where, f"no row with the columns {', '.join(required)}")
    return Table(columns, tuple(rows))


def parse_minutes(text: str) -> Amount:
    """Minutes of ``7-00:00:00``, ``1:00:00``, ``10:00`` or ``UNLIMITED``; seconds round up.

    Empty, ``NONE`` and ``(null)`` are None, as nothing is set. Anything else that is not a time
    is UNKNOWN. (secs2time_str and mins2time_str in src/common/parse_time.c.)
    """
    if text in ("", "NONE", "UNLIMITED", "INFINITE", "(null)", "N/A"):
        return None
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() and part.isascii() for part in parts) or not 2 <= len(parts) <= 3:
        return UNKNOWN
    if dash and not (days.isdigit() and days.isascii()):
        return UNKNOWN
    if max(map(len, parts)) > 12 or len(days) > 12:
        return UNKNOWN
    hours, minutes, seconds = [0] * (3 - len(parts)) + [int(part) for part in parts]
    return (int(days or 0) * 24 + hours) * 60 + minutes + (1 if seconds else 0)


def parse_count(text: str) -> Optional[int]:
    """A plain number, or None."""
    return int(text) if text.isdigit() and text.isascii() and len(text) < 21 else None


def parse_jobs(data: bytes) -> Tuple[Job, ...]:
    """My jobs of ``squeue --me -O SQUEUE_FORMAT``, the header included.

    The header tells an answer without jobs from no answer. Raises ParseError.
    """
    where = "squeue"
    lines = whole_lines(data, where)
    try:
        start = lines.index(_SQUEUE_HEADER)
    except ValueError:
        raise ParseError(where, "no header line") from None
    jobs = []
    # Jobs come in hundreds that ask for the same: what was read once is shared.
    amounts: Dict[str, Tres] = {}
    minutes: Dict[str, Amount] = {}
    for line in lines[start + 1 :]:
        fields = line.split("|", 7)
        if len(fields) != 8:
            raise ParseError(where, f"{len(fields)} columns instead of 8: {line[:80]!r}")
        ident, limit, tres = fields[0], fields[2], fields[3]
        if tres not in amounts:
            amounts[tres] = _tres(ident, tres, where)
        if limit not in minutes:
            # NOT_SET: the partition's limit will count; that is not known here.
            minutes[limit] = parse_minutes(limit) if limit else UNKNOWN
        jobs.append(_job(fields, amounts[tres], minutes[limit], where))
    return tuple(jobs)


def _tres(ident: str, text: str, where: str) -> Tres:
    try:
        return parse_tres(text)
    except (ValueError, KeyError, OverflowError):
        raise ParseError(where, f"job {ident[:40]}: not a TRES list: {text[:80]!r}") from None


def _job(fields: List[str], tres: Tres, minutes: Amount, where: str) -> Job:
    ident, state, _, _, account, qos, partition, reason = fields
    if not ident[:1].isdigit() or not state:
        raise ParseError(where, f"not a job: {'|'.join(fields)[:80]!r}")
    tasks, at_once = _tasks(ident, where)
    # Positional, in the order of Job's fields: keywords would cost as much as the rest.
    return Job(
        ident,
        account.lower(),
        qos.lower(),
        partition.lower(),
        state.upper(),
        reason,
        tres,
        tasks,
        at_once,
        minutes,
    )


def _tasks(ident: str, where: str) -> Tuple[int, Optional[int]]:
    """How many tasks a row stands for, and its ``%``: (3, 2) for ``123_[5,7,9%2]``.

    The forms are those of xlate_array_task_str in src/common/slurm_protocol_defs.c: single
    tasks, ranges, and ``0-30:2``.
    """
    _, bracket, inside = ident.partition("[")
    if not bracket:
        return 1, None
    if inside[-1:] != "]":
        raise ParseError(where, f"not an array: {ident[:80]!r}")
    listed, percent, at_once_text = inside[:-1].partition("%")
    at_once = parse_count(at_once_text) if percent else None
    if percent and at_once is None:
        raise ParseError(where, f"not an array: {ident[:80]!r}")
    total = 0
    for part in listed.split(","):
        span, _, step_text = part.partition(":")
        first_text, dash, last_text = span.partition("-")
        first = parse_count(first_text)
        last = parse_count(last_text) if dash else first
        step = parse_count(step_text or "1")
        if first is None or last is None or not step or last < first:
            raise ParseError(where, f"not an array: {ident[:80]!r}")
        total += (last - first) // step + 1
    return total, at_once
