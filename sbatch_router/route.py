"""One submission: read the request, get a snapshot, decide, remember, and rewrite the call.

This is the only way to a decision: the shim obeys it, `explain` prints it, and the Snakemake
submit command calls it. Every trouble of ours ends in the original arguments and one line.
"""

from __future__ import annotations

import posix
import time

from .core.ledger import Promise, promise_of
from .core.record import Record
from .core.request import SUBMITS_NOTHING
from .core.snapshot import Snapshot
from .environ import say, say_text
from .host import SITE_RECHECK_SECONDS, SITE_RETRY_SECONDS, Host, Store
from .hot import bring
from .policycache import PolicyTrouble, find_policy
from .slurm.options import parse
from .slurm.request import is_heterogeneous, read_request
from .slurm.script import objections, peek_script, respool_stdin, script_path
from .state import Lock
from .statedir import StateError, directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

    from .core.decide import Decision
    from .core.policy import Policy
    from .core.request import Given, Request
    from .slurm.options import Parsed


def _get_ready() -> None:
    """What reads Slurm's answers and judges a request: not imported above, but loaded while
    Slurm is at work.
    """
    bring("readers", "judges")


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


def route(
    argv: Sequence[str],
    environ: Mapping[bytes, bytes],
    paths: Sequence[str],
    asked: Optional[Mapping[str, Given]] = None,
) -> List[str]:
    """The arguments to submit with: `argv`, with the account that was chosen put in.

    `asked`: options that are judged as if the call had them, whatever it says itself.

    Ends the process with 75 or 77 when the policy refuses the job. Says at most one line,
    and nothing when the account does not change.
    """
    parsed = parse(argv)
    if any(name in SUBMITS_NOTHING for name, _ in parsed.options):
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
    if asked:
        request = call.request
        call = call._replace(request=request._replace(options={**request.options, **asked}))
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
    host = Host(environ, considered.policy)
    try:
        place = directory(environ)
    except StateError:
        return {}
    with Lock(place) as lock:
        return holders(considered, host.everyone(Store(place, lock.held)))


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
            try:
                replacement = respool_stdin(peek.taken)
            except OSError:
                # No file may be written (ulimit -f) and there is no memory file.
                replacement = _refill(peek.taken)
            posix.dup2(replacement, 0)
            posix.close(replacement)
        script = peek.script
        if script is None:
            again = is_heterogeneous(argv, parsed) or _readable_once(named, variables)
            hopeless = not again
        else:
            hopeless = bool(objections(script))
    request = read_request(argv, variables, script, parsed)
    return Call(tuple(argv), parsed, request, hopeless)


def _refill(data: bytes) -> int:
    """A pipe that a process of its own fills with `data`, and ends; its end for reading."""
    reading, writing = posix.pipe2(posix.O_CLOEXEC)
    child = posix.fork()
    if child:
        posix.close(writing)
        posix.waitpid(child, 0)
        return reading
    # The grandchild writes: sbatch must not find a child that it has not started.
    try:
        if posix.fork() == 0:
            posix.close(reading)
            view = memoryview(data)
            while view:
                view = view[posix.write(writing, view) :]
    finally:
        posix._exit(0)


def _readable_once(named: Optional[str], variables: Mapping[str, str]) -> bool:
    """Whether the script comes from a pipe or a terminal, which only sbatch may read."""
    if named is None:
        try:
            kind = posix.fstat(0).st_mode & 0o170000
        except OSError:
            return False
        return kind in (0o010000, 0o140000) or posix.isatty(0)
    path = script_path(named, variables)
    try:
        kind = posix.stat(path).st_mode & 0o170000
    except (OSError, ValueError):
        return False
    return kind == 0o010000 and posix.access(path, posix.R_OK)


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
        from .decisionlog import append

        append(considered, environ)
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
        self.host = Host(environ, policy, _get_ready)

    def attempt(self) -> Considered:
        """One decision; remembers it when this is a submission."""
        try:
            place = directory(self.environ)
        except StateError as error:
            words = f"{error}; going on without what was promised to other submissions"
            self.host.complain(words)
            return self._decide(self.host.fresh(self.host.new_site()), ())
        with Lock(place) as lock:
            if lock.trouble and self.promise:
                self.host.complain(f"{lock.trouble}; going on without the ledger")
            store_ = Store(place, lock.held, self.host.complain)
            considered = self._with_store(store_)
            if self.promise:
                from .core.decide import will_take_room

                if will_take_room(considered.decision):
                    store_.promise(self._promise(considered))
        return considered

    def _with_store(self, store_: Store) -> Considered:
        snapshot = self.host.snapshot(store_)
        considered = self._decide(snapshot, store_.ledger())
        decision = considered.decision
        unknown = not snapshot.troubles and _is_unheard_of(decision)
        if decision.action == "refuse" or unknown:
            site = self.host.site(store_)
            limit = SITE_RETRY_SECONDS if unknown else SITE_RECHECK_SECONDS
            if time.time() - site.taken_at > limit:
                # An account or a partition may be new: never refuse or give up on old facts.
                site = self.host.new_site(store_)
                considered = self._decide(self.host.collect(store_, site), store_.ledger())
        return considered

    def _decide(self, snapshot: Snapshot, ledger: Tuple[Promise, ...]) -> Considered:
        bring("judges")
        from .core.decide import decide

        decision = decide(self.request, snapshot, ledger, self.policy, time.time())
        return Considered(decision, self.request, snapshot, self.policy)

    def _promise(self, considered: Considered) -> Promise:
        need = considered.decision.need
        tres = need.tres if need is not None else {}
        return promise_of(self.request, considered.decision, tres, time.time(), posix.getpid())


def _is_unheard_of(decision: Decision) -> bool:
    """Whether a job is passed on because of a name that the facts do not have.

    A job that cannot be judged before it starts is another thing: newer facts do not help.
    """
    if decision.action != "pass" or not decision.notes:
        return False
    if decision.need is not None and decision.need.doubts:
        return False
    from .core.decide import UNKNOWN_VERDICT

    return any(c.verdict == UNKNOWN_VERDICT and not c.checks for c in decision.candidates)


__all__ = [
    "Call",
    "Considered",
    "PolicyTrouble",
    "consider",
    "find_policy",
    "obey",
    "read_call",
    "refuse",
    "route",
    "who_holds",
]
