"""Snakemake's own slurm executor through the shim in PATH, on a real cluster.

It calls `sbatch` by name, as ``sbatch --parsable ... [-A ACCOUNT] ... --wrap="..."``, and asks
squeue or sacct for the states.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import pytest
from conftest import SEED_POLICY
from loopbed import TOOLS, need_commands

if sys.version_info < (3, 11):
    pytest.skip("the slurm executor needs Python 3.11", allow_module_level=True)

pytestmark = pytest.mark.cluster

SNAKEFILE = """\
rule all:
    input: expand("{{n}}.txt", n=range(2))
rule work:
    output: "{{n}}.txt"
    resources: mem_mb=64000, runtime=5{more}
    shell: "echo done > {{output}}"
"""
PREFER = SEED_POLICY + "explicit_account: {cli: prefer}\n"


class Lab:
    """alice's workflow, and the shim before Slurm in her PATH."""

    def __init__(self, cluster: Any, shim_dir: Any, run_dir: Any) -> None:
        self.cluster = cluster
        self.directory = cluster.home("alice") / "workflow"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        shutil.chown(self.directory, "alice")
        self.env = {
            "PATH": f"{self.srun()}:{shim_dir}:{TOOLS}:{cluster.env['PATH']}",
            "XDG_RUNTIME_DIR": str(run_dir("alice")),
        }

    def srun(self) -> Any:
        """A directory with an srun that finds this cluster's slurm.conf.

        In the job the executor starts srun without SLURM_CONF, as where that is in /etc.
        """
        directory = self.cluster.directory / "srun"
        directory.mkdir(exist_ok=True)
        script = directory / "srun"
        script.write_text(
            f'#!/bin/sh\nSLURM_CONF={self.cluster.env["SLURM_CONF"]} exec /usr/bin/srun "$@"\n'
        )
        script.chmod(0o755)
        return directory

    def start(self, policy: Any, account: str = "", *options: str) -> Any:
        """Snakemake under a policy, the rule with an account or without; `log` has its words."""
        more = f', slurm_account="{account}"' if account else ""
        (self.directory / "Snakefile").write_text(SNAKEFILE.format(more=more))
        argv = [
            "env", "snakemake", "--executor", "slurm", "--jobs", "5", "--latency-wait", "20",
            "--slurm-init-seconds-before-status-checks", "2", *options,
        ]  # fmt: skip
        return self.cluster.popen_as(
            "alice",
            argv,
            env={**self.env, "SBATCH_ROUTER_POLICY": str(policy)},
            cwd=self.directory,
            stdout=(self.directory / "log").open("w"),
            stderr=subprocess.STDOUT,
        )

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def jobs(self) -> list[str]:
        """STATE ACCOUNT REASON of the jobs since `before`, ended ones as well."""
        rows = [row.partition(" ") for row in self._rows()]
        return [what for ident, _, what in rows if int(ident) > self.before]

    def newest(self) -> int:
        """The id of the last job that there is."""
        return max([int(row.split()[0]) for row in self._rows()] or [0])

    def _rows(self) -> list[str]:
        done = self.cluster.run(
            "squeue", "-h", "-t", "all", "-u", "alice", "-S", "i", "-o", "%A %T %a %r"
        )
        return done.stdout.splitlines()

    def fill(self, account: str, mem: str) -> int:
        user = "bob" if account == "clive" else "carol"
        return self.cluster.hold(user, f"--account={account}", f"--mem={mem}", "-c1")


@pytest.fixture
def lab(cluster: Any, clean: None, shim_dir: Any, run_dir: Any) -> Lab:
    need_commands()
    # Jobs of other tests that have just ended are not ours to count.
    lab = Lab(cluster, shim_dir, run_dir)
    lab.before = lab.newest()
    return lab


@pytest.mark.parametrize(("account", "policy"), [("clive", PREFER), ("", SEED_POLICY)])
def test_jobs_move_off_a_full_account(
    lab: Lab, policy_file: Any, account: str, policy: str
) -> None:
    """An account is the user's own ``-A``: it takes `prefer`. Without one nothing is needed."""
    lab.fill("clive", "310000M")
    snakemake = lab.start(policy_file(policy), account)
    assert snakemake.wait(timeout=180) == 0, lab.log
    assert lab.jobs() == ["COMPLETED maigan None"] * 2
    assert "3 of 3 steps (100%) done" in lab.log


def test_by_default_an_account_is_kept(lab: Lab, policy_file: Any) -> None:
    holder = lab.fill("clive", "310000M")
    snakemake = lab.start(policy_file(), "clive")
    waiting = ["PENDING clive QOSGrpMemLimit"] * 2
    lab.cluster.wait_until(lambda: lab.jobs() == waiting, timeout=60)
    lab.cluster.run("scancel", str(holder))
    assert snakemake.wait(timeout=180) == 0, lab.log
    assert lab.jobs() == ["COMPLETED clive None"] * 2


def test_a_refusal_is_told(lab: Lab, policy_file: Any) -> None:
    lab.fill("clive", "310000M")
    lab.fill("maigan", "620000M")
    snakemake = lab.start(policy_file(PREFER), "clive")
    assert snakemake.wait(timeout=180) == 1
    assert lab.jobs() == []
    assert "SLURM sbatch failed. The error message was 'sbatch-router: not submitted" in lab.log
    assert "[QOSGrpMemLimit]" in lab.log
    assert "next: try again later" in lab.log
