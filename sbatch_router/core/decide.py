"""The decision: which account a job goes to, or why none. Pure; `explain` prints its result.

candidates.py judges each account and QOS; here one of them is chosen.
"""

from __future__ import annotations

from .candidates import (
    BLOCKED,
    FITS,
    NEVER,
    NOT_ALLOWED,
    UNKNOWN_VERDICT,
    VERDICTS,
    WAITS_MINE,
    WAITS_OTHERS,
    Candidate,
    Judge,
)
from .match import matches, snakemake_facts, why_not
from .policy import Rule
from .record import Record
from .request import SUBMITS_NOTHING
from .snapshot import Config
from .tres import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .ledger import Promise
    from .policy import Account, Blocked, Policy, WhenFull
    from .request import Need, Request
    from .snapshot import Partition, Snapshot


#: How the reason begins for a job that goes to another cluster.
ELSEWHERE = "names a cluster"


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
    #: ``account/qos`` that plain sbatch would have used, where one was chosen or kept; empty: not
    #: known.
    unrouted: str = ""


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


def will_take_room(decision: Decision) -> bool:
    """Whether what sbatch is about to submit will compete for room, where we know it will.

    Also a job whose account the user named: the next decision must see it, long before Slurm
    shows it.
    """
    if decision.action != "keep":
        return decision.action in ("route", "queue")
    account, slash, qos = decision.unrouted.partition("/")
    never = any(
        c.account == account and c.qos == qos and c.verdict in (NEVER, NOT_ALLOWED)
        for c in decision.candidates
    )
    return bool(slash and qos) and decision.need is not None and not never


