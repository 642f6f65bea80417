"""A job's size as sbatch fills it in before it asks slurmctld (`_opt_verify`, job description).

The fields carry Slurm's own names; None is Slurm's NO_VAL ("not set"). Sources: `_opt_verify`
in src/sbatch/opt.c and `slurm_opt_create_job_desc` in src/common/slurm_opt.c.
"""

from __future__ import annotations

from .units import (
    MAX_SMALL,
    count_hosts,
    parse_count,
    parse_memory,
    parse_nodes,
    parse_time,
    strtol,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

    from .request import Given

#: Larger than any time limit.
INFINITE = 2**32 - 1

_GRES_FLAGS = frozenset((
    "disable-binding", "enforce-binding", "allow-task-sharing", "multiple-tasks-per-sharing",
    "one-task-per-sharing",
))  # fmt: skip
_DISTRIBUTIONS = frozenset(("block", "cyclic", "fcyclic", "*"))

#: Values of --hint and what they do to (sockets, cores, threads): None unsets, -1 leaves alone.
_HINTS: Dict[str, Tuple[Optional[int], Optional[int], Optional[int]]] = {
    "compute_bound": (None, None, 1),
    "memory_bound": (-1, 1, 1),
    "multithread": (-1, -1, None),
    "nomultithread": (-1, -1, 1),
}


class JobDesc:
    """The size fields of Slurm's job_desc_msg_t, and of sbatch's options before it."""

    __slots__ = (
        "contiguous",
        "cores_per_socket",
        "cpus_asked",
        "cpus_per_gpu",
        "cpus_per_task",
        "exclusive",
        "extra_set",
        "gpus",
        "gpus_per_node",
        "gpus_per_socket",
        "gpus_per_task",
        "gres",
        "gres_flags",
        "hosts",
        "licenses",
        "max_nodes",
        "mem_per_cpu",
        "mem_per_gpu",
        "mem_per_node",
        "min_cpus",
        "min_nodes",
        "nodes_set",
        "ntasks_asked",
        "ntasks_per_core",
        "ntasks_per_gpu",
        "ntasks_per_node",
        "ntasks_per_socket",
        "num_tasks",
        "overcommit",
        "plane",
        "pn_min_cpus",
        "sockets_per_node",
        "spread",
        "threads_per_core",
        "time_given",
        "time_limit",
        "time_min",
    )

    def __init__(self) -> None:
        self.min_nodes: Optional[int] = None
        self.max_nodes: Optional[int] = None
        self.nodes_set = False
        self.num_tasks: Optional[int] = None
        self.min_cpus: Optional[int] = None
        self.cpus_per_task: Optional[int] = None
        self.pn_min_cpus: Optional[int] = None
        self.ntasks_per_node: Optional[int] = None
        self.ntasks_per_socket: Optional[int] = None
        self.ntasks_per_core: Optional[int] = None
        self.ntasks_per_gpu: Optional[int] = None
        self.sockets_per_node: Optional[int] = None
        self.cores_per_socket: Optional[int] = None
        self.threads_per_core: Optional[int] = None
        self.extra_set = False
        self.mem_per_node: Optional[int] = None
        self.mem_per_cpu: Optional[int] = None
        self.mem_per_gpu: Optional[int] = None
        self.cpus_per_gpu: Optional[int] = None
        self.gpus = ""
        self.gpus_per_node = ""
        self.gpus_per_socket = ""
        self.gpus_per_task = ""
        self.gres: Optional[str] = None
        self.licenses = ""
        #: Whether --cpus-per-task was given (Slurm's orig_cpus_per_task).
        self.cpus_asked = False
        #: Whether --ntasks was given.
        self.ntasks_asked = False
        self.gres_flags = False
        self.spread = False
        self.overcommit = False
        self.exclusive = False
        self.contiguous = False
        self.hosts = 0
        self.plane = 0
        self.time_given = False
        self.time_limit: Optional[int] = None
        self.time_min: Optional[int] = None


def read_options(options: Mapping[str, Given], release: Tuple[int, ...]) -> JobDesc:
    """sbatch's options as numbers. Raises ValueError for what sbatch refuses or we cannot judge."""
    job = JobDesc()
    for name, given in options.items():
        take = _TAKES.get(name)
        if take is not None:
            take(job, name, given.value)
    job.ntasks_asked = "ntasks" in options
    job.spread = "spread-job" in options
    _exclusions(options)
    if release >= (23, 2):
        _newer_exclusions(job, options, release)
    elif "tres-per-task" in options and options["tres-per-task"].origin != "env":
        raise ValueError("--tres-per-task is not known to this release")
    return job


def _newer_exclusions(job: JobDesc, options: Mapping[str, Given], release: Tuple[int, ...]) -> None:
    """Rules between options that came with 23.02 and 23.11 (`validate_options_...`)."""
    exclusive, shared = options.get("exclusive"), options.get("oversubscribe")
    if exclusive is not None and shared is not None and exclusive.origin != "env":
        raise ValueError("--exclusive and --oversubscribe exclude each other")
    if "tres-per-task" in options:
        if "ntasks-per-gpu" in options or "ntasks-per-tres" in options:
            raise ValueError("--tres-per-task and --ntasks-per-gpu exclude each other")
        _take_tres_per_task(job, options)
    per_task = job.gpus_per_task
    if per_task and ("," in per_task or not per_task.rpartition(":")[2].isdigit()):
        raise ValueError("--gpus-per-task is read differently by different releases")
    # 26.05 refuses the two together, releases before it count them differently
    if "gpus-per-node" in options and "gpu" in (job.gres or ""):
        raise ValueError("--gpus-per-node and --gres=gpu exclude each other")
    if release >= (23, 11) and job.cpus_per_task is not None and "cpus-per-gpu" in options:
        if options["cpus-per-gpu"].origin != "env" or "cpus-per-task" not in options:
            raise ValueError("--cpus-per-task and --cpus-per-gpu exclude each other")
        job.cpus_per_gpu = None


def _take_tres_per_task(job: JobDesc, options: Mapping[str, Given]) -> None:
    """``cpu=2,gres/gpu:a100=1``: the same as --cpus-per-task and --gpus-per-task."""
    gpus: List[str] = []
    for item in options["tres-per-task"].value.split(","):
        name, _, count = item.replace(":", "=").rpartition("=")
        if name == "cpu" and "cpus-per-task" not in options:
            job.cpus_per_task = parse_count(count, "tres-per-task", 1, MAX_SMALL)
        elif name.startswith("gres/gpu") and "gpus-per-task" not in options:
            gpus.append(f"{name[9:]}:{parse_count(count, 'tres-per-task')}".lstrip(":"))
        else:
            raise ValueError(f"--tres-per-task is not supported: {item!r}")
    job.gpus_per_task = ",".join(gpus)


def check_value(name: str, value: str) -> None:
    """Raises ValueError when sbatch would refuse this value, whether it wins in the end or not."""
    take = _TAKES.get(name)
    if take is not None and take is not _refuse and take is not _take_nodelist:
        take(JobDesc(), name, value)


def _exclusions(options: Mapping[str, Given]) -> None:
    """--ntasks-per-gpu excludes some options (`_validate_ntasks_per_gpu` in slurm_opt.c)."""
    one, other = options.get("ntasks-per-gpu"), options.get("ntasks-per-tres")
    if one is None and other is None:
        return
    if one is not None and other is not None and one.value != other.value:
        raise ValueError("--ntasks-per-gpu and --ntasks-per-tres disagree")
    for name in ("gpus-per-task", "gpus-per-socket", "ntasks-per-node"):
        if name in options:
            raise ValueError(f"--{name} and --ntasks-per-gpu exclude each other")


def _take_nodes(job: JobDesc, name: str, value: str) -> None:
    job.min_nodes, job.max_nodes = parse_nodes(value)
    job.nodes_set = True


def _take_count(job: JobDesc, name: str, value: str) -> None:
    setattr(job, _FIELD[name], parse_count(value, name))


def _take_small(job: JobDesc, name: str, value: str) -> None:
    setattr(job, _FIELD[name], parse_count(value, name, 1, MAX_SMALL))


def _take_memory(job: JobDesc, name: str, value: str) -> None:
    setattr(job, _FIELD[name], parse_memory(value, name))


def _take_text(job: JobDesc, name: str, value: str) -> None:
    setattr(job, _FIELD[name], value)


def _take_time(job: JobDesc, name: str, value: str) -> None:
    job.time_limit = parse_time(value)
    job.time_given = True


def _take_time_min(job: JobDesc, name: str, value: str) -> None:
    least = parse_time(value, name)
    job.time_min = INFINITE if least is None else least


def _take_overcommit(job: JobDesc, name: str, value: str) -> None:
    job.overcommit = True


def _take_exclusive(job: JobDesc, name: str, value: str) -> None:
    word = value.lower()
    if word not in ("", "exclusive", "oversubscribe", "user", "mcs", "topo", "allocation"):
        raise ValueError(f"--exclusive has no valid value: {value!r}")
    job.exclusive = word in ("", "exclusive", "allocation")


def _take_oversubscribe(job: JobDesc, name: str, value: str) -> None:
    job.exclusive = False


def _take_nodelist(job: JobDesc, name: str, value: str) -> None:
    job.hosts = count_hosts(value)


def _take_shape(job: JobDesc, name: str, value: str) -> None:
    """``-B S[:C[:T]]`` (`verify_socket_core_thread_count` in proc_args.c)."""
    fields = value.split(":")
    fields += [""] * (3 - len(fields))
    numbers = [_shape_number(field) for field in fields[:3]]
    job.sockets_per_node, job.cores_per_socket, job.threads_per_core = numbers
    job.extra_set = True


def _shape_number(text: str) -> Optional[int]:
    """One field of -B: a number (a range counts from its low end), None for any."""
    if text == "" or text[0] == "*":
        return None
    number, rest = strtol(text)
    for unit, factor in (("k", 1024), ("m", 1048576)):
        if rest[:1].lower() == unit:
            number, rest = (number or 0) * factor, rest[1:]
            break
    if rest.startswith("-"):
        _, rest = strtol(rest[1:])
    if number is None or rest or not 0 < number <= MAX_SMALL:
        raise ValueError(f"--extra-node-info has no valid number: {text!r}")
    return number


def _take_distribution(job: JobDesc, name: str, value: str) -> None:
    """Only ``arbitrary`` changes a job's size; the rest is checked as `verify_dist_type` does."""
    base, comma, flag = value.lower().partition(",")
    levels = base.split(":")
    plane, equals, size = base.partition("=")
    job.plane = 0
    if plane == "plane" and equals:
        job.plane = parse_count(size, name)
    elif levels[0] in ("pack", "nopack") and not comma and len(levels) == 1:
        return
    elif len(levels) > 3 or levels[0] == "fcyclic" or not _DISTRIBUTIONS.issuperset(levels):
        raise ValueError(f"--distribution={value} is not supported")
    if comma and flag not in ("pack", "nopack"):
        raise ValueError(f"--distribution={value} is not supported")


def _take_gres_flags(job: JobDesc, name: str, value: str) -> None:
    if not _GRES_FLAGS.issuperset(value.lower().split(",")):
        raise ValueError(f"--gres-flags is not known: {value!r}")
    job.gres_flags = True


def _take_no_kill(job: JobDesc, name: str, value: str) -> None:
    if value.lower() not in ("", "set", "off", "no"):
        raise ValueError(f"--no-kill is not known: {value!r}")


def _take_tmp(job: JobDesc, name: str, value: str) -> None:
    parse_memory(value, name)


def _refuse(job: JobDesc, name: str, value: str) -> None:
    raise ValueError(f"--{name} is not supported")


#: Option -> field of `JobDesc`, where they differ by more than the dashes.
_FIELD = {
    "ntasks": "num_tasks",
    "cpus-per-task": "cpus_per_task",
    "mincpus": "pn_min_cpus",
    "ntasks-per-node": "ntasks_per_node",
    "ntasks-per-socket": "ntasks_per_socket",
    "ntasks-per-core": "ntasks_per_core",
    "ntasks-per-gpu": "ntasks_per_gpu",
    "ntasks-per-tres": "ntasks_per_gpu",
    "sockets-per-node": "sockets_per_node",
    "cores-per-socket": "cores_per_socket",
    "threads-per-core": "threads_per_core",
    "mem": "mem_per_node",
    "mem-per-cpu": "mem_per_cpu",
    "mem-per-gpu": "mem_per_gpu",
    "cpus-per-gpu": "cpus_per_gpu",
    "gpus": "gpus",
    "gpus-per-node": "gpus_per_node",
    "gpus-per-socket": "gpus_per_socket",
    "gpus-per-task": "gpus_per_task",
    "gres": "gres",
    "licenses": "licenses",
}

_TAKES = {
    "nodes": _take_nodes,
    "ntasks": _take_count,
    "cpus-per-task": _take_small,
    "mincpus": _take_small,
    "ntasks-per-node": _take_small,
    "ntasks-per-socket": _take_small,
    "ntasks-per-core": _take_small,
    "ntasks-per-gpu": _take_small,
    "ntasks-per-tres": _take_small,
    "sockets-per-node": _take_small,
    "cores-per-socket": _take_small,
    "threads-per-core": _take_small,
    "cpus-per-gpu": _take_count,
    "mem": _take_memory,
    "mem-per-cpu": _take_memory,
    "mem-per-gpu": _take_memory,
    "gpus": _take_text,
    "gpus-per-node": _take_text,
    "gpus-per-socket": _take_text,
    "gpus-per-task": _take_text,
    "gres": _take_text,
    "licenses": _take_text,
    "time": _take_time,
    "time-min": _take_time_min,
    "overcommit": _take_overcommit,
    "exclusive": _take_exclusive,
    "oversubscribe": _take_oversubscribe,
    "nodelist": _take_nodelist,
    "extra-node-info": _take_shape,
    "distribution": _take_distribution,
    "gres-flags": _take_gres_flags,
    "no-kill": _take_no_kill,
    "tmp": _take_tmp,
    "nodefile": _refuse,
    "reboot": _refuse,
    "batch": _refuse,
    "bb": _refuse,
    "bbf": _refuse,
    "core-spec": _refuse,
    "thread-spec": _refuse,
    "cluster-constraint": _refuse,
}


def apply_hint(job: JobDesc, options: Mapping[str, Given], release: Tuple[int, ...]) -> None:
    """--hint and the options it excludes (`validate_hint_option`, `verify_hint`).

    Given on the command line or in the script, --hint is ignored beside --ntasks-per-core,
    --threads-per-core or -B from there, and otherwise unsets them all, with --sockets-per-node
    and --cores-per-socket; from the environment it is ignored beside any of them.
    """
    hint = options.get("hint")
    if hint is None:
        return
    names = ["ntasks-per-core", "threads-per-core", "extra-node-info"]
    if release >= (25, 11):
        names += ["cores-per-socket", "sockets-per-node"]
    others = [options[name] for name in names if name in options]
    if any(other.origin != "env" for other in others) or (others and hint.origin == "env"):
        return
    if hint.origin != "env":
        job.ntasks_per_core = None
        job.extra_set = False
        job.sockets_per_node = job.cores_per_socket = job.threads_per_core = None
    for word in hint.value.split(","):
        change = _HINTS.get(word.lower())
        if change is None:
            raise ValueError(f"--hint is not known: {word!r}")
        sockets, cores, threads = change
        if sockets != -1:
            job.sockets_per_node = sockets
        if cores != -1:
            job.cores_per_socket = cores
        job.threads_per_core = threads


def settle(job: JobDesc, release: Tuple[int, ...]) -> None:
    """What `_opt_verify` and the job description make of the options: tasks, nodes and CPUs.

    23.02 moved the tasks that follow from --ntasks-per-node to slurmctld and stopped counting
    --nodelist where --nodes is given; 23.11 derives nodes from tasks.
    """
    old = release < (23, 2)
    ntasks_set = job.num_tasks is not None
    ntasks = 1 if job.num_tasks is None else job.num_tasks
    min_nodes = 1 if job.min_nodes is None else job.min_nodes
    max_nodes = 0 if job.max_nodes is None else job.max_nodes
    nodes_set = job.nodes_set
    if job.hosts and (old or not nodes_set):
        min_nodes = max(job.hosts, min_nodes) if nodes_set else job.hosts
        nodes_set = True
    one_size = max_nodes in (0, min_nodes)
    each = job.ntasks_per_node
    if old and each and not ntasks_set and one_size:
        ntasks, ntasks_set = min_nodes * each, True
    if min_nodes < 0 or max_nodes < 0 or (max_nodes and min_nodes > max_nodes):
        raise ValueError(f"invalid number of nodes ({min_nodes}-{max_nodes})")
    if job.plane and (min_nodes <= 0 or ntasks // job.plane < min_nodes):  # noqa: SIM102
        if (min_nodes - 1) * job.plane >= ntasks:
            raise ValueError("too few tasks for the plane distribution")
    if job.cpus_per_task is not None:
        job.pn_min_cpus = max(job.pn_min_cpus or 0, job.cpus_per_task)
    if (nodes_set or job.extra_set) and one_size and not ntasks_set and (old or not each):
        ntasks = max(min_nodes, 1)
        for factor in (job.sockets_per_node, job.cores_per_socket, job.threads_per_core):
            if factor is not None:
                ntasks, ntasks_set = ntasks * factor, True
    elif nodes_set and ntasks_set:
        max_nodes = min(max_nodes, ntasks)
        if ntasks < min_nodes:
            min_nodes = max_nodes = ntasks
    if not old and _more(job.ntasks_per_core, job.threads_per_core):
        raise ValueError("--ntasks-per-core is more than --threads-per-core")
    likely = min_nodes * each if each and not ntasks_set and max_nodes in (0, min_nodes) else ntasks
    if job.overcommit:
        job.min_cpus = max(min_nodes, 1)
    elif job.cpus_per_task is not None:
        job.min_cpus = likely * job.cpus_per_task
    else:
        job.min_cpus = 0 if nodes_set and min_nodes == 0 else likely
    job.num_tasks = ntasks if ntasks_set else None
    job.min_nodes = job.max_nodes = None
    if nodes_set:
        job.min_nodes = min_nodes
        job.max_nodes = max_nodes or None
    elif ntasks_set and each and release >= (23, 11):
        job.min_nodes = -(-ntasks // each)


def _more(one: Optional[int], other: Optional[int]) -> bool:
    return one is not None and other is not None and one > other
