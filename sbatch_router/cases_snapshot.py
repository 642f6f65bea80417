"""Imagined clusters for the cases of a policy: pools in a few words to a `Snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, List, NamedTuple, Sequence, Tuple

from .core.snapshot import Assoc, Config, Job, Partition, Qos, Scope, Snapshot
from .core.tres import NO_LIMIT, UNKNOWN, Limit

if TYPE_CHECKING:
    from .core.tres import Tres

_KINDS = (
    "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ",
    "MinTRESPJ", "MaxTRESPU", "MaxTRESRunMinsPU", "MaxTRESPA", "MaxTRESRunMinsPA",
)  # fmt: skip
_COUNTS = (
    "GrpJobs", "GrpSubmitJobs", "GrpWall", "MaxJobs", "MaxSubmitJobs", "MaxWallPJ",
    "MinPrioThresh", "MaxJobsPU", "MaxSubmitJobsPU", "MaxJobsPA", "MaxSubmitJobsPA",
)  # fmt: skip


class Pool(NamedTuple):
    """One account's QOS, and who uses it."""

    account: str
    qos: str
    #: GrpTRES.
    limits: Tres = {}
    others: Tres = {}
    mine: Tres = {}
    #: TRES of each of my pending jobs.
    pending: Tuple[Tres, ...] = ()
    #: MaxTRESPJ and MaxTRESPU.
    per_job: Tres = {}
    per_user: Tres = {}
    flags: FrozenSet[str] = frozenset()
    #: False: Slurm told nothing of this QOS.
    told: bool = True


def snapshot(user: str, pools: Sequence[Pool], partitions: Sequence[str]) -> Snapshot:
    """A cluster where `user` has the accounts and QOS of `pools` and nobody has another limit.

    An account's first pool has its default QOS. The first partition is the default one; each
    gives 4 GiB a CPU and an hour where a job does not say.
    """
    by_qos: Dict[str, List[Pool]] = {}
    for pool in pools:
        by_qos.setdefault(pool.qos, []).append(pool)
    return Snapshot(
        taken_at=0,
        source="scontrol",
        user=user,
        qos={name: _qos(name, user, found) for name, found in by_qos.items() if found[0].told},
        assocs=_assocs(user, pools),
        partitions={name: _partition(name, name == partitions[0]) for name in partitions},
        config=Config(
            release=(24, 11, 5),
            enforce=frozenset(("associations", "limits", "qos")),
            select=frozenset(("CR_CORE_MEMORY",)),
            cluster="cases",
        ),
        jobs=tuple(job for pool in pools for job in _jobs(pool, partitions[0])),
        default_account=pools[0].account if pools else None,
    )


def silent(user: str) -> Snapshot:
    """What is known when Slurm does not answer."""
    return Snapshot(
        0, "scontrol", user, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
        troubles=("Slurm did not answer",),
    )  # fmt: skip


def _scope(**tres: Dict[str, Limit]) -> Scope:
    kinds = {kind: tres.get(kind, {}) for kind in _KINDS}
    return Scope(kinds, dict.fromkeys(_COUNTS, NO_LIMIT))


def _add(total: Tres, more: Tres) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _qos(name: str, user: str, pools: Sequence[Pool]) -> Qos:
    used: Tres = {}
    mine: Tres = {}
    limits: Tres = {}
    per_job: Tres = {}
    per_user: Tres = {}
    for pool in pools:
        _add(used, pool.others)
        _add(used, pool.mine)
        _add(mine, pool.mine)
        limits.update(pool.limits)
        per_job.update(pool.per_job)
        per_user.update(pool.per_user)
    group = {t: Limit(limits.get(t), used.get(t, 0)) for t in {**limits, **used}}
    own = {t: Limit(per_user.get(t), mine.get(t, 0)) for t in {**per_user, **mine}}
    return Qos(
        name=name,
        limits=_scope(GrpTRES=group, MaxTRESPJ={t: Limit(amount) for t, amount in per_job.items()}),
        users={user: _scope(MaxTRESPU=own)},
        accounts={},
        flags=frozenset().union(*(pool.flags for pool in pools)),
        limit_factor=None,
        defaults=_scope(),
    )


def _assocs(user: str, pools: Sequence[Pool]) -> Dict[Tuple[str, str, str], Assoc]:
    found = {("root", "", ""): Assoc("root", "", "", "", _scope())}
    allowed: Dict[str, List[str]] = {}
    for pool in pools:
        allowed.setdefault(pool.account, []).append(pool.qos)
    for account, names in allowed.items():
        found[account, "", ""] = Assoc(account, "", "", "root", _scope())
        own = Assoc(account, user, "", account, _scope(), tuple(names), names[0])
        found[account, user, ""] = own
    return found


def _partition(name: str, default: bool) -> Partition:
    return Partition(
        name,
        default,
        default_time=60,
        def_mem_per_cpu=4096,
        total_nodes=100,
        total_cpus=12800,
        node_memory=2**20,
        node_cpus=128,
        threads_per_core=1,
    )


def _jobs(pool: Pool, partition: str) -> List[Job]:
    rows = [("RUNNING", pool.mine)] if pool.mine else []
    rows += [("PENDING", tres) for tres in pool.pending]
    return [
        Job("1", pool.account, pool.qos, partition, state, "", dict(tres), time_limit=60)
        for state, tres in rows
    ]
