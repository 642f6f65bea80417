"""One candidate judged: an account + QOS on the request's partitions.

Words (DESIGN): its verdict is one of

fits          it would start as far as limits go, even after all I queued or promised
waits_mine    only my own jobs are in the way
waits_others  other users' jobs are in the way
never         the request exceeds a limit itself
not_allowed   no association, a QOS or partition closed to it, or a submit limit reached
blocked       the policy forbids it
unknown       Slurm did not tell, or nobody can tell before the job starts
"""

from __future__ import annotations

from .limits import limits
from .mine import Mine
from .place import START, Place, has_flag
from .record import Record
from .resolve import resolve
from .snapshot import Config
from .spell import amount
from .tres import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .ledger import Promise
    from .limits import Limits
    from .place import Check
    from .request import Need, Request
    from .snapshot import Assoc, Partition, Qos, Snapshot

FITS = "fits"
WAITS_MINE = "waits_mine"
WAITS_OTHERS = "waits_others"
NEVER = "never"
NOT_ALLOWED = "not_allowed"
BLOCKED = "blocked"
UNKNOWN_VERDICT = "unknown"

#: Best first.
VERDICTS = (FITS, WAITS_MINE, WAITS_OTHERS, UNKNOWN_VERDICT, NEVER, NOT_ALLOWED, BLOCKED)

#: Limits on how many jobs may be submitted: they pass, others of a refusal do not.
SUBMIT_COUNTS = frozenset(("GrpSubmitJobs", "MaxSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA"))


class Candidate(Record):
    """One account + QOS on the request's partition, judged."""

    account: str
    qos: str
    partition: str
    verdict: str
    #: The reason squeue would show if it were submitted here now; empty: it would start.
    reason: str
    #: One clause for people.
    why: str
    checks: Tuple[Check, ...] = ()
    #: TRES -> what is left for me; None: unlimited. Only TRES asked for or ordered by.
    headroom: Dict[str, Optional[int]] = {}
    #: My pending jobs and promises here, in jobs.
    backlog: int = 0
    #: Tasks of the array that could start now.
    starts: int = 0
    #: sbatch itself would refuse the job here.
    refused: bool = False
    #: It is the partition that refuses, which one more of the job's partitions may make up for.
    shut: bool = False
    #: Refused only for now: a limit on submitted jobs is reached.
    passing: bool = False
    #: The user has no association with this account.
    foreign: bool = False
    #: Which of its account's QOS this is, 0 for the first in the policy.
    rank: int = 0
    #: The association's fair-share factor, 0 to 1; None: not known.
    fairshare: Optional[float] = None
    #: What nobody can tell before the job starts, or Slurm did not; `reason` may then differ.
    doubts: Tuple[str, ...] = ()


