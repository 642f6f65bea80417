"""Sharing out a workflow's items over accounts, and the best account for one job. Pure.

Rooms come from live data (what is free now) or from a config's static slots; the arithmetic
is the same. docs/how-to-snakemake.md describes what a Snakefile sees of it.
"""

from __future__ import annotations

from .decide import FITS, Candidate, _sorted
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence


class Room(Record):
    """What one account has left. None: nobody said, so it does not count against a job."""

    name: str
    gpu: Optional[int]
    cpu: Optional[int]
    #: MiB.
    mem: Optional[int]
    #: The policy lets these jobs go there.
    gpu_jobs: bool = True
    cpu_jobs: bool = True


class Job(Record):
    """What one job (one item) takes. 0 CPUs or MiB: not said."""

    gpus: int
    cpu: int = 0
    mem: int = 0


def slots(room: Room, job: Job) -> int:
    """How many such jobs fit into what is left, memory and CPUs included.

    A job that does not say how much it takes still takes something: with no CPU or no memory
    left there is no slot.
    """
    if not (room.gpu_jobs if job.gpus else room.cpu_jobs):
        return 0
    counts = []
    if job.gpus:
        counts.append((room.gpu or 0) // job.gpus)
    for left, asked in ((room.cpu, job.cpu), (room.mem, job.mem)):
        if left is not None and left <= 0:
            return 0
        if left is not None and asked:
            counts.append(left // asked)
    if not job.gpus and not job.cpu:
        # What nobody sized is counted in CPUs, as the static cpu_slots are.
        counts.append(1 if room.cpu is None else room.cpu)
    # Nothing said and nothing known of what it takes: a place for one.
    return max(0, min(counts, default=1))


def share(items: int, weights: Sequence[int]) -> List[int]:
    """`items` by weight: each gets its proportional part, rounded up or down.

    A weight of 0 gets nothing, and nobody gets more than its weight while all of them together
    hold the items. Largest remainders first; ties go to the larger weight, then to the first.
    Raises ValueError when no weight is above 0.
    """
    total = sum(weights)
    if total <= 0 or min(weights) < 0:
        raise ValueError("no account has a weight above 0")
    counts = [items * weight // total for weight in weights]
    order = sorted(
        range(len(weights)),
        key=lambda i: (-(items * weights[i] % total), -weights[i], i),
    )
    for index in order[: items - sum(counts)]:
        counts[index] += 1
    return counts


def spread(counts: Sequence[int]) -> List[int]:
    """Indexes into `counts`, each as often as it says, mixed as evenly as they can be."""
    places = []
    for index, count in enumerate(counts):
        # The middles of `count` equal parts of the whole.
        places += [((2 * k + 1) / (2 * count), -count, index) for k in range(count)]
    return [index for _, _, index in sorted(places)]


def assign(items: int, rooms: Sequence[Room], static: Dict[str, int], job: Job) -> List[str]:
    """An account name for each item, proportional to the slots the rooms have for `job`.

    Without a slot anywhere the items will queue: then they are shared by `static` (name ->
    slots), or equally, among the rooms that at least have the memory, if any has. Raises
    ValueError for no room at all.
    """
    if not rooms:
        raise ValueError("no account to assign to")
    weights = [slots(room, job) for room in rooms]
    if not any(weights):
        rooms = _queueing(rooms, job)
        weights = [max(0, static.get(room.name, 0)) for room in rooms]
    if not any(weights):
        weights = [1] * len(rooms)
    return [rooms[index].name for index in spread(share(items, weights))]


def _queueing(rooms: Sequence[Room], job: Job) -> Sequence[Room]:
    """Where to queue: where the policy lets the job go, and where its memory is free."""
    allowed = [r for r in rooms if (r.gpu_jobs if job.gpus else r.cpu_jobs)] or list(rooms)
    roomy = [r for r in allowed if r.mem is None or (r.mem >= job.mem and r.mem > 0)]
    return roomy or allowed


def pick(rooms: Sequence[Room], job: Job) -> str:
    """The account for one job: of those it fits into, the one the shim would take first.

    Without any, the first by the same order among those where it may queue. Raises ValueError
    for no room at all.
    """
    if not rooms:
        raise ValueError("no account to pick from")
    fitting = [room for room in rooms if slots(room, job)] or _queueing(rooms, job)
    order = ("gpu", "mem", "cpu") if job.gpus else ("mem", "cpu")
    return _sorted(tuple(_candidate(room) for room in fitting), FITS, order)[0].account


def _candidate(room: Room) -> Candidate:
    headroom = {"gres/gpu": room.gpu, "mem": room.mem, "cpu": room.cpu}
    return Candidate(room.name, "", "", FITS, "", "", headroom=headroom)
