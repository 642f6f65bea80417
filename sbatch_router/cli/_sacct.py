"""My jobs in Slurm's accounting, for telling what became of a decision.

``sacct`` prints one row a job (``-X``), and one for each array task that has started. Its
memory strings changed over the releases; see `req_mem`.
"""

from __future__ import annotations

import posix
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..core.tres import parse_mem, parse_tres
from ..slurm.patience import conf_trouble, left
from ..slurm.run import NO_ANSWER, query_environment, run_all

#: What no job name, account or reason contains.
_SEPARATOR = "\x1f"
_FIELDS = (
    "JobID", "Account", "QOS", "Partition", "Submit", "Eligible", "Start", "End",
    "State", "Reason", "ReqTRES", "ReqMem", "ReqCPUS", "ReqNodes", "ExitCode", "JobName",
)  # fmt: skip
#: 22.05 and older know it; the reason is then squeue's alone.
_OPTIONAL = ("Reason",)
#: Seconds for many jobs, once slurmdbd has shown that it answers.
TIMEOUT = 30.0
_PING = ("sacctmgr", "-nP", "show", "cluster", "format=cluster")


class JobRow(NamedTuple):
    """One job, or the tasks of one array together. Times are seconds since the epoch."""

    id: str
    account: str
    qos: str
    partition: str
    name: str
    submit: float
    #: When the first of its tasks started; None: it has not.
    start: Optional[float]
    end: Optional[float]
    #: Long state name, ``PENDING`` while any task is.
    state: str
    reason: str
    #: ReqTRES of one task; empty if not known. ``mem`` is MiB.
    tres: Mapping[str, int]
    exit_code: str
    tasks: int = 1


class Accounting(NamedTuple):
    """What sacct said. `trouble` is not empty when it said nothing that counts."""

    jobs: Tuple[JobRow, ...]
    trouble: str = ""
    #: Rows that could not be read.
    bad: int = 0


def req_mem(text: str, cpus: int, nodes: int) -> Optional[int]:
    """MiB for the whole job of sacct's ReqMem; None: not known.

    Until 20.11 ``4Gc`` is a CPU's share and ``4Gn`` a node's; later releases print the job's
    own amount (``4G``). ``0n`` is Slurm's way of writing "all of the node": 0 here.
    """
    text = text.strip()
    times = 1
    if text[-1:] == "c":
        text, times = text[:-1], max(1, cpus)
    elif text[-1:] == "n":
        text, times = text[:-1], max(1, nodes)
    if not text or text[-1:].isspace() or not text[0].isdigit():
        return None
    try:
        return parse_mem(text) * times
    except (ValueError, OverflowError):
        return None


def ask(user: str, since: float, until: Optional[float] = None) -> Accounting:
    """The user's jobs that were there between two times, as sacct knows them."""
    stuck = conf_trouble()
    if not stuck:
        (ping,) = run_all([_PING], left())
        stuck = ping.trouble if NO_ANSWER in ping.trouble else ""
    if stuck:
        return Accounting((), stuck)
    fields = list(_FIELDS)
    answer = _run(user, since, until, fields)
    if answer[1] and "nvalid field" in answer[1]:
        fields = [name for name in fields if name not in _OPTIONAL]
        answer = _run(user, since, until, fields)
    data, trouble = answer
    if trouble:
        return Accounting((), trouble)
    return parse(data, fields)


def _run(
    user: str, since: float, until: Optional[float], fields: Sequence[str]
) -> Tuple[bytes, str]:
    command = ["sacct", "-X", "-n", "-P", f"--delimiter={_SEPARATOR}", "-u", user]
    command += ["-S", _stamp(since), "-E", _stamp(until or time.time() + 86400)]
    command += ["-o", ",".join(fields)]
    env = query_environment(posix.environ)
    for name in [n for n in env if n.startswith(b"SACCT_")]:
        del env[name]
    # Seconds since the epoch: no time zone, no summer time (sacct(1), ENVIRONMENT).
    env[b"SLURM_TIME_FORMAT"] = b"%s"
    (done,) = run_all([command], TIMEOUT, env=env)
    said = done.err.decode("utf-8", "replace").strip().splitlines()
    if done.trouble:
        return done.out, done.trouble
    if said and not done.out:
        # "Slurm accounting storage is disabled" comes with status 0 in some releases.
        return done.out, f"sacct: {said[-1]}"
    return done.out, ""


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def parse(data: bytes, fields: Sequence[str] = _FIELDS) -> Accounting:
    """Rows of `fields`, tasks of an array put together. Rows of another shape are counted."""
    bad = 0
    found: Dict[str, List[JobRow]] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        cells = line.split(_SEPARATOR, len(fields) - 1)
        row = _row(dict(zip(fields, cells))) if len(cells) == len(fields) else None
        if row is None:
            bad += 1
            continue
        found.setdefault(row.id, []).append(row)
    return Accounting(tuple(_together(rows) for rows in found.values()), "", bad)


