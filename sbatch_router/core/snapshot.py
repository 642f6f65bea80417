"""What Slurm said, as plain values: QOS, associations, partitions, configuration, my jobs.

Names are Slurm's own, in the spelling of ``scontrol show assoc_mgr``. A limit kind that is
absent from a `Scope` is unknown (an older release did not print it), never "no limit".
"""

from __future__ import annotations

from .record import Record
from .tres import UNKNOWN, Limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Optional, Tuple, Union

    from .ledger import Promise
    from .tres import Amount, LimitMap, Tres, Unknown


class Scope(Record):
    """The limits of one QOS, one association, or one user or account inside a QOS.

    `tres`: limit kind -> TRES -> `Limit`. Kinds: GrpTRES, GrpTRESMins, GrpTRESRunMins,
    MaxTRESPJ, MaxTRESPN, MaxTRESMinsPJ, MinTRESPJ, MaxTRESPU, MaxTRESRunMinsPU, MaxTRESPA,
    MaxTRESRunMinsPA. Inside a kind that is present, an absent TRES is unlimited.

    `counts`: limit kind -> `Limit`. Kinds: GrpJobs, GrpSubmitJobs, GrpWall (minutes),
    MaxJobs, MaxSubmitJobs, MaxWallPJ (minutes), MinPrioThresh, MaxJobsPU, MaxSubmitJobsPU,
    MaxJobsPA, MaxSubmitJobsPA.
    """

    tres: Dict[str, LimitMap]
    counts: Dict[str, Limit]


class Qos(Record):
    """One QOS. `users` and `accounts` hold the rows of those who have used it, by name."""

    name: str
    limits: Scope
    users: Dict[str, Scope]
    accounts: Dict[str, Scope]
    #: Lower-cased flags (``denyonlimit``); from sacctmgr, so possibly unknown.
    flags: Union[FrozenSet[str], Unknown] = UNKNOWN
    limit_factor: Union[float, None, Unknown] = UNKNOWN
    #: The per-user and per-account limits of a user or account without a row (sacctmgr).
    defaults: Union[Scope, Unknown] = UNKNOWN
    priority: Amount = UNKNOWN
    #: What the QOS charges a minute as; limits on minutes see it only with UsageFactorSafe.
    usage_factor: Union[float, None, Unknown] = UNKNOWN


class Assoc(Record):
    """One association. `user` is empty for an account's own record."""

    account: str
    user: str
    partition: str
    #: The parent account's name; empty for root.
    parent: str
    limits: Scope
    #: The QOS this association may use, and its default; from sacctmgr.
    qos: Union[Tuple[str, ...], Unknown] = UNKNOWN
    default_qos: Union[str, None, Unknown] = UNKNOWN
    #: Fair-share factor, 0 to 1 (the Factor of ``SharesRaw/Norm/Level/Factor``); None: not told.
    fairshare: Optional[float] = None


class Partition(Record):
    """One partition. Times in minutes, memory in MiB; None is unlimited (or not set)."""

    name: str
    default: bool = False
    up: bool = True
    #: None: all accounts (QOS) are allowed. Names are lower case.
    allow_accounts: Optional[Tuple[str, ...]] = None
    deny_accounts: Tuple[str, ...] = ()
    allow_qos: Optional[Tuple[str, ...]] = None
    deny_qos: Tuple[str, ...] = ()
    qos: str = ""
    max_time: Amount = None
    default_time: Amount = None
    max_nodes: Amount = None
    min_nodes: int = 0
    def_mem_per_cpu: Optional[int] = None
    def_mem_per_node: Optional[int] = None
    max_mem_per_cpu: Optional[int] = None
    max_mem_per_node: Optional[int] = None
    def_cpu_per_gpu: Optional[int] = None
    def_mem_per_gpu: Optional[int] = None
    #: TRES name -> weight of TRESBillingWeights (``mem`` per MiB).
    billing_weights: Dict[str, float] = {}
    exclusive: bool = False
    total_nodes: int = 0
    total_cpus: int = 0
    tres: Tres = {}
    #: MiB (RealMemory - MemSpecLimit) and CPUs of the partition's first node: what "all of a
    #: node" means to slurmctld at submission.
    node_memory: Optional[int] = None
    node_cpus: Optional[int] = None
    #: Threads per core and GRES (``gres/gpu``, ``gres/gpu:a100``) of that node.
    threads_per_core: Optional[int] = None
    node_gres: Tres = {}
    #: The partition's nodes as Slurm writes them (``n[1-4]``); empty: not known.
    nodes: str = ""
    #: Raw ``Key=Value`` pairs of ``scontrol show partition`` that have no field above.
    other: Dict[str, str] = {}


