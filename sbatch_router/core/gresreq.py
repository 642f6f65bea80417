"""What a job asks of generic resources (GPUs), as Slurm's `gres_job_state_validate` sees it.

Source: src/common/gres.c (22.05), src/interfaces/gres.c (later). sbatch runs it and slurmctld
runs it again, and both times it may change the job's tasks, nodes and CPUs.
"""

from __future__ import annotations

from .units import strtol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from .jobdesc import JobDesc

_MULTIPLIERS = {
    "": 1,
    "k": 2**10, "kib": 2**10, "kb": 10**3,
    "m": 2**20, "mib": 2**20, "mb": 10**6,
    "g": 2**30, "gib": 2**30, "gb": 10**9,
    "t": 2**40, "tib": 2**40, "tb": 10**12,
    "p": 2**50, "pib": 2**50, "pb": 10**15,
}  # fmt: skip


class GresState:
    """One GRES (``gpu``, or ``gpu:a100``) of a job; zero is "not asked for"."""

    __slots__ = (
        "cpus_per_gres", "kind", "mem_per_gres", "name", "per_job", "per_node", "per_socket",
        "per_task", "total",
    )  # fmt: skip

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.per_job = self.per_node = self.per_socket = self.per_task = 0
        self.cpus_per_gres = self.mem_per_gres = self.total = 0


def parse_gres_list(text: str) -> Iterator[Tuple[str, str, int]]:
    """(name, type or "", count) of ``gpu:a100:2,gpu:1,license`` (`_get_next_gres`).

    A count of 0 asks for nothing. Raises ValueError for what Slurm calls invalid (and
    slurmctld, not sbatch, calls an empty item so: `valid_tres_cnt` in job_mgr.c).
    """
    for token in text.split(","):
        if not token:
            raise ValueError(f"GRES request has an empty item: {text!r}")
        name, _, rest = token.partition(":")
        if "-" in token or "gres" in name or "=" in token or name.lower() == "none":
            raise ValueError(f"GRES request is not supported: {token!r}")
        kind, colon, count_text = rest.partition(":")
        count: Optional[int] = 1
        if colon:
            count = _number(count_text)
            if not kind or not count_text or count is None:
                raise ValueError(f"GRES request is invalid: {token!r}")
        elif ":" in token:
            if not rest:
                raise ValueError(f"GRES request is invalid: {token!r}")
            count = _number(rest)
            if count is None and rest[0].isdigit():
                raise ValueError(f"GRES request is invalid: {token!r}")
            kind = rest if count is None else ""
            count = 1 if count is None else count
        if count:
            yield name, kind, count


def _number(text: str) -> Optional[int]:
    """A count with an optional suffix (`_is_valid_number`): ``2``, ``1k``; None for a type."""
    number, rest = strtol(text)
    factor = _MULTIPLIERS.get(rest.lower())
    if number is None and factor is not None:
        raise ValueError(f"GRES count is read differently by different releases: {text!r}")
    return None if factor is None or number is None else number * factor


def validate(job: JobDesc, in_sbatch: bool, release: Tuple[int, ...]) -> List[GresState]:
    """The job's GRES; may change `job`. Raises ValueError where Slurm refuses the request."""
    gpu_tasks = job.ntasks_per_gpu
    per_task_gpus = _gpu_list(job.gpus_per_task)
    if (per_task_gpus or gpu_tasks) and job.num_tasks is None and _one_size(job):
        nodes = job.min_nodes or 0
        if gpu_tasks:
            job.num_tasks = nodes * gpu_tasks
        elif job.ntasks_per_node is not None:
            job.num_tasks = nodes * job.ntasks_per_node
        elif job.cpus_per_task is None:
            job.num_tasks = nodes
    states: Dict[Tuple[str, str], GresState] = {}
    _read(job, states, release)
    requested = any(s.name == "gpu" and s.total for s in states.values())
    if gpu_tasks:
        _tasks_per_gpu(job, states, gpu_tasks, requested)
        requested = True
    found = list(states.values())
    if found and job.mem_per_gpu is not None and not requested:
        raise ValueError("--mem-per-gpu without any GPU")
    if job.cpus_per_gpu is not None and not requested and release >= (23, 2):
        raise ValueError("--cpus-per-gpu without any GPU")
    for state in found:
        if state.per_node and state.per_task and release >= (23, 2):
            raise ValueError("GPUs per task beside GPUs per node are not supported")
        if state.per_job and state.per_socket and release >= (24, 5):
            raise ValueError("GPUs per socket beside GPUs per job are not supported")
        _reconcile(job, state, in_sbatch, gpu_tasks)
    if found and job.cpus_per_gpu and release >= (24, 5):
        gpus = sum(state.total for state in found if state.name == "gpu")
        job.min_cpus = max(job.min_cpus or 0, job.cpus_per_gpu * gpus)
    if found and release >= (25, 11) and job.cpus_per_task and job.num_tasks:
        job.min_cpus = max(job.min_cpus or 0, job.cpus_per_task * job.num_tasks)
    return _merge_generic(found)


