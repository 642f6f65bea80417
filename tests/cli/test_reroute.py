"""reroute on a real cluster: who is moved, who is not, and nobody tramples anybody."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from sbatch_router import moves
from sbatch_router.core.snapshot import Job

from .conftest import Cli, until
from .test_diagnose import submit, wait_for


def where(cli: Cli, job: str) -> str:
    """``account/qos STATE`` of a job, as slurmctld has it."""
    text = cli.cluster.run("scontrol", "-o", "show", "job", job).stdout.splitlines()[0]
    fields = dict(word.partition("=")[::2] for word in text.split())
    return f"{fields['Account']}/{fields['QOS']} {fields['JobState']}"


def rows(cli: Cli, job: str) -> set[str]:
    """Every row of a job: ``id account state``."""
    done = cli.cluster.run("squeue", "-h", "-j", job, "-o", "%i %a %q %T")
    return set(done.stdout.splitlines())


def running(cli: Cli, *jobs: str) -> None:
    until(lambda: all(where(cli, job) == "maigan/maigan RUNNING" for job in jobs), 20)


@pytest.fixture
def jam(cli: Cli) -> list[str]:
    """The seed's: bob's 256 GB on clive; four decon jobs and a qc_stitch stuck behind it."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    jobs = [submit(cli, "-A", "clive", "--mem=125G", "-c4", "--gres=gpu:1") for _ in range(4)]
    jobs.append(submit(cli, "-A", "clive", "--mem=64000M", "-c4"))
    wait_for(cli, *jobs, reason="QOSGrpMemLimit")
    return jobs


