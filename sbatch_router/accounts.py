"""The live account table: what each account of the policy has left now, all users counted.

As the seed's `detect_live_multi_account`: available = limit - used by ALL running jobs, never
below 0. Pending jobs of mine are not taken off; they are told apart (`queued`), and `slots`
takes them into account. Where several limits bind, the one that leaves least counts; limits
on one job alone (MaxTRESPerJob) leave no less for the next, so they only bear on `slots`.

Unlimited is not a number. So that a Snakefile can count with it all the same, what nothing
limits is given as all that the partition has, and named under `unlimited`.
"""

from __future__ import annotations

import posix
import time
from typing import TYPE_CHECKING, NamedTuple

from .core.decide import BLOCKED, NEVER, NOT_ALLOWED, UNKNOWN_VERDICT, decide
from .core.match import holds
from .core.place import START, amount
from .core.report import holding
from .core.tres import UNKNOWN
from .environ import policy_paths
from .live import Desk, PolicyTrouble, find_policy
from .slurm.request import read_request

if TYPE_CHECKING:
    from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Tuple

    from .core.decide import Candidate
    from .core.place import Check
    from .core.policy import Account, Policy
    from .core.snapshot import Snapshot
    from .live import Now

GPU, CPU, MEM = "gres/gpu", "cpu", "mem"
TRES = (GPU, CPU, MEM)

#: Limits that what is running takes from. The others look at one job (or at minutes spent).
_POOLS = frozenset(("GrpTRES", "MaxTRESPA", "MaxTRESPU"))
_COUNTED = _POOLS | {
    "GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA", "GrpTRESRunMins", "MaxTRESRunMinsPA",
    "MaxTRESRunMinsPU", "GrpSubmitJobs", "MaxSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA",
}  # fmt: skip

#: sbatch options of the smallest job: what cannot even start this is full.
_LEAST = ("--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=1M")


class Use(NamedTuple):
    """One TRES of one pool; MiB for memory."""

    #: None: nothing limits it.
    limit: Optional[int]
    #: Running, of all users, and of it mine.
    used: int
    mine: int
    #: By my pending jobs and what was promised since.
    queued: int
    #: What is left: at most what the partition has.
    free: int
    #: Whose limit it is: ``qos clive``.
    where: str = ""

    @property
    def others(self) -> int:
        return max(0, self.used - self.mine)


class Pool(NamedTuple):
    """One account with one QOS."""

    account: str
    qos: str
    known: bool
    #: By `TRES`; empty when not known.
    use: Dict[str, Use]
    #: How many jobs of the shape asked for could start now, after my pending ones.
    slots: int
    #: One clause: why nothing more can start, or why it is not known or not allowed.
    why: str = ""
    #: The reason squeue would show, in Slurm's spelling.
    reason: str = ""
    usable: bool = True
    #: A job could start now: one of the shape that was asked for, else the smallest.
    open: bool = False
    #: The limit that explains `why`.
    held: Optional[Check] = None


class AccountNow(NamedTuple):
    """One account of the policy that is not blocked: `pools[0]` is what its name alone gets."""

    name: str
    pools: Sequence[Pool]
    #: ``gpu`` and ``cpu``: what kind of jobs the policy's `only` lets in.
    takes: Tuple[str, ...]

    @property
    def known(self) -> bool:
        return self.pools[0].known and self.pools[0].usable

    @property
    def slots(self) -> int:
        """Of all its QOS: the shim may use any of them."""
        return max(pool.slots for pool in self.pools)

    @property
    def open(self) -> bool:
        return any(pool.open for pool in self.pools)


class Shape(NamedTuple):
    """The job that `slots` counts: sbatch options."""

    options: Tuple[str, ...]
    #: Whether a user asked for it.
    given: bool

    @classmethod
    def of(cls, cpus: int = 0, mem: str = "", gpus: int = 0) -> Shape:
        """What was asked for; without any of it one CPU with the cluster's default memory."""
        words = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus or 1}"]
        if mem:
            words.append(f"--mem={mem}")
        if gpus:
            words.append(f"--gres=gpu:{gpus}")
        return cls(tuple(words), bool(cpus or mem or gpus))


