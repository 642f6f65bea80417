"""``sbatch-router explain``: the decision the shim would take now; nothing is submitted."""

from __future__ import annotations

import json
import posix
import time

import click

from .. import route
from ..core.report import as_json
from ..shim import policy_paths


@click.command(
    "explain",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--json", "as_data", is_flag=True, help="Print one JSON object.")
@click.argument("sbatch_args", nargs=-1, type=click.UNPROCESSED)
def command(as_data: bool, sbatch_args: tuple[str, ...]) -> None:
    """Show which account `sbatch SBATCH_ARGS` would use now, and why not the others."""
    environ = posix.environ
    paths = policy_paths(environ)
    if not paths:
        raise click.ClickException("no policy found; write one with `sbatch-router init`")
    try:
        policy = route.find_policy(paths, environ)
    except route.PolicyTrouble as trouble:
        raise click.ClickException(str(trouble)) from None
    call = route.read_call(sbatch_args, environ)
    found = route.consider(call, environ, policy, promise=False)
    data = as_json(found.decision, found.request, found.snapshot, time.time())
    if as_data:
        click.echo(json.dumps(data, indent=2))
        return
    click.echo(f"{found.decision.action}: {found.decision.account} {found.decision.why}")
    for candidate in found.decision.candidates:
        click.echo(f"  {candidate.account}/{candidate.qos}: {candidate.verdict} {candidate.why}")
