"""A large workflow through the generated profile, in which Slurm kills jobs in every way.

The sizes are small here; the issue's own come with the environment:
``LOOP_JOBS=500 tests/run tests/clients/test_snakemake_scale.py -rP`` prints the numbers, too.

Everything is real but the Snakemake inside each job, which only starts the rule's shell command
and takes two seconds of CPU for it: the jobscript does that itself. ``LOOP_INNER=snakemake``
leaves it to Snakemake.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from loopbed import Loop, user_rpcs

if sys.version_info < (3, 11):
    pytest.skip("Snakemake 9 needs Python 3.11", allow_module_level=True)

pytestmark = pytest.mark.cluster

JOBS = int(os.environ.get("LOOP_JOBS", "60"))
#: Jobs of each kind that is killed at its first attempt.
KILLED = max(2, JOBS // 50)
#: Seconds for which RPCs are counted with few and with many jobs.
WINDOW = float(os.environ.get("LOOP_WINDOW", "10" if JOBS < 100 else "30"))
INNER = os.environ.get("LOOP_INNER", "")
#: Seconds from a job's end to the word "failed": the issue's bound.
SOON = 30

KINDS = ("cancelled", "memory", "late")
MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")

SNAKEFILE = """\
rule all:
    input:
        expand("out/{{kind}}.{{n}}", kind={kinds}, n=range({killed})),
        expand("out/work.{{n}}", n=range({work})),
"""
RULE = """
rule {kind}:
    output: "out/{kind}.{{n}}"
    priority: {priority}
    resources: mem_mb={mem}, runtime=20
    shell: "sh work.sh {{output}}"
"""
#: Snakemake's own, less the Snakemake: the output is named in the properties.
JOBSCRIPT = """\
#!/bin/sh
# properties = {properties}
cd "$SLURM_SUBMIT_DIR"
mkdir -p out
sh work.sh $(sed -n '2s/.*"output": \\["\\([^"]*\\)"\\].*/\\1/p' "$0")
"""
WORK = """\
hog='import time; x = b"x" * (600 << 20); time.sleep(600)'
name=$(basename "$1")
mkdir -p tries
case $name in
work.*) ;;
memory.*) ! mkdir "tries/$name" || exec python3 -c "$hog" ;;
*) ! mkdir "tries/$name" || exec sleep 600 ;;
esac 2>/dev/null
sleep 2
echo "$SLURM_JOB_ID" > "$1"
"""


@pytest.fixture(scope="module")
def bed():
    """A cluster that holds 500 jobs, and ends those that use more memory than they asked for."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster needs root: run tests/run as root")
    from cluster import Cluster
    from slurmbed import packages

    pools = ("maigan", "clive")
    node = f"m{os.getpid()}-"
    # Later releases want more of a machine's cgroups than tests can count on.
    cgroups = packages.release() < (23, 11) and os.access(MEMORY_CGROUP / "cgroup.procs", os.W_OK)
    by_cgroup = {"TaskPlugin": "task/cgroup"}
    by_polling = {
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "JobAcctGatherParams": "OverMemoryKill",
    }
    spec = {
        "nodes": {"prefix": node, "cpus": 1024, "memory": 1000000},
        "slurm_conf": by_cgroup if cgroups else by_polling,
        "cgroup_conf": {"ConstrainRAMSpace": "yes"} if cgroups else {},
        "users": ["alice"],
        "qos": {pool: {"GrpTRES": "cpu=300"} for pool in pools},
        "accounts": {
            p: {"users": {"alice": {"qos": [p], "DefaultQOS": p}}, "qos": [p]} for p in pools
        },
    }
    try:
        with Cluster.start(spec) as started:
            started.has_oom_state = cgroups
            yield started
    finally:
        # Slurm leaves the cgroup of a node, and a slurmstepd that is killed that of its job.
        for path, _, _ in os.walk(MEMORY_CGROUP / f"slurm_{node}1", topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)


