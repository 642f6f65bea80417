"""The text of slurm.conf, slurmdbd.conf and gres.conf."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .spec import NodeGroup, Options, Spec

SCHEDULER = (
    "sched_interval=1,bf_interval=1,batch_sched_delay=0,default_queue_depth=1000,"
    "bf_max_job_test=1000,bf_continue"
)


@dataclass(frozen=True)
class Layout:
    """Where one cluster's files, address and ports are."""

    root: Path
    address: str
    ctld_port: int
    dbd_port: int
    node_ports: tuple[int, ...]
    beside: Layout | None = None

    @property
    def database(self) -> Layout:
        """The cluster whose munged and slurmdbd serve this one: its own, or one it is beside."""
        return self.beside.database if self.beside else self

    @property
    def etc(self) -> Path:
        """The directory of the configuration files."""
        return self.root / "etc"

    @property
    def munge_socket(self) -> Path:
        """munged's socket."""
        return self.database.root / "munge" / "s"

    @property
    def db_socket(self) -> Path:
        """MariaDB's socket."""
        return self.root / "db" / "s"

    @property
    def log(self) -> Path:
        """The directory of the daemons' logs."""
        return self.root / "log"


def value_text(value: Any) -> str:
    """Return a value as Slurm's files and commands spell it: lists with commas, YES and NO."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def merge(*layers: Mapping[str, Any]) -> Options:
    """Merge settings, later ones win; keys are case-insensitive and None removes a key."""
    merged: dict[str, tuple[str, Any]] = {}
    for layer in layers:
        for key, value in layer.items():
            merged[key.lower()] = (key, value)
    return {key: value for key, value in merged.values() if value is not None}


def _line(options: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value_text(value)}" for key, value in options.items())


def _defaults(layout: Layout, spec: Spec) -> Options:
    gpus = ["gres/gpu", *(f"gres/gpu:{kind}" for kind in spec.gpu_types)]
    host = socket.gethostname().split(".")[0]
    found: Options = {
        "ClusterName": spec.cluster,
        "SlurmctldHost": f"{host}({layout.address})",
        "SlurmctldPort": layout.ctld_port,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "StateSaveLocation": layout.root / "state",
        "SlurmdSpoolDir": layout.root / "spool" / "%n",
        "SlurmctldPidFile": layout.root / "slurmctld.pid",
        "SlurmdPidFile": layout.root / "slurmd.%n.pid",
        "SlurmctldLogFile": layout.log / "slurmctld.log",
        "SlurmdLogFile": layout.log / "slurmd.%n.log",
        "SlurmctldDebug": "info",
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "MpiDefault": "none",
        "ReturnToService": 2,
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": SCHEDULER,
        "PriorityType": "priority/multifactor",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": layout.database.address,
        "AccountingStoragePort": layout.database.dbd_port,
        "AccountingStoragePass": layout.munge_socket,
        "AccountingStorageEnforce": "associations,limits,qos",
        "KillWait": 1,
        "MinJobAge": 300,
        "SlurmdTimeout": 300,
        "InactiveLimit": 0,
    }
    if spec.gpu_types:
        found["GresTypes"] = "gpu"
        found["AccountingStorageTRES"] = gpus
    return found


def tracked_tres(layout: Layout, spec: Spec) -> set[str]:
    """Return the TRES beyond Slurm's own that the cluster tracks, such as "gres/gpu"."""
    value = merge(_defaults(layout, spec), spec.slurm_conf).get("AccountingStorageTRES", "")
    return {name for name in value_text(value).lower().split(",") if "/" in name}


def _nodes(layout: Layout, groups: Iterable[NodeGroup]) -> list[str]:
    host = socket.gethostname().split(".")[0]
    ports = iter(layout.node_ports)
    lines = []
    for group in groups:
        shape: Options = {
            "CPUs": group.cpus,
            "Boards": 1,
            "SocketsPerBoard": 1,
            "CoresPerSocket": group.cpus,
            "ThreadsPerCore": 1,
            "RealMemory": group.memory,
            "State": "UNKNOWN",
        }
        if group.gpus:
            shape["Gres"] = [f"gpu:{kind}:{count}" for kind, count in group.gpus.items()]
        for name in group.names:
            own = {"NodeHostname": host, "NodeAddr": layout.address, "Port": next(ports)}
            lines.append(_line({"NodeName": name, **own, **merge(shape, group.extra)}))
    return lines


def slurm_conf(layout: Layout, spec: Spec, overrides: Mapping[str, Any]) -> str:
    """Return slurm.conf; a list as an override's value gives one line for each item."""
    lines = []
    for key, value in merge(_defaults(layout, spec), spec.slurm_conf, overrides).items():
        many = value if isinstance(value, list) and key != "AccountingStorageTRES" else [value]
        lines += [f"{key}={value_text(item)}" for item in many]
    lines += _nodes(layout, spec.nodes)
    lines += [_line({"PartitionName": name, **o}) for name, o in spec.partitions.items()]
    return "\n".join(lines) + "\n"


def cgroup_conf(spec: Spec, release: tuple[int, int]) -> str:
    """Return cgroup.conf, "" when Slurm needs none."""
    options = merge({"CgroupPlugin": "disabled"} if release >= (23, 11) else {}, spec.cgroup_conf)
    return "".join(f"{key}={value_text(value)}\n" for key, value in options.items())


def slurmdbd_conf(layout: Layout) -> str:
    """Return slurmdbd.conf; the path of MariaDB's socket comes from the environment."""
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "DbdHost": socket.gethostname().split(".")[0],
        "DbdAddr": layout.address,
        "DbdPort": layout.dbd_port,
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm_acct_db",
        "LogFile": layout.log / "slurmdbd.log",
        "PidFile": layout.root / "slurmdbd.pid",
        "DebugLevel": "info",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def gpu_files(layout: Layout, spec: Spec) -> dict[str, list[tuple[str, list[Path]]]]:
    """Return for each node its GPU types with the plain files that stand for the devices."""
    found: dict[str, list[tuple[str, list[Path]]]] = {}
    for group in spec.nodes:
        for name in group.names:
            first = 0
            found[name] = []
            for kind, count in group.gpus.items():
                files = [layout.root / "gpu" / name / f"nvidia{first + i}" for i in range(count)]
                found[name].append((kind, files))
                first += count
    return found


def gres_conf(layout: Layout, spec: Spec) -> str:
    """Return gres.conf, one line for each node and GPU type."""
    lines = ["AutoDetect=off"] if spec.gpu_types else []
    for node, kinds in gpu_files(layout, spec).items():
        for kind, files in kinds:
            if files:
                names = ",".join(str(path) for path in files)
                lines.append(f"NodeName={node} Name=gpu Type={kind} File={names}")
    return "\n".join(lines) + "\n"


def overlay(old: Mapping[str, Any], new: Mapping[str, Any]) -> Options:
    """Lay changes over earlier ones; None takes a change back."""
    kept = {key: value for key, value in old.items() if key.lower() not in map(str.lower, new)}
    return {**kept, **{key: value for key, value in new.items() if value is not None}}
