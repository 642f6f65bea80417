"""Real Snakemake, its cluster-generic executor and sbatch-router-submit on a real cluster."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

if sys.version_info < (3, 11):
    pytest.skip("Snakemake 9 needs Python 3.11", allow_module_level=True)

TOOLS = ":".join(
    dict.fromkeys(
        str(Path(found).parent)
        for found in (shutil.which("sbatch-router-submit"), shutil.which("snakemake"))
        if found
    )
)

JAM = """\
CYCLES = ["01", "05", "07", "09"]
rule all:
    input: expand("decon/cyc{cycle}.txt", cycle=CYCLES), "qc_stitch.txt"
rule decon:
    output: "decon/cyc{cycle}.txt"
    threads: 8
    resources: mem_mb=128000, gpu=1, runtime=60
    shell: "echo $SLURM_JOB_ACCOUNT > {output}"
rule qc_stitch:
    output: "qc_stitch.txt"
    threads: 4
    resources: mem_mb=64000, runtime=60
    shell: "echo $SLURM_JOB_ACCOUNT > {output}"
"""

GROUP = """\
rule all:
    input: "b.txt"
rule a:
    output: "a.txt"
    group: "g"
    retries: 2
    resources: mem_mb=300, runtime=10
    shell: "echo $SLURM_JOB_ACCOUNT > {output}"
rule b:
    input: "a.txt"
    output: "b.txt"
    group: "g"
    threads: 2
    resources: mem_mb=200, runtime=20
    shell: "cat {input} > {output}"
"""

ONE = """\
rule one:
    output: "one.txt"
    resources: mem_mb=1000, runtime=5{more}
    shell: "echo $SLURM_JOB_ACCOUNT > {{output}}"
"""


class Lab:
    """alice's workflows on the cluster, and what became of their jobs."""

    def __init__(self, cluster: Any, policy_file: Any, run_dir: Any) -> None:
        self.cluster = cluster
        self.policy_file = policy_file
        self.run_dir = run_dir
        self.directory = cluster.home("alice") / "workflow"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        shutil.chown(self.directory, "alice")

    def env(self, policy: Path | None) -> dict[str, str]:
        found = {
            "PATH": f"{TOOLS}:{self.cluster.env['PATH']}",
            "XDG_RUNTIME_DIR": str(self.run_dir("alice")),
        }
        return found if policy is None else {**found, "SBATCH_ROUTER_POLICY": str(policy)}

    def submit(self, *argv: str, policy: Path | None = None) -> Any:
        """sbatch-router-submit itself, as alice."""
        return self.cluster.run_as(
            "alice",
            ["env", "sbatch-router-submit", *argv],
            env=self.env(policy),
            cwd=self.directory,
            check=False,
        )

    def snakemake(self, snakefile: str, *options: str, policy: Path | None = None) -> Any:
        (self.directory / "Snakefile").write_text(snakefile)
        argv = [
            "env", "snakemake", "--executor", "cluster-generic", "--jobs", "5",
            "--cluster-generic-submit-cmd", "sbatch-router-submit",
            "--seconds-between-status-checks", "1", "--latency-wait", "20", *options,
        ]  # fmt: skip
        return self.cluster.run_as(
            "alice", argv, env=self.env(policy), cwd=self.directory, check=False, timeout=120
        )

    def jobs(self) -> list[str]:
        """alice's jobs, ended ones as well."""
        done = self.cluster.run("squeue", "-h", "-t", "all", "-u", "alice", "-o", "%A", "-S", "i")
        return done.stdout.split()

    def look(self, job: str) -> dict[str, str]:
        text = self.cluster.run("scontrol", "-o", "show", "job", job).stdout
        return dict(word.partition("=")[::2] for word in text.split())

    def where(self, jobs: Sequence[str]) -> set[str]:
        return {"{Account}/{QOS}".format(**self.look(job)) for job in jobs}

    def log(self) -> list[dict[str, Any]]:
        path = self.cluster.home("alice") / ".local/state/sbatch-router/decisions.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def fill(self, account: str, mem: str) -> None:
        user = "bob" if account == "clive" else "carol"
        self.cluster.hold(user, f"--account={account}", f"--mem={mem}", "-c1")


@pytest.fixture
def lab(cluster: Any, clean: None, policy_file: Any, run_dir: Any) -> Lab:
    if "sbatch-router-submit" not in {p.name for d in TOOLS.split(":") for p in Path(d).iterdir()}:
        pytest.fail("sbatch-router-submit is not in PATH: use tests/run")
    return Lab(cluster, policy_file, run_dir)


def submitted(done: Any) -> list[str]:
    """The ids that Snakemake took from the submit command."""
    return re.findall(r"with external jobid '([^']*)'", done.stderr)


