"""Every limit that can hold or refuse one job on one candidate, in slurmctld's own order.

The order decides the reason that squeue shows; which limit hides which decides the verdict.
Source: Slurm's src/slurmctld/acct_policy.c (acct_policy_validate at submission, then
..._job_runnable_pre_select, ..._get_max_nodes and ..._job_runnable_post_select) and the man
page section "Resource Limits". docs/limits.md lists what is understood.
"""

from __future__ import annotations

from .reasons import count_reason, tres_reason
from .record import Record
from .snapshot import Scope
from .tres import NO_LIMIT, UNKNOWN, Limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Set, Tuple, Union

    from .request import Need
    from .snapshot import Assoc, Config, Partition, Qos
    from .tres import Amount, Tres, Unknown

    Hidden = Dict[str, Set[str]]

#: What slurmctld multiplies by when a job has no time limit (slurm.h INFINITE).
NO_TIME_LIMIT = 0xFFFFFFFF

SUBMIT = "submit"
START = "start"


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

    def held_by_running(self) -> bool:
        """Whether running jobs alone make this limit hold the job now."""
        if self.minimum:
            return self.requested < self.limit
        return self.requested > 0 and _int(self.used) + self.requested > self.limit

    def never(self) -> bool:
        """Whether the request breaks this limit on an empty cluster."""
        if self.minimum:
            return self.requested < self.limit
        return self.requested > self.limit

    def held(self, requested: int) -> bool:
        """Whether it holds `requested` when all that I queued or promised comes first."""
        if self.minimum or not requested:
            return self.never()
        return _int(self.used) + self.promised + requested > self.limit

    def held_by_others(self) -> bool:
        """Whether it would hold the job even if I had no job of my own."""
        if self.minimum or not self.requested:
            return self.never()
        others = _int(self.used) - min(_int(self.mine), _int(self.used))
        return others + self.requested > self.limit

    def room(self) -> int:
        """What is left of the limit, after running jobs, my pending ones and promises."""
        return self.limit - _int(self.used) - self.promised


def _int(amount: Amount) -> int:
    return amount if isinstance(amount, int) else 0


class Usage(Record):
    """My own use inside one scope: running, and waiting (pending jobs and promises)."""

    running: Union[Tres, Unknown]
    waiting: Tres
    running_jobs: Union[int, Unknown]
    waiting_jobs: int
    waiting_minutes: Tres


class Place(Record):
    """One candidate's records: what its job would be charged to."""

    qos: Optional[Qos]
    partition: Partition
    partition_qos: Optional[Qos]
    #: The user's association, then its accounts up to the root.
    chain: Tuple[Assoc, ...]
    config: Config
    user: str


class Limits(Record):
    """The checks of one candidate, in slurmctld's order, and what could not be judged."""

    checks: Tuple[Check, ...]
    doubts: Tuple[str, ...]
    #: DenyOnLimit on either QOS: what exceeds a limit by itself is refused at submission.
    strict: bool


def qos_order(place: Place) -> Tuple[Qos, ...]:
    """The QOS whose limits count, strongest first (acct_policy_set_qos_order)."""
    job, part = place.qos, place.partition_qos
    if job is None or part is None:
        return tuple(q for q in (part, job) if q is not None)
    if job.name == part.name:
        return (job,)
    flags = job.flags
    if not isinstance(flags, frozenset):
        return (part, job)
    return (job, part) if "overpartqos" in flags else (part, job)


def limits(
    place: Place,
    need: Need,
    tasks: int,
    tasks_at_once: int,
    usage: Callable[[str, str], Usage],
) -> Limits:
    """All checks for a job of `need` (an array of `tasks`, `tasks_at_once` of them running).

    `usage(scope kind, name)` gives my own use inside ``("qos", name)``, ``("account", name)``,
    or ``("qos-account", "QOS/ACCOUNT")``.
    """
    return _Builder(place, need, tasks, tasks_at_once, usage).build()