def _not_ours(request: Request, snapshot: Snapshot) -> str:
    """Why this call is passed on unjudged; empty if it is judged."""
    for option in SUBMITS_NOTHING:
        if option in request.options:
            return f"--{option} submits nothing"
    if request.doubts:
        return "not understood: " + "; ".join(request.doubts)
    config = snapshot.config
    if isinstance(config, Config) and not config.enforce & {"limits", "safe"}:
        return "AccountingStorageEnforce has no limits: no account's limit binds here"
    clusters = request.given("clusters")
    if clusters and not (isinstance(config, Config) and clusters.value == config.cluster):
        return ELSEWHERE + " (--clusters); only the local one is judged"
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
        self.blocked: Dict[str, Blocked] = {b.account: b for b in reversed(policy.blocked)}
        self.partitions = _partitions(request, snapshot)
        self.judge = Judge(request, snapshot, ledger, self.partitions)
        self.need = self.judge.need(self.partitions[0]) if self.partitions else None
        self.facts = _facts(request, self.need, self.partitions, snapshot.user)
        self.rule = _first_rule(policy, self.facts)

    def decide(self) -> Decision:
        for option in ("account", "qos"):
            given = self.request.given(option)
            if given and not given.value:
                return self._decision("pass", f"an empty {option} is not in the policy")
        asked = self._asked_account()
        listed = {a.name for a in self.policy.accounts}
        if asked and asked not in listed and asked not in self.blocked:
            return self._decision("pass", f"account {asked} is not in the policy")
        mode = self._mode(asked)
        if asked and mode == "keep":
            return self._keep(asked)
        if not self.policy.accounts:
            return self._only_blocks()
        reservation = self.request.given("reservation")
        if reservation and reservation.value:
            # A reservation has accounts of its own, which Slurm does not tell here.
            why = f"reservation {reservation.value} decides who may run there"
            return self._decision("pass", why, candidates=self._candidates())
        if self._foreign_qos():
            return self._decision("pass", f"qos {self._asked_qos()} is not in the policy")
        candidates = self._candidates()
        if not asked and self._is_stranger(candidates):
            why = f"{self.snapshot.user} has none of the policy's accounts"
            return self._decision("pass", why, candidates=candidates)
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
            qos=self._asked_qos(),
            changed=False,
            notes=notes,
            candidates=self._candidates(),
            unrouted=self._unrouted(),
        )

    def _only_blocks(self) -> Decision:
        """A policy without accounts moves nobody's jobs; it says when one goes to a blocked one."""
        told = self._told_of_block()
        return self._decision(
            "pass",
            "the policy only blocks accounts",
            notes=(told,) if told else (),
            candidates=self._candidates(),
        )

    def _told_of_block(self) -> str:
        """That plain sbatch takes a blocked account, and why that is; empty if it does not."""
        account = self._asked_account() or self.snapshot.default_account
        blocked = self.blocked.get(account) if isinstance(account, str) else None
        return f"account {account} is blocked ({blocked.reason})" if blocked else ""

    # -- candidates ---------------------------------------------------------------------------

    def _candidates(self) -> Tuple[Candidate, ...]:
        found: List[Candidate] = []
        for account in self.policy.accounts:
            for qos in self._qos_names(account):
                found.append(self._candidate(account, qos))
        named = {a.name for a in self.policy.accounts}
        for name, blocked in self.blocked.items():
            if name not in named:
                found.append(self._blocked_candidate(name, "", _block_text(blocked)))
        return tuple(found)

    def _is_stranger(self, candidates: Tuple[Candidate, ...]) -> bool:
        """Whether none of the policy's accounts is the user's: the policy is not for them."""
        return any(c.foreign for c in candidates) and all(
            c.foreign or c.verdict == BLOCKED for c in candidates
        )

    def _qos_names(self, account: Account) -> Tuple[str, ...]:
        """The QOS to try with an account: the policy's and the rule's, else its default."""
        by_rule = [q for name, q in self.rule.candidates or () if name == account.name and q]
        assoc = self.judge.assoc(account.name)
        if account.qos:
            own = account.qos
        elif assoc is not None and isinstance(assoc.default_qos, str):
            own = (assoc.default_qos,)
        else:
            own = (self._asked_qos(),)
        return tuple(dict.fromkeys([*own, *by_rule]))

    def _blocked_candidate(self, account: str, qos: str, why: str) -> Candidate:
        return Candidate(account, qos, self.judge.partition_text, BLOCKED, "", why)

    def _candidate(self, account: Account, qos: str) -> Candidate:
        no = self._policy_forbids(account, qos)
        if no:
            return self._blocked_candidate(account.name, qos, no)
        rank = account.qos.index(qos) if account.qos and qos in account.qos else 0
        return self.judge.judge(account.name, qos)._replace(rank=rank)

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
            name == account.name and (only == qos or (only is None and self._own_qos(account, qos)))
            for name, only in chosen
        ):
            return f"not among the candidates of rule {self.rule.name!r}"
        if self._insists_on_qos() and qos not in self._asked_qos().split(","):
            return f"--qos={self._asked_qos()} was asked for"
        return ""

    def _own_qos(self, account: Account, qos: str) -> bool:
        """Whether an account without a QOS in a rule's list means this one."""
        if account.qos:
            return qos in account.qos
        assoc = self.judge.assoc(account.name)
        return assoc is None or assoc.default_qos in (qos, UNKNOWN)

    def _insists_on_qos(self) -> bool:
        """Whether only the QOS that the user named will do."""
        given = self.request.given("qos")
        if not given or not given.value:
            return False
        mode = self.policy.explicit_account.get(given.origin, "keep")
        return mode == "keep" or not self._asked_account()

    def _foreign_qos(self) -> bool:
        """Whether the QOS that the user insists on is none of the policy's."""
        if not self.policy.accounts or not self._insists_on_qos():
            return False
        asked = self._asked_qos().split(",")
        return not any(
            qos in asked for account in self.policy.accounts for qos in self._qos_names(account)
        )

    # -- the choice ---------------------------------------------------------------------------

    def _choose(self, candidates: Tuple[Candidate, ...], preferred: str) -> Decision:
        order = self._order()
        candidates = self._as_the_rule_lists(candidates)
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

    def _as_the_rule_lists(self, candidates: Tuple[Candidate, ...]) -> Tuple[Candidate, ...]:
        """In the order of the rule's own list, which comes before the policy's; else as is."""
        chosen = self.rule.candidates
        if chosen is None:
            return candidates

        def place(candidate: Candidate) -> int:
            for number, (name, qos) in enumerate(chosen):
                if name == candidate.account and qos in (None, candidate.qos):
                    return number
            return len(chosen)

        return tuple(sorted(candidates, key=place))

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
            passing = any(c.passing for c in candidates)
            why = "no account may ever run this job"
            if passing:
                why = "a limit on submitted jobs is reached"
            return self._decision(
                "refuse", why, exit_code=75 if passing else 77, candidates=candidates
            )
        full = self._when_full()
        later = self._starts_later()
        if waiting and (full.action == "queue" or later):
            why = later or "every account is full"
            return self._submit("queue", waiting[0], candidates, why)
        if mine and later:
            return self._submit("queue", mine[0], candidates, later)
        why = "every account is full" if waiting else "your own jobs fill every account"
        wait = full.wait_seconds if full.action == "wait" else 0
        return self._decision("refuse", why, exit_code=75, candidates=candidates, wait_seconds=wait)

    def _unreachable(self, candidates: Tuple[Candidate, ...]) -> Decision:
        whys = [c.why for c in candidates if c.verdict == UNKNOWN_VERDICT]
        why = "; ".join(self.snapshot.troubles) or whys[0]
        if self.policy.when_slurm_unreachable == "refuse" and self._silent():
            return self._decision("refuse", why, exit_code=75, candidates=candidates)
        told = "; ".join(filter(None, (why, self._told_of_block())))
        return self._decision("pass", why, candidates=candidates, notes=(told,))

    def _silent(self) -> bool:
        """Whether Slurm did not answer, which is another thing than a job we cannot judge."""
        now = self.snapshot
        answers = (now.config, now.assocs, now.qos, now.partitions)
        return bool(now.troubles) or any(answer is UNKNOWN for answer in answers)

    def _starts_later(self) -> str:
        """Why this job is not meant to start now, so that full pools are no reason to refuse.

        A held job is not among them: it may be released the next moment.
        """
        for option in ("begin", "dependency"):
            given = self.request.given(option)
            if given and given.value:
                return f"not meant to start now (--{option})"
        return ""

    def _submit(
        self, action: str, chosen: Candidate, candidates: Tuple[Candidate, ...], why: str
    ) -> Decision:
        decision = self._decision(action, why, chosen.account, candidates=candidates)
        unrouted = self._unrouted()
        changed = unrouted != f"{chosen.account}/{chosen.qos}" if unrouted else None
        return decision._replace(qos=chosen.qos, changed=changed, unrouted=unrouted)

    def _unrouted(self) -> str:
        """``account/qos`` that plain sbatch would have used; empty: not known."""
        account = self._asked_account() or self.snapshot.default_account
        if not isinstance(account, str):
            return ""
        qos: object = self._asked_qos()
        if not qos:
            assoc = self.judge.assoc(account)
            qos = assoc.default_qos if assoc is not None else None
        return f"{account}/{qos if isinstance(qos, str) else ''}"

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
            self.judge.partition_text,
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
    name = request.job_name
    if name is not None:
        facts["job_name"] = name
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


