"""``sbatch-router install-shim DIR``: the sbatch that routes, and what puts it first in PATH."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Optional

import click

from .. import __version__, shimfile
from ._policy import directory_argument

#: In every module file of ours; a file without it is not overwritten.
_MARK = "written by `sbatch-router install-shim`"

#: Shell -> (the line, the usual start-up file). {} is the directory, quoted for that shell.
_SHELLS = {
    "sh": ("export PATH={}:$PATH", "~/.profile"),
    "bash": ("export PATH={}:$PATH", "~/.bashrc"),
    "zsh": ("export PATH={}:$PATH", "~/.zshrc"),
    "fish": ("set -gx PATH {} $PATH", "~/.config/fish/config.fish"),
    "tcsh": ("set path = ({} $path:q)", "~/.tcshrc"),
}


@click.command("install-shim", short_help="Write the sbatch that routes jobs.")
@click.argument("directory", type=click.Path(file_okay=False), callback=directory_argument)
@click.option("--uninstall", is_flag=True, help="Remove the shim from DIRECTORY instead.")
@click.option(
    "--shell",
    type=click.Choice(sorted(_SHELLS)),
    default="sh",
    show_default=True,
    help="Print the PATH line for this shell.",
)
@click.option(
    "--module",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a module file that prepends DIRECTORY to PATH: Lua if FILE ends in .lua "
    "(Lmod), else Tcl (Lmod and Environment Modules).",
)
def command(directory: Path, uninstall: bool, shell: str, module: Optional[Path]) -> None:
    """Write DIRECTORY/sbatch, and print the line that puts it first in PATH.

    The sbatch it writes decides where each job goes and then becomes the real sbatch, which it
    looks up in PATH each time. It needs nothing but the Python it names in its first line.
    Run this again after moving Python or sbatch-router. A file that is not ours is never
    replaced.

    The PATH line is all there is on standard output, so it can be evaluated; what to do with
    it is told on standard error.

    \b
    Examples:
      eval "$(sbatch-router install-shim ~/bin)"
      sbatch-router install-shim --shell fish ~/bin | source
      sbatch-router install-shim /opt/router --module /opt/modules/router/1.lua
      sbatch-router install-shim --uninstall ~/bin

    \b
    Exit status:
      0  done
      1  it cannot be written, or the file there is not ours
    """
    directory = directory.absolute()
    if ":" in str(directory) and not uninstall:
        raise click.ClickException(
            f"{directory}: PATH cannot hold a directory with a colon in its name; choose another"
        )
    try:
        if uninstall:
            click.echo(f"removed {shimfile.uninstall(directory)}", err=True)
            click.echo("next: hash -r, in shells that have used it", err=True)
            return
        if module is not None:
            # Before the shim: an error leaves nothing half done.
            _check_module(module)
        target = shimfile.install(directory)
        if module is not None:
            _write_module(module.absolute(), directory)
    except shimfile.ShimError as error:
        raise click.ClickException(str(error)) from None
    _warn_of_closed(directory)
    line, startup = _SHELLS[shell]
    if module is not None:
        place = module.absolute()
        click.echo(f"wrote {target} and {place}", err=True)
        click.echo(f"next: module use {place.parent.parent}", err=True)
        click.echo(f"      module load {place.parent.name}/{_version_of(place)}", err=True)
    else:
        click.echo(f"wrote {target}; put this line into {startup}:", err=True)
    click.echo(line.format(_quoted(str(directory), shell)))
    if shell == "sh":
        _hint()


def _hint() -> None:
    """A user of a shell that does not read the line above is told which one it does."""
    own = os.path.basename(os.environ.get("SHELL", ""))
    other = {"csh": "tcsh"}.get(own, own)
    if other in ("fish", "tcsh"):
        click.echo(f"your shell is {own}: add --shell {other}", err=True)


def _quoted(text: str, shell: str) -> str:
    if shell == "fish":
        plain = text.replace("\\", "\\\\").replace("'", "\\'")
        return text if shlex.quote(text) == text else f"'{plain}'"
    return shlex.quote(text)


# -- module files --------------------------------------------------------------------------------

_TCL = """\
#%Module1.0
## sbatch-router {version}: {mark}.
proc ModulesHelp {{ }} {{
    puts stderr "Puts an sbatch first in PATH that submits each job to the account with room."
}}
module-whatis "sbatch that picks the Slurm account with room"
prepend-path PATH {directory}
"""

_LUA = """\
-- sbatch-router {version}: {mark}.
help([[Puts an sbatch first in PATH that submits each job to the account with room.]])
whatis("sbatch that picks the Slurm account with room")
prepend_path("PATH", {directory})
"""


def module_text(directory: str, lua: bool) -> str:
    """A module file that prepends `directory` to PATH."""
    template, quote = (_LUA, _lua_string) if lua else (_TCL, _tcl_string)
    return template.format(version=__version__, mark=_MARK, directory=quote(directory))


def _tcl_string(text: str) -> str:
    """In double quotes, with what Tcl would substitute escaped."""
    return '"' + "".join("\\" + c if c in '\\"$[]' else c for c in text) + '"'


def _lua_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _version_of(path: Path) -> str:
    return path.name[:-4] if path.name.endswith(".lua") else path.name


def _warn_of_closed(directory: Path) -> None:
    """A shim that everybody can find, with a Python or a package that not everybody can read."""
    if shimfile.closed_to_others([str(directory)]):
        return
    closed = shimfile.closed_to_others([shimfile.python_for_shim(), *shimfile.import_paths()])
    if closed:
        click.echo(
            f"warning: others cannot use this shim: {closed} is not for them to read. For a site, "
            "install with a Python that all can run: /usr/bin/python3 -m venv",
            err=True,
        )


def _check_module(path: Path) -> None:
    """Raise `ShimError` where a file that is not ours stands."""
    if os.path.lexists(path) and not shimfile.has_mark(path, _MARK.encode()):
        raise shimfile.ShimError(f"{path} is not a module file of ours: choose another name")


def _write_module(path: Path, directory: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.{os.getpid()}"
        temporary.write_text(module_text(str(directory), path.suffix == ".lua"), "utf-8")
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise shimfile.ShimError(f"{error.filename or path}: {error.strerror}") from None
