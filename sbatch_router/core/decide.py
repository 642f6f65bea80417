"""The decision: which account a job goes to, or why none. Pure; `explain` prints its result.

Words (DESIGN): a candidate is an account + QOS + partition; its verdict is one of

fits          it would start as far as limits go, even after all I queued or promised
waits_mine    only my own jobs are in the way
waits_others  other users' jobs are in the way
never         the request exceeds a limit itself
not_allowed   no association, a QOS or partition closed to it, or a submit limit reached
blocked       the policy forbids it
unknown       Slurm did not tell
"""

from __future__ import annotations

from .limits import START, SUBMIT, Limits, Place, limits
from .match import matches, snakemake_facts, why_not
from .mine import Mine
from .policy import Rule
from .record import Record
from .request import resolve
from .snapshot import Config, Partition
from .tres import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .ledger import Promise
    from .limits import Check
    from .policy import Account, Blocked, Policy, WhenFull
    from .request import Need, Request
    from .snapshot import Assoc, Snapshot

FITS = "fits"
WAITS_MINE = "waits_mine"
WAITS_OTHERS = "waits_others"
NEVER = "never"
NOT_ALLOWED = "not_allowed"
BLOCKED = "blocked"
UNKNOWN_VERDICT = "unknown"

#: Best first.
VERDICTS = (FITS, WAITS_MINE, WAITS_OTHERS, UNKNOWN_VERDICT, NEVER, NOT_ALLOWED, BLOCKED)

#: sbatch options that make any judgement of ours pointless: nothing is queued, or elsewhere.
_PASS_OPTIONS = {
    "help": "asks for help",
    "usage": "asks for help",
    "version": "asks for the version",
    "test-only": "submits nothing (--test-only)",
}


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


class Decision(Record):
    """What the shim does.

    `action`: ``route`` (submit to account and QOS), ``keep`` (the user's own choice stands),
    ``pass`` (not ours to judge), ``queue`` (submit there to wait) or ``refuse``.
    """

    action: str
    why: str
    account: str = ""
    qos: str = ""
    partition: str = ""
    rule: str = ""
    #: Whether this differs from what plain sbatch would have done; None: not known.
    changed: Optional[bool] = None
    candidates: Tuple[Candidate, ...] = ()
    need: Optional[Need] = None
    #: Exit code of a refusal: 75 (full now) or 77 (no account may ever run it).
    exit_code: int = 0
    #: For ``when_full: wait``: how long to look again before refusing, in seconds.
    wait_seconds: int = 0
    #: Worth a line on stderr even when nothing changes (a blocked account that was kept).
    notes: Tuple[str, ...] = ()


def decide(
    request: Request,
    snapshot: Snapshot,
    ledger: Tuple[Promise, ...],
    policy: Policy,
    now: float,
) -> Decision:
    """Judge every candidate and choose. `now` is seconds since the epoch."""
    reason = _not_ours(request, snapshot)
    if reason:
        return Decision("pass", reason)
    return _Deciding(request, snapshot, ledger, policy).decide()


def _not_ours(request: Request, snapshot: Snapshot) -> str:
    """Why this call is passed on unjudged; empty if it is judged."""
    for option, words in _PASS_OPTIONS.items():
        if option in request.options:
            return words
    if request.doubts:
        return "not understood: " + "; ".join(request.doubts)
    config = snapshot.config
    if isinstance(config, Config) and not config.enforce & {"limits", "safe"}:
        return "AccountingStorageEnforce has no limits: no account's limit binds here"
    clusters = request.given("clusters")
    if clusters and not (isinstance(config, Config) and clusters.value == config.cluster):
        return "names a cluster (--clusters); only the local one is judged"
    return ""