def test_the_jam_runs_on_maigan(lab: Lab) -> None:
    lab.fill("clive", "256G")
    before = lab.jobs()
    done = lab.snakemake(JAM, policy=lab.policy_file())
    assert done.returncode == 0, done.stderr
    jobs = [job for job in lab.jobs() if job not in before]
    assert sorted(submitted(done)) == sorted(jobs)
    assert len(jobs) == 5
    assert lab.where(jobs) == {"maigan/maigan"}
    told = {path.read_text() for path in lab.directory.glob("**/*.txt")}
    assert told == {"maigan\n"}
    assert done.stderr.count("sbatch-router: submitted to maigan/maigan: ") == 5
    found = {lab.look(job)["JobName"]: lab.look(job) for job in jobs}
    assert set(found) == {"decon.01", "decon.05", "decon.07", "decon.09", "qc_stitch"}
    decon = found["decon.01"]
    assert (decon["NumCPUs"], decon["MinMemoryNode"], decon["TimeLimit"]) == (
        "8", "125G", "01:00:00",
    )  # fmt: skip
    assert re.search(r"gres[/:]gpu[:=]1", decon["TresPerJob"]), decon
    # The decision and the job are found together by the process that took it.
    decisions = {r["pid"]: r for r in lab.log() if r["event"] == "decision"}
    ids = [r for r in lab.log() if r["event"] == "submitted"]
    assert {decisions[r["pid"]]["account"] for r in ids} == {"maigan"}
    assert sorted(r["job_id"] for r in ids) == sorted(jobs)


def test_a_refusal_fails_the_workflow_and_says_why(lab: Lab) -> None:
    lab.fill("clive", "310000M")
    lab.fill("maigan", "620000M")
    before = lab.jobs()
    done = lab.snakemake(JAM, policy=lab.policy_file())
    assert done.returncode != 0
    assert lab.jobs() == before
    assert submitted(done) == []
    assert "sbatch-router: not submitted: every account is full" in done.stderr
    assert "[QOSGrpMemLimit]" in done.stderr
    assert "Error submitting jobscript (exit code 75)" in done.stderr


def test_no_policy_is_plain_sbatch(lab: Lab) -> None:
    done = lab.snakemake(ONE.format(more=""))
    assert done.returncode == 0, done.stderr
    assert "sbatch-router: " not in done.stderr
    (job,) = submitted(done)
    assert lab.where([job]) == {"clive/clive"}
    assert lab.look(job)["TimeLimit"] == "00:05:00"


def test_an_account_of_the_rule_is_a_preference(lab: Lab) -> None:
    """As an #SBATCH line is: used while it has room, left when it has none, kept if told to."""
    from conftest import SEED_POLICY

    script = lab.directory / "job.sh"
    properties = {"rule": "r", "resources": {"mem_mb": 1000, "slurm_account": "clive"}}
    script.write_text(f"#!/bin/sh\n# properties = {json.dumps(properties)}\nsleep 1\n")
    policy = lab.policy_file()
    kept = lab.policy_file(SEED_POLICY + "explicit_account: {script: keep}\n", "keep.yaml")

    first = lab.submit(str(script), policy=policy)
    assert first.stderr == ""
    lab.cluster.scancel_all()
    lab.fill("clive", "319500M")
    second = lab.submit(str(script), policy=policy)
    third = lab.submit(str(script), policy=kept)
    ids = [done.stdout.strip() for done in (first, second, third)]
    found = [lab.where([job]) for job in ids]
    assert found == [{"clive/clive"}, {"maigan/maigan"}, {"clive/clive"}]


def test_a_group_job(lab: Lab) -> None:
    """B70: a group has no rule and no wildcards; a policy on `rule` does not match it."""
    from conftest import SEED_POLICY

    rules = "rules:\n  - {name: by rule, when: {rule: 'a'}, order: [cpu]}\n"
    rules += "  - {name: by attempt, when: {attempt: '>1'}, order: [cpu]}\n"
    policy = lab.policy_file(SEED_POLICY.replace("rules:\n", rules))
    lab.fill("clive", "319500M")
    done = lab.snakemake(GROUP, policy=policy)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (job,) = submitted(done)
    found = lab.look(job)
    assert (found["Account"], found["JobName"]) == ("maigan", "g")
    assert (found["MinMemoryNode"], found["NumCPUs"], found["TimeLimit"]) == (
        "300M", "2", "00:30:00",
    )  # fmt: skip
    assert (lab.directory / "b.txt").read_text() == "maigan\n"


@pytest.mark.parametrize("options", [[], ["--parsable"], ["-Q"], ["--parsable", "-Q"], ["-vQ"]])
def test_stdout_is_the_bare_id(lab: Lab, options: list[str]) -> None:
    """B36: whatever sbatch itself prints with these; with -Q that is nothing at all."""
    done = lab.submit(*options, "-t1", "--mem=10", "--wrap", "true", policy=lab.policy_file())
    assert re.fullmatch(r"[1-9]\d*\n", done.stdout), done
    assert done.stdout.strip() in lab.jobs()


def test_a_cluster_in_the_id(lab: Lab) -> None:
    """B52: status and cancel get an id that squeue, sacct and scancel take."""
    name = lab.cluster.spec.cluster
    done = lab.submit("-M", name, "-t1", "--mem=10", "--wrap", "sleep 60")
    assert re.fullmatch(r"[1-9]\d*\n", done.stdout), done
    assert lab.log()[-1]["cluster"] == name
    lab.cluster.run_as("alice", ["scancel", done.stdout.strip()])


def test_errors_of_sbatch_itself(lab: Lab) -> None:
    """Its words and its status, and nothing on stdout."""
    policy = lab.policy_file()
    for argv in (["/no/such/script"], ["--mem=1.5G", "--wrap", "true"], ["-A", "x", "--wrap", "t"]):
        done = lab.submit(*argv, policy=policy)
        bare = lab.cluster.run_as("alice", ["sbatch", *argv], check=False)
        assert (done.returncode, done.stdout) == (bare.returncode, "")
        assert done.stderr.endswith(bare.stderr)
        assert bare.returncode != 0
