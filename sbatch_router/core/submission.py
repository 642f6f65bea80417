"""What slurmctld checks when a job is submitted, and the time limit it then gives the job.

A walk through acct_policy_validate() in src/slurmctld/acct_policy.c, in its order: submit-count
limits refuse always; under DenyOnLimit every other limit refuses what exceeds it by itself. On
the way a job without a time limit gets one from the wall limits (`_set_time_limit`).
"""

from __future__ import annotations

from .place import SUBMIT, Check, amount, assoc_name, usage_key
from .reasons import count_reason, tres_reason
from .tres import NO_LIMIT, NO_TIME_LIMIT, NOT_SET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from .place import Reader, Usage
    from .snapshot import Assoc, Qos, Scope
    from .tres import Limit

#: From this release a QOS's MaxTRESPU is checked though a stronger QOS has that TRES in GrpTRES.
_PAIR_SINCE = (25, 11)


class Submission:
    """The walk; afterwards `checks` (counts), `refusal`, and the job's time limit."""

    def __init__(self, reader: Reader) -> None:
        self._r = reader
        self._strict = reader.strict
        self._tres = reader.need.tres
        self._hidden: Dict[str, Set[str]] = {}
        #: The submit-count limits; sbatch is refused where one `held_by_running`.
        self.checks: List[Check] = []
        #: The first limit that makes sbatch refuse the job.
        self.refusal: Optional[Check] = None
        #: Minutes; `NOT_SET` where nothing gave a limit.
        self.minutes = NOT_SET
        #: The time limit came from a wall limit, so slurmctld may lower it again.
        self.by_limit = False
        self._given_time()
        for qos in reader.order:
            self._qos(qos)
        for number, assoc in enumerate(reader.place.chain):
            self._assoc(assoc, number == 0)

    # -- time ------------------------------------------------------------------------------

    def _given_time(self) -> None:
        """--time, or the partition's DefaultTime (`_valid_job_part` in job_mgr.c)."""
        need = self._r.need
        if need.time_given:
            given = need.time_limit
            self.minutes = given if isinstance(given, int) else NO_TIME_LIMIT
        else:
            default = self._r.place.partition.default_time
            if isinstance(default, int):
                self.minutes = default

    def cap(self, minutes: int, most: int) -> int:
        """`_set_time_limit`: what a time limit of `minutes` becomes under a limit of `most`."""
        if minutes == NOT_SET:
            self.by_limit = True
            longest = self._r.place.partition.max_time
            return most or (longest if isinstance(longest, int) else NO_TIME_LIMIT)
        return most if self.by_limit and minutes > most else minutes

    def _time_check(
        self, level: str, kind: str, tres: str, where: str, limit: int, asked: int
    ) -> None:
        """`_validate_time_limit`: sets a limit where none is, refuses what exceeds one."""
        if not asked or (self.minutes != NOT_SET and not self._strict):
            return
        hidden = self._hidden.setdefault(kind, set())
        if tres in hidden:
            return
        hidden.add(tres)
        most = limit // asked & 0xFFFFFFFF
        self.minutes = self.cap(self.minutes, most)
        if self.minutes > most:
            self._refuse(level, kind, tres, where, limit, self.minutes * asked)

    def _minutes(self, level: str, kind: str, scope: Scope, where: str) -> None:
        """Limits on TRES-minutes; only under DenyOnLimit (`_validate_tres_time_limits`)."""
        if self._strict:
            for tres, limit in scope.tres.get(kind, {}).items():
                if isinstance(limit.limit, int):
                    asked = self._tres.get(tres, 0)
                    self._time_check(level, kind, tres, where, limit.limit, asked)

    # -- the rest --------------------------------------------------------------------------

    def _refuse(self, level: str, kind: str, tres: str, where: str, limit: int, asked: int) -> None:
        if self.refusal is None:
            reason = tres_reason(level, kind, tres) if tres else count_reason(level, kind)
            minimum = kind == "MinTRESPJ"
            self.refusal = Check(
                SUBMIT, reason, kind, tres, where, limit, 0, 0, 0, asked, asked, minimum
            )

    def _count(
        self, level: str, kind: str, where: str, limit: Optional[Limit], usage: Usage
    ) -> None:
        """A limit on submitted jobs; what is pending counts as used, every task of an array."""
        if limit is None:
            return
        asked = self._r.tasks
        check = Check(
            SUBMIT,
            count_reason(level, kind),
            kind,
            "",
            where,
            amount(limit.limit),
            amount(limit.used),
            usage.running_jobs,
            usage.promised_tasks,
            asked,
            asked,
        )
        self.checks.append(check)
        if self.refusal is None and check.held(asked):
            self.refusal = check

    def _sizes(
        self,
        level: str,
        kind: str,
        limits: Dict[str, Limit],
        where: str,
        scale: float = 1.0,
        hide: bool = True,
    ) -> None:
        """Limits on what one job asks for; only under DenyOnLimit."""
        if not self._strict:
            return
        hidden = self._hidden.setdefault(kind, set())
        minimum = kind == "MinTRESPJ"
        nodes = max(1, self._tres.get("node", 1)) if kind == "MaxTRESPN" else 1
        for tres, limit in limits.items():
            if not isinstance(limit.limit, int) or tres in hidden:
                continue
            if hide:
                hidden.add(tres)
            bound = int(limit.limit * scale) if scale != 1.0 else limit.limit
            asked = self._tres.get(tres, 0) // nodes
            if asked < bound if minimum else asked > bound:
                self._refuse(level, kind, tres, where, bound, asked)

    def _group_or_user(self, qos: Qos, where: str, user: Scope, user_where: str) -> None:
        """GrpTRES and MaxTRESPU of a QOS, which are looked at together, TRES by TRES."""
        if not self._strict:
            return
        group, own = qos.limits.tres.get("GrpTRES", {}), user.tres.get("MaxTRESPU", {})
        hidden = self._hidden.setdefault("GrpTRES", set())
        hidden_own = self._hidden.setdefault("MaxTRESPU", set())
        together = self._r.place.config.release < _PAIR_SINCE
        # In the order of slurmctld's TRES table, which both follow.
        for tres in _merged(group, own):
            asked = self._tres.get(tres, 0)
            seen, seen_own = tres in hidden, tres in hidden_own
            if together and (seen or seen_own):
                continue
            most = group.get(tres, NO_LIMIT).limit
            most_own = own.get(tres, NO_LIMIT).limit
            if isinstance(most_own, int) and not seen_own:
                hidden_own.add(tres)
                if asked > most_own:
                    self._refuse("qos", "MaxTRESPU", tres, user_where, most_own, asked)
            if isinstance(most, int) and not seen:
                hidden.add(tres)
                if asked > most:
                    self._refuse("qos", "GrpTRES", tres, where, most, asked)

    def _qos(self, qos: Qos) -> None:
        reader, scope = self._r, qos.limits
        where = "qos " + qos.name
        account, account_where, account_use = reader.account_row(qos)
        user, user_where, user_use = reader.user_row(qos)
        hidden = self._hidden
        self._sizes("qos", "MaxTRESPA", account.tres.get("MaxTRESPA", {}), account_where)
        self._group_or_user(qos, where, user, user_where)
        counts = (
            ("GrpSubmitJobs", scope, where, reader.usage("qos", qos.name)),
            ("MaxSubmitJobsPA", account, account_where, account_use),
            ("MaxSubmitJobsPU", user, user_where, user_use),
        )
        for number, (kind, holder, place, usage) in enumerate(counts):
            limit = reader.count(holder, kind, place)
            if limit is not None and kind not in hidden:
                hidden[kind] = set()
                self._count("qos", kind, place, limit, usage)
            if number == 0:
                self._qos_time(qos, where, account, account_where, user, user_where)
                self._sizes("qos", "MaxTRESPJ", scope.tres.get("MaxTRESPJ", {}), where)
                self._sizes("qos", "MaxTRESPN", scope.tres.get("MaxTRESPN", {}), where)
        self._sizes("qos", "MinTRESPJ", scope.tres.get("MinTRESPJ", {}), where)

    def _qos_time(
        self, qos: Qos, where: str, account: Scope, account_where: str, user: Scope, user_where: str
    ) -> None:
        scope = qos.limits
        for kind in ("MaxTRESMinsPJ", "GrpTRESMins", "GrpTRESRunMins"):
            self._minutes("qos", kind, scope, where)
        if self._r.enforced_run_minutes:
            self._minutes("qos", "MaxTRESRunMinsPA", account, account_where)
            self._minutes("qos", "MaxTRESRunMinsPU", user, user_where)
        for kind in ("MaxWallPJ", "GrpWall"):
            limit = scope.counts.get(kind, NO_LIMIT).limit
            if isinstance(limit, int) and kind not in self._hidden:
                self._hidden[kind] = {""}
                self.minutes = self.cap(self.minutes, limit)
                if self._strict and self.minutes > limit:
                    self._refuse("qos", kind, "", where, limit, self.minutes)

    def _assoc(self, assoc: Assoc, own: bool) -> None:
        reader, scope, hidden = self._r, assoc.limits, self._hidden
        where = assoc_name(assoc)
        usage = reader.usage("account", usage_key(assoc))
        factor = reader.limit_factor() if self._strict else 1.0
        self._sizes("assoc", "GrpTRES", self._asked(scope, "GrpTRES"), where, factor, hide=False)
        limit = reader.count(scope, "GrpSubmitJobs", where)
        if "GrpSubmitJobs" not in hidden:
            self._count("assoc", "GrpSubmitJobs", where, limit, usage)
        self._minutes("assoc", "GrpTRESMins", scope, where)
        self._minutes("assoc", "GrpTRESRunMins", scope, where)
        self._wall("GrpWall", scope, where)
        if not own:
            # Max limits of parents have been handed down to the user's record already.
            return
        self._sizes("assoc", "MaxTRESPJ", self._asked(scope, "MaxTRESPJ"), where, factor)
        self._sizes("assoc", "MaxTRESPN", self._asked(scope, "MaxTRESPN"), where)
        if "MaxSubmitJobsPA" not in hidden and "MaxSubmitJobsPU" not in hidden:
            limit = reader.count(scope, "MaxSubmitJobs", where)
            self._count("assoc", "MaxSubmitJobs", where, limit, usage)
        self._minutes("assoc", "MaxTRESMinsPJ", scope, where)
        self._wall("MaxWallPJ", scope, where)

    def _asked(self, scope: Scope, kind: str) -> Dict[str, Limit]:
        """The limits on TRES that the job asks for: association limits see no others."""
        if not self._strict:
            return {}
        limits = scope.tres.get(kind, {})
        return {name: limit for name, limit in limits.items() if self._tres.get(name)}

    def _wall(self, kind: str, scope: Scope, where: str) -> None:
        limit = scope.counts.get(kind, NO_LIMIT).limit
        if isinstance(limit, int):
            self._time_check("assoc", kind, "", where, limit, 1)


def _merged(one: Dict[str, Limit], other: Dict[str, Limit]) -> Tuple[str, ...]:
    """The names of both, each in its own order."""
    if not other:
        return tuple(one)
    if not one:
        return tuple(other)
    rest = [name for name in other if name not in one]
    return tuple(sorted((*one, *rest), key=_rank))


#: The fixed head of slurmctld's TRES table (slurmdb.h, TRES_ARRAY_*).
_TABLE = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")


def _rank(tres: str) -> int:
    return _TABLE.index(tres) if tres in _TABLE else len(_TABLE)


__all__ = ["Submission"]
