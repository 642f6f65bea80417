"""Why each of my pending jobs waits: Slurm's reason against the numbers.

Slurm's reason names a limit; it does not say whose use is in the way. So the job is judged
where it is, by the same `decide` as a submission, and the limit's use is divided into mine
and others'. Reasons that are no accounting limit have a fixed meaning (`REASONS`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from .core import reasons
from .core.decide import (
    BLOCKED,
    FITS,
    NEVER,
    NOT_ALLOWED,
    UNKNOWN_VERDICT,
    WAITS_MINE,
    WAITS_OTHERS,
    decide,
)
from .core.place import START
from .core.policy import Account, Policy
from .core.report import holding
from .core.spell import amount
from .live import promised
from .moves import properties_of, request_of, takes, without
from .refusal import heaviest, in_words

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence, Tuple

    from .core.decide import Candidate
    from .core.ledger import Promise
    from .core.place import Check
    from .core.snapshot import Job, Snapshot
    from .live import Desk, Now
    from .slurm.queue import Detail, Running

# Causes.
OTHERS = "others"  # other users hold the pool
MINE = "mine"  # my own running or queued jobs do
TOO_LARGE = "too-large"  # it exceeds a limit by itself
SPENT = "spent"  # a budget of minutes is used up
STARTING = "starting"  # there is room: it starts when the scheduler looks
WAITING = "waiting"  # for its turn, a time, another job
HELD = "held"  # somebody holds it
IMPOSSIBLE = "impossible"  # it cannot start as it is, limits aside
SYSTEM = "system"  # nodes or partitions are not there
UNSEEN = "unseen"  # the scheduler has not looked at it yet
UNKNOWN = "unknown"  # we do not know

#: Causes that are no problem: nothing has to be done.
NORMAL = frozenset((MINE, STARTING, WAITING, UNSEEN))
#: Causes for which another account is looked for.
MOVABLE = frozenset((OTHERS, TOO_LARGE, SPENT))

#: Reason -> cause, whether it can ever start as it is (None: not known), and what it means.
REASONS: Dict[str, Tuple[str, Optional[bool], str]] = {
    "None": (UNSEEN, None, "the scheduler has not looked at it yet"),
    "Priority": (WAITING, True, "jobs of higher priority come first"),
    "Resources": (WAITING, True, "it is next, and waits for nodes to become free"),
    "Dependency": (WAITING, None, "it waits for another job (--dependency)"),
    "DependencyNeverSatisfied": (
        IMPOSSIBLE, False, "the job it depends on failed: cancel it, or change the dependency"),
    "BeginTime": (WAITING, True, "its time has not come (--begin, or a requeue's delay)"),
    "JobArrayTaskLimit": (WAITING, True, "as many tasks of its array run as its % allows"),
    "Licenses": (WAITING, None, "it waits for a license"),
    "Reservation": (WAITING, None, "its reservation has not begun, or is full"),
    "ReservationDeleted": (IMPOSSIBLE, False, "its reservation is gone"),
    "Prolog": (WAITING, True, "the prolog runs on its nodes"),
    "Cleaning": (WAITING, True, "it was requeued, and its last run is being cleaned up"),
    "SchedDefer": (WAITING, True, "it asked not to start at once"),
    "FedJobLock": (WAITING, True, "the clusters of a federation settle who runs it"),
    "BurstBufferResources": (WAITING, None, "it waits for a burst buffer"),
    "BurstBufferStageIn": (WAITING, True, "its data are being copied in"),
    "PowerNotAvail": (WAITING, None, "it waits for power"),
    "PowerReserved": (WAITING, None, "power is reserved for others"),
    "JobHeldUser": (HELD, None, "you hold it: scontrol release ID"),
    "JobHeldAdmin": (HELD, None, "an administrator holds it; ask them"),
    "JobHoldMaxRequeue": (HELD, None, "it was requeued too often; scontrol release ID"),
    "launch_failed_requeued_held": (HELD, None, "its start failed; scontrol release ID"),
    "job_requeued_in_held_state": (HELD, None, "it was requeued on hold: scontrol release ID"),
    "PartitionDown": (SYSTEM, None, "the partition is down"),
    "PartitionInactive": (SYSTEM, None, "the partition takes no jobs now"),
    "NodeDown": (SYSTEM, None, "a node it needs is down"),
    "ReqNodeNotAvail": (SYSTEM, None, "a node it needs is down, drained or reserved"),
    "FrontEndDown": (SYSTEM, None, "no front end is up"),
    "PartitionNodeLimit": (
        IMPOSSIBLE, False, "it asks for more nodes, CPUs or memory than the partition allows"),
    "PartitionTimeLimit": (
        IMPOSSIBLE, False, "longer than the partition allows: scontrol update TimeLimit=..."),
    "PartitionConfig": (
        IMPOSSIBLE, False, "the partition cannot run such a job: another one, or ask for less"),
    "BadConstraints": (IMPOSSIBLE, False, "no node can meet what it asks for"),
    "DeadLine": (IMPOSSIBLE, False, "it cannot end before its --deadline"),
    "InvalidAccount": (IMPOSSIBLE, False, "its account is no longer valid for you"),
    "InvalidQOS": (IMPOSSIBLE, False, "its QOS is no longer valid for you in this account"),
    "AccountNotAllowed": (IMPOSSIBLE, False, "the partition does not allow its account"),
    "QOSNotAllowed": (IMPOSSIBLE, False, "the partition does not allow its QOS"),
    "MaxMemPerLimit": (IMPOSSIBLE, False, "it asks for more memory than MaxMemPerNode or ...CPU"),
    "Nodes_required_for_job_are_DOWN": (
        SYSTEM, None, "the nodes it needs are down, drained, or reserved for others"),
    "BurstBufferOperation": (SYSTEM, None, "its burst buffer failed"),
    "MaxPoweredNodes": (WAITING, True, "as many nodes are up as may be"),
    "SystemFailure": (SYSTEM, None, "Slurm failed to start it"),
    "JobLaunchFailure": (SYSTEM, None, "its start failed"),
    "AccountingPolicy": (UNKNOWN, None, "a limit, which this release does not name"),
    "QOSUsageThreshold": (SPENT, None, "the QOS wants a better fair share than yours is now"),
    "AssociationJobLimit": (MINE, True, "the association's limit on jobs is reached"),
    "AssociationResourceLimit": (UNKNOWN, None, "a limit of the association is reached"),
    "AssociationTimeLimit": (TOO_LARGE, False, "its time limit is above the association's"),
    "QOSJobLimit": (MINE, True, "the QOS's limit on jobs is reached"),
    "QOSResourceLimit": (UNKNOWN, None, "a limit of the QOS is reached"),
    "QOSTimeLimit": (TOO_LARGE, False, "its time limit is above the QOS's"),
}  # fmt: skip

#: Kind of limit -> cause and ability when the numbers are not to be had.
_KINDS: Dict[str, Tuple[str, Optional[bool], str]] = {}
_KINDS.update(
    dict.fromkeys(
        ("GrpTRES", "GrpTRESRunMins", "GrpJobs", "MaxTRESPA", "MaxTRESRunMinsPA", "MaxJobsPA"),
        (UNKNOWN, None, "a limit that you share with others is reached"),
    )
)
_KINDS.update(
    dict.fromkeys(
        ("MaxTRESPU", "MaxTRESRunMinsPU", "MaxJobsPU", "MaxJobs"),
        (MINE, True, "a limit on what you may run at once is reached"),
    )
)
_KINDS.update(
    dict.fromkeys(
        ("MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ", "MinTRESPJ", "MaxWallPJ"),
        (TOO_LARGE, False, "it breaks a limit on single jobs: ask for less, or another QOS"),
    )
)
_KINDS.update(
    dict.fromkeys(
        ("GrpTRESMins", "GrpWall"),
        (SPENT, None, "a budget is used up; it frees as usage decays, or is reset"),
    )
)
_KINDS.update(
    dict.fromkeys(
        ("GrpSubmitJobs", "MaxSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA"),
        (MINE, True, "a limit on submitted jobs is reached"),
    )
)

_TRES = ("cpu", "mem", "node", "energy", "billing", "gres/gpu", "license/any", "bb/any", "other")


def accounting_reasons() -> Dict[str, str]:
    """Every accounting reason, in Slurm's spelling -> the kind of limit behind it."""
    found: Dict[str, str] = {}
    for level, kind in reasons._COUNTS:
        found[reasons.count_reason(level, kind)] = kind
    for level, kind in reasons._PATTERNS:
        for tres in _TRES:
            found.setdefault(reasons.tres_reason(level, kind, tres), kind)
    return found


