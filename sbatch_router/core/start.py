"""What a job will hold once it starts, which is what limits are judged by.

ReqTRES is slurmctld's first guess; the select plugin then gives whole cores, the CPUs and the
memory that GPUs bring with them (DefCpuPerGPU, DefMemPerGPU), whole nodes to an exclusive job,
more nodes where a range was asked for. `_job_test` in the select plugin's job_test.c and
`job_limits_check` in slurmctld's job_mgr.c; the sums here are the least the job can hold.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from .gresreq import GresState
    from .jobdesc import JobDesc
    from .snapshot import Config, Partition
    from .tres import Tres


class Memory:
    """The memory rule that applies to a job: MiB a node, a CPU or a GPU; one is not None."""

    __slots__ = ("per_cpu", "per_gpu", "per_node", "whole")

    def __init__(self) -> None:
        self.per_cpu: Optional[int] = None
        self.per_node: Optional[int] = None
        self.per_gpu: Optional[int] = None
        #: All of each node's memory.
        self.whole = False


def memory_rule(
    job: JobDesc, states: List[GresState], partition: Partition, config: Config
) -> Memory:
    """The user's own amount, else the GPUs' default, else the partition's or cluster's."""
    rule = Memory()
    rule.per_cpu, rule.per_node = job.mem_per_cpu, job.mem_per_node
    if rule.per_cpu is None and rule.per_node is None:
        rule.per_gpu = _per_gpu(states, partition, config)
        if rule.per_gpu is not None:
            return rule
        rule.per_cpu, rule.per_node = partition.def_mem_per_cpu, partition.def_mem_per_node
        if not rule.per_cpu and not rule.per_node:
            rule.per_cpu, rule.per_node = config.def_mem_per_cpu, config.def_mem_per_node
    if rule.per_node:
        rule.per_cpu = None
    elif rule.per_cpu:
        rule.per_node = None
    else:
        rule.per_cpu = rule.per_node = None
        rule.whole = True
    return rule


def _per_gpu(states: List[GresState], partition: Partition, config: Config) -> Optional[int]:
    gpus = [state for state in states if state.name == "gpu"]
    if not gpus:
        return None
    asked = max(state.mem_per_gres for state in gpus)
    if asked:
        return asked
    default = partition.def_mem_per_gpu
    return config.def_mem_per_gpu if default is None else default


def at_start(
    job: JobDesc, states: List[GresState], requested: Tres, partition: Partition, config: Config
) -> Tuple[Tres, Tuple[str, ...]]:
    """(TRES the job will hold, names of those that may come out larger), without billing."""
    rule = memory_rule(job, states, partition, config)
    fit_memory(job, rule, partition, config)
    nodes = _nodes(job, requested["node"], partition, bool(states))
    held = dict(requested)
    held["node"] = nodes
    later: set[str] = set()
    if job.spread:
        later.update(held)
    if job.max_nodes is None:
        if (job.num_tasks or 1) > 1 or nodes > 1:
            later.add("node")
    elif job.max_nodes > nodes:
        later.add("node")
    for state in states:
        name = f"gres/{state.name}"
        count = _gres_count(state, nodes)
        held[name] = held.get(name, 0) - state.total + count
        if state.kind:
            held[f"{name}:{state.kind}"] = count
        more = (job.pn_min_cpus or 1) > (job.cpus_per_task or 1)
        if state.per_socket or (state.per_task and more) or ("node" in later and state.per_node):
            # It takes as many sockets as it gets, and CPUs beyond its tasks' bring GPUs as well.
            later.update((name, f"{name}:{state.kind}") if state.kind else (name,))
    threads = partition.threads_per_core
    if any(word.startswith("CR_CPU") for word in config.select):
        threads = 1
    cpus, exact = _cpus(job, states, nodes, partition, threads, config.release)
    if any("SOCKET" in word or "ONE_TASK" in word for word in config.select):
        exact = False
    held["cpu"] = cpus
    if not exact or (later and (job.pn_min_cpus or 1) > 1) or "node" in later:
        later.add("cpu")
    if job.exclusive or partition.exclusive:
        _whole_nodes(held, later, nodes, partition)
    _memory(job, rule, held, later, partition, threads or 1)
    if config.select and not any("MEMORY" in word for word in config.select):
        held["mem"] = 0  # not a consumable resource: what runs holds none
    return held, tuple(sorted(later))


def fit_memory(job: JobDesc, rule: Memory, partition: Partition, config: Config) -> None:
    """MaxMemPerCPU: more CPUs for the same memory (`_valid_pn_min_mem` in job_mgr.c)."""
    most = partition.max_mem_per_cpu or config.max_mem_per_cpu
    if not most:
        return
    tasks = job.num_tasks or (job.min_nodes or 1) * (job.ntasks_per_node or 1)
    if rule.per_cpu and rule.per_cpu > most:
        ratio = -(-rule.per_cpu // most)
        job.cpus_per_task = (job.cpus_per_task or 1) * ratio
        rule.per_cpu = -(-rule.per_cpu // ratio)
        job.min_cpus = tasks * job.cpus_per_task
    elif rule.per_node or rule.whole:
        amount = rule.per_node or partition.node_memory or 0
        cpus = -(-amount // most)
        if cpus > (job.pn_min_cpus or 1):
            job.pn_min_cpus = cpus
            if job.ntasks_per_node:
                job.cpus_per_task = -(-cpus // job.ntasks_per_node)


def _nodes(job: JobDesc, requested: int, partition: Partition, has_gpus: bool) -> int:
    """Nodes the job needs at least: by its tasks a node, and by the size of a node."""
    nodes = requested
    if job.num_tasks and job.ntasks_per_node and not has_gpus:
        nodes = max(nodes, -(-job.num_tasks // job.ntasks_per_node))
    each = _on_every_node(partition, partition.node_cpus, partition.total_cpus)
    if each and job.min_cpus and not job.overcommit:
        nodes = max(nodes, -(-job.min_cpus // each))
    return min(nodes, job.max_nodes) if job.max_nodes else nodes


def _cpus(
    job: JobDesc,
    states: List[GresState],
    nodes: int,
    partition: Partition,
    threads: Optional[int],
    release: Tuple[int, ...],
) -> Tuple[int, bool]:
    """(CPUs at least, whether that is exact)."""
    each, exact = _cpus_per_node(job, release)
    if job.num_tasks and job.num_tasks < nodes:
        each, exact = 0, False
    total = max(job.min_cpus or 1, nodes * each)
    gpus = sum(state.name == "gpu" for state in states)
    # With more tasks than --ntasks-per-node allows on one, it comes to less than the GPUs' share.
    split = job.ntasks_per_node and (job.num_tasks or 1) > job.ntasks_per_node
    if gpus == 1 and not (job.overcommit or split or job.ntasks_per_gpu):
        total = max(total, _gpu_cpus(job, states, nodes, partition))
    odd = job.ntasks_per_core or job.ntasks_per_socket or job.gres_flags
    odd = odd or any(state.per_socket for state in states)
    exact = exact and not (job.ntasks_per_gpu or gpus > 1 or (gpus and (odd or split)))
    if threads is None:
        return total, False
    if threads == 1:
        return total, exact
    usable = min(threads, job.threads_per_core or threads)
    cores = max(-(-total // usable), nodes * -(-each // usable))
    if job.ntasks_per_core and job.num_tasks and not job.overcommit:
        cores = max(cores, -(-job.num_tasks // job.ntasks_per_core))
    return cores * threads, exact and nodes == 1 and usable == threads


def _cpus_per_node(job: JobDesc, release: Tuple[int, ...]) -> Tuple[int, bool]:
    """(CPUs each node must give at least, whether the sum of them is exact).

    --mincpus does not hold beside --overcommit or an asked-for shape of nodes or tasks; since
    23.02 --ntasks-per-node beside --ntasks is an upper bound.
    """
    shaped = job.sockets_per_node or job.cores_per_socket or job.ntasks_per_socket
    shaped = shaped or job.ntasks_per_node or job.ntasks_asked or job.cpus_asked
    shaped = shaped or job.ntasks_per_gpu
    each = max(job.pn_min_cpus or 1, job.cpus_per_task or 1)
    if job.overcommit or (shaped and each > (job.cpus_per_task or 1)):
        return 1, False
    if job.ntasks_per_node and (job.num_tasks or 0) > 1:
        if job.ntasks_asked and release >= (23, 2):
            return each, False
        each = max(each, job.ntasks_per_node * (job.cpus_per_task or 1))
    return each, True


def _gpu_cpus(job: JobDesc, states: List[GresState], nodes: int, partition: Partition) -> int:
    """CPUs that the GPUs ask for: --cpus-per-gpu, or DefCpuPerGPU without --cpus-per-task."""
    default = 0 if job.cpus_asked else partition.def_cpu_per_gpu or 0
    most = 0
    for state in states:
        if state.name == "gpu":
            each = state.cpus_per_gres or default
            most = max(most, each * _gres_count(state, nodes))
    return most


def _gres_count(state: GresState, nodes: int) -> int:
    """ReqTRES takes the largest of several amounts for one GRES; a job gets the one that rules."""
    return state.per_job or (state.per_node or state.per_socket) * nodes or state.total


def _whole_nodes(held: Tres, later: set[str], nodes: int, partition: Partition) -> None:
    """An exclusive job gets all CPUs and all GRES of its nodes."""
    later.add("cpu")
    each = _on_every_node(partition, partition.node_cpus, partition.total_cpus)
    held["cpu"] = max(held["cpu"], nodes * (each or 1))
    for name, total in partition.tres.items():
        if name.startswith("gres/"):
            each = _on_every_node(partition, partition.node_gres.get(name, 0), total)
            held[name] = max(held.get(name, 0), nodes * (each or 0))
            later.add(name)


def _on_every_node(partition: Partition, first: Optional[int], total: int) -> Optional[int]:
    """What each node of the partition has, if all have what the first has; None: not known.

    Of other nodes only the partition's sum is known. The first of unlike nodes may be the largest,
    and the job may go to another.
    """
    nodes = partition.total_nodes
    return first if first is None or not (nodes and total) or first * nodes == total else None


def _memory(
    job: JobDesc,
    rule: Memory,
    held: Tres,
    later: set[str],
    partition: Partition,
    threads: int,
) -> None:
    """Fill in ``mem`` by the rule that applies."""
    nodes = held["node"]
    if rule.per_gpu is not None:
        held["mem"] = rule.per_gpu * held.get("gres/gpu", 0)
        uncertain = "gres/gpu" in later
    elif rule.per_cpu is not None:
        cpus = held["cpu"]
        if job.threads_per_core and job.threads_per_core < threads:
            cpus = -(-cpus * job.threads_per_core // threads)
        held["mem"] = rule.per_cpu * cpus
        uncertain = "cpu" in later or threads > 1
    elif rule.per_node is not None:
        held["mem"] = rule.per_node * nodes
        uncertain = "node" in later
    else:
        total = partition.tres.get("mem", 0)
        held["mem"] = (_on_every_node(partition, partition.node_memory, total) or 1) * nodes
        uncertain = True
    if uncertain:
        later.add("mem")
