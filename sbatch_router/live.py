"""What Slurm says now, for the commands that look or act for a user rather than submit.

The same pieces as the shim's way to a decision (`route`): one policy, one site cache, one
ledger under one lock, one `decide`. Only the snapshot differs: it is always new, and has
every user's rows, so that a command can say who holds a pool.
"""

from __future__ import annotations

import posix
import time
from typing import TYPE_CHECKING, NamedTuple

from .core.decide import decide
from .core.ledger import Promise, promise_of
from .core.policy import Account
from .environ import policy_paths
from .host import Host, Store, in_time, lives
from .policycache import PolicyTrouble
from .policycache import find_policy as _find_policy
from .state import Lock
from .statedir import StateError, directory

if TYPE_CHECKING:
    from typing import Iterable, Mapping, Optional, Tuple

    from .core.decide import Decision
    from .core.policy import Policy
    from .core.request import Request
    from .core.snapshot import Snapshot


class Now(NamedTuple):
    """One look at Slurm, and what was promised to submissions that it cannot show yet."""

    snapshot: Snapshot
    ledger: Tuple[Promise, ...]


def find_policy(environ: Mapping[bytes, bytes]) -> Policy:
    """The policy in use. Raises `PolicyTrouble`, also when there is none."""
    paths = policy_paths(environ)
    if not paths:
        raise PolicyTrouble(
            "no policy found: write one with `sbatch-router init`, or name it in "
            "SBATCH_ROUTER_POLICY"
        )
    return _find_policy(paths, environ)


class Desk:
    """Looks and decides for one policy; `pairs` are further accounts and QOS to look at."""

    def __init__(
        self,
        environ: Mapping[bytes, bytes],
        policy: Policy,
        pairs: Iterable[Tuple[str, str]] = (),
    ) -> None:
        self.environ = environ
        self.policy = policy
        named = tuple(Account(account, (qos,)) for account, qos in pairs if account and qos)
        self._host = Host(environ, policy._replace(accounts=policy.accounts + named))
        self.user = self._host.user

    def look(self) -> Now:
        """A new snapshot with every user's rows, and the promises it cannot show yet."""
        try:
            place = directory(self.environ)
        except StateError:
            return Now(self._host.fresh(self._host.new_site(), everyone=True), ())
        with Lock(place) as lock:
            store = Store(place, lock.held)
            snapshot = self._host.fresh(self._host.site(store, whole=True), everyone=True)
            return Now(snapshot, _unseen(store.ledger(), snapshot))

    def place(self, request: Request, snapshot: Snapshot) -> Tuple[Decision, Optional[Promise]]:
        """Decide, and promise the place to this process, under the lock of all submissions.

        The promise is None where the decision submits nothing, or the ledger cannot be
        written: then other submissions do not know of it.
        """
        try:
            place = directory(self.environ)
        except StateError:
            return self.judge(request, snapshot, ()), None
        with Lock(place) as lock:
            store = Store(place, lock.held)
            ledger = store.ledger()
            decision = self.judge(request, snapshot, _unseen(ledger, snapshot))
            if decision.action not in ("route", "queue") or not lock.held:
                return decision, None
            promise = promised(request, decision)
            store.promise(promise)
        return decision, promise

    def withdraw(self, promise: Optional[Promise]) -> None:
        """Take a promise back: the job did not go there."""
        if promise is None:
            return
        place = directory(self.environ)
        with Lock(place) as lock:
            store = Store(place, lock.held)
            kept = list(store.ledger())
            if promise in kept:
                kept.remove(promise)
                store.keep(tuple(kept))

    def judge(self, request: Request, snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> Decision:
        """The decision, and nothing else."""
        return decide(request, snapshot, ledger, self.policy, time.time())


def _unseen(ledger: Tuple[Promise, ...], snapshot: Snapshot) -> Tuple[Promise, ...]:
    """The promises whose jobs the snapshot may not show: made since, or not yet kept."""
    now = time.time()
    return tuple(
        p for p in ledger if in_time(p, now) and (p.at >= snapshot.taken_at or lives(p.pid))
    )


def promised(request: Request, decision: Decision) -> Promise:
    """What a decision takes once its job runs, for the ledger."""
    need = decision.need
    tres = dict(need.at_start or need.tres) if need is not None else {}
    return promise_of(request, decision, tres, time.time(), posix.getpid())


__all__ = ["Desk", "Now", "PolicyTrouble", "find_policy", "promised"]
