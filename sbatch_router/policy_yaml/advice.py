"""Warnings: what a policy says is allowed, but is hardly what was meant."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from ..core.match import holds
from ..core.policy import Policy, Rule, Test
from . import spec
from .findings import Report

_LONG_CACHE = 600
_INFINITE = float("inf")


def advise(policy: Policy, report: Report, today: str = "") -> None:
    """Adds warnings about a policy without errors to the report."""
    _blocks(policy, report, today)
    _conditions(policy, report)
    _rules(policy, report)
    if policy.cache_seconds > _LONG_CACHE:
        report.warn("cache", f"usage up to {policy.cache_seconds} s old decides; 5s is usual")


def _blocks(policy: Policy, report: Report, today: str) -> None:
    blocked = {entry.account for entry in policy.blocked}
    for number, account in enumerate(policy.accounts, 1):
        if account.name in blocked:
            message = f"{account.name} is listed here and blocked: it is never chosen"
            report.warn(f"accounts[{number}]", message)
    if policy.accounts and all(account.name in blocked for account in policy.accounts):
        report.warn("accounts", "every account is blocked: no job can be routed")
    for number, entry in enumerate(policy.blocked, 1):
        if today and entry.review and entry.review <= today:
            message = f"{entry.account} was to be reviewed on {entry.review}: {entry.reason}"
            report.warn(f"blocked[{number}].review", message)
        if entry.since and entry.review and entry.review < entry.since:
            report.warn(f"blocked[{number}].review", "is before since")


def _conditions(policy: Policy, report: Report) -> None:
    for number, account in enumerate(policy.accounts, 1):
        _when(account.only, f"accounts[{number}].only", report)
    for number, rule in enumerate(policy.rules, 1):
        _when(rule.when, f"rules[{number}].when", report)


def _when(when: Dict[str, Test], path: str, report: Report) -> None:
    for name, test in when.items():
        matcher = spec.BY_NAME.get(name, spec.WILDCARD)
        answer = _constant(test, matcher)
        if answer is not None:
            always = "always" if answer else "never"
            message = f"{test.text} {always} holds: {name} is {matcher.least} or more"
            report.warn(f"{path}.{name}", message)
    types, gpus = when.get("gpu_type"), when.get("gpus")
    if types and gpus and types.op == "glob" and not any(holds(gpus, n) for n in _points(gpus, 1)):
        message = f"never holds: gpus is {gpus.text}, and a job without GPUs names no type"
        report.warn(f"{path}.gpu_type", message)


def _constant(test: Test, matcher: spec.Matcher) -> Optional[bool]:
    """True or False if a number's test has the same answer for every job; else None."""
    if matcher.kind in ("text", "folded"):
        return None
    answers = {holds(test, point) for point in _points(test, matcher.least)}
    return answers.pop() if len(answers) == 1 else None


def _points(test: Test, least: int) -> List[float]:
    """Facts at and beside every number in the test: each answer it has, it has for one."""
    points = [float(least), _INFINITE]
    for end in _ends(test):
        points += [end - 1, end, end + 1]
    return [point for point in points if point >= least]


def _ends(test: Test) -> List[float]:
    found: List[float] = []
    for value in test.values:
        if isinstance(value, tuple):
            found += _ends(value)  # type: ignore[arg-type]
        elif isinstance(value, (int, float)):
            found.append(value)
    return found


def _rules(policy: Policy, report: Report) -> None:
    blocked = {entry.account for entry in policy.blocked}
    for number, rule in enumerate(policy.rules, 1):
        path = f"rules[{number}]"
        hidden = _hidden_by(rule, policy.rules[: number - 1])
        if hidden is not None:
            message = f"is never reached: `{hidden.name}` before it matches every such job"
            report.warn(path, message)
        if "listed" in rule.order[:-1]:
            message = "keys after `listed` never decide: no two accounts are listed equal"
            report.warn(f"{path}.order", message)
        names = [name for name, _ in rule.candidates or ()]
        if names and all(name in blocked for name in names):
            message = "all of them are blocked: jobs of this rule cannot be routed"
            report.warn(f"{path}.candidates", message)


def _hidden_by(rule: Rule, earlier: Tuple[Rule, ...]) -> Optional[Rule]:
    """An earlier rule whose every condition is a condition of this one, too."""
    for other in earlier:
        if all(_same(rule.when.get(name), test) for name, test in other.when.items()):
            return other
    return None


def _same(mine: Optional[Test], other: Test) -> bool:
    return mine is not None and (mine.op, mine.values) == (other.op, other.values)
