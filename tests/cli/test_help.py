"""--help and the manual pages: they read alike, fit 80 columns, and are today's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sbatch_router.cli import COMMANDS
from sbatch_router.cli._group import group

from .conftest import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("submit", "status", "cancel", "sidecar")


def help_of(*argv: str) -> str:
    found = CliRunner().invoke(
        group, [*argv, "--help"], prog_name="sbatch-router", terminal_width=80
    )
    assert found.exit_code == 0
    return found.output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_help_of_a_command(name: str) -> None:
    text = help_of(name)
    assert text.startswith(f"Usage: sbatch-router {name} ")
    assert max(map(len, text.splitlines())) <= 80
    # What it does, in a sentence of its own that fits a line or two.
    assert re.match(r"(?s)  [A-Z].{20,150}[.)]\n\n", text.partition("\n\n")[2]), text
    assert re.search(rf"(?m)^  Examples?[:,].*\n    \S*.*{name}", text), text
    assert re.search(r"(?m)^  Exit status:.*\n    (\d|  )", text), text
    assert not re.search(r"-\n", text), "a name broken at its hyphen"


def test_the_list_of_commands_is_whole() -> None:
    text = help_of()
    assert max(map(len, text.splitlines())) <= 80
    listed = text.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == sorted(COMMANDS)
    assert "..." not in "".join(listed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_that_snakemake_runs(name: str) -> None:
    for flag in ("--help", "-h"):
        program = PROGRAM.with_name(f"sbatch-router-{name}")
        done = subprocess.run([program, flag], capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"usage: sbatch-router-{name} ")
        assert "\nexit status: " in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.fixture(scope="module")
def make_man() -> Any:
    spec = importlib.util.spec_from_file_location("make_man", ROOT / "docs" / "make_man.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_current(make_man: Any) -> None:
    written = {path.name: path.read_text() for path in (ROOT / "docs" / "man").glob("*.1")}
    assert written == make_man.pages(), "run: python docs/make_man.py"


def test_roff_is_escaped(make_man: Any) -> None:
    assert make_man.text(".x\n'y' a-b \\") == "\\&.x\n\\(aqy\\(aq a\\-b \\e"


def test_the_pages_as_man_shows_them() -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff")
    for path in sorted((ROOT / "docs" / "man").glob("*.1")):
        command = ["groff", "-man", "-Tascii", "-ww", "-b", "-rLL=78n", "-P-cbou", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (0, "")
        assert max(map(len, done.stdout.splitlines())) <= 80
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
            assert f"\n{section}\n" in done.stdout


def test_the_pages_are_installed() -> None:
    place = Path(sys.prefix) / "share" / "man" / "man1" / "sbatch-router.1"
    if not os.environ.get("SBATCH_ROUTER_TESTS_RUN"):
        pytest.skip("only tests/run installs them")
    assert place.read_text() == (ROOT / "docs" / "man" / "sbatch-router.1").read_text()