def _one_size(job: JobDesc) -> bool:
    return job.min_nodes is not None and job.min_nodes == job.max_nodes


def _gpu_list(text: str) -> List[Tuple[str, str, int]]:
    """--gpus and its kin: each item is ``[type:]count`` of ``gpu`` (`xfmt_tres`)."""
    items = ",".join(f"gpu:{item}" for item in text.split(",") if item)
    return list(parse_gres_list(items)) if items else []


def _read(job: JobDesc, states: Dict[Tuple[str, str], GresState], release: Tuple[int, ...]) -> None:
    """Fill `states` in Slurm's order; the order decides which record comes first."""

    def state(name: str, kind: str) -> GresState:
        return states.setdefault((name, kind), GresState(name, kind))

    if job.cpus_per_gpu:
        state("gpu", "").cpus_per_gres = job.cpus_per_gpu
    for name, kind, count in _gpu_list(job.gpus):
        one = state(name, kind)
        one.per_job = count
        one.total = max(one.total, count)
    nodes = job.min_nodes
    gres = None if job.gres is None or job.gres.lower() == "none" else job.gres
    per_node = [] if gres is None else list(parse_gres_list(gres))
    for name, kind, count in [*_gpu_list(job.gpus_per_node), *per_node]:
        one = state(name, kind)
        one.per_node = count
        one.total = max(one.total, count if nodes is None else count * nodes)
    for name, kind, count in _gpu_list(job.gpus_per_socket):
        one = state(name, kind)
        one.per_socket = count
        if nodes is not None and job.sockets_per_node is not None:
            count *= nodes * job.sockets_per_node
        elif job.num_tasks is not None and job.ntasks_per_socket is not None:
            count *= -(-job.num_tasks // job.ntasks_per_socket)
        elif job.sockets_per_node is not None and release >= (24, 5):
            count *= job.sockets_per_node
        one.total = max(one.total, count)
    for name, kind, count in _gpu_list(job.gpus_per_task):
        one = state(name, kind)
        one.per_task = count
        one.total = max(one.total, count * (1 if job.num_tasks is None else job.num_tasks))
    if job.mem_per_gpu:
        state("gpu", "").mem_per_gres = job.mem_per_gpu


def _tasks_per_gpu(
    job: JobDesc, states: Dict[Tuple[str, str], GresState], per_gpu: int, requested: bool
) -> None:
    """--ntasks-per-gpu sets the tasks from the GPUs, or the GPUs from the tasks."""
    if requested and states:
        gpus = sum(state.total for state in states.values() if state.name == "gpu")
        job.num_tasks = gpus * per_gpu
    elif job.num_tasks:
        gpus = job.num_tasks // per_gpu
        if gpus:
            one = states.setdefault(("gpu", ""), GresState("gpu", ""))
            one.per_job = gpus
            one.total = max(one.total, gpus)
    else:
        raise ValueError("--ntasks-per-gpu needs GPUs or tasks")


def _reconcile(job: JobDesc, one: GresState, in_sbatch: bool, gpu_tasks: Optional[int]) -> None:
    """`_test_gres_cnt`: make the counts agree, or refuse."""
    label = one.name
    if one.per_job and max(one.per_node, one.per_task, one.per_socket) > one.per_job:
        raise ValueError(f"more {label}s per node, socket or task than per job")
    if one.per_node and max(one.per_task, one.per_socket) > one.per_node:
        raise ValueError(f"more {label}s per socket or task than per node")
    if one.per_socket and job.sockets_per_node is None:
        raise ValueError(f"--{label}s-per-socket needs --sockets-per-node")
    if in_sbatch and one.cpus_per_gres and job.cpus_per_task is not None:
        raise ValueError(f"--cpus-per-{label} excludes --cpus-per-task")
    if one.per_job and one.per_node:
        nodes = _whole(one.per_job, one.per_node, label)
        if nodes < (job.min_nodes or 0) or (job.max_nodes is not None and nodes > job.max_nodes):
            raise ValueError(f"the {label}s per job and per node do not fit the nodes")
        job.min_nodes = job.max_nodes = nodes
    if one.per_node and one.per_socket:
        sockets = _whole(one.per_node, one.per_socket, label)
        _agree(job.sockets_per_node, sockets, "sockets-per-node")
    if gpu_tasks and job.num_tasks is not None and job.num_tasks % gpu_tasks:
        raise ValueError("--ntasks is no multiple of --ntasks-per-gpu")
    if one.per_task:
        _reconcile_tasks(job, one)
    if one.per_node and one.per_task:
        tasks = _whole(one.per_node, one.per_task, label)
        if not job.ntasks_per_node:
            job.ntasks_per_node = tasks
        _agree(job.ntasks_per_node, tasks, "ntasks-per-node")
    if one.per_socket and one.per_task:
        tasks = _whole(one.per_socket, one.per_task, label)
        if not job.ntasks_per_socket:
            job.ntasks_per_socket = tasks
        _agree(job.ntasks_per_socket, tasks, "ntasks-per-socket")
    if one.cpus_per_gres and one.per_task:
        cpus = one.cpus_per_gres * one.per_task
        if not job.cpus_per_task:
            job.cpus_per_task = cpus
        _agree(job.cpus_per_task, cpus, "cpus-per-task")
    if one.per_job:
        if job.min_nodes is not None and one.per_job < job.min_nodes:
            raise ValueError(f"fewer {label}s than nodes")
        if job.max_nodes is not None and one.per_job < job.max_nodes:
            job.max_nodes = one.per_job


def _reconcile_tasks(job: JobDesc, one: GresState) -> None:
    if one.per_job:
        tasks = _whole(one.per_job, one.per_task, one.name)
        if job.num_tasks is None:
            job.num_tasks = tasks
        _agree(job.num_tasks, tasks, "ntasks")
    elif job.num_tasks is not None:
        one.per_job = job.num_tasks * one.per_task
    else:
        raise ValueError(f"--{one.name}s-per-task needs --{one.name}s or --ntasks")


def _whole(total: int, part: int, label: str) -> int:
    if total % part:
        raise ValueError(f"{total} {label}s are no multiple of {part}")
    return total // part


def _agree(given: Optional[int], implied: int, name: str) -> None:
    if given != implied:
        raise ValueError(f"--{name} and the GPU counts disagree")


def _merge_generic(states: List[GresState]) -> List[GresState]:
    """Typed and untyped records of one GRES: the untyped one may only carry per-GPU amounts."""
    for name in {state.name for state in states}:
        same = [state for state in states if state.name == name]
        typed = [state for state in same if state.kind]
        plain = [state for state in same if not state.kind]
        if not typed or not plain:
            continue
        generic = plain[0]
        if generic.per_job or generic.per_node or generic.per_socket or generic.per_task:
            raise ValueError(f"{name} is asked for both with and without a type")
        for state in typed:
            state.cpus_per_gres = state.cpus_per_gres or generic.cpus_per_gres
            state.mem_per_gres = state.mem_per_gres or generic.mem_per_gres
        states = [state for state in states if state is not generic]
    return states


def count_tres(states: List[GresState]) -> Dict[str, int]:
    """``gres/gpu`` and ``gres/gpu:a100`` of a job (`_set_type_tres_cnt` in gres_ctld.c)."""
    tres: Dict[str, int] = {}
    for state in states:
        if not state.total:
            continue
        name = f"gres/{state.name}"
        tres[name] = tres.get(name, 0) + state.total
        if state.kind:
            tres[f"{name}:{state.kind}"] = state.total
    return tres


def memory_of(states: List[GresState], job: JobDesc, nodes: int) -> Optional[int]:
    """MiB from --mem-per-gpu (`job_get_tres_mem` in job_mgr.c); None when it is not used."""
    using = [state for state in states if state.mem_per_gres]
    if not using:
        return None
    each = max(state.mem_per_gres for state in using)
    per_job = sum(state.per_job for state in using)
    if per_job:
        return each * per_job
    per_node = sum(state.per_node for state in using)
    if per_node:
        return each * per_node * nodes
    per_socket = sum(state.per_socket for state in using)
    if per_socket:
        return each * per_socket * nodes * (job.sockets_per_node or 1)
    per_task = sum(state.per_task for state in using)
    return each * per_task * (job.num_tasks or 1)
