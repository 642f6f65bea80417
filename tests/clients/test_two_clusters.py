"""Jobs of another cluster (``-M``): two real ones that share one slurmdbd (B52).

Their job ids overlap on purpose: the bare id that Snakemake gets may be a job on either.
"""

from __future__ import annotations

import re
import sys
import time

import pytest
from loopbed import Loop, user_rpcs

from sbatch_router import clusters

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def second(cluster):
    """A second cluster whose first job gets the id of the next local one."""
    from cluster import Cluster
    from slurmbed import spec

    first = cluster.run_as("alice", ["sbatch", "--parsable", "--wrap", "true"]).stdout
    settings = {**spec.load(None), "cluster": "other"}
    settings["slurm_conf"] = {**settings["slurm_conf"], "FirstJobId": int(first) + 1}
    with Cluster.start(settings, beside=cluster) as started:
        yield started


@pytest.fixture
def other(second):
    yield second
    second.scancel_all()


@pytest.fixture
def loop(cluster, clean, policy_file, run_dir):
    with Loop(cluster, policy_file, run_dir) as made:
        yield made


def submit(loop, *argv) -> str:
    done = loop.run("sbatch-router-submit", "-o", "/dev/null", "-t1", "--mem=10", *argv)
    assert re.fullmatch(r"[1-9]\d*\n", done.stdout), done
    return done.stdout.strip()


def until(loop, job, word) -> None:
    deadline = time.monotonic() + 40
    while (found := loop.status(job)) != f"{word}\n":
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def states(bed) -> dict[str, str]:
    rows = bed.run("squeue", "-h", "-t", "all", "-o", "%A %T").stdout.split()
    return dict(zip(rows[::2], rows[1::2]))


def test_status_and_cancel_find_the_cluster(other, loop):
    good = submit(loop, "-M", "other", "--wrap", "true")
    long_ = submit(loop, "-M", "other", "--wrap", "sleep 300")
    local = submit(loop, "--wrap", "exit 3")
    # The same number twice: the one that is asked for is the one that was submitted last.
    assert local == good
    until(loop, local, "failed")
    assert states(other)[good] == "COMPLETED"
    held = submit(loop, "--hold", "--wrap", "true")
    assert held == long_
    assert loop.status(held) == "running\n"
    assert loop.run("sbatch-router-cancel", f"{long_};other").returncode == 0
    other.wait_until(lambda: states(other)[long_] == "CANCELLED")
    assert states(loop.cluster)[held] == "PENDING"

    far = submit(loop, "-M", "other", "--wrap", "true")
    doomed = submit(loop, "-M", "other", "--wrap", "sleep 300")
    assert far not in states(loop.cluster)
    until(loop, far, "success")
    until(loop, doomed, "running")
    began = time.monotonic()
    done = loop.run("sbatch-router-cancel", doomed, held, far, *map(str, range(900000, 901000)))
    assert time.monotonic() - began < 2.5
    assert (done.returncode, done.stdout) == (0, "")
    until(loop, doomed, "failed")
    until(loop, held, "failed")
    assert states(other)[doomed] == "CANCELLED"
    assert states(loop.cluster)[held] == "CANCELLED"


def test_two_clusters_cost_no_more_than_one_each(loop, other):
    """Both tables are kept: asking for one cluster's job does not forget the other's."""
    locals_ = [submit(loop, "--hold", "--wrap", "true") for _ in range(2)]
    there = submit(loop, "-M", "other", "--hold", "--wrap", "true")
    here = next(job for job in locals_ if job != there)
    submitted = time.monotonic()

    before = user_rpcs(loop.cluster) + user_rpcs(other)
    for job in [there, here] * 8:
        assert loop.status(job) == "running\n"
    rounds = (time.monotonic() - submitted) / 5 + 1
    assert user_rpcs(loop.cluster) + user_rpcs(other) - before <= 2 * rounds


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Snakemake 9 needs Python 3.11")
def test_a_workflow_on_the_other_cluster(loop, other):
    """One job is killed there, reported failed, and succeeds when it is tried again."""
    command = ["--cluster-generic-submit-cmd", "sbatch-router-submit -M other"]
    snakemake = loop.start(2, 5, *command)

    def running():
        rows = other.run("squeue", "-h", "-t", "R", "-o", "%A %j").stdout.split()
        return [job for job, name in zip(rows[::2], rows[1::2]) if name == "work.1"]

    (victim,) = other.wait_until(running, timeout=60)
    other.run("scancel", victim)
    assert snakemake.wait(timeout=120) == 0, loop.log()
    assert f"external_jobid: {victim}" in loop.log(), loop.log()
    assert "Trying to restart job" in loop.log()
    names = other.run("squeue", "-h", "-t", "all", "-o", "%j").stdout.split()
    assert sorted(n for n in names if n.startswith("work")) == ["work.0", "work.1", "work.1"]


# -- the table by itself --------------------------------------------------------------------------


def test_the_last_line_counts_and_only_whole_ones(tmp_path):
    env = {b"XDG_STATE_HOME": str(tmp_path).encode()}
    table = tmp_path / "sbatch-router" / "clusters"
    assert clusters.known(env) == {}
    clusters.remember("6", "", env)
    assert not table.exists()
    clusters.remember("7", "a", env)
    clusters.remember("8", "b", env)
    clusters.remember("7", "", env)
    assert clusters.known(env) == {"7": "", "8": "b"}
    with table.open("a") as file:
        file.write("9;oth")
    clusters.remember("10", "c", env)
    assert clusters.known(env) == {"7": "", "8": "b", "10": "c"}


def test_a_long_table_is_read_from_its_end(tmp_path):
    env = {b"XDG_STATE_HOME": str(tmp_path).encode()}
    clusters.remember("1", "a", env)
    table = tmp_path / "sbatch-router" / "clusters"
    with table.open("a") as file:
        file.writelines(f"{number};other;\n" for number in range(10**6, 10**6 + 20_000))
    found = clusters.known(env)
    assert "1" not in found
    assert found[str(10**6 + 20_000 - 1)] == "other"
    assert 16_000 < len(found) < 20_000
    assert all(len(job) == 7 for job in found)
