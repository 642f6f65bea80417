"""One candidate's place among the limits: whose they are, and how they are read.

Shared by what happens at submission (submission.py) and at the start of a job (limits.py).
"""

from __future__ import annotations

from .record import Record
from .snapshot import Scope
from .tres import NO_LIMIT, UNKNOWN, Limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Set, Tuple, Union

    from .request import Need
    from .snapshot import Assoc, Config, Partition, Qos
    from .tres import Amount, Tres, Unknown

    #: Limit kind -> the TRES that a stronger level has limited already.
    Hidden = Dict[str, Set[str]]

SUBMIT = "submit"
START = "start"

#: The release that began to enforce MaxTRESRunMinsPerUser and ...PerAccount.
RUN_MINUTES_SINCE = (24, 5)


class Check(Record):
    """One limit against one job: the job is held (or refused) when used + requested > limit."""

    #: SUBMIT (sbatch is refused) or START (the job is held, with `reason`).
    stage: str
    reason: str
    #: Slurm's name of the limit (``GrpTRES``), and the TRES (``mem``; empty for a count).
    kind: str
    tres: str
    #: ``qos clive``, ``account dept``, ``user alice in qos clive``, ``partition main``.
    where: str
    limit: int
    #: By running jobs of all whom the limit covers (0 for a limit on one job).
    used: Amount
    #: Of `used`, by me.
    mine: Amount
    #: By my pending jobs and by what was promised since the snapshot.
    promised: int
    requested: int
    #: The same for all the tasks of an array that may run at once.
    requested_all: int
    #: A lower bound (MinTRESPJ): held when requested < limit.
    minimum: bool = False
    #: False: the job may come to ask for less, as its time limit may be lowered.
    sure: bool = True

    def held_by_running(self) -> bool:
        """Whether running jobs alone make this limit hold the job now."""
        if self.minimum:
            return self.requested < self.limit
        return self.requested > 0 and amount(self.used) + self.requested > self.limit

    def never(self) -> bool:
        """Whether the request breaks this limit on an empty cluster."""
        if self.minimum:
            return self.requested < self.limit
        return self.requested > self.limit

    def held(self, requested: int) -> bool:
        """Whether it holds `requested` when all that I queued or promised comes first."""
        if self.minimum or not requested:
            return self.never()
        return amount(self.used) + self.promised + requested > self.limit

    def held_by_others(self) -> bool:
        """Whether it would hold the job even if I had no job of my own."""
        if self.minimum or not self.requested:
            return self.never()
        others = amount(self.used) - min(amount(self.mine), amount(self.used))
        return others + self.requested > self.limit

    def room(self) -> int:
        """What is left of the limit, after running jobs, my pending ones and promises."""
        return self.limit - amount(self.used) - self.promised


def amount(value: Amount) -> int:
    """The number, or 0 where there is none."""
    return value if isinstance(value, int) else 0


class Usage(Record):
    """My own use inside one scope: running, and waiting (pending jobs and promises)."""

    running: Union[Tres, Unknown]
    waiting: Tres
    running_jobs: Union[int, Unknown]
    waiting_jobs: int
    #: TRES-minutes that what is waiting will ask for, and that what runs has asked for.
    waiting_minutes: Tres
    running_minutes: Tres = {}
    #: Array tasks promised since the snapshot (it counts all that were submitted before).
    promised_tasks: int = 0


class Place(Record):
    """One candidate's records: what its job would be charged to."""

    qos: Optional[Qos]
    partition: Partition
    partition_qos: Optional[Qos]
    #: The user's association, then its accounts up to the root.
    chain: Tuple[Assoc, ...]
    config: Config
    user: str
    #: The cluster has one node: node limits that count distinct nodes cannot hold a second job.
    one_node: bool = False


def qos_order(place: Place) -> Tuple[Qos, ...]:
    """The QOS whose limits count, strongest first (acct_policy_set_qos_order)."""
    job, part = place.qos, place.partition_qos
    if job is None or part is None:
        return tuple(q for q in (part, job) if q is not None)
    if job.name == part.name:
        return (job,)
    return (job, part) if has_flag(job, "overpartqos") else (part, job)


def has_flag(qos: Optional[Qos], flag: str) -> bool:
    """Whether a QOS is known to have a flag (lower case)."""
    return qos is not None and isinstance(qos.flags, frozenset) and flag in qos.flags


