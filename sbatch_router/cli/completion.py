"""``sbatch-router completion SHELL``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "fish", "zsh")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    The script asks sbatch-router itself at each <Tab>, so it stays true after an update.

    \b
    Put one of these into the shell's start-up file:
      bash   eval "$(sbatch-router completion bash)"
      zsh    eval "$(sbatch-router completion zsh)"
      fish   sbatch-router completion fish | source
    """
    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root()
    script = found(root.command, {}, "sbatch-router", "_SBATCH_ROUTER_COMPLETE")
    # Not `script.source()`: for bash that runs bash to warn of old ones.
    click.echo(script.source_template % script.source_vars())
