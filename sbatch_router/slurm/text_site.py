"""What changes rarely: ``scontrol show config``, ``show partition``, and sacctmgr's tables.

Imported only when those facts are collected anew, which is once in hours.
"""

from __future__ import annotations

from ..core.record import Record
from ..core.snapshot import Assoc, Config, Partition, Qos, Scope
from ..core.tres import UNKNOWN, Limit, parse_limits, parse_mem, parse_tres
from .text import ParseError, parse_count, parse_minutes, parse_table, whole_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple, Union

    from ..core.tres import Amount, LimitMap, Unknown
    from .text_assoc import AssocKey

#: The columns asked of ``sacctmgr show qos``: names that every release knows.
QOS_COLUMNS = (
    "Name,Priority,Flags,LimitFactor,UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmitJobs,"
    "GrpWall,MaxTRESPerJob,MaxTRESPerNode,MaxTRESMinsPerJob,MaxWallDurationPerJob,MinTRESPerJob,"
    "MinPrioThreshold,MaxTRESPU,MaxTRESRunMinsPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,"
    "MaxTRESRunMinsPA,MaxJobsPA,MaxSubmitPA"
)
#: The columns asked of ``sacctmgr show assoc``, for users and for accounts.
ASSOC_COLUMNS = (
    "Cluster,Account,User,Partition,ParentName,QOS,DefaultQOS,GrpTRES,GrpTRESMins,"
    "GrpTRESRunMins,GrpJobs,GrpSubmitJobs,GrpWall,MaxTRESPerJob,MaxTRESPerNode,"
    "MaxTRESMinsPerJob,MaxJobs,MaxSubmitJobs,MaxWallDurationPerJob,MinPrioThreshold"
)
#: The columns asked of ``sacctmgr show user withassoc``.
USER_COLUMNS = "Cluster,User,DefaultAccount"

#: Heading in a sacctmgr table -> limit kind (sacctmgr_process_format_list, src/sacctmgr/common.c).
_TRES_COLUMNS = {
    "GrpTRES": "GrpTRES",
    "GrpTRESMins": "GrpTRESMins",
    "GrpTRESRunMins": "GrpTRESRunMins",
    "MaxTRES": "MaxTRESPJ",
    "MaxTRESPerNode": "MaxTRESPN",
    "MaxTRESMins": "MaxTRESMinsPJ",
    "MinTRES": "MinTRESPJ",
}
_TRES_COLUMNS_PER_USER = {
    "MaxTRESPU": "MaxTRESPU",
    "MaxTRESRunMinsPU": "MaxTRESRunMinsPU",
    "MaxTRESPA": "MaxTRESPA",
    "MaxTRESRunMinsPA": "MaxTRESRunMinsPA",
}
_COUNT_COLUMNS = {
    "GrpJobs": "GrpJobs",
    "GrpSubmit": "GrpSubmitJobs",
    "MaxJobs": "MaxJobs",
    "MaxSubmit": "MaxSubmitJobs",
    "MinPrioThres": "MinPrioThresh",
}
_COUNT_COLUMNS_PER_USER = {
    "MaxJobsPU": "MaxJobsPU",
    "MaxSubmitPU": "MaxSubmitJobsPU",
    "MaxJobsPA": "MaxJobsPA",
    "MaxSubmitPA": "MaxSubmitJobsPA",
}
_TIME_COLUMNS = {"GrpWall": "GrpWall", "MaxWall": "MaxWallPJ"}


def parse_config(data: bytes) -> Config:
    """``scontrol show config``. Raises ParseError, also when a setting we need is missing."""
    where = "scontrol show config"
    fields: Dict[str, str] = {}
    for line in whole_lines(data, where):
        key, equals, value = line.partition("=")
        if equals:
            fields.setdefault(key.strip(), value.strip())
    for key in ("AccountingStorageEnforce", "ClusterName", "EnforcePartLimits", "SLURM_VERSION"):
        if key not in fields:
            raise ParseError(where, f"no {key} in the answer")
    if "DefMemPerCPU" not in fields and "DefMemPerNode" not in fields:
        raise ParseError(where, "no DefMemPerCPU or DefMemPerNode in the answer")
    jobs = _job_defaults(fields.get("JobDefaults", ""))
    tracked = fields.get("AccountingStorageTRES")
    return Config(
        release=_release(fields["SLURM_VERSION"], where),
        enforce=frozenset(_words(fields["AccountingStorageEnforce"].lower())),
        enforce_part_limits=fields["EnforcePartLimits"].upper(),
        def_mem_per_cpu=_memory(fields.get("DefMemPerCPU", "")),
        def_mem_per_node=_memory(fields.get("DefMemPerNode", "")),
        def_cpu_per_gpu=jobs.get("defcpupergpu"),
        def_mem_per_gpu=jobs.get("defmempergpu"),
        select=frozenset(_words(fields.get("SelectTypeParameters", "").upper())),
        priority_flags=frozenset(_words(fields.get("PriorityFlags", "").upper())),
        max_array_size=parse_count(fields.get("MaxArraySize", "")) or 1001,
        cluster=fields["ClusterName"].lower(),
        tres=frozenset(_words(tracked)) if tracked is not None else None,
    )


