"""What was promised since the snapshot: submissions that Slurm has not shown us yet."""

from __future__ import annotations

from .record import Record
from .tres import NO_TIME_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .decide import Decision
    from .request import Request
    from .tres import Tres


class Promise(Record):
    """One submission of mine that the snapshot cannot know of.

    `tres` is of one array task; `tasks_at_once` of them may run together. `pid` is the
    shim's, and after exec sbatch's own: while it lives, the job may not have been submitted.
    """

    #: Seconds since the epoch.
    at: float
    pid: int
    account: str
    qos: str
    partition: str
    tres: Tres
    tasks: int
    tasks_at_once: int
    #: Minutes, as slurmctld counts a job without a limit.
    minutes: int


def promise_of(request: Request, decision: Decision, tres: Tres, at: float, pid: int) -> Promise:
    """What a decision takes: `tres` for each task, promised at `at` to the process `pid`."""
    account, qos = decision.account, decision.qos
    if decision.action == "keep":
        account, _, qos = decision.unrouted.partition("/")
    limit = decision.need.time_limit if decision.need is not None else None
    tasks = request.array_tasks
    return Promise(
        at,
        pid,
        account,
        qos,
        decision.partition,
        tres,
        tasks,
        min(tasks, request.array_at_once or tasks),
        limit if isinstance(limit, int) else NO_TIME_LIMIT,
    )
