#!/usr/bin/env python3
"""The seed's jam on a real cluster: plain sbatch, the router, Snakemake, and both pools full.

Started by `containers/demo`, which installs what this needs. Exits 0 when everything went as
it says, 1 when not.
"""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from slurmbed import BedError, Cluster
from slurmbed.cluster import Completed

POLICY = """\
version: 1
accounts: [clive, maigan]
blocked:
  - account: brusko
    reason: throttled to 1 GPU and full since March; the PI asked us to stay off
rules:
  - name: gpu jobs
    when: {gpus: ">0"}
    order: [gpu, mem]
when_full: refuse
"""

SNAKEFILE = """\
CYCLES = ["01", "05", "07", "09"]

rule all:
    input: expand("decon/cyc{cycle}.txt", cycle=CYCLES), "qc_stitch.txt"

rule decon:
    output: "decon/cyc{cycle}.txt"
    threads: 8
    resources: mem_mb=128000, gpu=1, runtime=60
    shell: "sleep 1; echo $SLURM_JOB_ACCOUNT > {output}"

rule qc_stitch:
    output: "qc_stitch.txt"
    threads: 4
    resources: mem_mb=64000, runtime=60
    shell: "sleep 1; echo $SLURM_JOB_ACCOUNT > {output}"
"""

DECON = ("--gres=gpu:1", "--cpus-per-task=8", "--mem=125G")
QC_STITCH = ("--cpus-per-task=4", "--mem=64000M")
#: The five jobs of the jam: name, and what each asks for.
JAM = (*((f"decon{cycle}", DECON) for cycle in ("01", "05", "07", "09")), ("qc_stitch", QC_STITCH))


class Row(NamedTuple):
    """One job in the closing table."""

    how: str
    job: str
    account: str
    state: str
    reason: str
    waited: str