def _release(text: str, where: str) -> Tuple[int, ...]:
    """``22.05.8`` and ``24.05.0-0rc1`` as numbers."""
    numbers = []
    for part in text.partition("-")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits[:9]))
    if not numbers:
        raise ParseError(where, f"not a release: {text[:40]!r}")
    return tuple(numbers)


def _words(text: str) -> List[str]:
    if text in ("(null)", "(NULL)", "none", "NONE", ""):
        return []
    return [word.strip() for word in text.split(",") if word.strip()]


def _memory(text: str) -> Optional[int]:
    """MiB; UNLIMITED and 0 mean that nothing is set (slurm.conf(5), DefMemPerNode)."""
    try:
        return parse_mem(text) or None
    except ValueError:
        return None


def _job_defaults(text: str) -> Dict[str, int]:
    """``DefCpuPerGPU=2,DefMemPerGPU=16000`` with lower-case names."""
    found = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        number = parse_count(value)
        if number is not None:
            found[name.strip().lower()] = number
    return found


def parse_partitions(data: bytes) -> Dict[str, Partition]:
    """``scontrol -a -o show partition``, by lower-case name. Raises ParseError.

    slurmctld, other than for accounts and QOS, compares these names with their case
    (list_find_part in src/slurmctld/partition_mgr.c): of two partitions that differ in nothing
    else neither is here, and ``other["PartitionName"]`` has Slurm's spelling.
    """
    where = "scontrol show partition"
    found: Dict[str, Partition] = {}
    twice = []
    for line in whole_lines(data, where):
        if line.startswith("PartitionName="):
            partition = _partition(line, where)
            if partition.name in found:
                twice.append(partition.name)
            found[partition.name] = partition
    for key in twice:
        found.pop(key, None)
    if not found:
        raise ParseError(where, "no partition in the answer")
    return found


def _partition(line: str, where: str) -> Partition:
    fields: Dict[str, str] = {}
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals and key not in fields:
            fields[key] = value
    name = fields["PartitionName"]
    try:
        tres = parse_tres(fields.pop("TRES"))
        jobs = _job_defaults(fields.pop("JobDefaults", ""))
        allow_accounts, deny_accounts = _who_may(fields, "Accounts")
        allow_qos, deny_qos = _who_may(fields, "Qos")
        return Partition(
            name=name.lower(),
            default=fields.pop("Default") == "YES",
            up=fields["State"] == "UP",
            allow_accounts=allow_accounts,
            deny_accounts=deny_accounts,
            allow_qos=allow_qos,
            deny_qos=deny_qos,
            qos=_none(fields.pop("QoS")).lower(),
            max_time=parse_minutes(fields.pop("MaxTime")),
            default_time=parse_minutes(fields.pop("DefaultTime")),
            max_nodes=_nodes(fields.pop("MaxNodes")),
            min_nodes=int(fields.pop("MinNodes")),
            def_mem_per_cpu=_memory(fields.pop("DefMemPerCPU", "")),
            def_mem_per_node=_memory(fields.pop("DefMemPerNode", "")),
            max_mem_per_cpu=_memory(fields.pop("MaxMemPerCPU", "")),
            max_mem_per_node=_memory(fields.pop("MaxMemPerNode", "")),
            def_cpu_per_gpu=jobs.get("defcpupergpu"),
            def_mem_per_gpu=jobs.get("defmempergpu"),
            billing_weights=_weights(fields.pop("TRESBillingWeights", ""), tres),
            exclusive=_exclusive(fields),
            total_nodes=int(fields.pop("TotalNodes")),
            total_cpus=int(fields.pop("TotalCPUs")),
            tres=tres,
            nodes=_none(fields.get("Nodes", "")),
            other=fields,
        )
    except KeyError as error:
        raise ParseError(where, f"partition {name}: no {error.args[0]}") from None
    except (ValueError, OverflowError) as error:
        raise ParseError(where, f"partition {name}: {str(error)[:120]}") from None


def _none(text: str) -> str:
    return "" if text in ("N/A", "(null)") else text


def _nodes(text: str) -> Amount:
    return None if text == "UNLIMITED" else int(text)