_HEADROOM = (("gpu", "gres/gpu"), ("mem", "mem"), ("cpu", "cpu"), ("node", "node"))


def _sorted(
    candidates: Tuple[Candidate, ...], verdict: str, order: Tuple[str, ...]
) -> List[Candidate]:
    """Those with `verdict`, best first; equal ones stay in policy order."""
    found = [c for c in candidates if c.verdict == verdict]
    place = {(c.account, c.qos): number for number, c in enumerate(candidates)}

    def ranks(candidate: Candidate) -> Tuple[float, ...]:
        listed = place[candidate.account, candidate.qos]
        return tuple(listed if key == "listed" else _rank(candidate, key) for key in order)

    found.sort(key=ranks)
    return found


def _rank(candidate: Candidate, key: str) -> float:
    """Smaller is better."""
    if key == "starts":
        return -candidate.starts
    if key == "backlog":
        return candidate.backlog
    if key == "fairshare":
        return -(candidate.fairshare or 0.0)
    if key == "primary":
        return candidate.rank
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


__all__ = [
    "BLOCKED",
    "FITS",
    "NEVER",
    "NOT_ALLOWED",
    "UNKNOWN_VERDICT",
    "VERDICTS",
    "WAITS_MINE",
    "WAITS_OTHERS",
    "Candidate",
    "Decision",
    "decide",
    "will_take_room",
]
