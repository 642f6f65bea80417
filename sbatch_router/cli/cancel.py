"""``sbatch-router-cancel JOBID...``: for Snakemake's ``--cluster-generic-cancel-cmd``.

Snakemake gives it two seconds and ends it then; a workflow may have thousands of jobs. All
ids go to as few scancel calls as the kernel allows, in a session of their own, which goes on
when this command has to stop waiting.
"""

from __future__ import annotations

import os
import posix
import sys
import time

from ..clusters import known
from ..core.jobstate import base_id, plain_id

#: Ids a scancel call; their text stays far below the kernel's limit on arguments.
CHUNK = 2000
#: Seconds to wait for scancel; Snakemake waits two.
PATIENCE = 1.5


USAGE = """\
usage: sbatch-router-cancel JOBID...

Cancel jobs, for Snakemake's --cluster-generic-cancel-cmd. It does not wait for
long: where scancel is slow, that goes on by itself.

exit status: 0 whatever became of jobs that had ended; 1 scancel cannot be run;
2 something given is no job id
"""


def main() -> int:
    """Cancel every id in ``sys.argv``; 0 whatever became of the jobs that had ended.

    1: scancel cannot be run. 2: something is no job id; the others are cancelled.
    """
    if sys.argv[1:] in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return 0
    elsewhere = known(posix.environ)
    clusters: dict[str, list[str]] = {}
    strange = False
    for given in dict.fromkeys(sys.argv[1:]):
        ident, cluster = plain_id(given)
        if not base_id(ident).isdigit():
            # Never to scancel, to which -u or --state= means many jobs.
            sys.stderr.write(f"sbatch-router-cancel: {given!a} is no job id\n")
            strange = True
        else:
            cluster = cluster or elsewhere.get(base_id(ident), "")
            clusters.setdefault(cluster, []).append(ident)
    running = []
    try:
        for cluster, idents in clusters.items():
            where = [f"--clusters={cluster}"] if cluster else []
            for start in range(0, len(idents), CHUNK):
                running.append(_scancel([*where, *idents[start : start + CHUNK]]))
    except OSError as error:
        sys.stderr.write(f"sbatch-router-cancel: cannot run scancel: {error.strerror}\n")
        return 1
    if not _ended(running, time.monotonic() + PATIENCE):
        sys.stderr.write("sbatch-router-cancel: scancel is slow and goes on by itself\n")
    return 2 if strange else 0


def _scancel(arguments: list[str]) -> int:
    """Start scancel in a session of its own, silent; its process id. Raises OSError.

    `import subprocess` would take a good part of the two seconds on a busy machine.
    """
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    # -Q: a job that has ended is no error.
    return os.posix_spawnp(
        "scancel", ["scancel", "-Q", *arguments], os.environ, file_actions=null, setsid=True
    )


def _ended(pids: list[int], deadline: float) -> bool:
    """Whether all of them end in time."""
    left = set(pids)
    while left:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        if left and time.monotonic() >= deadline:
            return False
        time.sleep(0.005 if left else 0)
    return True
