"""My own use inside each scope: running jobs, pending ones, and promises."""

from __future__ import annotations

from .place import Usage
from .snapshot import RUNS
from .tres import NO_TIME_LIMIT, UNKNOWN

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


class _Group:
    """All that I have in one account, QOS and partition: hundreds of jobs are few groups."""

    __slots__ = (
        "account", "minutes", "partitions", "promised", "qos", "running", "running_jobs",
        "running_minutes", "waiting", "waiting_jobs",
    )  # fmt: skip

    def __init__(self, account: str, qos: str, partition: str) -> None:
        self.account = account
        self.qos = qos
        #: A pending job may have several, and counts in the QOS of each.
        self.partitions = partition.split(",")
        self.running: Tres = {}
        self.running_minutes: Tres = {}
        self.running_jobs = 0
        self.waiting: Tres = {}
        self.minutes: Tres = {}
        self.waiting_jobs = 0
        #: Array tasks that slurmctld had not seen when the snapshot was taken.
        self.promised = 0

    def runs(self, tres: Tres, minutes: int) -> None:
        """Add a running job."""
        self.running_jobs += 1
        _add(self.running, tres, 1)
        _add(self.running_minutes, tres, minutes)

    def waits(self, tres: Tres, at_once: int, minutes: int) -> None:
        """Add `at_once` pending jobs."""
        self.waiting_jobs += at_once
        _add(self.waiting, tres, at_once)
        _add(self.minutes, tres, at_once * minutes)


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
        self._groups: Dict[Tuple[str, str, str], _Group] = {}
        for promise in ledger:
            group = self._group(promise.account, promise.qos, promise.partition)
            group.waits(promise.tres, promise.tasks_at_once, promise.minutes)
            group.promised += promise.tasks
        if isinstance(snapshot.jobs, tuple):
            self._add_jobs(snapshot.jobs, snapshot)
        self._sums: Dict[Tuple[str, str], Usage] = {}

    def _group(self, account: str, qos: str, partition: str) -> _Group:
        key = (account, qos, partition)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = _Group(*key)
        return found

    def _add_jobs(self, jobs: Tuple[Job, ...], snapshot: Snapshot) -> None:
        """What of my jobs counts: all that run, and the pending ones that compete for room."""
        tasks: Dict[str, int] = {}
        for job in jobs:
            if job.state != "PENDING":
                array, task, _ = job.id.partition("_")
                if task:
                    tasks[array] = tasks.get(array, 0) + 1
            if job.state in RUNS:
                # What is completing has given back all that limits count.
                self._group(job.account, job.qos, job.partition).runs(job.tres, _minutes(job))
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
                group = self._group(job.account, job.qos, job.partition)
                group.waits(job.tres, at_once, _minutes(job))

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
        for group in self._groups.values():
            if self._inside(group, kind, name):
                promised += group.promised
                running_jobs += group.running_jobs
                waiting_jobs += group.waiting_jobs
                _add(running, group.running, 1)
                _add(running_minutes, group.running_minutes, 1)
                _add(waiting, group.waiting, 1)
                _add(minutes, group.minutes, 1)
        if not self._known:
            return Usage(UNKNOWN, waiting, UNKNOWN, waiting_jobs, minutes, {}, promised)
        return Usage(
            running, waiting, running_jobs, waiting_jobs, minutes, running_minutes, promised
        )

    def _inside(self, group: _Group, kind: str, name: str) -> bool:
        if kind == "qos":
            return self._in_qos(group, name)
        if kind == "qos-account":
            qos, _, account = name.partition("/")
            return group.account == account and self._in_qos(group, qos)
        account, slash, rest = name.partition("/")
        if slash:
            # slurmctld charges the association of the job's partition, where there is one.
            partition = rest.partition("/")[2]
            return group.account == account and (not partition or partition in group.partitions)
        return account in self._ancestry(group.account)

    def _in_qos(self, group: _Group, name: str) -> bool:
        if group.qos == name:
            return True
        known = self._partition_qos
        return bool(known) and any(known.get(p) == name for p in group.partitions)

    def _ancestry(self, account: str) -> List[str]:
        chain: List[str] = []
        while account and account not in chain:
            chain.append(account)
            account = self._parents.get(account, "")
        return chain


def _hopeless(job: Job, snapshot: Snapshot) -> bool:
    """Whether a pending job asks for more than its QOS will ever give; it takes no room."""
    qos = snapshot.qos.get(job.qos) if isinstance(snapshot.qos, dict) else None
    limits = qos.limits.tres.get("GrpTRES", {}) if qos is not None else {}
    for tres, amount in job.tres.items():
        limit = limits.get(tres)
        if limit is not None and isinstance(limit.limit, int) and amount > limit.limit:
            return True
    return False


def _minutes(job: Job) -> int:
    limit = job.time_limit
    return limit if isinstance(limit, int) else NO_TIME_LIMIT


def _add(total: Tres, tres: Tres, times: int) -> None:
    for name, amount in tres.items():
        total[name] = total.get(name, 0) + amount * times
