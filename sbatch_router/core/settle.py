"""Fit what was seen at slightly different moments together, so that each job counts once.

assoc_mgr's use, squeue's rows and our own promises come milliseconds (or, for squeue, up to
two cache intervals) apart, while jobs arrive, start and end. slurmctld also counts, with the
use and at the same instant, how many jobs of mine each account has submitted (GrpSubmitJobs)
and how many run (GrpJobs): with those two numbers the rows are brought to that instant.

Where the numbers leave a choice, the larger demand is taken: a job that is counted twice
makes another wait a cache interval, one that is not counted makes two share one slot.
"""

from __future__ import annotations

from .record import Record
from .snapshot import RUNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from .ledger import Promise
    from .snapshot import Job, Snapshot

#: A job id larger than any: nothing is newer.
NO_ID = 1 << 62


class Settled(Record):
    """Rows as of the snapshot's instant, and the promises that are still open."""

    jobs: Tuple[Job, ...]
    open: Tuple[Promise, ...]


def counts(snapshot: Snapshot) -> Dict[str, Tuple[int, int]]:
    """Account -> (jobs submitted, jobs running) of mine; accounts Slurm did not tell of are out."""
    found: Dict[str, Tuple[int, int]] = {}
    if not isinstance(snapshot.assocs, dict):
        return found
    unknown = set()
    for assoc in snapshot.assocs.values():
        if assoc.user != snapshot.user:
            continue
        submitted = assoc.limits.counts.get("GrpSubmitJobs")
        running = assoc.limits.counts.get("GrpJobs")
        if (
            submitted is None
            or running is None
            or not isinstance(submitted.used, int)
            or not isinstance(running.used, int)
        ):
            unknown.add(assoc.account)
            continue
        before = found.get(assoc.account, (0, 0))
        found[assoc.account] = (before[0] + submitted.used, before[1] + running.used)
    return {name: pair for name, pair in found.items() if name not in unknown}


def settle(
    snapshot: Snapshot, alive: Sequence[Promise], dead: Sequence[Promise], last_id: int
) -> Settled:
    """Rows and promises after a snapshot whose squeue ran beside its assoc_mgr.

    `alive`: promises whose sbatch ran when the asking began; `dead`: those whose sbatch had
    ended since the snapshot before, whose newest job was `last_id`.
    """
    assert isinstance(snapshot.jobs, tuple)
    open_ = _without_arrived(snapshot.jobs, alive, dead, last_id)
    jobs = list(snapshot.jobs)
    for account, (submitted, running) in counts(snapshot).items():
        mine = [job for job in jobs if job.account == account]
        seen = [job for job in mine if job.state in RUNS]
        ended = [job for job in mine if job.state not in RUNS and job.state != "PENDING"]
        for job in _newest(ended, max(0, running - len(seen))):
            # It ended after the use was counted.
            jobs[jobs.index(job)] = job._replace(state="RUNNING")
            seen.append(job)
        waiting = sum(job.tasks for job in mine if job.state == "PENDING")
        if len(seen) > running:
            # They started after the use was counted: to the limits they are still to come.
            for job in _newest(seen, len(seen) - running):
                jobs.append(job._replace(state="PENDING", reason="", tasks=1, tasks_at_once=None))
        elif len(seen) < running:
            # Rows that started before the use was counted, then jobs that were not listed yet.
            started = min(running - len(seen), max(0, waiting - (submitted - running)))
            jobs = _without_oldest(jobs, account, started)
            unlisted = min(running - len(seen) - started, max(0, submitted - len(seen) - waiting))
            open_ = _without_first(open_, account, unlisted)
    return Settled(tuple(jobs), tuple(open_))


def carry(
    snapshot: Snapshot, jobs: Sequence[Job], alive: Sequence[Promise], dead: Sequence[Promise]
) -> Settled:
    """Rows of an earlier squeue, and the promises since, brought to this snapshot's instant.

    Jobs start in the order in which they came, as far as we can know; of each account so many
    of the last ones wait as slurmctld says wait. Where it counts more jobs than rows and dead
    promises explain, promises that are still alive have arrived.
    """
    known = counts(snapshot)
    found: List[Job] = []
    open_: List[Promise] = []
    every = [*(j.account for j in jobs), *(p.account for p in dead), *(p.account for p in alive)]
    for account in dict.fromkeys(every):
        mine = [job for job in jobs if job.account == account]
        runs = [job for job in mine if job.state in RUNS]
        line = [job for job in mine if job.state == "PENDING"]
        line += [_row(promise) for promise in dead if promise.account == account]
        coming = [promise for promise in alive if promise.account == account]
        if account in known:
            submitted, running = known[account]
            surplus = submitted - len(runs) - sum(job.tasks for job in line)
            still = _without_first(coming, account, surplus)
            line += [_row(promise) for promise in coming if promise not in still]
            coming = still
            started, line = _split(line, max(0, submitted - running))
            runs = _newest([*runs, *started], running)
        found += [*runs, *line]
        open_ += coming
    return Settled(tuple(found), tuple(open_))


