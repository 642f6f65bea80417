"""`status` on a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import time
from typing import Any

import pytest

from .conftest import PROGRAM, Cli, until

pytestmark = pytest.mark.cluster


def queue(cli: Cli, *options: str) -> str:
    done = cli.cluster.run_as("alice", ["sbatch", "--parsable", *options, "--wrap", "sleep 300"])
    job: str = done.stdout.strip()
    return job


def test_the_whole_page(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=250G", "-c2")
    cli.cluster.hold("alice", "-A", "clive", "--mem=10G", "-c1")
    job = queue(cli, "-A", "clive", "--mem=100G")
    assert cli.cluster.wait_reason(job) == ("PENDING", "QOSGrpMemLimit")
    found = cli.run("status", "--ascii")
    assert (found.rc, found.err) == (0, "")
    head, _, rest = found.out.partition("\n")
    assert head.startswith("pools of alice on cluster ")
    assert head.endswith(", from scontrol")
    assert rest == (
        "\n"
        "clive/clive    your jobs wait: QOSGrpMemLimit (your default account)\n"
        "    gres/gpu ....................          0 of 1  0 yours\n"
        "    mem      #================+++  260G of 312.5G  10G yours +100G\n"
        "    cpu      #=+.................         3 of 80  1 yours +1\n"
        "    held by bob (cpu 2, mem 250G), alice (cpu 1, mem 10G)\n"
        "    pending 1 job of yours: QOSGrpMemLimit 1\n"
        "\n"
        "maigan/maigan  has room\n"
        "    gres/gpu ....................          0 of 4  0 yours\n"
        "    mem      ....................       0 of 625G  0 yours\n"
        "    cpu      ....................        0 of 160  0 yours\n"
        "\n"
        "brusko         blocked: throttled since March (since 2026-03-02)\n"
        "\n"
        "# yours  = others'  + queued by you  . free\n"
    )


def test_json(cli: Cli) -> None:
    path = cli.policy(
        "version: 1\naccounts: [clive, {name: maigan, qos: [maigan, clive]}, nosuch]\n"
        "blocked: [{account: brusko, reason: full, since: 2020-01-01, review: 2020-02-01}]\n"
    )
    cli.cluster.hold("bob", "-A", "clive", "--mem=250G", "-c2")
    found = cli.run("status", "--json")
    assert found.rc == 0
    assert found.err == f"warning: {path}: brusko was to be reviewed on 2020-02-01: full\n"
    data: Any = json.loads(found.out)
    assert data["user"] == "alice"
    assert data["policy"] == {"files": [str(path)]}
    assert data["snapshot"]["source"] == "scontrol"
    assert data["blocked"] == [
        {
            "account": "brusko",
            "reason": "full",
            "since": "2020-01-01",
            "review": "2020-02-01",
            "overdue": True,
            "file": str(path),
        }
    ]
    states = {(p["account"], p["qos"]): p["state"] for p in data["pools"]}
    assert states == {
        ("clive", "clive"): "open",
        ("maigan", "maigan"): "open",
        ("maigan", "clive"): "not_allowed",
        ("nosuch", ""): "not_allowed",
        ("brusko", ""): "blocked",
    }
    clive = data["pools"][0]
    assert clive["limits"][1] == {
        "tres": "mem",
        "kind": "GrpTRES",
        "where": "qos clive",
        "limit": 320000,
        "used": 256000,
        "mine": 0,
        "pending": 0,
    }
    assert clive["users"] == [{"user": "bob", "tres": {"cpu": 2, "mem": 256000}}]
    assert (clive["running_jobs"], clive["pending_jobs"]) == (0, 0)


def test_a_promise_that_became_a_job_counts_once(cli: Cli) -> None:
    cli.policy()
    job = cli.sbatch("-A", "clive", "--mem=1G", "--wrap", "sleep 300")
    moved = cli.sbatch("--mem=10G", "--wrap", "sleep 300")
    for done in (job, moved):
        assert cli.cluster.wait_reason(done.out.split()[-1])[0] == "RUNNING"
    pools = json.loads(cli.run("status", "--json").out)["pools"]
    mem = {p["account"]: x for p in pools for x in p["limits"] if x["tres"] == "mem"}
    assert (mem["clive"]["mine"], mem["clive"]["pending"]) == (1024, 0)
    assert (mem["maigan"]["mine"], mem["maigan"]["pending"]) == (10240, 0)


def test_limits_of_other_kinds(cli: Cli) -> None:
    cli.cluster.apply(
        {
            "users": {"dora": {"default_account": "kinds"}},
            "qos": {
                "kinds": {
                    "GrpTRES": "cpu=10",
                    "GrpJobs": 5,
                    "MaxTRESPerUser": "mem=1000",
                    "MaxTRESPerJob": "cpu=4",
                    "MaxWall": "1-0",
                }
            },
            "accounts": {
                "kinds": {
                    "parent": "dept",
                    "qos": ["kinds"],
                    "default_qos": "kinds",
                    "users": ["dora"],
                    "GrpTRES": "cpu=20,mem=5000",
                }
            },
        }
    )
    cli.policy("version: 1\naccounts: [kinds]\n", "dora")
    found = cli.run("status", "--json", user="dora")
    assert (found.rc, found.err) == (0, "")
    (pool,) = json.loads(found.out)["pools"]
    # The QOS hides the account's GrpTRES of cpu, not of mem.
    limits = {(x["kind"], x["tres"], x["where"]): x["limit"] for x in pool["limits"]}
    assert limits == {
        ("GrpTRES", "cpu", "qos kinds"): 10,
        ("GrpTRES", "mem", "account kinds"): 5000,
        ("MaxTRESPU", "mem", "user dora in qos kinds"): 1000,
        ("GrpJobs", "GrpJobs", "qos kinds"): 5,
    }
    assert pool["per_job"] == ["cpu at most 4", "time at most 1d"]
    shown = cli.run("status", user="dora")
    assert "a job   cpu at most 4, time at most 1d" in shown.out
    assert "for you" in shown.out


@pytest.mark.slow
def test_without_slurm(cli: Cli) -> None:
    cli.policy()
    cli.cluster.stop_controller()
    try:
        found = cli.run("status")
    finally:
        cli.cluster.start_controller()
    assert found.rc == 1
    # Said once, above the pools, where it is the same for all of them.
    assert "\ntrouble: scontrol " in found.out
    assert "\nclive   not known" in found.out
    assert found.err.startswith("Error: slurmctld cannot be reached: scontrol ")
    assert found.err.endswith("; see `sbatch-router doctor`\n")
    assert "Traceback" not in found.err


def test_watch_ends_with_ctrl_c(cli: Cli) -> None:
    cli.policy()
    process = cli.cluster.popen_as(
        "alice",
        [PROGRAM, "status", "--watch", "2", "--ascii"],
        env=cli.env("alice"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=20)[1]
    assert first.startswith(b"pools of alice")
    assert (process.returncode, err) == (0, b"")


def test_watch_on_a_terminal(cli: Cli) -> None:
    cli.policy()
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    process = cli.cluster.popen_as(
        "alice",
        [PROGRAM, "status", "--watch"],
        env={**cli.env("alice"), "TERM": "xterm", "LINES": "50"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    said = b""

    def read() -> bool:
        nonlocal said
        with contextlib.suppress(OSError):
            said += os.read(leader, 65536)
        return b"others'" in said

    until(read)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        read()
        time.sleep(0.02)
    read()
    os.close(leader)
    assert process.returncode == 0
    assert b"Traceback" not in said
    assert b"\x1b[?25h" in said, "the cursor stays hidden"


def test_watch_needs_a_sensible_number(cli: Cli) -> None:
    cli.policy()
    found = cli.run("status", "--watch", "0")
    assert (found.rc, found.out) == (2, "")
    assert "is not in the range" in found.err
