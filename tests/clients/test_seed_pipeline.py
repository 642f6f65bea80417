"""docs/examples/seed-pipeline, run by real Snakemake on a real cluster."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if sys.version_info < (3, 11):
    pytest.skip("Snakemake 9 needs Python 3.11", allow_module_level=True)

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "seed-pipeline"
BIN = Path(sys.executable).parent

POLICY = """\
version: 1
accounts: [clive, maigan]
blocked:
  - {account: brusko, reason: full since March}
rules:
  - name: gpu jobs
    when: {gpus: ">0"}
    order: [gpu, mem]
when_full: queue
cache: 0
"""

#: The seed's own smoke test line.
SMOKE = (
    'live_accounts=[{"name":"clive","gpu_avail":0,"cpu_avail":0,"mem_avail_gb":0},'
    '{"name":"maigan","gpu_avail":2,"cpu_avail":8,"mem_avail_gb":625}]'
)

#: The five stuck jobs of the seed, pinned to clive as its static assignment did.
STUCK = """\
rule all:
    input: expand("cyc{cycle}.txt", cycle=["01", "05", "07", "09"]), "qc_stitch.txt"
rule decon:
    output: "cyc{cycle}.txt"
    threads: 4
    resources: mem_mb=128000, gpu=1, runtime=60, slurm_account="clive"
    shell: "sleep 2; echo $SLURM_JOB_ACCOUNT > {output}"
rule qc_stitch:
    output: "qc_stitch.txt"
    threads: 4
    resources: mem_mb=64000, runtime=60, slurm_account="clive"
    shell: "sleep 2; echo $SLURM_JOB_ACCOUNT > {output}"