def table(
    now: Now, policy: Policy, shape: Optional[Shape] = None, partition: str = ""
) -> List[AccountNow]:
    """The accounts of the policy that are not blocked, in its order.

    `partition`: whose limits count; the default partition when empty.
    """
    blocked = {entry.account for entry in policy.blocked}
    extra = (f"--partition={partition}",) if partition else ()
    shape = shape or Shape.of()
    # The numbers hold for any job: no rule and no `only` keeps an account out of the table.
    plain = policy._replace(rules=(), accounts=tuple(a._replace(only={}) for a in policy.accounts))
    least = _judged((*_LEAST, *extra), now, plain)
    numbers = _judged((*_LEAST, "--gres=gpu:1", *extra), now, plain)
    wanted = _judged((*shape.options, *extra), now, policy)
    caps = _partition_tres(now.snapshot, partition)
    found = []
    for account in policy.accounts:
        if account.name in blocked:
            continue
        keys = [key for key in numbers.candidates if key[0] == account.name]
        pools = [_pool(key, numbers, least, wanted, caps, shape) for key in keys]
        # Where no limit is enforced nothing was judged.
        pools = pools or [_free(account, caps)]
        pools.sort(key=lambda pool: not pool.usable)
        found.append(AccountNow(account.name, pools, _takes(account)))
    return found


class _Judged(NamedTuple):
    """The candidates of one request, and what it comes to."""

    candidates: Dict[Tuple[str, str], Candidate]
    tres: Dict[str, int]


def _judged(options: Iterable[str], now: Now, policy: Policy) -> _Judged:
    request = read_request(list(options), {}, b"#!/bin/sh\n")
    decision = decide(request, now.snapshot, now.ledger, policy, time.time())
    need = decision.need
    return _Judged(
        {(c.account, c.qos): c for c in decision.candidates},
        dict(need.tres) if need is not None else {},
    )


def _pool(
    key: Tuple[str, str],
    numbers: _Judged,
    least: _Judged,
    wanted: _Judged,
    caps: Dict[str, int],
    shape: Shape,
) -> Pool:
    first, small = numbers.candidates[key], least.candidates[key]
    if first.verdict == UNKNOWN_VERDICT and small.verdict != UNKNOWN_VERDICT:
        # No GPU can be asked for here.
        first, caps = small, {**caps, GPU: 0}
    blank = Pool(first.account, first.qos, True, {}, 0)
    if first.verdict == UNKNOWN_VERDICT:
        return blank._replace(known=False, why=first.why)
    if first.verdict == NOT_ALLOWED and not first.checks:
        return blank._replace(usable=False, why=first.why)
    use = {tres: _use(tres, first.checks, caps) for tres in TRES}
    closed = _closed(small)
    if closed:
        # A limit on jobs is reached: whatever else is left is of no use.
        use = {tres: row._replace(free=0) for tres, row in use.items()}
    judged = wanted.candidates.get(key, first)
    slots = 0 if closed else _slots(judged, wanted.tres, caps)
    probe = judged if shape.given else small
    return blank._replace(
        use=use,
        slots=slots,
        why=judged.why,
        reason=judged.reason,
        open=_starts(probe),
        held=holding(judged),
    )


def _starts(candidate: Candidate) -> bool:
    """Whether what runs now lets the job start; my own pending jobs do not count against it."""
    if candidate.verdict in (BLOCKED, NEVER, NOT_ALLOWED, UNKNOWN_VERDICT):
        return False
    return not any(check.held_by_running() for check in candidate.checks)


def _use(tres: str, checks: Sequence[Check], caps: Dict[str, int]) -> Use:
    """The limit that leaves least of a TRES."""
    cap = caps.get(tres, 0)
    best: Optional[Use] = None
    for check in checks:
        if check.tres != tres or check.kind not in _POOLS:
            continue
        used = amount(check.used)
        left = min(max(0, check.limit - used), cap)
        if best is None or left < best.free:
            mine = min(amount(check.mine), used)
            best = Use(check.limit, used, mine, check.promised, left, check.where)
    return best or Use(None, 0, 0, 0, cap)


def _closed(candidate: Candidate) -> bool:
    """Whether a limit on the number of jobs, or a spent budget, lets nothing more start."""
    return any(
        check.held_by_running()
        for check in candidate.checks
        if not check.tres or check.kind not in _POOLS
    )