class Reader:
    """Reads one candidate's limits; what is not known becomes a doubt."""

    def __init__(
        self,
        place: Place,
        need: Need,
        tasks: int,
        tasks_at_once: int,
        usage: Callable[[str, str], Usage],
    ) -> None:
        self.place = place
        self.need = need
        self.tasks = tasks
        self.at_once = tasks_at_once
        self.usage = usage
        self.order = qos_order(place)
        self.doubts: List[str] = []
        self.account = place.chain[0].account if place.chain else ""
        self.enforced_run_minutes = place.config.release >= RUN_MINUTES_SINCE
        #: DenyOnLimit on either QOS; without a QOS it is as if it were set.
        self.strict = not self.order or any(has_flag(q, "denyonlimit") for q in self.order)
        self._rows: Dict[Tuple[str, bool], Scope] = {}

    def limit_factor(self) -> float:
        """LimitFactor of the first QOS that has one; it scales association limits only."""
        for qos in self.order:
            factor = qos.limit_factor
            if isinstance(factor, (int, float)):
                return factor if factor > 0 else 1.0
        return 1.0

    def count(self, scope: Scope, kind: str, where: str) -> Optional[Limit]:
        """A limit on jobs or wall time, or None where there is none."""
        limit = scope.counts.get(kind)
        if limit is None or limit.limit is UNKNOWN:
            self.doubts.append(f"{kind} of {where} is not known")
            return None
        if limit.limit is None:
            return None
        if limit.used is UNKNOWN:
            self.doubts.append(f"the use of {kind} of {where} is not known")
            return None
        return limit

    def kind(self, scope: Scope, kind: str, where: str) -> Dict[str, Limit]:
        """The TRES limits of one kind; none where the kind is not known."""
        found = scope.tres.get(kind)
        if found is None:
            self.doubts.append(f"{kind} of {where} is not known")
            return {}
        return found

    def row(self, qos: Qos, per_user: bool) -> Scope:
        """My row (or my account's) inside a QOS: limits and use per user or account.

        A user who has not used the QOS has no row; the limits are then those sacctmgr shows.
        """
        key = (qos.name, per_user)
        if key not in self._rows:
            self._rows[key] = self._row(qos, per_user)
        return self._rows[key]

    def _row(self, qos: Qos, per_user: bool) -> Scope:
        rows = qos.users if per_user else qos.accounts
        row = rows.get(self.place.user if per_user else self.account)
        defaults = qos.defaults
        if row is not None:
            return _completed(row, defaults) if isinstance(defaults, Scope) else row
        who = "user" if per_user else "account"
        if has_flag(qos, "relative"):
            # sacctmgr shows percentages; only slurmctld knows of what.
            self.doubts.append(f"the limits per {who} of qos {qos.name} are relative")
            return Scope({}, {})
        if isinstance(defaults, Scope):
            return defaults
        self.doubts.append(f"the limits per {who} of qos {qos.name} are not known")
        return Scope({}, {})

    def user_row(self, qos: Qos) -> Tuple[Scope, str, Usage]:
        """(limits, where, my use) of me inside a QOS."""
        where = f"user {self.place.user} in qos {qos.name}"
        return self.row(qos, True), where, self.usage("qos", qos.name)

    def account_row(self, qos: Qos) -> Tuple[Scope, str, Usage]:
        """(limits, where, my use) of my account inside a QOS."""
        where = f"account {self.account} in qos {qos.name}"
        usage = self.usage("qos-account", f"{qos.name}/{self.account}")
        return self.row(qos, False), where, usage


def _completed(row: Scope, defaults: Scope) -> Scope:
    """A row with the limit kinds that this release does not print in it; their use is unknown.

    22.05 prints no MaxTRESRunMinsPU and ...PA.
    """
    missing = [kind for kind in defaults.tres if kind not in row.tres]
    if not missing:
        return row
    tres = dict(row.tres)
    for kind in missing:
        limits = defaults.tres[kind]
        tres[kind] = {name: Limit(limit.limit, UNKNOWN) for name, limit in limits.items()}
    return Scope(tres, row.counts)


def assoc_name(assoc: Assoc) -> str:
    """``account dept`` or ``user alice in account clive``."""
    if not assoc.user:
        return "account " + assoc.account
    where = f"user {assoc.user} in account {assoc.account}"
    return f"{where} on partition {assoc.partition}" if assoc.partition else where


def usage_key(assoc: Assoc) -> str:
    """The name under which `usage` knows an association: ACCOUNT, or ACCOUNT/USER/PARTITION."""
    if not assoc.user:
        return assoc.account
    return f"{assoc.account}/{assoc.user}/{assoc.partition}"


__all__ = ["NO_LIMIT", "START", "SUBMIT", "Check", "Place", "Reader", "Usage"]
