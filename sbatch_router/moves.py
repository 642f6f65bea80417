"""Pending jobs as requests, and moving them to an account with room.

A pending job is judged by its ReqTRES, written back as the sbatch options that come to it
(`request_of`). That is exact for what ReqTRES tells; `exact` says so after counting it again.
It is not exact where a job's ReqTRES is not all that counts: ``--exclusive``, ``--mem=0`` and
DefCpuPerGPU are settled when the job starts, a range of nodes (``-N 2-4``) shows its least,
and of a Snakemake job only the batch script tells the rule, which is read where a policy asks
for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from .core.request import Given, Request
from .core.resolve import resolve
from .core.snapshot import Config
from .slurm import queue
from .slurm.request import read_request

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

    from .core.decide import Decision
    from .core.policy import Policy
    from .core.snapshot import Job, Snapshot
    from .live import Desk

#: Matchers that only a Snakemake job's script can answer.
_SNAKEMAKE = ("rule", "attempt", "wildcards.")


class Wanted(NamedTuple):
    """A pending job as a request."""

    request: Request
    #: The request comes to the job's ReqTRES, number by number.
    exact: bool


def request_of(
    job: Job, detail: Optional[queue.Detail], snapshot: Snapshot, properties: Mapping[str, object]
) -> Wanted:
    """The sbatch options that come to what a pending job asks for."""
    tres = job.tres
    nodes = max(1, tres.get("node", 1))
    cpus = max(1, tres.get("cpu", 1))
    words: Dict[str, str] = {"nodes": str(nodes)}
    if nodes == 1:
        words["ntasks"], words["cpus-per-task"] = "1", str(cpus)
    else:
        words["ntasks"] = str(cpus)
    if tres.get("mem"):
        words["mem"] = f"{-(-tres['mem'] // nodes)}M"
    gres = _gres(tres, nodes)
    if gres:
        words["gres"] = ",".join(gres)
    licenses = [f"{n[8:]}:{v}" for n, v in tres.items() if n.startswith("license/")]
    if licenses:
        words["licenses"] = ",".join(licenses)
    if job.partition:
        words["partition"] = job.partition
    if isinstance(job.time_limit, int):
        words["time"] = str(job.time_limit)
    elif job.time_limit is None:
        words["time"] = "UNLIMITED"
    if detail is not None and detail.exclusive:
        words["exclusive"] = ""
    if detail is not None and detail.name:
        words["job-name"] = detail.name
    request = Request(
        {name: Given(value, "cli") for name, value in words.items()},
        array_tasks=job.tasks,
        array_at_once=job.tasks_at_once,
        properties=properties,
    )
    return Wanted(request, _is_exact(request, job, snapshot))


def _gres(tres: Mapping[str, int], nodes: int) -> List[str]:
    """``--gres`` a node: typed counts, and what of the plain count they leave."""
    found = []
    typed: Dict[str, int] = {}
    for name, number in tres.items():
        kind, colon, _ = name[5:].partition(":")
        if name.startswith("gres/") and colon:
            typed[kind] = typed.get(kind, 0) + number
            found.append(f"{name[5:]}:{-(-number // nodes)}")
    for name, number in tres.items():
        if name.startswith("gres/") and ":" not in name:
            left = number - typed.get(name[5:], 0)
            if left > 0:
                found.append(f"{name[5:]}:{-(-left // nodes)}")
    return found


def _is_exact(request: Request, job: Job, snapshot: Snapshot) -> bool:
    """Whether the request counts to the job's ReqTRES on its partition."""
    partitions = snapshot.partitions
    if not isinstance(partitions, dict) or not isinstance(snapshot.config, Config):
        return False
    partition = partitions.get(job.partition.split(",")[0])
    if partition is None or request.given("exclusive") is not None:
        return False
    need = resolve(request, partition, snapshot.config)
    if need.doubts or need.later:
        return False
    names = (set(need.tres) | set(job.tres)) - {"billing"}
    return all(need.tres.get(name, 0) == job.tres.get(name, 0) for name in names)


def properties_of(job: Job, policy: Policy) -> Mapping[str, object]:
    """The Snakemake properties of a job's script, asked for only if the policy looks at them."""
    tests = [name for rule in policy.rules for name in rule.when]
    tests += [name for account in policy.accounts for name in account.only]
    if not any(name.startswith(_SNAKEMAKE) for name in tests):
        return {}
    script = queue.batch_script(base_id(job.id))
    return {} if script is None else read_request([], {}, script).properties


def base_id(ident: str) -> str:
    """``7`` of ``7``, ``7_3`` and ``7_[1-4]``."""
    return ident.partition("_")[0].partition("+")[0]