@pytest.fixture
def loop(bed):
    def policy(text):
        path = bed.directory / "policy.yaml"
        path.write_text(text)
        path.chmod(0o644)
        return path

    def private(user):
        path = bed.directory / "run"
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, bed.uid(user), -1)
        return path

    with Loop(bed, policy, private) as made:
        yield made
    bed.scancel_all()


def prepare(loop) -> list[str]:
    (loop.directory / "work.sh").write_text(WORK)
    if INNER == "snakemake":
        return []
    (loop.directory / "jobscript").write_text(JOBSCRIPT)
    return ["--jobscript", "jobscript"]


def jobs(bed) -> list[tuple[str, str]]:
    """Job id and name of all jobs, oldest first. (`user_rpcs` counts what asks for a user's.)"""
    text = bed.run("squeue", "-h", "-t", "all", "-S", "i", "-o", "%A %j").stdout
    return [(job, name) for job, name in map(str.split, text.splitlines())]


class Watch(threading.Thread):
    """Asks sbatch-router-status for the jobs that will be killed, and notes the first "failed"."""

    def __init__(self, loop) -> None:
        super().__init__(daemon=True)
        self.loop = loop
        self.open: set[str] = set()
        self.failed: dict[str, float] = {}
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            for job in sorted(self.open - set(self.failed)):
                if self.loop.status(job) == "failed\n":
                    self.failed[job] = time.time()


def kill(bed, job: str, kind: str, ended: dict[str, float]) -> None:
    """End a running job as its kind wants it; one that uses too much memory ends by itself."""
    if kind == "cancelled":
        ended[job] = time.time()
        bed.run("scancel", job)
    elif kind == "late":
        # Limits are minutes, and looked at twice a minute: this one is over in a moment.
        bed.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")


def reported(log: str) -> dict[str, float]:
    """External job id -> when Snakemake said that it failed (whole seconds)."""
    found = {}
    for block in re.split(r"\n(?=\[\w{3} \w{3} +\d+ [\d:]+ \d{4}\]\n)", log):
        job = re.search(r"external_jobid: (\d+)", block)
        if job and "Error in rule" in block:
            stamp = block[1 : block.index("]")]
            found.setdefault(job[1], time.mktime(time.strptime(stamp, "%a %b %d %H:%M:%S %Y")))
    return found


def accounting(bed) -> dict[str, tuple[str, float]]:
    """Job id -> state and end, of jobs that have ended."""
    text = bed.run(
        "sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID,State,End"
    ).stdout
    found = {}
    for line in text.splitlines():
        job, state, end = line.split("|")
        if end != "Unknown":
            stamp = time.mktime(time.strptime(end, "%Y-%m-%dT%H:%M:%S"))
            found[job] = (state.split()[0], stamp)
    return found


