"""The log of decisions, read back; and which of my jobs each decision became.

The shim becomes sbatch, so the log has no job id (but for `sbatch-router-submit`, which adds
it). A decision and a job are matched by account, QOS, name, size and time of submission; where
several fit, the match says so.
"""

from __future__ import annotations

import bisect
import json
import os
import stat
from datetime import datetime, timezone
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..core.decide import ELSEWHERE
from ._sacct import JobRow

#: A log larger than this is set aside by `rotate`; one old file is kept.
ROTATE_BYTES = 5 * 2**20
#: Of one file, this much is read, from its end.
MOST_BYTES = 32 * 2**20
#: A line longer than this is none of ours.
_LONGEST_LINE = 2**20
#: Seconds from a decision to the job's submission: slurmctld's clock may differ a little, and
#: a busy one keeps sbatch waiting.
_BEFORE, _USUAL, _AFTER = 2.0, 2.0, 30.0
#: Seconds in which `sbatch-router-submit` adds the id.
_ID_SECONDS = 600.0

_ACTIONS = ("route", "queue", "keep", "pass", "refuse")


class Entry(NamedTuple):
    """One decision, as it was logged. A field that was missing or broken is empty."""

    #: Seconds since the epoch.
    at: float
    pid: int
    action: str
    account: str
    qos: str
    rule: str
    why: str
    changed: Optional[bool]
    exit_code: int
    job_name: str
    tres: Mapping[str, int]
    array_tasks: int
    #: ``account/qos`` -> verdict, and -> Slurm's reason.
    verdicts: Mapping[str, str]
    reasons: Mapping[str, str]
    #: Where it was logged (`sbatch-router-submit`).
    job_id: str = ""
    #: ``account/qos`` that plain sbatch would have used; empty where it was not logged.
    unrouted: str = ""


class Log(NamedTuple):
    """What the files hold, oldest first."""

    entries: Tuple[Entry, ...]
    #: Lines that are no decision of ours.
    bad: int
    #: Files that were only read from the middle on, or could not be read, one clause each.
    troubles: Tuple[str, ...]
    #: Job id -> the account and QOS that `reroute` first took it from.
    moves: Mapping[str, Tuple[str, str]] = {}


def read_log(path: str, since: float = 0.0) -> Log:
    """The decisions since a time, from the old file and the current one. Never raises."""
    entries: List[Entry] = []
    bad = 0
    troubles: List[str] = []
    last: Dict[int, int] = {}
    moves: Dict[str, Tuple[str, str]] = {}
    for file in (path + ".1", path):
        for line in _lines(file, troubles):
            record = _record(line)
            if record is None:
                bad += 1
                continue
            at = _when(record.get("timestamp"))
            event = record.get("event")
            if event == "moved":
                place = (_text(record.get("from_account")), _text(record.get("from_qos")))
                moves.setdefault(_text(record.get("job_id")), place)
                continue
            if at is None or event not in ("decision", "submitted"):
                bad += at is None
                continue
            if at < since:
                continue
            pid = _int(record.get("pid"))
            if event == "decision":
                entry = _entry(record, at, pid)
                if entry is None:
                    bad += 1
                    continue
                last[pid] = len(entries)
                entries.append(entry)
            elif pid in last and 0 <= at - entries[last[pid]].at < _ID_SECONDS:
                ident = _text(record.get("job_id"))
                entries[last[pid]] = entries[last[pid]]._replace(job_id=ident)
    entries.sort(key=lambda entry: entry.at)
    return Log(tuple(entries), bad, tuple(troubles), moves)


def rotate(path: str) -> bool:
    """Set a large log aside, replacing the one set aside before; whether it was."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size <= ROTATE_BYTES:
            return False
        os.replace(path, path + ".1")
    except OSError:
        return False
    return True


def _lines(path: str, troubles: List[str]) -> Iterator[bytes]:
    """The lines of a regular file, from its end's last `MOST_BYTES` on."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        troubles.append(f"{path}: {error.strerror}")
        return
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        troubles.append(f"{path}: not a regular file")
        return
    with open(fd, "rb") as file:
        if found.st_size > MOST_BYTES:
            file.seek(found.st_size - MOST_BYTES)
            file.readline(_LONGEST_LINE)
            troubles.append(f"{path}: only its last {MOST_BYTES >> 20} MiB were read")
        while True:
            try:
                line = file.readline(_LONGEST_LINE)
            except OSError as error:
                troubles.append(f"{path}: {error.strerror}")
                return
            if not line:
                return
            if line.strip():
                yield line