def _exclusive(fields: Dict[str, str]) -> bool:
    """Whole nodes only: ``OverSubscribe=EXCLUSIVE``, since 26.05 ``Exclusive=NODE`` or TOPO."""
    return (
        fields["OverSubscribe"] == "EXCLUSIVE"
        or fields.get("Exclusive") in ("NODE", "TOPO")
        or fields.get("ExclusiveTopo") == "YES"
    )


def _who_may(
    fields: Dict[str, str], what: str
) -> Tuple[Optional[Tuple[str, ...]], Tuple[str, ...]]:
    """Allowed (None: all) and denied. Slurm prints one of ``AllowQos=ALL``, ``AllowQos=a,b``
    and ``DenyQos=a,b``.
    """
    denied = fields.pop("Deny" + what, None)
    allowed = fields.pop("Allow" + what, None)
    if denied is None and allowed is None:
        raise KeyError("Allow" + what)
    names = None if allowed is None or allowed.upper() == "ALL" else allowed.lower().split(",")
    return None if names is None else tuple(names), tuple(_words((denied or "").lower()))


def _weights(text: str, tres: Dict[str, int]) -> Dict[str, float]:
    """``CPU=1.0,Mem=0.25G,GRES/gpu=2.0`` with the names that Slurm's TRES have.

    A unit says per how much: ``0.25G`` is 0.25 a GiB (_tres_weight_item in
    src/common/slurm_protocol_api.c divides by it). Raises ValueError.
    """
    found: Dict[str, float] = {}
    names = {name.lower(): name for name in tres}
    for part in _words(text):
        name, _, value = part.partition("=")
        number, unit = value, 1
        if value[-1:].isalpha():
            number, unit = value[:-1], parse_mem("1" + value[-1])
        weight = float(number) / unit
        found[names.get(name.strip().lower(), name.strip().lower())] = weight
    return found


class Node(Record):
    """What one node has: MiB that jobs may have, CPUs, threads a core, and GRES by TRES name."""

    memory: int
    cpus: int
    threads: Optional[int] = None
    gres: Dict[str, int] = {}


def parse_nodes(data: bytes) -> Dict[str, Node]:
    """``scontrol -o show node``, by name. Raises ParseError.

    A node's memory for jobs is its RealMemory less its MemSpecLimit (slurm.conf(5)).
    """
    where = "scontrol show node"
    found: Dict[str, Node] = {}
    for line in whole_lines(data, where):
        if line.startswith("NodeName="):
            fields: Dict[str, str] = {}
            for word in line.split(" "):
                key, equals, value = word.partition("=")
                if equals:
                    fields.setdefault(key, value)
            memory, cpus = (
                parse_count(fields.get("RealMemory", "")),
                parse_count(fields.get("CPUTot", "")),
            )
            if memory is None or cpus is None:
                raise ParseError(where, f"no RealMemory or CPUTot: {line[:80]!r}")
            reserved = parse_count(fields.get("MemSpecLimit", "")) or 0
            threads = parse_count(fields.get("ThreadsPerCore", ""))
            gres = _node_gres(fields.get("Gres", ""))
            found[fields["NodeName"]] = Node(memory - reserved, cpus, threads, gres)
    return found


def _node_gres(text: str) -> Dict[str, int]:
    """``gpu:a100:4(S:0-1),gpu:l4:2`` as gres/gpu 6, gres/gpu:a100 4, gres/gpu:l4 2."""
    found: Dict[str, int] = {}
    for part in _none(text).replace("(", ",(").split(","):
        words = part.split(":")
        count = parse_count(words[-1])
        if len(words) > 1 and count is not None and part[:1] not in ("(", ""):
            for name in {f"gres/{words[0]}", "gres/" + ":".join(words[:-1])}:
                found[name] = found.get(name, 0) + count
    return found


def first_node(nodes: str) -> str:
    """The first name of a host list: ``n001`` of ``n[001-003,7],m1``, ``""`` of ``(null)``."""
    name = ""
    rest = _none(nodes)
    while rest and rest[0] != ",":
        if rest[0] == "[":
            inside, _, rest = rest[1:].partition("]")
            name += inside.partition(",")[0].partition("-")[0]
        else:
            name, rest = name + rest[0], rest[1:]
    return name


