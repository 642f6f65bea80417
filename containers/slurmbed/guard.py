"""A small process that outlives the starter of a cluster and then ends the cluster."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

from . import packages, procs, registry

CODE = "import sys; sys.path.insert(0, sys.argv[1]); from slurmbed import guard; guard.main()"


def start(entry: registry.Entry) -> subprocess.Popen[bytes]:
    """Start the guard of an entry whose owner is this process."""
    parent = str(Path(__file__).resolve().parent.parent)
    return subprocess.Popen(
        [sys.executable, "-IBc", CODE, parent, entry.ident],
        env={"PATH": packages.PATH, procs.MARK: entry.ident},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> None:
    """Wait for the owner's end, then destroy the cluster, unless it is gone or shall stay."""
    ident = sys.argv[2]
    entry = registry.find(ident)
    if entry is None or not entry.owner:
        return
    _wait(entry.owner, entry)
    entry = registry.find(ident)
    if entry is not None and entry.state == "orphan":
        registry.destroy(entry)


def _wait(pid: int, entry: registry.Entry) -> None:
    """Return when a process has ended; a pid that was given to another process counts as that."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        while entry.state == "owned":
            time.sleep(0.2)
        return
    if entry.state == "owned":
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.poll()
    os.close(handle)