def _slots(candidate: Candidate, asked: Dict[str, int], caps: Dict[str, int]) -> int:
    """How many jobs that ask for `asked` could start now, my pending ones first."""
    if candidate.verdict in (BLOCKED, NOT_ALLOWED, UNKNOWN_VERDICT):
        return 0
    counts = [caps[tres] // asked[tres] for tres in TRES if asked.get(tres) and tres in caps]
    for check in candidate.checks:
        if check.stage == START and check.never():
            return 0
        if check.kind in _COUNTED and check.tres != "node":
            if check.requested > 0:
                counts.append(max(0, check.room() // check.requested))
        elif check.held_by_running():
            return 0
    return min(counts) if counts else 0


def _free(account: Account, caps: Dict[str, int]) -> Pool:
    """An account on a cluster that enforces no limits: all that the partition has is free."""
    use = {tres: Use(None, 0, 0, 0, caps.get(tres, 0)) for tres in TRES}
    qos = account.qos[0] if account.qos else ""
    return Pool(
        account.name, qos, bool(caps), use, caps.get(CPU, 0), "no limit binds here", open=True
    )


def _partition_tres(snapshot: Snapshot, name: str) -> Dict[str, int]:
    """What the partition has in all, used or not; empty when it is not known."""
    partitions = snapshot.partitions
    if not isinstance(partitions, dict):
        return {}
    if name:
        found = [partitions[n] for n in name.lower().split(",") if n in partitions]
    else:
        found = [p for p in partitions.values() if p.default][:1]
    total: Dict[str, int] = {}
    for partition in found:
        for tres, number in partition.tres.items():
            total[tres] = max(total.get(tres, 0), number)
    return total


def _takes(account: Account) -> Tuple[str, ...]:
    test = account.only.get("gpus")
    if test is None:
        return ("gpu", "cpu")
    kinds = (("gpu", 1), ("cpu", 0))
    return tuple(kind for kind, gpus in kinds if holds(test, gpus))


# -- as data ------------------------------------------------------------------------------------


def gigabytes(mib: int) -> float:
    """GB as the seed counts them (1024 MiB), rounded down to two decimals."""
    hundredths = mib * 100 // 1024
    return hundredths // 100 if hundredths % 100 == 0 else hundredths / 100


def as_live(account: AccountNow) -> Dict[str, Any]:
    """The entry that Snakemake is given: the seed's keys, and `takes` where the policy limits."""
    pool = account.pools[0]
    entry: Dict[str, Any] = {
        "name": account.name,
        "gpu_avail": pool.use[GPU].free if "gpu" in account.takes else 0,
        "cpu_avail": pool.use[CPU].free,
        "mem_avail_gb": gigabytes(pool.use[MEM].free),
    }
    if len(account.takes) < 2:
        entry["takes"] = list(account.takes)
    return entry


def as_json(account: AccountNow) -> Dict[str, Any]:
    """The entry of ``live-accounts``: the seed's keys, and all that is known beside them."""
    entry = as_live(account)
    entry["takes"] = list(account.takes)
    entry["slots"] = account.slots
    first, *others = [_pool_json(pool) for pool in account.pools]
    entry.update(first)
    entry["other_qos"] = others
    return entry


def _pool_json(pool: Pool) -> Dict[str, Any]:
    keys = {GPU: "gpu", CPU: "cpu", MEM: "mem_mib"}
    found: Dict[str, Any] = {"qos": pool.qos, "qos_slots": pool.slots}
    found["unlimited"] = [keys[t].partition("_")[0] for t, u in pool.use.items() if u.limit is None]
    for tres, use in pool.use.items():
        found[keys[tres]] = {
            "limit": use.limit,
            "used": use.used,
            "others": use.others,
            "mine": use.mine,
            "queued": use.queued,
            "free": use.free,
            "where": use.where,
        }
    if pool.why:
        found["why"] = pool.why
    if pool.reason:
        found["reason"] = pool.reason
    return found


def is_told(now: Now) -> bool:
    """Whether Slurm told anything at all."""
    return now.snapshot.qos is not UNKNOWN or now.snapshot.config is not UNKNOWN


def for_snakefile() -> Tuple[List[Dict[str, Any]], FrozenSet[str], str]:
    """Live accounts for a bare ``snakemake``: entries, the blocked accounts, and a trouble.

    Without a policy there is nothing to tell, and that is no trouble.
    """
    environ = posix.environ
    if not policy_paths(environ):
        return [], frozenset(), ""
    try:
        policy = find_policy(environ)
    except PolicyTrouble as error:
        return [], frozenset(), str(error)
    blocked = frozenset(entry.account for entry in policy.blocked)
    if not policy.accounts:
        return [], blocked, ""
    now = Desk(environ, policy).look()
    found = table(now, policy)
    entries = [as_live(account) for account in found if account.known]
    trouble = "" if entries else "; ".join(now.snapshot.troubles) or "no account can be used"
    return entries, blocked, trouble
