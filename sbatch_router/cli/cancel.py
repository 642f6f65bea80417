"""``sbatch-router-cancel JOBID...``: for Snakemake's ``--cluster-generic-cancel-cmd``.

Snakemake gives it two seconds and ends it then; a workflow may have thousands of jobs. All
ids go to as few scancel calls as the kernel allows, in a session of their own, which goes on
when this command has to stop waiting.
"""

from __future__ import annotations

import subprocess
import sys
import time

from ..core.jobstate import plain_id

#: Ids a scancel call; their text stays far below the kernel's limit on arguments.
CHUNK = 2000
#: Seconds to wait for scancel; Snakemake waits two.
PATIENCE = 1.5


def main() -> int:
    """Cancel every id in ``sys.argv``; 0 whatever became of the jobs that had ended."""
    clusters: dict[str, list[str]] = {}
    for given in dict.fromkeys(sys.argv[1:]):
        ident, cluster = plain_id(given)
        if ident:
            clusters.setdefault(cluster, []).append(ident)
    running = []
    for cluster, idents in clusters.items():
        where = [f"--clusters={cluster}"] if cluster else []
        for start in range(0, len(idents), CHUNK):
            running.append(_scancel([*where, *idents[start : start + CHUNK]]))
    deadline = time.monotonic() + PATIENCE
    for process in running:
        if process is None:
            return 1
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            sys.stderr.write("sbatch-router-cancel: scancel is slow and goes on by itself\n")
            break
    return 0


def _scancel(arguments: list[str]) -> subprocess.Popen[bytes] | None:
    try:
        # -Q: a job that has ended is no error.
        return subprocess.Popen(
            ["scancel", "-Q", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        sys.stderr.write(f"sbatch-router-cancel: cannot run scancel: {error.strerror}\n")
        return None
