"""``sbatch-router completion SHELL``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "fish", "zsh")


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    The script asks sbatch-router itself at each <Tab>, so it stays true after an update.

    \b
    Examples, one for the start-up file of each shell:
      bash   eval "$(sbatch-router completion bash)"
      zsh    eval "$(sbatch-router completion zsh)"
      fish   sbatch-router completion fish | source

    \b
    Exit status:
      0  it was printed
    """
    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root()
    script = found(root.command, {}, "sbatch-router", "_SBATCH_ROUTER_COMPLETE")
    # Not `script.source()`: for bash that runs bash to warn of old ones.
    click.echo(script.source_template % script.source_vars())