def parse_qos_table(data: bytes) -> Dict[str, Qos]:
    """``sacctmgr -P show qos``, by lower-case name. What is used is unknown there.

    Raises ParseError.
    """
    where = "sacctmgr show qos"
    table = parse_table(data, where, ("Name", "Flags", "GrpTRES"))
    found: Dict[str, Qos] = {}
    for row in table.rows:
        name = row["Name"].lower()
        found[name] = Qos(
            name=name,
            limits=_limits(row, _TRES_COLUMNS, _COUNT_COLUMNS, UNKNOWN, where),
            users={},
            accounts={},
            flags=frozenset(_words(row["Flags"].lower())),
            limit_factor=_factor(row.get("LimitFactor")),
            defaults=_limits(row, _TRES_COLUMNS_PER_USER, _COUNT_COLUMNS_PER_USER, 0, where),
            priority=_number(row["Priority"]) if row.get("Priority") else UNKNOWN,
            usage_factor=_factor(row.get("UsageFactor")),
        )
    if not found:
        raise ParseError(where, "the answer has no QOS")
    return found


def _factor(text: Optional[str]) -> Union[float, None, Unknown]:
    """None: no factor is set. A release that does not print the column leaves it unknown."""
    if text is None:
        return UNKNOWN
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return UNKNOWN


def _number(text: str) -> Union[int, Unknown]:
    number = parse_count(text)
    return UNKNOWN if number is None else number


def _limits(
    row: Dict[str, str],
    tres_columns: Dict[str, str],
    count_columns: Dict[str, str],
    used: Union[int, Unknown],
    where: str,
) -> Scope:
    """The limits a row has columns for; an empty text is no limit, a missing column unknown."""
    tres: Dict[str, LimitMap] = {}
    counts: Dict[str, Limit] = {}
    for column, kind in tres_columns.items():
        if column in row:
            try:
                limits = parse_limits(row[column])
            except (ValueError, KeyError, OverflowError):
                raise ParseError(where, f"{column}: {row[column][:80]!r}") from None
            tres[kind] = {name: Limit(limit.limit, used) for name, limit in limits.items()}
    for column, kind in count_columns.items():
        if column in row:
            counts[kind] = Limit(_number(row[column]) if row[column] else None, used)
    if tres_columns is _TRES_COLUMNS:
        for column, kind in _TIME_COLUMNS.items():
            if column in row:
                counts[kind] = Limit(parse_minutes(row[column]), used)
    return Scope(tres, counts)


def parse_assoc_table(data: bytes, cluster: Optional[str]) -> Dict[AssocKey, Assoc]:
    """``sacctmgr -P show assoc``: the records of one cluster, by account, user and partition.

    slurmdbd knows all clusters' associations: only those of `cluster` (lower case) count. With
    None they are taken if they are all of one cluster. `default_qos` is what sacctmgr has; see
    `effective_default_qos` for what slurmctld makes of it. Raises ParseError.
    """
    where = "sacctmgr show assoc"
    table = parse_table(data, where, ("Cluster", "Account", "User", "Partition", "QOS", "Def QOS"))
    if cluster is None and len({row["Cluster"].lower() for row in table.rows}) > 1:
        raise ParseError(where, "several clusters, and which is ours is not known")
    found: Dict[AssocKey, Assoc] = {}
    for row in table.rows:
        if cluster is not None and row["Cluster"].lower() != cluster:
            continue
        account, user = row["Account"].lower(), row["User"]
        partition = row["Partition"].lower()
        if not account:
            raise ParseError(where, "an association without an account")
        parent = row.get("ParentName", "").lower()
        found[account, user, partition] = Assoc(
            account=account,
            user=user,
            partition=partition,
            parent=account if user else parent,
            limits=_limits(row, _TRES_COLUMNS, _COUNT_COLUMNS, UNKNOWN, where),
            qos=tuple(_words(row["QOS"].lower())),
            default_qos=row["Def QOS"].lower() or None,
        )
    return found


def parse_default_account(data: bytes, cluster: Optional[str]) -> Union[str, None, Unknown]:
    """The default account of ``sacctmgr -P show user NAME withassoc`` on one cluster.

    Raises ParseError.
    """
    table = parse_table(data, "sacctmgr show user", ("Cluster", "User", "Def Acct"))
    found = {
        row["Def Acct"].lower()
        for row in table.rows
        if cluster is None or row["Cluster"].lower() == cluster
    }
    if len(found) != 1:
        return UNKNOWN
    return found.pop() or None


def effective_default_qos(assoc: Assoc, root: Optional[Assoc]) -> Union[str, None, Unknown]:
    """The QOS of a job that names none (assoc_mgr_get_default_qos_info in assoc_mgr.c).

    Its own default; else its only QOS; else the root account's default; else ``normal``.
    """
    if assoc.default_qos is UNKNOWN or assoc.qos is UNKNOWN or assoc.default_qos:
        return assoc.default_qos
    if isinstance(assoc.qos, tuple) and len(assoc.qos) == 1:
        return assoc.qos[0]
    if root is None:
        return UNKNOWN
    return root.default_qos or "normal"
