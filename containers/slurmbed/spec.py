"""What a cluster shall look like, as plain data (a dict or a JSON file).

All keys are optional::

    {"cluster": "bed",                              # Slurm's ClusterName
     "nodes": {"count": 1, "cpus": 256, "memory": 4194304, "gpus": {"a100": 8}, "Weight": 1},
     "partitions": {"main": {"MaxTime": "7-0"}},    # any PartitionName key
     "slurm_conf": {"DefMemPerCPU": 4000},          # any slurm.conf key; null drops a default
     "cgroup_conf": {"ConstrainRAMSpace": "yes"},   # any cgroup.conf key; none: no such file
     "users": {"alice": {"default_account": "clive", "AdminLevel": "None"}},
     "qos": {"clive": {"GrpTRES": "cpu=80", "Flags": ["DenyOnLimit"]}},
     "accounts": {"dept": {},
                  "clive": {"parent": "dept", "qos": ["clive"], "default_qos": "clive",
                            "users": {"alice": {"MaxJobs": 3}, "bob": {}}}}}

Memory is MiB a node. ``nodes`` may be a list of such groups; keys that start with a capital go to
the NodeName line as they are. ``users`` may be a list of names, at the top and in an account; an
association may be a list of option dicts, one for each ``partition``. A value that is a list is
joined with commas. Options of QOS, accounts and associations are sacctmgr's own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from .errors import BedError

SpecLike = Union[None, str, "os.PathLike[str]", Mapping[str, Any]]
Options = dict[str, Any]

SEED = Path(__file__).resolve().parent.parent / "specs" / "seed.json"
KEYS = ("cluster", "nodes", "partitions", "slurm_conf", "cgroup_conf", "users", "qos", "accounts")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")
UNIX_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that are alike: names PREFIX1..PREFIXn, memory in MiB a node, GPUs by type."""

    prefix: str
    count: int
    cpus: int
    memory: int
    gpus: dict[str, int]
    extra: Options

    @property
    def names(self) -> list[str]:
        """The node names, in order."""
        return [f"{self.prefix}{i}" for i in range(1, self.count + 1)]


@dataclass(frozen=True)
class Association:
    """One association of a user with an account, and its sacctmgr options."""

    account: str
    user: str
    options: Options


@dataclass(frozen=True)
class Account:
    """One account: its parent ("root" at the top) and its sacctmgr options."""

    name: str
    parent: str | None
    options: Options


@dataclass
class Spec:
    """A spec that has been checked; associations are in the order in which to add them."""

    cluster: str = "bed"
    nodes: list[NodeGroup] = field(default_factory=list)
    partitions: dict[str, Options] = field(default_factory=dict)
    slurm_conf: Options = field(default_factory=dict)
    cgroup_conf: Options = field(default_factory=dict)
    users: dict[str, Options] = field(default_factory=dict)
    qos: dict[str, Options] = field(default_factory=dict)
    accounts: list[Account] = field(default_factory=list)
    associations: list[Association] = field(default_factory=list)

    @property
    def node_names(self) -> list[str]:
        """All node names, group after group."""
        return [name for group in self.nodes for name in group.names]

    @property
    def gpu_types(self) -> list[str]:
        """All GPU types, sorted."""
        return sorted({kind for group in self.nodes for kind in group.gpus})


def load(source: SpecLike) -> dict[str, Any]:
    """Return the spec as a dict: None means the seed's lab, text or a path means a JSON file.

    Raises BedError when the file is missing or is not a JSON object.
    """
    if isinstance(source, Mapping):
        return dict(source)
    path = Path(source) if source is not None else SEED
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BedError(f"spec {path}: {error}") from error
    if not isinstance(data, dict):
        raise BedError(f"spec {path}: expected a JSON object")
    return data