class _Deciding:
    """One decision in the making."""

    def __init__(
        self,
        request: Request,
        snapshot: Snapshot,
        ledger: Tuple[Promise, ...],
        policy: Policy,
    ) -> None:
        self.request = request
        self.snapshot = snapshot
        self.policy = policy
        self.mine = Mine(snapshot, ledger)
        self.blocked: Dict[str, Blocked] = {b.account: b for b in reversed(policy.blocked)}
        self.partitions = _partitions(request, snapshot)
        self.need: Optional[Need] = None
        if self.partitions and isinstance(snapshot.config, Config):
            self.need = resolve(request, self.partitions[0], snapshot.config)
        self.facts = _facts(request, self.need, self.partitions, snapshot.user)
        self.rule = _first_rule(policy, self.facts)

    def decide(self) -> Decision:
        asked = self._asked_account()
        listed = {a.name for a in self.policy.accounts}
        if asked and asked not in listed and asked not in self.blocked:
            return self._decision("pass", f"account {asked} is not in the policy")
        mode = self._mode(asked)
        if asked and mode == "keep":
            return self._keep(asked)
        candidates = self._candidates()
        if asked and mode == "prefer":
            candidates = _asked_first(candidates, asked, self._asked_qos())
        return self._choose(candidates, asked if mode == "prefer" else "")

    # -- what the user asked for --------------------------------------------------------------

    def _asked_account(self) -> str:
        given = self.request.given("account")
        return given.value.lower() if given else ""

    def _asked_qos(self) -> str:
        given = self.request.given("qos")
        return given.value.lower() if given else ""

    def _mode(self, asked: str) -> str:
        """keep, prefer or override: the policy's word for where the account was given."""
        given = self.request.given("account")
        return self.policy.explicit_account.get(given.origin, "keep") if given and asked else ""

    def _keep(self, asked: str) -> Decision:
        notes: Tuple[str, ...] = ()
        blocked = self.blocked.get(asked)
        if blocked:
            notes = (f"account {asked} is blocked ({blocked.reason}), kept as you named it",)
        given = self.request.given("account")
        origin = {"cli": "on the command line", "env": "in the environment"}.get(
            given.origin if given else "", "in the script"
        )
        decision = self._decision("keep", f"account {asked} was named {origin}", asked)
        return decision._replace(
            qos=self._asked_qos(), changed=False, notes=notes, candidates=self._candidates()
        )

    # -- candidates ---------------------------------------------------------------------------

    def _candidates(self) -> Tuple[Candidate, ...]:
        found: List[Candidate] = []
        for account in self.policy.accounts:
            for qos in self._qos_names(account):
                found.append(self._candidate(account, qos))
        named = {a.name for a in self.policy.accounts}
        for name, blocked in self.blocked.items():
            if name not in named:
                found.append(self._refused_candidate(name, "", BLOCKED, _block_text(blocked)))
        return tuple(found)

    def _qos_names(self, account: Account) -> Tuple[str, ...]:
        if account.qos:
            return account.qos
        assoc = self._assoc(account.name)
        if assoc is not None and isinstance(assoc.default_qos, str):
            return (assoc.default_qos,)
        asked = self._asked_qos()
        return (asked,)

    def _refused_candidate(self, account: str, qos: str, verdict: str, why: str) -> Candidate:
        return Candidate(account, qos, self._partition_text(), verdict, "", why)

    def _partition_text(self) -> str:
        return ",".join(p.name for p in self.partitions)

    def _candidate(self, account: Account, qos: str) -> Candidate:
        no = self._policy_forbids(account, qos)
        if no:
            return self._refused_candidate(account.name, qos, BLOCKED, no)
        verdict, why = self._unable(account.name, qos)
        if verdict:
            return self._refused_candidate(account.name, qos, verdict, why)
        judged = [self._judge(account.name, qos, p) for p in self.partitions]
        return min(judged, key=lambda c: (VERDICTS.index(c.verdict), bool(c.reason)))

    def _policy_forbids(self, account: Account, qos: str) -> str:
        blocked = self.blocked.get(account.name)
        if blocked:
            return _block_text(blocked)
        if account.only:
            failed = why_not(account.only, self.facts)
            if failed:
                return "the policy's `only`: " + failed
        chosen = self.rule.candidates
        if chosen is not None and not any(
            name == account.name and only in (None, qos) for name, only in chosen
        ):
            return f"not among the candidates of rule {self.rule.name!r}"
        asked = self._asked_qos()
        given = self.request.given("qos")
        if asked and given and qos not in asked.split(","):
            mode = self.policy.explicit_account.get(given.origin, "keep")
            if mode == "keep" or not self._asked_account():
                return f"--qos={asked} was asked for"
        return ""

    def _unable(self, account: str, qos: str) -> Tuple[str, str]:
        """not_allowed or unknown, and why, before any limit is looked at."""
        if not isinstance(self.snapshot.config, Config):
            return UNKNOWN_VERDICT, "Slurm's configuration is not known"
        if not self.partitions:
            return UNKNOWN_VERDICT, "the partition is not known"
        if not isinstance(self.snapshot.assocs, dict):
            return UNKNOWN_VERDICT, "the associations are not known"
        assoc = self._assoc(account)
        if assoc is None:
            return NOT_ALLOWED, f"{self.snapshot.user} has no association with account {account}"
        if not qos:
            return UNKNOWN_VERDICT, f"the default QOS of account {account} is not known"
        if not isinstance(self.snapshot.qos, dict) or qos not in self.snapshot.qos:
            return UNKNOWN_VERDICT, f"Slurm told nothing of qos {qos}"
        if "qos" in self.snapshot.config.enforce:
            if not isinstance(assoc.qos, tuple):
                return UNKNOWN_VERDICT, f"the QOS allowed in account {account} are not known"
            if qos not in assoc.qos:
                return NOT_ALLOWED, f"qos {qos} is not allowed in account {account}"
        return "", ""

    def _assoc(self, account: str, partition: str = "") -> Optional[Assoc]:
        assocs = self.snapshot.assocs
        if not isinstance(assocs, dict):
            return None
        user = self.snapshot.user
        for name in (partition, *(p.name for p in self.partitions), ""):
            found = assocs.get((account, user, name))
            if found is not None:
                return found
        return None

    def _chain(self, account: str, partition: str) -> Tuple[Assoc, ...]:
        assocs = self.snapshot.assocs
        assert isinstance(assocs, dict)
        own = self._assoc(account, partition)
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

    def _judge(self, account: str, qos: str, partition: Partition) -> Candidate:
        blank = Candidate(account, qos, self._partition_text(), UNKNOWN_VERDICT, "", "")
        closed = _closed(partition, account, qos)
        if closed:
            return blank._replace(verdict=NOT_ALLOWED, why=closed)
        config, all_qos = self.snapshot.config, self.snapshot.qos
        assert isinstance(config, Config)
        assert isinstance(all_qos, dict)
        need = resolve(self.request, partition, config)
        if need.doubts:
            return blank._replace(why="; ".join(need.doubts))
        partition_qos = all_qos.get(partition.qos) if partition.qos else None
        if partition.qos and partition_qos is None:
            return blank._replace(why=f"Slurm told nothing of the partition's qos {partition.qos}")
        chain = self._chain(account, partition.name)
        if len(chain) < 2 or chain[-1].parent:
            return blank._replace(why=f"the accounts above {account} are not all known")
        place = Place(all_qos[qos], partition, partition_qos, chain, config, self.snapshot.user)
        tasks = self.request.array_tasks
        at_once = min(tasks, self.request.array_at_once or tasks)
        found = limits(place, need, tasks, at_once, self.mine.usage)
        judged = _verdict(blank, found, at_once)
        usage = self.mine.usage("qos", qos)
        return judged._replace(
            checks=found.checks,
            headroom=_headroom(found, need),
            backlog=usage.waiting_jobs,
        )

    # -- the choice ---------------------------------------------------------------------------

    def _choose(self, candidates: Tuple[Candidate, ...], preferred: str) -> Decision:
        order = self._order()
        fits = _sorted(candidates, FITS, order)
        if fits:
            return self._submit("route", _preferred(fits, preferred), candidates, "fits now")
        mine = _sorted(candidates, WAITS_MINE, ("starts", "backlog", *order))
        if mine and (self._own_backlog() == "queue" or mine[0].starts):
            why = "only your own jobs are in the way"
            return self._submit("queue", _preferred(mine, preferred), candidates, why)
        if any(c.verdict == UNKNOWN_VERDICT for c in candidates):
            return self._unreachable(candidates)
        return self._full(candidates, mine, order)

    def _order(self) -> Tuple[str, ...]:
        if self.rule.order:
            return self.rule.order
        gpus = self.facts.get("gpus")
        return ("gpu", "mem", "cpu") if gpus else ("mem", "cpu")

    def _own_backlog(self) -> str:
        return self.rule.own_backlog or self.policy.own_backlog

    def _when_full(self) -> WhenFull:
        return self.rule.when_full or self.policy.when_full

    def _full(
        self,
        candidates: Tuple[Candidate, ...],
        mine: List[Candidate],
        order: Tuple[str, ...],
    ) -> Decision:
        waiting = _sorted(candidates, WAITS_OTHERS, order)
        if not waiting and not mine:
            return self._decision(
                "refuse", "no account may ever run this job", exit_code=77, candidates=candidates
            )
        full = self._when_full()
        if full.action == "queue" and waiting:
            return self._submit("queue", waiting[0], candidates, "every account is full")
        why = "every account is full" if waiting else "your own jobs fill every account"
        wait = full.wait_seconds if full.action == "wait" else 0
        return self._decision("refuse", why, exit_code=75, candidates=candidates, wait_seconds=wait)

    def _unreachable(self, candidates: Tuple[Candidate, ...]) -> Decision:
        whys = [c.why for c in candidates if c.verdict == UNKNOWN_VERDICT]
        why = "; ".join(self.snapshot.troubles) or whys[0]
        if self.policy.when_slurm_unreachable == "refuse":
            return self._decision("refuse", why, exit_code=75, candidates=candidates)
        return self._decision("pass", why, candidates=candidates, notes=(why,))

    def _submit(
        self, action: str, chosen: Candidate, candidates: Tuple[Candidate, ...], why: str
    ) -> Decision:
        decision = self._decision(action, why, chosen.account, candidates=candidates)
        return decision._replace(qos=chosen.qos, changed=self._changes(chosen))

    def _changes(self, chosen: Candidate) -> Optional[bool]:
        """Whether plain sbatch would have used another account or QOS; None: not known."""
        account = self._asked_account() or self.snapshot.default_account
        if not isinstance(account, str):
            return None
        if account != chosen.account:
            return True
        qos: object = self._asked_qos()
        if not qos:
            assoc = self._assoc(account)
            qos = assoc.default_qos if assoc is not None else None
        return qos != chosen.qos

    def _decision(
        self,
        action: str,
        why: str,
        account: str = "",
        *,
        exit_code: int = 0,
        candidates: Tuple[Candidate, ...] = (),
        wait_seconds: int = 0,
        notes: Tuple[str, ...] = (),
    ) -> Decision:
        return Decision(
            action,
            why,
            account,
            "",
            self._partition_text(),
            self.rule.name,
            None,
            candidates,
            self.need,
            exit_code,
            wait_seconds,
            notes,
        )


