"""Every command for people comes back soon, whatever Slurm does, and says where it is stuck."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sbatch_router.slurm import patience

from .conftest import PROGRAM, Cli
from .test_diagnose import submit, wait_for

#: What is run -> exit status, and what it must say on either output.
COMMANDS = {
    "check --live": (1, r"policy\.yaml:2: accounts: .*{why}; see `sbatch-router doctor`"),
    "history": (0, r"warning: what became of waiting jobs is not known: {why}; see "),
    "status": (1, r"Error: {why}; see `sbatch-router doctor`"),
    "doctor": (1, r"(?s)failed .*{doctor}.*next: "),
    "explain -- --mem=1G --wrap=true": (0, r"as you wrote it(?s:.*){why}"),
    "diagnose": (69, r"Error: your jobs are not known: {why}; see `sbatch-router doctor`"),
    "reroute": (69, r"Error: your jobs are not known: {why}; see `sbatch-router doctor`"),
    "live-accounts": (69, r"Error: no account's use is known: {why}; see `sbatch-router doctor`"),
    "run -- true": (0, r"{why}; see `sbatch-router doctor` .*started without live accounts"),
}
#: For all of them at once, on a busy machine; one takes half of it at most.
SECONDS = 15.0


@pytest.fixture
def logged(cli: Cli) -> Iterator[Cli]:
    """With a policy, a decision in the log and a job that waits."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=300G", "-c2")
    assert cli.sbatch("--mem=20G", "-A", "clive", "--wrap", "true").rc == 0
    yield cli
    cli.cluster.resume_controller()
    if not cli.cluster.controller_answers():
        cli.cluster.start_controller()


