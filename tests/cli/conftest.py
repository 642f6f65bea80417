"""The installed ``sbatch-router``, run as the users of the test cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROGRAM = Path(sys.executable).parent / "sbatch-router"

SEED = """\
version: 1
accounts: [clive, maigan]
blocked:
  - account: brusko
    reason: throttled since March
    since: 2026-03-02
rules:
  - name: long jobs
    when: {time: ">2d"}
  - name: gpu jobs
    when: {gpus: ">0"}
    order: [gpu, mem]
cache: 0
"""


class Result(NamedTuple):
    """What a command left: exit status and both outputs."""

    rc: int
    out: str
    err: str


class Cli:
    """Runs commands as users, each with a state directory of their own."""

    def __init__(self, cluster: Any, run_dir: Any, shim_dir: Path) -> None:
        self.cluster = cluster
        self.run_dir = run_dir
        self.shim_dir = shim_dir

    def env(self, user: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        path = f"{PROGRAM.parent}:{self.cluster.env['PATH']}"
        found = {"PATH": path, "XDG_RUNTIME_DIR": str(self.run_dir(user)), "COLUMNS": "80"}
        found.update(extra or {})
        return found

    def run(
        self,
        *argv: str,
        user: str = "alice",
        env: Mapping[str, str] | None = None,
        program: str = str(PROGRAM),
        **options: Any,
    ) -> Result:
        """``sbatch-router ARGV...`` as a user."""
        done = self.cluster.run_as(
            user, [program, *argv], env=self.env(user, env), check=False, **options
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def sbatch(self, *argv: str, user: str = "alice") -> Result:
        """``sbatch ARGV...`` through the shim."""
        path = f"{self.shim_dir}:{self.cluster.env['PATH']}"
        return self.run(*argv, user=user, env={"PATH": path}, program=f"{self.shim_dir}/sbatch")

    def policy(self, text: str = SEED, user: str = "alice") -> Path:
        """The user's own policy."""
        path: Path = self.cluster.home(user) / ".config/sbatch-router/policy.yaml"
        for place in (path.parent.parent, path.parent):
            place.mkdir(exist_ok=True)
            os.chown(place, self.cluster.uid(user), -1)
        path.write_text(text)
        os.chown(path, self.cluster.uid(user), -1)
        return path

    def log(self, user: str = "alice") -> Path:
        path: Path = self.cluster.home(user) / ".local/state/sbatch-router/decisions.jsonl"
        return path


@pytest.fixture
def cli(cluster: Any, run_dir: Any, shim_dir: Path, clean: None) -> Cli:
    """The command on a cluster without jobs, state, log or policy."""
    made = Cli(cluster, run_dir, shim_dir)
    if not PROGRAM.exists() or made.run("--version").rc:
        pytest.skip(f"users cannot run {PROGRAM}: use tests/run")
    return made


def until(what: Any, timeout: float = 15.0) -> Any:
    """`what()` once it is true."""
    deadline = time.monotonic() + timeout
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < deadline, f"not so after {timeout} s"
        time.sleep(0.1)