class Judge:
    """Judges one request on any account and QOS."""

    def __init__(
        self,
        request: Request,
        snapshot: Snapshot,
        ledger: Tuple[Promise, ...],
        partitions: Tuple[Partition, ...],
    ) -> None:
        self._request = request
        self._snapshot = snapshot
        # The first one's DefaultTime is the job's on all of them (_valid_job_part in job_mgr.c).
        self._partitions = tuple(
            p if p is partitions[0] else p._replace(default_time=partitions[0].default_time)
            for p in partitions
        )
        self.mine = Mine(snapshot, ledger)
        self._needs: Dict[str, Need] = {}
        self._one_node = _one_node(snapshot)
        self._at_once = min(request.array_tasks, request.array_at_once or request.array_tasks)

    def need(self, partition: Partition) -> Optional[Need]:
        """What the request comes to on a partition; None: the configuration is not known."""
        config = self._snapshot.config
        if not isinstance(config, Config):
            return None
        if partition.name not in self._needs:
            self._needs[partition.name] = resolve(self._request, partition, config)
        return self._needs[partition.name]

    @property
    def partition_text(self) -> str:
        """The request's partitions, as --partition takes them."""
        return ",".join(p.name for p in self._partitions)

    def judge(self, account: str, qos: str) -> Candidate:
        """The verdict for one account and QOS: that of the partition which suits best.

        sbatch refuses the whole job when it would refuse it on one of the partitions; with
        EnforcePartLimits=ANY, one that the job may use makes up for others that it may not.
        """
        verdict, why = self._unable(account, qos)
        if verdict:
            refused = verdict == NOT_ALLOWED
            foreign = refused and self.assoc(account) is None
            return Candidate(
                account,
                qos,
                self.partition_text,
                verdict,
                "",
                why,
                refused=refused,
                foreign=foreign,
            )
        config = self._snapshot.config
        assert isinstance(config, Config)
        enforced = config.enforce_part_limits
        judged = [self._on(account, qos, p, enforced != "NO") for p in self._partitions]
        if enforced == "ANY" and not all(c.shut for c in judged):
            judged = [self._on(account, qos, p, False) for p in self._partitions]
        hard = [c for c in judged if c.refused]
        return min(hard or judged, key=lambda c: (VERDICTS.index(c.verdict), bool(c.reason)))

    def _unable(self, account: str, qos: str) -> Tuple[str, str]:
        """not_allowed or unknown, and why, before any limit is looked at."""
        snapshot = self._snapshot
        if not isinstance(snapshot.config, Config):
            return UNKNOWN_VERDICT, "Slurm's configuration is not known"
        if not self._partitions:
            return UNKNOWN_VERDICT, "the partition is not known"
        assocs = snapshot.assocs
        if not isinstance(assocs, dict):
            return UNKNOWN_VERDICT, "the associations are not known"
        assoc = self.assoc(account)
        if assoc is None:
            return NOT_ALLOWED, f"{snapshot.user} has no association with account {account}"
        charged = self._charged(account, assocs)
        if any(one is not charged[0] for one in charged):
            # _check_for_part_assocs() in job_mgr.c
            why = f"{snapshot.user} has associations with account {account} for single partitions"
            return NOT_ALLOWED, f"{why}: sbatch takes no list of partitions there"
        if not qos:
            return UNKNOWN_VERDICT, f"the default QOS of account {account} is not known"
        if not isinstance(snapshot.qos, dict) or qos not in snapshot.qos:
            return UNKNOWN_VERDICT, f"Slurm told nothing of qos {qos}"
        if "qos" in snapshot.config.enforce:
            if not isinstance(assoc.qos, tuple):
                return UNKNOWN_VERDICT, f"the QOS allowed in account {account} are not known"
            if qos not in assoc.qos:
                return NOT_ALLOWED, f"qos {qos} is not allowed in account {account}"
        return self._flags(snapshot.qos[qos])

    def _flags(self, qos: Qos) -> Tuple[str, str]:
        """Flags of the QOS that decide by themselves."""
        reservation = self._request.given("reservation")
        if has_flag(qos, "requiresreservation") and not (reservation and reservation.value):
            return NOT_ALLOWED, f"qos {qos.name} is for reservations only"
        if has_flag(qos, "enforceusagethreshold"):
            return UNKNOWN_VERDICT, f"qos {qos.name} has a usage threshold, which is not judged"
        return "", ""

    def assoc(self, account: str, partition: str = "") -> Optional[Assoc]:
        """The user's association with an account: for a partition, if there is one, else any."""
        assocs = self._snapshot.assocs
        if not isinstance(assocs, dict):
            return None
        user = self._snapshot.user
        for name in (partition, *(p.name for p in self._partitions), ""):
            found = assocs.get((account, user, name))
            if found is not None:
                return found
        return None

    def _charged(
        self, account: str, assocs: Dict[Tuple[str, str, str], Assoc]
    ) -> List[Optional[Assoc]]:
        """The user's association that a job is charged to, on each of the partitions."""
        user = self._snapshot.user
        return [
            assocs.get((account, user, p.name)) or assocs.get((account, user, ""))
            for p in self._partitions
        ]

    def _chain(self, account: str, partition: str) -> Tuple[Assoc, ...]:
        assocs = self._snapshot.assocs
        assert isinstance(assocs, dict)
        own = self.assoc(account, partition)
        chain = [own] if own is not None else []
        seen = set()
        name = account
        while name and name not in seen:
            seen.add(name)
            record = assocs.get((name, "", ""))
            if record is None:
                break
            chain.append(record)
            name = record.parent
        return tuple(chain)

    def _on(self, account: str, qos: str, partition: Partition, strict: bool) -> Candidate:
        """The verdict on one partition; `strict`: sbatch refuses what it does not allow."""
        blank = Candidate(account, qos, self.partition_text, UNKNOWN_VERDICT, "", "")
        config, all_qos = self._snapshot.config, self._snapshot.qos
        assert isinstance(config, Config)
        assert isinstance(all_qos, dict)
        closed, closed_reason = _closed(partition, account, qos)
        if closed and strict:
            return blank._replace(verdict=NOT_ALLOWED, why=closed, refused=True, shut=True)
        need = self.need(partition)
        assert need is not None
        if need.doubts:
            return blank._replace(why="; ".join(need.doubts))
        partition_qos = all_qos.get(partition.qos) if partition.qos else None
        if partition.qos and partition_qos is None:
            return blank._replace(why=f"Slurm told nothing of the partition's qos {partition.qos}")
        chain = self._chain(account, partition.name)
        if len(chain) < 2 or chain[-1].parent:
            return blank._replace(why=f"the accounts above {account} are not all known")
        place = Place(
            all_qos[qos],
            partition,
            partition_qos,
            chain,
            config,
            self._snapshot.user,
            self._one_node,
        )
        found = limits(place, need, self._request.array_tasks, self._at_once, self.mine.usage)
        if closed and found.refusal is None:
            before = found.checks[: found.before]
            held = _first_reason(before) or closed_reason
            return blank._replace(verdict=NOT_ALLOWED, reason=held, why=closed)
        judged = _verdict(blank, found, self._at_once)
        limit = next((c for c in found.checks if c.where == f"partition {partition.name}"), None)
        if strict and limit is not None:
            # sbatch is refused before the limits of accounts and QOS are looked at.
            why = f"{limit.where}: {_clause(limit)}"
            judged = blank._replace(verdict=NEVER, why=why, refused=True, shut=True)
        return judged._replace(
            checks=found.checks,
            headroom=_headroom(found, need),
            backlog=self.mine.usage("qos", qos).waiting_jobs,
            doubts=found.doubts,
            fairshare=chain[0].fairshare,
        )


