"""``sbatch-router reroute``: move my pending jobs that others hold to an account with room."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence

import click

from ..core.report import tres_words
from ..decisionlog import write
from ..diagnosis import MOVABLE, OTHERS, Finding, diagnose, in_policy, is_part
from ..moves import FAILED, MOVED, NO_ROOM, Mover, Outcome, base_id
from ..slurm.run import NO_ANSWER
from . import _policy
from .diagnose import Seen, look, select
from .live_accounts import UNAVAILABLE, aligned
from .run import FULL

if TYPE_CHECKING:
    from ..core.policy import Policy


@click.command("reroute", short_help="Move pending jobs that others hold up.")
@click.option("--dry-run", is_flag=True, help="Show what would be moved, and move nothing.")
@click.argument("jobids", nargs=-1)
@click.pass_context
def command(ctx: click.Context, dry_run: bool, jobids: tuple[str, ...]) -> None:
    """Move your pending jobs that others' jobs hold to an account that has room now.

    Without JOBIDS all that are stuck on others; a job that is named is also moved when it
    could never start where it is. The id stays, so Snakemake and the like notice nothing. An
    array moves as a whole: all its tasks that still wait. Jobs on accounts that the policy
    does not name are left alone, as are those that have started meanwhile.

    \b
    Examples:
      sbatch-router reroute --dry-run
      sbatch-router reroute
      sbatch-router reroute 4711

    \b
    Exit status:
      0   all stuck jobs were moved (with --dry-run: have a place), or none is
      1   a move failed, an id is none of your pending jobs, no usable policy
      69  Slurm did not tell
      75  some stay, since no account has room now
    """
    seen = look(_policy.in_use(_policy.environment()))
    if seen is None:
        ctx.exit(UNAVAILABLE)
    jobs, wrong = select(seen, jobids)
    for text in wrong:
        click.echo(f"sbatch-router: {text}", err=True)
    found = diagnose(jobs, seen.now, seen.desk, seen.details, seen.running)
    stuck = [finding for finding in found if is_stuck(finding, bool(jobids), seen.desk.policy)]
    for finding in found:
        if jobids and finding not in stuck:
            click.echo(f"sbatch-router: {_not_stuck(finding, seen.desk.policy)}", err=True)
    if not stuck:
        which = "none of these" if jobids else "no pending job of yours"
        click.echo(f"{which} is held by others: nothing to move")
        ctx.exit(1 if wrong else 0)
    outcomes = plan(stuck) if dry_run else move(stuck, seen)
    if not dry_run:
        _log(outcomes)
    for line in table(outcomes, dry_run):
        click.echo(line)
    ctx.exit(1 if wrong else exit_code(outcomes))


def _log(outcomes: Sequence[Outcome]) -> None:
    """For `history`, which looks for jobs where they were sent."""
    for outcome in outcomes:
        if outcome.result == MOVED:
            job = outcome.job
            fields = {
                "job_id": base_id(job.id),
                "account": outcome.account,
                "qos": outcome.qos,
                "from_account": job.account,
                "from_qos": job.qos,
            }
            write("moved", fields, _policy.environment())


def is_stuck(finding: Finding, named: bool, policy: Policy) -> bool:
    """Whether a job is ours to move: held by others, or named and without a chance there."""
    if is_part(finding.job) or not in_policy(finding.job.account, policy):
        return False
    return finding.cause == OTHERS or (named and finding.cause in MOVABLE)


def _not_stuck(finding: Finding, policy: Policy) -> str:
    job = finding.job
    if not in_policy(job.account, policy):
        return f"{job.id}: account {job.account} is not in the policy: left alone"
    if is_part(job):
        return f"{job.id}: part of a heterogeneous job: left alone"
    return f"{job.id}: {finding.cause}, not held by others: left alone ({finding.why})"


def plan(stuck: Sequence[Finding]) -> List[Outcome]:
    """What would become of each job."""
    outcomes = []
    for finding in stuck:
        move = finding.move
        if move is None:
            outcomes.append(Outcome(finding.job, NO_ROOM, why="no account has room now"))
        else:
            outcomes.append(Outcome(finding.job, MOVED, move.account, move.qos))
    return outcomes


def move(stuck: Sequence[Finding], seen: Seen) -> List[Outcome]:
    """Move them one by one, in the order they wait."""
    mover = Mover(seen.desk, seen.now.snapshot, seen.details)
    outcomes: List[Outcome] = []
    for finding in stuck:
        if outcomes and NO_ANSWER in outcomes[-1].why:
            # It would wait for the same silence.
            why = outcomes[-1].why
            outcomes.append(Outcome(finding.job, FAILED, why=why))
        else:
            outcomes.append(mover.move(finding.job))
    return outcomes


def table(outcomes: Sequence[Outcome], dry_run: bool) -> List[str]:
    """One line a job: what it asks, from where to where, and what became of it."""
    rows = [("job", "asks", "from", "to", "")]
    for outcome in outcomes:
        job = outcome.job
        to = f"{outcome.account}/{outcome.qos}" if outcome.account else "-"
        result = outcome.result
        if dry_run:
            result = "would move" if result == MOVED else "stays"
        text = f"{result}: {outcome.why}" if outcome.why else result
        rows.append((job.id, tres_words(job.tres), f"{job.account}/{job.qos}", to, text))
    done = sum(outcome.result == MOVED for outcome in outcomes)
    verb = "would be moved; nothing was done" if dry_run else "moved"
    return [*aligned(rows, left=5), f"{done} of {len(outcomes)} {verb}"]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """1 for a failure, 75 when some stay for want of room."""
    results = {outcome.result for outcome in outcomes}
    if FAILED in results:
        return 1
    return FULL if NO_ROOM in results else 0