def _partitions(request: Request, snapshot: Snapshot) -> Tuple[Partition, ...]:
    """The partitions the job may go to; empty when one of them is not known."""
    if not isinstance(snapshot.partitions, dict):
        return ()
    given = request.given("partition")
    if given:
        names = [name.lower() for name in given.value.split(",") if name]
        found = [snapshot.partitions.get(name) for name in names]
        return tuple(p for p in found if p is not None) if all(found) else ()
    return tuple(p for p in snapshot.partitions.values() if p.default)[:1]


def _facts(
    request: Request, need: Optional[Need], partitions: Tuple[Partition, ...], user: str
) -> Dict[str, object]:
    """What `when` and `only` can ask about; a key that is absent is not known."""
    facts = snakemake_facts(request.properties)
    facts["user"] = user
    facts["array"] = request.array_tasks
    facts["partition"] = tuple(p.name for p in partitions)
    name = request.given("job-name")
    if name:
        facts["job_name"] = name.value
    if need is not None and not need.doubts:
        facts["gpus"] = need.tres.get("gres/gpu", 0)
        facts["gpu_type"] = tuple(t[9:] for t in need.tres if t.startswith("gres/gpu:"))
        facts["cpus"] = need.tres.get("cpu", UNKNOWN)
        facts["nodes"] = need.tres.get("node", UNKNOWN)
        facts["mem"] = need.tres.get("mem", UNKNOWN)
        facts["time"] = need.time_limit
    return facts


