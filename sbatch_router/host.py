"""One user on one host: what is stored there, and what Slurm says when it has to be asked.

A snapshot is asked for by one process at a time and serves all others until it is `cache`
old; taking one settles the promises of submissions that ended before it.
"""

from __future__ import annotations

import posix
import time

from .core.ledger import Promise
from .core.snapshot import Config, Site, Snapshot, binding, unanswered
from .core.tres import UNKNOWN
from .environ import say
from .hot import bring
from .state import append, load, load_list, note_busy, store, store_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, Optional, Tuple

    from .core.policy import Policy

#: Seconds a Slurm query may take before we go on without it.
TIMEOUT = 2.0
#: Seconds for which what sacctmgr and the configuration say is kept; less when it failed.
SITE_SECONDS = 1800
SITE_RETRY_SECONDS = 60
#: The same where slurmctld itself did not answer: such silences are often short.
SILENT_SECONDS = 5
#: Before a refusal, facts older than this are asked for again.
SITE_RECHECK_SECONDS = 300
#: A promise whose shim still lives is kept no longer than this.
PROMISE_SECONDS = 600


class Host:
    """The pools of one policy, as the user who runs this sees them."""

    def __init__(
        self,
        environ: Mapping[bytes, bytes],
        policy: Policy,
        meanwhile: Optional[Callable[[], None]] = None,
    ) -> None:
        """`meanwhile` is called while Slurm is at work."""
        self.environ = environ
        self.policy = policy
        self._meanwhile = meanwhile
        self.uid = posix.getuid()
        self._complained = False

    @property
    def user(self) -> str:
        """Looked up in the system's user database, which may be a server far away."""
        return user_name(self.uid)

    def complain(self, text: str) -> None:
        """Say the first trouble with our files; the others come of the same cause."""
        if not self._complained:
            self._complained = True
            say(text)

    def site(self, store_: Store, whole: bool = False) -> Site:
        """The stored one, or a new one; `whole`: no stored one that Slurm told in part."""
        site = store_.load("site", self._site_key())
        if isinstance(site, Site) and not (whole and site.troubles):
            age = time.time() - site.taken_at
            if 0 <= age < _site_seconds(site):
                return site
        return self.new_site(store_)

    def new_site(self, store_: Optional[Store] = None) -> Site:
        """Ask for it, and store it where that is given."""
        if store_ is None:
            return self._ask_site()
        store_.asking(TIMEOUT)
        site = self._ask_site()
        store_.asking(0)
        store_.save("site", self._site_key(), site)
        return site

    def _site_key(self) -> Tuple[int, bytes]:
        """Whose facts, and of which cluster: SLURM_CONF may name another one an hour later."""
        return (self.uid, self.environ.get(b"SLURM_CONF", b""))

    def _ask_site(self) -> Site:
        from .slurm.collect import collect_site

        return collect_site(self.user, TIMEOUT, TIMEOUT, time.time())

    def snapshot(self, store_: Store, margin: float = 0.0) -> Snapshot:
        """The stored snapshot while it is fresh, else a new one.

        `margin`: seconds before its time that the sidecar calls one old.
        """
        found = store_.load("snapshot", self._key())
        before = found if isinstance(found, Snapshot) else None
        if before is not None:
            age = time.time() - before.taken_at
            if 0 <= age < self.policy.cache_seconds - margin:
                return before
        return self.collect(store_, self.site(store_), before)

    def _key(self) -> Tuple[object, ...]:
        """What a stored snapshot was taken for: the pools, and the cluster."""
        pools = tuple((a.name, a.qos) for a in self.policy.accounts) + tuple(
            pair for rule in self.policy.rules for pair in rule.candidates or ()
        )
        conf = self.environ.get(b"SLURM_CONF", b"")
        return (self.uid, conf, pools)

    def collect(self, store_: Store, site: Site, before: Optional[Snapshot] = None) -> Snapshot:
        """A new snapshot, which settles the promises whose sbatch had ended before it.

        squeue costs two RPCs and assoc_mgr one. So where `before` is at hand its rows are
        brought up to date every second time, and squeue is not asked at all while no job is
        mine: two RPCs a cache interval, however many submissions.
        """
        ledger = store_.ledger()
        now = time.time()
        kept = [p for p in ledger if in_time(p, now)]
        alive = tuple(p for p in kept if lives(p.pid))
        dead = tuple(p for p in kept if p not in alive)
        rows = before.jobs if before is not None else UNKNOWN
        listed = before.jobs_at if before is not None else 0.0
        mine = bool(ledger) or rows is UNKNOWN or rows != ()
        carries = rows is not UNKNOWN and 0 <= now - listed < 2 * self.policy.cache_seconds
        store_.asking(TIMEOUT)
        snapshot = self.fresh(site, look_first=not mine, without_jobs=carries and mine)
        if carries and mine and before is not None:
            snapshot = self._with_strangers(snapshot, before, (*alive, *dead))
        store_.asking(0)
        snapshot, open_ = self._settled(snapshot, before, alive, dead, now)
        store_.save("snapshot", self._key(), binding(snapshot))
        if open_ != ledger:
            store_.keep(open_)
        return snapshot

    def _with_strangers(
        self, snapshot: Snapshot, before: Snapshot, promises: Tuple[Promise, ...]
    ) -> Snapshot:
        """Ask squeue after all where jobs of mine came past us: they would pass for others'."""
        from .core.settle import unexplained
        from .slurm.collect import collect_jobs

        known = before.jobs if isinstance(before.jobs, tuple) else ()
        if not unexplained(snapshot, known, promises):
            return snapshot
        jobs, trouble = collect_jobs(TIMEOUT)
        troubles = (*snapshot.troubles, trouble) if trouble else snapshot.troubles
        return snapshot._replace(jobs=jobs, troubles=troubles)

    def _settled(
        self,
        snapshot: Snapshot,
        before: Optional[Snapshot],
        alive: Tuple[Promise, ...],
        dead: Tuple[Promise, ...],
        now: float,
    ) -> Tuple[Snapshot, Tuple[Promise, ...]]:
        """The snapshot with my jobs as of its instant, and the promises that stay open."""
        from .core.settle import NO_ID, carry, newest_id, settle

        if not isinstance(snapshot.assocs, dict):
            return snapshot, (*alive, *dead)
        if isinstance(snapshot.jobs, tuple):
            newest = before.newest_job if before is not None else NO_ID
            carried = before.carried if before is not None else ()
            found = settle(snapshot, alive, (*carried, *dead), newest)
            seen = max(newest_id(snapshot.jobs), newest if newest != NO_ID else 0)
            return snapshot._replace(jobs=found.jobs, jobs_at=now, newest_job=seen), found.open
        if before is None or not isinstance(before.jobs, tuple):
            return snapshot, (*alive, *dead)
        found = carry(snapshot, before.jobs, alive, dead)
        arrived = [p for p in alive if p not in found.open]
        snapshot = snapshot._replace(
            jobs=found.jobs,
            jobs_at=before.jobs_at,
            newest_job=before.newest_job,
            carried=(*before.carried, *dead, *arrived),
        )
        return snapshot, found.open

    def everyone(self, store_: Store) -> Snapshot:
        """A snapshot with every user's rows, for naming who holds a pool."""
        found = store_.load("everyone", self._key())
        age = time.time() - found.taken_at if isinstance(found, Snapshot) else -1.0
        if not (isinstance(found, Snapshot) and 0 <= age < self.policy.cache_seconds):
            site = self.site(store_)
            store_.asking(TIMEOUT)
            found = self.fresh(site, everyone=True)
            store_.asking(0)
            store_.save("everyone", self._key(), found)
        return found

    def fresh(
        self,
        site: Site,
        *,
        look_first: bool = False,
        without_jobs: bool = False,
        everyone: bool = False,
    ) -> Snapshot:
        now = time.time()
        if not isinstance(site.config, Config):
            # Nothing answered a moment ago: do not wait for the same silence twice.
            return unanswered(site, now)
        bring("collect")
        from .slurm.collect import collect_live

        accounts = [a.name for a in self.policy.accounts]
        qos = [q for a in self.policy.accounts for q in a.qos or ()]
        qos += [q for rule in self.policy.rules for _, q in rule.candidates or () if q]
        if self.policy.source == "pyslurm":
            from .source import by_pyslurm

            found, trouble, new = by_pyslurm(
                self.environ, site, accounts, qos, self.uid, TIMEOUT, everyone=everyone
            )
            if found is not None:
                return found
            if new:
                self.complain(f"{trouble}; asked scontrol instead")
        return collect_live(
            site,
            accounts,
            qos,
            site.user,
            self.uid,
            TIMEOUT,
            now,
            look_first=look_first,
            without_jobs=without_jobs,
            everyone=everyone,
            meanwhile=self._meanwhile,
        )


