"""``sbatch-router snakemake-profile DIR``: a Snakemake profile that wires all four commands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from ..shimfile import ShimError, python_for_shim, shebang
from ._policy import directory_argument

TEMPLATE = """\
# Written by `sbatch-router snakemake-profile`; use it with `snakemake --profile {directory}`.
executor: cluster-generic
cluster-generic-submit-cmd: "{submit}"
cluster-generic-status-cmd: "{status}"
cluster-generic-cancel-cmd: "{cancel}"
cluster-generic-cancel-nargs: 1000
cluster-generic-sidecar-cmd: "{sidecar}"
jobs: {jobs}
# Jobs that Slurm kills are reported within seconds; asking costs one small process a job.
max-status-checks-per-second: 20
max-jobs-per-timespan: 100/1s
seconds-between-status-checks: 5
latency-wait: 30
# A refused submission (everything full, exit code 75) fails the job at once, and a retry follows
# within the second: let the policy wait instead (`when_full: {{wait: 10m}}`) or queue.
retries: 1
"""

#: Beside config.yaml. Snakemake starts it for job after job, and most of that is Python's start:
#: this takes half of the installed command's time.
STATUS = """\
{shebang}
# What sbatch-router-status does. Written by `sbatch-router snakemake-profile`.
import sys
sys.path.insert(0, {package!a})
from sbatch_router.cli.jobstatus import main
sys.exit(main())
"""


@click.command("snakemake-profile", short_help="Write a Snakemake profile that uses all this.")
@click.argument("directory", type=click.Path(file_okay=False), callback=directory_argument)
@click.option(
    "-j", "--jobs", default=100, show_default=True, metavar="N", help="Jobs in Slurm at once."
)
def command(directory: Path, jobs: int) -> None:
    """Write a profile for Snakemake 9 and later: DIRECTORY/config.yaml.

    It has cluster-generic submit with sbatch-router-submit, and names that and the commands
    for status, cancel and sidecar by their full paths, so it works from any environment. That
    for status is written beside it. What exists is never replaced.

    \b
    Examples:
      sbatch-router snakemake-profile profile
      snakemake --profile profile

    \b
    Exit status:
      0  it was written
      1  there is a config.yaml already, or it cannot be written
    """
    target = directory / "config.yaml"
    # It is told in a comment of a file that must be UTF-8, on one line.
    shown = str(directory) if str(directory).isprintable() else "DIRECTORY"
    found = {name: _command(f"sbatch-router-{name}") for name in _NAMES}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            found["status"] = _status(directory) or found["status"]
        with target.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(directory=shown, jobs=jobs, **found))
    except FileExistsError as error:
        there = error.filename or target
        raise click.ClickException(f"{there} exists; remove it or name another DIR") from None
    except OSError as error:
        raise click.ClickException(f"{target}: {error.strerror}") from None
    click.echo(f"wrote {target}; run `snakemake --profile {directory} ...`", err=True)


_NAMES = ("submit", "status", "cancel", "sidecar")


def _status(directory: Path) -> str:
    """Write the profile's own status command; its path, empty where it could not be run."""
    target = directory.resolve() / "sbatch-router-status"
    package = Path(__file__).resolve().parents[2]
    try:
        text = STATUS.format(shebang=shebang(python_for_shim()), package=str(package))
    except ShimError:
        return ""
    if not _is_plain(str(target)):
        return ""
    with target.open("x", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    target.chmod(0o755)
    return str(target)


def _command(name: str) -> str:
    """The full path of a command that was installed with this one."""
    beside = Path(sys.argv[0]).resolve().parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise click.ClickException(f"{name} is not installed beside sbatch-router")
    if not _is_plain(path):
        raise click.ClickException(
            f"{path}: Snakemake runs this without a shell, so its path must have no blanks, "
            "quotes or odd characters"
        )
    return path


def _is_plain(path: str) -> bool:
    """Whether a path is one word to the shell and to YAML."""
    return path.isprintable() and not any(c.isspace() or c in "\"'$\\" for c in path)