_ACCOUNTING = accounting_reasons()


class Holder(NamedTuple):
    """One user's part of a full pool. Times are seconds since the epoch; None: not known."""

    user: str
    amount: int
    #: Jobs; 0 where only the amount is known.
    jobs: int = 0
    since: Optional[float] = None
    #: When the first of these jobs ends at the latest.
    first_ends: Optional[float] = None


class Move(NamedTuple):
    """Where the job could start now."""

    account: str
    qos: str
    #: What was judged is all that the job asks for.
    exact: bool
    command: str


class Finding(NamedTuple):
    """One pending job of mine, explained."""

    job: Job
    detail: Optional[Detail]
    cause: str
    #: Whether it can ever start where it is; None: not known.
    can_start: Optional[bool]
    why: str
    check: Optional[Check] = None
    holders: Tuple[Holder, ...] = ()
    move: Optional[Move] = None

    @property
    def normal(self) -> bool:
        return self.cause in NORMAL


def base_reason(reason: str) -> str:
    """``ReqNodeNotAvail`` of ``ReqNodeNotAvail, UnavailableNodes:n[1-3]``.

    Where slurmctld wrote a sentence, with underscores for blanks, as scontrol prints it.
    """
    word = reason.strip("()").partition(",")[0].partition("(")[0].strip()
    return word.replace(" ", "_") or "None"


