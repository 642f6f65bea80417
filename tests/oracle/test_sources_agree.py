"""scontrol's and pyslurm's snapshots of one instant, on random states of a real cluster.

Needs the real pyslurm, built for the Slurm that is installed (the 26.05 image has it). The
number of states: SBATCH_ROUTER_STATES (default 200); of the seed: SBATCH_ROUTER_SEED.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

STATES = int(os.environ.get("SBATCH_ROUTER_STATES", "200"))
SEED = int(os.environ.get("SBATCH_ROUTER_SEED", "4"))
WORKER = Path(__file__).with_name("sources_worker.py")
ACCOUNTS = ["clive", "maigan", "brusko"]
QOS = ["clive", "maigan", "maigan-b", "brusko"]
SPEC = {
    "nodes": [
        {"prefix": "g", "count": 1, "cpus": 64, "memory": 1048576, "gpus": {"a100": 4}},
        {"prefix": "m", "count": 2, "cpus": 64, "memory": 1048576, "gpus": {"a100": 2, "l4": 4}},
    ],
    "partitions": {"main": {"MaxTime": "7-0"}, "gated": {"QOS": "gate", "MaxTime": "7-0"}},
    "slurm_conf": {"DefMemPerCPU": 1000},
    "users": {n: {"default_account": "clive"} for n in ("alice", "bob", "carol")},
    "qos": {"clive": {}, "maigan": {}, "maigan-b": {}, "brusko": {}, "gate": {}},
    "accounts": {
        "dept": {},
        "clive": {
            "parent": "dept",
            "qos": ["clive"],
            "default_qos": "clive",
            "users": {"alice": [{}, {"partition": "gated"}], "bob": {}, "carol": {}},
        },
        "maigan": {
            "parent": "dept",
            "qos": ["maigan", "maigan-b"],
            "default_qos": "maigan",
            "users": ["alice", "bob"],
        },
        "brusko": {"qos": ["brusko"], "default_qos": "brusko", "users": ["alice", "carol"]},
    },
}
TRES = ["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100"]
#: sacctmgr's name of a limit, and whether it is one of TRES.
QOS_LIMITS = {
    "GrpTRES": True,
    "GrpTRESMins": True,
    "GrpTRESRunMins": True,
    "MaxTRESPerJob": True,
    "MaxTRESPerNode": True,
    "MaxTRESMinsPerJob": True,
    "MaxTRESPerUser": True,
    "MaxTRESPerAccount": True,
    "MaxTRESRunMinsPerUser": True,
    "MaxTRESRunMinsPerAccount": True,
    "GrpJobs": False,
    "GrpSubmitJobs": False,
    "GrpWall": False,
    "MaxWall": False,
    "MaxJobsPerUser": False,
    "MaxSubmitJobsPerUser": False,
    "MaxJobsPerAccount": False,
    "MaxSubmitJobsPerAccount": False,
    "Priority": False,
}
ASSOC_LIMITS = {
    "GrpTRES": True,
    "GrpTRESMins": True,
    "GrpTRESRunMins": True,
    "MaxTRESPerJob": True,
    "MaxTRESPerNode": True,
    "MaxTRESMinsPerJob": True,
    "GrpJobs": False,
    "GrpSubmitJobs": False,
    "GrpWall": False,
    "MaxWall": False,
    "MaxJobs": False,
    "MaxSubmitJobs": False,
}


def has_pyslurm():
    """Whether it is installed; importing it here may end pytest."""
    try:
        importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture(scope="module")
def bed():
    if not has_pyslurm():
        pytest.skip("pyslurm is not installed here: `containers/image test testing` has it")
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster needs root: run tests/run as root")
    from cluster import Cluster

    with Cluster.start(SPEC) as started:
        yield started


@pytest.fixture(scope="module")
def worker(bed):
    """A function: one comparison as alice, in a process of hers."""
    import sbatch_router

    script = bed.directory / "sources_worker.py"
    shutil.copy(WORKER, script)
    script.chmod(0o644)
    package = str(Path(sbatch_router.__file__).parent.parent)
    process = bed.popen_as(
        "alice",
        [sys.executable, "-I", script, package, ",".join(ACCOUNTS), ",".join(QOS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def ask():
        process.stdin.write(b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the worker ended; its words are on standard error"
        return json.loads(line)

    yield ask
    process.stdin.close()
    process.wait(30)


class Maker:
    """Changes a cluster at random, a few steps a state."""

    def __init__(self, bed, rng):
        self.bed = bed
        self.rng = rng

    def step(self):
        """One change; what slurmctld refuses is no change."""
        # No salloc --immediate: slurmctld takes one that it refuses off GrpSubmitJobs twice.
        self.rng.choices([self.job, self.limit, self.cancel], [7, 3, 2])[0]()

    def job(self):
        """One batch job or array; it may start or wait."""
        rng = self.rng
        user = rng.choice(["alice", "alice", "bob", "carol"])
        options = [*self.place(user), *self.size()]
        if rng.random() < 0.25:
            array = rng.choice(["0-3", "1,4,7", "0-20:5%2", "0-1%1", "5"])
            options.append(f"--array={array}")
        if rng.random() < 0.2:
            options.append("--hold")
        if rng.random() < 0.7:
            options.append(f"--time={rng.choice([5, 61, 3000])}")
        self.run(user, ["sbatch", *options, "--output=/dev/null", "--wrap", "exec sleep 900"])

    def place(self, user):
        account, qos = self.rng.choice(
            [("clive", ""), ("maigan", ""), ("maigan", "maigan-b"), ("maigan", "maigan,maigan-b")]
            if user != "carol"
            else [("clive", ""), ("brusko", "")]
        )
        partition = self.rng.choice(["main", "main", "gated", "main,gated"])
        options = [f"--account={account}", f"--partition={partition}"]
        return [*options, f"--qos={qos}"] if qos else options

    def size(self):
        rng = self.rng
        options = [
            f"--cpus-per-task={rng.randint(1, 12)}",
            f"--mem={rng.choice([100, 1500, 9999])}",
        ]
        if rng.random() < 0.2:
            options.append("--nodes=2")
        if rng.random() < 0.4:
            options.append(f"--gres=gpu:{rng.choice(['1', 'a100:1', 'l4:2'])}")
        return options

    def run(self, user, argv):
        self.bed.run_as(user, argv, check=False)

    def limit(self):
        """Set or clear a limit of a QOS, an account or one of alice's associations."""
        rng = self.rng
        if rng.random() < 0.5:
            where = ["qos", "where", f"name={rng.choice([*QOS, 'gate'])}"]
            name, of_tres = rng.choice(list(QOS_LIMITS.items()))
        elif rng.random() < 0.6:
            where = ["account", "where", f"name={rng.choice([*ACCOUNTS, 'dept'])}"]
            name, of_tres = rng.choice(list(ASSOC_LIMITS.items()))
        else:
            where = ["user", "where", "name=alice", f"account={rng.choice(ACCOUNTS)}"]
            name, of_tres = rng.choice(list(ASSOC_LIMITS.items()))
        number = rng.choice([-1, 0, 2, 10, 40, 200000])
        tres = rng.choice(TRES)
        if number == 0 and tres == "mem":
            number = 1  # pyslurm cannot read mem=0 (docs/pyslurm.md); see its own test
        value = f"{tres}={number}" if of_tres else str(number)
        self.bed.sacctmgr("modify", *where, "set", f"{name}={value}", check=False)

    def cancel(self):
        jobs = self.bed.run("squeue", "-h", "-a", "-o", "%A").stdout.split()
        if len(jobs) > 25:
            self.bed.run("scancel", *self.rng.sample(jobs, 12), check=False)
        elif jobs:
            self.bed.run("scancel", self.rng.choice(jobs), check=False)


