"""A spec's QOS, accounts and users as sacctmgr commands, one a line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .conf import value_text
from .spec import Association, Spec

ALIASES = {"qos": "QosLevel", "default_qos": "DefaultQOS"}
LOCAL = {"default_account", "partition"}


@dataclass
class Known:
    """What the database has already; names in lower case, as Slurm compares them."""

    qos: set[str] = field(default_factory=lambda: {"normal"})
    accounts: set[str] = field(default_factory=lambda: {"root"})
    users: set[str] = field(default_factory=lambda: {"root"})
    associations: set[tuple[str, str, str]] = field(default_factory=set)


def commands(spec: Spec, known: Known) -> list[str]:
    """Return the commands that bring the database from `known` to the spec, in order."""
    lines = []
    for name, options in spec.qos.items():
        lines += _entity("qos", name, options, name.lower() in known.qos)
    for account in spec.accounts:
        options = dict(account.options)
        if account.parent is not None:
            options = {"parent": account.parent, **options}
        exists = account.name.lower() in known.accounts
        lines += _entity("account", account.name, options, exists, spec.cluster)
    seen = set(known.users)
    for association in spec.associations:
        lines += _association(spec, association, known, seen)
    for user, options in spec.users.items():
        lines += _user(user, options, user in known.users, spec.cluster)
    return lines


def _options(options: Mapping[str, Any]) -> str:
    words = []
    for key, value in options.items():
        if key not in LOCAL:
            text = value_text(value)
            quoted = f"'{text}'" if shlex.quote(text) != text and "'" not in text else text
            words.append(f"{ALIASES.get(key, key)}={quoted}")
    return " ".join(words)


def _entity(
    kind: str, name: str, options: Mapping[str, Any], exists: bool, cluster: str = ""
) -> list[str]:
    """A QOS or an account; a `cluster` that is named is the only one where it changes."""
    words = _options(options)
    place = f" cluster={cluster}" if cluster else ""
    if not exists:
        return [f"add {kind} {name}{place} {words}".rstrip()]
    return [f"modify {kind} where name={name}{place} set {words}"] if words else []


def _association(spec: Spec, one: Association, known: Known, seen: set[str]) -> list[str]:
    partition = str(one.options.get("partition", ""))
    words = _options(one.options)
    place = f"cluster={spec.cluster} account={one.account}"
    place += f" partition={partition}" if partition else ""
    if (one.account.lower(), one.user, partition.lower()) in known.associations:
        return [f"modify user where name={one.user} {place} set {words}"] if words else []
    if one.user not in seen:
        seen.add(one.user)
        default = spec.users[one.user].get("default_account", one.account)
        place += f" DefaultAccount={default}"
        words = f"{words} {_options(spec.users[one.user])}"
    return [f"add user {one.user} {place} {words}".rstrip()]


def _user(user: str, options: Mapping[str, Any], known: bool, cluster: str) -> list[str]:
    """Return changes to a user that was there before; a new one has got them when it was added."""
    if not known:
        return []
    words = _options(options)
    if "default_account" in options:
        words = f"DefaultAccount={options['default_account']} {words}".rstrip()
    return [f"modify user where name={user} cluster={cluster} set {words}"] if words else []


def problem(output: str, status: int) -> str:
    """Return what went wrong in a session of sacctmgr, or "" when nothing did."""
    bad = (" error:", "Unknown option", " Problem", " Bad ", " Invalid", " Error", "fatal:")
    lines = [line for line in output.splitlines() if any(mark in f" {line}" for mark in bad)]
    return "\n".join(lines) or ("" if status == 0 else f"status {status}\n{output}")


def unused(assoc_mgr: str) -> bool:
    """Tell whether no QOS in `scontrol -o show assoc_mgr flags=qos` has jobs."""
    words = [word for word in assoc_mgr.split() if word.startswith(("GrpJobs=", "GrpSubmitJobs="))]
    return all(word.endswith("(0)") for word in words)


def missing(spec: Spec, assoc_mgr: str) -> list[str]:
    """Return what of a spec `scontrol -o show assoc_mgr flags=qos,assoc` does not show."""
    qos = {name.lower() for name in re.findall(r"^QOS=(.*?)\(\d+\) ", assoc_mgr, re.M)}
    pairs = re.findall(r" Account=(\S*) UserName=([^\s(]*)", assoc_mgr)
    there = {(account.lower(), user) for account, user in pairs}
    wanted = [(a.name, "") for a in spec.accounts]
    wanted += [(a.account, a.user) for a in spec.associations]
    lost = [name for name in spec.qos if name.lower() not in qos]
    return lost + [f"{a}/{user}" for a, user in wanted if (a.lower(), user) not in there]
