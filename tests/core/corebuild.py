"""Small snapshots to judge by, with one account for each QOS unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from sbatch_router.core.decide import Candidate, Decision, decide
from sbatch_router.core.ledger import Promise
from sbatch_router.core.policy import Account, Policy
from sbatch_router.core.snapshot import Assoc, Config, Job, Partition, Qos, Scope, Snapshot
from sbatch_router.core.tres import Limit
from sbatch_router.slurm.request import read_request

TRES_KINDS = (
    "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ",
    "MinTRESPJ",
)  # fmt: skip
COUNT_KINDS = (
    "GrpJobs", "GrpSubmitJobs", "GrpWall", "MaxJobs", "MaxSubmitJobs", "MaxWallPJ",
    "MinPrioThresh",
)  # fmt: skip
ROW_TRES = ("MaxTRESPU", "MaxTRESPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA")
ROW_COUNTS = ("MaxJobsPU", "MaxSubmitJobsPU", "MaxJobsPA", "MaxSubmitJobsPA")
RELEASE = (22, 5, 8)

#: A limit as a test writes it: ``80`` (none used), ``(80, 4)``.
Short = Any


def limit(value: Short) -> Limit:
    """``80`` or ``(80, 4)`` as a `Limit`."""
    return Limit(*value) if isinstance(value, tuple) else Limit(value, 0)


def scope(*, row: bool = False, **limits: Any) -> Scope:
    """All limit kinds, unlimited but for those given: ``GrpTRES={"cpu": (80, 4)}``."""
    tres_kinds, count_kinds = (ROW_TRES, ROW_COUNTS) if row else (TRES_KINDS, COUNT_KINDS)
    unknown = set(limits) - set(tres_kinds) - set(count_kinds)
    assert not unknown, unknown
    return Scope(
        {k: {t: limit(v) for t, v in limits.get(k, {}).items()} for k in tres_kinds},
        {k: limit(limits.get(k)) for k in count_kinds},
    )


def qos(name: str, *flags: str, factor: Optional[float] = None, **limits: Any) -> Qos:
    """A QOS; limits per user and account go into alice's and her accounts' rows."""
    rows = {k: v for k, v in limits.items() if k in ROW_TRES + ROW_COUNTS}
    own = {k: v for k, v in limits.items() if k not in rows}
    row = scope(row=True, **rows)
    return Qos(
        name,
        scope(**own),
        users={"alice": row},
        accounts={"a": row, "b": row, "c": row},
        flags=frozenset(flag.lower() for flag in flags),
        limit_factor=factor,
        defaults=row,
        usage_factor=1.0,
    )


def account(name: str, parent: str = "root", user: str = "", **limits: Any) -> Assoc:
    """An account's record, or with `user` the user's."""
    return Assoc(name, user, "", name if user else parent, scope(**limits))


class World:
    """A snapshot in the making; change it, then `judge`."""

    def __init__(self, *all_qos: Qos, release: tuple[int, ...] = RELEASE) -> None:
        self.qos = {q.name: q for q in all_qos}
        self.assocs = {("root", "", ""): Assoc("root", "", "", "", scope())}
        self.partition = Partition(
            "main",
            True,
            default_time=60,
            def_mem_per_cpu=100,
            total_nodes=1,
            total_cpus=1000,
            node_memory=10**6,
            node_cpus=1000,
            threads_per_core=1,
            nodes="n1",
        )
        #: Partitions beside `partition`.
        self.partitions: dict[str, Partition] = {}
        self.config = Config(release, frozenset(("associations", "limits", "qos")))
        self.jobs: Optional[tuple[Job, ...]] = ()
        self.ledger: tuple[Promise, ...] = ()
        for name in ("a", "b", "c"):
            self.add(account(name))
            self.add(account(name, user="alice"))

    def add(self, assoc: Assoc) -> None:
        """Put an association in; it may use every QOS."""
        names = tuple(self.qos)
        full = assoc._replace(qos=names, default_qos=names[0] if names else None)
        self.assocs[assoc.account, assoc.user, ""] = full

    def change(self, **partition: Any) -> None:
        """Change the partition."""
        self.partition = self.partition._replace(**partition)

    def snapshot(self) -> Snapshot:
        """As it is now."""
        return Snapshot(
            0.0, "scontrol", "alice", dict(self.qos), dict(self.assocs),
            {self.partition.name: self.partition, **self.partitions}, self.config, self.jobs, "a",
        )  # fmt: skip

    def decide(self, *options: str, policy: Optional[Policy] = None) -> Decision:
        """The decision for ``sbatch OPTIONS --wrap x``."""
        policy = policy or Policy((Account("a"),))
        request = read_request([*options, "--wrap", "x"], {}, None)
        return decide(request, self.snapshot(), self.ledger, policy, 0.0)

    def judge(self, *options: str, where: str = "a", on: Optional[str] = None) -> Candidate:
        """The verdict for one account and QOS (default: the first)."""
        name = on or next(iter(self.qos))
        policy = Policy((Account(where, (name,)),))
        return self.decide(*options, policy=policy).candidates[0]


def job(
    ident: str, tres: Mapping[str, int], state: str = "RUNNING", *,
    where: str = "a", on: str = "q", reason: str = "", tasks: int = 1,
    at_once: Optional[int] = None, minutes: Any = 60,
) -> Job:  # fmt: skip
    """One of alice's jobs."""
    return Job(ident, where, on, "main", state, reason, dict(tres), tasks, at_once, minutes)


def promise(tres: Mapping[str, int], *, tasks: int = 1, where: str = "a", on: str = "q") -> Promise:
    """Something of alice's that the snapshot does not show yet."""
    return Promise(0.0, 1, where, on, "main", dict(tres), tasks, tasks, 60)
