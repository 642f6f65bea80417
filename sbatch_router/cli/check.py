"""``sbatch-router check [--live] [FILE...]``."""

from __future__ import annotations

import datetime
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterable, Iterator, List, Optional, Tuple

import click

from .. import cases, policyfile
from ..policyfile import Checked, Finding
from ._render import many

if TYPE_CHECKING:
    from ..core.snapshot import Site


@click.command("check", short_help="Check policies, and run the cases beside them.")
@click.option("--live", is_flag=True, help="Compare with Slurm as well.")
@click.argument("files", nargs=-1, type=click.Path())
@click.pass_context
def command(ctx: click.Context, live: bool, files: Tuple[str, ...]) -> None:
    """Check policy files, and run the cases beside them.

    Without FILES those that sbatch would use now. Prints FILE:LINE: KEY: MESSAGE for each
    error, all at once; warnings do not fail. Cases are in NAME.cases.yaml beside NAME.yaml:
    calls of sbatch on imagined clusters, and what must come of them.

    With --live also asks Slurm whether accounts, QOS, partitions and GPU types exist and are
    yours, and tells which limits have changed since you last checked.

    \b
    Examples:
      sbatch-router check
      sbatch-router check --live
      sbatch-router check policies/*.yaml

    \b
    Exit status:
      0  no error
      1  errors, cases that fail, or with --live no answer from Slurm
    """
    if "" in files:
        raise click.UsageError("an empty FILE; expected the name of a policy")
    failed = False
    ask = _asking() if live else None
    for file in _in_order(files or _used()):
        lines, bad = _cases(file) if file.endswith(cases.SUFFIX) else _policy(file, ask)
        failed = failed or bad
        for line in lines:
            click.echo(line)
    ctx.exit(1 if failed else 0)


def _used() -> Tuple[str, ...]:
    """The policy files sbatch would use now."""
    from ..environ import policy_paths

    found = policy_paths(os.environb)
    if not found:
        raise click.ClickException(
            "no policy is in use: name a file, or write ~/.config/sbatch-router/policy.yaml "
            "(see `sbatch-router init`)"
        )
    return found


def _in_order(files: Iterable[str]) -> Iterator[str]:
    """Each file once; no cases that run with a policy that is named, too."""
    names = list(dict.fromkeys(files))
    with_policy = {cases.beside(name) for name in names if not name.endswith(cases.SUFFIX)}
    return (name for name in names if name not in with_policy)


def _asking() -> Callable[[], Site]:
    """Slurm is asked once, for the first file that can be compared with it."""
    from ._pools import ask_site

    return functools.lru_cache(maxsize=1)(ask_site)


def _policy(file: str, ask: Optional[Callable[[], Site]]) -> Tuple[List[str], bool]:
    """The lines about one policy, and whether it failed."""
    checked = _examine(file)
    findings = [*checked.errors, *checked.warnings]
    if ask is not None and checked.policy is not None:
        from .check_live import drift_findings as drift
        from .check_live import live_findings

        site = ask()
        findings += live_findings(checked.policy, checked.lines, site)
        findings += drift(checked.policy, checked.lines, site)
    findings.sort(key=lambda finding: finding.line)
    lines = [str(finding) for finding in findings]
    failed = any(not finding.warning for finding in findings)
    if not failed and checked.policy is not None:
        lines.append(f"{file}: ok ({_size(checked)})")
    beside = cases.beside(file)
    if checked.policy is not None and Path(beside).exists():
        more, bad = _outcome(beside, cases.examine_cases(beside, checked.policy))
        return lines + more, failed or bad
    return lines, failed


def _examine(file: str) -> Checked:
    today = datetime.date.today().isoformat()
    try:
        return policyfile.examine(policyfile.read(file), file, today)
    except policyfile.PolicyErrors as errors:
        return Checked(None, errors.errors, ())


def _size(checked: Checked) -> str:
    assert checked.policy is not None
    accounts, rules = len(checked.policy.accounts), len(checked.policy.rules)
    return f"{many(accounts, 'account')}, {many(rules, 'rule')}"


def _cases(file: str) -> Tuple[List[str], bool]:
    return _outcome(file, cases.examine_cases(file))


def _outcome(file: str, outcome: cases.Outcome) -> Tuple[List[str], bool]:
    failures: List[Finding] = list(outcome.failures)
    if failures:
        return [str(failure) for failure in failures], True
    return [f"{file}: ok ({many(outcome.total, 'case')})"], False