def unexplained(snapshot: Snapshot, jobs: Sequence[Job], promises: Sequence[Promise]) -> bool:
    """Whether slurmctld counts more jobs of mine than rows and promises make up.

    Then some were submitted past us: from another host, say, or with the router switched off.
    """
    known = dict.fromkeys(counts(snapshot), 0)
    for job in jobs:
        if job.account in known:
            known[job.account] += 1 if job.state in RUNS else job.tasks
    for promise in promises:
        if promise.account in known:
            known[promise.account] += promise.tasks
    return any(pair[0] > known[name] for name, pair in counts(snapshot).items())


def newest_id(jobs: Sequence[Job]) -> int:
    """The largest job id among rows; 0 without any."""
    return max([_number(job) for job in jobs] or [0])


def _number(job: Job) -> int:
    base = job.id.partition("_")[0].partition("+")[0]
    return int(base) if base.isdigit() else 0


def _newest(jobs: List[Job], count: int) -> List[Job]:
    return sorted(jobs, key=_number)[len(jobs) - count :] if count < len(jobs) else list(jobs)


def _without_oldest(jobs: List[Job], account: str, tasks: int) -> List[Job]:
    """Without the first `tasks` pending tasks of an account."""
    kept = []
    for job in sorted(jobs, key=_number):
        if tasks and job.account == account and job.state == "PENDING":
            taken = min(tasks, job.tasks)
            tasks -= taken
            if taken == job.tasks:
                continue
            job = job._replace(tasks=job.tasks - taken)
        kept.append(job)
    return kept


def _split(line: List[Job], waiting: int) -> Tuple[List[Job], List[Job]]:
    """(Rows that have started by now, rows of which `waiting` tasks still wait), oldest first."""
    surplus = sum(job.tasks for job in line) - waiting
    started: List[Job] = []
    kept: List[Job] = []
    for job in line:
        taken = max(0, min(surplus, job.tasks))
        surplus -= taken
        started += [job._replace(state="RUNNING", tasks=1)] * taken
        if taken < job.tasks:
            kept.append(job._replace(tasks=job.tasks - taken))
    return started, kept


def _without_first(promises: Sequence[Promise], account: str, tasks: int) -> List[Promise]:
    kept = []
    for promise in promises:
        if promise.account == account and 0 < promise.tasks <= tasks:
            tasks -= promise.tasks
            continue
        kept.append(promise)
    return kept


def _row(promise: Promise) -> Job:
    from .snapshot import Job

    return Job(
        "0",
        promise.account,
        promise.qos,
        promise.partition,
        "PENDING",
        "",
        promise.tres,
        promise.tasks,
        promise.tasks_at_once,
        promise.minutes,
    )


def _without_arrived(
    jobs: Sequence[Job], alive: Sequence[Promise], dead: Sequence[Promise], last_id: int
) -> List[Promise]:
    """The promises of `alive` whose jobs are not among the rows.

    Rows newer than `last_id` belong to `dead` promises first, whose jobs were there for sure;
    what is left over of one kind has arrived while its sbatch was still ending.
    """
    new: Dict[Tuple[object, ...], set[int]] = {}
    for job in jobs:
        if _number(job) > last_id:
            new.setdefault(_kind(job.account, job.qos, job.tres), set()).add(_number(job))
    left = {kind: len(numbers) for kind, numbers in new.items()}
    for promise in dead:
        kind = _kind(promise.account, promise.qos, promise.tres)
        left[kind] = left.get(kind, 0) - 1
    open_ = []
    for promise in alive:
        kind = _kind(promise.account, promise.qos, promise.tres)
        if left.get(kind, 0) > 0:
            left[kind] -= 1
        else:
            open_.append(promise)
    return open_


def _kind(account: str, qos: str, tres: Dict[str, int]) -> Tuple[object, ...]:
    """What a promise and its job have in common, whatever GPU type the job was given."""
    asked: Dict[str, Optional[int]] = {
        name: amount for name, amount in tres.items() if name in ("cpu", "mem", "node", "gres/gpu")
    }
    return (account, qos, tuple(sorted(asked.items())))
