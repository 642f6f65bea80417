"""``sbatch-router run -- snakemake ...``: Snakemake with the accounts that have room now."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, List, Sequence

import click

from .. import accounts, launch
from ..snakemake import VARIABLE
from . import _policy
from .live_accounts import UNAVAILABLE, lines, look, nothing_known, say_left_out

if TYPE_CHECKING:
    from ..accounts import AccountNow
    from ..core.policy import Policy
    from ..live import Now

#: Nothing is available now (EX_TEMPFAIL), as the shim's refusal.
FULL = 75


@click.command(
    "run",
    short_help="Run Snakemake with the accounts that have room now.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--dry-run", is_flag=True, help="Print the command line instead of running it.")
@click.option("--anyway", is_flag=True, help="Start even when nothing is available.")
@_policy.size_options("Memory of one job, to count slots by.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    dry_run: bool,
    anyway: bool,
    mem: str,
    cpus: int,
    gpus: int,
    partition: str,
    program: tuple[str, ...],
) -> None:
    """Run Snakemake, told what each account has left now (`--config live_accounts=...`).

    Adds `-j` when the command and its profiles have none: as many jobs (of the given size,
    else of one CPU) as could start now. When nothing is available it says what holds each
    account and does not start. Ctrl-C reaches Snakemake; so does SIGTERM, as SIGINT.

    Another program's arguments stay as they are; it finds the accounts in
    $SBATCH_ROUTER_LIVE_ACCOUNTS.

    \b
    Examples:
      sbatch-router run -- snakemake --profile profile
      sbatch-router run --mem 64G --gpus 1 -- snakemake -e slurm all
      sbatch-router run --dry-run -- snakemake all

    \b
    Exit status: the program's own once it has started; before that
      1    no policy, or one with errors
      69   Slurm did not tell, and when_slurm_unreachable is `refuse`
      75   nothing is available
      126  the program cannot be run
      127  the program was not found
    """
    if not program[0]:
        raise click.UsageError("PROGRAM is empty; expected a command, such as snakemake")
    policy = _policy.in_use(_policy.environment())
    now, found = look(policy, accounts.Shape.of(cpus, mem, gpus), partition)
    usable = say_left_out(found)
    if not usable:
        if policy.accounts and policy.when_slurm_unreachable == "refuse":
            click.echo(f"Error: {nothing_known(now)}", err=True)
            ctx.exit(UNAVAILABLE)
        why = _policy.only_blocks(policy) or nothing_known(now)
        say(f"{why}; started without live accounts")
        line = launch.Line(program, launch.arguments_at(program) is not None)
    else:
        if not any(account.open for account in usable):
            for text in nothing_available(usable, now, policy):
                click.echo(text, err=True)
            if not anyway:
                ctx.exit(FULL)
        live = json.dumps([accounts.as_live(account) for account in usable])
        os.environ[VARIABLE] = live
        slots = sum(account.slots for account in usable)
        line = launch.compose(program, live, slots, os.environ, Path.cwd())
        say_what(line, usable, dry_run)
    if dry_run:
        click.echo(shlex.join(line.argv))
        return
    ctx.exit(start(line))


def start(line: launch.Line) -> int:
    """Run the program; its exit status, or 126 or 127 with a line why it cannot be run."""
    try:
        return launch.execute(line.argv, os.environ, say, line.snakemake)
    except FileNotFoundError:
        say(f"{line.argv[0]}: not found in PATH; is its environment active?")
        return 127
    except OSError as error:
        say(f"{line.argv[0]}: cannot be run: {error.strerror}")
        return 126


def say(text: str) -> None:
    """One line on standard error: standard output is the program's."""
    click.echo(f"sbatch-router: {text}", err=True)


def say_what(line: launch.Line, usable: Sequence[AccountNow], dry_run: bool) -> None:
    """What was found, and what is done with it."""
    rooms = ", ".join(_room(account) for account in usable)
    say(f"free now: {rooms}")
    for note in line.notes:
        say(note)
    if not line.snakemake:
        say(f"{line.argv[0]} is not Snakemake: run as it is, with ${VARIABLE}")
        return
    if line.own_accounts:
        say("live_accounts is in your own --config: it stays")
    if line.jobs and line.local and not line.dry:
        say(
            f"-j {line.jobs}, and no executor or profile is named: Snakemake will run the jobs "
            "on this machine"
        )
    elif line.jobs and not line.dry:
        say(f"-j {line.jobs}: that many jobs could start now")
    if not dry_run:
        say("running: " + shlex.join(line.argv))


def _room(account: AccountNow) -> str:
    entry = accounts.as_live(account)
    return (
        f"{account.name} {entry['gpu_avail']} GPU, {entry['cpu_avail']} CPU, "
        f"{entry['mem_avail_gb']} GB"
    )


def nothing_available(usable: List[AccountNow], now: Now, policy: Policy) -> List[str]:
    """The refusal: each account with limit, used by others, used by me; who; what to do."""
    from ..diagnosis import limit_words, users_of

    mine = all(_only_mine(account) for account in usable)
    why = "your own jobs hold every account" if mine else "every account is full"
    found = [f"sbatch-router: nothing is available: {why}", ""]
    found += ["  " + text for text in lines(usable)]
    found.append("")
    for account in usable:
        pool = account.pools[0]
        users = users_of(pool.held, now.snapshot)
        why = limit_words(pool.held) if pool.held is not None else pool.why
        text = f"{account.name}: {why}" + (f" [{pool.reason}]" if pool.reason else "")
        found.append("  " + text + (f"; held by {users}" if users else ""))
    names = ",".join(account.name for account in usable)
    found += [
        "",
        f"  next: squeue -A {names}; sbatch-router diagnose; try again later,",
        "        or start all the same and let the jobs queue: sbatch-router run --anyway -- ...",
    ]
    return found


def _only_mine(account: AccountNow) -> bool:
    uses = [use for pool in account.pools for use in pool.use.values() if use.limit is not None]
    full = [use for use in uses if use.free == 0]
    return bool(full) and all(use.others == 0 for use in full)


__all__ = ["command"]
