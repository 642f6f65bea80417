"""The sidecar: keeps the snapshot and the job states fresh while somebody is using them.

It is a convenience, never a need: it writes the same files by the same rules as every shim
and every status command, under the same lock, so killing it at any moment breaks nothing.
"""

from __future__ import annotations

import contextlib
import os
import posix
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import structlog

from . import jobs
from .decisionlog import log_path
from .environ import policy_paths
from .host import Host, Store
from .policycache import PolicyTrouble, find_policy
from .state import Lock
from .statedir import StateError, directory

#: Seconds between two looks while submissions come in.
BUSY = 2.0
#: Seconds without a submission after which the snapshot is left to grow old.
IDLE_AFTER = 60.0
#: Seconds between two renewals of the job states.
JOBS_EVERY = jobs.FRESH / 2


def run(watch_jobs: bool) -> int:
    """Loop until SIGTERM or SIGINT, or until the parent is gone; returns the exit status."""
    log = _logger()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        place = directory(posix.environ)
    except StateError as error:
        log.error("no state directory", problem=str(error))
        return 1
    log.info("started", directory=place, watch_jobs=watch_jobs)
    told = _Told(log)
    parent = os.getppid()
    next_jobs = 0.0
    running = watch_jobs
    for now in _ticks(stop):
        if os.getppid() != parent:
            log.info("the parent is gone")
            break
        busy = _age(f"{place}/ledger") < IDLE_AFTER
        if busy:
            told.now("snapshot", _renew_snapshot(place))
        if watch_jobs and now >= next_jobs and (busy or running):
            next_jobs = now + JOBS_EVERY
            running, problem = _renew_jobs()
            told.now("jobs", problem)
    log.info("stopped")
    return 0


class _Told:
    """A trouble is logged when it comes and when it has gone, not every two seconds."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._last: dict[str, str] = {}

    def now(self, what: str, problem: str) -> None:
        """`problem` is empty where all is well."""
        if self._last.get(what, "") != problem:
            self._last[what] = problem
            if problem:
                self._log.warning(what, problem=problem)
            else:
                self._log.info(f"{what} again without trouble")


def _ticks(stop: threading.Event) -> Iterator[float]:
    """The monotonic time, again and again, until `stop` is set."""
    while not stop.is_set():
        yield time.monotonic()
        stop.wait(BUSY)


def _age(path: str) -> float:
    """Seconds since a file was written; infinite when it is not there."""
    with contextlib.suppress(OSError):
        return max(0.0, time.time() - os.stat(path).st_mtime)
    return float("inf")


def _renew_snapshot(place: str) -> str:
    """Take a new snapshot if the one there is about to be too old for the policy.

    Returns what went wrong, in a line; empty when nothing did.
    """
    paths = policy_paths(posix.environ)
    if not paths:
        return ""
    try:
        host = Host(posix.environ, find_policy(paths, posix.environ))
    except PolicyTrouble as trouble:
        return str(trouble)
    troubles: list[str] = []
    with Lock(place) as lock:
        if lock.held:
            snapshot = host.snapshot(Store(place, True, troubles.append), margin=BUSY)
            troubles += snapshot.troubles
    return "; ".join(dict.fromkeys(troubles))


def _renew_jobs() -> tuple[bool, str]:
    """Whether there is a job left to watch, and what went wrong."""
    try:
        return jobs.keep_fresh(posix.environ, JOBS_EVERY), ""
    except StateError as error:
        return True, str(error)


def _logger() -> Any:
    """JSON lines in ``sidecar.jsonl`` beside the log of decisions.

    Snakemake shows its sidecar's standard error among its own words; that is used only where
    the file cannot be written.
    """
    stream = sys.stderr
    path = log_path(posix.environ)
    if path:
        place = os.path.join(os.path.dirname(path), "sidecar.jsonl")
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            stream = open(place, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    return structlog.get_logger().bind(program="sidecar", pid=os.getpid())
