"""``sbatch-router install-shim DIR``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from .. import shimfile


@click.command("install-shim")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--uninstall", is_flag=True, help="Remove the shim from DIRECTORY instead.")
def command(directory: Path, uninstall: bool) -> None:
    """Write DIRECTORY/sbatch, and print the line that puts it first in PATH.

    The line goes to standard output, so `eval "$(sbatch-router install-shim DIR)"` works.
    """
    directory = directory.absolute()
    try:
        if uninstall:
            click.echo(f"removed {shimfile.uninstall(directory)}", err=True)
            return
        target = shimfile.install(directory)
    except shimfile.ShimError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {target}; put this line into your shell's start-up file:", err=True)
    click.echo(f"export PATH={shlex.quote(str(directory))}:$PATH")
