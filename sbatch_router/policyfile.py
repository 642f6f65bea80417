"""Reading policy files (docs/policy.md). Slow to import: the shim keeps a cache of the result.

`load` and `loads` give a `Policy` or raise `PolicyErrors` with every error at once.
`examine` also gives warnings, which is what ``sbatch-router check`` prints.
"""

from __future__ import annotations

import os
import stat
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .core.policy import Policy
from .policy_yaml import advice, build, nodes
from .policy_yaml.findings import Finding, PolicyErrors, Report

__all__ = ["Checked", "Finding", "PolicyErrors", "examine", "load", "loads", "merge", "read"]


_MOST = 100


class Checked(NamedTuple):
    """The outcome of looking at one file. `policy` is None if there are errors."""

    policy: Optional[Policy]
    errors: Tuple[Finding, ...]
    warnings: Tuple[Finding, ...]
    #: The line of each path, such as ``rules[2].when``; empty if there are errors.
    lines: Mapping[str, int] = {}


def load(path: Union[str, os.PathLike[str]]) -> Policy:
    """The policy in a file. Raises `PolicyErrors`, also for a file that cannot be read."""
    name = os.fspath(path)
    return _policy(examine(read(name), name))


def loads(text: Union[str, bytes], filename: str = "<policy>") -> Policy:
    """The policy in a text; `filename` is used in messages and in `Policy.files`."""
    return _policy(examine(text, filename))


def read(path: str) -> bytes:
    """The bytes of a policy file, or `PolicyErrors` with the reason why not.

    Never waits: a pipe or a terminal may never come to an end.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(nodes.MAX_BYTES + 1)
        why = "it is no regular file"
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    finding = Finding(path, 1, "file", f"cannot be read: {why}; expected a YAML file")
    raise PolicyErrors([finding]) from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def examine(text: Union[str, bytes], filename: str = "<policy>", today: str = "") -> Checked:
    """Everything there is to say about a policy. Never raises for what the text contains.

    `today` (an ISO date) adds warnings for blocks whose review date has come.
    """
    report = Report(filename)
    try:
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        root = nodes.parse(nodes.decode(raw, report), report)
    except nodes.Unreadable:
        return Checked(None, _sorted(report.errors), ())
    policy = build.policy(root, report)
    if report.errors:
        return Checked(None, _sorted(report.errors), ())
    advice.advise(policy, report, today)
    return Checked(policy, (), _sorted(report.warnings), report.at)


def merge(user: Policy, site: Policy) -> Policy:
    """A user's own policy under a site's: the site's blocks bind, and come first.

    An account that both block keeps the site's reason. Nothing else of the site's counts.
    """
    bound = {entry.account for entry in site.blocked}
    own = tuple(entry for entry in user.blocked if entry.account not in bound)
    return user._replace(blocked=site.blocked + own, files=user.files + site.files)


def _policy(checked: Checked) -> Policy:
    if checked.policy is None:
        raise PolicyErrors(checked.errors)
    return checked.policy


def _sorted(findings: Sequence[Finding]) -> Tuple[Finding, ...]:
    """By line; of a great many, the first hundred and their number."""
    ordered = sorted(findings, key=lambda f: f.line)
    if len(ordered) > _MOST:
        left = len(ordered) - _MOST
        rest = ordered[_MOST]._replace(key="file", message=f"and {left} more errors")
        ordered[_MOST:] = [rest]
    return tuple(ordered)
