"""Limits that changed since `check --live` was last run.

What was seen is kept in the user's state directory, beside the log, by cluster: sites change
limits without a word, and a policy written for the old ones misleads.
"""

from __future__ import annotations

import datetime
import json
import os
from typing import Dict, List, Mapping, Optional, Tuple

from ..core import spell
from ..core.policy import Policy
from ..core.snapshot import Assoc, Config, Qos, Scope, Site, Snapshot
from ..core.tres import Unknown
from ..decisionlog import log_path
from ..policy_yaml.findings import Finding, Report
from . import _policy as policies
from . import _pools

#: Kind and TRES (``GrpTRES gres/gpu``, ``GrpJobs``) -> limit; None: unlimited. A kind without
#: any limit is there with None under its own name.
Limits = Dict[str, Optional[int]]
#: ``qos clive``, ``account dept`` -> what was seen, and the day.
Seen = Dict[str, Tuple[str, Limits]]

_VERSION = 1
_MOST_BYTES = 8 * 2**20


def limits_path() -> str:
    """Where the limits seen are kept; empty without a home."""
    log = log_path(policies.environment())
    return os.path.dirname(log) + "/limits.json" if log else ""


def drift(policy: Policy, lines: Mapping[str, int], site: Site) -> List[Finding]:
    """Warnings about limits that changed; remembers those of today. Asks Slurm once more."""
    config = site.config
    if not isinstance(config, Config) or not config.cluster or not policy.accounts:
        return []
    report = Report(policy.files[0] if policy.files else "policy")
    report.at.update(lines)
    live = _pools.ask_live(site, *_pools.names_of(policy))
    now = seen_now(policy, site, live)
    path = limits_path()
    everything = load(path)
    before = everything.get(config.cluster, {})
    for (key, where), (_, limits) in zip(_where(policy, now), now.values()):
        if where in before:
            day, old = before[where]
            for text in changes(old, limits):
                name = where[4:] if where.startswith("qos ") else where
                report.warn(key, f"{name}: {text} (seen on {day})")
    everything[config.cluster] = {**before, **_merged(before, now)}
    trouble = save(path, everything)
    if trouble:
        report.warn("accounts", f"limits are not remembered for the next check: {trouble}")
    return report.warnings


def _where(policy: Policy, now: Seen) -> List[Tuple[str, str]]:
    """The policy's entry each scope belongs to, in step with `now`."""
    found = []
    for where in now:
        name = where.rpartition(" ")[2]
        number = 0
        for index, account in enumerate(policy.accounts, 1):
            if name == account.name or name in (account.qos or ()):
                number = index
                break
        found.append((f"accounts[{number}]" if number else "accounts", where))
    return found


def seen_now(policy: Policy, site: Site, live: Snapshot) -> Seen:
    """The limits of every pool of the policy and of what is above it."""
    today = datetime.date.today().isoformat()
    scopes: Dict[str, List[Scope]] = {}
    qos: Dict[str, Qos] = {}
    assocs: Dict[Tuple[str, str, str], Assoc] = {}
    for source in (site, live):
        qos.update(source.qos if isinstance(source.qos, dict) else {})
        assocs.update(source.assocs if isinstance(source.assocs, dict) else {})
    for pool in _pools.pools(policy, live._replace(qos=qos, assocs=assocs), ()):
        record = qos.get(pool.qos)
        if record is not None:
            defaults = record.defaults
            more = [defaults] if isinstance(defaults, Scope) else []
            scopes[f"qos {pool.qos}"] = [record.limits, *more]
        name, steps = pool.account, 0
        while name and steps < 100:
            account = assocs.get((name, "", ""))
            if account is None:
                break
            scopes.setdefault(f"account {name}", [account.limits])
            name, steps = account.parent, steps + 1
    return {where: (today, _limits(some)) for where, some in scopes.items()}


def _limits(scopes: List[Scope]) -> Limits:
    found: Limits = {}
    for scope in scopes:
        for kind, limits in scope.tres.items():
            found.setdefault(kind, None)
            for tres, limit in limits.items():
                if isinstance(limit.limit, int):
                    found.setdefault(f"{kind} {tres}", limit.limit)
        for kind, count in scope.counts.items():
            if not isinstance(count.limit, Unknown):
                found.setdefault(kind, count.limit)
    return found


def changes(old: Limits, new: Limits) -> List[str]:
    """``GrpTRES gres/gpu was 3, is 1``. What is unknown on either side did not change."""
    found = []
    for name in dict.fromkeys([*old, *new]):
        kind, _, tres = name.partition(" ")
        if not (_told(old, kind) and _told(new, kind)):
            continue  # this release, or that answer, does not show the kind
        before, after = old.get(name), new.get(name)
        if before != after:
            was, now = (_words(tres, value, kind) for value in (before, after))
            found.append(f"{name} was {was}, is {now}")
    return found


def _told(limits: Limits, kind: str) -> bool:
    return kind in limits or any(name.startswith(kind + " ") for name in limits)


def _words(tres: str, value: Optional[int], kind: str) -> str:
    # Exactly: a limit that changed a little must not look the same.
    return spell.exact_mem(value) if tres == "mem" and value else spell.amount(tres, value, kind)


def _merged(before: Seen, now: Seen) -> Seen:
    """Of today, with the kinds that only an earlier answer showed, and the old day if equal."""
    found: Seen = {}
    for where, (day, limits) in now.items():
        if where in before:
            kinds = {name.partition(" ")[0] for name in limits}
            kept = {n: v for n, v in before[where][1].items() if n.partition(" ")[0] not in kinds}
            limits = {**kept, **limits}
        found[where] = (day, limits)
    return found


# -- the file ------------------------------------------------------------------------------------


def load(path: str) -> Dict[str, Seen]:
    """By cluster; nothing for a file that is missing or not ours to understand."""
    try:
        with open(path, "rb") as file:
            stored = json.loads(file.read(_MOST_BYTES))
        if stored["version"] != _VERSION:
            return {}
        return {
            str(cluster): {str(where): _seen(entry) for where, entry in scopes.items()}
            for cluster, scopes in stored["clusters"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _seen(entry: Mapping[str, object]) -> Tuple[str, Limits]:
    limits = entry["limits"]
    if not isinstance(limits, dict):
        raise TypeError(limits)
    return str(entry["seen"]), {
        str(name): value for name, value in limits.items() if value is None or type(value) is int
    }


def save(path: str, everything: Mapping[str, Seen]) -> str:
    """Replace the file; why it could not be, or nothing."""
    if not path:
        return "HOME is not set"
    clusters = {
        cluster: {where: {"seen": day, "limits": limits} for where, (day, limits) in seen.items()}
        for cluster, seen in everything.items()
    }
    text = json.dumps({"version": _VERSION, "clusters": clusters}, indent=1)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        return f"{error.filename or path}: {error.strerror}"
    return ""
