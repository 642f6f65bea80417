"""diagnose: each pending job by cause, on a real cluster; every accounting reason has a class."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sbatch_router import diagnosis
from sbatch_router.core import reasons

from .conftest import Cli, until

WRAP = "--wrap=sleep 100"


def submit(cli: Cli, *options: str) -> str:
    """A job of alice's by the bare sbatch; its id."""
    done = cli.run("--parsable", WRAP, *options, program="sbatch")
    assert done.rc == 0, done
    return done.out.strip()


def wait_for(cli: Cli, *ids: str, reason: str = "") -> None:
    """Until Slurm has looked at the jobs (and gives a reason)."""
    for ident in ids:
        state, why = cli.cluster.wait_reason(ident)
        assert state == "PENDING", (ident, state, why)
        if reason:
            until(lambda i=ident: cli.cluster.wait_reason(i)[1] == reason)  # type: ignore[misc]


def diagnose(cli: Cli, *argv: str) -> dict[str, dict[str, Any]]:
    done = cli.run("diagnose", "--json", *argv)
    assert (done.rc, done.err) == (0, ""), done
    data = json.loads(done.out)
    assert data["troubles"] == []
    return {job["id"]: job for job in data["jobs"]}


def test_the_seeds_jam(cli: Cli) -> None:
    cli.policy()
    began = time.time()
    bob = cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8", "-t", "2:00:00")
    decon = [
        submit(cli, "-A", "clive", "-J", f"decon{n}", "--mem=125G", "-c4", "--gres=gpu:1")
        for n in range(4)
    ]
    stitch = submit(cli, "-A", "clive", "-J", "qc_stitch", "--mem=64000M", "-c4")
    wait_for(cli, *decon, stitch, reason="QOSGrpMemLimit")
    found = diagnose(cli)
    assert list(found) == [*decon, stitch]
    first = found[decon[0]]
    assert (first["name"], first["cause"], first["normal"]) == ("decon0", "others", False)
    assert first["can_start"] is True
    assert first["limit"] == {
        "tres": "mem",
        "kind": "GrpTRES",
        "where": "qos clive",
        "limit": 320000,
        "used": 262144,
        "mine": 0,
        "requested": 128000,
    }
    (holder,) = first["holders"]
    assert (holder["user"], holder["amount"], holder["jobs"]) == ("bob", 262144, 1)
    assert began - 5 <= holder["since"] <= time.time()
    assert holder["first_ends"] == holder["since"] + 7200
    # maigan has four GPUs and 625 GB: it takes all five.
    for ident in [*decon, stitch]:
        move = {"account": "maigan", "qos": "maigan", "exact": True}
        assert found[ident]["move"] == {**move, "command": f"sbatch-router reroute {ident}"}
    shown = cli.run("diagnose")
    assert (shown.rc, shown.err) == (0, "")
    assert shown.out.startswith("5 pending jobs: 5 to look at, 0 normal\n")
    assert f"[look] {', '.join(decon)}  clive/clive  PENDING (QOSGrpMemLimit)" in shown.out
    assert "qos clive: GrpTRES mem 312.5G, used 256G, asked 125G" in shown.out
    assert "held by  bob 256G in 1 job, since " in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert f"maigan/maigan would take it: sbatch-router reroute {' '.join(decon)}" in shown.out
    cli.cluster.run("scancel", str(bob))


def test_own_queueing_is_normal(cli: Cli) -> None:
    """The seed: QOSGrpGRES from my own jobs is no problem; from others' it is one."""
    cli.policy()
    cli.cluster.hold("alice", "-A", "clive", "--gres=gpu:1", "--mem=1G")
    mine = submit(cli, "-A", "clive", "--gres=gpu:1", "--mem=1G")
    wait_for(cli, mine, reason="QOSGrpGRES")
    job = diagnose(cli)[mine]
    assert (job["cause"], job["normal"], job["can_start"]) == ("mine", True, True)
    assert (job["holders"], job["move"]) == ([], None)
    assert "(1 yours)" in job["why"]
    assert cli.run("diagnose").out.startswith("1 pending job: 0 to look at, 1 normal\n")
    cli.cluster.scancel_all()
    cli.cluster.hold("bob", "-A", "clive", "--gres=gpu:1", "--mem=1G")
    theirs = submit(cli, "-A", "clive", "--gres=gpu:1", "--mem=1G")
    wait_for(cli, theirs, reason="QOSGrpGRES")
    job = diagnose(cli)[theirs]
    assert (job["cause"], job["normal"]) == ("others", False)
    assert [h["user"] for h in job["holders"]] == ["bob"]


