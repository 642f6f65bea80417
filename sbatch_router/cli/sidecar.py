"""``sbatch-router-sidecar``: for Snakemake's ``--cluster-generic-sidecar-cmd``, or by itself.

As Snakemake demands, the first line on standard output comes at once; Snakemake hands it to
the other commands as SNAKEMAKE_CLUSTER_SIDECAR_VARS. Ours need nothing from it.
"""

from __future__ import annotations

import os
import sys

from . import ensure_streams

USAGE = """\
usage: sbatch-router-sidecar [--no-jobs]

Keep what Slurm said and the states of your jobs fresh while somebody is
submitting, until SIGTERM; for Snakemake's --cluster-generic-sidecar-cmd. With
--no-jobs not the jobs' states. Logs JSON lines in
~/.local/state/sbatch-router/sidecar.jsonl.

exit status: 0 after SIGTERM; 2 for arguments it does not know
"""


def main() -> int:
    """Run the loop."""
    ensure_streams()
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return 0
    if arguments not in ([], ["--no-jobs"]):
        sys.stderr.write(USAGE)
        return 2
    sys.stdout.write(f"sbatch-router-sidecar {os.getpid()}\n")
    sys.stdout.flush()
    from ..sidecar import run

    return run(watch_jobs="--no-jobs" not in arguments)
