#!/usr/bin/env python3
"""Write docs/man anew: the manual pages, from what the commands say with --help.

python docs/make_man.py
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if "sbatch_router" not in sys.modules:
    sys.path.insert(0, str(ROOT))

import click  # noqa: E402

from sbatch_router import __version__  # noqa: E402
from sbatch_router.cli import COMMANDS, cancel, jobstatus, sidecar, submit  # noqa: E402
from sbatch_router.cli._group import group  # noqa: E402

PLACE = ROOT / "docs" / "man"
#: The programs that Snakemake runs -> what they print with --help, and what they are for.
PROGRAMS = {
    "sbatch-router-submit": (submit.USAGE, "sbatch for Snakemake's cluster-generic executor"),
    "sbatch-router-status": (jobstatus.USAGE, "state of a job, for Snakemake"),
    "sbatch-router-cancel": (cancel.USAGE, "scancel for Snakemake"),
    "sbatch-router-sidecar": (sidecar.USAGE, "what keeps answers fresh beside Snakemake"),
}


def pages() -> dict[str, str]:
    """File name -> text, the same for the same help."""
    found = {"sbatch-router.1": main_page()}
    for name, (usage, purpose) in PROGRAMS.items():
        found[f"{name}.1"] = program_page(name, usage, purpose)
    return found


def main_page() -> str:
    """sbatch-router with all its commands: `sbatch-router-status` is a program of its own."""
    context = click.Context(group, info_name="sbatch-router")
    lines = [_title("sbatch-router"), ".SH NAME"]
    lines.append(text(f"sbatch-router - {_purpose(group)}"))
    lines += [".SH SYNOPSIS", ".B sbatch\\-router", text("COMMAND [OPTIONS] [ARGUMENTS]")]
    lines += [".SH DESCRIPTION", *_described(group, ".SH"), ".SH COMMANDS"]
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        lines += _command(command, click.Context(command, info_name=name, parent=context))
    others = ", ".join(f"{name}(1)" for name in PROGRAMS)
    lines += [".SH SEE ALSO", text(f"sbatch(1), squeue(1), sacctmgr(1), {others}")]
    return "\n".join(lines) + "\n"


def program_page(name: str, usage: str, purpose: str) -> str:
    """One of the programs that Snakemake runs, in its own words."""
    first, _, rest = usage.partition("\n")
    lines = [_title(name), ".SH NAME", text(f"{name} - {purpose}")]
    lines += [".SH SYNOPSIS", text(first.partition("usage: ")[2])]
    lines.append(".SH DESCRIPTION")
    for paragraph in rest.strip("\n").split("\n\n"):
        status = paragraph.partition("exit status: ")[2]
        if status:
            lines += [".SH EXIT STATUS", text(status)]
        elif paragraph.startswith(" "):
            lines += [".PP", *_verbatim(paragraph.split("\n"))]
        else:
            lines += [".PP", text(paragraph)]
    return "\n".join([*lines, ".SH SEE ALSO", text("sbatch-router(1)")]) + "\n"


def _title(name: str) -> str:
    head = f'.TH {name.upper()} 1 "" "sbatch\\-router {__version__}" "User Commands"'
    # Words and margins stay as they are.
    return f"{head}\n.nh\n.ad l"


def _purpose(command: click.Command) -> str:
    return (command.help or "").strip().partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{text(f"sbatch-router {context.info_name} {usage}")}"'
    yield from _described(command, ".PP", whole=True)
    options = [p for p in command.params if isinstance(p, click.Option)]
    yield from (".PP", "Options:") if options else ()
    for option in options:
        record = option.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {text(record[0])}", text(record[1]))


def _described(command: click.Command, heading: str, whole: bool = False) -> Iterator[str]:
    """The help's paragraphs; a block that keeps its lines gets its first line as a heading."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    for paragraph in paragraphs if whole else paragraphs[1:]:
        if not paragraph.startswith("\b"):
            yield ".PP"
            yield text(paragraph)
            continue
        first, *rest = paragraph.split("\n")[1:]
        if heading == ".SH":
            yield f".SH {text(first.rstrip(':').upper())}"
        else:
            yield from (".PP", text(first))
        yield from _verbatim(rest)


def _verbatim(lines: list[str]) -> Iterator[str]:
    yield ".nf"
    yield from text(textwrap.dedent("\n".join(lines))).split("\n")
    yield ".fi"


def text(words: str) -> str:
    """As roff shows it: hyphens stay hyphens, and no line is taken for a request."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    escaped = escaped.replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    escaped = escaped.replace("^", "\\(ha")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in escaped.split("\n"))


def main() -> int:
    """Replace the pages."""
    PLACE.mkdir(exist_ok=True)
    for old in PLACE.glob("*.1"):
        old.unlink()
    for name, page in pages().items():
        (PLACE / name).write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
