"""The whole loop with real Snakemake: profile, status, cancel and sidecar (B52, B57-B65)."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from loopbed import TOOLS, Loop, user_rpcs

if sys.version_info < (3, 11):
    pytest.skip("Snakemake 9 needs Python 3.11", allow_module_level=True)

pytestmark = pytest.mark.cluster


@pytest.fixture
def loop(cluster, clean, policy_file, run_dir):
    with Loop(cluster, policy_file, run_dir) as made:
        yield made


def test_a_workflow_completes_through_the_profile(loop):
    snakemake = loop.start(12, 0.2)
    assert snakemake.wait(timeout=120) == 0, loop.log()
    accounts = {(loop.directory / f"out/{job}.txt").read_text().strip() for job in range(12)}
    assert accounts <= {"maigan", "clive"}
    assert "12 of 13 steps" in loop.log() or "13 of 13 steps (100%) done" in loop.log()


@pytest.mark.slow
def test_a_job_that_slurm_kills_is_reported_within_30_seconds(loop):
    snakemake = loop.start(3, 300, "--retries", "0")
    loop.cluster.wait_until(
        lambda: loop.cluster.run("squeue", "-h", "-u", "alice", "-t", "R").stdout.count("\n") == 3,
        timeout=60,
    )
    ids = loop.cluster.run("squeue", "-h", "-u", "alice", "-o", "%A").stdout.split()
    loop.cluster.run("scancel", *ids)
    began = time.monotonic()
    assert snakemake.wait(timeout=60) == 1, loop.log()
    assert time.monotonic() - began < 40
    assert "Error executing rule work" in loop.log() or "Error in rule work" in loop.log()


@pytest.mark.slow
def test_killing_the_sidecar_changes_nothing(loop):
    snakemake = loop.start(8, 4)
    loop.cluster.wait_until(
        lambda: loop.cluster.run("squeue", "-h", "-u", "alice").stdout.count("\n") >= 4, timeout=60
    )
    mine = loop.sidecars()
    assert mine
    for pid in mine:
        subprocess.run(["kill", "-KILL", pid], check=True)
    assert snakemake.wait(timeout=120) == 0, loop.log()


@pytest.mark.slow
def test_interrupting_snakemake_cancels_its_jobs(loop):
    # While Snakemake asks for states it forgets its jobs for a moment: let it not ask now.
    snakemake = loop.start(5, 300, "--seconds-between-status-checks", "15")
    # Not before Snakemake knows all the ids: a job it has not heard of it cannot cancel.
    loop.cluster.wait_until(lambda: loop.log().count("with external jobid") == 5, timeout=60)
    snakemake.send_signal(signal.SIGINT)
    snakemake.wait(timeout=60)
    deadline = time.monotonic() + 30
    while left := loop.cluster.run("squeue", "-h", "-u", "alice").stdout:
        assert time.monotonic() < deadline, left + loop.log()
        time.sleep(0.2)


def sbatch(loop, *argv) -> str:
    done = loop.run("sbatch", "--parsable", "-o", "/dev/null", *argv)
    return done.stdout.strip()


def until_final(loop, job) -> str:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        word = loop.status(job)
        if word != "running\n":
            return word
        time.sleep(1)
    return word


def test_status_words_on_real_jobs(loop):
    good = sbatch(loop, "--wrap", "true")
    bad = sbatch(loop, "--wrap", "exit 3")
    held = sbatch(loop, "--hold", "--wrap", "true")
    array = sbatch(loop, "--array=0-3%2", "--wrap", "sleep 1")
    mixed = sbatch(loop, "--array=0-1", "--wrap", "exit $SLURM_ARRAY_TASK_ID")
    assert until_final(loop, good) == "success\n"
    assert until_final(loop, f"{bad};bed") == "failed\n"
    assert loop.status(held) == "running\n"
    loop.cluster.run("scancel", held)
    assert until_final(loop, held) == "failed\n"
    assert until_final(loop, array) == "success\n"
    assert loop.status(f"{array}_1") == "success\n"
    assert until_final(loop, mixed) == "failed\n"


def test_status_is_one_word_and_exit_0_even_for_nonsense(loop):
    assert loop.run("sbatch-router-status", "999999").stdout == "running\n"
    done = loop.run("sbatch-router-status", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: sbatch-router-status JOBID\n")


def test_the_profiles_own_status_command(loop):
    """In whatever environment Snakemake runs, the same answers; it never replaces a file."""
    command = loop.profile() / "sbatch-router-status"
    config = yaml.safe_load((loop.directory / "prof/config.yaml").read_text())
    assert config["cluster-generic-status-cmd"] == str(command)
    held = sbatch(loop, "--hold", "--wrap", "true")
    odd = ["PYTHONHOME=/nowhere", "PYTHONPATH=/nowhere", "PYTHONSAFEPATH=1"]
    for job, word in ((held, "running"), ("x", "failed")):
        done = loop.run(*odd, command, job)
        assert (done.stdout, done.stderr) == (f"{word}\n", "")
    assert loop.run(*odd, command, check=False).returncode == 2

    (loop.directory / "prof/config.yaml").unlink()
    again = loop.run("sbatch-router", "snakemake-profile", "prof", check=False)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"Error: {command} exists; remove it or name another DIR\n"
    assert not (loop.directory / "prof/config.yaml").exists()


def test_a_profile_where_a_script_cannot_be_started(loop):
    """Snakemake calls the status command through a shell: a blank would end its name."""
    loop.run("sbatch-router", "snakemake-profile", "my profile")
    config = yaml.safe_load((loop.directory / "my profile/config.yaml").read_text())
    installed = shutil.which("sbatch-router-status", path=TOOLS)
    assert config["cluster-generic-status-cmd"] == installed
    assert not (loop.directory / "my profile/sbatch-router-status").exists()


@pytest.mark.slow
def test_a_busy_controller_never_fails_a_job(loop):
    job = sbatch(loop, "--wrap", "sleep 60")
    loop.cluster.pause_controller()
    try:
        assert loop.status(job) == "running\n"
    finally:
        loop.cluster.resume_controller()


def test_status_costs_slurmctld_by_time_not_by_jobs(loop):
    jobs = [sbatch(loop, "--hold", "--wrap", "true") for _ in range(30)]

    before = user_rpcs(loop.cluster)
    for job in jobs:
        assert loop.status(job) == "running\n"
    assert user_rpcs(loop.cluster) - before <= 3


def test_B65_cancel_many_at_once(loop):
    jobs = [sbatch(loop, "--hold", "--wrap", "true") for _ in range(40)]
    began = time.monotonic()
    odd = [f"{jobs[0]};bed", "999999", *jobs[1:], *(str(n) for n in range(900000, 902000))]
    done = loop.run("sbatch-router-cancel", *odd)
    assert time.monotonic() - began < 2.5
    assert (done.returncode, done.stdout) == (0, "")
    loop.cluster.wait_until(
        lambda: loop.cluster.run("squeue", "-h", "-u", "alice").stdout == "", timeout=30
    )


@pytest.mark.parametrize("odd", [["-u", "alice"], ["--state=PENDING"], ["--name=wrap", ""]])
def test_cancel_hands_scancel_nothing_but_ids(loop, odd):
    """An option in place of an id would cancel every job that it fits."""
    kept, ended = (sbatch(loop, "--hold", "--wrap", "true") for _ in range(2))
    done = loop.run("sbatch-router-cancel", *odd, ended, check=False)
    assert done.returncode == 2
    expected = "".join(f"sbatch-router-cancel: {word!r} is no job id\n" for word in odd)
    assert done.stderr == expected
    queue = loop.cluster.run("squeue", "-h", "-u", "alice", "-o", "%A").stdout.split()
    assert kept in queue
    assert ended not in queue


def test_the_sidecar_prints_one_line_and_ends_on_sigterm(loop):
    child = loop.cluster.popen_as(
        "alice",
        ["env", "sbatch-router-sidecar"],
        env=loop.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    line = child.stdout.readline()
    assert re.fullmatch(rb"sbatch-router-sidecar \d+\n", line)
    log = loop.cluster.home("alice") / ".local/state/sbatch-router/sidecar.jsonl"
    loop.cluster.wait_until(lambda: log.exists() and "started" in log.read_text())
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=10)
    assert (child.returncode, out) == (0, b"")
    assert err == b""
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[-2:] == ["started", "stopped"]


@pytest.mark.slow
def test_four_sidecars_ask_no_more_than_one(loop):
    sbatch(loop, "--hold", "--wrap", "true")
    sidecars = [
        loop.cluster.popen_as(
            "alice", ["env", "sbatch-router-sidecar"], env=loop.env, stdout=subprocess.DEVNULL
        )
        for _ in range(4)
    ]
    began, before = time.monotonic(), user_rpcs(loop.cluster)
    time.sleep(12)
    seconds, asked = time.monotonic() - began, user_rpcs(loop.cluster) - before
    for sidecar in sidecars:
        sidecar.terminate()
    assert [sidecar.wait(timeout=30) for sidecar in sidecars] == [0] * 4
    assert 2 <= asked <= seconds / 2.5 + 1