def _site_seconds(site: Site) -> float:
    """How long these facts are kept."""
    if not isinstance(site.config, Config):
        return SILENT_SECONDS
    return SITE_RETRY_SECONDS if site.troubles else SITE_SECONDS


class Store:
    """State files under the lock; without it they are read and never written."""

    def __init__(self, place: str, held: bool, complain: Callable[[str], None] = say) -> None:
        self._place = place
        self._held = held
        self._complain = complain
        self._ledger: Optional[Tuple[Promise, ...]] = None
        self._ledger_end = 0

    def load(self, name: str, key: object) -> object:
        return load(f"{self._place}/{name}", key)

    def asking(self, seconds: float) -> None:
        """Let those who wait for the lock know that Slurm may take `seconds` to answer."""
        if self._held:
            note_busy(self._place, seconds)

    def save(self, name: str, key: object, value: object) -> None:
        if self._held:
            try:
                store(f"{self._place}/{name}", key, value)
            except OSError as error:
                self._cannot_write(name, error)

    def ledger(self) -> Tuple[Promise, ...]:
        if self._ledger is None:
            self._ledger, self._ledger_end = load_list(self._place + "/ledger", Promise)
        return self._ledger

    def promise(self, promise: Promise) -> None:
        """Add to the ledger."""
        self._ledger = (*self.ledger(), promise)
        if self._held:
            path = self._place + "/ledger"
            try:
                self._ledger_end = append(path, promise, self._ledger_end)
            except OSError as error:
                self._cannot_write("ledger", error)

    def keep(self, promises: Tuple[Promise, ...]) -> None:
        """Leave only these in the ledger."""
        self.ledger()
        self._ledger = promises
        if self._held:
            try:
                path = self._place + "/ledger"
                self._ledger_end = store_list(path, promises, self._ledger_end)
            except OSError as error:
                self._cannot_write("ledger", error)

    def _cannot_write(self, name: str, error: OSError) -> None:
        self._complain(f"cannot write {self._place}/{name}: {error.strerror}")


def in_time(promise: Promise, now: float) -> bool:
    """Whether a promise is of an age to count: not forgotten by a process that hangs, and not
    from a future that a clock set back has left behind."""
    return -SITE_RETRY_SECONDS < now - promise.at < PROMISE_SECONDS


def lives(pid: int) -> bool:
    """Whether a process exists: a promise's sbatch may yet submit its job."""
    try:
        posix.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def user_name(uid: int) -> str:
    """The name Slurm knows the user by."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