def _record(line: bytes) -> Optional[Mapping[str, object]]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _entry(record: Mapping[str, object], at: float, pid: int) -> Optional[Entry]:
    action = _text(record.get("action"))
    if action not in _ACTIONS:
        return None
    changed = record.get("changed")
    return Entry(
        at,
        pid,
        action,
        _text(record.get("account")),
        _text(record.get("qos")),
        _text(record.get("rule")),
        _text(record.get("why")),
        changed if isinstance(changed, bool) else None,
        _int(record.get("exit_code")),
        _text(record.get("job_name")),
        {k: v for k, v in _mapping(record.get("tres")).items() if type(v) is int},
        max(1, _int(record.get("array_tasks"))),
        {k: _text(v) for k, v in _mapping(record.get("verdicts")).items()},
        {k: _text(v) for k, v in _mapping(record.get("reasons")).items()},
        unrouted=_text(record.get("unrouted")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _int(value: object) -> int:
    return value if type(value) is int else 0


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _when(value: object) -> Optional[float]:
    """``2026-11-30T03:21:05.123456Z`` as seconds since the epoch."""
    text = _text(value)
    try:
        found = datetime.fromisoformat(text[:-1] if text.endswith("Z") else text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=timezone.utc)
        return found.timestamp()
    except (ValueError, OverflowError):
        return None


# -- decisions and jobs --------------------------------------------------------------------------

#: How a decision and its job were brought together: by the logged id; by being the only ones
#: that fit each other; in the order of time among several that fit.
BY_ID, SURE, LIKELY = "id", "sure", "likely"


class Became(NamedTuple):
    """The job of a decision, and how sure that is."""

    job: JobRow
    match: str


def match(
    entries: Sequence[Entry],
    jobs: Sequence[JobRow],
    moves: Mapping[str, Tuple[str, str]] = {},
) -> List[Optional[Became]]:
    """For each decision the job it became; None where there is none, or none was found.

    `moves`: where jobs were before `reroute` took them elsewhere, as the decision has it.
    """
    ordered = sorted(jobs, key=lambda job: (job.submit, int(job.id)))
    by_id = {job.id: job for job in ordered}
    found: List[Optional[Became]] = [None] * len(entries)
    taken = set()
    for index, entry in enumerate(entries):
        if entry.job_id in by_id:
            found[index] = Became(by_id[entry.job_id], BY_ID)
            taken.add(entry.job_id)
    times = [job.submit for job in ordered]
    fitting: Dict[int, List[JobRow]] = {}
    wanted_by: Dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry.action == "refuse" or entry.job_id or entry.why.startswith(ELSEWHERE):
            continue
        low = bisect.bisect_left(times, int(entry.at - _BEFORE))
        high = bisect.bisect_right(times, entry.at + _AFTER)
        fit = [
            job
            for job in ordered[low:high]
            if job.id not in taken and fits(entry, _before(job, moves))
        ]
        # Earlier ones only if slurmctld's clock is behind: submission times are cut to seconds.
        fit = [job for job in fit if job.submit >= int(entry.at)] or fit
        fit = [job for job in fit if job.submit <= entry.at + _USUAL] or fit
        fitting[index] = fit
        for job in fit:
            wanted_by[job.id] = wanted_by.get(job.id, 0) + 1
    for index, fit in fitting.items():
        free = [job for job in fit if job.id not in taken]
        if not free:
            continue
        alone = len(fit) == 1 and wanted_by[fit[0].id] == 1
        found[index] = Became(free[0], SURE if alone else LIKELY)
        taken.add(free[0].id)
    return found


def _before(job: JobRow, moves: Mapping[str, Tuple[str, str]]) -> JobRow:
    account, qos = moves.get(job.id, (job.account, job.qos))
    return job._replace(account=account, qos=qos)


def fits(entry: Entry, job: JobRow) -> bool:
    """Whether a job can be the one of a decision; what is not known contradicts nothing."""
    if entry.account and entry.account != job.account:
        return False
    if entry.action == "pass" and entry.why.startswith("account "):
        # ``account NAME is not in the policy``: the job went there, or nowhere.
        named = entry.why.split()[1]
        if entry.why == f"account {named} is not in the policy" and named != job.account:
            return False
    if entry.qos and entry.qos != job.qos:
        return False
    if entry.job_name and entry.job_name != job.name:
        return False
    if (entry.array_tasks > 1) != (job.tasks > 1):
        return False
    if not entry.tres or not job.tres:
        return True
    gpus = entry.tres.get("gres/gpu", 0) == job.tres.get("gres/gpu", 0)
    return gpus and _near(entry.tres.get("mem", 0), job.tres.get("mem", 0))


def _near(mine: int, other: int) -> bool:
    """Equal memory, up to sacct's rounding (``97.66G``); 0 memory is "all of the node"."""
    return mine == other or not mine or not other or abs(mine - other) <= max(mine, other) // 100