"""


class Pipeline:
    """A copy of the example in alice's home."""

    def __init__(self, cluster: Any, policy: Path, run_dir: Path) -> None:
        self.cluster = cluster
        self.directory = cluster.home("alice") / "pipeline"
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(EXAMPLE, self.directory, ignore=shutil.ignore_patterns(".snakemake"))
        for path in (self.directory, *self.directory.rglob("*")):
            os.chown(path, cluster.uid("alice"), -1)
        # The installed script may belong to a Python that has not this package (tests/run).
        tools = self.directory / "bin"
        tools.mkdir()
        (tools / "snakemake").write_text(f'#!/bin/sh\nexec {sys.executable} -m snakemake "$@"\n')
        (tools / "snakemake").chmod(0o755)
        self.env = {
            "PATH": f"{tools}:{BIN}:{cluster.env['PATH']}",
            "XDG_RUNTIME_DIR": str(run_dir),
            "SBATCH_ROUTER_POLICY": str(policy),
        }
        #: As a profile of ours has it, without the status command, whose answers may be 10 s old.
        self.direct = [
            "--executor", "cluster-generic", "--cluster-generic-submit-cmd", "sbatch-router-submit",
            "--cluster-generic-cancel-cmd", "sbatch-router-cancel", "--latency-wait", "20",
            "--seconds-between-status-checks", "1", "-j", "20",
        ]  # fmt: skip

    def run(self, *argv: str, check: bool = True, timeout: float = 180, **env: str) -> Any:
        done = self.cluster.run_as(
            "alice", ["env", *argv], env={**self.env, **env}, cwd=self.directory, check=False,
            timeout=timeout,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def popen(self, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        found: subprocess.Popen[bytes] = self.cluster.popen_as(
            "alice", ["env", *argv], env={**self.env, **env}, cwd=self.directory,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        return found

    def profile(self) -> list[str]:
        """The profile that `sbatch-router snakemake-profile` writes."""
        self.run("sbatch-router", "snakemake-profile", "profile")
        return ["--profile", "profile", "--seconds-between-status-checks", "1"]

    def result(self) -> dict[str, str]:
        """Item or rule -> the account its job ran on."""
        text = (self.directory / "results/registered.txt").read_text()
        return dict(line.split() for line in text.splitlines())

    def planned(self, done: Any) -> Counter[str]:
        """The accounts in the resources that a dry run prints for decon."""
        return Counter(
            part.partition("=")[2]
            for block in done.stdout.split("\n\n")
            if "rule decon:" in block
            for line in block.splitlines()
            if line.strip().startswith("resources:")
            for part in line.replace(",", " ").split()
            if part.startswith("slurm_account=")
        )


@pytest.fixture
def pipeline(cluster: Any, clean: None, policy_file: Any, run_dir: Any) -> Any:
    """With the seed's two GPUs on maigan; the spec's four afterwards."""
    found = Pipeline(cluster, policy_file(POLICY, "pipeline.yaml"), run_dir("alice"))
    if found.run("snakemake", "--version", check=False).returncode:
        pytest.fail("users cannot run snakemake: use tests/run")
    cluster.apply({"qos": {"maigan": {"GrpTRES": "cpu=160,mem=640000M,gres/gpu=2"}}})
    yield found
    cluster.apply({"qos": {"maigan": {"GrpTRES": "cpu=160,mem=640000M,gres/gpu=4"}}})


def fill_clive(cluster: Any) -> None:
    cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")


def until(what: Callable[[], Any], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, f"not so after {timeout} s"
        time.sleep(0.2)


NINE = {"clive": 3, "maigan": 6}


def test_the_seeds_regression(pipeline: Pipeline) -> None:
    """Slots 1 and 2, nine cycles: 3 and 6; clive full: all on maigan; nothing live: 3 and 6."""
    run = ("sbatch-router", "run", "--", "snakemake", "-n", "-p")
    assert pipeline.planned(pipeline.run(*run)) == NINE
    # Plain snakemake asks Slurm itself.
    assert pipeline.planned(pipeline.run("snakemake", "-n", "-p")) == NINE
    fill_clive(pipeline.cluster)
    assert pipeline.planned(pipeline.run(*run)) == {"maigan": 9}
    assert pipeline.planned(pipeline.run("snakemake", "-n", "-p")) == {"maigan": 9}
    # Nothing live is known: no policy, or no Slurm.
    nothing = pipeline.run("snakemake", "-n", "-p", SBATCH_ROUTER_POLICY="")
    assert pipeline.planned(nothing) == NINE
    conf = str(pipeline.directory / "none.conf")
    silent = pipeline.run("snakemake", "-n", "-p", SLURM_CONF=conf, XDG_RUNTIME_DIR="")
    assert pipeline.planned(silent) == NINE
    assert "using the config's static slots" in silent.stderr


def test_the_seeds_smoke_test(pipeline: Pipeline) -> None:
    done = pipeline.run("snakemake", "--config", SMOKE, "-np", "results/stitched.txt")
    assert pipeline.planned(done) == {"maigan": 9}
    shown = pipeline.run("sbatch-router", "run", "--dry-run", "--", "snakemake", "-np")
    assert "--config 'live_accounts=[{" in shown.stdout
    assert shown.stdout.startswith("snakemake -np")


def test_dag_time_really_run(pipeline: Pipeline) -> None:
    """Nothing is routed at submission (SBATCH_ROUTER=off): the assignment alone decides."""
    fill_clive(pipeline.cluster)
    done = pipeline.run(
        "sbatch-router", "run", "--", "snakemake", *pipeline.direct,
        "--config", "cycles=[c1,c2,c3]", SBATCH_ROUTER="off",
    )  # fmt: skip
    assert "live_accounts=" in done.stderr
    names = ("c1", "c2", "c3", "qc_stitch", "registration")
    assert pipeline.result() == dict.fromkeys(names, "maigan")


def test_submit_time_really_run(pipeline: Pipeline) -> None:
    """No account in the Snakefile; each job is routed when it is submitted."""
    fill_clive(pipeline.cluster)
    more = ("--config", "routing=submit", "cycles=[c1,c2]")
    pipeline.run("snakemake", *pipeline.profile(), *more)
    names = ("c1", "c2", "qc_stitch", "registration")
    assert pipeline.result() == dict.fromkeys(names, "maigan")


def test_a_stuck_workflow_is_rerouted_and_completes(pipeline: Pipeline) -> None:
    """Five jobs jammed behind bob: explained, moved, run; their workflow never knows."""
    cluster = pipeline.cluster
    cluster.apply({"qos": {"maigan": {"GrpTRES": "cpu=160,mem=640000M,gres/gpu=4"}}})
    fill_clive(cluster)
    (pipeline.directory / "Snakefile").write_text(STUCK)
    process = pipeline.popen("snakemake", *pipeline.direct, SBATCH_ROUTER="off")

    def reasons() -> list[str]:
        done = cluster.run("squeue", "-h", "-u", "alice", "-o", "%a %r")
        return sorted(done.stdout.splitlines())

    until(lambda: reasons() == ["clive QOSGrpMemLimit"] * 5)
    before = cluster.run("squeue", "-h", "-u", "alice", "-o", "%A", "-S", "i").stdout.split()
    shown = pipeline.run("sbatch-router", "diagnose").stdout
    assert shown.startswith("5 pending jobs: 5 to look at, 0 normal")
    assert "held by  bob 256G in 1 job, since " in shown
    assert "maigan/maigan would take it" in shown
    done = pipeline.run("sbatch-router", "reroute")
    assert done.stdout.endswith("5 of 5 moved\n")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    told = {path.read_text() for path in pipeline.directory.glob("*.txt")}
    assert told == {"maigan\n"}
    # The same five jobs: nothing was submitted again.
    every = cluster.run("squeue", "-h", "-t", "all", "-u", "alice", "-o", "%A").stdout.split()
    assert sorted(job for job in every if int(job) >= int(before[0])) == sorted(before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_snakemake_and_its_jobs(pipeline: Pipeline, number: int) -> None:
    """SIGTERM as well, on which Snakemake alone would wait for its jobs."""
    process = pipeline.popen(
        "sbatch-router", "run", "--", "snakemake", *pipeline.direct,
        "--config", "cycles=[c1]", "work=300",
    )  # fmt: skip

    def states() -> list[str]:
        done = pipeline.cluster.run("squeue", "-h", "-u", "alice", "-t", "R,PD", "-o", "%T")
        return [str(line) for line in done.stdout.splitlines()]

    until(lambda: states() == ["RUNNING"])
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert b"Terminating processes on user request" in err
    until(lambda: not states())


def test_nothing_available(pipeline: Pipeline) -> None:
    """The hard failure comes before Snakemake: it leaves no trace."""
    cluster = pipeline.cluster
    cluster.hold("bob", "-A", "clive", "--mem=320000M", "-c8")
    cluster.hold("carol", "-A", "maigan", "--mem=640000M", "-c8")
    done = pipeline.run("sbatch-router", "run", "--", "snakemake", check=False)
    assert done.returncode == 75
    assert "held by carol 625G" in done.stderr
    assert not (pipeline.directory / ".snakemake").exists()