class Config(Record):
    """Of ``scontrol show config``: what changes a verdict."""

    release: Tuple[int, ...]
    #: Lower-cased words of AccountingStorageEnforce (``limits``, ``qos``, ``safe``, ...).
    enforce: FrozenSet[str]
    enforce_part_limits: str = "NO"
    def_mem_per_cpu: Optional[int] = None
    def_mem_per_node: Optional[int] = None
    def_cpu_per_gpu: Optional[int] = None
    def_mem_per_gpu: Optional[int] = None
    max_mem_per_cpu: Optional[int] = None
    #: Upper-cased words of SelectTypeParameters.
    select: FrozenSet[str] = frozenset()
    priority_flags: FrozenSet[str] = frozenset()
    max_array_size: int = 1001
    cluster: str = ""
    #: What AccountingStorageTRES tracks, in TRES names; None: not known.
    tres: Optional[FrozenSet[str]] = None


#: States in which a job is among slurmctld's running jobs of its association.
RUNS = frozenset(("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"))


class Job(Record):
    """One of my own jobs, from one row of ``squeue --me``."""

    id: str
    account: str
    qos: str
    partition: str
    #: Long state name, upper case: PENDING, RUNNING, ...
    state: str
    reason: str
    #: Of one array task (ReqTRES while pending).
    tres: Tres
    #: Pending tasks this row stands for (1 unless an array).
    tasks: int = 1
    #: How many of those may run at once (the array's ``%``); None: all.
    tasks_at_once: Optional[int] = None
    time_limit: Amount = UNKNOWN


class Snapshot(Record):
    """What Slurm said at `taken_at` (seconds since the epoch), for one user.

    Account, QOS and partition names are lower case: Slurm compares them so. A name that was
    asked for and is absent from `qos` or `assocs` was not in Slurm's answer; `assocs` or
    `jobs` is UNKNOWN when that answer could not be had at all.
    """

    taken_at: float
    #: ``scontrol`` or ``pyslurm``.
    source: str
    user: str
    qos: Union[Dict[str, Qos], Unknown]
    #: Keyed (account, user or "", partition or "").
    assocs: Union[Dict[Tuple[str, str, str], Assoc], Unknown]
    partitions: Union[Dict[str, Partition], Unknown]
    config: Union[Config, Unknown]
    jobs: Union[Tuple[Job, ...], Unknown]
    default_account: Union[str, None, Unknown] = UNKNOWN
    #: What went wrong while asking, one clause each, for explain and the log.
    troubles: Tuple[str, ...] = ()
    #: When squeue listed `jobs` (which may have been brought up to date since), and the
    #: largest job id seen then.
    jobs_at: float = 0.0
    newest_job: int = 0
    #: Promises since `jobs_at` whose submission has ended: they are among `jobs` already.
    carried: Tuple[Promise, ...] = ()


class Site(Record):
    """What is worth keeping for hours: the cluster's settings, and what sacctmgr knows.

    `assocs` holds the user's own associations and all accounts' own records, keyed (account,
    user or "", partition or ""), with `default_qos` as slurmctld settles it. What is used is
    unknown in all of it. `qos` holds flags and the limits per user. Names are lower case.
    """

    taken_at: float
    user: str
    config: Union[Config, Unknown]
    partitions: Union[Dict[str, Partition], Unknown]
    assocs: Union[Dict[Tuple[str, str, str], Assoc], Unknown]
    qos: Union[Dict[str, Qos], Unknown]
    default_account: Union[str, None, Unknown] = UNKNOWN
    troubles: Tuple[str, ...] = ()


def unanswered(site: Site, now: float) -> Snapshot:
    """The snapshot of a moment at which Slurm did not even tell its configuration."""
    return Snapshot(
        now,
        "scontrol",
        site.user,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        site.troubles,
    )


def binding(snapshot: Snapshot) -> Snapshot:
    """The same without the TRES that nothing limits: what is worth storing to decide by.

    GrpTRESRunMins keeps its use, which AccountingStorageEnforce=safe adds to GrpTRESMins.
    """
    qos, assocs = snapshot.qos, snapshot.assocs
    if isinstance(qos, dict):
        qos = {
            name: q._replace(
                limits=_bound(q.limits),
                users={user: _bound(row) for user, row in q.users.items()},
                accounts={account: _bound(row) for account, row in q.accounts.items()},
            )
            for name, q in qos.items()
        }
    if isinstance(assocs, dict):
        assocs = {key: a._replace(limits=_bound(a.limits)) for key, a in assocs.items()}
    partitions = snapshot.partitions
    if isinstance(partitions, dict):
        partitions = {name: p._replace(other={}) for name, p in partitions.items()}
    return snapshot._replace(qos=qos, assocs=assocs, partitions=partitions)


def _bound(scope: Scope) -> Scope:
    spent = scope.tres.get("GrpTRESMins", {})
    tres = {
        kind: {
            name: limit
            for name, limit in limits.items()
            if limit.limit is not None
            or (kind == "GrpTRESRunMins" and name in spent and spent[name].limit is not None)
        }
        for kind, limits in scope.tres.items()
    }
    return Scope(tres, scope.counts)