def test_the_jam_is_moved_and_runs(cli: Cli, jam: list[str]) -> None:
    dry = cli.run("reroute", "--dry-run")
    assert (dry.rc, dry.err) == (0, "")
    assert dry.out.count("would move") == 5
    assert dry.out.endswith("5 of 5 would be moved; nothing was done\n")
    assert {where(cli, job) for job in jam} == {"clive/clive PENDING"}
    done = cli.run("reroute")
    assert (done.rc, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["job", "asks", "from", "to"]
    assert lines[1].split() == [
        jam[0], "cpu=4", "mem=125G", "gres/gpu=1", "clive/clive", "maigan/maigan", "moved"
    ]  # fmt: skip
    assert lines[-1] == "5 of 5 moved"
    running(cli, *jam)
    again = cli.run("reroute")
    assert (again.rc, again.out) == (
        0,
        "no pending job of yours is held by others: nothing to move\n",
    )


def test_no_more_than_there_is_room_for(cli: Cli, jam: list[str]) -> None:
    """Two GPUs are left on maigan: two decon jobs go, and the qc_stitch, which needs none."""
    cli.cluster.hold("carol", "-A", "maigan", "--gres=gpu:2", "--mem=1G")
    dry = cli.run("reroute", "--dry-run")
    done = cli.run("reroute")
    assert dry.rc == done.rc == 75
    assert done.out.endswith("3 of 5 moved\n")
    assert done.out.count("no room") == 2
    running(cli, jam[0], jam[1], jam[4])
    assert [where(cli, job) for job in jam[2:4]] == ["clive/clive PENDING"] * 2


def test_by_id(cli: Cli, jam: list[str]) -> None:
    done = cli.run("reroute", jam[2], jam[4])
    assert done.rc == 0
    running(cli, jam[2], jam[4])
    assert where(cli, jam[0]) == "clive/clive PENDING"
    # One that started meanwhile, and one that is nobody's.
    done = cli.run("reroute", jam[2], "99999")
    assert done.rc == 1
    assert f"{jam[2]}: not one of your pending jobs" in done.err
    assert "99999: not one of your pending jobs" in done.err
    assert where(cli, jam[2]) == "maigan/maigan RUNNING"


def test_others_jobs_are_not_mine_to_move(cli: Cli, jam: list[str]) -> None:
    cli.policy(user="carol")
    done = cli.run("reroute", jam[0], user="carol")
    assert done.rc == 1
    assert where(cli, jam[0]) == "clive/clive PENDING"


def test_what_is_normal_stays(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("alice", "-A", "clive", "--gres=gpu:1", "--mem=1G")
    mine = submit(cli, "-A", "clive", "--gres=gpu:1", "--mem=1G")
    later = submit(cli, "-A", "clive", "--begin=now+1hour", "--mem=400G")
    wait_for(cli, mine, reason="QOSGrpGRES")
    done = cli.run("reroute")
    assert (done.rc, done.err) == (0, "")
    done = cli.run("reroute", mine, later)
    assert done.rc == 0
    assert f"{mine}: mine, not held by others: left alone" in done.err
    assert where(cli, mine) == "clive/clive PENDING"


def test_what_can_never_start_is_moved_only_by_name(cli: Cli) -> None:
    cli.policy()
    large = submit(cli, "-A", "clive", "--mem=400G", "-c1")
    wait_for(cli, large, reason="QOSGrpMemLimit")
    assert "nothing to move" in cli.run("reroute").out
    assert cli.run("reroute", "1").out == "none of these is held by others: nothing to move\n"
    assert cli.run("reroute", large).rc == 0
    running(cli, large)


def test_jobs_outside_the_policy_are_left_alone(cli: Cli, jam: list[str]) -> None:
    cli.policy("version: 1\naccounts: [maigan]\ncache: 0\n")
    assert "nothing to move" in cli.run("reroute").out
    done = cli.run("reroute", jam[0])
    assert f"{jam[0]}: account clive is not in the policy: left alone" in done.err
    assert where(cli, jam[0]) == "clive/clive PENDING"


def test_away_from_a_blocked_account(cli: Cli) -> None:
    cli.policy(
        "version: 1\naccounts: [maigan]\nblocked: [{account: clive, reason: full}]\ncache: 0\n"
    )
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    job = submit(cli, "-A", "clive", "--mem=125G")
    wait_for(cli, job, reason="QOSGrpMemLimit")
    assert cli.run("reroute").rc == 0
    running(cli, job)


def test_an_array_moves_as_a_whole(cli: Cli) -> None:
    """Its waiting tasks: those that run are left where they are."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    array = submit(cli, "-A", "clive", "--array=1-6%4", "--mem=60G", "-c1")
    wait_for(cli, array, reason="QOSGrpMemLimit")
    cli.cluster.run("scontrol", "update", f"JobId={array}_1", "Account=brusko", "QOS=brusko")
    until(lambda: f"{array}_1 brusko brusko RUNNING" in rows(cli, array))
    done = cli.run("reroute", f"{array}_3")
    assert done.rc == 1
    assert f"{array}_3: an array's waiting tasks are one job: name {array}" in done.err
    done = cli.run("reroute")
    assert (done.rc, done.err) == (0, "")
    assert f"{array}_[2-6%4]" in done.out
    until(lambda: f"{array}_4 maigan maigan RUNNING" in rows(cli, array))
    assert f"{array}_1 brusko brusko RUNNING" in rows(cli, array)
    assert not {row for row in rows(cli, array) if "clive" in row}
    # Its % is still in force: tasks 1 to 4.
    assert sum("RUNNING" in row for row in rows(cli, array)) == 4


def test_part_of_an_array_has_room(cli: Cli) -> None:
    """It moves if some of its tasks can start there; the rest waits behind them, its own."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    cli.cluster.hold("carol", "-A", "maigan", "--mem=400G", "-c8")
    array = submit(cli, "-A", "clive", "--array=1-4", "--mem=100G", "-c1")
    wait_for(cli, array, reason="QOSGrpMemLimit")
    assert cli.run("reroute").rc == 0
    until(lambda: f"{array}_2 maigan maigan RUNNING" in rows(cli, array))
    until(lambda: f"{array}_[3-4] maigan maigan PENDING" in rows(cli, array))


def test_two_at_once_do_not_trample(cli: Cli) -> None:
    """Two runs over the same jobs, and room for one only: one job goes, once."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    cli.cluster.hold("carol", "-A", "maigan", "--mem=500G", "-c8")
    jobs = [submit(cli, "-A", "clive", "--mem=100G", "-c1") for _ in range(3)]
    wait_for(cli, *jobs, reason="QOSGrpMemLimit")
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(cli.run("reroute"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any("Traceback" in result.err for result in results)
    moved = [job for job in jobs if where(cli, job).startswith("maigan")]
    assert len(moved) == 1


def test_a_promise_holds_against_a_submission(cli: Cli) -> None:
    """A shim with a snapshot from before the move knows of it all the same."""
    cli.policy("version: 1\naccounts: [maigan, clive]\ncache: 60s\n")
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    cli.cluster.hold("carol", "-A", "maigan", "--mem=500G", "-c8")
    job = submit(cli, "-A", "clive", "--mem=100G", "-c1")
    wait_for(cli, job, reason="QOSGrpMemLimit")
    assert cli.sbatch("--mem=1G", "--wrap=sleep 60").rc == 0
    assert cli.run("reroute").rc == 0
    done = cli.sbatch("--mem=100G", "--wrap=sleep 60")
    assert "queued" in done.err or done.rc == 75, done


def test_history_knows_a_job_that_was_moved(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    done = cli.sbatch("-A", "clive", "--mem=125G", "--job-name=moved", "--wrap=sleep 300")
    job = done.out.split()[-1]
    wait_for(cli, job, reason="QOSGrpMemLimit")
    assert cli.run("reroute").rc == 0
    running(cli, job)
    told = cli.run("history", "--since", "1h")
    assert told.rc == 0
    assert "rerouted to maigan, started after" in told.out, told.out


LATE = """\
import sys
from sbatch_router.cli.reroute import command
from sbatch_router.moves import Mover

def init(self, *args, old=Mover.__init__):
    old(self, *args)
    self._pause = lambda: open(sys.argv[1], "w").close() or input()

Mover.__init__ = init
command([sys.argv[2]], prog_name="reroute")
"""


def test_a_job_that_starts_at_the_last_moment(cli: Cli, jam: list[str]) -> None:
    """Between the last look and the move: Slurm refuses, and it is left alone."""
    ready = cli.cluster.home("alice") / f"ready.{jam[0]}"
    ready.unlink(missing_ok=True)
    process = cli.cluster.popen_as(
        "alice",
        [sys.executable, "-c", LATE, str(ready), jam[0]],
        env=cli.env("alice"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(ready.exists)
    cli.cluster.run("scontrol", "update", f"JobId={jam[0]}", "Account=brusko", "QOS=brusko")
    until(lambda: where(cli, jam[0]) == "brusko/brusko RUNNING")
    out, err = process.communicate(b"\n", timeout=20)
    assert (process.returncode, err) == (0, b"")
    assert b"started: it is RUNNING by now: left alone" in out
    assert out.endswith(b"0 of 1 moved\n")
    assert where(cli, jam[0]) == "brusko/brusko RUNNING"


# -- without Slurm ------------------------------------------------------------------------------


def job(ident: str, state: str = "PENDING") -> Job:
    return Job(ident, "a", "q", "p", state, "", {})


def test_same_row() -> None:
    """What is left of a pending record, in every form squeue shows."""
    left = job("7_[3-6%2]")
    assert moves.same_row(job("7_[1-6%2]"), [job("7_1", "RUNNING"), left]) == left
    last = job("7_6")
    assert moves.same_row(job("7_[5-6]"), [job("7_5", "RUNNING"), last]) == last
    # A requeued task is no part of the record.
    assert moves.same_row(job("7_[5-6]"), [job("7_1")]) is None
    assert moves.same_row(job("7"), [job("7", "RUNNING")]) is None
    assert moves.same_row(job("7_4"), [job("7_[5-6]"), job("7_4")]) == job("7_4")


def test_requests_of_jobs() -> None:
    """Options that come to a job's ReqTRES."""
    tres = {
        "cpu": 8, "mem": 100001, "node": 2, "billing": 8, "gres/gpu": 4, "gres/gpu:a100": 2,
        "license/matlab": 3,
    }  # fmt: skip
    pending = job("7")._replace(tres=tres, time_limit=90, tasks=4, tasks_at_once=2)
    snapshot: Any = type("Snapshot", (), {"partitions": None, "config": None})()
    wanted = moves.request_of(pending, None, snapshot, {})
    given = {name: value.value for name, value in wanted.request.options.items()}
    assert given == {
        "nodes": "2",
        "ntasks": "8",
        "mem": "50001M",
        "gres": "gpu:a100:1,gpu:1",
        "licenses": "matlab:3",
        "partition": "p",
        "time": "90",
    }
    assert (wanted.request.array_tasks, wanted.request.array_at_once) == (4, 2)
    assert not wanted.exact