def parse(raw: Mapping[str, Any], *, partial: bool = False) -> Spec:
    """Check a spec and fill in defaults; `partial` adds no nodes and no partitions.

    Raises BedError that names the key.
    """
    unknown = sorted(set(raw) - set(KEYS))
    if unknown:
        raise BedError(f"spec: unknown key {unknown[0]!r}; known: {', '.join(KEYS)}")
    spec = Spec(cluster=_name(str(raw.get("cluster", "bed")), "cluster"))
    if not partial:
        groups = raw.get("nodes", {})
        listed = groups if isinstance(groups, list) else [groups]
        spec.nodes = [_group(_dict(g, "nodes"), i, len(listed)) for i, g in enumerate(listed)]
        spec.partitions = _partitions(_dict(raw.get("partitions"), "partitions"))
        names = spec.node_names
        if len(set(names)) != len(names):
            raise BedError("spec: nodes: two groups have the same prefix")
    spec.slurm_conf = _dict(raw.get("slurm_conf"), "slurm_conf")
    spec.cgroup_conf = _dict(raw.get("cgroup_conf"), "cgroup_conf")
    spec.qos = {
        _name(name, "qos"): _dict(options, f"qos.{name}")
        for name, options in _dict(raw.get("qos"), "qos").items()
    }
    _fill_accounts(spec, _dict(raw.get("accounts"), "accounts"), partial)
    _fill_users(spec, raw.get("users"))
    return spec


def _dict(value: Any, where: str) -> Options:
    """Return a copy of an object (None is empty); BedError names the key for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BedError(f"spec: {where}: expected an object, got {value!r}")
    return dict(value)


def _name(value: str, where: str) -> str:
    if not NAME.match(value):
        raise BedError(f"spec: {where}: {value!r} is no name that Slurm takes")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BedError(f"spec: {where}: expected a whole number, got {value!r}")
    return int(value)


def _group(raw: Options, index: int, groups: int) -> NodeGroup:
    prefix = str(raw.pop("prefix", "n" if groups == 1 else f"{chr(ord('a') + index)}"))
    gpus = _dict(raw.pop("gpus", None), "nodes.gpus")
    group = NodeGroup(
        prefix=_name(prefix, "nodes.prefix"),
        count=_whole(raw.pop("count", 1), "nodes.count"),
        cpus=_whole(raw.pop("cpus", 64), "nodes.cpus"),
        memory=_whole(raw.pop("memory", 1048576), "nodes.memory"),
        gpus={kind: _whole(n, f"nodes.gpus.{kind}") for kind, n in gpus.items()},
        extra=raw,
    )
    for key in raw:
        if not key[:1].isupper():
            raise BedError(f"spec: nodes: unknown key {key!r}")
    return group


def _partitions(raw: Options) -> dict[str, Options]:
    found = {name: _dict(o, f"partitions.{name}") for name, o in (raw or {"main": {}}).items()}
    lowered = [{key.lower() for key in options} for options in found.values()]
    if not any("default" in keys for keys in lowered):
        first = next(iter(found))
        found[first] = {"Default": "YES", **found[first]}
    for name, options in found.items():
        _name(name, "partitions")
        if "nodes" not in {key.lower() for key in options}:
            options["Nodes"] = "ALL"
    return found


def _fill_accounts(spec: Spec, raw: Options, partial: bool) -> None:
    """Put the accounts in an order in which parents come first, and collect associations."""
    waiting = {_name(name, "accounts"): _dict(o, f"accounts.{name}") for name, o in raw.items()}
    done: set[str] = set()
    while waiting:
        ready = [n for n, o in waiting.items() if str(o.get("parent", "root")) not in waiting]
        if not ready:
            raise BedError(f"spec: accounts: parents form a ring: {', '.join(waiting)}")
        for name in ready:
            options = waiting.pop(name)
            users = options.pop("users", None)
            parent = options.pop("parent", None)
            if parent not in (None, "root") and parent not in done and not partial:
                raise BedError(f"spec: accounts.{name}.parent: no account {parent!r}")
            spec.accounts.append(Account(name, parent, options))
            spec.associations += _associations(name, users)
            done.add(name)


def _associations(account: str, users: Any) -> list[Association]:
    if isinstance(users, (list, tuple)):
        users = {user: {} for user in users}
    found = []
    for user, options in _dict(users, f"accounts.{account}.users").items():
        for one in options if isinstance(options, list) else [options]:
            checked = _dict(one, f"accounts.{account}.users.{user}")
            found.append(Association(account, user, checked))
    return found


def _fill_users(spec: Spec, raw: Any) -> None:
    """Collect users, and put each one's default account first among its associations."""
    if isinstance(raw, (list, tuple)):
        raw = {name: {} for name in raw}
    spec.users = {name: _dict(o, f"users.{name}") for name, o in _dict(raw, "users").items()}
    for association in spec.associations:
        spec.users.setdefault(association.user, {})
    for name in spec.users:
        if not UNIX_NAME.match(name):
            raise BedError(f"spec: users: {name!r} is no name of a unix user")
    spec.associations.sort(
        key=lambda a: spec.users[a.user].get("default_account", a.account) != a.account
    )