def _first_rule(policy: Policy, facts: Dict[str, object]) -> Rule:
    for rule in policy.rules:
        if matches(rule.when, facts):
            return rule
    return Rule("")


def _block_text(blocked: Blocked) -> str:
    return "blocked by the policy: " + blocked.reason


def _closed(partition: Partition, account: str, qos: str) -> str:
    """Why the partition is closed to this account or QOS; empty if it is not.

    slurm.conf(5): AllowAccounts, DenyAccounts, AllowQos, DenyQos; Deny* is ignored where
    Allow* is set.
    """
    pairs = (
        ("account", account, partition.allow_accounts, partition.deny_accounts),
        ("qos", qos, partition.allow_qos, partition.deny_qos),
    )
    for what, name, allowed, denied in pairs:
        if allowed is not None:
            if name not in allowed:
                return f"partition {partition.name} does not allow {what} {name}"
        elif name in denied:
            return f"partition {partition.name} denies {what} {name}"
    return ""


def _verdict(blank: Candidate, found: Limits, at_once: int) -> Candidate:
    """The verdict of one candidate from its checks."""
    submit = [c for c in found.checks if c.stage == SUBMIT and c.held_by_running()]
    if submit:
        check = submit[0]
        why = f"{check.where}: {_clause(check)}"
        return blank._replace(verdict=NOT_ALLOWED, why=why, refused=True)
    start = [c for c in found.checks if c.stage == START]
    never = [c for c in start if c.never()]
    reason = next((c.reason for c in start if c.held_by_running()), "")
    if never:
        refused = found.strict
        return blank._replace(
            verdict=NEVER,
            reason="" if refused else reason,
            why=f"{never[0].where}: {_clause(never[0])}",
            refused=refused,
        )
    if found.doubts:
        return blank._replace(reason=reason, why=found.doubts[0])
    others = next((c for c in start if c.held_by_others()), None)
    if others is not None:
        return blank._replace(
            verdict=WAITS_OTHERS, reason=reason, why=f"{others.where}: {_clause(others)}"
        )
    one = next((c for c in start if c.held(c.requested)), None)
    if one is not None:
        return blank._replace(
            verdict=WAITS_MINE, reason=reason, why=f"{one.where}: {_clause(one)}, all yours"
        )
    tight = [c for c in start if c.held(c.requested_all)]
    if tight:
        starts = min(_tasks_that_start(c, at_once) for c in tight)
        return blank._replace(
            verdict=WAITS_MINE,
            reason=reason,
            why=f"{starts} of {at_once} tasks can start now ({tight[0].where})",
            starts=starts,
        )
    return blank._replace(verdict=FITS, reason=reason, why="", starts=at_once)


