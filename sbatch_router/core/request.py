"""What one sbatch call asks for, and what it needs: plain data. (resolve.py makes the one of the
other.)"""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional, Tuple

    from .tres import Amount, Tres


#: Options after which sbatch tells something, and submits nothing.
SUBMITS_NOTHING = ("help", "usage", "version", "autocomplete", "test-only")


class Given(Record):
    """An option's value as the user wrote it, and where: ``cli``, ``env`` or ``script``."""

    value: str
    origin: str


class Request(Record):
    """One sbatch call after sbatch's own precedence (command line > environment > script)."""

    #: Canonical long option name (``cpus-per-task``) -> the value that wins.
    options: Dict[str, Given]
    #: Why this request cannot be judged (an option we do not know, a het job), one clause each.
    #: Not empty: every verdict is `unknown`, and the call is passed through.
    doubts: Tuple[str, ...] = ()
    #: Tasks of the array as sbatch would count them; 1 when it is no array.
    array_tasks: int = 1
    #: The array's ``%`` limit; None: all at once.
    array_at_once: Optional[int] = None
    #: Snakemake's ``# properties = {...}`` line, parsed; empty when there is none.
    properties: Mapping[str, object] = {}
    #: What sbatch calls a job that is given no name; empty where there is no call of sbatch.
    script_name: str = ""

    @property
    def job_name(self) -> Optional[str]:
        """The job's name, as sbatch would set it; None: not known."""
        given = self.options.get("job-name")
        return given.value if given else self.script_name or None

    def given(self, name: str) -> Optional[Given]:
        """The winning value of a long option, or None."""
        return self.options.get(name)


class Need(Record):
    """What one job (one array task) asks of the limits on one partition.

    `tres` is ReqTRES as slurmctld computes it at submission. A TRES named in `later` is
    settled only when the job starts.
    """

    tres: Tres
    #: Minutes; None is unlimited.
    time_limit: Amount
    #: Whether `time_limit` was asked for; False: it is what the partition gives, if anything.
    time_given: bool = True
    #: TRES that a job's Node-scoped limits (MaxTRESPN) see: the most on one node.
    per_node: Tres = {}
    #: What the job will hold once it runs, which running limits are judged by: whole cores,
    #: whole nodes, what GPUs bring. DenyOnLimit and submit-time checks see `tres` instead.
    at_start: Tres = {}
    #: TRES whose `at_start` is only the least it can be.
    later: Tuple[str, ...] = ()
    #: Why this cannot be judged on this partition, one clause each.
    doubts: Tuple[str, ...] = ()
    #: Minutes of --time-min, with which the backfill scheduler may start the job.
    time_min: Optional[int] = None
    #: The most nodes that were asked for (``-N 2-4``).
    max_nodes: Optional[int] = None
