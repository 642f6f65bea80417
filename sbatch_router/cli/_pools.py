"""The pools of a policy as they are now, without a request: for `status`, `init` and `check`.

Which limit hides which is as in core/limits.py: per kind and TRES, a QOS hides the
association tree.
"""

from __future__ import annotations

import os
import time
from typing import (
    TYPE_CHECKING,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ..core import spell
from ..core.ledger import Promise
from ..core.mine import Mine
from ..core.policy import Account, Policy
from ..core.snapshot import Assoc, Config, Job, Qos, Scope, Site, Snapshot, unanswered
from ..core.tres import UNKNOWN, Limit
from ..host import in_time, lives, user_name
from ..refusal import shown_name
from ..slurm.collect import collect_live, collect_site
from ..slurm.patience import conf_trouble, left
from ..state import load
from ..statedir import StateError, directory

if TYPE_CHECKING:
    from ..core.tres import Amount

#: Kinds that count what is used, strongest scope first. Per user and account rows are mine.
_GRP_TRES = ("GrpTRES", "GrpTRESRunMins", "GrpTRESMins")
_USER_TRES = ("MaxTRESPU", "MaxTRESRunMinsPU")
_ACCOUNT_TRES = ("MaxTRESPA", "MaxTRESRunMinsPA")
_GRP_COUNTS = ("GrpJobs", "GrpSubmitJobs", "GrpWall")
_USER_COUNTS = ("MaxJobsPU", "MaxSubmitJobsPU")
_ACCOUNT_COUNTS = ("MaxJobsPA", "MaxSubmitJobsPA")
_OWN_COUNTS = ("MaxJobs", "MaxSubmitJobs")
#: On one job: no use, told in words.
_JOB_TRES = ("MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ", "MinTRESPJ")

#: Order of the TRES of one pool.
_TRES_ORDER = ("gres/gpu", "mem", "cpu", "node")


class Bound(NamedTuple):
    """One limit of a pool, and what is used of it."""

    kind: str
    #: Empty for a count (GrpJobs).
    tres: str
    where: str
    limit: int
    used: Amount
    mine: Amount
    #: Asked for by my pending jobs and promised submissions.
    pending: int


class Pool(NamedTuple):
    """One account with one QOS."""

    account: str
    qos: str
    #: ``open``, ``blocked``, ``not_allowed`` or ``unknown``.
    state: str
    why: str
    bounds: Tuple[Bound, ...] = ()
    #: Limits on one job, in words.
    per_job: Tuple[str, ...] = ()
    #: My running and pending jobs (tasks), and why the latter wait: reason -> jobs.
    running: int = 0
    pending: int = 0
    reasons: Mapping[str, int] = {}
    #: User -> what they hold of the pool's QOS, the heaviest first.
    users: Tuple[Tuple[str, Mapping[str, int]], ...] = ()
    #: The partitions whose QOS this is; then `account` is empty.
    partition: str = ""


def me() -> str:
    """The user's name, as Slurm knows it."""
    return user_name(os.geteuid())


def ask_site(user: str = "") -> Site:
    """What changes seldom."""
    trouble = conf_trouble()
    if trouble:
        return Site(
            time.time(), user or me(), UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, (trouble,)
        )
    return collect_site(user or me(), left(), left(), time.time())


def ask_live(site: Site, accounts: Iterable[str], qos: Iterable[str]) -> Snapshot:
    """What is used now, with every user's rows."""
    if not isinstance(site.config, Config):
        # Nothing answered a moment ago: do not wait for the same silence twice.
        return unanswered(site, time.time())
    return collect_live(
        site, accounts, qos, site.user, os.geteuid(), left(), time.time(), everyone=True
    )


def promises(environ: Mapping[bytes, bytes]) -> Tuple[Promise, ...]:
    """The ledger's open promises, read and never written. To be asked for before Slurm is.

    A submission whose process has ended is Slurm's to tell of (host.Host.collect).
    """
    try:
        found = load(directory(environ) + "/ledger", None)
    except StateError:
        return ()
    now = time.time()
    ledger = found if isinstance(found, tuple) else ()
    return tuple(p for p in ledger if in_time(p, now) and lives(p.pid))


def names_of(policy: Policy) -> Tuple[List[str], List[str]]:
    """The accounts and the QOS a policy names."""
    accounts = [account.name for account in policy.accounts]
    return accounts, [name for account in policy.accounts for name in account.qos or ()]


def pools(policy: Policy, snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> List[Pool]:
    """Every pool of the policy, in its order; blocked accounts that it does not list come last."""
    mine = Mine(snapshot, ledger)
    blocked = {entry.account: entry for entry in policy.blocked}
    found = []
    for account in policy.accounts:
        for qos in _qos_of(account, snapshot):
            pool = _pool(account.name, qos, snapshot, mine)
            if account.name in blocked:
                pool = pool._replace(state="blocked", why=blocked[account.name].reason)
            found.append(pool)
    listed = {account.name for account in policy.accounts}
    for name, entry in blocked.items():
        if name not in listed:
            found.append(Pool(name, "", "blocked", entry.reason))
    return found


def assocs_of(account: str, snapshot: Snapshot) -> List[Assoc]:
    """My own associations with an account: one, or one a partition."""
    if not isinstance(snapshot.assocs, dict):
        return []
    return [
        assoc
        for (name, user, _), assoc in snapshot.assocs.items()
        if name == account and user == snapshot.user
    ]


def _qos_of(account: Account, snapshot: Snapshot) -> Tuple[str, ...]:
    if account.qos:
        return account.qos
    for assoc in assocs_of(account.name, snapshot):
        if isinstance(assoc.default_qos, str):
            return (assoc.default_qos,)
    return ("",)


def _pool(account: str, qos: str, snapshot: Snapshot, mine: Mine) -> Pool:
    trouble = _trouble(account, qos, snapshot)
    if trouble is not None:
        return Pool(account, qos, *trouble)
    assert isinstance(snapshot.qos, dict)
    record = snapshot.qos[qos]
    scopes = _Scopes(account, record, snapshot, mine)
    running, pending, reasons = _jobs(account, qos, snapshot)
    bounds = scopes.bounds()
    users = _users(record, bounds, snapshot)
    per_job = scopes.per_job()
    return Pool(account, qos, "open", "", bounds, per_job, running, pending, reasons, users)


def _trouble(account: str, qos: str, snapshot: Snapshot) -> Optional[Tuple[str, str]]:
    """Why a pool cannot be shown: its state, and a clause."""
    if not isinstance(snapshot.assocs, dict) or not isinstance(snapshot.qos, dict):
        return "unknown", "; ".join(snapshot.troubles) or "Slurm did not tell"
    own = assocs_of(account, snapshot)
    if not own:
        return "not_allowed", f"{snapshot.user} has no association with account {account}"
    if not qos:
        return "unknown", f"the default QOS of account {account} is not known"
    allowed = {name for a in own if isinstance(a.qos, tuple) for name in a.qos}
    config = snapshot.config
    if isinstance(config, Config) and "qos" in config.enforce and allowed and qos not in allowed:
        return "not_allowed", f"QOS {qos} is not allowed in account {account}"
    if qos not in snapshot.qos:
        return "unknown", f"Slurm told nothing of QOS {qos}"
    return None


class _Scopes:
    """The limits of one account and QOS, what hides them taken away."""

    def __init__(self, account: str, qos: Qos, snapshot: Snapshot, mine: Mine) -> None:
        self.account = account
        self.qos = qos
        self.user = snapshot.user
        self.mine = mine
        self.chain = _chain(account, snapshot)
        self.hidden: Set[Tuple[str, str]] = set()

    def bounds(self) -> Tuple[Bound, ...]:
        self.hidden = set()
        name = self.qos.name
        where = f"qos {name}"
        found = self._read(self.qos.limits, _GRP_TRES, _GRP_COUNTS, where, "qos", name)
        row = _row(self.qos.users, self.user, self.qos.defaults)
        user = f"user {self.user} in qos {name}"
        found += self._read(row, _USER_TRES, _USER_COUNTS, user, "qos", name)
        row = _row(self.qos.accounts, self.account, self.qos.defaults)
        inside = f"account {self.account} in qos {name}"
        key = f"{name}/{self.account}"
        found += self._read(row, _ACCOUNT_TRES, _ACCOUNT_COUNTS, inside, "qos-account", key)
        # MaxJobs and MaxSubmit of an association give way to those of the QOS.
        kinds = {kind for kind, _ in self.hidden}
        counts = [k for k in _OWN_COUNTS if not kinds & {f"{k}PU", f"{k}PA"}]
        for number, assoc in enumerate(self.chain):
            place = _assoc_name(assoc)
            key = f"{assoc.account}/{assoc.user}" if assoc.user else assoc.account
            own = counts if number == 0 else []
            found += self._read(
                assoc.limits, _GRP_TRES, [*_GRP_COUNTS, *own], place, "account", key, final=False
            )
        return tuple(sorted(found, key=_place))

    def _read(
        self,
        scope: Scope,
        tres_kinds: Sequence[str],
        count_kinds: Sequence[str],
        where: str,
        usage_kind: str,
        usage_name: str,
        final: bool = True,
    ) -> List[Bound]:
        """The limits of a scope that nothing hides; with `final` they hide what comes after."""
        usage = self.mine.usage(usage_kind, usage_name)
        found = []
        for kind in tres_kinds:
            for tres, limit in scope.tres.get(kind, {}).items():
                if not isinstance(limit.limit, int) or (kind, tres) in self.hidden:
                    continue
                running = usage.running
                own: Amount = running.get(tres, 0) if isinstance(running, dict) else UNKNOWN
                waiting = usage.waiting.get(tres, 0)
                if "Mins" in kind:
                    own, waiting = UNKNOWN, usage.waiting_minutes.get(tres, 0)
                if tres == "node":
                    waiting = 0  # distinct nodes count
                used = _used(limit)
                found.append(Bound(kind, tres, where, limit.limit, used, own, waiting))
        for kind in count_kinds:
            count = scope.counts.get(kind)
            if count is None or not isinstance(count.limit, int) or (kind, "") in self.hidden:
                continue
            jobs: Amount = usage.running_jobs
            queued = usage.waiting_jobs
            if "Submit" in kind:
                jobs = jobs + queued if isinstance(jobs, int) else UNKNOWN
                queued = 0
            if "Wall" in kind:
                jobs, queued = UNKNOWN, 0
            found.append(Bound(kind, "", where, count.limit, _used(count), jobs, queued))
        if final:
            self.hidden.update((bound.kind, bound.tres) for bound in found)
        return found

    def per_job(self) -> Tuple[str, ...]:
        """``mem at most 64G``, ``wall time at most 4d``: strongest first, each once."""
        found: Dict[str, str] = {}
        scopes = [self.qos.limits, *(assoc.limits for assoc in self.chain[:1])]
        for scope in scopes:
            for kind in _JOB_TRES:
                for tres, limit in scope.tres.get(kind, {}).items():
                    if isinstance(limit.limit, int):
                        bound = "at least" if kind == "MinTRESPJ" else "at most"
                        a = {"MaxTRESPN": " a node", "MaxTRESMinsPJ": " minutes"}.get(kind, "")
                        text = f"{tres} {bound} {spell.amount(tres, limit.limit)}{a}"
                        found.setdefault(f"{kind} {tres}", text)
            wall = scope.counts.get("MaxWallPJ")
            if wall is not None and isinstance(wall.limit, int):
                found.setdefault("wall", f"time at most {spell.minutes(wall.limit)}")
        return tuple(found.values())


def _used(limit: Limit) -> Amount:
    return 0 if limit.used is None else limit.used


def _place(bound: Bound) -> Tuple[int, str, str]:
    known = _TRES_ORDER.index(bound.tres) if bound.tres in _TRES_ORDER else len(_TRES_ORDER)
    return (known if bound.tres else 99, bound.tres, "")


def _row(rows: Mapping[str, Scope], name: str, defaults: object) -> Scope:
    row = rows.get(name)
    if row is not None:
        return row
    return defaults if isinstance(defaults, Scope) else Scope({}, {})


def _chain(account: str, snapshot: Snapshot) -> List[Assoc]:
    """My association with the account, then the accounts up to the root."""
    assert isinstance(snapshot.assocs, dict)
    own = assocs_of(account, snapshot)
    chain = own[:1]
    seen: Set[str] = set()
    name = account
    while name and name not in seen:
        seen.add(name)
        record = snapshot.assocs.get((name, "", ""))
        if record is None:
            break
        chain.append(record)
        name = record.parent
    return chain


def _assoc_name(assoc: Assoc) -> str:
    return ("user " + assoc.user + " in " if assoc.user else "") + f"account {assoc.account}"


def _jobs(account: str, qos: str, snapshot: Snapshot) -> Tuple[int, int, Dict[str, int]]:
    """My running and pending jobs there, and the latter's reasons."""
    running = pending = 0
    reasons: Dict[str, int] = {}
    rows: Tuple[Job, ...] = snapshot.jobs if isinstance(snapshot.jobs, tuple) else ()
    for job in rows:
        if (job.account, job.qos) != (account, qos):
            continue
        if job.state == "PENDING":
            pending += job.tasks
            reason = job.reason if job.reason not in ("", "None") else "no reason yet"
            reasons[reason] = reasons.get(reason, 0) + job.tasks
        else:
            running += 1
    return running, pending, reasons


def _users(
    qos: Qos, bounds: Sequence[Bound], snapshot: Snapshot
) -> Tuple[Tuple[str, Mapping[str, int]], ...]:
    """What each user holds of the TRES that the QOS limits, the heaviest first.

    From the QOS's rows; empty where PrivateData hides the others.
    """
    limits = {b.tres: b.limit for b in bounds if b.kind == "GrpTRES" and b.tres}
    found: Dict[str, Dict[str, int]] = {}
    for user, row in qos.users.items():
        held = {
            tres: limit.used
            for tres, limit in row.tres.get("MaxTRESPU", {}).items()
            if isinstance(limit.used, int) and limit.used and (tres in limits or not limits)
        }
        if held:
            found[shown_name(user)] = held

    def share(item: Tuple[str, Mapping[str, int]]) -> float:
        parts = [amount / max(1, limits.get(tres, 1)) for tres, amount in item[1].items()]
        return -max(parts)

    return tuple(sorted(found.items(), key=share))


def partition_pools(snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> List[Pool]:
    """Partitions with a QOS of their own, which every job there draws on as well."""
    if not isinstance(snapshot.partitions, dict) or not isinstance(snapshot.qos, dict):
        return []
    mine = Mine(snapshot, ledger)
    found: Dict[str, Pool] = {}
    for partition in snapshot.partitions.values():
        qos = snapshot.qos.get(partition.qos) if partition.qos else None
        if qos is None:
            continue
        if qos.name in found:
            names = f"{found[qos.name].partition},{partition.name}"
            found[qos.name] = found[qos.name]._replace(partition=names)
            continue
        scopes = _Scopes("", qos, snapshot, mine)
        bounds = scopes.bounds()
        users = _users(qos, bounds, snapshot)
        pool = Pool("", qos.name, "open", "", bounds, scopes.per_job(), users=users)
        found[qos.name] = pool._replace(partition=partition.name)
    return list(found.values())