def test_other_causes(cli: Cli) -> None:
    cli.policy()
    large = submit(cli, "-A", "clive", "--mem=400G", "-c1")
    later = submit(cli, "-A", "clive", "--begin=now+1hour", "--mem=1G")
    held = submit(cli, "-A", "clive", "--hold", "--mem=1G")
    after = submit(cli, "-A", "clive", f"--dependency=afterok:{later}", "--mem=1G")
    array = submit(cli, "-A", "maigan", "--array=0-7%2", "--mem=1G", "-c1")
    nodes = submit(cli, "-A", "maigan", "--mem=2000G")
    wait_for(cli, large, later, after)
    until(lambda: "JobArrayTaskLimit" in cli.cluster.run("squeue", "-h", "-o", "%r").stdout)
    found = diagnose(cli)
    expected = {
        large: ("too-large", False, False),
        later: ("waiting", True, True),
        held: ("held", False, None),
        after: ("waiting", True, None),
        f"{array}_[2-7%2]": ("waiting", True, True),
        nodes: ("too-large", False, False),
    }
    told = {i: (j["cause"], j["normal"], j["can_start"]) for i, j in found.items()}
    assert told == expected
    assert found[f"{array}_[2-7%2]"]["tasks"] == 6
    # maigan takes what clive never can; nobody what is larger than every limit.
    assert found[large]["move"]["account"] == "maigan"
    assert found[nodes]["move"] is None
    shown = cli.run("diagnose").out
    assert "start    never, as it is" in shown
    assert "now      no account of the policy would start it" in shown
    assert list(diagnose(cli, array)) == [f"{array}_[2-7%2]"]
    assert list(diagnose(cli, held, large)) == [large, held]


@pytest.fixture
def dropped(cli: Cli) -> Iterator[None]:
    """Accounts and QOS that a test adds (dg-...) are gone afterwards."""
    yield
    cli.cluster.scancel_all()
    cli.cluster.sacctmgr("delete", "account", "name=dg-open,dg-two", check=False)
    cli.cluster.sacctmgr("delete", "qos", "name=dg-open,dg-one,dg-two", check=False)


def test_whole_nodes_are_no_exact_judgement(cli: Cli, dropped: None) -> None:
    """--exclusive takes the node; ReqTRES does not say so, and `exact` does."""
    cli.policy("version: 1\naccounts: [clive, maigan, dg-open]\ncache: 0\n")
    users = ["alice", "bob"]
    cli.cluster.apply(
        {
            "users": {user: {"default_account": "clive"} for user in users},
            "qos": {"dg-open": {}, "dg-one": {"GrpJobs": 1}},
            "accounts": {
                "dg-open": {
                    "parent": "dept",
                    "qos": ["dg-open", "dg-one"],
                    "default_qos": "dg-open",
                    "users": users,
                }
            },
        }
    )
    cli.cluster.hold("bob", "-A", "dg-open", "-q", "dg-one", "-c1", "--mem=1G")
    job = submit(cli, "-A", "dg-open", "-q", "dg-one", "-c1", "--mem=1G", "--exclusive")
    plain = submit(cli, "-A", "dg-open", "-q", "dg-one", "-c1", "--mem=1G")
    wait_for(cli, job, plain, reason="QOSGrpJobsLimit")
    found = diagnose(cli)
    # 256 CPUs: more than clive's 80 and maigan's 160.
    assert found[job]["move"] == {
        "account": "dg-open",
        "qos": "dg-open",
        "exact": False,
        "command": f"sbatch-router reroute {job}",
    }
    assert found[plain]["move"]["exact"] is True
    assert "(as far as ReqTRES tells)" in cli.run("diagnose").out


def test_accounts_outside_the_policy(cli: Cli) -> None:
    """Explained as well, and not for us to move."""
    cli.policy("version: 1\naccounts: [maigan]\ncache: 0\n")
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    job = submit(cli, "-A", "clive", "--mem=125G")
    wait_for(cli, job, reason="QOSGrpMemLimit")
    found = diagnose(cli)[job]
    assert (found["cause"], found["move"]) == ("others", None)
    assert [h["user"] for h in found["holders"]] == ["bob"]
    assert "account clive is not in the policy: left alone" in cli.run("diagnose").out


