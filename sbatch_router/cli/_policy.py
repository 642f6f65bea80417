"""The policy a command works with, or the one error that says why there is none."""

from __future__ import annotations

import contextlib
import datetime
import os
import posix
from pathlib import Path
from typing import Any, Callable, List, Mapping, Sequence, Tuple, TypeVar

import click

from ..core.policy import Blocked, Policy
from ..core.units import parse_memory
from ..environ import policy_paths
from ..policycache import PolicyTrouble, find_policy

_Command = TypeVar("_Command", bound=Callable[..., Any])


def environment() -> Mapping[bytes, bytes]:
    """The environment as the shim reads it."""
    return posix.environ


def memory_option(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks a ``--mem`` at once: a typing error must not look like a full cluster."""
    if value:
        try:
            parse_memory(value)
        except ValueError:
            words = f"{value!r} is no memory size; sbatch reads 500M, 4G, 1T"
            raise click.BadParameter(words) from None
    return value


def directory_argument(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """A directory that is named: an empty variable must not mean the one we are in."""
    if not value:
        raise click.BadParameter("it is empty; expected a directory, such as ~/bin")
    return Path(value)


def size_options(mem_help: str) -> Callable[[_Command], _Command]:
    """The options that say how large one job is, and on which partition."""
    options = (
        click.option("--mem", default="", metavar="SIZE", callback=memory_option, help=mem_help),
        click.option(
            "--cpus", default=0, metavar="N", type=click.IntRange(0), help="CPUs of one job."
        ),
        click.option(
            "--gpus", default=0, metavar="N", type=click.IntRange(0), help="GPUs of one job."
        ),
        click.option(
            "--partition", default="", help="Whose limits count; else the default partition."
        ),
    )

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def only_blocks(policy: Policy) -> str:
    """Why there is no account to tell of, where the policy lists none; else empty."""
    if policy.accounts:
        return ""
    return (
        f"{' and '.join(policy.files) or 'the policy'} only blocks accounts and lists none to "
        "choose from; write a policy of your own with `sbatch-router init`"
    )


def in_use(environ: Mapping[bytes, bytes]) -> Policy:
    """The policy sbatch would use now; says which blocks are to be reviewed.

    Raises `click.ClickException`.
    """
    paths = policy_paths(environ)
    if not paths:
        raise click.ClickException(
            "no policy found, so sbatch submits every job as it is; write one with "
            "`sbatch-router init`"
        )
    try:
        policy = find_policy(paths, environ)
    except PolicyTrouble as trouble:
        text = str(trouble)
        hint = "" if "sbatch-router check" in text else "; see `sbatch-router check`"
        raise click.ClickException(text + hint) from None
    except OSError as error:
        place = error.filename or paths[0]
        raise click.ClickException(
            f"{place}: {error.strerror}; see `sbatch-router check`"
        ) from None
    warn(review_warnings(policy))
    return policy


def remind(environ: Mapping[bytes, bytes]) -> None:
    """Say which blocks are to be reviewed, for a command that works without a policy too."""
    with contextlib.suppress(click.ClickException):
        in_use(environ)


def user_policy_path() -> str:
    """Where a user's own policy belongs: where the shim would look first."""
    named = os.environ.get("SBATCH_ROUTER_POLICY")
    if named:
        return named
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return base + "/sbatch-router/policy.yaml"


def overdue(policy: Policy, today: str = "") -> Tuple[Blocked, ...]:
    """The blocks whose review date has come."""
    day = today or datetime.date.today().isoformat()
    return tuple(entry for entry in policy.blocked if entry.review and entry.review <= day)


def review_warnings(policy: Policy, today: str = "") -> List[str]:
    """One line for each block that should be looked at again."""
    return [
        f"{entry.file or 'policy'}: {entry.account} was to be reviewed on {entry.review}: "
        f"{entry.reason}"
        for entry in overdue(policy, today)
    ]


def warn(lines: Sequence[str]) -> None:
    """Warnings, on standard error."""
    for line in lines:
        click.echo(f"warning: {line}", err=True)


def block_words(entry: Blocked) -> str:
    """Why an account is blocked, since when and until when."""
    dates = [f"since {entry.since}"] if entry.since else []
    if entry.review:
        dates.append(f"review on {entry.review}")
    return entry.reason + (f" ({', '.join(dates)})" if dates else "")
