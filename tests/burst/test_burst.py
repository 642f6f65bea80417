"""Many submissions at once on a real cluster: no slot is given twice, few RPCs, no scars.

The sizes are small here; the issue's own come with the environment:
``BURST_JOBS=300 BURST_ROUNDS=10 BURST_KILLS=1000 BURST_SUBMISSIONS=1000 tests/run tests/burst``
(with ``-rP`` it prints the numbers).
"""

from __future__ import annotations

import collections
import os
import random
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sbatch_router import shimfile

pytestmark = pytest.mark.cluster

JOBS = int(os.environ.get("BURST_JOBS", "60"))
ROUNDS = int(os.environ.get("BURST_ROUNDS", "1"))
SUBMISSIONS = int(os.environ.get("BURST_SUBMISSIONS", JOBS * 2))
KILLS = int(os.environ.get("BURST_KILLS", "40"))
PARALLEL = 16
CACHE = 2
POOLS = ("p1", "p2", "p3")


@pytest.fixture(scope="module")
def bed():
    """A cluster with three pools that together hold exactly JOBS one-CPU jobs."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster needs root: run tests/run as root")
    from cluster import Cluster

    spec = {
        "nodes": {"count": 1, "cpus": 1024, "memory": 1000000},
        "users": ["alice", "bob"],
        "qos": {pool: {"GrpTRES": f"cpu={JOBS // 3}"} for pool in POOLS},
        "accounts": {
            pool: {"users": {u: {"qos": [pool], "DefaultQOS": pool} for u in ("alice", "bob")}}
            for pool in POOLS
        },
    }
    with Cluster.start(spec) as started:
        shimfile.install(started.directory / "shim")
        policy = started.directory / "policy.yaml"
        policy.write_text(f"version: 1\naccounts: [p1, p2, p3]\ncache: {CACHE}s\n")
        policy.chmod(0o644)
        yield started


def environment(bed, user: str) -> dict[str, str]:
    run = bed.directory / "run" / user
    if not run.exists():
        run.mkdir(mode=0o700, parents=True)
        run.parent.chmod(0o755)
        os.chown(run, bed.uid(user), -1)
    return {
        "SBATCH_ROUTER_POLICY": str(bed.directory / "policy.yaml"),
        "XDG_RUNTIME_DIR": str(run),
        "PATH": f"{bed.directory / 'shim'}:{bed.env['PATH']}",
    }


JOB = ["-o", "/dev/null", "-c1", "--mem=100M", "-t", "10", "--wrap", "sleep 300"]


def submit_all(bed, calls: list[list[str]]) -> list[subprocess.CompletedProcess[str]]:
    env = environment(bed, "alice")
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(
            pool.map(
                lambda call: bed.run_as(
                    "alice", ["sbatch", *call], env=env, check=False, timeout=120
                ),
                calls,
            )
        )


def empty(bed) -> None:
    """No jobs, and no snapshot any more that shows some."""
    bed.scancel_all()
    time.sleep(CACHE + 0.2)


class Watch(threading.Thread):
    """Collects every accounting reason that squeue shows meanwhile."""

    def __init__(self, bed) -> None:
        super().__init__(daemon=True)
        self.bed = bed
        self.done = threading.Event()
        self.reasons: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        while not self.done.wait(0.5):
            for reason in self.bed.run("squeue", "-h", "-r", "-o", "%r").stdout.split():
                if reason.startswith(("QOS", "Assoc", "Max")):
                    self.reasons[reason] += 1


def settled(bed, count: int) -> collections.Counter[str]:
    """Running jobs by QOS, once squeue shows `count` jobs of which none is unjudged."""

    def rows():
        return bed.run("squeue", "-h", "-r", "-o", "%T %q %r").stdout.split("\n")[:-1]

    bed.wait_until(
        lambda: len(rows()) == count and not any(r.startswith("PENDING") and r.endswith("None")
                                                 for r in rows()),
        timeout=60,
    )  # fmt: skip
    return collections.Counter(tuple(row.split()[:2]) for row in rows())


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("array", [0, 10], ids=["jobs", "arrays"])
def test_a_burst_fills_three_pools_exactly(bed, array, round_):
    empty(bed)
    calls = [JOB] * JOBS if not array else [[f"--array=0-{array - 1}", *JOB]] * (JOBS // array)
    if array and JOBS // 3 % array:
        pytest.skip("arrays that do not fill a pool cannot be placed exactly")
    watch = Watch(bed)
    watch.start()
    done = submit_all(bed, calls)
    found = settled(bed, JOBS)
    watch.done.set()
    watch.join()
    assert [d.stderr for d in done if d.returncode or "queued" in d.stderr] == []
    assert found == {("RUNNING", pool): JOBS // 3 for pool in POOLS}
    assert watch.reasons == {}


def routing_rpcs(bed) -> int:
    """Requests that the router makes, from sdiag's own count; submissions are not among them."""
    text = bed.run("sdiag").stdout
    kinds = ("ASSOC_MGR_INFO", "JOB_USER_INFO", "PARTITION_INFO", "NODE_INFO", "BUILD_INFO")
    return sum(
        int(found.group(2))
        for found in re.finditer(r"REQUEST_(\w+)\s+\(\s*\d+\) count:(\d+)", text)
        if found.group(1) in kinds
    )


def test_rpcs_follow_the_time_not_the_jobs(bed):
    bed.scancel_all()
    submit_all(bed, [JOB])
    began, before = time.monotonic(), routing_rpcs(bed)
    done = submit_all(bed, [["--hold", *JOB]] * SUBMISSIONS)
    seconds = time.monotonic() - began
    asked = routing_rpcs(bed) - before
    assert [d.stderr for d in done if d.returncode] == []
    intervals = seconds / CACHE
    print(f"{SUBMISSIONS} submissions, {asked} RPCs in {intervals:.1f} intervals of {CACHE} s")
    assert asked <= 2 * (intervals + 1) + 1


def test_killing_shims_at_any_moment_leaves_nothing_wrong(bed):
    """SIGKILL at a random moment; then the state holds no more than one snapshot corrects."""
    bed.scancel_all()
    env = environment(bed, "alice")
    random.seed(4)
    for _ in range(KILLS):
        child = bed.popen_as(
            "alice",
            ["sbatch", "--hold", *JOB],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(random.uniform(0, 0.06))
        child.send_signal(signal.SIGKILL)
        child.wait()
    empty(bed)
    done = submit_all(bed, [JOB] * JOBS)
    assert [d.stderr for d in done if d.returncode or "queued" in d.stderr] == []
    assert settled(bed, JOBS) == {("RUNNING", pool): JOBS // 3 for pool in POOLS}


def test_two_users_never_touch_each_others_state(bed):
    bed.scancel_all()
    # As /tmp is; a directory of this test's, as other tests' clusters have the same users.
    temporary = bed.directory / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    shared = {"XDG_RUNTIME_DIR": "", "TMPDIR": str(temporary)}
    for user in ("alice", "bob"):
        env = {**environment(bed, user), **shared}
        done = bed.run_as(user, ["sbatch", *JOB], env=env, check=False)
        assert done.returncode == 0, done.stderr
        place = temporary / f"sbatch-router-{bed.uid(user)}"
        found = os.stat(place)
        assert (found.st_uid, found.st_mode & 0o777) == (bed.uid(user), 0o700)
    place = temporary / f"sbatch-router-{bed.uid('alice')}"
    mine = bed.run_as("bob", ["ls", str(place)], check=False)
    assert mine.returncode != 0