def all_at_once(cli: Cli, why: str, doctor: str, **env: str) -> float:
    """Run every command in a state directory of its own; the longest time that one took."""
    began = time.monotonic()
    started = {}
    for number, text in enumerate(COMMANDS):
        place = cli.run_dir("alice") / str(number)
        place.mkdir(mode=0o700)
        os.chown(place, cli.cluster.uid("alice"), -1)
        more = {**cli.env("alice"), "XDG_RUNTIME_DIR": str(place), "COLUMNS": "200", **env}
        started[text] = cli.cluster.popen_as(
            "alice",
            [PROGRAM, *text.split()],
            env=more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    said = {}
    for text, process in started.items():
        out, _ = process.communicate(timeout=100)
        said[text] = (process.returncode, " ".join(out.decode().split()))
    took = time.monotonic() - began
    for text, (status, pattern) in COMMANDS.items():
        assert said[text][0] == status, said[text]
        wanted = pattern.replace("{why}", why).replace("{doctor}", doctor)
        assert re.search(wanted, said[text][1]), (text, said[text])
    return took


SILENT = r"slurmctld cannot be reached: [^;]*(did not answer within|Unable to contact)[^;]*"


@pytest.mark.cluster
def test_slurmctld_hangs(logged: Cli) -> None:
    logged.cluster.pause_controller()
    took = all_at_once(logged, SILENT, "scontrol did not answer within")
    assert took < SECONDS


@pytest.mark.cluster
def test_slurmctld_is_down(logged: Cli) -> None:
    logged.cluster.stop_controller()
    took = all_at_once(logged, SILENT, "slurmctld .*is DOWN")
    assert took < SECONDS


@pytest.mark.cluster
def test_SLURM_CONF_names_no_file(logged: Cli) -> None:
    why = r"SLURM_CONF=/nowhere/slurm\.conf: No such file or directory \(load the Slurm module.*\)"
    where = r"slurm\.conf +SLURM_CONF=/nowhere/slurm\.conf: No such file or directory"
    took = all_at_once(logged, why, where, SLURM_CONF="/nowhere/slurm.conf")
    assert took < SECONDS
    init = logged.run("init", "-o", "-", env={"SLURM_CONF": "/nowhere/slurm.conf"})
    assert (init.rc, init.out) == (1, "")
    assert re.match(rf"Error: your Slurm accounts are not known: {why}", init.err)


@pytest.mark.cluster
def test_slurmdbd_hangs(logged: Cli) -> None:
    """sacct is only given its time once slurmdbd has answered anything."""
    slurmdbd = [pid for pid in logged.cluster.entry.pids() if name_of(pid) == "slurmdbd"]
    for pid in slurmdbd:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        history, init = logged.run("history"), logged.run("init", "-o", "-")
        took = time.monotonic() - began
    finally:
        for pid in slurmdbd:
            os.kill(pid, signal.SIGCONT)
    assert slurmdbd
    assert took < SECONDS
    assert (history.rc, init.rc) == (0, 1)
    assert "warning: what became of ended jobs is not known: slurmdbd cannot be" in history.err
    assert "Error: your Slurm accounts are not known: slurmdbd cannot be reached" in init.err


@pytest.mark.cluster
def test_slurmdbd_is_back(logged: Cli) -> None:
    """What it did not tell a moment ago is asked for again, not taken for still unknown."""
    place = logged.run_dir("alice") / "other"
    place.mkdir(mode=0o700)
    os.chown(place, logged.cluster.uid("alice"), -1)
    env = {"XDG_RUNTIME_DIR": str(place)}
    slurmdbd = [pid for pid in logged.cluster.entry.pids() if name_of(pid) == "slurmdbd"]
    for pid in slurmdbd:
        os.kill(pid, signal.SIGSTOP)
    try:
        silent = logged.run("live-accounts", env=env)
    finally:
        for pid in slurmdbd:
            os.kill(pid, signal.SIGCONT)
    assert slurmdbd
    assert (silent.rc, silent.out) == (69, "")
    assert "slurmdbd cannot be reached" in silent.err
    again = logged.run("live-accounts", env=env)
    assert (again.rc, again.err) == (0, "")


def name_of(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


@pytest.mark.cluster
def test_init_writes_what_slurmdbd_knows(logged: Cli) -> None:
    logged.cluster.pause_controller()
    found = logged.run("init", "-o", "-")
    assert found.rc == 0
    assert "# clive: cpu 80, gres/gpu 1, mem 312.5G" in found.out
    assert found.err.startswith("warning: limits are as slurmdbd has them: slurmctld cannot be")


@pytest.mark.cluster
def test_a_bound_of_ones_own(logged: Cli) -> None:
    logged.cluster.pause_controller()
    began = time.monotonic()
    found = logged.run("status", env={"SBATCH_ROUTER_TIMEOUT": "0.5"})
    assert time.monotonic() - began < 4
    assert "did not answer within 0.5 s" in found.err
    for bad in ("x", "-1", "0", "nan", "1e9"):
        found = logged.run("status", env={"SBATCH_ROUTER_TIMEOUT": bad})
        assert (found.rc, found.out) == (1, "")
        assert found.err == f"Error: SBATCH_ROUTER_TIMEOUT='{bad}': expected seconds, at most 600\n"


MOVES = """
from sbatch_router.cli import _policy, diagnose, reroute
seen = diagnose.look(_policy.in_use(_policy.environment()))
found = diagnose.diagnose(seen.jobs, seen.now, seen.desk, seen.details, seen.running)
print("ready", flush=True)
input()
print("\\n".join(f"{o.result}: {o.why}" for o in reroute.move(found, seen)))
"""


@pytest.mark.cluster
def test_moving_many_jobs_stops_at_the_first_silence(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=300G", "-c2")
    jobs = [submit(cli, "-A", "clive", "--mem=20G", "-c1") for _ in range(6)]
    wait_for(cli, *jobs, reason="QOSGrpMemLimit")
    process = cli.cluster.popen_as(
        "alice",
        [sys.executable, "-I", "-c", MOVES],
        env=cli.env("alice"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        cli.cluster.pause_controller()
        began = time.monotonic()
        out, _ = process.communicate(b"\n", timeout=60)
        took = time.monotonic() - began
    finally:
        process.kill()
        cli.cluster.resume_controller()
    assert out.decode().splitlines() == ["failed: squeue did not answer within 5 s"] * 6
    assert took < 8


# -- the clock itself ----------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(patience._Clock, "until", None)
    monkeypatch.setattr(patience._Clock, "seconds", patience.SECONDS)
    return monkeypatch


def test_one_bound_for_all_questions(clock: pytest.MonkeyPatch) -> None:
    assert patience.left() == patience.SECONDS  # no command: each question by itself
    patience.begin({})
    assert patience.left() == patience.SECONDS
    now = time.monotonic()
    clock.setattr(time, "monotonic", lambda: now + 3)
    assert 1.5 < patience.left() < 2.5
    clock.setattr(time, "monotonic", lambda: now + 100)
    assert patience.left() == patience.LEAST


def test_where_it_is_stuck(clock: pytest.MonkeyPatch) -> None:
    clock.delenv("SLURM_CONF", raising=False)
    silent = "scontrol did not answer within 5 s"
    assert patience.explain([silent, silent]) == f"slurmctld cannot be reached: {silent}"
    both = patience.explain([silent, "sacctmgr did not answer within 5 s"])
    assert both.startswith("slurmctld and slurmdbd cannot be reached: scontrol did not")
    assert patience.explain([]) == "Slurm did not tell"
    assert patience.explain(["sacct was not found in PATH"]) == "sacct was not found in PATH"