def without(snapshot: Snapshot, job: Job) -> Snapshot:
    """The snapshot as if one pending job of mine were not there: it does not wait for itself."""
    if not isinstance(snapshot.jobs, tuple):
        return snapshot
    return snapshot._replace(jobs=tuple(j for j in snapshot.jobs if j.id != job.id))


# -- moving -------------------------------------------------------------------------------------

MOVED = "moved"
STARTED = "started"
GONE = "gone"
NO_ROOM = "no room"
FAILED = "failed"


class Outcome(NamedTuple):
    """What became of one job."""

    job: Job
    result: str
    account: str = ""
    qos: str = ""
    #: One clause.
    why: str = ""


def takes(decision: Decision, job: Job) -> bool:
    """Whether a decision is a better place for a pending job: one where it can start now.

    Of an array, where some of its tasks can.
    """
    if (decision.account, decision.qos) == (job.account, job.qos):
        return False
    if decision.action == "route":
        return True
    chosen = [
        c for c in decision.candidates if (c.account, c.qos) == (decision.account, decision.qos)
    ]
    return decision.action == "queue" and any(c.starts > 0 for c in chosen)


class Mover:
    """Moves jobs one by one; what it has moved is gone from the snapshot it decides by."""

    def __init__(
        self,
        desk: Desk,
        snapshot: Snapshot,
        details: Mapping[str, queue.Detail],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._desk = desk
        self._snapshot = snapshot
        self._details = details
        #: Called between the last look at a job and its move, for tests.
        self._pause = pause

    def move(self, job: Job) -> Outcome:
        """Look again, decide and promise, move, and verify."""
        rows, trouble = queue.my_rows(base_id(job.id))
        if rows is None:
            return Outcome(job, FAILED, why=trouble)
        current = same_row(job, rows)
        if current is None:
            return self._not_pending(job, rows)
        if (current.account, current.qos) != (job.account, job.qos):
            why = f"it is on {current.account}/{current.qos} by now"
            return Outcome(job, GONE, why=why)
        detail = self._details.get(job.id)
        rest = without(self._snapshot, job)
        properties = properties_of(current, self._desk.policy)
        request = request_of(current, detail, self._snapshot, properties).request
        decision, promise = self._desk.place(request, rest)
        if not takes(decision, current):
            self._desk.withdraw(promise)
            return Outcome(job, NO_ROOM, why=decision.why)
        self._pause()
        complaint = queue.update(queue.task_list(current.id), decision.account, decision.qos)
        outcome = self._verify(current, decision, complaint)
        if outcome.result == MOVED:
            self._snapshot = rest
        else:
            self._desk.withdraw(promise)
        return outcome

    def _not_pending(self, job: Job, rows: Sequence[Job]) -> Outcome:
        if rows:
            return Outcome(job, STARTED, why=f"it is {rows[0].state} by now: left alone")
        return Outcome(job, GONE, why="it is no longer in the queue")

    def _verify(self, job: Job, decision: Decision, complaint: str) -> Outcome:
        """What Slurm shows after the move."""
        rows, trouble = queue.my_rows(base_id(job.id))
        account, qos = decision.account, decision.qos
        if rows is None:
            return Outcome(job, FAILED, account, qos, complaint or trouble)
        still = same_row(job, rows)
        there = [row for row in rows if (row.account, row.qos) == (account, qos)]
        if complaint:
            # Not all of it was moved, or nothing: what runs now did so before we came.
            there = [row for row in there if row.state == "PENDING"]
        if there and still in (None, *there):
            return Outcome(job, MOVED, account, qos, complaint)
        if still is None:
            return self._not_pending(job, rows)
        why = complaint or f"Slurm still shows it on {still.account}/{still.qos}"
        return Outcome(job, FAILED, account, qos, why)


def same_row(job: Job, rows: Iterable[Job]) -> Optional[Job]:
    """The pending row that is `job` now: of an array, what is left of its record."""
    pending = [row for row in rows if row.state == "PENDING"]
    exact = [row for row in pending if row.id == job.id]
    if exact:
        return exact[0]
    record = [row for row in pending if "[" in row.id and "[" in job.id]
    if record:
        return record[0]
    # The last task of a record is shown by itself.
    single = [row for row in pending if "[" in job.id and row.id in _tasks(job.id)]
    return single[0] if len(single) == 1 else None


def _tasks(ident: str) -> Tuple[str, ...]:
    """Every task id of ``7_[1-3,9%2]``; none for what is no such list."""
    base, _, inside = ident.partition("_[")
    found = []
    for part in inside.rstrip("]").partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            continue
        numbers = range(int(first), int(last or first) + 1, int(step) if step.isdigit() else 1)
        found += [f"{base}_{number}" for number in numbers]
    return tuple(found)
