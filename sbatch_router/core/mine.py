"""My own use inside each scope: running jobs, pending ones, and promises."""

from __future__ import annotations

from .place import NO_TIME_LIMIT, Usage
from .tres import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from .ledger import Promise
    from .snapshot import Job, Snapshot
    from .tres import Tres

#: Pending for one of these, a job takes no room until somebody acts or a time comes.
NOT_COMPETING = frozenset(
    ("JobHeldUser", "JobHeldAdmin", "BeginTime", "Dependency", "DependencyNeverSatisfied")
)


class _Load:
    """One job, array row or promise, in the form the sums need."""

    __slots__ = (
        "account", "at_once", "minutes", "partitions", "promised", "qos", "running", "tres",
    )  # fmt: skip

    def __init__(
        self,
        account: str,
        qos: str,
        partition: str,
        tres: Tres,
        at_once: int,
        minutes: int,
        running: bool,
        promised: int,
    ) -> None:
        self.account = account
        self.qos = qos
        #: A pending job may have several, and counts in the QOS of each.
        self.partitions = partition.split(",")
        self.tres = tres
        self.at_once = at_once
        self.minutes = minutes
        self.running = running
        #: Array tasks that slurmctld had not seen when the snapshot was taken.
        self.promised = promised


class Mine:
    """Sums my jobs and promises over any scope, once each."""

    def __init__(self, snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> None:
        self._known = isinstance(snapshot.jobs, tuple)
        self._partition_qos: Dict[str, str] = {}
        if isinstance(snapshot.partitions, dict):
            self._partition_qos = {p.name: p.qos for p in snapshot.partitions.values() if p.qos}
        self._parents: Dict[str, str] = {}
        if isinstance(snapshot.assocs, dict):
            self._parents = {a.account: a.parent for a in snapshot.assocs.values() if not a.user}
        self._loads = [_of_promise(p) for p in ledger]
        if isinstance(snapshot.jobs, tuple):
            self._loads += _of_jobs(snapshot.jobs, snapshot)
        self._sums: Dict[Tuple[str, str], Usage] = {}

    def usage(self, kind: str, name: str) -> Usage:
        """My use of ``("qos", name)``, ``("account", name)`` or ``("qos-account", "Q/A")``.

        An ``account`` name with a slash is a user's own association in that account.
        """
        found = self._sums.get((kind, name))
        if found is None:
            found = self._sums[kind, name] = self._sum(kind, name)
        return found

    def _sum(self, kind: str, name: str) -> Usage:
        running: Tres = {}
        waiting: Tres = {}
        minutes: Tres = {}
        running_minutes: Tres = {}
        running_jobs = waiting_jobs = promised = 0
        for load in self._loads:
            if not self._inside(load, kind, name):
                continue
            promised += load.promised
            if load.running:
                running_jobs += 1
                _add(running, load.tres, 1)
                _add(running_minutes, load.tres, load.minutes)
            else:
                waiting_jobs += load.at_once
                _add(waiting, load.tres, load.at_once)
                _add(minutes, load.tres, load.at_once * load.minutes)
        if not self._known:
            return Usage(UNKNOWN, waiting, UNKNOWN, waiting_jobs, minutes, {}, promised)
        return Usage(
            running, waiting, running_jobs, waiting_jobs, minutes, running_minutes, promised
        )

    def _inside(self, load: _Load, kind: str, name: str) -> bool:
        if kind == "qos":
            return self._in_qos(load, name)
        if kind == "qos-account":
            qos, _, account = name.partition("/")
            return load.account == account and self._in_qos(load, qos)
        account, slash, rest = name.partition("/")
        if slash:
            # slurmctld charges the association of the job's partition, where there is one.
            partition = rest.partition("/")[2]
            return load.account == account and (not partition or partition in load.partitions)
        return account in self._ancestry(load.account)

    def _in_qos(self, load: _Load, name: str) -> bool:
        if load.qos == name:
            return True
        known = self._partition_qos
        return bool(known) and any(known.get(p) == name for p in load.partitions)

    def _ancestry(self, account: str) -> List[str]:
        chain: List[str] = []
        while account and account not in chain:
            chain.append(account)
            account = self._parents.get(account, "")
        return chain


def _of_jobs(jobs: Tuple[Job, ...], snapshot: Snapshot) -> List[_Load]:
    """What of my jobs counts: all that run, and the pending ones that compete for room."""
    loads = []
    tasks: Dict[str, int] = {}
    for job in jobs:
        if job.state != "PENDING":
            array, task, _ = job.id.partition("_")
            if task:
                tasks[array] = tasks.get(array, 0) + 1
            loads.append(_of_job(job, 1, True))
    for job in jobs:
        if (
            job.state == "PENDING"
            and job.reason not in NOT_COMPETING
            and not _hopeless(job, snapshot)
        ):
            at_once = job.tasks
            if job.tasks_at_once is not None:
                # The array's `%` counts its running tasks, which are rows of their own.
                left = job.tasks_at_once - tasks.get(job.id.partition("_")[0], 0)
                at_once = max(0, min(job.tasks, left))
            loads.append(_of_job(job, at_once, False))
    return loads


def _hopeless(job: Job, snapshot: Snapshot) -> bool:
    """Whether a pending job asks for more than its QOS will ever give; it takes no room."""
    qos = snapshot.qos.get(job.qos) if isinstance(snapshot.qos, dict) else None
    limits = qos.limits.tres.get("GrpTRES", {}) if qos is not None else {}
    for tres, amount in job.tres.items():
        limit = limits.get(tres)
        if limit is not None and isinstance(limit.limit, int) and amount > limit.limit:
            return True
    return False


def _of_job(job: Job, at_once: int, running: bool) -> _Load:
    limit = job.time_limit
    minutes = limit if isinstance(limit, int) else NO_TIME_LIMIT
    return _Load(job.account, job.qos, job.partition, job.tres, at_once, minutes, running, 0)


def _of_promise(promise: Promise) -> _Load:
    return _Load(
        promise.account,
        promise.qos,
        promise.partition,
        promise.tres,
        promise.tasks_at_once,
        promise.minutes,
        False,
        promise.tasks,
    )


def _add(total: Tres, tres: Tres, times: int) -> None:
    for name, amount in tres.items():
        total[name] = total.get(name, 0) + amount * times
