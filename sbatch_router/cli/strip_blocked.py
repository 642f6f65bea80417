"""``sbatch-router strip-blocked FILES...``: blocked accounts out of existing configs."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

import click

from .. import strip
from . import _policy


class Result(NamedTuple):
    """One file: what would become of it, or why nothing."""

    path: Path
    stripped: Optional[strip.Stripped] = None
    #: Nothing to do there: no accounts list.
    odd: str = ""
    refused: str = ""
    backup: Optional[Path] = None


@click.command("strip-blocked", short_help="Take blocked accounts out of YAML configs.")
@click.option("--write", is_flag=True, help="Change the files (a backup stays beside each).")
@click.option(
    "--path",
    default="resources.accounts",
    show_default=True,
    metavar="KEY.KEY",
    help="Where the accounts are in the configs.",
)
@click.option(
    "--account",
    "extra",
    multiple=True,
    metavar="NAME",
    help="Strip these accounts instead of the policy's blocked ones.",
)
@click.option("-q", "--quiet", is_flag=True, help="No diff, only the summary.")
@click.argument("files", nargs=-1, required=True)
@click.pass_context
def command(
    ctx: click.Context,
    write: bool,
    path: str,
    extra: tuple[str, ...],
    quiet: bool,
    files: tuple[str, ...],
) -> None:
    """Take the policy's blocked accounts out of the accounts lists of YAML configs.

    FILES may be patterns ('*/workflow/config.yaml', in quotes or not) and directories, which
    stand for every config.yaml below them. Shows a diff and changes nothing without --write.
    total_gpu_slots, total_cpu_slots and total_slots beside the list are counted again; all
    else in a file stays as it is, to the byte. A file that would be left without an account,
    or that cannot be changed safely, is left alone and named.

    \b
    Examples:
      sbatch-router strip-blocked '*/workflow/config.yaml'
      sbatch-router strip-blocked --write projects/
      sbatch-router strip-blocked --account oldlab --path accounts config.yaml

    \b
    Exit status:
      0  all is as it should be, or without --write would be
      1  a file was refused or could not be written, an account is still named
         somewhere in one, or no usable policy
    """
    accounts = extra or _blocked()
    found, nothing = strip.find_files(files)
    for name in nothing:
        click.echo(f"sbatch-router: {name}: no config there", err=True)
    results = [examine(file, accounts, path, write) for file in found]
    for result in results:
        if not quiet and not write and result.stripped is not None and result.stripped.removed:
            click.echo(diff(result), nl=False)
        if result.odd or result.refused:
            click.echo(f"sbatch-router: {result.path}: {result.odd or result.refused}", err=True)
    for line in summary(results, accounts, write):
        click.echo(line)
    failed = bool(nothing) or any(
        r.refused or (r.stripped and r.stripped.references) for r in results
    )
    ctx.exit(1 if failed else 0)


def _blocked() -> tuple[str, ...]:
    policy = _policy.in_use(_policy.environment())
    names = tuple(dict.fromkeys(entry.account for entry in policy.blocked))
    if not names:
        raise click.ClickException(
            f"{policy.files[0] if policy.files else 'the policy'} blocks no account: list them "
            "under `blocked:` there, or name them with --account"
        )
    return names


def examine(file: Path, accounts: Sequence[str], path: str, write: bool) -> Result:
    """Strip one file; with `write` also on disk."""
    try:
        text = strip.read(file)
        stripped = strip.strip(text, accounts, path)
        backup = strip.write(file, text, stripped.after) if write and stripped.removed else None
        return Result(file, stripped, backup=backup)
    except strip.NoAccounts as error:
        return Result(file, odd=f"{error}: left as it is")
    except strip.Refused as error:
        return Result(file, refused=f"left as it is: {error}")


def diff(result: Result) -> str:
    """A unified diff, as ``patch`` reads it."""
    assert result.stripped is not None
    lines = difflib.unified_diff(
        _lines(result.stripped.before),
        _lines(result.stripped.after),
        f"a/{str(result.path).lstrip('/')}",
        f"b/{str(result.path).lstrip('/')}",
    )
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


def _lines(text: str) -> List[str]:
    return text.splitlines(keepends=True) if "\r" not in text else _only_newlines(text)


def _only_newlines(text: str) -> List[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def summary(results: Sequence[Result], accounts: Sequence[str], write: bool) -> List[str]:
    """As the seed's: how many of how many, and what is still named."""
    updated = [r for r in results if r.stripped is not None and r.stripped.removed]
    clean = [r for r in results if r.stripped is not None and not r.stripped.removed]
    odd = [r for r in results if r.odd]
    refused = [r for r in results if r.refused]
    references = [
        (r.path, line, name)
        for r in results
        if r.stripped is not None
        for line, name in r.stripped.references
    ]
    verb = "updated" if write else "would be updated"
    text = f"{len(updated)} of {len(results)} {verb}, {len(references)} references left"
    if refused:
        # Nobody has looked at what those name.
        text += " in the others"
    rest = (
        (len(clean), "without a blocked account"),
        (len(odd), "without an accounts list"),
        (len(refused), "refused"),
    )
    parts = [f"{number} {words}" for number, words in rest if number]
    lines = [f"{path}:{line}: {name} is still named" for path, line, name in references]
    lines.append(f"{text} ({', '.join(accounts)})" + (f"; {', '.join(parts)}" if parts else ""))
    if updated:
        lines.append("backups: FILE.bak" if write else "nothing was changed: --write does it")
    return lines
