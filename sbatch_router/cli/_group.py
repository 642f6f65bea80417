"""The click group behind ``sbatch-router``."""

from __future__ import annotations

import importlib
from typing import Optional

import click

from .. import __version__
from . import COMMANDS


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = importlib.import_module(f"{__package__}.{module}").command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sbatch-router")
def group() -> None:
    """Submit each Slurm job to the account that has room now."""
