"""Every limit that can hold or refuse one job on one candidate, in slurmctld's own order.

The order decides the reason that squeue shows; which limit hides which decides the verdict.
Source: Slurm's src/slurmctld/acct_policy.c (acct_policy_job_runnable_pre_select, ..._get_max_nodes
and ..._job_runnable_post_select; submission.py has acct_policy_validate), job_limits_check() in
job_mgr.c for the partition, and the man page section "Resource Limits". docs/limits.md lists
what is understood.
"""

from __future__ import annotations

from .place import (
    START,
    SUBMIT,
    Check,
    Place,
    Reader,
    Usage,
    amount,
    assoc_name,
    has_flag,
    usage_key,
)
from .reasons import count_reason, tres_reason
from .record import Record
from .submission import Submission
from .tres import NO_LIMIT, NO_TIME_LIMIT, NOT_SET, UNKNOWN, Limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Set, Tuple

    from .place import Hidden
    from .request import Need
    from .snapshot import Assoc, Qos, Scope
    from .tres import Amount

#: What the backfill scheduler takes as the time of a job without limits: a year, in minutes.
_YEAR = 365 * 24 * 60


class Limits(Record):
    """The checks of one candidate, in slurmctld's order, and what could not be judged."""

    checks: Tuple[Check, ...]
    doubts: Tuple[str, ...]
    #: The limit that makes sbatch refuse the job at submission, if one does.
    refusal: Optional[Check]
    #: How many of `checks` come before slurmctld looks whom the partition admits.
    before: int


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
    reader = Reader(place, need, tasks, tasks_at_once, usage)
    for qos in reader.order:
        if qos.flags is UNKNOWN:
            reader.doubts.append("the QOS flags are not known (sacctmgr did not tell)")
    submission = Submission(reader)
    start = _Start(reader, submission)
    first = submission.checks + start.partition() + start.before_nodes()
    checks = first + start.nodes() + start.after_nodes()
    return Limits(tuple(checks), tuple(reader.doubts), submission.refusal, len(first))


