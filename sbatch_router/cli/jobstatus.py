"""``sbatch-router-status JOBID``: for Snakemake's ``--cluster-generic-status-cmd``.

Prints exactly one of ``running``, ``success`` and ``failed``, and always exits 0: anything
else would make Snakemake give the job up while Slurm is merely busy.
"""

from __future__ import annotations

import posix
import sys

from .. import jobs
from . import ensure_streams


def main() -> int:
    """Answer for ``sys.argv[1]``."""
    ensure_streams()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: sbatch-router-status JOBID\n")
        return 2
    try:
        word = jobs.job_word(sys.argv[1], posix.environ)
    except Exception as error:
        # A bug of ours must not fail a job that runs.
        sys.stderr.write(f"sbatch-router-status: internal error: {error!r}\n")
        word = "running"
    sys.stdout.write(word + "\n")
    return 0
