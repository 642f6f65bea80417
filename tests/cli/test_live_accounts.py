"""live-accounts on a real cluster: all users counted, unlimited, zero and unknown apart."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Cli

SEED_KEYS = ["name", "gpu_avail", "cpu_avail", "mem_avail_gb"]


def accounts(cli: Cli, *options: str, **more: Any) -> dict[str, dict[str, Any]]:
    done = cli.run("live-accounts", *options, **more)
    assert (done.rc, done.err) == (0, "")
    assert done.out.count("\n") == 1
    return {entry["name"]: entry for entry in json.loads(done.out)}


def test_the_seeds_entry(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    done = cli.run("live-accounts", "--seed-keys")
    assert json.loads(done.out) == [
        {"name": "clive", "gpu_avail": 1, "cpu_avail": 72, "mem_avail_gb": 56.5},
        {"name": "maigan", "gpu_avail": 4, "cpu_avail": 160, "mem_avail_gb": 625},
    ]


def test_what_we_know_better(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=100G", "-c8")
    cli.cluster.hold("alice", "-A", "clive", "--mem=50G", "-c2", "--gres=gpu:1")
    cli.run("--wrap=sleep 9", "-Aclive", "--mem=10G", "-c1", "--hold", program="sbatch")
    cli.run("--wrap=sleep 9", "-Aclive", "--mem=300G", "-c3", program="sbatch")
    found = accounts(cli, "--mem", "125G", "--gpus", "1", "--cpus", "4")
    assert list(found) == ["clive", "maigan"]
    clive = found["clive"]
    assert list(clive)[:4] == SEED_KEYS
    assert clive["mem_mib"] == {
        "limit": 320000,
        "used": 153600,
        "others": 102400,
        "mine": 51200,
        "queued": 307200,
        "free": 166400,
        "where": "qos clive",
    }
    assert (clive["gpu_avail"], clive["gpu"]["mine"], clive["slots"]) == (0, 1, 0)
    assert clive["cpu"]["free"] == clive["cpu_avail"] == 70
    # Four GPUs; 625 GB hold five such jobs.
    assert found["maigan"]["slots"] == 4
    assert accounts(cli, "--mem", "125G")["maigan"]["slots"] == 5
    table = cli.run("live-accounts", "--table")
    assert table.out.split("\n")[0].split()[-2:] == ["job", "slots"]


@pytest.fixture
def three_more(cli: Cli) -> Iterator[None]:
    """Accounts of alice's for one test: the others know her by the seed's."""
    cli.cluster.apply(
        {
            "users": {"alice": {"default_account": "clive"}},
            "qos": {
                "la-free": {},
                "la-zero": {"GrpTRES": "gres/gpu=0,cpu=10"},
                "la-jobs": {"GrpJobs": 1, "GrpTRES": "cpu=10"},
            },
            "accounts": {
                name: {
                    "parent": "dept",
                    "qos": [name],
                    "default_qos": name,
                    "users": ["alice", "bob"],
                }
                for name in ("la-free", "la-zero", "la-jobs")
            },
        }
    )
    yield
    cli.cluster.scancel_all()
    names = "la-free,la-zero,la-jobs"
    cli.cluster.sacctmgr("delete", "account", f"name={names}")
    cli.cluster.sacctmgr("delete", "qos", f"name={names}")


def test_unlimited_zero_and_unknown(cli: Cli, three_more: None) -> None:
    cli.policy(
        "version: 1\ncache: 0\n"
        "accounts: [la-free, la-zero, la-jobs, nosuch, {name: clive, only: {gpus: 0}}]\n"
    )
    cli.cluster.hold("bob", "-A", "la-jobs", "-c1", "--mem=1G")
    done = cli.run("live-accounts")
    assert done.rc == 0
    assert (
        done.err == "sbatch-router: nosuch left out: alice has no association with account nosuch\n"
    )
    found = {entry["name"]: entry for entry in json.loads(done.out)}
    # Unlimited is all that the partition has, and named.
    free = found["la-free"]
    assert (free["gpu_avail"], free["cpu_avail"], free["mem_avail_gb"]) == (8, 256, 4096)
    assert free["unlimited"] == ["gpu", "cpu", "mem"]
    assert free["gpu"]["limit"] is None
    zero = found["la-zero"]
    assert (zero["gpu_avail"], zero["cpu_avail"]) == (0, 10)
    assert (zero["gpu"]["limit"], zero["unlimited"]) == (0, ["mem"])
    # A limit on jobs is reached: nothing more starts, whatever TRES are left.
    jobs = found["la-jobs"]
    assert (jobs["cpu_avail"], jobs["slots"], jobs["reason"]) == (0, 0, "QOSGrpJobsLimit")
    # The policy's `only`.
    assert (found["clive"]["gpu_avail"], found["clive"]["takes"]) == (0, ["cpu"])


@pytest.mark.slow
def test_where_no_limit_is_enforced(cli: Cli) -> None:
    """Everything is unlimited then, whatever the QOS say."""
    cli.policy()
    cli.cluster.reconfigure(restart=True, AccountingStorageEnforce="associations")
    try:
        found = accounts(cli)
    finally:
        cli.cluster.reconfigure(restart=True, AccountingStorageEnforce=None)
    assert {entry["cpu_avail"] for entry in found.values()} == {256}
    assert found["clive"]["unlimited"] == ["gpu", "cpu", "mem"]
    assert found["clive"]["why"] == "no limit binds here"


def test_use_that_is_hidden_is_unknown_not_zero(cli: Cli) -> None:
    """PrivateData=usage hides what an account uses: it is left out, not shown as empty."""
    cli.cluster.apply(
        {
            "users": {"alice": {"default_account": "clive"}},
            "qos": {"la-open": {}},
            "accounts": {
                "la-hidden": {
                    "parent": "dept",
                    "qos": ["la-open"],
                    "default_qos": "la-open",
                    "users": ["alice"],
                    "GrpTRES": "cpu=10",
                }
            },
        }
    )
    cli.policy("version: 1\naccounts: [clive, la-hidden]\ncache: 0\n")
    assert accounts(cli)["la-hidden"]["cpu_avail"] == 10
    cli.cluster.reconfigure(PrivateData="usage")
    try:
        done = cli.run("live-accounts")
    finally:
        cli.cluster.reconfigure(PrivateData=None)
        cli.cluster.sacctmgr("delete", "account", "name=la-hidden")
        cli.cluster.sacctmgr("delete", "qos", "name=la-open")
    assert [entry["name"] for entry in json.loads(done.out)] == ["clive"]
    assert done.err.startswith("sbatch-router: la-hidden left out: ")


def test_slurm_does_not_answer(cli: Cli) -> None:
    cli.policy()
    cli.cluster.pause_controller()
    try:
        done = cli.run("live-accounts")
    finally:
        cli.cluster.resume_controller()
    assert (done.rc, done.out) == (69, "")
    assert "did not answer within 2 s" in done.err
    assert "Traceback" not in done.err


def test_no_policy(cli: Cli) -> None:
    done = cli.run("live-accounts")
    assert (done.rc, done.out) == (1, "")
    assert "sbatch-router init" in done.err


def test_a_bare_snakefile_asks_slurm_once_and_its_jobs_do_not(cli: Cli) -> None:
    """`assign` without live_accounts in the config, as a Snakefile calls it."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    code = (
        "import os, sys\n"
        "from sbatch_router.snakemake import assign, pick\n"
        "os.environ['PATH'] = os.environ['PATH'] if sys.argv[1] == 'main' else '/nowhere'\n"
        "print(*assign(range(9), {}, mem_gb=125), pick({}, mem_gb=62.5))\n"
        "if sys.argv[1] == 'main':\n"
        "    import subprocess\n"
        "    subprocess.run([sys.executable, __file__, '--mode', 'remote'], check=True)\n"
    )
    script = cli.cluster.directory / "ask.py"
    script.write_text(code)
    script.chmod(0o644)
    done = cli.run(str(script), "main", program=sys.executable)
    assert done.err == ""
    first, second = done.out.splitlines()
    assert first == second == " ".join(["maigan"] * 10)