class _Start:
    """Collects the checks of a job's start; `hidden` is what a stronger level has set."""

    def __init__(self, reader: Reader, submission: Submission) -> None:
        self._r = reader
        self._submission = submission
        self._place = reader.place
        self._tres = reader.need.at_start or reader.need.tres
        self._order = reader.order
        self._factor = reader.limit_factor()
        self._safe = "safe" in reader.place.config.enforce
        self._usage_factor = self._read_usage_factor()
        minutes = submission.minutes
        #: The time limit that limits on minutes see, and the least it may turn into.
        self._minutes = self._scaled(minutes)
        self._least = self._scaled(self._backfilled(minutes))

    # -- time ------------------------------------------------------------------------------

    def _read_usage_factor(self) -> float:
        """UsageFactor of the job's QOS; 1 where it does not matter."""
        qos = self._place.qos
        factor = qos.usage_factor if qos is not None else None
        if isinstance(factor, (int, float)):
            return factor if factor >= 0 else 1.0
        if has_flag(qos, "usagefactorsafe"):
            self._r.doubts.append("UsageFactor of the QOS is not known")
        return 1.0

    def _scaled(self, minutes: int) -> int:
        """UsageFactor counts for limits only with the flag UsageFactorSafe."""
        factor = self._usage_factor
        if factor == 1.0 or not has_flag(self._place.qos, "usagefactorsafe"):
            return minutes
        if minutes == NO_TIME_LIMIT and factor >= 1.0:
            return minutes
        return int(minutes * factor)

    def _backfilled(self, minutes: int) -> int:
        """What the backfill scheduler makes of a time limit when it tries to start the job.

        It takes --time-min, and gives a job without a limit the partition's longest or a year.
        """
        if minutes == NOT_SET:
            longest = self._place.partition.max_time
            minutes = longest if isinstance(longest, int) else _YEAR
        least = self._r.need.time_min
        return minutes if least is None else min(minutes, least)

    def _wall(self, scope: Scope) -> int:
        """The time limit as the wall limits of one scope see it."""
        limits = [scope.counts.get(kind, NO_LIMIT).limit for kind in ("GrpWall", "MaxWallPJ")]
        known = [limit for limit in limits if isinstance(limit, int)]
        return self._scaled(self._submission.cap(self._submission.minutes, min(known)))

    # -- building checks -------------------------------------------------------------------

    def _one(
        self, kind: str, reason: str, where: str, limit: int, asked: int, tres: str = ""
    ) -> Check:
        """A check on one job, which has no use."""
        return Check(START, reason, kind, tres, where, limit, 0, 0, 0, asked, asked)

    def _jobs(self, level: str, kind: str, where: str, limit: Limit, usage: Usage) -> Check:
        """A limit on running jobs."""
        used = limit.used if limit.used is not None else 0
        return Check(
            START,
            count_reason(level, kind),
            kind,
            "",
            where,
            amount(limit.limit),
            used,
            used if kind == "MaxJobsPU" else usage.running_jobs,
            usage.waiting_jobs,
            1,
            self._r.at_once,
        )

    def _wall_check(self, level: str, kind: str, where: str, limit: Limit, minutes: int) -> Check:
        """MaxWallPJ, and GrpWall (used: minutes spent; `safe` adds the job's own)."""
        reason = count_reason(level, kind)
        if kind == "MaxWallPJ":
            return self._one(kind, reason, where, amount(limit.limit), minutes)
        most, used = amount(limit.limit), amount(limit.used)
        asked = max(1, minutes) if self._safe else 1
        if self._safe and used and minutes == NO_TIME_LIMIT:
            # In slurmctld's 32 bits that sum comes to less than `used`: the main scheduler starts
            # the job, unless the backfill scheduler has looked first and given it a time limit.
            asked = 1
            self._r.doubts.append(f"{kind} of {where} may or may not hold a job without end")
        return Check(START, reason, kind, "", where, most, used, 0, 0, asked, asked)

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
        minimum = kind == "MinTRESPJ"
        for tres, limit in limits.items():
            if limit.limit is None or tres in hidden:
                continue
            if limit.limit is UNKNOWN:
                self._r.doubts.append(f"{kind} {tres} of {where} is not known")
                continue
            asked = self._tres.get(tres, 0)
            if not asked and not minimum:
                if tres in self._r.need.later:
                    self._r.doubts.append(_settled_later(tres, where))
                continue
            if usage is not None and limit.used is UNKNOWN:
                self._r.doubts.append(f"the use of {kind} {tres} of {where} is not known")
                continue
            bound = int(amount(limit.limit) * scale) if scale != 1.0 else amount(limit.limit)
            if "Mins" in kind:
                check = self._minute_check(level, kind, tres, where, bound, limit, usage)
            elif usage is None:
                if kind == "MaxTRESPN":
                    asked //= max(1, self._tres.get("node", 1))
                check = self._one(kind, tres_reason(level, kind, tres), where, bound, asked, tres)
                if minimum:
                    check = check._replace(minimum=True)
            else:
                found = self._pool_check(level, kind, tres, where, bound, limit, usage)
                if found is None:
                    continue
                check = found
            self._doubt(check)
            checks.append(check)
        return checks

    def _doubt(self, check: Check) -> None:
        """A TRES that may come out larger when the job starts: what fits now may not then."""
        if check.tres in self._r.need.later and not check.held_by_running():
            self._r.doubts.append(_settled_later(check.tres, check.where))

    def _pool_check(
        self,
        level: str,
        kind: str,
        tres: str,
        where: str,
        bound: int,
        limit: Limit,
        usage: Usage,
    ) -> Optional[Check]:
        """A limit on what all running jobs hold together; None where it cannot hold the job."""
        used = amount(limit.used)
        asked = self._tres.get(tres, 0)
        total, waiting = asked * self._r.at_once, usage.waiting.get(tres, 0)
        if tres == "node":
            # Distinct nodes count: a job may share nodes that are counted already.
            waiting, total = 0, asked
            if self._shares_nodes(used, asked, bound, where):
                return None
        mine: Amount = UNKNOWN
        if kind == "MaxTRESPU":
            mine = used
        elif isinstance(usage.running, dict):
            mine = usage.running.get(tres, 0)
        reason = tres_reason(level, kind, tres)
        return Check(START, reason, kind, tres, where, bound, used, mine, waiting, asked, total)

    def _shares_nodes(self, used: int, asked: int, bound: int, where: str) -> bool:
        """Whether a node limit cannot hold the job, since its nodes may be counted already.

        With one node there is no doubt; with more it depends on where the job is placed.
        """
        if not used or used + asked <= bound or asked > bound:
            return False
        if not self._place.one_node:
            self._r.doubts.append(f"the node limit of {where} depends on which nodes are picked")
        return True

    def _minute_check(
        self,
        level: str,
        kind: str,
        tres: str,
        where: str,
        bound: int,
        limit: Limit,
        usage: Optional[Usage],
    ) -> Check:
        """A limit on TRES times the time limit: of one job, or of all running ones together."""
        count = self._tres.get(tres, 0)
        asked = count * self._minutes
        reason = tres_reason(level, kind, tres)
        if usage is None:
            check = self._one(kind, reason, where, bound, asked, tres)
        else:
            used = amount(limit.used) if self._usage_factor else 0
            # What my running jobs have left is not known, but it is no more than they asked for.
            mine = used if kind.endswith("PU") else min(used, usage.running_minutes.get(tres, 0))
            waiting = usage.waiting_minutes.get(tres, 0)
            total = asked * self._r.at_once
            check = Check(
                START, reason, kind, tres, where, bound, used, mine, waiting, asked, total
            )
        return self._backfill_doubt(check, count)

    def _backfill_doubt(self, check: Check, count: int) -> Check:
        """The backfill scheduler may start with less time what the main scheduler holds."""
        if self._least < self._minutes and check.held_by_running():
            least = check._replace(requested=count * self._least)
            if not least.held_by_running():
                self._r.doubts.append(
                    f"{check.kind} {check.tres} of {check.where} depends on the time limit that "
                    "the backfill scheduler will give the job"
                )
                return check._replace(sure=False)
        return check

    def _spent_checks(
        self, level: str, where: str, scope: Scope, hidden: Set[str], usage: Usage
    ) -> List[Check]:
        """GrpTRESMins: held once the minutes are spent.

        With `safe` what runs and the job itself must find room as well, to their time limits.
        """
        checks = []
        for tres, limit in self._r.kind(scope, "GrpTRESMins", where).items():
            count = self._tres.get(tres, 0)
            if limit.limit is None or tres in hidden or not count * self._minutes:
                continue
            if limit.limit is UNKNOWN or limit.used is UNKNOWN:
                self._r.doubts.append(f"GrpTRESMins {tres} of {where} is not known")
                continue
            reason = tres_reason(level, "GrpTRESMins", tres)
            used = amount(limit.used) if self._usage_factor else 0
            bound = amount(limit.limit)
            check = Check(START, reason, "GrpTRESMins", tres, where, bound, used, 0, 0, 1, 1)
            checks.append(self._safe_check(check, scope, usage, count) if self._safe else check)
        return checks

    def _safe_check(self, spent: Check, scope: Scope, usage: Usage, count: int) -> Check:
        """The same under AccountingStorageEnforce=safe."""
        running = scope.tres.get("GrpTRESRunMins", {}).get(spent.tres, Limit(None, UNKNOWN)).used
        runs = amount(running) if self._usage_factor else 0
        asked = count * self._minutes
        check = spent._replace(
            used=amount(spent.used) + runs,
            mine=min(runs, usage.running_minutes.get(spent.tres, 0)),
            promised=usage.waiting_minutes.get(spent.tres, 0),
            requested=asked,
            requested_all=asked * self._r.at_once,
        )
        if running is UNKNOWN and not check.held_by_running():
            self._r.doubts.append(f"the minutes that run in {spent.where} are not known")
        check = self._backfill_doubt(check, count)
        self._doubt(check)
        return check

    # -- the stages ------------------------------------------------------------------------

    def partition(self) -> List[Check]:
        """What the partition allows one job (job_limits_check, _part_access_check)."""
        place, tres = self._place, self._r.need.tres
        partition, qos = place.partition, place.qos
        where = "partition " + partition.name
        rows: List[Tuple[str, str, str, Amount, int]] = []
        if partition.total_cpus:
            asked = tres.get("cpu", 0)
            rows.append(("TotalCPUs", "cpu", "PartitionConfig", partition.total_cpus, asked))
        if partition.total_nodes:
            asked = tres.get("node", 0)
            rows.append(("TotalNodes", "node", "PartitionNodeLimit", partition.total_nodes, asked))
        most = self._r.need.max_nodes
        if most is not None and not has_flag(qos, "partitionmaxnodes"):
            rows.append(("MaxNodes", "node", "PartitionNodeLimit", partition.max_nodes, most))
        minutes = self._submission.minutes
        if minutes != NOT_SET and not has_flag(qos, "partitiontimelimit"):
            rows.append(("MaxTime", "", "PartitionTimeLimit", partition.max_time, minutes))
        checks = [
            self._one(kind, reason, where, limit, asked, name)
            for kind, name, reason, limit, asked in rows
            if isinstance(limit, int) and asked > limit
        ]
        least = self._r.need.time_min
        if least is None:
            return checks
        return [self._shorter(c, least) if c.kind == "MaxTime" else c for c in checks]

    def _shorter(self, check: Check, least: int) -> Check:
        """MaxTime beside --time-min, which is what the backfill scheduler looks at."""
        if least > check.limit:
            return check
        self._r.doubts.append(
            f"{check.where} has MaxTime {check.limit}: only the backfill scheduler starts the job, "
            f"with less time (--time-min)"
        )
        return check._replace(sure=False)

    def before_nodes(self) -> List[Check]:
        """Limits on running jobs and on wall time (acct_policy_job_runnable_pre_select)."""
        checks: List[Check] = []
        hidden: Set[str] = set()
        for qos in self._order:
            checks += self._qos_before(qos, hidden)
        minutes: Optional[int] = None
        for number, assoc in enumerate(self._place.chain):
            where = assoc_name(assoc)
            usage = self._r.usage("account", usage_key(assoc))
            kinds = ["GrpJobs", "GrpWall"]
            if number == 0:
                # Max limits of parents have been handed down to the user's record already.
                if "MaxJobsPA" not in hidden and "MaxJobsPU" not in hidden:
                    kinds.append("MaxJobs")
                kinds.append("MaxWallPJ")
            for kind in kinds:
                limit = self._r.count(assoc.limits, kind, where)
                if limit is None or kind in hidden:
                    continue
                if "Wall" in kind:
                    # Worked out at the first wall limit, and kept for those above.
                    minutes = self._wall(assoc.limits) if minutes is None else minutes
                    checks.append(self._wall_check("assoc", kind, where, limit, minutes))
                else:
                    checks.append(self._jobs("assoc", kind, where, limit, usage))
        return checks

    def _qos_before(self, qos: Qos, hidden: Set[str]) -> List[Check]:
        checks = []
        where = "qos " + qos.name
        usage = self._r.usage("qos", qos.name)
        account, account_where, account_use = self._r.account_row(qos)
        user, user_where, user_use = self._r.user_row(qos)
        rows = (
            ("GrpJobs", qos.limits, where, usage),
            ("GrpWall", qos.limits, where, usage),
            ("MaxJobsPA", account, account_where, account_use),
            ("MaxJobsPU", user, user_where, user_use),
            ("MaxWallPJ", qos.limits, where, usage),
        )
        minutes: Optional[int] = None
        for kind, scope, place, mine in rows:
            limit = self._r.count(scope, kind, place)
            if limit is None or kind in hidden:
                continue
            hidden.add(kind)
            if "Wall" not in kind:
                checks.append(self._jobs("qos", kind, place, limit, mine))
                continue
            # After GrpWall the factor is applied a second time.
            minutes = self._wall(qos.limits) if minutes is None else self._scaled(minutes)
            checks.append(self._wall_check("qos", kind, place, limit, minutes))
        return checks

    def nodes(self) -> List[Check]:
        """The least node limit, without its use (acct_policy_get_max_nodes)."""
        best, qos_max, grp_known = self._least_qos_nodes()
        first = self._order[0].limit_factor if self._order else None
        # The second QOS's factor is not looked at here, though it is elsewhere.
        factor = self._factor if isinstance(first, (int, float)) else 1.0
        for number, assoc in enumerate(self._place.chain):
            where = assoc_name(assoc)
            grp = self._node_limit(assoc.limits, "GrpTRES", factor)
            stop = False
            if grp is not None and not grp_known and (best is None or grp < best[0]):
                best = (grp, "assoc", "GrpTRES", where)
                stop = True
            most = self._node_limit(assoc.limits, "MaxTRESPJ", factor)
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
        asked = self._r.need.tres.get("node", 1)
        if asked <= bound:
            return []
        return [self._one(kind, tres_reason(level, kind, "node"), where, bound, asked, "node")]

    def _node_limit(self, scope: Scope, kind: str, scale: float = 1.0) -> Optional[int]:
        limit = scope.tres.get(kind, {}).get("node", NO_LIMIT).limit
        return int(limit * scale) if isinstance(limit, int) else None

    def _least_qos_nodes(self) -> Tuple[Optional[Tuple[int, str, str, str]], bool, bool]:
        """The least of the QOS node limits; whether a Max one and a Grp one are set."""
        limits: Dict[str, Tuple[int, str]] = {}
        for qos in self._order:
            account, account_where, _ = self._r.account_row(qos)
            user, user_where, _ = self._r.user_row(qos)
            where = "qos " + qos.name
            scopes = (
                ("MaxTRESPA", account, account_where),
                ("MaxTRESPJ", qos.limits, where),
                ("MaxTRESPU", user, user_where),
                ("GrpTRES", qos.limits, where),
            )
            for kind, scope, place in scopes:
                bound = self._node_limit(scope, kind)
                if bound is not None and kind not in limits:
                    limits[kind] = (bound, place)
        best: Optional[Tuple[int, str, str, str]] = None
        for kind in ("MaxTRESPA", "MaxTRESPJ", "MaxTRESPU", "GrpTRES"):
            if kind in limits and (best is None or limits[kind][0] < best[0]):
                best = (limits[kind][0], "qos", kind, limits[kind][1])
        qos_max = any(kind in limits for kind in ("MaxTRESPA", "MaxTRESPJ", "MaxTRESPU"))
        return best, qos_max, "GrpTRES" in limits

    def after_nodes(self) -> List[Check]:
        """All TRES limits (acct_policy_job_runnable_post_select)."""
        hidden: Hidden = {}
        checks: List[Check] = []
        for qos in self._order:
            checks += self._qos_tres(qos, hidden)
        for number, assoc in enumerate(self._place.chain):
            checks += self._assoc_tres(assoc, hidden, number == 0)
        return checks

    def _qos_tres(self, qos: Qos, hidden: Hidden) -> List[Check]:
        where = "qos " + qos.name
        usage = self._r.usage("qos", qos.name)
        user, user_where, user_usage = self._r.user_row(qos)
        account, account_where, account_usage = self._r.account_row(qos)
        scope = qos.limits
        checks = self._spent_checks("qos", where, scope, hidden.get("GrpTRESMins", set()), usage)
        rows: List[Tuple[str, Scope, str, Optional[Usage]]] = [
            ("GrpTRES", scope, where, usage),
            ("GrpTRESRunMins", scope, where, usage),
            ("MaxTRESMinsPJ", scope, where, None),
            ("MaxTRESPJ", scope, where, None),
            ("MaxTRESPN", scope, where, None),
            ("MinTRESPJ", scope, where, None),
            ("MaxTRESPA", account, account_where, account_usage),
            ("MaxTRESPU", user, user_where, user_usage),
        ]
        if self._r.enforced_run_minutes:
            rows.append(("MaxTRESRunMinsPA", account, account_where, account_usage))
            rows.append(("MaxTRESRunMinsPU", user, user_where, user_usage))
        _hide(hidden, "GrpTRESMins", scope)
        for kind, holder, place, mine in rows:
            found = self._r.kind(holder, kind, place)
            checks += self._tres_checks("qos", kind, place, found, hidden.get(kind, set()), mine)
            _hide(hidden, kind, holder)
        return checks

    def _assoc_tres(self, assoc: Assoc, hidden: Hidden, own: bool) -> List[Check]:
        where = assoc_name(assoc)
        usage = self._r.usage("account", usage_key(assoc))
        scope = assoc.limits
        checks = self._spent_checks("assoc", where, scope, hidden.get("GrpTRESMins", set()), usage)
        rows: List[Tuple[str, Optional[Usage], float]] = [
            ("GrpTRES", usage, self._factor),
            ("GrpTRESRunMins", usage, 1.0),
        ]
        if own:
            rows += [
                ("MaxTRESMinsPJ", None, 1.0),
                ("MaxTRESPJ", None, self._factor),
                ("MaxTRESPN", None, 1.0),
            ]
        for kind, mine, scale in rows:
            found = self._r.kind(scope, kind, where)
            checks += self._tres_checks(
                "assoc", kind, where, found, hidden.get(kind, set()), mine, scale
            )
        return checks


def _settled_later(tres: str, where: str) -> str:
    return f"{tres} is settled when the job starts, and {where} limits it"


def _hide(hidden: Hidden, kind: str, scope: Scope) -> None:
    """Remember which TRES of a kind this level has limited."""
    limits = scope.tres.get(kind)
    if limits:
        set_here = [tres for tres, limit in limits.items() if limit.limit is not None]
        hidden.setdefault(kind, set()).update(set_here)


__all__ = [
    "NO_TIME_LIMIT",
    "START",
    "SUBMIT",
    "Check",
    "Limits",
    "Place",
    "Usage",
    "limits",
]