def settled(worker, timeout=30.0):
    """A comparison of an instant at which nothing moved."""
    until = time.monotonic() + timeout
    while True:
        found = worker()
        if not found["moved"]:
            return found
        assert time.monotonic() < until, "the cluster does not stand still"
        time.sleep(0.2)


def test_snapshots_of_both_sources_are_equal(bed, worker):
    rng = random.Random(SEED)
    maker = Maker(bed, rng)
    known = unknown = running = 0
    for state in range(STATES):
        for _ in range(rng.randint(1, 4)):
            maker.step()
        found = settled(worker)
        # slurmctld may hear of a limit later than the database has it.
        until = time.monotonic() + 5
        while found["differs"] and time.monotonic() < until:
            time.sleep(0.2)
            found = settled(worker)
        queue = bed.run("squeue", "-a", "-h", "-o", "%i %u %a %q %P %T %r").stdout
        assert not found["differs"], f"seed {SEED}, state {state}: {found}\n{queue}"
        known += found["known"]
        unknown += found["unknown"]
        running += found["running"]
    print(f"{STATES} states: {known} equal values, {unknown} unknown to pyslurm")
    assert running, "no job ran: nothing was compared"
    assert known > 100 * STATES
    # Only uses in minutes, and time limits that are not set.
    assert unknown < known / 5


def test_a_limit_of_no_memory_is_read(bed, worker):
    """pyslurm cannot read mem=0 of an association, which then comes from sacctmgr."""
    where = ["modify", "account", "where", "name=dept", "set"]
    bed.sacctmgr(*where, "GrpTRES=mem=0")
    try:
        with contextlib.suppress(AssertionError):
            bed.wait_until(lambda: not settled(worker)["differs"], 5)
        assert settled(worker)["differs"] == []
    finally:
        bed.sacctmgr(*where, "GrpTRES=mem=-1")
