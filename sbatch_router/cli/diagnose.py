"""``sbatch-router diagnose``: why each of my pending jobs waits."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

import click

from ..core import spell
from ..core.policy import Policy
from ..core.report import tres_words
from ..core.tres import endless
from ..diagnosis import MOVABLE, Finding, diagnose, in_policy
from ..live import Desk, Now
from ..moves import base_id
from ..slurm.patience import explain
from ..slurm.queue import Detail, Running, everyone_running, my_details
from . import _policy
from ._render import Screen, hanging, many
from .live_accounts import UNAVAILABLE

if TYPE_CHECKING:
    from ..core.place import Check
    from ..core.snapshot import Job
    from ..diagnosis import Holder

#: Pending jobs that are alike are shown as one; of each kind so many ids are named.
_IDS = 6


class Seen(NamedTuple):
    """My pending jobs, and all that is needed to judge them."""

    desk: Desk
    now: Now
    jobs: Sequence[Job]
    details: Dict[str, Detail]
    running: Sequence[Running]
    troubles: Sequence[str]


@click.command("diagnose", short_help="Show why your pending jobs wait.")
@click.option("--json", "as_data", is_flag=True, help="Print one JSON object instead.")
@click.argument("jobids", nargs=-1)
@click.pass_context
def command(ctx: click.Context, as_data: bool, jobids: tuple[str, ...]) -> None:
    """Show why each of your pending jobs waits, or those that are named.

    For each: whether that is normal, who holds the pool and until when, and which account of
    the policy would take it now. Jobs that are alike are shown as one. Nothing is changed.

    With --json: {"user", "jobs": [{"id", "name", "tasks", "account", "qos", "partition",
    "reason", "cause", "normal", "can_start", "why", "asked", "submitted", "expected_start",
    "limit", "holders", "move"}], "troubles"}. Memory is MiB, times are seconds since the epoch.

    \b
    Examples:
      sbatch-router diagnose
      sbatch-router diagnose 4711 4712
      sbatch-router diagnose --json | jq '.jobs[] | select(.move) | .id'

    \b
    Exit status:
      0   told, whatever it is
      1   an id is not one of your pending jobs; no policy, or one with errors
      69  Slurm did not tell
    """
    seen = look(_policy.in_use(_policy.environment()))
    if seen is None:
        ctx.exit(UNAVAILABLE)
    jobs, wrong = select(seen, jobids)
    found = diagnose(jobs, seen.now, seen.desk, seen.details, seen.running)
    for text in [*wrong, *seen.troubles]:
        click.echo(f"sbatch-router: {text}", err=True)
    if as_data:
        data = {"user": seen.desk.user, "jobs": [as_json(f) for f in found]}
        click.echo(json.dumps({**data, "troubles": list(seen.troubles)}, indent=2))
    elif found or not wrong:
        screen = Screen()
        for line in report(found, seen.desk.policy):
            screen.lines(hanging(line, screen.width, 11))
    ctx.exit(1 if wrong else 0)


def look(policy: Policy) -> Optional[Seen]:
    """My pending jobs as Slurm shows them now; None, and a line, when it does not."""
    environ = _policy.environment()
    desk = Desk(environ, policy)
    now = desk.look()
    jobs = now.snapshot.jobs
    if not isinstance(jobs, tuple):
        why = explain(now.snapshot.troubles)
        click.echo(f"Error: your jobs are not known: {why}; see `sbatch-router doctor`", err=True)
        return None
    pending = waiting(jobs)
    strangers = _strangers(pending, now)
    if strangers:
        # Jobs in pools that the policy does not name: look there as well.
        desk = Desk(environ, policy, strangers)
        now = desk.look()
        jobs = now.snapshot.jobs if isinstance(now.snapshot.jobs, tuple) else jobs
        pending = waiting(jobs)
    details, trouble = my_details() if pending else ({}, "")
    running, other = everyone_running() if pending else ((), "")
    told = [text for text in (trouble, other) if text]
    told += [text for text in now.snapshot.troubles if pending]
    return Seen(desk, now, pending, details, running, told)


def waiting(jobs: Sequence[Job]) -> List[Job]:
    """The pending ones, the oldest first."""
    pending = [job for job in jobs if job.state == "PENDING"]
    return sorted(pending, key=lambda job: int(base_id(job.id)))


def _strangers(pending: Sequence[Job], now: Now) -> List[tuple[str, str]]:
    known = now.snapshot.qos
    pairs = dict.fromkeys((job.account, job.qos) for job in pending)
    return [pair for pair in pairs if isinstance(known, dict) and pair[1] not in known]


def names(job: Job, jobids: Sequence[str]) -> bool:
    """Whether a job is among the ids: by itself, or by its array's."""
    return job.id in jobids or job.id.partition("_")[0] in jobids


def select(seen: Seen, jobids: Sequence[str]) -> tuple[List[Job], List[str]]:
    """The pending jobs that are meant, and a clause for each id that is none of them."""
    if not jobids:
        return list(seen.jobs), []
    wrong = []
    for ident in jobids:
        if any(names(job, [ident]) for job in seen.jobs):
            continue
        base = ident.partition("_")[0]
        record = [job.id for job in seen.jobs if job.id.startswith(base + "_[")]
        if "_" in ident and record:
            wrong.append(f"{ident}: an array's waiting tasks are one job: name {base}")
        else:
            wrong.append(f"{ident or repr(ident)}: not one of your pending jobs (squeue --me)")
    return [job for job in seen.jobs if names(job, jobids)], wrong


