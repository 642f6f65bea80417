"""`install-shim` beyond the shim itself, completion, help, and bugs of ours."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sbatch_router import shim
from sbatch_router.cli import COMMANDS
from sbatch_router.cli._group import group
from sbatch_router.cli.install_shim import module_text


def run(*args: str, env: dict[str, str] | None = None) -> Any:
    # Until click 8.2 both outputs were one unless this was said.
    mixed = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(mix_stderr=False) if mixed else CliRunner()
    return runner.invoke(group, args, env=env)


@pytest.mark.parametrize(
    ("shell", "line", "startup"),
    [
        ("sh", "export PATH='{}':$PATH\n", "~/.profile"),
        ("bash", "export PATH='{}':$PATH\n", "~/.bashrc"),
        ("zsh", "export PATH='{}':$PATH\n", "~/.zshrc"),
        ("fish", "set -gx PATH '{}' $PATH\n", "~/.config/fish/config.fish"),
        ("tcsh", "set path = ('{}' $path:q)\n", "~/.tcshrc"),
    ],
)
def test_the_line_of_each_shell(tmp_path: Path, shell: str, line: str, startup: str) -> None:
    place = tmp_path / "a b"
    found = run("install-shim", "--shell", shell, str(place), env={"SHELL": "/bin/bash"})
    assert (found.exit_code, found.stdout) == (0, line.format(place))
    assert found.stderr == f"wrote {place}/sbatch; put this line into {startup}:\n"
    assert not shim.is_real(f"{place}/sbatch")


def test_other_shells_are_told(tmp_path: Path) -> None:
    found = run("install-shim", str(tmp_path), env={"SHELL": "/usr/bin/fish"})
    assert found.stdout == f"export PATH={tmp_path}:$PATH\n"
    assert found.stderr.endswith("your shell is fish: add --shell fish\n")


@pytest.mark.parametrize("shell", ["bash", "sh", "zsh", "fish", "tcsh"])
def test_the_line_works(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    place = tmp_path / "it's $HOME"
    line = run("install-shim", "--shell", shell, str(place)).stdout
    done = subprocess.run(
        [program, "-c", line + "command -v sbatch"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{place}/sbatch\n"


def test_uninstall(tmp_path: Path) -> None:
    run("install-shim", str(tmp_path))
    found = run("install-shim", "--uninstall", str(tmp_path))
    assert (found.exit_code, found.stdout) == (0, "")
    assert found.stderr.splitlines()[0] == f"removed {tmp_path}/sbatch"
    again = run("install-shim", "--uninstall", str(tmp_path))
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == f"Error: {tmp_path}/sbatch does not exist\n"


def test_module_files(tmp_path: Path) -> None:
    place = tmp_path / "bin"
    for name in ("1.0", "2.0.lua"):
        module = tmp_path / "modules" / "router" / name
        found = run("install-shim", str(place), "--module", str(module))
        assert found.exit_code == 0
        assert found.stdout == f"export PATH={place}:$PATH\n"
        assert found.stderr.splitlines()[:3] == [
            f"wrote {place}/sbatch and {module}",
            f"next: module use {tmp_path}/modules",
            f"      module load router/{name[:3]}",
        ]
        text = module.read_text()
        assert text.startswith("#%Module1.0\n" if name == "1.0" else "-- sbatch-router ")
        # Ours may be written again.
        assert run("install-shim", str(place), "--module", str(module)).exit_code == 0
    module.write_text("-- a site's own\n")
    found = run("install-shim", str(tmp_path / "other"), "--module", str(module))
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == (f"Error: {module} is not a module file of ours: choose another name\n")
    assert not (tmp_path / "other").exists()
    assert module.read_text() == "-- a site's own\n"


def test_what_a_module_file_must_escape(tmp_path: Path) -> None:
    odd = '/a b/$HOME/[exit]/"q"\\'
    assert 'prepend-path PATH "/a b/\\$HOME/\\[exit\\]/\\"q\\"\\\\"' in module_text(odd, False)
    assert 'prepend_path("PATH", "/a b/$HOME/[exit]/\\"q\\"\\\\")' in module_text(odd, True)
    tclsh = shutil.which("tclsh")
    if tclsh:
        script = tmp_path / "m.tcl"
        stub = "proc module-whatis x {}\nproc prepend-path {a b} {puts $b}\n"
        script.write_text(stub + module_text(odd, False))
        done = subprocess.run([tclsh, script], capture_output=True, text=True, check=True)
        assert done.stdout == odd + "\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    found = run("completion", shell)
    assert (found.exit_code, found.stderr) == (0, "")
    assert "_SBATCH_ROUTER_COMPLETE" in found.stdout
    program = shutil.which(shell)
    if program:
        subprocess.run([program, "-n"], input=found.stdout, text=True, check=True)


def test_completion_of_an_unknown_shell() -> None:
    found = run("completion", "csh")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "'csh' is not one of 'bash', 'fish', 'zsh'" in found.stderr


OURS = ("completion", "doctor", "explain", "history", "init", "install-shim", "status")


@pytest.mark.parametrize("name", OURS)
def test_help_reads_like_a_manual(name: str) -> None:
    assert name in COMMANDS
    for flag in ("--help", "-h"):
        found = run(name, flag)
        assert (found.exit_code, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    if name != "completion":
        assert "  Exit status:" in lines


def test_a_bug_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("sbatch_router.cli._policy.environment", broken)
    found = run("explain", "--", "x", env={"SBATCH_ROUTER_DEBUG": ""})
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == (
        "Error: internal error: RuntimeError: boom; please report it, with what "
        "SBATCH_ROUTER_DEBUG=1 adds\n"
    )
    with pytest.raises(RuntimeError):
        CliRunner().invoke(
            group, ["explain"], env={"SBATCH_ROUTER_DEBUG": "1"}, catch_exceptions=False
        )
    assert os.environ.get("SBATCH_ROUTER_DEBUG") is None
