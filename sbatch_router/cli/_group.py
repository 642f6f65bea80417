"""The click group behind ``sbatch-router``."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any, Optional

import click

from .. import __version__
from . import COMMANDS

#: Stands in for a hyphen while click breaks lines; nothing of ours contains it.
_HYPHEN = "\0"


class Formatter(click.HelpFormatter):
    """Breaks no line at the hyphen of ``sbatch-router`` or of an option."""

    def write_text(self, text: str) -> None:
        before = len(self.buffer)
        super().write_text(text.replace("-", _HYPHEN))
        self.buffer[before:] = [part.replace(_HYPHEN, "-") for part in self.buffer[before:]]

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **options: Any) -> None:
        before = len(self.buffer)
        super().write_dl([(a, b.replace("-", _HYPHEN)) for a, b in rows], *args, **options)
        self.buffer[before:] = [part.replace(_HYPHEN, "-") for part in self.buffer[before:]]


class Context(click.Context):
    formatter_class = Formatter


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are named."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = importlib.import_module(f"{__package__}.{module}").command
        assert isinstance(found, click.Command)
        found.context_class = Context
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a bug of ours is one line, unless SBATCH_ROUTER_DEBUG is set."""
        try:
            try:
                _start_the_clock()
                return super().invoke(ctx)
            finally:
                # Here an output that is full is an error of ours, not a note at the exit.
                sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            full = isinstance(error, OSError) and error.filename is None
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            if full and sys.stdout is sys.__stdout__:
                # What is still buffered cannot be written either.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if os.environ.get("SBATCH_ROUTER_DEBUG"):
                raise
            if full and isinstance(error, OSError):
                raise click.ClickException(f"cannot write: {error.strerror}") from None
            text = f"internal error: {type(error).__name__}: {error}"
            hint = "please report it, with what SBATCH_ROUTER_DEBUG=1 adds"
            raise click.ClickException(f"{text}; {hint}") from None


def _start_the_clock() -> None:
    from ..slurm.patience import begin

    try:
        begin()
    except ValueError as error:
        raise click.ClickException(str(error)) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sbatch-router")
def group() -> None:
    """Submit each Slurm job to the account that has room now.

    A policy says which of your Slurm accounts a job may go to. The sbatch that
    `install-shim` writes looks at how full they are at that moment, puts --account and --qos
    into the call, and becomes the real sbatch. SBATCH_ROUTER=off sbatch ... bypasses it once.

    \b
    To begin:
      sbatch-router init             write a policy from your accounts
      sbatch-router check --live     compare it with Slurm
      sbatch-router explain job.sh   see where a job would go, and why
      sbatch-router install-shim ~/bin
      sbatch-router doctor           when something does not work

    \b
    Exit status of the sbatch that install-shim writes:
      sbatch's own once it has run; before that
      75   refused: every account is full now, so try later
      77   refused: no account may ever run this job
      126  the real sbatch cannot be run
      127  there is no real sbatch in PATH

    \b
    Environment:
      SBATCH_ROUTER=off       submit as if the router were not there
      SBATCH_ROUTER_POLICY    the policy file
      SBATCH_ROUTER_TIMEOUT   seconds that a command waits for Slurm in all (5)
      SBATCH_ROUTER_DEBUG=1   tracebacks for bugs of ours

    \b
    Files:
      $SBATCH_ROUTER_POLICY               the policy: the first that is there
      ~/.config/sbatch-router/policy.yaml
      /etc/sbatch-router/policy.yaml
      ~/.local/state/sbatch-router/       the log of decisions
      $XDG_RUNTIME_DIR/sbatch-router/     what Slurm said a moment ago
    """
