"""What pyslurm tells, as plain values: strings, numbers, None, tuples and dicts.

`main` runs in a process of its own: importing pyslurm may end the process (libslurm's `fatal`
when slurm.conf is missing or wrong) and its calls retry for 10 s when slurmctld is down. Each
answer takes a process of its own (docs/decisions/0008-no-pyslurm-worker.md).

Written for pyslurm 23.11 to 25.11. Its objects are read attribute by attribute; what a release
does not have is absent in the answer.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

    #: Account, uid, QOS and partition of jobs.
    Key = Tuple[str, int, str, str]

#: What an answer starts with, so that nothing else is taken for one.
MAGIC = b"sbatch-router pyslurm 1\n"

#: slurm.h: "unlimited" and "not set" in the numbers of a record.
INFINITE = 0xFFFFFFFF
NO_VAL = 0xFFFFFFFE

#: API_CURRENT in Slurm's META file -> release.
_INTERFACES = {
    40: "23.11",
    41: "24.05",
    42: "24.11",
    43: "25.05",
    44: "25.11",
    45: "26.05",
}

#: Of ``job_state_string``: allocated, so counted by the limits (IS_JOB_RUNNING and
#: IS_JOB_SUSPENDED in slurm.h, and the flags that are shown in their place).
_ALLOCATED = frozenset(
    ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "POWER_UP_NODE")
)
#: Still to start, so counted by the limits on submission only.
_WAITING = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
)

#: Attribute of a pyslurm Association -> limit kind. Its `group_tres_run_mins` is left out: it
#: holds GrpTRESMins by mistake (pyslurm/db/assoc.pyx, _parse_assoc_ptr, 23.11 to 25.11).
_ASSOC_TRES = {
    "group_tres": "GrpTRES",
    "group_tres_mins": "GrpTRESMins",
    "max_tres_mins_per_job": "MaxTRESMinsPJ",
    "max_tres_per_job": "MaxTRESPJ",
    "max_tres_per_node": "MaxTRESPN",
}
_ASSOC_COUNTS = {
    "group_jobs": "GrpJobs",
    "group_submit_jobs": "GrpSubmitJobs",
    "group_wall_time": "GrpWall",
    "max_jobs": "MaxJobs",
    "max_submit_jobs": "MaxSubmitJobs",
    "max_wall_time_per_job": "MaxWallPJ",
    "min_priority_threshold": "MinPrioThresh",
}
#: Key of pyslurm.qos().get()[NAME] -> limit kind.
_QOS_TRES = {
    "grp_tres": "GrpTRES",
    "grp_tres_mins": "GrpTRESMins",
    "grp_tres_run_mins": "GrpTRESRunMins",
    "max_tres_mins_pj": "MaxTRESMinsPJ",
    "max_tres_pj": "MaxTRESPJ",
    "max_tres_pn": "MaxTRESPN",
    "min_tres_pj": "MinTRESPJ",
    "max_tres_pu": "MaxTRESPU",
    "max_tres_run_mins_pu": "MaxTRESRunMinsPU",
}
_QOS_COUNTS = {
    "grp_jobs": "GrpJobs",
    "grp_submit_jobs": "GrpSubmitJobs",
    "grp_wall": "GrpWall",
    "max_wall_pj": "MaxWallPJ",
    "max_jobs_pu": "MaxJobsPU",
    "max_submit_jobs_pu": "MaxSubmitJobsPU",
}


def main(args: Sequence[str]) -> None:
    """Print MAGIC and one marshalled dict: of `probe`, or (args: UID) of `read`.

    Ends the process. What pyslurm itself prints goes to standard error.
    """
    import importlib
    import marshal
    import os
    import sys

    answer_fd = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    pyslurm = importlib.import_module("pyslurm")
    found = read(pyslurm, int(args[1])) if args[0] == "read" else probe(pyslurm)
    data = memoryview(MAGIC + marshal.dumps(found))
    while data:
        data = data[os.write(answer_fd, data) :]
    # libslurm's own clean-up at exit takes time and tells nobody anything.
    os._exit(0)


def probe(pyslurm: Any) -> Dict[str, Any]:
    """The releases of pyslurm and of libslurm, and what the site hides from users.

    "hidden": the words of PrivateData, None where pyslurm cannot say.
    """
    version = str(pyslurm.__version__)
    found: Dict[str, Any] = {"pyslurm": version, "slurm": _library(pyslurm), "hidden": None}
    try:
        words = pyslurm.slurmctld.Config.load().private_data
        found["hidden"] = tuple(str(word).lower() for word in words)
    except (AttributeError, RuntimeError, pyslurm.PyslurmError) as error:
        print(f"PrivateData is not known: {error}")
    return found


def _library(pyslurm: Any) -> str:
    """The release of the libslurm that is loaded, as far as it tells.

    pyslurm itself tells what it was built with; the library has no call for its release, but
    one for its interface, whose number is that of ``libslurm.so.45``.
    """
    import ctypes

    built = ".".join(str(number) for number in pyslurm.slurm_api_version())
    try:
        number = ctypes.CDLL(None).slurm_api_version
    except AttributeError:
        return built
    number.restype = ctypes.c_long
    return _INTERFACES.get(int(number()) >> 16, built)


def read(pyslurm: Any, uid: int) -> Dict[str, Any]:
    """QOS, associations, TRES names, use by group of jobs, and the jobs of `uid`.

    Raises whatever pyslurm raises.
    """
    names = {
        int(ident): str(tres.type_and_name)
        for ident, tres in pyslurm.db.TrackableResources.load()._id_map.items()
    }
    groups, mine = _jobs(pyslurm, uid)
    return {
        "cluster": str(pyslurm.settings.LOCAL_CLUSTER),
        "tres": tuple(names.values()),
        "qos": {name: _qos(record, names) for name, record in pyslurm.qos().get().items()},
        "assocs": _assocs(pyslurm),
        "groups": groups,
        "jobs": mine,
    }


def _qos(record: Dict[str, Any], names: Dict[int, str]) -> Dict[str, Any]:
    """One QOS: "tres" (kind -> TRES -> limit), "counts" (kind -> limit or None), "priority"."""
    tres = {kind: _by_name(record[key], names) for key, kind in _QOS_TRES.items() if key in record}
    counts = {kind: _number(record[key]) for key, kind in _QOS_COUNTS.items() if key in record}
    return {"tres": tres, "counts": counts, "priority": _number(record.get("priority", NO_VAL))}


def _by_name(text: str, names: Dict[int, str]) -> Dict[str, int]:
    """``1=80,2=320000,1001=1`` by TRES name. A TRES without a name raises KeyError."""
    found = {}
    for part in text.split(",") if text else ():
        ident, _, amount = part.partition("=")
        number = int(amount)
        # INFINITE64 and NO_VAL64: the limit was taken away.
        if number < 0xFFFFFFFFFFFFFFFE:
            found[names[int(ident)]] = number
    return found


def _number(value: Any) -> Optional[int]:
    """A limit: None where there is none (NO_VAL, INFINITE, or pyslurm's own UNLIMITED)."""
    if not isinstance(value, int) or value in (INFINITE, NO_VAL):
        return None
    return value


def _assocs(pyslurm: Any) -> Optional[List[Dict[str, Any]]]:
    """The associations that the database shows us, of all clusters.

    None where pyslurm fails over one of them, as it does over a limit of ``mem=0``
    (dehumanize() in pyslurm/utils/helpers.pyx gives None for 0).
    """
    try:
        records = pyslurm.db.Associations.load().values()
    except TypeError as error:
        print(f"associations cannot be read: {error}")
        return None
    found = []
    for record in records:
        tres = {
            kind: _amounts(getattr(record, name))
            for name, kind in _ASSOC_TRES.items()
            if hasattr(record, name)
        }
        counts = {
            kind: _number(getattr(record, name))
            for name, kind in _ASSOC_COUNTS.items()
            if hasattr(record, name)
        }
        found.append(
            {
                "cluster": record.cluster or "",
                "account": record.account or "",
                "user": record.user or "",
                "partition": record.partition or "",
                "parent": record.parent_account or "",
                "qos": tuple(record.qos or ()),
                "tres": tres,
                "counts": counts,
            }
        )
    return found


def _amounts(resources: Any) -> Dict[str, int]:
    """A pyslurm TrackableResources as TRES name -> amount; empty for None.

    Of a kind of its own with several names (gres, license...) there is a dict.
    """
    found: Dict[str, int] = {}
    for kind in ("cpu", "mem", "energy", "node", "billing", "vmem", "pages"):
        one = getattr(resources, kind, None)
        if one is not None:
            found[kind] = int(one.count)
    for kind in ("fs", "gres", "license", "interconnect", "other"):
        for one in (getattr(resources, kind, None) or {}).values():
            found[str(one.type_and_name)] = int(one.count)
    return found


def _jobs(pyslurm: Any, uid: int) -> Tuple[Dict[Key, Dict[str, Any]], List[Tuple[Any, ...]]]:
    """What is used and submitted by group of jobs, and the jobs of `uid` one by one."""
    cluster = str(pyslurm.settings.LOCAL_CLUSTER)
    groups: Dict[Key, Dict[str, Any]] = {}
    nodes: Dict[Key, Set[str]] = {}
    mine = []
    for job in pyslurm.Jobs.load().values():
        state = str(job.state)
        owner = job.user_id
        if not (state in _ALLOCATED or state in _WAITING):
            continue
        if job.cluster not in (None, "", cluster):
            continue  # a federation's other clusters
        runs = state in _ALLOCATED
        key = (job.account or "", owner, job.qos or "", job.partition or "")
        group = groups.get(key)
        if group is None:
            group = groups[key] = {"jobs": 0, "submitted": 0, "tres": {}}
            nodes[key] = set()
        waiting = job.array_tasks_waiting
        group["submitted"] += _count_tasks(waiting) if waiting and not runs else 1
        if runs:
            group["jobs"] += 1
            used = group["tres"]
            for name, amount in _amounts(job.allocated_tres).items():
                used[name] = used.get(name, 0) + amount
            if job.allocated_nodes:
                nodes[key].update(_node_names(pyslurm, job.allocated_nodes))
        if owner == uid:
            mine.append(_own_job(job, state, runs))
    for key, names in nodes.items():
        groups[key]["nodes"] = tuple(sorted(names))
    return groups, mine


def _own_job(job: Any, state: str, runs: bool) -> Tuple[Any, ...]:
    """The columns of squeue's row: id, account, qos, partition, state, reason, tres, limit.

    The id as squeue writes it, array tasks with their ``%``. The limit is None where pyslurm
    has none: it does not tell "unlimited" from "not set".
    """
    ident = str(job.id)
    waiting, parallel = job.array_tasks_waiting, job.array_tasks_parallel
    if waiting and not runs:
        ident = f"{job.array_id}_[{waiting}{f'%{parallel}' if parallel else ''}]"
    elif job.array_id and job.array_task_id is not None:
        ident = f"{job.array_id}_{job.array_task_id}"
    elif job.array_id:
        # The first task has number 0, which pyslurm does not tell from none.
        ident = f"{job.array_id}_0"
    tres = _amounts(job.allocated_tres if runs else job.requested_tres)
    limit = job.time_limit if isinstance(job.time_limit, int) else None
    place = (job.account or "", job.qos or "", job.partition or "")
    return (ident, *place, state, str(job.state_reason), tres, limit)


def _count_tasks(text: str) -> int:
    """How many tasks ``5,7,9-20:2`` stands for. Raises ValueError."""
    total = 0
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        total += (int(last) - int(first)) // int(step or 1) + 1 if dash else 1
    return total


def _node_names(pyslurm: Any, text: str) -> Sequence[str]:
    if "[" not in text:
        return text.split(",")
    names: Sequence[str] = pyslurm.utils.nodelist_from_range_str(text)
    return names