def _one_node(snapshot: Snapshot) -> bool:
    """Whether all partitions are one and the same node."""
    partitions = snapshot.partitions
    if not isinstance(partitions, dict):
        return False
    nodes = {p.nodes or p.other.get("Nodes", "") for p in partitions.values()}
    return (
        len(nodes) == 1 and nodes != {""} and all(p.total_nodes == 1 for p in partitions.values())
    )


def _closed(partition: Partition, account: str, qos: str) -> Tuple[str, str]:
    """Why the partition is closed to this account or QOS, and squeue's reason; else empty.

    slurm.conf(5): AllowAccounts, DenyAccounts, AllowQos, DenyQos; Deny* is ignored where
    Allow* is set. select_nodes() in node_scheduler.c looks at the QOS first.
    """
    pairs = (
        ("qos", qos, partition.allow_qos, partition.deny_qos, "QOSNotAllowed"),
        (
            "account",
            account,
            partition.allow_accounts,
            partition.deny_accounts,
            "AccountNotAllowed",
        ),
    )
    for what, name, allowed, denied, reason in pairs:
        if allowed is not None:
            if name not in allowed:
                return f"partition {partition.name} does not allow {what} {name}", reason
        elif name in denied:
            return f"partition {partition.name} denies {what} {name}", reason
    return "", ""


def _first_reason(checks: Tuple[Check, ...]) -> str:
    return next((c.reason for c in checks if c.stage == START and c.held_by_running()), "")


def _verdict(blank: Candidate, found: Limits, at_once: int) -> Candidate:
    """The verdict of one candidate from its checks."""
    refusal = found.refusal
    if refusal is not None:
        count = refusal.kind in SUBMIT_COUNTS and not refusal.never()
        why = f"{refusal.where}: {_clause(refusal)} [{refusal.reason}]"
        verdict = NOT_ALLOWED if refusal.kind in SUBMIT_COUNTS else NEVER
        if count and refusal.promised:
            why += "; counting what was submitted a moment ago"
        return blank._replace(verdict=verdict, why=why, refused=True, passing=count)
    start = tuple(c for c in found.checks if c.stage == START)
    reason = _first_reason(start)
    never = next((c for c in start if c.sure and c.never()), None)
    if never is not None:
        why = f"{never.where}: {_clause(never)}"
        return blank._replace(verdict=NEVER, reason=reason, why=why)
    if found.doubts:
        return blank._replace(reason=reason, why=found.doubts[0])
    others = next((c for c in start if c.held_by_others()), None)
    if others is not None:
        why = f"{others.where}: {_clause(others)}"
        return blank._replace(verdict=WAITS_OTHERS, reason=reason, why=why)
    one = next((c for c in start if c.held(c.requested)), None)
    if one is not None:
        why = f"{one.where}: {_clause(one)}, all yours"
        return blank._replace(verdict=WAITS_MINE, reason=reason, why=why)
    tight = [c for c in start if c.held(c.requested_all)]
    if tight:
        starts = min(_tasks_that_start(c, at_once) for c in tight)
        why = f"{starts} of {at_once} tasks can start now ({tight[0].where})"
        return blank._replace(verdict=WAITS_MINE, reason=reason, why=why, starts=starts)
    return blank._replace(verdict=FITS, reason=reason, why="", starts=at_once)


def _tasks_that_start(check: Check, at_once: int) -> int:
    if not check.requested:
        return at_once
    return max(0, min(at_once, check.room() // check.requested))


def _clause(check: Check) -> str:
    name = f"{check.kind} {check.tres}" if check.tres else check.kind

    def words(value: object) -> str:
        return amount(check.tres, value, check.kind)

    asked = f"asked {words(check.requested)}"
    if check.minimum:
        return f"{name} wants at least {words(check.limit)}, {asked}"
    if check.never():
        return f"{name} is {words(check.limit)}, {asked}"
    text = f"{name} is {words(check.limit)}, {words(check.used)} used"
    if check.promised:
        text += f", {words(check.promised)} queued by you"
    return f"{text}, {asked}"


def _headroom(found: Limits, need: Need) -> Dict[str, Optional[int]]:
    """What is left of each TRES asked for; None: nothing limits it."""
    room: Dict[str, Optional[int]] = dict.fromkeys(need.tres)
    for check in found.checks:
        if not check.tres or "Mins" in check.kind or check.minimum:
            continue
        left = check.room()
        known = room.get(check.tres)
        room[check.tres] = left if known is None else min(known, left)
    return room


__all__ = [
    "BLOCKED",
    "FITS",
    "NEVER",
    "NOT_ALLOWED",
    "UNKNOWN",
    "UNKNOWN_VERDICT",
    "VERDICTS",
    "WAITS_MINE",
    "WAITS_OTHERS",
    "Candidate",
    "Judge",
]
