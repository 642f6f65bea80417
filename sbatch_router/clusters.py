"""Which cluster a job of mine is on, where its submission named one (``-M``).

Snakemake wants the bare id, and the same number may be a job of the local cluster. So
sbatch-router-submit writes lines ``ID;CLUSTER;`` beside the log of decisions, where they outlive
a logout and are seen from every login node, and status and cancel look there. The last line of
an id counts.
"""

from __future__ import annotations

import posix

from .decisionlog import append_line, log_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping

#: Bytes at the end of the file that count: more than 10,000 jobs.
TAIL = 1 << 18


def remember(job: str, cluster: str, environ: Mapping[bytes, bytes]) -> None:
    """Write down the cluster of a job just submitted; empty is the local one.

    A local job needs a line only where its number was another cluster's. Raises OSError.
    """
    if cluster or job in known(environ):
        append_line(_path(environ), f"{job};{cluster};\n")


def known(environ: Mapping[bytes, bytes]) -> Dict[str, str]:
    """Job id -> cluster, empty for the local one. Most ids are not in it, nor on another one."""
    try:
        fd = posix.open(_path(environ), posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return {}
    try:
        size = posix.fstat(fd).st_size
        data = posix.pread(fd, TAIL, max(0, size - TAIL))
    except OSError:
        return {}
    finally:
        posix.close(fd)
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    found = {}
    # The first one lacks its beginning where there is more before it.
    for line in lines[size > TAIL :]:
        job, _, rest = line.partition(";")
        cluster, end, more = rest.partition(";")
        # One that a full disk cut short has no end.
        if end and not more and job.isdigit():
            found[job] = cluster
    return found


def _path(environ: Mapping[bytes, bytes]) -> str:
    log = log_path(environ)
    return log and log.rpartition("/")[0] + "/clusters"