def test_a_bare_snakefile_without_slurm_uses_the_static_slots(cli: Cli) -> None:
    cli.policy()
    code = (
        "from sbatch_router.snakemake import assign\n"
        "slots = {'clive': 1, 'maigan': 2, 'brusko': 9}\n"
        "a = [{'name': n, 'gpu_slots': s} for n, s in slots.items()]\n"
        "print(*assign(range(9), {'resources': {'accounts': a}}))\n"
    )
    done = cli.run("-c", code, program=sys.executable, env={"PATH": "/nowhere"})
    assert done.rc == 0
    # brusko is blocked.
    assert sorted(done.out.split()) == ["clive"] * 3 + ["maigan"] * 6
    assert done.err.startswith("sbatch-router: no live accounts, using the config's static slots: ")


def test_a_policy_that_only_blocks(cli: Cli) -> None:
    """Slurm has told everything: there is no account to tell of."""
    path = cli.policy("version: 1\nblocked:\n  - {account: clive, reason: full}\n")
    words = (
        f"{path} only blocks accounts and lists none to choose from; write a policy of your own "
        "with `sbatch-router init`"
    )
    done = cli.run("live-accounts")
    assert (done.rc, done.out, done.err) == (1, "", f"Error: {words}\n")
    started = cli.run("run", "--", "echo", "here")
    assert (started.rc, started.out) == (0, "here\n")
    assert started.err == f"sbatch-router: {words}; started without live accounts\n"
    code = "from sbatch_router import accounts; print(accounts.for_snakefile())"
    asked = cli.run("-c", code, program=sys.executable)
    assert asked.out == "([], frozenset({'clive'}), '')\n"