class Demo:
    """The story, told by a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rows: list[Row] = []
        self.failures: list[str] = []
        self.bin = cluster.home("alice") / "bin"
        self.tools = str(Path(sys.executable).parent)
        # 24.11's slurmctld now and then sleeps 5 s over requests that come fast, and the
        # router goes on without an answer after 2.
        self.pause = 0.5 if (23, 11) <= cluster.release < (25, 11) else 0.0

    def run(self) -> None:
        """All acts, in order."""
        self.fill_clive()
        self.plain()
        self.install()
        self.routed()
        self.snakemake()
        self.full()

    # -- the acts ------------------------------------------------------------------------------

    def fill_clive(self) -> None:
        """bob's job leaves 56.5 GB of clive's 312.5: less than alice's smallest job asks for."""
        title("bob runs a 256 GB job in pool clive, which has 312.5 GB for the whole group")
        job = self.submit("bob", "busy", "-A", "clive", "--mem=256G", "--wrap=sleep 600")
        self.cluster.wait_until(lambda: self.look(job)["JobState"] == "RUNNING", what="bob runs")
        self.shell("bob", ["squeue", "--format=%i %u %a %j %T %m %R"])

    def plain(self) -> None:
        """alice's default account is clive: nothing of hers starts."""
        title("alice submits four GPU jobs and one QC job with plain sbatch (default: clive)")
        jobs = [self.submit("alice", name, *asks, "--wrap=sleep 2") for name, asks in JAM]
        began = time.monotonic()
        for job in jobs:
            state, reason = self.cluster.wait_reason(job, ignore=("None", "", "Priority"))
            stuck = (state, reason) == ("PENDING", "QOSGrpMemLimit")
            self.expect(stuck, f"plain job {job} is {state} {reason}, not stuck")
        self.shell("alice", ["squeue", "--me", "--format=%i %u %a %j %T %m %R"])
        self.tell("plain sbatch", jobs, f">{time.monotonic() - began:.0f} s")
        self.say(f"alice cancels them; maigan, her other account, was idle: {self.usage('maigan')}")
        self.cluster.run("scancel", "--user=alice")
        self.cluster.wait_until(lambda: not self.queued("alice"), what="alice's jobs gone")

    def install(self) -> None:
        """The shim into ~/bin, a policy into ~/.config."""
        title("alice installs the router: a policy and a shim in front of sbatch")
        self.write("alice", ".config/sbatch-router/policy.yaml", POLICY)
        self.shell("alice", ["cat", ".config/sbatch-router/policy.yaml"])
        self.shell("alice", ["sbatch-router", "install-shim", str(self.bin)])

    def routed(self) -> None:
        """The same five jobs through the shim."""
        title("the same five jobs, the same sbatch command")
        jobs = [self.submit("alice", name, *asks, "--wrap=sleep 2") for name, asks in JAM]
        self.finish(jobs)
        self.tell("router", jobs)
        for job in jobs:
            self.expect_on_maigan(job)

    def snakemake(self) -> None:
        """The same jobs once more, as a workflow."""
        title("the same jobs as a Snakemake workflow, through sbatch-router-submit")
        if shutil.which("snakemake") is None:
            self.say("left out: Snakemake 9 needs Python 3.11 or later")
            return
        self.write("alice", "workflow/Snakefile", SNAKEFILE)
        self.forget()
        before = self.jobs_of("alice")
        done = self.shell(
            "alice",
            ["snakemake", "--executor", "cluster-generic", "--jobs", "5", "--quiet", "all"]
            + ["--cluster-generic-submit-cmd", "sbatch-router-submit"]
            + ["--seconds-between-status-checks", "1", "--latency-wait", "20"],
            cwd=self.cluster.home("alice") / "workflow",
        )
        jobs = [job for job in self.jobs_of("alice") if job not in before]
        self.expect(done.returncode == 0, f"snakemake ended with {done.returncode}")
        self.expect(len(jobs) == len(JAM), f"snakemake submitted {len(jobs)} jobs, not 5")
        self.finish(jobs)
        self.tell("snakemake", jobs)
        for job in jobs:
            self.expect_on_maigan(job)

    def full(self) -> None:
        """carol takes what is left: now a refusal is the honest answer."""
        title("carol fills maigan as well; alice submits once more")
        job = self.submit("carol", "busy", "-A", "maigan", "--mem=600000M", "--wrap=sleep 600")
        self.cluster.wait_until(lambda: self.look(job)["JobState"] == "RUNNING", what="carol runs")
        self.forget()
        before = self.jobs_of("alice")
        done = self.shell("alice", ["sbatch", "--job-name=late", *DECON, "--wrap=sleep 2"])
        self.expect(done.returncode == 75, f"a refusal ends with 75, not {done.returncode}")
        self.expect("QOSGrpMemLimit" in done.stderr, "the refusal does not name the limit")
        self.expect(self.jobs_of("alice") == before, "something was submitted all the same")
        self.rows.append(Row("all full", "late", "-", "refused", "exit 75", "-"))

    # -- helpers -------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A line of our own."""
        print(f"# {text}", flush=True)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Remember what should have been."""
        if not holds:
            self.failures.append(otherwise)
            self.say(f"NOT AS EXPECTED: {otherwise}")

    def env(self, user: str) -> Mapping[str, str]:
        """What a user's shell has: the tools, the shim once installed, a directory for state."""
        state = self.cluster.home(user) / "run"
        if not state.exists():
            state.mkdir(mode=0o700)
            shutil.chown(state, user)
        path = f"{self.cluster.home(user)}/bin:{self.tools}:{self.cluster.env['PATH']}"
        snakemake = shutil.which("snakemake")
        if snakemake:
            path += f":{Path(snakemake).parent}"
        return {"PATH": path, "XDG_RUNTIME_DIR": str(state)}

    def shell(self, user: str, argv: Sequence[str], cwd: Path | None = None) -> Completed:
        """Run a command as a user and show it with all it prints."""
        print(f"{user}$ {shlex.join(argv)}", flush=True)
        time.sleep(self.pause)
        done = self.cluster.run_as(
            user, ["env", *argv], env=self.env(user), cwd=cwd, check=False, timeout=120
        )
        for text in (done.stderr, done.stdout):
            print(text, end="", flush=True)
        return done

    def submit(self, user: str, name: str, *arguments: str) -> str:
        """Submit a job as a user; its id. Raises BedError."""
        done = self.shell(user, ["sbatch", f"--job-name={name}", *arguments])
        words = done.stdout.split()
        if done.returncode or not words:
            raise BedError(f"sbatch ended with {done.returncode}: {done.stderr}")
        return words[-1]

    def write(self, user: str, name: str, text: str) -> None:
        """A file in a user's home, theirs."""
        home = self.cluster.home(user)
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        while path != home:
            shutil.chown(path, user)
            path = path.parent

    def look(self, job: str) -> dict[str, str]:
        """What slurmctld says of a job."""
        text = self.cluster.run("scontrol", "-o", "show", "job", job).stdout
        return dict(word.partition("=")[::2] for word in text.split())

    def finish(self, jobs: Sequence[str]) -> None:
        """Wait until jobs have ended."""
        for job in jobs:
            self.cluster.wait_until(functools.partial(self.ended, job), what=f"job {job} ends")

    def ended(self, job: str) -> bool:
        """Whether a job neither waits nor runs."""
        return self.look(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING")

    def forget(self) -> None:
        """Wait for as long as the router uses Slurm's last answer (`cache`, 5 s by default)."""
        time.sleep(5)

    def queued(self, user: str) -> list[str]:
        """A user's jobs that have not ended."""
        return self.cluster.run("squeue", "-h", "-u", user, "-o", "%A").stdout.split()

    def jobs_of(self, user: str) -> list[str]:
        """All jobs of a user, ended ones as well, in order."""
        done = self.cluster.run("squeue", "-h", "-t", "all", "-u", user, "-o", "%A")
        return sorted(done.stdout.split(), key=int)

    def usage(self, qos: str) -> str:
        """``mem=640000(0)``: a pool's limit and what is used of it."""
        done = self.cluster.run("scontrol", "show", "assoc_mgr", "flags=qos", f"qos={qos}")
        lines = [line.strip() for line in done.stdout.splitlines()]
        tres = next((line for line in lines if line.startswith("GrpTRES=")), "")
        return next((word for word in tres.split(",") if word.startswith("mem=")), tres)

    def expect_on_maigan(self, job: str) -> None:
        """A job that ended well, in account and QOS maigan."""
        found = self.look(job)
        where = f"{found['Account']}/{found['QOS']} {found['JobState']}"
        self.expect(where == "maigan/maigan COMPLETED", f"job {job}: {where}")

    def tell(self, how: str, jobs: Sequence[str], waited: str = "") -> None:
        """Put jobs into the table, as slurmctld has them now."""
        for job in jobs:
            found = self.look(job)
            state, reason = found["JobState"], found["Reason"]
            row = Row(how, found["JobName"], found["Account"], state, reason, waited)
            self.rows.append(row if state == "PENDING" else row._replace(waited=_waited(found)))


def _waited(found: Mapping[str, str]) -> str:
    start, submit = (datetime.fromisoformat(found[k]) for k in ("StartTime", "SubmitTime"))
    return f"{(start - submit).seconds} s"


def title(text: str) -> None:
    """A heading."""
    print(f"\n== {text}", flush=True)


def table(rows: Sequence[Row]) -> None:
    """Rows under their names, in columns."""
    lines = [Row("how", "job", "account", "state", "reason", "waited"), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(f"{word:<{width}}" for word, width in zip(line, widths)).rstrip())


def main() -> int:
    """Boot, tell the story, end the cluster."""
    began = time.monotonic()
    try:
        with Cluster.start() as cluster:
            release = ".".join(f"{n:02d}" for n in cluster.release)
            title(f"a Slurm {release} cluster, booted in {cluster.boot_seconds:.1f} s")
            demo = Demo(cluster)
            try:
                demo.run()
            finally:
                if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
                    title("what happened")
                    table(demo.rows)
                    if demo.failures or sys.exc_info()[0]:
                        print(cluster.describe(), file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except (BedError, subprocess.SubprocessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    for failure in demo.failures:
        print(f"demo: {failure}", file=sys.stderr)
    print(f"\n{'NOT ' if demo.failures else ''}as expected, in {time.monotonic() - began:.0f} s")
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