def diagnose(
    jobs: Sequence[Job],
    now: Now,
    desk: Desk,
    details: Mapping[str, Detail],
    running: Sequence[Running],
) -> List[Finding]:
    """Each of my pending `jobs`, in order.

    A place that is found for one is taken for the next, and those that others hold come first.
    """
    found = [_explained(job, now.snapshot, details.get(job.id), running) for job in jobs]
    moves: Dict[int, Move] = {}
    ledger = now.ledger
    for number in sorted(range(len(found)), key=lambda n: found[n].cause != OTHERS):
        finding = found[number]
        if finding.cause in MOVABLE and in_policy(finding.job.account, desk.policy):
            move, ledger = _place(finding, now.snapshot, ledger, desk)
            if move is not None:
                moves[number] = move
    return [finding._replace(move=moves.get(n)) for n, finding in enumerate(found)]


def _explained(
    job: Job, snapshot: Snapshot, detail: Optional[Detail], running: Sequence[Running]
) -> Finding:
    cause, can_start, why, check = explain(job, judge_here(job, snapshot, detail))
    finding = Finding(job, detail, cause, can_start, why, check)
    if cause == OTHERS and check is not None:
        finding = finding._replace(holders=holders(check, snapshot, running))
    return finding


def _place(
    finding: Finding, snapshot: Snapshot, ledger: Tuple[Promise, ...], desk: Desk
) -> Tuple[Optional[Move], Tuple[Promise, ...]]:
    """Where a job could start now, and the ledger with it there."""
    job = finding.job
    if is_part(job):
        return None, ledger
    wanted = request_of(job, finding.detail, snapshot, properties_of(job, desk.policy))
    decision = desk.judge(wanted.request, without(snapshot, job), ledger)
    if not takes(decision, job):
        return None, ledger
    command = f"sbatch-router reroute {job.id.partition('_[')[0]}"
    move = Move(decision.account, decision.qos, wanted.exact, command)
    return move, (*ledger, promised(wanted.request, decision))


def is_part(job: Job) -> bool:
    """Whether it is a component of a heterogeneous job, whose parts belong together."""
    return "+" in job.id


def in_policy(account: str, policy: Policy) -> bool:
    """Whether the policy names the account, to use it or to stay off it."""
    names = {entry.name for entry in policy.accounts} | {entry.account for entry in policy.blocked}
    return account in names


def judge_here(job: Job, snapshot: Snapshot, detail: Optional[Detail]) -> Optional[Candidate]:
    """The verdict on a pending job in the account and QOS that it has."""
    only = Policy((Account(job.account, (job.qos,)),))
    request = request_of(job, detail, snapshot, {}).request
    decision = decide(request, without(snapshot, job), (), only, time.time())
    return decision.candidates[0] if decision.candidates else None


def explain(
    job: Job, candidate: Optional[Candidate]
) -> Tuple[str, Optional[bool], str, Optional[Check]]:
    """Cause, whether it can start, the words, and the limit in question."""
    reason = base_reason(job.reason)
    check = _check(reason, candidate)
    kind = _ACCOUNTING.get(reason)
    fixed = REASONS.get(reason)
    verdict = _verdict(candidate)
    undecided = reason in ("None", "Priority", "Resources")
    if kind is None and not (undecided and verdict in (NEVER, WAITS_OTHERS)):
        if fixed is None:
            return UNKNOWN, None, f"Slurm says {job.reason}", None
        return (*fixed, None)
    words = limit_words(check) if check is not None else candidate.why if candidate else ""
    if kind in ("GrpTRESMins", "GrpWall"):
        cause, able, text = _KINDS[kind]
        return cause, able, f"{words}: {text}" if words else text, check
    if verdict == NEVER:
        return TOO_LARGE, False, f"{words}: it can never start there", check
    if verdict == WAITS_OTHERS:
        return OTHERS, True, words, check
    if verdict == WAITS_MINE:
        return MINE, True, f"{words}: your own jobs come first", check
    if verdict == FITS:
        return STARTING, True, "there is room for it now; it starts when the scheduler looks", check
    assert kind is not None
    cause, able, text = _KINDS[kind]
    if verdict in (NOT_ALLOWED, BLOCKED) and words:
        text = f"{text} ({words})"
    return cause, able, text, check