def _tasks_that_start(check: Check, at_once: int) -> int:
    if not check.requested:
        return at_once
    return max(0, min(at_once, check.room() // check.requested))


def _clause(check: Check) -> str:
    name = f"{check.kind} {check.tres}" if check.tres else check.kind
    if check.minimum:
        return f"{name} wants at least {check.limit}, asked {check.requested}"
    if check.never():
        return f"{name} is {check.limit}, asked {check.requested}"
    text = f"{name} is {check.limit}, {check.used} used"
    if check.promised:
        text += f", {check.promised} queued by you"
    return f"{text}, asked {check.requested}"


_HEADROOM = (("gpu", "gres/gpu"), ("mem", "mem"), ("cpu", "cpu"), ("node", "node"))


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


def _sorted(
    candidates: Tuple[Candidate, ...], verdict: str, order: Tuple[str, ...]
) -> List[Candidate]:
    """Those with `verdict`, best first; equal ones stay in policy order."""
    found = [c for c in candidates if c.verdict == verdict]
    found.sort(key=lambda c: tuple(_rank(c, key) for key in order))
    return found


def _rank(candidate: Candidate, key: str) -> float:
    """Smaller is better."""
    if key == "starts":
        return -candidate.starts
    if key == "backlog":
        return candidate.backlog
    if key == "listed":
        return 0
    if key == "fit":
        return _left(candidate, "mem")
    tres = dict(_HEADROOM).get(key, key)
    return -_left(candidate, tres)


def _left(candidate: Candidate, tres: str) -> float:
    left = candidate.headroom.get(tres)
    return float("inf") if left is None else left


def _asked_first(
    candidates: Tuple[Candidate, ...], account: str, qos: str
) -> Tuple[Candidate, ...]:
    """The user's own account (and QOS) moved to the front, otherwise as they were."""
    first = [c for c in candidates if c.account == account and qos in ("", c.qos)]
    return (*first, *(c for c in candidates if c not in first))


def _preferred(found: List[Candidate], account: str) -> Candidate:
    return next((c for c in found if c.account == account), found[0])