def _row(cells: Mapping[str, str]) -> Optional[JobRow]:
    base, _, task = cells["JobID"].partition("_")
    base = base.partition("+")[0]
    submit = _time(cells["Submit"])
    if not base.isdigit() or submit is None:
        return None
    cpus, nodes = _count(cells["ReqCPUS"]), _count(cells["ReqNodes"])
    try:
        tres: Dict[str, int] = parse_tres(cells["ReqTRES"])
    except (ValueError, KeyError, OverflowError):
        tres = {}
    memory = req_mem(cells["ReqMem"], cpus, nodes)
    if memory and "mem" not in tres:
        tres["mem"] = memory
    state = cells["State"].split(" ")[0].rstrip("+").upper()
    return JobRow(
        base,
        cells["Account"].lower(),
        cells["QOS"].lower(),
        cells["Partition"].lower(),
        cells["JobName"],
        submit,
        _time(cells["Start"]),
        _time(cells["End"]),
        state,
        _none(cells.get("Reason", "")),
        tres,
        cells["ExitCode"],
        array_tasks(task),
    )


def array_tasks(task: str) -> int:
    """Tasks in the part after ``_`` of a job id: ``3``, ``[0-9,12]``, ``[1-100:2%4]``."""
    if not task.startswith("["):
        return 1
    total = 0
    for part in task.strip("[]").partition("%")[0].split(","):
        numbers, _, step = part.partition(":")
        low, dash, high = numbers.partition("-")
        if dash and low.isdigit() and high.isdigit():
            total += (
                max(0, int(high) - int(low)) // (int(step) if step.isdigit() and int(step) else 1)
                + 1
            )
        else:
            total += 1
    return max(1, total)


def _together(rows: Sequence[JobRow]) -> JobRow:
    """The rows of one array as one; a job that was requeued has one row each time, too."""
    if len(rows) == 1:
        return rows[0]
    first = min(rows, key=lambda row: row.submit)
    starts = [row.start for row in rows if row.start is not None]
    ends = [row.end for row in rows]
    return first._replace(
        start=min(starts) if starts else None,
        end=None if None in ends else max(end for end in ends if end is not None),
        state=_worst([row.state for row in rows]),
        reason=next((row.reason for row in rows if row.reason), ""),
        tasks=sum(row.tasks for row in rows),
    )


def _worst(states: Sequence[str]) -> str:
    for state in ("PENDING", "RUNNING"):
        if state in states:
            return state
    return next((state for state in states if state != "COMPLETED"), "COMPLETED")


def _time(text: str) -> Optional[float]:
    """Seconds since the epoch; ``Unknown`` and 0 are none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number > 0 else None


def _count(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 1


def _none(text: str) -> str:
    return "" if text in ("None", "(null)", "Unknown") else text


#: squeue's names of what is read of a job there; the name comes last, as it may be anything.
_QUEUE_FIELDS = (
    "JobArrayID", "Account", "QOS", "Partition", "SubmitTime", "StartTime", "EndTime", "State",
    "Reason", "tres-alloc", "Name",
)  # fmt: skip


def queue() -> Accounting:
    """My jobs that slurmctld still has: those sacct does not know yet, and today's reasons."""
    wanted = ",".join(f"{name}:0{_SEPARATOR}" for name in _QUEUE_FIELDS)
    env = query_environment(posix.environ)
    env[b"SLURM_TIME_FORMAT"] = b"%s"
    command = ["squeue", "--me", "--local", "-a", "-h", "-t", "all", "-O", wanted]
    trouble = conf_trouble()
    if trouble:
        return Accounting((), trouble)
    (done,) = run_all([command], left(), env=env)
    return parse_queue(done.out)._replace(trouble=done.trouble)


def parse_queue(data: bytes) -> Accounting:
    """squeue's rows, tasks of an array put together."""
    bad = 0
    found: Dict[str, List[JobRow]] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        cells = line.split(_SEPARATOR, len(_QUEUE_FIELDS) - 1)
        row = _queued(cells) if len(cells) == len(_QUEUE_FIELDS) else None
        if row is None:
            bad += 1
            continue
        found.setdefault(row.id, []).append(row)
    return Accounting(tuple(_together(rows) for rows in found.values()), "", bad)


def _queued(cells: Sequence[str]) -> Optional[JobRow]:
    ident, account, qos, partition, submit, start, end, state, reason, tres, name = cells
    base, _, task = ident.partition("_")
    at = _time(submit)
    if not base.isdigit() or at is None:
        return None
    try:
        amounts: Dict[str, int] = parse_tres(tres)
    except (ValueError, KeyError, OverflowError):
        amounts = {}
    pending = state == "PENDING"
    return JobRow(
        base,
        account.lower(),
        qos.lower(),
        partition.lower(),
        name.rstrip(_SEPARATOR),
        at,
        # What squeue shows of a pending job is when it may start.
        None if pending else _time(start),
        None if pending or state in ("RUNNING", "COMPLETING") else _time(end),
        state,
        _none(reason) if pending else "",
        amounts,
        "",
        array_tasks(task),
    )


def known_jobs(accounting: Accounting, queued: Accounting) -> Tuple[JobRow, ...]:
    """Both together: what slurmctld says of a job now replaces what sacct says."""
    found = {job.id: job for job in accounting.jobs}
    for job in queued.jobs:
        old = found.get(job.id)
        if old is None:
            found[job.id] = job
        elif job.state == "PENDING":
            found[job.id] = old._replace(state=job.state, reason=job.reason or old.reason)
        elif old.start is None:
            found[job.id] = job._replace(tasks=old.tasks)
    return tuple(found.values())
