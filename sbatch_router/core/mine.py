"""My own use inside each scope: running jobs, pending ones, and promises."""

from __future__ import annotations

from .limits import NO_TIME_LIMIT, Usage
from .tres import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from .ledger import Promise
    from .snapshot import Job, Snapshot
    from .tres import Tres

#: Pending for one of these, a job takes no room until somebody acts or a time comes.
NOT_COMPETING = frozenset(("JobHeldUser", "JobHeldAdmin", "BeginTime", "DependencyNeverSatisfied"))


class _Load:
    """One job, array row or promise, in the form the sums need."""

    __slots__ = ("account", "at_once", "minutes", "partition", "qos", "running", "tres")

    def __init__(
        self,
        account: str,
        qos: str,
        partition: str,
        tres: Tres,
        at_once: int,
        minutes: int,
        running: bool,
    ) -> None:
        self.account = account
        self.qos = qos
        self.partition = partition
        self.tres = tres
        self.at_once = at_once
        self.minutes = minutes
        self.running = running


class Mine:
    """Sums my jobs and promises over any scope, once each."""

    def __init__(self, snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> None:
        self._known = not isinstance(snapshot.jobs, type(UNKNOWN))
        self._partition_qos: Dict[str, str] = {}
        if isinstance(snapshot.partitions, dict):
            self._partition_qos = {p.name: p.qos for p in snapshot.partitions.values() if p.qos}
        self._parents: Dict[str, str] = {}
        if isinstance(snapshot.assocs, dict):
            self._parents = {a.account: a.parent for a in snapshot.assocs.values() if not a.user}
        self._loads = [_of_promise(p) for p in ledger]
        if isinstance(snapshot.jobs, tuple):
            self._loads += [_of_job(j) for j in snapshot.jobs if j.reason not in NOT_COMPETING]
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
        running_jobs = waiting_jobs = 0
        for load in self._loads:
            if not self._inside(load, kind, name):
                continue
            if load.running:
                running_jobs += 1
                _add(running, load.tres, 1)
            else:
                waiting_jobs += load.at_once
                _add(waiting, load.tres, load.at_once)
                _add(minutes, load.tres, load.at_once * load.minutes)
        if not self._known:
            return Usage(UNKNOWN, waiting, UNKNOWN, waiting_jobs, minutes)
        return Usage(running, waiting, running_jobs, waiting_jobs, minutes)

    def _inside(self, load: _Load, kind: str, name: str) -> bool:
        if kind == "qos":
            return self._in_qos(load, name)
        if kind == "qos-account":
            qos, _, account = name.partition("/")
            return load.account == account and self._in_qos(load, qos)
        account, slash, _ = name.partition("/")
        if slash:
            return load.account == account
        return account in self._ancestry(load.account)

    def _in_qos(self, load: _Load, name: str) -> bool:
        return load.qos == name or self._partition_qos.get(load.partition) == name

    def _ancestry(self, account: str) -> List[str]:
        chain: List[str] = []
        while account and account not in chain:
            chain.append(account)
            account = self._parents.get(account, "")
        return chain


def _of_job(job: Job) -> _Load:
    running = job.state != "PENDING"
    at_once = job.tasks if job.tasks_at_once is None else min(job.tasks, job.tasks_at_once)
    limit = job.time_limit
    minutes = limit if isinstance(limit, int) else NO_TIME_LIMIT
    return _Load(job.account, job.qos, job.partition, job.tres, at_once, minutes, running)


def _of_promise(promise: Promise) -> _Load:
    return _Load(
        promise.account,
        promise.qos,
        promise.partition,
        promise.tres,
        promise.tasks_at_once,
        promise.minutes,
        False,
    )


def _add(total: Tres, tres: Tres, times: int) -> None:
    for name, amount in tres.items():
        total[name] = total.get(name, 0) + amount * times
