"""What a request comes to on one partition: ReqTRES and the time limit, as slurmctld has them."""

from __future__ import annotations

from .gresreq import count_tres, memory_of, validate
from .jobdesc import INFINITE, apply_hint, read_options, settle
from .request import Need
from .start import at_start
from .units import count_array, parse_licenses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet, List, Optional, Tuple

    from .gresreq import GresState
    from .jobdesc import JobDesc
    from .request import Request
    from .snapshot import Config, Partition
    from .tres import Amount, Tres


def resolve(request: Request, partition: Partition, config: Config) -> Need:
    """ReqTRES and time limit of `request` on `partition`, with the cluster's defaults.

    As sbatch and then `_job_create` in slurmctld's job_mgr.c compute them. Never raises on
    what the user wrote: what Slurm would refuse, and what we cannot judge, are doubts.
    """
    try:
        return _resolve(request, partition, config)
    except ValueError as error:
        return Need({}, None, doubts=(str(error),))


def _resolve(request: Request, partition: Partition, config: Config) -> Need:
    _check_array(request, config)
    job = read_options(request.options, config.release)
    apply_hint(job, request.options, config.release)
    settle(job, config.release)
    release = config.release
    validate(job, True, release)
    _admit(job, partition, release)
    tres: Tres = {"cpu": job.min_cpus or 0, "mem": 0, "node": job.min_nodes or 0}
    states = validate(job, False, release)
    if release >= (24, 5):
        tres["cpu"], tres["node"] = job.min_cpus or 0, job.min_nodes or 0
    if release >= (26, 5) and job.num_tasks and job.num_tasks < (job.min_nodes or 0):
        raise ValueError("fewer tasks than nodes")
    tres["mem"] = _memory(job, states, tres["cpu"], partition, config)
    for name, count in parse_licenses(job.licenses).items():
        tres[f"license/{name}"] = count
    tres.update(count_tres(states))
    limit = _time_limit(job, partition)
    job.cpus_asked = job.cpus_per_task is not None
    held, later = at_start(job, states, tres, partition, config)
    if config.tres is not None:
        tres = _tracked(tres, config.tres)
        held = _tracked(held, config.tres)
    tres["billing"] = _billing(tres, partition, config)
    held["billing"] = _billing(held, partition, config)
    return Need(
        tres,
        limit,
        job.time_given,
        at_start=held,
        later=_more(later, partition),
        time_min=job.time_min,
        max_nodes=job.max_nodes,
    )


def _tracked(tres: Tres, names: FrozenSet[str]) -> Tres:
    """Only what AccountingStorageTRES tracks has a count, and so can have a limit."""
    return {name: amount for name, amount in tres.items() if name in names}


def _more(later: Tuple[str, ...], partition: Partition) -> Tuple[str, ...]:
    """Billing is settled when all that is billed is."""
    billed = partition.billing_weights or ("cpu",)
    return (*later, "billing") if any(name in billed for name in later) else later


def _check_array(request: Request, config: Config) -> None:
    """slurmctld refuses an index of MaxArraySize or above."""
    array = request.given("array")
    if array is not None and array.value:
        largest = count_array(array.value)[2]
        if largest >= config.max_array_size:
            raise ValueError(f"--array has an index above MaxArraySize: {largest}")


def _time_limit(job: JobDesc, partition: Partition) -> Amount:
    """Minutes: what was asked for, or the partition's default, or all it allows."""
    limit: Amount = job.time_limit
    if not job.time_given:
        default = partition.default_time
        limit = partition.max_time if default is None else default
    if job.time_min is not None:
        if job.time_min == INFINITE and not job.time_given and partition.default_time is None:
            raise ValueError("--time-min without end and no time limit")
        for most in (limit, partition.max_time):
            if isinstance(most, int) and job.time_min > most:
                raise ValueError("--time-min is above the time limit")
    return limit


def _admit(job: JobDesc, partition: Partition, release: Tuple[int, ...]) -> None:
    """slurmctld's defaults before it counts (`validate_job_create_req`, `_valid_job_part`)."""
    old = release < (23, 2)
    hosts = job.hosts if old or job.min_nodes is None else 0
    if hosts:
        job.min_nodes = max(job.min_nodes or 0, hosts)
    if not old and job.min_nodes is None:
        job.min_nodes = 1
    if job.num_tasks is None and job.min_nodes is not None:
        if not old and job.ntasks_per_gpu is not None:
            job.num_tasks = job.ntasks_per_gpu * job.min_nodes
        elif job.ntasks_per_node is not None:
            job.num_tasks = job.ntasks_per_node * job.min_nodes
    if not job.overcommit and job.num_tasks is not None and job.num_tasks > (job.min_cpus or 0):
        job.min_cpus = job.num_tasks * (job.cpus_per_task or 1)
    if hosts and old:
        job.min_cpus = max(job.min_cpus or 0, hosts)
        if job.max_nodes is not None and (job.min_nodes or 0) > job.max_nodes:
            raise ValueError("more nodes are named than may be used")
    if job.min_nodes is None:
        job.min_nodes = max(partition.min_nodes, 1)
    elif job.min_nodes < partition.min_nodes and (
        job.max_nodes is None or job.max_nodes >= partition.min_nodes
    ):
        job.min_nodes = partition.min_nodes
    if job.min_nodes == 0:
        raise ValueError("a job without nodes")


def _memory(
    job: JobDesc, states: List[GresState], cpus: int, partition: Partition, config: Config
) -> int:
    """MiB of the whole job (`job_get_tres_mem`, `_validate_job_desc` in job_mgr.c)."""
    nodes = job.min_nodes or 0
    per_cpu, per_node = job.mem_per_cpu, job.mem_per_node
    if per_node is None and per_cpu is None:
        from_gpus = memory_of(states, job, nodes)
        if from_gpus is not None:
            return from_gpus
        if config.release >= (25, 5):
            each = _def_mem_per_gpu(partition, config)
            gpus = [state.total for state in states if state.name == "gpu"]
            if each is not None and gpus:
                return each * gpus[0]
        per_cpu, per_node = partition.def_mem_per_cpu, partition.def_mem_per_node
        if not per_cpu and not per_node:
            per_cpu, per_node = config.def_mem_per_cpu, config.def_mem_per_node
    if per_node:
        return per_node * nodes
    if per_cpu and not per_node:
        return per_cpu * cpus
    return _node_memory(partition) * nodes


def _def_mem_per_gpu(partition: Partition, config: Config) -> Optional[int]:
    """MiB of DefMemPerGPU in the partition's JobDefaults, or else the cluster's."""
    own = partition.def_mem_per_gpu
    return config.def_mem_per_gpu if own is None else own


def _node_memory(partition: Partition) -> int:
    """MiB of the partition's first node, which stands for "all of a node's memory"."""
    if partition.node_memory is not None:
        return partition.node_memory
    if partition.total_nodes == 1 and "mem" in partition.tres:
        return partition.tres["mem"]
    raise ValueError("asks for whole nodes' memory, and how much that is is not known")


def _billing(tres: Tres, partition: Partition, config: Config) -> int:
    """TRESBillingWeights applied (`assoc_mgr_tres_weighted`); CPUs where there are none."""
    weights = partition.billing_weights
    if not weights:
        return tres["cpu"]
    largest = total = 0.0
    for name, amount in tres.items():
        value = amount * weights.get(name, 0.0)
        if "MAX_TRES" in config.priority_flags and not name.startswith(("license/", "bb/")):
            largest = max(largest, value)
        else:
            total += value
    return int(largest + total)
