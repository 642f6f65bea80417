"""What one sbatch call asks for, and what that comes to on one partition."""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional, Tuple

    from .snapshot import Config, Partition
    from .tres import Amount, Tres


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

    def given(self, name: str) -> Optional[Given]:
        """The winning value of a long option, or None."""
        return self.options.get(name)


class Need(Record):
    """What one job (one array task) asks of the limits on one partition.

    `tres` is ReqTRES as slurmctld computes it at submission. A TRES named in `later` is
    settled only when the job starts (its amount here is the least it can be).
    """

    tres: Tres
    #: Minutes; None is unlimited.
    time_limit: Amount
    #: TRES that a job's Node-scoped limits (MaxTRESPN) see: the most on one node.
    per_node: Tres = {}
    later: Tuple[str, ...] = ()
    #: Why this cannot be judged on this partition, one clause each.
    doubts: Tuple[str, ...] = ()


def resolve(request: Request, partition: Partition, config: Config) -> Need:
    """ReqTRES and time limit of `request` on `partition`, with the cluster's defaults."""
    raise NotImplementedError
