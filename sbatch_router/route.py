"""One submission: read the request, get a snapshot, decide, remember, and rewrite the call.

This is the only way to a decision: the shim obeys it, `explain` prints it, and the Snakemake
submit command calls it. Every trouble of ours ends in the original arguments and one line.
"""

from __future__ import annotations

import posix
import time

from .core.decide import Decision, decide
from .core.ledger import Promise
from .core.limits import NO_TIME_LIMIT
from .core.record import Record
from .core.snapshot import Config, Site, Snapshot, binding
from .core.tres import UNKNOWN
from .shim import say, say_text
from .slurm.options import parse
from .slurm.request import read_request
from .slurm.script import objections, peek_script, respool_stdin
from .state import Lock, StateError, directory, load, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

    from .core.policy import Policy
    from .core.request import Request
    from .slurm.options import Parsed

#: Seconds a Slurm query may take before we go on without it.
TIMEOUT = 2.0
#: Seconds for which what sacctmgr and the configuration say is kept; less when it failed.
SITE_SECONDS = 4 * 3600
SITE_RETRY_SECONDS = 60
#: Before a refusal, facts older than this are asked for again.
SITE_RECHECK_SECONDS = 300
#: A promise whose shim still lives is kept no longer than this.
PROMISE_SECONDS = 600

#: Options that submit nothing: the call is none of our business.
_INFORMATION = frozenset(("help", "usage", "version", "autocomplete", "test-only"))


class PolicyTrouble(Exception):
    """The policy cannot be used; the text is one line that names the file and the error."""


class Considered(Record):
    """A decision and what it was made from."""

    decision: Decision
    request: Request
    snapshot: Snapshot
    policy: Policy


class Call(Record):
    """One sbatch call, read but not judged."""

    argv: Tuple[str, ...]
    parsed: Parsed
    request: Request
    #: sbatch itself will refuse the script, so no line of ours comes first.
    hopeless: bool


def route(argv: Sequence[str], environ: Mapping[bytes, bytes], paths: Sequence[str]) -> List[str]:
    """The arguments to submit with: `argv`, with the account that was chosen put in.

    Ends the process with 75 or 77 when the policy refuses the job. Says at most one line,
    and nothing when the account does not change.
    """
    parsed = parse(argv)
    if any(name in _INFORMATION for name, _ in parsed.options):
        return list(argv)
    try:
        policy = find_policy(paths, environ)
    except PolicyTrouble as trouble:
        say(f"{trouble}; submitted as you wrote it")
        return list(argv)
    call = read_call(argv, environ, parsed)
    if call.request.doubts:
        if not call.hopeless:
            say(f"submitted as you wrote it: {call.request.doubts[0]}")
        return list(argv)
    considered = consider(call, environ, policy, promise=True)
    return obey(considered, call, environ)


def obey(considered: Considered, call: Call, environ: Mapping[bytes, bytes]) -> List[str]:
    """What a decision makes of the arguments; ends the process for a refusal."""
    decision = considered.decision
    for note in decision.notes:
        verb = "submitted as you wrote it: " if decision.action == "pass" else ""
        say(verb + note)
    if decision.action == "refuse":
        refuse(considered, environ)
    if decision.action not in ("route", "queue"):
        return list(call.argv)
    if decision.changed is not False:
        from .core.report import routed_line

        say(routed_line(decision))
    elif call.request.given("account") and call.request.given("qos"):
        return list(call.argv)
    at = call.parsed.insert
    chosen = [f"--account={decision.account}", f"--qos={decision.qos}"]
    return [*call.argv[:at], *chosen, *call.argv[at:]]


def refuse(considered: Considered, environ: Mapping[bytes, bytes]) -> NoReturn:
    """Print the refusal and end with its exit code."""
    from .core.report import refusal

    say_text(refusal(considered.decision, considered.request, who_holds(considered, environ)))
    posix._exit(considered.decision.exit_code)


