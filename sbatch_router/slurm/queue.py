"""What `diagnose` and `reroute` ask of the queue: my pending jobs, who runs what, and a move.

Nobody's submission waits for this. What Slurm does not tell is an empty answer and one clause
of trouble, as everywhere here.
"""

from __future__ import annotations

import time

from ..core.record import Record
from ..core.tres import parse_tres
from .patience import left
from .run import run_all
from .text import SQUEUE_FORMAT, ParseError, decode, parse_jobs, parse_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

    from ..core.snapshot import Job
    from ..core.tres import Tres
    from .run import Outcome

#: Seconds for each step of a move: a busy controller must not make half of them fail.
TIMEOUT = 5.0

#: What a job is called comes last: it may be any text.
_MINE = "JobArrayID:0|,SubmitTime:0|,StartTime:0|,OverSubscribe:0|,Dependency:0|,Name:0"
_EXCLUSIVE = "JobArrayID:0|,Exclusive:0"
_RUNNING = (
    "JobArrayID:0|,UserName:0|,Account:0|,QOS:0|,Partition:0|,tres-alloc:0|,StartTime:0|,EndTime:0"
)


class Detail(Record):
    """Of one pending job of mine, what `Job` does not have. Times are seconds since the epoch."""

    id: str
    submitted: Optional[float]
    #: When Slurm expects to start it.
    starts: Optional[float]
    exclusive: bool
    dependency: str
    name: str


class Running(Record):
    """One running job of anybody."""

    id: str
    user: str
    account: str
    qos: str
    partition: str
    tres: Tres
    started: Optional[float]
    #: When its time limit ends it.
    ends: Optional[float]


def my_details() -> Tuple[Dict[str, Detail], str]:
    """My pending jobs' details by id, and a trouble."""
    ask = ["squeue", "--me", "--local", "-a", "-t", "PD", "-O"]
    outcome, separate = run_all([[*ask, _MINE], [*ask, _EXCLUSIVE]], left())
    found: Dict[str, Detail] = {}
    if outcome.trouble:
        return found, outcome.trouble
    whole = _whole_nodes(separate)
    for line in decode(outcome.out).split("\n")[1:]:
        fields = line.split("|", 5)
        if len(fields) == 6:
            ident, submitted, starts, shared, dependency, name = fields
            found[ident] = Detail(
                ident,
                _seconds(submitted),
                _seconds(starts),
                shared == "NO" if whole is None else ident in whole,
                "" if dependency in ("(null)", "N/A") else dependency,
                name,
            )
    return found, ""


def _whole_nodes(outcome: Outcome) -> Optional[FrozenSet[str]]:
    """The jobs that take whole nodes, or None where ``OverSubscribe=NO`` says so.

    Since 26.05 that only says that no CPU is shared, and a column of its own tells the rest;
    older squeues leave that column out, and end with 0.
    """
    lines = decode(outcome.out).split("\n")
    if outcome.trouble or lines[0] != "JOBID|EXCLUSIVE":
        return None
    rows = (line.partition("|") for line in lines)
    return frozenset(ident for ident, _, value in rows if value in ("NODE", "TOPO"))


def everyone_running() -> Tuple[Tuple[Running, ...], str]:
    """All running jobs that I may see, and a trouble. PrivateData=jobs shows mine alone."""
    command = ["squeue", "--local", "-a", "-t", "R,S,CG", "-O", _RUNNING]
    outcome = run_all([command], left())[0]
    if outcome.trouble:
        return (), outcome.trouble
    try:
        table = parse_table(outcome.out, "squeue", ("USER", "TRES_ALLOC", "END_TIME"))
        return tuple(_running(list(row.values())) for row in table.rows), ""
    except (ParseError, ValueError) as error:
        return (), str(error)


def _running(fields: List[str]) -> Running:
    ident, user, account, qos, partition, tres, started, ends = fields
    return Running(
        ident,
        user,
        account.lower(),
        qos.lower(),
        partition.lower(),
        parse_tres(tres),
        _seconds(started),
        _seconds(ends),
    )


def _seconds(text: str) -> Optional[float]:
    """Seconds since the epoch of ``2026-04-08T12:00:00`` (local time); None for ``N/A``."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def my_rows(base: str) -> Tuple[Optional[Tuple[Job, ...]], str]:
    """The rows of one job (of an array: all its rows) that are still in the queue.

    None when Slurm did not tell; a job that is over has no rows.
    """
    command = ["squeue", "--me", "--local", "-a", "-j", base, "-O", SQUEUE_FORMAT]
    outcome = run_all([command], TIMEOUT)[0]
    if outcome.trouble:
        if "Invalid job id" in outcome.trouble:
            return (), ""
        return None, outcome.trouble
    try:
        return parse_jobs(outcome.out), ""
    except ParseError as error:
        return None, str(error)


def update(ident: str, account: str, qos: str) -> str:
    """Move a pending job; both together, as the account alone may leave it in the old pool.

    Returns Slurm's complaint, or nothing.
    """
    command = ["scontrol", "update", f"JobId={ident}", f"Account={account}", f"QOS={qos}"]
    outcome = run_all([command], TIMEOUT)[0]
    if outcome.trouble:
        return outcome.trouble
    # Of an array it may fail for some tasks, say so, and end with 0.
    return _complaint(outcome)


def _complaint(outcome: Outcome) -> str:
    lines = [line.strip() for line in decode(outcome.out + outcome.err).splitlines()]
    return "; ".join(line for line in lines if line)[:300]


def batch_script(ident: str) -> Optional[bytes]:
    """The script of a job of mine; None when Slurm does not give it."""
    outcome = run_all([["scontrol", "write", "batch_script", ident, "-"]], TIMEOUT)[0]
    return None if outcome.trouble else outcome.out


def task_list(ident: str) -> str:
    """An id as ``scontrol update`` takes it: ``7_[1,3%2]`` without the ``%``."""
    head, percent, _ = ident.partition("%")
    return head + "]" if percent else ident


__all__: Sequence[str] = (
    "Detail", "Running", "batch_script", "everyone_running", "my_details", "my_rows", "task_list",
    "update",
)  # fmt: skip