# -- for people ---------------------------------------------------------------------------------


def report(found: Sequence[Finding], policy: Policy) -> List[str]:
    """A summary, then each group of jobs that wait for the same."""
    if not found:
        return ["no pending jobs"]
    groups: Dict[tuple[object, ...], List[Finding]] = {}
    for finding in found:
        groups.setdefault(_alike(finding), []).append(finding)
    bad = sum(not finding.normal for finding in found)
    lines = [f"{many(len(found), 'pending job')}: {bad} to look at, {len(found) - bad} normal"]
    ordered = sorted(groups.values(), key=lambda group: group[0].normal)
    for group in ordered:
        lines += ["", *_group(group, policy)]
    movable = [f for f in found if f.move is not None]
    if len(movable) > 1:
        lines += ["", f"{len(movable)} of them can start elsewhere now: sbatch-router reroute"]
    return lines


def _alike(finding: Finding) -> tuple[object, ...]:
    job, move = finding.job, finding.move
    where = (move.account, move.qos) if move else None
    tres = tuple(sorted(job.tres.items()))
    return (finding.cause, job.reason, job.account, job.qos, job.partition, tres, where)


def _group(group: Sequence[Finding], policy: Policy) -> List[str]:
    first = group[0]
    job = first.job
    tasks = sum(finding.job.tasks for finding in group)
    ids = [finding.job.id for finding in group]
    shown = ", ".join(ids[:_IDS]) + (f", {len(ids) - _IDS} more" if len(ids) > _IDS else "")
    mark = "normal" if first.normal else "look"
    of_tasks = f" ({tasks} tasks)" if tasks > len(group) else ""
    lines = [f"[{mark}] {shown}{of_tasks}  {job.account}/{job.qos}  PENDING ({job.reason})"]
    lines.append(f"  asks     {tres_words(job.tres)}" + (" each" if len(group) > 1 else ""))
    lines.append(f"  cause    {first.cause}: {first.why}")
    since = [f.detail.submitted for f in group if f.detail and f.detail.submitted is not None]
    if since:
        lines.append(f"  waiting  since {_clock(min(since))}")
    if first.can_start is False:
        lines.append("  start    never, as it is")
    for holder in first.holders:
        lines.append(f"  held by  {_holder(holder, first.check)}")
    if first.holders and not any(holder.jobs for holder in first.holders):
        lines.append("           (other users' jobs are hidden here: since when is not known)")
    lines += _next(group, policy)
    return lines


def _holder(holder: Holder, check: Optional[Check]) -> str:
    tres, kind = (check.tres, check.kind) if check is not None else ("", "")
    text = f"{holder.user} {spell.amount(tres, holder.amount, kind)}"
    if holder.jobs:
        text += f" in {many(holder.jobs, 'job')}"
    if holder.since is not None:
        text += f", since {_clock(holder.since)}"
    if holder.first_ends is not None:
        text += f", the first ends by {_clock(holder.first_ends)}"
    return text


def _next(group: Sequence[Finding], policy: Policy) -> List[str]:
    first = group[0]
    if first.move is not None:
        ids = " ".join(f.job.id.partition("_[")[0] for f in group)
        doubt = "" if first.move.exact else " (as far as ReqTRES tells)"
        where = f"{first.move.account}/{first.move.qos}"
        return [f"  now      {where} would take it{doubt}: sbatch-router reroute {ids}"]
    if first.cause not in MOVABLE:
        return []
    if not in_policy(first.job.account, policy):
        return [f"  now      account {first.job.account} is not in the policy: left alone"]
    return ["  now      no account of the policy would start it"]


def _clock(seconds: float) -> str:
    """``14:05`` today, else with the date."""
    when = time.localtime(seconds)
    today = time.strftime("%Y-%m-%d", when) == time.strftime("%Y-%m-%d")
    return time.strftime("%H:%M" if today else "%Y-%m-%d %H:%M", when)


# -- as data ------------------------------------------------------------------------------------


def as_json(finding: Finding) -> Dict[str, Any]:
    """One job; numbers are integers (memory MiB), times are seconds since the epoch."""
    job, check, move, detail = finding.job, finding.check, finding.move, finding.detail
    return {
        "id": job.id,
        "name": detail.name if detail is not None else None,
        "tasks": job.tasks,
        "account": job.account,
        "qos": job.qos,
        "partition": job.partition,
        "reason": job.reason,
        "cause": finding.cause,
        "normal": finding.normal,
        "can_start": finding.can_start,
        "why": finding.why,
        "asked": dict(job.tres),
        "submitted": _integer(detail.submitted) if detail is not None else None,
        "expected_start": _integer(detail.starts) if detail is not None else None,
        "limit": _limit(check) if check is not None else None,
        "holders": [
            {
                "user": holder.user,
                "amount": holder.amount,
                "jobs": holder.jobs,
                "since": _integer(holder.since),
                "first_ends": _integer(holder.first_ends),
            }
            for holder in finding.holders
        ],
        "move": move._asdict() if move is not None else None,
    }


def _integer(value: Optional[float]) -> Optional[int]:
    return None if value is None else int(value)


def _limit(check: Check) -> Dict[str, Any]:
    return {
        "tres": check.tres or check.kind,
        "kind": check.kind,
        "where": check.where,
        "limit": check.limit,
        "used": check.used if isinstance(check.used, int) else "unknown",
        "mine": check.mine if isinstance(check.mine, int) else "unknown",
        "requested": None if endless(check.kind, check.requested) else check.requested,
    }
