"""``sbatch-router-status JOBID``: for Snakemake's ``--cluster-generic-status-cmd``.

Prints exactly one of ``running``, ``success`` and ``failed``, and always exits 0: anything
else would make Snakemake give the job up while Slurm is merely busy.
"""

from __future__ import annotations

import posix
import sys

from .. import jobs
from . import ensure_streams

USAGE = """\
usage: sbatch-router-status JOBID

Print running, success or failed for a job of yours, for Snakemake's
--cluster-generic-status-cmd. Many of these at once ask Slurm only once in 5 s.

exit status: 0, also when Slurm does not answer (the job then counts as
running); 2 without a job id
"""


def main() -> int:
    """Answer for ``sys.argv[1]``."""
    ensure_streams()
    if sys.argv[1:] in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return 0
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write(USAGE)
        return 2
    try:
        word = jobs.job_word(sys.argv[1], posix.environ)
    except Exception as error:
        # A bug of ours must not fail a job that runs.
        sys.stderr.write(f"sbatch-router-status: internal error: {error!r}\n")
        word = "running"
    sys.stdout.write(word + "\n")
    return 0
