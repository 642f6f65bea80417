"""alice and Snakemake with the generated profile, for the tests of the whole loop."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

TOOLS = ":".join(
    dict.fromkeys(
        str(Path(found).parent)
        for found in map(shutil.which, ("sbatch-router-submit", "snakemake"))
        if found
    )
)

WORKFLOW = """\
JOBS = range({jobs})
rule all:
    input: expand("out/{{job}}.txt", job=JOBS)
rule work:
    output: "out/{{job}}.txt"
    resources: mem_mb=100, runtime=5
    shell: "sleep {sleep}; echo $SLURM_JOB_ACCOUNT > {{output}}"
"""


class Loop:
    """alice, her profile and her workflow directory."""

    def __init__(self, cluster, policy_file, run_dir) -> None:
        need_commands()
        self.cluster = cluster
        self.started: list = []
        self.directory = cluster.home("alice") / "loop"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        shutil.chown(self.directory, "alice")
        policy = policy_file("version: 1\naccounts: [maigan, clive]\ncache: 2s\n")
        self.env = {
            "PATH": f"{TOOLS}:{cluster.env['PATH']}",
            "XDG_RUNTIME_DIR": str(run_dir("alice")),
            "SBATCH_ROUTER_POLICY": str(policy),
        }

    def run(self, *argv, check=True, timeout=120):
        return self.cluster.run_as(
            "alice",
            ["env", *map(str, argv)],
            env=self.env,
            cwd=self.directory,
            check=check,
            timeout=timeout,
        )

    def status(self, job) -> str:
        done = self.run("sbatch-router-status", job)
        assert done.stderr == ""
        return done.stdout

    def profile(self, *options) -> Path:
        shutil.rmtree(self.directory / "prof", ignore_errors=True)
        done = self.run("sbatch-router", "snakemake-profile", *options, "prof")
        assert done.stdout == ""
        return self.directory / "prof"

    def start(self, jobs: int, sleep: float, *more):
        """Snakemake with so many jobs of so many seconds, asking for states every second."""
        snakefile = WORKFLOW.format(jobs=jobs, sleep=sleep)
        return self.snakemake(snakefile, "--seconds-between-status-checks", "1", *more)

    def snakemake(self, snakefile: str, *more, profile=()):
        """Snakemake with the generated profile; its words are in `log`."""
        (self.directory / "Snakefile").write_text(snakefile)
        argv = ["snakemake", "--profile", self.profile(*profile)]
        log = (self.directory / "log").open("w")
        started = self.cluster.popen_as(
            "alice",
            ["env", *map(str, [*argv, *more])],
            env=self.env,
            cwd=self.directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.started.append(started)
        return started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """End what a failed test has left running: the next one uses the same directory."""
        for snakemake in self.started:
            if snakemake.poll() is None:
                os.killpg(snakemake.pid, signal.SIGKILL)
                snakemake.wait()

    def sidecars(self) -> list[str]:
        """The process ids of alice's sidecars."""
        asked = ["pgrep", "-u", "alice", "-f", "sbatch-router-sidecar"]
        pids = subprocess.run(asked, capture_output=True, text=True).stdout.split()
        # Asked as alice: in a container root may not look into others' processes.
        environ = [self.run("cat", f"/proc/{pid}/environ", check=False).stdout for pid in pids]
        return [p for p, e in zip(pids, environ) if self.env["XDG_RUNTIME_DIR"] in e]

    def log(self) -> str:
        return (self.directory / "log").read_text()


def need_commands() -> None:
    """Fail where the package is not installed as a user would have it."""
    if "sbatch-router-submit" not in {p.name for d in TOOLS.split(":") for p in Path(d).iterdir()}:
        pytest.fail("sbatch-router-submit is not in PATH: use tests/run")


def user_rpcs(bed) -> int:
    """How often slurmctld was asked for one user's jobs: by status, the sidecar, the router."""
    text = bed.run("sdiag").stdout
    return sum(map(int, re.findall(r"REQUEST_JOB_USER_INFO\s+\(\s*\d+\) count:(\d+)", text)))