def test_a_workflow_in_which_jobs_are_killed_and_the_sidecar_too(loop):
    bed = loop.cluster
    mem = 400 if INNER else 100
    text = SNAKEFILE.format(kinds=KINDS, killed=KILLED, work=JOBS - 3 * KILLED)
    for kind in (*KINDS, "work"):
        text += RULE.format(kind=kind, mem=mem, priority=int(kind in KINDS))
    watch = Watch(loop)
    watch.start()
    began, before = time.monotonic(), user_rpcs(bed)
    snakemake = loop.snakemake(text, *prepare(loop))
    kinds: dict[str, str] = {}
    ended: dict[str, float] = {}
    seen: set[str] = set()
    hit = False
    while snakemake.poll() is None:
        time.sleep(0.5)
        assert time.monotonic() - began < 60 + 10 * JOBS, loop.log()
        for job, name in jobs(bed):
            kind = name.partition(".")[0]
            if kind in KINDS and name not in seen and (loop.directory / "tries" / name).is_dir():
                seen.add(name)
                kinds[job] = kind
                watch.open.add(job)
                kill(bed, job, kind, ended)
        if not hit and len(list(loop.directory.glob("out/*"))) >= JOBS // 2:
            victims = loop.sidecars()
            assert victims, loop.log()
            for pid in victims:
                os.kill(int(pid), signal.SIGKILL)
            hit = True
    seconds = time.monotonic() - began
    asked = user_rpcs(bed) - before

    # It completes: every job's output is there, written by a job that has ended well.
    assert snakemake.returncode == 0, loop.log()
    assert hit
    assert len(list(loop.directory.glob("out/*"))) == JOBS
    bed.wait_until(lambda: set(watch.open) <= set(watch.failed), timeout=60)
    watch.done.set()
    bed.wait_until(lambda: len(accounting(bed)) >= JOBS + 3 * KILLED, timeout=60)
    book = accounting(bed)
    for path in loop.directory.glob("out/*"):
        assert book[path.read_text().strip()][0] == "COMPLETED"

    # Each killed job was reported failed, soon, and tried once more.
    assert Counter(kinds.values()) == dict.fromkeys(KINDS, KILLED)
    states = {kind: {book[job][0] for job, own in kinds.items() if own == kind} for kind in KINDS}
    assert states["cancelled"] == {"CANCELLED"}
    assert states["late"] == {"TIMEOUT"}
    # Killed by Slurm's polling of the memory, a job has only FAILED.
    assert states["memory"] <= {"OUT_OF_MEMORY", *([] if bed.has_oom_state else ["FAILED"])}
    told = reported(loop.log())
    assert set(told) == set(kinds), loop.log()
    ended = {job: ended.get(job, book[job][1]) for job in kinds}
    by_snakemake = {job: told[job] - ended[job] for job in kinds}
    by_status = {job: watch.failed[job] - ended[job] for job in kinds}
    print(f"{JOBS} jobs, {len(kinds)} killed, {seconds:.0f} s")
    for kind in KINDS:
        late = [max(d[j] for j in kinds if kinds[j] == kind) for d in (by_snakemake, by_status)]
        print(f"{kind}: reported after at most {late[0]:.0f} s, by status {late[1]:.0f} s")
    assert max(by_snakemake.values()) < SOON
    assert max(by_status.values()) < SOON

    # The sidecar asks every four seconds, status without it every five; routing at most once in
    # every two (`cache`).
    print(f"{asked} RPCs for the user's jobs, one every {seconds / max(asked, 1):.1f} s")
    assert asked <= seconds / 4 + seconds / 2 + 10


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_user_rpcs_grow_with_time_not_with_jobs(loop):
    """The same seconds with a tenth of the jobs in Slurm, and with all of them."""
    bed = loop.cluster
    counts = {}
    for jobs in (JOBS // 10, JOBS):
        text = SNAKEFILE.format(kinds=[], killed=0, work=jobs)
        text += RULE.format(kind="work", mem=10, priority=0)
        options = [*prepare(loop), "--cluster-generic-status-cmd", "sh count.sh"]
        (loop.directory / "work.sh").write_text("exec sleep 600\n")
        (loop.directory / "count.sh").write_text('echo >>calls; exec sbatch-router-status "$1"\n')
        snakemake = loop.snakemake(text, *options, profile=["--jobs", jobs])
        calls = loop.directory / "calls"
        try:
            bed.wait_until(
                lambda jobs=jobs: loop.log().count("with external jobid") == jobs,
                timeout=5 * JOBS + 60,
            )
            before, asked = user_rpcs(bed), size(calls)
            time.sleep(WINDOW)
            counts[jobs] = user_rpcs(bed) - before, size(calls) - asked
        finally:
            snakemake.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                snakemake.wait(timeout=60)
            snakemake.kill()
            snakemake.wait()
        bed.scancel_all(timeout=120)
    few, many = counts.values()
    print(f"in {WINDOW:.0f} s, RPCs and status calls by number of jobs: {counts}")
    # However often Snakemake asks, Slurm is asked once in four seconds for the states, and once in
    # two for the snapshot (`cache`).
    assert many[1] > 5 * many[0]
    assert max(few[0], many[0]) <= WINDOW / 4 + WINDOW / 2 + 2
