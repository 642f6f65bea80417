"""The `sbatch-router` command: one small module a command, imported only when it is run."""

from __future__ import annotations

import importlib

import click

from .. import __version__

#: Command name -> module in this package, which exports `command`.
COMMANDS = {
    "check": "check",
    "explain": "explain",
    "install-shim": "install_shim",
}


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = importlib.import_module(f"{__name__}.{module}").command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sbatch-router")
def main() -> None:
    """Submit each Slurm job to the account that has room now."""