def _verdict(candidate: Optional[Candidate]) -> str:
    """The verdict on a job that is submitted already: limits on submissions count it itself."""
    if candidate is None:
        return UNKNOWN_VERDICT
    if candidate.verdict != NOT_ALLOWED or not candidate.checks:
        return candidate.verdict
    start = [check for check in candidate.checks if check.stage == START]
    if any(check.never() for check in start):
        return NEVER
    if any(check.held_by_others() for check in start):
        return WAITS_OTHERS
    return WAITS_MINE if any(check.held_by_running() for check in start) else FITS


def limit_words(check: Check) -> str:
    """``qos clive: GrpTRES mem 312.5G, used 256G (0 yours), asked 125G``."""
    tres = "" if "Mins" in check.kind else check.tres
    name = f"{check.kind} {check.tres}" if check.tres else check.kind
    text = f"{check.where}: {name} "
    if check.minimum:
        return f"{text}wants {amount(tres, check.limit)}, asked {amount(tres, check.requested)}"
    text += amount(tres, check.limit)
    if not check.never():
        text += f", used {amount(tres, check.used)}"
        if isinstance(check.mine, int) and check.mine:
            text += f" ({amount(tres, check.mine)} yours)"
    return f"{text}, asked {amount(tres, check.requested)}"


def _check(reason: str, candidate: Optional[Candidate]) -> Optional[Check]:
    """The limit that Slurm's reason names, if it holds the job; else what explains it best."""
    if candidate is None:
        return None
    named = [c for c in candidate.checks if c.reason == reason and c.held_by_running()]
    return named[0] if named else holding(candidate)


# -- who holds a pool ---------------------------------------------------------------------------


def holders(check: Check, snapshot: Snapshot, running: Sequence[Running]) -> Tuple[Holder, ...]:
    """The users of a full pool, the heaviest first, me included.

    From the running jobs where they can be seen, else from the limits' own rows, which tell
    how much and not since when.
    """
    shown: Dict[str, List[Running]] = {}
    for job in running:
        if _inside(job, check, snapshot) and _part(job, check):
            shown.setdefault(job.user, []).append(job)
    found = {user: _holder(user, jobs, check) for user, jobs in shown.items()}
    for user, used in users_rows(check, snapshot):
        if user not in found:
            found[user] = Holder(user, used)
    return tuple(sorted(found.values(), key=lambda h: (-h.amount, h.user)))


def _holder(user: str, jobs: Sequence[Running], check: Check) -> Holder:
    started = [job.started for job in jobs if job.started is not None]
    ends = [job.ends for job in jobs if job.ends is not None]
    return Holder(
        user,
        sum(_part(job, check) for job in jobs),
        len(jobs),
        min(started, default=None),
        min(ends, default=None),
    )


def _part(job: Running, check: Check) -> int:
    """What a job takes of the limit, as far as it can be told: minutes count as jobs."""
    if not check.tres or "Mins" in check.kind:
        return 1
    return job.tres.get(check.tres, 0)


def _inside(job: Running, check: Check, snapshot: Snapshot) -> bool:
    """Whether a running job is charged to the pool of a limit."""
    words = check.where.split(" ")
    for what, name in zip(words, words[1:]):
        if what == "qos" and name not in _qos_of(job, snapshot):
            return False
        if what == "account" and name not in _ancestry(job.account, snapshot):
            return False
        if what == "user" and job.user != name:
            return False
    return True


def _qos_of(job: Running, snapshot: Snapshot) -> Tuple[str, ...]:
    partitions = snapshot.partitions
    partition = partitions.get(job.partition) if isinstance(partitions, dict) else None
    return (job.qos, partition.qos if partition is not None else "")


def _ancestry(account: str, snapshot: Snapshot) -> List[str]:
    chain: List[str] = []
    assocs = snapshot.assocs
    while account and account not in chain:
        chain.append(account)
        record = assocs.get((account, "", "")) if isinstance(assocs, dict) else None
        account = record.parent if record is not None else ""
    return chain


def users_rows(check: Check, snapshot: Snapshot) -> List[Tuple[str, int]]:
    """(user, amount) from the limit's rows."""
    from .refusal import shown_name

    return [(shown_name(user), used) for user, used in heaviest(check, snapshot)]


def users_of(check: Optional[Check], snapshot: Snapshot) -> str:
    """``bob 250G, carol 12G``: who uses most of what a limit covers; empty: not known."""
    if check is None:
        return ""
    users = heaviest(check, snapshot)
    return in_words(users, check) if users else ""
