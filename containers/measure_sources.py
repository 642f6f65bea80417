#!/usr/bin/env python3
"""Time and RPCs of both sources on a cluster with thousands of jobs: the table of docs/sources.md.

    containers/image measure testing [JOBS]

Needs the real pyslurm, so the 26.05 image. Half of the jobs run. Prints one JSON line for the
empty cluster and one for the full one.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from slurmbed import Cluster

import sbatch_router

PACKAGE = Path(sbatch_router.__file__).parent.parent
ROUNDS = 15
USERS = [f"user{i}" for i in range(20)]
SPEC = {
    "nodes": {"count": 8, "cpus": 1024, "memory": 16777216, "gpus": {"a100": 8}},
    "slurm_conf": {"DefMemPerCPU": 100, "MaxJobCount": 20000, "MaxArraySize": 20000},
    "users": {name: {"default_account": "clive"} for name in USERS},
    "qos": {"clive": {"GrpTRES": "cpu=2600"}, "maigan": {"GrpTRES": "cpu=5000"}},
    "accounts": {
        "clive": {"qos": ["clive"], "default_qos": "clive", "users": USERS},
        "maigan": {"qos": ["maigan"], "default_qos": "maigan", "users": USERS},
    },
}
#: Run as a user, once for each source, as the shim would: one snapshot, timed in process.
ONE = """
import os, pwd, sys, time
sys.path[:0] = [sys.argv[1]]
from sbatch_router.slurm.collect import collect_live, collect_site
from sbatch_router.slurm.pyslurm_source import collect_pyslurm
from sbatch_router.slurm import pyslurm_child, pyslurm_source
user, uid = pwd.getpwuid(os.getuid()).pw_name, os.getuid()
site = collect_site(user, 60, 60, time.time())
ask = (site, ["clive", "maigan"], ["clive", "maigan"], user, uid, 60, time.time())
if sys.argv[2] == "in process":
    import pyslurm
    def pyslurm_here(*ask):
        found = pyslurm_child.read(pyslurm, uid)
        return pyslurm_source.snapshot_of(found, *ask[:5], ask[6])
    collect = pyslurm_here
else:
    collect = {"scontrol": collect_live, "pyslurm": collect_pyslurm}[sys.argv[2]]
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    began = time.monotonic()
    found = collect(*ask)
    print((time.monotonic() - began) * 1000, flush=True)
    assert isinstance(found.qos, dict), found.troubles
print("done", flush=True)
sys.stdin.readline()
"""


def unit() -> float:
    """Milliseconds of a bare Python, which the budgets are counted in."""
    times = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        subprocess.run([sys.executable, "-IS", "-c", "pass"], check=True)
        times.append((time.monotonic() - began) * 1000)
    return statistics.median(times)


def rpcs(cluster: Cluster) -> tuple[dict[str, int], dict[str, float]]:
    """RPCs that slurmctld has served so far, by kind: how many, and their microseconds."""
    text = cluster.run("sdiag").stdout
    found = re.findall(
        r"^\t(REQUEST_\w+) +\(\s*\d+\) count:(\d+) +ave_time:\d+ +total_time:(\d+)", text, re.M
    )
    found = [row for row in found if row[0] != "REQUEST_STATS_INFO"]  # our own question
    return {n: int(c) for n, c, _ in found}, {n: float(t) for n, _, t in found}


def _wait_for_silence(cluster: Cluster) -> None:
    """Until the process has collected its Site: nobody asks slurmctld anything for a second."""
    last: object = None
    while True:
        time.sleep(1)
        now = rpcs(cluster)[0]
        if now == last:
            return
        last = now


def measure(cluster: Cluster, source: str, user: str) -> dict[str, object]:
    process = cluster.popen_as(
        user,
        [sys.executable, "-I", "-c", ONE, str(PACKAGE), source, str(ROUNDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    _wait_for_silence(cluster)
    counts, times = rpcs(cluster)
    process.stdin.write(b"\n")
    process.stdin.flush()
    lines = []
    while (line := process.stdout.readline().decode().strip()) != "done":
        assert line, f"{source}: ended early"
        lines.append(float(line))
    after, times_after = rpcs(cluster)
    process.stdin.close()
    process.wait()
    names = [n for n in after if after[n] > counts.get(n, 0)]
    return {
        "milliseconds": round(statistics.median(lines), 1),
        "rpcs": {n: round((after[n] - counts.get(n, 0)) / ROUNDS, 2) for n in names},
        "slurmctld_ms": round(
            sum(times_after[n] - times.get(n, 0) for n in names) / ROUNDS / 1000, 2
        ),
    }


def main() -> int:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with Cluster.start(SPEC) as cluster:
        done = 0
        while True:
            row = {s: measure(cluster, s, USERS[0]) for s in ("scontrol", "pyslurm", "in process")}
            states = cluster.run("squeue", "-h", "-r", "-o", "%T").stdout.split()
            facts = {"jobs": len(states), "running": states.count("RUNNING")}
            print(json.dumps({**facts, "unit_ms": round(unit(), 1), **row}), flush=True)
            if done >= jobs:
                return 0
            _fill(cluster, jobs)
            done = jobs


def _fill(cluster: Cluster, jobs: int) -> None:
    """Half of the jobs as allocations without a process, half waiting, of all users alike."""
    each = jobs // 2 // len(USERS)
    script = f"""
        for i in $(seq {each}); do
            salloc -Q --no-shell --account=clive --cpus-per-task=1 --mem=100 --time=600
            sbatch -Q --hold --account=maigan --mem=100 -o /dev/null --wrap true
        done >/dev/null"""
    for user in USERS:
        done = cluster.run_as(user, ["sh", "-c", script], timeout=600)
        assert not done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(main())