def who_holds(considered: Considered, environ: Mapping[bytes, bytes]) -> Dict[str, str]:
    """QOS name -> who uses it most; asked of Slurm at most once a cache interval."""
    from .core.decide import WAITS_OTHERS
    from .refusal import holders

    if not any(c.verdict == WAITS_OTHERS for c in considered.decision.candidates):
        return {}
    work = _Work(considered.request, environ, considered.policy, False)
    try:
        place = directory(environ)
    except StateError:
        return {}
    with Lock(place) as lock:
        return holders(considered, work.everyone(_Store(place, lock.held)))


def read_call(
    argv: Sequence[str], environ: Mapping[bytes, bytes], parsed: Optional[Parsed] = None
) -> Call:
    """Read the request of ``sbatch ARGV...``, leaving the script where sbatch will find it."""
    parsed = parsed or parse(argv)
    variables = _variables(environ)
    script: Optional[bytes] = None
    hopeless = False
    if not any(name == "wrap" for name, _ in parsed.options):
        named = argv[parsed.operands] if parsed.operands < len(argv) else None
        peek = peek_script(named, variables, may_take=not parsed.doubts)
        if peek.taken is not None:
            # At once: from here on the script is where it was, whatever happens to us.
            replacement = respool_stdin(peek.taken)
            posix.dup2(replacement, 0)
            posix.close(replacement)
        script = peek.script
        hopeless = script is None or bool(objections(script))
    request = read_request(argv, variables, script, parsed)
    return Call(tuple(argv), parsed, request, hopeless)


def _variables(environ: Mapping[bytes, bytes]) -> Dict[str, str]:
    """The environment that sbatch reads, as text."""
    found = {}
    for name, value in environ.items():
        if name[:7] == b"SBATCH_" or name[:6] == b"SLURM_" or name == b"PATH":
            key = name.decode("utf-8", "surrogateescape")
            found[key] = value.decode("utf-8", "surrogateescape")
    return found


def consider(
    call: Call,
    environ: Mapping[bytes, bytes],
    policy: Policy,
    *,
    promise: bool,
) -> Considered:
    """Judge one call now. With `promise` the choice is written into the ledger and the log.

    A policy's ``when_full: wait`` is waited for here, looking again as often as the cache
    allows.
    """
    work = _Work(call.request, environ, policy, promise)
    considered = work.attempt()
    seconds = considered.decision.wait_seconds
    if promise and considered.decision.action == "refuse" and seconds:
        deadline = time.monotonic() + seconds
        say(f"{considered.decision.why}; waiting up to {seconds} s (when_full: wait)")
        while considered.decision.action == "refuse" and time.monotonic() < deadline:
            time.sleep(min(max(policy.cache_seconds, 1), deadline - time.monotonic() + 0.05))
            considered = work.attempt()
    if promise:
        _log(considered, environ)
    return considered


