"""``sbatch-router check --live``: a policy's names against what Slurm knows."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Set, Tuple

from ..core.match import glob
from ..core.policy import Account, Policy, Test
from ..core.snapshot import Assoc, Config, Site
from ..core.tres import Unknown
from ..policy_yaml.findings import Finding, Report, nearest
from ..slurm.patience import explain


def live_findings(policy: Policy, lines: Mapping[str, int], site: Site) -> List[Finding]:
    """What in a policy does not agree with Slurm. Does not ask anything itself.

    A name that does not exist is an error. What exists but is not this user's is a warning,
    since a policy may be shared; but without any account to use there is an error.
    """
    report = Report(policy.files[0] if policy.files else "policy")
    report.at.update(lines)
    _settings(site, report)
    if isinstance(site.assocs, Unknown) or isinstance(site.config, Unknown):
        why = explain(site.troubles)
        told = isinstance(site.assocs, Unknown)
        what = "cannot be checked" if told else "limits and partitions cannot be checked"
        message = f"{what}: {why}; see `sbatch-router doctor`"
        report.error(report.line("accounts"), "accounts", message)
    if not isinstance(site.assocs, Unknown):
        _accounts(policy, site, site.assocs, report)
    _partitions(policy, site, report)
    _gpu_types(policy, site, report)
    return [*report.errors, *report.warnings]


def drift_findings(policy: Policy, lines: Mapping[str, int], site: Site) -> List[Finding]:
    """Limits that changed since this user last checked; remembers those of today."""
    from ._drift import drift

    return drift(policy, lines, site)


def _settings(site: Site, report: Report) -> None:
    config = site.config
    if isinstance(config, Config) and not config.enforce & {"limits", "safe"}:
        message = "no limit binds here (AccountingStorageEnforce): every job is passed through"
        report.warn("policy", message)


def _accounts(
    policy: Policy,
    site: Site,
    assocs: Dict[Tuple[str, str, str], Assoc],
    report: Report,
) -> None:
    everyone = {account for account, user, _ in assocs if not user}
    mine: Dict[str, List[Assoc]] = {}
    for (name, user, _), assoc in assocs.items():
        if user == site.user:
            mine.setdefault(name, []).append(assoc)
    usable = False
    blocked = {entry.account for entry in policy.blocked}
    for number, account in enumerate(policy.accounts, 1):
        path = f"accounts[{number}]"
        if account.name not in mine:
            _absent(account.name, everyone, path, site.user, report)
        elif _qos(account, mine[account.name], path, site, report):
            usable = usable or account.name not in blocked
    if policy.accounts and not usable:
        message = f"none of them can be used by {site.user}: no job can be routed"
        report.error(report.line("accounts"), "accounts", message)
    for number, entry in enumerate(policy.blocked, 1):
        if everyone and entry.account not in everyone:
            hint = nearest(entry.account, sorted(everyone))
            message = f"account {entry.account} does not exist{hint}"
            report.warn(f"blocked[{number}].account", message)


def _absent(name: str, everyone: Set[str], path: str, user: str, report: Report) -> None:
    if everyone and name not in everyone:
        hint = nearest(name, sorted(everyone))
        report.error(report.line(path), path, f"account {name} does not exist{hint}")
    else:
        report.warn(path, f"{user} may not use account {name}")


def _qos(account: Account, mine: Sequence[Assoc], path: str, site: Site, report: Report) -> bool:
    """Whether some QOS of the account can be used; reports those that cannot."""
    if account.qos is None:
        return True
    inside = f"{path}.qos"
    lists = [assoc.qos for assoc in mine if not isinstance(assoc.qos, Unknown)]
    allowed = {name for names in lists for name in names}
    known = set() if isinstance(site.qos, Unknown) else set(site.qos)
    usable = False
    for name in account.qos:
        if known and name not in known:
            hint = nearest(name, sorted(known))
            report.error(report.line(inside), inside, f"QOS {name} does not exist{hint}")
        elif len(lists) == len(mine) and name not in allowed:
            message = f"QOS {name} is not allowed for {site.user} in account {account.name}"
            report.warn(inside, message)
        else:
            usable = True
    return usable


def _partitions(policy: Policy, site: Site, report: Report) -> None:
    if isinstance(site.partitions, Unknown):
        if not isinstance(site.config, Unknown):
            report.warn("rules", "partitions cannot be checked: Slurm did not tell them")
        return
    names = sorted(site.partitions)
    for path, test in _tests(policy, "partition"):
        for pattern in _patterns(test):
            if any(glob(pattern, name) for name in names):
                continue
            if set(pattern) & set("*?["):
                report.warn(path, f"no partition matches {pattern}")
            else:
                message = f"partition {pattern} does not exist{nearest(pattern, names)}"
                report.error(report.line(path), path, message)


def _gpu_types(policy: Policy, site: Site, report: Report) -> None:
    config = site.config
    if not isinstance(config, Config) or config.tres is None:
        return
    names = [tres[9:].lower() for tres in config.tres if tres.startswith("gres/gpu:")]
    for path, test in _tests(policy, "gpu_type"):
        for pattern in _patterns(test):
            if not any(glob(pattern, name) for name in names):
                message = f"no GPU type that Slurm accounts for matches {pattern}"
                report.warn(path, message + nearest(pattern, names))


def _tests(policy: Policy, matcher: str) -> List[Tuple[str, Test]]:
    """The tests on one matcher in the whole policy, with its path."""
    found = []
    for number, account in enumerate(policy.accounts, 1):
        if matcher in account.only:
            found.append((f"accounts[{number}].only.{matcher}", account.only[matcher]))
    for number, rule in enumerate(policy.rules, 1):
        if matcher in rule.when:
            found.append((f"rules[{number}].when.{matcher}", rule.when[matcher]))
    return found


def _patterns(test: Test) -> List[str]:
    """Every pattern in a test of text."""
    if test.op != "list":
        return [str(value) for value in test.values]
    return [str(p) for item in test.values if isinstance(item, tuple) for p in item[1]]
