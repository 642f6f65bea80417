"""``sbatch-router live-accounts``: what each account has left now, for Snakemake's --config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, List, Sequence

import click

from .. import accounts
from ..core import spell
from ..live import Desk
from ..slurm.patience import explain
from . import _policy

if TYPE_CHECKING:
    from ..accounts import AccountNow
    from ..core.policy import Policy
    from ..live import Now

#: Slurm did not tell (EX_UNAVAILABLE).
UNAVAILABLE = 69


@click.command("live-accounts", short_help="Print what each account has free now, as JSON.")
@_policy.size_options("Memory of one job, as sbatch reads it.")
@click.option("--seed-keys", is_flag=True, help="Only name, gpu_avail, cpu_avail, mem_avail_gb.")
@click.option("--table", "as_table", is_flag=True, help="A table for people instead of JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    mem: str,
    cpus: int,
    gpus: int,
    partition: str,
    seed_keys: bool,
    as_table: bool,
) -> None:
    """Print what each account of the policy has free now, all users' jobs counted.

    One line of JSON, fit for Snakemake's --config. `slots` is how many jobs of the given size
    (else of one CPU and the cluster's default memory) could start now. Blocked accounts are
    left out; what nothing limits is given as all that the partition has, and named under
    `unlimited`.

    \b
    Examples:
      sbatch-router live-accounts --table
      sbatch-router live-accounts --cpus 4 --mem 64G --gpus 1
      snakemake --config "live_accounts=$(sbatch-router live-accounts)"

    \b
    Exit status:
      0   printed
      1   no policy, or one with errors or without accounts
      69  Slurm did not tell
    """
    policy = _policy.in_use(_policy.environment())
    if blocks := _policy.only_blocks(policy):
        raise click.ClickException(blocks)
    shape = accounts.Shape.of(cpus, mem, gpus)
    now, found = look(policy, shape, partition)
    usable = say_left_out(found)
    if not usable:
        click.echo(f"Error: {nothing_known(now)}", err=True)
        ctx.exit(UNAVAILABLE)
    if as_table:
        for line in lines(usable):
            click.echo(line)
        return
    entry = accounts.as_live if seed_keys else accounts.as_json
    click.echo(json.dumps([entry(account) for account in usable]))


def look(policy: Policy, shape: accounts.Shape, partition: str) -> tuple[Now, List[AccountNow]]:
    """One look at Slurm, as a table."""
    now = Desk(_policy.environment(), policy).look()
    return now, accounts.table(now, policy, shape, partition)


def say_left_out(found: List[AccountNow]) -> List[AccountNow]:
    """The accounts that can be used; a line on standard error for each of the others."""
    for account in found:
        if not account.known:
            click.echo(f"sbatch-router: {account.name} left out: {account.pools[0].why}", err=True)
    return [account for account in found if account.known]


def nothing_known(now: Now) -> str:
    """Why there is no account to tell of."""
    why = f": {explain(now.snapshot.troubles)}" if now.snapshot.troubles else ""
    return (
        f"no account's use is known{why}; "
        "see `sbatch-router doctor` and `sbatch-router check --live`"
    )


def lines(found: List[AccountNow]) -> List[str]:
    """The table: each account with limit, used by others, used by me, queued by me, free."""
    rows = [("account", "qos", "", "limit", "by others", "by me", "queued", "free", "job slots")]
    for account in found:
        for pool in account.pools:
            for number, (tres, use) in enumerate(pool.use.items()):
                first = number == 0
                rows.append(
                    (
                        account.name if first else "",
                        pool.qos if first else "",
                        tres.rpartition("/")[2],
                        spell.amount(tres, use.limit),
                        spell.amount(tres, use.others),
                        spell.amount(tres, use.mine),
                        spell.amount(tres, use.queued),
                        spell.amount(tres, use.free),
                        str(pool.slots) if first else "",
                    )
                )
    return aligned(rows, left=3)


def aligned(rows: Sequence[tuple[str, ...]], left: int) -> List[str]:
    """Columns: the first `left` of them begin, the others end at the same place."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    found = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        found.append("  ".join(cells).rstrip())
    return found