def test_holders_when_jobs_are_private(cli: Cli) -> None:
    """PrivateData=jobs hides whose jobs run; the QOS rows still tell how much."""
    cli.policy()
    cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    job = submit(cli, "-A", "clive", "--mem=125G")
    wait_for(cli, job, reason="QOSGrpMemLimit")
    cli.cluster.reconfigure(PrivateData="jobs")
    try:
        (holder,) = diagnose(cli)[job]["holders"]
        shown = cli.run("diagnose").out
    finally:
        cli.cluster.reconfigure(PrivateData=None)
    assert (holder["user"], holder["amount"]) == ("bob", 262144)
    assert (holder["jobs"], holder["since"], holder["first_ends"]) == (0, None, None)
    assert "held by  bob 256G\n" in shown
    assert "other users' jobs are hidden here" in shown


def test_a_job_does_not_count_against_its_own_submit_limit(cli: Cli, dropped: None) -> None:
    """With as many jobs as may be submitted, the cause is still who runs."""
    accounts = {
        name: {"parent": "dept", "qos": [name], "default_qos": name, "users": ["alice", "bob"]}
        for name in ("dg-two",)
    }
    cli.cluster.apply(
        {
            "users": {"alice": {"default_account": "clive"}, "bob": {"default_account": "clive"}},
            "qos": {"dg-two": {"GrpTRES": "cpu=2", "MaxSubmitJobsPerUser": 1}},
            "accounts": accounts,
        }
    )
    cli.policy("version: 1\naccounts: [dg-two, maigan]\ncache: 0\n")
    cli.cluster.hold("bob", "-A", "dg-two", "-c2", "--mem=1G")
    job = submit(cli, "-A", "dg-two", "-c1", "--mem=1G")
    wait_for(cli, job, reason="QOSGrpCpuLimit")
    found = diagnose(cli)[job]
    assert (found["cause"], found["move"]["account"]) == ("others", "maigan")
    assert found["holders"][0]["user"] == "bob"


def test_no_pending_jobs(cli: Cli) -> None:
    cli.policy()
    cli.cluster.hold("alice", "-A", "clive", "--mem=1G")
    done = cli.run("diagnose")
    assert (done.rc, done.out, done.err) == (0, "no pending jobs\n", "")
    assert diagnose(cli) == {}


def test_slurm_is_silent(cli: Cli) -> None:
    cli.policy()
    cli.cluster.pause_controller()
    try:
        done = cli.run("diagnose")
    finally:
        cli.cluster.resume_controller()
    assert (done.rc, done.out) == (69, "")
    assert done.err.startswith("Error: your jobs are not known: ")
    assert "Traceback" not in done.err


# -- reasons, without Slurm ---------------------------------------------------------------------


def test_every_accounting_reason_is_classified() -> None:
    """All that core/reasons.py can spell has a kind, and every kind a class."""
    found = diagnosis.accounting_reasons()
    for level, kind in reasons._COUNTS:
        assert found[reasons.count_reason(level, kind)] in diagnosis._KINDS
    for level, kind in reasons._PATTERNS:
        for tres in ("cpu", "mem", "node", "energy", "billing", "gres/gpu:a", "license/x", "bb/x"):
            reason = reasons.tres_reason(level, kind, tres)
            assert found[reason] in diagnosis._KINDS, reason
    assert {"QOSGrpMemLimit", "QOSGrpCpuLimit", "QOSGrpGRES", "MaxCpuPerAccount"} <= set(found)
    assert not set(found) & set(diagnosis.REASONS)


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("QOSGrpMemLimit", "QOSGrpMemLimit"),
        ("None", "None"),
        ("", "None"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "ReqNodeNotAvail"),
        ("(Priority)", "Priority"),
        ("Nodes required for job are DOWN, DRAINED", "Nodes_required_for_job_are_DOWN"),
        ("launch failed requeued held", "launch_failed_requeued_held"),
    ],
)
def test_base_reason(text: str, base: str) -> None:
    assert diagnosis.base_reason(text) == base