class _Builder:
    """Collects checks; `hidden` remembers what a stronger level has already set."""

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
        self.safe = "safe" in place.config.enforce
        self.strict = any(
            isinstance(q.flags, frozenset) and "denyonlimit" in q.flags for q in self.order
        )
        self.factor = self._limit_factor()
        self.minutes = self._minutes()

    def build(self) -> Limits:
        if any(q.flags is UNKNOWN for q in self.order):
            self.doubts.append("the QOS flags are not known (sacctmgr did not tell)")
        checks = self._submit() + self._before_nodes() + self._nodes() + self._after_nodes()
        return Limits(tuple(checks), tuple(self.doubts), self.strict)

    # -- what the limits are multiplied with ------------------------------------------------

    def _limit_factor(self) -> float:
        """LimitFactor of the first QOS that has one; it scales association limits only."""
        for qos in self.order:
            if isinstance(qos.limit_factor, float) and qos.limit_factor > 0:
                return qos.limit_factor
        return 1.0

    def _minutes(self) -> int:
        """The time limit slurmctld computes with.

        A job without one gets the least of the wall limits at submission (_set_time_limit),
        under DenyOnLimit also what the minute limits leave; else the partition's default.
        """
        if self.need.time_given:
            given = self.need.time_limit
            minutes = given if isinstance(given, int) else NO_TIME_LIMIT
        else:
            caps = self._wall_caps()
            if self.strict:
                caps += self._minute_caps()
            default = self.place.partition.default_time
            caps = caps or [default if isinstance(default, int) else NO_TIME_LIMIT]
            minutes = min(caps)
        return minutes

    def _scopes(self) -> List[Scope]:
        return [q.limits for q in self.order] + [a.limits for a in self.place.chain]

    def _wall_caps(self) -> List[int]:
        caps = []
        for kind in ("MaxWallPJ", "GrpWall"):
            hidden = False
            for qos in self.order:
                limit = qos.limits.counts.get(kind, NO_LIMIT).limit
                if isinstance(limit, int) and not hidden:
                    caps.append(limit)
                    hidden = True
        return caps

    def _minute_caps(self) -> List[int]:
        caps = []
        for scope in self._scopes():
            for kind in ("MaxTRESMinsPJ", "GrpTRESMins", "GrpTRESRunMins"):
                for tres, limit in scope.tres.get(kind, {}).items():
                    asked = self.need.tres.get(tres, 0)
                    if isinstance(limit.limit, int) and asked:
                        caps.append(limit.limit // asked)
        return caps

    # -- reading limits --------------------------------------------------------------------

    def _count(self, scope: Scope, kind: str, where: str) -> Optional[Limit]:
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

    def _row(self, qos: Qos, per_user: bool) -> Scope:
        """My row (or my account's) inside a QOS: limits and use per user or account.

        A user who has not used the QOS has no row; the limits are then those sacctmgr shows.
        """
        rows = qos.users if per_user else qos.accounts
        row = rows.get(self.place.user if per_user else self._account())
        if row is not None:
            return _completed(row, qos.defaults) if isinstance(qos.defaults, Scope) else row
        if isinstance(qos.defaults, Scope):
            return qos.defaults
        who = "user" if per_user else "account"
        self.doubts.append(f"the limits per {who} of qos {qos.name} are not known")
        return Scope({}, {})

    def _account(self) -> str:
        return self.place.chain[0].account if self.place.chain else ""

    # -- building checks -------------------------------------------------------------------

    def _count_check(
        self, stage: str, level: str, kind: str, where: str, limit: Limit, usage: Usage
    ) -> Check:
        submit = stage == SUBMIT
        # GrpSubmitJobs and its kin count pending jobs as used already.
        waiting = 0 if submit else usage.waiting_jobs
        return Check(
            stage,
            count_reason(level, kind),
            kind,
            "",
            where,
            _int(limit.limit),
            limit.used if limit.used is not None else 0,
            usage.running_jobs,
            waiting,
            self.tasks if submit else 1,
            self.tasks if submit else self.at_once,
        )

    def _wall_check(self, level: str, kind: str, where: str, limit: Limit) -> Check:
        """MaxWallPJ, and GrpWall (used: minutes spent; `safe` adds the job's own)."""
        if kind == "MaxWallPJ":
            used, asked = 0, self.minutes
        else:
            used, asked = _int(limit.used), self.minutes if self.safe else 1
        return Check(
            START,
            count_reason(level, kind),
            kind,
            "",
            where,
            _int(limit.limit),
            used,
            0,
            0,
            asked,
            asked,
        )

    def _tres_checks(
        self,
        level: str,
        kind: str,
        where: str,
        limits: Dict[str, Limit],
        hidden: Set[str],
        usage: Optional[Usage],
        scale: float = 1.0,
    ) -> List[Check]:
        """One check a TRES that is limited here, not hidden, and asked for (or a minimum)."""
        checks = []
        minutes = "Mins" in kind
        minimum = kind == "MinTRESPJ"
        for tres, limit in limits.items():
            if limit.limit is None or tres in hidden:
                continue
            if limit.limit is UNKNOWN:
                self.doubts.append(f"{kind} {tres} of {where} is not known")
                continue
            asked = self.need.tres.get(tres, 0)
            if not asked and not minimum:
                continue
            if tres in self.need.later:
                self.doubts.append(f"{tres} is settled when the job starts, and {where} limits it")
            if usage is not None and limit.used is UNKNOWN:
                self.doubts.append(f"the use of {kind} {tres} of {where} is not known")
                continue
            if kind == "MaxTRESPN":
                asked //= max(1, self.need.tres.get("node", 1))
            bound = _int(limit.limit)
            if scale != 1.0:
                bound = int(bound * scale)
            total = asked * self.at_once
            if minutes:
                asked *= self.minutes
                total *= self.minutes
            used: Amount = 0
            mine: Amount = 0
            waiting = 0
            if usage is not None:
                used = limit.used if limit.used is not None else 0
                mine, waiting = self._mine(usage, tres, minutes)
                if tres == "node" and not minutes:
                    # Distinct nodes count: a job may share nodes that are counted already.
                    waiting, total = 0, asked
                    if self._shares_nodes(_int(used), asked, bound, where):
                        continue
            checks.append(
                Check(
                    START,
                    tres_reason(level, kind, tres),
                    kind,
                    tres,
                    where,
                    bound,
                    used,
                    mine,
                    waiting,
                    asked,
                    total if usage is not None else asked,
                    minimum,
                )
            )
        return checks

    def _shares_nodes(self, used: int, asked: int, bound: int, where: str) -> bool:
        """Whether a node limit cannot hold the job, since its nodes may be counted already.

        With one node there is no doubt; with more it depends on where the job is placed.
        """
        if not used or used + asked <= bound or asked > bound:
            return False
        if self.place.partition.total_nodes != 1:
            self.doubts.append(f"the node limit of {where} depends on which nodes are picked")
        return True

    def _mine(self, usage: Usage, tres: str, minutes: bool) -> Tuple[Amount, int]:
        if minutes:
            return 0, usage.waiting_minutes.get(tres, 0)
        running = usage.running
        mine: Amount = running.get(tres, 0) if isinstance(running, dict) else UNKNOWN
        return mine, usage.waiting.get(tres, 0)

    def _spent_checks(
        self,
        level: str,
        where: str,
        limits: Dict[str, Limit],
        running: Dict[str, Limit],
        hidden: Set[str],
    ) -> List[Check]:
        """GrpTRESMins: held once the minutes are spent; `safe` wants the job's own as well."""
        checks = []
        for tres, limit in limits.items():
            if limit.limit is None or tres in hidden or not self.need.tres.get(tres, 0):
                continue
            if limit.limit is UNKNOWN or limit.used is UNKNOWN:
                self.doubts.append(f"GrpTRESMins {tres} of {where} is not known")
                continue
            used, asked = _int(limit.used), 1
            if self.safe:
                used += _int(running.get(tres, NO_LIMIT).used)
                asked = self.need.tres[tres] * self.minutes
            checks.append(
                Check(
                    START,
                    tres_reason(level, "GrpTRESMins", tres),
                    "GrpTRESMins",
                    tres,
                    where,
                    _int(limit.limit),
                    used,
                    0,
                    0,
                    asked,
                    asked,
                )
            )
        return checks

    # -- the four stages -------------------------------------------------------------------

    def _submit(self) -> List[Check]:
        """Limits on submitted jobs: they refuse, whatever the flags (acct_policy_validate)."""
        checks: List[Check] = []
        hidden: Set[str] = set()
        for qos in self.order:
            where = "qos " + qos.name
            rows = (
                ("GrpSubmitJobs", qos.limits, where, self.usage("qos", qos.name)),
                self._account_row(qos, "MaxSubmitJobsPA"),
                self._user_row(qos, "MaxSubmitJobsPU"),
            )
            for kind, scope, place, usage in rows:
                limit = self._count(scope, kind, place)
                if limit is not None and kind not in hidden:
                    hidden.add(kind)
                    checks.append(self._count_check(SUBMIT, "qos", kind, place, limit, usage))
        for number, assoc in enumerate(self.place.chain):
            where = _assoc_name(assoc)
            usage = self.usage("account", _usage_key(assoc))
            limit = self._count(assoc.limits, "GrpSubmitJobs", where)
            if limit is not None and "GrpSubmitJobs" not in hidden:
                checks.append(
                    self._count_check(SUBMIT, "assoc", "GrpSubmitJobs", where, limit, usage)
                )
            if number == 0 and not hidden & {"MaxSubmitJobsPA", "MaxSubmitJobsPU"}:
                limit = self._count(assoc.limits, "MaxSubmitJobs", where)
                if limit is not None:
                    checks.append(
                        self._count_check(SUBMIT, "assoc", "MaxSubmitJobs", where, limit, usage)
                    )
        return checks

    def _user_row(self, qos: Qos, kind: str) -> Tuple[str, Scope, str, Usage]:
        where = f"user {self.place.user} in qos {qos.name}"
        return kind, self._row(qos, True), where, self.usage("qos", qos.name)

    def _account_row(self, qos: Qos, kind: str) -> Tuple[str, Scope, str, Usage]:
        account = self._account()
        where = f"account {account} in qos {qos.name}"
        usage = self.usage("qos-account", f"{qos.name}/{account}")
        return kind, self._row(qos, False), where, usage

    def _before_nodes(self) -> List[Check]:
        """Limits on running jobs and on wall time (acct_policy_job_runnable_pre_select)."""
        checks: List[Check] = []
        hidden: Set[str] = set()
        for qos in self.order:
            where = "qos " + qos.name
            usage = self.usage("qos", qos.name)
            rows = (
                ("GrpJobs", qos.limits, where, usage),
                ("GrpWall", qos.limits, where, usage),
                self._account_row(qos, "MaxJobsPA"),
                self._user_row(qos, "MaxJobsPU"),
                ("MaxWallPJ", qos.limits, where, usage),
            )
            for kind, scope, place, mine in rows:
                limit = self._count(scope, kind, place)
                if limit is None or kind in hidden:
                    continue
                hidden.add(kind)
                checks.append(self._jobs_or_wall("qos", kind, place, limit, mine))
        for number, assoc in enumerate(self.place.chain):
            where = _assoc_name(assoc)
            usage = self.usage("account", _usage_key(assoc))
            kinds = ["GrpJobs", "GrpWall"]
            if number == 0:
                # Max limits of parents have been handed down to the user's record already.
                if not hidden & {"MaxJobsPA", "MaxJobsPU"}:
                    kinds.append("MaxJobs")
                kinds.append("MaxWallPJ")
            for kind in kinds:
                limit = self._count(assoc.limits, kind, where)
                if limit is not None and kind not in hidden:
                    checks.append(self._jobs_or_wall("assoc", kind, where, limit, usage))
        return checks

    def _jobs_or_wall(self, level: str, kind: str, where: str, limit: Limit, usage: Usage) -> Check:
        if "Wall" in kind:
            return self._wall_check(level, kind, where, limit)
        return self._count_check(START, level, kind, where, limit, usage)

    def _nodes(self) -> List[Check]:
        """The least node limit, without its use (acct_policy_get_max_nodes)."""
        best, qos_max, grp_known = self._least_qos_nodes()
        for number, assoc in enumerate(self.place.chain):
            where = _assoc_name(assoc)
            grp = self._node_limit(assoc.limits, "GrpTRES", self.factor)
            stop = False
            if grp is not None and not grp_known and (best is None or grp < best[0]):
                best = (grp, "assoc", "GrpTRES", where)
                stop = True
            most = self._node_limit(assoc.limits, "MaxTRESPJ", self.factor)
            if (
                number == 0
                and not qos_max
                and most is not None
                and (best is None or most < best[0])
            ):
                best = (most, "assoc", "MaxTRESPJ", where)
            if stop:
                break
        if best is None:
            return []
        bound, level, kind, where = best
        asked = self.need.tres.get("node", 1)
        reason = tres_reason(level, kind, "node")
        return [Check(START, reason, kind, "node", where, bound, 0, 0, 0, asked, asked)]

    def _node_limit(self, scope: Scope, kind: str, scale: float = 1.0) -> Optional[int]:
        limit = scope.tres.get(kind, {}).get("node", NO_LIMIT).limit
        return int(limit * scale) if isinstance(limit, int) else None

    def _least_qos_nodes(self) -> Tuple[Optional[Tuple[int, str, str, str]], bool, bool]:
        """The least of the QOS node limits; whether a Max one and a Grp one are set."""
        limits: Dict[str, Tuple[int, str]] = {}
        for qos in self.order:
            scopes = (
                ("MaxTRESPA", self._row(qos, False)),
                ("MaxTRESPJ", qos.limits),
                ("MaxTRESPU", self._row(qos, True)),
                ("GrpTRES", qos.limits),
            )
            for kind, scope in scopes:
                bound = self._node_limit(scope, kind)
                if bound is not None and kind not in limits:
                    limits[kind] = (bound, "qos " + qos.name)
        best: Optional[Tuple[int, str, str, str]] = None
        for kind in ("MaxTRESPA", "MaxTRESPJ", "MaxTRESPU", "GrpTRES"):
            if kind in limits and (best is None or limits[kind][0] < best[0]):
                best = (limits[kind][0], "qos", kind, limits[kind][1])
        qos_max = any(kind in limits for kind in ("MaxTRESPA", "MaxTRESPJ", "MaxTRESPU"))
        return best, qos_max, "GrpTRES" in limits

    def _after_nodes(self) -> List[Check]:
        """All TRES limits (acct_policy_job_runnable_post_select)."""
        hidden: Hidden = {}
        checks: List[Check] = []
        for qos in self.order:
            checks += self._qos_tres(qos, hidden)
        for number, assoc in enumerate(self.place.chain):
            checks += self._assoc_tres(assoc, hidden, number == 0)
        return checks

    def _qos_tres(self, qos: Qos, hidden: Hidden) -> List[Check]:
        where = "qos " + qos.name
        usage = self.usage("qos", qos.name)
        _, user, user_where, user_usage = self._user_row(qos, "")
        _, account, account_where, account_usage = self._account_row(qos, "")
        scope = qos.limits
        checks = self._spent_checks(
            "qos",
            where,
            self._kind(scope, "GrpTRESMins", where),
            scope.tres.get("GrpTRESRunMins", {}),
            hidden.get("GrpTRESMins", set()),
        )
        rows: Tuple[Tuple[str, Scope, str, Optional[Usage]], ...] = (
            ("GrpTRES", scope, where, usage),
            ("GrpTRESRunMins", scope, where, usage),
            ("MaxTRESMinsPJ", scope, where, None),
            ("MaxTRESPJ", scope, where, None),
            ("MaxTRESPN", scope, where, None),
            ("MinTRESPJ", scope, where, None),
            ("MaxTRESPA", account, account_where, account_usage),
            ("MaxTRESPU", user, user_where, user_usage),
            ("MaxTRESRunMinsPA", account, account_where, account_usage),
            ("MaxTRESRunMinsPU", user, user_where, user_usage),
        )
        for kind, holder, place, mine in rows:
            found = self._kind(holder, kind, place)
            checks += self._tres_checks("qos", kind, place, found, hidden.get(kind, set()), mine)
        for kind, holder, _, _ in (("GrpTRESMins", scope, where, None), *rows):
            set_here = [t for t, v in holder.tres.get(kind, {}).items() if v.limit is not None]
            hidden.setdefault(kind, set()).update(set_here)
        return checks

    def _kind(self, scope: Scope, kind: str, where: str) -> Dict[str, Limit]:
        found = scope.tres.get(kind)
        if found is None:
            self.doubts.append(f"{kind} of {where} is not known")
            return {}
        return found

    def _assoc_tres(self, assoc: Assoc, hidden: Hidden, own: bool) -> List[Check]:
        where = _assoc_name(assoc)
        usage = self.usage("account", _usage_key(assoc))
        scope = assoc.limits
        checks = self._spent_checks(
            "assoc",
            where,
            self._kind(scope, "GrpTRESMins", where),
            scope.tres.get("GrpTRESRunMins", {}),
            hidden.get("GrpTRESMins", set()),
        )
        rows: List[Tuple[str, Optional[Usage], float]] = [
            ("GrpTRES", usage, self.factor),
            ("GrpTRESRunMins", usage, 1.0),
        ]
        if own:
            rows += [
                ("MaxTRESMinsPJ", None, 1.0),
                ("MaxTRESPJ", None, self.factor),
                ("MaxTRESPN", None, 1.0),
            ]
        for kind, mine, scale in rows:
            found = self._kind(scope, kind, where)
            checks += self._tres_checks(
                "assoc", kind, where, found, hidden.get(kind, set()), mine, scale
            )
        return checks


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


def _assoc_name(assoc: Assoc) -> str:
    if not assoc.user:
        return "account " + assoc.account
    where = f"user {assoc.user} in account {assoc.account}"
    return f"{where} on partition {assoc.partition}" if assoc.partition else where


def _usage_key(assoc: Assoc) -> str:
    return f"{assoc.account}/{assoc.user}" if assoc.user else assoc.account