class _Work:
    """Deciding one request against this host's state, under the lock."""

    def __init__(
        self,
        request: Request,
        environ: Mapping[bytes, bytes],
        policy: Policy,
        promise: bool,
    ) -> None:
        self.request = request
        self.environ = environ
        self.policy = policy
        self.promise = promise
        self.uid = posix.getuid()
        self.user = user_name(self.uid)

    def attempt(self) -> Considered:
        """One decision; remembers it when this is a submission."""
        try:
            place = directory(self.environ)
        except StateError as error:
            say(f"{error}; going on without what was promised to other submissions")
            return self._decide(self._fresh(self._new_site()), ())
        with Lock(place) as lock:
            if lock.trouble and self.promise:
                say(f"{lock.trouble}; going on without the ledger")
            store_ = _Store(place, lock.held)
            considered = self._with_store(store_)
            if self.promise and considered.decision.action in ("route", "queue"):
                store_.save("ledger", None, (*store_.ledger(), self._promise(considered)))
        return considered

    def _with_store(self, store_: _Store) -> Considered:
        snapshot = self._snapshot(store_)
        considered = self._decide(snapshot, store_.ledger())
        if considered.decision.action == "refuse":
            site = self._site(store_)
            if time.time() - site.taken_at > SITE_RECHECK_SECONDS:
                # An account may have been granted since: never refuse on old facts.
                site = self._new_site()
                store_.save("site", self.user, site)
                considered = self._decide(self._collect(store_, site), store_.ledger())
        return considered

    def _decide(self, snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> Considered:
        decision = decide(self.request, snapshot, ledger, self.policy, time.time())
        return Considered(decision, self.request, snapshot, self.policy)

    # -- what Slurm says ----------------------------------------------------------------------

    def _site(self, store_: _Store) -> Site:
        site = store_.load("site", self.user)
        if isinstance(site, Site):
            age = time.time() - site.taken_at
            if 0 <= age < (SITE_RETRY_SECONDS if site.troubles else SITE_SECONDS):
                return site
        site = self._new_site()
        store_.save("site", self.user, site)
        return site

    def _new_site(self) -> Site:
        from .slurm.collect import collect_site

        return collect_site(self.user, TIMEOUT, TIMEOUT, time.time())

    def _snapshot(self, store_: _Store) -> Snapshot:
        snapshot = store_.load("snapshot", self._key())
        alone = False
        if isinstance(snapshot, Snapshot):
            age = time.time() - snapshot.taken_at
            if 0 <= age < self.policy.cache_seconds:
                return snapshot
            alone = snapshot.jobs == ()
        return self._collect(store_, self._site(store_), alone)

    def _key(self) -> Tuple[object, ...]:
        """What a stored snapshot was taken for: the pools, and the cluster."""
        pools = tuple((a.name, a.qos) for a in self.policy.accounts)
        conf = self.environ.get(b"SLURM_CONF", b"")
        return (self.user, conf, pools)

    def _collect(self, store_: _Store, site: Site, alone: bool = False) -> Snapshot:
        """A new snapshot, which settles the promises whose sbatch had ended before it.

        `alone`: a moment ago no job was mine, so squeue is likely not needed.
        """
        ledger = store_.ledger()
        now = time.time()
        open_ = tuple(p for p in ledger if _alive(p.pid) and now - p.at < PROMISE_SECONDS)
        snapshot = self._fresh(site, look_first=alone and not ledger)
        store_.save("snapshot", self._key(), binding(snapshot))
        if open_ != ledger and snapshot.jobs is not UNKNOWN:
            store_.save("ledger", None, open_)
        return snapshot

    def everyone(self, store_: _Store) -> Snapshot:
        """A snapshot with every user's rows, for naming who holds a pool."""
        found = store_.load("everyone", self._key())
        age = time.time() - found.taken_at if isinstance(found, Snapshot) else -1.0
        if not (isinstance(found, Snapshot) and 0 <= age < self.policy.cache_seconds):
            found = self._fresh(self._site(store_), everyone=True)
            store_.save("everyone", self._key(), found)
        return found

    def _fresh(self, site: Site, *, look_first: bool = False, everyone: bool = False) -> Snapshot:
        now = time.time()
        if not isinstance(site.config, Config):
            # Nothing answered a moment ago: do not wait for the same silence twice.
            return Snapshot(
                now,
                "scontrol",
                self.user,
                UNKNOWN,
                UNKNOWN,
                UNKNOWN,
                UNKNOWN,
                UNKNOWN,
                UNKNOWN,
                site.troubles,
            )
        from .slurm.collect import collect_live

        accounts = [a.name for a in self.policy.accounts]
        qos = [q for a in self.policy.accounts for q in a.qos or ()]
        return collect_live(
            site,
            accounts,
            qos,
            self.user,
            self.uid,
            TIMEOUT,
            now,
            look_first=look_first,
            everyone=everyone,
        )

    def _promise(self, considered: Considered) -> Promise:
        decision, request = considered.decision, considered.request
        need = decision.need
        limit = need.time_limit if need is not None else None
        at_once = min(request.array_tasks, request.array_at_once or request.array_tasks)
        return Promise(
            time.time(),
            posix.getpid(),
            decision.account,
            decision.qos,
            decision.partition,
            need.tres if need is not None else {},
            request.array_tasks,
            at_once,
            limit if isinstance(limit, int) else NO_TIME_LIMIT,
        )


class _Store:
    """State files under the lock; without it they are read and never written."""

    def __init__(self, place: str, held: bool) -> None:
        self._place = place
        self._held = held
        self._ledger: Optional[Tuple[Promise, ...]] = None

    def load(self, name: str, key: object) -> object:
        return load(f"{self._place}/{name}", key)

    def save(self, name: str, key: object, value: object) -> None:
        if name == "ledger":
            assert isinstance(value, tuple)
            self._ledger = value
        if not self._held:
            return
        try:
            store(f"{self._place}/{name}", key, value)
        except OSError as error:
            say(f"cannot write {self._place}/{name}: {error.strerror}")

    def ledger(self) -> Tuple[Promise, ...]:
        if self._ledger is None:
            found = self.load("ledger", None)
            self._ledger = found if isinstance(found, tuple) else ()
        return self._ledger


def _alive(pid: int) -> bool:
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


def find_policy(paths: Sequence[str], environ: Mapping[bytes, bytes]) -> Policy:
    """The policy in `paths` (the user's own, then the site's), compiled once a change.

    Raises `PolicyTrouble` with the first error and how to see the rest.
    """
    from .core.policy import Policy

    try:
        place = directory(environ)
        key = tuple(_identity(path) for path in paths)
    except (StateError, OSError):
        return compile_policy(paths)
    name = f"{place}/policy{paths[0].replace('/', '!')[-200:]}"
    found = load(name, key)
    if isinstance(found, Policy):
        return found
    policy = compile_policy(paths)
    with Lock(place) as lock:
        if lock.held:
            try:
                store(name, key, policy)
            except OSError as error:
                say(f"cannot write {name}: {error.strerror}")
    return policy


def _identity(path: str) -> Tuple[str, int, int, int]:
    found = posix.stat(path)
    return (path, found.st_mtime_ns, found.st_size, found.st_ino)


def compile_policy(paths: Sequence[str]) -> Policy:
    """Read the YAML. Raises `PolicyTrouble`. Slow: it imports a YAML parser."""
    from . import policyfile

    policies = []
    for path in paths:
        try:
            policies.append(policyfile.load(path))
        except policyfile.PolicyErrors as errors:
            first, count = errors.errors[0], len(errors.errors)
            more = f" (and {count - 1} more: `sbatch-router check`)" if count > 1 else ""
            raise PolicyTrouble(f"policy error: {first}{more}") from None
    policy = policies[0]
    for site in policies[1:]:
        policy = policyfile.merge(policy, site)
    return policy


def _log(considered: Considered, environ: Mapping[bytes, bytes]) -> None:
    """Append the decision to the user's log, as structlog's JSON renderer would write it."""
    from .core.report import log_fields, to_json_line

    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
    fields = log_fields(considered.decision, considered.request, considered.snapshot)
    record = {"event": "decision", "level": "info", "timestamp": stamp, "pid": posix.getpid()}
    line = to_json_line({**record, **fields}) + "\n"
    path = log_path(environ)
    if not path:
        return
    try:
        try:
            fd = _open_log(path)
        except FileNotFoundError:
            _make_parents(path)
            fd = _open_log(path)
        posix.write(fd, line.encode())
        posix.close(fd)
    except OSError:
        # A full disk or a home without write access is no reason to bother anyone.
        return


def log_path(environ: Mapping[bytes, bytes]) -> str:
    """``decisions.jsonl`` in the user's state directory (XDG); empty without a home."""
    base = environ.get(b"XDG_STATE_HOME") or (
        environ[b"HOME"] + b"/.local/state" if environ.get(b"HOME") else b""
    )
    return (
        base.decode("utf-8", "surrogateescape") + "/sbatch-router/decisions.jsonl" if base else ""
    )


def _open_log(path: str) -> int:
    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
    return posix.open(path, flags | posix.O_NONBLOCK, 0o600)


def _make_parents(path: str) -> None:
    parts = path.split("/")[:-1]
    for end in range(2, len(parts) + 1):
        try:
            posix.mkdir("/".join(parts[:end]), 0o700)
        except FileExistsError:
            continue
