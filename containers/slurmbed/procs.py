"""Processes: whose they are, whether they live, how they end. Zombies count as gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Callable

MARK = "SLURMBED_ID"
PROC = Path("/proc")


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when gone or a zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def parent(pid: int) -> int:
    """Return the parent of a process, 0 when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def _bytes(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def all_pids() -> list[int]:
    """Return the ids of all live processes."""
    pids = [int(entry) for entry in os.listdir(PROC) if entry.isdigit()]
    return [pid for pid in pids if start_time(pid) is not None]


def ancestors(pid: int) -> set[int]:
    """Return a process and all its ancestors."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = parent(pid)
    return found


def _is_marked(pid: int, ident: str, conf: str) -> bool:
    """Tell a cluster's processes: the mark, or a job (SLURM_JOB_ID) under the cluster's conf."""
    variables = _bytes(pid, "environ").split(b"\0")
    if f"{MARK}={ident}".encode() in variables:
        return True
    named = f"SLURM_CONF={conf}".encode() in variables
    return named and any(v.startswith(b"SLURM_JOB_ID=") for v in variables)


def of_uid(uid: int) -> list[int]:
    """Return a user's live processes, but not the calling one and its ancestors."""
    return sorted({pid for pid in all_pids() if _uid(pid) == uid} - ancestors(os.getpid()))


def of_cluster(ident: str, conf: str) -> list[int]:
    """Return a cluster's live processes: marked ones and what they started.

    The calling process and its ancestors are never among them.
    """
    spared = ancestors(os.getpid())
    pids = all_pids()
    found = {pid for pid in pids if _is_marked(pid, ident, conf)} - spared
    parents = {pid: parent(pid) for pid in pids}
    grown = True
    while grown:
        more = {pid for pid in pids if parents[pid] in found} - found - spared
        found |= more
        grown = bool(more)
    return sorted(found)


def _uid(pid: int) -> int:
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return -1


def program(pid: int) -> str:
    """Return the base name of a process's argv[0] (without what setproctitle adds), or ""."""
    first = _bytes(pid, "cmdline").split(b"\0")[0].decode(errors="replace")
    return first.split(":")[0].rsplit("/", 1)[-1]


def kill_all(find: Callable[[], list[int]], timeout: float = 10.0) -> list[int]:
    """SIGKILL what `find` returns until it returns nothing; return what outlived `timeout` s."""
    deadline = time.monotonic() + timeout
    while True:
        left = find()
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
