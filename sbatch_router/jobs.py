"""The states of my jobs, asked of Slurm for all of them at once and shared by all who ask.

Snakemake asks job by job; a table in the state directory answers, renewed by one process at
a time and not more often than every `FRESH` seconds, so the number of RPCs follows the time
and not the number of jobs. The sidecar does no more than keep that table fresh.
"""

from __future__ import annotations

import posix
import time

from .clusters import known
from .core.jobstate import FAILED, RUNNING, base_id, plain_id, settle, word
from .slurm.run import run_all
from .state import Lock, load, store
from .statedir import StateError, directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Tuple

    from .slurm.run import Outcome

    #: Base job id -> row id -> word.
    Table = Dict[str, Dict[str, str]]

#: Seconds for which the table answers without asking Slurm again.
FRESH = 5.0
#: Seconds: slurmctld; slurmdbd, which may be slow.
TIMEOUT, SACCT_TIMEOUT = 5.0, 10.0
#: A job that neither squeue nor sacct knows is running for so long, and failed afterwards:
#: accounting lags, but a workflow must not wait for ever.
UNKNOWN_SECONDS = 120.0
#: How far back accounting is asked for jobs that were not asked about before.
LOOK_BACK = 2 * 86400

_SQUEUE = ["squeue", "--me", "-a", "-h", "-t", "all", "-O", "JobArrayID:0|,State:0"]


class States:
    """The shared table. `queue` and `accounting` map base ids to rows to words."""

    def __init__(self) -> None:
        self.taken_at = 0.0
        self.queue: Table = {}
        self.accounting: Table = {}
        #: Job id -> when it was first unknown to both while both answered.
        self.unknown: Dict[str, float] = {}
        #: Since when accounting is asked (seconds since the epoch).
        self.since = 0.0
        #: Whether both answered the last time.
        self.answered = False

    def plain(self) -> Tuple[object, ...]:
        """As `store` takes it."""
        return (
            self.taken_at, self.queue, self.accounting, self.unknown, self.since, self.answered,
        )  # fmt: skip

    @classmethod
    def of(cls, plain: Any) -> States:
        """The inverse of `plain`; an empty table for anything else."""
        self = cls()
        if isinstance(plain, tuple) and len(plain) == 6:
            (
                self.taken_at, self.queue, self.accounting, self.unknown, self.since,
                self.answered,
            ) = plain  # fmt: skip
        return self

    def any_running(self) -> bool:
        """Whether the queue shows a job of mine that has not ended."""
        return any(RUNNING in rows.values() for rows in self.queue.values())

    def word(self, ident: str, now: float) -> str:
        """The word for one job; remembers since when nobody has known it."""
        found = settle(self.queue, self.accounting, ident)
        if found is not None:
            self.unknown.pop(ident, None)
            return found
        if not self.answered:
            return RUNNING
        first = self.unknown.setdefault(ident, now)
        return FAILED if now - first > UNKNOWN_SECONDS else RUNNING


def job_word(given: str, environ: Mapping[bytes, bytes]) -> str:
    """``running``, ``success`` or ``failed`` for one job id as Snakemake has it."""
    ident, cluster = plain_id(given)
    if not base_id(ident).isdigit():
        # No job has such an id, now or later.
        return FAILED
    cluster = cluster or known(environ).get(base_id(ident), "")
    key = _key(environ, cluster)
    try:
        place = directory(environ)
    except StateError:
        states = States()
        refresh(states, cluster, time.time())
        return states.word(ident, time.time())
    path = _path(place, cluster)
    states = States.of(load(path, key))
    now = time.time()
    found = settle(states.queue, states.accounting, ident)
    if found in ("success", FAILED) or (found and 0 <= now - states.taken_at < FRESH):
        return found
    with Lock(place, wait=TIMEOUT) as lock:
        states = States.of(load(path, key))
        if not 0 <= time.time() - states.taken_at < FRESH:
            refresh(states, cluster, time.time())
        found = states.word(ident, time.time())
        if lock.held:
            _save(path, key, states)
    return found


def keep_fresh(environ: Mapping[bytes, bytes], age: float) -> bool:
    """Renew the table unless it is younger than `age` seconds: another sidecar may have.

    For the sidecar; whether a job in it still runs. Raises StateError.
    """
    place = directory(environ)
    path, key = _path(place, ""), _key(environ, "")
    with Lock(place, wait=TIMEOUT) as lock:
        states = States.of(load(path, key))
        if not 0 <= time.time() - states.taken_at < age:
            refresh(states, "", time.time())
            if lock.held:
                _save(path, key, states)
    return states.any_running()


def _path(place: str, cluster: str) -> str:
    """A table for each cluster: two that took turns in one would ask Slurm at every turn."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster[:64])
    return f"{place}/jobs.{plain}" if cluster else f"{place}/jobs"


def _key(environ: Mapping[bytes, bytes], cluster: str) -> Tuple[object, ...]:
    return (environ.get(b"SLURM_CONF", b""), cluster)


def _save(path: str, key: object, states: States) -> None:
    try:
        store(path, key, states.plain())
    except OSError:
        # Without the table every question is asked of Slurm: slower, not wrong.
        return


def refresh(states: States, cluster: str, now: float) -> None:
    """Ask squeue and sacct at once; what does not answer leaves its part of the table."""
    states.since = states.since or now - LOOK_BACK
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(states.since))
    where = ["-M", cluster] if cluster else []
    commands = [
        [*_SQUEUE, *where],
        ["sacct", "-X", "-n", "-P", "-u", str(posix.getuid()), "-S", start, "-o",
         "JobID,State", *where],
    ]  # fmt: skip
    queue, accounting = run_all(commands, TIMEOUT, timeouts=[TIMEOUT, SACCT_TIMEOUT])
    disabled = b"accounting storage is disabled" in accounting.err.lower()
    if not queue.trouble:
        states.queue = _table(queue)
    if not accounting.trouble:
        states.accounting = _table(accounting)
    states.taken_at = now
    states.answered = not queue.trouble and (not accounting.trouble or disabled)


def _table(outcome: Outcome) -> Table:
    """``JOBID|STATE`` lines as a table. A state we do not know counts as running."""
    table: Table = {}
    for line in outcome.out.decode("utf-8", "surrogateescape").splitlines():
        ident, bar, state = line.strip().partition("|")
        if not bar or not ident[:1].isdigit():
            continue
        table.setdefault(base_id(ident), {})[ident] = word(state) or RUNNING
    return table
